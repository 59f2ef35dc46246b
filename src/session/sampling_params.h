/* The parameter rows of generation, and their way into the sampler and the stopper. One thread per
 * set. */
#ifndef SESSION_SAMPLING_PARAMS_H
#define SESSION_SAMPLING_PARAMS_H

#include "../base/params.h"
#include "sampling.h"
#include "stopping.h"

#define SAMPLING_PARAM_USE 2u /* bit in `commands`: read by a generation (LEAT_PARAM_GENERATE) */

extern const struct param sampling_params[];
extern const int32_t sampling_params_count;

struct generation { /* what the rows say; points into the set for its texts */
    struct sampling sampling;
    struct logit_bias *bias; /* owned */
    struct stop_set stops;
    int32_t predict;
    bool ignore_eos;
};
/* n_logits bounds the ids of biases. A seed that was not given is drawn from the system. */
int generation_read(const struct param_set *s, int32_t n_logits, struct generation *out,
                    struct leat_error *e);
void generation_close(struct generation *g);

#endif
