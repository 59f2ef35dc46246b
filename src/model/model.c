/* Opens and closes struct model: directory, hyperparameters, roles. Owns the life of files and
 * arena. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "model_internal.h"
#include "resolve.h"

struct model_box { /* one object on the heap: the model, its arena and its directory */
    struct model model;
    struct arena arena;
    struct directory directory;
};

int model_build(struct directory *d, struct model *m, struct leat_error *e)
{
    struct hparams h = {0};
    char q[500];
    const char *p = d->folder ? d->folder : d->files[0].path;
    int rc = d->gguf_container ? hparams_from_gguf(d, &h, e) : hparams_from_config(d, &h, e);

    if (rc)
        return rc;
    if (d->n_tensors == 0)
        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s: there are no tensors (a file with a vocabulary only?)",
                         error_quote(q, sizeof q, p, strlen(p)));
    m->container = d->gguf_container ? MODEL_GGUF : MODEL_SAFETENSORS;
    m->gguf = d->gguf;
    m->folder = d->folder;
    rc = resolve_model(d, &h, m, e);
    if (rc)
        return rc;
    m->n_warnings = d->n_warnings;
    m->warnings = d->warnings;
    return 0;
}

int model_open(const char *path, struct ledger *ledger, struct model **out, struct leat_error *e)
{
    struct model_box *box = calloc(1, sizeof *box);
    struct model *m;
    int rc;

    *out = NULL;
    if (!box)
        return error_set(e, LEAT_ERR_MEMORY, "no memory to open a model");
    m = &box->model;
    arena_init(&box->arena, ledger, ROW_MODEL);
    m->arena = &box->arena;
    rc = directory_open(path, &box->arena, &box->directory, e);
    if (rc)
        goto fail;
    m->n_files = box->directory.n_files;
    m->files = arena_array(&box->arena, (uint64_t)m->n_files, sizeof *m->files,
                           _Alignof(struct model_file), e);
    m->path = arena_copy(&box->arena, path, strlen(path), e);
    if (!m->files || !m->path) {
        rc = LEAT_ERR_MEMORY;
        goto fail;
    }
    for (int32_t i = 0; i < m->n_files; i++)
        m->files[i] =
            (struct model_file){box->directory.files[i].file, box->directory.files[i].path};
    rc = model_build(&box->directory, m, e);
    if (rc)
        goto fail;
    *out = m;
    return 0;
fail:
    model_close(m);
    return rc;
}

void model_close(struct model *m)
{
    struct model_box *box = (struct model_box *)m; /* the first member */

    if (!m)
        return;
    directory_close(&box->directory);
    arena_close(&box->arena);
    free(box);
}
