/* Eight rows in 256-bit vectors with vpdpbusd, for the tiers that have it: AVX-512 VNNI (EVEX form)
 * and AVX-VNNI (VEX form). The including file names the two instructions:
 *     VNNI_BYTES(sum, u8, s8)   four products u8 * s8 added to each int32, without saturation
 *     VNNI_WORDS(sum, s16, s16) two products s16 * s16 added to each int32
 * The order of every row and token is that of matmul_scalar.c, bit for bit.
 *
 * Levels are unsigned with their offset on; Q8_0's and the IQ4 formats' are made so by adding 128. The
 * offset's share, -offset * sum(x), is where a sum starts. Ranges: 255 * 127 * 32 < 2^20 for a block,
 * 63 * 128 * 127 * 256 < 2^28 for a superblock, 241 * 32 * 127 * 256 < 2^28 for IQ4_XS's. */
#ifndef KERNELS_MATMUL_VNNI8_H
#define KERNELS_MATMUL_VNNI8_H

#include "matmul_panel.h"
#include "matmul_x8.h"

X8_INLINE int32_t load_int(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

X8_INLINE enum panel_sums sums_of(enum format f)
{
    switch (f) {
    case FORMAT_Q5_1:
        return PANEL_FSUM;
    case FORMAT_Q4_K:
    case FORMAT_Q5_K:
        return PANEL_PAIRS32;
    case FORMAT_Q6_K:
        return PANEL_BIAS16;
    case FORMAT_IQ4_XS:
        return PANEL_BIAS32;
    default:
        return PANEL_BIAS;
    }
}

X8_INLINE int32_t offset_of(enum format f)
{
    return x8_signed(f) ? 128 : x8_offset(f);
}

/* Levels as unsigned bytes. */
X8_INLINE void unpack32(enum format f, const struct x8_rows *r, struct x8_block32 *b)
{
    x8_unpack32(f, r, b);
    if (x8_signed(f))
        for (int k = 0; k < 8; k++)
            b->w[k] = _mm256_xor_si256(b->w[k], _mm256_set1_epi8((char)0x80));
}

/* sum + products of n words of each row with the activations at x */
X8_INLINE __m256i dot8(__m256i sum, const __m256i *w, const int8_t *x, int n)
{
#pragma GCC unroll 8
    for (int k = 0; k < n; k++)
        sum = VNNI_BYTES(sum, w[k], _mm256_set1_epi32(load_int(x + 4 * k)));
    return sum;
}

/* ---- few tokens, eight rows ---- */

/* sum + products of four words of each row in each lane with the 16 activations of x there */
X8_INLINE __m256i dot_lanes(__m256i sum, const __m256i w[4], __m256i x)
{
    sum = VNNI_BYTES(sum, w[0], _mm256_shuffle_epi32(x, 0x00));
    sum = VNNI_BYTES(sum, w[1], _mm256_shuffle_epi32(x, 0x55));
    sum = VNNI_BYTES(sum, w[2], _mm256_shuffle_epi32(x, 0xaa));
    return VNNI_BYTES(sum, w[3], _mm256_shuffle_epi32(x, 0xff));
}

X8_INLINE __m256i lanes_q8(const struct x8_lanes *w, __m256i x, const struct panel *p, size_t at)
{
    __m256i low[4], high[4], offset = _mm256_set1_epi8((char)0x80);
    for (int k = 0; k < 4; k++) {
        low[k] = _mm256_xor_si256(w->low[k], offset);
        high[k] = _mm256_xor_si256(w->high[k], offset);
    }
    __m256i zero = _mm256_setzero_si256();
    __m256i dot = x8_join(dot_lanes(zero, low, x), dot_lanes(zero, high, x));
    return _mm256_add_epi32(dot, _mm256_set1_epi32(load_int((const char *)p->sums + 4 * at)));
}

/* The offset's share of group g: of its halves (Q6_K), or of groups g and g + 1 (IQ4_XS). */
X8_INLINE __m256i lanes_start(enum format f, const struct panel *p, int32_t s, const int tokens,
                              int t, int g)
{
    if (f != FORMAT_Q6_K && f != FORMAT_IQ4_XS)
        return _mm256_setzero_si256();
    int n = f == FORMAT_Q6_K ? 16 : 8, at = f == FORMAT_Q6_K ? 2 * g : g, lane = at % 8;
    const int32_t *bias = (const int32_t *)p->sums + (s * tokens + t) * n + (at - lane);
    return _mm256_permutevar8x32_epi32(
        _mm256_loadu_si256((const __m256i *)(const void *)bias),
        _mm256_setr_epi32(lane, lane, lane, lane, lane + 1, lane + 1, lane + 1, lane + 1));
}

X8_INLINE __m256i lanes_add(enum format f, __m256i sum, __m256i start, const __m256i w[4],
                            __m256i x, __m256i scale)
{
    __m256i d = dot_lanes(start, w, x);
    if (f == FORMAT_Q4_K) /* 15 * 127 * 16 fits int16, and the upper halves of scale are 0 */
        return VNNI_WORDS(sum, d, scale);
    return _mm256_add_epi32(sum, _mm256_mullo_epi32(d, scale));
}

X8_INLINE __m256i lanes_add2(__m256i sum, __m256i start, const __m256i raw[4], const __m256i x[2],
                             __m256i scale)
{
    const __m256i level = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                      (char)181, (char)197, (char)217, (char)241)); /* with their offset of 128 */
    __m256i low[4], high[4];
    for (int k = 0; k < 4; k++) {
        low[k] = _mm256_shuffle_epi8(level, x8_low(raw[k]));
        high[k] = _mm256_shuffle_epi8(level, x8_high(raw[k]));
    }
    __m256i d = dot_lanes(dot_lanes(start, low, x[0]), high, x[1]);
    return _mm256_add_epi32(sum, _mm256_mullo_epi32(d, scale));
}

