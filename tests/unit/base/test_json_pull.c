/* The pull reader: a table of good and bad documents, streaming byte by byte, limits, skipping,
 * and a comparison with jansson on thousands of mutated documents. */
#include "unit_base.h"

#include <locale.h>

#include "../../../src/base/json_pull.h"
#include "json_reference.h"

static struct leat_error err;

/* A source that gives at most `step` bytes at a time, and fails at `fail_at`. */
struct drip {
    const char *bytes;
    size_t n, at, step, fail_at;
};

static int64_t drip_read(void *arg, void *dst, size_t cap, struct leat_error *e)
{
    struct drip *d = arg;
    size_t n = d->n - d->at;
    if (d->at >= d->fail_at)
        return error_set(e, LEAT_ERR_FILE, "the drive is gone");
    n = n < d->step ? n : d->step;
    n = n < cap ? n : cap;
    memcpy(dst, d->bytes + d->at, n);
    d->at += n;
    return (int64_t)n;
}

/* All events as one text: {}[] for containers, k:TEXT, s:TEXT, n:SPELLING, t f 0, and $ for the
 * end; or "!" and the error. */
static void events_of(struct json_pull *p, char *out, size_t cap)
{
    size_t at = 0;
    for (;;) {
        int event = json_pull_next(p, &err);
        char one[300];
        switch (event) {
        case JSON_OBJECT:
            strcpy(one, "{");
            break;
        case JSON_OBJECT_END:
            strcpy(one, "}");
            break;
        case JSON_ARRAY:
            strcpy(one, "[");
            break;
        case JSON_ARRAY_END:
            strcpy(one, "]");
            break;
        case JSON_KEY:
        case JSON_STRING:
            assert_int_equal(p->text[p->text_len], 0);
            snprintf(one, sizeof one, "%c:%s ", event == JSON_KEY ? 'k' : 's', p->text);
            break;
        case JSON_NUMBER:
            snprintf(one, sizeof one, p->is_integer ? "i:%s " : "n:%s ", p->text);
            break;
        case JSON_TRUE:
            strcpy(one, "t");
            break;
        case JSON_FALSE:
            strcpy(one, "f");
            break;
        case JSON_NULL:
            strcpy(one, "0");
            break;
        case JSON_END:
            strcpy(one, "$");
            break;
        default:
            snprintf(one, sizeof one, "!%.250s", err.message);
            break;
        }
        size_t n = strlen(one);
        assert_true(at + n < cap);
        memcpy(out + at, one, n + 1);
        at += n;
        if (event < 0 || event == JSON_END)
            return;
    }
}

static const char *read_memory(const char *text, size_t n)
{
    static char out[4096];
    struct json_pull p;
    if (json_pull_open_memory(&p, "doc", text, n, 200, &err) < 0)
        snprintf(out, sizeof out, "!%.3000s", err.message);
    else
        events_of(&p, out, sizeof out);
    json_pull_close(&p);
    return out;
}

static const char *read_drip(const char *text, size_t n, size_t step)
{
    static char out[4096];
    struct drip d = {text, n, 0, step, SIZE_MAX};
    struct json_pull p;
    if (json_pull_open(&p, "doc", drip_read, &d, 200, &err) < 0)
        snprintf(out, sizeof out, "!%.3000s", err.message);
    else
        events_of(&p, out, sizeof out);
    json_pull_close(&p);
    return out;
}

#define DOC(s) s, sizeof s - 1

