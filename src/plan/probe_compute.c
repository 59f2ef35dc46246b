/* The probes of probe_compute.h. Owns the loops that are timed: one function per instruction set,
 * compiled for it alone and run only where the tier of that name runs. Each gives back something that
 * depends on its work, so that no compiler drops it. Names processors; knows no kernel.
 * Thread rule: as the header says; a probe opens a team of its own. */
#include "probe_compute.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/clock.h"
#include "../base/team.h"
#include "../kernels/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ROUNDS_MOST  256
#define ROUNDS_LEAST 3
#define READ_CHUNK   (INT64_C(1) << 20) /* handed to a thread at a time */
#define READ_LEAST   (UINT64_C(256) << 20)
#define READ_MOST    (UINT64_C(2) << 30)
#define STEPS        300000 /* of an arithmetic loop per round: around a millisecond */
#define CHAINS       12     /* sums that do not depend on each other: more than latency times ports */

/* ---- rounds ---- */

typedef uint64_t read_fn(const char *p, size_t n);
typedef uint64_t compute_fn(int64_t steps);

struct probe {
    read_fn *read;
    const char *memory;
    compute_fn *compute;
    _Atomic uint64_t sink; /* what the loops give back ends here */
};

static void read_part(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    struct probe *p = arg;
    (void)thread;
    atomic_fetch_xor(&p->sink, p->read(p->memory + begin, (size_t)(end - begin)));
}

static void compute_part(void *arg, int32_t thread, int32_t threads)
{
    struct probe *p = arg;
    (void)thread;
    (void)threads;
    atomic_fetch_xor(&p->sink, p->compute(STEPS));
}

/* Rounds until the time is over. */
static int32_t rounds_run(struct probe *p, struct team *t, int64_t bytes, double time_s,
                          double *seconds)
{
    const double start = clock_now();
    double now = start;
    int32_t n = 0;
    while (n < ROUNDS_MOST && (n < ROUNDS_LEAST || now - start < time_s)) {
        const double before = now;
        if (p->read)
            team_for(t, bytes, READ_CHUNK, read_part, p);
        else
            team_run(t, compute_part, p);
        now = clock_now();
        seconds[n++] = now > before ? now - before : 1e-9;
    }
    return n;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* seconds[0..n): of rounds that each did `work` units. */
static void fact_fill(double *seconds, int32_t n, double work, struct compute_fact *out)
{
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    out->best_per_s = work / seconds[0];
    out->median_per_s = work / seconds[n / 2];
    out->rounds = n;
}

/* ---- reading ---- */

static uint64_t read_plain(const char *p, size_t n)
{
    uint64_t s[4] = {0}, w[4];
    for (size_t i = 0; i + sizeof w <= n; i += sizeof w) {
        memcpy(w, p + i, sizeof w);
        for (int k = 0; k < 4; k++)
            s[k] += w[k];
    }
    return s[0] ^ s[1] ^ s[2] ^ s[3];
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) static uint64_t fold256(__m256i s)
{
    const __m128i x = _mm_xor_si128(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    return (uint64_t)_mm_cvtsi128_si64(x) ^ (uint64_t)_mm_extract_epi64(x, 1);
}

#define LOAD256(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define READ(name, before)                                                                         \
    __attribute__((target("avx2"))) static uint64_t name(const char *p, size_t n)                  \
    {                                                                                              \
        __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;                                   \
        for (size_t i = 0; i + 128 <= n; i += 128) {                                               \
            before;                                                                                \
            a = _mm256_xor_si256(a, LOAD256(p + i));                                               \
            b = _mm256_xor_si256(b, LOAD256(p + i + 32));                                          \
            c = _mm256_xor_si256(c, LOAD256(p + i + 64));                                          \
            d = _mm256_xor_si256(d, LOAD256(p + i + 96));                                          \
        }                                                                                          \
        return fold256(_mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)));          \
    }
READ(read_avx2, (void)0)
/* Some processors reach what their memory gives only when the program itself fetches ahead. */
READ(read_ahead_avx2,
     (_mm_prefetch(p + i + 4096, _MM_HINT_T0), _mm_prefetch(p + i + 4160, _MM_HINT_T0)))

#endif

struct read_form {
    read_fn *fn;
    const char *source;
};

#define READ_FORMS 2

static int32_t read_forms(struct read_form forms[READ_FORMS])
{
    forms[0] = (struct read_form){read_plain, "reads of 8 bytes"};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        forms[0] = (struct read_form){read_avx2, "reads of 32 bytes"};
        forms[1] = (struct read_form){read_ahead_avx2, "reads of 32 bytes, fetching 4 KiB ahead"};
        return 2;
    }
