/* Everything the decoder computes besides products: norms, sums, activations, softmax, rope, KV
 * rows and attention. Owns the ops_*.c files; knows no product, no block format but the KV
 * types, no layer. Pure.
 *
 * Orders (docs/kernels.md). Elementwise operations give a value the same result wherever it lies
 * in an array. Sums over n values (norms, softmax) run in eight f64 lanes, lane i taking the
 * values i, i + 8, ... in ascending order, added up as ((0+1)+(2+3))+((4+5)+(6+7)). Attention,
 * wide tiers (the same bits in all of them): a score is the sum of a row's even values, ascending
 * and fused, plus that of the odd ones; a running sum takes the tile's 64 weights in sixteen lanes
 * (position mod 16, invisible ones weigh 0), added 8, 4, 2, 1 apart. Scalar: a score, and the
 * weights, in eight f32 lanes as above. Values are added position by position, ascending.
 * None of it depends on nq, on neighbours or on alignment. Thread rule: any thread, on disjoint
 * outputs. */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include "kernels.h"

/* Fills every entry but act_prepare, matmul, dequant and isa. */
void ops_fill_scalar(struct kernels *k);
/* The same for AVX2 + FMA + F16C; x86-64 only, and only when the processor has all three. */
void ops_fill_avx2(struct kernels *k);
/* The same for AVX-512 F, BW, VL, DQ; overwrites what is faster with it. */
void ops_fill_avx512(struct kernels *k);
/* The same for ARM: any AArch64 processor. */
void ops_fill_neon(struct kernels *k);

/* For the table above: the parts that lie in files of their own. */
void ops_attn_tile_scalar(const struct attn_tile *a);
void ops_attn_tile_avx2(const struct attn_tile *a);
void ops_attn_tile_avx512(const struct attn_tile *a);
void ops_attn_tile_neon(const struct attn_tile *a);

#endif
