/* Products of the integer formats for AVX-512 with VNNI. Up to four tokens: eight rows in
 * 256-bit vectors (matmul_x8.h). More: sixteen rows in 512-bit ones, each block unpacked once
 * for the panel's tokens (matmul_panel.h). The order of every row and token is that of
 * matmul_scalar.c, bit for bit. Knows nothing of threads or of where weights come from.
 *
 * vpdpbusd adds four products u8 * s8 to an int32 without saturation. Levels are unsigned with
 * their offset on, Q8_0's made so by adding 128; the offset's share, -offset * sum(x), is where
 * a sum starts. Ranges: 255 * 127 * 32 < 2^20 for a block, 63 * 128 * 127 * 256 < 2^28 for a
 * superblock. */
#include "matmul_panel.h"
#include "matmul_tiers.h"
#include "matmul_x8.h"

#include <assert.h>

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
    default:
        return PANEL_BIAS;
    }
}

X8_INLINE int32_t offset_of(enum format f)
{
    return f == FORMAT_Q8_0 ? 128 : x8_offset(f);
}

/* Levels as unsigned bytes. */
X8_INLINE void unpack32(enum format f, const struct x8_rows *r, struct x8_block32 *b)
{
    x8_unpack32(f, r, b);
    if (f == FORMAT_Q8_0)
        for (int k = 0; k < 8; k++)
            b->w[k] = _mm256_xor_si256(b->w[k], _mm256_set1_epi8((char)0x80));
}

/* sum + products of n words of each row with the activations at x */
X8_INLINE __m256i dot8(__m256i sum, const __m256i *w, const int8_t *x, int n)
{
#pragma GCC unroll 8
    for (int k = 0; k < n; k++)
        sum = _mm256_dpbusd_epi32(sum, w[k], _mm256_set1_epi32(load_int(x + 4 * k)));
    return sum;
}

X8_INLINE __m512i dot16(__m512i sum, const __m512i *w, const int8_t *x, int n)
{
#pragma GCC unroll 8
    for (int k = 0; k < n; k++)
        sum = _mm512_dpbusd_epi32(sum, w[k], _mm512_set1_epi32(load_int(x + 4 * k)));
    return sum;
}

/* ---- few tokens, eight rows ---- */

X8_INLINE void block32_few(enum format f, const struct x8_rows *r, const struct panel *p, int32_t b,
                           const int tokens, __m256 *acc)
{
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

/* Scale of a group of 32 (Q4_K, Q5_K) or of half of one (Q6_K) as int32. */
X8_INLINE __m256i group_scale(enum format f, const struct x8_scales256 *h, int group, int half)
{
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

X8_INLINE void superblock_few(enum format f, const struct x8_rows *r, const struct panel *p,
                              int32_t s, const int tokens, size_t block_bytes, __m256 *acc)
{
    const int groups = f == FORMAT_Q6_K ? 4 : 2;
    const int8_t *x = p->x + (size_t)s * (size_t)tokens * 256;
    const int32_t *bias = (const int32_t *)p->sums + (size_t)s * (size_t)tokens * 16; /* Q6_K */
    struct x8_scales256 h;
    x8_scales256(f, r, &h);
    __m256i high[2][4], sum[PANEL_FEW];
    x8_high256(f, r, 0, high[0]);
    x8_high256(f, r, 1, high[1]);
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++)
        sum[t] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int quarter = 0; quarter < 8 / groups; quarter++) {
        __m256i part[2][PANEL_FEW];
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i w[4][4];
            x8_levels256(f, r, quarter, half, high[half], w);
#pragma GCC unroll 4
            for (int g = 0; g < groups; g++) {
                int group = groups * quarter + g;
                __m256i scale = group_scale(f, &h, group, half);
                x8_prefetch(r, 8 * block_bytes, (size_t)(groups * (2 * quarter + half) + g), 16);
#pragma GCC unroll 4
                for (int t = 0; t < tokens; t++) {
                    const int8_t *xg = x + 32 * (group * tokens + t) + 16 * half;
                    __m256i d;
                    if (f == FORMAT_Q6_K) {
                        d = dot8(_mm256_set1_epi32(bias[16 * t + 2 * group + half]), w[g], xg, 4);
                    } else if (half == 0) {
                        part[g][t] = dot8(_mm256_setzero_si256(), w[g], xg, 4);
                        continue;
                    } else {
                        d = dot8(part[g][t], w[g], xg, 4);
                    }
                    sum[t] = _mm256_add_epi32(sum[t], _mm256_mullo_epi32(d, scale));
                }
            }
        }
    }
    const char *sums = (const char *)p->sums + 16 * (size_t)s * (size_t)tokens;
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
        __m256 v = _mm256_mul_ps(h.d, _mm256_cvtepi32_ps(sum[t]));
        if (f != FORMAT_Q6_K) {
            __m256i min = _mm256_setzero_si256();
            for (int i = 0; i < 4; i++)
                min = _mm256_dpwssd_epi32(min, min_factors(&h, i),
                                          _mm256_set1_epi32(load_int(sums + 16 * t + 4 * i)));
            v = _mm256_sub_ps(v, _mm256_mul_ps(h.m, _mm256_cvtepi32_ps(min)));
        }
        acc[t] = _mm256_add_ps(acc[t], _mm256_mul_ps(_mm256_set1_ps(p->scale[s * tokens + t]), v));
    }
}

