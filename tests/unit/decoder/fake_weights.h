/* A test double of weights/weights.h over plain memory. It keeps the promises of that header and
 * not one more: views are cut into pieces, a view is overwritten when its life ends, experts
 * come in any order, and any call can be made to fail. */
#ifndef TESTS_DECODER_FAKE_WEIGHTS_H
#define TESTS_DECODER_FAKE_WEIGHTS_H

#include "../../../src/weights/weights.h"

struct fake_behaviour {
    int32_t piece_rows; /* most rows per view; 0 = all */
    bool shuffle;       /* unordered experts come in a random order */
    int32_t
        fail_at; /* the n-th call of a pass that can fail does, with LEAT_ERR_CANCELLED; 0 = none */
};

struct fake_counts {
    int32_t calls, passes, heads, ordered, unordered, experts, most_views;
    int32_t wholes, together; /* units given as a whole, experts beside others */
};

/* Memory for every part and vector of the model, all zero. */
struct weights *fake_weights_open(const struct model *m);
void *fake_part(struct weights *w, unit_id u, int32_t part);
float *fake_vector(struct weights *w, vec_id v);
/* Fills all of it from the model's files. */
int fake_weights_read(struct weights *w, struct leat_error *e);
void fake_behave(struct weights *w, struct fake_behaviour b);
struct fake_counts *fake_counts(struct weights *w);

#endif
