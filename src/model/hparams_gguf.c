/* Hyperparameters from GGUF keys "ARCH.*". Owns the checks of docs/malformed.md G41; a key under
 * the architecture's prefix that nothing here reads is reported, so that no fact of a file is
 * ignored in silence. Key facts: docs/formats.md. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hparams.h"

struct keys { /* the reading in progress */
    struct directory *d;
    struct hparams *h;
    const char *prefix;
    char key[160]; /* of the last key() */
    struct leat_error *e;
};

static const char *key(struct keys *k, const char *suffix)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->prefix, suffix);
    return k->key;
}

static const char *path_of(const struct keys *k, char *q, size_t cap)
{
    const char *p = file_path(k->d->gguf->file);

    return error_quote(q, cap, p, strlen(p));
}

static int missing(struct keys *k, const char *suffix)
{
    char q[400];

    return error_set(k->e, LEAT_ERR_UNSUPPORTED,
                     "%s: the key '%s' is missing, without which the model "
                     "cannot be run",
                     path_of(k, q, sizeof q), key(k, suffix));
}

static int out_of_range(struct keys *k, uint64_t v, uint64_t min, uint64_t max)
{
    char q[400];

    return error_set(k->e, LEAT_ERR_FORMAT, "%s: key '%s' is %llu; it must be %llu to %llu",
                     path_of(k, q, sizeof q), k->key, (unsigned long long)v,
                     (unsigned long long)min, (unsigned long long)max);
}

/* 1 read, 0 absent. */
static int read_int(struct keys *k, const char *suffix, uint64_t min, uint64_t max, int32_t *out)
{
    uint64_t v;
    int rc = gguf_get_u64(k->d->gguf, key(k, suffix), INT64_MAX, &v, k->e);

    if (rc <= 0)
        return rc;
    if (v < min || v > max)
        return out_of_range(k, v, min, max);
    *out = (int32_t)v;
    return 1;
}

static int need_int(struct keys *k, const char *suffix, uint64_t min, uint64_t max, int32_t *out)
{
    int rc = read_int(k, suffix, min, max, out);

    return rc == 0 ? missing(k, suffix) : rc;
}

static int read_float(struct keys *k, const char *suffix, double *out)
{
    float v;
    int rc = gguf_get_f32(k->d->gguf, key(k, suffix), &v, k->e);

    if (rc > 0)
        *out = (double)v;
    return rc;
}

/* A scalar, or an array with one value per layer. 1 read, 0 absent. */
static int read_per_layer(struct keys *k, const char *suffix, int64_t min, int64_t max,
                          int32_t *out)
{
    const struct gguf_kv *kv = gguf_find(k->d->gguf, key(k, suffix));
    struct gguf_array r;
    char q[400];
    int64_t v;
    int rc;

    if (!kv)
        return 0;
    if (kv->type != GGUF_ARRAY) {
        rc = read_int(k, suffix, (uint64_t)min, (uint64_t)max, &out[0]);
        for (int32_t i = 1; rc > 0 && i < k->h->n_layer; i++)
            out[i] = out[0];
        return rc;
    }
    if (kv->count < (uint64_t)k->h->n_layer)
        return error_set(k->e, LEAT_ERR_FORMAT, "%s: key '%s' has %llu values for %d layers",
                         path_of(k, q, sizeof q), k->key, (unsigned long long)kv->count,
                         k->h->n_layer);
    rc = gguf_array_open(k->d->gguf, kv, &r, k->e);
    if (rc)
        return rc;
    for (int32_t i = 0; rc >= 0 && i < k->h->n_layer; i++) {
        rc = gguf_array_int(&r, &v, k->e);
        if (rc < 0)
            break;
        if (v < min || v > max) {
            rc = error_set(
                k->e, LEAT_ERR_FORMAT, "%s: key '%s' is %lld for layer %d; it must be %lld to %lld",
                path_of(k, q, sizeof q), k->key, (long long)v, i, (long long)min, (long long)max);
            break;
        }
        out[i] = (int32_t)v;
    }
    gguf_array_close(&r);
    return rc < 0 ? rc : 1;
}

static int refuse_set(struct keys *k, const char *suffix, const char *what)
{
    const struct gguf_kv *kv = gguf_find(k->d->gguf, key(k, suffix));
    char q[400];
    bool set;

    if (!kv)
        return 0;
    set = kv->type == GGUF_F32 || kv->type == GGUF_F64 ? kv->v.f != 0 : kv->v.u != 0;
    if (!set)
        return 0;
    return error_set(k->e, LEAT_ERR_UNSUPPORTED,
                     "%s: key '%s' asks for %s, which architecture %s does not "
                     "support in this build",
                     path_of(k, q, sizeof q), k->key, what, k->prefix);
}

