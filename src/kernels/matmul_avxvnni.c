/* Products of the integer formats for processors with AVX-VNNI but without AVX-512: eight rows in
 * 256-bit vectors (matmul_vnni8.h), one token or a panel of them (matmul_panel.h). The order of every
 * row and token is that of matmul_scalar.c, bit for bit. Knows nothing of threads or of where weights
 * come from.
 *
 * KERNELS_VNNI_EVEX builds the same code with the instruction's AVX-512 form, so that a processor
 * which has only that one can test it (tests/unit/kernels). */
#include "matmul_tiers.h"

#include <assert.h>
#include <immintrin.h>

#if defined(KERNELS_VNNI_EVEX)
#define VNNI_BYTES     _mm256_dpbusd_epi32
#define VNNI_WORDS     _mm256_dpwssd_epi32
#define matmul_avxvnni matmul_avxvnni_evex
#else
#define VNNI_BYTES _mm256_dpbusd_avx_epi32
#define VNNI_WORDS _mm256_dpwssd_avx_epi32
#endif
#include "matmul_vnni8.h"

void matmul_avxvnni(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch);

struct work {
    __m256 acc[PANEL_TOKENS];
    __m256i sum[PANEL_TOKENS];
    __m256i w[8][8]; /* levels of a superblock's groups of 32 */
};

_Static_assert(PANEL_BYTES % 64 == 0, "work is aligned");
_Static_assert(PANEL_BYTES + sizeof(struct work) <= MATMUL_SCRATCH_BYTES, "scratch is enough");

X8_INLINE void block32_many(enum format f, const struct x8_rows *r, const struct panel *p,
                            int32_t b, int32_t tokens, __m256 *acc)
{
    struct x8_block32 w;
    unpack32(f, r, &w);
    const int8_t *x = p->x + (size_t)b * (size_t)tokens * 32;
    const float *dx = p->scale + (size_t)b * (size_t)tokens;
    const char *sums = (const char *)p->sums + (size_t)b * (size_t)tokens * 4;
    for (int32_t t = 0; t < tokens; t++) {
        __m256i start = _mm256_setzero_si256();
        if (sums_of(f) == PANEL_BIAS)
            start = _mm256_set1_epi32(load_int(sums + 4 * (size_t)t));
        __m256i dot = dot8(start, w.w, x + 32 * (size_t)t, 8);
        __m256 v = _mm256_mul_ps(w.d, _mm256_cvtepi32_ps(dot));
        if (f == FORMAT_Q5_1)
            v = _mm256_add_ps(
                v, _mm256_mul_ps(w.m, _mm256_set1_ps(((const float *)(const void *)sums)[t])));
        acc[t] = _mm256_add_ps(acc[t], _mm256_mul_ps(_mm256_set1_ps(dx[t]), v));
    }
}

/* All levels of a superblock, as unsigned bytes, by groups of 32. */
X8_INLINE void superblock_levels(enum format f, const struct x8_rows *r, size_t block_bytes,
                                 struct work *work)
{
    const int groups = f == FORMAT_Q6_K ? 4 : 2;
    if (f == FORMAT_IQ4_XS) {
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            x8_prefetch(r, 8 * block_bytes, (size_t)g, 8);
            x8_group_iq4(r, (size_t)(8 + 16 * g), work->w[g]);
            for (int k = 0; k < 8; k++)
                work->w[g][k] = _mm256_xor_si256(work->w[g][k], _mm256_set1_epi8((char)0x80));
        }
        return;
    }
    __m256i high[2][4];
    x8_high256(f, r, 0, high[0]);
    x8_high256(f, r, 1, high[1]);
#pragma GCC unroll 4
    for (int quarter = 0; quarter < 8 / groups; quarter++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m256i w[4][4];
            x8_prefetch(r, 8 * block_bytes, (size_t)(2 * quarter + half), (size_t)(16 / groups));
            x8_levels256(f, r, quarter, half, high[half], w);
            for (int g = 0; g < groups; g++)
                memcpy(&work->w[groups * quarter + g][4 * half], w[g], sizeof w[g]);
        }
}

