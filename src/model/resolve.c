/* Resolves tensor names to roles: units, vectors, layers (struct model). Owns the shape checks
 * of docs/malformed.md G42: every tensor that is used must have exactly the shape that the
 * hyperparameters ask for and a type that has kernels. Experts are in resolve_experts.c. Refuses
 * to read a byte of any tensor. */
#include "resolve.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "resolve_internal.h"

/* ---- names and messages ---- */

const char *resolve_layer_name(struct build *b, int32_t layer, const char *rest)
{
    if (b->d->gguf_container)
        snprintf(b->name, sizeof b->name, "blk.%d.%s", layer, rest);
    else
        snprintf(b->name, sizeof b->name, "%slayers.%d.%s", b->prefix, layer, rest);
    return b->name;
}

static const char *container_name(const struct build *b, char *q, size_t cap)
{
    const char *p = b->d->folder ? b->d->folder : b->d->files[0].path;

    return error_quote(q, cap, p, strlen(p));
}

int resolve_missing(struct build *b, const char *name, const char *or_else)
{
    char q[500];

    return error_set(b->e, LEAT_ERR_UNSUPPORTED,
                     "%s: the tensor '%s'%s%s%s is missing, which architecture %s needs; the "
                     "%s complete and hold%s %lld tensors",
                     container_name(b, q, sizeof q), name, or_else ? " (or '" : "",
                     or_else ? or_else : "", or_else ? "')" : "", b->h->arch->name,
                     b->d->n_files == 1 ? "file itself is well formed and"
                                        : "files themselves are well formed and",
                     b->d->n_files == 1 ? "s" : "", (long long)b->d->n_tensors);
}

static void spell_shape(char *dst, size_t cap, const uint64_t *dims, int n)
{
    size_t used = 0;

    dst[0] = 0;
    for (int i = 0; i < n && used < cap; i++)
        used += (size_t)snprintf(dst + used, cap - used, "%s%llu", i ? " x " : "",
                                 (unsigned long long)dims[i]);
}

int resolve_check_shape(struct build *b, const struct tensor *t, uint64_t d0, uint64_t d1,
                        uint64_t d2)
{
    const uint64_t want[3] = {d0, d1, d2};
    char has[200], asked[100], name[300], q[500];
    int n = d2 > 1 ? 3 : d1 > 1 ? 2 : 1;
    bool same = t->n_dims >= 1;

    for (int i = 0; i < TENSOR_DIMS; i++)
        same = same && t->dims[i] == (i < 3 ? want[i] : 1);
    if (same)
        return 0;
    spell_shape(has, sizeof has, t->dims, t->n_dims);
    spell_shape(asked, sizeof asked, want, n);
    return error_set(b->e, LEAT_ERR_FORMAT,
                     "%s: tensor '%s' has the shape %s, but the metadata ask for %s (row "
                     "length first)",
                     container_name(b, q, sizeof q),
                     error_quote(name, sizeof name, t->name, strlen(t->name)), has, asked);
}

int resolve_check_type(struct build *b, const struct tensor *t)
{
    const struct format_info *f = t->format == FORMAT_FOREIGN ? NULL : format_info(t->format);
    int64_t same = 0;
    char name[300], q[500], known[300];

    if (f && f->runs)
        return 0;
    for (int64_t i = 0; i < b->d->n_tensors; i++)
        same += strcmp(b->d->tensors[i].type_name, t->type_name) == 0;
    return error_set(b->e, LEAT_ERR_UNSUPPORTED,
                     "%s: tensor '%s' is of type %s (%lld tensors are), for which this build has "
                     "no kernels; it runs %s. "
                     "The model itself is complete",
                     container_name(b, q, sizeof q),
                     error_quote(name, sizeof name, t->name, strlen(t->name)), t->type_name,
                     (long long)same, gguf_types_that_run(known, sizeof known));
}

/* ---- units and vectors ---- */

