/* Attention over one tile of 64 positions, ARM version. Knows no sequence, no page, no mask but a
 * range per query. Baseline Advanced SIMD. Pure; any thread.
 *
 * As in ops_attn_avx2.c, with vectors of two neighbouring values of two positions, and in the same
 * orders: a score is the sum of a row's even values, ascending, plus that of the odd ones; a running
 * sum takes the weights in sixteen lanes (position mod 16), added 8, 4, 2, 1 apart; values are added
 * position by position. What lies at positions no query sees is never added, so it may be anything.
 * Nothing is fetched ahead: that wants measuring on a processor. */
#include "ops.h"

#if defined(__aarch64__)

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops_neon.h"

#define COLS  64 /* values of a row that are unpacked at a time */
#define HALF  32 /* positions whose keys are turned at a time */
#define BLOCK 4  /* queries that stand in registers together: 16 sums of 32 registers */
#define ROWS  16 /* rows that few queries take at a time */

#define INLINE __attribute__((always_inline)) static inline

static inline int32_t up16(int32_t n)
{
    return (n + 15) & ~15;
}

INLINE float32x4x2_t scaled8(int8x8_t q, uint16_t d)
{
    const float32x4_t f = vdupq_n_f32(half_to_float(d));
    const int16x8_t w = vmovl_s8(q);
    return (float32x4x2_t){{vmulq_f32(f, vcvtq_f32_s32(vmovl_s16(vget_low_s16(w)))),
                            vmulq_f32(f, vcvtq_f32_s32(vmovl_high_s16(w)))}};
}

/* Values [c, c + 8) of a row as f32, zeros beyond the n that are there; c is a multiple of 8. t is
 * a constant at every call. */
