/* The operations of ops.h against their formulas in double precision, every tier against the
 * portable one, and the law: a value's result does not depend on where it lies in an array. */
#include "alone.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../src/kernels/kernels.h"

static uint64_t seed = 88172645463325252u;

static uint32_t rand32(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

static float uniform(float a, float b)
{
    return a + (b - a) * (float)(rand32() >> 8) * 0x1p-24f;
}

static void fill(float *x, int32_t n, float a, float b)
{
    for (int32_t i = 0; i < n; i++)
        x[i] = uniform(a, b);
}

/* Calls f with every tier this processor can run. */
static void each_tier(void (*f)(const struct kernels *k))
{
    for (int32_t i = 0; kernels_tier(i); i++)
        f(kernels_tier(i));
}

#define CLOSE(got, want, bound)                                                                    \
    do {                                                                                           \
        double g_ = (got), w_ = (want), b_ = (bound);                                              \
        if (!(fabs(g_ - w_) <= b_))                                                                \
            fail_msg("%s: got %.9g, want %.9g, off by %.3g > %.3g", k->isa, g_, w_, fabs(g_ - w_), \
                     b_);                                                                          \
    } while (0)

/* ---- activations, softcap, softmax ---- */

static double act_ref(enum act_fn f, double x)
{
    switch (f) {
    case ACTFN_SILU:
        return x / (1 + exp(-x));
    case ACTFN_GELU_TANH: { /* 0.5 x (1 + tanh z), written so that its small values are exact */
        double z = 0.79788456080286535588 * x * (1 + 0.044715 * x * x);
        return x / (1 + exp(-2 * z));
    }
    case ACTFN_GELU_ERF:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case ACTFN_RELU:
        return x > 0 ? x : 0;
    case ACTFN_RELU2:
        return x > 0 ? x * x : 0;
    case ACTFN_SWIGLU_OAI: {
        double g = x < 7 ? x : 7;
        return g / (1 + exp(-1.702 * g));
    }
    }
    return 0;
}

/* How strongly a relative error of 2^-24 in the exponent's argument shows in the result. */
static double act_gain(enum act_fn f, double x)
{
    if (f == ACTFN_GELU_TANH)
        return 2 * fabs(0.8 * x * (1 + 0.044715 * x * x));
    if (f == ACTFN_GELU_ERF)
        return x * x;
    if (f == ACTFN_SWIGLU_OAI)
        return 1.702 * fabs(x);
    return 0;
}

static void check_activations(const struct kernels *k)
{
    enum { N = 4001 };
    static float x[N], y[N];
    for (int f = ACTFN_SILU; f <= ACTFN_SWIGLU_OAI; f++) {
        for (int pass = 0; pass < 3; pass++) {
            const float range[] = {1e-3f, 6.0f, 100.0f};
            for (int32_t i = 0; i < N; i++)
                x[i] = range[pass] * (float)(i - N / 2) / (float)(N / 2);
            k->gated((enum act_fn)f, x, NULL, y, N);
            for (int32_t i = 0; i < N; i++) {
                double want = act_ref((enum act_fn)f, x[i]);
                double rel =
                    (f == ACTFN_GELU_ERF ? 7e-7 : 4e-7) + 2.4e-7 * act_gain((enum act_fn)f, x[i]);
                CLOSE(y[i], want, fabs(want) * (rel < 1 ? rel : 1) + 1.3e-36);
            }
        }
    }
    /* The second factor, and what the oai form does with it. */
    float g[5] = {-9, -1, 0.5f, 3, 9}, u[5] = {-9, -2, 1, 7, 9}, h[5];
    k->gated(ACTFN_SILU, g, u, h, 5);
    for (int i = 0; i < 5; i++)
        CLOSE(h[i], act_ref(ACTFN_SILU, g[i]) * u[i],
              1e-6 * fabs(act_ref(ACTFN_SILU, g[i]) * u[i]));
    k->gated(ACTFN_SWIGLU_OAI, g, u, h, 5);
    for (int i = 0; i < 5; i++) {
        double c = u[i] > 7 ? 7 : u[i] < -7 ? -7 : u[i];
        double want = act_ref(ACTFN_SWIGLU_OAI, g[i]) * (c + 1);
        CLOSE(h[i], want, 4e-6 * fabs(want));
    }
    /* Extremes: the limits, and NaN in, NaN out. */
    float e[6] = {1e30f, -1e30f, 300, -300, NAN, 0}, r[6];
    for (int f = ACTFN_SILU; f <= ACTFN_GELU_ERF; f++) {
        k->gated((enum act_fn)f, e, NULL, r, 6);
        assert_true(r[0] == 1e30f && r[1] == 0 && r[2] == 300 && r[3] == 0 && isnan(r[4]) &&
                    r[5] == 0);
    }
}

static void check_softcap(const struct kernels *k)
{
    enum { N = 4001 };
    static float x[N], y[N];
    const float caps[] = {5, 30, 50};
    for (int c = 0; c < 3; c++)
        for (int pass = 0; pass < 3; pass++) {
            const float range[] = {1e-2f, 30.0f, 1e4f};
            for (int32_t i = 0; i < N; i++)
                y[i] = x[i] = range[pass] * (float)(i - N / 2) / (float)(N / 2);
            k->softcap(y, caps[c], N);
            for (int32_t i = 0; i < N; i++) {
                double want = (double)caps[c] * tanh((double)x[i] / caps[c]);
                CLOSE(y[i], want, 4e-7 * fabs(want));
            }
        }
    float e[3] = {INFINITY, -INFINITY, NAN};
    k->softcap(e, 30, 3);
    assert_true(e[0] == 30 && e[1] == -30 && isnan(e[2]));
}

static void check_softmax(const struct kernels *k)
{
    static float x[1000], y[1000];
    for (int32_t n = 1; n <= 1000; n = n < 20 ? n + 1 : n * 2 + 1) {
        fill(x, n, -60, 40);
        memcpy(y, x, sizeof x);
        k->softmax(y, n);
        double max = -1e9, sum = 0;
        for (int32_t i = 0; i < n; i++)
            max = x[i] > max ? x[i] : max;
        for (int32_t i = 0; i < n; i++)
            sum += exp(x[i] - max);
        for (int32_t i = 0; i < n; i++) { /* x - max itself is rounded: up to 100 * 2^-24 */
            double want = exp(x[i] - max) / sum;
            CLOSE(y[i], want, want * (5e-7 + 1.2e-7 * (max - x[i])) + 1.3e-38);
        }
    }
    float e[3] = {-INFINITY, 2, -INFINITY};
    k->softmax(e, 3);
    assert_true(e[0] == 0 && e[1] == 1 && e[2] == 0);
}

/* ---- norms ---- */

static void check_norms(const struct kernels *k)
{
    static float x[3000], w[3000], b[3000], y[3000];
    for (int32_t n = 1; n <= 3000; n = n < 40 ? n + 1 : n * 3 - 7) {
        fill(x, n, -3, 4);
        fill(w, n, -2, 2);
        fill(b, n, -1, 1);
        x[rand32() % (uint32_t)n] = 1000; /* a channel that stands out, as real models have */
        double squares = 0, sum = 0, var = 0;
        for (int32_t i = 0; i < n; i++) {
            squares += (double)x[i] * x[i];
            sum += x[i];
        }
        for (int32_t i = 0; i < n; i++)
            var += (x[i] - sum / n) * (x[i] - sum / n);
        double r = 1 / sqrt(squares / n + 1e-6), s = 1 / sqrt(var / n + 1e-5);
        k->rms_norm(x, w, 1e-6f, y, n);
        for (int32_t i = 0; i < n; i++)
            CLOSE(y[i], x[i] * r * w[i], 2.5e-7 * fabs(x[i] * r * w[i]));
        k->rms_norm(x, NULL, 1e-6f, y, n);
        for (int32_t i = 0; i < n; i++)
            CLOSE(y[i], x[i] * r, 2.5e-7 * fabs(x[i] * r));
        k->layer_norm(x, w, b, 1e-5f, y, n);
        for (int32_t i = 0; i < n; i++) {
            double v = (x[i] - sum / n) * s;
            CLOSE(y[i], v * w[i] + b[i], 4e-7 * (fabs(v * w[i]) + fabs((double)b[i])));
        }
        k->layer_norm(x, NULL, NULL, 1e-5f, y, n);
        for (int32_t i = 0; i < n; i++)
            CLOSE(y[i], (x[i] - sum / n) * s, 4e-7 * fabs((x[i] - sum / n) * s) + 1e-9);
        memcpy(b, x, sizeof b);
        k->rms_norm(x, w, 1e-6f, y, n);
        k->rms_norm(b, w, 1e-6f, b, n); /* in place */
        assert_memory_equal(b, y, (size_t)n * sizeof *b);
    }
}

/* ---- rope ---- */

static void check_rope(const struct kernels *k)
{
    static float x[5 * 80], y[5 * 80], c[40], s[40];
    for (int half = 0; half < 2; half++)
        for (int32_t r = 2; r <= 64; r += 2)
            for (int32_t off = 0; off <= 3; off += 3) {
                const int32_t dim = r + off + 5;
                fill(x, 5 * dim, -2, 2);
                for (int32_t i = 0; i < r / 2; i++) {
                    float a = uniform(0, 6.28f);
                    c[i] = cosf(a) * 1.2f;
                    s[i] = sinf(a) * 1.2f;
                }
                memcpy(y, x, sizeof x);
                k->rope(y, 5, dim, off, r, half != 0, c, s);
                for (int32_t h = 0; h < 5; h++) {
                    const float *u = x + h * dim, *v = y + h * dim;
                    for (int32_t i = 0; i < dim; i++)
                        if (i < off || i >= off + r)
                            assert_true(u[i] == v[i]);
                    for (int32_t i = 0; i < r / 2; i++) {
                        int32_t ia = off + (half ? i : 2 * i),
                                ib = off + (half ? i + r / 2 : 2 * i + 1);
                        double a = u[ia], b = u[ib];
                        CLOSE(v[ia], a * c[i] - b * s[i], 5e-7);
                        CLOSE(v[ib], a * s[i] + b * c[i], 5e-7);
                    }
                }
            }
}

/* ---- KV rows ---- */

static void kv_read(enum kv_type t, const uint8_t *row, int32_t n, double *out)
{
    for (int32_t i = 0; i < n; i++) {
        float f;
        uint16_t h;
        if (t == KV_F32) {
            memcpy(&f, row + 4 * i, 4);
            out[i] = f;
        } else if (t == KV_F16) {
            memcpy(&h, row + 2 * i, 2);
            out[i] = half_to_float(h);
        } else if (t == KV_Q4_0) {
            const uint8_t *block = row + i / 32 * 18;
            memcpy(&h, block, 2);
            out[i] = (double)half_to_float(h) * ((block[2 + i % 16] >> (i % 32 / 16 * 4) & 15) - 8);
        } else {
            memcpy(&h, row + i / 32 * 34, 2);
            out[i] = (double)half_to_float(h) * (int8_t)row[i / 32 * 34 + 2 + i % 32];
        }
    }
}

static void check_kv_store(const struct kernels *k)
{
    static float x[300];
    static double back[300];
    uint8_t row[1300], other[1300];
    for (int32_t n = 1; n <= 300; n += n < 70 ? 1 : 23) {
        fill(x, n, -5, 5);
        x[0] = 0;
        for (int t = KV_F32; t < KV_TYPES; t++) {
            size_t bytes = kv_row_bytes((enum kv_type)t, n);
            memset(row, 0xa5, sizeof row);
            k->kv_store((enum kv_type)t, x, row + 1, n);
            assert_true(row[0] == 0xa5 && row[1 + bytes] == 0xa5);
            kv_read((enum kv_type)t, row + 1, n, back);
            for (int32_t i = 0; i < n; i++) {
                double max = 0;
                for (int32_t j = i / 32 * 32; j < n && j < i / 32 * 32 + 32; j++)
                    max = fabs(x[j]) > max ? fabs(x[j]) : max;
                /* half an ulp of a half; half a step of 1/127 of the largest, and its scale's
                 * rounding */
                double bound = t == KV_F32   ? 0
                               : t == KV_F16 ? fabs(x[i]) * 0x1p-11
                               : t == KV_Q8_0
                                   ? max / 127 * 0.55
                                   /* levels -8 to 7: half a step of max / 8; or a whole one, at
                                    * the end that has no 8; and the scale's rounding */
                                   : max / 8 * 1.005;
                CLOSE(back[i], x[i], bound);
            }
            kernels_tier(0)->kv_store((enum kv_type)t, x, other, n);
            assert_memory_equal(row + 1, other, bytes); /* every tier stores the same bytes */
        }
    }
    /* Sizes: F32 and F16 as they are, Q8_0 in blocks of 34 bytes for every 32 begun. */
    assert_int_equal(kv_row_bytes(KV_F32, 80), 320);
    assert_int_equal(kv_row_bytes(KV_F16, 80), 160);
    assert_int_equal(kv_row_bytes(KV_Q8_0, 80), 102);
    assert_int_equal(kv_row_bytes(KV_Q4_0, 80), 54);
    float big[32] = {3e7f, -3e7f, 65504}, zero[32] = {0};
    k->kv_store(KV_Q8_0, big, row, 32);
    kv_read(KV_Q8_0, row, 32, back);
    CLOSE(back[0], 127 * 65504.0, 0);
    CLOSE(back[1], -127 * 65504.0, 0);
    k->kv_store(KV_Q8_0, zero, row, 32);
    for (int i = 0; i < 34; i++)
        assert_int_equal(row[i], 0);
}

/* Q4_0 rows as GGUF's reference makes them (tests/golden/kv/make_kv.py). */
static void test_q4_golden(void **state)
{
    (void)state;
    char path[4096];
    const char *golden = getenv("LEAT_GOLDEN");
    snprintf(path, sizeof path, "%s/kv/Q4_0.bin", golden ? golden : "tests/golden");
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    uint32_t head[3];
    assert_int_equal(fread(head, 4, 3, f), 3);
    const size_t rows = head[0], n = head[1], bytes = head[2];
    assert_true(rows > 40 && n == 64 && bytes == kv_row_bytes(KV_Q4_0, 64));
    float *x = malloc(rows * n * 4);
    uint8_t *want = malloc(rows * bytes), got[64];
    assert_int_equal(fread(x, 4, rows * n, f), rows * n);
    assert_int_equal(fread(want, 1, rows * bytes, f), rows * bytes);
    fclose(f);
    for (int32_t t = 0; kernels_tier(t); t++)
        for (size_t r = 0; r < rows; r++) {
            kernels_tier(t)->kv_store(KV_Q4_0, x + r * n, got, (int32_t)n);
            assert_memory_equal(got, want + r * bytes, bytes);
        }
    free(x);
    free(want);
}

/* ---- a value's result does not depend on its place, and nothing beyond n is touched ---- */

typedef void (*elementwise)(const struct kernels *k, float *y, const float *x, int32_t n);

static void do_add(const struct kernels *k, float *y, const float *x, int32_t n)
{
    k->add(y, x, n);
}
static void do_add_scaled(const struct kernels *k, float *y, const float *x, int32_t n)
{
    k->add_scaled(y, x, 0.37f, n);
}
static void do_scale(const struct kernels *k, float *y, const float *x, int32_t n)
{
    (void)x;
    k->scale(y, 1.7f, n);
}
static void do_softcap(const struct kernels *k, float *y, const float *x, int32_t n)
{
    (void)x;
    k->softcap(y, 2.5f, n);
}
static void do_silu(const struct kernels *k, float *y, const float *x, int32_t n)
{
    k->gated(ACTFN_SILU, x, y, y, n);
}
static void do_gelu(const struct kernels *k, float *y, const float *x, int32_t n)
{
    k->gated(ACTFN_GELU_TANH, x, y, y, n);
}
static void do_gelu_erf(const struct kernels *k, float *y, const float *x, int32_t n)
{
    k->gated(ACTFN_GELU_ERF, x, NULL, y, n);
}
static void do_oai(const struct kernels *k, float *y, const float *x, int32_t n)
{
    k->gated(ACTFN_SWIGLU_OAI, x, y, y, n);
}

static void check_place(const struct kernels *k)
{
    static const elementwise ops[] = {do_add,  do_add_scaled, do_scale,    do_softcap,
                                      do_silu, do_gelu,       do_gelu_erf, do_oai};
    float x[64], y0[64], y[64];
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int32_t n = 1; n <= 40; n++)
            for (int32_t at = 1; at < 4; at++) {
                fill(x, 64, -8, 8);
                fill(y0, 64, -8, 8);
                memcpy(y, y0, sizeof y);
                ops[o](k, y + at, x + at, n);
                for (int32_t i = 0; i < 64; i++) {
                    float alone = y0[i], with = x[i];
                    if (i >= at && i < at + n)
                        ops[o](k, &alone, &with, 1);
                    assert_memory_equal(&alone, &y[i], sizeof alone);
                }
                /* h and g may be one array */
                if (ops[o] == do_silu) {
                    memcpy(y, x, sizeof y);
                    k->gated(ACTFN_SILU, y + at, y0 + at, y + at, n);
                    float want[40];
                    k->gated(ACTFN_SILU, x + at, y0 + at, want, n);
                    assert_memory_equal(want, y + at, (size_t)n * sizeof *want);
                }
            }
}

static void check_sums(const struct kernels *k)
{
    float a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, b[8] = {8, 7, 6, 5, 4, 3, 2, 1};
    k->add(a, b, 8);
    for (int i = 0; i < 8; i++)
        assert_true(a[i] == 9);
    k->add_scaled(a, b, 0.5f, 8);
    assert_true(a[0] == 13 && a[7] == 9.5f);
    k->scale(a, 2, 7);
    assert_true(a[0] == 26 && a[7] == 9.5f);
}

#define TIERED(name)                                                                               \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        each_tier(check_##name);                                                                   \
    }
TIERED(activations)
TIERED(softcap)
TIERED(softmax)
TIERED(norms)
TIERED(rope)
TIERED(kv_store)
TIERED(place)
TIERED(sums)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_q4_golden),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_softmax),     cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rope),        cmocka_unit_test(test_kv_store),
        cmocka_unit_test(test_place),       cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