void resolve_part(struct part *p, const struct tensor *t, int32_t rows, uint64_t first_row)
{
    p->file = t->file;
    p->format = (enum format)t->format;
    p->rows = rows;
    p->cols = (int32_t)t->dims[0];
    p->row_bytes = t->row_bytes;
    p->bytes = (uint64_t)rows * t->row_bytes;
    p->offset = t->offset + first_row * t->row_bytes;
}

struct unit *resolve_new_unit(struct build *b, enum unit_kind kind, int32_t layer, const char *name)
{
    struct unit *u = &b->m->units[b->m->n_units++];

    u->kind = kind;
    u->layer = layer;
    u->expert = -1;
    u->n_parts = 1;
    u->name = name;
    return u;
}

/* A matrix by its full name; absent gives *out = -1. */
static int dense_unit(struct build *b, const char *name, enum unit_kind kind, int32_t layer,
                      int64_t rows, int64_t cols, unit_id *out)
{
    struct tensor *t = directory_find(b->d, name);
    struct unit *u;
    int rc;

    *out = -1;
    if (!t)
        return 0;
    rc = resolve_check_shape(b, t, (uint64_t)cols, (uint64_t)rows, 1);
    if (!rc)
        rc = resolve_check_type(b, t);
    if (rc)
        return rc;
    t->used = true;
    *out = b->m->n_units;
    u = resolve_new_unit(b, kind, layer, t->name);
    resolve_part(&u->part[0], t, (int32_t)rows, 0);
    return 0;
}

/* n values of a 1-D tensor of total values, from value `first`; absent gives *out = -1. */
static int vector_slice(struct build *b, const char *name, int64_t total, int64_t first, int64_t n,
                        float add, vec_id *out)
{
    struct tensor *t = directory_find(b->d, name);
    struct vector *v;
    uint64_t size;
    char q[300], c[500];
    int rc;

    *out = -1;
    if (!t)
        return 0;
    rc = resolve_check_shape(b, t, (uint64_t)total, 1, 1);
    if (rc)
        return rc;
    if (t->format != FORMAT_F32 && t->format != FORMAT_F16 && t->format != FORMAT_BF16)
        return error_set(b->e, LEAT_ERR_UNSUPPORTED,
                         "%s: tensor '%s' is of type %s; vectors are read as F32, F16 "
                         "or BF16",
                         container_name(b, c, sizeof c),
                         error_quote(q, sizeof q, t->name, strlen(t->name)), t->type_name);
    t->used = true;
    size = t->format == FORMAT_F32 ? 4 : 2;
    *out = b->m->n_vectors;
    v = &b->m->vectors[b->m->n_vectors++];
    v->name = t->name;
    v->add = add;
    v->part.file = t->file;
    v->part.format = (enum format)t->format;
    v->part.rows = 1;
    v->part.cols = (int32_t)n;
    v->part.bytes = v->part.row_bytes = (uint64_t)n * size;
    v->part.offset = t->offset + (uint64_t)first * size;
    return 0;
}

static int vector(struct build *b, const char *name, int64_t n, float add, vec_id *out)
{
    return vector_slice(b, name, n, 0, n, add, out);
}

/* ---- layers ---- */

static int layer_mat(struct build *b, int32_t i, enum mat_role r, int64_t rows, int64_t cols,
                     bool required)
{
    const char *stem = b->names->mat[r];
    char rest[160];
    int rc;

    b->m->layers[i].mat[r] = -1;
    if (!stem)
        return 0;
    snprintf(rest, sizeof rest, "%s.weight", stem);
    rc = dense_unit(b, resolve_layer_name(b, i, rest), UNIT_DENSE, i, rows, cols,
                    &b->m->layers[i].mat[r]);
    if (!rc && required && b->m->layers[i].mat[r] < 0)
        rc = resolve_missing(b, b->name, NULL);
    return rc;
}

