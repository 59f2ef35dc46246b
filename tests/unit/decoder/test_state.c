/* Pages of attention state: the closed formula, content through forks, copies and cuts, windows,
 * exhaustion. Content is checked against a plain array per sequence that a page never touches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../../../src/decoder/state.h"

static uint64_t seed = 2463534242u;

static int32_t random_below(int32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int32_t)((seed >> 33) % (uint64_t)n);
}

/* Layers of two sizes, full and windowed, and one that keeps no keys. */
static struct layer layers[] = {
    {.n_head = 4, .n_head_kv = 2, .head_dim_k = 4, .head_dim_v = 4},
    {.n_head = 4, .n_head_kv = 2, .head_dim_k = 4, .head_dim_v = 4, .window = 100},
    {.n_head = 4, .n_head_kv = 1, .head_dim_k = 6, .head_dim_v = 2, .window = 1},
    {.n_head = 0, .n_head_kv = 0},
    {.n_head = 4, .n_head_kv = 3, .head_dim_k = 4, .head_dim_v = 8, .window = 64},
};
#define LAYERS 5
static struct model model = {.n_layer = LAYERS, .n_ctx_train = 100, .layers = layers};

static struct ledger *ledger;

static int ledger_setup(void **state)
{
    (void)state;
    return ledger_open(UINT64_MAX, &ledger, NULL);
}

static int ledger_teardown(void **state)
{
    (void)state;
    ledger_close(ledger);
    return 0;
}

static struct state_pool *pool_of(uint64_t bytes)
{
    struct state_pool *p;
    assert_int_equal(state_pool_open(&model, KV_F32, bytes, ledger, &p, NULL), 0);
    return p;
}

static void test_formula(void **state)
{
    (void)state;
    /* Page: one line of 64 bytes, then per kv head 64 keys and 64 values of 4 bytes each (F32). */
    const uint64_t p0 = 64 + 2 * 64 * 8 * 4, p2 = 64 + 64 * 8 * 4, p4 = 64 + 3 * 64 * 12 * 4;
    /* Context 1000 = 16 pages. Window w, width 32 and the slack of 64 span w - 1 + 64 + 32
     * positions, which touch at most this many pages: 100: 195 -> 5; 1: 96 -> 3; 64: 159 -> 4. */
    assert_true(state_bytes(&model, KV_F32, 1000, 32, 1) == 16 * p0 + 5 * p0 + 3 * p2 + 4 * p4);
    assert_true(state_bytes(&model, KV_F32, 1000, 32, 7) ==
                7 * (16 * p0 + 5 * p0 + 3 * p2 + 4 * p4));
    /* A window layer never holds more than the context. */
    assert_true(state_bytes(&model, KV_F32, 65, 65, 1) == 2 * p0 + 2 * p0 + 2 * p2 + 2 * p4);
    /* F16 halves the rows; Q8_0 rows of 4, 6, 2 and 8 values take one block of 34 bytes each. */
    assert_true(state_bytes(&model, KV_F16, 64, 1, 1) ==
                4 * 64 + (p0 - 64) / 2 * 2 + (p2 - 64) / 2 + (p4 - 64) / 2);
    assert_true(state_bytes(&model, KV_Q8_0, 64, 1, 1) ==
                4 * 64 + 2 * 2 * 64 * 68 + 64 * 68 + 3 * 64 * 68);
    assert_true(state_bytes(&model, KV_F32, INT32_MAX, 32, INT32_MAX) != 0);
}

/* ---- a sequence beside the plain array that says what it must hold ---- */

#define MAX_CONTEXT 700

struct pair {
    struct seq_state *seq;
    int32_t length;
    int32_t high; /* longest it was: positions from high - STATE_SLACK on can be returned to */
    int32_t stamp[MAX_CONTEXT]; /* what was written at each position */
};

static int32_t next_stamp;

static float value_of(int32_t layer, int32_t head, bool v, int32_t stamp, int32_t i)
{
    return (float)(stamp * 16 + i) + (float)(layer * 4 + head + (v ? 100 : 0)) / 256.0f;
}

static void row_do(const struct pair *p, int32_t layer, int32_t head, int32_t pos, int32_t stamp,
                   bool write)
{
    void *k, *v;
    state_page(p->seq, layer, head, pos / ATTN_TILE, &k, &v);
    float *kr = (float *)k + pos % ATTN_TILE * layers[layer].head_dim_k;
    float *vr = (float *)v + pos % ATTN_TILE * layers[layer].head_dim_v;
    for (int32_t i = 0; i < layers[layer].head_dim_k; i++) {
        if (write)
            kr[i] = value_of(layer, head, false, stamp, i);
        assert_true(kr[i] == value_of(layer, head, false, stamp, i));
    }
    for (int32_t i = 0; i < layers[layer].head_dim_v; i++) {
        if (write)
            vr[i] = value_of(layer, head, true, stamp, i);
        assert_true(vr[i] == value_of(layer, head, true, stamp, i));
    }
}

