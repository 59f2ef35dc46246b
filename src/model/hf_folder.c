#include "directory.h"
#include "hparams.h"
int directory_open_folder(const char *folder, struct arena *a, struct directory *d,
                          struct leat_error *e)
{
    (void)folder, (void)a, (void)d;
    return error_set(e, LEAT_ERR_UNSUPPORTED, "safetensors folders are not read yet");
}
int directory_open_lone(const char *path, struct arena *a, struct directory *d,
                        struct leat_error *e)
{
    return directory_open_folder(path, a, d, e);
}
int hparams_from_config(struct directory *d, struct hparams *h, struct leat_error *e)
{
    (void)d, (void)h;
    return error_set(e, LEAT_ERR_UNSUPPORTED, "safetensors folders are not read yet");
}