static int layer_vec(struct build *b, int32_t i, enum vec_role r, int64_t n, bool required,
                     bool norm)
{
    int rc;

    if (!b->names->vec[r])
        return 0;
    rc = vector(b, resolve_layer_name(b, i, b->names->vec[r]), n, norm ? b->norm_add : 0,
                &b->m->layers[i].vec[r]);
    if (!rc && required && b->m->layers[i].vec[r] < 0)
        rc = resolve_missing(b, b->name, NULL);
    return rc;
}

/* attn_qkv: rows of q, then k, then v, with the bias cut likewise. */
static int fused_qkv(struct build *b, int32_t i, int64_t q, int64_t k, int64_t v)
{
    static const enum vec_role roles[3] = {VEC_Q_B, VEC_K_B, VEC_V_B};
    const int64_t n[3] = {q, k, v};
    int64_t first = 0;
    int rc = layer_mat(b, i, MAT_QKV, q + k + v, b->h->n_embd, false);

    if (rc || b->m->layers[i].mat[MAT_QKV] < 0)
        return rc;
    for (int p = 0; p < 3 && !rc; p++) {
        rc = vector_slice(b, resolve_layer_name(b, i, "attn_qkv.bias"), q + k + v, first, n[p], 0,
                          &b->m->layers[i].vec[roles[p]]);
        first += n[p];
    }
    return rc;
}

static int layer_attention(struct build *b, int32_t i)
{
    const struct hparams *h = b->h;
    struct layer *l = &b->m->layers[i];
    const int64_t E = h->n_embd, q = (int64_t)h->n_head[i] * h->head_k,
                  k = (int64_t)h->n_head_kv[i] * h->head_k,
                  v = (int64_t)h->n_head_kv[i] * h->head_v, o = (int64_t)h->n_head[i] * h->head_v;
    bool bias = h->arch->qkv_bias || h->need_qkv_bias, head_norm = h->arch->qk_norm == QK_NORM_HEAD;
    int rc;

    l->n_head = h->n_head[i];
    l->n_head_kv = h->n_head_kv[i];
    l->head_dim_k = h->head_k;
    l->head_dim_v = h->head_v;
    l->window = h->windowed[i] ? h->window : 0;
    l->attn_scale = h->attn_scale > 0 ? h->attn_scale : (float)(1 / sqrt((double)h->head_k));
    l->attn_softcap = h->attn_softcap;
    l->rope = h->windowed[i] ? b->window_rope : 0;
    l->qk_norm = h->arch->qk_norm;
    rc = fused_qkv(b, i, q, k, v);
    if (!rc && l->mat[MAT_QKV] < 0) {
        rc = layer_mat(b, i, MAT_Q, q, E, true);
        if (!rc)
            rc = layer_mat(b, i, MAT_K, k, E, true);
        if (!rc)
            rc = layer_mat(b, i, MAT_V, v, E, true);
        if (!rc)
            rc = layer_vec(b, i, VEC_Q_B, q, bias, false);
        if (!rc)
            rc = layer_vec(b, i, VEC_K_B, k, bias, false);
        if (!rc)
            rc = layer_vec(b, i, VEC_V_B, v, bias, false);
    }
    if (!rc)
        rc = layer_mat(b, i, MAT_O, E, o, true);
    if (!rc)
        rc = layer_vec(b, i, VEC_O_B, E, h->need_o_bias, false);
    if (!rc && head_norm)
        rc = layer_vec(b, i, VEC_Q_NORM, h->head_k, true, true);
    if (!rc && head_norm)
        rc = layer_vec(b, i, VEC_K_NORM, h->head_k, true, true);
    return rc;
}

static int layer_norms(struct build *b, int32_t i)
{
    const int64_t E = b->h->n_embd;
    int rc = layer_vec(b, i, VEC_ATTN_NORM, E, true, true);

    if (!rc)
        rc = layer_vec(b, i, VEC_FFN_NORM, E, true, true);
    if (!rc && b->h->arch->sandwich)
        rc = layer_vec(b, i, VEC_POST_ATTN_NORM, E, true, true);
    if (!rc && b->h->arch->sandwich)
        rc = layer_vec(b, i, VEC_POST_FFN_NORM, E, true, true);
    return rc;
}

