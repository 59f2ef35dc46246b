/* The numbers of a model, free of its container: filled from GGUF keys (hparams_gguf.c) or from
 * config.json (hparams_hf.c), every one checked; read by resolve.c. Thread rule: plain data of
 * one thread. */
#ifndef MODEL_HPARAMS_H
#define MODEL_HPARAMS_H

#include "arch.h"
#include "directory.h"
#include "json_doc.h"

#define LAYERS_MOST  4096
#define EXPERTS_MOST 65535
#define WIDTH_MOST                                                                                 \
    (1 << 24) /* of any row or head count; far above any model, keeps products in int64 */

enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_LLAMA3,
    ROPE_SCALING_YARN
};

struct rope_params { /* one kind of layer; formulas in rope.c */
    double base;
    enum rope_scaling scaling;
    double factor;                           /* s */
    double original_context;                 /* C */
    double low, high;                        /* llama3 */
    double ext_factor, beta_fast, beta_slow; /* yarn */
    double magnitude;                        /* yarn: on cos and sin; 0 = the rule 0.1 ln s + 1 */
    double attn_factor;                      /* multiplies the magnitude */
    bool truncate;                           /* yarn: whole pair numbers at the ends of the ramp */
};

struct hparams {
    const struct arch *arch;
    const char *name; /* for people, quoted */
    int32_t n_layer, n_embd, n_ctx_train;
    int32_t vocab_rows;                 /* what the metadata says of the table; 0 = nothing */
    int32_t n_tokens;                   /* of the GGUF token list; 0 = none */
    int32_t *n_head, *n_head_kv, *n_ff; /* per layer */
    bool *windowed;                     /* per layer */
    bool *sparse;                       /* per layer: mixture of experts */
    int32_t head_k, head_v, rope_dims;
    int32_t window; /* of windowed layers */
    float norm_eps;
    enum act_fn act;
    float attn_scale; /* 0 = 1 / sqrt(head_k) */
    float attn_softcap, final_softcap;
    struct rope_params rope, rope_window;
    int32_t n_expert, n_expert_used, n_ff_expert;
    enum gating gating;
    bool expert_weights_norm;
    float expert_weights_scale;
    int32_t n_group, n_group_used;
    int32_t tied;                                   /* 1 yes, 0 no, -1 decided by what is there */
    bool need_qkv_bias, need_o_bias, need_mlp_bias; /* promised by config.json */
};

/* Each finds the row of the architecture and fills h. Something missing is LEAT_ERR_UNSUPPORTED
 * from GGUF keys (a container may be well formed without them), a wrong value LEAT_ERR_FORMAT.
 * Warnings go to d. */
int hparams_from_gguf(struct directory *d, struct hparams *h, struct leat_error *e);
int hparams_from_config(struct directory *d, struct hparams *h, struct leat_error *e);

/* Per-layer arrays; n_layer and arch are set. */
int hparams_alloc(struct directory *d, struct hparams *h, struct leat_error *e);
/* Checks between numbers, whatever the source: what names where they come from. */
int hparams_check(const struct hparams *h, const char *what, struct leat_error *e);

/* inv_freq and magnitude of r; dims, half_split set by the caller. inv_freq has dims / 2 values. */
int rope_build(const struct rope_params *p, int32_t dims, double *inv_freq, float *magnitude,
               const char *what, struct leat_error *e);

#endif
