/* The decoder's memory: where every buffer of a pass lies, from the model and the widths alone,
 * and the checks that make those sizes right. Pure. What is never alive at the same time shares
 * its place: table rows, then attention, then the feed forward. */
#include "decoder_room.h"

#include <string.h>

#include "../base/checked.h"

struct carver {
    uint8_t *base; /* NULL = sizes only */
    uint64_t at;   /* UINT64_MAX = beyond counting */
};

static void *carve(struct carver *c, uint64_t n, uint64_t size)
{
    uint64_t bytes, end;
    if (c->at == UINT64_MAX || !checked_mul(n, size, &bytes) || !checked_add(c->at, bytes, &end) ||
        !checked_align(end, 64, &end)) {
        c->at = UINT64_MAX;
        return NULL;
    }
    void *p = c->base ? c->base + c->at : NULL;
    c->at = end;
    return p;
}

static int32_t max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static size_t pad_floats(int64_t n)
{
    return (size_t)((n + 15) / 16 * 16);
}

unsigned kinds_of(const struct model *m, const unit_id *u, int32_t n)
{
    unsigned kinds = 0;
    for (int32_t i = 0; i < n; i++)
        if (u[i] >= 0)
            kinds |= 1u << part_kind(&m->units[u[i]].part[0]);
    return kinds;
}

/* The largest figures over all layers. */
struct extremes {
    int32_t qkv, heads, ff, dk, dv, cols;
    bool moe, shared;
    size_t in_row[ACT_KINDS], hid_row[ACT_KINDS],
        expert_row[ACT_KINDS]; /* bytes of prepared rows */
};

static void row_wanted(size_t rows[ACT_KINDS], const struct part *p)
{
    const enum act_kind kind = part_kind(p);
    const size_t bytes = act_row_bytes(kind, p->cols);
    rows[kind] = bytes > rows[kind] ? bytes : rows[kind];
}

static void unit_wanted(const struct model *m, size_t rows[ACT_KINDS], unit_id u)
{
    if (u >= 0)
        row_wanted(rows, &m->units[u].part[0]);
}

static void experts_wanted(const struct model *m, const struct layer *l, struct extremes *x)
{
    for (int32_t i = 0; i < m->n_expert; i++) {
        const struct unit *u = &m->units[l->expert0 + i];
        row_wanted(x->in_row, &u->part[EXPERT_GATE]);
        row_wanted(x->in_row, &u->part[EXPERT_UP]);
        row_wanted(x->expert_row, &u->part[EXPERT_GATE]);
        row_wanted(x->expert_row, &u->part[EXPERT_UP]);
        row_wanted(x->hid_row, &u->part[EXPERT_DOWN]);
    }
}

static struct extremes extremes_of(const struct model *m)
{
    struct extremes x = {.cols = m->n_embd};
    for (int32_t i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layers[i];
        x.qkv = max_i32(x.qkv,
                        (l->n_head + l->n_head_kv) * l->head_dim_k + l->n_head_kv * l->head_dim_v);
        x.heads = max_i32(x.heads, l->n_head * l->head_dim_v);
        x.dk = max_i32(x.dk, l->head_dim_k);
        x.dv = max_i32(x.dv, l->head_dim_v);
        x.ff = max_i32(x.ff, max_i32(l->n_ff, l->n_ff_shared));
        x.shared = x.shared || l->n_ff_shared > 0;
        for (int r = 0; r < MAT_COUNT; r++)
            unit_wanted(m, r == MAT_DOWN || r == MAT_SHARED_DOWN ? x.hid_row : x.in_row, l->mat[r]);
        if (l->ffn == FFN_MOE) {
            x.moe = true;
            experts_wanted(m, l, &x);
        }
    }
    unit_wanted(m, x.in_row, m->head);
    x.cols = max_i32(x.cols, max_i32(x.heads, x.ff));
    return x;
}

/* Prepared rows of every kind but ACT_F32, which are the floats themselves. */
static void carve_prepared(struct carver *c, struct input *in, const size_t rows[ACT_KINDS],
                           uint64_t width)
{
    for (int kind = 0; kind < ACT_KINDS; kind++) {
        in->prepared_stride[kind] = rows[kind];
        in->prepared[kind] =
            kind == ACT_F32 || rows[kind] == 0 ? NULL : carve(c, width, rows[kind]);
    }
}

