/* One text being continued: its ids, and the state that remembers those of them that were
 * evaluated. The ids lie in ledger memory of fixed size (the context). Writes the state only
 * through the scheduler's passes. Thread rule: one thread at a time, and under the scheduler's
 * pass lock where a state is opened, forked, cut or closed. */
#ifndef SESSION_TIMELINE_H
#define SESSION_TIMELINE_H

#include "../decoder/state.h"

struct timeline {
    struct seq_state *state;
    struct ledger *ledger;
    int32_t *ids;    /* ids[0..n); the first state_length(state) are evaluated */
    int32_t *sorted; /* room for context ids: scratch of the penalties */
    int32_t n, context;
};

int timeline_open(struct state_pool *pool, struct ledger *l, int32_t context, struct timeline *t,
                  struct leat_error *e);
void timeline_close(struct timeline *t); /* zeroed, or half open: ok */
/* All or nothing; LEAT_ERR_CONTEXT when they do not fit. Ids must be in 0 .. n_vocab-1. */
int timeline_append(struct timeline *t, const int32_t *ids, int32_t n, int32_t n_vocab,
                    struct leat_error *e);
/* Forgets ids from upto on, and more where the state cannot go back to it. */
int timeline_truncate(struct timeline *t, int32_t upto, struct leat_error *e);
int timeline_fork(const struct timeline *t, int32_t upto, struct state_pool *pool,
                  struct timeline *out, struct leat_error *e);
static inline int32_t timeline_pending(const struct timeline *t)
{
    return t->n - state_length(t->state);
}

#endif
