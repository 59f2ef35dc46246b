/* Activations as int8 for ARM, the bits of act_scalar.c. Baseline Advanced SIMD. Pure, any thread. */
#include "act.h"
#include "matmul_tiers.h"

#include <arm_neon.h>
#include <string.h>

/* Largest magnitude of n values (a multiple of 32) as bits; NaN is above infinity. */
static uint32_t top_bits(const float *x, int32_t n)
{
    const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
    uint32x4_t top[4] = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
    for (int32_t i = 0; i < n; i += 16)
        for (int k = 0; k < 4; k++)
            top[k] = vmaxq_u32(
                top[k], vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i + 4 * k)), magnitude));
    return vmaxvq_u32(vmaxq_u32(vmaxq_u32(top[0], top[1]), vmaxq_u32(top[2], top[3])));
}

/* Sixteen levels, which are within -127..127; their sum. */
static inline int16_t levels16(const float *x, float32x4_t inverse, int8_t *q)
{
    int16x4_t v[4];
    for (int k = 0; k < 4; k++)
        v[k] = vmovn_s32(vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + 4 * k), inverse)));
    const int16x8_t low = vcombine_s16(v[0], v[1]), high = vcombine_s16(v[2], v[3]);
    vst1q_s8(q, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    return vaddvq_s16(vaddq_s16(low, high));
}

void act_prepare_neon(enum act_kind kind, const float *x, void *dst, int32_t cols)
{
    if (kind == ACT_F32) {
        act_prepare_scalar(kind, x, dst, cols);
        return;
    }
    struct act_layout l = act_layout_of(kind, cols);
    char *p = dst;
    int32_t group = kind == ACT_Q8_32 ? 32 : 256;
    int32_t parts = kind == ACT_Q8_32 ? 1 : 16; /* sums per group */
    int8_t *q = (int8_t *)p;
    float *scale = (float *)(p + l.scale);
    int16_t *sums = (int16_t *)(p + l.sums);
    int32_t groups = cols / group;
    memset(q + cols, 0, l.scale - (size_t)cols);
    memset(scale + groups, 0, l.sums - l.scale - (size_t)groups * sizeof *scale);
    memset(sums + groups * parts, 0, l.bytes - l.sums - (size_t)(groups * parts) * sizeof *sums);
    for (int32_t g = 0; g < groups; g++, x += group, q += group, sums += parts) {
        uint32_t top = top_bits(x, group);
        if (top < ACT_TINY_BITS || top >= ACT_INF_BITS) {
            uint32_t s = top >= ACT_INF_BITS ? ACT_NAN_BITS : 0;
            memcpy(&scale[g], &s, sizeof s);
            memset(q, 0, (size_t)group);
            memset(sums, 0, (size_t)parts * sizeof *sums);
            continue;
        }
        float amax;
        memcpy(&amax, &top, sizeof amax);
        scale[g] = amax / 127.0f;
        const float32x4_t inverse = vdupq_n_f32(127.0f / amax);
        for (int32_t i = 0; i < group; i += 32) {
            const int16_t low = levels16(x + i, inverse, q + i),
                          high = levels16(x + i + 16, inverse, q + i + 16);
            if (kind == ACT_Q8_32) {
                sums[0] = (int16_t)(low + high);
            } else {
                sums[i / 16] = low;
                sums[i / 16 + 1] = high;
            }
        }
    }
}
