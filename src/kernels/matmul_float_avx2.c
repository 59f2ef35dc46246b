/* Products of F32, F16 and BF16 for AVX2 + FMA + F16C. Element k goes to lane k mod 16 by a
 * fused multiply-add, ascending; then the lanes are added in pairs 8, 4, 2, 1 apart, as in
 * matmul_scalar.c (which rounds the products too, so the tiers differ within the rounding bound;
 * one tier never differs from itself). A last group of fewer than 16 is filled up with zeros.
 * Tiles of a few rows and tokens only share loads; they do not touch any sum's order. */
#include "matmul_tiers.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Rows and tokens per register tile: many tokens, or one. */
enum { ROWS = 2, TOKENS = 3, ROWS_ONE = 4 };
/* Rows that stay in the second-level cache while the tokens pass. */
enum { ROW_BLOCK_BYTES = 192 << 10 };
/* Largest run of bytes fetched ahead into the first-level cache rather than the second. */
enum { NEAR_BYTES = 18 << 10 };

INLINE size_t element_bytes(enum format f)
{
    return f == FORMAT_F32 ? 4 : 2;
}

INLINE void load16(enum format f, const uint8_t *w, __m256 *low, __m256 *high)
{
    if (f == FORMAT_F32) {
        *low = _mm256_loadu_ps((const float *)(const void *)w);
        *high = _mm256_loadu_ps((const float *)(const void *)(w + 32));
        return;
    }
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)w);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(w + 16));
    if (f == FORMAT_F16) {
        *low = _mm256_cvtph_ps(a);
        *high = _mm256_cvtph_ps(b);
    } else {
        *low = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(a), 16));
        *high = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16));
    }
}

INLINE float lanes_sum(__m256 low, __m256 high)
{
    __m256 v = _mm256_add_ps(low, high);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* A tile of nr rows from row and nt tokens from token. */
INLINE void tile(enum format f, const struct matmul *m, int32_t row, int32_t token, const int nr,
                 const int nt)
{
    const uint8_t *w[ROWS_ONE];
    const float *x[TOKENS];
    __m256 low[ROWS_ONE][TOKENS], high[ROWS_ONE][TOKENS];
#pragma GCC unroll 4
    for (int i = 0; i < nr; i++) {
        w[i] = (const uint8_t *)m->w + (size_t)(row + i) * m->row_bytes;
#pragma GCC unroll 4
        for (int j = 0; j < nt; j++)
            low[i][j] = high[i][j] = _mm256_setzero_ps();
    }
#pragma GCC unroll 4
    for (int j = 0; j < nt; j++)
        x[j] = (const float *)((const char *)m->act + (size_t)(token + j) * m->act_stride);
    bool near = (size_t)nr * m->row_bytes <= NEAR_BYTES;
    int32_t k = 0;
    for (; k + 16 <= m->cols; k += 16) {
        __m256 a[ROWS_ONE], b[ROWS_ONE];
        if (nt ==
            1) { /* the rows after these, from end to end: few processors follow many streams */
            const char *ahead = (const char *)w[0] + (size_t)nr * m->row_bytes +
                                (size_t)k * (size_t)nr * element_bytes(f);
            size_t n = (size_t)nr * 16 * element_bytes(f);
            if (near) {
#pragma GCC unroll 4
                for (size_t i = 0; i < n; i += 64)
                    _mm_prefetch(ahead + i, _MM_HINT_T0);
            } else {
#pragma GCC unroll 4
                for (size_t i = 0; i < n; i += 64)
                    _mm_prefetch(ahead + i, _MM_HINT_T1);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < nr; i++)
            load16(f, w[i] + (size_t)k * element_bytes(f), &a[i], &b[i]);
#pragma GCC unroll 4
        for (int j = 0; j < nt; j++) {
            __m256 xa = _mm256_load_ps(x[j] + k), xb = _mm256_load_ps(x[j] + k + 8);
#pragma GCC unroll 4
            for (int i = 0; i < nr; i++) {
                low[i][j] = _mm256_fmadd_ps(a[i], xa, low[i][j]);
                high[i][j] = _mm256_fmadd_ps(b[i], xb, high[i][j]);
            }
        }
    }
    if (k < m->cols) {
#pragma GCC unroll 4
        for (int i = 0; i < nr; i++) {
            float rest[16] = {0};
            dequant_scalar(f, w[i] + (size_t)k * element_bytes(f), rest, m->cols - k);
            __m256 a = _mm256_loadu_ps(rest), b = _mm256_loadu_ps(rest + 8);
#pragma GCC unroll 4
            for (int j = 0; j < nt; j++) { /* the activations' own padding is zero */
                low[i][j] = _mm256_fmadd_ps(a, _mm256_load_ps(x[j] + k), low[i][j]);
                high[i][j] = _mm256_fmadd_ps(b, _mm256_load_ps(x[j] + k + 8), high[i][j]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < nr; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nt; j++)
            m->y[(size_t)(token + j) * m->y_stride + (size_t)(row + i)] =
                lanes_sum(low[i][j], high[i][j]);
}

INLINE void one_token(enum format f, const struct matmul *m, int32_t token, int32_t begin,
                      int32_t end)
{
    int32_t row = begin;
    for (; row + ROWS_ONE <= end; row += ROWS_ONE)
        tile(f, m, row, token, ROWS_ONE, 1);
    for (; row < end; row++)
        tile(f, m, row, token, 1, 1);
}

INLINE void rows(enum format f, const struct matmul *m, int32_t begin, int32_t end)
{
    if (m->tokens == 1) {
        one_token(f, m, 0, begin, end);
        return;
    }
    int32_t block = (int32_t)(ROW_BLOCK_BYTES / (m->row_bytes + 1)) / ROWS * ROWS;
    block = block < ROWS ? ROWS : block;
    for (int32_t from = begin; from < end; from += block) {
        int32_t to = end - from < block ? end : from + block, token = 0;
        for (; token + TOKENS <= m->tokens; token += TOKENS) {
            int32_t row = from;
            for (; row + ROWS <= to; row += ROWS)
                tile(f, m, row, token, ROWS, TOKENS);
            for (; row < to; row++)
                tile(f, m, row, token, 1, TOKENS);
        }
        for (; token < m->tokens; token++)
            one_token(f, m, token, from, to);
    }
}

void matmul_float_avx2(const struct matmul *m, int32_t row_begin, int32_t row_end)
{
    if (m->format == FORMAT_F32)
        rows(FORMAT_F32, m, row_begin, row_end);
    else if (m->format == FORMAT_F16)
        rows(FORMAT_F16, m, row_begin, row_end);
    else
        rows(FORMAT_BF16, m, row_begin, row_end);
}
