/* Eviction policies of the expert cache, as pure functions. A policy gives every unit a key at each
 * use; the unit with the smallest key goes first. Keys are compared only with each other and need
 * no ageing: a policy whose scores fade writes them so that fading leaves the order alone
 * (evict_decay.c). Knows no slot and no file. */
#ifndef WEIGHTS_EVICT_H
#define WEIGHTS_EVICT_H

struct evict_policy {
    const char *name;
    /* key: the unit's key so far, -INFINITY when it was never used, kept while it is not in the
     * cache. now: passes since the start, with the place in the pass as a fraction. */
    double (*use)(double key, double now);
};

extern const struct evict_policy evict_lru, evict_decay;

/* NULL for an unknown name; name NULL gives the default. */
const struct evict_policy *evict_find(const char *name);

#endif
