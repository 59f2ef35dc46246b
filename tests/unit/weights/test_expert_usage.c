/* Usage statistics: what is written comes back; whatever else lies in the file's place is refused
 * and leaves every score at zero. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../../src/weights/expert_usage.h"

#define N 37
static char dir[64], path[128];
static float score[N], back[N];

static int begin(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/leat-test-usage-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/usage/model", dir);
    return 0;
}

static int end(void **state)
{
    char usage[96];

    (void)state;
    snprintf(usage, sizeof usage, "%s/usage", dir);
    unlink(path);
    rmdir(usage);
    return rmdir(dir); /* fails when a temporary file was left behind */
}

static struct usage made(void)
{
    struct usage u = {.model = UINT64_C(0x1122334455667788), .n = N, .first = 100, .score = score};

    for (int i = 0; i < N; i++)
        score[i] = (float)(i * i) / 7;
    return u;
}

static struct usage asked(void)
{
    for (int i = 0; i < N; i++)
        back[i] = -1;
    return (struct usage){
        .model = UINT64_C(0x1122334455667788), .n = N, .first = 100, .score = back, .now = 5};
}

static void refused(struct usage *u, const char *word)
{
    struct leat_error e = {0};

    assert_false(usage_read(u, path, &e));
    for (int i = 0; i < u->n; i++)
        assert_true(u->score[i] == 0);
    if (word) {
        assert_non_null(strstr(e.message, word));
        assert_non_null(strstr(e.message, path));
    } else {
        assert_int_equal(e.code, 0);
    }
}

static size_t slurp(uint8_t *data, size_t cap)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    assert_non_null(f);
    n = fread(data, 1, cap, f);
    fclose(f);
    return n;
}

static void put(const uint8_t *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void test_round_trip(void **state)
{
    struct usage u = made(), v = asked();
    struct stat st;

    (void)state;
    assert_int_equal(usage_write(&u, path, NULL), 0); /* makes the folder */
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, usage_file_bytes(N));
    assert_true(usage_read(&v, path, NULL));
    assert_memory_equal(score, back, sizeof score);
    assert_true(v.now == 0);
    score[3] = 99; /* and again, over the file that is there */
    assert_int_equal(usage_write(&u, path, NULL), 0);
    assert_true(usage_read(&v, path, NULL));
    assert_true(back[3] == 99);
}

static void test_refused(void **state)
{
    struct usage u = made(), v = asked();
    uint8_t data[1024], bad[1024];
    size_t n;

    (void)state;
    refused(&v, NULL); /* no file: nothing to say */
    assert_int_equal(usage_write(&u, path, NULL), 0);
    n = slurp(data, sizeof data);
    assert_int_equal(n, usage_file_bytes(N));
    for (size_t cut = 0; cut < n; cut++) {
        put(data, cut);
        v = asked();
        refused(&v, "end after");
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(bad, data, n);
        bad[i] ^= 0x40;
        put(bad, n);
        v = asked();
        refused(&v, "not used");
    }
    put(data, n);
    v = asked();
    v.model++;
    refused(&v, "another model");
    v = asked();
    v.n--;
    refused(&v, "another model");
}

static void test_odd_places(void **state)
{
    struct usage u = made(), v = asked();
    struct leat_error e = {0};
    char folder[96];

    (void)state;
    snprintf(folder, sizeof folder, "%s/usage", dir);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(&v, "plain file"); /* and returns */
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    v = asked();
    refused(&v, "plain file");
    assert_true(usage_write(&u, path, &e) < 0); /* nothing is left beside it: end() sees to that */
    assert_non_null(strstr(e.message, path));
    rmdir(path);
    assert_true(usage_write(&u, "/proc/no/such/place", &e) < 0);
}

static void test_fading(void **state)
{
    struct usage u = {.n = N, .first = 100, .score = score};

    (void)state;
    memset(score, 0, sizeof score);
    usage_note(&u, 99, 1000); /* not an expert */
    usage_note(&u, 100 + N, 1000);
    usage_note(&u, 100, 4);
    usage_advance(&u, (int32_t)USAGE_HALF_LIFE);
    usage_note(&u, 101, 3);
    usage_advance(&u, (int32_t)USAGE_HALF_LIFE);
    usage_settle(&u);
    assert_true(fabsf(score[0] - 1) < 1e-6f);
    assert_true(fabsf(score[1] - 1.5f) < 1e-6f);
    for (int i = 0; i < 100000; i++) { /* years of use stay within a float */
        usage_note(&u, 102, 1);
        usage_advance(&u, 7);
    }
    usage_settle(&u);
    /* 1 / (1 - 2^(-7/512)) less the last step's fading: about 105 */
    assert_true(score[2] > 100 && score[2] < 110);
    for (int i = 0; i < N; i++)
        assert_true(isfinite(score[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, begin, end),
        cmocka_unit_test_setup_teardown(test_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_odd_places, begin, end),
        cmocka_unit_test(test_fading),
    };
    return cmocka_run_group_tests_name("usage", tests, NULL, NULL);
}
