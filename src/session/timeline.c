/* The ids of one text beside its state (timeline.h). Knows no tokenizer and no sampler. One thread
 * at a time. */
#include "timeline.h"

#include <string.h>

#include "../base/error.h"

static uint64_t ids_bytes(int32_t context)
{
    return (uint64_t)context * 2 *
           sizeof(int32_t); /* charged by plan/budget.c: budget_timeline_bytes */
}

static int ids_open(struct ledger *l, int32_t context, struct timeline *t, struct leat_error *e)
{
    void *p;
    memset(t, 0, sizeof *t);
    int code = ledger_take(l, DOMAIN_HELD, ROW_KV, ids_bytes(context), &p, e);
    if (code < 0)
        return code;
    t->ledger = l;
    t->context = context;
    t->ids = p;
    t->sorted = t->ids + context;
    return 0;
}

int timeline_open(struct state_pool *pool, struct ledger *l, int32_t context, struct timeline *t,
                  struct leat_error *e)
{
    int code = ids_open(l, context, t, e);
    if (code == 0)
        code = state_open(pool, &t->state, e);
    if (code < 0)
        timeline_close(t);
    return code;
}

void timeline_close(struct timeline *t)
{
    state_close(t->state);
    if (t->ledger)
        ledger_give(t->ledger, DOMAIN_HELD, ROW_KV, t->ids, ids_bytes(t->context));
    memset(t, 0, sizeof *t);
}

int timeline_append(struct timeline *t, const int32_t *ids, int32_t n, int32_t n_vocab,
                    struct leat_error *e)
{
    if (n > t->context - t->n)
        return error_set(e, LEAT_ERR_CONTEXT,
                         "%d tokens do not fit: the context holds %d, of which %d are taken; ask "
                         "for a longer context "
                         "(--context) or shorten the text",
                         (int)n, (int)t->context, (int)t->n);
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return error_set(e, LEAT_ERR_USAGE,
                             "token %d is %d, and this model's ids go from 0 to %d", (int)i,
                             (int)ids[i], (int)n_vocab - 1);
    if (n > 0)
        memcpy(t->ids + t->n, ids, (size_t)n * sizeof *ids);
    t->n += n;
    return 0;
}

int timeline_truncate(struct timeline *t, int32_t upto, struct leat_error *e)
{
    if (upto < 0 || upto > t->n)
        return error_set(e, LEAT_ERR_USAGE, "cannot cut a text of %d tokens at %d", (int)t->n,
                         (int)upto);
    if (upto < state_length(t->state)) {
        int32_t kept = 0;
        int code = state_truncate(t->state, upto, &kept);
        if (code < 0)
            return error_set(e, code, "the state of %d tokens cannot be cut at %d", (int)t->n,
                             (int)upto);
        upto = kept;
    }
    t->n = upto;
    return 0;
}

int timeline_fork(const struct timeline *t, int32_t upto, struct state_pool *pool,
                  struct timeline *out, struct leat_error *e)
{
    if (upto < 0 || upto > t->n)
        return error_set(e, LEAT_ERR_USAGE, "cannot fork a text of %d tokens at %d", (int)t->n,
                         (int)upto);
    int32_t held = state_length(t->state);
    int code = ids_open(t->ledger, t->context, out, e);
    if (code < 0)
        return code;
    code = upto == 0 ? state_open(pool, &out->state, e)
                     : state_fork(t->state, upto < held ? upto : held, &out->state, e);
    if (code < 0) {
        timeline_close(out);
        return code;
    }
    memcpy(out->ids, t->ids, (size_t)upto * sizeof *t->ids);
    out->n = upto;
    return 0;
}
