/* One generation in progress: how it samples, where it stops, what it gave so far, and whom it
 * tells. Filled by the caller, driven by the scheduler. Knows no passes. Thread rule: the
 * scheduler's caller alone; `cancelled` from anywhere. */
#ifndef SESSION_JOB_H
#define SESSION_JOB_H

#include <stdatomic.h>

#include "../text/tokenizer.h"
#include "sampling.h"
#include "stopping.h"
#include "timeline.h"

enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR };

struct job_progress {
    int32_t prompt_done, prompt_total, generated, layer, n_layer;
    double elapsed_s;
};

struct job_config {
    struct timeline *timeline;         /* with the prompt appended; at least one id pending */
    const struct tokenizer *tokenizer; /* NULL: no text, no end tokens */
    struct sampling sampling;
    struct stop_set stops;
    int32_t predict; /* ids to sample at most; -1 = until an end or the context is full */
    bool ignore_eos, special;
    atomic_bool *cancelled; /* may be NULL */
    int (*on_token)(void *arg, int32_t id);
    int (*on_text)(void *arg, const char *text, size_t len);
    int (*on_progress)(void *arg, const struct job_progress *p);
    void *arg;
};

struct job {
    struct job_config c;
    struct sampler sampler;
    struct detokenizer detok;
    char *piece; /* one token's text */
    size_t piece_cap;

    /* results */
    enum finish finish;
    struct leat_error error;
    struct token_list tokens;
    char *text;
    size_t text_len, text_cap;
    int32_t stopped_by; /* index in stops, -1 = none */
    double start_s, first_s, last_s,
        sample_s; /* clock_now(); first and last: when a token was sampled, 0 = never */

    /* progress */
    int32_t prompt_total,
        prompt_start;      /* ids to evaluate before the first sample; where they begin */
    size_t scanned, shown; /* of text: looked through for stop strings, given to on_text */
    size_t told;           /* of tokens: given to on_token */
};

int job_open(struct job *j, const struct job_config *c,
             struct leat_error *e); /* j is overwritten */
void job_close(struct job *j);

static inline bool job_running(const struct job *j)
{
    return j->finish == FINISH_NONE;
}
/* Samples from a row of logits (changed), takes the id into the timeline and the text, and decides
 * whether that ends it. */
void job_sample(struct job *j, float *logits, int32_t n, struct candidate *scratch);
/* Gives the callbacks what is new. Call without locks held. */
void job_tell(struct job *j);
void job_end(struct job *j, enum finish why);
void job_fail(struct job *j, const struct leat_error *e); /* cancelled or error, by the code */
void job_progress_tell(struct job *j, int32_t layer, int32_t n_layer);

#endif