X8_INLINE void rows_few(enum format f, const struct panel_call *c, size_t block_bytes, bool is32,
                        const int tokens)
{
    const uint8_t *w = (const uint8_t *)c->m->w + c->at;
    size_t stride = c->m->y_stride;
    for (int32_t row = c->row_begin; row < c->row_end; row += 8) {
        int32_t n = c->row_end - row < 8 ? c->row_end - row : 8;
        float *y = c->m->y + (size_t)c->token * stride + (size_t)row;
        struct x8_rows r;
        x8_start(&r, w, c->m->row_bytes, c->p->cols == c->m->cols, row, n, c->row_end);
        __m256 acc[PANEL_FEW];
        for (int t = 0; t < tokens; t++)
            acc[t] = c->first || t >= c->p->valid ? _mm256_setzero_ps()
                                                  : x8_read(y + (size_t)t * stride, n);
        if (is32) {
            for (int32_t b = 0; b < c->p->cols / 32; b++, x8_advance(&r, block_bytes)) {
                x8_prefetch(&r, 8 * block_bytes, 0, 1);
                block32_few(f, &r, c->p, b, tokens, acc);
            }
        } else {
            for (int32_t s = 0; s < c->p->cols / 256; s++, x8_advance(&r, block_bytes))
                superblock_few(f, &r, c->p, s, tokens, block_bytes, acc);
        }
        for (int t = 0; t < tokens; t++)
            if (t < c->p->valid)
                x8_write(y + (size_t)t * stride, acc[t], n);
    }
}

/* ---- several tokens, sixteen rows ---- */

struct x16_rows {
    struct x8_rows half[2];
};

struct work {
    __m512 acc[PANEL_TOKENS];
    __m512i sum[PANEL_TOKENS];
    __m512i w[8][8]; /* levels of a superblock's groups of 32 */
};

_Static_assert(PANEL_BYTES % 64 == 0, "work is aligned");
_Static_assert(PANEL_BYTES + sizeof(struct work) <= MATMUL_SCRATCH_BYTES, "scratch is enough");

