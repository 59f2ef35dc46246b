/* The tables of kernels, one per instruction set, and the choice among them by what the processor
 * and the operating system support. A wider tier starts as a copy of the one below and overwrites
 * what it has. The tables are filled once and never change; any thread may ask for them. */
#include "kernels.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "matmul_tiers.h"
#include "ops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

/* Instruction sets beyond the architecture's baseline, as bits. */
enum feature {
    FEATURE_AVX2 = 1, /* AVX2 + FMA + F16C, with the system saving ymm registers */
    FEATURE_AVXVNNI = 2,
    FEATURE_AVX512 = 4,  /* AVX-512 F, BW, VL, DQ, VNNI, with zmm saved too */
    FEATURE_DOTPROD = 8, /* ARM: Advanced SIMD with dot products */
    FEATURE_I8MM = 16,   /* ARM: and with 8-bit matrix products */
};

enum { TIERS = 6 };

struct tier {
    const char *name, *needs;
    unsigned features;
    void (*fill)(struct kernels *k);
};

static struct kernels tables[TIERS];
static int32_t tables_n;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static unsigned features_of_processor(void)
{
    unsigned features = 0;
#if defined(__x86_64__)
    unsigned a, b, c, d, b7, c7;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    unsigned leaf1 = c;
    if (!(leaf1 & bit_OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b7, &c7, &d))
        return 0;
    unsigned saved, high;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & 6) == 6 && (leaf1 & bit_AVX) && (leaf1 & bit_FMA) && (leaf1 & bit_F16C) &&
        (b7 & bit_AVX2))
        features |= FEATURE_AVX2;
    unsigned wide = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if ((features & FEATURE_AVX2) && (saved & 0xe6) == 0xe6 && (b7 & wide) == wide &&
        (c7 & bit_AVX512VNNI))
        features |= FEATURE_AVX512;
    unsigned a1; /* AVX-VNNI: leaf 7, subleaf 1, EAX bit 4 */
    if ((features & FEATURE_AVX2) && a >= 1 && __get_cpuid_count(7, 1, &a1, &b, &c, &d) &&
        (a1 >> 4 & 1))
        features |= FEATURE_AVXVNNI;
#elif defined(__aarch64__) && defined(__linux__)
    /* Bits of the kernel's ABI (arch/arm64 hwcap.h): ASIMDDP is 20 of the first word, I8MM 13 of the second. */
    if (getauxval(AT_HWCAP) >> 20 & 1)
        features |= FEATURE_DOTPROD;
    if ((features & FEATURE_DOTPROD) && (getauxval(AT_HWCAP2) >> 13 & 1))
        features |= FEATURE_I8MM;
#endif
    return features;
}

static void fill_scalar(struct kernels *k)
{
    ops_fill_scalar(k);
    k->act_prepare = act_prepare_scalar;
    k->matmul = matmul_scalar;
    k->dequant = dequant_scalar;
}

#if defined(KERNELS_HAVE_AVX2)
static void fill_avx2(struct kernels *k)
{
    ops_fill_avx2(k);
    k->act_prepare = act_prepare_avx2;
    k->matmul = matmul_avx2;
}
#endif

#if defined(KERNELS_HAVE_AVXVNNI)
static void fill_avxvnni(struct kernels *k)
{
    k->matmul = matmul_avxvnni;
}
#endif

#if defined(KERNELS_HAVE_AVX512)
static void fill_avx512(struct kernels *k)
{
    ops_fill_avx512(k);
    k->matmul = matmul_avx512;
}
#endif

#if defined(KERNELS_HAVE_NEON)
static void fill_neon(struct kernels *k)
{
    ops_fill_neon(k);
    k->act_prepare = act_prepare_neon;
    k->matmul = matmul_neon;
}

static void fill_i8mm(struct kernels *k)
{
    k->matmul = matmul_i8mm;
}
#endif

