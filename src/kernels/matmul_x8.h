/* Blocks of eight rows side by side, for AVX2: a vector holds four neighbouring elements (one
 * 32-bit word) of each of eight rows, row r in word r. Dot products over such vectors end with
 * one row per lane, so nothing is ever summed across a vector, and the same code serves one
 * token and many. Levels come as unsigned bytes with their offset left on (Q8_0 apart). Layouts
 * of the formats: format_unpack.c. Loads never leave the block. Only for files built with AVX2. */
#ifndef KERNELS_MATMUL_X8_H
#define KERNELS_MATMUL_X8_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "format.h"

#define X8_INLINE static inline __attribute__((always_inline))

/* Addresses of the eight rows' current block. They lie evenly, and few registers say where: one
 * pointer for each would leave none for anything else. */
struct x8_rows {
    const uint8_t *row0, *row3;
    size_t step, step3;   /* bytes to the next row, and to the third */
    const uint8_t *ahead; /* what is wanted soon: the rows after these, walked once meanwhile */
    const uint8_t *far;   /* and what is wanted later */
    bool near;            /* the rows after these are little enough for the first-level cache */
    uint64_t apart;       /* 0, or the panel holds part of the columns: bytes to the rows after */
};

X8_INLINE const uint8_t *x8_row(const struct x8_rows *r, int i)
{
    const uint8_t *from = i < 3 || i == 7 ? r->row0 : r->row3;
    switch (i) {
    case 0:
    case 3:
        return from;
    case 1:
    case 4:
        return from + r->step;
    case 2:
    case 5:
        return from + 2 * r->step;
    case 6:
        return from + r->step3;
    default:
        return r->row3 + 4 * r->step;
    }
}

/* Fetching ahead, measured (docs/kernels.md). Rows that lie behind each other are asked for from end
 * to end, a constant distance past the eight at work, into the second-level cache; where eight rows
 * are short, those after them into the first-level one besides. */
enum { X8_FAR_BYTES = 16 << 10, X8_FAR_NEAR_BYTES = 24 << 10 };

/* Asks for the part'th of parts shares of the next n bytes; spread out, because a burst waits for
 * the processor's few outstanding misses. Eight rows are more streams than its own prefetching
 * follows. */
X8_INLINE void x8_prefetch(const struct x8_rows *r, size_t n, size_t part, size_t parts)
{
    size_t lines = (n + 63) / 64;
    if (r->apart != 0) { /* runs of less than a row: each row's own */
        for (size_t i = 8 * part / parts; i < 8 * (part + 1) / parts; i++)
            for (size_t b = 0; b < n / 8; b += 64)
                _mm_prefetch((const char *)x8_row(r, (int)i) + r->apart + b, _MM_HINT_T1);
    } else {
        if (r->near)
#pragma GCC unroll 32
            for (size_t i = lines * part / parts; i < lines * (part + 1) / parts; i++)
                _mm_prefetch((const char *)r->ahead + 64 * i, _MM_HINT_T0);
#pragma GCC unroll 32
        for (size_t i = lines * part / parts; i < lines * (part + 1) / parts; i++)
            _mm_prefetch((const char *)r->far + 64 * i, _MM_HINT_T1);
    }
    if (parts > 1)
        __asm__ volatile("" ::: "memory"); /* the compiler would gather the shares again */
}

/* Which eight rows of a product serve rows row .. row + n - 1 of a call: those, or the last eight there
 * are, of which lanes skip .. skip + n - 1 are kept. Of a product with fewer rows, one at a time. */
struct x8_group {
    int32_t first, skip, n;
    size_t step;
};

X8_INLINE struct x8_group x8_group(int32_t row, int32_t end, int32_t rows, uint64_t row_bytes)
{
    if (rows < 8)
        return (struct x8_group){row, 0, 1, 0};
    struct x8_group g = {row < rows - 8 ? row : rows - 8, 0, end - row < 8 ? end - row : 8,
                         row_bytes};
    g.skip = row - g.first;
    g.n = g.n < 8 - g.skip ? g.n : 8 - g.skip;
    return g;
}

