/* The GGUF reader: values of every type, arrays, tensors, the shared vocabulary files, size and
 * speed of large headers. Broken files are the business of tests/e2e/test_malformed.py. */
#include "unit_model.h"

#include "../../../src/base/clock.h"
#include "../../../src/model/gguf.h"

struct fixture {
    struct arena arena;
    struct gguf *g;
    struct leat_error e;
};

static void open_file(struct fixture *x, const char *path)
{
    memset(x, 0, sizeof *x);
    arena_init(&x->arena, NULL, ROW_MODEL);
    if (gguf_open(path, true, &x->arena, &x->g, &x->e))
        fail_msg("%s", x->e.message);
}

static void close_file(struct fixture *x)
{
    gguf_close(x->g);
    arena_close(&x->arena);
}

static void test_values(void **state)
{
    struct fixture x;
    struct writer w = {0};
    uint64_t u;
    float f;
    bool b;

    (void)state;
    key_bits(&w, "u8", 0, 200, 1);
    key_bits(&w, "i8", 1, (uint64_t)-5, 1);
    key_bits(&w, "u16", 2, 40000, 2);
    key_bits(&w, "i16", 3, (uint64_t)-300, 2);
    key_bits(&w, "u32", 4, 4000000000u, 4);
    key_bits(&w, "i32", 5, 7, 4);
    key_f32(&w, "f32", 1.5f);
    key_bits(&w, "true", 7, 1, 1);
    key_bits(&w, "u64", 10, UINT64_MAX, 8);
    key_bits(&w, "i64", 11, (uint64_t)-9, 8);
    key_bits(&w, "f64", 12, UINT64_C(0x3fd0000000000000), 8); /* 0.25 */
    key_f32(&w, "inf", 1.0f / 0.0f);
    save_gguf(&w, scratch("values.gguf"), 2);
    open_file(&x, scratch("values.gguf"));
    assert_int_equal(x.g->version, 2);
    assert_int_equal(x.g->n_kv, 12);

    assert_int_equal(gguf_get_u64(x.g, "u8", UINT64_MAX, &u, &x.e), 1);
    assert_int_equal(u, 200);
    assert_int_equal(gguf_get_u64(x.g, "u16", 40000, &u, &x.e), 1);
    assert_int_equal(u, 40000);
    assert_int_equal(gguf_get_u64(x.g, "u16", 39999, &u, &x.e), LEAT_ERR_FORMAT);
    assert_contains(x.e.message, "40000");
    assert_contains(x.e.message, "'u16'");
    assert_int_equal(gguf_get_u64(x.g, "u32", UINT64_MAX, &u, &x.e), 1);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(gguf_get_u64(x.g, "i32", UINT64_MAX, &u, &x.e), 1);
    assert_int_equal(u, 7);
    assert_int_equal(gguf_get_u64(x.g, "u64", UINT64_MAX, &u, &x.e), 1);
    assert_true(u == UINT64_MAX);
    assert_int_equal(gguf_get_u64(x.g, "i8", UINT64_MAX, &u, &x.e), LEAT_ERR_FORMAT);
    assert_contains(x.e.message, "-5");
    assert_int_equal(gguf_get_u64(x.g, "i64", UINT64_MAX, &u, &x.e), LEAT_ERR_FORMAT);
    assert_int_equal(gguf_get_u64(x.g, "f32", UINT64_MAX, &u, &x.e), LEAT_ERR_FORMAT);
    assert_contains(x.e.message, "f32");
    u = 99;
    assert_int_equal(gguf_get_u64(x.g, "none", UINT64_MAX, &u, &x.e), 0);
    assert_int_equal(u, 99);

    assert_int_equal(gguf_get_f32(x.g, "f32", &f, &x.e), 1);
    assert_true(f == 1.5f);
    assert_int_equal(gguf_get_f32(x.g, "f64", &f, &x.e), 1);
    assert_true(f == 0.25f);
    assert_int_equal(gguf_get_f32(x.g, "inf", &f, &x.e), LEAT_ERR_FORMAT);
    assert_int_equal(gguf_get_f32(x.g, "u8", &f, &x.e), LEAT_ERR_FORMAT);
    assert_int_equal(gguf_get_bool(x.g, "true", &b, &x.e), 1);
    assert_true(b);
    assert_int_equal(gguf_get_bool(x.g, "u8", &b, &x.e), LEAT_ERR_FORMAT);
    assert_int_equal(x.g->kv[3].v.i, -300);
    close_file(&x);
}

