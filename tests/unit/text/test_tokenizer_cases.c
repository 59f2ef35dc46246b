/* Real vocabularies: every case of ../shared/data/tokenizers, ../shared/data/vocab-gguf (BERT
 * aside) and stories260K, encoded and decoded. gemma3's cases run against the default model's GGUF
 * vocabulary (LEAT_TEST_MODEL, or the cache of tools/get-default-model) and against
 * gemma3/tokenizer.json below LEAT_TEST_TOKENIZERS; llama3's against llama3/tokenizer.json there.
 * What is absent is skipped in one counted line. */
#include "text_unit.h"

#define DATA "LEAT_TEST_DATA"

static struct opened open_good(const char *path)
{
    struct opened o;
    struct leat_error e;
    if (open_any(&o, path, &e) < 0) {
        fprintf(stderr, "%s\n", e.message);
        fail();
    }
    return o;
}

static bool decodes_back(const struct tokenizer *t, const json_t *ids, const char *text, size_t n)
{
    size_t count, len;
    int32_t *list = ids_of(ids, &count);
    char *back = decode_all(t, list, count, &len);
    bool same = len == n && memcmp(back, text, n) == 0;
    free(list);
    free(back);
    return same;
}

static size_t bytes_of_hex(const char *hex, char *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned b;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &b), 1);
        out[i] = (char)b;
    }
    return n;
}

/* One NAME.cases.json against the tokenizer at path. alone: the file says itself what goes around a
 * text. */
static void run_cases(const char *name, const char *path)
{
    char file[80], bytes[256];
    json_error_t why;
    snprintf(file, sizeof file, "tokenizers/%s.cases.json", name);
    json_t *j = json_load_file(data_path(DATA, file), JSON_ALLOW_NUL, &why);
    assert_non_null(j);
    struct opened o = open_good(path);
    const json_t *cases = json_object_get(j, "cases"), *bad = json_object_get(j, "invalid_utf8");
    const json_t *example = json_object_get(j, "example_with_special_tokens");
    size_t wrong = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *text = json_object_get(c, "text"),
                     *ids = json_object_get(c, "ids");
        const char *s = json_string_value(text);
        size_t n = json_string_length(text);
        wrong += !encodes_to(o.t, s, n, ENCODE_SPECIAL, ids, name);
        bool back = decodes_back(o.t, ids, s, n);
        if (back != json_is_true(json_object_get(c, "roundtrip"))) {
            fprintf(stderr, "%s: \"%s\" %s\n", name, s,
                    back ? "decodes to itself" : "does not decode to itself");
            wrong++;
        }
    }
    for (size_t i = 0; i < json_array_size(bad); i++) {
        const json_t *c = json_array_get(bad, i);
        size_t n = bytes_of_hex(json_string_value(json_object_get(c, "bytes_hex")), bytes);
        wrong += !encodes_to(o.t, bytes, n, ENCODE_SPECIAL, json_object_get(c, "ids"), name);
    }
    const char *text = json_string_value(json_object_get(example, "text"));
    wrong += !encodes_to(o.t, text, strlen(text), ENCODE_SPECIAL | ENCODE_ADD_SPECIAL,
                         json_object_get(example, "ids"), name);
    printf("%s: %zu cases, %zu of invalid UTF-8\n", name, json_array_size(cases),
           json_array_size(bad));
    assert_int_equal(json_array_size(cases), 64);
    close_any(&o);
    json_decref(j);
    assert_int_equal(wrong, 0);
}

