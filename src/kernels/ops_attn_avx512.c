/* Attention over one tile of 64 positions, AVX-512 version. Knows no sequence, no page, no mask but
 * a range per query. Pure; any thread.
 *
 * Keys are turned: a vector holds two neighbouring values of eight positions, so that a query's
 * pair of values, broadcast, meets eight positions at once and nothing is summed across a vector
 * until the end. Order of a score: the even values of a row in ascending order, the odd ones
 * likewise (fused), then the two sums added. A running sum takes the tile's weights in sixteen
 * lanes (position mod 16), added 8, 4, 2, 1 apart. Values: position by position, ascending, fused.
 * How many queries stand together chooses only which registers hold them, and whether rows are
 * unpacked into scratch first. */
#include "ops.h"

#if defined(__x86_64__)

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops_avx512.h"

#define COLS 64 /* values of a row that are added up at a time */
#define HALF 32 /* positions whose keys are turned at a time */
#define BLOCK                                                                                      \
    6 /* queries that stand in registers together: with 4 vectors 24 sums of 32 registers */
#define ROWS 16 /* rows that few queries take at a time */
#define FEW  4  /* up to so many queries rows go from memory into the sums */

#define INLINE OPS_AVX512 __attribute__((always_inline)) static inline

static inline int32_t up16(int32_t n)
{
    return (n + 15) & ~15;
}

/* Values [c, c + 16) of a row as f32, zeros beyond the n that are there; c is a multiple of 16.
 * t is a constant at every call. */
INLINE __m512 row_part(enum kv_type t, const uint8_t *row, int32_t c, int32_t n)
{
    const __mmask16 m = ops_mask16(n - c);
    switch (t) {
    case KV_F32:
        row += (size_t)c * 4;
        return m == 0xffff ? _mm512_loadu_ps(row) : _mm512_maskz_loadu_ps(m, row);
    case KV_F16:
        row += (size_t)c * 2;
        return _mm512_cvtph_ps(m == 0xffff ? _mm256_loadu_si256((const __m256i *)(const void *)row)
                                           : _mm256_maskz_loadu_epi16(m, row));
    case KV_Q8_0: {
        const uint8_t *block = row + (size_t)c / 32 * 34;
        uint16_t h;
        memcpy(&h, block, 2);
        const __m128i q = _mm_loadu_si128((const __m128i *)(const void *)(block + 2 + c % 32));
        const __m512 v = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q));
        return _mm512_mul_ps(_mm512_set1_ps(_cvtsh_ss(h)), v); /* stored in whole blocks */
    }
    case KV_Q4_0: {
        const uint8_t *block = row + (size_t)c / 32 * 18;
        const __m512 levels =
            _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
        uint16_t h;
        memcpy(&h, block, 2);
        __m512i q =
            _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(block + 2)));
        q = c % 32 ? _mm512_srli_epi32(q, 4) : q; /* the permutation looks at four bits */
        return _mm512_mul_ps(_mm512_set1_ps(_cvtsh_ss(h)), _mm512_permutexvar_ps(q, levels));
    }
    }
    return _mm512_setzero_ps();
}

/* The same of a row whose n values are all there. */
INLINE __m512 row_whole(enum kv_type t, const uint8_t *row, int32_t c)
{
    return row_part(t, row, c, c + 16);
}

/* Eight rows of eight pairs -> for each pair, eight rows. */
INLINE void pairs_turn(const __m512 r[8], __m512 out[8])
{
    __m512d lo[4], hi[4]; /* even and odd pairs of two rows */
    OPS_UNROLL
    for (int i = 0; i < 4; i++) {
        const __m512d a = _mm512_castps_pd(r[2 * i]), b = _mm512_castps_pd(r[2 * i + 1]);
        lo[i] = _mm512_unpacklo_pd(a, b);
        hi[i] = _mm512_unpackhi_pd(a, b);
    }
    OPS_UNROLL
    for (int odd = 0; odd < 2; odd++) {
        const __m512d *t = odd ? hi : lo;
        const __m512d a = _mm512_shuffle_f64x2(t[0], t[1], 0x88),
                      b = _mm512_shuffle_f64x2(t[0], t[1], 0xdd),
                      c = _mm512_shuffle_f64x2(t[2], t[3], 0x88),
                      d = _mm512_shuffle_f64x2(t[2], t[3], 0xdd);
        out[odd] = _mm512_castpd_ps(_mm512_shuffle_f64x2(a, c, 0x88));
        out[odd + 4] = _mm512_castpd_ps(_mm512_shuffle_f64x2(a, c, 0xdd));
        out[odd + 2] = _mm512_castpd_ps(_mm512_shuffle_f64x2(b, d, 0x88));
        out[odd + 6] = _mm512_castpd_ps(_mm512_shuffle_f64x2(b, d, 0xdd));
    }
}

