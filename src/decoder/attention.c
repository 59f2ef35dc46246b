/* The attention mixer: q, k and v from the stream, their norms and rotation, keys and values
 * into the sequences' pages, and every query over its history. One head's history is walked by
 * one thread, tile by tile, ascending. Knows shapes and switches of a layer, no architecture.
 * Thread rule: thread 0, spreads over the team. */
#include "decoder_room.h"

#include <math.h>
#include <string.h>

#include "../kernels/ops_math.h"

#define SMALL_WORK 100000 /* multiply-adds that are not worth a second thread */

struct finish_job {
    const struct decoder *d;
    int32_t layer;
    const struct layer *l;
    const float *q_b, *k_b, *v_b, *q_norm, *k_norm;
};

static void heads_norm(const struct finish_job *j, float *x, const float *w, int32_t heads)
{
    const struct kernels *k = j->d->k;
    const int32_t dim = j->l->head_dim_k;
    const float eps = j->d->m->norm_eps;
    if (j->l->qk_norm == QK_NORM_WIDE) {
        k->rms_norm(x, w, eps, x, heads * dim);
        return;
    }
    for (int32_t h = 0; h < heads; h++)
        k->rms_norm(x + (size_t)h * dim, w, eps, x + (size_t)h * dim, dim);
}

/* What happens to q, k and v of one token between the products and attention. */
static void finish_tokens(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct finish_job *j = arg;
    const struct decoder *d = j->d;
    const struct layer *l = j->l;
    const struct kernels *kern = d->k;
    const int32_t nq = l->n_head * l->head_dim_k, nk = l->n_head_kv * l->head_dim_k,
                  nv = l->n_head_kv * l->head_dim_v;
    const uint64_t k_row = kv_row_bytes(d->kv, l->head_dim_k),
                   v_row = kv_row_bytes(d->kv, l->head_dim_v);
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *q = d->l.qkv + (size_t)t * d->l.qkv_stride, *k = q + nq, *v = k + nk;
        if (j->q_b)
            kern->add(q, j->q_b, nq);
        if (j->k_b)
            kern->add(k, j->k_b, nk);
        if (j->v_b)
            kern->add(v, j->v_b, nv);
        if (l->qk_norm != QK_NORM_NONE) {
            heads_norm(j, q, j->q_norm, l->n_head);
            heads_norm(j, k, j->k_norm, l->n_head_kv);
        }
        if (l->rope >= 0) {
            const struct rope *r = &d->m->ropes[l->rope];
            const float *cos = d->l.rope_cos[l->rope] + (size_t)t * (size_t)(r->dims / 2);
            const float *sin = d->l.rope_sin[l->rope] + (size_t)t * (size_t)(r->dims / 2);
            kern->rope(q, l->n_head, l->head_dim_k, 0, r->dims, r->half_split, cos, sin);
            kern->rope(k, l->n_head_kv, l->head_dim_k, 0, r->dims, r->half_split, cos, sin);
        }
        kern->scale(q, l->attn_scale, nq);
        const int32_t page = d->l.pos[t] / ATTN_TILE, row = d->l.pos[t] % ATTN_TILE;
        for (int32_t h = 0; h < l->n_head_kv; h++) {
            void *kp, *vp;
            state_page(d->l.seq[t], j->layer, h, page, &kp, &vp);
            kern->kv_store(d->kv, k + (size_t)h * l->head_dim_k,
                           (uint8_t *)kp + (uint64_t)row * k_row, l->head_dim_k);
            kern->kv_store(d->kv, v + (size_t)h * l->head_dim_v,
                           (uint8_t *)vp + (uint64_t)row * v_row, l->head_dim_v);
        }
    }
}

/* One item: some heads of one group for one block of tokens of one sequence. */
struct attend_job {
    const struct decoder *d;
    int32_t layer;
    const struct layer *l;
    int32_t group;  /* query heads per kv head */
    int32_t heads;  /* of them per item */
    int32_t splits; /* items per kv head and block */
    int32_t n_blocks;
    const float *sinks;
};

static int32_t clamp_tile(int64_t x)
{
    return x < 0 ? 0 : x > ATTN_TILE ? ATTN_TILE : (int32_t)x;
}

