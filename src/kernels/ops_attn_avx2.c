/* Attention over one tile of 64 positions, AVX2 + FMA + F16C version. Knows no sequence, no
 * page, no mask but a range per query. Orders as in ops.h: which queries stand together, and how
 * many, chooses only which registers hold them. What lies at positions no query sees is never
 * added, so it may be anything. Pure. */
#include "ops.h"

#if defined(__x86_64__)

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops_avx2.h"

#define COLS  64 /* values of a row that are unpacked at a time */
#define GROUP 8  /* positions whose keys are unpacked at a time */

#define INLINE OPS_AVX2 __attribute__((always_inline)) static inline

static inline int32_t up8(int32_t n)
{
    return (n + 7) & ~7;
}

/* Values [c0, c1) of a row as f32, zeros up to a multiple of 8; c0 is a multiple of 64. */
OPS_AVX2 static void row_unpack(enum kv_type t, const uint8_t *row, int32_t c0, int32_t c1,
                                float *out)
{
    const int32_t n = c1 - c0;
    switch (t) {
    case KV_F32:
        row += (size_t)c0 * 4;
        for (int32_t i = 0; i < n; i += 8) {
            const float *p = (const float *)(const void *)(row + (size_t)i * 4);
            _mm256_storeu_ps(out + i, n - i >= 8 ? _mm256_loadu_ps(p)
                                                 : _mm256_maskload_ps(p, ops_mask(n - i)));
        }
        break;
    case KV_F16:
        row += (size_t)c0 * 2;
        for (int32_t i = 0; i < n; i += 8) {
            __m128i h = _mm_setzero_si128();
            if (n - i >= 8)
                h = _mm_loadu_si128((const __m128i *)(const void *)(row + (size_t)i * 2));
            else
                memcpy(&h, row + (size_t)i * 2, (size_t)(n - i) * 2);
            _mm256_storeu_ps(out + i, _mm256_cvtph_ps(h));
        }
        break;
    case KV_Q8_0:
        row += (size_t)c0 / 32 * 34;
        for (int32_t i = 0; i < n; i += 32, row += 34) {
            uint16_t h;
            memcpy(&h, row, 2);
            const __m256 d = _mm256_set1_ps(_cvtsh_ss(h));
            for (int32_t j = i; j < i + 32 && j < n; j += 8) {
                __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(row + 2 + (j - i)));
                __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
                _mm256_storeu_ps(out + j,
                                 _mm256_mul_ps(d, v)); /* a row is stored in whole blocks */
            }
        }
        break;
    case KV_Q4_0:
        row += (size_t)c0 / 32 * 18;
        for (int32_t i = 0; i < n; i += 32, row += 18) {
            uint16_t h;
            memcpy(&h, row, 2);
            const __m256 d = _mm256_set1_ps(_cvtsh_ss(h));
            for (int32_t j = 0; j < 32 && i + j < n; j += 8) {
                __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(row + 2 + j % 16));
                q = _mm_and_si128(j < 16 ? q : _mm_srli_epi16(q, 4), _mm_set1_epi8(15));
                q = _mm_sub_epi8(q, _mm_set1_epi8(8));
                __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
                _mm256_storeu_ps(out + i + j, _mm256_mul_ps(d, v));
            }
        }
        break;
    }
}

/* Four sums in the tree of ops_sum8. */
INLINE __m128 sums4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

INLINE __m256 query_part(const float *q, int32_t n)
{
    return n >= 8 ? _mm256_loadu_ps(q) : _mm256_maskload_ps(q, ops_mask(n));
}

