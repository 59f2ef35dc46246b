/* The directory of a model, whatever container it came in: open files, tensors, warnings. It
 * says what lies where and knows no architecture and no role. Filled by directory_gguf.c,
 * safetensors.c and hf_folder.c; read by resolve.c and inspect.c. Thread rule: filled by one
 * thread, then read by any. */
#ifndef MODEL_DIRECTORY_H
#define MODEL_DIRECTORY_H

#include "../base/arena.h"
#include "../io/file.h"
#include "gguf.h"
#include "name_index.h"

#define TENSOR_DIMS 8

/* tensor.format of a type that is no enum format: see type_name. */
#define FORMAT_FOREIGN UINT32_MAX

struct tensor {
    const char *name; /* first member: indexed by name_index */
    int32_t file;     /* index in directory.files */
    uint32_t format;  /* enum format, or FORMAT_FOREIGN */
    const char *type_name;
    int32_t n_dims;             /* 0 for a scalar */
    uint64_t dims[TENSOR_DIMS]; /* innermost first (GGUF order), 1 beyond n_dims */
    uint64_t offset;            /* absolute in the file */
    uint64_t bytes, row_bytes;  /* 0 when the block size of a foreign type is unknown */
    bool used;                  /* a role was found for it (resolve.c) */
};

struct directory_file {
    struct file *file; /* owned */
    const char *path;
    uint64_t trailing_bytes; /* behind the last tensor */
    int64_t n_tensors;
};

struct text_pair { /* of a safetensors __metadata__ */
    const char *key, *value;
};

struct directory {
    struct arena *arena; /* of the caller */
    bool gguf_container;
    struct gguf *gguf; /* the shard with the keys; NULL for safetensors */
    const char *folder; /* of a safetensors model; NULL for GGUF and for a lone file */
    const char *config; /* path of config.json, NULL = there is none */
    int32_t n_files;
    struct directory_file *files;
    int64_t n_tensors;
    struct tensor *tensors;
    int64_t n_meta;
    struct text_pair *meta;
    uint64_t total_bytes; /* of all tensors */
    int32_t n_warnings, cap_warnings;
    const char **warnings;
    struct name_index index; /* of tensors */
};

/* path as for model_open. Headers only. On failure nothing is left open. */
int directory_open(const char *path, struct arena *a, struct directory *d, struct leat_error *e);
void directory_close(struct directory *d); /* closes the files; the arena is the caller's */

struct tensor *directory_find(const struct directory *d, const char *name);

/* Adds a line to the warnings (after WARNINGS_MOST one line says that there are more). */
#define WARNINGS_MOST 200
int directory_warn(struct directory *d, struct leat_error *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Indexes the tensors and sums their bytes; a name that comes twice is an error naming both
 * files. */
int directory_finish(struct directory *d, struct leat_error *e);

/* Fillers. locate.c decides which one. */
int directory_open_gguf(const char *path, struct arena *a, struct directory *d,
                        struct leat_error *e);
int directory_open_folder(const char *folder, struct arena *a, struct directory *d,
                          struct leat_error *e);
int directory_open_lone(const char *path, struct arena *a, struct directory *d,
                        struct leat_error *e);

/* "FOLDER/NAME" in the arena. */
char *path_join(struct arena *a, const char *folder, const char *name, struct leat_error *e);
/* The folder part of a path ("." when there is none), in the arena. */
char *path_folder(struct arena *a, const char *path, struct leat_error *e);
const char *path_base(const char *path);

#endif
