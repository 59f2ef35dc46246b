/* The limits of processor and memory, measured (probe_compute.h). Knows instructions, not kernels.
 * Rounds are timed by the wall clock from the team's start to its end. */
#include <stddef.h>
#include <string.h>

#include "probe_compute.h"
#include "../base/clock.h"
#include "../base/os.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* A thread's part of a round. What it returns depends on all its work, so that none is dropped. */
typedef uint64_t probe_fn(const void *p, size_t n);
/* Sums that do not depend on each other: more than latency times width of any processor yet. */
#define SUMS 12

static uint64_t read_plain(const void *p, size_t n)
{
    const uint64_t *w = p;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i < n / 8; i += 4) {
        a ^= w[i];
        b ^= w[i + 1];
        c ^= w[i + 2];
        d ^= w[i + 3];
    }
    return a ^ b ^ c ^ d;
}

#if defined(__x86_64__)

#define READ_FN(name, before)                                                                      \
    __attribute__((target("avx2"))) static uint64_t name(const void *p, size_t n)                  \
    {                                                                                              \
        const char *at = p;                                                                        \
        __m256i s[4];                                                                              \
        for (int k = 0; k < 4; k++)                                                                \
            s[k] = _mm256_setzero_si256();                                                         \
        for (size_t i = 0; i < n; i += 128) {                                                      \
            before;                                                                                \
            for (int k = 0; k < 4; k++)                                                            \
                s[k] = _mm256_xor_si256(                                                           \
                    s[k], _mm256_loadu_si256((const __m256i *)(const void *)(at + i + 32 * k)));   \
        }                                                                                          \
        s[0] = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));       \
        return (uint64_t)_mm256_extract_epi64(s[0], 0) ^ (uint64_t)_mm256_extract_epi64(s[0], 2);  \
    }
READ_FN(read_wide, (void)0)
/* Some processors reach what their memory gives only when the program itself fetches ahead. */
READ_FN(read_ahead,
        (_mm_prefetch(at + i + 4096, _MM_HINT_T0), _mm_prefetch(at + i + 4160, _MM_HINT_T0)))

/* The barrier keeps the products in the loop. */
#define ROUNDS(type, zero, term)                                                                   \
    type s[SUMS];                                                                                  \
    (void)p;                                                                                       \
    for (int k = 0; k < SUMS; k++)                                                                 \
        s[k] = zero;                                                                               \
    for (size_t i = 0; i < n; i++) {                                                               \
        _Pragma("GCC unroll 12") for (int k = 0; k < SUMS; k++) s[k] = term;                       \
        __asm__ volatile("" : "+v"(a), "+v"(b));                                                   \
    }                                                                                              \
    uint64_t sum = 0;                                                                              \
    for (int k = 0; k < SUMS; k++) {                                                               \
        uint64_t part;                                                                             \
        memcpy(&part, &s[k], sizeof part);                                                         \
        sum += part;                                                                               \
    }                                                                                              \
    return sum

__attribute__((target("avx2"))) static uint64_t macs_maddubs(const void *p, size_t n)
{
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5), one = _mm256_set1_epi16(1);
    ROUNDS(__m256i, _mm256_setzero_si256(),
           _mm256_add_epi32(s[k], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), one)));
}

__attribute__((target("avx2,fma"))) static uint64_t macs_fma(const void *p, size_t n)
{
    __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    ROUNDS(__m256, _mm256_setzero_ps(), _mm256_fmadd_ps(a, b, s[k]));
}

__attribute__((target("avx512f,avx512vnni"))) static uint64_t macs_vnni(const void *p, size_t n)
{
    __m512i a = _mm512_set1_epi32(0x03030303), b = _mm512_set1_epi32(0x05050505);
    ROUNDS(__m512i, _mm512_setzero_si512(), _mm512_dpbusd_epi32(s[k], a, b));
}

#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11)
#define HAVE_VNNI_256
__attribute__((target("avx2,avxvnni"))) static uint64_t macs_vnni_256(const void *p, size_t n)
{
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    ROUNDS(__m256i, _mm256_setzero_si256(), _mm256_dpbusd_avx_epi32(s[k], a, b));
}
#endif
#endif

