/* exp, tanh and the normal distribution as polynomials: the constants every tier shares, and the
 * portable forms. Relative error at most 2e-7 (tests/unit/kernels/test_ops.c). Branch-free, so
 * that a compiler may run them in vectors; no libm, so that results do not move with its
 * version. Pure. */
#ifndef KERNELS_OPS_MATH_H
#define KERNELS_OPS_MATH_H

#include <stdint.h>
#include <string.h>

/* exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2)/2, exp(r) = 1 + r + r^2 P(r). P by
 * Chebyshev interpolation of (exp(r) - 1 - r) / r^2 on the interval; error 1.1e-8 before
 * rounding. */
#define EXP_LOG2E      1.44269504f
#define EXP_LN2_HI     0.693359375f /* 9 bits set: n * this is exact */
#define EXP_LN2_LO     (-2.12194440e-4f)
#define EXP_ROUND      12582912.0f /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
#define EXP_ROUND_BITS 0x4b400000u
#define EXP_P0         0.5f
#define EXP_P1         0.16666573286056519f
#define EXP_P2         0.04166654869914055f
#define EXP_P3         0.008363774046301842f
#define EXP_P4         0.0013926926767453551f
#define EXP_LOW        (-87.33654f) /* below: 0, so that no subnormal comes out */
#define EXP_HIGH       89.0f        /* above exp's range; gives infinity */

#define TANH_LIMIT 10.0f /* tanh is 1 in f32 from 9.02 on */

#define GELU_SQRT_2_PI 0.797884561f
#define GELU_CUBE      0.044715f

/* Upper tail of the normal distribution: for x >= 0, 1 - Phi(x) = exp(-x^2/2) t Q(t), t = 1/(1 +
 * 0.35 x). Q by Chebyshev interpolation; relative error 4e-8 before rounding for x up to 14. */
#define TAIL_T  0.35f
#define TAIL_Q0 0.13961870968341827f
#define TAIL_Q1 0.13991229236125946f
#define TAIL_Q2 0.11944491416215897f
#define TAIL_Q3 0.10711459070444107f
#define TAIL_Q4 (-0.027046607807278633f)
#define TAIL_Q5 0.16505099833011627f
#define TAIL_Q6 (-0.26096123456954956f)
#define TAIL_Q7 0.14654582738876343f
#define TAIL_Q8 (-0.029679521918296814f)

/* Before a loop of few and constant turns over registers: all turns are written out. */
#if defined(__clang__)
#define OPS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define OPS_UNROLL _Pragma("GCC unroll 8")
#endif

static inline uint32_t ops_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float ops_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* 2^n from n's two's complement, -126 <= n <= 127. */
static inline float ops_pow2(uint32_t n)
{
    return ops_float((n + 127u) << 23);
}

/* r + r^2 P(r) for x = n ln 2 + r; *n is two's complement. NaN stays NaN. */
static inline float ops_exp_parts(float x, uint32_t *n)
{
    float t = x * EXP_LOG2E + EXP_ROUND;
    *n = ops_bits(t) - EXP_ROUND_BITS;
    t -= EXP_ROUND;
    float r = (x - t * EXP_LN2_HI) - t * EXP_LN2_LO;
    float p = EXP_P4;
    p = p * r + EXP_P3;
    p = p * r + EXP_P2;
    p = p * r + EXP_P1;
    p = p * r + EXP_P0;
    return r + (r * r) * p;
}

static inline float ops_exp(float x)
{
    float c = x > EXP_HIGH ? EXP_HIGH : x; /* NaN passes both comparisons */
    c = c < EXP_LOW ? EXP_LOW : c;
    uint32_t n;
    float y = 1.0f + ops_exp_parts(c, &n);
    uint32_t half = (n >> 1) | (n & 0x80000000u); /* n = 128 needs two steps */
    y = y * ops_pow2(half) * ops_pow2(n - half);
    return x < EXP_LOW ? 0.0f : y;
}

static inline float ops_sigmoid(float x)
{
    return 1.0f / (1.0f + ops_exp(-x));
}

static inline float ops_tanh(float x)
{
    float a = x < 0 ? -x : x;
    a = a > TANH_LIMIT ? TANH_LIMIT : a;
    uint32_t n;
    float p = ops_exp_parts(-2.0f * a, &n);
    float s = ops_pow2(n);
    float e = s * p + (s - 1.0f); /* exp(-2a) - 1, precise near 0 */
    float y = -e / (2.0f + e);
    return x < 0 ? -y : y;
}

static inline float ops_silu(float x)
{
    return x / (1.0f + ops_exp(-x));
}

/* 0.5 x (1 + tanh z) = x / (1 + exp(-2 z)), z = sqrt(2/pi) x (1 + 0.044715 x^2). */
static inline float ops_gelu_tanh(float x)
{
    float z = GELU_SQRT_2_PI * x * (1.0f + GELU_CUBE * (x * x));
    return x / (1.0f + ops_exp(-2.0f * z));
}

static inline float ops_gelu_erf(float x)
{
    float a = x < 0 ? -x : x;
    float t = 1.0f / (1.0f + TAIL_T * a);
    float q = TAIL_Q8;
    q = q * t + TAIL_Q7;
    q = q * t + TAIL_Q6;
    q = q * t + TAIL_Q5;
    q = q * t + TAIL_Q4;
    q = q * t + TAIL_Q3;
    q = q * t + TAIL_Q2;
    q = q * t + TAIL_Q1;
    q = q * t + TAIL_Q0;
    q = q * t * ops_exp(-0.5f * (x * x));
    return x * (x < 0 ? q : 1.0f - q);
}

#endif