static void test_json_cases(void **state)
{
    static const char *const names[] = {"mistral_v1", "qwen3", "gpt_oss", "deepseek_v3"};
    (void)state;
    if (!data_path(DATA, "tokenizers")) {
        print_message("skipped: ../shared/data/tokenizers is absent (4 tokenizers)\n");
        skip();
    }
    for (size_t i = 0; i < 4; i++) {
        char gz[80], command[2400];
        snprintf(gz, sizeof gz, "tokenizers/%s/tokenizer.json.gz", names[i]);
        const char *from = data_path(DATA, gz), *to = scratch_file("tokenizer.json");
        assert_non_null(from);
        snprintf(command, sizeof command, "gzip -dc '%s' > '%s'", from, to);
        assert_int_equal(system(command), 0);
        run_cases(names[i], to);
    }
}

static void test_gemma3(void **state)
{
    (void)state;
    char path[4096];
    const char *model = getenv("LEAT_TEST_MODEL"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (model)
        snprintf(path, sizeof path, "%s", model);
    else
        snprintf(path, sizeof path, "%s%s/leat/models/gemma-3-270m-Q4_K_M.gguf",
                 cache  ? cache
                 : home ? home
                        : "",
                 cache ? "" : "/.cache");
    if (!data_path(DATA, "tokenizers") || access(path, R_OK) != 0) {
        print_message(
            "skipped: the default model or ../shared/data is absent (1 tokenizer, gemma3)\n");
        skip();
    }
    run_cases("gemma3", path);
}

static void test_elsewhere(void **state)
{
    (void)state;
    int skipped = 0;
    static const char *const names[] = {"llama3", "gemma3"};
    for (int i = 0; i < 2; i++) {
        char file[40];
        snprintf(file, sizeof file, "%s/tokenizer.json", names[i]);
        const char *path = data_path("LEAT_TEST_TOKENIZERS", file);
        if (path && data_path(DATA, "tokenizers"))
            run_cases(names[i], path);
        else
            skipped++;
    }
    if (skipped) {
        print_message(
            "skipped: %d tokenizer.json (llama3, gemma3) that LEAT_TEST_TOKENIZERS does not name\n",
            skipped);
        if (skipped == 2)
            skip();
    }
}

/* llama.cpp's pairs: texts in .inp, one line of ids each in .out. */
static void run_pairs(const char *path, const char *base)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char name[200], text[1 << 16], line[1 << 14];
    snprintf(name, sizeof name, "%s.inp", base);
    FILE *in = fopen(data_path(DATA, name), "rb");
    snprintf(name, sizeof name, "%s.out", base);
    FILE *out = fopen(data_path(DATA, name), "rb");
    assert_true(in && out);
    size_t n = fread(text, 1, sizeof text - 1, in), wrong = 0, total = 0;
    text[n] = '\0';
    struct opened o = open_good(path);
    for (char *s = text, *next; s && s < text + n; s = next) {
        char *end = strstr(s, separator);
        next = end ? end + strlen(separator) : NULL;
        size_t len = end ? (size_t)(end - s) : strlen(s);
        json_t *ids = json_array();
        assert_non_null(fgets(line, sizeof line, out));
        for (char *p = strtok(line, " \n"); p; p = strtok(NULL, " \n"))
            json_array_append_new(ids, json_integer(atoi(p)));
        wrong += !encodes_to(o.t, s, len, ENCODE_SPECIAL, ids, base);
        json_decref(ids);
        total++;
    }
    printf("%s: %zu pairs\n", base, total);
    assert_int_equal(total, 46);
    close_any(&o);
    fclose(in);
    fclose(out);
    assert_int_equal(wrong, 0);
}

static void test_pairs(void **state)
{
    static const char *const names[] = {"deepseek-llm", "falcon", "gpt-2",
                                        "llama-spm",    "phi-3",  "starcoder"};
    (void)state;
    if (!data_path(DATA, "vocab-gguf")) {
        print_message("skipped: ../shared/data/vocab-gguf is absent (7 vocabularies)\n");
        skip();
    }
    for (size_t i = 0; i < 6; i++) {
        char file[80];
        snprintf(file, sizeof file, "vocab-gguf/ggml-vocab-%s.gguf", names[i]);
        run_pairs(data_path(DATA, file), file);
    }
    struct opened o;
    struct leat_error e;
    assert_int_equal(open_any(&o, data_path(DATA, "vocab-gguf/ggml-vocab-bert-bge.gguf"), &e),
                     LEAT_ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "WordPiece tokenizers (BERT) are not supported yet"));
    close_any(&o);
}