/* Scale of a group of 32 (Q4_K, Q5_K, IQ4_XS) or of half of one (Q6_K) as int32. */
X8_INLINE __m256i group_scale(enum format f, const struct x8_scales256 *h, int group, int half)
{
    if (f == FORMAT_IQ4_XS)
        return x8_scale_iq4(h, group);
    if (f == FORMAT_Q6_K) {
        int byte = 2 * (group % 2) + half;
        return _mm256_srai_epi32(_mm256_slli_epi32(h->s[group / 2], 24 - 8 * byte), 24);
    }
    return x8_pick(h->s[group / 4], group % 4, -1, -1, -1);
}

/* Minima of Q4_K and Q5_K as pairs of int16. */
X8_INLINE __m256i min_factors(const struct x8_scales256 *h, int i)
{
    return x8_pair_u(h->t[i / 2], 2 * (i % 2));
}

X8_INLINE void few_end(enum format f, const struct panel *p, const struct x8_scales256 *h,
                       int32_t s, const int tokens, const __m256i *sum, __m256 *acc)
{
    const char *sums = (const char *)p->sums + 16 * (size_t)s * (size_t)tokens;
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
        __m256 v = _mm256_mul_ps(h->d, _mm256_cvtepi32_ps(sum[t]));
        if (x8_has_min(f)) {
            __m256i min = _mm256_setzero_si256();
            for (int i = 0; i < 4; i++)
                min = VNNI_WORDS(min, min_factors(h, i),
                                 _mm256_set1_epi32(load_int(sums + 16 * t + 4 * i)));
            v = _mm256_sub_ps(v, _mm256_mul_ps(h->m, _mm256_cvtepi32_ps(min)));
        }
        acc[t] = _mm256_add_ps(acc[t], _mm256_mul_ps(_mm256_set1_ps(p->scale[s * tokens + t]), v));
    }
}

#include "matmul_few.h"

X8_INLINE void block32_few(enum format f, const struct x8_rows *r, const struct panel *p, int32_t b,
                           const int tokens, __m256 *acc)
{
    if (f == FORMAT_Q8_0) {
        block_few_q8(r, p, b, tokens, acc);
        return;
    }
    struct x8_block32 w;
    unpack32(f, r, &w);
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
        size_t at = (size_t)b * (size_t)tokens + (size_t)t;
        const int8_t *x = p->x + 32 * at;
        __m256i start = _mm256_setzero_si256();
        if (sums_of(f) == PANEL_BIAS)
            start = _mm256_set1_epi32(load_int((const char *)p->sums + 4 * at));
        __m256i dot = _mm256_add_epi32(dot8(start, w.w, x, 4),
                                       dot8(_mm256_setzero_si256(), w.w + 4, x + 16, 4));
        __m256 v = _mm256_mul_ps(w.d, _mm256_cvtepi32_ps(dot));
        if (f == FORMAT_Q5_1)
            v = _mm256_add_ps(v, _mm256_mul_ps(w.m, _mm256_set1_ps(((const float *)p->sums)[at])));
        acc[t] = _mm256_add_ps(acc[t], _mm256_mul_ps(_mm256_set1_ps(p->scale[at]), v));
    }
}

