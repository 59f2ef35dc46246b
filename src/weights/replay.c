/* Replays a recorded routing (replay.h). Experts are numbered as in evict.h: layer * n_experts +
 * expert. */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

struct call {
    uint64_t pass;
    int32_t layer, n;
    int64_t first; /* of its ids */
    bool decode;
    int64_t chosen; /* what its tokens chose: the first of them */
    int32_t tokens, per_token;
};

struct replay {
    struct evict_shape shape;
    uint64_t *expert_bytes; /* by layer */
    uint64_t mean_bytes;    /* of an expert that was asked for */
    int64_t n_calls, n_ids, n_chosen;
    struct call *call;
    uint16_t *ids;   /* of all calls, ascending within a call */
    int32_t *chosen; /* of all rows */
    int64_t *next;   /* beside ids: the next call that asks for the expert, n_calls = none */
};

#define NEVER INT64_MAX

static int no_memory(struct leat_error *e)
{
    return error_set(e, LEAT_ERR_MEMORY, "no memory to replay the routing");
}

/* ---- calls from rows ---- */

/* Whether row b is of another call than row a, which came just before it, and of another pass. */
static bool new_call(const struct route_trace *t, const struct route_row *a,
                     const struct route_row *b, bool *new_pass)
{
    *new_pass = b->layer < a->layer || b->phase != a->phase || b->turn != a->turn ||
                (t->n_layers == 1 && b->phase == ROUTE_DECODE);
    return *new_pass || b->layer != a->layer;
}

/* The distinct experts of rows [from, to), ascending. seen: all zero, and left so. */
static int32_t distinct(const struct route_trace *t, int64_t from, int64_t to, uint8_t *seen,
                        uint16_t *ids)
{
    int32_t n = 0;

    for (int64_t i = from; i < to; i++)
        for (int32_t k = 0; k < t->row[i].n; k++)
            seen[t->expert[t->row[i].first + k]] = 1;
    for (int32_t i = 0; i < t->n_experts; i++)
        if (seen[i]) {
            ids[n++] = (uint16_t)i;
            seen[i] = 0;
        }
    return n;
}

static int check(const struct route_trace *t, struct leat_error *e)
{
    bool decode = false;

    for (int64_t i = 0; i < t->n_rows; i++) {
        const struct route_row *r = &t->row[i];
        decode |= r->phase == ROUTE_DECODE && r->n > 0;
        if (r->layer < 0 || r->layer >= t->n_layers)
            return error_set(e, LEAT_ERR_FORMAT, "row %lld of the routing: layer %d of %d",
                             (long long)i, (int)r->layer, (int)t->n_layers);
        for (int32_t k = 0; k < r->n; k++)
            if (t->expert[r->first + k] >= t->n_experts)
                return error_set(e, LEAT_ERR_FORMAT, "row %lld of the routing: expert %d of %d",
                                 (long long)i, (int)t->expert[r->first + k], (int)t->n_experts);
        if (r->n > 0 && t->expert_bytes[r->layer] == 0)
            return error_set(e, LEAT_ERR_FORMAT,
                             "the routing does not say how large the experts of layer %d are",
                             (int)r->layer);
    }
    if (!decode)
        return error_set(e, LEAT_ERR_FORMAT, "the routing has no decoded token to count hits of");
    return 0;
}

/* What each token chose, where all chose as many. */
static void keep_chosen(const struct route_trace *t, int64_t from, int64_t to, struct replay *r,
                        struct call *c)
{
    c->per_token = t->row[from].n;
    for (int64_t i = from; i < to; i++)
        if (t->row[i].n != c->per_token)
            return;
    c->tokens = (int32_t)(to - from);
    c->chosen = r->n_chosen;
    for (int64_t i = from; i < to; i++)
        for (int32_t k = 0; k < t->row[i].n; k++)
            r->chosen[r->n_chosen++] = t->expert[t->row[i].first + k];
}

static int make_calls(const struct route_trace *t, struct replay *r)
{
    uint8_t *seen = calloc((size_t)t->n_experts, 1);
    uint64_t pass = 1;

    r->call = calloc((size_t)t->n_rows, sizeof *r->call);
    r->ids = calloc((size_t)t->n_choices, sizeof *r->ids);
    r->chosen = calloc((size_t)t->n_choices, sizeof *r->chosen);
    if (!seen || !r->call || !r->ids || !r->chosen) {
        free(seen);
        return LEAT_ERR_MEMORY;
    }
    for (int64_t from = 0; from < t->n_rows;) {
        const struct route_row *row = &t->row[from];
        struct call *c = &r->call[r->n_calls];
        bool new_pass = false;
        int64_t to = from + 1;

        while (to < t->n_rows && !new_call(t, &t->row[to - 1], &t->row[to], &new_pass))
            to++;
        *c = (struct call){.pass = pass,
                           .layer = row->layer,
                           .first = r->n_ids,
                           .decode = row->phase == ROUTE_DECODE};
        c->n = distinct(t, from, to, seen, r->ids + r->n_ids);
        keep_chosen(t, from, to, r, c);
        r->n_ids += c->n;
        r->n_calls += c->n > 0;
        pass += new_pass;
        from = to;
    }
    free(seen);
    return 0;
}

