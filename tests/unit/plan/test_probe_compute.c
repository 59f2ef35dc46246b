/* The probes of the machine: every figure is there or says why not, is what its loop did in its time,
 * and grows as arithmetic says it must. No speed is asserted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../../src/base/clock.h"
#include "../../../src/base/os.h"
#include "../../../src/kernels/kernels.h"
#include "../../../src/plan/probe_compute.h"

#define BYTES (UINT64_C(16) << 20)

static void check_known(const struct compute_fact *f, const char *unit, int32_t threads)
{
    assert_null(f->missing);
    assert_string_equal(f->unit, unit);
    assert_true(f->source && *f->source);
    assert_int_equal(f->threads, threads);
    assert_true(f->rounds >= 3);
    assert_true(f->best_per_s >= f->median_per_s && f->median_per_s > 0);
    assert_true(f->spent_s > 0);
}

static void test_read(void **state)
{
    (void)state;
    char *memory = os_map(BYTES, true);
    assert_non_null(memory);
    memset(memory, 1, BYTES);
    for (int32_t threads = 1; threads <= 3; threads++) {
        struct compute_fact f;
        const double start = clock_now();
        probe_memory_read(memory, BYTES, threads, 0.02, &f);
        const double spent = clock_now() - start;
        check_known(&f, "bytes", threads);
        assert_true(f.spent_s <= spent);
        /* The rounds of the form that won lie within what was spent. */
        assert_true((double)BYTES * (f.rounds / 2) / f.median_per_s <= spent);
    }
    os_unmap(memory, BYTES);
}

static void test_multiply_add(void **state)
{
    const struct kernels *k;
    (void)state;
    for (int32_t i = 0; (k = kernels_tier(i)); i++)
        for (int kind = COMPUTE_INT8; kind <= COMPUTE_F32; kind++)
            for (int32_t threads = 1; threads <= 2; threads++) {
                struct compute_fact f;
                probe_multiply_add(k->isa, (enum compute_kind)kind, threads, 0.02, &f);
#if defined(__x86_64__)
                check_known(&f, "multiply-adds", threads);
#else
                assert_true(f.missing || f.best_per_s > 0);
#endif
            }
}

static void test_missing(void **state)
{
    struct compute_fact f;
    (void)state;
    probe_multiply_add("no such tier", COMPUTE_INT8, 1, 0.01, &f);
    assert_non_null(f.missing);
    assert_true(f.rounds == 0 && f.best_per_s == 0);
}

/* Walking what fits a cache would measure the cache. */
static void test_bytes(void **state)
{
    const uint64_t free_choice = probe_memory_bytes(UINT64_MAX);
    (void)state;
    assert_true(free_choice >= UINT64_C(256) << 20 && free_choice % 4096 == 0);
    assert_true(probe_memory_bytes(free_choice - 1) < free_choice);
    assert_int_equal(probe_memory_bytes(UINT64_C(1) << 20), 0);
    assert_int_equal(probe_memory_bytes(0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_multiply_add),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
