/* The block formats, bit by bit. Layouts and formulas: the GGUF type table and the formats' public
 * definitions, restated in docs/kernels.md; all fields are little endian.
 * Knows nothing of products or instruction sets. Pure, any thread. */
#include "format_unpack.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "kernels.h"

static uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static float load_half(const uint8_t *p)
{
    return half_to_float(load_u16(p));
}

/* d@0, qs@2[16]: element e < 16 is the low nibble of byte e, e + 16 the high one. */
static void unpack_q4_0(const uint8_t *b, struct unpacked *u)
{
    u->d = load_half(b);
    for (int e = 0; e < 16; e++) {
        u->q[e] = (int8_t)((b[2 + e] & 15) - 8);
        u->q[e + 16] = (int8_t)((b[2 + e] >> 4) - 8);
    }
}

/* Nibbles at qs as Q4_0's, with bit e of qh as the fifth bit of element e, less offset. */
static void unpack_five_bits(const uint8_t *qs, uint32_t qh, int offset, struct unpacked *u)
{
    for (int e = 0; e < 16; e++) {
        u->q[e] = (int8_t)((int)((qs[e] & 15) | (qh >> e & 1) << 4) - offset);
        u->q[e + 16] = (int8_t)((int)(qs[e] >> 4 | (qh >> (e + 16) & 1) << 4) - offset);
    }
}

/* d@0, qh@2 u32, qs@6[16] */
static void unpack_q5_0(const uint8_t *b, struct unpacked *u)
{
    u->d = load_half(b);
    unpack_five_bits(b + 6, load_u32(b + 2), 16, u);
}

/* d@0, m@2, qh@4 u32, qs@8[16] */
static void unpack_q5_1(const uint8_t *b, struct unpacked *u)
{
    u->d = load_half(b);
    u->m = load_half(b + 2);
    unpack_five_bits(b + 8, load_u32(b + 4), 0, u);
}

/* d@0, qs@2 i8[32] */
static void unpack_q8_0(const uint8_t *b, struct unpacked *u)
{
    u->d = load_half(b);
    memcpy(u->q, b + 2, 32);
}

/* e8@0, qs@1[16]: nibbles as Q4_0's, each the double of an E2M1 value (OCP Microscaling
 * Formats, section 5.3), hence the exponent bias of 128. e8 = 0 and 1 give subnormal scales; 255,
 * NaN in the OCP text, is 2^127 as other readers of the format have it. */
