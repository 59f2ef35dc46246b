/* Routing traces: what is written comes back, in both forms; a file that is cut off anywhere or
 * damaged anywhere is told and crashes nothing; hostile figures take no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../../src/weights/route_trace.h"

#define LAYERS  5
#define EXPERTS 300
static char dir[64], path[128];
static const uint64_t layer_bytes[LAYERS] = {1000, 0, 3000, 1000, UINT64_C(5000000000)};

static int begin(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/leat-test-routes-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/trace", dir);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

/* ---- a trace of rows that say themselves what they must be ---- */

static uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* Row i: two turns, the second of far positions; layer 1 has no experts. */
static struct route_row row_at(int32_t i, int32_t n_rows, uint16_t *expert, float *weight,
                               uint8_t *hit)
{
    static const int32_t layers[] = {0, 2, 3, 4};
    const struct route_row r = {.turn = i < n_rows / 2 ? 0 : 3,
                                .token = i < n_rows / 2 ? i / 4 : INT32_MAX - n_rows + i / 4,
                                .layer = layers[i % 4],
                                .phase = i % 7 > 2 ? ROUTE_DECODE : ROUTE_PREFILL,
                                .n = (uint8_t)(1 + i % 9)};

    for (int32_t k = 0; k < r.n; k++) {
        expert[k] = (uint16_t)((mix((uint32_t)i) + (uint32_t)k * 7u) % EXPERTS);
        weight[k] = i % 5 == 0 ? 0 : (float)mix((uint32_t)(i + k)) / 3e9f;
        hit[k] = mix((uint32_t)(i * 31 + k)) & 1;
    }
    return r;
}

static void put_rows(struct route_writer *w, int32_t n)
{
    uint16_t expert[16];
    float weight[16];
    uint8_t hit[16];

    for (int32_t i = 0; i < n; i++) {
        const struct route_row r = row_at(i, n, expert, weight, hit);
        route_writer_put(w, &r, expert, i % 5 == 0 ? NULL : weight, hit);
    }
}

static void write_trace(int32_t n)
{
    struct leat_error e = {0};
    struct route_writer *w;

    assert_int_equal(route_writer_open(path, "a name", LAYERS, EXPERTS, layer_bytes, &w, &e), 0);
    put_rows(w, n);
    assert_false(route_writer_failed(w));
    assert_int_equal(route_writer_close(w, &e), 0);
}

/* The first t->n_rows rows of a trace of n. */
static void check_rows(const struct route_trace *t, int32_t n)
{
    uint16_t expert[16];
    float weight[16];
    uint8_t hit[16];
    int64_t first = 0;

    assert_string_equal(t->model, "a name");
    assert_int_equal(t->n_layers, LAYERS);
    assert_int_equal(t->n_experts, EXPERTS);
    assert_memory_equal(t->expert_bytes, layer_bytes, sizeof layer_bytes);
    for (int32_t i = 0; i < t->n_rows; i++) {
        const struct route_row r = row_at(i, n, expert, weight, hit), *got = &t->row[i];
        assert_true(got->turn == r.turn && got->token == r.token && got->layer == r.layer);
        assert_true(got->phase == r.phase && got->n == r.n && got->first == first);
        assert_memory_equal(t->expert + first, expert, r.n * sizeof *expert);
        assert_memory_equal(t->weight + first, weight, r.n * sizeof *weight);
        assert_memory_equal(t->hit + first, hit, r.n);
        first += r.n;
    }
    assert_int_equal(t->n_choices, first);
}

static uint8_t *whole_file(size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    uint8_t *data;

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    *n = (size_t)st.st_size;
    data = malloc(*n);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *n, f), *n);
    fclose(f);
    return data;
}

