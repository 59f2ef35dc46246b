/* Block formats: the type table, names of what does not run, row sizes, 16-bit conversions, and the
 * values of every format against golden data (tests/golden/formats). */
#include "alone.h"

#include <math.h>

#include "../../../src/kernels/kernels.h"

static void test_table(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        const char *name;
        int32_t block, bytes;
        enum act_kind act;
    } want[] = {
        {0, "F32", 1, 4, ACT_F32},          {1, "F16", 1, 2, ACT_F32},
        {2, "Q4_0", 32, 18, ACT_Q8_32},     {6, "Q5_0", 32, 22, ACT_Q8_32},
        {7, "Q5_1", 32, 24, ACT_Q8_32},     {8, "Q8_0", 32, 34, ACT_Q8_32},
        {12, "Q4_K", 256, 144, ACT_Q8_256}, {13, "Q5_K", 256, 176, ACT_Q8_256},
        {14, "Q6_K", 256, 210, ACT_Q8_256}, {30, "BF16", 1, 2, ACT_F32},
        {39, "MXFP4", 32, 17, ACT_Q8_32},   {20, "IQ4_NL", 32, 18, ACT_Q8_32},
        {23, "IQ4_XS", 256, 136, ACT_Q8_256},
    };
    int running = 0;
    for (uint32_t id = 0; id < 70; id++)
        running += format_info(id) != NULL && format_info(id)->runs;
    assert_int_equal(running, (int)(sizeof want / sizeof want[0]));
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const struct format_info *f = format_info(want[i].id);
        assert_non_null(f);
        assert_string_equal(f->name, want[i].name);
        assert_int_equal(f->block, want[i].block);
        assert_int_equal(f->block_bytes, want[i].bytes);
        assert_int_equal(f->act, want[i].act);
        assert_null(format_foreign_name(want[i].id, NULL));
    }
    assert_true(format_info(28) != NULL && !format_info(28)->runs);
    assert_null(format_info(64));
    assert_null(format_info(UINT32_MAX));
}

static void test_foreign(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        const char *name, *why;
    } want[] = {
        {4, "Q4_2", "retired"},
        {33, "Q4_0_8_8", "retired"},
        {10, "Q2_K", "not supported by this build"},
        {29, "IQ1_M", "not supported by this build"},
        {40, "NVFP4", "not supported by this build"},
        {97, "Q8_0_X4", "written for another program"},
        {139, "IQ4_K", "written for another program"},
        {158, "IQ1_KT", "written for another program"},
        {212, "a row-interleaved format (_R4, _R8 or _R16)", "written for another program"},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const char *why = NULL;
        assert_string_equal(format_foreign_name(want[i].id, &why), want[i].name);
        assert_string_equal(why, want[i].why);
    }
    static const uint32_t unknown[] = {43, 63, 64, 100, 201, 400, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        const char *why = "";
        assert_null(format_foreign_name(unknown[i], &why));
        assert_null(why);
    }
}

static void test_row_bytes(void **state)
{
    (void)state;
    assert_int_equal(format_row_bytes(FORMAT_Q4_K, 2048), 8 * 144);
    assert_int_equal(format_row_bytes(FORMAT_Q5_0, 640), 20 * 22);
    assert_int_equal(format_row_bytes(FORMAT_BF16, 7), 14);
    assert_int_equal(format_row_bytes(FORMAT_Q4_K, 2048 + 32), 0);
    assert_int_equal(format_row_bytes(FORMAT_F32, UINT64_MAX / 2), 0);
    assert_int_equal(format_row_bytes(FORMAT_F32, UINT64_MAX / 4), UINT64_MAX / 4 * 4);
    assert_int_equal(format_row_bytes(63, 256), 0);
}

/* Value of a half from its definition (IEEE 754: sign, 5 bits of exponent, 10 of fraction). */
static double half_value(uint16_t h)
{
    int e = h >> 10 & 31, f = h & 1023;
    double v = e == 0 ? ldexp(f, -24) : ldexp(1024 + f, e - 25);
    return h & 0x8000 ? -v : v;
}

static void test_half_to_float(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = half_to_float((uint16_t)h);
        if ((h & 0x7c00) == 0x7c00) {
            assert_true(h & 0x3ff ? isnan(f) : isinf(f) && !signbit(f) == !(h >> 15));
            continue;
        }
        assert_true((double)f == half_value((uint16_t)h) && !signbit(f) == !(h & 0x8000));
        assert_int_equal(float_to_half(f), h);
    }
}

