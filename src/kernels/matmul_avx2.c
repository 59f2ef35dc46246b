/* Products of the integer formats for AVX2: eight rows at a time, one row per vector lane
 * (matmul_x8.h), one token or a panel of them (matmul_panel.h). The order of every row and token is
 * that of matmul_scalar.c, bit for bit. Knows nothing of threads or of where weights come from.
 *
 * Ranges. vpmaddubsw adds two products u8 * s8 into int16 and saturates past 32767:
 *   levels <= 15: 2 * 15 * 127 = 3810, eight of them 30480;
 *   levels <= 31: 7874, four of them 31496;
 *   levels <= 63: 16002, two of them 32004;
 *   Q8_0 and the IQ4 formats as |w| <= 128 times x with w's sign: 32512, not added before they are
 *   widened.
 * The int32 sums of a superblock stay below 63 * 128 * 127 * 256 < 2^28. */
#include "matmul_panel.h"
#include "matmul_tiers.h"
#include "matmul_x8.h"

#include <assert.h>

/* Four activations in every word. */
X8_INLINE __m256i spread4(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

X8_INLINE __m256i products(__m256i w, const int8_t *x)
{
    return _mm256_maddubs_epi16(w, spread4(x));
}

X8_INLINE __m256i products4(const __m256i *w, const int8_t *x)
{
    return _mm256_add_epi16(_mm256_add_epi16(products(w[0], x), products(w[1], x + 4)),
                            _mm256_add_epi16(products(w[2], x + 8), products(w[3], x + 12)));
}

X8_INLINE __m256i products2(const __m256i *w, const int8_t *x)
{
    return _mm256_add_epi16(products(w[0], x), products(w[1], x + 4));
}

/* Sum of 32 products of each row, times s0 (first 16 columns) and s1 (last 16), both pairs of
 * int16. s0 and s1 are the same vector except for Q6_K. */
X8_INLINE __m256i dot32(enum format f, const __m256i w[8], const int8_t *x, __m256i s0, __m256i s1)
{
    switch (f) {
    case FORMAT_Q4_0:
    case FORMAT_Q4_K:
        return _mm256_madd_epi16(_mm256_add_epi16(products4(w, x), products4(w + 4, x + 16)), s0);
    case FORMAT_Q6_K: {
        __m256i a = _mm256_add_epi32(_mm256_madd_epi16(products2(w, x), s0),
                                     _mm256_madd_epi16(products2(w + 2, x + 8), s0));
        __m256i b = _mm256_add_epi32(_mm256_madd_epi16(products2(w + 4, x + 16), s1),
                                     _mm256_madd_epi16(products2(w + 6, x + 24), s1));
        return _mm256_add_epi32(a, b);
    }
    case FORMAT_Q8_0:
    case FORMAT_IQ4_NL:
    case FORMAT_IQ4_XS: {
        __m256i sum = _mm256_setzero_si256();
        for (int k = 0; k < 8; k++) {
            __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(w[k]),
                                             _mm256_sign_epi8(spread4(x + 4 * k), w[k]));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(p, s0));
        }
        return sum;
    }
    default: /* five bits */
        return _mm256_add_epi32(_mm256_madd_epi16(products4(w, x), s0),
                                _mm256_madd_epi16(products4(w + 4, x + 16), s1));
    }
}

X8_INLINE __m256i spread_int(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

X8_INLINE enum panel_sums sums_of(enum format f)
{
    switch (f) {
    case FORMAT_Q8_0:
    case FORMAT_IQ4_NL:
    case FORMAT_IQ4_XS:
        return PANEL_NONE;
    case FORMAT_Q5_1:
        return PANEL_FSUM;
    case FORMAT_Q4_K:
    case FORMAT_Q5_K:
        return PANEL_PAIRS32;
    case FORMAT_Q6_K:
        return PANEL_SUMS16;
    default:
        return PANEL_BIAS;
    }
}

/* ---- 32-element formats ---- */

/* One token's term of a block of eight rows, added to acc. x, dx, sums: the token's. */
X8_INLINE __m256 term32(enum format f, const struct x8_block32 *w, const int8_t *x, const float *dx,
                        const char *sums, __m256 acc)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i dot = dot32(f, w->w, x, ones, ones);
    if (sums_of(f) == PANEL_BIAS)
        dot = _mm256_add_epi32(dot, spread_int(sums));
    __m256 v = _mm256_mul_ps(w->d, _mm256_cvtepi32_ps(dot));
    if (f == FORMAT_Q5_1)
        v = _mm256_add_ps(v, _mm256_mul_ps(w->m, _mm256_castsi256_ps(spread_int(sums))));
    return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_set1_ps(*dx), v));
}

