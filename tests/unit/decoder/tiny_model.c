/* See tiny_model.h: the maker. */
#include "tiny_model.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_UNITS   512
#define MOST_VECTORS 256

static uint64_t state;

static double uniform(void) /* -1 .. 1 */
{
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)(int64_t)(z ^ z >> 31) * 0x1p-63;
}

static void put_half(uint8_t *p, double x)
{
    uint16_t h = float_to_half((float)x);
    memcpy(p, &h, 2);
}

/* Random values of about `size`; blocks of quantised formats get random levels and a scale that
 * fits. */
static void part_fill(const struct part *p, uint8_t *bytes, double size)
{
    const struct format_info *f = format_info((uint32_t)p->format);
    if (p->format == FORMAT_F32) {
        for (int64_t i = 0; i < (int64_t)p->rows * p->cols; i++) {
            float x = (float)(uniform() * size);
            memcpy(bytes + 4 * i, &x, 4);
        }
        return;
    }
    if (p->format == FORMAT_F16) {
        for (int64_t i = 0; i < (int64_t)p->rows * p->cols; i++)
            put_half(bytes + 2 * i, uniform() * size);
        return;
    }
    for (uint64_t b = 0; b < p->bytes; b += (uint64_t)f->block_bytes) {
        for (int32_t i = 0; i < f->block_bytes; i++)
            bytes[b + (uint64_t)i] = (uint8_t)(uniform() * 127);
        switch (p->format) {
        case FORMAT_Q8_0:
            put_half(bytes + b, size / 127);
            break;
        case FORMAT_Q4_0:
            put_half(bytes + b, size / 8);
            break;
        case FORMAT_Q4_K: /* scales of 6 bits times levels of 4 bits, less a minimum */
            put_half(bytes + b, size / 500);
            put_half(bytes + b + 2, size / 80);
            break;
        case FORMAT_Q6_K:
            put_half(bytes + b + 208, size / 2000);
            break;
        default:
            assert(!"a format that the maker does not know");
        }
    }
}

static struct part part_of(enum format f, int32_t rows, int32_t cols)
{
    const uint64_t row = format_row_bytes(f, (uint64_t)cols);
    assert(row > 0);
    return (struct part){
        .format = f, .rows = rows, .cols = cols, .row_bytes = row, .bytes = row * (uint64_t)rows};
}

static unit_id add_unit(struct model *m, int32_t layer, enum format f, int32_t rows, int32_t cols)
{
    assert(m->n_units < MOST_UNITS);
    struct unit *u = &m->units[m->n_units];
    *u = (struct unit){.layer = layer, .expert = -1, .n_parts = 1, .name = "matrix"};
    u->part[0] = part_of(f, rows, cols);
    return m->n_units++;
}

static vec_id add_vector(struct model *m, int32_t n)
{
    assert(m->n_vectors < MOST_VECTORS);
    m->vectors[m->n_vectors] = (struct vector){.part = part_of(FORMAT_F32, 1, n), .name = "vector"};
    return m->n_vectors++;
}

