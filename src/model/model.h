/* One model, whatever container it came in: what is computed (layers by role) and where the
 * bytes lie (units, vectors, extents). No weights are read here. Immutable after model_open; any
 * thread may read it.
 *
 * The decoder reads struct model and struct layer and never the name of an architecture; the
 * weights room reads units, vectors and the schedule and never a role. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "../io/file.h"
#include "../kernels/format.h"
#include "../kernels/kernels.h"
#include "gguf.h"

typedef int32_t unit_id; /* index in model.units; -1 = none */
typedef int32_t vec_id;  /* index in model.vectors; -1 = none */

/* A matrix as it lies in a file: rows of cols values. */
struct part {
    int32_t file;        /* index in model.files */
    enum format format;
    int32_t rows, cols;
    uint64_t offset;     /* of row 0 */
    uint64_t bytes;      /* rows * row_bytes */
    uint64_t row_bytes;
};

enum unit_kind {
    UNIT_DENSE,  /* one matrix; used whole, every pass, in schedule order */
    UNIT_TABLE,  /* gathered by row; when also the head (tied), it is in the schedule too */
    UNIT_EXPERT, /* one routed expert of one layer: gate, up, down */
};

#define UNIT_PARTS 3
enum expert_part { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN };

struct unit {
    enum unit_kind kind;
    int32_t layer;        /* -1 outside layers */
    int32_t expert;       /* -1 for dense */
    bool scheduled;       /* appears in model.schedule */
    int32_t n_parts;      /* 1, or 3 for experts */
    struct part part[UNIT_PARTS];
    const char *name;     /* tensor name for messages (of the first part) */
};

/* A small 1-D tensor, held as f32 from the start: value[i] = file value + add. */
struct vector {
    struct part part;     /* rows 1, cols n; format F32, F16 or BF16 */
    float add;            /* 1 for norm weights that the file stores less one */
    const char *name;
};

struct rope {
    int32_t dims;         /* R, even; pairs R/2 */
    bool half_split;      /* pairs (i, i + R/2), else (2i, 2i + 1) */
    float magnitude;      /* on cos and sin */
    double *inv_freq;     /* [R/2], radians per position, scaling included, factors not */
    vec_id factors;       /* [R/2] divide inv_freq by these, -1 = none */
};

enum mat_role {
    MAT_Q, MAT_K, MAT_V, MAT_QKV, MAT_O,
    MAT_GATE, MAT_UP, MAT_GATE_UP, MAT_DOWN,         /* GATE_UP: gate rows first */
    MAT_ROUTER,
    MAT_SHARED_GATE, MAT_SHARED_UP, MAT_SHARED_DOWN,
    MAT_COUNT,
};

enum vec_role {
    VEC_ATTN_NORM, VEC_ATTN_NORM_B, VEC_Q_B, VEC_K_B, VEC_V_B, VEC_O_B, VEC_Q_NORM, VEC_K_NORM,
    VEC_POST_ATTN_NORM, VEC_FFN_NORM, VEC_FFN_NORM_B, VEC_POST_FFN_NORM, VEC_GATE_B, VEC_UP_B,
    VEC_DOWN_B,
    VEC_ROUTER_B, VEC_ROUTER_SELECT_B, VEC_SHARED_GATE_INP, VEC_SINKS,
    VEC_COUNT,
};

enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WIDE };
enum ffn_kind { FFN_NONE, FFN_GATED, FFN_MOE };
enum gating { GATING_SOFTMAX, GATING_SIGMOID, GATING_TOPK_SOFTMAX, GATING_SQRT_SOFTPLUS };

struct layer {
    /* attention */
    int32_t n_head, n_head_kv, head_dim_k, head_dim_v;
    int32_t window; /* 0 = full; else key p0 is visible to p1 iff 0 <= p1 - p0 < window */
    float attn_scale, attn_softcap; /* softcap 0 = off */
    int32_t rope;              /* index in model.ropes, -1 = none */
    enum qk_norm qk_norm;      /* before rope */
    /* feed forward */
    enum ffn_kind ffn;
    int32_t n_ff;              /* width (of one expert with FFN_MOE) */
    int32_t n_ff_shared;       /* 0 = no shared expert */
    unit_id expert0; /* experts are units expert0 .. expert0 + n_expert - 1, in order; -1 = none */
    unit_id mat[MAT_COUNT];
    vec_id vec[VEC_COUNT];
};

struct model_file {
    struct file *file;         /* owned by the model */
    const char *path;
};

struct model {
    const char *path;          /* as the user named it */
    const char *arch;          /* "llama", "qwen3moe", ... */
    const char *name;          /* general.name, or the folder's name; quoted for printing */
    enum { MODEL_GGUF, MODEL_SAFETENSORS } container;
    int32_t n_files;
    struct model_file *files;
    struct gguf *gguf;         /* the shard that holds the keys; NULL for safetensors */
    const char *folder;        /* of a safetensors model; NULL for GGUF */

    int32_t n_layer, n_embd, n_vocab /* rows of the table */, n_ctx_train;
    int32_t n_head_out;        /* rows of the head = width of logits */
    float norm_eps;
    bool layer_norm;           /* LayerNorm instead of RMSNorm */
    enum act_fn act;
    float embd_scale;          /* 1 = none */
    float residual_scale;      /* 1 = none */
    float logit_scale;         /* logits are multiplied by it; 1 = none */
    float final_softcap;       /* 0 = off */
    int32_t n_expert, n_expert_used; /* 0 = dense */
    enum gating gating;
    bool expert_weights_norm;
    float expert_weights_scale; /* 1 = none */
    int32_t n_group, n_group_used; /* 1, 1 = no groups */

    int32_t n_rope;
    struct rope *ropes;
    struct layer *layers;
    unit_id token_embd;        /* UNIT_TABLE */
    unit_id head;              /* == token_embd when tied */
    vec_id output_norm, output_norm_b, output_b;

    int32_t n_units;
    struct unit *units;
    int32_t n_vectors;
    struct vector *vectors;
    int32_t n_schedule;
    /* dense units (routers too) in the order a pass uses them: layer by layer, inside a layer in
     * the order of enum mat_role; the head last */
    const unit_id *schedule;

    /* stop ids and special ids live with the tokenizer (text/) */
    int32_t n_warnings; /* what a user should know: unknown tensors and keys, a wrong index */
    const char **warnings;     /* one line each, printable */
    uint64_t largest_unit_bytes, largest_expert_bytes, token_cycle_bytes;
    uint64_t total_bytes; /* all tensor data */
    struct arena *arena;       /* all of the above; owned */
};

/* path: a GGUF file (any shard of a split one), a safetensors folder, its config.json, index or
 * a shard, or a link of the Hugging Face cache to any of them. An ambiguous path is refused with
 * the choices. Reads headers only. */
int model_open(const char *path, struct ledger *ledger, struct model **out, struct leat_error *e);
void model_close(struct model *m);

/* Any well-formed container, runnable or not, for `leat inspect`; see model/inspect.h. */

#endif