/* Scores of two queries at four positions. */
OPS_AVX2 static void scores_2x4(const float *qa, const float *qb, const float *k, size_t stride,
                                int32_t dk, float *sa, float *sb)
{
    __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    for (int32_t i = 0; i < dk; i += 8) {
        const __m256 a = query_part(qa + i, dk - i), b = query_part(qb + i, dk - i);
        __m256 r = _mm256_loadu_ps(k + i);
        a0 = _mm256_fmadd_ps(a, r, a0);
        b0 = _mm256_fmadd_ps(b, r, b0);
        r = _mm256_loadu_ps(k + stride + i);
        a1 = _mm256_fmadd_ps(a, r, a1);
        b1 = _mm256_fmadd_ps(b, r, b1);
        r = _mm256_loadu_ps(k + 2 * stride + i);
        a2 = _mm256_fmadd_ps(a, r, a2);
        b2 = _mm256_fmadd_ps(b, r, b2);
        r = _mm256_loadu_ps(k + 3 * stride + i);
        a3 = _mm256_fmadd_ps(a, r, a3);
        b3 = _mm256_fmadd_ps(b, r, b3);
    }
    _mm_storeu_ps(sa, sums4(a0, a1, a2, a3));
    _mm_storeu_ps(sb, sums4(b0, b1, b2, b3));
}

/* Scores of one query at eight positions. */
OPS_AVX2 static void scores_1x8(const float *q, const float *k, size_t stride, int32_t dk, float *s)
{
    __m256 a[8];
    for (int32_t j = 0; j < 8; j++)
        a[j] = _mm256_setzero_ps();
    for (int32_t i = 0; i < dk; i += 8) {
        const __m256 v = query_part(q + i, dk - i);
#pragma GCC unroll 8
        for (int32_t j = 0; j < 8; j++)
            a[j] = _mm256_fmadd_ps(v, _mm256_loadu_ps(k + (size_t)j * stride + i), a[j]);
    }
    _mm_storeu_ps(s, sums4(a[0], a[1], a[2], a[3]));
    _mm_storeu_ps(s + 4, sums4(a[4], a[5], a[6], a[7]));
}

/* Does query i see any of the positions [j0, j0 + GROUP)? */
static inline bool sees(const struct attn_tile *a, int32_t i, int32_t j0)
{
    return a->lo[i] < j0 + GROUP && a->hi[i] > j0 && a->lo[i] < a->hi[i];
}

OPS_AVX2 static void scores_make(const struct attn_tile *a, int32_t first, int32_t last,
                                 float *weights, float *rows)
{
    const size_t stride = (size_t)up8(a->dk);
    for (int32_t j0 = first & ~(GROUP - 1); j0 < last; j0 += GROUP) {
        for (int32_t j = j0; j < j0 + GROUP; j++) {
            float *row = rows + (size_t)(j - j0) * stride;
            if (j >= first && j < last)
                row_unpack(a->type, (const uint8_t *)a->k + (size_t)j * a->k_stride, 0, a->dk, row);
            else
                memset(row, 0, stride * sizeof *row);
        }
        int32_t held = -1; /* a query that waits for a partner */
        for (int32_t i = 0; i < a->nq; i++) {
            if (!sees(a, i, j0))
                continue;
            if (held < 0) {
                held = i;
                continue;
            }
            float *sa = weights + (size_t)held * ATTN_TILE + j0,
                  *sb = weights + (size_t)i * ATTN_TILE + j0;
            scores_2x4(a->q[held], a->q[i], rows, stride, a->dk, sa, sb);
            scores_2x4(a->q[held], a->q[i], rows + 4 * stride, stride, a->dk, sa + 4, sb + 4);
            held = -1;
        }
        if (held >= 0)
            scores_1x8(a->q[held], rows, stride, a->dk, weights + (size_t)held * ATTN_TILE + j0);
    }
}

INLINE __m256 visible(int32_t j0, int32_t lo, int32_t hi)
{
    const __m256i j =
        _mm256_add_epi32(_mm256_set1_epi32(j0), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(lo), j);
    __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), j);
    return _mm256_castsi256_ps(_mm256_andnot_si256(low, high));
}

/* Scores to weights: running maximum and sum of one query. Returns the factor of what was summed
 * so far. */
