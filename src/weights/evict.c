/* The eviction policies by name, and what they have in common. */
#include "evict_policies.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* The default first. */
static const struct evict_policy *const all[] = {&evict_echo, &evict_decay, &evict_lru, &evict_slru,
                                                 &evict_aged};
#define N_ALL ((int32_t)(sizeof all / sizeof *all))

const struct evict_policy *evict_policy(int32_t i)
{
    return i >= 0 && i < N_ALL ? all[i] : NULL;
}

const struct evict_policy *evict_find(const char *name)
{
    if (!name)
        return all[0];
    for (int32_t i = 0; i < N_ALL; i++)
        if (!strcmp(all[i]->name, name))
            return all[i];
    return NULL;
}

const char *evict_names(void)
{
    return "echo, decay, lru, slru, aged";
}

static uint64_t units_of(const struct evict_shape *s)
{
    return (uint64_t)s->n_layers * (uint64_t)s->n_experts;
}

static uint64_t own_bytes(const struct evict_policy *p, const struct evict_shape *s)
{
    return p->room ? (p->room(s) + 7) / 8 * 8 : 0;
}

uint64_t evict_bytes(const struct evict_shape *s)
{
    uint64_t most = 0;

    for (int32_t i = 0; i < N_ALL; i++)
        if (own_bytes(all[i], s) > most)
            most = own_bytes(all[i], s);
    return sizeof(struct evict) + units_of(s) * sizeof(double) + most;
}

struct evict *evict_make(const struct evict_policy *p, const struct evict_shape *s, void *mem)
{
    struct evict *e = mem;
    double *key = (double *)(e + 1);
    const uint64_t n = units_of(s);

    *e = (struct evict){.policy = p, .shape = *s, .key = key, .own = key + n};
    for (uint64_t i = 0; i < n; i++)
        key[i] = -INFINITY;
    memset(e->own, 0, own_bytes(p, s));
    return e;
}

void evict_used(struct evict *e, const struct evict_call *c)
{
    double *key = e->key + (int64_t)c->layer * e->shape.n_experts;

    e->now = (double)c->pass + (double)c->layer / e->shape.n_layers;
    e->layer = c->layer;
    if (e->policy->call)
        e->policy->call(e, c);
    else
        for (int32_t i = 0; i < c->n; i++)
            key[c->ids[i]] = e->policy->use(key[c->ids[i]], e->now);
}

int32_t evict_victim(const struct evict *e, const int32_t *unit, int32_t n)
{
    int32_t best = 0;

    if (e->policy->victim)
        return e->policy->victim(e, unit, n);
    for (int32_t i = 1; i < n; i++)
        if (e->key[unit[i]] < e->key[unit[best]])
            best = i;
    return best;
}

void evict_gone(struct evict *e, int32_t unit)
{
    if (e->policy->gone)
        e->policy->gone(e, unit);
}
