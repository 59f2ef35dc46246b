/* The dense feed forward, also of shared experts: down(act(gate x) * (up x)). Knows shapes and
 * switches, no architecture. Thread rule: thread 0, spreads over the team. */
#include "decoder_room.h"

struct act_job {
    const struct decoder *d;
    int32_t n_ff;
    bool gated;
    const float *gate_b, *up_b;
    unsigned kinds;
};

/* Hidden rows in place: gate values first, up values behind them; the result takes the gate's
 * place. */
static void act_tokens(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct act_job *j = arg;
    const struct decoder *d = j->d;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        float *g = d->l.hid.x + (size_t)t * d->l.hid.stride, *u = g + j->n_ff;
        if (j->gate_b)
            d->k->add(g, j->gate_b, j->n_ff);
        if (j->up_b)
            d->k->add(j->gated ? u : g, j->up_b, j->n_ff);
        d->k->gated(d->m->act, g, j->gated ? u : NULL, g, j->n_ff);
        input_row_prepare(d, &d->l.hid, j->kinds, t);
    }
}

int ffn_gated(struct decoder *d, const unit_id mat[4], int32_t n_ff, const float *gate_b,
              const float *up_b, float *out, struct leat_error *e)
{
    const unit_id gate = mat[0], up = mat[1], fused = mat[2], down = mat[3];
    const bool gated = gate >= 0 || fused >= 0;
    float *hid = d->l.hid.x;
    const size_t stride = d->l.hid.stride;
    int rc = products(d,
                      (const struct product_out[]){{gate, hid, stride, NULL},
                                                   {up, gated ? hid + n_ff : hid, stride, NULL},
                                                   {fused, hid, stride, NULL}},
                      3, &d->l.in, d->n, e);
    if (rc < 0)
        return rc;
    d->l.hid.cols = n_ff;
    struct act_job j = {.d = d,
                        .n_ff = n_ff,
                        .gated = gated,
                        .gate_b = gate_b,
                        .up_b = up_b,
                        .kinds = kinds_of(d->m, &down, 1)};
    tokens_run(d, d->n, (int64_t)n_ff * 4, act_tokens, &j);
    return product(d, down, &d->l.hid, d->n, out, d->l.embd_stride, NULL, e);
}

int ffn_run(struct decoder *d, int32_t layer, struct leat_error *e)
{
    const struct layer *l = &d->m->layers[layer];
    const unit_id mat[4] = {l->mat[MAT_GATE], l->mat[MAT_UP], l->mat[MAT_GATE_UP],
                            l->mat[MAT_DOWN]};
    return ffn_gated(d, mat, l->n_ff, layer_vector(d, l, VEC_GATE_B), layer_vector(d, l, VEC_UP_B),
                     d->l.out, e);
}
