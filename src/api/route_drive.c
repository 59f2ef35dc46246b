/* Drives an engine with a recorded routing, for measuring (leat_routes_drive). Owns the order in
 * which the recorded tokens are taken: turn by turn, of each first its prompt, then what it
 * decoded; the token at position p of the driven session is the p-th of them. The only user of the
 * decoder's replacement of the routing. One thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "../base/error.h"
#include "../weights/route_trace.h"

struct turn {
    int32_t prompt, decode; /* tokens */
};

struct leat_routes {
    char *path;
    struct route_trace *trace;
    int32_t n_turns, n_tokens, used;
    struct turn *turn;
    int32_t n_layers;  /* with experts */
    int64_t *row;      /* [n_tokens][n_layers] row of the trace; -1 = none was recorded */
    int32_t *layer_at; /* [trace layers] number among those with experts, -1 = none */
};

/* ---- the tokens of a trace ---- */

/* Rows of one phase of one turn, layer by layer: where they lie in `sorted`. */
struct phase {
    int64_t *count, *first; /* [n_layers] */
    int64_t *sorted;        /* rows of the turn, by phase and layer, in their order */
};

/* Sorts rows [begin, end) of a phase by layer and returns the most that one layer has: the number
 * of tokens. Layers may have fewer: the last one is evaluated only for tokens whose logits are
 * wanted, the last of a prompt. */
static int64_t phase_sort(const struct leat_routes *r, struct phase *p, int64_t begin, int64_t end,
                          uint8_t phase)
{
    const struct route_row *row = r->trace->row;
    int64_t most = 0, at = 0;

    memset(p->count, 0, (size_t)r->n_layers * sizeof *p->count);
    for (int64_t i = begin; i < end; i++)
        if (row[i].phase == phase)
            p->count[r->layer_at[row[i].layer]]++;
    for (int32_t l = 0; l < r->n_layers; l++) {
        p->first[l] = at;
        at += p->count[l];
        most = p->count[l] > most ? p->count[l] : most;
        p->count[l] = 0;
    }
    for (int64_t i = begin; i < end; i++)
        if (row[i].phase == phase) {
            const int32_t l = r->layer_at[row[i].layer];
            p->sorted[p->first[l] + p->count[l]++] = i;
        }
    return most;
}

/* Row of the i-th of n tokens in a layer: where rows are missing, those that are there belong to
 * the last tokens, and the tokens before them take them round and round. */
static int64_t phase_row(const struct phase *p, int32_t layer, int64_t i, int64_t n)
{
    const int64_t have = p->count[layer], late = i - (n - have);

    if (have == 0)
        return -1;
    return p->sorted[p->first[layer] + (late >= 0 ? late : i % have)];
}

static int no_memory(struct leat_error *e)
{
    return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for a routing trace");
}

/* Appends n tokens of a phase. */
static int add_tokens(struct leat_routes *r, const struct phase *p, int64_t n, struct leat_error *e)
{
    const int64_t all = r->n_tokens + n;
    int64_t *more;

    if (n == 0)
        return 0;
    more = all > INT32_MAX / 4 ? NULL
                               : realloc(r->row, (size_t)all * (size_t)r->n_layers * sizeof *more);
    if (!more)
        return no_memory(e);
    r->row = more;
    for (int64_t i = 0; i < n; i++)
        for (int32_t l = 0; l < r->n_layers; l++)
            r->row[(r->n_tokens + i) * r->n_layers + l] = phase_row(p, l, i, n);
    r->n_tokens = (int32_t)all;
    return 0;
}

static int add_turn(struct leat_routes *r, struct phase *p, int64_t begin, int64_t end,
                    struct leat_error *e)
{
    struct turn *more = realloc(r->turn, ((size_t)r->n_turns + 1) * sizeof *more);
    int code;

    if (!more)
        return no_memory(e);
    r->turn = more;
    const int64_t prompt = phase_sort(r, p, begin, end, ROUTE_PREFILL);
    if ((code = add_tokens(r, p, prompt, e)) < 0)
        return code;
    const int64_t decode = phase_sort(r, p, begin, end, ROUTE_DECODE);
    if ((code = add_tokens(r, p, decode, e)) < 0)
        return code;
    r->turn[r->n_turns++] = (struct turn){(int32_t)prompt, (int32_t)decode};
    return 0;
}

