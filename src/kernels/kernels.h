/* Products, and everything else the decoder computes, in one table of function pointers chosen once by what the
 * processor has. Pure functions over caller's memory: no allocation, no threads, no globals but the chosen table.
 *
 * The law (DESIGN decision 9): for one row and one token the sequence of floating-point operations is fixed by the
 * format alone; it does not depend on how many rows or tokens a call has, on where the row lies, or on alignment.
 * docs/kernels.md writes each order down. Weights may lie at any address (no alignment is assumed);
 * activations are 64-byte aligned. Thread rule: any thread, on disjoint outputs. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stddef.h>

#include "../base/error.h"
#include <stdbool.h>

#include "format.h"

/* ---- activations ---- */

/* Bytes of one prepared activation row of cols values, a multiple of 64. Layout (all parts contiguous, each 64-byte aligned):
 * ACT_F32: float[cols]. ACT_Q8_32: int8[cols], float scale[cols/32], int16 sums[cols/32]. ACT_Q8_256: int8[cols],
 * float scale[cols/256], int16 sums[cols/16]. Padding is zero. cols is a multiple of the kind's block. */
size_t act_row_bytes(enum act_kind kind, int32_t cols);

/* y[token * y_stride + row] = sum over k of w[row][k] * x[token][k], for rows row_begin <= row < row_end. */
struct matmul {
    enum format format;
    const void *w;      /* row 0 */
    uint64_t row_bytes; /* distance between rows */
    int32_t rows, cols;
    const void *act;    /* prepared activations, kind of the format */
    size_t act_stride;  /* bytes between tokens; >= act_row_bytes */
    int32_t tokens;
    float *y;
    size_t y_stride;    /* floats between tokens */
};

/* A KV row: how keys and values are kept. Q8_0 and Q4_0 are GGUF's blocks of 32. */
enum kv_type { KV_F32, KV_F16, KV_Q8_0, KV_Q4_0 };
#define KV_TYPES 4

/* One tile of attention: up to 64 positions of one kv head against nq queries (heads of the group times tokens), each with
 * its own running softmax. Positions j in [lo[i], hi[i]) of the tile are visible to query i (empty range: query untouched).
 * State per query: m (running maximum, starts -INFINITY), l (running sum, starts 0), acc[dv] (starts 0).
 * Order: scores of the visible positions, new maximum over them, rescale by exp(m_old - m_new) once, then positions
 * ascending. */
struct attn_tile {
    enum kv_type type;
    const void *k, *v;      /* 64 rows each: k of dk values, v of dv values, in kv type; row strides below */
    uint64_t k_stride, v_stride;
    int32_t dk, dv;
    int32_t nq;
    const float *const *q;  /* [nq], dk values each, scale already applied */
    float *const *acc;      /* [nq], dv values each */
    float *m, *l;           /* [nq] */
    const int32_t *lo, *hi; /* [nq], within 0..64 */
    float softcap;          /* 0 = off: s = cap * tanh(s / cap) */
    void *scratch;          /* attn_scratch_bytes(dk, dv, nq) bytes, 64-byte aligned */
    const void *ahead;      /* keys of the tile that comes next, to be fetched; NULL = none */
};
#define ATTN_TILE 64
size_t attn_scratch_bytes(int32_t dk, int32_t dv, int32_t nq);

enum act_fn { ACTFN_SILU, ACTFN_GELU_TANH, ACTFN_GELU_ERF, ACTFN_RELU, ACTFN_RELU2, ACTFN_SWIGLU_OAI };

struct kernels {
    const char *isa; /* "scalar", "avx2", ... */

    /* Prepares one row of activations. x[cols] -> dst (act_row_bytes). */
    void (*act_prepare)(enum act_kind kind, const float *x, void *dst, int32_t cols);
    /* Rows [row_begin, row_end) of the product for all tokens. scratch: matmul_scratch_bytes(), 64-byte aligned,
     * private to the thread. */
    void (*matmul)(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch);
    /* Weights of one row as f32 (cols values): embeddings, vectors, tests. */
    void (*dequant)(enum format f, const void *row, float *out, int32_t cols);

    void (*rms_norm)(const float *x, const float *w /* NULL = none */, float eps, float *y, int32_t n); /* y may be x */
    void (*layer_norm)(const float *x, const float *w, const float *b, float eps, float *y, int32_t n);
    void (*add)(float *y, const float *x, int32_t n);                       /* y += x */
    void (*add_scaled)(float *y, const float *x, float s, int32_t n);       /* y += s * x */
    void (*scale)(float *y, float s, int32_t n);
    /* h[i] = act(g[i]) * u[i]; u NULL: act alone. h may be g. */
    void (*gated)(enum act_fn f, const float *g, const float *u, float *h, int32_t n);
    void (*softcap)(float *x, float cap, int32_t n);
    void (*softmax)(float *x, int32_t n);
    /* Rotates n_heads heads of head_dim floats in place; cos, sin: r/2 values of this position.
     * half_split: pairs (i, i + r/2), else (2i, 2i+1), of the r values that start at offset off of each head. */
    void (*rope)(float *x, int32_t n_heads, int32_t head_dim, int32_t off, int32_t r, bool half_split,
                 const float *cos, const float *sin);
    void (*kv_store)(enum kv_type t, const float *x, void *dst, int32_t n);
    void (*attn_tile)(const struct attn_tile *a);
};

/* Bytes of one KV row of n values. KV_Q8_0 and KV_Q4_0 round n up to 32. */
size_t kv_row_bytes(enum kv_type t, int32_t n);
/* Scratch for one thread, enough for any format and any call of up to max_tokens tokens and max_cols columns; bounded
 * whatever these are (docs/kernels.md). */
size_t matmul_scratch_bytes(int32_t max_cols, int32_t max_tokens);

/* Names known: "auto" (the best the processor has), "scalar", "avx2", "avxvnni", "avx512", "neon", "i8mm". One that this processor or build
 * lacks is LEAT_ERR_UNSUPPORTED naming what is missing. The table is immutable and lives for ever. */
int kernels_select(const char *isa, const struct kernels **out, struct leat_error *e);
/* The i-th tier this processor can run, NULL past the last; tier 0 is scalar. */
const struct kernels *kernels_tier(int32_t i);

/* Portable helpers. */
float half_to_float(uint16_t h);
uint16_t float_to_half(float f); /* round to nearest even */
float bf16_to_float(uint16_t h);

#endif