X8_INLINE void superblock_many(enum format f, const struct x8_rows *r, const struct panel *p,
                               int32_t s, int32_t tokens, size_t block_bytes, struct work *work)
{
    struct x8_scales256 h;
    x8_scales256(f, r, &h);
    superblock_levels(f, r, block_bytes, work);
    const int8_t *x = p->x + (size_t)s * (size_t)tokens * 256;
    const int32_t *bias = /* Q6_K, IQ4_XS */
        (const int32_t *)p->sums + (size_t)s * (size_t)tokens * (f == FORMAT_Q6_K ? 16 : 8);
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        __m256i w[8], s0 = group_scale(f, &h, g, 0), s1 = group_scale(f, &h, g, 1);
        memcpy(w, work->w[g], sizeof w);
        const int8_t *xg = x + (size_t)g * (size_t)tokens * 32;
        for (int32_t t = 0; t < tokens; t++) {
            __m256i sum = g == 0 ? _mm256_setzero_si256() : work->sum[t], d;
            const int8_t *xt = xg + 32 * (size_t)t;
            if (f == FORMAT_Q6_K) {
                const int32_t *bt = bias + 16 * t + 2 * g;
                d = _mm256_mullo_epi32(dot8(_mm256_set1_epi32(bt[0]), w, xt, 4), s0);
                sum = _mm256_add_epi32(sum, d);
                d = _mm256_mullo_epi32(dot8(_mm256_set1_epi32(bt[1]), w + 4, xt + 16, 4), s1);
            } else {
                __m256i start = _mm256_setzero_si256();
                if (f == FORMAT_IQ4_XS)
                    start = _mm256_set1_epi32(bias[8 * t + g]);
                d = _mm256_mullo_epi32(dot8(start, w, xt, 8), s0);
            }
            work->sum[t] = _mm256_add_epi32(sum, d);
        }
    }
    const char *sums = (const char *)p->sums + (size_t)s * (size_t)tokens * 16;
    const float *dx = p->scale + (size_t)s * (size_t)tokens;
    for (int32_t t = 0; t < tokens; t++) {
        __m256 v = _mm256_mul_ps(h.d, _mm256_cvtepi32_ps(work->sum[t]));
        if (x8_has_min(f)) {
            __m256i min = _mm256_setzero_si256();
            for (int i = 0; i < 4; i++)
                min = VNNI_WORDS(min, min_factors(&h, i),
                                 _mm256_set1_epi32(load_int(sums + 16 * (size_t)t + 4 * i)));
            v = _mm256_sub_ps(v, _mm256_mul_ps(h.m, _mm256_cvtepi32_ps(min)));
        }
        work->acc[t] = _mm256_add_ps(work->acc[t], _mm256_mul_ps(_mm256_set1_ps(dx[t]), v));
    }
}

X8_INLINE void rows_many(enum format f, const struct panel_call *c, size_t block_bytes, bool is32)
{
    struct work *work = c->work;
    const uint8_t *w = (const uint8_t *)c->m->w + c->at;
    size_t stride = c->m->y_stride;
    int32_t tokens = c->p->tokens;
    struct x8_group g;
    for (int32_t row = c->row_begin; row < c->row_end; row += g.n) {
        g = x8_group(row, c->row_end, c->m->rows, c->m->row_bytes);
        float *y = c->m->y + (size_t)c->token * stride + (size_t)row;
        struct x8_rows r;
        x8_start(&r, w, c->m->row_bytes, c->p->cols == c->m->cols, &g, c->row_end);
        for (int32_t t = 0; t < tokens; t++)
            work->acc[t] = c->first ? _mm256_setzero_ps() : x8_read(y + (size_t)t * stride, &g);
        for (int32_t b = 0; b < c->p->cols / (is32 ? 32 : 256); b++, x8_advance(&r, block_bytes)) {
            if (is32) {
                x8_prefetch(&r, 8 * block_bytes, 0, 1);
                block32_many(f, &r, c->p, b, tokens, work->acc);
            } else {
                superblock_many(f, &r, c->p, b, tokens, block_bytes, work);
            }
        }
        for (int32_t t = 0; t < tokens; t++)
            x8_write(y + (size_t)t * stride, work->acc[t], &g);
    }
}

VNNI_WALKS

void matmul_avxvnni(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch)
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