/* ---- parts ---- */

static int read_sizes(struct keys *k)
{
    struct hparams *h = k->h;
    int32_t nextn = 0;
    int rc = need_int(k, "block_count", 1, LAYERS_MOST, &h->n_layer);

    if (rc > 0)
        rc = read_int(k, "nextn_predict_layers", 0, LAYERS_MOST, &nextn);
    if (rc >= 0 && nextn >= h->n_layer)
        rc = out_of_range(k, (uint64_t)nextn, 0, (uint64_t)h->n_layer - 1);
    if (rc >= 0) {
        h->n_layer -= nextn; /* the blocks for speculation come last and change no result */
        rc = hparams_alloc(k->d, h, k->e);
    }
    if (rc >= 0)
        rc = need_int(k, "embedding_length", 1, WIDTH_MOST, &h->n_embd);
    if (rc > 0)
        rc = need_int(k, "context_length", 1, INT32_MAX, &h->n_ctx_train);
    if (rc > 0)
        rc = read_per_layer(k, "attention.head_count", 1, WIDTH_MOST, h->n_head);
    if (rc == 0)
        return missing(k, "attention.head_count");
    if (rc > 0) {
        memcpy(h->n_head_kv, h->n_head, (size_t)h->n_layer * sizeof *h->n_head);
        rc = read_per_layer(k, "attention.head_count_kv", 1, WIDTH_MOST, h->n_head_kv);
    }
    if (rc >= 0) {
        rc = read_per_layer(k, "feed_forward_length", 0, WIDTH_MOST, h->n_ff);
        if (rc == 0)
            return missing(k, "feed_forward_length");
    }
    return rc < 0 ? rc : 0;
}

static int read_heads(struct keys *k)
{
    struct hparams *h = k->h;
    double eps = 0, v = 0;
    char q[400];
    int rc = read_int(k, "attention.key_length", 1, WIDTH_MOST, &h->head_k);

    if (rc == 0) {
        if (h->n_embd % h->n_head[0])
            return error_set(k->e, LEAT_ERR_FORMAT,
                             "%s: %s.embedding_length %d is not a multiple of "
                             "%s.attention.head_count %d",
                             path_of(k, q, sizeof q), k->prefix, h->n_embd, k->prefix,
                             h->n_head[0]);
        h->head_k = h->n_embd / h->n_head[0];
    }
    h->head_v = h->head_k;
    if (rc >= 0)
        rc = read_int(k, "attention.value_length", 1, WIDTH_MOST, &h->head_v);
    h->rope_dims = h->head_k;
    if (rc >= 0)
        rc = read_int(k, "rope.dimension_count", 1, WIDTH_MOST, &h->rope_dims);
    if (rc >= 0)
        rc = read_float(k, "attention.layer_norm_rms_epsilon", &eps);
    if (rc == 0)
        return missing(k, "attention.layer_norm_rms_epsilon");
    h->norm_eps = (float)eps;
    if (rc >= 0)
        rc = read_float(k, "attention.scale", &v);
    h->attn_scale = (float)v;
    if (h->attn_scale == 0 && h->arch->scale_by_width_layers == h->n_layer)
        h->attn_scale = (float)(1 / sqrt((double)h->n_embd / h->n_head[0]));
    v = 0;
    if (rc >= 0)
        rc = read_float(k, "attn_logit_softcapping", &v);
    h->attn_softcap = (float)v;
    v = 0;
    if (rc >= 0)
        rc = read_float(k, "final_logit_softcapping", &v);
    h->final_softcap = (float)v;
    return rc < 0 ? rc : 0;
}

