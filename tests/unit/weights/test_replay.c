/* Replay of a routing: figures worked out by hand, Belady against every other choice of victims,
 * the cliff below the token cycle that recency has and frequency has not, a change of topic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../../src/weights/replay.h"

enum { LAYERS = 6, EXPERTS = 16, USED = 2, ROWS = 6000, CHOICES = 2 * ROWS };

/* A trace in the making. */
struct made {
    struct route_trace t;
    struct route_row row[ROWS];
    uint16_t expert[CHOICES];
    uint64_t expert_bytes[LAYERS];
};

static struct made made;
static struct leat_error err;

static struct route_trace *start(int32_t n_layers, int32_t n_experts, uint64_t bytes)
{
    made.t = (struct route_trace){.n_layers = n_layers,
                                  .n_experts = n_experts,
                                  .expert_bytes = made.expert_bytes,
                                  .row = made.row,
                                  .expert = made.expert};
    for (int32_t i = 0; i < n_layers; i++)
        made.expert_bytes[i] = bytes;
    return &made.t;
}

static void add(enum route_phase phase, int32_t token, int32_t layer, int32_t n, const int32_t *ids)
{
    struct route_trace *t = &made.t;

    assert_true(t->n_rows < ROWS && t->n_choices + n <= CHOICES);
    t->row[t->n_rows++] = (struct route_row){.token = token,
                                             .layer = layer,
                                             .phase = (uint8_t)phase,
                                             .n = (uint8_t)n,
                                             .first = t->n_choices};
    for (int32_t i = 0; i < n; i++)
        made.expert[t->n_choices++] = (uint16_t)ids[i];
}

static struct replay_hits run(const struct route_trace *t, const char *policy, uint64_t budget)
{
    struct replay_hits h = {0};
    struct replay *r;

    if (replay_open(t, &r, &err) ||
        replay_run(r, policy ? evict_find(policy) : NULL, budget, &h, &err))
        fail_msg("%s", err.message);
    replay_close(r);
    return h;
}

static double rate(const struct route_trace *t, const char *policy, double cycles)
{
    const struct replay_hits h =
        run(t, policy, (uint64_t)(cycles * t->n_layers * USED * (double)t->expert_bytes[0]));
    return (double)h.hit_bytes / (double)h.asked_bytes;
}

/* One layer, one expert a token: 0 1 2 0 1 2 3 0, room for two. Prompt: 0 and 1. */
static void test_by_hand(void **state)
{
    static const int32_t text[] = {0, 1, 2, 0, 1, 2, 3, 0};
    struct route_trace *t = start(1, 4, 10);

    (void)state;
    for (int32_t i = 0; i < 8; i++)
        add(i < 2 ? ROUTE_PREFILL : ROUTE_DECODE, i, 0, 1, &text[i]);
    /* LRU: 01 | 2 evicts 0, 0 evicts 1, ... nothing hits. */
    assert_int_equal(run(t, "lru", 20).asked_bytes, 60);
    assert_int_equal(run(t, "lru", 20).hit_bytes, 0);
    /* Belady: 2 is wanted after 0 and 1 and passes through, 0 hits, 1 hits (0 and 2 are later),
     * 2 comes for nothing: 0 stays and hits in the end. */
    assert_int_equal(run(t, NULL, 20).hit_bytes, 30);
    /* Room for three: 0 1 2 are there, 0 1 2 hit; 3 takes the place of one of them: LRU's is 0. */
    assert_int_equal(run(t, "lru", 30).hit_bytes, 30);
    assert_int_equal(run(t, "lru", 30).evictions, 2);
    assert_int_equal(run(t, NULL, 30).hit_bytes, 40);
    /* Room for none. */
    assert_int_equal(run(t, "lru", 9).hit_bytes, 0);
    assert_int_equal(run(t, NULL, 9).hit_bytes, 0);
    /* Room for all. */
    assert_int_equal(run(t, "decay", 40).hit_bytes, 40);
    assert_int_equal(run(t, "decay", 40).evictions, 0);
}

