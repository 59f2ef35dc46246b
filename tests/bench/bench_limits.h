/* What the machine can do at most, for bench_matmul: bytes read from memory per second, and int8
 * multiply-adds per second on registers alone. Each function is one thread's part of a round and
 * returns something that depends on its work, so that no compiler drops it. A measure that the
 * processor lacks returns NULL. Any thread. */
#ifndef BENCH_LIMITS_H
#define BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum limit { LIMIT_READ, LIMIT_READ_AHEAD, LIMIT_MADDUBS, LIMIT_VNNI, LIMIT_FMA, LIMITS };

/* READ: p and n are the thread's bytes (n a multiple of 4096). The others: n rounds of LIMIT_STEP
 * instructions that multiply. */
typedef uint64_t limit_fn(const void *p, size_t n);
enum { LIMIT_STEP = 12 };

static inline uint64_t limit_read_plain(const void *p, size_t n)
{
    const uint64_t *w = p;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i < n / 8; i += 4) {
        a += w[i];
        b += w[i + 1];
        c += w[i + 2];
        d += w[i + 3];
    }
    return a + b + c + d;
}

#if defined(__x86_64__)

#define LIMIT_READS(name, before)                                                                  \
    __attribute__((target("avx2"))) static inline uint64_t name(const void *p, size_t n)           \
    {                                                                                              \
        const char *at = p;                                                                        \
        __m256i s[4] = {_mm256_setzero_si256()};                                                   \
        for (size_t i = 0; i < n; i += 128) {                                                      \
            before;                                                                                \
            for (int k = 0; k < 4; k++)                                                            \
                s[k] = _mm256_xor_si256(                                                           \
                    s[k], _mm256_loadu_si256((const __m256i *)(const void *)(at + i + 32 * k)));   \
        }                                                                                          \
        s[0] = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));       \
        return (uint64_t)_mm256_extract_epi64(s[0], 0) ^ (uint64_t)_mm256_extract_epi64(s[0], 2);  \
    }
LIMIT_READS(limit_read_avx2, (void)0)
LIMIT_READS(limit_read_ahead, (_mm_prefetch(at + i + 4096, _MM_HINT_T0),
                               _mm_prefetch(at + i + 4160, _MM_HINT_T0)))

/* LIMIT_STEP sums that do not depend on each other; the barrier keeps the products in the loop. */
#define LIMIT_ROUNDS(type, zero, term)                                                             \
    type s[LIMIT_STEP];                                                                            \
    for (int k = 0; k < LIMIT_STEP; k++)                                                           \
        s[k] = zero;                                                                               \
    for (size_t i = 0; i < n; i++) {                                                               \
        _Pragma("GCC unroll 12") for (int k = 0; k < LIMIT_STEP; k++) s[k] = term;                 \
        __asm__ volatile("" : "+v"(a), "+v"(b));                                                   \
    }                                                                                              \
    uint64_t sum = 0;                                                                              \
    for (int k = 0; k < LIMIT_STEP; k++) {                                                         \
        uint64_t part;                                                                             \
        memcpy(&part, &s[k], sizeof part);                                                         \
        sum += part;                                                                               \
    }                                                                                              \
    return sum

__attribute__((target("avx2"))) static inline uint64_t limit_maddubs(const void *p, size_t n)
{
    (void)p;
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), one = _mm256_set1_epi16(1);
    LIMIT_ROUNDS(__m256i, _mm256_setzero_si256(),
                 _mm256_add_epi32(s[k], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), one)));
}

__attribute__((target("avx512f,avx512vnni"))) static inline uint64_t limit_vnni(const void *p,
                                                                                size_t n)
{
    (void)p;
    __m512i a = _mm512_set1_epi32(0x03030303), b = _mm512_set1_epi32(0x05050505);
    LIMIT_ROUNDS(__m512i, _mm512_setzero_si512(), _mm512_dpbusd_epi32(s[k], a, b));
}

__attribute__((target("avx2,fma"))) static inline uint64_t limit_fma(const void *p, size_t n)
{
    (void)p;
    __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    LIMIT_ROUNDS(__m256, _mm256_setzero_ps(), _mm256_fmadd_ps(a, b, s[k]));
}
#endif

/* The measure, and the multiply-adds or bytes of one unit of n. */
static inline limit_fn *limit_of(enum limit l, double *unit)
{
    *unit = 1;
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2"), fma = __builtin_cpu_supports("fma");
    bool vnni = __builtin_cpu_supports("avx512vnni");
    switch (l) {
    case LIMIT_READ:
        return avx2 ? limit_read_avx2 : limit_read_plain;
    case LIMIT_READ_AHEAD:
        return avx2 ? limit_read_ahead : NULL;
    case LIMIT_MADDUBS:
        *unit = 32.0 * LIMIT_STEP;
        return avx2 ? limit_maddubs : NULL;
    case LIMIT_VNNI:
        *unit = 64.0 * LIMIT_STEP;
        return vnni ? limit_vnni : NULL;
    case LIMIT_FMA:
        *unit = 8.0 * LIMIT_STEP;
        return fma ? limit_fma : NULL;
    default:
        return NULL;
    }
#else
    return l == LIMIT_READ ? limit_read_plain : NULL;
#endif
}

#endif