static void layer_make(struct tiny *t, int32_t i)
{
    const struct tiny_spec *s = &t->s;
    struct model *m = &t->m;
    struct layer *l = &m->layers[i];
    const int32_t q = s->head * s->dk, k = s->head_kv * s->dk, v = s->head_kv * s->dv, E = s->embd;
    for (int r = 0; r < MAT_COUNT; r++)
        l->mat[r] = -1;
    for (int r = 0; r < VEC_COUNT; r++)
        l->vec[r] = -1;
    l->n_head = s->head;
    l->n_head_kv = s->head_kv;
    l->head_dim_k = s->dk;
    l->head_dim_v = s->dv;
    l->window = s->window_every && i % s->window_every != 0 ? s->window : 0;
    l->attn_scale = (float)(1.3 / sqrt(s->dk));
    l->attn_softcap = s->attn_softcap;
    l->rope = s->rope_off_odd && i % 2 ? -1 : l->window ? 1 : 0;
    l->qk_norm = s->qk_norm;
    if (s->fused_qkv) {
        l->mat[MAT_QKV] = add_unit(m, i, s->format, q + k + v, E);
    } else {
        l->mat[MAT_Q] = add_unit(m, i, s->format, q, E);
        l->mat[MAT_K] = add_unit(m, i, s->format, k, E);
        l->mat[MAT_V] = add_unit(m, i, s->format2, v, E);
    }
    l->mat[MAT_O] = add_unit(m, i, s->format, E, s->head * s->dv);
    l->vec[VEC_ATTN_NORM] = add_vector(m, E);
    l->vec[VEC_FFN_NORM] = add_vector(m, E);
    if (s->layer_norm) {
        l->vec[VEC_ATTN_NORM_B] = add_vector(m, E);
        l->vec[VEC_FFN_NORM_B] = add_vector(m, E);
    }
    if (s->qkv_bias) {
        l->vec[VEC_Q_B] = add_vector(m, q);
        l->vec[VEC_K_B] = add_vector(m, k);
        l->vec[VEC_V_B] = add_vector(m, v);
    }
    if (s->o_bias)
        l->vec[VEC_O_B] = add_vector(m, E);
    if (s->qk_norm != QK_NORM_NONE) {
        l->vec[VEC_Q_NORM] = add_vector(m, s->qk_norm == QK_NORM_WIDE ? q : s->dk);
        l->vec[VEC_K_NORM] = add_vector(m, s->qk_norm == QK_NORM_WIDE ? k : s->dk);
    }
    if (s->sandwich) {
        l->vec[VEC_POST_ATTN_NORM] = add_vector(m, E);
        l->vec[VEC_POST_FFN_NORM] = add_vector(m, E);
    }
    if (s->sinks)
        l->vec[VEC_SINKS] = add_vector(m, s->head);

    l->n_ff = s->ff;
    l->expert0 = -1;
    const int32_t n = s->experts && !(s->dense_first && i == 0) ? s->experts : 1;
    if (s->ffn_bias) {
        l->vec[VEC_GATE_B] = add_vector(m, n * s->ff);
        l->vec[VEC_UP_B] = add_vector(m, n * s->ff);
        l->vec[VEC_DOWN_B] = add_vector(m, n * E);
    }
    if (n == 1) {
        l->ffn = FFN_GATED;
        if (s->fused_ff) {
            l->mat[MAT_GATE_UP] = add_unit(m, i, s->format, 2 * s->ff, E);
        } else {
            l->mat[MAT_GATE] = add_unit(m, i, s->format, s->ff, E);
            l->mat[MAT_UP] = add_unit(m, i, s->format, s->ff, E);
        }
        l->mat[MAT_DOWN] = add_unit(m, i, s->format2, E, s->ff);
        return;
    }
    l->ffn = FFN_MOE;
    l->mat[MAT_ROUTER] = add_unit(m, i, FORMAT_F32, n, E);
    if (s->router_bias)
        l->vec[VEC_ROUTER_B] = add_vector(m, n);
    if (s->select_bias)
        l->vec[VEC_ROUTER_SELECT_B] = add_vector(m, n);
    l->n_ff_shared = s->ff_shared;
    if (s->ff_shared) {
        l->mat[MAT_SHARED_GATE] = add_unit(m, i, s->format, s->ff_shared, E);
        l->mat[MAT_SHARED_UP] = add_unit(m, i, s->format, s->ff_shared, E);
        l->mat[MAT_SHARED_DOWN] = add_unit(m, i, s->format2, E, s->ff_shared);
        if (s->shared_gate)
            l->vec[VEC_SHARED_GATE_INP] = add_vector(m, E);
    }
    l->expert0 = m->n_units;
    for (int32_t x = 0; x < n; x++) {
        struct unit *u = &m->units[add_unit(m, i, s->format, s->ff, E)];
        u->kind = UNIT_EXPERT;
        u->expert = x;
        u->n_parts = UNIT_PARTS;
        u->part[EXPERT_UP] = u->part[EXPERT_GATE];
        u->part[EXPERT_DOWN] = part_of(s->format2, E, s->ff);
    }
}

static void vectors_fill(struct tiny *t)
{
    for (int32_t i = 0; i < t->m.n_vectors; i++)
        for (int32_t c = 0; c < t->m.vectors[i].part.cols; c++)
            fake_vector(t->w, i)[c] = (float)(uniform() * 0.4);
    /* Norm weights stand around 1, so do rope factors. */
    vec_id ones[4 * 64 + 2];
    int32_t n = 0;
    ones[n++] = t->m.output_norm;
    for (int32_t i = 0; i < t->m.n_rope; i++)
        if (t->m.ropes[i].factors >= 0 && i == 0)
            ones[n++] = t->m.ropes[i].factors;
    for (int32_t i = 0; i < t->m.n_layer; i++) {
        static const enum vec_role norms[] = {VEC_ATTN_NORM, VEC_FFN_NORM, VEC_Q_NORM, VEC_K_NORM};
        for (int r = 0; r < 4; r++)
            if (t->m.layers[i].vec[norms[r]] >= 0)
                ones[n++] = t->m.layers[i].vec[norms[r]];
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = 0; c < t->m.vectors[ones[i]].part.cols; c++)
            fake_vector(t->w, ones[i])[c] += 1;
}

