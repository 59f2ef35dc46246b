/* Frequency with recency: uses since the expert came, on top of an age that rises to the key of
 * whatever was evicted last. So a newcomer starts level with what has just gone, and what was
 * frequent long ago is overtaken. Of two equal ones the one used longer ago goes first. */
#include <math.h>

#include "evict_policies.h"

#define TIE 0x1p-40 /* passes in a key: below one use for any run */

static uint64_t room(const struct evict_shape *s)
{
    (void)s;
    return sizeof(double);
}

static void call(struct evict *e, const struct evict_call *c)
{
    double *key = e->key + (int64_t)c->layer * e->shape.n_experts;
    const double *age = e->own;

    for (int32_t i = 0; i < c->n; i++) {
        double *k = &key[c->ids[i]];
        *k = floor(c->hit[i] && isfinite(*k) ? *k : *age) + 1 + e->now * TIE;
    }
}

static void gone(struct evict *e, int32_t unit)
{
    double *age = e->own;

    if (e->key[unit] > *age)
        *age = e->key[unit];
}

const struct evict_policy evict_aged = {.name = "aged", .room = room, .call = call, .gone = gone};
