/* Products of the integer formats for AVX-512 with VNNI. Up to four tokens: eight rows in
 * 256-bit vectors (matmul_x8.h). More: sixteen rows in 512-bit ones, each block unpacked once
 * for the panel's tokens (matmul_panel.h). The order of every row and token is that of
 * matmul_scalar.c, bit for bit. Knows nothing of threads or of where weights come from.
 * Offsets and ranges: matmul_vnni8.h. */
#include "matmul_tiers.h"

#include <assert.h>
#include <immintrin.h>

#define VNNI_BYTES _mm256_dpbusd_epi32
#define VNNI_WORDS _mm256_dpwssd_epi32
#include "matmul_vnni8.h"

X8_INLINE __m512i dot16(__m512i sum, const __m512i *w, const int8_t *x, int n)
{
#pragma GCC unroll 8
    for (int k = 0; k < n; k++)
        sum = _mm512_dpbusd_epi32(sum, w[k], _mm512_set1_epi32(load_int(x + 4 * k)));
    return sum;
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
        if (f == FORMAT_IQ4_XS) {
#pragma GCC unroll 8
            for (int g = 0; g < 8; g++) {
                __m256i w[8];
                x8_group_iq4(rs, (size_t)(8 + 16 * g), w);
                for (int k = 0; k < 8; k++) {
                    w[k] = _mm256_xor_si256(w[k], _mm256_set1_epi8((char)0x80));
                    memcpy((char *)&work->w[g][k] + 32 * side, &w[k], 32);
                }
            }
            continue;
        }
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
    const int32_t *bias = /* Q6_K, IQ4_XS */
        (const int32_t *)p->sums + (size_t)s * (size_t)tokens * (f == FORMAT_Q6_K ? 16 : 8);
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
                __m512i z0 = _mm512_setzero_si512(), z1 = z0;
                if (f == FORMAT_IQ4_XS) {
                    z0 = _mm512_set1_epi32(bias[8 * t + g]);
                    z1 = _mm512_set1_epi32(bias[8 * t + g + 1]);
                }
                __m512i d0 = dot16(z0, w[0], a, 8);
                __m512i d1 = dot16(z1, w[1], b, 8);
                sum = _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_mullo_epi32(d0, scale[0][0]),
                                                             _mm512_mullo_epi32(d1, scale[1][0])));
            }
            work->sum[t] = sum;
        }
    }
    __m512 d = join_ps(h[0].d, h[1].d), m = d;
    __m512i factors[4];
    if (x8_has_min(f)) {
        m = join_ps(h[0].m, h[1].m);
        for (int i = 0; i < 4; i++)
            factors[i] = join(min_factors(&h[0], i), min_factors(&h[1], i));
    }
    const char *sums = (const char *)p->sums + (size_t)s * (size_t)tokens * 16;
    const float *dx = p->scale + (size_t)s * (size_t)tokens;
    for (int32_t t = 0; t < tokens; t++) {
        __m512 v = _mm512_mul_ps(d, _mm512_cvtepi32_ps(work->sum[t]));
        if (x8_has_min(f)) {
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
    struct x8_group g[2];
    for (int32_t row = c->row_begin; row < c->row_end; row += g[0].n + g[1].n) {
        struct x16_rows r;
        bool whole = c->p->cols == c->m->cols;
        g[0] = x8_group(row, c->row_end, c->m->rows, c->m->row_bytes);
        g[1] = g[0]; /* where no row is left the second half repeats the first and keeps nothing */
        g[1].n = 0;
        if (row + g[0].n < c->row_end)
            g[1] = x8_group(row + g[0].n, c->row_end, c->m->rows, c->m->row_bytes);
        x8_start(&r.half[0], w, c->m->row_bytes, whole, &g[0], c->row_end);
        x8_start(&r.half[1], w, c->m->row_bytes, whole, &g[1], c->row_end);
        float *y = c->m->y + (size_t)c->token * stride + (size_t)row;
        for (int32_t t = 0; t < tokens; t++)
            work->acc[t] = c->first ? _mm512_setzero_ps()
                                    : join_ps(x8_read(y + (size_t)t * stride, &g[0]),
                                              x8_read(y + (size_t)t * stride + g[0].n, &g[1]));
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
        for (int32_t t = 0; t < tokens; t++) {
            float *at = y + (size_t)t * stride;
            x8_write(at, _mm512_castps512_ps256(work->acc[t]), &g[0]);
            x8_write(at + g[0].n, _mm512_extractf32x8_ps(work->acc[t], 1), &g[1]);
        }
    }
}

/* ---- calls ---- */

VNNI_WALKS

void matmul_avx512(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch)
{
    const struct format_info *info = format_info((uint32_t)m->format);
    assert(info != NULL && info->runs && m->cols % info->block == 0);
    assert(row_begin >= 0 && row_end <= m->rows);
    if (vnni_walks[m->format] == NULL)
        matmul_avx2(m, row_begin, row_end, scratch);
    else
        panel_walk(m, row_begin, row_end, scratch, vnni_walks[m->format], sums_of(m->format),
                   offset_of(m->format), VNNI_FEW_TOKENS);
}
