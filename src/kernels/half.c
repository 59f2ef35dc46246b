/* IEEE half and bfloat16, one value at a time, in integer arithmetic. Pure; any thread. */
#include "kernels.h"

#include <string.h>

static inline uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31, fraction = h & 1023;
    if (exponent == 31) /* infinity; a NaN is made quiet, as the processor's own conversion does */
        return bits_float(sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0));
    if (exponent == 0) { /* zero and subnormals: fraction * 2^-24, exact */
        float f = (float)fraction * 0x1p-24f;
        return bits_float(float_bits(f) | sign);
    }
    return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t float_to_half(float f)
{
    uint32_t u = float_bits(f), sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) /* NaN, made quiet, upper bits of its payload kept */
        return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x3ff));
    if (u >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (u < 0x38800000) { /* below 2^-14: a multiple of 2^-24, rounded by the addition */
        float r = bits_float(u) + 0.5f; /* 0.5 has an ulp of 2^-24 */
        return (uint16_t)(sign | (float_bits(r) - 0x3f000000));
    }
    u += 0xfff + (u >> 13 & 1);
    return (uint16_t)(sign | (u - 0x38000000) >> 13);
}

float bf16_to_float(uint16_t h)
{
    return bits_float((uint32_t)h << 16);
}
