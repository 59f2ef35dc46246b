/* Segmented LRU: what was used once waits on probation; a use while it is in the cache moves it
 * among the protected, which may be four fifths of the cache. When they are too many, the least
 * recently used of them is on probation again, as the newest there. Probation goes first.
 *
 * The key is the time of the last use (or of the return to probation), behind all those on
 * probation for the protected. */
#include <math.h>

#include "evict_policies.h"

#define PROTECTED 1e12 /* beyond any time, and small enough to leave a thousandth of a pass */
#define SHARE     0.8

static uint64_t room(const struct evict_shape *s)
{
    (void)s;
    return sizeof(int64_t);
}

static void demote_oldest(struct evict *e)
{
    const int32_t n = e->shape.n_layers * e->shape.n_experts;
    int32_t oldest = -1;

    for (int32_t i = 0; i < n; i++)
        if (e->key[i] >= PROTECTED && (oldest < 0 || e->key[i] < e->key[oldest]))
            oldest = i;
    e->key[oldest] = e->now;
}

static void call(struct evict *e, const struct evict_call *c)
{
    double *key = e->key + (int64_t)c->layer * e->shape.n_experts;
    int64_t *n_protected = e->own;

    for (int32_t i = 0; i < c->n; i++) {
        double *k = &key[c->ids[i]];
        if (c->hit[i]) {
            *n_protected += *k < PROTECTED;
            *k = PROTECTED + e->now;
        } else {
            *k = e->now;
        }
    }
    for (; *n_protected > (int64_t)(SHARE * c->slots); --*n_protected)
        demote_oldest(e);
}

static void gone(struct evict *e, int32_t unit)
{
    int64_t *n_protected = e->own;

    *n_protected -= e->key[unit] >= PROTECTED;
    e->key[unit] = -INFINITY;
}

const struct evict_policy evict_slru = {.name = "slru", .room = room, .call = call, .gone = gone};