static int find_next(struct replay *r)
{
    const int64_t n = (int64_t)r->shape.n_layers * r->shape.n_experts;
    int64_t *soonest = malloc((size_t)n * sizeof *soonest);

    r->next = malloc((size_t)r->n_ids * sizeof *r->next);
    if (!soonest || !r->next) {
        free(soonest);
        return LEAT_ERR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++)
        soonest[i] = NEVER;
    for (int64_t c = r->n_calls - 1; c >= 0; c--)
        for (int64_t i = r->call[c].first; i < r->call[c].first + r->call[c].n; i++) {
            int64_t *s = &soonest[(int64_t)r->call[c].layer * r->shape.n_experts + r->ids[i]];
            r->next[i] = *s;
            *s = c;
        }
    free(soonest);
    return 0;
}

int replay_open(const struct route_trace *t, struct replay **out, struct leat_error *e)
{
    struct replay *r;
    uint64_t bytes = 0;
    int rc = check(t, e);

    *out = NULL;
    if (rc)
        return rc;
    r = calloc(1, sizeof *r);
    if (!r)
        return no_memory(e);
    r->shape = (struct evict_shape){t->n_layers, t->n_experts, 1};
    for (int64_t i = 0; i < t->n_rows; i++)
        if (t->row[i].n > r->shape.n_used)
            r->shape.n_used = t->row[i].n;
    r->expert_bytes = calloc((size_t)t->n_layers, sizeof *r->expert_bytes);
    if (!r->expert_bytes || make_calls(t, r) || find_next(r)) {
        replay_close(r);
        return no_memory(e);
    }
    memcpy(r->expert_bytes, t->expert_bytes, (size_t)t->n_layers * sizeof *r->expert_bytes);
    for (int64_t i = 0; i < r->n_calls; i++)
        bytes += (uint64_t)r->call[i].n * r->expert_bytes[r->call[i].layer];
    r->mean_bytes = bytes / (uint64_t)r->n_ids;
    *out = r;
    return 0;
}

void replay_close(struct replay *r)
{
    if (!r)
        return;
    free(r->expert_bytes);
    free(r->call);
    free(r->ids);
    free(r->chosen);
    free(r->next);
    free(r);
}

/* ---- a cache of bytes ---- */

struct cache {
    const struct replay *r;
    struct evict *policy; /* NULL = Belady */
    uint64_t budget, used;
    bool *in;        /* by number: it is in the cache */
    int32_t *bag_at; /* by number: place in the bag, -1 = not in it */
    int32_t *bag, bag_n;
    int64_t *next; /* by number: the next call that asks for it */
    bool *hit;     /* of the present call */
    uint64_t evictions;
};

static void cache_close(struct cache *c)
{
    free(c->policy);
    free(c->in);
    free(c->bag_at);
    free(c->bag);
    free(c->next);
    free(c->hit);
}

static int cache_open(struct cache *c, const struct replay *r, const struct evict_policy *p,
                      uint64_t budget)
{
    const size_t n = (size_t)r->shape.n_layers * (size_t)r->shape.n_experts;

    *c = (struct cache){.r = r, .budget = budget};
    c->in = calloc(n, sizeof *c->in);
    c->bag_at = malloc(n * sizeof *c->bag_at);
    c->bag = malloc(n * sizeof *c->bag);
    c->next = malloc(n * sizeof *c->next);
    c->hit = malloc((size_t)r->shape.n_experts * sizeof *c->hit);
    if (p) {
        void *mem = malloc(evict_bytes(&r->shape));
        c->policy = mem ? evict_make(p, &r->shape, mem) : NULL;
    }
    if (!c->in || !c->bag_at || !c->bag || !c->next || !c->hit || (p && !c->policy)) {
        cache_close(c);
        return LEAT_ERR_MEMORY;
    }
    for (size_t i = 0; i < n; i++)
        c->bag_at[i] = -1;
    return 0;
}

static void bag_put(struct cache *c, int32_t unit)
{
    c->bag_at[unit] = c->bag_n;
    c->bag[c->bag_n++] = unit;
}

