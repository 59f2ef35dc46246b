/* The sampler against a plain reference: sort everything, cut, compare. And the generator against
 * published numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../../src/session/sampling.h"

enum { N = 300 };

/* ---- rng ---- */

static void test_rng_published_numbers(void **state)
{
    (void)state;
    /* SplitMix64 from seed 1234567 (Rosetta Code, "Pseudo-random numbers/Splitmix64") */
    static const uint64_t split[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                     UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                     UINT64_C(16408922859458223821)};
    uint64_t s = 1234567;
    for (int i = 0; i < 5; i++)
        assert_true(rng_splitmix(&s) == split[i]);
    /* xoshiro256** from state 1, 2, 3, 4 (the reference C program; the vector of rand_xoshiro's
     * tests) */
    static const uint64_t star[] = {11520,
                                    0,
                                    1509978240,
                                    UINT64_C(1215971899390074240),
                                    UINT64_C(1216172134540287360),
                                    UINT64_C(607988272756665600),
                                    UINT64_C(16172922978634559625),
                                    UINT64_C(8476171486693032832),
                                    UINT64_C(10595114339597558777),
                                    UINT64_C(2904607092377533576)};
    struct rng r = {{1, 2, 3, 4}};
    for (int i = 0; i < 10; i++)
        assert_true(rng_next(&r) == star[i]);
}

static void test_rng_unit_is_half_open(void **state)
{
    (void)state;
    struct rng r;
    double sum = 0;
    rng_seed(&r, 7);
    for (int i = 0; i < 100000; i++) {
        double u = rng_unit(&r);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.005); /* 5.5 sigma */
}

/* ---- the reference ---- */

struct ref {
    double p; /* at temperature 1 */
    float logit;
    int32_t id;
};