/* Values [c, c + 16) of eight rows, turned; n values are there. */
INLINE void keys_turn(enum kv_type t, const uint8_t *k, uint64_t stride, int32_t c, int32_t n,
                      __m512 out[8])
{
    __m512 r[8];
    if (n - c >= 16) {
        OPS_UNROLL
        for (int i = 0; i < 8; i++)
            r[i] = row_whole(t, k + (uint64_t)i * stride, c);
    } else {
        OPS_UNROLL
        for (int i = 0; i < 8; i++)
            r[i] = row_part(t, k + (uint64_t)i * stride, c, n);
    }
    pairs_turn(r, out);
}

INLINE __m512 pair_of(const float *q)
{
    double d;
    memcpy(&d, q, sizeof d);
    return _mm512_castpd_ps(_mm512_set1_pd(d));
}

/* Sixteen scores from the sums of eight positions and the next eight. */
INLINE __m512 scores_of(__m512 a, __m512 b)
{
    const __m512i even =
                      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                  odd =
                      _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b));
}

/* Few queries are as fast as memory is. A tile is read in order, keys and then values, sixteen rows
 * at a time, which go through the processor in an order that its own prefetching does not follow;
 * so the rows that are STREAM_BYTES or a little more ahead are asked for meanwhile. */
#define STREAM_BYTES 4096

/* Asks for n lines from p on. */
INLINE void lines_fetch(const uint8_t *p, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        _mm_prefetch((const char *)p + 64 * (size_t)i, _MM_HINT_T0);
}

/* What is to be asked for while rows from j on (a multiple of 16) of the keys or the values are
 * worked on. */
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

/* ---- scores, few queries ---- */

/* Scores of nq queries at sixteen positions. q is padded to a multiple of 16. Meanwhile
 * as many bytes from ahead on are asked for. */
INLINE void scores_direct(enum kv_type t, int32_t nq, const uint8_t *k, uint64_t stride, int32_t dk,
                          const float *const *q, float *const *s, const uint8_t *ahead)
{
    const uint64_t steps = ((uint64_t)dk + 15) / 16;
    const int32_t lines = (int32_t)((stride * 16 / steps + 63) / 64);
    __m512 a[FEW][2];
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        a[i][0] = a[i][1] = _mm512_setzero_ps();
    for (int32_t c = 0; c < dk; c += 16) {
        lines_fetch(ahead, lines);
        ahead += 64 * (size_t)lines;
        OPS_UNROLL
        for (int g = 0; g < 2; g++) {
            __m512 v[8];
            keys_turn(t, k + (uint64_t)(8 * g) * stride, stride, c, dk, v);
            OPS_UNROLL
            for (int p = 0; p < 8; p++)
                OPS_UNROLL
                for (int32_t i = 0; i < nq; i++)
                    a[i][g] = _mm512_fmadd_ps(pair_of(q[i] + c + 2 * p), v[p], a[i][g]);
        }
    }
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        _mm512_storeu_ps(s[i], scores_of(a[i][0], a[i][1]));
}

typedef void (*scores_direct_fn)(const uint8_t *k, uint64_t stride, int32_t dk,
                                 const float *const *q, float *const *s, const uint8_t *ahead);

#define DIRECT(name, type, nq)                                                                     \
    OPS_AVX512 static void scores_##name##_##nq(const uint8_t *k, uint64_t stride, int32_t dk,     \
                                                const float *const *q, float *const *s,            \
                                                const uint8_t *ahead)                              \
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

/* Turns n positions, a multiple of 8: groups of eight, each with all its pairs. */
INLINE void keys_stage(enum kv_type t, const uint8_t *k, uint64_t stride, int32_t dk, int32_t n,
                       float *out, const uint8_t *ahead)
{
    const int32_t lines = (int32_t)((stride * 8 / (((uint64_t)dk + 15) / 16) + 63) / 64);
    for (int32_t g = 0; g < n; g += 8)
        for (int32_t c = 0; c < dk; c += 16, out += 128, ahead += 64 * (size_t)lines) {
            __m512 v[8];
            lines_fetch(ahead, lines);
            keys_turn(t, k + (uint64_t)g * stride, stride, c, dk, v);
            OPS_UNROLL
            for (int p = 0; p < 8; p++)
                _mm512_store_ps(out + 16 * p, v[p]);
        }
}

