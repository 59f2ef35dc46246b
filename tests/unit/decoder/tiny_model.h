/* Small models made in memory from a list of switches, with random weights, and what they
 * compute in double precision, written straight from the formulas (../shared/MODELS.md part 1;
 * docs/architectures.md). */
#ifndef TESTS_DECODER_TINY_MODEL_H
#define TESTS_DECODER_TINY_MODEL_H

#include "fake_weights.h"

struct tiny_spec {
    const char *name;
    int32_t layers, embd, head, head_kv, dk, dv, ff, vocab;
    int32_t window, window_every; /* layer i is a window layer iff i % window_every != 0 */
    int32_t rope_dims;            /* 0 = dk */
    enum qk_norm qk_norm;
    enum act_fn act;
    enum gating gating;
    int32_t experts, used, groups, groups_used, ff_shared;
    float attn_softcap, final_softcap, embd_scale, residual_scale, logit_scale, weights_scale,
        magnitude;
    bool rope_pairs, rope_factors,
        rope_off_odd; /* interleaved; with factors; odd layers unrotated */
    bool qkv_bias, o_bias, ffn_bias, router_bias, select_bias, output_bias;
    bool sandwich, layer_norm, fused_qkv, fused_ff, sinks, tied, weights_norm, shared_gate,
        dense_first;
    enum format format, format2; /* of matrices; of v and down. 0 = F32 */
};

struct tiny {
    struct tiny_spec s;
    struct model m;
    struct weights *w;
};

struct tiny *tiny_open(const struct tiny_spec *s, uint64_t seed);
void tiny_close(struct tiny *t);
/* Logits of every token of one sequence from position 0; only for models of F32 matrices. */
void tiny_reference(const struct tiny *t, const int32_t *ids, int32_t n, double *logits);

#endif
