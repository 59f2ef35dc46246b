/* Attention over one tile of 64 positions, AVX2 + FMA + F16C version. Knows no sequence, no page,
 * no mask but a range per query. Pure; any thread.
 *
 * As in ops_attn_avx512.c, with vectors of two neighbouring values of four positions, and in the
 * same orders, so that both give the same bits: a score is the sum of a row's even values,
 * ascending, plus that of the odd ones; a running sum takes the weights in sixteen lanes (position
 * mod 16), added 8, 4, 2, 1 apart; values are added position by position. What lies at positions
 * no query sees is never added, so it may be anything. */
#include "ops.h"

#if defined(__x86_64__)

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops_avx2.h"

#define COLS         64   /* values of a row that are unpacked at a time */
#define HALF         32   /* positions whose keys are turned at a time */
#define BLOCK        6    /* queries that stand in registers together: 12 sums of 16 registers */
#define ROWS         16   /* rows that few queries take at a time */
#define FEW          4    /* up to so many queries rows go from memory into the sums */
#define STREAM_BYTES 4096 /* see stream_at */

#define INLINE OPS_AVX2 __attribute__((always_inline)) static inline

static inline int32_t up16(int32_t n)
{
    return (n + 15) & ~15;
}

INLINE __m256 part_load(const float *x, int32_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, ops_mask(n > 0 ? n : 0));
}

INLINE void part_store(float *y, int32_t n, __m256 v)
{
    if (n >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, ops_mask(n > 0 ? n : 0), v);
}

/* Values [c, c + 8) of a row as f32, zeros beyond the n that are there; c is a multiple of 8. t is
 * a constant at every call. */
INLINE __m256 row_part(enum kv_type t, const uint8_t *row, int32_t c, int32_t n)
{
    uint16_t d;
    switch (t) {
    case KV_F32:
        return part_load((const float *)(const void *)(row + (size_t)c * 4), n - c);
    case KV_F16: {
        __m128i h = _mm_setzero_si128();
        row += (size_t)c * 2;
        if (n - c >= 8)
            h = _mm_loadu_si128((const __m128i *)(const void *)row);
        else if (n > c)
            memcpy(&h, row, (size_t)(n - c) * 2);
        return _mm256_cvtph_ps(h);
    }
    case KV_Q8_0: {
        if (c >= n) /* a row is stored in whole blocks of 32 */
            break;
        const uint8_t *block = row + (size_t)c / 32 * 34;
        memcpy(&d, block, 2);
        __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(block + 2 + c % 32));
        return _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(d)),
                             _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
    }
    case KV_Q4_0: {
        if (c >= n)
            break;
        const uint8_t *block = row + (size_t)c / 32 * 18;
        memcpy(&d, block, 2);
        __m128i q = _mm_loadl_epi64((const __m128i *)(const void *)(block + 2 + c % 16));
        q = _mm_and_si128(c % 32 < 16 ? q : _mm_srli_epi16(q, 4), _mm_set1_epi8(15));
        q = _mm_sub_epi8(q, _mm_set1_epi8(8));
        return _mm256_mul_ps(_mm256_set1_ps(_cvtsh_ss(d)),
                             _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
    }
    }
    return _mm256_setzero_ps();
}

/* Values [c, c + 8) of four rows -> for each of four pairs, four rows. */
INLINE void keys_turn(enum kv_type t, const uint8_t *k, uint64_t stride, int32_t c, int32_t n,
                      __m256 out[4])
{
    __m256d r[4];
    OPS_UNROLL
    for (int i = 0; i < 4; i++)
        r[i] = _mm256_castps_pd(row_part(t, k + (uint64_t)i * stride, c, n));
    const __m256d a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]),
                  x = _mm256_unpacklo_pd(r[2], r[3]), y = _mm256_unpackhi_pd(r[2], r[3]);
    out[0] = _mm256_castpd_ps(_mm256_permute2f128_pd(a, x, 0x20));
    out[1] = _mm256_castpd_ps(_mm256_permute2f128_pd(b, y, 0x20));
    out[2] = _mm256_castpd_ps(_mm256_permute2f128_pd(a, x, 0x31));
    out[3] = _mm256_castpd_ps(_mm256_permute2f128_pd(b, y, 0x31));
}

INLINE __m256 pair_of(const float *q)
{
    double d;
    memcpy(&d, q, sizeof d);
    return _mm256_castpd_ps(_mm256_set1_pd(d));
}

