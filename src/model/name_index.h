/* A hash index over names that lie in an array of structs whose first member is `const char *name`.
 * Knows nothing of what it indexes. Linear probing at most half full, so building and finding are
 * linear and constant whatever a file holds (the seed differs from run to run). Thread rule: build
 * by one thread, then any thread reads. */
#ifndef MODEL_NAME_INDEX_H
#define MODEL_NAME_INDEX_H

#include <stdbool.h>

#include "../base/arena.h"

struct name_index {
    const char *base; /* the array */
    size_t stride;
    uint64_t seed;
    uint64_t mask;
    uint32_t *slot; /* index + 1, 0 = empty */
};

/* Room for n names of the array at base; memory from a. */
int name_index_init(struct name_index *x, const void *base, size_t stride, uint64_t n,
                    struct arena *a, struct leat_error *e);
/* Adds element i, whose name is set. false = the name is there already (nothing added). */
bool name_index_add(struct name_index *x, uint32_t i);
/* Index of the name, -1 = absent. */
int64_t name_index_find(const struct name_index *x, const char *name);

/* UTF-8 without NUL, overlong forms and surrogates. */
bool name_is_text(const void *bytes, size_t n);

#endif
