/* Products for ARM: Advanced SIMD with dotprod, and (built once more with KERNELS_I8MM) with i8mm. A
 * block is unpacked once into registers' worth of signed bytes and multiplied with up to a tile of
 * tokens; i8mm takes two rows and two tokens at a time. Sums inside a block are exact integers, and the
 * few float operations per block are those of matmul_scalar.c in its order, so the bits are equal.
 * Floats: element k goes to lane k mod 16, fused; lanes are added 8, 4, 2, 1 apart. Layouts of the
 * formats: format_unpack.c. Knows nothing of threads or of where weights come from. */
#include "act.h"
#include "matmul_tiers.h"

#include <arm_neon.h>
#include <assert.h>
#include <string.h>

#if defined(KERNELS_I8MM)
#define matmul_neon matmul_i8mm
#endif

#define NEON_INLINE static inline __attribute__((always_inline))

enum { TOKENS = 32 }; /* accumulators of a row that are held at once */

struct levels {
    int8x16_t q[16];
    float d, m;
    int32_t s[16];
    int16_t t[16]; /* minima, of 16 each */
};

NEON_INLINE uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

NEON_INLINE float load_half(const uint8_t *p)
{
    return half_to_float(load_u16(p));
}

NEON_INLINE void nibbles(const uint8_t *p, uint8x16_t *low, uint8x16_t *high)
{
    const uint8x16_t b = vld1q_u8(p);
    *low = vandq_u8(b, vdupq_n_u8(15));
    *high = vshrq_n_u8(b, 4);
}

/* Nibbles less an offset. */
NEON_INLINE void levels_less(const uint8_t *p, int8_t offset, int8x16_t q[2])
{
    uint8x16_t low, high;
    nibbles(p, &low, &high);
    q[0] = vsubq_s8(vreinterpretq_s8_u8(low), vdupq_n_s8(offset));
    q[1] = vsubq_s8(vreinterpretq_s8_u8(high), vdupq_n_s8(offset));
}

NEON_INLINE void levels_table(const uint8_t *p, const int8_t *table, int8x16_t q[2])
{
    const int8x16_t t = vld1q_s8(table);
    uint8x16_t low, high;
    nibbles(p, &low, &high);
    q[0] = vqtbl1q_s8(t, low);
    q[1] = vqtbl1q_s8(t, high);
}

/* 16 where the bit of the element is set: bits 8 i + e of the two bytes at p. */
NEON_INLINE int8x16_t fifth_bits(const uint8_t *p)
{
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t b = vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1]));
    return vreinterpretq_s8_u8(vandq_u8(vtstq_u8(b, vld1q_u8(bit)), vdupq_n_u8(16)));
}

static const int8_t level_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
static const int8_t level_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

NEON_INLINE void unpack32(enum format f, const uint8_t *b, struct levels *u)
{
    switch (f) {
    case FORMAT_Q4_0:
        u->d = load_half(b);
        levels_less(b + 2, 8, u->q);
        break;
    case FORMAT_Q5_0:
    case FORMAT_Q5_1: {
        const size_t head = f == FORMAT_Q5_0 ? 2 : 4;
        u->d = load_half(b);
        u->m = f == FORMAT_Q5_1 ? load_half(b + 2) : 0;
        levels_less(b + head + 4, f == FORMAT_Q5_0 ? 16 : 0, u->q);
        u->q[0] = vaddq_s8(u->q[0], fifth_bits(b + head));
        u->q[1] = vaddq_s8(u->q[1], fifth_bits(b + head + 2));
        break;
    }
    case FORMAT_Q8_0:
        u->d = load_half(b);
        u->q[0] = vld1q_s8((const int8_t *)b + 2);
        u->q[1] = vld1q_s8((const int8_t *)b + 18);
        break;
    case FORMAT_MXFP4: {
        const uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23;
        memcpy(&u->d, &bits, sizeof u->d);
        levels_table(b + 1, level_mxfp4, u->q);
        break;
    }
    default: /* IQ4_NL */
        u->d = load_half(b);
        levels_table(b + 2, level_iq4, u->q);
    }
}

