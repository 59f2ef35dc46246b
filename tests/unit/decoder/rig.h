/* A decoder with all that it stands on, and one way to put a sequence through it. */
#ifndef TESTS_DECODER_RIG_H
#define TESTS_DECODER_RIG_H

#include "../../../src/decoder/decoder.h"

struct how {
    int32_t width, threads;
    int32_t others; /* sequences of other lengths that ride along */
    int32_t sparse; /* 0: logits of every token; n: of every n-th and the last only */
    enum kv_type kv;
    const struct kernels *kernels; /* NULL = the best */
};

struct rig {
    struct ledger *ledger;
    struct team *team;
    struct state_pool *pool;
    struct decoder *decoder;
};

/* Room for n_seq sequences of context tokens. */
void rig_open(struct rig *r, const struct model *m, struct weights *w, const struct how *h,
              int32_t context, int32_t n_seq);
void rig_close(struct rig *r);
/* Opens a rig, evaluates ids from position 0 and writes the logits asked for to their rows;
 * others' tokens come from `seed`. Allocations during passes fail the test. */
void evaluate(const struct model *m, struct weights *w, const struct how *h, const int32_t *ids,
              int32_t n, float *logits);

/* malloc, calloc and realloc calls so far (the tests are linked with --wrap). */
long allocations(void);

#endif