/* A copy of exactly n bytes, so that a sanitizer sees what is read behind them. */
static int parse(const void *data, size_t n, struct route_trace **t, struct leat_error *e)
{
    uint8_t *copy = malloc(n ? n : 1);
    int rc;

    assert_non_null(copy);
    memcpy(copy, data, n);
    memset(e, 0, sizeof *e);
    rc = route_trace_parse("FILE", copy, n, t, e);
    free(copy);
    assert_true((rc == 0) == (*t != NULL));
    if (rc) {
        assert_int_equal(e->code, rc);
        assert_int_equal(strncmp(e->message, "FILE: ", 6), 0);
    }
    return rc;
}

static void test_comes_back(void **state)
{
    struct leat_error e = {0};
    struct route_trace *t;

    (void)state;
    for (int32_t n = 0; n <= 5000; n = n * 10 + 5) {
        write_trace(n);
        assert_int_equal(route_trace_read(path, &t, &e), 0);
        assert_int_equal(t->n_rows, n);
        assert_false(t->cut);
        check_rows(t, n);
        route_trace_free(t);
    }
}

static void test_csv_comes_back(void **state)
{
    struct leat_error e = {0};
    struct route_trace *t;
    FILE *f;

    (void)state;
    write_trace(500);
    assert_int_equal(route_trace_read(path, &t, &e), 0);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(route_trace_csv(t, f), 0);
    fclose(f);
    route_trace_free(t);
    assert_int_equal(route_trace_read(path, &t, &e), 0);
    assert_int_equal(t->n_rows, 500);
    check_rows(t, 500);
    f = fopen("/dev/full", "w");
    assert_non_null(f);
    assert_int_not_equal(route_trace_csv(t, f), 0);
    fclose(f);
    route_trace_free(t);
}

/* Cut anywhere: an error in the head; later the whole blocks before the cut, marked so. */
static void test_cut(void **state)
{
    const int32_t rows = 2000;
    struct leat_error e;
    struct route_trace *t;
    size_t n;
    uint8_t *data;
    int64_t most = 0, prefixes = 0;

    (void)state;
    write_trace(rows);
    data = whole_file(&n);
    for (size_t at = 0; at < n; at += at < 300 || at > n - 100 ? 1 : 37) {
        const int rc = parse(data, at, &t, &e);
        if (rc)
            assert_true(at < 100); /* the head: 20 + 6 + 40 + 8 bytes */
        else {
            assert_true(t->cut);
            assert_true(t->n_rows >= most);
            prefixes += t->n_rows > most && t->n_rows < rows;
            most = t->n_rows;
            check_rows(t, rows);
        }
        route_trace_free(t);
    }
    assert_true(prefixes > 0); /* blocks more than one: a killed run leaves something */
    assert_int_equal(most, rows);
    free(data);
}

/* Every bit of a small trace flipped, and figures behind good checksums too: no crash, and what is
 * taken is sound. */
static void test_damaged(void **state)
{
    struct leat_error e;
    struct route_trace *t;
    size_t n;
    uint8_t *data;
    int64_t refused = 0;

    (void)state;
    write_trace(60);
    data = whole_file(&n);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        refused += parse(data, n, &t, &e) != 0;
        if (t)
            assert_true(t->cut); /* the length of the last block points behind the end */
        route_trace_free(t);
        data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    assert_true(refused > (int64_t)(8 * n) * 9 / 10);
    free(data);
}

