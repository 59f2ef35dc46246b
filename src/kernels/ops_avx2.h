/* Eight floats at a time: masks for ends of arrays, exp and tanh, shared by the AVX2 files of
 * ops. The ends go through the same instructions as the rest, with zeros for what is not there.
 * x86-64 only. */
#ifndef KERNELS_OPS_AVX2_H
#define KERNELS_OPS_AVX2_H

#include <immintrin.h>

#include "ops_math.h"

#define OPS_AVX2 __attribute__((target("avx2,fma,f16c")))

/* The first n lanes, 0 <= n <= 8. */
OPS_AVX2 static inline __m256i ops_mask(int32_t n)
{
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones + 8 - n));
}

/* r + r^2 P(r) for x = n ln 2 + r. */
OPS_AVX2 static inline __m256 ops_exp_parts8(__m256 x, __m256i *n)
{
    const __m256 round = _mm256_set1_ps(EXP_ROUND);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_LOG2E), round);
    *n = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32((int32_t)EXP_ROUND_BITS));
    t = _mm256_sub_ps(t, round);
    __m256 r = _mm256_fnmadd_ps(t, _mm256_set1_ps(EXP_LN2_HI), x);
    r = _mm256_fnmadd_ps(t, _mm256_set1_ps(EXP_LN2_LO), r);
    __m256 p = _mm256_set1_ps(EXP_P4);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P0));
    return _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
}

OPS_AVX2 static inline __m256 ops_pow2_8(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

OPS_AVX2 static inline __m256 ops_exp8(__m256 x)
{
    const __m256 low = _mm256_set1_ps(EXP_LOW);
    /* min and max give their second operand for a NaN, so a NaN stays one. */
    __m256 c = _mm256_max_ps(low, _mm256_min_ps(_mm256_set1_ps(EXP_HIGH), x));
    __m256i n;
    __m256 y = _mm256_add_ps(_mm256_set1_ps(1.0f), ops_exp_parts8(c, &n));
    __m256i half = _mm256_srai_epi32(n, 1); /* n = 128 needs two steps */
    y = _mm256_mul_ps(y, ops_pow2_8(half));
    y = _mm256_mul_ps(y, ops_pow2_8(_mm256_sub_epi32(n, half)));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), y);
}

OPS_AVX2 static inline float ops_exp1(float x)
{
    return _mm256_cvtss_f32(ops_exp8(_mm256_set1_ps(x)));
}

OPS_AVX2 static inline __m256 ops_tanh8(__m256 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    __m256 a = _mm256_min_ps(_mm256_set1_ps(TANH_LIMIT), _mm256_andnot_ps(sign, x));
    __m256i n;
    __m256 p = ops_exp_parts8(_mm256_mul_ps(_mm256_set1_ps(-2.0f), a), &n);
    __m256 s = ops_pow2_8(n);
    __m256 e = _mm256_fmadd_ps(s, p, _mm256_sub_ps(s, one));             /* exp(-2a) - 1 */
    __m256 y = _mm256_div_ps(e, _mm256_add_ps(_mm256_set1_ps(2.0f), e)); /* <= 0 */
    return _mm256_or_ps(_mm256_andnot_ps(sign, y), _mm256_and_ps(sign, x));
}

/* ((0+1)+(2+3))+((4+5)+(6+7)) */
OPS_AVX2 static inline float ops_sum8(__m256 v)
{
    __m256 s = _mm256_hadd_ps(v, v); /* 0+1, 2+3 | 4+5, 6+7 */
    s = _mm256_hadd_ps(s, s);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

OPS_AVX2 static inline float ops_max8(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

/* The same tree over eight f64 lanes, a holding 0-3 and b 4-7. */
OPS_AVX2 static inline double ops_sum_f64(__m256d a, __m256d b)
{
    __m256d s = _mm256_hadd_pd(a, b); /* 0+1, 4+5 | 2+3, 6+7 */
    __m128d t = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
    return _mm_cvtsd_f64(_mm_add_sd(t, _mm_unpackhi_pd(t, t)));
}

#endif