static void test_pairs_json(void **state)
{
    (void)state;
    const char *from = data_path(DATA, "tokenizers/qwen3/tokenizer.json.gz"), *to;
    char command[2400];
    if (!from) {
        print_message("skipped: ../shared/data/tokenizers is absent (1 set of pairs)\n");
        skip();
    }
    to = scratch_file("tokenizer.json");
    snprintf(command, sizeof command, "gzip -dc '%s' > '%s'", from, to);
    assert_int_equal(system(command), 0);
    run_pairs(to, "tokenizers/qwen3.llama-cpp-qwen2");
    const char *llama3 = data_path("LEAT_TEST_TOKENIZERS", "llama3/tokenizer.json");
    if (llama3)
        run_pairs(llama3, "tokenizers/llama3.llama-cpp-llama-bpe");
}

/* The text that was generated, from its ids: the empty prompt's is the start of a text, the others'
 * is not. */
static bool generated_text(const struct tokenizer *t, const json_t *c)
{
    const json_t *stop = json_object_get(c, "first_stop_index"),
                 *text = json_object_get(c, "greedy_text_to_stop");
    size_t n, len = 0, cap = 8 + tokenizer_longest(t);
    int32_t *ids = ids_of(json_object_get(c, "greedy_ids"), &n);
    char *back = malloc(n * cap + cap);
    struct detokenizer d;
    assert_non_null(back);
    if (json_is_integer(stop))
        n = (size_t)json_integer_value(stop);
    detokenizer_init(&d, t, false, json_string_length(json_object_get(c, "prompt")) == 0);
    for (size_t i = 0; i < n; i++)
        len += detokenizer_feed(&d, ids[i], back + len, cap);
    len += detokenizer_flush(&d, back + len, cap);
    bool same = len == json_string_length(text) && memcmp(back, json_string_value(text), len) == 0;
    if (!same)
        fprintf(stderr, "\"%.*s\"\nis not \"%s\"\n", (int)len, back, json_string_value(text));
    free(ids);
    free(back);
    return same;
}

/* The prompts of stories260K, as plain text, and the text of its expected ids. */
static void test_stories(void **state)
{
    static const char *const sources[] = {"stories260K/stories260K-f32.gguf", "stories260K/hf"};
    (void)state;
    json_error_t why;
    const char *expected = data_path(DATA, "stories260K/expected.json");
    if (!expected) {
        print_message("skipped: ../shared/data/stories260K is absent (1 model)\n");
        skip();
    }
    json_t *j = json_load_file(expected, JSON_ALLOW_NUL, &why);
    assert_non_null(j);
    const json_t *cases = json_object_get(j, "cases");
    size_t wrong = 0;
    assert_int_equal(json_array_size(cases), 12);
    for (int k = 0; k < 2; k++) {
        struct opened o = open_good(data_path(DATA, sources[k]));
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *c = json_array_get(cases, i), *prompt = json_object_get(c, "prompt");
            wrong += !encodes_to(o.t, json_string_value(prompt), json_string_length(prompt),
                                 ENCODE_ADD_SPECIAL, json_object_get(c, "prompt_ids"), sources[k]);
            wrong += !generated_text(o.t, c);
        }
        assert_int_equal(tokenizer_bos(o.t), 1);
        assert_int_equal(tokenizer_eos(o.t), 2);
        assert_true(tokenizer_is_end(o.t, 2) && !tokenizer_is_end(o.t, 1));
        close_any(&o);
    }
    json_decref(j);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_cases), cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_elsewhere),  cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_pairs_json), cmocka_unit_test(test_stories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
