/* AVX2 + FMA + F16C versions of everything but products and attention. Same orders as the
 * portable ones (ops.h); fused multiply-adds make single results differ from those by rounding.
 * Pure; any thread on disjoint outputs. Called only where the processor has all three. */
#include "ops.h"

#if defined(__x86_64__)

#include <math.h>
#include <string.h>

#include "ops_avx2.h"

OPS_AVX2 static inline __m256 load_part(const float *x, int32_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, ops_mask(n));
}

OPS_AVX2 static inline void store_part(float *y, int32_t n, __m256 v)
{
    if (n >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, ops_mask(n), v);
}

OPS_AVX2 static inline __m256d low_f64(__m256 v)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(v));
}

OPS_AVX2 static inline __m256d high_f64(__m256 v)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}

OPS_AVX2 static void rms_norm_avx2(const float *x, const float *w, float eps, float *y, int32_t n)
{
    __m256d a = _mm256_setzero_pd(), b = a;
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = load_part(x + i, n - i);
        __m256d l = low_f64(v), h = high_f64(v);
        a = _mm256_fmadd_pd(l, l,
                            a); /* squares of f32 are exact in f64: the same as multiply and add */
        b = _mm256_fmadd_pd(h, h, b);
    }
    const __m256 r = _mm256_set1_ps((float)(1.0 / sqrt(ops_sum_f64(a, b) / n + eps)));
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(load_part(x + i, n - i), r);
        if (w)
            v = _mm256_mul_ps(v, load_part(w + i, n - i));
        store_part(y + i, n - i, v);
    }
}

OPS_AVX2 static void layer_norm_avx2(const float *x, const float *w, const float *b, float eps,
                                     float *y, int32_t n)
{
    __m256d s0 = _mm256_setzero_pd(), s1 = s0;
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = load_part(x + i, n - i);
        s0 = _mm256_add_pd(s0, low_f64(v));
        s1 = _mm256_add_pd(s1, high_f64(v));
    }
    const __m256d mean = _mm256_set1_pd(ops_sum_f64(s0, s1) / n);
    s0 = s1 = _mm256_setzero_pd();
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = load_part(x + i, n - i);
        __m256d d0 = _mm256_sub_pd(low_f64(v), mean), d1 = _mm256_sub_pd(high_f64(v), mean);
        if (n - i < 8) { /* lanes that are not there would add mean^2 */
            __m256i m = ops_mask(n - i);
            d0 = _mm256_and_pd(
                d0, _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(m))));
            d1 = _mm256_and_pd(
                d1, _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_extracti128_si256(m, 1))));
        }
        s0 = _mm256_add_pd(s0, _mm256_mul_pd(d0, d0));
        s1 = _mm256_add_pd(s1, _mm256_mul_pd(d1, d1));
    }
    const __m256d r = _mm256_set1_pd(1.0 / sqrt(ops_sum_f64(s0, s1) / n + eps));
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = load_part(x + i, n - i);
        __m128 l = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_sub_pd(low_f64(v), mean), r));
        __m128 h = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_sub_pd(high_f64(v), mean), r));
        v = _mm256_set_m128(h, l);
        if (w)
            v = _mm256_mul_ps(v, load_part(w + i, n - i));
        if (b)
            v = _mm256_add_ps(v, load_part(b + i, n - i));
        store_part(y + i, n - i, v);
    }
}

OPS_AVX2 static void add_avx2(float *y, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i += 8)
        store_part(y + i, n - i, _mm256_add_ps(load_part(y + i, n - i), load_part(x + i, n - i)));
}

OPS_AVX2 static void add_scaled_avx2(float *y, const float *x, float s, int32_t n)
{
    const __m256 f = _mm256_set1_ps(s);
    for (int32_t i = 0; i < n; i += 8)
        store_part(y + i, n - i,
                   _mm256_fmadd_ps(f, load_part(x + i, n - i), load_part(y + i, n - i)));
}

OPS_AVX2 static void scale_avx2(float *y, float s, int32_t n)
{
    const __m256 f = _mm256_set1_ps(s);
    for (int32_t i = 0; i < n; i += 8)
        store_part(y + i, n - i, _mm256_mul_ps(load_part(y + i, n - i), f));
}

/* x sigmoid(c x) = x / (1 + exp(-c x)) */
OPS_AVX2 static inline __m256 swish8(__m256 x, __m256 minus_cx)
{
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), ops_exp8(minus_cx)));
}

