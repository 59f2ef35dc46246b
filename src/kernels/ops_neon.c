/* ARM versions of everything but products and attention. Same orders as the portable ones (ops.h);
 * fused multiply-adds make single results differ from those by rounding, as in ops_avx2.c. Needs
 * what every AArch64 processor has. Pure; any thread on disjoint outputs. */
#include "ops.h"

#if defined(__aarch64__)

#include <math.h>
#include <string.h>

#include "ops_neon.h"

/* Eight f64 lanes, two to a vector. */
struct sums8 {
    float64x2_t s[4];
};

static inline struct sums8 sums_start(void)
{
    const float64x2_t zero = vdupq_n_f64(0);
    return (struct sums8){{zero, zero, zero, zero}};
}

/* ((0+1)+(2+3))+((4+5)+(6+7)) */
static inline double sums_end(const struct sums8 *a)
{
    const float64x2_t low = vpaddq_f64(a->s[0], a->s[1]), high = vpaddq_f64(a->s[2], a->s[3]);
    return vaddvq_f64(vpaddq_f64(low, high));
}

/* Values i and i + 1 of eight as f64. */
static inline void wide8(const float *x, int32_t n, float64x2_t out[4])
{
    const float32x4_t a = ops_load4(x, n), b = ops_load4(x + 4, n - 4);
    out[0] = vcvt_f64_f32(vget_low_f32(a));
    out[1] = vcvt_high_f64_f32(a);
    out[2] = vcvt_f64_f32(vget_low_f32(b));
    out[3] = vcvt_high_f64_f32(b);
}

static void rms_norm_neon(const float *x, const float *w, float eps, float *y, int32_t n)
{
    struct sums8 sum = sums_start();
    for (int32_t i = 0; i < n; i += 8) {
        float64x2_t v[4];
        wide8(x + i, n - i, v);
        OPS_UNROLL
        for (int k = 0; k < 4; k++) /* the square is exact: fused or not, the sum is the same */
            sum.s[k] = vfmaq_f64(sum.s[k], v[k], v[k]);
    }
    const float32x4_t r = vdupq_n_f32((float)(1.0 / sqrt(sums_end(&sum) / n + eps)));
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t v = vmulq_f32(ops_load4(x + i, n - i), r);
        if (w)
            v = vmulq_f32(v, ops_load4(w + i, n - i));
        ops_store4(y + i, n - i, v);
    }
}

static void layer_norm_neon(const float *x, const float *w, const float *b, float eps, float *y,
                            int32_t n)
{
    struct sums8 sum = sums_start(), squares = sum;
    float64x2_t v[4];
    for (int32_t i = 0; i < n; i += 8) {
        wide8(x + i, n - i, v);
        OPS_UNROLL
        for (int k = 0; k < 4; k++)
            sum.s[k] = vaddq_f64(sum.s[k], v[k]);
    }
    const double mean = sums_end(&sum) / n;
    const float64x2_t mean2 = vdupq_n_f64(mean);
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        wide8(x + i, n - i, v);
        OPS_UNROLL
        for (int k = 0; k < 4; k++) {
            const float64x2_t d = vsubq_f64(v[k], mean2);
            squares.s[k] = vaddq_f64(squares.s[k], vmulq_f64(d, d));
        }
    }
    double last[8] = {0}; /* lanes that are not there would add mean^2 */
    for (int32_t k = 0; i + k < n; k++)
        last[k] = (x[i + k] - mean) * (x[i + k] - mean);
    OPS_UNROLL
    for (int k = 0; k < 4; k++)
        squares.s[k] = vaddq_f64(squares.s[k], vld1q_f64(last + 2 * k));
    const float64x2_t r = vdupq_n_f64(1.0 / sqrt(sums_end(&squares) / n + eps));
    for (i = 0; i < n; i += 4) {
        const float32x4_t u = ops_load4(x + i, n - i);
        const float64x2_t low = vsubq_f64(vcvt_f64_f32(vget_low_f32(u)), mean2),
                          high = vsubq_f64(vcvt_high_f64_f32(u), mean2);
        float32x4_t t = vcvt_high_f32_f64(vcvt_f32_f64(vmulq_f64(low, r)), vmulq_f64(high, r));
        if (w)
            t = vmulq_f32(t, ops_load4(w + i, n - i));
        if (b)
            t = vaddq_f32(t, ops_load4(b + i, n - i));
        ops_store4(y + i, n - i, t);
    }
}