static uint64_t fnv(const uint8_t *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

static void put(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static void sound(const struct route_trace *t)
{
    for (int64_t i = 0; i < t->n_rows; i++) {
        const struct route_row *r = &t->row[i];
        assert_true(r->layer >= 0 && r->layer < t->n_layers && t->expert_bytes[r->layer] > 0);
        assert_true(r->n > 0 && r->token >= 0 && r->turn >= 0);
        assert_true(r->first >= 0 && r->first + r->n <= t->n_choices);
        for (int32_t k = 0; k < r->n; k++) {
            assert_true(t->expert[r->first + k] < t->n_experts && t->hit[r->first + k] <= 1);
            assert_true(isfinite(t->weight[r->first + k]));
        }
    }
}

static void test_hostile_rows(void **state)
{
    struct leat_error e;
    struct route_trace *t;
    size_t n;
    uint8_t *data;
    int64_t taken = 0, refused = 0;

    (void)state;
    write_trace(40);
    data = whole_file(&n);
    const size_t head = 20 + 6 + 8 * LAYERS + 8, rows = n - head - 32;
    for (uint32_t i = 0; i < 20000; i++) {
        uint8_t *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, data, n);
        for (uint32_t k = 0; k <= mix(i) % 3; k++)
            copy[head + 16 + mix(i * 4 + k + 1) % rows] = (uint8_t)mix(i * 7 + k);
        put(copy + head + 8, fnv(copy + head + 16, rows), 8);
        if (parse(copy, n, &t, &e) == 0) {
            sound(t);
            taken++;
        } else {
            refused++;
        }
        route_trace_free(t);
        free(copy);
    }
    assert_true(taken > 100 && refused > 100);
    free(data);
}

/* Counts that no file backs. */
static void test_hostile_counts(void **state)
{
    uint8_t head[64] = "LEATRTE\1";
    struct leat_error e;
    struct route_trace *t;

    (void)state;
    put(head + 8, UINT32_MAX, 4);
    put(head + 12, 8, 4);
    assert_int_equal(parse(head, sizeof head, &t, &e), LEAT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "4294967295 layers"));
    put(head + 8, 4096, 4); /* 32 KiB of figures promised, none there */
    assert_int_equal(parse(head, sizeof head, &t, &e), LEAT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "cut off"));
    put(head + 8, 1, 4);
    put(head + 12, 65536, 4);
    assert_int_equal(parse(head, sizeof head, &t, &e), LEAT_ERR_FORMAT);
    put(head + 12, 8, 4);
    put(head + 16, UINT32_MAX, 4);
    assert_int_equal(parse(head, sizeof head, &t, &e), LEAT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "name of 4294967295 bytes"));
    put(head + 16, 0, 4);
    put(head + 20, 100, 8);
    put(head + 28, fnv(head, 28), 8);
    put(head + 36, UINT32_MAX, 4); /* a block of 4 GiB */
    assert_int_equal(parse(head, sizeof head, &t, &e), LEAT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "offset 36"));
    put(head + 36, 4, 4); /* 4 bytes that hold 4 billion rows */
    put(head + 40, UINT32_MAX, 4);
    put(head + 44, fnv(head + 52, 4), 8);
    assert_int_equal(parse(head, sizeof head, &t, &e), LEAT_ERR_FORMAT);
    head[7] = 2;
    assert_int_equal(parse(head, sizeof head, &t, &e), LEAT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "version"));
}

/* ---- CSV ---- */

#define CSV_HEAD                                                                                   \
    "# route_trace v1\n# model=/a/b c.gguf arch=x n_layer=3 n_expert=8 n_expert_used=2\n"          \
    "# layer=0 expert_bytes=100 dense_bytes=7\n# layer=2 expert_bytes=300 dense_bytes=7\n"         \
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"

static void test_csv(void **state)
{
    static const char good[] = CSV_HEAD "0,0,0,0,0,7,0.6,0,100\n0,0,0,0,1,3,0.4,1,0\n"
                                        "0,1,1,2,0,1,1,1,0\n1,1,9,2,0,2,-0.5,0,300\r\n"
                                        "1,1,9,0,0,2,0.5,0,100\n";
    struct leat_error e;
    struct route_trace *t;

    (void)state;
    assert_int_equal(parse(good, sizeof good - 1, &t, &e), 0);
    assert_string_equal(t->model, "b c.gguf");
    assert_int_equal(t->n_layers, 3);
    assert_int_equal(t->n_experts, 8);
    assert_true(t->expert_bytes[0] == 100 && t->expert_bytes[1] == 0 && t->expert_bytes[2] == 300);
    assert_int_equal(t->n_rows, 4);
    assert_int_equal(t->n_choices, 5);
    assert_true(t->expert[0] == 7 && t->expert[1] == 3 && t->hit[0] == 0 && t->hit[1] == 1);
    assert_true(t->weight[0] == 0.6f && t->weight[3] == -0.5f);
    assert_true(t->row[2].turn == 1 && t->row[2].token == 9 && t->row[2].phase == ROUTE_DECODE);
    assert_int_equal(route_trace_cycle_bytes(t), (300 + 300 + 100) / 2); /* two decoded tokens */
    route_trace_free(t);
}

