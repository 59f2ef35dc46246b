/* See name_index.h. */
#include "name_index.h"

#include <string.h>

#include "../base/clock.h"
#include "../base/utf8.h"

static uint64_t name_hash(uint64_t seed, const char *name)
{
    uint64_t h = seed;

    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        h = (h ^ *p) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h ^ (h >> 32);
}

static const char *name_of(const struct name_index *x, uint64_t i)
{
    const char *name;

    memcpy(&name, x->base + i * x->stride, sizeof name);
    return name;
}

int name_index_init(struct name_index *x, const void *base, size_t stride, uint64_t n,
                    struct arena *a, struct leat_error *e)
{
    uint64_t cap = 16;
    double now = clock_now();

    if (n > UINT32_MAX / 4)
        return error_set(e, LEAT_ERR_UNSUPPORTED, "too many names to index: %llu",
                         (unsigned long long)n);
    while (cap < 2 * n)
        cap *= 2;
    x->slot = arena_array(a, cap, sizeof *x->slot, sizeof *x->slot, e);
    if (!x->slot)
        return LEAT_ERR_MEMORY;
    x->base = base;
    x->stride = stride;
    x->mask = cap - 1;
    memcpy(&x->seed, &now, sizeof x->seed);
    x->seed ^= (uint64_t)(uintptr_t)x->slot;
    return 0;
}

bool name_index_add(struct name_index *x, uint32_t i)
{
    const char *name = name_of(x, i);
    uint64_t k = name_hash(x->seed, name) & x->mask;

    for (; x->slot[k]; k = (k + 1) & x->mask)
        if (strcmp(name_of(x, x->slot[k] - 1), name) == 0)
            return false;
    x->slot[k] = i + 1;
    return true;
}

int64_t name_index_find(const struct name_index *x, const char *name)
{
    uint64_t k;

    if (!x->slot)
        return -1;
    for (k = name_hash(x->seed, name) & x->mask; x->slot[k]; k = (k + 1) & x->mask)
        if (strcmp(name_of(x, x->slot[k] - 1), name) == 0)
            return (int64_t)x->slot[k] - 1;
    return -1;
}

bool name_is_text(const void *bytes, size_t n)
{
    const char *p = bytes;
    uint32_t c;

    while (n > 0) {
        int len = utf8_next(p, n, &c);

        if (len == 0 || c == 0)
            return false;
        p += len;
        n -= (size_t)len;
    }
    return true;
}