static void test_strings(void **state)
{
    enum { LONG = 100000 };
    struct fixture x;
    struct writer w = {0};
    char *big = malloc(LONG);
    const char *s;
    size_t n;

    (void)state;
    for (int i = 0; i < LONG; i++)
        big[i] = (char)('a' + i % 26);
    key_text(&w, "short", "h\xc3\xa9llo", 6);
    key_text(&w, "nul", "a\0b", 3);
    key_text(&w, "long", big, LONG);
    key_text(&w, "empty", "", 0);
    save_gguf(&w, scratch("strings.gguf"), 3);
    open_file(&x, scratch("strings.gguf"));
    assert_int_equal(gguf_get_str(x.g, "short", &x.arena, &s, NULL, &x.e), 1);
    assert_string_equal(s, "h\xc3\xa9llo");
    assert_int_equal(gguf_get_str(x.g, "nul", &x.arena, &s, NULL, &x.e), LEAT_ERR_FORMAT);
    assert_int_equal(gguf_get_str(x.g, "nul", &x.arena, &s, &n, &x.e), 1);
    assert_int_equal(n, 3);
    assert_memory_equal(s, "a\0b", 4);
    assert_null(gguf_find(x.g, "long")->str); /* over the limit: not held */
    assert_int_equal(gguf_get_str(x.g, "long", &x.arena, &s, &n, &x.e), 1);
    assert_int_equal(n, LONG);
    assert_memory_equal(s, big, LONG);
    assert_int_equal(gguf_get_str(x.g, "empty", &x.arena, &s, &n, &x.e), 1);
    assert_int_equal(n, 0);
    assert_int_equal(gguf_get_str(x.g, "none", &x.arena, &s, &n, &x.e), 0);
    close_file(&x);
    free(big);
}

static void test_arrays(void **state)
{
    enum { N = 20000 }; /* several windows */
    struct fixture x;
    struct writer w = {0};
    struct gguf_array r;
    char text[64];
    const char *s;
    size_t len;
    int64_t whole;
    double number;

    (void)state;
    key_array(&w, "texts", 8, N);
    for (int i = 0; i < N; i++)
        put_text(&w.keys, &w.n_keys, text, (size_t)snprintf(text, sizeof text, "text %d", i * 7));
    key_array(&w, "i16", 3, 3);
    for (int i = 0; i < 3; i++)
        put_number(&w.keys, &w.n_keys, (uint64_t)(i - 1), 2);
    key_array(&w, "f64", 12, 1);
    put_number(&w.keys, &w.n_keys, UINT64_C(0x4004000000000000), 8); /* 2.5 */
    key_array(&w, "empty", 8, 0);
    save_gguf(&w, scratch("arrays.gguf"), 3);
    open_file(&x, scratch("arrays.gguf"));

    assert_int_equal(gguf_array_open(x.g, gguf_find(x.g, "texts"), &r, &x.e), 0);
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof text, "text %d", i * 7);
        assert_int_equal(gguf_array_string(&r, &s, &len, &x.e), 1);
        assert_int_equal(len, strlen(text));
        assert_memory_equal(s, text, len);
    }
    assert_int_equal(gguf_array_string(&r, &s, &len, &x.e), 0);
    assert_int_equal(gguf_array_int(&r, &whole, &x.e), LEAT_ERR_FORMAT);
    gguf_array_close(&r);

    assert_int_equal(gguf_array_open(x.g, gguf_find(x.g, "i16"), &r, &x.e), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gguf_array_int(&r, &whole, &x.e), 1);
        assert_int_equal(whole, i - 1);
    }
    assert_int_equal(gguf_array_int(&r, &whole, &x.e), 0);
    assert_int_equal(gguf_array_float(&r, &number, &x.e), LEAT_ERR_FORMAT);
    gguf_array_close(&r);

    assert_int_equal(gguf_array_open(x.g, gguf_find(x.g, "f64"), &r, &x.e), 0);
    assert_int_equal(gguf_array_float(&r, &number, &x.e), 1);
    assert_true(number == 2.5);
    gguf_array_close(&r);
    assert_int_equal(gguf_array_open(x.g, gguf_find(x.g, "empty"), &r, &x.e), 0);
    assert_int_equal(gguf_array_string(&r, &s, &len, &x.e), 0);
    gguf_array_close(&r);
    close_file(&x);
}