enum probe_form probe_form_of(const char *isa)
{
    if (strcmp(isa, "avx2") == 0)
        return PROBE_MADDUBS;
    if (strcmp(isa, "avxvnni") == 0)
        return PROBE_VNNI_256;
    return strcmp(isa, "avx512") == 0 ? PROBE_VNNI_512 : PROBE_NONE;
}

const char *probe_form_name(enum probe_form f)
{
    static const char *const names[] = {
        [PROBE_MADDUBS] = "vpmaddubsw + vpmaddwd + vpaddd, 256 bits",
        [PROBE_VNNI_256] = "vpdpbusd, 256 bits",
        [PROBE_VNNI_512] = "vpdpbusd, 512 bits",
        [PROBE_FMA] = "fused multiply-add, 256 bits",
    };
    return names[f];
}

/* The loop of a form and the multiply-adds of one of its rounds. */
static probe_fn *form_loop(enum probe_form f, double *unit)
{
    *unit = 0;
#if defined(__x86_64__)
    switch (f) {
    case PROBE_MADDUBS:
        *unit = 32.0 * SUMS;
        return __builtin_cpu_supports("avx2") ? macs_maddubs : NULL;
    case PROBE_FMA:
        *unit = 8.0 * SUMS;
        return __builtin_cpu_supports("fma") ? macs_fma : NULL;
    case PROBE_VNNI_512:
        *unit = 64.0 * SUMS;
        return __builtin_cpu_supports("avx512vnni") ? macs_vnni : NULL;
#ifdef HAVE_VNNI_256
    case PROBE_VNNI_256:
        *unit = 32.0 * SUMS;
        return macs_vnni_256; /* the caller's tier says that it runs */
#endif
    default:
        break;
    }
#endif
    (void)f;
    return NULL;
}

struct round {
    probe_fn *fn;
    const char *p;
    size_t n; /* of each thread */
    uint64_t kept[TEAM_MAX];
};

static void run_part(void *arg, int32_t thread, int32_t threads)
{
    struct round *r = arg;
    (void)threads;
    r->kept[thread] ^= r->fn(r->p ? r->p + (size_t)thread * r->n : NULL, r->n);
}

static double best_seconds(struct team *t, struct round *r, double seconds)
{
    const double start = clock_now();
    double best = 0, now = start;
    for (int i = 0; i < 2 || now - start < seconds; i++) {
        const double before = clock_now();
        team_run(t, run_part, r);
        now = clock_now();
        if (now > before && (best == 0 || now - before < best))
            best = now - before;
    }
    return best;
}

uint64_t probe_buffer_bytes(void)
{
    const uint64_t want = UINT64_C(256) << 20, available = os_memory_available(NULL);
    uint64_t bytes = available == OS_UNKNOWN || available / 4 > want ? want : available / 4;
    return bytes < UINT64_C(32) << 20 ? UINT64_C(32) << 20 : bytes & ~((UINT64_C(2) << 20) - 1);
}

double probe_read(struct team *t, const void *p, uint64_t bytes, double seconds)
{
    const int32_t threads = team_threads(t);
    struct round r = {.fn = read_plain, .p = p};
    double best = 0;
    r.n = (size_t)(bytes / (uint64_t)threads) / 4096 * 4096;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        r.fn = read_ahead;
        best = best_seconds(t, &r, seconds / 2);
        r.fn = read_wide;
        seconds /= 2;
    }
#endif
    const double s = best_seconds(t, &r, seconds);
    best = best == 0 || (s > 0 && s < best) ? s : best;
    return best > 0 ? (double)r.n * threads / best : 0;
}

double probe_macs(struct team *t, enum probe_form f, double seconds)
{
    double unit;
    struct round r = {.fn = form_loop(f, &unit), .n = 1000000}; /* some milliseconds a round */
    if (!r.fn)
        return 0;
    const double best = best_seconds(t, &r, seconds);
    return best > 0 ? unit * (double)r.n * team_threads(t) / best : 0;
}