/* Bytes from the eight rows after a group to what is asked for meanwhile. */
X8_INLINE size_t x8_distance(uint64_t row_bytes)
{
    return 8 * row_bytes <= kernels_near_bytes ? X8_FAR_NEAR_BYTES : X8_FAR_BYTES;
}

/* At the start of a call nothing was asked for yet. */
X8_INLINE void x8_first(const uint8_t *w, uint64_t row_bytes, int32_t row, int32_t end)
{
    size_t n = 8 * row_bytes + x8_distance(row_bytes), all = (size_t)(end - row) * row_bytes;
    const char *at = (const char *)w + (size_t)row * row_bytes;
    n = n < all ? n : all;
    for (size_t i = 0; i < n; i += 64)
        _mm_prefetch(at + i, _MM_HINT_T1);
}

/* The group at a byte of its rows. whole: the panel holds all columns. end: of the call's rows. */
X8_INLINE void x8_start(struct x8_rows *r, const uint8_t *w, uint64_t row_bytes, bool whole,
                        const struct x8_group *g, int32_t end)
{
    size_t eight = 8 * row_bytes, left = (size_t)(end - g->first) * row_bytes;
    r->row0 = w + (size_t)g->first * row_bytes;
    r->step = g->step;
    r->step3 = 3 * g->step;
    r->row3 = r->row0 + r->step3;
    /* Past the end another thread is at work: nothing new is asked for. */
    size_t distance = eight + x8_distance(row_bytes);
    r->ahead = r->row0 + (eight < left ? eight : 0);
    r->far = r->row0 + (distance < left ? distance : 0);
    r->near = eight <= kernels_near_bytes;
    r->apart = whole ? 0 : eight;
}

/* The group's floats, y being that of its first row kept; lanes not kept are 0 and are not written. */
X8_INLINE __m256 x8_read(const float *y, const struct x8_group *g)
{
    float lanes[8] = {0};
    if (g->n == 8)
        return _mm256_loadu_ps(y);
    memcpy(lanes + g->skip, y, (size_t)g->n * sizeof *lanes);
    return _mm256_loadu_ps(lanes);
}

X8_INLINE void x8_write(float *y, __m256 v, const struct x8_group *g)
{
    float lanes[8];
    if (g->n == 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    _mm256_storeu_ps(lanes, v);
    memcpy(y, lanes + g->skip, (size_t)g->n * sizeof *lanes);
}

/* On to the next block. The compiler is not to know how the addresses relate to those before, else
 * it keeps eight of them. */
X8_INLINE void x8_advance(struct x8_rows *r, size_t block_bytes)
{
    r->row0 += block_bytes;
    r->row3 += block_bytes;
    __asm__("" : "+r"(r->row0), "+r"(r->row3));
    r->ahead += 8 * block_bytes;
    r->far += 8 * block_bytes;
}

X8_INLINE __m256i x8_load2(const uint8_t *low, const uint8_t *high)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)low)),
        _mm_loadu_si128((const __m128i *)(const void *)high), 1);
}

/* 16 bytes at off of each row, as four vectors of words. */
X8_INLINE void x8_load(const struct x8_rows *r, size_t off, __m256i out[4])
{
    __m256i a = x8_load2(x8_row(r, 0) + off, x8_row(r, 4) + off);
    __m256i b = x8_load2(x8_row(r, 1) + off, x8_row(r, 5) + off);
    __m256i c = x8_load2(x8_row(r, 2) + off, x8_row(r, 6) + off);
    __m256i d = x8_load2(x8_row(r, 3) + off, x8_row(r, 7) + off);
    __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab, cd);
    out[1] = _mm256_unpackhi_epi64(ab, cd);
    ab = _mm256_unpackhi_epi32(a, b);
    cd = _mm256_unpackhi_epi32(c, d);
    out[2] = _mm256_unpacklo_epi64(ab, cd);
    out[3] = _mm256_unpackhi_epi64(ab, cd);
}