static int index_make(struct leat_routes *r, struct leat_error *e)
{
    const struct route_trace *t = r->trace;
    struct phase p = {0};
    int code = 0;

    r->layer_at = malloc((size_t)t->n_layers * sizeof *r->layer_at);
    if (!r->layer_at)
        return no_memory(e);
    for (int32_t i = 0; i < t->n_layers; i++)
        r->layer_at[i] = t->expert_bytes[i] ? r->n_layers++ : -1;
    if (t->n_rows == 0)
        return error_set(e, LEAT_ERR_FORMAT, "%s: no token was recorded", r->path);
    r->used = t->row[0].n;
    for (int64_t i = 0; i < t->n_rows; i++)
        if (t->row[i].n != r->used)
            return error_set(e, LEAT_ERR_UNSUPPORTED,
                             "%s: a token chose %d experts and another %d; a model is driven with "
                             "one number",
                             r->path, (int)r->used, (int)t->row[i].n);
    p.count = malloc((size_t)r->n_layers * sizeof *p.count);
    p.first = malloc((size_t)r->n_layers * sizeof *p.first);
    p.sorted = malloc((size_t)t->n_rows * sizeof *p.sorted);
    if (!p.count || !p.first || !p.sorted)
        code = no_memory(e);
    for (int64_t i = 0, end; code == 0 && i < t->n_rows; i = end) {
        for (end = i + 1; end < t->n_rows && t->row[end].turn == t->row[i].turn;)
            end++;
        code = add_turn(r, &p, i, end, e);
    }
    free(p.count);
    free(p.first);
    free(p.sorted);
    return code;
}

int leat_routes_open(const char *path, struct leat_routes **out, struct leat_error *e)
{
    struct leat_routes *r = calloc(1, sizeof *r);
    int code;

    *out = NULL;
    if (!r || !(r->path = strdup(path))) {
        free(r);
        return no_memory(e);
    }
    code = route_trace_read(path, &r->trace, e);
    if (code == 0)
        code = index_make(r, e);
    if (code < 0) {
        leat_routes_close(r);
        return code;
    }
    *out = r;
    return 0;
}

void leat_routes_close(struct leat_routes *r)
{
    if (!r)
        return;
    route_trace_free(r->trace);
    free(r->turn);
    free(r->row);
    free(r->layer_at);
    free(r->path);
    free(r);
}

void leat_routes_facts(const struct leat_routes *r, struct leat_routes_facts *out)
{
    *out = (struct leat_routes_facts){
        .model = r->trace->model,
        .turns = r->n_turns,
        .layers = r->n_layers,
        .experts = r->trace->n_experts,
        .experts_used = r->used,
        .cut = r->trace->cut,
    };
    for (int32_t i = 0; i < r->n_turns; i++) {
        out->prompt_tokens += r->turn[i].prompt;
        out->decode_tokens += r->turn[i].decode;
    }
}

/* ---- driving ---- */

struct drive {
    struct leat_engine *g;
    const struct leat_routes *r;
    int32_t *layer; /* [model layers] the trace's layer with experts, -1 = none */
    struct leat_session *session;
    struct leat_params *params;
    int32_t *ids; /* made up, one for every token */
    int (*on_progress)(void *arg, const struct leat_progress *p);
    void *arg;
    struct leat_stats first; /* when the first token of a turn was chosen */
    bool first_came;
};

static void on_routing(void *arg, const struct decoder_routing *c)
{
    const struct drive *d = arg;
    const struct leat_routes *r = d->r;
    const struct route_trace *t = r->trace;

    for (int32_t i = 0; i < c->n; i++) {
        int32_t *ids = c->ids + (size_t)i * (size_t)c->k;
        float *weights = c->weights + (size_t)i * (size_t)c->k;
        const int64_t at = c->pos[i] < r->n_tokens
                               ? r->row[(int64_t)c->pos[i] * r->n_layers + d->layer[c->layer]]
                               : -1;
        const struct route_row *row = at >= 0 ? &t->row[at] : NULL;
        for (int32_t k = 0; row && k < c->k; k++) { /* into ascending order */
            const int32_t id = t->expert[row->first + k];
            const float w = t->weight[row->first + k];
            int32_t to = k;
            for (; to > 0 && ids[to - 1] > id; to--) {
                ids[to] = ids[to - 1];
                weights[to] = weights[to - 1];
            }
            ids[to] = id;
            weights[to] = w != 0 ? w : 1 / (float)c->k;
        }
    }
}

static int tell_progress(void *arg, const struct leat_progress *p)
{
    const struct drive *d = arg;
    return d->on_progress ? d->on_progress(d->arg, p) : 0;
}

static int on_token(void *arg, int32_t id)
{
    struct drive *d = arg;
    (void)id;
    if (!d->first_came)
        leat_engine_stats(d->g, 0, &d->first);
    d->first_came = true;
    return 0;
}

static void add_part(struct leat_routes_part *p, const struct leat_stats *a,
                     const struct leat_stats *z, int32_t tokens, double elapsed_s)
{
    p->tokens += tokens;
    p->elapsed_s += elapsed_s;
    p->wait_s += z->wait_s - a->wait_s;
    p->read_busy_s += z->read_busy_s - a->read_busy_s;
    p->read_bytes += z->read_bytes - a->read_bytes;
    p->page_cache_read_bytes += z->page_cache_read_bytes - a->page_cache_read_bytes;
    p->expert_read_bytes += z->expert_read_bytes - a->expert_read_bytes;
    p->expert_hits += z->expert_hits - a->expert_hits;
    p->expert_misses += z->expert_misses - a->expert_misses;
    p->expert_hit_bytes += z->expert_hit_bytes - a->expert_hit_bytes;
    p->expert_miss_bytes += z->expert_miss_bytes - a->expert_miss_bytes;
    p->expert_evictions += z->expert_evictions - a->expert_evictions;
}

