/* One pass over the layers, as the model's data says: embeddings, mixer and feed forward of each
 * layer with norms and residual sums between them, the head for the rows whose logits are
 * wanted. Knows no architecture by name and not where weights come from. Thread rule: one
 * thread, which is thread 0 of the team. Nothing is allocated in a pass. */
#include "decoder_room.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../base/clock.h"

void norm_apply(const struct decoder *d, const float *x, const float *w, const float *b, float *y,
                int32_t n)
{
    if (!w)
        memcpy(y, x, (size_t)n * sizeof *y);
    else if (d->m->layer_norm)
        d->k->layer_norm(x, w, b, d->m->norm_eps, y, n);
    else
        d->k->rms_norm(x, w, d->m->norm_eps, y, n);
}

/* ---- what happens to a row between two steps ---- */

struct join_job {
    const struct decoder *d;
    const float *w, *b;
    unsigned kinds;
};

static void join_tokens(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct join_job *j = arg;
    const struct decoder *d = j->d;
    const int32_t n = d->m->n_embd;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *x = d->l.x + (size_t)t * d->l.embd_stride,
              *o = d->l.out + (size_t)t * d->l.embd_stride;
        if (d->pending) {
            if (d->pending_bias)
                d->k->add(o, d->pending_bias, n);
            if (d->pending_norm)
                norm_apply(d, o, d->pending_norm, NULL, o, n);
            if (d->m->residual_scale != 1)
                d->k->add_scaled(x, o, d->m->residual_scale, n);
            else
                d->k->add(x, o, n);
        }
        norm_apply(d, x, j->w, j->b, d->l.in.x + (size_t)t * d->l.in.stride, n);
        input_row_prepare(d, &d->l.in, j->kinds, t);
    }
}

void stream_join(struct decoder *d, const float *w, const float *b, unsigned kinds)
{
    struct join_job j = {d, w, b, kinds};
    tokens_run(d, d->n, (int64_t)d->m->n_embd * 3, join_tokens, &j);
    d->pending = false;
}

static void leave_pending(struct decoder *d, const float *bias, const float *norm)
{
    d->pending = true;
    d->pending_bias = bias;
    d->pending_norm = norm;
}

void keep_wanted(struct decoder *d, bool qkv)
{
    if (d->only_wanted)
        return;
    d->only_wanted = true;
    int32_t n = 0;
    for (int32_t t = 0; t < d->n; t++) {
        if (!d->l.wanted[t])
            continue;
        if (n != t) {
            const size_t row = d->l.embd_stride * sizeof(float);
            memcpy(d->l.x + (size_t)n * d->l.embd_stride, d->l.x + (size_t)t * d->l.embd_stride,
                   row);
            if (d->pending)
                memcpy(d->l.out + (size_t)n * d->l.embd_stride,
                       d->l.out + (size_t)t * d->l.embd_stride, row);
            if (qkv)
                memcpy(d->l.qkv + (size_t)n * d->l.qkv_stride,
                       d->l.qkv + (size_t)t * d->l.qkv_stride, d->l.qkv_stride * sizeof(float));
            d->l.pos[n] = d->l.pos[t];
            d->l.seq[n] = d->l.seq[t];
        }
        n++;
    }
    d->n = n;
}

/* ---- the start of a pass ---- */

static void embed_tokens(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct decoder *d = arg;
    const struct model *m = d->m;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *x = d->l.x + (size_t)t * d->l.embd_stride;
        d->k->dequant(m->units[m->token_embd].part[0].format,
                      d->l.rows + (uint64_t)t * d->l.table_row_bytes, x, m->n_embd);
        if (m->embd_scale != 1)
            d->k->scale(x, m->embd_scale, m->n_embd);
        for (int32_t i = 0; i < m->n_rope; i++) {
            const int32_t pairs = m->ropes[i].dims / 2;
            float *cosines = d->l.rope_cos[i] + (size_t)t * (size_t)pairs;
            float *sines = d->l.rope_sin[i] + (size_t)t * (size_t)pairs;
            for (int32_t p = 0; p < pairs; p++) {
                const double angle = d->l.pos[t] * d->l.rope_freq[i][p];
                cosines[p] = (float)(cos(angle) * m->ropes[i].magnitude);
                sines[p] = (float)(sin(angle) * m->ropes[i].magnitude);
            }
        }
    }
}

