/* What the files act_*.c and matmul_*.c of each instruction set offer to kernels_select.c.
 * Nothing outside src/kernels includes this. Any thread, on disjoint outputs. */
#ifndef KERNELS_MATMUL_TIERS_H
#define KERNELS_MATMUL_TIERS_H

#include "format_unpack.h"
#include "kernels.h"

/* Scratch of one thread: panels of activations and unpacked weights (matmul_panel.h); each tier
 * asserts that it fits. */
enum { MATMUL_SCRATCH_BYTES = 256 << 10 };

/* Bytes that may be fetched ahead into the first-level data cache beside those at work: a little less
 * than half of it. Set once, before any tier runs; 15 KiB where its size is not known. */
extern size_t kernels_near_bytes;

void act_prepare_scalar(enum act_kind kind, const float *x, void *dst, int32_t cols);
void matmul_scalar(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch);

void act_prepare_avx2(enum act_kind kind, const float *x, void *dst, int32_t cols);
void matmul_float_avx2(const struct matmul *m, int32_t row_begin, int32_t row_end);
void matmul_avx2(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch);

void matmul_avxvnni(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch);
/* The same source with the AVX-512 form of its instructions; for tests alone. */
void matmul_avxvnni_evex(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch);

void act_prepare_neon(enum act_kind kind, const float *x, void *dst, int32_t cols);
/* ARM: dotprod, and dotprod with i8mm. */
void matmul_neon(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch);
void matmul_i8mm(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch);

void matmul_avx512(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch);

#endif
