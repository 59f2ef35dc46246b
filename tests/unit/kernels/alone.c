/* The kernel tests as one file, which one command builds, for any machine and for emulators:
 *
 *     cc -O2 -std=gnu17 -ffp-contract=off -o kernels tests/unit/kernels/alone.c -lm -lpthread
 *
 * Run it from the root of the sources (or set LEAT_GOLDEN to tests/golden). It has every tier and
 * all the kernel tests. cc may be gcc, clang or a cross compiler (then -static). */
#define _GNU_SOURCE
#define KERNELS_ALONE

#if defined(__x86_64__)
#define KERNELS_HAVE_AVX2
#define KERNELS_HAVE_AVXVNNI
#define KERNELS_HAVE_AVX512
#define KERNELS_HAVE_EVEX
#elif defined(__aarch64__)
#define KERNELS_HAVE_NEON
#endif

/* What has its own guard and no instruction set comes first, so that it is compiled for any processor. */
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

#include "alone.h"

#include "../../../src/kernels/act.h"
#include "../../../src/kernels/matmul_tiers.h"
#include "../../../src/kernels/ops.h"
#include "../../../src/kernels/ops_math.h"

#include "alone_names.h"

#define ALONE_ISA scalar
#include "../../../src/kernels/act_scalar.c"
#include "../../../src/kernels/format.c"
#define rows unpack_rows /* a member elsewhere, so not in alone_names.h */
#include "../../../src/kernels/format_unpack.c"
#undef rows
#include "../../../src/kernels/half.c"
#include "../../../src/kernels/matmul_scalar.c"
#undef ALONE_ISA

#define ALONE_ISA scalar_ops
#include "../../../src/kernels/ops_scalar.c"
#undef LANES
#undef ALONE_ISA

#define ALONE_ISA scalar_attn
#include "../../../src/kernels/ops_attn_scalar.c"
#undef LANES
#undef COLS
#undef ALONE_ISA

#if defined(__x86_64__)

#define ALONE_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define ALONE_BEGIN(isa) \
    ALONE_PRAGMA(clang attribute push(__attribute__((target(isa))), apply_to = function))
#define ALONE_END ALONE_PRAGMA(clang attribute pop)
#else
#define ALONE_BEGIN(isa) ALONE_PRAGMA(GCC push_options) ALONE_PRAGMA(GCC target(isa))
#define ALONE_END        ALONE_PRAGMA(GCC pop_options)
#endif

ALONE_BEGIN("avx2,fma,f16c")
#define ALONE_ISA avx2
#include "../../../src/kernels/act_avx2.c"
#include "../../../src/kernels/matmul_avx2.c"
#undef ALONE_ISA
#define ALONE_ISA float_avx2
#include "../../../src/kernels/matmul_float_avx2.c"
#undef INLINE
#undef ALONE_ISA
#define ALONE_ISA ops_avx2
#include "../../../src/kernels/ops_avx2.c"
#undef ALONE_ISA
#define ALONE_ISA attn_avx2
#include "../../../src/kernels/ops_attn_avx2.c"
#undef COLS
#undef HALF
#undef BLOCK
#undef ROWS
#undef INLINE
#undef DIRECT
#undef DIRECT_ALL
#undef VALUES
#undef VALUES_ROW
#undef FEW
#undef STREAM_BYTES
#undef DIRECT_ROW
#undef VALUES_FEW
#undef ATTN_TARGET
#undef ATTN_ENTRY
#undef ALONE_ISA
ALONE_END

/* These headers are compiled anew for each instruction set. */
#undef KERNELS_MATMUL_PANEL_H
#undef KERNELS_MATMUL_X8_H
#undef KERNELS_MATMUL_FEW_H
ALONE_BEGIN("avx2,fma,f16c,avxvnni")
#define ALONE_ISA avxvnni
#include "../../../src/kernels/matmul_avxvnni.c"
#undef VNNI_BYTES
#undef VNNI_WORDS
#undef ALONE_ISA
ALONE_END

#if defined(__clang__) /* an attribute defines no macros, which GCC's pragma does */
#define __AVX512VL__ 1
#define __AVX512BW__ 1
#endif

#undef KERNELS_MATMUL_PANEL_H
#undef KERNELS_MATMUL_X8_H
#undef KERNELS_MATMUL_FEW_H
#undef KERNELS_MATMUL_VNNI8_H
ALONE_BEGIN("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#define ALONE_ISA avx512
#include "../../../src/kernels/matmul_avx512.c"
#undef VNNI_BYTES
#undef VNNI_WORDS
#undef ALONE_ISA

#undef KERNELS_MATMUL_PANEL_H
#undef KERNELS_MATMUL_X8_H
#undef KERNELS_MATMUL_FEW_H
#undef KERNELS_MATMUL_VNNI8_H
#define ALONE_ISA evex
#define KERNELS_VNNI_EVEX
#include "../../../src/kernels/matmul_avxvnni.c"
#undef matmul_avxvnni
#undef ALONE_ISA

#define ALONE_ISA attn_avx512
#include "../../../src/kernels/ops_attn_avx512.c"
#undef ALONE_ISA
#include "../../../src/kernels/ops_avx512.c"
ALONE_END

#elif defined(__aarch64__)

#define ALONE_ISA ops_neon
#include "../../../src/kernels/act_neon.c"
#include "../../../src/kernels/ops_neon.c"
#undef ALONE_ISA
#define ALONE_ISA attn_neon
#include "../../../src/kernels/ops_attn_neon.c"
#undef COLS
#undef HALF
#undef BLOCK
#undef ROWS
#undef INLINE
#undef ALONE_ISA

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#define ALONE_ISA neon
#include "../../../src/kernels/matmul_neon.c"
#undef ALONE_ISA
#pragma GCC pop_options

#undef NEON_INLINE
#undef ROWS
#undef WALK32
#undef WALK256
#undef WALKF
#define KERNELS_I8MM
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#define ALONE_ISA i8mm
#include "../../../src/kernels/matmul_neon.c"
#undef ALONE_ISA
#pragma GCC pop_options
#undef matmul_neon
#undef ROWS

#endif

#define ALONE_ISA tests
#include "../../../src/kernels/kernels_select.c"

#define main main_formats
#include "test_formats.c"
#undef main
#define main main_matmul
#include "test_matmul.c"
#undef main
#undef ALONE_ISA
#define ALONE_ISA test_ops
#define main main_ops
#include "test_ops.c"
#undef main
#undef ALONE_ISA
#define ALONE_ISA test_attn
#define main main_attn
#include "test_ops_attn.c"
#undef main

int main(void)
{
    int failed = main_formats() != 0;
    failed |= main_matmul() != 0;
    failed |= main_ops() != 0;
    return failed | (main_attn() != 0);
}
