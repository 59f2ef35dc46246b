/* Hyperparameters from config.json of a safetensors folder. Owns the checks of docs/malformed.md
 * J3 and J4: a field of a wrong type or range, and a rope scaling, quantisation or layer type
 * that is not known here, is refused by name and never ignored. Fields may lie under
 * text_config; what nested configurations leave out comes from the row's class defaults. Rope
 * fields are in hparams_hf_rope.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hparams_hf.h"

const struct json_value *config_find(struct config *c, const char *name)
{
    const struct json_value *v = NULL;

    if (c->nested) {
        snprintf(c->field, sizeof c->field, "text_config.%s", name);
        v = json_doc_find(&c->doc, c->field);
    }
    if (!v || v->kind == JSON_IS_NULL) {
        const struct json_value *top = json_doc_find(&c->doc, name);

        if (!v || top) {
            snprintf(c->field, sizeof c->field, "%s", name);
            v = top;
        }
    }
    return v && v->kind != JSON_IS_NULL ? v : NULL;
}

int config_bad(struct config *c, const struct json_value *v, const char *wanted)
{
    char path[200], text[120];

    error_quote(path, sizeof path, v->path, strlen(v->path));
    if (v->text)
        return error_set(c->e, LEAT_ERR_FORMAT, "%s: field '%s' is %s%s%s, not %s", c->doc.name,
                         path, v->kind == JSON_IS_STRING ? "\"" : "",
                         error_quote(text, sizeof text, v->text, strlen(v->text)),
                         v->kind == JSON_IS_STRING ? "\"" : "", wanted);
    return error_set(c->e, LEAT_ERR_FORMAT, "%s: field '%s' is not %s", c->doc.name, path, wanted);
}

int config_unsupported(struct config *c, const char *field, const char *value, const char *known)
{
    char f[200], v[120];

    return error_set(c->e, LEAT_ERR_UNSUPPORTED,
                     "%s: field '%s' is '%s'; for architecture %s this build knows %s", c->doc.name,
                     error_quote(f, sizeof f, field, strlen(field)),
                     error_quote(v, sizeof v, value, strlen(value)), c->h->arch->name, known);
}

int config_int(struct config *c, const char *name, int64_t min, int64_t max, int32_t *out)
{
    const struct json_value *v = config_find(c, name);
    char wanted[100];

    if (!v)
        return 0;
    if (v->kind == JSON_IS_NUMBER && v->whole && v->integer >= min && v->integer <= max) {
        *out = (int32_t)v->integer;
        return 1;
    }
    snprintf(wanted, sizeof wanted, "a whole number of %lld to %lld", (long long)min,
             (long long)max);
    return config_bad(c, v, wanted);
}

static int missing(struct config *c, const char *name)
{
    return error_set(c->e, LEAT_ERR_FORMAT, "%s: the field '%s' is missing", c->doc.name, name);
}

/* A field whose class default is `def`; 0 = it must be there. */
static int need_int(struct config *c, const char *name, int64_t min, int64_t max, int32_t def,
                    int32_t *out)
{
    int rc = config_int(c, name, min, max, out);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (def == 0)
        return missing(c, name);
    *out = def;
    return 0;
}

int config_number(struct config *c, const char *name, double *out)
{
    const struct json_value *v = config_find(c, name);

    if (!v)
        return 0;
    if (v->kind != JSON_IS_NUMBER || !isfinite((float)v->number))
        return config_bad(c, v, "a finite number");
    *out = v->number;
    return 1;
}

static int read_bool(struct config *c, const char *name, bool *out)
{
    const struct json_value *v = config_find(c, name);

    if (!v)
        return 0;
    if (v->kind != JSON_IS_BOOL)
        return config_bad(c, v, "true or false");
    *out = v->truth;
    return 1;
}

int config_string(struct config *c, const char *name, const char **out)
{
    const struct json_value *v = config_find(c, name);

    if (!v)
        return 0;
    if (v->kind != JSON_IS_STRING)
        return config_bad(c, v, "a string");
    *out = v->text;
    return 1;
}

/* ---- parts ---- */

