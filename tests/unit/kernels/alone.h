/* The few pieces of cmocka that the kernel tests use, for alone.c, which defines KERNELS_ALONE and
 * needs no library. */
#ifndef TESTS_KERNELS_ALONE_H
#define TESTS_KERNELS_ALONE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef KERNELS_ALONE

#include "../../../src/base/error.h"

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f                                                                                      \
    }
#define fail_msg(...)                                                                              \
    do {                                                                                           \
        printf("%s:%d: ", __FILE__, __LINE__);                                                     \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        exit(1);                                                                                   \
    } while (0)
#define assert_true(c)                                                                             \
    do {                                                                                           \
        if (!(c))                                                                                  \
            fail_msg("not true: %s", #c);                                                          \
    } while (0)
#define assert_non_null(p)        assert_true((p) != NULL)
#define assert_null(p)            assert_true((p) == NULL)
#define assert_int_equal(a, b)    assert_true((long long)(a) == (long long)(b))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define skip()                    return
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    alone_run(tests, (int)(sizeof(tests) / sizeof(tests)[0]))

static int alone_run(const struct CMUnitTest *tests, int n)
{
    for (int i = 0; i < n; i++) {
        void *state = NULL;
        tests[i].run(&state);
        printf("ok %s\n", tests[i].name);
        fflush(stdout);
    }
    return 0;
}

/* base/error.c would pull in more of base/ than a single command wants. */
int error_set(struct leat_error *e, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (e != NULL) {
        e->code = code;
        vsnprintf(e->message, sizeof e->message, fmt, ap);
    }
    va_end(ap);
    return code;
}

const char *error_quote(char *dst, size_t cap, const void *text, size_t n)
{
    snprintf(dst, cap, "%.*s", (int)n, (const char *)text);
    return dst;
}

#else
#include <cmocka.h>
#endif

#endif
