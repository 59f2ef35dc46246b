/* Sixteen floats at a time, for the AVX-512 files of ops: exp, tanh and masks for ends of arrays.
 * The same polynomials as ops_avx2.h. x86-64 only. */
#ifndef KERNELS_OPS_AVX512_H
#define KERNELS_OPS_AVX512_H

#include <immintrin.h>

#include "ops_math.h"

#define OPS_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")))

/* The first n lanes of sixteen; all for n >= 16. */
OPS_AVX512 static inline __mmask16 ops_mask16(int32_t n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

/* r + r^2 P(r) for x = n ln 2 + r; *n is a whole number. */
OPS_AVX512 static inline __m512 ops_exp_parts16(__m512 x, __m512 *n)
{
    const __m512 round = _mm512_set1_ps(EXP_ROUND);
    const __m512 t = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(EXP_LOG2E), round), round);
    *n = t;
    __m512 r = _mm512_fnmadd_ps(t, _mm512_set1_ps(EXP_LN2_HI), x);
    r = _mm512_fnmadd_ps(t, _mm512_set1_ps(EXP_LN2_LO), r);
    __m512 p = _mm512_set1_ps(EXP_P4);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_P0));
    return _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
}

OPS_AVX512 static inline __m512 ops_exp16(__m512 x)
{
    const __m512 low = _mm512_set1_ps(EXP_LOW);
    /* min and max give their second operand for a NaN, so a NaN stays one. */
    const __m512 c = _mm512_max_ps(low, _mm512_min_ps(_mm512_set1_ps(EXP_HIGH), x));
    __m512 n;
    const __m512 y = _mm512_add_ps(_mm512_set1_ps(1.0f), ops_exp_parts16(c, &n));
    const __mmask16 some = _mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(some, y, n);
}

OPS_AVX512 static inline __m512 ops_tanh16(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 a = _mm512_min_ps(_mm512_set1_ps(TANH_LIMIT), _mm512_abs_ps(x));
    __m512 n;
    const __m512 p = ops_exp_parts16(_mm512_mul_ps(_mm512_set1_ps(-2.0f), a), &n);
    const __m512 s = _mm512_scalef_ps(one, n);
    const __m512 e = _mm512_fmadd_ps(s, p, _mm512_sub_ps(s, one));             /* exp(-2a) - 1 */
    const __m512 y = _mm512_div_ps(e, _mm512_add_ps(_mm512_set1_ps(2.0f), e)); /* <= 0 */
    const __m512 sign = _mm512_and_ps(x, _mm512_set1_ps(-0.0f));
    return _mm512_or_ps(_mm512_andnot_ps(_mm512_set1_ps(-0.0f), y), sign);
}

/* Lanes are added 8, 4, 2, 1 apart. */
OPS_AVX512 static inline float ops_sum16(__m512 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

OPS_AVX512 static inline float ops_max16(__m512 v)
{
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

#endif
