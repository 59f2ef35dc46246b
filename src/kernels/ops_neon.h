/* Four floats at a time: exp, tanh and ends of arrays, shared by the ARM files of ops. The same
 * polynomials, fused in the same places, as ops_avx2.h. Baseline Advanced SIMD; AArch64 only. */
#ifndef KERNELS_OPS_NEON_H
#define KERNELS_OPS_NEON_H

#include <arm_neon.h>
#include <string.h>

#include "ops_math.h"

/* Four values, zeros beyond the n that are there. */
static inline float32x4_t ops_load4(const float *x, int32_t n)
{
    if (n >= 4)
        return vld1q_f32(x);
    float part[4] = {0};
    for (int32_t i = 0; i < n; i++)
        part[i] = x[i];
    return vld1q_f32(part);
}

static inline void ops_store4(float *y, int32_t n, float32x4_t v)
{
    if (n >= 4) {
        vst1q_f32(y, v);
        return;
    }
    float part[4];
    vst1q_f32(part, v);
    for (int32_t i = 0; i < n; i++)
        y[i] = part[i];
}

/* r + r^2 P(r) for x = n ln 2 + r. */
static inline float32x4_t ops_exp_parts4(float32x4_t x, int32x4_t *n)
{
    const float32x4_t round = vdupq_n_f32(EXP_ROUND);
    float32x4_t t = vfmaq_f32(round, x, vdupq_n_f32(EXP_LOG2E));
    *n = vsubq_s32(vreinterpretq_s32_f32(t), vdupq_n_s32((int32_t)EXP_ROUND_BITS));
    t = vsubq_f32(t, round);
    float32x4_t r = vfmsq_f32(x, t, vdupq_n_f32(EXP_LN2_HI));
    r = vfmsq_f32(r, t, vdupq_n_f32(EXP_LN2_LO));
    float32x4_t p = vdupq_n_f32(EXP_P4);
    p = vfmaq_f32(vdupq_n_f32(EXP_P3), p, r);
    p = vfmaq_f32(vdupq_n_f32(EXP_P2), p, r);
    p = vfmaq_f32(vdupq_n_f32(EXP_P1), p, r);
    p = vfmaq_f32(vdupq_n_f32(EXP_P0), p, r);
    return vfmaq_f32(r, vmulq_f32(r, r), p);
}

static inline float32x4_t ops_pow2_4(int32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

static inline float32x4_t ops_exp4(float32x4_t x)
{
    const float32x4_t low = vdupq_n_f32(EXP_LOW);
    /* These min and max hand a NaN on. */
    const float32x4_t c = vmaxq_f32(low, vminq_f32(vdupq_n_f32(EXP_HIGH), x));
    int32x4_t n;
    float32x4_t y = vaddq_f32(vdupq_n_f32(1.0f), ops_exp_parts4(c, &n));
    const int32x4_t half = vshrq_n_s32(n, 1); /* n = 128 needs two steps */
    y = vmulq_f32(y, ops_pow2_4(half));
    y = vmulq_f32(y, ops_pow2_4(vsubq_s32(n, half)));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), vcltq_f32(x, low)));
}

static inline float ops_exp1(float x)
{
    return vgetq_lane_f32(ops_exp4(vdupq_n_f32(x)), 0);
}

static inline float32x4_t ops_tanh4(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f);
    const float32x4_t a = vminq_f32(vdupq_n_f32(TANH_LIMIT), vabsq_f32(x));
    int32x4_t n;
    const float32x4_t p = ops_exp_parts4(vmulq_f32(vdupq_n_f32(-2.0f), a), &n);
    const float32x4_t s = ops_pow2_4(n);
    const float32x4_t e = vfmaq_f32(vsubq_f32(s, one), s, p);             /* exp(-2a) - 1 */
    const float32x4_t y = vdivq_f32(e, vaddq_f32(vdupq_n_f32(2.0f), e)); /* <= 0 */
    return vbslq_f32(vdupq_n_u32(0x80000000u), x, y); /* the sign is that of x */
}

#endif