static const struct {
    const char *text;
    size_t n;
    const char *events;
} good[] = {
    {DOC("{}"), "{}$"},
    {DOC(" \t\r\n[ ] \n"), "[]$"},
    {DOC("null"), "0$"},
    {DOC("true"), "t$"},
    {DOC("\"x\""), "s:x $"},
    {DOC("[1,-2,0,-0,3.5,1e3,1E+2,2e-1]"), "[i:1 i:-2 i:0 i:-0 n:3.5 n:1e3 n:1E+2 n:2e-1 ]$"},
    {DOC("[9223372036854775807,9223372036854775808,-9223372036854775808]"),
     "[i:9223372036854775807 n:9223372036854775808 i:-9223372036854775808 ]$"},
    {DOC("{\"a\":{\"b\":[true,false,null]},\"c\":\"d\"}"), "{k:a {k:b [tf0]}k:c s:d }$"},
    {DOC("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), "s:\"\\/\b\f\n\r\t $"},
    {DOC("\"\\u0041\\u00e9\\u20AC\\uD83D\\uDE00\""), "s:A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 $"},
    {DOC("\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""), "s:\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 $"},
    {DOC("\"\x7f\""), "s:\x7f $"}, /* RFC 8259 allows it as it is */
    {DOC("{\"\":1,\"\":2}"), "{k: i:1 k: i:2 }$"},
    {DOC("[[[[[]]]],{}]"), "[[[[[]]]]{}]$"},
};

static const struct {
    const char *text;
    size_t n;
    int at; /* byte offset that the message names; -1 = any */
    const char *part;
} bad[] = {
    {DOC(""), 0, "the end of the text"},
    {DOC("  "), 2, "the end of the text"},
    {DOC("{"), 1, "a key or '}'"},
    {DOC("[1"), 2, "',' or ']'"},
    {DOC("[1,"), 3, "a value"},
    {DOC("[1,]"), 3, "']' stands where a value"},
    {DOC("[,1]"), 1, "','"},
    {DOC("{\"a\":1,}"), 7, "'}' stands where a key"},
    {DOC("{\"a\" 1}"), 5, "':'"},
    {DOC("{\"a\":}"), 5, "a value"},
    {DOC("{a:1}"), 1, "'a'"},
    {DOC("{1:1}"), 1, "'1'"},
    {DOC("{\"a\":1]"), 6, "',' or '}'"},
    {DOC("[1}"), 2, "',' or ']'"},
    {DOC("1 2"), 2, "only spaces are legal"},
    {DOC("{}\0\0\0"), 2, "NUL bytes follow the JSON value; only spaces are legal"},
    {DOC("{}x"), 2, "only spaces"},
    {DOC("\xef\xbb\xbf{}"), 0, "byte order mark"},
    {DOC("nul"), 0, "true, false or null"},
    {DOC("True"), 0, "'T'"},
    {DOC("NaN"), 0, "'N'"},
    {DOC("nullx"), 4, "only spaces"},
    {DOC("01"), 1, "begins with a zero"},
    {DOC("-"), 1, "a digit"},
    {DOC("+1"), 0, "'+'"},
    {DOC(".5"), 0, "'.'"},
    {DOC("1."), 2, "behind the decimal point"},
    {DOC("1e"), 2, "exponent"},
    {DOC("1e+"), 3, "exponent"},
    {DOC("{\"n\":1e999}"), -1, "1e999 behind key n is out of range"},
    {DOC("0x10"), 1, "'x'"},
    {DOC("\"abc"), 4, "ends inside a string"},
    {DOC("\"abc\\"), 4, "ends inside a string"},
    {DOC("\"a\nb\""), 2, "control byte 0x0a"},
    {DOC("\"a\0b\""), 2, "control byte 0x00"},
    {DOC("\"\\x41\""), 1, "'x', which is no escape"},
    {DOC("\"\\u12g4\""), 1, "four hexadecimal digits"},
    {DOC("\"\\u12"), 1, "four hexadecimal digits"},
    {DOC("\"\\ud800\""), 1, "first half of a surrogate pair"},
    {DOC("\"\\ud800\\u0041\""), 1, "first half"},
    {DOC("\"\\ud800x\""), 1, "first half"},
    {DOC("\"\\udc00\""), 1, "second half"},
    {DOC("\"\xff\""), 1, "0xff, which is not valid UTF-8"},
    {DOC("\"\xc3\""), 1, "UTF-8"},
    {DOC("\"\xc0\x80\""), 1, "UTF-8"},
    {DOC("\"\xed\xa0\x80\""), 1, "UTF-8"},
    {DOC("\"\xf4\x90\x80\x80\""), 1, "UTF-8"},
    {DOC("\"\xe2\x82"), 1, "UTF-8"},
    {DOC("[1 /* c */]"), 3, "'/'"},
    {DOC("{'a':1}"), 1, "'''"},
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_string_equal(read_memory(good[i].text, good[i].n), good[i].events);
        for (size_t step = 1; step < 6; step++)
            assert_string_equal(read_drip(good[i].text, good[i].n, step), good[i].events);
    }
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char seen[4096], place[32];
        strcpy(seen, read_memory(bad[i].text, bad[i].n));
        const char *message = strchr(seen, '!');
        if (!message)
            fail_msg("row %zu was accepted: %s", i, bad[i].text);
        assert_contains(message, bad[i].part);
        assert_int_equal(err.code, LEAT_ERR_FORMAT);
        snprintf(place, sizeof place, "!doc: byte %d: ", bad[i].at);
        if (bad[i].at >= 0)
            assert_contains(message, place);
        for (size_t step = 1; step < 6; step++)
            assert_string_equal(read_drip(bad[i].text, bad[i].n, step), seen);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } rows[] = {
        {"0", 0},
        {"0.1", 0.1},
        {"1e22", 1e22},
        {"1e23", 1e23},
        {"123456789012345678", 123456789012345678.0},
        {"9007199254740993", 9007199254740992.0}, /* 2^53 + 1 rounds to even */
        {"9007199254740993.0000000000000000001", 9007199254740994.0},
        {"1e-5", 1e-5},
        {"1.7976931348623157e308", 1.7976931348623157e308},
        {"5e-324", 5e-324},
        {"1e-999", 0.0},
        {"2.2250738585072011e-308", 2.2250738585072011e-308},
        {"-1.5e3", -1500.0},
        {"0.000001", 1e-6},
        {"10000.0", 10000.0},
    };
    /* A locale with a decimal comma must not matter, where one is installed. */
    const char *locale = setlocale(LC_ALL, "de_DE.UTF-8");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct json_pull p;
        assert_int_equal(
            json_pull_open_memory(&p, "n", rows[i].text, strlen(rows[i].text), 10, &err), 0);
        assert_int_equal(json_pull_next(&p, &err), JSON_NUMBER);
        if (p.number != rows[i].value)
            fail_msg("%s was read as %.17g", rows[i].text, p.number);
        assert_int_equal(json_pull_next(&p, &err), JSON_END);
        assert_int_equal(json_pull_next(&p, &err), JSON_END); /* again and again */
        json_pull_close(&p);
    }
    if (locale)
        setlocale(LC_ALL, "C");
}