OPS_AVX2 static inline __m256 gelu_tanh8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 z = _mm256_fmadd_ps(_mm256_set1_ps(GELU_CUBE), _mm256_mul_ps(x, x), one);
    z = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(GELU_SQRT_2_PI), x), z);
    return swish8(x, _mm256_mul_ps(_mm256_set1_ps(-2.0f), z));
}

OPS_AVX2 static inline __m256 gelu_erf8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 a = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    __m256 t = _mm256_div_ps(one, _mm256_fmadd_ps(_mm256_set1_ps(TAIL_T), a, one));
    __m256 q = _mm256_set1_ps(TAIL_Q8);
    q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(TAIL_Q7));
    q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(TAIL_Q6));
    q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(TAIL_Q5));
    q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(TAIL_Q4));
    q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(TAIL_Q3));
    q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(TAIL_Q2));
    q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(TAIL_Q1));
    q = _mm256_fmadd_ps(q, t, _mm256_set1_ps(TAIL_Q0));
    __m256 g = ops_exp8(_mm256_mul_ps(_mm256_set1_ps(-0.5f), _mm256_mul_ps(x, x)));
    q = _mm256_mul_ps(_mm256_mul_ps(q, t), g);
    __m256 phi = _mm256_blendv_ps(_mm256_sub_ps(one, q), q, x); /* by the sign of x */
    return _mm256_mul_ps(x, phi);
}

OPS_AVX2 static inline __m256 act8(enum act_fn f, __m256 x)
{
    switch (f) {
    case ACTFN_SILU:
        return swish8(x, _mm256_xor_ps(_mm256_set1_ps(-0.0f), x));
    case ACTFN_GELU_TANH:
        return gelu_tanh8(x);
    case ACTFN_GELU_ERF:
        return gelu_erf8(x);
    case ACTFN_RELU:
        return _mm256_max_ps(_mm256_setzero_ps(), x);
    case ACTFN_RELU2:
        x = _mm256_max_ps(_mm256_setzero_ps(), x);
        return _mm256_mul_ps(x, x);
    case ACTFN_SWIGLU_OAI:
        x = _mm256_min_ps(_mm256_set1_ps(7.0f), x);
        return swish8(x, _mm256_mul_ps(_mm256_set1_ps(-1.702f), x));
    }
    return x;
}

/* f is a constant at every call, so that each activation becomes a loop of its own. */
OPS_AVX2 __attribute__((always_inline)) static inline void gated_loop(enum act_fn f, const float *g,
                                                                      const float *u, float *h,
                                                                      int32_t n)
{
    for (int32_t i = 0; i < n; i += 8) {
        __m256 y = act8(f, load_part(g + i, n - i));
        if (u) {
            __m256 v = load_part(u + i, n - i);
            if (f == ACTFN_SWIGLU_OAI) {
                v = _mm256_min_ps(_mm256_set1_ps(7.0f), v);
                v = _mm256_max_ps(_mm256_set1_ps(-7.0f), v);
                v = _mm256_add_ps(v, _mm256_set1_ps(1.0f));
            }
            y = _mm256_mul_ps(y, v);
        }
        store_part(h + i, n - i, y);
    }
}

OPS_AVX2 static void gated_avx2(enum act_fn f, const float *g, const float *u, float *h, int32_t n)
{
    switch (f) {
    case ACTFN_SILU:
        gated_loop(ACTFN_SILU, g, u, h, n);
        break;
    case ACTFN_GELU_TANH:
        gated_loop(ACTFN_GELU_TANH, g, u, h, n);
        break;
    case ACTFN_GELU_ERF:
        gated_loop(ACTFN_GELU_ERF, g, u, h, n);
        break;
    case ACTFN_RELU:
        gated_loop(ACTFN_RELU, g, u, h, n);
        break;
    case ACTFN_RELU2:
        gated_loop(ACTFN_RELU2, g, u, h, n);
        break;
    case ACTFN_SWIGLU_OAI:
        gated_loop(ACTFN_SWIGLU_OAI, g, u, h, n);
        break;
    }
}

OPS_AVX2 static void softcap_avx2(float *x, float cap, int32_t n)
{
    const __m256 c = _mm256_set1_ps(cap);
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_div_ps(load_part(x + i, n - i), c);
        store_part(x + i, n - i, _mm256_mul_ps(c, ops_tanh8(v)));
    }
}

