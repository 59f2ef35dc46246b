/* The policy under memory pressure, over made-up readings: what must follow is worked out beside
 * each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../../../src/plan/pressure.h"

static struct pressure p;
static struct pressure_sample at;

/* Seconds later, so many faults and so much stall each second. */
static bool later(double seconds, uint64_t faults, double stall)
{
    at.now_s += seconds;
    at.major_faults += (uint64_t)((double)faults * seconds);
    at.stall_us += (uint64_t)(stall * 1e6 * seconds);
    return pressure_look(&p, &at);
}

static void begin(void)
{
    at = (struct pressure_sample){.now_s = 5, .major_faults = 100000, .stall_us = 7000000};
    pressure_start(&p, &at);
}

static void test_calm(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 100; i++)
        assert_false(later(1.0, PRESSURE_FAULTS - 1, PRESSURE_STALL - 0.001));
    assert_int_equal(p.steps, 0);
}

static void test_steps(void **state)
{
    (void)state;
    begin();
    assert_false(later(1.0, 1000, 0)); /* one strained window is a burst */
    assert_false(later(1.0, 0, 0));
    assert_false(later(1.0, 0, 0.2));
    assert_true(later(1.0, 1000, 0)); /* either sign will do */
    assert_int_equal(p.steps, 1);
    assert_true(p.faults_per_s > 999 && p.faults_per_s < 1001);
    for (int i = 0; i < 100; i++)
        later(1.0, 5000, 0.9);
    assert_int_equal(p.steps, PRESSURE_STEPS_MOST); /* and no further */
    /* Readings closer together than a window are one window. */
    begin();
    for (int i = 0; i < 9; i++)
        assert_false(later(0.1, 100000, 1));
}

static void test_back_up(void **state)
{
    int32_t ups = 0;

    (void)state;
    begin();
    for (int i = 0; i < 6; i++)
        later(1.0, 1000, 0);
    assert_int_equal(p.steps, 3);
    for (int i = 0; i < 29; i++)
        assert_false(later(1.0, 0, 0));
    assert_true(later(1.0, 0, 0));
    assert_int_equal(p.steps, 2);
    assert_false(later(1.0, 1000, 0)); /* one strained window starts the wait anew */
    for (int i = 0; i < 29; i++)
        assert_false(later(1.0, 0, 0));
    for (int i = 0; i < 1000; i++)
        ups += later(1.0, 0, 0);
    assert_int_equal(ups, 2);
    assert_int_equal(p.steps, 0);
    assert_int_equal(p.steps_peak, 3);
}

static void test_not_known(void **state)
{
    (void)state;
    begin();
    at.stall_us = UINT64_MAX;
    pressure_start(&p, &at);
    for (int i = 0; i < 5; i++) {
        at.now_s += 1;
        assert_false(pressure_look(&p, &at));
    }
    at.now_s += 1;
    at.stall_us = 0; /* known from here on: no difference can be taken yet */
    assert_false(pressure_look(&p, &at));
    at.now_s += 1;
    at.major_faults = 0; /* a counter that falls is none */
    assert_false(pressure_look(&p, &at));
    assert_int_equal(p.strained, 0);
}

static void test_ceiling(void **state)
{
    (void)state;
    assert_true(pressure_ceiling(1000, 200, 0) == 1000);
    assert_true(pressure_ceiling(1000, 200, 1) == 900);
    assert_true(pressure_ceiling(1000, 200, 7) == 300);
    assert_true(pressure_ceiling(1000, 1000, 7) == 1000);
    assert_true(pressure_ceiling(1000, 2000, 3) == 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calm),      cmocka_unit_test(test_steps),
        cmocka_unit_test(test_back_up),   cmocka_unit_test(test_not_known),
        cmocka_unit_test(test_ceiling),
    };
    return cmocka_run_group_tests_name("pressure", tests, NULL, NULL);
}