/* The ubatch as decoder.h wants it, and what of it stays for the pass. */
static int ubatch_take(struct decoder *d, const struct ubatch *b, struct leat_error *e)
{
    if (b->n < 1 || b->n > d->max_width)
        return error_set(e, LEAT_ERR_USAGE, "a ubatch of %d tokens: 1 to %d are possible",
                         (int)b->n, (int)d->max_width);
    d->n = b->n;
    d->n_wanted = 0;
    for (int32_t t = 0; t < b->n; t++) {
        if (b->ids[t] < 0 || b->ids[t] >= d->m->n_vocab)
            return error_set(e, LEAT_ERR_USAGE, "token id %d: the model has 0 to %d",
                             (int)b->ids[t], (int)d->m->n_vocab - 1);
        const bool goes_on = t > 0 && b->seq[t] == b->seq[t - 1];
        for (int32_t u = 0; !goes_on && u < t; u++)
            if (b->seq[u] == b->seq[t])
                return error_set(e, LEAT_ERR_USAGE,
                                 "the tokens of a sequence must stand together in a ubatch");
        const int32_t want = goes_on ? b->pos[t - 1] + 1 : state_length(b->seq[t]);
        if (b->pos[t] != want)
            return error_set(e, LEAT_ERR_USAGE,
                             "token %d of the ubatch has position %d, its sequence goes on at %d",
                             (int)t, (int)b->pos[t], (int)want);
        d->l.pos[t] = b->pos[t];
        d->l.seq[t] = b->seq[t];
        d->l.wanted[t] = b->want_logits[t];
        d->n_wanted += b->want_logits[t] != 0;
    }
    if (d->n_wanted > d->max_logits)
        return error_set(e, LEAT_ERR_USAGE, "logits of %d tokens: at most %d are possible",
                         (int)d->n_wanted, (int)d->max_logits);
    return 0;
}

/* Calls fn for every sequence of the ubatch with the number of its tokens, until it fails.
 * Returns tokens passed. */
static int32_t each_sequence(const struct ubatch *b, int32_t limit,
                             int (*fn)(struct seq_state *s, int32_t n, void *arg), void *arg,
                             int *rc)
{
    int32_t t = 0;
    *rc = 0;
    while (t < limit) {
        int32_t n = 1;
        while (t + n < b->n && b->seq[t + n] == b->seq[t])
            n++;
        *rc = fn(b->seq[t], n, arg);
        if (*rc < 0)
            break;
        t += n;
    }
    return t;
}

static int sequence_reserve(struct seq_state *s, int32_t n, void *arg)
{
    return state_reserve(s, n, arg);
}

static int sequence_unreserve(struct seq_state *s, int32_t n, void *arg)
{
    (void)n;
    (void)arg;
    state_unreserve(s);
    return 0;
}

static int sequence_commit(struct seq_state *s, int32_t n, void *arg)
{
    (void)arg;
    state_commit(s, n);
    return 0;
}

/* ---- the layers ---- */