static int ref_order(const void *a, const void *b)
{
    const struct ref *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

static int ref_by_id(const void *a, const void *b)
{
    return ((const struct ref *)a)->id - ((const struct ref *)b)->id;
}

/* Returns the kept in ascending order of id. */
static int32_t reference(const struct sampling *how, const float *logits, int32_t n, struct ref *r)
{
    for (int32_t i = 0; i < n; i++)
        r[i] = (struct ref){0, logits[i], i};
    qsort(r, (size_t)n, sizeof *r, ref_order);
    int32_t k = how->top_k > 0 && how->top_k < n ? how->top_k : n;
    double sum = 0, run = 0;
    for (int32_t i = 0; i < k; i++)
        sum += r[i].p = exp((double)r[i].logit - (double)r[0].logit);
    int32_t kept = k;
    if (how->top_p < 1)
        for (kept = 0; kept < k;) {
            run += r[kept++].p;
            if (run >= (double)how->top_p * sum)
                break;
        }
    int32_t m = 0;
    while (m < kept && r[m].logit > -INFINITY &&
           (how->min_p <= 0 || r[m].logit >= r[0].logit + logf(how->min_p)))
        m++;
    qsort(r, (size_t)m, sizeof *r, ref_by_id);
    return m;
}

static float random_logit(struct rng *g, int kind)
{
    double u = rng_unit(g);
    if (kind == 0)
        return (float)(20 * u - 10);
    if (kind == 1)
        return (float)(int)(5 * u); /* many equal */
    if (kind == 2)
        return u < 0.3 ? -INFINITY : (float)(2 * u);
    return 1.0f; /* all equal */
}

static void test_cuts_equal_the_reference(void **state)
{
    (void)state;
    static const int32_t ks[] = {0, 1, 2, 7, 40, N - 1, N, N + 5};
    static const float ps[] = {1, 0.95f, 0.5f, 0.01f, 0}, ms[] = {0, 0.05f, 0.5f, 1};
    float logits[N];
    struct candidate out[N];
    struct ref want[N];
    struct rng g;
    int32_t cut = 0;
    rng_seed(&g, 1);
    for (int round = 0; round < 24; round++) {
        int32_t n = 1 + (int32_t)(rng_unit(&g) * N);
        for (int32_t i = 0; i < n; i++)
            logits[i] = random_logit(&g, round % 4);
        if (round % 4 == 2)
            logits[n / 2] = 0.5f; /* something is left */
        for (size_t k = 0; k < 8; k++)
            for (size_t p = 0; p < 5; p++)
                for (size_t m = 0; m < 4; m++) {
                    struct sampling how = {
                        .temperature = 1, .top_k = ks[k], .top_p = ps[p], .min_p = ms[m]};
                    int32_t w = reference(&how, logits, n, want),
                            got = sampler_keep(&how, logits, n, out);
                    assert_int_equal(got, w);
                    for (int32_t i = 0; i < w; i++) {
                        assert_int_equal(out[i].id, want[i].id);
                        assert_true(out[i].logit == want[i].logit);
                    }
                    cut += w < n;
                }
    }
    assert_true(cut > 1000);
}

/* Vocabularies of many blocks, where only those that hold high logits are looked into. */
static void test_cuts_of_large_vocabularies(void **state)
{
    (void)state;
    enum { LARGE = 40000 };
    static float logits[LARGE];
    static struct candidate out[LARGE];
    static struct ref want[LARGE];
    static const struct sampling hows[] = {
        {.temperature = 1, .top_k = 1, .top_p = 1},
        {.temperature = 1, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f},
        {.temperature = 1, .top_k = 300, .top_p = 1},
        {.temperature = 1, .top_k = 20000, .top_p = 1},
        {.temperature = 1, .top_p = 0.9f},
        {.temperature = 1, .top_p = 0.999f, .min_p = 0.001f},
        {.temperature = 1, .top_p = 1, .min_p = 0.2f},
        {.temperature = 1, .top_p = 1},
    };
    struct rng g;
    int32_t cut = 0;
    rng_seed(&g, 21);
    for (int round = 0; round < 12; round++) {
        const int32_t n = LARGE - (int32_t)(rng_unit(&g) * 300);
        const float spread = round % 3 == 0 ? 1 : round % 3 == 1 ? 12 : 40;
        for (int32_t i = 0; i < n; i++)
            logits[i] = spread * (float)rng_unit(&g) - (round % 2 ? 30.0f : 0);
        for (int32_t i = 0; i < 25; i++) /* some high ones, equal ones among them */
            logits[rng_next(&g) % (uint64_t)n] = spread + (float)(rng_next(&g) % 12) * 0.75f;
        if (round > 8)
            for (int32_t i = 0; i < n; i += 3)
                logits[i] = -INFINITY;
        for (size_t h = 0; h < sizeof hows / sizeof *hows; h++) {
            const int32_t w = reference(&hows[h], logits, n, want),
                          got = sampler_keep(&hows[h], logits, n, out);
            assert_int_equal(got, w);
            for (int32_t i = 0; i < w; i++) {
                assert_int_equal(out[i].id, want[i].id);
                assert_true(out[i].logit == want[i].logit);
            }
            cut += w < n;
        }
    }
    assert_true(cut > 70);
}

static int32_t pick(struct sampler *s, const float *logits, int32_t n, const int32_t *history,
                    int32_t n_history, struct leat_error *e)
{
    float copy[N];
    struct candidate scratch[N];
    int32_t sorted[N], id = -1;
    memcpy(copy, logits, (size_t)n * sizeof *copy);
    int code = sampler_pick(s, copy, n, history, n_history, sorted, scratch, &id, e);
    return code < 0 ? code : id;
}

static void test_draw_follows_the_distribution(void **state)
{
    (void)state;
    const float logits[] = {1.0f, 0.0f, 2.0f, -1.0f, 0.5f, -INFINITY, 2.0f};
    enum { K = 7, DRAWS = 40000 };
    static const float temperatures[] = {0.5f, 1, 2};
    for (int t = 0; t < 3; t++) {
        int count[K] = {0};
        double p[K], sum = 0;
        struct sampler s;
        struct sampling how = {
            .temperature = temperatures[t], .top_p = 1, .repeat_penalty = 1, .seed = 99};
        sampler_init(&s, &how);
        for (int i = 0; i < DRAWS; i++)
            count[pick(&s, logits, K, NULL, 0, NULL)]++;
        for (int i = 0; i < K; i++)
            sum += p[i] = exp((double)logits[i] / (double)temperatures[t]);
        for (int i = 0; i < K; i++) {
            double want = DRAWS * p[i] / sum, sigma = sqrt(want * (1 - p[i] / sum));
            assert_true(fabs(count[i] - want) <= 5 * sigma);
        }
        assert_int_equal(count[5], 0);
    }
}

/* Without cuts the draw goes by blocks: each gets its share, and within it each id. */
static void test_draw_over_many_blocks(void **state)
{
    (void)state;
    enum { K = 1000, DRAWS = 60000 };
    static float logits[K], copy[K];
    static int count[K];
    static struct candidate scratch[K];
    double p[K], sum = 0, chi = 0;
    struct rng g;
    struct sampler s;
    struct sampling how = {.temperature = 0.7f, .top_p = 1, .repeat_penalty = 1, .seed = 12};
    rng_seed(&g, 8);
    for (int i = 0; i < K; i++) {
        logits[i] = i % 5 == 4 ? -INFINITY : (float)(2 * rng_unit(&g));
        sum += p[i] = exp((double)logits[i] / (double)0.7f);
    }
    sampler_init(&s, &how);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id;
        memcpy(copy, logits, sizeof copy);
        assert_int_equal(sampler_pick(&s, copy, K, NULL, 0, NULL, scratch, &id, NULL), 0);
        count[id]++;
    }
    for (int i = 0; i < K; i++) {
        const double want = DRAWS * p[i] / sum;
        if (i % 5 == 4)
            assert_int_equal(count[i], 0);
        else
            chi += (count[i] - want) * (count[i] - want) / want;
    }
    /* 799 degrees of freedom: deviation sqrt(2 * 799) = 40 */
    assert_true(chi > 799 - 200 && chi < 799 + 200);
}

