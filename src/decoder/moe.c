/* The mixture of experts: routing in f32, tokens grouped by expert so that each expert is
 * multiplied once per ubatch, results summed per token in ascending expert number. Knows the
 * routing switches, no architecture; where experts come from and when is the weights room's
 * affair. Thread rule: thread 0, spreads over the team.
 *
 * A slot is one (expert, token) pair. Slots are sorted by expert, within an expert by token. */
#include "decoder_room.h"

#include <math.h>
#include <string.h>

#include "../kernels/ops_math.h"

/* ---- routing (docs/architectures.md, mixture of experts) ---- */

struct route_job {
    const struct decoder *d;
    const float *bias, *select_bias; /* NULL = none */
};

static float softplus(float x)
{
    return x > 20 ? x : log1pf(ops_exp(x));
}

static void probabilities(const struct decoder *d, float *z, int32_t n)
{
    switch (d->m->gating) {
    case GATING_SOFTMAX:
        d->k->softmax(z, n);
        break;
    case GATING_SIGMOID:
        for (int32_t i = 0; i < n; i++)
            z[i] = ops_sigmoid(z[i]);
        break;
    case GATING_TOPK_SOFTMAX: /* the softmax comes after the choice */
        break;
    case GATING_SQRT_SOFTPLUS:
        for (int32_t i = 0; i < n; i++)
            z[i] = sqrtf(softplus(z[i]));
        break;
    }
}

/* What experts are chosen by: probability plus bias, and nothing in groups that lost. It lies on
 * the stack of a team thread, whatever size the system gives that: a bit per expert, not a byte. */
#define EXPERT_WORDS ((UINT16_MAX + 1) / 64)

struct chooser {
    const float *p, *bias;
    int32_t group;               /* experts per group */
    uint64_t shut[EXPERT_WORDS]; /* taken, or its group is out */
};

static float score_of(const struct chooser *c, int32_t i)
{
    return c->bias ? c->p[i] + c->bias[i] : c->p[i];
}