static void carve_moe(struct carver *c, const struct model *m, const struct extremes *x, uint64_t w,
                      struct layout *l)
{
    const uint64_t k = (uint64_t)m->n_expert_used, narrow = w < MOE_NARROW ? w : MOE_NARROW;
    const uint64_t parts = narrow * k > w || w <= MOE_NARROW ? narrow * k : w;
    l->router_stride = pad_floats(m->n_expert);
    l->router = carve(c, w, l->router_stride * sizeof(float));
    l->parts = carve(c, parts, l->embd_stride * sizeof(float));
    for (int kind = 0; kind < ACT_KINDS; kind++) {
        l->gather_stride[kind] = x->expert_row[kind];
        l->gather[kind] =
            x->expert_row[kind] ? carve(c, (uint64_t)l->hid_rows, x->expert_row[kind]) : NULL;
    }
    l->route_ids = carve(c, w * k, sizeof(int32_t));
    l->route_w = carve(c, w * k, sizeof(float));
    l->slot_token = carve(c, w * k, sizeof(int32_t));
    l->slot_w = carve(c, w * k, sizeof(float));
    l->token_slot = carve(c, w * k, sizeof(int32_t));
    l->expert_first = carve(c, (uint64_t)m->n_expert + 1, sizeof(int32_t));
    l->wanted_ids = carve(c, (uint64_t)m->n_expert, sizeof(uint16_t));
}

void layout_make(const struct model *m, int32_t width, int32_t max_logits, int32_t threads,
                 void *base, struct layout *l)
{
    const struct extremes x = extremes_of(m);
    const uint64_t w = (uint64_t)width;
    struct carver c = {.base = base};
    (void)max_logits; /* wanted rows take the places of rows that are left behind */
    *l = (struct layout){.embd_stride = pad_floats(m->n_embd),
                         .qkv_stride = pad_floats(x.qkv),
                         .ff_stride = pad_floats((int64_t)2 * x.ff),
                         .table_row_bytes = m->units[m->token_embd].part[0].row_bytes};
    l->x = carve(&c, w, l->embd_stride * sizeof(float));
    l->out = carve(&c, w, l->embd_stride * sizeof(float));
    l->in = (struct input){.stride = l->embd_stride, .cols = m->n_embd};
    l->in.x = carve(&c, w, l->embd_stride * sizeof(float));
    carve_prepared(&c, &l->in, x.in_row, w);

    l->rope_cos = carve(&c, (uint64_t)m->n_rope, sizeof(float *));
    l->rope_sin = carve(&c, (uint64_t)m->n_rope, sizeof(float *));
    l->rope_freq = carve(&c, (uint64_t)m->n_rope, sizeof(double *));
    for (int32_t i = 0; i < m->n_rope; i++) {
        const uint64_t pairs = (uint64_t)m->ropes[i].dims / 2;
        float *cos = carve(&c, w * pairs, sizeof(float)),
              *sin = carve(&c, w * pairs, sizeof(float));
        double *freq = carve(&c, pairs, sizeof(double));
        if (base && c.at != UINT64_MAX) {
            l->rope_cos[i] = cos;
            l->rope_sin[i] = sin;
            l->rope_freq[i] = freq;
        }
    }
    l->attn_kinds = carve(&c, (uint64_t)m->n_layer, 1);
    l->ffn_kinds = carve(&c, (uint64_t)m->n_layer, 1);
    l->pos = carve(&c, w, sizeof(int32_t));
    l->seq = carve(&c, w, sizeof *l->seq);
    l->wanted = carve(&c, w, 1);
    l->block_first = carve(&c, w, sizeof(int32_t));
    l->block_n = carve(&c, w, sizeof(int32_t));
    size_t attn = attn_scratch_bytes(x.dk, x.dv, ATTN_QUERIES),
           matmul = matmul_scratch_bytes(x.cols, width);
    l->scratch_bytes = align_up(attn > matmul ? attn : matmul, 64);
    l->scratch = carve(&c, (uint64_t)threads, l->scratch_bytes);

    /* One place, used in turn. */
    const uint64_t start = c.at;
    uint64_t end = start;
    l->rows = carve(&c, w, l->table_row_bytes);
    end = c.at > end ? c.at : end;

    c.at = start;
    l->qkv = carve(&c, w, l->qkv_stride * sizeof(float));
    l->heads = l->in;
    l->heads.stride = pad_floats(x.heads);
    l->heads.x = carve(&c, w, l->heads.stride * sizeof(float));
    end = c.at > end ? c.at : end;

    c.at = start;
    l->hid = (struct input){.stride = l->ff_stride};
    l->hid_rows = x.moe && m->n_expert_used > (int32_t)w ? m->n_expert_used : (int32_t)w;
    l->hid.x = carve(&c, (uint64_t)l->hid_rows, l->ff_stride * sizeof(float));
    carve_prepared(&c, &l->hid, x.hid_row, (uint64_t)l->hid_rows);
    if (x.shared)
        l->shared = carve(&c, w, l->embd_stride * sizeof(float));
    if (x.moe)
        carve_moe(&c, m, &x, w, l);
    l->bytes = c.at > end ? c.at : end;
}