/* 32 bytes at off of each row, for few tokens: words of rows 0 to 3 in low, of rows 4 to 7 in high;
 * low[k] and high[k] hold word k of the first 16 bytes in their low lane and of the last in the high
 * one. Half the loads of x8_load, which brings word k of all eight rows together. */
struct x8_lanes {
    __m256i low[4], high[4];
};

X8_INLINE void x8_turn(const __m256i in[4], __m256i out[4])
{
    __m256i ab = _mm256_unpacklo_epi32(in[0], in[1]), cd = _mm256_unpacklo_epi32(in[2], in[3]);
    out[0] = _mm256_unpacklo_epi64(ab, cd);
    out[1] = _mm256_unpackhi_epi64(ab, cd);
    ab = _mm256_unpackhi_epi32(in[0], in[1]);
    cd = _mm256_unpackhi_epi32(in[2], in[3]);
    out[2] = _mm256_unpacklo_epi64(ab, cd);
    out[3] = _mm256_unpackhi_epi64(ab, cd);
}

X8_INLINE void x8_load_lanes(const struct x8_rows *r, size_t off, struct x8_lanes *out)
{
    __m256i in[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        in[i] = _mm256_loadu_si256((const __m256i *)(const void *)(x8_row(r, i) + off));
        __asm__("" : "+x"(in[i])); /* else some compilers load it again where it is used again */
    }
    x8_turn(in, out->low);
    x8_turn(in + 4, out->high);
}

/* Both lanes of sums of rows 0 to 3 and of rows 4 to 7 added: eight rows. */
X8_INLINE __m256i x8_join(__m256i low, __m256i high)
{
    __m256i straight = _mm256_blend_epi32(low, high, 0xf0);
    return _mm256_add_epi32(straight, _mm256_permute2x128_si256(low, high, 0x21));
}

/* Words at off of the eight rows, of which the low halves are 16-bit floats, as f32. */
X8_INLINE __m256 x8_halves(const struct x8_rows *r, size_t off)
{
    __m128i w[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        int32_t word;
        memcpy(&word, x8_row(r, i) + off, sizeof word);
        w[i] = _mm_cvtsi32_si128(word);
    }
    __m128i ab = _mm_unpacklo_epi16(w[0], w[1]), cd = _mm_unpacklo_epi16(w[2], w[3]);
    __m128i ef = _mm_unpacklo_epi16(w[4], w[5]), gh = _mm_unpacklo_epi16(w[6], w[7]);
    __m128i abcd = _mm_unpacklo_epi32(ab, cd), efgh = _mm_unpacklo_epi32(ef, gh);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(abcd, efgh));
}

/* The low half of each word, a 16-bit float, as f32. */
X8_INLINE __m256 x8_half(__m256i words)
{
    __m256i v = _mm256_and_si256(words, _mm256_set1_epi32(0xffff));
    v = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(v));
}

/* 2^(e - 128) of the low byte of each word (MXFP4). */
X8_INLINE __m256 x8_e8m0(__m256i words)
{
    __m256i e = _mm256_and_si256(words, _mm256_set1_epi32(0xff));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
}