/* Eight scores from the sums of four positions and the next four: even plus odd. */
INLINE __m256 scores_of(__m256 a, __m256 b)
{
    const __m256d s = _mm256_castps_pd(_mm256_hadd_ps(a, b)); /* 0 1 | 4 5, 2 3 | 6 7 by twos */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(s, 0xd8));
}

/* ---- scores, few queries ---- */

/* Asks for n lines from p on. */
INLINE void lines_fetch(const uint8_t *p, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        _mm_prefetch((const char *)p + 64 * (size_t)i, _MM_HINT_T0);
}

/* What is to be asked for while rows from j on (a multiple of ROWS) of the keys or the values are
 * worked on: few queries are as fast as memory is, and the processor's own prefetching does not
 * follow sixteen rows that are read side by side. */
static const uint8_t *stream_at(const struct attn_tile *a, uint64_t stride, int32_t j, bool values)
{
    const uint64_t group = stride * ROWS;
    j += (int32_t)((STREAM_BYTES + group - 1) / group) * ROWS + (values ? ATTN_TILE : 0);
    if (j < ATTN_TILE)
        return (const uint8_t *)a->k + (uint64_t)j * a->k_stride;
    j -= ATTN_TILE;
    if (j < ATTN_TILE)
        return (const uint8_t *)a->v + (uint64_t)j * a->v_stride;
    j = (j - ATTN_TILE) % ATTN_TILE;
    return (const uint8_t *)(a->ahead ? a->ahead : a->k) + (uint64_t)j * a->k_stride;
}

/* Scores of nq queries at eight positions. q is padded to a multiple of 16. */
INLINE void scores_direct(enum kv_type t, int32_t nq, const uint8_t *k, uint64_t stride, int32_t dk,
                          const float *const *q, float *const *s, const uint8_t *ahead)
{
    const uint64_t steps = ((uint64_t)dk + 15) / 16;
    const int32_t lines = (int32_t)((stride * 8 / steps + 63) / 64);
    __m256 a[FEW][2];
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        a[i][0] = a[i][1] = _mm256_setzero_ps();
    for (int32_t c = 0; c < dk; c += 8) {
        if (c % 16 == 0) {
            lines_fetch(ahead, lines);
            ahead += 64 * (size_t)lines;
        }
        OPS_UNROLL
        for (int g = 0; g < 2; g++) {
            __m256 v[4];
            if (dk - c >= 8)
                keys_turn(t, k + (uint64_t)(4 * g) * stride, stride, c, c + 8, v);
            else
                keys_turn(t, k + (uint64_t)(4 * g) * stride, stride, c, dk, v);
            OPS_UNROLL
            for (int p = 0; p < 4; p++)
                OPS_UNROLL
                for (int32_t i = 0; i < nq; i++)
                    a[i][g] = _mm256_fmadd_ps(pair_of(q[i] + c + 2 * p), v[p], a[i][g]);
        }
    }
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        _mm256_storeu_ps(s[i], scores_of(a[i][0], a[i][1]));
}

typedef void (*scores_direct_fn)(const uint8_t *k, uint64_t stride, int32_t dk,
                                 const float *const *q, float *const *s, const uint8_t *ahead);

#define DIRECT(name, type, nq)                                                                     \
    OPS_AVX2 static void scores_##name##_##nq(const uint8_t *k, uint64_t stride, int32_t dk,       \
                                              const float *const *q, float *const *s,              \
                                              const uint8_t *ahead)                                \
    {                                                                                              \
        scores_direct(type, nq, k, stride, dk, q, s, ahead);                                       \
    }
#define DIRECT_ALL(name, type)                                                                     \
    DIRECT(name, type, 1)                                                                          \
    DIRECT(name, type, 2)                                                                          \
    DIRECT(name, type, 3)                                                                          \
    DIRECT(name, type, 4)
DIRECT_ALL(f32, KV_F32)
DIRECT_ALL(f16, KV_F16)
DIRECT_ALL(q8_0, KV_Q8_0)
DIRECT_ALL(q4_0, KV_Q4_0)
#define DIRECT_ROW(name)                                                                           \
    {                                                                                              \
        scores_##name##_1, scores_##name##_2, scores_##name##_3, scores_##name##_4                 \
    }