static void attend_item(const struct attend_job *j, int32_t thread, int32_t block, int32_t kv_head,
                        int32_t h0, int32_t n_heads)
{
    const struct decoder *d = j->d;
    const struct layer *l = j->l;
    const int32_t t0 = d->l.block_first[block], nt = d->l.block_n[block], nq = nt * n_heads;
    const float *q[ATTN_QUERIES];
    float *acc[ATTN_QUERIES], m[ATTN_QUERIES], sum[ATTN_QUERIES];
    int32_t lo[ATTN_QUERIES], hi[ATTN_QUERIES];
    for (int32_t t = 0; t < nt; t++)
        for (int32_t h = 0; h < n_heads; h++) {
            const int32_t i = t * n_heads + h;
            q[i] = d->l.qkv + (size_t)(t0 + t) * d->l.qkv_stride +
                   (size_t)(h0 + h) * (size_t)l->head_dim_k;
            acc[i] = d->l.heads.x + (size_t)(t0 + t) * d->l.heads.stride +
                     (size_t)(h0 + h) * (size_t)l->head_dim_v;
            memset(acc[i], 0, (size_t)l->head_dim_v * sizeof(float));
            m[i] = -INFINITY;
            sum[i] = 0;
        }
    struct attn_tile a = {.type = d->kv,
                          .k_stride = kv_row_bytes(d->kv, l->head_dim_k),
                          .v_stride = kv_row_bytes(d->kv, l->head_dim_v),
                          .dk = l->head_dim_k,
                          .dv = l->head_dim_v,
                          .nq = nq,
                          .q = q,
                          .acc = acc,
                          .m = m,
                          .l = sum,
                          .lo = lo,
                          .hi = hi,
                          .softcap = l->attn_softcap,
                          .scratch = decoder_scratch(d, thread)};
    const int32_t first = d->l.pos[t0], last = d->l.pos[t0 + nt - 1];
    const int32_t seen = l->window > 0 && first >= l->window ? first - l->window + 1 : 0;
    const int32_t last_page = last / ATTN_TILE;
    void *k, *v;
    state_page(d->l.seq[t0], j->layer, kv_head, seen / ATTN_TILE, &k, &v);
    for (int32_t page = seen / ATTN_TILE; page <= last_page; page++) {
        for (int32_t t = 0; t < nt; t++) {
            const int64_t end = (int64_t)d->l.pos[t0 + t] + 1 - (int64_t)page * ATTN_TILE;
            for (int32_t h = 0; h < n_heads; h++) {
                hi[t * n_heads + h] = clamp_tile(end);
                lo[t * n_heads + h] = l->window > 0 ? clamp_tile(end - l->window) : 0;
            }
        }
        a.k = k;
        a.v = v;
        k = NULL;
        if (page < last_page)
            state_page(d->l.seq[t0], j->layer, kv_head, page + 1, &k, &v);
        a.ahead = k;
        d->k->attn_tile(&a);
    }
    for (int32_t i = 0; i < nq; i++) {
        float s = sum[i], f = 1;
        if (j->sinks) { /* one more score that has no value: softmax over {scores, sink} */
            const float z = j->sinks[h0 + i % n_heads], top = z > m[i] ? z : m[i];
            f = ops_exp(m[i] - top);
            s = s * f + ops_exp(z - top);
        }
        d->k->scale(acc[i], f / s, l->head_dim_v);
    }
}

static void attend_items(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct attend_job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        /* Later blocks have longer histories: they go first, so that the last ones are short. */
        const int64_t per_block = (int64_t)j->l->n_head_kv * j->splits;
        const int32_t block = (int32_t)(j->n_blocks - 1 - i / per_block);
        const int32_t kv_head = (int32_t)(i % per_block / j->splits);
        const int32_t offset = (int32_t)(i % j->splits) * j->heads;
        const int32_t n = j->group - offset < j->heads ? j->group - offset : j->heads;
        if (n > 0)
            attend_item(j, thread, block, kv_head, kv_head * j->group + offset, n);
    }
}