/* Layers of different size: hits are a share of bytes. */
static void test_bytes(void **state)
{
    struct route_trace *t = start(2, 4, 10);
    const int32_t id = 1, other[] = {2, 3};

    (void)state;
    t->expert_bytes[1] = 100;
    for (int32_t token = 0; token < 4; token++) {
        add(ROUTE_DECODE, token, 0, 1, &id);
        add(ROUTE_DECODE, token, 1, 1, &other[token % 2]);
    }
    /* Room for layer 0's and one of layer 1's. */
    assert_int_equal(run(t, "decay", 110).asked_bytes, 440);
    assert_int_equal(run(t, NULL, 110).hit_bytes, 30 + 100);
    assert_int_equal(run(t, NULL, 210).hit_bytes, 30 + 200);
    assert_int_equal(run(t, "lru", 210).hit_bytes, 30 + 200);
}

static uint64_t random_next(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Each layer prefers some experts: number i with weight 1 / (i + 1), from `shift` on. */
static int32_t skewed(uint64_t *seed, int32_t shift)
{
    const uint64_t r = random_next(seed) % 3380; /* 1000 * (1 + 1/2 + ... + 1/16) */
    uint64_t sum = 0;
    int32_t i = 0;

    while ((sum += (uint64_t)(1000 / (i + 1))) <= r && i < EXPERTS - 1)
        i++;
    return (i + shift) % EXPERTS;
}

static struct route_trace *skewed_trace(int32_t tokens, int32_t topic)
{
    struct route_trace *t = start(LAYERS, EXPERTS, 1000);
    uint64_t seed = 1;

    for (int32_t token = 0; token < tokens; token++)
        for (int32_t layer = 0; layer < LAYERS; layer++) {
            const int32_t shift = 5 * layer + (topic ? token / topic * 7 : 0);
            int32_t ids[USED] = {skewed(&seed, shift)};
            do
                ids[1] = skewed(&seed, shift);
            while (ids[1] == ids[0]);
            add(ROUTE_DECODE, token, layer, USED, ids);
        }
    return t;
}

static void test_cliff(void **state)
{
    const struct route_trace *t = skewed_trace(400, 0);

    (void)state;
    assert_true(rate(t, "lru", 0.9) == 0); /* the cliff: exactly nothing */
    assert_true(rate(t, "lru", 1.5) > 0.2);
    for (int32_t i = 0; evict_policy(i); i++) {
        const char *name = evict_policy(i)->name;
        double last = 0;
        for (double cycles = 0.5; cycles < 6; cycles += 0.25) {
            const double hit = rate(t, name, cycles), bound = rate(t, NULL, cycles);
            assert_true(hit <= bound);
            assert_true(hit >= last - 0.02); /* more room is not worse, chance apart */
            last = hit;
        }
        assert_true(last > 0.6);
    }
    assert_true(rate(t, "decay", 0.5) > 0.15);
    assert_true(rate(t, NULL, 0.5) > 0.3);
    assert_true(rate(t, evict_find(NULL)->name, 0.5) > 0.15);
    assert_true(rate(t, evict_find(NULL)->name, 0.9) > 0.25);
}

/* Other experts every 40 tokens: what was dear in the last topic must leave. */
static void test_topics(void **state)
{
    const struct route_trace *t = skewed_trace(400, 40);

    (void)state;
    assert_true(rate(t, "decay", 2) > rate(t, "lru", 2));
    assert_true(rate(t, evict_find(NULL)->name, 2) > rate(t, "lru", 2));
    assert_true(rate(t, evict_find(NULL)->name, 2) >= rate(t, "decay", 2) - 0.02);
}

/* A text of few words; each has its own experts in every layer. The prompt holds each word once. */
static struct route_trace *words_trace(int32_t n_words, int32_t tokens, bool prompt)
{
    struct route_trace *t = start(LAYERS, EXPERTS, 1000);
    int32_t ids[32][LAYERS][USED];
    uint64_t seed = 3;

    assert_true(n_words <= 32);
    for (int32_t w = 0; w < n_words; w++)
        for (int32_t layer = 0; layer < LAYERS; layer++) {
            ids[w][layer][0] = (int32_t)(random_next(&seed) % (EXPERTS / 2));
            ids[w][layer][1] = EXPERTS / 2 + (int32_t)(random_next(&seed) % (EXPERTS / 2));
        }
    for (int32_t layer = 0; prompt && layer < LAYERS; layer++)
        for (int32_t w = 0; w < n_words; w++)
            add(ROUTE_PREFILL, w, layer, USED, ids[w][layer]);
    for (int32_t token = 0; token < tokens; token++) {
        const uint64_t w = random_next(&seed) % (uint64_t)n_words;
        for (int32_t layer = 0; layer < LAYERS; layer++)
            add(ROUTE_DECODE, n_words + token, layer, USED, ids[w][layer]);
    }
    return t;
}

/* What decides is the word, which the first layers tell: frequency cannot know it. */
static void test_words(void **state)
{
    struct route_trace *t = words_trace(8, 400, false);
    double gain = 0, knows = 0, does_not = 0;

    (void)state;
    for (double cycles = 1; cycles < 4; cycles += 0.5) {
        assert_true(rate(t, "echo", cycles) > rate(t, "decay", cycles) + 0.005);
        assert_true(rate(t, "echo", cycles) > rate(t, "lru", cycles) + 0.03);
        gain += rate(t, "echo", cycles) - rate(t, "decay", cycles);
    }
    assert_true(gain > 0.1);
    /* A short answer, whose words the prompt holds: they are remembered from there. */
    t = words_trace(8, 6, true);
    for (double cycles = 1; cycles < 4; cycles += 0.5)
        knows += rate(t, "echo", cycles);
    for (int64_t i = 0; i < t->n_rows; i++)
        if (t->row[i].phase == ROUTE_PREFILL && t->row[i].token == 0)
            t->row[i].n = 1; /* rows of unequal length: what a token chose is not told */
    for (double cycles = 1; cycles < 4; cycles += 0.5)
        does_not += rate(t, "echo", cycles);
    assert_true(knows > does_not + 0.05);
}

/* Wide prefill: each expert of a layer once, and more experts than the cache holds. */
static void test_prefill(void **state)
{
    struct route_trace *t = start(LAYERS, EXPERTS, 1000);

    (void)state;
    for (int32_t layer = 0; layer < LAYERS; layer++)
        for (int32_t token = 0; token < 32; token++) {
            const int32_t ids[USED] = {token % EXPERTS, (token + 1) % EXPERTS};
            add(ROUTE_PREFILL, token, layer, USED, ids);
        }
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        const int32_t ids[USED] = {14, 15};
        add(ROUTE_DECODE, 32, layer, USED, ids);
    }
    for (int32_t i = 0; evict_policy(i); i++) {
        struct replay_hits h = run(t, evict_policy(i)->name, 1000 * LAYERS * EXPERTS);
        assert_int_equal(h.asked_bytes, 1000 * LAYERS * USED);
        assert_int_equal(h.hit_bytes, h.asked_bytes);
        assert_int_equal(h.evictions, 0);
        h = run(t, evict_policy(i)->name, 1000 * 5);
        assert_true(h.evictions >= LAYERS * EXPERTS - 5);
    }
}

static void test_wrong(void **state)
{
    struct route_trace *t = start(1, 4, 10);
    const int32_t id = 3, far = 4;
    struct replay *r;

    (void)state;
    add(ROUTE_PREFILL, 0, 0, 1, &id);
    assert_int_equal(replay_open(t, &r, &err), LEAT_ERR_FORMAT);
    assert_null(r);
    add(ROUTE_DECODE, 1, 0, 1, &far);
    assert_int_equal(replay_open(t, &r, &err), LEAT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "expert 4 of 4"));
    made.expert[1] = 3;
    assert_int_equal(replay_open(t, &r, &err), 0);
    replay_close(r);
    made.row[1].layer = 1;
    assert_int_equal(replay_open(t, &r, &err), LEAT_ERR_FORMAT);
    made.row[1].layer = 0;
    made.expert_bytes[0] = 0;
    assert_int_equal(replay_open(t, &r, &err), LEAT_ERR_FORMAT);
    replay_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_cliff),   cmocka_unit_test(test_topics),
        cmocka_unit_test(test_words),   cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
