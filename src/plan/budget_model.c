/* The costs of a real model, from the rooms that will take the memory (budget.h). Pure; any
 * thread. */
#include "../base/error.h"
#include "budget.h"

struct costs_of {
    const struct model *m;
    const struct budget_ask *ask;
};

static uint64_t cost_kv(const void *arg, int32_t context, int32_t width)
{
    const struct costs_of *c = arg;
    return ledger_rounded(state_bytes(c->m, c->ask->kv, context, width, c->ask->n_seq)) +
           budget_timeline_bytes(context, c->ask->n_seq);
}

static uint64_t cost_compute(const void *arg, int32_t width, int32_t max_logits)
{
    const struct costs_of *c = arg;
    return decoder_bytes(c->m, width, max_logits, c->ask->threads);
}

static uint64_t cost_logits(const void *arg, int32_t max_logits)
{
    const struct costs_of *c = arg;
    return ledger_rounded((uint64_t)max_logits * (uint64_t)c->m->n_head_out * sizeof(float)) +
           budget_sampler_bytes(c->m->n_head_out);
}

static int cost_weights(const void *arg, int32_t width, struct weights_need *out,
                        struct leat_error *e)
{
    const struct costs_of *c = arg;
    return weights_need(c->m, c->ask->lanes, width, out, e);
}

int budget_resolve(const struct model *m, const struct budget_ask *ask, struct budget *out,
                   struct leat_error *e)
{
    char name[160];
    struct costs_of of = {m, ask};
    struct budget_costs c = {
        .arg = &of,
        .name = name,
        .n_ctx_train = m->n_ctx_train,
        .kv = cost_kv,
        .compute = cost_compute,
        .logits = cost_logits,
        .weights = cost_weights,
    };
    error_quote(name, sizeof name, m->path, __builtin_strlen(m->path));
    return budget_divide(&c, ask, out, e);
}
