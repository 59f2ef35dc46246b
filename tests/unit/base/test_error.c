/* Error texts: quoting of untrusted bytes, cutting, prefixes, sizes for people. */
#include "unit_base.h"

#include <errno.h>

#include "../../../src/base/error.h"
#include "../../../src/base/utf8.h"

static void test_quote(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        size_t n;
        const char *out;
    } rows[] = {
        {"plain text", 10, "plain text"},
        {"", 0, ""},
        {"a\nb\tc", 5, "a\\x0ab\\x09c"},
        {"a\0b", 3, "a\\x00b"},
        {"gr\xc3\xbc\xc3\x9f", 6, "gr\xc3\xbc\xc3\x9f"},
        {"\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80"},
        {"\xff\xfe", 2, "\\xff\\xfe"},
        {"\xc3", 1, "\\xc3"},                            /* cut short */
        {"\xc0\xaf", 2, "\\xc0\\xaf"},                   /* overlong */
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"},          /* surrogate */
        {"\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80"}, /* over U+10FFFF */
        {"\xc2\x9b"
         "31m",
         5,
         "\\xc2\\x9b"
         "31m"},                                    /* the 8-bit control sequence introducer */
        {"x\xe2\x80\xaey", 5, "x\\xe2\\x80\\xaey"}, /* right-to-left override */
        {"\x1b[2J", 4, "\\x1b[2J"},
        {"\x7f", 1, "\\x7f"},
    };
    char text[64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(error_quote(text, sizeof text, rows[i].in, rows[i].n), rows[i].out);
}

static void test_quote_cut(void **state)
{
    (void)state;
    char text[16];
    assert_string_equal(error_quote(text, 8, "1234567", 7), "1234567");
    assert_string_equal(error_quote(text, 8, "12345678", 8), "1234...");
    assert_string_equal(error_quote(text, 8,
                                    "123\xc3\xbc\xc3\xbc"
                                    "67",
                                    9),
                        "123...");
    assert_string_equal(error_quote(text, 8, "\n\n", 2), "\\x0a...");
    assert_string_equal(error_quote(text, 4, "12345", 5), "...");
    assert_string_equal(error_quote(text, 3, "12345", 5), "..");
    assert_string_equal(error_quote(text, 1, "12345", 5), "");
}

/* Whatever comes in, what comes out is printable UTF-8 that fits, and is complete when it has no
 * dots. */
static void test_quote_random(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 20000; round++) {
        unsigned char in[24];
        char out[40];
        size_t n = random_next(&seed) % sizeof in, cap = 1 + random_next(&seed) % sizeof out;
        for (size_t i = 0; i < n; i++)
            in[i] = (unsigned char)(random_next(&seed) >> 40);
        memset(out, 0x55, sizeof out);
        error_quote(out, cap, in, n);
        size_t len = strlen(out);
        assert_true(len < cap);
        for (size_t at = 0; at < len;) {
            uint32_t c;
            int step = utf8_next(out + at, len - at, &c);
            assert_true(step > 0 && c >= 0x20 && c != 0x7f);
            at += (size_t)step;
        }
    }
}

static void test_set(void **state)
{
    (void)state;
    static struct leat_error e;
    e.needed_bytes = 9;
    assert_int_equal(error_set(&e, LEAT_ERR_FORMAT, "%s: byte %d", "f.gguf", 12), LEAT_ERR_FORMAT);
    assert_int_equal(e.code, LEAT_ERR_FORMAT);
    assert_string_equal(e.message, "f.gguf: byte 12");
    assert_int_equal(e.needed_bytes, 0);

    error_set(&e, LEAT_ERR_FILE, "again: %s", e.message); /* the message may be its own argument */
    assert_string_equal(e.message, "again: f.gguf: byte 12");

    error_set(&e, LEAT_ERR_FILE, "two\nlines\x1b[0m");
    assert_string_equal(e.message, "two lines?[0m");

    e.needed_bytes = 5;
    assert_int_equal(error_prefix(&e, "loading %s", "x"), LEAT_ERR_FILE);
    assert_string_equal(e.message, "loading x: two lines?[0m");
    assert_int_equal(e.needed_bytes, 5);

    assert_int_equal(error_set_errno(&e, LEAT_ERR_FILE, ENOENT, "cannot open %s", "y"),
                     LEAT_ERR_FILE);
    assert_string_equal(e.message, "cannot open y: No such file or directory");

    assert_int_equal(error_set(NULL, LEAT_ERR_USAGE, "nobody listens"), LEAT_ERR_USAGE);
    assert_int_equal(error_set_errno(NULL, LEAT_ERR_FILE, EIO, "nobody"), LEAT_ERR_FILE);
}

static void test_set_long(void **state)
{
    (void)state;
    static struct leat_error e;
    static char text[2 * LEAT_ERROR_TEXT + 1];
    for (size_t i = 0; i + 1 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xbc", 2);
    error_set(&e, LEAT_ERR_FILE, "%s",
              text); /* 2047 bytes of room: the last character is cut away */
    assert_int_equal(strlen(e.message), LEAT_ERROR_TEXT - 2);
    error_set(&e, LEAT_ERR_FILE, "x%s", text);
    assert_int_equal(strlen(e.message), LEAT_ERROR_TEXT - 1);
    error_set_errno(&e, LEAT_ERR_FILE, EIO, "%s", text); /* the reason is kept */
    assert_contains(e.message, ": Input/output error");
    error_prefix(&e, "%s", text);
    assert_true(strlen(e.message) < LEAT_ERROR_TEXT);
}

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        uint64_t n;
        const char *text;
    } rows[] = {
        {0, "0 bytes"},
        {1, "1 byte"},
        {12, "12 bytes"},
        {1023, "1023 bytes"},
        {1024, "1.00 KiB"},
        {655360, "640 KiB"},
        {1610612736, "1.50 GiB"},
        {10 * 1024 * 1024, "10.0 MiB"},
        {1024 * 1024 - 1, "1.00 MiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char text[24];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(format_bytes(text, sizeof text, rows[i].n), rows[i].text);
    assert_string_equal(error_code_word(LEAT_ERR_MEMORY), "memory");
    assert_string_equal(error_code_word(LEAT_ERR_CANCELLED), "cancelled");
    assert_string_equal(error_code_word(-77), "internal");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quote),        cmocka_unit_test(test_quote_cut),
        cmocka_unit_test(test_quote_random), cmocka_unit_test(test_set),
        cmocka_unit_test(test_set_long),     cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests_name("error", tests, NULL, NULL);
}
