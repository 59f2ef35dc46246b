/* attn_tile against attention written out in double precision, and the law: a query's result
 * does not depend on which queries stand beside it, nor on what lies at positions it cannot see. */
#include "alone.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../../src/kernels/kernels.h"

#define TILES     3
#define POSITIONS (TILES * ATTN_TILE)
#define MAX_NQ    20
#define MAX_D     256

static uint64_t seed = 1181783497276652981u;

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

/* One head's history and the queries on it. */
struct scene {
    enum kv_type type;
    int32_t dk, dv, nq, window;
    float softcap;
    int32_t pos[MAX_NQ];
    float q[MAX_NQ][MAX_D];
    uint8_t k[POSITIONS * MAX_D * 4 + 1], v[POSITIONS * MAX_D * 4 + 1];
    uint64_t k_row, v_row;
};

static struct scene scene;

static double kv_value(enum kv_type t, const uint8_t *row, int32_t i)
{
    float f;
    uint16_t h;
    if (t == KV_F32) {
        memcpy(&f, row + 4 * (size_t)i, 4);
        return f;
    }
    if (t == KV_F16) {
        memcpy(&h, row + 2 * (size_t)i, 2);
        return half_to_float(h);
    }
    if (t == KV_Q4_0) {
        const uint8_t *block = row + (size_t)(i / 32) * 18;
        memcpy(&h, block, 2);
        return (double)half_to_float(h) * ((block[2 + i % 16] >> (i % 32 / 16 * 4) & 15) - 8);
    }
    memcpy(&h, row + (size_t)(i / 32) * 34, 2);
    return (double)half_to_float(h) * (int8_t)row[i / 32 * 34 + 2 + i % 32];
}

/* The rows lie one byte off any alignment, as rows of Q8_0 do. */
static uint8_t *k_row(int32_t p)
{
    return scene.k + 1 + (uint64_t)p * scene.k_row;
}

static uint8_t *v_row(int32_t p)
{
    return scene.v + 1 + (uint64_t)p * scene.v_row;
}

static void scene_make(enum kv_type t, int32_t dk, int32_t dv, int32_t nq, int32_t window,
                       float softcap)
{
    struct scene *s = &scene;
    *s = (struct scene){
        .type = t, .dk = dk, .dv = dv, .nq = nq, .window = window, .softcap = softcap};
    s->k_row = kv_row_bytes(t, dk);
    s->v_row = kv_row_bytes(t, dv);
    float row[MAX_D];
    for (int32_t p = 0; p < POSITIONS; p++) {
        for (int32_t i = 0; i < dk; i++)
            row[i] = uniform(-2, 2);
        kernels_tier(0)->kv_store(t, row, k_row(p), dk);
        for (int32_t i = 0; i < dv; i++)
            row[i] = uniform(-2, 2);
        kernels_tier(0)->kv_store(t, row, v_row(p), dv);
    }
    for (int32_t i = 0; i < nq; i++) {
        s->pos[i] = (int32_t)(rand32() % POSITIONS);
        for (int32_t c = 0; c < dk; c++)
            s->q[i][c] = uniform(-1, 1) * 2 / sqrtf((float)dk);
    }
    s->pos[0] = POSITIONS - 1;
}

/* Queries [i0, i0 + n) through all tiles; out[n][dv] divided by the sum. */
static void scene_run(const struct kernels *k, int32_t i0, int32_t n, float *out)
{
    const struct scene *s = &scene;
    const float *q[MAX_NQ];
    float *acc[MAX_NQ], m[MAX_NQ], l[MAX_NQ];
    int32_t lo[MAX_NQ], hi[MAX_NQ];
    void *scratch = aligned_alloc(64, (attn_scratch_bytes(s->dk, s->dv, n) + 63) / 64 * 64);
    memset(out, 0, (size_t)n * (size_t)s->dv * sizeof *out);
    for (int32_t i = 0; i < n; i++) {
        q[i] = s->q[i0 + i];
        acc[i] = out + (size_t)i * (size_t)s->dv;
        m[i] = -INFINITY;
        l[i] = 0;
    }
    for (int32_t t = 0; t < TILES; t++) {
        for (int32_t i = 0; i < n; i++) {
            int32_t end = s->pos[i0 + i] + 1 - t * ATTN_TILE;
            int32_t begin = s->window ? end - s->window : 0;
            hi[i] = end < 0 ? 0 : end > ATTN_TILE ? ATTN_TILE : end;
            lo[i] = begin < 0 ? 0 : begin > ATTN_TILE ? ATTN_TILE : begin;
        }
        struct attn_tile a = {
            .type = s->type,
            .k = k_row(t * ATTN_TILE),
            .v = v_row(t * ATTN_TILE),
            .k_stride = s->k_row,
            .v_stride = s->v_row,
            .dk = s->dk,
            .dv = s->dv,
            .nq = n,
            .q = q,
            .acc = acc,
            .m = m,
            .l = l,
            .lo = lo,
            .hi = hi,
            .softcap = s->softcap,
            .scratch = scratch,
        };
        k->attn_tile(&a);
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t c = 0; c < s->dv; c++)
            acc[i][c] /= l[i];
    free(scratch);
}

