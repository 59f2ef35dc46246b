/* The ledger: sums, peaks, ceilings, refusals and the figures they name, huge pages, many
 * threads; and the arena that stands on it. */
#include "unit_base.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "../../../src/base/arena.h"
#include "../../../src/base/checked.h"
#include "../../../src/base/ledger.h"
#include "../../../src/base/os.h"

#define MIB (UINT64_C(1) << 20)

static struct leat_error err;

static struct ledger *opened(uint64_t ceiling)
{
    struct ledger *l;
    assert_int_equal(ledger_open(ceiling, &l, &err), 0);
    return l;
}

static void test_rounding(void **state)
{
    (void)state;
    assert_int_equal(ledger_rounded(0), 0);
    assert_int_equal(ledger_rounded(1), 4096);
    assert_int_equal(ledger_rounded(4096), 4096);
    assert_int_equal(ledger_rounded(2 * MIB - 1), 2 * MIB);
    assert_int_equal(ledger_rounded(2 * MIB), 2 * MIB);
    assert_int_equal(ledger_rounded(2 * MIB + 1), 4 * MIB);
    assert_int_equal(ledger_rounded(UINT64_MAX), UINT64_MAX);
}

static void test_take_give(void **state)
{
    (void)state;
    struct ledger *l = opened(UINT64_MAX);
    void *small, *large, *none = l;
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_KV, 0, &none, &err), 0);
    assert_null(none);
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_KV, 5000, &small, &err), 0);
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_STREAM, 5 * MIB, &large, &err), 0);
    assert_int_equal((uintptr_t)small % 4096, 0);
    assert_int_equal((uintptr_t)large % (2 * MIB), 0);
    for (uint64_t i = 0; i < 8192; i++)
        assert_int_equal(((char *)small)[i], 0);
    memset(small, 1, 8192); /* all of the rounded size is ours */
    memset(large, 1, 6 * MIB);
    assert_int_equal(ledger_held(l, DOMAIN_HELD, ROW_KV), 8192);
    assert_int_equal(ledger_held(l, DOMAIN_HELD, ROW_STREAM), 6 * MIB);
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 6 * MIB + 8192);
    assert_int_equal(ledger_total(l, DOMAIN_LOCKED), 0);
    uint64_t asked, came;
    ledger_huge_pages(l, &asked, &came);
    assert_int_equal(asked, 6 * MIB);
    ledger_give(l, DOMAIN_HELD, ROW_KV, small, 5000);
    ledger_give(l, DOMAIN_HELD, ROW_STREAM, large, 5 * MIB);
    ledger_give(l, DOMAIN_HELD, ROW_STREAM, NULL, 0);
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 0);
    assert_int_equal(ledger_peak(l, DOMAIN_HELD, ROW_STREAM), 6 * MIB);
    ledger_huge_pages(l, &asked, &came);
    assert_int_equal(asked, 0);
    ledger_close(l);
}

/* Memory given back is really gone from the process. */
static void test_give_unmaps(void **state)
{
    (void)state;
    struct ledger *l = opened(UINT64_MAX);
    void *p;
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_STREAM, 4 * MIB, &p, &err), 0);
    unsigned char seen[1024];
    assert_int_equal(mincore(p, 4 * MIB, seen), 0);
    ledger_give(l, DOMAIN_HELD, ROW_STREAM, p, 4 * MIB);
    assert_int_equal(mincore(p, 4 * MIB, seen), -1); /* ENOMEM: not mapped */
    ledger_close(l);
}