/* acc[t] += the block's term for every token. few: tokens is a constant. */
X8_INLINE void block32(enum format f, const struct x8_rows *r, const struct panel *p, int32_t b,
                       int32_t tokens, bool few, __m256 *acc)
{
    struct x8_block32 w;
    x8_unpack32(f, r, &w);
    const int8_t *x = p->x + (size_t)b * (size_t)tokens * 32;
    const float *dx = p->scale + (size_t)b * (size_t)tokens;
    const char *sums = (const char *)p->sums + (size_t)b * (size_t)tokens * 4;
    if (few) {
#pragma GCC unroll 4
        for (int32_t t = 0; t < tokens; t++)
            acc[t] = term32(f, &w, x + 32 * t, dx + t, sums + 4 * t, acc[t]);
        return;
    }
    for (int32_t t = 0; t < tokens; t++)
        acc[t] = term32(f, &w, x + 32 * (size_t)t, dx + t, sums + 4 * (size_t)t, acc[t]);
}

/* ---- 256-element formats ---- */

/* acc += dx * (d * sum [- m * min]) */
X8_INLINE __m256 superblock_end(enum format f, const struct x8_scales256 *h, __m256i sum,
                                __m256i min, float dx, __m256 acc)
{
    if (f == FORMAT_Q6_K)
        sum = _mm256_sub_epi32(sum, _mm256_slli_epi32(min, 5)); /* the offset of 32 */
    __m256 v = _mm256_mul_ps(h->d, _mm256_cvtepi32_ps(sum));
    if (x8_has_min(f))
        v = _mm256_sub_ps(v, _mm256_mul_ps(h->m, _mm256_cvtepi32_ps(min)));
    return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_set1_ps(dx), v));
}

/* Factors of the activation sums, as pairs: minima (Q4_K, Q5_K: 4) or scales (Q6_K: 8). */
X8_INLINE void min_factors(enum format f, const struct x8_scales256 *h, __m256i out[8])
{
    if (f == FORMAT_IQ4_XS)
        return; /* none */
    if (f == FORMAT_Q6_K) {
        for (int i = 0; i < 4; i++) {
            out[2 * i] = x8_pair_s(h->s[i], 0);
            out[2 * i + 1] = x8_pair_s(h->s[i], 2);
        }
        return;
    }
    for (int i = 0; i < 2; i++) {
        out[2 * i] = x8_pair_u(h->t[i], 0);
        out[2 * i + 1] = x8_pair_u(h->t[i], 2);
    }
}

X8_INLINE __m256i min_sum(enum format f, const __m256i factors[8], const char *sums)
{
    if (f == FORMAT_IQ4_XS)
        return _mm256_setzero_si256();
    __m256i sum = _mm256_madd_epi16(factors[0], spread_int(sums));
    for (int i = 1; i < (f == FORMAT_Q6_K ? 8 : 4); i++)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(factors[i], spread_int(sums + 4 * i)));
    return sum;
}

/* Scale of a group of 32 (Q4_K, Q5_K, IQ4_XS) or of half of one (Q6_K), as pairs of int16. */
X8_INLINE __m256i group_scale(enum format f, const struct x8_scales256 *h, int group, int half)
{
    if (f == FORMAT_IQ4_XS) {
        __m256i s = x8_scale_iq4(h, group);
        return _mm256_blend_epi16(s, _mm256_slli_epi32(s, 16), 0xaa);
    }
    if (f == FORMAT_Q6_K)
        return x8_twice_s(h->s[group / 2], 2 * (group % 2) + half);
    return x8_twice_u(h->s[group / 4], group % 4);
}

enum { SUM_BYTES_K = 16, SUM_BYTES_Q6_K = 32 };