uint64_t decoder_bytes(const struct model *m, int32_t max_width, int32_t max_logits,
                       int32_t threads)
{
    struct layout l;
    layout_make(m, max_width, max_logits, threads, NULL, &l);
    return l.bytes > UINT64_MAX - LEDGER_HUGE ? UINT64_MAX : ledger_rounded(l.bytes);
}

/* ---- shapes ---- */

static int part_check(const struct model *m, const struct part *p, const char *name, int64_t rows,
                      int64_t cols, struct leat_error *e)
{
    char q[128];
    if (p->rows != rows || p->cols != cols)
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: tensor %s is %d x %d, the model's figures want %lld x %lld",
                         m->path ? m->path : "model", error_quote(q, sizeof q, name, strlen(name)),
                         (int)p->rows, (int)p->cols, (long long)rows, (long long)cols);
    const struct format_info *f = format_info((uint32_t)p->format);
    if (!f || !f->runs || p->cols % f->block != 0)
        return error_set(e, LEAT_ERR_UNSUPPORTED, "%s: tensor %s: no product for its format %s",
                         m->path ? m->path : "model", error_quote(q, sizeof q, name, strlen(name)),
                         f ? f->name : "(unknown)");
    return 0;
}

static int unit_check(const struct model *m, unit_id u, int64_t rows, int64_t cols,
                      struct leat_error *e)
{
    if (u < 0)
        return 0;
    return part_check(m, &m->units[u].part[0], m->units[u].name, rows, cols, e);
}

static int vec_check(const struct model *m, vec_id v, int64_t n, struct leat_error *e)
{
    char q[128];
    if (v < 0 || m->vectors[v].part.cols == n)
        return 0;
    return error_set(e, LEAT_ERR_FORMAT,
                     "%s: tensor %s has %d values, the model's figures want %lld",
                     m->path ? m->path : "model",
                     error_quote(q, sizeof q, m->vectors[v].name, strlen(m->vectors[v].name)),
                     (int)m->vectors[v].part.cols, (long long)n);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ < 0)                                                                               \
            return rc_;                                                                            \
    } while (0)

static int attention_check(const struct model *m, const struct layer *l, struct leat_error *e)
{
    const int64_t q = (int64_t)l->n_head * l->head_dim_k, k = (int64_t)l->n_head_kv * l->head_dim_k,
                  v = (int64_t)l->n_head_kv * l->head_dim_v, o = (int64_t)l->n_head * l->head_dim_v;
    if (l->n_head_kv < 1 || l->n_head % l->n_head_kv != 0 || l->rope >= m->n_rope ||
        (l->rope >= 0 &&
         (m->ropes[l->rope].dims > l->head_dim_k || m->ropes[l->rope].dims % 2 != 0)) ||
        l->mat[MAT_O] < 0 ||
        (l->mat[MAT_QKV] < 0 && (l->mat[MAT_Q] < 0 || l->mat[MAT_K] < 0 || l->mat[MAT_V] < 0)))
        return error_set(e, LEAT_ERR_INTERNAL,
                         "a layer of %d heads over %d key heads is not complete", (int)l->n_head,
                         (int)l->n_head_kv);
    TRY(unit_check(m, l->mat[MAT_Q], q, m->n_embd, e));
    TRY(unit_check(m, l->mat[MAT_K], k, m->n_embd, e));
    TRY(unit_check(m, l->mat[MAT_V], v, m->n_embd, e));
    TRY(unit_check(m, l->mat[MAT_QKV], q + k + v, m->n_embd, e));
    TRY(unit_check(m, l->mat[MAT_O], m->n_embd, o, e));
    TRY(vec_check(m, l->vec[VEC_Q_B], q, e));
    TRY(vec_check(m, l->vec[VEC_K_B], k, e));
    TRY(vec_check(m, l->vec[VEC_V_B], v, e));
    const bool wide = l->qk_norm == QK_NORM_WIDE;
    TRY(vec_check(m, l->vec[VEC_Q_NORM], wide ? q : l->head_dim_k, e));
    TRY(vec_check(m, l->vec[VEC_K_NORM], wide ? k : l->head_dim_k, e));
    return vec_check(m, l->vec[VEC_SINKS], l->n_head, e);
}