#endif
    return 1;
}

uint64_t probe_memory_bytes(uint64_t most)
{
    long largest = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE), l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    largest = l3 > l2 ? l3 : l2;
#endif
    const uint64_t cache = largest > 0 ? (uint64_t)largest : UINT64_C(16) << 20;
    uint64_t bytes = cache * 8 > READ_LEAST ? cache * 8 : READ_LEAST;
    bytes = bytes < READ_MOST ? bytes : READ_MOST;
    bytes = bytes < most ? bytes : most;
    bytes = bytes >> 21 << 21; /* whole huge pages */
    return bytes / 4 >= cache ? bytes : 0;
}

static const char missing_threads[] = "the threads could not be started";

void probe_memory_read(const void *memory, uint64_t bytes, int32_t threads, double time_s,
                       struct compute_fact *out)
{
    const double start = clock_now();
    struct read_form forms[READ_FORMS];
    double seconds[ROUNDS_MOST];
    struct team *t;
    const int32_t n_forms = read_forms(forms);
    *out = (struct compute_fact){.unit = "bytes", .threads = threads};
    if (team_open(threads, &t, NULL) < 0) {
        out->missing = missing_threads;
        return;
    }
    for (int32_t i = 0; i < n_forms; i++) { /* the limit is what the best of them reaches */
        struct probe p = {.read = forms[i].fn, .memory = memory};
        struct compute_fact f = *out;
        const int32_t n = rounds_run(&p, t, (int64_t)bytes, time_s / n_forms, seconds);
        fact_fill(seconds, n, (double)bytes, &f);
        f.source = forms[i].source;
        if (f.best_per_s > out->best_per_s)
            *out = f;
    }
    team_close(t);
    out->spent_s = clock_now() - start;
}

/* ---- computing ---- */

#if defined(__x86_64__)

/* Twelve sums; HIDE before each product keeps the compiler from working out one for all of them. */
#define REPEAT(do_)                                                                                \
    do_(0) do_(1) do_(2) do_(3) do_(4) do_(5) do_(6) do_(7) do_(8) do_(9) do_(10) do_(11)
_Static_assert(CHAINS == 12, "REPEAT");

#define HIDE     __asm__ volatile("" : "+x"(a))
#define HIDE_ZMM __asm__ volatile("" : "+v"(a))

#define DECLARE(k) s##k = zero,
#define LOOP(type, name, isa, zero_, a_, b_, term, join, fold)                                     \
    __attribute__((target(isa))) static uint64_t name(int64_t steps)                               \
    {                                                                                              \
        const type zero = zero_;                                                                   \
        type a = a_, REPEAT(DECLARE) b = b_;                                                       \
        for (int64_t i = 0; i < steps; i++) {                                                      \
            REPEAT(term)                                                                           \
        }                                                                                          \
        s0 = join(join(join(s0, s1), join(s2, s3)), join(join(s4, s5), join(s6, s7)));             \
        return fold(join(s0, join(join(s8, s9), join(s10, s11))));                                 \
    }

static uint64_t fold128(__m128i s)
{
    return (uint64_t)_mm_cvtsi128_si64(s);
}

static uint64_t fold_ps(__m128 s)
{
    return fold128(_mm_castps_si128(s));
}

__attribute__((target("avx"))) static uint64_t fold_ps256(__m256 s)
{
    return fold_ps(_mm256_castps256_ps128(s));
}

__attribute__((target("avx512f"))) static uint64_t fold512(__m512i s)
{
    return fold128(_mm512_castsi512_si128(s));
}

__attribute__((target("avx512f"))) static uint64_t fold_ps512(__m512 s)
{
    return fold_ps(_mm512_castps512_ps128(s));
}

#define PMADDWD(k)                                                                                 \
    HIDE;                                                                                          \
    s##k = _mm_add_epi32(s##k, _mm_madd_epi16(a, b));
LOOP(__m128i, int8_sse2, "sse2", _mm_setzero_si128(), _mm_set1_epi16(3), _mm_set1_epi16(5),
     PMADDWD, _mm_add_epi32, fold128)

#define MADDUBS(k)                                                                                 \
    HIDE;                                                                                          \
    s##k = _mm256_add_epi32(                                                                       \
        s##k, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
LOOP(__m256i, int8_avx2, "avx2", _mm256_setzero_si256(), _mm256_set1_epi8(3), _mm256_set1_epi8(5),
     MADDUBS, _mm256_add_epi32, fold256)

#if defined(PROBE_HAVE_AVXVNNI)
#define DPBUSD256(k)                                                                               \
    HIDE;                                                                                          \
    s##k = _mm256_dpbusd_avx_epi32(s##k, a, b);