static int layer_run(struct decoder *d, int32_t i, struct leat_error *e)
{
    const struct layer *l = &d->m->layers[i];
    int rc = 0;
    if (l->n_head > 0) {
        stream_join(d, layer_vector(d, l, VEC_ATTN_NORM), layer_vector(d, l, VEC_ATTN_NORM_B),
                    d->l.attn_kinds[i]);
        rc = attention_run(d, i, e);
        leave_pending(d, layer_vector(d, l, VEC_O_B), layer_vector(d, l, VEC_POST_ATTN_NORM));
    }
    if (i == d->m->n_layer - 1)
        keep_wanted(d, false);
    if (rc == 0 && l->ffn != FFN_NONE) {
        const bool moe = l->ffn == FFN_MOE;
        stream_join(d, layer_vector(d, l, VEC_FFN_NORM), layer_vector(d, l, VEC_FFN_NORM_B),
                    d->l.ffn_kinds[i]);
        rc = moe ? moe_run(d, i, e) : ffn_run(d, i, e);
        leave_pending(d, moe ? NULL : layer_vector(d, l, VEC_DOWN_B),
                      layer_vector(d, l, VEC_POST_FFN_NORM));
    }
    return rc;
}

static int head_run(struct decoder *d, float *logits, struct leat_error *e)
{
    const struct model *m = d->m;
    struct product_post post = {.bias = weights_vector(d->weights, m->output_b),
                                .scale = m->logit_scale,
                                .softcap = m->final_softcap};
    if (d->n == 0)
        return 0;
    stream_join(d, weights_vector(d->weights, m->output_norm),
                weights_vector(d->weights, m->output_norm_b), kinds_of(m, &m->head, 1));
    const bool plain = !post.bias && post.scale == 1 && post.softcap == 0;
    return product(d, m->head, &d->l.in, d->n, logits, (size_t)m->n_head_out, plain ? NULL : &post,
                   e);
}

static int pass_run(struct decoder *d, const struct ubatch *b, float *logits, struct leat_error *e)
{
    int rc = weights_rows(d->pass, d->m->token_embd, b->ids, b->n, d->l.rows, e);
    if (rc < 0)
        return rc;
    d->pending = d->only_wanted = false;
    int64_t work = d->m->n_embd;
    for (int32_t i = 0; i < d->m->n_rope; i++)
        work += (int64_t)d->m->ropes[i].dims *
                16; /* a sine costs about as much as that many products */
    tokens_run(d, d->n, work, embed_tokens, d);
    for (int32_t i = 0; i < d->m->n_layer; i++) {
        rc = layer_run(d, i, e);
        if (rc < 0)
            return rc;
        if (d->watch)
            d->watch(d->watch_arg, i, d->m->n_layer);
    }
    return head_run(d, logits, e);
}

int decoder_run(struct decoder *d, const struct ubatch *b, float *logits, struct leat_error *e)
{
    struct weights_stats before, after;
    const double start = clock_now();
    int rc = ubatch_take(d, b, e), ignored;
    if (rc < 0)
        return rc;
    const int32_t reserved = each_sequence(b, b->n, sequence_reserve, e, &rc);
    if (rc < 0) {
        each_sequence(b, reserved, sequence_unreserve, NULL, &ignored);
        return rc;
    }
    d->kv = state_type(b->seq[0]);
    weights_get_stats(d->weights, &before);
    rc = weights_pass_begin(d->weights, &(struct pass_need){.width = b->n, .head = d->n_wanted > 0},
                            &d->pass, e);
    if (rc == 0) {
        rc = pass_run(d, b, logits, e);
        const int end = weights_pass_end(d->pass);
        d->pass = NULL;
        if (rc == 0 && end < 0)
            rc = error_set(e, end, "the weights could not end the pass");
    }
    if (rc < 0) {
        each_sequence(b, b->n, sequence_unreserve, NULL, &ignored);
        return rc;
    }
    each_sequence(b, b->n, sequence_commit, NULL, &ignored);
    weights_get_stats(d->weights, &after);
    d->stats.compute_s += clock_now() - start - (after.wait_s - before.wait_s);
    d->stats.passes++;
    d->stats.tokens += (uint64_t)b->n;
    return 0;
}

/* ---- life ---- */

/* What the products that read the normed stream want: of a layer's attention, of its feed
 * forward. */
static unsigned attention_kinds(const struct model *m, const struct layer *l)
{
    const unit_id u[] = {l->mat[MAT_Q], l->mat[MAT_K], l->mat[MAT_V], l->mat[MAT_QKV]};
    return kinds_of(m, u, 4);
}

