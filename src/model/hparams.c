/* Checks between hyperparameters, whatever container they came from. See hparams.h. */
#include "hparams.h"

#include <math.h>

int hparams_alloc(struct directory *d, struct hparams *h, struct leat_error *e)
{
    uint64_t n = (uint64_t)h->n_layer;

    h->n_head = arena_array(d->arena, n, sizeof(int32_t), sizeof(int32_t), e);
    h->n_head_kv = arena_array(d->arena, n, sizeof(int32_t), sizeof(int32_t), e);
    h->n_ff = arena_array(d->arena, n, sizeof(int32_t), sizeof(int32_t), e);
    h->windowed = arena_array(d->arena, n, sizeof(bool), 1, e);
    h->sparse = arena_array(d->arena, n, sizeof(bool), 1, e);
    if (!h->n_head || !h->n_head_kv || !h->n_ff || !h->windowed || !h->sparse)
        return LEAT_ERR_MEMORY;
    return 0;
}

static int check_layers(const struct hparams *h, const char *what, struct leat_error *e)
{
    for (int32_t i = 0; i < h->n_layer; i++) {
        int32_t H = h->n_head[i], G = h->n_head_kv[i];

        if (H < 1 || G < 1 || H % G)
            return error_set(
                e, LEAT_ERR_FORMAT,
                "%s: layer %d has %d attention heads and %d key/value heads; the first must be a "
                "multiple of the second",
                what, i, H, G);
        if ((int64_t)H * h->head_k > WIDTH_MOST || (int64_t)H * h->head_v > WIDTH_MOST)
            return error_set(e, LEAT_ERR_FORMAT, "%s: %d heads of %d values are more than %d", what,
                             H, h->head_k > h->head_v ? h->head_k : h->head_v, WIDTH_MOST);
        if (h->n_ff[i] < 1 && !(h->sparse[i] && h->n_ff_expert > 0))
            return error_set(e, LEAT_ERR_FORMAT,
                             "%s: layer %d has a feed-forward width (feed_forward_length, "
                             "intermediate_size) of 0",
                             what, i);
        if (h->windowed[i] && h->window < 1)
            return error_set(e, LEAT_ERR_FORMAT,
                             "%s: layer %d is a sliding-window layer, but the window is %d", what,
                             i, h->window);
    }
    return 0;
}

int hparams_check(const struct hparams *h, const char *what, struct leat_error *e)
{
    if (h->rope_dims % 2 || h->rope_dims < 2 || h->rope_dims > h->head_k)
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: the rope dimension count is %d; it must be even and at most "
                         "the head size %d",
                         what, h->rope_dims, h->head_k);
    if (!(h->norm_eps > 0 && h->norm_eps < 1))
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: the norm epsilon is %g; it must lie between 0 and 1", what,
                         (double)h->norm_eps);
    if (!isfinite(h->attn_scale) || h->attn_scale < 0)
        return error_set(e, LEAT_ERR_FORMAT, "%s: the attention scale is %g", what,
                         (double)h->attn_scale);
    if (!(h->attn_softcap >= 0 && h->final_softcap >= 0))
        return error_set(e, LEAT_ERR_FORMAT, "%s: a soft cap is negative", what);
    if (h->n_expert > 0 && (h->n_expert_used < 1 || h->n_expert_used > h->n_expert))
        return error_set(e, LEAT_ERR_FORMAT, "%s: %d experts are used of %d", what,
                         h->n_expert_used, h->n_expert);
    if (h->n_group > 1 &&
        (h->n_expert % h->n_group || h->n_group_used < 1 || h->n_group_used > h->n_group))
        return error_set(e, LEAT_ERR_FORMAT, "%s: %d experts in %d groups of which %d are used",
                         what, h->n_expert, h->n_group, h->n_group_used);
    return check_layers(h, what, e);
}