static void add_neon(float *y, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i += 4)
        ops_store4(y + i, n - i, vaddq_f32(ops_load4(y + i, n - i), ops_load4(x + i, n - i)));
}

static void add_scaled_neon(float *y, const float *x, float s, int32_t n)
{
    const float32x4_t f = vdupq_n_f32(s);
    for (int32_t i = 0; i < n; i += 4)
        ops_store4(y + i, n - i, vfmaq_f32(ops_load4(y + i, n - i), f, ops_load4(x + i, n - i)));
}

static void scale_neon(float *y, float s, int32_t n)
{
    const float32x4_t f = vdupq_n_f32(s);
    for (int32_t i = 0; i < n; i += 4)
        ops_store4(y + i, n - i, vmulq_f32(ops_load4(y + i, n - i), f));
}

/* x sigmoid(c x) = x / (1 + exp(-c x)) */
static inline float32x4_t swish4(float32x4_t x, float32x4_t minus_cx)
{
    return vdivq_f32(x, vaddq_f32(vdupq_n_f32(1.0f), ops_exp4(minus_cx)));
}

static inline float32x4_t gelu_tanh4(float32x4_t x)
{
    float32x4_t z = vfmaq_f32(vdupq_n_f32(1.0f), vdupq_n_f32(GELU_CUBE), vmulq_f32(x, x));
    z = vmulq_f32(vmulq_f32(vdupq_n_f32(GELU_SQRT_2_PI), x), z);
    return swish4(x, vmulq_f32(vdupq_n_f32(-2.0f), z));
}

static inline float32x4_t gelu_erf4(float32x4_t x)
{
    const float32x4_t one = vdupq_n_f32(1.0f);
    const float32x4_t t = vdivq_f32(one, vfmaq_f32(one, vdupq_n_f32(TAIL_T), vabsq_f32(x)));
    float32x4_t q = vdupq_n_f32(TAIL_Q8);
    q = vfmaq_f32(vdupq_n_f32(TAIL_Q7), q, t);
    q = vfmaq_f32(vdupq_n_f32(TAIL_Q6), q, t);
    q = vfmaq_f32(vdupq_n_f32(TAIL_Q5), q, t);
    q = vfmaq_f32(vdupq_n_f32(TAIL_Q4), q, t);
    q = vfmaq_f32(vdupq_n_f32(TAIL_Q3), q, t);
    q = vfmaq_f32(vdupq_n_f32(TAIL_Q2), q, t);
    q = vfmaq_f32(vdupq_n_f32(TAIL_Q1), q, t);
    q = vfmaq_f32(vdupq_n_f32(TAIL_Q0), q, t);
    const float32x4_t g = ops_exp4(vmulq_f32(vdupq_n_f32(-0.5f), vmulq_f32(x, x)));
    q = vmulq_f32(vmulq_f32(q, t), g);
    return vmulq_f32(x, vbslq_f32(vcltzq_f32(x), q, vsubq_f32(one, q)));
}

static inline float32x4_t act4(enum act_fn f, float32x4_t x)
{
    switch (f) {
    case ACTFN_SILU:
        return swish4(x, vnegq_f32(x));
    case ACTFN_GELU_TANH:
        return gelu_tanh4(x);
    case ACTFN_GELU_ERF:
        return gelu_erf4(x);
    case ACTFN_RELU:
        return vmaxq_f32(vdupq_n_f32(0), x);
    case ACTFN_RELU2:
        x = vmaxq_f32(vdupq_n_f32(0), x);
        return vmulq_f32(x, x);
    case ACTFN_SWIGLU_OAI:
        x = vminq_f32(vdupq_n_f32(7.0f), x);
        return swish4(x, vmulq_f32(vdupq_n_f32(-1.702f), x));
    }
    return x;
}