static void test_ceiling(void **state)
{
    (void)state;
    struct ledger *l = opened(8 * MIB);
    void *p, *q = &p;
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_RESIDENT, 6 * MIB, &p, &err), 0);
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_KV, 3 * MIB, &q, &err), LEAT_ERR_MEMORY);
    assert_null(q);
    /* 3 MiB are charged as 4: the figure that is named must be enough, and one byte less must
     * not. */
    assert_int_equal(err.needed_bytes, 10 * MIB);
    assert_contains(err.message, "KV cache");
    assert_contains(err.message, "10485760 bytes");
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 6 * MIB);
    assert_int_equal(ledger_peak(l, DOMAIN_HELD, ROW_KV), 0);

    assert_int_equal(ledger_set_ceiling(l, DOMAIN_HELD, err.needed_bytes - 1, &err), 0);
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_KV, 3 * MIB, &q, &err), LEAT_ERR_MEMORY);
    assert_int_equal(ledger_set_ceiling(l, DOMAIN_HELD, err.needed_bytes, &err), 0);
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_KV, 3 * MIB, &q, &err), 0);
    assert_int_equal(ledger_ceiling(l, DOMAIN_HELD), 10 * MIB);

    /* Full to the byte: nothing more fits, lowering is refused and names what is held. */
    assert_int_equal(ledger_charge(l, DOMAIN_HELD, ROW_PROCESS, 1, &err), LEAT_ERR_MEMORY);
    assert_int_equal(err.needed_bytes, 10 * MIB + 1);
    assert_int_equal(ledger_set_ceiling(l, DOMAIN_HELD, 9 * MIB, &err), LEAT_ERR_MEMORY);
    assert_int_equal(err.needed_bytes, 10 * MIB);
    assert_int_equal(ledger_ceiling(l, DOMAIN_HELD), 10 * MIB);
    /* The locked domain has its own ceiling, which is none. */
    assert_int_equal(ledger_charge(l, DOMAIN_LOCKED, ROW_RESIDENT, 64 * MIB, &err), 0);
    ledger_refund(l, DOMAIN_LOCKED, ROW_RESIDENT, 64 * MIB);

    ledger_give(l, DOMAIN_HELD, ROW_KV, q, 3 * MIB);
    assert_int_equal(ledger_set_ceiling(l, DOMAIN_HELD, 6 * MIB, &err), 0);
    ledger_give(l, DOMAIN_HELD, ROW_RESIDENT, p, 6 * MIB);
    ledger_close(l);
}

/* Sums that do not fit 64 bits, and sizes that no system grants. */
static void test_absurd(void **state)
{
    (void)state;
    struct ledger *l = opened(UINT64_MAX);
    void *p;
    assert_int_equal(ledger_charge(l, DOMAIN_HELD, ROW_PROCESS, 4096, &err), 0);
    assert_int_equal(ledger_charge(l, DOMAIN_HELD, ROW_PROCESS, UINT64_MAX - 100, &err),
                     LEAT_ERR_MEMORY);
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_KV, UINT64_MAX, &p, &err), LEAT_ERR_MEMORY);
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_KV, UINT64_MAX - 4 * MIB, &p, &err),
                     LEAT_ERR_MEMORY);
    assert_int_equal(ledger_take(l, DOMAIN_HELD, ROW_KV, UINT64_C(1) << 62, &p, &err),
                     LEAT_ERR_MEMORY);
    assert_null(p);
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 4096);
    assert_int_equal(ledger_peak(l, DOMAIN_HELD, ROW_KV), 0); /* a refused mapping is no peak */
    ledger_refund(l, DOMAIN_HELD, ROW_PROCESS, 4096);
    ledger_close(l);
}

static void test_names(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const char *key = ledger_row_key(r);
        assert_true(strlen(ledger_row_name(r)) > 0);
        assert_int_equal(strspn(key, "abcdefghijklmnopqrstuvwxyz_"), strlen(key));
        for (int o = 0; o < r; o++)
            assert_string_not_equal(key, ledger_row_key(o));
    }
    assert_string_equal(ledger_row_name(ROW_KV), "KV cache");
    assert_string_equal(ledger_row_key(ROW_KV), "kv_cache");
}

static void *take_and_give(void *arg)
{
    struct ledger *l = arg;
    struct leat_error *e = calloc(1, sizeof *e);
    uint64_t seed = (uintptr_t)&e;
    for (int i = 0; i < 300; i++) {
        void *p;
        uint64_t n = 1 + random_next(&seed) % 20000;
        if (ledger_take(l, DOMAIN_HELD, ROW_COMPUTE, n, &p, e) == 0) {
            memset(p, 1, n);
            ledger_give(l, DOMAIN_HELD, ROW_COMPUTE, p, n);
        }
        if (ledger_total(l, DOMAIN_HELD) > 40960)
            return l; /* over the ceiling */
    }
    free(e);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct ledger *l = opened(40960);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, take_and_give, l), 0);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 0);
    assert_true(ledger_peak(l, DOMAIN_HELD, ROW_COMPUTE) > 0);
    assert_true(ledger_peak(l, DOMAIN_HELD, ROW_COMPUTE) <= 40960);
    ledger_close(l);
}

