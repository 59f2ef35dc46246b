/* Eviction policies of the expert cache, as pure data: which expert goes when room is needed. A
 * policy sees every call of the cache (layer, distinct experts, which of them were there) and
 * keeps a key for every expert, also for those that are not in the cache; when room is needed it
 * is shown the experts that may go and names one. The expert cache and `leat replay` use the same
 * code. Knows no slot, no file, no bytes. Thread rule: one thread at a time.
 *
 * Experts are numbered layer * n_experts + expert. Time is counted in passes, with the place in the
 * pass as the fraction. */
#ifndef WEIGHTS_EVICT_H
#define WEIGHTS_EVICT_H

#include <stdbool.h>
#include <stdint.h>

struct evict_shape {
    int32_t n_layers, n_experts; /* 1 + highest layer; the most experts of a layer */
    int32_t n_used;              /* experts that a token uses in a layer */
};

struct evict_call {
    uint64_t pass;
    int32_t layer, n;    /* n: distinct experts */
    const uint16_t *ids; /* ascending */
    const bool *hit;     /* hit[i]: ids[i] was in the cache, or being read */
    int32_t slots;       /* experts that the cache can hold, about */
    /* What each token of the pass chose, token by token, per_token each; NULL = not known. */
    const int32_t *chosen;
    int32_t tokens, per_token;
};

struct evict;
struct evict_policy {
    const char *name;
    /* A simple policy gives an expert a key at each use, from the key that it had (-INFINITY: never
     * used); the smallest goes first. Keys need no ageing: a policy whose scores fade writes them
     * so that fading leaves the order alone (evict_decay.c). */
    double (*use)(double key, double now);
    /* Others do it themselves: all four may be NULL. */
    uint64_t (*room)(const struct evict_shape *s);                            /* bytes of e->own */
    void (*call)(struct evict *e, const struct evict_call *c);                /* in place of use */
    int32_t (*victim)(const struct evict *e, const int32_t *unit, int32_t n); /* index in unit[] */
    void (*gone)(struct evict *e, int32_t unit);                              /* it was evicted */
};

struct evict {
    const struct evict_policy *policy;
    struct evict_shape shape;
    double now; /* of the last call */
    int32_t layer;
    double *key;
    void *own; /* of the policy; zero at first */
};

/* The policies in the order in which they are listed; NULL behind the last. */
const struct evict_policy *evict_policy(int32_t i);
/* NULL for an unknown name; name NULL gives the default. */
const struct evict_policy *evict_find(const char *name);
const char *evict_names(void); /* "echo, decay, ..." */

/* Bytes that evict_make needs for any policy; a multiple of 8. */
uint64_t evict_bytes(const struct evict_shape *s);
/* mem: evict_bytes, aligned to 8, not cleared by the caller, who keeps and frees it. */
struct evict *evict_make(const struct evict_policy *p, const struct evict_shape *s, void *mem);

void evict_used(struct evict *e, const struct evict_call *c);
/* The one of unit[0..n) that goes first, as index; n at least 1. */
int32_t evict_victim(const struct evict *e, const int32_t *unit, int32_t n);
void evict_gone(struct evict *e, int32_t unit);

#endif