NEON_INLINE void scales_6bit(const uint8_t *s, struct levels *u)
{
    for (int g = 0; g < 8; g++) {
        const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        const int min = g < 4 ? s[g + 4] & 63 : (s[g + 4] >> 4) | (s[g] >> 6) << 4;
        u->s[2 * g] = u->s[2 * g + 1] = scale;
        u->t[2 * g] = u->t[2 * g + 1] = (int16_t)min;
    }
}

NEON_INLINE void unpack256(enum format f, const uint8_t *b, struct levels *u)
{
    switch (f) {
    case FORMAT_Q4_K:
    case FORMAT_Q5_K: {
        const uint8_t *qs = b + (f == FORMAT_Q4_K ? 16 : 48);
        u->d = load_half(b);
        u->m = load_half(b + 2);
        scales_6bit(b + 4, u);
        for (int p = 0; p < 4; p++)
            for (int h = 0; h < 2; h++) { /* 16 bytes: group 2 p low, 2 p + 1 high */
                int8x16_t two[2];
                levels_less(qs + 32 * p + 16 * h, 0, two);
                if (f == FORMAT_Q5_K) {
                    const uint8x16_t high = vld1q_u8(b + 16 + 16 * h);
                    const uint8x16_t sixteen = vdupq_n_u8(16);
                    const uint8x16_t b0 = vtstq_u8(high, vdupq_n_u8((uint8_t)(1 << 2 * p)));
                    const uint8x16_t b1 = vtstq_u8(high, vdupq_n_u8((uint8_t)(2 << 2 * p)));
                    two[0] = vaddq_s8(two[0], vreinterpretq_s8_u8(vandq_u8(b0, sixteen)));
                    two[1] = vaddq_s8(two[1], vreinterpretq_s8_u8(vandq_u8(b1, sixteen)));
                }
                u->q[4 * p + h] = two[0];
                u->q[4 * p + 2 + h] = two[1];
            }
        break;
    }
    case FORMAT_Q6_K:
        u->d = load_half(b + 208);
        for (int k = 0; k < 16; k++)
            u->s[k] = (int8_t)b[192 + k];
        for (int n = 0; n < 2; n++)
            for (int j = 0; j < 4; j++)
                for (int h = 0; h < 2; h++) {
                    uint8x16_t low, high, v;
                    nibbles(b + 64 * n + 32 * (j & 1) + 16 * h, &low, &high);
                    v = vld1q_u8(b + 128 + 32 * n + 16 * h);
                    v = vshlq_u8(v, vdupq_n_s8((int8_t)(4 - 2 * j))); /* bits 2 j to 4 */
                    v = vorrq_u8(j < 2 ? low : high, vandq_u8(v, vdupq_n_u8(0x30)));
                    u->q[8 * n + 2 * j + h] = vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(32));
                }
        break;
    default: { /* IQ4_XS */
        const uint32_t high = load_u16(b + 2), low = load_u16(b + 4) | (uint32_t)load_u16(b + 6)
                                                                           << 16;
        u->d = load_half(b);
        for (int g = 0; g < 8; g++) {
            u->s[2 * g] = u->s[2 * g + 1] =
                (int32_t)((low >> 4 * g & 15) | (high >> 2 * g & 3) << 4) - 32;
            levels_table(b + 8 + 16 * g, level_iq4, &u->q[2 * g]);
        }
    }
    }
}

NEON_INLINE bool has_min(enum format f)
{
    return f == FORMAT_Q4_K || f == FORMAT_Q5_K;
}

/* What a block adds: dx * (d * sum [+ m * sum of x, - m * sum of minima]). */
NEON_INLINE float term(enum format f, bool is32, const struct levels *u, int32_t sum, float dx,
                       const int16_t *sums)
{
    float v = u->d * (float)sum;
    if (f == FORMAT_Q5_1)
        v = v + u->m * (float)sums[0];
    if (!is32 && has_min(f)) {
        int32x4_t min = vdupq_n_s32(0);
        for (int k = 0; k < 16; k += 4)
            min = vmlal_s16(min, vld1_s16(u->t + k), vld1_s16(sums + k));
        v = v - u->m * (float)vaddvq_s32(min);
    }
    return dx * v;
}