X8_INLINE __m256i x8_low(__m256i bytes)
{
    return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

X8_INLINE __m256i x8_high(__m256i bytes)
{
    return _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
}

/* A byte pattern repeated for each word: bytes a, b, c, d of the word (or -1 for zero). */
X8_INLINE __m256i x8_pick(__m256i words, int a, int b, int c, int d)
{
#define X8_AT(i, lane) ((i) < 0 ? (char)-1 : (char)(4 * (lane) + (i)))
#define X8_WORD(lane)  X8_AT(a, lane), X8_AT(b, lane), X8_AT(c, lane), X8_AT(d, lane)
    return _mm256_shuffle_epi8(words,
                               _mm256_setr_epi8(X8_WORD(0), X8_WORD(1), X8_WORD(2), X8_WORD(3),
                                                X8_WORD(0), X8_WORD(1), X8_WORD(2), X8_WORD(3)));
#undef X8_WORD
#undef X8_AT
}

/* a | (b & c) */
X8_INLINE __m256i x8_or_and(__m256i a, __m256i b, __m256i c)
{
#ifdef __AVX512VL__
    return _mm256_ternarylogic_epi32(a, b, c, 0xf8);
#else
    return _mm256_or_si256(a, _mm256_and_si256(b, c));
#endif
}

/* Adds the fifth bits of elements 8 i .. 8 i + 7 (byte i of the mask, spread over each word) to
 * vectors w[2 i] and w[2 i + 1]. */
X8_INLINE void x8_fifth(__m256i spread, __m256i *w)
{
    __m256i even = _mm256_set1_epi32((int)0x08040201), odd = _mm256_set1_epi32((int)0x80402010);
    __m256i sixteen = _mm256_set1_epi8(16);
#if defined(__AVX512VL__) && defined(__AVX512BW__)
    w[0] = _mm256_mask_add_epi8(w[0], _mm256_test_epi8_mask(spread, even), w[0], sixteen);
    w[1] = _mm256_mask_add_epi8(w[1], _mm256_test_epi8_mask(spread, odd), w[1], sixteen);
#else
    __m256i bit0 = _mm256_cmpeq_epi8(_mm256_and_si256(spread, even), even);
    __m256i bit1 = _mm256_cmpeq_epi8(_mm256_and_si256(spread, odd), odd);
    w[0] = x8_or_and(w[0], bit0, sixteen);
    w[1] = x8_or_and(w[1], bit1, sixteen);
#endif
}

/* ---- 32-element formats ---- */

/* One block of eight rows. w[k]: elements 4 k .. 4 k + 3. m only for Q5_1. */
struct x8_block32 {
    __m256i w[8];
    __m256 d, m;
};

X8_INLINE void x8_nibbles(const struct x8_rows *r, size_t off, __m256i w[8])
{
    __m256i raw[4];
    x8_load(r, off, raw);
    for (int k = 0; k < 4; k++) {
        w[k] = x8_low(raw[k]);
        w[k + 4] = x8_high(raw[k]);
    }
}

/* Signed levels of the IQ4 formats. */
X8_INLINE __m256i x8_level_iq4(__m256i nibbles)
{
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13,
                                                  25, 38, 53, 69, 89, 113)),
        nibbles);
}

/* A group of 32 of these formats, its 16 bytes at off. */
X8_INLINE void x8_group_iq4(const struct x8_rows *r, size_t off, __m256i w[8])
{
    x8_nibbles(r, off, w);
    for (int k = 0; k < 8; k++)
        w[k] = x8_level_iq4(w[k]);
}

/* Formats whose levels are signed bytes. */
X8_INLINE bool x8_signed(enum format f)
{
    return f == FORMAT_Q8_0 || f == FORMAT_IQ4_NL || f == FORMAT_IQ4_XS;
}

/* 256-element formats with minima. */
X8_INLINE bool x8_has_min(enum format f)
{
    return f == FORMAT_Q4_K || f == FORMAT_Q5_K;
}