static int find_arch(struct config *c)
{
    const struct json_value *cls = json_doc_find(&c->doc, "architectures[0]");
    const struct json_value *type = json_doc_find(&c->doc, "model_type");
    const struct json_value *text = json_doc_find(&c->doc, "text_config");
    char list[300], a[120], b[120];

    if (cls && cls->kind != JSON_IS_STRING)
        return config_bad(c, cls, "a string");
    if (type && type->kind != JSON_IS_STRING)
        return config_bad(c, type, "a string");
    if (!cls && !type)
        return missing(c, "architectures");
    c->nested = text && text->kind == JSON_IS_OBJECT;
    c->h->arch = arch_by_hf(cls ? cls->text : NULL, type ? type->text : NULL);
    if (c->h->arch)
        return 0;
    return error_set(c->e, LEAT_ERR_UNSUPPORTED,
                     "%s: the architecture is '%s' (model_type '%s'); this build runs %s. The "
                     "files themselves are well formed and complete",
                     c->doc.name,
                     cls ? error_quote(a, sizeof a, cls->text, strlen(cls->text)) : "not said",
                     type ? error_quote(b, sizeof b, type->text, strlen(type->text)) : "not said",
                     arch_list(list, sizeof list, false));
}

/* Weights in an encoding of their own. */
static int refuse_quantised(struct config *c)
{
    static const char *const names[] = {"quantization_config", "compression_config"};

    for (size_t i = 0; i < 2; i++) {
        const struct json_value *v = config_find(c, names[i]);
        const char *method = "of an unnamed kind";
        char field[80];

        if (!v)
            continue;
        snprintf(field, sizeof field, "%s.quant_method", names[i]);
        if (config_string(c, field, &method) < 0)
            return LEAT_ERR_FORMAT;
        return config_unsupported(c, names[i], method,
                                  "safetensors weights in F32, F16 and BF16 only");
    }
    return 0;
}

static int read_sizes(struct config *c)
{
    struct hparams *h = c->h;
    const struct arch *a = h->arch;
    int32_t heads, kv, width;
    int rc = need_int(c, "num_hidden_layers", 1, LAYERS_MOST, 0, &h->n_layer);

    if (!rc)
        rc = hparams_alloc(c->d, h, c->e);
    if (!rc)
        rc = need_int(c, "hidden_size", 1, WIDTH_MOST, 0, &h->n_embd);
    if (!rc)
        rc = need_int(c, "num_attention_heads", 1, WIDTH_MOST, a->hf_n_head, &heads);
    if (!rc)
        rc = need_int(c, "num_key_value_heads", 1, WIDTH_MOST,
                      a->hf_n_head_kv ? a->hf_n_head_kv : heads, &kv);
    if (!rc)
        rc = need_int(c, "intermediate_size", 1, WIDTH_MOST, 0, &width);
    if (!rc)
        rc = need_int(c, "max_position_embeddings", 1, INT32_MAX, a->hf_ctx, &h->n_ctx_train);
    if (!rc) {
        rc = config_int(c, "vocab_size", 1, INT32_MAX, &h->vocab_rows);
        rc = rc < 0 ? rc : 0;
    }
    if (!rc && config_find(c, "head_dim") == NULL && a->hf_head_dim == 0 && h->n_embd % heads)
        return error_set(c->e, LEAT_ERR_FORMAT,
                         "%s: hidden_size %d is not a multiple of num_attention_heads %d",
                         c->doc.name, h->n_embd, heads);
    if (!rc)
        rc = need_int(c, "head_dim", 1, WIDTH_MOST,
                      a->hf_head_dim ? a->hf_head_dim : h->n_embd / heads, &h->head_k);
    if (rc)
        return rc;
    h->head_v = h->rope_dims = h->head_k;
    for (int32_t i = 0; i < h->n_layer; i++) {
        h->n_head[i] = heads;
        h->n_head_kv[i] = kv;
        h->n_ff[i] = width;
    }
    return 0;
}

static int read_activation(struct config *c)
{
    static const struct {
        const char *name;
        enum act_fn fn;
    } known[] = {
        {"silu", ACTFN_SILU},
        {"swish", ACTFN_SILU},
        {"gelu_pytorch_tanh", ACTFN_GELU_TANH},
        {"gelu_new", ACTFN_GELU_TANH},
        {"gelu", ACTFN_GELU_ERF},
        {"relu", ACTFN_RELU},
        {"relu2", ACTFN_RELU2},
    };
    const char *field = config_find(c, "hidden_activation") ? "hidden_activation" : "hidden_act",
               *name = NULL;
    int rc = config_string(c, field, &name);

    c->h->act = c->h->arch->act;
    if (rc <= 0)
        return rc;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0) {
            c->h->act = known[i].fn;
            return 0;
        }
    return config_unsupported(c, field, name, "silu, gelu, gelu_pytorch_tanh, relu and relu2");
}

