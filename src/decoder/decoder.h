/* The forward pass over one ubatch: one decoder described by data (struct model). Knows what is
 * computed, never where weights come from. Byte identity: a token's logits do not depend on what
 * rides beside it, on the width, on threads, or on where weights come from. Thread rule: one
 * thread, which is thread 0 of the team. */
#ifndef DECODER_DECODER_H
#define DECODER_DECODER_H

#include "../base/team.h"
#include "../weights/weights.h"
#include "state.h"

struct decoder_config {
    const struct model *model;
    struct weights *weights;
    struct team *team;
    const struct kernels *kernels;
    struct ledger *ledger;
    int32_t max_width;  /* tokens per ubatch */
    int32_t max_logits; /* wanted rows per ubatch, <= max_width */
};

/* Bytes the decoder will take (ROW_COMPUTE; ROW_LOGITS for the caller's logits buffer is the
 * caller's). Pure. */
uint64_t decoder_bytes(const struct model *m, int32_t max_width, int32_t max_logits,
                       int32_t threads);

struct decoder;
int decoder_open(const struct decoder_config *c, struct decoder **out, struct leat_error *e);
void decoder_close(struct decoder *d);

struct ubatch {
    int32_t n;
    const int32_t *ids; /* 0 .. n_vocab-1 */
    struct seq_state *const
        *seq; /* per token; tokens of one sequence are contiguous and in order of position */
    const int32_t *pos; /* per token: state_length(seq) for its first, then rising by one */
    const uint8_t *want_logits;
};

/* logits: model.n_head_out floats per wanted token, in token order. On failure or cancellation
 * no state changed length. */
int decoder_run(struct decoder *d, const struct ubatch *b, float *logits, struct leat_error *e);

/* Optional watcher (may be NULL): called on the caller's thread after each layer; for progress
 * by the clock. */
typedef void (*decoder_watch)(void *arg, int32_t layer, int32_t n_layer);
void decoder_set_watch(struct decoder *d, decoder_watch fn, void *arg);

/* What the router of a layer chose for the tokens at hand: k of ids and weights per token, the ids
 * distinct and ascending. */
struct decoder_routing {
    int32_t layer, n, k;
    const int32_t *pos;           /* per token */
    struct seq_state *const *seq; /* per token */
    int32_t *ids;
    float *weights;
    const uint8_t *hit; /* by expert: 1 = the cache had it when it was asked; wanted ones only */
};
typedef void (*decoder_routing_fn)(void *arg, const struct decoder_routing *r);
/* Optional watcher (may be NULL) of every layer's choices: reads them and changes nothing. On the
 * caller's thread. */
void decoder_watch_routing(struct decoder *d, decoder_routing_fn fn, void *arg);
/* For benchmarks alone, NULL everywhere else: may put other ids and weights in place of what the
 * router computed (hit is NULL then). The answers are no longer the model's. */
void decoder_replace_routing(struct decoder *d, decoder_routing_fn fn, void *arg);

struct decoder_stats {
    double compute_s; /* time in passes less weights' wait */
    uint64_t passes, tokens;
};
void decoder_get_stats(const struct decoder *d, struct decoder_stats *out);

#endif