NEON_INLINE int32_t block_dot(bool is32, const struct levels *u, const int8_t *x)
{
    int32x4_t sum = vdupq_n_s32(0);
    if (is32)
        return vaddvq_s32(
            vdotq_s32(vdotq_s32(sum, u->q[0], vld1q_s8(x)), u->q[1], vld1q_s8(x + 16)));
    for (int k = 0; k < 16; k++)
        sum = vmlaq_n_s32(sum, vdotq_s32(vdupq_n_s32(0), u->q[k], vld1q_s8(x + 16 * k)), u->s[k]);
    return vaddvq_s32(sum);
}

#if defined(KERNELS_I8MM)
/* Two rows and two tokens: lanes are (row 0, x), (row 0, y), (row 1, x), (row 1, y). */
NEON_INLINE int32x4_t pair_dot16(int32x4_t sum, int8x16_t a, int8x16_t b, const int8_t *x,
                                 const int8_t *y)
{
    const int8x16_t vx = vld1q_s8(x), vy = vld1q_s8(y);
    const int64x2_t a64 = vreinterpretq_s64_s8(a), b64 = vreinterpretq_s64_s8(b);
    const int64x2_t x64 = vreinterpretq_s64_s8(vx), y64 = vreinterpretq_s64_s8(vy);
    sum = vmmlaq_s32(sum, vreinterpretq_s8_s64(vzip1q_s64(a64, b64)),
                     vreinterpretq_s8_s64(vzip1q_s64(x64, y64)));
    return vmmlaq_s32(sum, vreinterpretq_s8_s64(vzip2q_s64(a64, b64)),
                      vreinterpretq_s8_s64(vzip2q_s64(x64, y64)));
}

NEON_INLINE int32x4_t pair_dot(bool is32, const struct levels u[2], const int8_t *x,
                               const int8_t *y)
{
    int32x4_t sum = vdupq_n_s32(0);
    for (int k = 0; k < (is32 ? 2 : 16); k++) {
        const int32x4_t d =
            pair_dot16(vdupq_n_s32(0), u[0].q[k], u[1].q[k], x + 16 * k, y + 16 * k);
        const int32x4_t s = vcombine_s32(vdup_n_s32(u[0].s[k]), vdup_n_s32(u[1].s[k]));
        sum = is32 ? vaddq_s32(sum, d) : vmlaq_s32(sum, d, s);
    }
    return sum;
}
#define ROWS 2
#else
#define ROWS 1
#endif

/* ROWS rows (n of them there) against nt tokens from t0 on; y itself carries nothing, a call sees all
 * columns. */
NEON_INLINE void rows_tile(enum format f, bool is32, const struct matmul *m, int32_t row, int32_t n,
                           int32_t t0, int32_t nt)
{
    const struct format_info *info = format_info((uint32_t)f);
    const struct act_layout l = act_layout_of(info->act, m->cols);
    const int32_t block = is32 ? 32 : 256, parts = is32 ? 1 : 16;
    const size_t block_bytes = (size_t)info->block_bytes;
    const char *act = (const char *)m->act + (size_t)t0 * m->act_stride;
    float acc[ROWS][TOKENS] = {{0}};
    for (int32_t b = 0; b < m->cols / block; b++) {
        struct levels u[ROWS];
        for (int32_t r = 0; r < n; r++) {
            const uint8_t *w = (const uint8_t *)m->w + (size_t)(row + r) * m->row_bytes;
            __builtin_prefetch(w + m->row_bytes * ROWS + (size_t)b * block_bytes);
            memset(u[r].s, 0, is32 ? sizeof u[r].s : 0);
            if (is32)
                unpack32(f, w + (size_t)b * block_bytes, &u[r]);
            else
                unpack256(f, w + (size_t)b * block_bytes, &u[r]);
        }
        int32_t t = 0;
#if defined(KERNELS_I8MM)
        for (; n == 2 && t + 2 <= nt; t += 2) {
            const char *x = act + (size_t)t * m->act_stride, *y = x + m->act_stride;
            const size_t at = (size_t)b * (size_t)block;
            int32_t sum[4];
            vst1q_s32(sum, pair_dot(is32, u, (const int8_t *)x + at, (const int8_t *)y + at));
            for (int i = 0; i < 4; i++) {
                const char *a = i & 1 ? y : x;
                acc[i >> 1][t + (i & 1)] +=
                    term(f, is32, &u[i >> 1], sum[i], ((const float *)(a + l.scale))[b],
                         (const int16_t *)(a + l.sums) + parts * b);
            }
        }
#endif
        for (; t < nt; t++) {
            const char *x = act + (size_t)t * m->act_stride;
            for (int32_t r = 0; r < n; r++)
                acc[r][t] += term(
                    f, is32, &u[r],
                    block_dot(is32, &u[r], (const int8_t *)x + (size_t)b * (size_t)block),
                    ((const float *)(x + l.scale))[b], (const int16_t *)(x + l.sums) + parts * b);
        }
    }
    for (int32_t t = 0; t < nt; t++)
        for (int32_t r = 0; r < n; r++)
            m->y[(size_t)(t0 + t) * m->y_stride + (size_t)(row + r)] = acc[r][t];
}