static int read_floats(struct config *c)
{
    struct hparams *h = c->h;
    const struct arch *a = h->arch;
    double eps = a->hf_norm_eps, scalar = a->hf_query_scalar, cap = 0, final_cap = 0;
    int rc = config_number(c, "rms_norm_eps", &eps);

    if (rc == 0 && eps == 0)
        return missing(c, "rms_norm_eps");
    h->norm_eps = (float)eps;
    if (rc >= 0 && a->hf_query_scalar > 0) {
        rc = config_number(c, "query_pre_attn_scalar", &scalar);
        if (rc >= 0 && !(scalar > 0))
            return config_bad(c, config_find(c, "query_pre_attn_scalar"), "a positive number");
        h->attn_scale = (float)(1 / sqrt(scalar));
    }
    if (rc >= 0)
        rc = config_number(c, "attn_logit_softcapping", &cap);
    if (rc >= 0)
        rc = config_number(c, "final_logit_softcapping", &final_cap);
    h->attn_softcap = (float)cap;
    h->final_softcap = (float)final_cap;
    return rc < 0 ? rc : 0;
}

/* layer_types, where given: 1 read, 0 absent. */
static int read_layer_types(struct config *c)
{
    const struct json_value *types = config_find(c, "layer_types");
    char path[200], wanted[80];

    if (!types)
        return 0;
    snprintf(wanted, sizeof wanted, "a list of %d layer types", c->h->n_layer);
    if (types->kind != JSON_IS_ARRAY || types->count != c->h->n_layer)
        return config_bad(c, types, wanted);
    for (int32_t i = 0; i < c->h->n_layer; i++) {
        const struct json_value *v;

        snprintf(path, sizeof path, "%s[%d]", types->path, i);
        v = json_doc_find(&c->doc, path);
        if (!v || v->kind != JSON_IS_STRING)
            return config_bad(c, v ? v : types, "a layer type");
        if (strcmp(v->text, "sliding_attention") == 0)
            c->h->windowed[i] = true;
        else if (strcmp(v->text, "full_attention") != 0)
            return config_unsupported(c, path, v->text, "full_attention and sliding_attention");
        if (c->h->windowed[i] && c->h->arch->window == WINDOW_NONE)
            return config_unsupported(c, path, v->text, "full_attention only");
    }
    return 1;
}

static int read_window(struct config *c)
{
    struct hparams *h = c->h;
    const enum window_rule rule = h->arch->window;
    bool said = json_doc_find(&c->doc, "sliding_window") ||
                (c->nested && json_doc_find(&c->doc, "text_config.sliding_window"));
    int32_t upper = 28, pattern = h->arch->window_pattern;
    bool in_use = rule != WINDOW_UPPER && rule != WINDOW_SWITCHED;
    int rc = read_bool(c, "use_sliding_window", &in_use), listed;

    if (rc < 0)
        return rc;
    h->window = said ? 0 : h->arch->hf_window; /* null: no window; absent: the class default */
    rc = config_int(c, "sliding_window", 0, INT32_MAX, &h->window);
    if (rc >= 0)
        rc = config_int(c, "max_window_layers", 0, INT32_MAX, &upper);
    if (rc >= 0)
        rc = config_int(c, "sliding_window_pattern", 1, LAYERS_MOST, &pattern);
    if (rc == 0)
        rc = config_int(c, "_sliding_window_pattern", 1, LAYERS_MOST, &pattern);
    if (rc < 0)
        return rc;
    if (rule == WINDOW_NONE || !in_use)
        h->window = 0;
    listed = read_layer_types(c);
    if (listed)
        return listed < 0 ? listed : 0;
    for (int32_t i = 0; i < h->n_layer && h->window > 0; i++)
        h->windowed[i] = rule == WINDOW_PATTERN ? i % pattern < pattern - 1
                         : rule == WINDOW_UPPER ? i >= upper
                                                : true;
    return 0;
}

/* Which layers are sparse: every decoder_sparse_step-th, those of mlp_only_layers apart. */
static int read_sparse(struct config *c)
{
    struct hparams *h = c->h;
    const struct json_value *only = config_find(c, "mlp_only_layers");
    char path[200];
    int32_t step = 1;
    int rc = config_int(c, "decoder_sparse_step", 1, LAYERS_MOST, &step);

    for (int32_t i = 0; i < h->n_layer; i++)
        h->sparse[i] = (i + 1) % step == 0;
    if (rc < 0 || !only)
        return rc < 0 ? rc : 0;
    if (only->kind != JSON_IS_ARRAY)
        return config_bad(c, only, "a list of layer numbers");
    for (int64_t k = 0; k < only->count; k++) {
        const struct json_value *v;

        snprintf(path, sizeof path, "%s[%lld]", only->path, (long long)k);
        v = json_doc_find(&c->doc, path);
        if (!v || v->kind != JSON_IS_NUMBER || !v->whole || v->integer < 0 ||
            v->integer >= h->n_layer)
            return config_bad(c, v ? v : only, "the number of a layer");
        h->sparse[v->integer] = false;
    }
    return 0;
}