LOOP(__m256i, int8_avxvnni, "avx2,avxvnni", _mm256_setzero_si256(), _mm256_set1_epi8(3),
     _mm256_set1_epi8(5), DPBUSD256, _mm256_add_epi32, fold256)
#endif

#define DPBUSD512(k)                                                                               \
    HIDE_ZMM;                                                                                      \
    s##k = _mm512_dpbusd_epi32(s##k, a, b);
LOOP(__m512i, int8_avx512, "avx512f,avx512vnni", _mm512_setzero_si512(),
     _mm512_set1_epi32(0x03030303), _mm512_set1_epi32(0x05050505), DPBUSD512, _mm512_add_epi32,
     fold512)

#define MULADD(k)                                                                                  \
    HIDE;                                                                                          \
    s##k = _mm_add_ps(s##k, _mm_mul_ps(a, b));
LOOP(__m128, f32_sse2, "sse2", _mm_setzero_ps(), _mm_set1_ps(0.5f), _mm_set1_ps(0.25f), MULADD,
     _mm_add_ps, fold_ps)

#define FMA256(k)                                                                                  \
    HIDE;                                                                                          \
    s##k = _mm256_fmadd_ps(a, b, s##k);
LOOP(__m256, f32_avx2, "avx2,fma", _mm256_setzero_ps(), _mm256_set1_ps(0.5f),
     _mm256_set1_ps(0.25f), FMA256, _mm256_add_ps, fold_ps256)

#define FMA512(k)                                                                                  \
    HIDE_ZMM;                                                                                      \
    s##k = _mm512_fmadd_ps(a, b, s##k);
LOOP(__m512, f32_avx512, "avx512f", _mm512_setzero_ps(), _mm512_set1_ps(0.5f),
     _mm512_set1_ps(0.25f), FMA512, _mm512_add_ps, fold_ps512)

#endif

/* avxvnni and avx512 hold what avx2 has; scalar is the baseline of the architecture. */
static const struct compute_form {
    const char *isa;
    enum compute_kind kind;
    double per_step; /* multiply-adds of one chain */
    compute_fn *fn;
    const char *source;
} known_forms[] = {
#if defined(__x86_64__)
    {"scalar", COMPUTE_INT8, 8, int8_sse2, "pmaddwd + paddd, 128 bit"},
    {"scalar", COMPUTE_F32, 4, f32_sse2, "mulps + addps, 128 bit"},
    {"avx2", COMPUTE_INT8, 32, int8_avx2, "vpmaddubsw + vpmaddwd + vpaddd, 256 bit"},
    {"avx2", COMPUTE_F32, 8, f32_avx2, "vfmadd, 256 bit"},
#if defined(PROBE_HAVE_AVXVNNI)
    {"avxvnni", COMPUTE_INT8, 32, int8_avxvnni, "vpdpbusd, 256 bit"},
#endif
    {"avxvnni", COMPUTE_F32, 8, f32_avx2, "vfmadd, 256 bit"},
    {"avx512", COMPUTE_INT8, 64, int8_avx512, "vpdpbusd, 512 bit"},
    {"avx512", COMPUTE_F32, 16, f32_avx512, "vfmadd, 512 bit"},
#endif
    {NULL, COMPUTE_INT8, 0, NULL, NULL},
};

static bool isa_runs(const char *isa)
{
    const struct kernels *k;
    for (int32_t i = 0; (k = kernels_tier(i)); i++)
        if (strcmp(k->isa, isa) == 0)
            return true;
    return false;
}

void probe_multiply_add(const char *isa, enum compute_kind kind, int32_t threads, double time_s,
                        struct compute_fact *out)
{
    const double start = clock_now();
    const struct compute_form *f = known_forms;
    double seconds[ROUNDS_MOST];
    struct team *t = NULL;
    *out = (struct compute_fact){.unit = "multiply-adds", .threads = threads};
    while (f->isa && (strcmp(f->isa, isa) != 0 || f->kind != kind))
        f++;
    if (!isa_runs(isa))
        out->missing = "this processor, or this build, does not have the instruction set";
    else if (!f->isa)
        out->missing = "there is no measure for this instruction set";
    else if (team_open(threads, &t, NULL) < 0)
        out->missing = missing_threads;
    if (out->missing)
        return;
    struct probe p = {.compute = f->fn};
    const int32_t n = rounds_run(&p, t, 0, time_s, seconds);
    team_close(t);
    fact_fill(seconds, n, f->per_step * CHAINS * STEPS * threads, out);
    out->source = f->source;
    out->spent_s = clock_now() - start;
}
