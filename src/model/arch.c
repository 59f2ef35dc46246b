/* The rows. Source of every fact: the models' published config.json and modelling code, and the
 * GGUF files of their converters, as written down in docs/architectures.md. */
#include "arch.h"

#include <stdio.h>
#include <string.h>

const struct arch_names names_gguf = {
    .mat =
        {
            [MAT_Q] = "attn_q",
            [MAT_K] = "attn_k",
            [MAT_V] = "attn_v",
            [MAT_QKV] = "attn_qkv",
            [MAT_O] = "attn_output",
            [MAT_GATE] = "ffn_gate",
            [MAT_UP] = "ffn_up",
            [MAT_DOWN] = "ffn_down",
            [MAT_ROUTER] = "ffn_gate_inp",
        },
    .vec =
        {
            [VEC_ATTN_NORM] = "attn_norm.weight",
            [VEC_Q_B] = "attn_q.bias",
            [VEC_K_B] = "attn_k.bias",
            [VEC_V_B] = "attn_v.bias",
            [VEC_O_B] = "attn_output.bias",
            [VEC_Q_NORM] = "attn_q_norm.weight",
            [VEC_K_NORM] = "attn_k_norm.weight",
            [VEC_POST_ATTN_NORM] = "post_attention_norm.weight",
            [VEC_FFN_NORM] = "ffn_norm.weight",
            [VEC_POST_FFN_NORM] = "post_ffw_norm.weight",
            [VEC_GATE_B] = "ffn_gate.bias",
            [VEC_UP_B] = "ffn_up.bias",
            [VEC_DOWN_B] = "ffn_down.bias",
        },
};

#define HF_MATS                                                                                    \
    [MAT_Q] = "self_attn.q_proj", [MAT_K] = "self_attn.k_proj", [MAT_V] = "self_attn.v_proj",      \
    [MAT_O] = "self_attn.o_proj", [MAT_GATE] = "mlp.gate_proj", [MAT_UP] = "mlp.up_proj",          \
    [MAT_DOWN] = "mlp.down_proj"
#define HF_VECS                                                                                    \
    [VEC_ATTN_NORM] = "input_layernorm.weight", [VEC_Q_B] = "self_attn.q_proj.bias",               \
    [VEC_K_B] = "self_attn.k_proj.bias", [VEC_V_B] = "self_attn.v_proj.bias",                      \
    [VEC_O_B] = "self_attn.o_proj.bias", [VEC_Q_NORM] = "self_attn.q_norm.weight",                 \
    [VEC_K_NORM] = "self_attn.k_norm.weight", [VEC_GATE_B] = "mlp.gate_proj.bias",                 \
    [VEC_UP_B] = "mlp.up_proj.bias", [VEC_DOWN_B] = "mlp.down_proj.bias"

/* llama, mistral, qwen */
static const struct arch_names names_hf = {
    .mat = {HF_MATS, [MAT_ROUTER] = "mlp.gate"},
    .vec = {HF_VECS, [VEC_FFN_NORM] = "post_attention_layernorm.weight"},
};

static const struct arch_names names_hf_mixtral = {
    .mat = {HF_MATS, [MAT_ROUTER] = "block_sparse_moe.gate"},
    .vec = {HF_VECS, [VEC_FFN_NORM] = "post_attention_layernorm.weight"},
};

/* gemma: the same word names another norm */
static const struct arch_names names_hf_sandwich = {
    .mat = {HF_MATS},
    .vec = {HF_VECS, [VEC_POST_ATTN_NORM] = "post_attention_layernorm.weight",
            [VEC_FFN_NORM] = "pre_feedforward_layernorm.weight",
            [VEC_POST_FFN_NORM] = "post_feedforward_layernorm.weight"},
};