static void refused_csv(const char *text, const char *word)
{
    struct leat_error e;
    struct route_trace *t;

    if (parse(text, strlen(text), &t, &e) == 0)
        fail_msg("taken: %s", text);
    if (!strstr(e.message, word))
        fail_msg("'%s' is not in: %s", word, e.message);
}

static void test_csv_refused(void **state)
{
    (void)state;
    refused_csv("# route_trace v2\n", "line 1");
    refused_csv("", "not a routing trace");
    refused_csv("\xfd"
                "7zXZ",
                "xz -d");
    refused_csv("# route_trace v1\n", "before the names");
    refused_csv("# route_trace v1\nturn,phase\n", "line 2");
    refused_csv("# route_trace v1\n# layer=0 expert_bytes=1\n", "before the line");
    refused_csv("# route_trace v1\n# model=a n_layer=9999999999 n_expert=4\n", "9999999999 layers");
    refused_csv("# route_trace v1\n# model=a n_layer=99999999999999999999 n_expert=4\n", "line 2");
    refused_csv("# route_trace v1\n# model=a n_layer=2 n_expert=4\n# layer=2 expert_bytes=1\n",
                "line 3");
    refused_csv(CSV_HEAD "0,0,0,0,0,7,0.6,0,100", "not ended");
    refused_csv(CSV_HEAD "0,0,0,0,0,8,0.6,0,100\n", "expert 8 of a layer with 8");
    refused_csv(CSV_HEAD "0,0,0,1,0,7,0.6,0,100\n", "layer 1 has no experts");
    refused_csv(CSV_HEAD "0,0,0,3,0,7,0.6,0,100\n", "layer 3 of a model with 3");
    refused_csv(CSV_HEAD "0,0,0,0,1,7,0.6,0,100\n", "slots");
    refused_csv(CSV_HEAD "0,0,0,0,0,7,0.6,0,100\n0,0,0,0,2,6,0.6,0,100\n", "line 7");
    refused_csv(CSV_HEAD "0,0,0,0,0,7,0.6,0,100\n0,0,1,0,1,6,0.6,0,100\n", "slots");
    refused_csv(CSV_HEAD "0,0,0,0,0,7,0.6,0,100\n0,0,0,0,1,7,0.6,0,100\n", "twice");
    refused_csv(CSV_HEAD "0,2,0,0,0,7,0.6,0,100\n", "phase");
    refused_csv(CSV_HEAD "0,0,-1,0,0,7,0.6,0,100\n", "step");
    refused_csv(CSV_HEAD "0,0,2147483648,0,0,7,0.6,0,100\n", "step");
    refused_csv(CSV_HEAD "0,0,0,0,0,7,nan,0,100\n", "weight");
    refused_csv(CSV_HEAD "0,0,0,0,0,7,1e99,0,100\n", "weight");
    refused_csv(CSV_HEAD "0,0,0,0,0,7,0.5,2,100\n", "residency");
    refused_csv(CSV_HEAD "0,0,0,0,0,7,0.5,0,100,\n", "expert_bytes");
    refused_csv(CSV_HEAD "0,0,0,0,0,7,0.5,0\n", "residency");
    refused_csv(CSV_HEAD "1,0,0,0,0,7,0.5,0,100\n0,0,0,0,0,7,0.5,0,100\n", "turn 0");
    refused_csv(CSV_HEAD "\n", "turn");
}