INLINE float32x4x2_t row_part(enum kv_type t, const uint8_t *row, int32_t c, int32_t n)
{
    uint8_t part[32] = {0};
    uint16_t d;
    switch (t) {
    case KV_F32:
        row += (size_t)c * 4;
        if (n - c < 8)
            row = memcpy(part, row, n > c ? (size_t)(n - c) * 4 : 0);
        return (float32x4x2_t){
            {vreinterpretq_f32_u8(vld1q_u8(row)), vreinterpretq_f32_u8(vld1q_u8(row + 16))}};
    case KV_F16: {
        row += (size_t)c * 2;
        if (n - c < 8)
            row = memcpy(part, row, n > c ? (size_t)(n - c) * 2 : 0);
        const float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(row));
        return (float32x4x2_t){{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
    }
    case KV_Q8_0:
        if (c >= n) /* a row is stored in whole blocks of 32 */
            break;
        row += (size_t)c / 32 * 34;
        memcpy(&d, row, 2);
        return scaled8(vld1_s8((const int8_t *)row + 2 + c % 32), d);
    case KV_Q4_0: {
        if (c >= n)
            break;
        row += (size_t)c / 32 * 18;
        memcpy(&d, row, 2);
        uint8x8_t q = vld1_u8(row + 2 + c % 16);
        q = c % 32 < 16 ? vand_u8(q, vdup_n_u8(15)) : vshr_n_u8(q, 4);
        return scaled8(vsub_s8(vreinterpret_s8_u8(q), vdup_n_s8(8)), d);
    }
    }
    return (float32x4x2_t){{vdupq_n_f32(0), vdupq_n_f32(0)}};
}

/* Values [c, c + 8) of two rows -> for each of four pairs, both rows. */
INLINE void keys_turn(enum kv_type t, const uint8_t *k, uint64_t stride, int32_t c, int32_t n,
                      float32x4_t out[4])
{
    const float32x4x2_t a = row_part(t, k, c, n), b = row_part(t, k + stride, c, n);
    OPS_UNROLL
    for (int i = 0; i < 2; i++) {
        const float64x2_t x = vreinterpretq_f64_f32(a.val[i]), y = vreinterpretq_f64_f32(b.val[i]);
        out[2 * i] = vreinterpretq_f32_f64(vzip1q_f64(x, y));
        out[2 * i + 1] = vreinterpretq_f32_f64(vzip2q_f64(x, y));
    }
}

INLINE float32x4_t pair_of(const float *q)
{
    const float32x2_t two = vld1_f32(q);
    return vcombine_f32(two, two);
}

/* Eight scores from the sums of two positions each: even plus odd. */
INLINE void scores_end(const float32x4_t a[4], float *s)
{
    vst1q_f32(s, vpaddq_f32(a[0], a[1]));
    vst1q_f32(s + 4, vpaddq_f32(a[2], a[3]));
}

/* Scores of nq queries at eight positions, rows from memory. q is padded to a multiple of 16. */
INLINE void scores_direct(enum kv_type t, int32_t nq, const uint8_t *k, uint64_t stride, int32_t dk,
                          const float *const *q, float *const *s)
{
    float32x4_t a[BLOCK][4];
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        a[i][0] = a[i][1] = a[i][2] = a[i][3] = vdupq_n_f32(0);
    for (int32_t c = 0; c < dk; c += 8) {
        OPS_UNROLL
        for (int g = 0; g < 4; g++) {
            float32x4_t v[4];
            if (dk - c >= 8)
                keys_turn(t, k + (uint64_t)(2 * g) * stride, stride, c, c + 8, v);
            else
                keys_turn(t, k + (uint64_t)(2 * g) * stride, stride, c, dk, v);
            OPS_UNROLL
            for (int p = 0; p < 4; p++)
                OPS_UNROLL
                for (int32_t i = 0; i < nq; i++)
                    a[i][g] = vfmaq_f32(a[i][g], pair_of(q[i] + c + 2 * p), v[p]);
        }
    }
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        scores_end(a[i], s[i]);
}

/* Scores of nq queries at eight positions, from keys_stage. */
INLINE void scores_staged(int32_t nq, const float *k, int32_t dk, const float *const *q,
                          float *const *s)
{
    float32x4_t a[BLOCK][4];
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        a[i][0] = a[i][1] = a[i][2] = a[i][3] = vdupq_n_f32(0);
    for (int32_t c = 0; c < dk; c += 2, k += 16) {
        const float32x4_t k0 = vld1q_f32(k), k1 = vld1q_f32(k + 4), k2 = vld1q_f32(k + 8),
                          k3 = vld1q_f32(k + 12);
        OPS_UNROLL
        for (int32_t i = 0; i < nq; i++) {
            const float32x4_t v = pair_of(q[i] + c);
            a[i][0] = vfmaq_f32(a[i][0], v, k0);
            a[i][1] = vfmaq_f32(a[i][1], v, k1);
            a[i][2] = vfmaq_f32(a[i][2], v, k2);
            a[i][3] = vfmaq_f32(a[i][3], v, k3);
        }
    }
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        scores_end(a[i], s[i]);
}

/* A function of its own for each type (STAGED: none) and count of queries. */
typedef void (*scores_fn)(const void *k, uint64_t stride, int32_t dk, const float *const *q,
                          float *const *s);
#define DIRECT(name, type, nq)                                                                     \
    static void scores_##name##_##nq(const void *k, uint64_t stride, int32_t dk,                   \
                                     const float *const *q, float *const *s)                       \
    {                                                                                              \
        scores_direct(type, nq, k, stride, dk, q, s);                                              \
    }
#define STAGED(nq)                                                                                 \
    static void scores_staged_##nq(const void *k, uint64_t stride, int32_t dk,                     \
                                   const float *const *q, float *const *s)                         \
    {                                                                                              \
        (void)stride;                                                                              \
        scores_staged(nq, k, dk, q, s);                                                            \
    }
#define DIRECT_ALL(name, type)                                                                     \
    DIRECT(name, type, 1) DIRECT(name, type, 2) DIRECT(name, type, 3) DIRECT(name, type, 4)