static unsigned ffn_kinds(const struct model *m, const struct layer *l)
{
    const unit_id u[] = {l->mat[MAT_GATE],   l->mat[MAT_UP],          l->mat[MAT_GATE_UP],
                         l->mat[MAT_ROUTER], l->mat[MAT_SHARED_GATE], l->mat[MAT_SHARED_UP]};
    unsigned kinds = kinds_of(m, u, 6);
    for (int32_t i = 0; l->ffn == FFN_MOE && i < m->n_expert; i++) {
        const struct unit *x = &m->units[l->expert0 + i];
        kinds |= 1u << part_kind(&x->part[EXPERT_GATE]) | 1u << part_kind(&x->part[EXPERT_UP]);
    }
    if (l->vec[VEC_SHARED_GATE_INP] >= 0)
        kinds |= 1u << ACT_F32;
    return kinds;
}

static void ropes_prepare(struct decoder *d)
{
    for (int32_t i = 0; i < d->m->n_rope; i++) {
        const struct rope *r = &d->m->ropes[i];
        const float *factors = weights_vector(d->weights, r->factors);
        for (int32_t p = 0; p < r->dims / 2; p++)
            d->l.rope_freq[i][p] = factors ? r->inv_freq[p] / factors[p] : r->inv_freq[p];
    }
}

int decoder_open(const struct decoder_config *c, struct decoder **out, struct leat_error *e)
{
    *out = NULL;
    if (c->max_width < 1 || c->max_logits < 1 || c->max_logits > c->max_width)
        return error_set(e, LEAT_ERR_USAGE, "ubatches of %d tokens with logits of %d: not possible",
                         (int)c->max_width, (int)c->max_logits);
    int rc = shapes_check(c->model, e);
    if (rc < 0)
        return rc;
    struct decoder *d = calloc(1, sizeof *d);
    if (!d)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for the decoder");
    *d = (struct decoder){.m = c->model,
                          .weights = c->weights,
                          .team = c->team,
                          .k = c->kernels,
                          .ledger = c->ledger,
                          .max_width = c->max_width,
                          .max_logits = c->max_logits,
                          .threads = team_threads(c->team)};
    d->memory_bytes = decoder_bytes(c->model, c->max_width, c->max_logits, d->threads);
    rc = ledger_take(c->ledger, DOMAIN_HELD, ROW_COMPUTE, d->memory_bytes, &d->memory, e);
    if (rc < 0) {
        d->memory = NULL;
        decoder_close(d);
        return rc;
    }
    layout_make(c->model, c->max_width, c->max_logits, d->threads, d->memory, &d->l);
    ropes_prepare(d);
    for (int32_t i = 0; i < c->model->n_layer; i++) {
        d->l.attn_kinds[i] = (uint8_t)attention_kinds(c->model, &c->model->layers[i]);
        d->l.ffn_kinds[i] = (uint8_t)ffn_kinds(c->model, &c->model->layers[i]);
    }
    *out = d;
    return 0;
}

void decoder_close(struct decoder *d)
{
    if (!d)
        return;
    if (d->memory)
        ledger_give(d->ledger, DOMAIN_HELD, ROW_COMPUTE, d->memory, d->memory_bytes);
    free(d);
}

void decoder_set_watch(struct decoder *d, decoder_watch fn, void *arg)
{
    d->watch = fn;
    d->watch_arg = arg;
}

void decoder_watch_routing(struct decoder *d, decoder_routing_fn fn, void *arg)
{
    d->routing_watch = fn;
    d->routing_watch_arg = arg;
}

void decoder_replace_routing(struct decoder *d, decoder_routing_fn fn, void *arg)
{
    d->routing_replace = fn;
    d->routing_replace_arg = arg;
}

void decoder_get_stats(const struct decoder *d, struct decoder_stats *out)
{
    *out = d->stats;
}
