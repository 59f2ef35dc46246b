/* Superblocks and Q8_0 blocks of eight rows for one to four tokens, whose sums stay in registers: what
 * the tiers with 256-bit vectors share. 32 bytes of a row are loaded at once, so a vector holds four
 * rows, the first 16 elements of a group in its low lane and the last 16 in its high one (of IQ4_XS:
 * two groups); rows 0 to 3 and 4 to 7 are summed apart, and the lanes are added at the end. Sums are
 * exact, so none of this touches an order. Included by matmul_avx2.c and matmul_vnni8.h, which
 * have before it:
 *     lanes_q8     the dot of one block of Q8_0 or another signed format, a row in each lane's word
 *     lanes_add    sum + scale * (start + products of one group)
 *     lanes_add2   the same of IQ4_XS, where a vector has half of two groups
 *     lanes_start  what a group's sum starts with
 *     group_scale  the scale of a group or of a half of it
 *     few_end      acc + the superblock's term */
#ifndef KERNELS_MATMUL_FEW_H
#define KERNELS_MATMUL_FEW_H

struct few_sums {
    __m256i of[PANEL_FEW][2]; /* rows 0 to 3, rows 4 to 7 */
};

/* Scales of the low lane and of the high one, for rows 0 to 3 and 4 to 7. */
X8_INLINE void few_scales(__m256i low, __m256i high, __m256i out[2])
{
    out[0] = _mm256_permute2x128_si256(low, high, 0x20);
    out[1] = _mm256_permute2x128_si256(low, high, 0x31);
}

X8_INLINE __m256i few_x(const int8_t *x)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

/* Group g: levels w of both halves of the rows, times the activations at x. */
X8_INLINE void few_group(enum format f, const struct panel *p, const struct x8_scales256 *h,
                         int32_t s, int g, const int tokens, const struct x8_lanes *w,
                         struct few_sums *sums)
{
    __m256i scale[2], first = group_scale(f, h, g, 0);
    few_scales(first, f == FORMAT_Q6_K ? group_scale(f, h, g, 1) : first, scale);
    const int8_t *x = p->x + 32 * ((size_t)s * 8 + (size_t)g) * (size_t)tokens;
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
        __m256i xt = few_x(x + 32 * t), start = lanes_start(f, p, s, tokens, t, g);
        sums->of[t][0] = lanes_add(f, sums->of[t][0], start, w->low, xt, scale[0]);
        sums->of[t][1] = lanes_add(f, sums->of[t][1], start, w->high, xt, scale[1]);
    }
}

/* Q4_K and Q5_K: groups 2 q and 2 q + 1 share bytes. top: of Q5_K, the fifth bits. */
X8_INLINE void few_level45(enum format f, const __m256i raw[4], const __m256i top[4], int g,
                           __m256i w[4])
{
    for (int k = 0; k < 4; k++) {
        w[k] = g % 2 == 0 ? x8_low(raw[k]) : x8_high(raw[k]);
        if (f == FORMAT_Q5_K) {
            __m256i bit = g <= 4 ? _mm256_slli_epi16(top[k], 4 - (g <= 4 ? g : 4))
                                 : _mm256_srli_epi16(top[k], g > 4 ? g - 4 : 0);
            w[k] = x8_or_and(w[k], bit, _mm256_set1_epi8(16));
        }
    }
}

/* Q6_K: group i of four, from its low bits and from top. */
X8_INLINE void few_level6(const __m256i raw[4], const __m256i top[4], int i, __m256i w[4])
{
    for (int k = 0; k < 4; k++) {
        __m256i bits = i == 0   ? _mm256_slli_epi16(top[k], 4)
                       : i == 1 ? _mm256_slli_epi16(top[k], 2)
                       : i == 2 ? top[k]
                                : _mm256_srli_epi16(top[k], 2);
        w[k] = x8_or_and(i < 2 ? x8_low(raw[k]) : x8_high(raw[k]), bits, _mm256_set1_epi8(0x30));
    }
}

X8_INLINE void few_groups45(enum format f, const struct x8_rows *r, const struct panel *p,
                            const struct x8_scales256 *h, int32_t s, const int tokens,
                            size_t block_bytes, struct few_sums *sums)
{
    struct x8_lanes raw, top, w;
    if (f == FORMAT_Q5_K)
        x8_load_lanes(r, 16, &top);
    else
        memset(&top, 0, sizeof top);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        x8_prefetch(r, 8 * block_bytes, (size_t)g, 8);
        if (g % 2 == 0)
            x8_load_lanes(r, (size_t)((f == FORMAT_Q4_K ? 16 : 48) + 16 * g), &raw);
        few_level45(f, raw.low, top.low, g, w.low);
        few_level45(f, raw.high, top.high, g, w.high);
        few_group(f, p, h, s, g, tokens, &w, sums);
    }
}