static void test_same_seed_same_draws(void **state)
{
    (void)state;
    float logits[N];
    struct rng g;
    struct sampler a, b, c;
    struct sampling how = {
        .temperature = 1, .top_k = 40, .top_p = 0.95f, .repeat_penalty = 1, .seed = 5};
    int differs = 0;
    rng_seed(&g, 3);
    for (int i = 0; i < N; i++)
        logits[i] = random_logit(&g, 0) / 4;
    sampler_init(&a, &how);
    sampler_init(&b, &how);
    how.seed = 6;
    sampler_init(&c, &how);
    for (int i = 0; i < 200; i++) {
        int32_t x = pick(&a, logits, N, NULL, 0, NULL);
        assert_int_equal(x, pick(&b, logits, N, NULL, 0, NULL));
        differs += x != pick(&c, logits, N, NULL, 0, NULL);
    }
    assert_true(differs > 50);
}

static void test_greedy_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    struct sampler s;
    struct sampling how = {.temperature = 0, .top_p = 1, .repeat_penalty = 1};
    float logits[N];
    sampler_init(&s, &how);
    for (int n = 1; n < N; n += 7)
        for (int at = 0; at < n; at += 3) {
            for (int i = 0; i < n; i++)
                logits[i] = i == at || i == n - 1 ? 3.0f : -1.0f - (float)i;
            assert_int_equal(pick(&s, logits, n, NULL, 0, NULL), at);
        }
}

