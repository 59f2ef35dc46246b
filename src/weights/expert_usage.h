/* How often each routed expert of a model was used lately, kept in a small file between runs, so
 * that the next run can read the hottest ones at load. Disposable: a file that is missing, broken,
 * of another version or of another model is as good as none. Format: docs/expert-cache.md. Thread
 * rule: one thread at a time. */
#ifndef WEIGHTS_EXPERT_USAGE_H
#define WEIGHTS_EXPERT_USAGE_H

#include "../model/model.h"

#define USAGE_HALF_LIFE 512.0 /* tokens after which a use counts half */

struct usage {
    uint64_t model; /* usage_model_key() */
    int32_t n;      /* experts of all layers, in the order of the model's units */
    unit_id first;  /* unit of the first */
    float *score;   /* uses, each worth 2^(-age / USAGE_HALF_LIFE) at `now`; >= 0 */
    double now;     /* tokens since the scores were last brought up to date */
};

/* Tells models apart by names, sizes and places of their experts; reads no weights. Two copies of
 * one model have the same key. */
uint64_t usage_model_key(const struct model *m);
/* Bytes of the file of a model with so many experts. */
uint64_t usage_file_bytes(int32_t n_experts);

/* Scores from path into u->score (u->model and u->n say what is expected): true, or false with all
 * scores 0 and, when a file is there, the reason in e (LEAT_ERR_FILE, LEAT_ERR_FORMAT). */
bool usage_read(struct usage *u, const char *path, struct leat_error *e);
/* Replaces path as a whole (a new file beside it, then renamed); makes the last folder of path where
 * it is missing. */
int usage_write(const struct usage *u, const char *path, struct leat_error *e);

/* A use of a unit by so many tokens, at `now`. Scores are kept in units that grow with time
 * instead of all being faded: usage_settle brings them back to the present. */
void usage_note(struct usage *u, unit_id unit, int32_t tokens);
void usage_advance(struct usage *u, int32_t tokens); /* time goes on; settles now and then */
void usage_settle(struct usage *u);

#endif