static int read_scaling(struct keys *k, struct rope_params *r)
{
    const char *type = "linear";
    double context = (double)k->h->n_ctx_train, factor = 0, own_factor = 1;
    char q[400], t[80];
    int32_t c = 0;
    int rc = gguf_get_str(k->d->gguf, key(k, "rope.scaling.type"), k->d->arena, &type, NULL, k->e);

    if (rc >= 0)
        rc = read_float(k, "rope.scaling.factor", &factor);
    if (rc == 0)
        rc = read_float(k, "rope.scale_linear", &factor); /* its old name */
    if (rc < 0)
        return rc;
    r->factor = factor == 0 ? 1 : factor;
    if (strcmp(type, "none") == 0)
        return 0;
    if (strcmp(type, "linear") == 0) {
        r->scaling = r->factor == 1 ? ROPE_SCALING_NONE : ROPE_SCALING_LINEAR;
        return 0;
    }
    if (strcmp(type, "yarn") != 0)
        return error_set(k->e, LEAT_ERR_UNSUPPORTED,
                         "%s: key '%s.rope.scaling.type' is '%s'; this build "
                         "knows none, linear and yarn",
                         path_of(k, q, sizeof q), k->prefix,
                         error_quote(t, sizeof t, type, strlen(type)));
    r->scaling = ROPE_SCALING_YARN;
    rc = read_int(k, "rope.scaling.original_context_length", 1, INT32_MAX, &c);
    r->original_context = rc > 0 ? (double)c : context;
    r->truncate = true;
    if (rc >= 0)
        rc = read_float(k, "rope.scaling.attn_factor", &r->attn_factor);
    if (rc >= 0)
        rc = read_float(k, "rope.scaling.yarn_ext_factor", &r->ext_factor);
    if (rc >= 0)
        rc = read_float(k, "rope.scaling.yarn_attn_factor", &own_factor);
    r->attn_factor *= own_factor;
    if (rc >= 0)
        rc = read_float(k, "rope.scaling.yarn_beta_fast", &r->beta_fast);
    if (rc >= 0)
        rc = read_float(k, "rope.scaling.yarn_beta_slow", &r->beta_slow);
    return rc < 0 ? rc : 0;
}

static int read_rope(struct keys *k)
{
    struct hparams *h = k->h;
    int rc;

    h->rope = (struct rope_params){.base = h->arch->rope_base,
                                   .factor = 1,
                                   .ext_factor = 1,
                                   .attn_factor = 1,
                                   .beta_fast = 32,
                                   .beta_slow = 1};
    rc = read_float(k, "rope.freq_base", &h->rope.base);
    if (rc < 0)
        return rc;
    h->rope_window = h->rope;
    rc = read_scaling(k, &h->rope);
    if (rc < 0)
        return rc;
    if (h->arch->rope_base_window > 0)
        h->rope_window.base = h->arch->rope_base_window; /* and no scaling */
    else
        h->rope_window = h->rope;
    rc = read_float(k, "rope.freq_base_swa", &h->rope_window.base);
    return rc < 0 ? rc : 0;
}

static int read_window(struct keys *k)
{
    struct hparams *h = k->h;
    const struct gguf_kv *kv = gguf_find(k->d->gguf, key(k, "attention.sliding_window_pattern"));
    int32_t period = h->arch->window_pattern;
    int32_t *flags;
    int rc = read_int(k, "attention.sliding_window", 0, INT32_MAX, &h->window);

    if (rc < 0 || h->window == 0)
        return rc < 0 ? rc : 0;
    if (h->arch->window != WINDOW_PATTERN) {
        if (h->window < h->n_ctx_train)
            rc = directory_warn(
                k->d, k->e,
                "key '%s.attention.sliding_window' (%d) is not used: GGUF files of this "
                "architecture are run with full attention",
                k->prefix, h->window);
        h->window = 0;
        return rc < 0 ? rc : 0;
    }
    if (kv && kv->type == GGUF_ARRAY) {
        flags = arena_array(k->d->arena, (uint64_t)h->n_layer, sizeof *flags, sizeof *flags, k->e);
        if (!flags)
            return LEAT_ERR_MEMORY;
        rc = read_per_layer(k, "attention.sliding_window_pattern", 0, 1, flags);
        for (int32_t i = 0; rc > 0 && i < h->n_layer; i++)
            h->windowed[i] = flags[i] != 0;
        return rc < 0 ? rc : 0;
    }
    rc = read_int(k, "attention.sliding_window_pattern", 0, LAYERS_MOST, &period);
    for (int32_t i = 0; rc >= 0 && i < h->n_layer; i++)
        h->windowed[i] = period == 0 || i % period < period - 1;
    return rc < 0 ? rc : 0;
}