OPS_AVX512 static void keys_stage_any(enum kv_type t, const uint8_t *k, uint64_t stride, int32_t dk,
                                      int32_t n, float *out, const uint8_t *ahead)
{
    switch (t) {
    case KV_F32:
        keys_stage(KV_F32, k, stride, dk, n, out, ahead);
        break;
    case KV_F16:
        keys_stage(KV_F16, k, stride, dk, n, out, ahead);
        break;
    case KV_Q8_0:
        keys_stage(KV_Q8_0, k, stride, dk, n, out, ahead);
        break;
    case KV_Q4_0:
        keys_stage(KV_Q4_0, k, stride, dk, n, out, ahead);
        break;
    }
}

/* Scores of nq queries at 32 positions. */
INLINE void scores_block(int32_t nq, const float *k, int32_t dk, const float *const *q,
                         float *const *s)
{
    __m512 a[BLOCK][4];
    const size_t group = (size_t)dk * 8;
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++)
        OPS_UNROLL
        for (int g = 0; g < 4; g++)
            a[i][g] = _mm512_setzero_ps();
    for (int32_t c = 0; c < dk; c += 2, k += 16) {
        const __m512 k0 = _mm512_load_ps(k), k1 = _mm512_load_ps(k + group),
                     k2 = _mm512_load_ps(k + 2 * group), k3 = _mm512_load_ps(k + 3 * group);
        OPS_UNROLL
        for (int32_t i = 0; i < nq; i++) {
            const __m512 v = pair_of(q[i] + c);
            a[i][0] = _mm512_fmadd_ps(v, k0, a[i][0]);
            a[i][1] = _mm512_fmadd_ps(v, k1, a[i][1]);
            a[i][2] = _mm512_fmadd_ps(v, k2, a[i][2]);
            a[i][3] = _mm512_fmadd_ps(v, k3, a[i][3]);
        }
    }
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++) {
        _mm512_storeu_ps(s[i], scores_of(a[i][0], a[i][1]));
        _mm512_storeu_ps(s[i] + 16, scores_of(a[i][2], a[i][3]));
    }
}

OPS_AVX512 static void scores_many(int32_t nq, const float *k, int32_t dk, const float *const *q,
                                   float *const *s)
{
    switch (nq) {
    case 1:
        scores_block(1, k, dk, q, s);
        break;
    case 2:
        scores_block(2, k, dk, q, s);
        break;
    case 3:
        scores_block(3, k, dk, q, s);
        break;
    case 4:
        scores_block(4, k, dk, q, s);
        break;
    case 5:
        scores_block(5, k, dk, q, s);
        break;
    case 6:
        scores_block(6, k, dk, q, s);
        break;
    }
}

/* A copy of the queries, padded with zeros, where rows are no multiple of 16. */
static const float *query_at(const struct attn_tile *a, const float *padded, int32_t i)
{
    return padded ? padded + (size_t)i * (size_t)up16(a->dk) : a->q[i];
}

