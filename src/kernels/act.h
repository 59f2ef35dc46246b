/* Where the parts of one prepared activation row lie (kernels.h, act_row_bytes), and the limits of
 * quantising it. Shared by the files act_*.c and matmul_*.c. Pure, any thread. */
#ifndef KERNELS_ACT_H
#define KERNELS_ACT_H

#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

/* A group whose largest magnitude is below this is held as zeros: 127 / amax would come near
 * overflow, and nothing a model computes lives down there. 0x1p-100f as bits. */
#define ACT_TINY_BITS 0x0d800000u
/* Bits of infinity: a group whose largest magnitude reaches it holds an infinity or a NaN. Its
 * scale is NaN and its levels are zero, so that every product with it is NaN. */
#define ACT_INF_BITS 0x7f800000u
#define ACT_NAN_BITS 0x7fc00000u

struct act_layout {
    size_t scale, sums, bytes; /* offsets of the parts; the levels (or floats) are at 0 */
};

static inline size_t act_align(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

static inline struct act_layout act_layout_of(enum act_kind kind, int32_t cols)
{
    struct act_layout l = {0, 0, 0};
    size_t n = (size_t)cols;
    if (kind == ACT_F32) {
        l.scale = l.sums = l.bytes = act_align(n * sizeof(float));
        return l;
    }
    size_t groups = kind == ACT_Q8_32 ? n / 32 : n / 256;
    size_t sums = kind == ACT_Q8_32 ? n / 32 : n / 16;
    l.scale = act_align(n);
    l.sums = l.scale + act_align(groups * sizeof(float));
    l.bytes = l.sums + act_align(sums * sizeof(int16_t));
    return l;
}

#endif