/* Bytes of a good CSV replaced, removed and cut: sound or refused. */
static void test_csv_damaged(void **state)
{
    static const char good[] = CSV_HEAD "0,0,0,0,0,7,0.6,0,100\n0,0,0,0,1,3,0.4,1,0\n"
                                        "0,1,1,2,0,1,1,1,0\n1,1,9,2,0,2,0.5,0,300\n";
    const size_t n = sizeof good - 1;
    static const char bytes[] = "0,\n-9#e=\0 \xff";
    struct leat_error e;
    struct route_trace *t;
    char copy[sizeof good];
    int64_t taken = 0, refused = 0;

    (void)state;
    for (size_t at = 0; at < n; at++) {
        for (size_t k = 0; k < sizeof bytes; k++) {
            memcpy(copy, good, n);
            copy[at] = bytes[k];
            if (parse(copy, n, &t, &e) == 0) {
                sound(t);
                taken++;
            } else {
                refused++;
            }
            route_trace_free(t);
        }
        if (parse(good, at, &t, &e) == 0)
            sound(t);
        route_trace_free(t);
    }
    assert_true(taken > 50 && refused > 500);
}

/* ---- files ---- */

static void test_files(void **state)
{
    struct leat_error e = {0};
    struct route_writer *w;
    struct route_trace *t;
    FILE *f;

    (void)state;
    assert_int_equal(route_trace_read("/nonexistent/x", &t, &e), LEAT_ERR_FILE);
    assert_null(t);
    assert_int_equal(route_trace_read("/", &t, &e), LEAT_ERR_FILE);
    assert_int_equal(route_writer_open("/nonexistent/x", "", 1, 1, layer_bytes, &w, &e),
                     LEAT_ERR_FILE);
    assert_null(w);
    /* what is no trace is kept */
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("precious", f);
    fclose(f);
    assert_int_equal(route_writer_open(path, "", 1, 1, layer_bytes, &w, &e), LEAT_ERR_FILE);
    assert_non_null(strstr(e.message, "not overwritten"));
    size_t n;
    uint8_t *data = whole_file(&n);
    assert_int_equal(n, 8);
    assert_memory_equal(data, "precious", 8);
    free(data);
    unlink(path);
    /* a longer trace is replaced by a shorter one */
    write_trace(500);
    write_trace(5);
    assert_int_equal(route_trace_read(path, &t, &e), 0);
    assert_int_equal(t->n_rows, 5);
    route_trace_free(t);
    assert_int_equal(route_writer_close(NULL, &e), 0);
}

/* A full disk is told with the file's name: at once when the head does not fit, else at the end. */
static void test_disk_full(void **state)
{
    struct leat_error e = {0};
    struct route_writer *w;

    (void)state;
    assert_int_equal(route_writer_open("/dev/full", "", LAYERS, EXPERTS, layer_bytes, &w, &e),
                     LEAT_ERR_FILE);
    assert_non_null(strstr(e.message, "/dev/full"));
    assert_null(w);
    /* a limit on the file's size stands for a disk that fills in mid-run */
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {40000, before.rlim_max};
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(route_writer_open(path, "a name", LAYERS, EXPERTS, layer_bytes, &w, &e), 0);
    put_rows(w, 5000);
    assert_true(route_writer_failed(w));
    assert_int_equal(route_writer_close(w, &e), LEAT_ERR_FILE);
    assert_non_null(strstr(e.message, path));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    struct route_trace *t;
    assert_int_equal(route_trace_read(path, &t, &e), 0);
    assert_true(t->cut && t->n_rows > 0);
    check_rows(t, 5000);
    route_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_comes_back, begin, end),
        cmocka_unit_test_setup_teardown(test_csv_comes_back, begin, end),
        cmocka_unit_test_setup_teardown(test_cut, begin, end),
        cmocka_unit_test_setup_teardown(test_damaged, begin, end),
        cmocka_unit_test_setup_teardown(test_hostile_rows, begin, end),
        cmocka_unit_test_setup_teardown(test_hostile_counts, begin, end),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_csv_refused),
        cmocka_unit_test(test_csv_damaged),
        cmocka_unit_test_setup_teardown(test_files, begin, end),
        cmocka_unit_test_setup_teardown(test_disk_full, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