static void test_penalties_and_bias(void **state)
{
    (void)state;
    /* by hand: history 1 1 2 9(outside) 0, window all; repeat 2, frequency 0.5, presence 0.25 */
    float logits[] = {4.0f, 3.0f, -2.0f, 1.0f};
    const float want[] = {4.0f / 2 - 0.5f - 0.25f, (3.0f + 10.0f) / 2 - 1.0f - 0.25f,
                          -2.0f * 2 - 0.5f - 0.25f, 1.0f};
    const int32_t history[] = {1, 1, 2, 9, 0};
    const struct logit_bias bias[] = {{1, 10.0f}, {77, 1.0f}};
    struct sampling how = {.temperature = 0,
                           .top_p = 1,
                           .repeat_penalty = 2,
                           .frequency_penalty = 0.5f,
                           .presence_penalty = 0.25f,
                           .repeat_last_n = -1,
                           .bias = bias,
                           .n_bias = 2};
    struct sampler s;
    struct candidate scratch[4];
    int32_t sorted[5], id;
    sampler_init(&s, &how);
    assert_int_equal(sampler_pick(&s, logits, 4, history, 5, sorted, scratch, &id, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_true(logits[i] == want[i]);
    assert_int_equal(id, 1);

    /* a window of 2 sees 9 and 0 only; of 0, nothing */
    float two[] = {4.0f, 3.0f, -2.0f, 1.0f}, none[] = {4.0f, 3.0f, -2.0f, 1.0f};
    how.n_bias = 0;
    how.repeat_last_n = 2;
    sampler_init(&s, &how);
    sampler_pick(&s, two, 4, history, 5, sorted, scratch, &id, NULL);
    assert_true(two[0] == 4.0f / 2 - 0.75f && two[1] == 3.0f && two[2] == -2.0f);
    assert_int_equal(id, 1);
    how.repeat_last_n = 0;
    sampler_init(&s, &how);
    sampler_pick(&s, none, 4, history, 5, sorted, scratch, &id, NULL);
    assert_true(none[0] == 4.0f);
    assert_int_equal(id, 0);
}

static void test_penalty_counts_of_long_histories(void **state)
{
    (void)state;
    enum { LONG = 5000 };
    static int32_t history[LONG], sorted[LONG];
    static float logits[N], want[N];
    struct rng g;
    struct candidate scratch[N];
    struct sampling how = {.temperature = 0,
                           .top_p = 1,
                           .repeat_penalty = 1,
                           .frequency_penalty = 0.125f,
                           .repeat_last_n = -1};
    struct sampler s;
    int32_t id;
    rng_seed(&g, 11);
    for (int i = 0; i < LONG; i++) {
        history[i] = (int32_t)(rng_unit(&g) * N);
        want[history[i]] -= 0.125f; /* exact in binary */
    }
    sampler_init(&s, &how);
    sampler_pick(&s, logits, N, history, LONG, sorted, scratch, &id, NULL);
    assert_memory_equal(logits, want, sizeof want);
}

static void test_a_ban_is_never_drawn(void **state)
{
    (void)state;
    const float logits[] = {9, 1, 1};
    const struct logit_bias bias[] = {{0, -INFINITY}};
    struct sampling how = {
        .temperature = 1, .top_p = 1, .repeat_penalty = 1, .bias = bias, .n_bias = 1, .seed = 1};
    struct sampler s;
    sampler_init(&s, &how);
    for (int i = 0; i < 500; i++)
        assert_int_not_equal(pick(&s, logits, 3, NULL, 0, NULL), 0);
}

static void test_bad_logits_are_an_error(void **state)
{
    (void)state;
    struct sampling how = {.temperature = 0, .top_p = 1, .repeat_penalty = 1};
    struct sampler s;
    struct leat_error e;
    sampler_init(&s, &how);
    for (int n = 1; n < 60; n++)
        for (int kind = 0; kind < 3; kind++) {
            float x[60];
            for (int i = 0; i < n; i++)
                x[i] = kind == 2 ? -INFINITY : (float)i;
            if (kind < 2)
                x[n / 2] = kind ? NAN : INFINITY;
            assert_int_equal(pick(&s, x, n, NULL, 0, &e), LEAT_ERR_FORMAT);
        }
}

static void test_extreme_temperatures(void **state)
{
    (void)state;
    const float logits[] = {0, 50, -50, 49.9f};
    struct sampling how = {.temperature = 1e-6f, .top_p = 1, .repeat_penalty = 1, .seed = 4};
    struct sampler s;
    sampler_init(&s, &how);
    for (int i = 0; i < 100; i++)
        assert_int_equal(pick(&s, logits, 4, NULL, 0, NULL), 1);
    how.temperature = 100;
    int seen[4] = {0};
    sampler_init(&s, &how);
    for (int i = 0; i < 2000; i++)
        seen[pick(&s, logits, 4, NULL, 0, NULL)]++;
    assert_true(seen[0] > 100 && seen[1] > 100 && seen[2] > 100 && seen[3] > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rng_published_numbers),
        cmocka_unit_test(test_rng_unit_is_half_open),
        cmocka_unit_test(test_cuts_equal_the_reference),
        cmocka_unit_test(test_cuts_of_large_vocabularies),
        cmocka_unit_test(test_draw_over_many_blocks),
        cmocka_unit_test(test_draw_follows_the_distribution),
        cmocka_unit_test(test_same_seed_same_draws),
        cmocka_unit_test(test_greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(test_penalties_and_bias),
        cmocka_unit_test(test_penalty_counts_of_long_histories),
        cmocka_unit_test(test_a_ban_is_never_drawn),
        cmocka_unit_test(test_bad_logits_are_an_error),
        cmocka_unit_test(test_extreme_temperatures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
