/* One block of a format as integer levels and scales: the single definition from which the scalar
 * product, the row dequantiser and the tests of every wider kernel follow. A new format is a
 * function and a row in format_unpack.c (and a row in format.c). Pure, any thread. */
#ifndef KERNELS_FORMAT_UNPACK_H
#define KERNELS_FORMAT_UNPACK_H

#include <stdint.h>

#include "format.h"

enum unpack_class {
    UNPACK_FLOAT,   /* F32, F16, BF16: no levels */
    UNPACK_32,      /* y = d * q */
    UNPACK_32_MIN,  /* y = d * q + m */
    UNPACK_256,     /* y = (d * s[e / 16]) * q */
    UNPACK_256_MIN, /* y = (d * s[e / 16]) * q - m * t[e / 16] */
};

struct unpacked {
    int8_t q[256]; /* levels of the block's elements, offset taken off */
    float d, m;
    int16_t s[16], t[16]; /* 256-element formats: integer scales and minima of each 16 */
};

struct unpack_row {
    enum unpack_class class;
    void (*unpack)(const uint8_t *block, struct unpacked *u); /* NULL for UNPACK_FLOAT */
};

/* NULL for a format that does not run. */
const struct unpack_row *unpack_row_of(enum format f);
/* A row as f32; the portable kernels->dequant. */
void dequant_scalar(enum format f, const void *row, float *out, int32_t cols);

#endif