static const scores_direct_fn scores_few[KV_TYPES][FEW] = {[KV_F32] = DIRECT_ROW(f32),
                                                           [KV_F16] = DIRECT_ROW(f16),
                                                           [KV_Q8_0] = DIRECT_ROW(q8_0),
                                                           [KV_Q4_0] = DIRECT_ROW(q4_0)};

/* ---- scores, many queries ---- */

/* Turns HALF positions: groups of four, each with all its pairs, up to a multiple of 16 values. */
INLINE void keys_stage(enum kv_type t, const uint8_t *k, uint64_t stride, int32_t dk, float *out,
                       const uint8_t *ahead)
{
    const int32_t lines = (int32_t)((stride * 8 / (((uint64_t)dk + 15) / 16) + 63) / 64);
    for (int32_t g = 0; g < HALF; g += 4)
        for (int32_t c = 0; c < up16(dk); c += 8, out += 32) {
            __m256 v[4];
            if (g % 8 == 0 && c % 16 == 0) {
                lines_fetch(ahead, lines);
                ahead += 64 * (size_t)lines;
            }
            if (dk - c >= 8)
                keys_turn(t, k + (uint64_t)g * stride, stride, c, c + 8, v);
            else
                keys_turn(t, k + (uint64_t)g * stride, stride, c, dk, v);
            OPS_UNROLL
            for (int p = 0; p < 4; p++)
                _mm256_store_ps(out + 8 * p, v[p]);
        }
}

OPS_AVX2 static void keys_stage_any(enum kv_type t, const uint8_t *k, uint64_t stride, int32_t dk,
                                    float *out, const uint8_t *ahead)
{
    switch (t) {
    case KV_F32:
        keys_stage(KV_F32, k, stride, dk, out, ahead);
        break;
    case KV_F16:
        keys_stage(KV_F16, k, stride, dk, out, ahead);
        break;
    case KV_Q8_0:
        keys_stage(KV_Q8_0, k, stride, dk, out, ahead);
        break;
    case KV_Q4_0:
        keys_stage(KV_Q4_0, k, stride, dk, out, ahead);
        break;
    }
}

/* Scores of nq queries at eight positions. */
INLINE void scores_block(int32_t nq, const float *k, int32_t dk, const float *const *q,
                         float *const *s)
{
    __m256 a[BLOCK][2];
    const size_t group = (size_t)dk * 4;
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        a[i][0] = a[i][1] = _mm256_setzero_ps();
    for (int32_t c = 0; c < dk; c += 2, k += 8) {
        const __m256 k0 = _mm256_load_ps(k), k1 = _mm256_load_ps(k + group);
        OPS_UNROLL
        for (int32_t i = 0; i < nq; i++) {
            const __m256 v = pair_of(q[i] + c);
            a[i][0] = _mm256_fmadd_ps(v, k0, a[i][0]);
            a[i][1] = _mm256_fmadd_ps(v, k1, a[i][1]);
        }
    }
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        _mm256_storeu_ps(s[i], scores_of(a[i][0], a[i][1]));
}

/* Scores of nq queries at HALF positions. */
INLINE void scores_half(int32_t nq, const float *k, int32_t dk, const float *const *q, float **s)
{
    for (int32_t j = 0; j < HALF; j += 8, k += (size_t)dk * 8) {
        scores_block(nq, k, dk, q, s);
        for (int32_t i = 0; i < nq; i++)
            s[i] += 8;
    }
}

OPS_AVX2 static void scores_many(int32_t nq, const float *k, int32_t dk, const float *const *q,
                                 float **s)
{
    switch (nq) {
    case 1:
        scores_half(1, k, dk, q, s);
        break;
    case 2:
        scores_half(2, k, dk, q, s);
        break;
    case 3:
        scores_half(3, k, dk, q, s);
        break;
    case 4:
        scores_half(4, k, dk, q, s);
        break;
    case 5:
        scores_half(5, k, dk, q, s);
        break;
    case 6:
        scores_half(6, k, dk, q, s);
        break;
    }
}

/* A copy of the queries, padded with zeros, where rows are no multiple of 16. */
static const float *query_at(const struct attn_tile *a, const float *padded, int32_t i)
{
    return padded ? padded + (size_t)i * (size_t)up16(a->dk) : a->q[i];
}