/* offset left on the levels: 8, 16, 0, 12; Q8_0 and IQ4_NL are signed. */
X8_INLINE void x8_unpack32(enum format f, const struct x8_rows *r, struct x8_block32 *b)
{
    __m256i head[4]; /* what is not used of it is not computed */
    switch (f) {
    case FORMAT_Q4_0:
        x8_load(r, 0, head);
        b->d = x8_half(head[0]);
        x8_nibbles(r, 2, b->w);
        break;
    case FORMAT_Q5_0:
        x8_load(r, 0, head);
        b->d = x8_half(head[0]);
        x8_nibbles(r, 6, b->w);
        x8_fifth(x8_pick(head[0], 2, 2, 2, 2), b->w + 0);
        x8_fifth(x8_pick(head[0], 3, 3, 3, 3), b->w + 2);
        x8_fifth(x8_pick(head[1], 0, 0, 0, 0), b->w + 4);
        x8_fifth(x8_pick(head[1], 1, 1, 1, 1), b->w + 6);
        break;
    case FORMAT_Q5_1:
        x8_load(r, 0, head);
        b->d = x8_half(head[0]);
        b->m = x8_half(_mm256_srli_epi32(head[0], 16));
        x8_nibbles(r, 8, b->w);
        x8_fifth(x8_pick(head[1], 0, 0, 0, 0), b->w + 0);
        x8_fifth(x8_pick(head[1], 1, 1, 1, 1), b->w + 2);
        x8_fifth(x8_pick(head[1], 2, 2, 2, 2), b->w + 4);
        x8_fifth(x8_pick(head[1], 3, 3, 3, 3), b->w + 6);
        break;
    case FORMAT_Q8_0:
        x8_load(r, 0, head);
        b->d = x8_half(head[0]);
        x8_load(r, 2, b->w);
        x8_load(r, 18, b->w + 4);
        break;
    case FORMAT_MXFP4: {
        __m256i level = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        x8_load(r, 0, head);
        b->d = x8_e8m0(head[0]);
        x8_nibbles(r, 1, b->w);
        for (int k = 0; k < 8; k++)
            b->w[k] = _mm256_shuffle_epi8(level, b->w[k]);
        break;
    }
    case FORMAT_IQ4_NL:
        x8_load(r, 0, head);
        b->d = x8_half(head[0]);
        x8_group_iq4(r, 2, b->w);
        break;
    default:
        __builtin_unreachable();
    }
}

/* Offset that x8_unpack32 and x8_levels256 leave on the levels. */
X8_INLINE int32_t x8_offset(enum format f)
{
    return f == FORMAT_Q4_0    ? 8
           : f == FORMAT_Q5_0  ? 16
           : f == FORMAT_MXFP4 ? 12
           : f == FORMAT_Q6_K  ? 32
                               : 0;
}

/* ---- 256-element formats ---- */

/* Scales of one superblock of eight rows, each as packed in its words:
 * s[i]: bytes are the scales of parts 4 i .. 4 i + 3 (parts of 32 for Q4_K and Q5_K with 2 words,
 * signed parts of 16 for Q6_K with 4 words); t the minima likewise. IQ4_XS: s[0] has the high bits in
 * its upper halves, s[1] the nibbles. */
struct x8_scales256 {
    __m256i s[4], t[2];
    __m256 d, m;
};

X8_INLINE void x8_scales256(enum format f, const struct x8_rows *r, struct x8_scales256 *h)
{
    __m256i v[4];
    if (f == FORMAT_Q6_K) {
        x8_load(r, 194, v);
        h->d = x8_half(_mm256_srli_epi32(v[3], 16));
        x8_load(r, 192, h->s);
        return;
    }
    if (f == FORMAT_IQ4_XS) {
        x8_load(r, 0, v);
        h->d = x8_half(v[0]);
        h->s[0] = v[0];
        h->s[1] = v[1];
        return;
    }
    /* d, dmin and the three words of 6-bit scales are the block's first 16 bytes. */
    x8_load(r, 0, v);
    h->d = x8_half(v[0]);
    h->m = x8_half(_mm256_srli_epi32(v[0], 16));
    __m256i six = _mm256_set1_epi8(63), two = _mm256_set1_epi8(0x30);
    h->s[0] = _mm256_and_si256(v[1], six);
    h->t[0] = _mm256_and_si256(v[2], six);
    h->s[1] = x8_or_and(x8_low(v[3]), _mm256_srli_epi16(v[1], 2), two);
    h->t[1] = x8_or_and(x8_high(v[3]), _mm256_srli_epi16(v[2], 2), two);
}