/* Cuts the rows at hand into blocks of up to `most` tokens of one sequence. */
static int32_t blocks_make(struct decoder *d, int32_t most)
{
    int32_t n = 0;
    for (int32_t t = 0; t < d->n; t++) {
        if (n > 0 && d->l.seq[t] == d->l.seq[t - 1] && d->l.block_n[n - 1] < most) {
            d->l.block_n[n - 1]++;
            continue;
        }
        d->l.block_first[n] = t;
        d->l.block_n[n++] = 1;
    }
    return n;
}

/* Few and long histories: how many heads of a group an item takes, so that the threads end soonest.
 * Reading a history costs about as much as one head on it, so heads stay together where that
 * leaves no thread idle. */
static int32_t heads_of_item(const struct attend_job *j, int32_t threads)
{
    int32_t best = j->heads;
    int64_t least = INT64_MAX;
    for (int32_t heads = j->heads; heads > 0; heads--) {
        const int64_t items =
            (int64_t)j->n_blocks * j->l->n_head_kv * ((j->group + heads - 1) / heads);
        const int64_t time = (items + threads - 1) / threads * (heads + 1);
        if (time < least) {
            least = time;
            best = heads;
        }
    }
    return best;
}

static void attend(struct decoder *d, int32_t layer, const struct layer *l)
{
    struct attend_job j = {.d = d,
                           .layer = layer,
                           .l = l,
                           .group = l->n_head / l->n_head_kv,
                           .sinks = layer_vector(d, l, VEC_SINKS)};
    j.heads = j.group < ATTN_QUERIES ? j.group : ATTN_QUERIES;
    j.n_blocks = blocks_make(d, ATTN_QUERIES / j.heads);
    double work = 0;
    for (int32_t t = 0; t < d->n; t++)
        work += l->window > 0 && d->l.pos[t] >= l->window ? l->window : d->l.pos[t] + 1;
    work *= (double)l->n_head * (l->head_dim_k + l->head_dim_v);
    if (d->threads > 1 && work > SMALL_WORK)
        j.heads = heads_of_item(&j, d->threads);
    j.splits = (j.group + j.heads - 1) / j.heads;
    const int64_t total = (int64_t)j.n_blocks * l->n_head_kv * j.splits;
    team_for(d->team, total, work > SMALL_WORK ? 1 : total, attend_items, &j);
}

int attention_run(struct decoder *d, int32_t layer, struct leat_error *e)
{
    const struct layer *l = &d->m->layers[layer];
    const int32_t nq = l->n_head * l->head_dim_k, nk = l->n_head_kv * l->head_dim_k;
    const size_t stride = d->l.qkv_stride;
    int rc = 0;
    if (l->mat[MAT_QKV] >= 0)
        rc = product(d, l->mat[MAT_QKV], &d->l.in, d->n, d->l.qkv, stride, NULL, e);
    if (rc == 0)
        rc = products(
            d,
            (const struct product_out[]){{l->mat[MAT_Q], d->l.qkv, stride, NULL},
                                         {l->mat[MAT_K], d->l.qkv + nq, stride, NULL},
                                         {l->mat[MAT_V], d->l.qkv + nq + nk, stride, NULL}},
            3, &d->l.in, d->n, e);
    if (rc < 0)
        return rc;
    struct finish_job j = {.d = d,
                           .layer = layer,
                           .l = l,
                           .q_b = layer_vector(d, l, VEC_Q_B),
                           .k_b = layer_vector(d, l, VEC_K_B),
                           .v_b = layer_vector(d, l, VEC_V_B),
                           .q_norm = layer_vector(d, l, VEC_Q_NORM),
                           .k_norm = layer_vector(d, l, VEC_K_NORM)};
    tokens_run(d, d->n, (int64_t)(nq + 2 * nk) * 4, finish_tokens, &j);
    if (layer == d->m->n_layer - 1)
        keep_wanted(d, true);
    if (d->n > 0) {
        attend(d, layer, l);
        d->l.heads.cols = l->n_head * l->head_dim_v;
        input_prepare(d, &d->l.heads, kinds_of(d->m, &l->mat[MAT_O], 1), d->n);
    }
    return product(d, l->mat[MAT_O], &d->l.heads, d->n, d->l.out, d->l.embd_stride, NULL, e);
}