DIRECT_ALL(f32, KV_F32)
DIRECT_ALL(f16, KV_F16)
DIRECT_ALL(q8_0, KV_Q8_0)
DIRECT_ALL(q4_0, KV_Q4_0)
STAGED(1)
STAGED(2)
STAGED(3)
STAGED(4)
#define SCORES_ROW(name)                                                                           \
    {                                                                                              \
        scores_##name##_1, scores_##name##_2, scores_##name##_3, scores_##name##_4                 \
    }
static const scores_fn scores_few[KV_TYPES][BLOCK] = {[KV_F32] = SCORES_ROW(f32),
                                                      [KV_F16] = SCORES_ROW(f16),
                                                      [KV_Q8_0] = SCORES_ROW(q8_0),
                                                      [KV_Q4_0] = SCORES_ROW(q4_0)};
static const scores_fn scores_many[BLOCK] = SCORES_ROW(staged);

/* Turns HALF positions: groups of eight, each with all its pairs, up to a multiple of 16 values. */
INLINE void keys_stage(enum kv_type t, const uint8_t *k, uint64_t stride, int32_t dk, float *out)
{
    for (int32_t g = 0; g < HALF; g += 8)
        for (int32_t c = 0; c < up16(dk); c += 8, out += 64)
            OPS_UNROLL
            for (int h = 0; h < 4; h++) {
                float32x4_t v[4];
                const uint8_t *two = k + (uint64_t)(g + 2 * h) * stride;
                if (dk - c >= 8)
                    keys_turn(t, two, stride, c, c + 8, v);
                else
                    keys_turn(t, two, stride, c, dk, v);
                OPS_UNROLL
                for (int p = 0; p < 4; p++)
                    vst1q_f32(out + 16 * p + 4 * h, v[p]);
            }
}

static void keys_stage_any(enum kv_type t, const uint8_t *k, uint64_t stride, int32_t dk,
                           float *out)
{
    switch (t) {
    case KV_F32:
        keys_stage(KV_F32, k, stride, dk, out);
        break;
    case KV_F16:
        keys_stage(KV_F16, k, stride, dk, out);
        break;
    case KV_Q8_0:
        keys_stage(KV_Q8_0, k, stride, dk, out);
        break;
    case KV_Q4_0:
        keys_stage(KV_Q4_0, k, stride, dk, out);
        break;
    }
}

static void scores_make(const struct attn_tile *a, int32_t first, int32_t last, float *weights,
                        float *keys, const float *padded)
{
    const int32_t dk = up16(a->dk), step = a->nq <= BLOCK ? 8 : HALF;
    const float *q[BLOCK];
    float *s[BLOCK];
    for (int32_t j0 = first & ~(step - 1); j0 < last; j0 += step) {
        const uint8_t *k = (const uint8_t *)a->k + (uint64_t)j0 * a->k_stride;
        int32_t n = 0;
        if (step == HALF)
            keys_stage_any(a->type, k, a->k_stride, a->dk, keys);
        for (int32_t i = 0; i < a->nq; i++) {
            if (a->lo[i] < j0 + step && a->hi[i] > j0) {
                q[n] = padded ? padded + (size_t)i * (size_t)dk : a->q[i];
                s[n++] = weights + (size_t)i * ATTN_TILE + j0;
            }
            if (step == HALF && (n == BLOCK || (n > 0 && i == a->nq - 1))) {
                for (int32_t g = 0; g < HALF; g += 8) {
                    scores_many[n - 1](keys + (size_t)g * (size_t)dk, 0, dk, q, s);
                    for (int32_t h = 0; h < n; h++)
                        s[h] += 8;
                }
                n = 0;
            }
        }
        if (n > 0)
            scores_few[a->type][n - 1](k, a->k_stride, a->dk, q, s);
    }
}

/* ---- scores to weights ---- */