static int read_experts(struct config *c)
{
    struct hparams *h = c->h;
    int rc;

    h->n_group = h->n_group_used = 1;
    h->expert_weights_scale = 1;
    if (!h->arch->moe_always)
        return 0;
    rc = config_int(c, "num_local_experts", 1, EXPERTS_MOST, &h->n_expert);
    if (rc == 0)
        rc = need_int(c, "num_experts", 1, EXPERTS_MOST, 0, &h->n_expert);
    if (rc >= 0)
        rc = need_int(c, "num_experts_per_tok", 1, h->n_expert, 0, &h->n_expert_used);
    if (!rc && h->arch->hf_expert_width)
        rc = need_int(c, "moe_intermediate_size", 1, WIDTH_MOST, 0, &h->n_ff_expert);
    if (rc)
        return rc;
    h->gating = h->arch->gating;
    h->expert_weights_norm = h->arch->expert_weights_norm;
    if (h->arch->hf_expert_width) { /* the class default is false; published files say it */
        h->expert_weights_norm = false;
        rc = read_bool(c, "norm_topk_prob", &h->expert_weights_norm);
        if (rc < 0)
            return rc;
    }
    return read_sparse(c);
}

static int read_flags(struct config *c)
{
    struct hparams *h = c->h;
    bool attention = false, mlp = false, tied = h->arch->hf_tied, both_ways = false;
    double part = 1;
    int rc = read_bool(c, "attention_bias", &attention);

    if (rc >= 0)
        rc = read_bool(c, "mlp_bias", &mlp);
    if (rc >= 0) {
        rc = read_bool(c, "tie_word_embeddings", &tied);
        h->tied = rc > 0 || tied ? tied : -1;
    }
    if (rc >= 0)
        rc = read_bool(c, "use_bidirectional_attention", &both_ways);
    if (rc >= 0)
        rc = config_number(c, "partial_rotary_factor", &part);
    if (rc < 0)
        return rc;
    h->need_qkv_bias = h->need_o_bias = attention;
    h->need_mlp_bias = mlp;
    if (both_ways)
        return config_unsupported(c, "use_bidirectional_attention", "true",
                                  "causal attention only");
    if (part != 1)
        return config_unsupported(c, "partial_rotary_factor",
                                  config_find(c, "partial_rotary_factor")->text, "1 only");
    return 0;
}

/* The folder's name; of a cache folder models--ORG--NAME/snapshots/REVISION the repository's. */
static int set_name(struct config *c)
{
    const char *folder = c->d->folder, *repo = strstr(folder, "models--");
    char text[300], q[400];
    size_t n = strlen(folder);

    while (n > 1 && folder[n - 1] == '/')
        n--;
    if (repo && strstr(repo, "/snapshots/")) {
        size_t k = 0;

        for (const char *p = repo + 8; *p && *p != '/' && k < sizeof text - 1; p++) {
            bool slash = p[0] == '-' && p[1] == '-';

            text[k++] = slash ? '/' : *p;
            p += slash;
        }
        text[k] = 0;
    } else {
        size_t start = n;

        while (start > 0 && folder[start - 1] != '/')
            start--;
        snprintf(text, sizeof text, "%.*s", (int)(n - start), folder + start);
    }
    error_quote(q, sizeof q, text, strlen(text));
    c->h->name = arena_copy(c->d->arena, q, strlen(q), c->e);
    return c->h->name ? 0 : LEAT_ERR_MEMORY;
}

int hparams_from_config(struct directory *d, struct hparams *h, struct leat_error *e)
{
    struct config c = {.d = d, .h = h, .e = e};
    char q[500];
    int rc;

    if (!d->config) {
        const char *p = d->folder ? d->folder : d->files[0].path;

        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s: there is no config.json %s, so it is not known which model this is; "
                         "the tensors themselves are well formed and complete",
                         error_quote(q, sizeof q, p, strlen(p)),
                         d->folder ? "in the folder" : "beside it");
    }
    rc = json_doc_open(d->config, d->arena, &c.doc, e);
    if (!rc)
        rc = find_arch(&c);
    if (!rc)
        rc = set_name(&c);
    if (!rc)
        rc = refuse_quantised(&c);
    if (!rc)
        rc = read_sizes(&c);
    if (!rc)
        rc = read_activation(&c);
    if (!rc)
        rc = read_floats(&c);
    if (!rc)
        rc = read_window(&c);
    if (!rc)
        rc = read_experts(&c);
    if (!rc)
        rc = read_flags(&c);
    if (!rc)
        rc = config_rope(&c);
    return rc ? rc : hparams_check(h, c.doc.name, e);
}