X8_INLINE __m512i join(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

X8_INLINE __m512 join_ps(__m256 low, __m256 high)
{
    return _mm512_castsi512_ps(join(_mm256_castps_si256(low), _mm256_castps_si256(high)));
}

X8_INLINE void block32_many(enum format f, const struct x16_rows *r, const struct panel *p,
                            int32_t b, int32_t tokens, __m512 *acc)
{
    struct x8_block32 lo, hi;
    unpack32(f, &r->half[0], &lo);
    unpack32(f, &r->half[1], &hi);
    __m512i w[8];
    for (int k = 0; k < 8; k++)
        w[k] = join(lo.w[k], hi.w[k]);
    __m512 d = join_ps(lo.d, hi.d), m = d;
    if (f == FORMAT_Q5_1)
        m = join_ps(lo.m, hi.m);
    const int8_t *x = p->x + (size_t)b * (size_t)tokens * 32;
    const float *dx = p->scale + (size_t)b * (size_t)tokens;
    const char *sums = (const char *)p->sums + (size_t)b * (size_t)tokens * 4;
    for (int32_t t = 0; t < tokens; t++) {
        __m512i start = _mm512_setzero_si512();
        if (sums_of(f) == PANEL_BIAS)
            start = _mm512_set1_epi32(load_int(sums + 4 * (size_t)t));
        __m512i dot = dot16(start, w, x + 32 * (size_t)t, 8);
        __m512 v = _mm512_mul_ps(d, _mm512_cvtepi32_ps(dot));
        if (f == FORMAT_Q5_1)
            v = _mm512_add_ps(
                v, _mm512_mul_ps(m, _mm512_set1_ps(((const float *)(const void *)sums)[t])));
        acc[t] = _mm512_add_ps(acc[t], _mm512_mul_ps(_mm512_set1_ps(dx[t]), v));
    }
}

X8_INLINE void superblock_many(enum format f, const struct x16_rows *r, const struct panel *p,
                               int32_t s, int32_t tokens, struct work *work)
{
    const int groups = f == FORMAT_Q6_K ? 4 : 2;
    struct x8_scales256 h[2];
    for (int side = 0; side < 2; side++) {
        const struct x8_rows *rs = &r->half[side];
        x8_scales256(f, rs, &h[side]);
        __m256i high[2][4];
        x8_high256(f, rs, 0, high[0]);
        x8_high256(f, rs, 1, high[1]);
#pragma GCC unroll 4
        for (int quarter = 0; quarter < 8 / groups; quarter++)
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                __m256i w[4][4];
                x8_levels256(f, rs, quarter, half, high[half], w);
                for (int g = 0; g < groups; g++)
                    for (int k = 0; k < 4; k++)
                        memcpy((char *)&work->w[groups * quarter + g][4 * half + k] + 32 * side,
                               &w[g][k], 32);
            }
    }
    const int8_t *x = p->x + (size_t)s * (size_t)tokens * 256;
    const int32_t *bias = (const int32_t *)p->sums + (size_t)s * (size_t)tokens * 16; /* Q6_K */
    size_t group_bytes = (size_t)tokens * 32;
#pragma GCC unroll 4
    for (int g = 0; g < 8; g += 2) { /* two groups at a time: half the traffic of sums */
        __m512i w[2][8], scale[2][2];
        memcpy(w, work->w[g], sizeof w);
        for (int i = 0; i < 2; i++)
            for (int half = 0; half < (f == FORMAT_Q6_K ? 2 : 1); half++)
                scale[i][half] =
                    join(group_scale(f, &h[0], g + i, half), group_scale(f, &h[1], g + i, half));
        const int8_t *x0 = x + (size_t)g * group_bytes, *x1 = x0 + group_bytes;
        for (int32_t t = 0; t < tokens; t++) {
            __m512i sum = g == 0 ? _mm512_setzero_si512() : work->sum[t];
            const int8_t *a = x0 + 32 * (size_t)t, *b = x1 + 32 * (size_t)t;
            if (f == FORMAT_Q6_K) {
                const int32_t *bt = bias + 16 * t + 2 * g;
                __m512i d0 = dot16(_mm512_set1_epi32(bt[0]), w[0], a, 4);
                __m512i d1 = dot16(_mm512_set1_epi32(bt[1]), w[0] + 4, a + 16, 4);
                __m512i d2 = dot16(_mm512_set1_epi32(bt[2]), w[1], b, 4);
                __m512i d3 = dot16(_mm512_set1_epi32(bt[3]), w[1] + 4, b + 16, 4);
                d0 = _mm512_add_epi32(_mm512_mullo_epi32(d0, scale[0][0]),
                                      _mm512_mullo_epi32(d1, scale[0][1]));
                d2 = _mm512_add_epi32(_mm512_mullo_epi32(d2, scale[1][0]),
                                      _mm512_mullo_epi32(d3, scale[1][1]));
                sum = _mm512_add_epi32(sum, _mm512_add_epi32(d0, d2));
            } else {
                __m512i d0 = dot16(_mm512_setzero_si512(), w[0], a, 8);
                __m512i d1 = dot16(_mm512_setzero_si512(), w[1], b, 8);
                sum = _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_mullo_epi32(d0, scale[0][0]),
                                                             _mm512_mullo_epi32(d1, scale[1][0])));
            }
            work->sum[t] = sum;
        }
    }
    __m512 d = join_ps(h[0].d, h[1].d), m = d;
    __m512i factors[4];
    if (f != FORMAT_Q6_K) {
        m = join_ps(h[0].m, h[1].m);
        for (int i = 0; i < 4; i++)
            factors[i] = join(min_factors(&h[0], i), min_factors(&h[1], i));
    }
    const char *sums = (const char *)p->sums + (size_t)s * (size_t)tokens * 16;
    const float *dx = p->scale + (size_t)s * (size_t)tokens;
    for (int32_t t = 0; t < tokens; t++) {
        __m512 v = _mm512_mul_ps(d, _mm512_cvtepi32_ps(work->sum[t]));
        if (f != FORMAT_Q6_K) {
            __m512i min = _mm512_setzero_si512();
            for (int i = 0; i < 4; i++)
                min = _mm512_dpwssd_epi32(
                    min, factors[i], _mm512_set1_epi32(load_int(sums + 16 * (size_t)t + 4 * i)));
            v = _mm512_sub_ps(v, _mm512_mul_ps(m, _mm512_cvtepi32_ps(min)));
        }
        work->acc[t] = _mm512_add_ps(work->acc[t], _mm512_mul_ps(_mm512_set1_ps(dx[t]), v));
    }
}