static bool bit_get(const uint64_t *bits, int32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static void bit_set(uint64_t *bits, int32_t i)
{
    bits[i / 64] |= UINT64_C(1) << (i % 64);
}

static size_t bits_bytes(int32_t n)
{
    return ((size_t)n + 63) / 64 * sizeof(uint64_t);
}

/* Keeps the groups whose two best scores have the largest sums; ties go to the lower group. */
static void groups_choose(struct chooser *c, int32_t n_group, int32_t used)
{
    const int32_t n = n_group * c->group;
    uint64_t kept[EXPERT_WORDS];
    memset(kept, 0, bits_bytes(n_group));
    for (int32_t round = 0; round < used; round++) {
        int32_t best = -1;
        float best_sum = 0;
        for (int32_t g = 0; g < n_group; g++) {
            if (bit_get(kept, g))
                continue;
            float first = -INFINITY, second = -INFINITY;
            for (int32_t i = g * c->group; i < (g + 1) * c->group; i++) {
                const float s = score_of(c, i);
                if (s > first) {
                    second = first;
                    first = s;
                } else if (s > second) {
                    second = s;
                }
            }
            const float sum = c->group > 1 ? first + second : first;
            if (best < 0 || sum > best_sum) {
                best = g;
                best_sum = sum;
            }
        }
        bit_set(kept, best);
    }
    for (int32_t i = 0; i < n; i++)
        if (!bit_get(kept, i / c->group))
            bit_set(c->shut, i);
}

/* The best open expert, ties to the lower number; always some expert that is not taken, whatever
 * the scores hold. */
static int32_t expert_choose(const struct chooser *c, int32_t n)
{
    int32_t best = -1;
    float best_score = 0;
    for (int32_t i = 0; i < n; i++) {
        if (bit_get(c->shut, i))
            continue;
        const float s = score_of(c, i);
        if (best < 0 || s > best_score) {
            best = i;
            best_score = s;
        }
    }
    return best;
}

static void token_route(const struct route_job *j, int64_t t)
{
    const struct decoder *d = j->d;
    const struct model *m = d->m;
    const int32_t n = m->n_expert, k = m->n_expert_used;
    float *p = d->l.router + (size_t)t * d->l.router_stride;
    int32_t *ids = d->l.route_ids + (size_t)t * (size_t)k;
    float *w = d->l.route_w + (size_t)t * (size_t)k;
    if (j->bias)
        d->k->add(p, j->bias, n);
    probabilities(d, p, n);

    struct chooser c;
    c.p = p;
    c.bias = j->select_bias;
    c.group = n / m->n_group;
    memset(c.shut, 0, bits_bytes(n));
    if (m->n_group > 1 && m->n_group_used < m->n_group && (int64_t)m->n_group_used * c.group >= k)
        groups_choose(&c, m->n_group, m->n_group_used);
    for (int32_t i = 0; i < k; i++) { /* chosen by score, kept in ascending number */
        const int32_t id = expert_choose(&c, n);
        bit_set(c.shut, id);
        int32_t at = i;
        for (; at > 0 && ids[at - 1] > id; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
    for (int32_t i = 0; i < k; i++)
        w[i] = p[ids[i]];
    if (m->gating == GATING_TOPK_SOFTMAX)
        d->k->softmax(w, k);
    if (m->expert_weights_norm) {
        float sum = 0;
        for (int32_t i = 0; i < k; i++)
            sum += w[i];
        for (int32_t i = 0; i < k; i++)
            w[i] = w[i] / (sum + 1e-20f); /* the models' own guard against a sum of nothing */
    }
    if (m->expert_weights_scale != 1)
        d->k->scale(w, m->expert_weights_scale, k);
}

static void route_tokens(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        token_route(arg, t);
}

static struct decoder_routing routing_of(const struct decoder *d, int32_t layer)
{
    return (struct decoder_routing){.layer = layer,
                                    .n = d->n,
                                    .k = d->m->n_expert_used,
                                    .pos = d->l.pos,
                                    .seq = d->l.seq,
                                    .ids = d->l.route_ids,
                                    .weights = d->l.route_w};
}

/* The router's rows are done with by now: their first bytes take the hits, one per expert. */
static void routing_tell(const struct decoder *d, int32_t layer)
{
    struct decoder_routing r = routing_of(d, layer);
    uint8_t *hit = (uint8_t *)d->l.router;
    if (!d->routing_watch)
        return;
    experts_hits(d->pass, hit);
    r.hit = hit;
    d->routing_watch(d->routing_watch_arg, &r);
}

/* Sorts the choices of all rows at hand by expert. Returns how many experts are wanted. */
static int32_t slots_make(struct decoder *d)
{
    const int32_t n_expert = d->m->n_expert, k = d->m->n_expert_used;
    struct layout *l = &d->l;
    int32_t *first = l->expert_first, n_wanted = 0;
    memset(first, 0, ((size_t)n_expert + 1) * sizeof *first);
    for (int32_t i = 0; i < d->n * k; i++)
        first[l->route_ids[i] + 1]++;
    for (int32_t e = 0; e < n_expert; e++) {
        if (first[e + 1] > 0)
            l->wanted_ids[n_wanted++] = (uint16_t)e;
        first[e + 1] += first[e];
    }
    for (int32_t i = 0; i < d->n * k; i++) { /* first[e] runs ahead here and is put back below */
        const int32_t slot = first[l->route_ids[i]]++;
        l->slot_token[slot] = i / k;
        l->slot_w[slot] = l->route_w[i];
        l->token_slot[i] = slot;
    }
    for (int32_t e = n_expert; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
    return n_wanted;
}

/* ---- experts ---- */

/* One expert's products. Its tokens' hidden rows begin at row hid0 of l.hid. */
struct expert_job {
    struct decoder *d;
    struct matmul gate, up, down;
    int32_t n, n_ff, slot0, hid0;
    bool narrow;
    const float *gate_b, *up_b, *down_b;
};

/* Experts that are multiplied together: all that are at hand, so that a token's few small matrices
 * make two regions of the team rather than two each. */
struct expert_group {
    struct expert_view view[MOE_TOGETHER];
    struct expert_job job[MOE_TOGETHER];
    int32_t n, rows; /* experts; tokens of them all, each a row of l.hid */
};

/* Rows of the token input as this part's product wants them: as they lie when every row at hand
 * is in, else gathered. */
static const void *expert_rows(struct decoder *d, const struct part *p, int32_t slot0, int32_t n,
                               int32_t row0, unsigned *gathered, size_t *stride)
{
    const enum act_kind kind = part_kind(p);
    const uint8_t *from = input_rows(&d->l.in, kind, stride);
    if (n == d->n) /* ascending and distinct: all of them */
        return from;
    const size_t row = act_row_bytes(kind, p->cols);
    uint8_t *to = d->l.gather[kind] + (size_t)row0 * row;
    if (!(*gathered & 1u << kind))
        for (int32_t i = 0; i < n; i++)
            memcpy(to + (size_t)i * row, from + (size_t)d->l.slot_token[slot0 + i] * *stride, row);
    *gathered |= 1u << kind;
    *stride = row;
    return to;
}

/* Hidden rows [begin, end) of every token, activated. */
static void expert_hidden(const struct expert_job *j, int32_t thread, int32_t begin, int32_t end)
{
    const struct decoder *d = j->d;
    const int32_t n = end - begin;
    d->k->matmul(&j->gate, begin, end, decoder_scratch(d, thread));
    d->k->matmul(&j->up, begin, end, decoder_scratch(d, thread));
    for (int32_t t = 0; t < j->n; t++) {
        float *g = d->l.hid.x + (size_t)(j->hid0 + t) * d->l.hid.stride + begin, *u = g + j->n_ff;
        if (j->gate_b)
            d->k->add(g, j->gate_b + begin, n);
        if (j->up_b)
            d->k->add(u, j->up_b + begin, n);
        d->k->gated(d->m->act, g, u, g, n);
    }
}

/* Result rows [begin, end) of every token; wide ubatches add them to the sums at once. */
static void expert_out(const struct expert_job *j, int32_t thread, int32_t begin, int32_t end)
{
    const struct decoder *d = j->d;
    const int32_t n = end - begin;
    d->k->matmul(&j->down, begin, end, decoder_scratch(d, thread));
    for (int32_t i = 0; i < j->n; i++) {
        float *o = j->down.y + (size_t)i * j->down.y_stride + begin;
        if (j->down_b)
            d->k->add(o, j->down_b + begin, n);
        if (!j->narrow)
            d->k->add_scaled(d->l.out + (size_t)d->l.slot_token[j->slot0 + i] * d->l.embd_stride +
                                 begin,
                             o, d->l.slot_w[j->slot0 + i], n);
    }
}

/* Rows [begin, end) of the experts' rows behind each other, `rows` of each. */
static void group_rows(const struct expert_group *g, int32_t rows, int32_t thread, int64_t begin,
                       int64_t end,
                       void (*fn)(const struct expert_job *, int32_t, int32_t, int32_t))
{
    while (begin < end) {
        const int32_t i = (int32_t)(begin / rows), first = (int32_t)(begin % rows);
        const int32_t n = end - begin < rows - first ? (int32_t)(end - begin) : rows - first;
        fn(&g->job[i], thread, first, first + n);
        begin += n;
    }
}

static void group_hidden(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct expert_group *g = arg;
    group_rows(g, g->job[0].n_ff, thread, begin, end, expert_hidden);
}

static void group_out(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct expert_group *g = arg;
    group_rows(g, g->job[0].down.rows, thread, begin, end, expert_out);
}

static int32_t expert_tokens(const struct decoder *d, const struct expert_view *v)
{
    return d->l.expert_first[v->expert + 1] - d->l.expert_first[v->expert];
}

/* Makes the job of g's expert i. */
static void group_job(struct decoder *d, const struct layer *l, struct expert_group *g, int32_t i,
                      bool narrow)
{
    const struct expert_view *v = &g->view[i];
    const struct part *gate = &v->unit->part[EXPERT_GATE], *up = &v->unit->part[EXPERT_UP],
                      *down = &v->unit->part[EXPERT_DOWN];
    const int32_t slot0 = d->l.expert_first[v->expert], n = expert_tokens(d, v);
    const size_t at = (size_t)v->expert;
    struct expert_job *j = &g->job[i];
    *j = (struct expert_job){
        .d = d, .n = n, .n_ff = l->n_ff, .slot0 = slot0, .hid0 = g->rows, .narrow = narrow};
    j->gate_b = layer_vector(d, l, VEC_GATE_B);
    j->up_b = layer_vector(d, l, VEC_UP_B);
    j->down_b = layer_vector(d, l, VEC_DOWN_B);
    j->gate_b = j->gate_b ? j->gate_b + at * (size_t)l->n_ff : NULL;
    j->up_b = j->up_b ? j->up_b + at * (size_t)l->n_ff : NULL;
    j->down_b = j->down_b ? j->down_b + at * (size_t)d->m->n_embd : NULL;

    float *hid = d->l.hid.x + (size_t)j->hid0 * d->l.hid.stride;
    unsigned gathered = 0;
    j->gate = (struct matmul){.format = gate->format,
                              .w = v->data[EXPERT_GATE],
                              .row_bytes = gate->row_bytes,
                              .rows = gate->rows,
                              .cols = gate->cols,
                              .tokens = n,
                              .y = hid,
                              .y_stride = d->l.hid.stride};
    j->gate.act = expert_rows(d, gate, slot0, n, j->hid0, &gathered, &j->gate.act_stride);
    j->up = (struct matmul){.format = up->format,
                            .w = v->data[EXPERT_UP],
                            .row_bytes = up->row_bytes,
                            .rows = up->rows,
                            .cols = up->cols,
                            .tokens = n,
                            .y = hid + l->n_ff,
                            .y_stride = d->l.hid.stride};
    j->up.act = expert_rows(d, up, slot0, n, j->hid0, &gathered, &j->up.act_stride);
    j->down = (struct matmul){.format = down->format,
                              .w = v->data[EXPERT_DOWN],
                              .row_bytes = down->row_bytes,
                              .rows = down->rows,
                              .cols = down->cols,
                              .tokens = n,
                              .y = d->l.parts + (narrow ? (size_t)slot0 * d->l.embd_stride : 0),
                              .y_stride = d->l.embd_stride};
    const uint8_t *act = input_rows(&d->l.hid, part_kind(down), &j->down.act_stride);
    j->down.act = act + (size_t)j->hid0 * j->down.act_stride;
    g->rows += n;
}

static void group_run(struct decoder *d, const struct layer *l, struct expert_group *g, bool narrow)
{
    unsigned kinds = 0;
    g->rows = 0;
    d->l.hid.cols = l->n_ff;
    for (int32_t i = 0; i < g->n; i++) {
        group_job(d, l, g, i, narrow);
        kinds |= 1u << part_kind(&g->view[i].unit->part[EXPERT_DOWN]);
    }
    const int32_t n = g->rows / g->n;
    const struct expert_job *j = &g->job[0];
    const int64_t hidden = (int64_t)g->n * l->n_ff, out = (int64_t)g->n * j->down.rows;
    team_guided(d->team, hidden, product_chunk(hidden, j->gate.row_bytes + j->up.row_bytes, n),
                group_hidden, g);
    input_prepare(d, &d->l.hid, kinds, g->rows);
    team_guided(d->team, out, product_chunk(out, j->down.row_bytes, n), group_out, g);
}

/* Takes every expert as it comes; narrow ubatches take those that are there together, as far as the
 * hidden rows reach. */
static int experts_run(struct decoder *d, const struct layer *l, bool narrow, struct leat_error *e)
{
    struct expert_group g;
    int rc;
    while ((rc = experts_next(d->pass, &g.view[0], e)) > 0) {
        int32_t rows = expert_tokens(d, &g.view[0]);
        for (g.n = 1; narrow && g.n < MOE_TOGETHER && rows + d->n <= d->l.hid_rows; g.n++) {
            if (!experts_more(d->pass, &g.view[g.n]))
                break;
            rows += expert_tokens(d, &g.view[g.n]);
        }
        group_run(d, l, &g, narrow);
        for (int32_t i = 0; i < g.n; i++)
            experts_done(d->pass, &g.view[i]);
    }
    return rc;
}

/* ---- sums ---- */

struct sum_job {
    const struct decoder *d;
    bool narrow, shared;
    const float *shared_gate; /* NULL = added as it is */
};

static void sum_tokens(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct sum_job *j = arg;
    const struct decoder *d = j->d;
    const int32_t n = d->m->n_embd, k = d->m->n_expert_used;
    for (int64_t t = begin; t < end; t++) {
        float *y = d->l.out + (size_t)t * d->l.embd_stride;
        for (int32_t i = 0; j->narrow && i < k; i++) { /* choices are in ascending expert number */
            const int32_t slot = d->l.token_slot[t * k + i];
            d->k->add_scaled(y, d->l.parts + (size_t)slot * d->l.embd_stride, d->l.slot_w[slot], n);
        }
        if (!j->shared)
            continue;
        float g = 1;
        if (j->shared_gate) {
            struct matmul dot = {.format = FORMAT_F32,
                                 .w = j->shared_gate,
                                 .row_bytes = (uint64_t)n * sizeof(float),
                                 .rows = 1,
                                 .cols = n,
                                 .tokens = 1,
                                 .y = &g,
                                 .y_stride = 1,
                                 .act = d->l.in.x + (size_t)t * d->l.in.stride,
                                 .act_stride = d->l.in.stride * sizeof(float)};
            d->k->matmul(&dot, 0, 1, decoder_scratch(d, thread));
            g = ops_sigmoid(g);
        }
        d->k->add_scaled(y, d->l.shared + (size_t)t * d->l.embd_stride, g, n);
    }
}

int moe_run(struct decoder *d, int32_t layer, struct leat_error *e)
{
    const struct layer *l = &d->m->layers[layer];
    const bool narrow = d->n <= MOE_NARROW, shared = l->n_ff_shared > 0;
    const unit_id shared_mat[4] = {l->mat[MAT_SHARED_GATE], l->mat[MAT_SHARED_UP], -1,
                                   l->mat[MAT_SHARED_DOWN]};
    int rc =
        product(d, l->mat[MAT_ROUTER], &d->l.in, d->n, d->l.router, d->l.router_stride, NULL, e);
    if (rc < 0)
        return rc;
    if (d->n > 0) {
        struct route_job r = {d, layer_vector(d, l, VEC_ROUTER_B),
                              layer_vector(d, l, VEC_ROUTER_SELECT_B)};
        tokens_run(d, d->n, (int64_t)d->m->n_expert * (2 + d->m->n_expert_used), route_tokens, &r);
        if (d->routing_replace) {
            const struct decoder_routing routing = routing_of(d, layer);
            d->routing_replace(d->routing_replace_arg, &routing);
        }
        experts_chosen(d->pass, d->l.route_ids, d->n, d->m->n_expert_used);
        rc = experts_begin(d->pass, layer, d->l.wanted_ids, slots_make(d), !narrow, e);
        if (rc < 0)
            return rc;
        routing_tell(d, layer);
    }
    /* The shared expert is multiplied while the reads of the missing ones are under way. */
    if (shared)
        rc = ffn_gated(d, shared_mat, l->n_ff_shared, NULL, NULL, d->l.shared, e);
    if (rc < 0 || d->n == 0)
        return rc;
    memset(d->l.out, 0, (size_t)d->n * d->l.embd_stride * sizeof(float));
    rc = experts_run(d, l, narrow, e);
    if (rc < 0)
        return rc;
    struct sum_job s = {d, narrow, shared, layer_vector(d, l, VEC_SHARED_GATE_INP)};
    if (narrow || shared)
        tokens_run(d, d->n, (int64_t)d->m->n_embd * (narrow ? d->m->n_expert_used + 1 : 1),
                   sum_tokens, &s);
    return 0;
}
