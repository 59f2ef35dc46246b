/* What a container holds, runnable or not, for `leat inspect`: a GGUF file (vocabulary only,
 * unknown architecture, one tensor), a safetensors folder or a lone .safetensors. Headers only.
 * A file that breaks its format is an error; what a well-formed one lacks to run is said in
 * lacks. Every string is printable. Thread rule: immutable after inspect_open. */
#ifndef MODEL_INSPECT_H
#define MODEL_INSPECT_H

#include "directory.h"
#include "model.h"

enum inspect_group_id {
    GROUP_EMBEDDING, GROUP_ATTENTION, GROUP_FFN, GROUP_EXPERTS, GROUP_ROUTER, GROUP_NORMS,
    GROUP_OUTPUT, GROUP_OTHER,
    GROUP_COUNT,
};

struct inspect_group {
    const char *name; /* "dense feed forward" */
    const char *key;  /* "ffn", for JSON */
    int64_t tensors;
    uint64_t bytes;
    /* read for one token when nothing is resident: experts counted used of all, the embedding one
     * row (and the whole table when it is the head too) */
    uint64_t token_bytes;
};

struct inspect_type { /* tensors by type */
    const char *name;
    bool runs;
    int64_t tensors;
    uint64_t bytes;
};

struct inspect_meta {
    const char *key;
    const char *type;  /* "u32", "string", "string[32000]", "number" */
    const char *value; /* cut when long; the first elements of an array */
};

struct inspect_tensor {
    const char *name;
    const char *type;
    int32_t n_dims;
    uint64_t dims[TENSOR_DIMS]; /* row length first */
    uint64_t bytes, offset;
    int32_t file;
    enum inspect_group_id group;
};

struct inspect_file {
    const char *path;
    uint64_t bytes, trailing_bytes;
    int64_t tensors;
};

#define INSPECT_TYPES 32

struct inspect {
    const char *path, *container /* "gguf", "safetensors" */;
    int32_t container_version;   /* of GGUF; 0 for safetensors */
    const char *arch;            /* as the files say it, "" = not said */
    const char *name;
    bool runs;                   /* model_open takes it */
    bool has_tokenizer;
    int32_t n_lacks;
    const char *lacks[4];        /* one sentence each */
    const struct model *model;   /* NULL unless runs; its files are closed with this */

    int32_t n_files;
    struct inspect_file *files;
    int64_t n_meta;
    struct inspect_meta *meta;
    int64_t n_tensors;
    struct inspect_tensor *tensors;
    struct inspect_group groups[GROUP_COUNT];
    int32_t n_types;
    struct inspect_type types[INSPECT_TYPES];
    uint64_t total_bytes, token_bytes;
    int64_t n_values;            /* parameters of the model */

    /* of a model that runs; 0 otherwise */
    int32_t n_units, n_expert_units;
    uint64_t unit_min_bytes, unit_max_bytes, expert_bytes, token_cycle_bytes;
    const char *largest_unit;

    int32_t n_warnings;
    const char **warnings;
};

int inspect_open(const char *path, struct ledger *ledger, struct inspect **out,
                 struct leat_error *e);
void inspect_close(struct inspect *i); /* NULL ok */

#endif