static int read_experts(struct keys *k)
{
    struct hparams *h = k->h;
    int32_t gating = 0, lead = 0;
    double scale = 0;
    int rc = read_int(k, "expert_count", 0, EXPERTS_MOST, &h->n_expert);

    if (rc < 0)
        return rc;
    if (h->n_expert == 0) {
        rc = h->arch->moe_always ? missing(k, "expert_count")
                                 : read_int(k, "expert_used_count", 0, 0, &lead);
        return rc < 0 ? rc : 0;
    }
    if (!h->arch->moe_possible)
        return refuse_set(k, "expert_count", "experts");
    rc = need_int(k, "expert_used_count", 1, (uint64_t)h->n_expert, &h->n_expert_used);
    if (rc >= 0)
        rc = read_int(k, "expert_feed_forward_length", 1, WIDTH_MOST, &h->n_ff_expert);
    if (rc == 0)
        h->n_ff_expert = 0; /* resolve.c: the width of the layer */
    if (rc >= 0)
        rc = read_int(k, "expert_gating_func", 0, 4, &gating);
    if (rc >= 0)
        rc = read_float(k, "expert_weights_scale", &scale);
    if (rc >= 0)
        rc = read_int(k, "expert_group_count", 0, (uint64_t)h->n_expert, &h->n_group);
    if (rc >= 0)
        rc = read_int(k, "expert_group_used_count", 0, (uint64_t)h->n_expert, &h->n_group_used);
    if (rc >= 0)
        rc = read_int(k, "leading_dense_block_count", 0, (uint64_t)h->n_layer, &lead);
    if (rc < 0)
        return rc;
    h->gating = gating ? (enum gating)(gating - 1) : h->arch->gating;
    h->expert_weights_norm = h->arch->expert_weights_norm;
    if (!h->expert_weights_norm) {
        rc =
            gguf_get_bool(k->d->gguf, key(k, "expert_weights_norm"), &h->expert_weights_norm, k->e);
        if (rc < 0)
            return rc;
    }
    h->expert_weights_scale = scale == 0 ? 1.0f : (float)scale;
    for (int32_t i = 0; i < h->n_layer; i++)
        h->sparse[i] = i >= lead;
    return 0;
}

/* What would change the answer and is not built for these architectures. */
static int refuse_others(struct keys *k)
{
    static const struct {
        const char *suffix, *what;
    } not_built[] = {
        {"attention.clamp_kqv", "clamped q, k and v"},
        {"attention.max_alibi_bias", "ALiBi position biases"},
        {"use_parallel_residual", "a parallel residual"},
        {"logit_scale", "scaled logits"},
        {"residual_scale", "a scaled residual"},
        {"embedding_scale", "scaled embeddings"},
        {"router_logit_softcapping", "soft-capped router logits"},
        {"expert_shared_count", "shared experts"},
        {"expert_shared_feed_forward_length", "shared experts"},
        {"interleave_moe_layer_step", "interleaved expert layers"},
        {"moe_every_n_layers", "interleaved expert layers"},
        {"attention.q_lora_rank", "latent attention"},
        {"attention.kv_lora_rank", "latent attention"},
        {"attention.shared_kv_layers", "layers that share keys and values"},
        {"rope.scaling.yarn_log_multiplier", "a yarn log multiplier"},
        {"rope.scaling.alpha", "alpha-scaled rope"},
        {"attention.temperature_scale", "position-dependent query scales"},
    };
    bool causal = true;
    char q[400];
    int rc;

    for (size_t i = 0; i < sizeof not_built / sizeof not_built[0]; i++) {
        rc = refuse_set(k, not_built[i].suffix, not_built[i].what);
        if (rc)
            return rc;
    }
    rc = gguf_get_bool(k->d->gguf, key(k, "attention.causal"), &causal, k->e);
    if (rc < 0)
        return rc;
    if (!causal)
        return error_set(k->e, LEAT_ERR_UNSUPPORTED,
                         "%s: key '%s' is false: this model is no text generator",
                         path_of(k, q, sizeof q), k->key);
    return 0;
}