/* fill is NULL for a tier that this build was made without. */
static const struct tier tiers[TIERS] = {
    {"scalar", "", 0, fill_scalar},
#if defined(KERNELS_HAVE_AVX2)
    {"avx2", "AVX2, FMA and F16C", FEATURE_AVX2, fill_avx2},
#else
    {"avx2", "AVX2, FMA and F16C", FEATURE_AVX2, NULL},
#endif
#if defined(KERNELS_HAVE_AVXVNNI)
    {"avxvnni", "AVX2, FMA, F16C and AVX-VNNI", FEATURE_AVX2 | FEATURE_AVXVNNI, fill_avxvnni},
#else
    {"avxvnni", "AVX2, FMA, F16C and AVX-VNNI", FEATURE_AVX2 | FEATURE_AVXVNNI, NULL},
#endif
#if defined(KERNELS_HAVE_AVX512)
    {"avx512", "AVX-512 F, BW, VL, DQ and VNNI", FEATURE_AVX512, fill_avx512},
#else
    {"avx512", "AVX-512 F, BW, VL, DQ and VNNI", FEATURE_AVX512, NULL},
#endif
#if defined(KERNELS_HAVE_NEON)
    {"neon", "ARM Advanced SIMD with dotprod", FEATURE_DOTPROD, fill_neon},
    {"i8mm", "ARM Advanced SIMD with dotprod and i8mm", FEATURE_I8MM, fill_i8mm},
#else
    {"neon", "ARM Advanced SIMD with dotprod", FEATURE_DOTPROD, NULL},
    {"i8mm", "ARM Advanced SIMD with dotprod and i8mm", FEATURE_I8MM, NULL},
#endif
};

size_t kernels_near_bytes = 15 << 10;

/* Larger first-level caches hold more beside what is at work: 23 KiB of 48. */
static void caches_ask(void)
{
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    const long l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE);

    if (l1 >= 16 << 10 && l1 <= 1 << 20)
        kernels_near_bytes = (size_t)l1 / 2 - 1024;
#endif
}

static void tables_fill(void)
{
    caches_ask();
    unsigned have = features_of_processor();
    for (int32_t i = 0; i < TIERS; i++) {
        if (tiers[i].fill == NULL || (tiers[i].features & ~have) != 0)
            continue; /* avx512 needs no avxvnni, both need avx2: features include those below */
        struct kernels *k = &tables[tables_n];
        if (tables_n > 0)
            *k = tables[tables_n - 1];
        k->isa = tiers[i].name;
        tiers[i].fill(k);
        tables_n++;
    }
}

const struct kernels *kernels_tier(int32_t i)
{
    pthread_once(&tables_once, tables_fill);
    return i >= 0 && i < tables_n ? &tables[i] : NULL;
}

int kernels_select(const char *isa, const struct kernels **out, struct leat_error *e)
{
    pthread_once(&tables_once, tables_fill);
    if (isa == NULL || strcmp(isa, "auto") == 0) {
        *out = &tables[tables_n - 1];
        return 0;
    }
    for (int32_t i = 0; i < tables_n; i++)
        if (strcmp(isa, tables[i].isa) == 0) {
            *out = &tables[i];
            return 0;
        }
    const char *best = tables[tables_n - 1].isa;
    for (int32_t i = 0; i < TIERS; i++)
        if (strcmp(isa, tiers[i].name) == 0)
            return error_set(e, LEAT_ERR_UNSUPPORTED,
                             tiers[i].fill == NULL
                                 ? "this build of Leat has no %s kernels (they need %s); the best "
                                   "that runs here is %s, or use auto"
                                 : "this processor lacks what the %s kernels need (%s); the best "
                                   "that runs here is %s, or use auto",
                             isa, tiers[i].needs, best);
    char quoted[64];
    return error_set(
        e, LEAT_ERR_UNSUPPORTED,
        "no instruction set named '%s'; known are auto, scalar, avx2, avxvnni, avx512, "
        "neon, i8mm",
        error_quote(quoted, sizeof quoted, isa, strlen(isa)));
}

size_t matmul_scratch_bytes(int32_t max_cols, int32_t max_tokens)
{
    (void)max_cols; /* wide kernels walk columns and tokens in panels of fixed size */
    (void)max_tokens;
    return MATMUL_SCRATCH_BYTES;
}
