/* Products and prepared activations.
 *
 * 1. Every tier against the scalar one on random and extreme weights and activations: equal bits
 *    for the integer formats, a rounding bound for F32, F16 and BF16.
 * 2. The law: within a tier a (row, token) has the same bits alone, among others, in any row range
 *    and at any address.
 * 3. The scalar product against double precision over the dequantised weights.
 * Weights end at an unreadable page and y is surrounded by marks, so that overruns show. */
#include "alone.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../src/kernels/kernels.h"
#include "../../../src/kernels/matmul_tiers.h"

enum { MAX_TOKENS = 130, MARK = 0x5a };

static const enum format integer_formats[] = {FORMAT_Q4_0,  FORMAT_Q5_0, FORMAT_Q5_1, FORMAT_Q8_0,
                                              FORMAT_MXFP4, FORMAT_Q4_K, FORMAT_Q5_K, FORMAT_Q6_K,
                                              FORMAT_IQ4_NL, FORMAT_IQ4_XS};
static const enum format float_formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16};

/* The tiers of this processor, and last, where it has AVX-512 but not AVX-VNNI, the AVX-VNNI source
 * with the instruction's AVX-512 form. */
static const struct kernels *tier_at(int32_t i)
{
    const struct kernels *k = kernels_tier(i);
#if defined(KERNELS_HAVE_EVEX)
    static struct kernels evex;
    int32_t n = 0;
    bool avxvnni = false;
    if (k != NULL)
        return k;
    for (; (k = kernels_tier(n)) != NULL; n++) {
        avxvnni = avxvnni || strcmp(k->isa, "avxvnni") == 0;
        evex = *k;
    }
    if (i != n || avxvnni || strcmp(evex.isa, "avx512") != 0)
        return NULL;
    evex.isa = "avxvnni (AVX-512 form)";
    evex.matmul = matmul_avxvnni_evex;
    k = &evex;
#endif
    return k;
}

static uint64_t rng_state = 0x9e3779b97f4a7c15u;

static uint32_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 32);
}

static float uniform(void) /* -1 .. 1 */
{
    return (float)(int32_t)rng() * 0x1p-31f;
}

/* ---- weights ---- */

enum fill { FILL_RANDOM, FILL_ZERO, FILL_ONES, FILL_TINY, FILL_HUGE, FILL_BROKEN, FILLS };