OPS_AVX512 static void scores_make(const struct attn_tile *a, int32_t first, int32_t last,
                                   float *weights, float *keys, const float *padded)
{
    const int32_t dk = up16(a->dk);
    const float *q[BLOCK];
    float *s[BLOCK];
    if (a->nq <= FEW) {
        for (int32_t j0 = first & ~15; j0 < last; j0 += 16) {
            int32_t n = 0;
            for (int32_t i = 0; i < a->nq; i++) {
                if (a->lo[i] >= j0 + 16 || a->hi[i] <= j0)
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
                       a->dk, HALF, keys, stream_at(a, a->k_stride, j0, false));
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

/* Running maximum and sum of one query. Returns the factor of what was summed so far. */
OPS_AVX512 static float weights_make(float *s, int32_t lo, int32_t hi, float softcap, float *m,
                                     float *l)
{
    const __m512 none = _mm512_set1_ps(-INFINITY), cap = _mm512_set1_ps(softcap);
    const uint64_t seen = (hi == 64 ? ~UINT64_C(0) : (UINT64_C(1) << hi) - 1) &
                          ~((UINT64_C(1) << lo) - 1); /* lo < hi, so lo < 64 */
    __m512 v[4], top = none;
    OPS_UNROLL
    for (int g = 0; g < 4; g++) {
        v[g] = _mm512_mask_loadu_ps(none, (__mmask16)(seen >> (16 * g)), s + 16 * g);
        if (softcap != 0)
            v[g] = _mm512_mask_mul_ps(v[g], (__mmask16)(seen >> (16 * g)), cap,
                                      ops_tanh16(_mm512_div_ps(v[g], cap)));
        top = _mm512_max_ps(v[g], top); /* a NaN does not become the maximum */
    }
    const float new = ops_max16(top), max = new > *m ? new : *m;
    const __m512 max_all = _mm512_set1_ps(max);
    __m512 sum = _mm512_setzero_ps();
    OPS_UNROLL
    for (int g = 0; g < 4; g++) {
        v[g] = ops_exp16(_mm512_sub_ps(v[g], max_all)); /* -infinity gives 0 */
        _mm512_storeu_ps(s + 16 * g, v[g]);
        sum = _mm512_add_ps(sum, v[g]);
    }
    const float factor = max == *m ? 1.0f : _mm512_cvtss_f32(ops_exp16(_mm512_set1_ps(*m - max)));
    *l = *l * factor + ops_sum16(sum);
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
                        int32_t j, __m512 a[BLOCK][4])
{
    __m512 r[4];
    const uint8_t *row = v + (uint64_t)j * stride;
    OPS_UNROLL
    for (int32_t c = 0; c < nv; c++)
        r[c] =
            n >= 16 * nv ? row_whole(t, row, c0 + 16 * c) : row_part(t, row, c0 + 16 * c, c0 + n);
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++) {
        const __m512 w = _mm512_set1_ps(b->p[i][j]);
        const __mmask16 m = j >= b->lo[i] && j < b->hi[i] ? 0xffff : 0;
        OPS_UNROLL
        for (int32_t c = 0; c < nv; c++)
            a[i][c] = masked ? _mm512_mask3_fmadd_ps(w, r[c], a[i][c], m)
                             : _mm512_fmadd_ps(w, r[c], a[i][c]);
    }
}

/* acc = acc * factor + sum of p[j] v[j], nv vectors from column c0 of a row (n < 16 nv: the last
 * ones are not all there) of nq queries; acc is that of column `at`. */
INLINE void values_block(enum kv_type t, int32_t nq, int32_t nv, int32_t n,
                         const struct value_block *b, const uint8_t *v, uint64_t stride, int32_t c0,
                         int32_t at)
{
    __m512 a[BLOCK][4];
    int32_t first = 64, last = 0, begin = 0, end = 64; /* seen by any, and by all */
    OPS_UNROLL
    for (int32_t i = 0; i < nq; i++) {
        const __m512 f = _mm512_set1_ps(b->factor[i]);
        OPS_UNROLL
        for (int32_t c = 0; c < nv; c++)
            a[i][c] =
                _mm512_mul_ps(f, n >= 16 * nv ? _mm512_loadu_ps(b->acc[i] + at + 16 * c)
                                              : _mm512_maskz_loadu_ps(ops_mask16(n - 16 * c),
                                                                      b->acc[i] + at + 16 * c));
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
            if (n >= 16 * nv)
                _mm512_storeu_ps(b->acc[i] + at + 16 * c, a[i][c]);
            else
                _mm512_mask_storeu_ps(b->acc[i] + at + 16 * c, ops_mask16(n - 16 * c), a[i][c]);
}

/* n columns from c0 on, n up to COLS. */
INLINE void values_cols(enum kv_type t, int32_t nq, int32_t n, const struct value_block *b,
                        const uint8_t *v, uint64_t stride, int32_t c0, int32_t at)
{
    if (n == COLS) {
        values_block(t, nq, 4, COLS, b, v, stride, c0, at);
        return;
    }
    for (int32_t c = 0; c < n; c += 16)
        values_block(t, nq, 1, n - c, b, v, stride, c0 + c, at + c);
}

/* Columns [c0, c0 + n) of a row as f32; to is aligned and reaches to a multiple of 16. */
INLINE void row_unpack(enum kv_type t, const uint8_t *row, int32_t c0, int32_t n, float *to)
{
    for (int32_t c = 0; c < n; c += 16)
        _mm512_store_ps(to + c, row_part(t, row, c0 + c, c0 + n));
}

#define ATTN_TARGET OPS_AVX512
#define ATTN_ENTRY  ops_attn_tile_avx512
#include "ops_attn_walk.h"

#else
typedef int ops_attn_avx512_is_empty_here; /* a translation unit may not be empty */
#endif
