/* Mutations of good files and random bytes as text, for the sanitizer builds: whatever comes in,
 * the answer is a tokenizer that works or one clear error, and every byte goes back. Deterministic;
 * LEAT_FUZZ_ROUNDS lengthens it. */
#include "text_unit.h"

#include <glob.h>

#include "../../../src/base/utf8.h"

#define GOLDEN "LEAT_TEST_GOLDEN"

static uint32_t seed = 12345;

static uint32_t rnd(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(seed ^ seed >> 15) * n >> 32);
}

static long rounds(long usual)
{
    const char *s = getenv("LEAT_FUZZ_ROUNDS");
    return s ? atol(s) : usual;
}

static char *read_whole(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *p = malloc(2 * *n + 4096);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

/* Pieces of tokenizer.json that hurt most. */
static const char *const bites[] = {
    "0",
    "-1",
    "1e999",
    "2097150",
    "2097151",
    "4294967296",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"a\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    ",",
    ":",
    "}",
    "]",
    "{\"type\":\"Sequence\",\"normalizers\":[]}",
    "{\"Regex\":\"(a+)+$\"}",
    "{\"Regex\":\"\"}",
    "{\"Regex\":\"[^\"}",
    "\"type\":\"Metaspace\"",
    "\"type\":\"NFKC\"",
    "\"lstrip\":true",
    "\"single_word\":true",
    "\"normalized\":true",
    "\"behavior\":\"Removed\"",
    "\"invert\":true",
    "\xff",
    "\xed\xa0\x80",
};

/* A value of the JSON text, from a colon to where a number, word or short string ends: its length.
 */
static size_t value_at(const char *p, size_t n, size_t *at)
{
    const char *colon = memchr(p + *at, ':', n - *at);
    if (!colon || colon + 1 >= p + n)
        return 0;
    const char *v = colon + 1, *end = v;
    if (*v == '"')
        for (end = v + 1; end < p + n && *end != '"'; end += *end == '\\' ? 2 : 1)
            ;
    else
        while (end < p + n && !strchr(",}]", *end))
            end++;
    if (end >= p + n)
        return 0;
    *at = (size_t)(v - p);
    return (size_t)(end - v) + (*v == '"');
}

static size_t mutate(char *p, size_t n, size_t cap)
{
    for (uint32_t k = 1 + rnd(2); k > 0 && n > 8; k--) {
        size_t at = rnd((uint32_t)n), len = 1 + rnd(rnd(4) ? 8 : 200);
        if (len > n - at)
            len = n - at;
        switch (rnd(9)) {
        case 6:
        case 7:
        case 8: { /* a value becomes another one, or a bite */
            size_t from = rnd((uint32_t)n), m = value_at(p, n, &from);
            len = value_at(p, n, &at);
            const char *b = bites[rnd(sizeof bites / sizeof *bites)];
            char keep[64];
            if (m == 0 || m > sizeof keep || rnd(3) == 0)
                m = strlen(b);
            else
                b = memcpy(keep, p + from, m);
            if (len == 0 || n - len + m > cap)
                break;
            memmove(p + at + m, p + at + len, n - at - len);
            memcpy(p + at, b, m);
            n = n - len + m;
            break;
        }
        case 0: /* one byte becomes another */
            p[at] = (char)rnd(256);
            break;
        case 1: /* one bit */
            p[at] = (char)(p[at] ^ 1 << rnd(8));
            break;
        case 2: /* a stretch goes */
            memmove(p + at, p + at + len, n - at - len);
            n -= len;
            break;
        case 3: /* a stretch comes twice */
            if (n + len > cap)
                break;
            memmove(p + at + len, p + at, n - at);
            n += len;
            break;
        case 4: { /* a bite replaces a stretch */
            const char *b = bites[rnd(sizeof bites / sizeof *bites)];
            size_t m = strlen(b);
            if (n - len + m > cap)
                break;
            memmove(p + at + m, p + at + len, n - at - len);
            memcpy(p + at, b, m);
            n = n - len + m;
            break;
        }
        default: /* a stretch moves to another place */
            if (at + len < n) {
                size_t to = rnd((uint32_t)(n - len));
                char keep[256];
                memcpy(keep, p + at, len);
                memmove(p + at, p + at + len, n - at - len);
                memmove(p + to + len, p + to, n - len - to);
                memcpy(p + to, keep, len);
            }
        }
    }
    return n;
}

static void use(const struct tokenizer *t)
{
    static const char mixed[] = "The water wheel  turns.\n\n it's 1234567 \u00e9e\u0301 "
                                "\u4e2d\u6587 <s>hello</s>\t<w> <tool>";
    static const char *const texts[] = {mixed, "\xff\xf0\x9f\x98 \x00 a", "", "   ",
                                        "\u2581\u2581<0x41>\u0130"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (uint32_t flags = 0; flags < 4; flags++) {
            struct token_list l = {0};
            struct leat_error e = {0};
            int rc =
                tokenizer_encode(t, texts[i], strlen(texts[i]) + (i == 1 ? 3 : 0), flags, &l, &e);
            if (rc < 0) { /* a regular expression may give up */
                assert_int_equal(e.code, rc);
                assert_int_equal(l.n, 0);
            } else {
                size_t len;
                for (size_t j = 0; j < l.n; j++)
                    assert_non_null(tokenizer_spelling(t, l.ids[j], NULL));
                free(decode_all(t, l.ids, l.n, &len));
            }
            token_list_free(&l);
        }
}

static void message_is_clean(const struct leat_error *e)
{
    size_t n = strlen(e->message);
    uint32_t c;
    for (size_t i = 0; i < n;) {
        int k = utf8_next(e->message + i, n - i, &c);
        assert_true(k > 0 && c >= 0x20 && c != 0x7f);
        i += (size_t)k;
    }
}

static void mutate_file(const char *good, const char *bad, long count, long *opened)
{
    size_t n;
    char *base = read_whole(good, &n), *p = malloc(2 * n + 4096);
    for (long i = 0; i < count; i++) {
        struct opened o;
        struct leat_error e;
        memcpy(p, base, n);
        size_t m = mutate(p, n, 2 * n + 4096);
        write_file(bad, p, m);
        if (open_any(&o, bad, &e) == 0) {
            use(o.t);
            ++*opened;
        } else {
            message_is_clean(&e);
        }
        close_any(&o);
    }
    free(base);
    free(p);
}

static void test_json_mutations(void **state)
{
    (void)state;
    glob_t g;
    const char *root = getenv(GOLDEN);
    char pattern[4096];
    long opened = 0, total = 0;
    assert_non_null(root);
    snprintf(pattern, sizeof pattern, "%s/*.json", root);
    assert_int_equal(glob(pattern, 0, NULL, &g), 0);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        const char *name = strrchr(g.gl_pathv[i], '/') + 1;
        if (strcmp(name, "cases.json") == 0 || strcmp(name, "pieces.json") == 0 ||
            strcmp(name, "patterns.json") == 0)
            continue;
        mutate_file(g.gl_pathv[i], scratch_file("tokenizer.json"), rounds(40), &opened);
        total += rounds(40);
    }
    globfree(&g);
    printf("%ld of %ld mutated tokenizer.json opened\n", opened, total);
    assert_true(opened > 0 && opened < total);
}

static void test_gguf_mutations(void **state)
{
    (void)state;
    const char *good = data_path("LEAT_TEST_DATA", "stories260K/stories260K-f32.gguf");
    long opened = 0;
    if (!good) {
        print_message("skipped: ../shared/data/stories260K is absent (1 file to mutate)\n");
        skip();
    }
    /* Only the header matters: the mutations fall on the first 16 KiB. */
    size_t n;
    char *base = read_whole(good, &n), *p = malloc(n + 65536);
    const char *bad = scratch_file("mutant.gguf");
    for (long i = 0; i < rounds(300); i++) {
        struct opened o;
        struct leat_error e;
        size_t head = 16384;
        memcpy(p, base, head);
        head = mutate(p, head, head + 32768);
        memcpy(p + head, base + 16384, n - 16384);
        write_file(bad, p, head + n - 16384);
        if (open_any(&o, bad, &e) == 0) {
            use(o.t);
            opened++;
        } else {
            message_is_clean(&e);
        }
        close_any(&o);
    }
    printf("%ld mutated GGUF vocabularies opened\n", opened);
    free(base);
    free(p);
}

/* Random bytes and random characters through every golden tokenizer. */
static void test_random_text(void **state)
{
    static const char *const names[] = {
        "byte_nfc.json",   "byte_prefix.json",  "spm_prepend.json", "metaspace_first.json",
        "nfkc_lower.json", "nfkd_accents.json", "split_next.json",  "metaspace_unk.json"};
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct opened o;
        struct leat_error e;
        const char *path = data_path(GOLDEN, names[k]);
        assert_non_null(path);
        assert_int_equal(open_any(&o, path, &e), 0);
        for (long i = 0; i < rounds(200); i++) {
            char text[300];
            size_t n = 0, most = rnd(200);
            bool bytes = rnd(2);
            while (n < most) {
                uint32_t c = rnd(4) ? rnd(0x250) : rnd(0x30000);
                if (bytes)
                    text[n++] = (char)rnd(256);
                else if (c < 0xd800 || c > 0xdfff)
                    n += (size_t)utf8_write(text + n, c);
            }
            struct token_list l = {0};
            size_t len;
            assert_int_equal(tokenizer_encode(o.t, text, n, rnd(4), &l, &e), 0);
            for (size_t j = 0; j < l.n; j++)
                assert_true(l.ids[j] >= 0 && l.ids[j] < tokenizer_size(o.t));
            free(decode_all(o.t, l.ids, l.n, &len));
            token_list_free(&l);
        }
        close_any(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_mutations),
        cmocka_unit_test(test_gguf_mutations),
        cmocka_unit_test(test_random_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