/* s where the query sees position j0 + lane, else -infinity. */
INLINE float32x4_t seen(float32x4_t s, int32_t j0, int32_t lo, int32_t hi)
{
    static const int32_t lane[4] = {0, 1, 2, 3};
    const int32x4_t j = vaddq_s32(vdupq_n_s32(j0), vld1q_s32(lane));
    const uint32x4_t in = vandq_u32(vcgeq_s32(j, vdupq_n_s32(lo)), vcltq_s32(j, vdupq_n_s32(hi)));
    return vbslq_f32(in, s, vdupq_n_f32(-INFINITY));
}

/* Running maximum and sum of one query. Returns the factor of what was summed so far. */
static float weights_make(float *s, int32_t lo, int32_t hi, float softcap, float *m, float *l)
{
    const float32x4_t cap = vdupq_n_f32(softcap);
    float32x4_t top = vdupq_n_f32(-INFINITY), sum[4];
    for (int32_t j = 0; j < ATTN_TILE; j += 4) {
        float32x4_t v = seen(vld1q_f32(s + j), j, lo, hi);
        if (softcap != 0)
            v = seen(vmulq_f32(cap, ops_tanh4(vdivq_f32(v, cap))), j, lo, hi);
        vst1q_f32(s + j, v);
        top = vmaxnmq_f32(v, top); /* a NaN does not become the maximum */
    }
    const float new = vmaxnmvq_f32(top), max = new > *m ? new : *m;
    const float32x4_t max4 = vdupq_n_f32(max);
    sum[0] = sum[1] = sum[2] = sum[3] = vdupq_n_f32(0);
    for (int32_t j = 0; j < ATTN_TILE; j += 16)
        OPS_UNROLL
        for (int h = 0; h < 4; h++) { /* -infinity gives 0 */
            const float32x4_t v = ops_exp4(vsubq_f32(vld1q_f32(s + j + 4 * h), max4));
            vst1q_f32(s + j + 4 * h, v);
            sum[h] = vaddq_f32(sum[h], v);
        }
    const float32x4_t four = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    const float factor = max == *m ? 1.0f : ops_exp1(*m - max);
    *l = *l * factor + (vget_lane_f32(two, 0) + vget_lane_f32(two, 1));
    *m = max;
    return factor;
}

/* ---- values ---- */

struct value_block { /* queries that stand together */
    float *acc[BLOCK];
    const float *p[BLOCK];
    float factor[BLOCK]; /* of acc */
    int32_t lo[BLOCK], hi[BLOCK];
};

/* acc = acc * factor + sum of p[j] v[j], 8 nv columns from c0 of a row (n < 8 nv: the last ones are
 * not all there) of nq queries; acc is that of column `at`. */
INLINE void values_block(enum kv_type t, int32_t nq, int32_t nv, int32_t n,
                         const struct value_block *b, const uint8_t *v, uint64_t stride, int32_t c0,
                         int32_t at)
{
    float32x4_t a[BLOCK][8];
    int32_t first = ATTN_TILE, last = 0;
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++) {
        OPS_UNROLL
        for (int32_t c = 0; c < 2 * nv; c++)
            a[i][c] = vmulq_n_f32(n >= 8 * nv ? vld1q_f32(b->acc[i] + at + 4 * c)
                                              : ops_load4(b->acc[i] + at + 4 * c, n - 4 * c),
                                  b->factor[i]);
        first = b->lo[i] < first ? b->lo[i] : first;
        last = b->hi[i] > last ? b->hi[i] : last;
    }
    for (int32_t j = first; j < last; j++) {
        const uint8_t *row = v + (uint64_t)j * stride;
        float32x4x2_t r[4];
        OPS_UNROLL
        for (int32_t c = 0; c < nv; c++)
            r[c] = n >= 8 * nv ? row_part(t, row, c0 + 8 * c, c0 + 8 * c + 8)
                               : row_part(t, row, c0 + 8 * c, c0 + n);
        OPS_UNROLL
        for (int32_t i = 0; i < nq; i++) {
            if (j < b->lo[i] || j >= b->hi[i])
                continue;
            const float w = b->p[i][j];
            OPS_UNROLL
            for (int32_t c = 0; c < nv; c++) {
                a[i][2 * c] = vfmaq_n_f32(a[i][2 * c], r[c].val[0], w);
                a[i][2 * c + 1] = vfmaq_n_f32(a[i][2 * c + 1], r[c].val[1], w);
            }
        }
    }
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        OPS_UNROLL
        for (int32_t c = 0; c < 2 * nv; c++)
            if (n >= 8 * nv)
                vst1q_f32(b->acc[i] + at + 4 * c, a[i][c]);
            else
                ops_store4(b->acc[i] + at + 4 * c, n - 4 * c, a[i][c]);
}