static const struct arch rows[] = {
    {
        .name = "llama",
        .gguf = "llama", /* mistral and mixtral too */
        .hf_classes = "LlamaForCausalLM LLaMAForCausalLM",
        .hf_types = "llama",
        .hf_names = &names_hf,
        .rope_interleaved_gguf = true,
        .rope_base = 10000.0,
        .moe_possible = true,
        .expert_weights_norm = true,
    },
    {
        .name = "mistral",
        .hf_classes = "MistralForCausalLM",
        .hf_types = "mistral",
        .hf_names = &names_hf,
        .window = WINDOW_ALL,
        .hf_window = 4096,
        .rope_base = 10000.0,
    },
    {
        .name = "mixtral",
        .hf_classes = "MixtralForCausalLM",
        .hf_types = "mixtral",
        .hf_names = &names_hf_mixtral,
        .window = WINDOW_ALL,
        .rope_base = 1e6,
        .moe_possible = true,
        .moe_always = true,
        .expert_weights_norm = true,
    },
    {
        .name = "qwen2",
        .gguf = "qwen2",
        .hf_classes = "Qwen2ForCausalLM",
        .hf_types = "qwen2",
        .hf_names = &names_hf,
        .qkv_bias = true,
        .window = WINDOW_UPPER,
        .rope_base = 10000.0,
    },
    {
        .name = "qwen3",
        .gguf = "qwen3",
        .hf_classes = "Qwen3ForCausalLM",
        .hf_types = "qwen3",
        .hf_names = &names_hf,
        .qk_norm = QK_NORM_HEAD,
        .window = WINDOW_UPPER,
        .rope_base = 10000.0,
        .hf_head_dim = 128,
    },
    {
        .name = "qwen3moe",
        .gguf = "qwen3moe",
        .hf_classes = "Qwen3MoeForCausalLM",
        .hf_types = "qwen3_moe",
        .hf_names = &names_hf,
        .qk_norm = QK_NORM_HEAD,
        .window = WINDOW_SWITCHED,
        .rope_base = 10000.0,
        .moe_possible = true,
        .moe_always = true,
        .expert_weights_norm = true,
        .hf_expert_width = true,
    },
    {
        .name = "gemma3",
        .gguf = "gemma3",
        .hf_classes = "Gemma3ForCausalLM Gemma3ForConditionalGeneration",
        .hf_types = "gemma3_text gemma3",
        .hf_names = &names_hf_sandwich,
        .qk_norm = QK_NORM_HEAD,
        .sandwich = true,
        .act = ACTFN_GELU_TANH,
        .embd_scale_root = true,
        .hf_norm_add = 1.0f,
        .hf_tied = true,
        .window = WINDOW_PATTERN,
        .window_pattern = 6,
        .rope_base = 1e6,
        .rope_base_window = 10000.0,
        .hf_n_head = 8,
        .hf_n_head_kv = 4,
        .hf_head_dim = 256,
        .hf_ctx = 131072,
        .hf_norm_eps = 1e-6,
        .hf_query_scalar = 256.0,
        .hf_window = 4096,
        .scale_by_width_layers = 62, /* 27B */
    },
};

#define N_ROWS (sizeof rows / sizeof rows[0])

/* Whether word is one of the blank-separated words of list. */
static bool in_list(const char *list, const char *word)
{
    size_t n = word ? strlen(word) : 0;

    if (n == 0 || strchr(word, ' '))
        return false;
    for (const char *p = list; p && (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0))
            return true;
    return false;
}

const struct arch *arch_by_gguf(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].gguf && strcmp(rows[i].gguf, name) == 0)
            return &rows[i];
    return NULL;
}

const struct arch *arch_by_hf(const char *cls, const char *type)
{
    for (size_t i = 0; cls && i < N_ROWS; i++)
        if (in_list(rows[i].hf_classes, cls))
            return &rows[i];
    for (size_t i = 0; !cls && type && i < N_ROWS; i++)
        if (in_list(rows[i].hf_types, type))
            return &rows[i];
    return NULL;
}

const char *arch_list(char *dst, size_t cap, bool gguf)
{
    size_t n = 0;

    dst[0] = 0;
    for (size_t i = 0; i < N_ROWS && n < cap; i++)
        if (!gguf || rows[i].gguf)
            n += (size_t)snprintf(dst + n, cap - n, "%s%s", n ? ", " : "", rows[i].name);
    return dst;
}
