/* A recorded routing against an eviction policy: what share of the bytes that the decode asks for
 * would have been in a cache of so many bytes. The policies are the cache's own (evict.h); Belady's
 * bound, which knows the future, stands beside them. Counts bytes of experts, knows no slots, no
 * windows and no drive. Thread rule: one thread at a time. */
#ifndef WEIGHTS_REPLAY_H
#define WEIGHTS_REPLAY_H

#include "evict.h"
#include "route_trace.h"

/* Calls of the cache as they happened: of each pass, layer by layer, the distinct experts. */
struct replay;
/* Keeps no part of the trace. LEAT_ERR_FORMAT when it has no decode, or an expert out of bounds. */
int replay_open(const struct route_trace *t, struct replay **out, struct leat_error *e);
void replay_close(struct replay *r); /* NULL ok */

struct replay_hits {
    uint64_t asked_bytes, hit_bytes; /* of the decode; each expert of a pass once */
    uint64_t evictions;              /* of the prefill too */
};
/* Prefill fills the cache, layer by layer; what it hits is not counted. The experts of a call stay
 * until its end, as they do in the cache, unless they alone are more than the budget: then they
 * pass through one after another. p NULL: Belady, which may let an expert pass through at once. */
int replay_run(const struct replay *r, const struct evict_policy *p, uint64_t budget_bytes,
               struct replay_hits *out, struct leat_error *e);

#endif