/* A generation leaves its last token unevaluated: that one is the first of the next turn. In a turn
 * without a prompt the first decoded token stands in its place. */
static int drive_turn(struct drive *d, const struct turn *t, struct leat_routes_run *out,
                      struct leat_error *e)
{
    struct leat_result result = {0};
    struct leat_stats before, after;
    char predict[16];
    int32_t n;

    leat_session_tokens(d->session, &n);
    const int32_t pending = n > 0, first = t->prompt ? t->prompt : 1;
    snprintf(predict, sizeof predict, "%d", (int)(t->prompt ? t->decode + 1 : t->decode));
    int code = leat_params_set(d->params, "predict", predict, e);
    if (code < 0)
        return code;
    struct leat_request q = {
        .session = d->session,
        .params = d->params,
        .ids = d->ids + n,
        .n_ids = first - pending,
        .on_token = on_token,
        .on_progress = tell_progress,
        .arg = d,
    };
    d->first_came = false;
    leat_engine_stats(d->g, 0, &before);
    code = leat_generate(d->g, &q, 1, &result, e);
    leat_engine_stats(d->g, 0, &after);
    if (code == 0 && t->prompt) {
        add_part(&out->prompt, &before, &d->first, t->prompt, result.prompt_s);
        add_part(&out->decode, &d->first, &after, t->decode, result.decode_s);
    } else if (code == 0) {
        add_part(&out->decode, &before, &after, t->decode, result.prompt_s + result.decode_s);
    }
    leat_result_free(&result);
    return code;
}

static int check(const struct leat_engine *g, const struct leat_routes *r, struct leat_error *e)
{
    const struct model *m = g->model;

    if (m->n_expert != r->trace->n_experts || m->n_expert_used != r->used)
        return error_set(e, LEAT_ERR_USAGE,
                         "%s: %d of %d experts were chosen, and %s uses %d of %d; a routing drives "
                         "only a model with the same figures",
                         r->path, (int)r->used, (int)r->trace->n_experts, m->path,
                         (int)m->n_expert_used, (int)m->n_expert);
    if (r->n_tokens >= g->facts.context)
        return error_set(e, LEAT_ERR_CONTEXT,
                         "%s: %d tokens need a context of %d, and this one has %d (--context)",
                         r->path, (int)r->n_tokens, (int)r->n_tokens + 1, (int)g->facts.context);
    return 0;
}

static int drive_open(struct drive *d, struct leat_error *e)
{
    const struct model *m = d->g->model;
    int32_t next = 0;
    uint64_t x = 1;
    int code;

    d->layer = malloc((size_t)m->n_layer * sizeof *d->layer);
    d->ids = malloc(((size_t)d->r->n_tokens + 1) * sizeof *d->ids);
    if (!d->layer || !d->ids)
        return no_memory(e);
    for (int32_t i = 0; i < m->n_layer; i++)
        d->layer[i] = m->layers[i].expert0 >= 0 ? next++ % d->r->n_layers : -1;
    for (int32_t i = 0; i <= d->r->n_tokens; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
        d->ids[i] = (int32_t)((x >> 33) % (uint32_t)m->n_vocab);
    }
    if ((code = leat_params_open(&d->params, e)) < 0 ||
        (code = leat_params_set(d->params, "temp", "0", e)) < 0 ||
        (code = leat_params_set(d->params, "ignore_eos", "true", e)) < 0)
        return code;
    return leat_session_open(d->g, &d->session, e);
}

int leat_routes_drive(struct leat_engine *g, const struct leat_routes *r,
                      int (*on_progress)(void *arg, const struct leat_progress *p), void *arg,
                      struct leat_routes_run *out, struct leat_error *e)
{
    struct drive d = {.g = g, .r = r, .on_progress = on_progress, .arg = arg};
    int code;

    memset(out, 0, sizeof *out);
    if ((code = check(g, r, e)) < 0)
        return code;
    if ((code = drive_open(&d, e)) == 0) {
        scheduler_lock(g->scheduler);
        decoder_replace_routing(g->decoder, on_routing, &d);
        scheduler_unlock(g->scheduler);
        for (int32_t i = 0; code == 0 && i < r->n_turns; i++)
            code = drive_turn(&d, &r->turn[i], out, e);
        scheduler_lock(g->scheduler);
        decoder_replace_routing(g->decoder, NULL, NULL);
        scheduler_unlock(g->scheduler);
    }
    leat_session_close(d.session);
    leat_params_close(d.params);
    free(d.layer);
    free(d.ids);
    return code;
}