/* Every key under the prefix that some line above reads or that says nothing about the result. */
static int report_unread(struct keys *k)
{
    static const char known[] =
        " block_count nextn_predict_layers embedding_length context_length attention.head_count "
        "attention.head_count_kv feed_forward_length attention.key_length attention.value_length "
        "rope.dimension_count attention.layer_norm_rms_epsilon attention.scale "
        "attn_logit_softcapping "
        "final_logit_softcapping rope.scaling.type rope.scaling.factor rope.scale_linear "
        "rope.scaling.original_context_length rope.scaling.attn_factor "
        "rope.scaling.yarn_ext_factor "
        "rope.scaling.yarn_attn_factor rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow "
        "rope.freq_base "
        "rope.freq_base_swa attention.sliding_window attention.sliding_window_pattern expert_count "
        "expert_used_count expert_feed_forward_length expert_gating_func expert_weights_scale "
        "expert_weights_norm expert_group_count expert_group_used_count leading_dense_block_count "
        "attention.causal attention.clamp_kqv attention.max_alibi_bias use_parallel_residual "
        "logit_scale "
        "residual_scale embedding_scale router_logit_softcapping expert_shared_count "
        "expert_shared_feed_forward_length interleave_moe_layer_step moe_every_n_layers "
        "attention.q_lora_rank attention.kv_lora_rank attention.shared_kv_layers "
        "rope.scaling.yarn_log_multiplier rope.scaling.alpha attention.temperature_scale "
        "vocab_size "
        "rope.scaling.finetuned tensor_data_layout attention.layer_norm_epsilon ";
    size_t n = strlen(k->prefix);
    char q[200], word[200];

    for (int64_t i = 0; i < k->d->gguf->n_kv; i++) {
        const char *name = k->d->gguf->kv[i].key;

        if (strncmp(name, k->prefix, n) != 0 || name[n] != '.')
            continue;
        if (snprintf(word, sizeof word, " %s ", name + n + 1) < (int)sizeof word &&
            !strchr(name, ' ') && strstr(known, word))
            continue;
        if (directory_warn(k->d, k->e, "key '%s' is not known to this build and not used",
                           error_quote(q, sizeof q, name, strlen(name))))
            return LEAT_ERR_MEMORY;
    }
    return 0;
}

/* Rows the table must have: the key, if it agrees with no token list. */
static int read_vocabulary(struct keys *k)
{
    const struct gguf_kv *tokens = gguf_find(k->d->gguf, "tokenizer.ggml.tokens");
    int32_t rows = 0;
    char q[400];
    int rc = read_int(k, "vocab_size", 1, INT32_MAX, &rows);

    if (rc < 0)
        return rc;
    k->h->vocab_rows = rows;
    if (!tokens)
        return 0;
    if (tokens->type != GGUF_ARRAY || tokens->elem != GGUF_STRING || tokens->count > INT32_MAX)
        return error_set(k->e, LEAT_ERR_FORMAT,
                         "%s: key 'tokenizer.ggml.tokens' is not an array of strings",
                         path_of(k, q, sizeof q));
    k->h->n_tokens = (int32_t)tokens->count;
    return 0;
}

int hparams_from_gguf(struct directory *d, struct hparams *h, struct leat_error *e)
{
    struct keys k = {.d = d, .h = h, .e = e};
    const char *arch = NULL, *name = NULL;
    char list[300], q[400], a[100];
    size_t len;
    int rc = gguf_get_str(d->gguf, "general.architecture", d->arena, &arch, NULL, e);

    if (rc < 0)
        return rc;
    if (rc == 0)
        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s: the key 'general.architecture' is missing, so it is not "
                         "known which model this is; the file itself is well formed and complete",
                         path_of(&k, q, sizeof q));
    h->arch = arch_by_gguf(arch);
    if (!h->arch)
        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s: the key 'general.architecture' is '%s'; this build runs %s. "
                         "The file itself is well formed and complete",
                         path_of(&k, q, sizeof q), error_quote(a, sizeof a, arch, strlen(arch)),
                         arch_list(list, sizeof list, true));
    k.prefix = h->arch->gguf;
    rc = gguf_get_str(d->gguf, "general.name", d->arena, &name, &len, e);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        name = path_base(file_path(d->gguf->file));
        len = strlen(name);
    }
    name = error_quote(q, sizeof q, name, len);
    h->name = arena_copy(d->arena, name, strlen(name), e);
    if (!h->name)
        return LEAT_ERR_MEMORY;
    h->act = h->arch->act;
    h->tied = -1;
    h->n_group = h->n_group_used = 1;
    h->expert_weights_scale = 1;
    rc = read_sizes(&k);
    if (!rc)
        rc = read_heads(&k);
    if (!rc)
        rc = read_rope(&k);
    if (!rc)
        rc = read_window(&k);
    if (!rc)
        rc = read_experts(&k);
    if (!rc)
        rc = refuse_others(&k);
    if (!rc)
        rc = read_vocabulary(&k);
    if (!rc)
        rc = report_unread(&k);
    return rc ? rc : hparams_check(h, path_of(&k, q, sizeof q), e);
}