static void scene_reference(int32_t i, double *out)
{
    const struct scene *s = &scene;
    double score[POSITIONS], max = -1e300, sum = 0;
    int32_t begin = s->window && s->pos[i] - s->window + 1 > 0 ? s->pos[i] - s->window + 1 : 0;
    for (int32_t p = begin; p <= s->pos[i]; p++) {
        double d = 0;
        for (int32_t c = 0; c < s->dk; c++)
            d += s->q[i][c] * kv_value(s->type, k_row(p), c);
        score[p] = s->softcap != 0 ? s->softcap * tanh(d / s->softcap) : d;
        max = score[p] > max ? score[p] : max;
    }
    memset(out, 0, (size_t)s->dv * sizeof *out);
    for (int32_t p = begin; p <= s->pos[i]; p++)
        sum += exp(score[p] - max);
    for (int32_t p = begin; p <= s->pos[i]; p++)
        for (int32_t c = 0; c < s->dv; c++)
            out[c] += exp(score[p] - max) / sum * kv_value(s->type, v_row(p), c);
}

static void scene_check(const struct kernels *k)
{
    static float all[MAX_NQ * MAX_D], some[MAX_NQ * MAX_D];
    double want[MAX_D];
    const struct scene *s = &scene;
    scene_run(k, 0, s->nq, all);
    for (int32_t i = 0; i < s->nq; i++) {
        scene_reference(i, want);
        for (int32_t c = 0; c < s->dv; c++)
            if (!(fabs(all[i * s->dv + c] - want[c]) < 3e-6))
                fail_msg("%s: type %d dk %d dv %d query %d value %d: %.9g, want %.9g", k->isa,
                         s->type, s->dk, s->dv, i, c, all[i * s->dv + c], want[c]);
    }
    /* Alone, and with other neighbours: the same bits. */
    const int32_t widths[] = {1, 2, 5};
    for (int w = 0; w < 3; w++)
        for (int32_t i = 0; i + widths[w] <= s->nq; i += widths[w]) {
            scene_run(k, i, widths[w], some);
            assert_memory_equal(some, all + i * s->dv, sizeof(float) * (size_t)(widths[w] * s->dv));
        }
}

/* The wide tiers sum in the same orders: the same bits in all of them. */
static void scene_equal(void)
{
    static float one[MAX_NQ * MAX_D], other[MAX_NQ * MAX_D];
    const struct scene *s = &scene;
    if (!kernels_tier(1))
        return;
    scene_run(kernels_tier(1), 0, s->nq, one);
    for (int32_t i = 2; kernels_tier(i); i++) {
        scene_run(kernels_tier(i), 0, s->nq, other);
        assert_memory_equal(one, other, sizeof(float) * (size_t)(s->nq * s->dv));
    }
}

/* Poison at every position that query 1 cannot see must not reach it, whoever else is there. */
static void scene_poison(const struct kernels *k)
{
    static float before[MAX_NQ * MAX_D], after[MAX_NQ * MAX_D];
    struct scene *s = &scene;
    scene_run(k, 0, s->nq, before);
    float bad[MAX_D];
    for (int32_t i = 0; i < MAX_D; i++)
        bad[i] = i % 2 ? NAN : INFINITY;
    for (int32_t p = 0; p < POSITIONS; p++)
        if (p > s->pos[1] || (s->window && p <= s->pos[1] - s->window)) {
            memcpy(k_row(p), bad, s->k_row);
            memcpy(v_row(p), bad, s->v_row);
        }
    scene_run(k, 0, s->nq, after);
    assert_memory_equal(after + s->dv, before + s->dv, sizeof(float) * (size_t)s->dv);
}

static void test_attention(void **state)
{
    (void)state;
    const int32_t dims[][2] = {{8, 8},    {16, 16},   {13, 7},    {64, 64},  {80, 80},
                               {96, 128}, {128, 128}, {192, 128}, {256, 256}};
    for (int t = KV_F32; t < KV_TYPES; t++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (int32_t window = 0; window <= 100; window += 50) {
                scene_make((enum kv_type)t, dims[d][0], dims[d][1], (int32_t)(d + 2) * 2 - (t == 1),
                           window, d % 3 == 1 ? 4.0f : 0);
                for (int32_t i = 0; kernels_tier(i); i++)
                    scene_check(kernels_tier(i));
                scene_equal();
            }
}

static void test_invisible(void **state)
{
    (void)state;
    for (int32_t i = 0; kernels_tier(i); i++)
        for (int round = 0; round < 6; round++) {
            scene_make(round % 2 ? KV_F16 : KV_F32, round < 3 ? 64 : 40, round < 3 ? 64 : 24, 6,
                       round % 3 * 40, 0);
            scene_poison(kernels_tier(i));
        }
}

/* Scores far apart: the running maximum rises in every tile, the first ones underflow. */
static void test_large_scores(void **state)
{
    (void)state;
    scene_make(KV_F32, 16, 16, 4, 0, 0);
    for (int32_t p = 0; p < POSITIONS; p++)
        for (int32_t c = 0; c < 16; c++) {
            float v = (float)p * 0.5f;
            memcpy(k_row(p) + 4 * c, &v, 4);
        }
    for (int32_t i = 0; i < 4; i++)
        for (int32_t c = 0; c < 16; c++)
            scene.q[i][c] = i % 2 ? 1 : -1;
    for (int32_t i = 0; kernels_tier(i); i++)
        scene_check(kernels_tier(i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_invisible),
        cmocka_unit_test(test_large_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