/* n columns from c0 on, n up to COLS. */
INLINE void values_cols(enum kv_type t, int32_t nq, int32_t n, const struct value_block *b,
                        const uint8_t *v, uint64_t stride, int32_t c0, int32_t at)
{
    const int32_t nv = nq <= 2 ? 4 : 2;
    int32_t c = 0;
    for (; c + 8 * nv <= n; c += 8 * nv)
        values_block(t, nq, nv, 8 * nv, b, v, stride, c0 + c, at + c);
    for (; c < n; c += 8)
        values_block(t, nq, 1, n - c, b, v, stride, c0 + c, at + c);
}

typedef void (*values_fn)(int32_t n, const struct value_block *b, const uint8_t *v, uint64_t stride,
                          int32_t c0, int32_t at);

#define VALUES(name, type, nq)                                                                     \
    static void values_##name##_##nq(int32_t n, const struct value_block *b, const uint8_t *v,     \
                                     uint64_t stride, int32_t c0, int32_t at)                      \
    {                                                                                              \
        values_cols(type, nq, n, b, v, stride, c0, at);                                            \
    }
#define VALUES_ALL(name, type)                                                                     \
    VALUES(name, type, 1) VALUES(name, type, 2) VALUES(name, type, 3) VALUES(name, type, 4)
VALUES_ALL(f32, KV_F32)
VALUES_ALL(f16, KV_F16)
VALUES_ALL(q8_0, KV_Q8_0)
VALUES_ALL(q4_0, KV_Q4_0)
#define VALUES_ROW(name)                                                                           \
    {                                                                                              \
        values_##name##_1, values_##name##_2, values_##name##_3, values_##name##_4                 \
    }
static const values_fn values_of[KV_TYPES][BLOCK] = {[KV_F32] = VALUES_ROW(f32),
                                                     [KV_F16] = VALUES_ROW(f16),
                                                     [KV_Q8_0] = VALUES_ROW(q8_0),
                                                     [KV_Q4_0] = VALUES_ROW(q4_0)};

/* Columns [c0, c0 + n) of rows [first, last) as f32, COLS apart. */
INLINE void rows_stage(enum kv_type t, const struct attn_tile *a, int32_t first, int32_t last,
                       int32_t c0, int32_t n, float *out)
{
    for (int32_t j = first; j < last; j++) {
        const uint8_t *row = (const uint8_t *)a->v + (uint64_t)j * a->v_stride;
        float *to = out + (size_t)j * COLS;
        for (int32_t c = 0; c < n; c += 8) {
            const float32x4x2_t r = row_part(t, row, c0 + c, c0 + n);
            vst1q_f32(to + c, r.val[0]);
            vst1q_f32(to + c + 4, r.val[1]);
        }
    }
}

static void rows_stage_any(const struct attn_tile *a, int32_t first, int32_t last, int32_t c0,
                           int32_t n, float *out)
{
    switch (a->type) {
    case KV_F32:
        rows_stage(KV_F32, a, first, last, c0, n, out);
        break;
    case KV_F16:
        rows_stage(KV_F16, a, first, last, c0, n, out);
        break;
    case KV_Q8_0:
        rows_stage(KV_Q8_0, a, first, last, c0, n, out);
        break;
    case KV_Q4_0:
        rows_stage(KV_Q4_0, a, first, last, c0, n, out);
        break;
    }
}

