/* What a tiny model computes, in double precision: whole sequence at once, no pages, no tiles,
 * no pieces. */
#include "tiny_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 4096 /* values of any row */

static const float *matrix(const struct tiny *t, unit_id u, int part)
{
    return fake_part(t->w, u, part);
}

/* A row of a matrix that lies at any address. */
static double weight(const float *w, int64_t i)
{
    float f;
    memcpy(&f, (const char *)w + 4 * i, 4);
    return f;
}

static void product(const float *w, int32_t rows, int32_t cols, const double *x, double *y)
{
    for (int32_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (int32_t c = 0; c < cols; c++)
            y[r] += weight(w, (int64_t)r * cols + c) * x[c];
    }
}

static const float *vec(const struct tiny *t, vec_id v)
{
    return v < 0 ? NULL : fake_vector(t->w, v);
}

static void add_bias(double *x, const float *b, int32_t n)
{
    for (int32_t i = 0; b && i < n; i++)
        x[i] += b[i];
}

static void norm(const struct tiny *t, const double *x, const float *w, const float *b, double *y,
                 int32_t n)
{
    double mean = 0, var = 0;
    for (int32_t i = 0; t->m.layer_norm && i < n; i++)
        mean += x[i] / n;
    for (int32_t i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / n;
    for (int32_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(var + t->m.norm_eps) * w[i] + (b ? b[i] : 0);
}

static void rms(double *x, const float *w, double eps, int32_t n)
{
    double s = 0;
    for (int32_t i = 0; i < n; i++)
        s += x[i] * x[i] / n;
    for (int32_t i = 0; i < n; i++)
        x[i] = x[i] / sqrt(s + eps) * w[i];
}

static void rotate(const struct tiny *t, const struct rope *r, double *x, int32_t heads,
                   int32_t dim, int32_t pos)
{
    const float *f = vec(t, r->factors);
    for (int32_t h = 0; h < heads; h++)
        for (int32_t i = 0; i < r->dims / 2; i++) {
            double angle = pos * r->inv_freq[i] / (f ? f[i] : 1);
            double *a = x + h * dim + (r->half_split ? i : 2 * i);
            double *b = x + h * dim + (r->half_split ? i + r->dims / 2 : 2 * i + 1);
            double u = *a, v = *b;
            *a = (u * cos(angle) - v * sin(angle)) * r->magnitude;
            *b = (u * sin(angle) + v * cos(angle)) * r->magnitude;
        }
}

static double act(enum act_fn f, double g, double u)
{
    switch (f) {
    case ACTFN_SILU:
        return g / (1 + exp(-g)) * u;
    case ACTFN_GELU_TANH:
        return 0.5 * g * (1 + tanh(0.79788456080286536 * (g + 0.044715 * g * g * g))) * u;
    case ACTFN_GELU_ERF:
        return 0.5 * g * (1 + erf(g / sqrt(2))) * u;
    case ACTFN_RELU:
        return (g > 0 ? g : 0) * u;
    case ACTFN_RELU2:
        return (g > 0 ? g * g : 0) * u;
    case ACTFN_SWIGLU_OAI:
        g = g > 7 ? 7 : g;
        u = u > 7 ? 7 : u < -7 ? -7 : u;
        return g / (1 + exp(-1.702 * g)) * (u + 1);
    }
    return 0;
}

static void feed(const struct tiny *t, const float *g, const float *u, const float *d, int32_t ff,
                 const float *gb, const float *ub, const float *db, const double *x, double *y)
{
    double gate[MOST], up[MOST];
    product(g, ff, t->s.embd, x, gate);
    product(u, ff, t->s.embd, x, up);
    add_bias(gate, gb, ff);
    add_bias(up, ub, ff);
    for (int32_t i = 0; i < ff; i++)
        gate[i] = act(t->s.act, gate[i], up[i]);
    product(d, t->s.embd, ff, gate, y);
    add_bias(y, db, t->s.embd);
}

static void mixture(const struct tiny *t, const struct layer *l, const double *x, double *y)
{
    const struct tiny_spec *s = &t->s;
    const int32_t n = s->experts, E = s->embd;
    double p[MOST], q[MOST], o[MOST];
    product(matrix(t, l->mat[MAT_ROUTER], 0), n, E, x, p);
    add_bias(p, vec(t, l->vec[VEC_ROUTER_B]), n);
    double sum = 0, top = -1e300;
    for (int32_t i = 0; i < n; i++)
        top = p[i] > top ? p[i] : top;
    for (int32_t i = 0; i < n; i++)
        sum += exp(p[i] - top);
    for (int32_t i = 0; i < n; i++) {
        if (s->gating == GATING_SOFTMAX)
            p[i] = exp(p[i] - top) / sum;
        else if (s->gating == GATING_SIGMOID)
            p[i] = 1 / (1 + exp(-p[i]));
        else if (s->gating == GATING_SQRT_SOFTPLUS)
            p[i] = sqrt(log1p(exp(p[i])));
        q[i] = p[i];
    }
    add_bias(q, vec(t, l->vec[VEC_ROUTER_SELECT_B]), n);
    if (t->m.n_group > 1) {
        const int32_t size = n / t->m.n_group;
        double score[64];
        bool keep[64] = {false};
        for (int32_t g = 0; g < t->m.n_group; g++) {
            score[g] = -1e300; /* best sum of two members */
            for (int32_t a = g * size; a < (g + 1) * size; a++)
                for (int32_t b = a + 1; b < (g + 1) * size; b++)
                    score[g] = q[a] + q[b] > score[g] ? q[a] + q[b] : score[g];
        }
        for (int32_t r = 0; r < t->m.n_group_used; r++) {
            int32_t best = -1;
            for (int32_t g = 0; g < t->m.n_group; g++)
                if (!keep[g] && (best < 0 || score[g] > score[best]))
                    best = g;
            keep[best] = true;
        }
        for (int32_t i = 0; i < n; i++)
            if (!keep[i / size])
                q[i] = -INFINITY;
    }
    bool used[MOST] = {false};
    double w[MOST] = {0}, w_sum = 0, e_sum = 0, z_top = -1e300;
    for (int32_t r = 0; r < s->used; r++) {
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++)
            if (!used[i] && (best < 0 || q[i] > q[best]))
                best = i;
        used[best] = true;
        z_top = p[best] > z_top ? p[best] : z_top;
    }
    for (int32_t i = 0; i < n; i++)
        if (used[i]) {
            w[i] = s->gating == GATING_TOPK_SOFTMAX ? exp(p[i] - z_top) : p[i];
            e_sum += exp(p[i] - z_top);
        }
    for (int32_t i = 0; i < n; i++) {
        w[i] = s->gating == GATING_TOPK_SOFTMAX ? w[i] / e_sum : w[i];
        w_sum += w[i];
    }
    memset(y, 0, (size_t)E * sizeof *y);
    for (int32_t i = 0; i < n; i++) {
        if (!used[i])
            continue;
        const unit_id u = l->expert0 + i;
        const float *gb = vec(t, l->vec[VEC_GATE_B]), *ub = vec(t, l->vec[VEC_UP_B]),
                    *db = vec(t, l->vec[VEC_DOWN_B]);
        feed(t, matrix(t, u, EXPERT_GATE), matrix(t, u, EXPERT_UP), matrix(t, u, EXPERT_DOWN),
             s->ff, gb ? gb + i * s->ff : NULL, ub ? ub + i * s->ff : NULL, db ? db + i * E : NULL,
             x, o);
        double f = w[i] * t->m.expert_weights_scale;
        if (s->weights_norm)
            f /= w_sum;
        for (int32_t c = 0; c < E; c++)
            y[c] += f * o[c];
    }
    if (!s->ff_shared)
        return;
    feed(t, matrix(t, l->mat[MAT_SHARED_GATE], 0), matrix(t, l->mat[MAT_SHARED_UP], 0),
         matrix(t, l->mat[MAT_SHARED_DOWN], 0), s->ff_shared, NULL, NULL, NULL, x, o);
    double g = 0;
    for (int32_t c = 0; s->shared_gate && c < E; c++)
        g += x[c] * vec(t, l->vec[VEC_SHARED_GATE_INP])[c];
    for (int32_t c = 0; c < E; c++)
        y[c] += s->shared_gate ? o[c] / (1 + exp(-g)) : o[c];
}

static void attention(const struct tiny *t, const struct layer *l, int32_t n,
                      double (*const *qkv)[MOST], double *out)
{
    const struct tiny_spec *s = &t->s;
    const int32_t group = s->head / s->head_kv, k0 = s->head * s->dk, v0 = k0 + s->head_kv * s->dk;
    const float *sinks = vec(t, l->vec[VEC_SINKS]);
    double *score = malloc((size_t)n * sizeof *score);
    for (int32_t p = 0; p < n; p++)
        for (int32_t h = 0; h < s->head; h++) {
            double *o = out + ((size_t)p * (size_t)s->head + (size_t)h) * (size_t)s->dv,
                   top = sinks ? sinks[h] : -1e300;
            const int32_t from = l->window && p >= l->window ? p - l->window + 1 : 0;
            for (int32_t j = from; j <= p; j++) {
                score[j] = 0;
                for (int32_t c = 0; c < s->dk; c++)
                    score[j] += (*qkv[p])[h * s->dk + c] * (*qkv[j])[k0 + h / group * s->dk + c];
                score[j] *= l->attn_scale;
                if (l->attn_softcap != 0)
                    score[j] = l->attn_softcap * tanh(score[j] / l->attn_softcap);
                top = score[j] > top ? score[j] : top;
            }
            double sum = sinks ? exp(sinks[h] - top) : 0;
            for (int32_t j = from; j <= p; j++)
                sum += exp(score[j] - top);
            memset(o, 0, (size_t)s->dv * sizeof *o);
            for (int32_t j = from; j <= p; j++)
                for (int32_t c = 0; c < s->dv; c++)
                    o[c] += exp(score[j] - top) / sum * (*qkv[j])[v0 + h / group * s->dv + c];
        }
    free(score);
}

void tiny_reference(const struct tiny *t, const int32_t *ids, int32_t n, double *logits)
{
    const struct tiny_spec *s = &t->s;
    const struct model *m = &t->m;
    const int32_t E = s->embd, nq = s->head * s->dk, nk = s->head_kv * s->dk,
                  nv = s->head_kv * s->dv;
    double *x = malloc((size_t)n * (size_t)E * sizeof *x);
    double *heads = malloc((size_t)n * (size_t)(s->head * s->dv) * sizeof *heads);
    double(**qkv)[MOST] = malloc((size_t)n * sizeof *qkv);
    double h[MOST], o[MOST];
    for (int32_t p = 0; p < n; p++) {
        qkv[p] = malloc(sizeof *qkv[p]);
        for (int32_t c = 0; c < E; c++)
            x[p * E + c] =
                weight(matrix(t, m->token_embd, 0), (int64_t)ids[p] * E + c) * m->embd_scale;
    }
    for (int32_t i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layers[i];
        for (int32_t p = 0; p < n; p++) {
            double *y = *qkv[p];
            norm(t, x + p * E, vec(t, l->vec[VEC_ATTN_NORM]), vec(t, l->vec[VEC_ATTN_NORM_B]), h,
                 E);
            if (s->fused_qkv) {
                product(matrix(t, l->mat[MAT_QKV], 0), nq + nk + nv, E, h, y);
            } else {
                product(matrix(t, l->mat[MAT_Q], 0), nq, E, h, y);
                product(matrix(t, l->mat[MAT_K], 0), nk, E, h, y + nq);
                product(matrix(t, l->mat[MAT_V], 0), nv, E, h, y + nq + nk);
            }
            add_bias(y, vec(t, l->vec[VEC_Q_B]), nq);
            add_bias(y + nq, vec(t, l->vec[VEC_K_B]), nk);
            add_bias(y + nq + nk, vec(t, l->vec[VEC_V_B]), nv);
            const float *qn = vec(t, l->vec[VEC_Q_NORM]), *kn = vec(t, l->vec[VEC_K_NORM]);
            if (s->qk_norm == QK_NORM_WIDE) {
                rms(y, qn, m->norm_eps, nq);
                rms(y + nq, kn, m->norm_eps, nk);
            }
            for (int32_t a = 0; s->qk_norm == QK_NORM_HEAD && a < s->head + s->head_kv; a++)
                rms(y + a * s->dk, a < s->head ? qn : kn, m->norm_eps, s->dk);
            if (l->rope >= 0)
                rotate(t, &m->ropes[l->rope], y, s->head + s->head_kv, s->dk, p);
        }
        attention(t, l, n, qkv, heads);
        for (int32_t p = 0; p < n; p++) {
            product(matrix(t, l->mat[MAT_O], 0), E, s->head * s->dv, heads + p * s->head * s->dv,
                    o);
            add_bias(o, vec(t, l->vec[VEC_O_B]), E);
            if (s->sandwich)
                norm(t, o, vec(t, l->vec[VEC_POST_ATTN_NORM]), NULL, o, E);
            for (int32_t c = 0; c < E; c++)
                x[p * E + c] += o[c] * m->residual_scale;
            norm(t, x + p * E, vec(t, l->vec[VEC_FFN_NORM]), vec(t, l->vec[VEC_FFN_NORM_B]), h, E);
            if (l->ffn == FFN_MOE) {
                mixture(t, l, h, o);
            } else {
                const float *g = matrix(t, l->mat[s->fused_ff ? MAT_GATE_UP : MAT_GATE], 0);
                const float *u = s->fused_ff
                                     ? (const float *)(const void *)((const char *)g +
                                                                     4 * (size_t)s->ff * (size_t)E)
                                     : matrix(t, l->mat[MAT_UP], 0);
                feed(t, g, u, matrix(t, l->mat[MAT_DOWN], 0), s->ff, vec(t, l->vec[VEC_GATE_B]),
                     vec(t, l->vec[VEC_UP_B]), vec(t, l->vec[VEC_DOWN_B]), h, o);
            }
            if (s->sandwich)
                norm(t, o, vec(t, l->vec[VEC_POST_FFN_NORM]), NULL, o, E);
            for (int32_t c = 0; c < E; c++)
                x[p * E + c] += o[c] * m->residual_scale;
        }
    }
    for (int32_t p = 0; p < n; p++) {
        double *y = logits + p * s->vocab;
        norm(t, x + p * E, vec(t, m->output_norm), vec(t, m->output_norm_b), h, E);
        product(matrix(t, m->head, 0), s->vocab, E, h, y);
        add_bias(y, vec(t, m->output_b), s->vocab);
        for (int32_t c = 0; c < s->vocab; c++) {
            y[c] *= m->logit_scale;
            if (m->final_softcap != 0)
                y[c] = m->final_softcap * tanh(y[c] / m->final_softcap);
        }
        free(qkv[p]);
    }
    free(qkv);
    free(heads);
    free(x);
}