static void put_half(uint8_t *p, uint16_t h)
{
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

static uint16_t scale_of(enum fill fill)
{
    uint16_t sign = (uint16_t)(rng() & 0x8000);
    switch (fill) {
    case FILL_RANDOM:
    case FILL_ONES:
        return (uint16_t)(sign | (0x1400 + rng() % 0x1000)); /* about 2^-10 to 2^-6 */
    case FILL_ZERO:
        return sign;
    case FILL_TINY:
        return (uint16_t)(sign | rng() % 0x400); /* subnormal */
    case FILL_HUGE:
        return (uint16_t)(sign | 0x7bff);
    default:
        return (uint16_t)(rng() % 3 ? 0x7c00 + rng() % 2 * 0x200 : 0x2000);
    }
}

static void fill_row(enum format f, uint8_t *row, int32_t cols, enum fill fill)
{
    const struct format_info *info = format_info(f);
    size_t bytes = format_row_bytes(f, (uint64_t)cols);
    if (info->block == 1) {
        for (int32_t c = 0; c < cols; c++) {
            float v = fill == FILL_ZERO ? 0 : fill == FILL_TINY ? uniform() * 1e-7f : uniform();
            uint16_t h = f == FORMAT_F16 ? float_to_half(v) : 0;
            uint32_t u;
            memcpy(&u, &v, 4);
            if (f == FORMAT_BF16)
                h = (uint16_t)(u >> 16);
            if (f == FORMAT_F32)
                memcpy(row + 4 * (size_t)c, &v, 4);
            else
                put_half(row + 2 * (size_t)c, h);
        }
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        row[i] = fill == FILL_ONES ? 0xff : fill == FILL_ZERO ? 0 : (uint8_t)rng();
    if (f == FORMAT_Q8_0 && fill == FILL_HUGE)
        memset(row, 0x80, bytes); /* -128 everywhere */
    for (size_t b = 0; b < bytes; b += (size_t)info->block_bytes) {
        if (f == FORMAT_MXFP4) {
            static const uint8_t edge[4] = {0, 1, 2, 255};
            row[b] = fill == FILL_TINY ? edge[rng() % 4] : (uint8_t)(118 + rng() % 8);
            continue;
        }
        put_half(row + b + (f == FORMAT_Q6_K ? 208 : 0), scale_of(fill));
        if (f == FORMAT_Q5_1 || f == FORMAT_Q4_K || f == FORMAT_Q5_K)
            put_half(row + b + 2, scale_of(fill));
    }
}

/* n bytes that end at an unreadable page; unmapped by guarded_free. */
struct guarded {
    uint8_t *data, *map;
    size_t map_bytes;
};

static struct guarded guarded_alloc(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (n + page - 1) / page * page;
    struct guarded g = {NULL, NULL, body + page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect(g.map + body, page, PROT_NONE), 0);
    g.data = g.map + body - n;
    return g;
}

static void guarded_free(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
}

/* ---- activations ---- */

enum { ACTS = 9 };

static void fill_act(float *x, int32_t cols, int kind)
{
    for (int32_t i = 0; i < cols; i++)
        switch (kind) {
        case 0:
        case 1:
            x[i] = uniform() * uniform() * 3;
            break;
        case 2:
            x[i] = 1; /* every level 127 */
            break;
        case 3:
            x[i] = i & 1 ? -2.5f : 2.5f;
            break;
        case 4:
            x[i] = 0;
            break;
        case 5:
            x[i] = uniform() * (i / 32 & 1 ? 1e-39f : 1e-29f); /* held as zeros, or just not */
            break;
        case 6:
            x[i] = i % 97 == 5 ? 3e34f : uniform();
            break;
        case 7:
            x[i] = (float)((int32_t)(rng() % 255) - 127) / 2; /* many ties of rounding */
            break;
        default:
            x[i] = i == cols / 2 ? (rng() & 1 ? NAN : -INFINITY) : uniform();
            break;
        }
    if (kind == 7)
        for (int32_t i = 0; i < cols; i += 32)
            x[i] = 127; /* scale 1: x.5 are ties */
}

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void *aligned(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 64, bytes ? bytes : 64), 0);
    memset(p, MARK, bytes);
    return p;
}

/* Levels, scales and sums of one row, by the definition in docs/kernels.md. */
static void check_prepared(enum act_kind kind, const float *x, const char *act, int32_t cols)
{
    int32_t group = kind == ACT_Q8_32 ? 32 : 256, part = kind == ACT_Q8_32 ? 32 : 16;
    size_t at_scale = ((size_t)cols + 63) / 64 * 64;
    size_t at_sums = at_scale + ((size_t)(cols / group) * 4 + 63) / 64 * 64;
    size_t end = at_sums + ((size_t)(cols / part) * 2 + 63) / 64 * 64;
    assert_int_equal(act_row_bytes(kind, cols), end);
    const int8_t *q = (const int8_t *)act;
    const float *scale = (const float *)(act + at_scale);
    const int16_t *sums = (const int16_t *)(act + at_sums);
    for (int32_t g = 0; g < cols / group; g++) {
        float amax = 0;
        bool finite = true;
        for (int32_t i = 0; i < group; i++) {
            finite = finite && isfinite(x[g * group + i]);
            amax = fmaxf(amax, fabsf(x[g * group + i]));
        }
        bool zero = !finite || amax < 0x1p-100f;
        if (!finite)
            assert_true(isnan(scale[g]));
        else
            assert_true(scale[g] == (zero ? 0 : amax / 127));
        for (int32_t i = g * group; i < (g + 1) * group; i++)
            assert_int_equal(q[i], zero ? 0 : (int)nearbyintf(x[i] * (127 / amax)));
    }
    for (int32_t p = 0; p < cols / part; p++) {
        int sum = 0;
        for (int32_t i = p * part; i < (p + 1) * part; i++)
            sum += q[i];
        assert_int_equal(sums[p], sum);
    }
    for (size_t i = (size_t)cols; i < at_scale; i++)
        assert_int_equal(act[i], 0);
    for (size_t i = at_scale + (size_t)(cols / group) * 4; i < at_sums; i++)
        assert_int_equal(act[i], 0);
    for (size_t i = at_sums + (size_t)(cols / part) * 2; i < end; i++)
        assert_int_equal(act[i], 0);
}