X8_INLINE void few_groups6(const struct x8_rows *r, const struct panel *p,
                           const struct x8_scales256 *h, int32_t s, const int tokens,
                           size_t block_bytes, struct few_sums *sums)
{
#pragma GCC unroll 2
    for (int quarter = 0; quarter < 2; quarter++) {
        struct x8_lanes raw[2], top, w;
        x8_load_lanes(r, (size_t)(64 * quarter), &raw[0]);
        x8_load_lanes(r, (size_t)(64 * quarter + 32), &raw[1]);
        x8_load_lanes(r, (size_t)(128 + 32 * quarter), &top);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            x8_prefetch(r, 8 * block_bytes, (size_t)(4 * quarter + i), 8);
            few_level6(raw[i % 2].low, top.low, i, w.low);
            few_level6(raw[i % 2].high, top.high, i, w.high);
            few_group(FORMAT_Q6_K, p, h, s, 4 * quarter + i, tokens, &w, sums);
        }
    }
}

/* IQ4_XS: the 16 bytes of a group hold its first elements in their low halves, so a lane is a group. */
X8_INLINE void few_groups_iq4(const struct x8_rows *r, const struct panel *p,
                              const struct x8_scales256 *h, int32_t s, const int tokens,
                              size_t block_bytes, struct few_sums *sums)
{
#pragma GCC unroll 4
    for (int g = 0; g < 8; g += 2) {
        struct x8_lanes raw;
        __m256i scale[2];
        x8_prefetch(r, 8 * block_bytes, (size_t)(g / 2), 4);
        x8_load_lanes(r, (size_t)(8 + 16 * g), &raw);
        few_scales(group_scale(FORMAT_IQ4_XS, h, g, 0), group_scale(FORMAT_IQ4_XS, h, g + 1, 0),
                   scale);
        const int8_t *x = p->x + 32 * ((size_t)s * 8 + (size_t)g) * (size_t)tokens;
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++) {
            __m256i x0 = few_x(x + 32 * t), x1 = few_x(x + 32 * (tokens + t)), halves[2];
            __m256i start = lanes_start(FORMAT_IQ4_XS, p, s, tokens, t, g);
            few_scales(x0, x1, halves);
            sums->of[t][0] = lanes_add2(sums->of[t][0], start, raw.low, halves, scale[0]);
            sums->of[t][1] = lanes_add2(sums->of[t][1], start, raw.high, halves, scale[1]);
        }
    }
}

X8_INLINE void superblock_few(enum format f, const struct x8_rows *r, const struct panel *p,
                              int32_t s, const int tokens, size_t block_bytes, __m256 *acc)
{
    struct x8_scales256 h;
    struct few_sums sums;
    x8_scales256(f, r, &h);
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++)
        sums.of[t][0] = sums.of[t][1] = _mm256_setzero_si256();
    if (f == FORMAT_Q6_K)
        few_groups6(r, p, &h, s, tokens, block_bytes, &sums);
    else if (f == FORMAT_IQ4_XS)
        few_groups_iq4(r, p, &h, s, tokens, block_bytes, &sums);
    else
        few_groups45(f, r, p, &h, s, tokens, block_bytes, &sums);
    __m256i sum[PANEL_FEW];
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++)
        sum[t] = x8_join(sums.of[t][0], sums.of[t][1]);
    few_end(f, p, &h, s, tokens, sum, acc);
}

/* Q8_0 */
X8_INLINE void block_few_q8(const struct x8_rows *r, const struct panel *p, int32_t b,
                            const int tokens, __m256 *acc)
{
    struct x8_lanes w;
    x8_load_lanes(r, 2, &w);
    __m256 d = x8_halves(r, 0);
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
        size_t at = (size_t)b * (size_t)tokens + (size_t)t;
        __m256i dot = lanes_q8(&w, few_x(p->x + 32 * at), p, at);
        __m256 v = _mm256_mul_ps(d, _mm256_cvtepi32_ps(dot));
        acc[t] = _mm256_add_ps(acc[t], _mm256_mul_ps(_mm256_set1_ps(p->scale[at]), v));
    }
}

#endif