OPS_AVX2 static float weights_make(float *s, int32_t lo, int32_t hi, float softcap, float *m,
                                   float *l)
{
    const __m256 none = _mm256_set1_ps(-INFINITY), cap = _mm256_set1_ps(softcap);
    const int32_t g0 = lo & ~(GROUP - 1);
    __m256 max8 = none;
    for (int32_t j0 = g0; j0 < hi; j0 += GROUP) {
        __m256 v = _mm256_loadu_ps(s + j0);
        if (softcap != 0)
            v = _mm256_mul_ps(cap, ops_tanh8(_mm256_div_ps(v, cap)));
        v = _mm256_blendv_ps(none, v, visible(j0, lo, hi));
        _mm256_storeu_ps(s + j0, v);
        max8 = _mm256_max_ps(v, max8);
    }
    const float new = ops_max8(max8), max = new > *m ? new : *m;
    const __m256 max_all = _mm256_set1_ps(max);
    __m256 sum = _mm256_setzero_ps();
    for (int32_t j0 = g0; j0 < hi; j0 += GROUP) {
        __m256 v =
            ops_exp8(_mm256_sub_ps(_mm256_loadu_ps(s + j0), max_all)); /* -infinity gives 0 */
        _mm256_storeu_ps(s + j0, v);
        sum = _mm256_add_ps(sum, v);
    }
    const float factor = ops_exp1(*m - max);
    *l = *l * factor + ops_sum8(sum);
    *m = max;
    return factor;
}

INLINE void part_store(float *y, int32_t n, __m256 v)
{
    if (n >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, ops_mask(n), v);
}

OPS_AVX2 static void acc_scale(float *acc, float factor, int32_t n)
{
    if (factor == 1.0f)
        return;
    const __m256 f = _mm256_set1_ps(factor);
    for (int32_t i = 0; i < n; i += 8)
        part_store(acc + i, n - i, _mm256_mul_ps(query_part(acc + i, n - i), f));
}

/* acc += p[j] * v[j] for j in [j0, j1), nv whole vectors of nq queries held in registers. */
INLINE void values_whole(float *const *acc, const float *const *p, int32_t nq, int32_t nv,
                         const float *v, int32_t j0, int32_t j1)
{
    __m256 r[8];
#pragma GCC unroll 2
    for (int32_t q = 0; q < nq; q++)
#pragma GCC unroll 8
        for (int32_t c = 0; c < nv; c++)
            r[q * nv + c] = _mm256_loadu_ps(acc[q] + 8 * c);
    for (int32_t j = j0; j < j1; j++) {
        const float *row = v + (size_t)j * COLS;
#pragma GCC unroll 2
        for (int32_t q = 0; q < nq; q++) {
            const __m256 w = _mm256_broadcast_ss(p[q] + j);
#pragma GCC unroll 8
            for (int32_t c = 0; c < nv; c++)
                r[q * nv + c] = _mm256_fmadd_ps(w, _mm256_loadu_ps(row + 8 * c), r[q * nv + c]);
        }
    }
#pragma GCC unroll 2
    for (int32_t q = 0; q < nq; q++)
#pragma GCC unroll 8
        for (int32_t c = 0; c < nv; c++)
            _mm256_storeu_ps(acc[q] + 8 * c, r[q * nv + c]);
}

OPS_AVX2 static void values_1x8(float *acc, const float *p, const float *v, int32_t j0, int32_t j1)
{
    values_whole(&acc, &p, 1, 8, v, j0, j1);
}

OPS_AVX2 static void values_2x4(float *const *acc, const float *const *p, const float *v,
                                int32_t j0, int32_t j1)
{
    values_whole(acc, p, 2, 4, v, j0, j1);
}

/* n columns of one query, any n up to COLS. */
OPS_AVX2 static void values_one(float *acc, const float *p, const float *v, int32_t n, int32_t j0,
                                int32_t j1)
{
    if (n == COLS) {
        values_1x8(acc, p, v, j0, j1);
        return;
    }
    for (int32_t c = 0; c < n; c += 8) {
        __m256 r = query_part(acc + c, n - c);
        for (int32_t j = j0; j < j1; j++)
            r = _mm256_fmadd_ps(_mm256_broadcast_ss(p + j),
                                _mm256_loadu_ps(v + (size_t)j * COLS + c), r);
        part_store(acc + c, n - c, r);
    }
}