static void test_act_prepare(void **state)
{
    (void)state;
    static const int32_t widths[] = {32, 64, 96, 256, 512, 640, 768, 2304};
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
        for (int kind = 0; kind < ACTS; kind++) {
            int32_t cols = widths[w];
            float *x = aligned((size_t)cols * 4);
            fill_act(x, cols, kind);
            for (int a = 0; a < 3; a++) {
                enum act_kind act = a == 0 ? ACT_Q8_32 : a == 1 ? ACT_Q8_256 : ACT_F32;
                if (act == ACT_Q8_256 && cols % 256 != 0)
                    continue;
                size_t bytes = act_row_bytes(act, cols);
                char *want = aligned(bytes), *got = aligned(bytes);
                const struct kernels *k;
                tier_at(0)->act_prepare(act, x, want, cols);
                if (act == ACT_F32)
                    assert_true(memcmp(want, x, (size_t)cols * 4) == 0);
                else
                    check_prepared(act, x, want, cols);
                for (int32_t t = 1; (k = tier_at(t)) != NULL; t++) {
                    memset(got, MARK, bytes);
                    k->act_prepare(act, x, got, cols);
                    if (memcmp(got, want, bytes) != 0)
                        fail_msg("%s: activations of kind %d, %d columns, case %d differ", k->isa,
                                 a, cols, kind);
                }
                free(want);
                free(got);
            }
            free(x);
        }
    /* An odd width of floats, padded with zeros. */
    float x[5] = {1, 2, 3, 4, 5};
    char *got = aligned(64);
    const struct kernels *k;
    for (int32_t t = 0; (k = tier_at(t)) != NULL; t++) {
        memset(got, MARK, 64);
        k->act_prepare(ACT_F32, x, got, 5);
        assert_true(memcmp(got, x, sizeof x) == 0);
        for (int i = 20; i < 64; i++)
            assert_int_equal(got[i], 0);
    }
    free(got);
}

/* ---- products ---- */

struct problem {
    struct matmul m;
    struct guarded w;
    float *x, *y;
    void *act, *scratch;
};

static struct problem problem_new(enum format f, int32_t rows, int32_t cols, int32_t tokens,
                                  int32_t gap, int seed)
{
    struct problem p;
    const struct format_info *info = format_info(f);
    size_t row = format_row_bytes(f, (uint64_t)cols), stride = row + (size_t)gap;
    p.w = guarded_alloc(stride * (size_t)(rows - 1) + row);
    for (int32_t r = 0; r < rows; r++)
        fill_row(f, p.w.data + stride * (size_t)r, cols,
                 seed < FILLS ? (enum fill)seed : FILL_RANDOM);
    size_t act_bytes = act_row_bytes(info->act, cols) + (seed & 1 ? 64 : 0);
    p.x = aligned((size_t)cols * (size_t)tokens * 4);
    p.act = aligned(act_bytes * (size_t)tokens);
    for (int32_t t = 0; t < tokens; t++) {
        int kind = (t + seed) % (info->block == 1 ? 5 : ACTS);
        float *x = p.x + (size_t)t * (size_t)cols;
        fill_act(x, cols, kind);
        tier_at(0)->act_prepare(info->act, x, (char *)p.act + act_bytes * (size_t)t, cols);
    }
    size_t y_stride = (size_t)rows + 3;
    p.y = aligned((y_stride * (size_t)tokens + 64) * 4);
    p.scratch = aligned(matmul_scratch_bytes(cols, tokens));
    p.m = (struct matmul){f, p.w.data, stride, rows, cols, p.act, act_bytes, tokens, p.y, y_stride};
    return p;
}