static int layer_ffn(struct build *b, int32_t i)
{
    struct layer *l = &b->m->layers[i];
    const int64_t E = b->h->n_embd, F = b->h->n_ff[i];
    bool bias = b->h->need_mlp_bias;
    int rc;

    l->expert0 = -1;
    if (b->h->sparse[i])
        return resolve_experts(b, i);
    l->ffn = FFN_GATED;
    l->n_ff = (int32_t)F;
    rc = layer_mat(b, i, MAT_GATE, F, E, true);
    if (!rc)
        rc = layer_mat(b, i, MAT_UP, F, E, true);
    if (!rc)
        rc = layer_mat(b, i, MAT_DOWN, E, F, true);
    if (!rc)
        rc = layer_vec(b, i, VEC_GATE_B, F, bias, false);
    if (!rc)
        rc = layer_vec(b, i, VEC_UP_B, F, bias, false);
    if (!rc)
        rc = layer_vec(b, i, VEC_DOWN_B, E, bias, false);
    return rc;
}

int resolve_router(struct build *b, int32_t i)
{
    return layer_mat(b, i, MAT_ROUTER, b->h->n_expert, b->h->n_embd, true);
}

/* ---- ropes ---- */

static int new_rope(struct build *b, const struct rope_params *p, const char *what)
{
    struct rope *r = &b->m->ropes[b->m->n_rope++];

    r->dims = b->h->rope_dims;
    r->half_split = !(b->d->gguf_container && b->h->arch->rope_interleaved_gguf);
    r->factors = -1;
    r->inv_freq =
        arena_array(b->d->arena, (uint64_t)r->dims / 2, sizeof(double), sizeof(double), b->e);
    if (!r->inv_freq)
        return LEAT_ERR_MEMORY;
    return rope_build(p, r->dims, r->inv_freq, &r->magnitude, what, b->e);
}

static int resolve_ropes(struct build *b)
{
    bool any = false;
    char q[500];
    int rc;

    container_name(b, q, sizeof q);
    for (int32_t i = 0; i < b->h->n_layer; i++)
        any = any || b->h->windowed[i];
    b->m->ropes = arena_array(b->d->arena, 2, sizeof *b->m->ropes, _Alignof(struct rope), b->e);
    if (!b->m->ropes)
        return LEAT_ERR_MEMORY;
    rc = new_rope(b, &b->h->rope, q);
    if (rc)
        return rc;
    if (any && b->h->arch->rope_base_window > 0) {
        b->window_rope = 1;
        rc = new_rope(b, &b->h->rope_window, q);
        if (rc)
            return rc;
    }
    if (!b->d->gguf_container || !b->h->arch->rope_interleaved_gguf)
        return 0;
    if (directory_find(b->d, "rope_factors_long.weight") ||
        directory_find(b->d, "rope_factors_short.weight"))
        return error_set(b->e, LEAT_ERR_UNSUPPORTED,
                         "%s: the tensors rope_factors_long and rope_factors_short ask for "
                         "longrope, which this build does not support for architecture %s",
                         q, b->h->arch->name);
    return vector(b, "rope_freqs.weight", b->h->rope_dims / 2, 0, &b->m->ropes[0].factors);
}

/* ---- outside the layers ---- */

static int find_prefix(struct build *b)
{
    static const char *const prefixes[] = {"model.", "language_model.model.",
                                           "model.language_model.", ""};

    b->prefix = prefixes[0];
    for (size_t i = 0; !b->d->gguf_container && i < sizeof prefixes / sizeof prefixes[0]; i++) {
        snprintf(b->name, sizeof b->name, "%sembed_tokens.weight", prefixes[i]);
        if (directory_find(b->d, b->name)) {
            b->prefix = prefixes[i];
            return 0;
        }
    }
    return b->d->gguf_container ? 0
                                : resolve_missing(b, "model.embed_tokens.weight",
                                                  "language_model.model.embed_tokens.weight");
}