/* Sum of the products of four words of each row in each lane with the 16 activations of x there, as
 * int16: levels that let eight of them fit. */
X8_INLINE __m256i lanes_products(const __m256i w[4], __m256i x)
{
    __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], _mm256_shuffle_epi32(x, 0x00)),
                                 _mm256_maddubs_epi16(w[1], _mm256_shuffle_epi32(x, 0x55)));
    __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(w[2], _mm256_shuffle_epi32(x, 0xaa)),
                                 _mm256_maddubs_epi16(w[3], _mm256_shuffle_epi32(x, 0xff)));
    return _mm256_add_epi16(a, b);
}

/* sum + scale * products of signed levels; scale in pairs of int16 */
X8_INLINE __m256i lanes_signed(__m256i sum, const __m256i w[4], __m256i x, __m256i scale)
{
    __m256i spread[4] = {_mm256_shuffle_epi32(x, 0x00), _mm256_shuffle_epi32(x, 0x55),
                         _mm256_shuffle_epi32(x, 0xaa), _mm256_shuffle_epi32(x, 0xff)};
    for (int k = 0; k < 4; k++) {
        __m256i pair = _mm256_maddubs_epi16(_mm256_abs_epi8(w[k]),
                                            _mm256_sign_epi8(spread[k], w[k]));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pair, scale));
    }
    return sum;
}

X8_INLINE __m256i lanes_q8(const struct x8_lanes *w, __m256i x, const struct panel *p, size_t at)
{
    (void)p;
    (void)at;
    __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi16(1);
    return x8_join(lanes_signed(zero, w->low, x, one), lanes_signed(zero, w->high, x, one));
}

/* Offsets come off at the end. */
X8_INLINE __m256i lanes_start(enum format f, const struct panel *p, int32_t s, const int tokens,
                              int t, int g)
{
    (void)f, (void)p, (void)s, (void)tokens, (void)t, (void)g;
    return _mm256_setzero_si256();
}

X8_INLINE __m256i lanes_add(enum format f, __m256i sum, __m256i start, const __m256i w[4],
                            __m256i x, __m256i scale)
{
    (void)start;
    if (f != FORMAT_Q6_K)
        return _mm256_add_epi32(sum, _mm256_madd_epi16(lanes_products(w, x), scale));
    __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], _mm256_shuffle_epi32(x, 0x00)),
                                 _mm256_maddubs_epi16(w[1], _mm256_shuffle_epi32(x, 0x55)));
    __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(w[2], _mm256_shuffle_epi32(x, 0xaa)),
                                 _mm256_maddubs_epi16(w[3], _mm256_shuffle_epi32(x, 0xff)));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, scale));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(b, scale));
}

X8_INLINE __m256i lanes_add2(__m256i sum, __m256i start, const __m256i raw[4], const __m256i x[2],
                             __m256i scale)
{
    (void)start;
    __m256i low[4], high[4];
    for (int k = 0; k < 4; k++) {
        low[k] = x8_level_iq4(x8_low(raw[k]));
        high[k] = x8_level_iq4(x8_high(raw[k]));
    }
    return lanes_signed(lanes_signed(sum, low, x[0], scale), high, x[1], scale);
}

X8_INLINE void few_end(enum format f, const struct panel *p, const struct x8_scales256 *h,
                       int32_t s, const int tokens, const __m256i *sum, __m256 *acc)
{
    __m256i factors[8];
    min_factors(f, h, factors);
    size_t sum_bytes = f == FORMAT_Q6_K ? SUM_BYTES_Q6_K : SUM_BYTES_K;
    const char *sums = (const char *)p->sums + (size_t)s * (size_t)tokens * sum_bytes;
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++)
        acc[t] = superblock_end(f, h, sum[t], min_sum(f, factors, sums + (size_t)t * sum_bytes),
                                p->scale[s * tokens + t], acc[t]);
}

#include "matmul_few.h"

/* Working memory of one superblock with many tokens. */
struct wide256 {
    __m256i w[8][8]; /* levels of the groups of 32 */
    __m256i isum[PANEL_TOKENS];
};

