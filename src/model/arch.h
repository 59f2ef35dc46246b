/* The table of architectures: one row each, with everything that neither GGUF keys nor
 * config.json say, and the tensor names of every role. A new model of a known shape is a row
 * here and a golden test. Facts: docs/architectures.md.
 * Thread rule: constant data. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include "model.h"

/* Tensor names of one naming scheme: the part between "blk.7." or "model.layers.7." and
 * ".weight". NULL = no such role. */
struct arch_names {
    const char *mat[MAT_COUNT];
    const char *vec[VEC_COUNT]; /* with their whole suffix */
};

enum window_rule {
    WINDOW_NONE,     /* a window in the metadata is reported and not used */
    WINDOW_ALL,      /* every layer (mistral) */
    WINDOW_PATTERN,  /* gemma3: window iff i mod N < N - 1 */
    WINDOW_UPPER,    /* qwen2, qwen3: with use_sliding_window, layers >= max_window_layers */
    WINDOW_SWITCHED, /* qwen3moe: with use_sliding_window, every layer */
};

struct arch {
    const char *name;       /* ours, and of messages */
    const char *gguf;       /* general.architecture; NULL = only in config.json */
    const char *hf_classes; /* config.json architectures[0], blank separated */
    const char *hf_types;   /* config.json model_type, blank separated */
    const struct arch_names *hf_names;

    bool rope_interleaved_gguf; /* GGUF rows of q and k are laid out for pairs (2i, 2i + 1) */
    enum qk_norm qk_norm;
    bool sandwich; /* norms after attention and after the feed forward, before the residual add */
    enum act_fn act;
    bool embd_scale_root; /* embeddings times sqrt(n_embd) */
    float hf_norm_add;    /* what safetensors norm weights lack */
    bool hf_tied;         /* tie_word_embeddings when config.json does not say */
    bool qkv_bias;        /* q, k and v always have biases */

    enum window_rule window;
    int32_t window_pattern; /* N of WINDOW_PATTERN when not said */
    double rope_base;       /* when not said */
    double
        rope_base_window; /* of window layers when not said; 0 = as the others, scaling included */

    bool moe_possible; /* experts when the metadata says so */
    bool moe_always;
    enum gating gating;
    /* renormalised whatever the keys say; config.json may say norm_topk_prob */
    bool expert_weights_norm;
    bool hf_expert_width; /* moe_intermediate_size, else intermediate_size */

    /* class defaults of config.json fields that nested configurations leave out; 0 = the field
     * is required */
    int32_t hf_n_head, hf_n_head_kv, hf_head_dim, hf_ctx;
    double hf_norm_eps, hf_query_scalar;
    int32_t hf_window;

    /* GGUF: with this many layers the scale is 1/sqrt(n_embd / n_head) */
    int32_t scale_by_width_layers;
};

extern const struct arch_names names_gguf;

const struct arch *arch_by_gguf(const char *name);
const struct arch *arch_by_hf(const char *cls,
                              const char *type); /* class first; either may be NULL */
/* "llama, mistral, ..." into dst. */
const char *arch_list(char *dst, size_t cap, bool gguf);

#endif