static void bag_take(struct cache *c, int32_t unit)
{
    const int32_t at = c->bag_at[unit], last = c->bag[--c->bag_n];

    c->bag[at] = last;
    c->bag_at[last] = at;
    c->bag_at[unit] = -1;
}

static int32_t victim(const struct cache *c)
{
    int32_t best = 0;

    if (c->policy)
        return c->bag[evict_victim(c->policy, c->bag, c->bag_n)];
    for (int32_t i = 1; i < c->bag_n; i++)
        if (c->next[c->bag[i]] > c->next[c->bag[best]])
            best = i;
    return c->bag[best];
}

static void evict(struct cache *c, int32_t unit)
{
    bag_take(c, unit);
    c->in[unit] = false;
    c->used -= c->r->expert_bytes[unit / c->r->shape.n_experts];
    c->evictions++;
    if (c->policy)
        evict_gone(c->policy, unit);
}

/* Makes room for a missing expert; those of this call before ids[i] were used already, and go when
 * nothing else can. */
static void bring(struct cache *c, const struct call *call, int32_t i)
{
    const uint16_t *ids = c->r->ids + call->first;
    const int32_t layer0 = call->layer * c->r->shape.n_experts;
    const uint64_t bytes = c->r->expert_bytes[call->layer];

    if (bytes > c->budget)
        return;
    while (c->used + bytes > c->budget) {
        for (int32_t k = 0; c->bag_n == 0 && k < i; k++)
            if (c->in[layer0 + ids[k]])
                bag_put(c, layer0 + ids[k]);
        if (c->bag_n == 0)
            return; /* all that is there is wanted later in this call */
        evict(c, victim(c));
    }
    c->in[layer0 + ids[i]] = true;
    c->used += bytes;
}

static void policy_call(struct cache *c, const struct call *call)
{
    const uint16_t *ids = c->r->ids + call->first;
    const int32_t layer0 = call->layer * c->r->shape.n_experts;

    evict_used(c->policy,
               &(struct evict_call){.pass = call->pass,
                                    .layer = call->layer,
                                    .n = call->n,
                                    .ids = ids,
                                    .hit = c->hit,
                                    .chosen = call->tokens ? c->r->chosen + call->chosen : NULL,
                                    .tokens = call->tokens,
                                    .per_token = call->per_token,
                                    .slots = (int32_t)(c->budget / c->r->mean_bytes)});
    for (int32_t i = 0; i < call->n; i++)
        if (c->bag_at[layer0 + ids[i]] >= 0)
            bag_take(c, layer0 + ids[i]);
    for (int32_t i = 0; i < call->n; i++)
        if (!c->in[layer0 + ids[i]])
            bring(c, call, i);
    for (int32_t i = 0; i < call->n; i++)
        if (c->in[layer0 + ids[i]] && c->bag_at[layer0 + ids[i]] < 0)
            bag_put(c, layer0 + ids[i]);
}

/* Every expert is taken in, and what is wanted last leaves, be it the one just taken in. */
static void belady_call(struct cache *c, const struct call *call)
{
    const int32_t layer0 = call->layer * c->r->shape.n_experts;

    for (int32_t i = 0; i < call->n; i++)
        c->next[layer0 + c->r->ids[call->first + i]] = c->r->next[call->first + i];
    for (int32_t i = 0; i < call->n; i++) {
        const int32_t unit = layer0 + c->r->ids[call->first + i];
        if (c->in[unit])
            continue;
        bag_put(c, unit);
        c->in[unit] = true;
        c->used += c->r->expert_bytes[call->layer];
        while (c->used > c->budget)
            evict(c, victim(c));
    }
}

int replay_run(const struct replay *r, const struct evict_policy *p, uint64_t budget_bytes,
               struct replay_hits *out, struct leat_error *e)
{
    struct cache c;

    *out = (struct replay_hits){0};
    if (cache_open(&c, r, p, budget_bytes))
        return no_memory(e);
    for (int64_t i = 0; i < r->n_calls; i++) {
        const struct call *call = &r->call[i];
        const uint64_t bytes = r->expert_bytes[call->layer];

        for (int32_t k = 0; k < call->n; k++) {
            c.hit[k] = c.in[call->layer * r->shape.n_experts + r->ids[call->first + k]];
            if (call->decode) {
                out->asked_bytes += bytes;
                out->hit_bytes += c.hit[k] ? bytes : 0;
            }
        }
        if (p)
            policy_call(&c, call);
        else
            belady_call(&c, call);
    }
    out->evictions = c.evictions;
    cache_close(&c);
    return 0;
}