X8_INLINE void superblock_many(enum format f, const struct x8_rows *r, const struct panel *p,
                               int32_t s, int32_t tokens, size_t block_bytes, struct wide256 *wide,
                               __m256 *acc)
{
    const int groups = f == FORMAT_Q6_K ? 4 : 2, quarters = f == FORMAT_IQ4_XS ? 0 : 8 / groups;
    struct x8_scales256 h;
    x8_scales256(f, r, &h);
    __m256i high[2][4];
    x8_high256(f, r, 0, high[0]);
    x8_high256(f, r, 1, high[1]);
    if (f == FORMAT_IQ4_XS) {
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            x8_prefetch(r, 8 * block_bytes, (size_t)g, 8);
            x8_group_iq4(r, (size_t)(8 + 16 * g), wide->w[g]);
        }
    }
#pragma GCC unroll 4
    for (int quarter = 0; quarter < quarters; quarter++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i w[4][4];
            x8_prefetch(r, 8 * block_bytes, (size_t)(2 * quarter + half), (size_t)(16 / groups));
            x8_levels256(f, r, quarter, half, high[half], w);
            for (int g = 0; g < groups; g++)
                memcpy(&wide->w[groups * quarter + g][4 * half], w[g], sizeof w[g]);
        }
    const int8_t *x = p->x + (size_t)s * (size_t)tokens * 256;
    size_t group_bytes = (size_t)tokens * 32;
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        __m256i w[8], s0 = group_scale(f, &h, g, 0);
        __m256i s1 = f == FORMAT_Q6_K ? group_scale(f, &h, g, 1) : s0;
        memcpy(w, wide->w[g], sizeof w);
        const int8_t *xg = x + (size_t)g * group_bytes;
        if (g == 0)
            for (int32_t t = 0; t < tokens; t++)
                wide->isum[t] = dot32(f, w, xg + 32 * (size_t)t, s0, s1);
        else
            for (int32_t t = 0; t < tokens; t++)
                wide->isum[t] =
                    _mm256_add_epi32(wide->isum[t], dot32(f, w, xg + 32 * (size_t)t, s0, s1));
    }
    __m256i factors[8];
    min_factors(f, &h, factors);
    size_t sum_bytes = f == FORMAT_Q6_K ? SUM_BYTES_Q6_K : SUM_BYTES_K;
    const char *sums = (const char *)p->sums + (size_t)s * (size_t)tokens * sum_bytes;
    const float *dx = p->scale + (size_t)s * (size_t)tokens;
    for (int32_t t = 0; t < tokens; t++)
        acc[t] = superblock_end(f, &h, wide->isum[t],
                                min_sum(f, factors, sums + (size_t)t * sum_bytes), dx[t], acc[t]);
}

/* ---- calls ---- */

struct work {
    __m256 acc[PANEL_TOKENS];
    struct wide256 wide;
};

_Static_assert(PANEL_BYTES % 64 == 0, "work is aligned");
_Static_assert(PANEL_BYTES + sizeof(struct work) <= MATMUL_SCRATCH_BYTES, "scratch is enough");

/* All blocks of the panel for eight rows; acc goes on from its present values. */
X8_INLINE void walk_blocks(enum format f, struct x8_rows *r, const struct panel *p, int32_t tokens,
                           bool few, size_t block_bytes, bool is32, struct work *work, __m256 *acc)
{
    if (is32) {
        for (int32_t b = 0; b < p->cols / 32; b++, x8_advance(r, block_bytes)) {
            x8_prefetch(r, 8 * block_bytes, 0, 1);
            if (few && f == FORMAT_Q8_0)
                block_few_q8(r, p, b, tokens, acc);
            else
                block32(f, r, p, b, tokens, few, acc);
        }
    } else {
        for (int32_t s = 0; s < p->cols / 256; s++, x8_advance(r, block_bytes)) {
            if (few)
                superblock_few(f, r, p, s, tokens, block_bytes, acc);
            else
                superblock_many(f, r, p, s, tokens, block_bytes, &work->wide, acc);
        }
    }
}

