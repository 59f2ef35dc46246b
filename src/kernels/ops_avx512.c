/* AVX-512 versions of what gains by sixteen lanes. Same orders as ops.h says. Pure; any thread on
 * disjoint outputs. Called only where the processor has F, BW, VL and DQ. */
#include "ops.h"

#if defined(__x86_64__)

void ops_fill_avx512(struct kernels *k)
{
    k->attn_tile = ops_attn_tile_avx512;
}

#else
typedef int ops_avx512_is_empty_here; /* a translation unit may not be empty */
#endif