OPS_AVX2 static void softmax_avx2(float *x, int32_t n)
{
    __m256 m = _mm256_set1_ps(-INFINITY);
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = load_part(x + i, n - i);
        if (n - i < 8)
            v = _mm256_blendv_ps(m, v, _mm256_castsi256_ps(ops_mask(n - i)));
        m = _mm256_max_ps(v, m); /* a NaN does not become the maximum */
    }
    const __m256 max = _mm256_set1_ps(ops_max8(m));
    __m256d s0 = _mm256_setzero_pd(), s1 = s0;
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = ops_exp8(_mm256_sub_ps(load_part(x + i, n - i), max));
        if (n - i < 8)
            v = _mm256_and_ps(v, _mm256_castsi256_ps(ops_mask(n - i)));
        store_part(x + i, n - i, v);
        s0 = _mm256_add_pd(s0, low_f64(v));
        s1 = _mm256_add_pd(s1, high_f64(v));
    }
    scale_avx2(x, (float)(1.0 / ops_sum_f64(s0, s1)), n);
}

OPS_AVX2 static void rope_halves(float *a, float *b, const float *cos, const float *sin,
                                 int32_t pairs)
{
    for (int32_t i = 0; i < pairs; i += 8) {
        const int32_t k = pairs - i;
        __m256 va = load_part(a + i, k), vb = load_part(b + i, k);
        __m256 c = load_part(cos + i, k), s = load_part(sin + i, k);
        store_part(a + i, k, _mm256_fmsub_ps(va, c, _mm256_mul_ps(vb, s)));
        store_part(b + i, k, _mm256_fmadd_ps(vb, c, _mm256_mul_ps(va, s)));
    }
}

/* Values 0 0 1 1 2 2 3 3 of four floats; k of them are there. */
OPS_AVX2 static inline __m256 load_twice(const float *x, int32_t k)
{
    __m128 v = k >= 4 ? _mm_loadu_ps(x) : _mm_maskload_ps(x, _mm256_castsi256_si128(ops_mask(k)));
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(v),
                                    _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

OPS_AVX2 static void rope_pairs(float *x, const float *cos, const float *sin, int32_t pairs)
{
    for (int32_t i = 0; i < pairs; i += 4) {
        const int32_t k = pairs - i;
        __m256 v = load_part(x + 2 * i, 2 * k), c = load_twice(cos + i, k),
               s = load_twice(sin + i, k);
        __m256 swapped = _mm256_permute_ps(v, 0xb1);
        store_part(x + 2 * i, 2 * k, _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(swapped, s)));
    }
}

OPS_AVX2 static void rope_avx2(float *x, int32_t n_heads, int32_t head_dim, int32_t off, int32_t r,
                               bool half_split, const float *cos, const float *sin)
{
    for (int32_t h = 0; h < n_heads; h++) {
        float *v = x + (size_t)h * head_dim + off;
        if (half_split)
            rope_halves(v, v + r / 2, cos, sin, r / 2);
        else
            rope_pairs(v, cos, sin, r / 2);
    }
}

/* See q8_store of ops_scalar.c: the same bytes come out. */
OPS_AVX2 static void q8_store8(const float *x, uint8_t *dst, int32_t n)
{
    __m256 v[4], m = _mm256_setzero_ps();
    for (int32_t i = 0; i < 4; i++) {
        v[i] = n - 8 * i <= 0 ? _mm256_setzero_ps() : load_part(x + 8 * i, n - 8 * i);
        m = _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]), m);
    }
    float d = ops_max8(m) / 127.0f;
    d = d > 65504.0f ? 65504.0f : d;
    uint16_t h = float_to_half(d);
    d = half_to_float(h);
    const __m256 id = _mm256_set1_ps(d > 0 ? 1.0f / d : 0.0f);
    memcpy(dst, &h, 2);
    __m256i q[4];
    for (int32_t i = 0; i < 4; i++) {
        __m256 t = _mm256_mul_ps(v[i], id);
        t = _mm256_max_ps(_mm256_set1_ps(-127.0f), _mm256_min_ps(_mm256_set1_ps(127.0f), t));
        t = _mm256_add_ps(t, _mm256_set1_ps(EXP_ROUND));
        q[i] = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32((int32_t)EXP_ROUND_BITS));
    }
    /* Packing works within halves: put the 4-byte groups back in order afterwards. */
    __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    b = _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)(dst + 2), b);
}