OPS_AVX2 static void scores_make(const struct attn_tile *a, int32_t first, int32_t last,
                                 float *weights, float *keys, const float *padded)
{
    const int32_t dk = up16(a->dk);
    const float *q[BLOCK];
    float *s[BLOCK];
    if (a->nq <= FEW) {
        for (int32_t j0 = first & ~7; j0 < last; j0 += 8) {
            int32_t n = 0;
            for (int32_t i = 0; i < a->nq; i++) {
                if (a->lo[i] >= j0 + 8 || a->hi[i] <= j0)
                    continue;
                q[n] = query_at(a, padded, i);
                s[n++] = weights + (size_t)i * ATTN_TILE + j0;
            }
            if (n > 0)
                scores_few[a->type][n - 1]((const uint8_t *)a->k + (uint64_t)j0 * a->k_stride,
                                           a->k_stride, a->dk, q, s,
                                           stream_at(a, a->k_stride, j0, false));
        }
        return;
    }
    for (int32_t j0 = first & ~(HALF - 1); j0 < last; j0 += HALF) {
        keys_stage_any(a->type, (const uint8_t *)a->k + (uint64_t)j0 * a->k_stride, a->k_stride,
                       a->dk, keys, stream_at(a, a->k_stride, j0, false));
        int32_t n = 0;
        for (int32_t i = 0; i < a->nq; i++) {
            if (a->lo[i] >= j0 + HALF || a->hi[i] <= j0)
                continue;
            q[n] = query_at(a, padded, i);
            s[n++] = weights + (size_t)i * ATTN_TILE + j0;
            if (n == BLOCK) {
                scores_many(n, keys, dk, q, s);
                n = 0;
            }
        }
        scores_many(n, keys, dk, q, s);
    }
}

/* ---- scores to weights ---- */

INLINE __m256 visible(int32_t j0, int32_t lo, int32_t hi)
{
    const __m256i j =
        _mm256_add_epi32(_mm256_set1_epi32(j0), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(lo), j);
    __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), j);
    return _mm256_castsi256_ps(_mm256_andnot_si256(low, high));
}

/* Running maximum and sum of one query. Returns the factor of what was summed so far. */
OPS_AVX2 static float weights_make(float *s, int32_t lo, int32_t hi, float softcap, float *m,
                                   float *l)
{
    const __m256 none = _mm256_set1_ps(-INFINITY), cap = _mm256_set1_ps(softcap);
    __m256 top = none, sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t j = 0; j < ATTN_TILE; j += 8) {
        __m256 v = _mm256_blendv_ps(none, _mm256_loadu_ps(s + j), visible(j, lo, hi));
        if (softcap != 0)
            v = _mm256_blendv_ps(none, _mm256_mul_ps(cap, ops_tanh8(_mm256_div_ps(v, cap))),
                                 visible(j, lo, hi));
        _mm256_storeu_ps(s + j, v);
        top = _mm256_max_ps(v, top); /* a NaN does not become the maximum */
    }
    const float new = ops_max8(top), max = new > *m ? new : *m;
    const __m256 max_all = _mm256_set1_ps(max);
    for (int32_t j = 0; j < ATTN_TILE; j += 16)
        OPS_UNROLL
        for (int h = 0; h < 2; h++) { /* -infinity gives 0 */
            __m256 v = ops_exp8(_mm256_sub_ps(_mm256_loadu_ps(s + j + 8 * h), max_all));
            _mm256_storeu_ps(s + j + 8 * h, v);
            sum[h] = _mm256_add_ps(sum[h], v);
        }
    const __m256 a = _mm256_add_ps(sum[0], sum[1]);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    b = _mm_add_ss(b, _mm_shuffle_ps(b, b, 1));
    const float factor = max == *m ? 1.0f : ops_exp1(*m - max);
    *l = *l * factor + _mm_cvtss_f32(b);
    *m = max;
    return factor;
}

/* ---- values ---- */

struct value_block { /* queries that stand together */
    float *acc[BLOCK];
    const float *p[BLOCK];
    float factor[BLOCK]; /* of acc */
    int32_t lo[BLOCK], hi[BLOCK];
    const uint8_t *ahead; /* with each row, so many lines from here on are asked for */
    int32_t ahead_lines;
};

