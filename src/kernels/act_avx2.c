/* Activations as int8 for AVX2, the bits of act_scalar.c. Pure, any thread. */
#include "act.h"
#include "matmul_tiers.h"

#include <immintrin.h>
#include <string.h>

static __m256i magnitude_bits(const float *x)
{
    return _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x)), _mm256_set1_epi32(0x7fffffff));
}

/* Largest magnitude of n values (a multiple of 32) as bits; NaN is above infinity. */
static uint32_t top_bits(const float *x, int32_t n)
{
    __m256i top = _mm256_setzero_si256();
    for (int32_t i = 0; i < n; i += 32) {
        __m256i a = _mm256_max_epi32(magnitude_bits(x + i), magnitude_bits(x + i + 8));
        __m256i b = _mm256_max_epi32(magnitude_bits(x + i + 16), magnitude_bits(x + i + 24));
        top = _mm256_max_epi32(top, _mm256_max_epi32(a, b));
    }
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(t);
}

/* 32 levels, and the sums of their two halves in the low words of each half of the result. */
static __m128i levels32(const float *x, __m256 inverse, int8_t *q)
{
    __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
    __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse));
    __m256i c = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16), inverse));
    __m256i d = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 24), inverse));
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
    /* Sums of 16: bytes made unsigned by 128, summed by eights, 16 * 128 taken off again. */
    __m256i sad = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x80)),
                                  _mm256_setzero_si256());
    __m256i both = _mm256_add_epi64(sad, _mm256_unpackhi_epi64(sad, sad));
    __m128i halves =
        _mm_unpacklo_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    return _mm_sub_epi32(halves, _mm_set1_epi32(16 * 128));
}

void act_prepare_avx2(enum act_kind kind, const float *x, void *dst, int32_t cols)
{
    if (kind == ACT_F32) {
        act_prepare_scalar(kind, x, dst, cols);
        return;
    }
    struct act_layout l = act_layout_of(kind, cols);
    char *p = dst;
    int32_t group = kind == ACT_Q8_32 ? 32 : 256;
    int32_t parts = kind == ACT_Q8_32 ? 1 : 16; /* sums per group */
    int8_t *q = (int8_t *)p;
    float *scale = (float *)(p + l.scale);
    int16_t *sums = (int16_t *)(p + l.sums);
    int32_t groups = cols / group;
    memset(q + cols, 0, l.scale - (size_t)cols);
    memset(scale + groups, 0, l.sums - l.scale - (size_t)groups * sizeof *scale);
    memset(sums + groups * parts, 0, l.bytes - l.sums - (size_t)(groups * parts) * sizeof *sums);
    for (int32_t g = 0; g < groups; g++, x += group, q += group, sums += parts) {
        uint32_t top = top_bits(x, group);
        if (top < ACT_TINY_BITS || top >= ACT_INF_BITS) {
            uint32_t s = top >= ACT_INF_BITS ? ACT_NAN_BITS : 0;
            memcpy(&scale[g], &s, sizeof s);
            memset(q, 0, (size_t)group);
            memset(sums, 0, (size_t)parts * sizeof *sums);
            continue;
        }
        float amax;
        memcpy(&amax, &top, sizeof amax);
        scale[g] = amax / 127.0f;
        __m256 inverse = _mm256_set1_ps(127.0f / amax);
        for (int32_t i = 0; i < group; i += 32) {
            __m128i halves = levels32(x + i, inverse, q + i);
            int32_t low = _mm_cvtsi128_si32(halves), high = _mm_extract_epi32(halves, 1);
            if (kind == ACT_Q8_32) {
                sums[0] = (int16_t)(low + high);
            } else {
                sums[i / 16] = (int16_t)low;
                sums[i / 16 + 1] = (int16_t)high;
            }
        }
    }
}
