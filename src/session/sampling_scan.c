/* Passes over all logits (sampling_scan.h), in vectors of the compiler's own, compiled twice where
 * the processor may have AVX2: without fused operations (the build forbids them) the bits are the
 * same. Pure. */
#include "sampling_scan.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "../kernels/ops_math.h"

#define LANES  8
#define INLINE __attribute__((always_inline)) static inline

/* Never passed by value: how such vectors are passed depends on the instruction set. */
typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2")))
static bool wide(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define WIDE
static bool wide(void)
{
    return false;
}
#endif

const float scan_depth[SCAN_DEPTHS] = {2, 4, 7, 11};

/* Block b of x, the last one filled up with -infinity in room. */
INLINE const float *block_at(const float *x, int32_t n, int32_t b, float room[SCAN_BLOCK])
{
    const int32_t first = b * SCAN_BLOCK;
    if (n - first >= SCAN_BLOCK)
        return x + first;
    for (int32_t i = 0; i < SCAN_BLOCK; i++)
        room[i] = first + i < n ? x[first + i] : -INFINITY;
    return room;
}

INLINE void sum_lanes(const floats *v, double *total)
{
    for (int j = 0; j < LANES; j++)
        *total += (double)(*v)[j];
}

/* ops_exp for x <= 0: the same bits. */
INLINE void exp_lanes(floats *x)
{
    const ints low = *x < EXP_LOW;
    const floats c = (floats)((ints)(*x) & ~low); /* 0 for what is too low */
    floats t = c * EXP_LOG2E + EXP_ROUND;
    const ints n = (ints)t - (int32_t)EXP_ROUND_BITS;
    t -= EXP_ROUND;
    const floats r = (c - t * EXP_LN2_HI) - t * EXP_LN2_LO;
    floats p = r * EXP_P4 + EXP_P3;
    p = p * r + EXP_P2;
    p = p * r + EXP_P1;
    p = p * r + EXP_P0;
    p = 1.0f + (r + (r * r) * p);
    p = p * (floats)((n + 127) << 23);
    *x = (floats)((ints)p & ~low);
}

/* ---- the greatest ---- */

INLINE float greatest(const float *x, int32_t n, struct candidate *top, bool *bad)
{
    float room[SCAN_BLOCK], best = -INFINITY;
    ints wrong = {0};
    const int32_t blocks = scan_blocks(n);
    for (int32_t b = 0; b < blocks; b++) {
        const float *from = block_at(x, n, b, room);
        floats m[4], v;
        memcpy(m, from, sizeof m);
        for (int k = 0; k < 4; k++) /* NaN or +infinity */
            wrong |= ~(m[k] <= FLT_MAX);
        for (int i = 4 * LANES; i < SCAN_BLOCK; i += 4 * LANES)
            for (int k = 0; k < 4; k++) {
                memcpy(&v, from + i + k * LANES, sizeof v);
                const ints more = v > m[k];
                wrong |= ~(v <= FLT_MAX);
                m[k] = (floats)(((ints)v & more) | ((ints)m[k] & ~more));
            }
        for (int h = 2; h > 0; h /= 2)
            for (int k = 0; k < h; k++) {
                const ints more = m[k + h] > m[k];
                m[k] = (floats)(((ints)m[k + h] & more) | ((ints)m[k] & ~more));
            }
        float a = m[0][0];
        for (int j = 1; j < LANES; j++)
            a = m[0][j] > a ? m[0][j] : a;
        top[b].logit = a;
        best = a > best ? a : best;
    }
    *bad = false;
    for (int j = 0; j < LANES; j++)
        *bad |= wrong[j] != 0;
    return best;
}

static float greatest_any(const float *x, int32_t n, struct candidate *top, bool *bad)
{
    return greatest(x, n, top, bad);
}

WIDE static float greatest_wide(const float *x, int32_t n, struct candidate *top, bool *bad)
{
    return greatest(x, n, top, bad);
}

float scan_greatest(const float *x, int32_t n, struct candidate *top, bool *bad)
{
    return wide() ? greatest_wide(x, n, top, bad) : greatest_any(x, n, top, bad);
}

/* ---- what lies near the greatest ---- */

INLINE double mass_all(const float *x, int32_t n, float max, const struct candidate *top,
                       double mass[SCAN_DEPTHS])
{
    float room[SCAN_BLOCK];
    double total = 0;
    const int32_t blocks = scan_blocks(n);
    for (int d = 0; d < SCAN_DEPTHS; d++)
        mass[d] = 0;
    for (int32_t b = 0; b < blocks; b++) {
        const float *from = block_at(x, n, b, room);
        floats sum = {0}, in[SCAN_DEPTHS] = {{0}};
        if (top[b].logit - max < -scan_depth[SCAN_DEPTHS - 1]) { /* nothing of it is near */
            for (int i = 0; i < SCAN_BLOCK; i += LANES) {
                floats v;
                memcpy(&v, from + i, sizeof v);
                v -= max;
                exp_lanes(&v);
                sum += v;
            }
            sum_lanes(&sum, &total);
            continue;
        }
        for (int i = 0; i < SCAN_BLOCK; i += LANES) {
            floats v;
            memcpy(&v, from + i, sizeof v);
            v -= max;
            const floats depth = v;
            exp_lanes(&v);
            sum += v;
            for (int d = 0; d < SCAN_DEPTHS; d++)
                in[d] += (floats)((ints)v & (depth >= -scan_depth[d]));
        }
        sum_lanes(&sum, &total);
        for (int d = 0; d < SCAN_DEPTHS; d++)
            sum_lanes(&in[d], &mass[d]);
    }
    return total;
}

static double mass_any(const float *x, int32_t n, float max, const struct candidate *top,
                       double mass[SCAN_DEPTHS])
{
    return mass_all(x, n, max, top, mass);
}

WIDE static double mass_wide(const float *x, int32_t n, float max, const struct candidate *top,
                             double mass[SCAN_DEPTHS])
{
    return mass_all(x, n, max, top, mass);
}

double scan_mass(const float *x, int32_t n, float max, const struct candidate *top,
                 double mass[SCAN_DEPTHS])
{
    return wide() ? mass_wide(x, n, max, top, mass) : mass_any(x, n, max, top, mass);
}

/* ---- weights at a temperature ---- */

INLINE void sums_all(const float *x, int32_t n, float max, float t, struct candidate *sum)
{
    float room[SCAN_BLOCK];
    const int32_t blocks = scan_blocks(n);
    for (int32_t b = 0; b < blocks; b++) {
        const float *from = block_at(x, n, b, room);
        floats all = {0};
        for (int i = 0; i < SCAN_BLOCK; i += LANES) {
            floats v;
            memcpy(&v, from + i, sizeof v);
            v = (v - max) / t;
            exp_lanes(&v);
            all += v;
        }
        float s = 0;
        for (int j = 0; j < LANES; j++)
            s += all[j];
        sum[b].logit = s;
    }
}

static void sums_any(const float *x, int32_t n, float max, float t, struct candidate *sum)
{
    sums_all(x, n, max, t, sum);
}

WIDE static void sums_wide(const float *x, int32_t n, float max, float t, struct candidate *sum)
{
    sums_all(x, n, max, t, sum);
}

void scan_sums(const float *x, int32_t n, float max, float t, struct candidate *sum)
{
    if (wide())
        sums_wide(x, n, max, t, sum);
    else
        sums_any(x, n, max, t, sum);
}

void scan_weights(const float *x, int32_t n, float max, float t, float *w)
{
    for (int32_t i = 0; i < n; i++)
        w[i] = ops_exp((x[i] - max) / t);
}