static void problem_free(struct problem *p)
{
    guarded_free(&p->w);
    free(p->x);
    free(p->y);
    free(p->act);
    free(p->scratch);
}

/* Runs the whole product into a fresh array of tokens * y_stride floats; checks the marks. */
static float *run_whole(const struct problem *p, const struct kernels *k)
{
    struct matmul m = p->m;
    size_t n = m.y_stride * (size_t)m.tokens + 32;
    float *y = aligned(n * 4);
    m.y = y + 16;
    k->matmul(&m, 0, m.rows, p->scratch);
    for (size_t i = 0; i < n; i++) {
        size_t at = i - 16;
        if (i >= 16 && i < n - 16 && at % m.y_stride < (size_t)m.rows)
            continue;
        uint32_t u;
        memcpy(&u, &y[i], 4);
        assert_true(u == 0x5a5a5a5au);
    }
    float *out = aligned((n - 32) * 4);
    memcpy(out, y + 16, (n - 32) * 4);
    free(y);
    return out;
}

static void compare(const struct problem *p, const float *got, const float *want, const char *what,
                    double tolerance)
{
    for (int32_t t = 0; t < p->m.tokens; t++)
        for (int32_t r = 0; r < p->m.rows; r++) {
            float a = got[(size_t)t * p->m.y_stride + (size_t)r];
            float b = want[(size_t)t * p->m.y_stride + (size_t)r];
            if (same_bits(a, b) || (tolerance > 0 && fabs((double)a - (double)b) <= tolerance))
                continue;
            fail_msg("%s: %s, %d x %d, %d tokens: row %d token %d is %.9g, not %.9g", what,
                     format_info(p->m.format)->name, p->m.rows, p->m.cols, p->m.tokens, r, t,
                     (double)a, (double)b);
        }
}

static void check_tiers(const struct problem *p, double tolerance)
{
    float *want = run_whole(p, tier_at(0));
    const struct kernels *k;
    for (int32_t t = 1; (k = tier_at(t)) != NULL; t++) {
        float *got = run_whole(p, k);
        compare(p, got, want, k->isa, tolerance);
        free(got);
    }
    free(want);
}

/* Pieces of the product, in calls of other shapes, give the bits of the whole. */
static void check_law(const struct problem *p)
{
    const struct kernels *k;
    for (int32_t tier = 0; (k = tier_at(tier)) != NULL; tier++) {
        float *want = run_whole(p, k), *got = run_whole(p, k);
        memset(got, MARK, p->m.y_stride * (size_t)p->m.tokens * 4);
        for (int32_t t0 = 0, nt = 1; t0 < p->m.tokens; t0 += nt, nt = nt % 7 + 1) {
            struct matmul m = p->m;
            m.tokens = m.tokens - t0 < nt ? m.tokens - t0 : nt;
            m.act = (const char *)m.act + m.act_stride * (size_t)t0;
            m.y = got + m.y_stride * (size_t)t0;
            for (int32_t r0 = 0, nr = t0 % 5 + 1; r0 < m.rows; r0 += nr, nr = nr % 5 + 1)
                k->matmul(&m, r0, m.rows - r0 < nr ? m.rows : r0 + nr, p->scratch);
        }
        compare(p, got, want, k->isa, 0);
        free(want);
        free(got);
    }
}