struct tiny *tiny_open(const struct tiny_spec *spec, uint64_t seed)
{
    struct tiny *t = calloc(1, sizeof *t);
    struct model *m = &t->m;
    state = seed;
    t->s = *spec;
    struct tiny_spec *s = &t->s;
    m->arch = s->name;
    m->n_layer = s->layers;
    m->n_embd = s->embd;
    m->n_vocab = m->n_head_out = s->vocab;
    m->n_ctx_train = 512;
    m->norm_eps = 1e-5f;
    m->layer_norm = s->layer_norm;
    m->act = s->act;
    m->embd_scale = s->embd_scale != 0 ? s->embd_scale : 1;
    m->residual_scale = s->residual_scale != 0 ? s->residual_scale : 1;
    m->logit_scale = s->logit_scale != 0 ? s->logit_scale : 1;
    m->final_softcap = s->final_softcap;
    m->n_expert = s->experts;
    m->n_expert_used = s->used;
    m->gating = s->gating;
    m->expert_weights_norm = s->weights_norm;
    m->expert_weights_scale = s->weights_scale != 0 ? s->weights_scale : 1;
    m->n_group = s->groups ? s->groups : 1;
    m->n_group_used = s->groups_used ? s->groups_used : 1;
    m->units = calloc(MOST_UNITS, sizeof *m->units);
    m->vectors = calloc(MOST_VECTORS, sizeof *m->vectors);
    m->layers = calloc((size_t)s->layers, sizeof *m->layers);

    /* Two ropes: of full layers, and of window layers with another base. */
    m->n_rope = 2;
    m->ropes = calloc(2, sizeof *m->ropes);
    for (int i = 0; i < 2; i++) {
        struct rope *r = &m->ropes[i];
        r->dims = s->rope_dims ? s->rope_dims : s->dk;
        r->half_split = !s->rope_pairs;
        r->magnitude = s->magnitude != 0 ? s->magnitude : 1;
        r->inv_freq = calloc((size_t)r->dims / 2, sizeof(double));
        for (int32_t p = 0; p < r->dims / 2; p++)
            r->inv_freq[p] = pow(i ? 100.0 : 10000.0, -2.0 * p / r->dims);
        r->factors = s->rope_factors && i == 0 ? add_vector(m, r->dims / 2) : -1;
    }
    m->token_embd = add_unit(m, -1, s->format, s->vocab, s->embd);
    m->units[m->token_embd].kind = UNIT_TABLE;
    for (int32_t i = 0; i < s->layers; i++)
        layer_make(t, i);
    m->head = s->tied ? m->token_embd : add_unit(m, -1, s->format2, s->vocab, s->embd);
    m->output_norm = add_vector(m, s->embd);
    m->output_norm_b = s->layer_norm ? add_vector(m, s->embd) : -1;
    m->output_b = s->output_bias ? add_vector(m, s->vocab) : -1;

    unit_id *schedule = calloc(MOST_UNITS, sizeof *schedule);
    for (int32_t i = 0; i < s->layers; i++)
        for (int r = 0; r < MAT_COUNT; r++)
            if (m->layers[i].mat[r] >= 0)
                schedule[m->n_schedule++] = m->layers[i].mat[r];
    schedule[m->n_schedule++] = m->head;
    m->schedule = schedule;

    t->w = fake_weights_open(m);
    for (int32_t u = 0; u < m->n_units; u++)
        for (int32_t p = 0; p < m->units[u].n_parts; p++) {
            const double fan = m->units[u].part[p].cols;
            part_fill(&m->units[u].part[p], fake_part(t->w, u, p),
                      u == m->token_embd ? 1.7 : 1.7 / sqrt(fan));
        }
    vectors_fill(t);
    return t;
}

void tiny_close(struct tiny *t)
{
    weights_close(t->w);
    free(t->m.units);
    free(t->m.vectors);
    free(t->m.layers);
    for (int32_t i = 0; i < t->m.n_rope; i++)
        free(t->m.ropes[i].inv_freq);
    free(t->m.ropes);
    free((void *)(uintptr_t)t->m.schedule);
    free(t);
}