/* f is a constant at every call, so that each activation becomes a loop of its own. */
__attribute__((always_inline)) static inline void gated_loop(enum act_fn f, const float *g,
                                                             const float *u, float *h, int32_t n)
{
    for (int32_t i = 0; i < n; i += 4) {
        float32x4_t y = act4(f, ops_load4(g + i, n - i));
        if (u) {
            float32x4_t v = ops_load4(u + i, n - i);
            if (f == ACTFN_SWIGLU_OAI) {
                v = vmaxq_f32(vdupq_n_f32(-7.0f), vminq_f32(vdupq_n_f32(7.0f), v));
                v = vaddq_f32(v, vdupq_n_f32(1.0f));
            }
            y = vmulq_f32(y, v);
        }
        ops_store4(h + i, n - i, y);
    }
}

static void gated_neon(enum act_fn f, const float *g, const float *u, float *h, int32_t n)
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

static void softcap_neon(float *x, float cap, int32_t n)
{
    const float32x4_t c = vdupq_n_f32(cap);
    for (int32_t i = 0; i < n; i += 4)
        ops_store4(x + i, n - i, vmulq_f32(c, ops_tanh4(vdivq_f32(ops_load4(x + i, n - i), c))));
}

static void softmax_neon(float *x, int32_t n)
{
    float32x4_t m = vdupq_n_f32(-INFINITY);
    int32_t i = 0;
    for (; i + 4 <= n; i += 4)
        m = vmaxnmq_f32(m, vld1q_f32(x + i)); /* a NaN does not become the maximum */
    float max = vmaxnmvq_f32(m);
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    const float32x4_t max4 = vdupq_n_f32(max);
    for (i = 0; i < n; i += 4)
        ops_store4(x + i, n - i, ops_exp4(vsubq_f32(ops_load4(x + i, n - i), max4)));
    struct sums8 sum = sums_start();
    for (i = 0; i < n; i += 8) {
        float64x2_t v[4];
        wide8(x + i, n - i, v);
        OPS_UNROLL
        for (int k = 0; k < 4; k++)
            sum.s[k] = vaddq_f64(sum.s[k], v[k]);
    }
    scale_neon(x, (float)(1.0 / sums_end(&sum)), n);
}

static inline void turn4(float32x4_t *a, float32x4_t *b, float32x4_t c, float32x4_t s)
{
    const float32x4_t va = *a, vb = *b;
    *a = vfmaq_f32(vnegq_f32(vmulq_f32(vb, s)), va, c);
    *b = vfmaq_f32(vmulq_f32(va, s), vb, c);
}

static void rope_halves(float *a, float *b, const float *cos, const float *sin, int32_t pairs)
{
    for (int32_t i = 0; i < pairs; i += 4) {
        const int32_t k = pairs - i;
        float32x4_t va = ops_load4(a + i, k), vb = ops_load4(b + i, k);
        turn4(&va, &vb, ops_load4(cos + i, k), ops_load4(sin + i, k));
        ops_store4(a + i, k, va);
        ops_store4(b + i, k, vb);
    }
}

static void rope_pairs(float *x, const float *cos, const float *sin, int32_t pairs)
{
    for (int32_t i = 0; i < pairs; i += 4) {
        const int32_t k = pairs - i < 4 ? pairs - i : 4;
        float part[8] = {0}, *p = part;
        if (k == 4)
            p = x + 2 * i;
        else
            memcpy(part, x + 2 * i, (size_t)k * 2 * sizeof *x);
        float32x4x2_t v = vld2q_f32(p);
        turn4(&v.val[0], &v.val[1], ops_load4(cos + i, k), ops_load4(sin + i, k));
        vst2q_f32(p, v);
        if (k < 4)
            memcpy(x + 2 * i, part, (size_t)k * 2 * sizeof *x);
    }
}

