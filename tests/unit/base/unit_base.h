/* What the unit tests of base share: cmocka with what it needs before it, and small helpers. */
#ifndef UNIT_BASE_H
#define UNIT_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A small generator with a fixed seed (xorshift64, Marsaglia 2003): the tests are the same each
 * time. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (!strstr((text), (part)))                                                               \
            fail_msg("'%s' does not contain '%s'", (text), (part));                                \
    } while (0)

#endif