X8_INLINE void rows_many(enum format f, const struct panel_call *c, size_t block_bytes, bool is32)
{
    struct work *work = c->work;
    const uint8_t *w = (const uint8_t *)c->m->w + c->at;
    size_t stride = c->m->y_stride;
    int32_t tokens = c->p->tokens;
    for (int32_t row = c->row_begin; row < c->row_end; row += 16) {
        int32_t n = c->row_end - row < 16 ? c->row_end - row : 16, n0 = n < 8 ? n : 8;
        float *y = c->m->y + (size_t)c->token * stride + (size_t)row;
        struct x16_rows r;
        bool whole = c->p->cols == c->m->cols;
        x8_start(&r.half[0], w, c->m->row_bytes, whole, row, n0, c->row_end);
        /* Past the last row the second half repeats the first; what it computes is not kept. */
        x8_start(&r.half[1], w, c->m->row_bytes, whole, n > 8 ? row + 8 : row, n > 8 ? n - 8 : n0,
                 c->row_end);
        __mmask16 keep = (__mmask16)((1u << n) - 1);
        for (int32_t t = 0; t < tokens; t++)
            work->acc[t] = c->first ? _mm512_setzero_ps()
                                    : _mm512_maskz_loadu_ps(keep, y + (size_t)t * stride);
        int32_t blocks = c->p->cols / (is32 ? 32 : 256);
        for (int32_t b = 0; b < blocks; b++) {
            x8_prefetch(&r.half[1], 8 * block_bytes, 0, 1);
            if (is32)
                block32_many(f, &r, c->p, b, tokens, work->acc);
            else
                superblock_many(f, &r, c->p, b, tokens, work);
            x8_advance(&r.half[0], block_bytes);
            x8_advance(&r.half[1], block_bytes);
        }
        for (int32_t t = 0; t < tokens; t++)
            _mm512_mask_storeu_ps(y + (size_t)t * stride, keep, work->acc[t]);
    }
}

/* ---- calls ---- */

#define WALK(name, f, bytes, is32)                                                                 \
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

WALK(q4_0, FORMAT_Q4_0, 18, true)
WALK(q5_0, FORMAT_Q5_0, 22, true)
WALK(q5_1, FORMAT_Q5_1, 24, true)
WALK(q8_0, FORMAT_Q8_0, 34, true)
WALK(mxfp4, FORMAT_MXFP4, 17, true)
WALK(q4_k, FORMAT_Q4_K, 144, false)
WALK(q5_k, FORMAT_Q5_K, 176, false)
WALK(q6_k, FORMAT_Q6_K, 210, false)

static panel_rows *const walks[FORMAT_LIMIT] = {
    [FORMAT_Q4_0] = walk_q4_0, [FORMAT_Q5_0] = walk_q5_0,   [FORMAT_Q5_1] = walk_q5_1,
    [FORMAT_Q8_0] = walk_q8_0, [FORMAT_MXFP4] = walk_mxfp4, [FORMAT_Q4_K] = walk_q4_k,
    [FORMAT_Q5_K] = walk_q5_k, [FORMAT_Q6_K] = walk_q6_k,
};

enum { FEW_TOKENS = 7 }; /* measured, docs/kernels.md */

void matmul_avx512(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch)
{
    const struct format_info *info = format_info((uint32_t)m->format);
    assert(info != NULL && info->runs && m->cols % info->block == 0);
    assert(row_begin >= 0 && row_end <= m->rows);
    if (walks[m->format] == NULL)
        matmul_avx2(m, row_begin, row_end, scratch);
    else
        panel_walk(m, row_begin, row_end, scratch, walks[m->format], sums_of(m->format),
                   offset_of(m->format), FEW_TOKENS);
}