static void test_tiers_integer(void **state)
{
    (void)state;
    static const int32_t blocks[] = {1, 2, 3, 7, 8, 9, 20, 33, 65, 150};
    for (size_t f = 0; f < sizeof integer_formats / sizeof integer_formats[0]; f++) {
        enum format format = integer_formats[f];
        int32_t block = format_info(format)->block, n = block == 32 ? 10 : 7;
        for (int32_t b = 0; b < n; b++)
            for (int seed = 0; seed < 12; seed++) {
                /* Every count of rows 1..9 and of tokens 1..17 comes up, and larger ones. */
                int32_t rows = 1 + (b + seed) % 9, tokens = 1 + (seed * 5 + b * 3) % 17;
                if (seed == 9)
                    rows = 41;
                struct problem p = problem_new(format, rows, block * blocks[b], tokens,
                                               seed % 3 == 2 ? 5 : 0, seed);
                check_tiers(&p, 0);
                problem_free(&p);
            }
        for (int32_t tokens = 1; tokens <= 18; tokens++) {
            struct problem p = problem_new(format, tokens % 9 + 1, 2 * block, tokens, 0, 13);
            check_tiers(&p, 0);
            problem_free(&p);
        }
        for (int32_t rows = 1; rows <= 36; rows += 5) {
            struct problem p = problem_new(format, rows, 3 * block, 2, 1, 13);
            check_tiers(&p, 0);
            problem_free(&p);
        }
        /* More than one panel of columns: of one token, of a few, and of many. */
        for (int32_t tokens = 1; tokens <= 3; tokens++) {
            struct problem p = problem_new(format, 9, 65536 + 768, tokens, 0, 12);
            check_tiers(&p, 0);
            problem_free(&p);
        }
        struct problem p = problem_new(format, 18, 8448, MAX_TOKENS, 0, 14);
        check_tiers(&p, 0);
        problem_free(&p);
    }
}

static void test_law(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof integer_formats / sizeof integer_formats[0]; f++)
        for (int seed = 12; seed < 15; seed++) {
            int32_t cols = seed == 14 ? 5120 : 768;
            struct problem p =
                problem_new(integer_formats[f], 37, cols, 67, seed == 13 ? 3 : 0, seed);
            check_law(&p);
            problem_free(&p);
        }
    static const int32_t widths[] = {1, 7, 16, 64, 172, 640, 4100};
    for (size_t f = 0; f < 3; f++)
        for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
            struct problem p = problem_new(float_formats[f], 19, widths[w], 35, w & 1 ? 3 : 0, 0);
            check_law(&p);
            problem_free(&p);
        }
}

/* The float formats against double precision: sixteen lanes of n / 16 additions, then four. */
static void test_floats(void **state)
{
    (void)state;
    static const int32_t widths[] = {1, 2, 15, 16, 17, 31, 64, 172, 288, 640, 2048, 4100};
    for (size_t f = 0; f < 3; f++)
        for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
            for (int seed = 0; seed < 4; seed++) {
                int32_t cols = widths[w], rows = 1 + (int32_t)(w + (size_t)seed * 4) % 13;
                int32_t tokens = 1 + (seed * 7 + (int32_t)w) % 17;
                struct problem p =
                    problem_new(float_formats[f], rows, cols, tokens, seed == 2, seed);
                float *values = aligned((size_t)cols * 4);
                const struct kernels *k;
                for (int32_t tier = 0; (k = tier_at(tier)) != NULL; tier++) {
                    float *got = run_whole(&p, k);
                    for (int32_t r = 0; r < rows; r++) {
                        k->dequant(p.m.format, p.w.data + p.m.row_bytes * (size_t)r, values, cols);
                        for (int32_t t = 0; t < tokens; t++) {
                            const float *x = p.x + (size_t)t * (size_t)cols;
                            double sum = 0, size = 0;
                            for (int32_t c = 0; c < cols; c++) {
                                sum += (double)values[c] * x[c];
                                size += fabs((double)values[c] * x[c]);
                            }
                            double y = got[(size_t)t * p.m.y_stride + (size_t)r];
                            double bound = (cols / 16 + 6) * 0x1p-24 * size + 1e-44 * cols;
                            if (!(fabs(y - sum) <= bound))
                                fail_msg("%s %s %d columns: %.9g, not %.9g", k->isa,
                                         format_info(p.m.format)->name, cols, y, sum);
                            if (cols >= 640 && cols <= 2048 && !(fabs(y - sum) <= 1e-6 * size))
                                fail_msg("%s: worse than 1e-6: %.9g, not %.9g", k->isa, y, sum);
                        }
                    }
                    free(got);
                }
                free(values);
                problem_free(&p);
            }
}