static void unpack_mxfp4(const uint8_t *b, struct unpacked *u)
{
    static const int8_t level[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23;
    memcpy(&u->d, &bits, sizeof u->d);
    for (int e = 0; e < 16; e++) {
        u->q[e] = level[b[1 + e] & 15];
        u->q[e + 16] = level[b[1 + e] >> 4];
    }
}

/* The twelve bytes with eight 6-bit scales and eight 6-bit minima of Q4_K and Q5_K, per 32. */
static void unpack_scales_6bit(const uint8_t *s, struct unpacked *u)
{
    for (int g = 0; g < 8; g++) {
        int scale, min;
        if (g < 4) {
            scale = s[g] & 63;
            min = s[g + 4] & 63;
        } else {
            scale = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
            min = (s[g + 4] >> 4) | (s[g] >> 6) << 4;
        }
        u->s[2 * g] = u->s[2 * g + 1] = (int16_t)scale;
        u->t[2 * g] = u->t[2 * g + 1] = (int16_t)min;
    }
}

/* d@0, dmin@2, scales@4[12], qs@16[128]: 32 bytes hold group 2p in the low nibbles, 2p + 1 in the
 * high ones. */
static void unpack_q4_k(const uint8_t *b, struct unpacked *u)
{
    u->d = load_half(b);
    u->m = load_half(b + 2);
    unpack_scales_6bit(b + 4, u);
    for (int p = 0; p < 4; p++)
        for (int l = 0; l < 32; l++) {
            uint8_t byte = b[16 + 32 * p + l];
            u->q[64 * p + l] = (int8_t)(byte & 15);
            u->q[64 * p + 32 + l] = (int8_t)(byte >> 4);
        }
}

/* d@0, dmin@2, scales@4[12], qh@16[32], qs@48[128]: as Q4_K, bit g of qh[l] is the fifth bit. */
static void unpack_q5_k(const uint8_t *b, struct unpacked *u)
{
    u->d = load_half(b);
    u->m = load_half(b + 2);
    unpack_scales_6bit(b + 4, u);
    for (int p = 0; p < 4; p++)
        for (int l = 0; l < 32; l++) {
            uint8_t byte = b[48 + 32 * p + l], high = b[16 + l];
            u->q[64 * p + l] = (int8_t)((byte & 15) | (high >> 2 * p & 1) << 4);
            u->q[64 * p + 32 + l] = (int8_t)(byte >> 4 | (high >> (2 * p + 1) & 1) << 4);
        }
}

/* ql@0[128], qh@128[64], scales@192 i8[16], d@208. Element 128 n + 32 j + l: low four bits from
 * ql[64 n + 32 (j & 1) + l] (low nibble for j < 2), high two from bits 2 j of qh[32 n + l]. */
static void unpack_q6_k(const uint8_t *b, struct unpacked *u)
{
    const uint8_t *ql = b, *qh = b + 128;
    u->d = load_half(b + 208);
    for (int k = 0; k < 16; k++)
        u->s[k] = (int8_t)b[192 + k];
    for (int n = 0; n < 2; n++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 32; l++) {
                int low = ql[64 * n + 32 * (j & 1) + l] >> (j < 2 ? 0 : 4) & 15;
                int high = qh[32 * n + l] >> 2 * j & 3;
                u->q[128 * n + 32 * j + l] = (int8_t)((low | high << 4) - 32);
            }
}

/* The sixteen levels of IQ4_NL and IQ4_XS (docs/kernels.md). */
static const int8_t level_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

/* d@0, qs@2[16]: nibbles as Q4_0's, each an index of a level. */
static void unpack_iq4_nl(const uint8_t *b, struct unpacked *u)
{
    u->d = load_half(b);
    for (int e = 0; e < 16; e++) {
        u->q[e] = level_iq4[b[2 + e] & 15];
        u->q[e + 16] = level_iq4[b[2 + e] >> 4];
    }
}

/* d@0, high@2 u16, low@4[4], qs@8[128]: group g of 32 has the six-bit scale of nibble g of low and bit
 * pair g of high, less 32, and the 16 bytes at qs + 16 g. */
static void unpack_iq4_xs(const uint8_t *b, struct unpacked *u)
{
    uint32_t high = load_u16(b + 2), low = load_u32(b + 4);
    u->d = load_half(b);
    for (int g = 0; g < 8; g++) {
        int scale = (int)((low >> 4 * g & 15) | (high >> 2 * g & 3) << 4) - 32;
        u->s[2 * g] = u->s[2 * g + 1] = (int16_t)scale;
        for (int e = 0; e < 16; e++) {
            uint8_t byte = b[8 + 16 * g + e];
            u->q[32 * g + e] = level_iq4[byte & 15];
            u->q[32 * g + 16 + e] = level_iq4[byte >> 4];
        }
    }
}

static const struct unpack_row rows[FORMAT_LIMIT] = {
    [FORMAT_Q4_0] = {UNPACK_32, unpack_q4_0},      [FORMAT_Q5_0] = {UNPACK_32, unpack_q5_0},
    [FORMAT_Q5_1] = {UNPACK_32_MIN, unpack_q5_1},  [FORMAT_Q8_0] = {UNPACK_32, unpack_q8_0},
    [FORMAT_MXFP4] = {UNPACK_32, unpack_mxfp4},    [FORMAT_Q4_K] = {UNPACK_256_MIN, unpack_q4_k},
    [FORMAT_Q5_K] = {UNPACK_256_MIN, unpack_q5_k}, [FORMAT_Q6_K] = {UNPACK_256, unpack_q6_k},
    [FORMAT_IQ4_NL] = {UNPACK_32, unpack_iq4_nl},  [FORMAT_IQ4_XS] = {UNPACK_256, unpack_iq4_xs},
};

const struct unpack_row *unpack_row_of(enum format f)
{
    const struct format_info *info = format_info((uint32_t)f);
    return info != NULL && info->runs ? &rows[f] : NULL;
}

static void dequant_floats(enum format f, const uint8_t *p, float *out, int32_t cols)
{
    if (f == FORMAT_F32)
        memcpy(out, p, (size_t)cols * sizeof *out);
    else if (f == FORMAT_F16)
        for (int32_t i = 0; i < cols; i++)
            out[i] = half_to_float(load_u16(p + 2 * (size_t)i));
    else
        for (int32_t i = 0; i < cols; i++)
            out[i] = bf16_to_float(load_u16(p + 2 * (size_t)i));
}

void dequant_scalar(enum format f, const void *row, float *out, int32_t cols)
{
    const struct format_info *info = format_info((uint32_t)f);
    const struct unpack_row *r = unpack_row_of(f);
    assert(r != NULL && cols % info->block == 0);
    const uint8_t *p = row;
    if (r->unpack == NULL) {
        dequant_floats(f, p, out, cols);
        return;
    }
    for (int32_t c = 0; c < cols; c += info->block, p += info->block_bytes) {
        struct unpacked u;
        r->unpack(p, &u);
        float *y = out + c;
        switch (r->class) {
        case UNPACK_32:
            for (int e = 0; e < info->block; e++)
                y[e] = u.d * (float)u.q[e];
            break;
        case UNPACK_32_MIN:
            for (int e = 0; e < info->block; e++)
                y[e] = u.d * (float)u.q[e] + u.m;
            break;
        case UNPACK_256:
            for (int e = 0; e < info->block; e++)
                y[e] = u.d * (float)u.s[e / 16] * (float)u.q[e];
            break;
        case UNPACK_256_MIN:
            for (int e = 0; e < info->block; e++)
                y[e] = u.d * (float)u.s[e / 16] * (float)u.q[e] - u.m * (float)u.t[e / 16];
            break;
        case UNPACK_FLOAT:
            break;
        }
    }
}
