/* Checked arithmetic on sizes that come from files. Pure, any thread. */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* Each returns true when the result fits and stores it; false leaves *out untouched. */
static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Rounds up to a multiple of align (a power of two). */
static inline bool checked_align(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, align - 1, &r))
        return false;
    *out = r & ~(align - 1);
    return true;
}

/* Unchecked forms for figures that are known small. */
static inline uint64_t align_up(uint64_t a, uint64_t align)
{
    return (a + align - 1) & ~(align - 1);
}

static inline uint64_t align_down(uint64_t a, uint64_t align)
{
    return a & ~(align - 1);
}

#endif
