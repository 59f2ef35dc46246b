/* leat_replay_*: a recorded routing, read once and replayed as often as asked. Any thread, one at
 * a time for one object. */
#include <stdlib.h>
#include <string.h>

#include "../../include/leat.h"
#include "../base/error.h"
#include "../weights/replay.h"

struct leat_replay {
    struct route_trace *trace;
    struct replay *calls;
    struct leat_replay_facts facts;
};

/* A token has one row in the first layer. */
static void count(const struct route_trace *t, struct leat_replay_facts *f)
{
    for (int64_t i = 0; i < t->n_rows; i++)
        if (t->row[i].layer == t->row[0].layer) {
            f->decode_tokens += t->row[i].phase == ROUTE_DECODE;
            f->prefill_tokens += t->row[i].phase != ROUTE_DECODE;
        }
}

int leat_replay_open(const char *path, struct leat_replay **out, struct leat_error *e)
{
    struct leat_replay *r = calloc(1, sizeof *r);
    int code;

    *out = NULL;
    if (!r)
        return error_set(e, LEAT_ERR_MEMORY, "no memory to replay the routing");
    code = route_trace_read(path, &r->trace, e);
    if (code == 0) {
        code = replay_open(r->trace, &r->calls, e);
        if (code < 0) {
            char quoted[256];
            error_prefix(e, "%s", error_quote(quoted, sizeof quoted, path, strlen(path)));
        }
    }
    if (code < 0) {
        leat_replay_close(r);
        return code;
    }
    r->facts = (struct leat_replay_facts){.model = r->trace->model,
                                          .n_layers = r->trace->n_layers,
                                          .n_experts = r->trace->n_experts,
                                          .cut = r->trace->cut,
                                          .cycle_bytes = route_trace_cycle_bytes(r->trace)};
    for (int32_t i = 0; i < r->trace->n_layers; i++)
        r->facts.all_bytes += r->trace->expert_bytes[i] * (uint64_t)r->trace->n_experts;
    count(r->trace, &r->facts);
    *out = r;
    return 0;
}

void leat_replay_close(struct leat_replay *r)
{
    if (!r)
        return;
    replay_close(r->calls);
    route_trace_free(r->trace);
    free(r);
}

const struct leat_replay_facts *leat_replay_facts(const struct leat_replay *r)
{
    return &r->facts;
}

const char *leat_eviction(int32_t i)
{
    const struct evict_policy *p = evict_policy(i);
    return p ? p->name : NULL;
}

int leat_replay_run(const struct leat_replay *r, const char *policy, uint64_t budget_bytes,
                    double *hit, struct leat_error *e)
{
    const struct evict_policy *p = policy ? evict_find(policy) : NULL;
    struct replay_hits h;
    int code;

    if (policy && !p)
        return error_set(e, LEAT_ERR_USAGE, "no such eviction policy (known: %s)", evict_names());
    code = replay_run(r->calls, p, budget_bytes, &h, e);
    if (code == 0)
        *hit = h.asked_bytes ? (double)h.hit_bytes / (double)h.asked_bytes : 0;
    return code;
}

int leat_replay_csv(const struct leat_replay *r, FILE *f, struct leat_error *e)
{
    const int why = route_trace_csv(r->trace, f);
    return why ? error_set_errno(e, LEAT_ERR_FILE, why, "the routing as CSV") : 0;
}