/* Everything that a token at the present length would see. */
static void pair_check(const struct pair *p)
{
    assert_int_equal(state_length(p->seq), p->length);
    for (int32_t l = 0; l < LAYERS; l++)
        for (int32_t h = 0; h < layers[l].n_head_kv; h++) {
            int32_t begin = layers[l].window ? p->length - layers[l].window + 1 : 0;
            for (int32_t i = begin < 0 ? 0 : begin; i < p->length; i++)
                row_do(p, l, h, i, p->stamp[i], false);
        }
}

/* One pass: room, rows written at the new positions while the old visible ones are still there,
 * commit. */
static int pair_extend(struct pair *p, int32_t n)
{
    int rc = state_reserve(p->seq, n, NULL);
    if (rc < 0)
        return rc;
    pair_check(p);
    for (int32_t i = p->length; i < p->length + n; i++) {
        p->stamp[i] = ++next_stamp % 1000000;
        for (int32_t l = 0; l < LAYERS; l++)
            for (int32_t h = 0; h < layers[l].n_head_kv; h++)
                row_do(p, l, h, i, p->stamp[i], true);
    }
    /* Tokens of the same pass see a window before themselves: the first one's must be there too. */
    pair_check(p);
    state_commit(p->seq, n);
    p->length += n;
    p->high = p->length > p->high ? p->length : p->high;
    return 0;
}

static void test_fill(void **state)
{
    (void)state;
    for (int32_t context = 1; context <= MAX_CONTEXT; context += 1 + context / 3)
        for (int32_t width = 1; width <= context; width = width * 3 - 1 + (width == 1)) {
            const uint64_t bytes = state_bytes(&model, KV_F32, context, width, 2);
            struct state_pool *pool = pool_of(bytes);
            struct pair a = {0}, b = {0};
            assert_int_equal(state_open(pool, &a.seq, NULL), 0);
            assert_int_equal(state_open(pool, &b.seq, NULL), 0);
            while (a.length < context || b.length < context) {
                struct pair *p =
                    a.length == context || (b.length < context && random_below(2)) ? &b : &a;
                int32_t n = random_below(3) ? width : 1 + random_below(width);
                n = n < context - p->length ? n : context - p->length;
                assert_int_equal(pair_extend(p, n), 0);
            }
            pair_check(&a);
            pair_check(&b);
            state_close(a.seq);
            state_close(b.seq);
            assert_true(state_pool_free_bytes(pool) == bytes);
            state_pool_close(pool);
        }
}

/* Random lives of three sequences with forks and cuts, in a pool of exactly three sequences'
 * bytes. */
static void test_lives(void **state)
{
    (void)state;
    static struct pair p[3];
    const int32_t context = 600, width = 90;
    struct state_pool *pool = pool_of(state_bytes(&model, KV_F32, context, width, 3));
    int32_t forks = 0, refused = 0, cut_short = 0, cuts = 0;
    for (int i = 0; i < 3; i++) {
        p[i].length = p[i].high = 0;
        assert_int_equal(state_open(pool, &p[i].seq, NULL), 0);
    }
    for (int step = 0; step < 20000; step++) {
        struct pair *x = &p[random_below(3)], *y = &p[random_below(3)];
        int32_t what = random_below(20), n = 1 + random_below(random_below(2) ? width : 3), kept,
                upto;
        if (what < 14) {
            if (x->length + n <= context)
                assert_int_equal(pair_extend(x, n), 0);
        } else if (what < 15) { /* a pass that fails after room was made */
            if (x->length + n <= context) {
                assert_int_equal(state_reserve(x->seq, n, NULL), 0);
                if (random_below(2))
                    state_unreserve(x->seq);
            }
        } else if (what < 17) { /* y becomes a fork of x */
            if (x == y)
                continue;
            upto = random_below(3) ? x->length : random_below(x->length + 1);
            state_close(y->seq);
            struct leat_error e;
            int rc = state_fork(x->seq, upto, &y->seq, &e);
            if (rc == 0) {
                forks++;
                y->length = upto;
                y->high = x->high;
                memcpy(y->stamp, x->stamp, sizeof y->stamp);
            } else {
                assert_int_equal(rc, LEAT_ERR_STATE);
                assert_true(x->high - upto > STATE_SLACK);
                refused++;
                y->length = y->high = 0;
                assert_int_equal(state_open(pool, &y->seq, NULL), 0);
            }
        } else if (what < 19) {
            upto = random_below(2) ? x->length - random_below(5) : random_below(x->length + 1);
            upto = upto < 0 ? 0 : upto;
            assert_int_equal(state_truncate(x->seq, upto, &kept), 0);
            assert_true(kept == upto || kept == 0);
            if (kept != upto) {
                assert_true(x->high - upto > STATE_SLACK);
                cut_short++;
                x->high = 0;
            } else {
                cuts++;
            }
            x->length = kept;
            x->high = kept == 0 ? 0 : x->high;
        } else {
            state_close(x->seq);
            x->length = x->high = 0;
            assert_int_equal(state_open(pool, &x->seq, NULL), 0);
        }
        pair_check(x);
        pair_check(y);
    }
    assert_true(forks > 100 && refused > 10 && cut_short > 10 && cuts > 100);
    for (int i = 0; i < 3; i++)
        state_close(p[i].seq);
    state_pool_close(pool);
}

