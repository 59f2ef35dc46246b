/* Passes over one or many sequences: the only caller of the decoder. A pass takes one id of each
 * sequence that decodes, and fills up with prompts; prompts longer than a pass are split. What
 * rides beside a token never changes its result, so every job gets what it would get alone. Thread
 * rule: any thread; passes of several callers take turns under the pass lock, in which states must
 * also be opened, forked, cut and closed. */
#ifndef SESSION_SCHEDULER_H
#define SESSION_SCHEDULER_H

#include "../decoder/decoder.h"
#include "job.h"

struct scheduler;

struct scheduler_config {
    struct decoder *decoder;
    struct ledger *ledger;
    int32_t width, max_logits; /* as the decoder was opened */
    int32_t n_logits;          /* width of a row */
    int32_t n_sampled;         /* ids at and above it are padding and never sampled; <= n_logits */
    const atomic_bool
        *cancelled; /* stops everything; the decoder's own cancelling is the caller's business */
};

/* Takes the rows of logits and the sampler's scratch from the ledger (ROW_LOGITS). */
int scheduler_open(const struct scheduler_config *c, struct scheduler **out, struct leat_error *e);
void scheduler_close(struct scheduler *s); /* NULL ok */

void scheduler_lock(struct scheduler *s); /* the pass lock */
void scheduler_unlock(struct scheduler *s);

/* Runs every job until it has finished. Never fails itself: each job says how it ended. */
void scheduler_run(struct scheduler *s, struct job *const *jobs, int32_t n);

/* Evaluates all pending ids of a timeline and gives each one's row of logits, in order. on_row may
 * end it (non-zero: LEAT_ERR_CANCELLED) and must not call the engine. */
int scheduler_eval(struct scheduler *s, struct timeline *t,
                   int (*on_row)(void *arg, int32_t position, const float *logits, int32_t n),
                   void *arg, struct leat_error *e);

double scheduler_sample_seconds(struct scheduler *s); /* of all jobs so far */

#endif