static void rope_neon(float *x, int32_t n_heads, int32_t head_dim, int32_t off, int32_t r,
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

/* ---- KV rows ---- */

/* Largest magnitude of 32 values; a NaN does not become it. */
static float top32(const float *x)
{
    float32x4_t m = vdupq_n_f32(0);
    for (int32_t i = 0; i < 32; i += 4)
        m = vmaxnmq_f32(m, vabsq_f32(vld1q_f32(x + i)));
    return vmaxnmvq_f32(m);
}

static inline int16x4_t q8_levels(const float *x, float32x4_t id)
{
    float32x4_t v = vmulq_f32(vld1q_f32(x), id);
    v = vmaxq_f32(vdupq_n_f32(-127.0f), vminq_f32(vdupq_n_f32(127.0f), v));
    return vmovn_s32(vcvtnq_s32_f32(v)); /* ties to even; a NaN gives 0 */
}

/* See q8_store of ops_scalar.c: the same bytes come out. */
static void q8_store32(const float *x, uint8_t *dst)
{
    float d = top32(x) / 127.0f;
    d = d > 65504.0f ? 65504.0f : d;
    const uint16_t h = float_to_half(d);
    d = half_to_float(h);
    const float32x4_t id = vdupq_n_f32(d > 0 ? 1.0f / d : 0.0f);
    memcpy(dst, &h, 2);
    for (int32_t i = 0; i < 32; i += 8)
        vst1_s8((int8_t *)dst + 2 + i,
                vmovn_s16(vcombine_s16(q8_levels(x + i, id), q8_levels(x + i + 4, id))));
}

/* Rounded levels of four values: see q4_store of ops_scalar.c. */
static inline uint16x4_t q4_levels(const float *x, float64x2_t id)
{
    const float32x4_t v = vld1q_f32(x);
    const float64x2_t half = vdupq_n_f64(8.5);
    const float64x2_t low = vaddq_f64(vmulq_f64(vcvt_f64_f32(vget_low_f32(v)), id), half),
                      high = vaddq_f64(vmulq_f64(vcvt_high_f64_f32(v), id), half);
    /* The conversion takes what is below 0, and a NaN, to 0. */
    const uint32x4_t q =
        vcombine_u32(vqmovn_u64(vcvtq_u64_f64(low)), vqmovn_u64(vcvtq_u64_f64(high)));
    return vmovn_u32(vminq_u32(q, vdupq_n_u32(15)));
}

/* See q4_store of ops_scalar.c: the same bytes come out. */
static void q4_store32(const float *x, uint8_t *dst)
{
    const float top = top32(x);
    int32_t first = 0;
    while (first < 31 && fabsf(x[first]) != top)
        first++;
    float d = (top > 0 ? x[first] : 0.0f) / -8.0f;
    d = d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d;
    const float64x2_t id = vdupq_n_f64((double)(d != 0 ? 1.0f / d : 0.0f));
    const uint16_t h = float_to_half(d);
    memcpy(dst, &h, 2);
    for (int32_t i = 0; i < 16; i += 8) {
        const uint8x8_t low =
            vmovn_u16(vcombine_u16(q4_levels(x + i, id), q4_levels(x + i + 4, id)));
        const uint8x8_t high =
            vmovn_u16(vcombine_u16(q4_levels(x + i + 16, id), q4_levels(x + i + 20, id)));
        vst1_u8(dst + 2 + i, vorr_u8(low, vshl_n_u8(high, 4)));
    }
}

static void kv_store_neon(enum kv_type t, const float *x, void *dst, int32_t n)
{
    uint8_t *p = dst;
    switch (t) {
    case KV_F32:
        memcpy(p, x, (size_t)n * sizeof *x);
        break;
    case KV_F16:
        for (int32_t i = 0; i < n; i += 4) {
            const uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32(ops_load4(x + i, n - i)));
            memcpy(p + 2 * (size_t)i, &h, n - i >= 4 ? 8 : 2 * (size_t)(n - i));
        }
        break;
    case KV_Q8_0:
    case KV_Q4_0:
        for (int32_t i = 0; i < n; i += 32) {
            float part[32] = {0};
            const float *at = x + i;
            if (n - i < 32)
                at = memcpy(part, at, (size_t)(n - i) * sizeof *x);
            if (t == KV_Q8_0)
                q8_store32(at, p + i / 32 * 34);
            else
                q4_store32(at, p + i / 32 * 18);
        }
        break;
    }
}

void ops_fill_neon(struct kernels *k)
{
    k->rms_norm = rms_norm_neon;
    k->layer_norm = layer_norm_neon;
    k->add = add_neon;
    k->add_scaled = add_scaled_neon;
    k->scale = scale_neon;
    k->gated = gated_neon;
    k->softcap = softcap_neon;
    k->softmax = softmax_neon;
    k->rope = rope_neon;
    k->kv_store = kv_store_neon;
    k->attn_tile = ops_attn_tile_neon;
}

#else
typedef int ops_neon_is_empty_here; /* a translation unit may not be empty */
#endif