/* Up to BLOCK queries, rows from memory: a few rows at a time with all their columns, so that
 * memory is read in order; acc waits in the first cache meanwhile. */
static void values_add_few(const struct attn_tile *a, int32_t first, int32_t last,
                           const float *weights, const float *factors)
{
    for (int32_t j0 = first & ~(ROWS - 1); j0 < last; j0 += ROWS) {
        struct value_block b;
        int32_t n = 0;
        for (int32_t i = 0; i < a->nq; i++) {
            const int32_t lo = a->lo[i] > j0 ? a->lo[i] : j0,
                          hi = a->hi[i] < j0 + ROWS ? a->hi[i] : j0 + ROWS;
            if (lo >= hi)
                continue;
            b.acc[n] = a->acc[i];
            b.p[n] = weights + (size_t)i * ATTN_TILE;
            b.factor[n] = a->lo[i] >= j0 ? factors[i] : 1.0f; /* once, with the first rows */
            b.lo[n] = lo;
            b.hi[n++] = hi;
        }
        for (int32_t c0 = 0; n > 0 && c0 < a->dv; c0 += COLS)
            values_of[a->type][n - 1](a->dv - c0 < COLS ? a->dv - c0 : COLS, &b, a->v, a->v_stride,
                                      c0, c0);
    }
}

static void values_add_many(const struct attn_tile *a, int32_t first, int32_t last,
                            const float *weights, const float *factors, float *rows)
{
    for (int32_t c0 = 0; c0 < a->dv; c0 += COLS) {
        const int32_t n = a->dv - c0 < COLS ? a->dv - c0 : COLS;
        struct value_block b;
        int32_t held = 0;
        rows_stage_any(a, first, last, c0, n, rows);
        for (int32_t i = 0; i < a->nq; i++) {
            if (a->lo[i] < a->hi[i]) {
                b.acc[held] = a->acc[i];
                b.p[held] = weights + (size_t)i * ATTN_TILE;
                b.factor[held] = factors[i];
                b.lo[held] = a->lo[i];
                b.hi[held++] = a->hi[i];
            }
            if (held == BLOCK || (held > 0 && i == a->nq - 1)) {
                values_of[KV_F32][held - 1](n, &b, (const uint8_t *)rows, COLS * sizeof(float), 0,
                                            c0);
                held = 0;
            }
        }
    }
}

void ops_attn_tile_neon(const struct attn_tile *a)
{
    float *weights = a->scratch;
    float *factors = weights + (size_t)a->nq * ATTN_TILE;
    float *padded = factors + up16(a->nq);
    float *rows = padded;
    int32_t first = ATTN_TILE, last = 0;
    for (int32_t i = 0; i < a->nq; i++) {
        assert(a->lo[i] >= 0 && a->hi[i] <= ATTN_TILE);
        if (a->lo[i] >= a->hi[i])
            continue;
        first = a->lo[i] < first ? a->lo[i] : first;
        last = a->hi[i] > last ? a->hi[i] : last;
    }
    if (first >= last)
        return;
    if (a->dk % 16 != 0) {
        const size_t row = (size_t)up16(a->dk);
        memset(padded, 0, (size_t)a->nq * row * sizeof *padded);
        for (int32_t i = 0; i < a->nq; i++)
            memcpy(padded + (size_t)i * row, a->q[i], (size_t)a->dk * sizeof *padded);
        rows += (size_t)a->nq * row;
    } else {
        padded = NULL;
    }
    scores_make(a, first, last, weights, rows, padded);
    for (int32_t i = 0; i < a->nq; i++)
        if (a->lo[i] < a->hi[i])
            factors[i] = weights_make(weights + (size_t)i * ATTN_TILE, a->lo[i], a->hi[i],
                                      a->softcap, &a->m[i], &a->l[i]);
    if (a->nq <= BLOCK)
        values_add_few(a, first, last, weights, factors);
    else
        values_add_many(a, first, last, weights, factors, rows);
}

#else
typedef int ops_attn_neon_is_empty_here; /* a translation unit may not be empty */
#endif