/* A NaN or an infinity in one activation row reaches exactly that token. */
static void test_broken_activations(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof integer_formats / sizeof integer_formats[0]; f++) {
        struct problem p = problem_new(integer_formats[f], 5, 512, 9, 0, 0);
        const struct kernels *k;
        for (int32_t tier = 0; (k = tier_at(tier)) != NULL; tier++) {
            float *y = run_whole(&p, k);
            for (int32_t t = 0; t < 9; t++)
                for (int32_t r = 0; r < 5; r++)
                    assert_int_equal(isnan(y[(size_t)t * p.m.y_stride + (size_t)r]) != 0, t == 8);
            free(y);
        }
        problem_free(&p);
    }
}

/* The integer formats against double precision: each activation is off by at most half a level. */
static void test_quantisation_bound(void **state)
{
    (void)state;
    for (size_t f = 0; f < sizeof integer_formats / sizeof integer_formats[0]; f++) {
        enum format format = integer_formats[f];
        int32_t cols = 1536, rows = 6, tokens = 8;
        int32_t group = format_info(format)->act == ACT_Q8_32 ? 32 : 256;
        struct problem p = problem_new(format, rows, cols, tokens, 0, 0);
        float *values = aligned((size_t)cols * 4), *y = run_whole(&p, tier_at(0));
        double worst = 0;
        for (int32_t r = 0; r < rows; r++) {
            tier_at(0)->dequant(format, p.w.data + p.m.row_bytes * (size_t)r, values, cols);
            for (int32_t t = 0; t < tokens; t++) {
                const float *x = p.x + (size_t)t * (size_t)cols;
                double sum = 0, bound = 0;
                for (int32_t g = 0; g < cols; g += group) {
                    double amax = 0;
                    for (int32_t c = g; c < g + group; c++)
                        amax = fmax(amax, fabs((double)x[c]));
                    for (int32_t c = g; c < g + group; c++) {
                        sum += (double)values[c] * x[c];
                        /* Half a level, and the roundings of scale, level and sums. A K format's
                         * minimum part is summed apart, so its terms count too: within 64 of w. */
                        bound += fabs((double)values[c]) * (amax / 127 * 0.5001) + 1e-7 * amax;
                    }
                }
                double got = y[(size_t)t * p.m.y_stride + (size_t)r];
                if (!(fabs(got - sum) <= bound))
                    fail_msg("%s row %d token %d: %.9g, not %.9g within %.3g",
                             format_info(format)->name, r, t, got, sum, bound);
                if (t < 2 && bound > 0)
                    worst = fmax(worst, fabs(got - sum) / bound);
            }
        }
        assert_true(worst > 1e-4); /* the bound is not so wide that nothing could break it */
        free(values);
        free(y);
        problem_free(&p);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_act_prepare),        cmocka_unit_test(test_quantisation_bound),
        cmocka_unit_test(test_broken_activations), cmocka_unit_test(test_floats),
        cmocka_unit_test(test_tiers_integer),      cmocka_unit_test(test_law),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