static const char *outer_name(struct build *b, const char *gguf, const char *hf)
{
    if (b->d->gguf_container)
        snprintf(b->name, sizeof b->name, "%s", gguf);
    else
        snprintf(b->name, sizeof b->name, "%s%s", b->prefix, hf);
    return b->name;
}

static int resolve_table(struct build *b)
{
    const struct hparams *h = b->h;
    const char *name = outer_name(b, "token_embd.weight", "embed_tokens.weight");
    const struct tensor *t = directory_find(b->d, name);
    uint64_t rows;
    char q[500];

    if (!t)
        return resolve_missing(b, name, NULL);
    rows = t->dims[1];
    if (rows > INT32_MAX)
        return error_set(b->e, LEAT_ERR_FORMAT, "%s: tensor '%s' has %llu rows",
                         container_name(b, q, sizeof q), name, (unsigned long long)rows);
    if (rows < (uint64_t)h->n_tokens)
        return error_set(b->e, LEAT_ERR_FORMAT,
                         "%s: tensor '%s' has %llu rows, but the vocabulary has %d tokens",
                         container_name(b, q, sizeof q), name, (unsigned long long)rows,
                         h->n_tokens);
    if (h->vocab_rows && rows != (uint64_t)h->vocab_rows && h->vocab_rows != h->n_tokens &&
        rows != (uint64_t)h->n_tokens)
        return error_set(b->e, LEAT_ERR_FORMAT,
                         "%s: tensor '%s' has %llu rows, but the metadata say a vocabulary "
                         "of %d",
                         container_name(b, q, sizeof q), name, (unsigned long long)rows,
                         h->vocab_rows);
    b->m->n_vocab = (int32_t)rows;
    return dense_unit(b, name, UNIT_TABLE, -1, (int64_t)rows, h->n_embd, &b->m->token_embd);
}

static int resolve_head(struct build *b)
{
    static const char *const names[] = {"output.weight", "lm_head.weight",
                                        "language_model.lm_head.weight"};
    const int first = b->d->gguf_container ? 0 : 1, last = b->d->gguf_container ? 0 : 2;
    struct model *m = b->m;
    int rc = 0;

    m->head = -1;
    for (int i = first; i <= last && m->head < 0 && !rc; i++) {
        struct tensor *t = directory_find(b->d, names[i]);

        if (t && b->h->tied == 1)
            t->used = true; /* the tie wins, as in the reference of this container */
        else
            rc = dense_unit(b, names[i], UNIT_DENSE, -1, m->n_vocab, b->h->n_embd, &m->head);
    }
    if (rc)
        return rc;
    if (m->head < 0 && b->h->tied == 0)
        return resolve_missing(b, names[first], NULL);
    if (m->head < 0) /* the table is the head too */
        m->head = m->token_embd;
    m->n_head_out = m->units[m->head].part[0].rows;
    return vector(b, b->d->gguf_container ? "output.bias" : "lm_head.bias", m->n_head_out, 0,
                  &m->output_b);
}

static int resolve_outer(struct build *b)
{
    int rc = resolve_table(b);

    if (!rc)
        rc = resolve_head(b);
    if (!rc)
        rc = vector(b, outer_name(b, "output_norm.weight", "norm.weight"), b->h->n_embd,
                    b->norm_add, &b->m->output_norm);
    if (!rc && b->m->output_norm < 0)
        rc = resolve_missing(b, b->name, NULL);
    b->m->output_norm_b = -1;
    return rc;
}

/* ---- the whole ---- */