/* ---- arena ---- */

static void arena_exercise(struct ledger *l)
{
    struct arena a;
    arena_init(&a, l, ROW_MODEL);
    struct {
        unsigned char *p;
        size_t n;
    } got[2000];
    uint64_t seed = 99;
    for (int i = 0; i < 2000; i++) {
        size_t align = (size_t)1 << random_next(&seed) % 7;
        size_t n = random_next(&seed) % (i % 50 ? 200 : 60000);
        got[i].p = arena_alloc(&a, n, align, &err);
        got[i].n = n;
        assert_non_null(got[i].p);
        assert_int_equal((uintptr_t)got[i].p % align, 0);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(got[i].p[k], 0);
        memset(got[i].p, i & 255, n);
    }
    for (int i = 0; i < 2000; i++) /* nothing overlaps */
        for (size_t k = 0; k < got[i].n; k++)
            assert_int_equal(got[i].p[k], i & 255);
    assert_string_equal(arena_copy(&a, "name\0rest", 4, &err), "name");
    if (l) {
        assert_true(ledger_held(l, DOMAIN_HELD, ROW_MODEL) >= a.total);
        assert_true(ledger_held(l, DOMAIN_HELD, ROW_MODEL) <= a.total + a.total / 2 + 65536);
    }
    arena_close(&a);
    arena_close(&a); /* empty now: harmless */
    if (l)
        assert_int_equal(ledger_total(l, DOMAIN_HELD), 0);
}

static void test_arena(void **state)
{
    (void)state;
    struct ledger *l = opened(UINT64_MAX);
    arena_exercise(NULL);
    arena_exercise(l);
    ledger_close(l);
}

static void test_arena_refusals(void **state)
{
    (void)state;
    struct ledger *l = opened(64 << 10);
    struct arena a;
    arena_init(&a, l, ROW_TOKENIZER);
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 0); /* nothing before the first object */
    void *first = arena_alloc(&a, 10, 8, &err);
    assert_non_null(first);
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 16 << 10);
    assert_null(arena_alloc(&a, 1 << 20, 8, &err));
    assert_int_equal(err.code, LEAT_ERR_MEMORY);
    assert_true(err.needed_bytes > (1 << 20));
    assert_null(arena_array(&a, UINT64_MAX / 2, 16, 8, &err));
    assert_int_equal(err.code, LEAT_ERR_MEMORY);
    assert_null(arena_alloc(&a, SIZE_MAX - 10, 8, &err));
    assert_null(arena_copy(&a, "", SIZE_MAX, &err));
    /* A large object leaves the rest of the newest chunk in use. */
    char *large = arena_alloc(&a, 20000, 8, &err), *next = arena_alloc(&a, 16, 16, &err);
    assert_non_null(large);
    assert_true(next > (char *)first && next < (char *)first + (16 << 10));
    arena_close(&a);
    ledger_close(l);
}

static void test_checked(void **state)
{
    (void)state;
    uint64_t out = 7;
    assert_true(checked_add(1, 2, &out) && out == 3);
    assert_false(checked_add(UINT64_MAX, 1, &out));
    assert_int_equal(out, 3);
    assert_false(checked_mul(UINT64_C(1) << 33, UINT64_C(1) << 31, &out));
    assert_true(checked_mul(UINT64_C(1) << 32, UINT64_C(1) << 31, &out));
    assert_true(checked_align(4097, 4096, &out) && out == 8192);
    assert_true(checked_align(0, 4096, &out) && out == 0);
    assert_false(checked_align(UINT64_MAX - 5, 4096, &out));
    assert_int_equal(out, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding),       cmocka_unit_test(test_take_give),
        cmocka_unit_test(test_give_unmaps),    cmocka_unit_test(test_ceiling),
        cmocka_unit_test(test_absurd),         cmocka_unit_test(test_names),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_refusals), cmocka_unit_test(test_checked),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
