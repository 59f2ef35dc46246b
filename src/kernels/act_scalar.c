/* Activations as int8, portable; the definition the wider act_prepare must match bit by bit.
 *
 * Per group of 32 or 256: amax is the largest magnitude; level = round to nearest even of
 * x * (127 / amax), scale = amax / 127. Levels are within -127..127, never -128 (the sign trick of
 * the AVX2 products needs that). Groups with an infinity or NaN, or below 2^-100: act.h.
 * Assumes the default rounding mode. Pure, any thread. */
#include "act.h"
#include "matmul_tiers.h"

#include <string.h>

size_t act_row_bytes(enum act_kind kind, int32_t cols)
{
    return act_layout_of(kind, cols).bytes;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Quantises n values with one scale. */
static float quantise_group(const float *x, int8_t *q, int32_t n)
{
    uint32_t top = 0; /* magnitudes compare as integers, NaN above infinity */
    for (int32_t i = 0; i < n; i++) {
        uint32_t b = bits_of(x[i]) & 0x7fffffff;
        top = b > top ? b : top;
    }
    float amax, scale;
    if (top < ACT_TINY_BITS || top >= ACT_INF_BITS) {
        memset(q, 0, (size_t)n);
        uint32_t s = top >= ACT_INF_BITS ? ACT_NAN_BITS : 0;
        memcpy(&scale, &s, sizeof scale);
        return scale;
    }
    memcpy(&amax, &top, sizeof amax);
    float inverse = 127.0f / amax;
    for (int32_t i = 0; i < n; i++) {
        /* Adding 1.5 * 2^23 leaves the integer, rounded to even, in the low bits. */
        uint32_t b = bits_of(x[i] * inverse + 12582912.0f);
        q[i] = (int8_t)(int32_t)(b - 0x4b400000u);
    }
    return amax / 127.0f;
}

void act_prepare_scalar(enum act_kind kind, const float *x, void *dst, int32_t cols)
{
    struct act_layout l = act_layout_of(kind, cols);
    char *p = dst;
    if (kind == ACT_F32) {
        memcpy(p, x, (size_t)cols * sizeof *x);
        memset(p + (size_t)cols * sizeof *x, 0, l.bytes - (size_t)cols * sizeof *x);
        return;
    }
    int32_t group = kind == ACT_Q8_32 ? 32 : 256, part = kind == ACT_Q8_32 ? 32 : 16;
    int8_t *q = (int8_t *)p;
    float *scale = (float *)(p + l.scale);
    int16_t *sums = (int16_t *)(p + l.sums);
    memset(q + cols, 0, l.scale - (size_t)cols);
    memset(scale + cols / group, 0, l.sums - l.scale - (size_t)(cols / group) * sizeof *scale);
    memset(sums + cols / part, 0, l.bytes - l.sums - (size_t)(cols / part) * sizeof *sums);
    for (int32_t i = 0; i < cols; i += group)
        scale[i / group] = quantise_group(x + i, q + i, group);
    for (int32_t i = 0; i < cols; i += part) {
        int32_t sum = 0;
        for (int32_t j = 0; j < part; j++)
            sum += q[i + j];
        sums[i / part] = (int16_t)sum;
    }
}