static int allocate(struct build *b)
{
    const struct hparams *h = b->h;
    struct model *m = b->m;
    uint64_t units = 4 + (uint64_t)h->n_layer * MAT_COUNT, experts = 0;
    char q[500];

    for (int32_t i = 0; i < h->n_layer; i++)
        experts += h->sparse[i] ? (uint64_t)h->n_expert : 0;
    if (experts > UNITS_MOST)
        return error_set(b->e, LEAT_ERR_UNSUPPORTED,
                         "%s: %llu experts in all layers; at most %d are possible",
                         container_name(b, q, sizeof q), (unsigned long long)experts, UNITS_MOST);
    m->units =
        arena_array(b->d->arena, units + experts, sizeof *m->units, _Alignof(struct unit), b->e);
    m->vectors = arena_array(b->d->arena, 4 + (uint64_t)h->n_layer * VEC_COUNT, sizeof *m->vectors,
                             _Alignof(struct vector), b->e);
    m->layers = arena_array(b->d->arena, (uint64_t)h->n_layer, sizeof *m->layers,
                            _Alignof(struct layer), b->e);
    if (!m->units || !m->vectors || !m->layers)
        return LEAT_ERR_MEMORY;
    for (int32_t i = 0; i < h->n_layer; i++) {
        for (int r = 0; r < MAT_COUNT; r++)
            m->layers[i].mat[r] = -1;
        for (int r = 0; r < VEC_COUNT; r++)
            m->layers[i].vec[r] = -1;
    }
    return 0;
}

static void set_facts(struct build *b)
{
    const struct hparams *h = b->h;
    struct model *m = b->m;

    m->arch = h->arch->name;
    m->name = h->name;
    m->n_layer = h->n_layer;
    m->n_embd = h->n_embd;
    m->n_ctx_train = h->n_ctx_train;
    m->norm_eps = h->norm_eps;
    m->act = h->act;
    m->embd_scale = h->arch->embd_scale_root ? (float)sqrt((double)h->n_embd) : 1.0f;
    m->residual_scale = 1;
    m->logit_scale = 1;
    m->final_softcap = h->final_softcap;
    m->n_expert = h->n_expert;
    m->n_expert_used = h->n_expert_used;
    m->gating = h->gating;
    m->expert_weights_norm = h->expert_weights_norm;
    m->expert_weights_scale = h->expert_weights_scale;
    m->n_group = h->n_group > 1 ? h->n_group : 1;
    m->n_group_used = h->n_group > 1 ? h->n_group_used : 1;
}

static void sum_sizes(struct model *m)
{
    for (int32_t i = 0; i < m->n_units; i++) {
        const struct unit *u = &m->units[i];
        uint64_t bytes = 0;

        for (int32_t p = 0; p < u->n_parts; p++)
            bytes += u->part[p].bytes;
        if (bytes > m->largest_unit_bytes)
            m->largest_unit_bytes = bytes;
        if (u->kind == UNIT_EXPERT && bytes > m->largest_expert_bytes)
            m->largest_expert_bytes = bytes;
    }
    for (int32_t i = 0; i < m->n_layer; i++) { /* experts of one layer are of one size */
        const struct layer *l = &m->layers[i];

        if (l->expert0 < 0)
            continue;
        for (int p = 0; p < UNIT_PARTS; p++)
            m->token_cycle_bytes += (uint64_t)m->n_expert_used * m->units[l->expert0].part[p].bytes;
    }
}

int resolve_model(struct directory *d, const struct hparams *h, struct model *m,
                  struct leat_error *e)
{
    struct build b = {.d = d, .h = h, .m = m, .e = e};
    int rc;

    b.names = d->gguf_container ? &names_gguf : h->arch->hf_names;
    b.norm_add = d->gguf_container ? 0 : h->arch->hf_norm_add;
    rc = find_prefix(&b);
    if (!rc)
        rc = allocate(&b);
    if (!rc)
        rc = resolve_outer(&b);
    if (!rc)
        rc = resolve_ropes(&b);
    for (int32_t i = 0; i < h->n_layer && !rc; i++) {
        rc = layer_norms(&b, i);
        if (!rc)
            rc = layer_attention(&b, i);
        if (!rc)
            rc = layer_ffn(&b, i);
    }
    if (rc)
        return rc;
    set_facts(&b);
    sum_sizes(m);
    m->total_bytes = d->total_bytes;
    rc = resolve_report_unused(&b);
    return rc ? rc : schedule_build(m, d->arena, e);
}
