/* The header of one safetensors file: a list of tensors, each place checked. No tensor data is
 * read, and the header passes through a window. Format: huggingface/safetensors' published
 * format text; checks: docs/malformed.md S1 to S27. */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include "directory.h"

struct tensor_list { /* grows; owned by the caller, freed with free(items) and free(meta) */
    struct tensor *items;
    int64_t n, cap;
    struct text_pair *meta;
    int64_t n_meta, cap_meta;
};

/* Appends the file's tensors (file index `file`); names and texts live in a. */
int safetensors_read(struct file *f, int32_t file, struct arena *a, struct tensor_list *list,
                     struct leat_error *e);

#endif
