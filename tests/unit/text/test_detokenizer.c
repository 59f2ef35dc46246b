/* The stream from ids to text: whole characters only, ill-formed bytes replaced as one would
 * replace them in the whole text, the first space of a text, special tokens hidden or shown. */
#include "text_unit.h"

#include "../../../src/base/utf8.h"
#include "../../../src/text/unicode.h"

#define GOLDEN "LEAT_TEST_GOLDEN"

/* "spm_prepend" has <0x00> .. <0xFF> as its last 256 ids before the added ones; found by spelling
 * here. */
static int32_t byte_token(const struct tokenizer *t, unsigned b)
{
    char s[8];
    snprintf(s, sizeof s, "<0x%02X>", b);
    int32_t id = tokenizer_find(t, s, 6);
    assert_true(id >= 0);
    return id;
}

static void open_golden(struct opened *o, const char *name)
{
    struct leat_error e;
    const char *path = data_path(GOLDEN, name);
    assert_non_null(path);
    assert_int_equal(open_any(o, path, &e), 0);
}

static bool is_utf8(const char *s, size_t n)
{
    uint32_t c;
    for (size_t i = 0; i < n;) {
        int k = utf8_next(s + i, n - i, &c);
        if (k == 0)
            return false;
        i += (size_t)k;
    }
    return true;
}

/* Feeds bytes one token each; every step must be whole characters, and all together what repairing
 * the bytes gives. */
static void streams(const struct tokenizer *t, const unsigned char *bytes, size_t n)
{
    struct detokenizer d;
    struct text_buf want = {0};
    size_t cap = 8 + tokenizer_longest(t), len = 0;
    char got[256], *one = malloc(cap);
    assert_true(3 * n < sizeof got);
    int rc = unicode_repair((const char *)bytes, n, &want, NULL);
    assert_true(rc >= 0);
    if (rc == 0)
        assert_int_equal(text_buf_add(&want, bytes, n, NULL), 0);
    detokenizer_init(&d, t, false, false);
    for (size_t i = 0; i <= n; i++) {
        size_t m = i < n ? detokenizer_feed(&d, byte_token(t, bytes[i]), one, cap)
                         : detokenizer_flush(&d, one, cap);
        assert_true(is_utf8(one, m));
        memcpy(got + len, one, m);
        len += m;
    }
    assert_int_equal(detokenizer_flush(&d, one, cap), 0);
    assert_int_equal(len, want.n);
    assert_memory_equal(got, want.p ? want.p : "", len);
    text_buf_free(&want);
    free(one);
}

static void test_stream(void **state)
{
    static const char *const texts[] = {
        "",
        "a",
        "雪だるま🎈ñ",
        "\xff",
        "a\xf0\x9f\x98",
        "\xf0\x9f\x98z",
        "\xe4\xbd\xa0\xe5\xa5",
        "\xc3\xc3\xa9",
        "\xed\xa0\x80",
        "\xf4\x90\x80\x80",
        "\xf0\x9f\xf0\x9f\x98\x80",
        "\x80\x80\xc2",
    };
    (void)state;
    struct opened o;
    uint32_t seed = 7;
    open_golden(&o, "spm_prepend.json");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        streams(o.t, (const unsigned char *)texts[i], strlen(texts[i]));
    for (int round = 0; round < 3000; round++) {
        static const unsigned char edges[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f,
                                              0xa0, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xe1,
                                              0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
        unsigned char bytes[24];
        for (size_t i = 0; i < sizeof bytes; i++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[i] = edges[(seed >> 16) % sizeof edges];
        }
        streams(o.t, bytes, 1 + (size_t)round % sizeof bytes);
    }
    close_any(&o);
}

/* Tokens of several bytes that are not whole characters: the same over a byte-level vocabulary,
 * whose every answer must also fit the room that the header promises. */
static void test_stream_byte_level(void **state)
{
    (void)state;
    struct opened o;
    uint32_t seed = 3;
    open_golden(&o, "byte_prefix.json");
    size_t cap = 8 + tokenizer_longest(o.t);
    char *one = malloc(cap);
    for (int round = 0; round < 2000; round++) {
        struct detokenizer d;
        struct text_buf all = {0}, whole = {0}, want = {0};
        detokenizer_init(&d, o.t, true, true);
        for (int i = 0; i < 12; i++) {
            char piece[400];
            seed = seed * 1664525u + 1013904223u;
            int32_t id = (int32_t)((seed >> 8) % (uint32_t)tokenizer_size(o.t));
            size_t n = tokenizer_piece(o.t, id, true, piece, sizeof piece);
            assert_true(n <= sizeof piece);
            text_buf_add(&all, piece, n, NULL);
            size_t m = detokenizer_feed(&d, id, one, cap);
            assert_true(is_utf8(one, m));
            text_buf_add(&whole, one, m, NULL);
        }
        text_buf_add(&whole, one, detokenizer_flush(&d, one, cap), NULL);
        if (unicode_repair(all.p, all.n, &want, NULL) == 0)
            text_buf_add(&want, all.p, all.n, NULL);
        assert_int_equal(whole.n, want.n);
        assert_memory_equal(whole.p, want.p, want.n);
        text_buf_free(&all);
        text_buf_free(&whole);
        text_buf_free(&want);
    }
    free(one);
    close_any(&o);
}

static void decodes(const struct tokenizer *t, const char *text, uint32_t flags, bool special,
                    bool at_start, const char *want)
{
    struct token_list l = {0};
    struct detokenizer d;
    size_t cap = 8 + tokenizer_longest(t), len = 0;
    char *got = malloc(100 * cap);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &l, NULL), 0);
    detokenizer_init(&d, t, special, at_start);
    for (size_t i = 0; i < l.n && i < 99; i++)
        len += detokenizer_feed(&d, l.ids[i], got + len, cap);
    len += detokenizer_flush(&d, got + len, cap);
    got[len] = '\0';
    assert_string_equal(got, want);
    free(got);
    token_list_free(&l);
}

static void test_start_and_special(void **state)
{
    (void)state;
    struct opened o;
    const uint32_t special = ENCODE_SPECIAL, whole = ENCODE_SPECIAL | ENCODE_ADD_SPECIAL;
    open_golden(&o, "spm_prepend.json");
    decodes(o.t, "The water", special, false, true, "The water");
    decodes(o.t, "The water", special, false, false,
            " The water"); /* in the middle the space stands */
    decodes(o.t, " The water", special, false, true, " The water"); /* one space goes, not two */
    decodes(o.t, "The", whole, false, true, "The");                 /* a hidden BOS is no start */
    decodes(o.t, "The</s>", whole, true, true, "<s> The</s>");
    decodes(o.t, "The</s>", whole, false, true, "The");
    close_any(&o);
    open_golden(&o, "byte_prefix.json");
    decodes(o.t, "The water", special, false, true, " The water");
    assert_int_equal(tokenizer_piece(o.t, -1, true, NULL, 0), 0);
    assert_int_equal(tokenizer_piece(o.t, tokenizer_size(o.t), true, NULL, 0), 0);
    char two[2] = "";
    int32_t tool = tokenizer_find(o.t, "<tool>", 6);
    assert_int_equal(tokenizer_piece(o.t, tool, false, two, 2),
                     6); /* what it needs, and what fits */
    assert_memory_equal(two, "<t", 2);
    close_any(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_byte_level),
        cmocka_unit_test(test_start_and_special),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
