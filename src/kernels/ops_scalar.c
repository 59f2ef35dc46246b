/* Portable versions of everything but products and attention: the reference that every other
 * tier is tested against. Owns no state; knows no layer. Orders as in ops.h. Pure; any thread on
 * disjoint outputs. */
#include "ops.h"

#include <math.h>
#include <string.h>

#include "ops_math.h"

#define LANES 8

static double lanes_sum(const double *a)
{
    return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
}

static void rms_norm_scalar(const float *x, const float *w, float eps, float *y, int32_t n)
{
    double lane[LANES] = {0};
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int32_t j = 0; j < LANES; j++)
            lane[j] += (double)x[i + j] * x[i + j];
    for (int32_t j = 0; i < n; i++, j++)
        lane[j] += (double)x[i] * x[i];
    float r = (float)(1.0 / sqrt(lanes_sum(lane) / n + eps));
    if (w) {
        for (i = 0; i < n; i++)
            y[i] = (x[i] * r) * w[i];
    } else {
        for (i = 0; i < n; i++)
            y[i] = x[i] * r;
    }
}

static void layer_norm_scalar(const float *x, const float *w, const float *b, float eps, float *y,
                              int32_t n)
{
    double lane[LANES] = {0};
    for (int32_t i = 0; i < n; i++)
        lane[i % LANES] += x[i];
    double mean = lanes_sum(lane) / n;
    memset(lane, 0, sizeof lane);
    for (int32_t i = 0; i < n; i++) {
        double d = x[i] - mean;
        lane[i % LANES] += d * d;
    }
    double r = 1.0 / sqrt(lanes_sum(lane) / n + eps);
    for (int32_t i = 0; i < n; i++) {
        float v = (float)((x[i] - mean) * r);
        if (w)
            v = v * w[i];
        if (b)
            v = v + b[i];
        y[i] = v;
    }
}

static void add_scalar(float *y, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void add_scaled_scalar(float *y, const float *x, float s, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] += s * x[i];
}

static void scale_scalar(float *y, float s, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] *= s;
}

/* One loop per activation, so that each is a straight line for the compiler. */
#define GATED(value)                                                                               \
    if (u) {                                                                                       \
        for (int32_t i = 0; i < n; i++) {                                                          \
            float x = g[i];                                                                        \
            h[i] = (value)*u[i];                                                                   \
        }                                                                                          \
    } else {                                                                                       \
        for (int32_t i = 0; i < n; i++) {                                                          \
            float x = g[i];                                                                        \
            h[i] = (value);                                                                        \
        }                                                                                          \
    }

static void gated_scalar(enum act_fn f, const float *g, const float *u, float *h, int32_t n)
{
    switch (f) {
    case ACTFN_SILU:
        GATED(ops_silu(x))
        break;
    case ACTFN_GELU_TANH:
        GATED(ops_gelu_tanh(x))
        break;
    case ACTFN_GELU_ERF:
        GATED(ops_gelu_erf(x))
        break;
    case ACTFN_RELU:
        GATED(x < 0 ? 0.0f : x)
        break;
    case ACTFN_RELU2:
        GATED(x < 0 ? 0.0f : x * x)
        break;
    case ACTFN_SWIGLU_OAI: /* gate up to 7, up within 7 and moved by 1, sigmoid(1.702 gate) */
        for (int32_t i = 0; i < n; i++) {
            float x = g[i] > 7.0f ? 7.0f : g[i];
            float y = x / (1.0f + ops_exp(-1.702f * x));
            if (u) {
                float v = u[i] > 7.0f ? 7.0f : u[i];
                v = v < -7.0f ? -7.0f : v;
                y = y * (v + 1.0f);
            }
            h[i] = y;
        }
        break;
    }
}

static void softcap_scalar(float *x, float cap, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = cap * ops_tanh(x[i] / cap);
}

static void softmax_scalar(float *x, int32_t n)
{
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    double lane[LANES] = {0};
    for (int32_t i = 0; i < n; i++) {
        x[i] = ops_exp(x[i] - max);
        lane[i % LANES] += x[i];
    }
    float r = (float)(1.0 / lanes_sum(lane));
    for (int32_t i = 0; i < n; i++)
        x[i] *= r;
}