static int ffn_check(const struct model *m, const struct layer *l, struct leat_error *e)
{
    const int64_t f = l->n_ff, experts = l->ffn == FFN_MOE ? m->n_expert : 1;
    TRY(vec_check(m, l->vec[VEC_GATE_B], f * experts, e));
    TRY(vec_check(m, l->vec[VEC_UP_B], f * experts, e));
    TRY(vec_check(m, l->vec[VEC_DOWN_B], m->n_embd * experts, e));
    if (l->ffn == FFN_GATED) {
        if (l->mat[MAT_DOWN] < 0 || (l->mat[MAT_UP] < 0 && l->mat[MAT_GATE_UP] < 0))
            return error_set(e, LEAT_ERR_INTERNAL, "a feed forward of width %d is not complete",
                             (int)l->n_ff);
        TRY(unit_check(m, l->mat[MAT_GATE], f, m->n_embd, e));
        TRY(unit_check(m, l->mat[MAT_UP], f, m->n_embd, e));
        TRY(unit_check(m, l->mat[MAT_GATE_UP], 2 * f, m->n_embd, e));
        return unit_check(m, l->mat[MAT_DOWN], m->n_embd, f, e);
    }
    if (l->mat[MAT_ROUTER] < 0 || l->expert0 < 0 || m->n_expert < 1 ||
        m->n_expert > UINT16_MAX + 1 || m->n_expert_used < 1 || m->n_expert_used > m->n_expert ||
        m->n_group < 1 || m->n_expert % m->n_group != 0)
        return error_set(e, LEAT_ERR_INTERNAL,
                         "a layer of %d experts of which %d are used is not complete",
                         (int)m->n_expert, (int)m->n_expert_used);
    TRY(unit_check(m, l->mat[MAT_ROUTER], m->n_expert, m->n_embd, e));
    TRY(vec_check(m, l->vec[VEC_ROUTER_B], m->n_expert, e));
    TRY(vec_check(m, l->vec[VEC_ROUTER_SELECT_B], m->n_expert, e));
    TRY(unit_check(m, l->mat[MAT_SHARED_GATE], l->n_ff_shared, m->n_embd, e));
    TRY(unit_check(m, l->mat[MAT_SHARED_UP], l->n_ff_shared, m->n_embd, e));
    TRY(unit_check(m, l->mat[MAT_SHARED_DOWN], m->n_embd, l->n_ff_shared, e));
    TRY(vec_check(m, l->vec[VEC_SHARED_GATE_INP], m->n_embd, e));
    if (l->n_ff_shared > 0 && (l->mat[MAT_SHARED_UP] < 0 || l->mat[MAT_SHARED_DOWN] < 0))
        return error_set(e, LEAT_ERR_INTERNAL, "a shared expert of width %d is not complete",
                         (int)l->n_ff_shared);
    for (int32_t i = 0; i < m->n_expert; i++) {
        const struct unit *u = &m->units[l->expert0 + i];
        TRY(part_check(m, &u->part[EXPERT_GATE], u->name, f, m->n_embd, e));
        TRY(part_check(m, &u->part[EXPERT_UP], u->name, f, m->n_embd, e));
        TRY(part_check(m, &u->part[EXPERT_DOWN], u->name, m->n_embd, f, e));
    }
    return 0;
}

int shapes_check(const struct model *m, struct leat_error *e)
{
    if (m->n_layer < 1 || m->token_embd < 0 || m->head < 0)
        return error_set(e, LEAT_ERR_INTERNAL, "a model of %d layers is not complete",
                         (int)m->n_layer);
    TRY(unit_check(m, m->token_embd, m->n_vocab, m->n_embd, e));
    TRY(unit_check(m, m->head, m->n_head_out, m->n_embd, e));
    TRY(vec_check(m, m->output_norm, m->n_embd, e));
    TRY(vec_check(m, m->output_norm_b, m->n_embd, e));
    TRY(vec_check(m, m->output_b, m->n_head_out, e));
    for (int32_t i = 0; i < m->n_rope; i++)
        TRY(vec_check(m, m->ropes[i].factors, m->ropes[i].dims / 2, e));
    for (int32_t i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layers[i];
        static const enum vec_role wide[] = {VEC_ATTN_NORM,      VEC_ATTN_NORM_B, VEC_O_B,
                                             VEC_POST_ATTN_NORM, VEC_FFN_NORM,    VEC_FFN_NORM_B,
                                             VEC_POST_FFN_NORM};
        for (size_t v = 0; v < sizeof wide / sizeof *wide; v++)
            TRY(vec_check(m, l->vec[wide[v]], m->n_embd, e));
        if (l->n_head > 0)
            TRY(attention_check(m, l, e));
        if (l->ffn != FFN_NONE)
            TRY(ffn_check(m, l, e));
    }
    return 0;
}