NEON_INLINE void rows_walk(enum format f, bool is32, const struct matmul *m, int32_t begin,
                           int32_t end)
{
    for (int32_t row = begin; row < end; row += ROWS)
        for (int32_t t = 0; t < m->tokens; t += TOKENS)
            rows_tile(f, is32, m, row, end - row < ROWS ? end - row : ROWS, t,
                      m->tokens - t < TOKENS ? m->tokens - t : TOKENS);
}

/* ---- floats ---- */

NEON_INLINE float32x4_t load4(enum format f, const uint8_t *p)
{
    if (f == FORMAT_F32)
        return vreinterpretq_f32_u8(vld1q_u8(p));
    const uint16x4_t h = vreinterpret_u16_u8(vld1_u8(p));
    if (f == FORMAT_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(h));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

NEON_INLINE float float_dot(enum format f, const uint8_t *w, const float *x, int32_t cols)
{
    const size_t size = f == FORMAT_F32 ? 4 : 2;
    float32x4_t lane[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    for (int32_t k = 0; k < cols; k += 16) {
        uint8_t last[64] = {0};
        const uint8_t *p = w + size * (size_t)k;
        if (cols - k < 16) /* activations are padded with zeros, weights end here */
            p = memcpy(last, p, size * (size_t)(cols - k));
        for (int i = 0; i < 4; i++)
            lane[i] =
                vfmaq_f32(lane[i], load4(f, p + size * 4 * (size_t)i), vld1q_f32(x + k + 4 * i));
    }
    const float32x4_t four = vaddq_f32(vaddq_f32(lane[0], lane[2]), vaddq_f32(lane[1], lane[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

NEON_INLINE void floats_walk(enum format f, const struct matmul *m, int32_t begin, int32_t end)
{
    for (int32_t row = begin; row < end; row++)
        for (int32_t t = 0; t < m->tokens; t++)
            m->y[(size_t)t * m->y_stride + (size_t)row] = float_dot(
                f, (const uint8_t *)m->w + (size_t)row * m->row_bytes,
                (const float *)((const char *)m->act + (size_t)t * m->act_stride), m->cols);
}

#define WALK32(f)                                                                                  \
    case f:                                                                                        \
        rows_walk(f, true, m, row_begin, row_end);                                                 \
        break;
#define WALK256(f)                                                                                 \
    case f:                                                                                        \
        rows_walk(f, false, m, row_begin, row_end);                                                \
        break;
#define WALKF(f)                                                                                   \
    case f:                                                                                        \
        floats_walk(f, m, row_begin, row_end);                                                     \
        break;

void matmul_neon(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch)
{
    assert(row_begin >= 0 && row_end <= m->rows);
    switch (m->format) {
        WALK32(FORMAT_Q4_0)
        WALK32(FORMAT_Q5_0)
        WALK32(FORMAT_Q5_1)
        WALK32(FORMAT_Q8_0)
        WALK32(FORMAT_MXFP4)
        WALK32(FORMAT_IQ4_NL)
        WALK256(FORMAT_Q4_K)
        WALK256(FORMAT_Q5_K)
        WALK256(FORMAT_Q6_K)
        WALK256(FORMAT_IQ4_XS)
        WALKF(FORMAT_F32)
        WALKF(FORMAT_F16)
        WALKF(FORMAT_BF16)
    default:
        matmul_scalar(m, row_begin, row_end, scratch);
    }
}