static void test_limits(void **state)
{
    (void)state;
    char doc[2 * JSON_PULL_DEPTH + 3];
    struct json_pull p;
    memset(doc, '[', JSON_PULL_DEPTH);
    memset(doc + JSON_PULL_DEPTH, ']', JSON_PULL_DEPTH);
    assert_null(strchr(read_memory(doc, 2 * JSON_PULL_DEPTH), '!'));
    memset(doc, '[', JSON_PULL_DEPTH + 1);
    memset(doc + JSON_PULL_DEPTH + 1, ']', JSON_PULL_DEPTH + 1);
    assert_contains(read_memory(doc, 2 * JSON_PULL_DEPTH + 2), "nested more than 64 deep");

    char *deep = malloc(100000); /* MALFORMED S23 */
    memset(deep, '[', 100000);
    assert_contains(read_memory(deep, 100000), "nested more than 64 deep");
    free(deep);

    /* 200 bytes are the longest string that read_memory accepts. */
    char text[204];
    memset(text, 'a', sizeof text);
    text[0] = text[201] = '"';
    assert_null(strchr(read_memory(text, 202), '!'));
    text[201] = 'a';
    text[202] = '"';
    assert_contains(read_memory(text, 203), "longer than the 200 bytes");

    /* A value that is skipped may have longer ones. */
    char wide[400];
    memset(text, 'x', sizeof text);
    int n =
        snprintf(wide, sizeof wide, "{\"a\":[\"%.*s\",{\"b\":2}],\"c\":3}", (int)sizeof text, text);
    assert_int_equal(json_pull_open_memory(&p, "doc", wide, (size_t)n, 50, &err), 0);
    assert_int_equal(json_pull_next(&p, &err), JSON_OBJECT);
    assert_int_equal(json_pull_next(&p, &err), JSON_KEY);
    if (json_skip(&p, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(json_pull_next(&p, &err), JSON_KEY);
    assert_string_equal(p.text, "c");
    assert_int_equal(json_skip(&p, &err), 0);
    assert_int_equal(json_pull_next(&p, &err), JSON_OBJECT_END);
    assert_int_equal(json_pull_next(&p, &err), JSON_END);
    json_pull_close(&p);

    char digits[3000];
    memset(digits, '1', sizeof digits);
    assert_contains(read_memory(digits, sizeof digits), "more than 1024 characters");
}

static void test_source_fails(void **state)
{
    (void)state;
    static const char doc[] = "{\"key\": [1, 2, 3, \"text\", true]}";
    for (size_t at = 0; at < sizeof doc - 1; at++) {
        struct drip d = {doc, sizeof doc - 1, 0, 1, at};
        struct json_pull p;
        int rc = json_pull_open(&p, "doc", drip_read, &d, 100, &err);
        while (rc >= 0 && rc != JSON_END)
            rc = json_pull_next(&p, &err);
        assert_int_equal(rc, LEAT_ERR_FILE);
        assert_string_equal(err.message, "the drive is gone");
        if (p.state) {
            assert_int_equal(json_pull_next(&p, &err), LEAT_ERR_STATE);
            json_pull_close(&p);
        }
    }
}

static void test_skip_bad(void **state)
{
    (void)state;
    struct json_pull p;
    static const char doc[] = "{\"a\": [1, \"\xff\"], \"b\": 1}";
    assert_int_equal(json_pull_open_memory(&p, "doc", doc, sizeof doc - 1, 50, &err), 0);
    assert_int_equal(json_pull_next(&p, &err), JSON_OBJECT);
    assert_int_equal(json_pull_next(&p, &err), JSON_KEY);
    assert_int_equal(json_skip(&p, &err), LEAT_ERR_FORMAT); /* what is skipped is still checked */
    assert_contains(err.message, "byte 11:");
    assert_int_equal(json_skip(&p, &err), LEAT_ERR_STATE);
    json_pull_close(&p);

    assert_int_equal(json_pull_open_memory(&p, "a\nb", "[1]", 3, 50, &err), 0);
    assert_int_equal(json_pull_next(&p, &err), JSON_ARRAY);
    assert_int_equal(json_fail(&p, &err, LEAT_ERR_FORMAT, "not a %s", "list"), LEAT_ERR_FORMAT);
    assert_string_equal(err.message, "a\\x0ab: byte 1: not a list");
    json_pull_close(&p);
}

/* Writes the document anew from our events; 0 when ours refuses it. */
static size_t rewrite(const char *text, size_t n, char *out, size_t cap)
{
    struct json_pull p;
    size_t at = 0;
    int before = JSON_OBJECT;
    if (json_pull_open_memory(&p, "doc", text, n, 200, &err) < 0)
        return 0;
    for (;;) {
        int event = json_pull_next(&p, &err);
        if (event < 0 || event == JSON_END) {
            json_pull_close(&p);
            return event < 0 ? 0 : at;
        }
        assert_true(at + 6 * p.text_len + 40 < cap);
        bool closes = event == JSON_OBJECT_END || event == JSON_ARRAY_END;
        if (at > 0 && !closes && before != JSON_OBJECT && before != JSON_ARRAY &&
            before != JSON_KEY)
            out[at++] = ',';
        before = event;
        char number[40];
        switch (event) {
        case JSON_KEY:
        case JSON_STRING:
            out[at++] = '"';
            for (size_t i = 0; i < p.text_len; i++) {
                unsigned char c = (unsigned char)p.text[i];
                if (c < 0x20 || c == '"' || c == '\\')
                    at += (size_t)sprintf(out + at, "\\u%04x", c);
                else
                    out[at++] = (char)c;
            }
            out[at++] = '"';
            if (event == JSON_KEY)
                out[at++] = ':';
            break;
        case JSON_NUMBER:
            if (p.is_integer)
                sprintf(number, "%lld", (long long)p.integer);
            else
                sprintf(number, "%.17g", p.number);
            at += (size_t)sprintf(out + at, "%s%s", number,
                                  p.is_integer || strpbrk(number, ".e") ? "" : ".0");
            break;
        case JSON_TRUE:
            at += (size_t)sprintf(out + at, "true");
            break;
        case JSON_FALSE:
            at += (size_t)sprintf(out + at, "false");
            break;
        case JSON_NULL:
            at += (size_t)sprintf(out + at, "null");
            break;
        case JSON_OBJECT:
            out[at++] = '{';
            break;
        case JSON_OBJECT_END:
            out[at++] = '}';
            break;
        case JSON_ARRAY:
            out[at++] = '[';
            break;
        default:
            out[at++] = ']';
            break;
        }
    }
}

/* jansson accepts and refuses the same documents and reads the same values. Known differences
 * are kept out of the mutations: whole numbers over int64 (jansson refuses them) and depth. */
static void test_against_jansson(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u0120the\":12},\"x\":[1.5,-2e3,null]}"
        "}",
        "[{\"id\":1,\"content\":\"<s>\",\"special\":true},{\"id\":2,\"z\":\"\xe2\x96\x81\"}, false "
        "]",
        "{\"__metadata__\":{\"format\":\"pt\"},\"t\":{\"dtype\":\"F32\",\"shape\":[2,3],\"o\":[0,"
        "24]}}",
        "\"\\ud83d\\ude00 \\\" \\\\ \xf0\x9f\x98\x80 \\n\"",
        "[0, -0, 1e5, 12.25, 1E-3, [], {}, [[]], \"\", {\"\":\"\"}]",
    };
    static const char letters[] = "{}[]:,\"\\u0123456789eE+-. \ttrufalsn\x80\xc3\xa9\xff\x01";
    uint64_t seed = 2024;
    int same = 0, accepted = 0;
    for (int round = 0; round < 60000; round++) {
        char doc[160];
        const char *from = seeds[(size_t)round % (sizeof seeds / sizeof *seeds)];
        size_t n = strlen(from);
        memcpy(doc, from, n);
        int edits = (int)(random_next(&seed) % 4);
        for (int i = 0; i < edits && n > 0; i++) {
            size_t at = random_next(&seed) % n;
            char c = letters[random_next(&seed) % (sizeof letters - 1)];
            switch (random_next(&seed) % 4) {
            case 0:
                doc[at] = c;
                break;
            case 1:
                memmove(doc + at, doc + at + 1, n - at - 1);
                n--;
                break;
            case 2:
                if (n + 1 < sizeof doc) {
                    memmove(doc + at + 1, doc + at, n - at);
                    doc[at] = c;
                    n++;
                }
                break;
            default:
                n = at;
                break;
            }
        }
        char anew[2048];
        size_t m = rewrite(doc, n, anew, sizeof anew);
        bool theirs = reference_accepts(doc, n);
        if (theirs != (m > 0) || (theirs && !reference_same(doc, n, anew, m)))
            fail_msg("%.*s: jansson %s, ours %s (%s)", (int)n, doc, theirs ? "accepts" : "refuses",
                     m > 0 ? "accepts" : "refuses", m > 0 ? "" : err.message);
        same++;
        accepted += theirs;
    }
    assert_int_equal(same, 60000);
    assert_true(accepted > 15000 && accepted < 45000); /* both kinds were really there */
}

/* Strings across the border of the 64 KiB window, at every alignment. */
static void test_window(void **state)
{
    (void)state;
    static const char unit[] = "\"\xc3\xa9\\u00e9\xf0\x9f\x98\x80\\ud83d\\ude00\\n\",-12.5e1,true,";
    static const char value[] = "\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80\n";
    enum { COPIES = 4000 };
    size_t unit_n = sizeof unit - 1;
    char *doc = malloc(COPIES * unit_n + 64);
    for (size_t shift = 0; shift < unit_n; shift++) {
        size_t n = 0;
        memset(doc, ' ', shift);
        n += shift;
        doc[n++] = '[';
        for (int i = 0; i < COPIES; i++, n += unit_n)
            memcpy(doc + n, unit, unit_n);
        doc[n - 1] = ']';
        struct drip d = {doc, n, 0, 1 << 20, SIZE_MAX};
        struct json_pull p;
        int strings = 0, numbers = 0, event;
        assert_int_equal(json_pull_open(&p, "doc", drip_read, &d, 100, &err), 0);
        while ((event = json_pull_next(&p, &err)) != JSON_END) {
            if (event < 0)
                fail_msg("%s", err.message);
            if (event == JSON_STRING) {
                assert_string_equal(p.text, value);
                strings++;
            }
            if (event == JSON_NUMBER)
                numbers += p.number == -125.0;
        }
        assert_int_equal(p.offset, n);
        assert_int_equal(strings, COPIES);
        assert_int_equal(numbers, COPIES);
        json_pull_close(&p);
    }
    free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),         cmocka_unit_test(test_bad),
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_limits),
        cmocka_unit_test(test_source_fails), cmocka_unit_test(test_skip_bad),
        cmocka_unit_test(test_window),       cmocka_unit_test(test_against_jansson),
    };
    return cmocka_run_group_tests_name("json_pull", tests, NULL, NULL);
}