X8_INLINE void walk_rows(enum format f, const struct panel_call *c, size_t block_bytes, bool is32,
                         int32_t tokens, bool few)
{
    struct work *work = c->work;
    const uint8_t *w = (const uint8_t *)c->m->w + c->at;
    size_t stride = c->m->y_stride;
    const struct panel p = *c->p;
    struct x8_group g;
    if (few && p.cols == c->m->cols)
        x8_first(w, c->m->row_bytes, c->row_begin, c->row_end);
    for (int32_t row = c->row_begin; row < c->row_end; row += g.n) {
        g = x8_group(row, c->row_end, c->m->rows, c->m->row_bytes);
        float *y = c->m->y + (size_t)c->token * stride + (size_t)row;
        struct x8_rows r;
        x8_start(&r, w, c->m->row_bytes, p.cols == c->m->cols, &g, c->row_end);
        __m256 in_registers[PANEL_FEW], *acc = few ? in_registers : work->acc;
        for (int32_t t = 0; t < tokens; t++)
            acc[t] = c->first || t >= p.valid ? _mm256_setzero_ps()
                                                  : x8_read(y + (size_t)t * stride, &g);
        walk_blocks(f, &r, &p, tokens, few, block_bytes, is32, work, acc);
        for (int32_t t = 0; t < tokens; t++)
            if (t < p.valid)
                x8_write(y + (size_t)t * stride, acc[t], &g);
    }
}

#define WALK(name, f, bytes, is32)                                                                 \
    static void walk_##name(const struct panel_call *c)                                            \
    {                                                                                              \
        switch (c->p->tokens) {                                                                    \
        case 1:                                                                                    \
            walk_rows(f, c, bytes, is32, 1, true);                                                 \
            break;                                                                                 \
        case 2:                                                                                    \
            walk_rows(f, c, bytes, is32, 2, true);                                                 \
            break;                                                                                 \
        case 4:                                                                                    \
            walk_rows(f, c, bytes, is32, 4, true);                                                 \
            break;                                                                                 \
        default:                                                                                   \
            walk_rows(f, c, bytes, is32, c->p->tokens, false);                                     \
        }                                                                                          \
    }

WALK(q4_0, FORMAT_Q4_0, 18, true)
WALK(q5_0, FORMAT_Q5_0, 22, true)
WALK(q5_1, FORMAT_Q5_1, 24, true)
WALK(q8_0, FORMAT_Q8_0, 34, true)
WALK(mxfp4, FORMAT_MXFP4, 17, true)
WALK(iq4_nl, FORMAT_IQ4_NL, 18, true)
WALK(q4_k, FORMAT_Q4_K, 144, false)
WALK(q5_k, FORMAT_Q5_K, 176, false)
WALK(q6_k, FORMAT_Q6_K, 210, false)
WALK(iq4_xs, FORMAT_IQ4_XS, 136, false)

static panel_rows *const walks[FORMAT_LIMIT] = {
    [FORMAT_Q4_0] = walk_q4_0,     [FORMAT_Q5_0] = walk_q5_0,     [FORMAT_Q5_1] = walk_q5_1,
    [FORMAT_Q8_0] = walk_q8_0,     [FORMAT_MXFP4] = walk_mxfp4,   [FORMAT_IQ4_NL] = walk_iq4_nl,
    [FORMAT_Q4_K] = walk_q4_k,     [FORMAT_Q5_K] = walk_q5_k,     [FORMAT_Q6_K] = walk_q6_k,
    [FORMAT_IQ4_XS] = walk_iq4_xs,
};

/* Up to so many tokens go by fours: measured, docs/kernels.md. */
enum { FEW_TOKENS_32 = 4, FEW_TOKENS_256 = 16 };

void matmul_avx2(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch)
{
    const struct format_info *info = format_info((uint32_t)m->format);
    assert(info != NULL && info->runs && m->cols % info->block == 0);
    assert(row_begin >= 0 && row_end <= m->rows);
    if (info->act == ACT_F32)
        matmul_float_avx2(m, row_begin, row_end);
    else if (walks[m->format] == NULL) /* a format without a wide kernel yet */
        matmul_scalar(m, row_begin, row_end, scratch);
    else
        panel_walk(m, row_begin, row_end, scratch, walks[m->format], sums_of(m->format),
                   x8_offset(m->format), info->block == 32 ? FEW_TOKENS_32 : FEW_TOKENS_256);
}
