/* IEEE half and bfloat16, one value at a time. Assumes the default rounding mode.
 * Pure, any thread. */
#include "kernels.h"

#include <string.h>

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) { /* infinity, or NaN made quiet as the processor does it */
        uint32_t quiet = rest > 0x7c00 ? 0x400000 : 0;
        return float_of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13 | quiet);
    }
    /* The exponent field moved as it stands is 112 too low; the product is exact, even for
     * subnormals. */
    float f = float_of_bits(rest << 13) * 0x1p112f;
    return sign ? -f : f;
}

uint16_t float_to_half(float f)
{
    uint32_t bits = bits_of_float(f);
    uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) /* NaN: quiet, upper payload kept */
        return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) /* below 2^-14: units of 2^-24, which is one ulp of 0.5 */
        return (uint16_t)(sign | (bits_of_float(float_of_bits(rest) + 0.5f) - 0x3f000000));
    rest += 0xfff + (rest >> 13 & 1);
    return (uint16_t)(sign | (rest - 0x38000000) >> 13);
}

float bf16_to_float(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}