X8_INLINE void rows_few(enum format f, const struct panel_call *c, size_t block_bytes, bool is32,
                        const int tokens)
{
    const uint8_t *w = (const uint8_t *)c->m->w + c->at;
    size_t stride = c->m->y_stride;
    const struct panel p = *c->p;
    struct x8_group g;
    if (p.cols == c->m->cols)
        x8_first(w, c->m->row_bytes, c->row_begin, c->row_end);
    for (int32_t row = c->row_begin; row < c->row_end; row += g.n) {
        g = x8_group(row, c->row_end, c->m->rows, c->m->row_bytes);
        float *y = c->m->y + (size_t)c->token * stride + (size_t)row;
        struct x8_rows r;
        x8_start(&r, w, c->m->row_bytes, p.cols == c->m->cols, &g, c->row_end);
        __m256 acc[PANEL_FEW];
        for (int t = 0; t < tokens; t++)
            acc[t] = c->first || t >= p.valid ? _mm256_setzero_ps()
                                              : x8_read(y + (size_t)t * stride, &g);
        if (is32) {
            for (int32_t b = 0; b < p.cols / 32; b++, x8_advance(&r, block_bytes)) {
                x8_prefetch(&r, 8 * block_bytes, 0, 1);
                block32_few(f, &r, &p, b, tokens, acc);
            }
        } else {
            for (int32_t s = 0; s < p.cols / 256; s++, x8_advance(&r, block_bytes))
                superblock_few(f, &r, &p, s, tokens, block_bytes, acc);
        }
        for (int t = 0; t < tokens; t++)
            if (t < p.valid)
                x8_write(y + (size_t)t * stride, acc[t], &g);
    }
}

/* ---- the formats ---- */

enum { VNNI_FEW_TOKENS = 7 }; /* so many go by fours: measured, docs/kernels.md */

#define VNNI_WALK(name, f, bytes, is32)                                                            \
    static void walk_##name(const struct panel_call *c)                                            \
    {                                                                                              \
        switch (c->p->tokens) {                                                                    \
        case 1:                                                                                    \
            rows_few(f, c, bytes, is32, 1);                                                        \
            break;                                                                                 \
        case 2:                                                                                    \
            rows_few(f, c, bytes, is32, 2);                                                        \
            break;                                                                                 \
        case 4:                                                                                    \
            rows_few(f, c, bytes, is32, 4);                                                        \
            break;                                                                                 \
        default:                                                                                   \
            rows_many(f, c, bytes, is32);                                                          \
        }                                                                                          \
    }

/* One walk of each format, and the table of them; the including file has a rows_many of its own. */
#define VNNI_WALKS                                                                                 \
    VNNI_WALK(q4_0, FORMAT_Q4_0, 18, true)                                                         \
    VNNI_WALK(q5_0, FORMAT_Q5_0, 22, true)                                                         \
    VNNI_WALK(q5_1, FORMAT_Q5_1, 24, true)                                                         \
    VNNI_WALK(q8_0, FORMAT_Q8_0, 34, true)                                                         \
    VNNI_WALK(mxfp4, FORMAT_MXFP4, 17, true)                                                       \
    VNNI_WALK(iq4_nl, FORMAT_IQ4_NL, 18, true)                                                     \
    VNNI_WALK(q4_k, FORMAT_Q4_K, 144, false)                                                       \
    VNNI_WALK(q5_k, FORMAT_Q5_K, 176, false)                                                       \
    VNNI_WALK(q6_k, FORMAT_Q6_K, 210, false)                                                       \
    VNNI_WALK(iq4_xs, FORMAT_IQ4_XS, 136, false)                                                   \
    static panel_rows *const vnni_walks[FORMAT_LIMIT] = {                                          \
        [FORMAT_Q4_0] = walk_q4_0,     [FORMAT_Q5_0] = walk_q5_0,   [FORMAT_Q5_1] = walk_q5_1,     \
        [FORMAT_Q8_0] = walk_q8_0,     [FORMAT_MXFP4] = walk_mxfp4, [FORMAT_IQ4_NL] = walk_iq4_nl, \
        [FORMAT_Q4_K] = walk_q4_k,     [FORMAT_Q5_K] = walk_q5_k,   [FORMAT_Q6_K] = walk_q6_k,     \
        [FORMAT_IQ4_XS] = walk_iq4_xs,                                                             \
    };

#endif
