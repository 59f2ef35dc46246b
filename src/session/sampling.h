/* Choosing the next id from a row of logits. The order of the steps (docs/run.md): logit bias,
 * penalties; then greedy when the temperature is 0; else top-k, top-p and min-p on the
 * distribution at temperature 1, and the draw at the given temperature. Equal logits: the lower id
 * wins. Nothing is sorted but what top-k or top-p keep, so that a vocabulary of 262,144 costs
 * little. No allocation; the caller gives the scratch. One thread per sampler. */
#ifndef SESSION_SAMPLING_H
#define SESSION_SAMPLING_H

#include <stdbool.h>

#include "../base/error.h"
#include "rng.h"

struct logit_bias {
    int32_t id;
    float bias; /* finite, or -INFINITY: never this id */
};

struct sampling {
    float temperature;       /* 0 = greedy */
    int32_t top_k;           /* 0 = off */
    float top_p;             /* 1 = off */
    float min_p;             /* 0 = off */
    float repeat_penalty;    /* 1 = off; divides a positive logit, multiplies a negative one */
    float frequency_penalty; /* 0 = off; times the occurrences */
    float presence_penalty;  /* 0 = off; once */
    int32_t repeat_last_n;   /* ids back that the penalties look at; 0 = none, -1 = all */
    uint64_t seed;
    const struct logit_bias *bias; /* owned by the caller, who keeps it as long as the sampler */
    int32_t n_bias;
};

struct candidate {
    float logit;
    int32_t id;
};

struct sampler {
    struct sampling how;
    struct rng rng;
};
void sampler_init(struct sampler *s, const struct sampling *how);

/* logits[n] are changed. history: the ids so far, oldest first; sorted: room for as many ids;
 * scratch: n candidates. LEAT_ERR_FORMAT when the logits hold NaN or +infinity, or nothing that
 * may be chosen. */
int sampler_pick(struct sampler *s, float *logits, int32_t n, const int32_t *history,
                 int32_t n_history, int32_t *sorted, struct candidate *scratch, int32_t *id,
                 struct leat_error *e);

/* What may be drawn, in ascending order of id, logits as they are after bias and penalties:
 * sampler_pick without the draw, for tests. Returns the number. Not for a temperature of 0. */
int32_t sampler_keep(const struct sampling *how, const float *logits, int32_t n,
                     struct candidate *out);

#endif