/* IQ4_XS: the scale of a group of 32 as int32. */
X8_INLINE __m256i x8_scale_iq4(const struct x8_scales256 *h, int group)
{
    __m256i low = _mm256_and_si256(_mm256_srli_epi32(h->s[1], 4 * group), _mm256_set1_epi32(15));
    __m256i high = _mm256_srli_epi32(_mm256_slli_epi32(h->s[0], 14 - 2 * group), 26);
    high = _mm256_and_si256(high, _mm256_set1_epi32(0x30));
    return _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
}

/* Byte i of each word twice as int16, unsigned or signed: one factor for a pair of products. */
X8_INLINE __m256i x8_twice_u(__m256i words, int i)
{
    return x8_pick(words, i, -1, i, -1);
}

X8_INLINE __m256i x8_twice_s(__m256i words, int i)
{
    return _mm256_srai_epi16(x8_pick(words, -1, i, -1, i), 8);
}

/* Bytes i and i + 1 of each word as a pair of int16. */
X8_INLINE __m256i x8_pair_u(__m256i words, int i)
{
    return x8_pick(words, i, -1, i + 1, -1);
}

X8_INLINE __m256i x8_pair_s(__m256i words, int i)
{
    return _mm256_srai_epi16(x8_pick(words, -1, i, -1, i + 1), 8);
}

/* The levels of 16 columns in each of several groups of 32, from the same stored bytes.
 * Q4_K, Q5_K: quarter 0..3, half 0..1: groups 2 quarter and 2 quarter + 1, columns 16 half ...
 * Q6_K: quarter 0..1: groups 4 quarter .. 4 quarter + 3.
 * high: for Q5_K the words of qh of this half, loaded by x8_high256; unused otherwise.
 * w[g][k]: group g of these, elements 4 k .. 4 k + 3 of the half. */
X8_INLINE void x8_levels256(enum format f, const struct x8_rows *r, int quarter, int half,
                            const __m256i high[4], __m256i w[4][4])
{
    if (f == FORMAT_Q6_K) {
        __m256i low0[4], low1[4], top[4], three = _mm256_set1_epi8(0x30);
        x8_load(r, (size_t)(64 * quarter + 16 * half), low0);
        x8_load(r, (size_t)(64 * quarter + 32 + 16 * half), low1);
        x8_load(r, (size_t)(128 + 32 * quarter + 16 * half), top);
        for (int k = 0; k < 4; k++) {
            __m256i t0 = _mm256_slli_epi16(top[k], 4), t1 = _mm256_slli_epi16(top[k], 2);
            __m256i t2 = top[k], t3 = _mm256_srli_epi16(top[k], 2);
            w[0][k] = x8_or_and(x8_low(low0[k]), t0, three);
            w[1][k] = x8_or_and(x8_low(low1[k]), t1, three);
            w[2][k] = x8_or_and(x8_high(low0[k]), t2, three);
            w[3][k] = x8_or_and(x8_high(low1[k]), t3, three);
        }
        return;
    }
    __m256i raw[4], sixteen = _mm256_set1_epi8(16);
    x8_load(r, (size_t)((f == FORMAT_Q4_K ? 16 : 48) + 32 * quarter + 16 * half), raw);
    for (int k = 0; k < 4; k++) {
        w[0][k] = x8_low(raw[k]);
        w[1][k] = x8_high(raw[k]);
        if (f == FORMAT_Q5_K) {
            /* bit 2 quarter (and the next) of each byte moved to bit 4 */
            int up = 4 - 2 * quarter;
            __m256i b0 = up >= 0 ? _mm256_slli_epi16(high[k], up) : _mm256_srli_epi16(high[k], -up);
            __m256i b1 =
                up >= 1 ? _mm256_slli_epi16(high[k], up - 1) : _mm256_srli_epi16(high[k], 1 - up);
            w[0][k] = x8_or_and(w[0][k], b0, sixteen);
            w[1][k] = x8_or_and(w[1][k], b1, sixteen);
        }
    }
}

X8_INLINE void x8_high256(enum format f, const struct x8_rows *r, int half, __m256i high[4])
{
    if (f == FORMAT_Q5_K)
        x8_load(r, (size_t)(16 + 16 * half), high);
}

#endif
