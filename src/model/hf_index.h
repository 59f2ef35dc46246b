/* A model.safetensors.index.json: which tensor is said to be in which file. Memory of a caller's
 * arena.
 * Thread rule: read by one thread, then immutable. */
#ifndef MODEL_HF_INDEX_H
#define MODEL_HF_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/arena.h"

struct hf_index_entry {
    const char *name;
    int32_t file; /* in files */
};

struct hf_index {
    const char *path;
    int64_t total_size; /* metadata.total_size; -1 = not said */
    int32_t n_files;
    const char **files; /* plain names below the folder: checked, never absolute, no ".." */
    int64_t n_entries;
    struct hf_index_entry *entries;
};

int hf_index_read(const char *path, struct arena *a, struct hf_index *x, struct leat_error *e);
bool hf_index_has_file(const struct hf_index *x, const char *name);
void hf_index_forget(struct hf_index *x); /* as if it had not been read */

#endif