static void rope_scalar(float *x, int32_t n_heads, int32_t head_dim, int32_t off, int32_t r,
                        bool half_split, const float *cos, const float *sin)
{
    const int32_t pairs = r / 2;
    for (int32_t h = 0; h < n_heads; h++) {
        float *v = x + (size_t)h * head_dim + off;
        for (int32_t i = 0; i < pairs; i++) {
            float *pa = half_split ? v + i : v + 2 * i;
            float *pb = half_split ? v + i + pairs : v + 2 * i + 1;
            float a = *pa, b = *pb;
            *pa = a * cos[i] - b * sin[i];
            *pb = b * cos[i] + a * sin[i];
        }
    }
}

/* A block of 32 as GGUF's Q8_0: half scale, 32 int8 (docs/formats.md). The quotients are taken
 * with the scale as stored, so that its own rounding costs nothing; a value beyond the largest
 * half saturates. */
static void q8_store(const float *x, uint8_t *dst, int32_t n)
{
    float max = 0;
    for (int32_t i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        max = a > max ? a : max;
    }
    float d = max / 127.0f;
    d = d > 65504.0f ? 65504.0f : d;
    uint16_t h = float_to_half(d);
    d = half_to_float(h);
    float id = d > 0 ? 1.0f / d : 0.0f;
    memcpy(dst, &h, 2);
    for (int32_t i = 0; i < 32; i++) {
        float v = i < n ? x[i] * id : 0.0f;
        v = v > 127.0f ? 127.0f : v;
        v = v < -127.0f ? -127.0f : v;
        dst[2 + i] = (uint8_t)(ops_bits(v + EXP_ROUND) - EXP_ROUND_BITS);
    }
}

/* A block of 32 as GGUF's Q4_0: half scale, 16 bytes of two values. As its reference does: the
 * value of largest magnitude (the first of several) becomes -8, the others are rounded half up,
 * in f64 so that it does not matter whether multiply and add are fused. The scale saturates. */
static void q4_store(const float *x, uint8_t *dst, int32_t n)
{
    float top = 0, max = 0;
    for (int32_t i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        if (a > top) {
            top = a;
            max = x[i];
        }
    }
    float d = max / -8.0f;
    d = d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d;
    const float id = d != 0 ? 1.0f / d : 0.0f;
    const uint16_t h = float_to_half(d);
    uint8_t q[32];
    memcpy(dst, &h, 2);
    for (int32_t i = 0; i < 32; i++) {
        double v = i < n ? (double)x[i] * id + 8.5 : 8.5;
        v = v > 0 ? v : 0; /* a NaN too */
        v = v < 15 ? v : 15;
        q[i] = (uint8_t)v;
    }
    for (int32_t i = 0; i < 16; i++)
        dst[2 + i] = (uint8_t)(q[i] | q[i + 16] << 4);
}

static void kv_store_scalar(enum kv_type t, const float *x, void *dst, int32_t n)
{
    uint8_t *p = dst;
    switch (t) {
    case KV_F32:
        memcpy(p, x, (size_t)n * sizeof *x);
        break;
    case KV_F16:
        for (int32_t i = 0; i < n; i++) {
            uint16_t h = float_to_half(x[i]);
            memcpy(p + 2 * (size_t)i, &h, 2);
        }
        break;
    case KV_Q8_0:
        for (int32_t i = 0; i < n; i += 32, p += 34)
            q8_store(x + i, p, n - i < 32 ? n - i : 32);
        break;
    case KV_Q4_0:
        for (int32_t i = 0; i < n; i += 32, p += 18)
            q4_store(x + i, p, n - i < 32 ? n - i : 32);
        break;
    }
}

size_t kv_row_bytes(enum kv_type t, int32_t n)
{
    switch (t) {
    case KV_F32:
        return (size_t)n * 4;
    case KV_F16:
        return (size_t)n * 2;
    case KV_Q8_0:
        return ((size_t)n + 31) / 32 * 34;
    case KV_Q4_0:
        return ((size_t)n + 31) / 32 * 18;
    }
    return 0;
}

void ops_fill_scalar(struct kernels *k)
{
    k->rms_norm = rms_norm_scalar;
    k->layer_norm = layer_norm_scalar;
    k->add = add_scalar;
    k->add_scaled = add_scaled_scalar;
    k->scale = scale_scalar;
    k->gated = gated_scalar;
    k->softcap = softcap_scalar;
    k->softmax = softmax_scalar;
    k->rope = rope_scalar;
    k->kv_store = kv_store_scalar;
    k->attn_tile = ops_attn_tile_scalar;
}