/* float_to_half lands on the nearest half, on the even one when two are as near. */
static void test_float_to_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = half_value((uint16_t)h),
               high = h == 0x7bff ? 65536 : half_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2); /* exact: one more bit than a half has */
        uint32_t even = h & 1 ? h + 1 : h;
        assert_int_equal(float_to_half(middle), even);
        assert_int_equal(float_to_half(-middle), even | 0x8000);
        assert_int_equal(float_to_half(nextafterf(middle, 0)), h);
        assert_int_equal(float_to_half(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(float_to_half(INFINITY), 0x7c00);
    assert_int_equal(float_to_half(-3e38f), 0xfc00);
    assert_true((float_to_half(NAN) & 0x7fff) > 0x7c00);
    assert_int_equal(float_to_half(-0.0f), 0x8000);
    assert_int_equal(float_to_half(1e-30f), 0);
    assert_true(bf16_to_float(0x3f80) == 1.0f && bf16_to_float(0xc049) == -3.140625f);
}

static void check_golden(const char *name, enum format format)
{
    const char *dir = getenv("LEAT_GOLDEN");
    char path[1024];
    snprintf(path, sizeof path, "%s/formats/%s.bin", dir ? dir : "tests/golden", name);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot open %s (set LEAT_GOLDEN)", path);
    uint32_t head[3];
    assert_int_equal(fread(head, sizeof head, 1, f), 1);
    const struct format_info *info = format_info(format);
    assert_int_equal(head[1], info->block);
    assert_int_equal(head[2], info->block_bytes);
    size_t n = (size_t)head[0] * head[1];
    uint8_t *blocks = malloc((size_t)head[0] * head[2]);
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    assert_int_equal(fread(blocks, head[2], head[0], f), head[0]);
    assert_int_equal(fread(want, sizeof *want, n, f), n);
    fclose(f);
    const struct kernels *k;
    for (int32_t tier = 0; (k = kernels_tier(tier)) != NULL; tier++) {
        k->dequant(format, blocks, got, (int32_t)n);
        for (size_t i = 0; i < n; i++)
            if (memcmp(&got[i], &want[i], sizeof got[i]) != 0)
                fail_msg("%s %s element %zu: %.9g, not %.9g", k->isa, name, i, (double)got[i],
                         (double)want[i]);
    }
    free(blocks);
    free(want);
    free(got);
}

static void test_golden(void **state)
{
    (void)state;
    check_golden("Q4_0", FORMAT_Q4_0);
    check_golden("Q5_0", FORMAT_Q5_0);
    check_golden("Q5_1", FORMAT_Q5_1);
    check_golden("Q8_0", FORMAT_Q8_0);
    check_golden("MXFP4", FORMAT_MXFP4);
    check_golden("Q4_K", FORMAT_Q4_K);
    check_golden("Q5_K", FORMAT_Q5_K);
    check_golden("Q6_K", FORMAT_Q6_K);
    check_golden("IQ4_NL", FORMAT_IQ4_NL);
    check_golden("IQ4_XS", FORMAT_IQ4_XS);
}

static void test_dequant_floats(void **state)
{
    (void)state;
    static const float f32[5] = {1.5f, -0.0f, 1e-40f, 3e38f, -7};
    static const uint16_t f16[4] = {0x3c00, 0x8001, 0x7bff, 0xc500};
    static const uint16_t bf16[4] = {0x3f80, 0x8000, 0x0001, 0xc2f7};
    static const float want16[4] = {1, -0x1p-24f, 65504, -5},
                       wantb[4] = {1, -0.0f, 0x1p-133f, -123.5f};
    float out[5];
    char moved[32]; /* at an odd address */
    const struct kernels *k;
    for (int32_t tier = 0; (k = kernels_tier(tier)) != NULL; tier++) {
        memcpy(moved + 1, f32, sizeof f32);
        k->dequant(FORMAT_F32, moved + 1, out, 5);
        assert_true(memcmp(out, f32, sizeof f32) == 0);
        memcpy(moved + 1, f16, sizeof f16);
        k->dequant(FORMAT_F16, moved + 1, out, 4);
        assert_true(memcmp(out, want16, sizeof want16) == 0);
        memcpy(moved + 1, bf16, sizeof bf16);
        k->dequant(FORMAT_BF16, moved + 1, out, 4);
        assert_true(memcmp(out, wantb, sizeof wantb) == 0);
    }
}

static void test_select(void **state)
{
    (void)state;
    const struct kernels *k = NULL, *best = NULL;
    struct leat_error e = {0};
    assert_int_equal(kernels_select("scalar", &k, &e), 0);
    assert_string_equal(k->isa, "scalar");
    assert_true(kernels_tier(0) == k && kernels_tier(-1) == NULL && kernels_tier(99) == NULL);
    assert_int_equal(kernels_select("auto", &best, &e), 0);
    int32_t n = 0;
    while (kernels_tier(n) != NULL)
        n++;
    assert_true(kernels_tier(n - 1) == best);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(kernels_select(kernels_tier(i)->isa, &k, &e), 0);
        assert_true(k == kernels_tier(i));
        assert_true(k->act_prepare && k->matmul && k->dequant && k->rms_norm && k->attn_tile);
    }
    assert_int_equal(kernels_select("avx1024", &k, &e), LEAT_ERR_UNSUPPORTED);
    assert_true(strstr(e.message, "avx1024") != NULL && strstr(e.message, "scalar") != NULL);
    if (strcmp(best->isa, "avx512") != 0) {
        assert_int_equal(kernels_select("avx512", &k, &e), LEAT_ERR_UNSUPPORTED);
        assert_true(strstr(e.message, "VNNI") != NULL);
    }
}

int main(void)
{
#ifdef KERNELS_ALONE /* so that whoever emulates a processor sees that it had what was meant */
    printf("tiers:");
    for (int32_t i = 0; kernels_tier(i) != NULL; i++)
        printf(" %s", kernels_tier(i)->isa);
    printf("\n");
#endif
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),          cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_row_bytes),      cmocka_unit_test(test_half_to_float),
        cmocka_unit_test(test_float_to_half),  cmocka_unit_test(test_golden),
        cmocka_unit_test(test_dequant_floats), cmocka_unit_test(test_select),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