static void test_exhaustion(void **state)
{
    (void)state;
    const uint64_t bytes = state_bytes(&model, KV_F32, 128, 128, 1);
    struct state_pool *pool = pool_of(bytes);
    assert_true(ledger_held(ledger, DOMAIN_HELD, ROW_KV) == ledger_rounded(bytes));
    struct pair a = {0}, b = {0};
    struct leat_error e;
    assert_int_equal(state_open(pool, &a.seq, NULL), 0);
    assert_int_equal(state_open(pool, &b.seq, NULL), 0);
    assert_int_equal(pair_extend(&a, 100), 0);
    uint64_t left = state_pool_free_bytes(pool);
    assert_int_equal(state_reserve(b.seq, 64, &e), LEAT_ERR_MEMORY);
    assert_non_null(strstr(e.message, "64 more positions"));
    assert_true(state_pool_free_bytes(pool) == left); /* nothing changed */
    pair_check(&a);
    assert_int_equal(state_length(b.seq), 0);
    assert_int_equal(pair_extend(&a, 28), 0);
    assert_int_equal(state_reserve(a.seq, 1, &e), LEAT_ERR_MEMORY);
    pair_check(&a);
    /* A shared partial page wants a page of its own before it is written. */
    int32_t kept;
    struct seq_state *fork;
    assert_int_equal(state_fork(a.seq, 127, &fork, NULL), 0);
    assert_int_equal(state_truncate(a.seq, 127, &kept), 0);
    a.length = 127;
    assert_int_equal(state_reserve(a.seq, 1, &e), LEAT_ERR_MEMORY);
    pair_check(&a);
    state_close(fork);
    assert_int_equal(pair_extend(&a, 1), 0);
    state_close(a.seq);
    assert_int_equal(pair_extend(&b, 128), 0);
    state_close(b.seq);
    state_pool_close(pool);
    assert_true(ledger_held(ledger, DOMAIN_HELD, ROW_KV) == 0);
}

/* What was freed last is used first, so that memory beyond the working set is never touched. */
static void test_reuse(void **state)
{
    (void)state;
    struct state_pool *pool = pool_of(state_bytes(&model, KV_F32, 6400, 64, 1));
    struct pair a = {0};
    struct seq_state *keep;
    void *k, *v, *k2;
    assert_int_equal(state_open(pool, &keep, NULL), 0);
    assert_int_equal(state_reserve(keep, 1, NULL), 0); /* so that the pool is never quite empty */
    assert_int_equal(state_open(pool, &a.seq, NULL), 0);
    assert_int_equal(pair_extend(&a, 64), 0);
    state_page(a.seq, 0, 0, 0, &k, &v);
    for (int i = 0; i < 5; i++) {
        state_close(a.seq);
        assert_int_equal(state_open(pool, &a.seq, NULL), 0);
        a.length = 0;
        assert_int_equal(pair_extend(&a, 64), 0);
        state_page(a.seq, 0, 0, 0, &k2, &v);
        /* layers 0 and 1 share a size: the page is one of the two they had */
        assert_true(labs((long)((char *)k2 - (char *)k)) < 64 * 1024);
    }
    state_close(a.seq);
    state_close(keep);
    state_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula), cmocka_unit_test(test_fill),
        cmocka_unit_test(test_lives),   cmocka_unit_test(test_exhaustion),
        cmocka_unit_test(test_reuse),
    };
    return cmocka_run_group_tests(tests, ledger_setup, ledger_teardown);
}