/* a += p * v of one position; masked: only where the query sees it. */
INLINE void values_step(enum kv_type t, bool masked, int32_t nq, int32_t nv, int32_t n,
                        const struct value_block *b, const uint8_t *v, uint64_t stride, int32_t c0,
                        int32_t j, __m256 a[BLOCK][4])
{
    __m256 r[4];
    const uint8_t *row = v + (uint64_t)j * stride;
    OPS_UNROLL
    for (int32_t c = 0; c < nv; c++)
        r[c] = n >= 8 * nv ? row_part(t, row, c0 + 8 * c, c0 + 8 * c + 8)
                           : row_part(t, row, c0 + 8 * c, c0 + n);
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++) {
        if (masked && (j < b->lo[i] || j >= b->hi[i]))
            continue;
        const __m256 w = _mm256_broadcast_ss(b->p[i] + j);
        OPS_UNROLL
        for (int32_t c = 0; c < nv; c++)
            a[i][c] = _mm256_fmadd_ps(w, r[c], a[i][c]);
    }
}

/* acc = acc * factor + sum of p[j] v[j], nv vectors from column c0 of a row (n < 8 nv: the last
 * ones are not all there) of nq queries; acc is that of column `at`. */
INLINE void values_block(enum kv_type t, int32_t nq, int32_t nv, int32_t n,
                         const struct value_block *b, const uint8_t *v, uint64_t stride, int32_t c0,
                         int32_t at)
{
    __m256 a[BLOCK][4];
    int32_t first = 64, last = 0, begin = 0, end = 64; /* seen by any, and by all */
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++) {
        const __m256 f = _mm256_set1_ps(b->factor[i]);
        OPS_UNROLL
        for (int32_t c = 0; c < nv; c++)
            a[i][c] = _mm256_mul_ps(f, n >= 8 * nv ? _mm256_loadu_ps(b->acc[i] + at + 8 * c)
                                                   : part_load(b->acc[i] + at + 8 * c, n - 8 * c));
        first = b->lo[i] < first ? b->lo[i] : first;
        last = b->hi[i] > last ? b->hi[i] : last;
        begin = b->lo[i] > begin ? b->lo[i] : begin;
        end = b->hi[i] < end ? b->hi[i] : end;
    }
    if (begin > end)
        begin = end = last;
    for (int32_t j = first; j < begin; j++)
        values_step(t, true, nq, nv, n, b, v, stride, c0, j, a);
    for (int32_t j = begin; j < end; j++) {
        lines_fetch(b->ahead + (size_t)(j - begin) * 64 * (size_t)b->ahead_lines, b->ahead_lines);
        values_step(t, false, nq, nv, n, b, v, stride, c0, j, a);
    }
    for (int32_t j = end; j < last; j++)
        values_step(t, true, nq, nv, n, b, v, stride, c0, j, a);
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        OPS_UNROLL
        for (int32_t c = 0; c < nv; c++)
            if (n >= 8 * nv)
                _mm256_storeu_ps(b->acc[i] + at + 8 * c, a[i][c]);
            else
                part_store(b->acc[i] + at + 8 * c, n - 8 * c, a[i][c]);
}

/* n columns from c0 on, n up to COLS. */
INLINE void values_cols(enum kv_type t, int32_t nq, int32_t n, struct value_block *b,
                        const uint8_t *v, uint64_t stride, int32_t c0, int32_t at)
{
    const int32_t nv = nq <= 3 ? 4 : 2;
    for (int32_t c = 0; c < n; c += 8 * nv) {
        if (n - c >= 8 * nv)
            values_block(t, nq, nv, 8 * nv, b, v, stride, c0 + c, at + c);
        else
            for (int32_t x = c; x < n; x += 8)
                values_block(t, nq, 1, n - x, b, v, stride, c0 + x, at + x);
        b->ahead_lines = 0; /* once for all columns */
    }
}

/* Columns [c0, c0 + n) of a row as f32; to is aligned and reaches to a multiple of 8. */
INLINE void row_unpack(enum kv_type t, const uint8_t *row, int32_t c0, int32_t n, float *to)
{
    for (int32_t c = 0; c < n; c += 8)
        _mm256_store_ps(to + c, row_part(t, row, c0 + c, c0 + n));
}

#define ATTN_TARGET OPS_AVX2
#define ATTN_ENTRY  ops_attn_tile_avx2
#include "ops_attn_walk.h"

#else
typedef int ops_attn_avx2_is_empty_here; /* a translation unit may not be empty */
#endif