/* n columns of two queries: together where both see, one by one before and behind. */
OPS_AVX2 static void values_pair(const struct attn_tile *a, int32_t x, int32_t y,
                                 const float *weights, const float *v, int32_t c0, int32_t n)
{
    float *acc[2] = {a->acc[x] + c0, a->acc[y] + c0};
    const float *p[2] = {weights + (size_t)x * ATTN_TILE, weights + (size_t)y * ATTN_TILE};
    const int32_t lo[2] = {a->lo[x], a->lo[y]}, hi[2] = {a->hi[x], a->hi[y]};
    const int32_t begin = lo[0] > lo[1] ? lo[0] : lo[1], end = hi[0] < hi[1] ? hi[0] : hi[1];
    if (n % 32 != 0 || begin >= end) {
        values_one(acc[0], p[0], v, n, lo[0], hi[0]);
        values_one(acc[1], p[1], v, n, lo[1], hi[1]);
        return;
    }
    for (int32_t q = 0; q < 2; q++)
        if (lo[q] < begin)
            values_one(acc[q], p[q], v, n, lo[q], begin);
    for (int32_t c = 0; c < n; c += 32) {
        float *part[2] = {acc[0] + c, acc[1] + c};
        values_2x4(part, p, v + c, begin, end);
    }
    for (int32_t q = 0; q < 2; q++)
        if (hi[q] > end)
            values_one(acc[q], p[q], v, n, end, hi[q]);
}

OPS_AVX2 static void values_add(const struct attn_tile *a, int32_t first, int32_t last,
                                const float *weights, float *rows)
{
    for (int32_t c0 = 0; c0 < a->dv; c0 += COLS) {
        const int32_t c1 = c0 + COLS < a->dv ? c0 + COLS : a->dv;
        for (int32_t j = first; j < last; j++)
            row_unpack(a->type, (const uint8_t *)a->v + (size_t)j * a->v_stride, c0, c1,
                       rows + (size_t)j * COLS);
        int32_t held = -1;
        for (int32_t i = 0; i < a->nq; i++) {
            if (a->lo[i] >= a->hi[i])
                continue;
            if (held < 0) {
                held = i;
                continue;
            }
            values_pair(a, held, i, weights, rows, c0, c1 - c0);
            held = -1;
        }
        if (held >= 0)
            values_one(a->acc[held] + c0, weights + (size_t)held * ATTN_TILE, rows, c1 - c0,
                       a->lo[held], a->hi[held]);
    }
}

OPS_AVX2 void ops_attn_tile_avx2(const struct attn_tile *a)
{
    float *weights = a->scratch;
    float *rows = weights + (size_t)a->nq * ATTN_TILE;
    int32_t first = ATTN_TILE, last = 0;
    for (int32_t i = 0; i < a->nq; i++) {
        assert(a->lo[i] >= 0 && a->hi[i] <= ATTN_TILE);
        if (a->lo[i] >= a->hi[i])
            continue;
        first = a->lo[i] < first ? a->lo[i] : first;
        last = a->hi[i] > last ? a->hi[i] : last;
    }
    if (first >= last)
        return;
    scores_make(a, first, last, weights, rows);
    for (int32_t i = 0; i < a->nq; i++) {
        if (a->lo[i] >= a->hi[i])
            continue;
        float f = weights_make(weights + (size_t)i * ATTN_TILE, a->lo[i], a->hi[i], a->softcap,
                               &a->m[i], &a->l[i]);
        acc_scale(a->acc[i], f, a->dv);
    }
    values_add(a, first, last, weights, rows);
}

#else
typedef int ops_attn_avx2_is_empty_here; /* a translation unit may not be empty */
#endif