/* Rounded levels of four values: see q4_store of ops_scalar.c. */
OPS_AVX2 static inline __m128i q4_levels(__m128 x, __m256d id)
{
    __m256d v = _mm256_add_pd(_mm256_mul_pd(_mm256_cvtps_pd(x), id), _mm256_set1_pd(8.5));
    v = _mm256_max_pd(v, _mm256_setzero_pd()); /* the second for a NaN */
    return _mm256_cvttpd_epi32(_mm256_min_pd(v, _mm256_set1_pd(15.0)));
}

/* See q4_store of ops_scalar.c: the same bytes come out. */
OPS_AVX2 static void q4_store8(const float *x, uint8_t *dst, int32_t n)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 v[4], m = _mm256_setzero_ps();
    for (int32_t i = 0; i < 4; i++) {
        v[i] = n - 8 * i <= 0 ? _mm256_setzero_ps() : load_part(x + 8 * i, n - 8 * i);
        m = _mm256_max_ps(_mm256_andnot_ps(sign, v[i]), m);
    }
    const __m256 top = _mm256_set1_ps(ops_max8(m));
    uint32_t at = 0; /* where the largest magnitude stands */
    for (int32_t i = 0; i < 4; i++)
        at |= (uint32_t)_mm256_movemask_ps(
                  _mm256_cmp_ps(_mm256_andnot_ps(sign, v[i]), top, _CMP_EQ_OQ))
              << (8 * i);
    const int32_t first = at ? __builtin_ctz(at) : 0;
    const bool any = _mm256_cvtss_f32(top) > 0;
    float d = (any && first < n ? x[first] : 0.0f) / -8.0f;
    d = d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d;
    const __m256d id = _mm256_set1_pd((double)(d != 0 ? 1.0f / d : 0.0f));
    const uint16_t h = float_to_half(d);
    memcpy(dst, &h, 2);
    __m128i q[4]; /* 8 levels each, as int16 */
    for (int32_t i = 0; i < 4; i++)
        q[i] = _mm_packs_epi32(q4_levels(_mm256_castps256_ps128(v[i]), id),
                               q4_levels(_mm256_extractf128_ps(v[i], 1), id));
    const __m128i low = _mm_packus_epi16(q[0], q[1]), high = _mm_packus_epi16(q[2], q[3]);
    _mm_storeu_si128((__m128i *)(void *)(dst + 2), _mm_or_si128(low, _mm_slli_epi16(high, 4)));
}

OPS_AVX2 static void kv_store_avx2(enum kv_type t, const float *x, void *dst, int32_t n)
{
    uint8_t *p = dst;
    switch (t) {
    case KV_F32:
        memcpy(p, x, (size_t)n * sizeof *x);
        break;
    case KV_F16:
        for (int32_t i = 0; i < n; i += 8) {
            __m128i h = _mm256_cvtps_ph(load_part(x + i, n - i), _MM_FROUND_TO_NEAREST_INT);
            if (n - i >= 8)
                _mm_storeu_si128((__m128i *)(void *)(p + 2 * (size_t)i), h);
            else
                memcpy(p + 2 * (size_t)i, &h, 2 * (size_t)(n - i));
        }
        break;
    case KV_Q8_0:
        for (int32_t i = 0; i < n; i += 32, p += 34)
            q8_store8(x + i, p, n - i);
        break;
    case KV_Q4_0:
        for (int32_t i = 0; i < n; i += 32, p += 18)
            q4_store8(x + i, p, n - i);
        break;
    }
}

void ops_fill_avx2(struct kernels *k)
{
    k->rms_norm = rms_norm_avx2;
    k->layer_norm = layer_norm_avx2;
    k->add = add_avx2;
    k->add_scaled = add_scaled_avx2;
    k->scale = scale_avx2;
    k->gated = gated_avx2;
    k->softcap = softcap_avx2;
    k->softmax = softmax_avx2;
    k->rope = rope_avx2;
    k->kv_store = kv_store_avx2;
    k->attn_tile = ops_attn_tile_avx2;
}

#else
typedef int ops_avx2_is_empty_here; /* a translation unit may not be empty */
#endif
