/* Small tokenizers and the answers of Hugging Face tokenizers
 * (tests/golden/tokenizers/make_golden.py): ids with and without special tokens, decoded text, and
 * how every named pre-tokenizer cuts a text. */
#include "text_unit.h"

#include "../../../src/text/pre_table.h"

#define GOLDEN "LEAT_TEST_GOLDEN"

static json_t *load(const char *name)
{
    json_error_t why;
    const char *path = data_path(GOLDEN, name);
    assert_non_null(path);
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &why);
    assert_non_null(j);
    return j;
}

static void test_cases(void **state)
{
    (void)state;
    json_t *cases = load("cases.json");
    char name[64] = "";
    struct opened o = {0};
    struct leat_error e;
    size_t wrong = 0, total = json_array_size(cases), decoded = 0, plain = 0, whole = 0;
    for (size_t i = 0; i < total; i++) {
        const json_t *c = json_array_get(cases, i), *text = json_object_get(c, "text");
        const char *tokenizer = json_string_value(json_object_get(c, "tokenizer"));
        if (strcmp(tokenizer, name) != 0) {
            char file[80];
            if (o.t)
                close_any(&o);
            snprintf(name, sizeof name, "%s", tokenizer);
            snprintf(file, sizeof file, "%s.json", name);
            assert_int_equal(open_any(&o, data_path(GOLDEN, file), &e), 0);
        }
        const char *s = json_string_value(text);
        size_t n = json_string_length(text);
        const json_t *ids = json_object_get(c, "ids"), *other;
        wrong += !encodes_to(o.t, s, n, ENCODE_SPECIAL, ids, name);
        other = json_object_get(c, "plain_ids");
        plain += other != NULL;
        wrong += !encodes_to(o.t, s, n, 0, other ? other : ids, name);
        other = json_object_get(c, "whole_ids");
        whole += other != NULL;
        if (other)
            wrong += !encodes_to(o.t, s, n, ENCODE_SPECIAL | ENCODE_ADD_SPECIAL, other, name);
        other = json_object_get(c, "decoded");
        if (other) {
            size_t count, len;
            int32_t *list = ids_of(ids, &count);
            char *back = decode_all(o.t, list, count, &len);
            bool same = len == json_string_length(other) &&
                        memcmp(back, json_string_value(other), len) == 0;
            if (!same)
                fprintf(stderr, "%s: \"%s\" decodes to \"%s\", not \"%s\"\n", name, s, back,
                        json_string_value(other));
            wrong += !same;
            decoded++;
            free(list);
            free(back);
        }
    }
    close_any(&o);
    json_decref(cases);
    assert_int_equal(wrong, 0);
    assert_true(total > 1000 && decoded > 900 && plain > 15 && whole > 200);
}

static void test_pieces(void **state)
{
    (void)state;
    json_t *cases = load("pieces.json");
    char key[16] = "";
    struct splitter s = {0};
    struct split_work w = {0};
    struct regex_work rw = {0};
    struct leat_error e = {0};
    size_t wrong = 0, patterns = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *text = json_object_get(c, "text");
        const json_t *want = json_object_get(c, "pieces");
        const char *pattern = json_string_value(json_object_get(c, "pattern")), *out;
        const struct split_pieces *got;
        if (strcmp(pattern, key) != 0) {
            snprintf(key, sizeof key, "%s", pattern);
            const struct pre_pattern *p = pre_pattern_find(key);
            assert_non_null(p);
            splitter_close(&s);
            assert_int_equal(pre_pattern_open(p, "test", &s, &e), 0);
            patterns++;
        }
        const char *t = json_string_value(text);
        assert_int_equal(
            splitter_run(&s, &w, &rw, t, json_string_length(text), true, &out, &got, &e), 0);
        assert_ptr_equal(out, t);
        bool same = got->n == json_array_size(want);
        size_t at = 0;
        for (size_t j = 0; j < got->n && same; j++) {
            assert_int_equal(got->p[j].at, at);
            at += got->p[j].len;
            same = got->p[j].len == (size_t)json_integer_value(json_array_get(want, j));
        }
        if (!same) {
            char *list = json_dumps(want, 0);
            fprintf(stderr, "%s: \"%s\"\n  wanted %s\n  got   ", key, t, list);
            for (size_t j = 0; j < got->n; j++)
                fprintf(stderr, " %u", got->p[j].len);
            fprintf(stderr, "\n");
            free(list);
        }
        wrong += !same;
    }
    splitter_close(&s);
    split_work_free(&w);
    regex_work_free(&rw);
    json_decref(cases);
    assert_int_equal(wrong, 0);
    assert_int_equal(patterns, 30);
}

/* Every row of the table names a pattern that exists, compiles and is found by each of its names.
 */
static void test_table(void **state)
{
    (void)state;
    size_t names = 0;
    for (size_t i = 0; pre_at(i); i++) {
        const struct pre_row *r = pre_at(i);
        assert_non_null(pre_pattern_find(r->pattern));
        for (const char *s = r->names; *s;) {
            size_t n = strcspn(s, " ");
            assert_true(n > 0);
            assert_ptr_equal(pre_find(s, n), r);
            names++;
            s += n + (s[n] == ' ');
        }
    }
    assert_true(names > 80);
    assert_null(pre_find("", 0));
    assert_null(pre_find("llama-bp", 8));
    assert_null(pre_find("no-such", 7));
    assert_string_equal(pre_default()->pattern, "DEF");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