static void test_tensors(void **state)
{
    struct fixture x;
    struct writer w = {0};
    const struct gguf_tensor *t;
    uint64_t start;

    (void)state;
    add_tensor(&w, "a", 0, 2, (uint64_t[]){3, 5}, 60);
    add_tensor(&w, "q", 12, 3, (uint64_t[]){512, 7, 2},
               2 * 7 * 2 * 144);                        /* Q4_K: 144 bytes per 256 */
    add_tensor(&w, "iq", 16, 1, (uint64_t[]){256}, 66); /* IQ2_XXS: known, no kernels */
    start = save_gguf(&w, scratch("tensors.gguf"), 3);
    open_file(&x, scratch("tensors.gguf"));
    assert_int_equal(x.g->n_tensors, 3);
    assert_int_equal(x.g->data_start, start);
    t = gguf_tensor_find(x.g, "q");
    assert_non_null(t);
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->dims[0], 512);
    assert_int_equal(t->dims[2], 2);
    assert_int_equal(t->dims[3], 1);
    assert_int_equal(t->row_bytes, 288);
    assert_int_equal(t->bytes, 288 * 14);
    assert_int_equal(t->offset, start + 64);
    assert_null(gguf_tensor_find(x.g, "b"));
    assert_int_equal(x.g->trailing_bytes, 0);
    close_file(&x);

    memset(&x, 0, sizeof x);
    arena_init(&x.arena, NULL, ROW_MODEL);
    assert_int_equal(gguf_open(scratch("tensors.gguf"), false, &x.arena, &x.g, &x.e),
                     LEAT_ERR_UNSUPPORTED);
    assert_contains(x.e.message, "IQ2_XXS");
    assert_contains(x.e.message, "'iq'");
    assert_contains(x.e.message, "Q4_K");
    arena_close(&x.arena);
}

/* Token counts and first tokens of the published vocabularies. */
static void test_shared_vocabularies(void **state)
{
    static const struct {
        const char *file, *arch;
        uint64_t tokens;
        const char *first[3];
    } known[] = {
        {"vocab-gguf/ggml-vocab-llama-spm.gguf", "llama", 32000, {"<unk>", "<s>", "</s>"}},
        {"vocab-gguf/ggml-vocab-phi-3.gguf", "phi3", 32064, {"<unk>", "<s>", "</s>"}},
        {"vocab-gguf/ggml-vocab-gpt-2.gguf", "gpt2", 50257, {"!", "\"", "#"}},
        {"vocab-gguf/ggml-vocab-starcoder.gguf",
         "starcoder2",
         49152,
         {"<|endoftext|>", "<fim_prefix>", "<fim_middle>"}},
        {"vocab-gguf/ggml-vocab-falcon.gguf",
         "falcon",
         65024,
         {">>TITLE<<", ">>ABSTRACT<<", ">>INTRODUCTION<<"}},
        {"vocab-gguf/ggml-vocab-bert-bge.gguf", "bert", 30522, {"[PAD]", "[unused0]", "[unused1]"}},
    };
    struct fixture x;
    struct gguf_array r;
    const char *s;
    size_t len;

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const struct gguf_kv *kv;
        uint64_t n = 0;
        int rc;

        open_file(&x, data_file(known[i].file));
        assert_int_equal(x.g->n_tensors, 0);
        assert_int_equal(gguf_get_str(x.g, "general.architecture", &x.arena, &s, NULL, &x.e), 1);
        assert_string_equal(s, known[i].arch);
        kv = gguf_find(x.g, "tokenizer.ggml.tokens");
        assert_non_null(kv);
        assert_int_equal(kv->count, known[i].tokens);
        assert_int_equal(gguf_array_open(x.g, kv, &r, &x.e), 0);
        while ((rc = gguf_array_string(&r, &s, &len, &x.e)) > 0) {
            if (n < 3) {
                assert_int_equal(len, strlen(known[i].first[n]));
                assert_memory_equal(s, known[i].first[n], len);
            }
            n++;
        }
        assert_int_equal(rc, 0);
        assert_int_equal(n, known[i].tokens);
        gguf_array_close(&r);
        close_file(&x);
    }
}

/* 20,000 keys and tensors: linear, and within a second (the sanitizer build may take three). */
static void test_large_header(void **state)
{
    enum { N = 20000 };
    struct fixture x;
    struct writer w = {0};
    char name[64];
    double began;

    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "some.key.%u", i);
        key_u32(&w, name, i);
        snprintf(name, sizeof name, "blk.%u.tensor.weight", i);
        add_tensor(&w, name, 0, 1, (uint64_t[]){8}, 32);
    }
    save_gguf(&w, scratch("large.gguf"), 3);
    began = clock_now();
    open_file(&x, scratch("large.gguf"));
    assert_true(clock_now() - began < 3.0);
    assert_int_equal(x.g->n_kv, N);
    assert_int_equal(gguf_find(x.g, "some.key.19999")->v.u, 19999);
    assert_int_equal(gguf_tensor_find(x.g, "blk.12345.tensor.weight")->offset,
                     x.g->data_start + 32 * 12345);
    assert_true(x.arena.total < 16u << 20);
    close_file(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_shared_vocabularies),
        cmocka_unit_test(test_large_header),
    };

    return cmocka_run_group_tests(tests, NULL, scratch_remove);
}
