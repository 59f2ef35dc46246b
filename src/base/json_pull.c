/* The strict JSON reader. Owns the window on the source, the current text and the nesting; knows
 * nothing of what the values mean. No recursion, memory bounded by the window and max_string.
 * Grammar: RFC 8259, section numbers below. One thread per reader. */
#include "json_pull.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "utf8.h"

#define WINDOW_BYTES ((size_t)64 << 10)
#define NUMBER_MAX   1024 /* longest spelling of a number; the digits of the smallest double fit */

enum json_expect {
    EXPECT_VALUE,          /* a value must come */
    EXPECT_VALUE_OR_CLOSE, /* just behind [ */
    EXPECT_KEY_OR_CLOSE,   /* just behind { */
    EXPECT_COMMA_OR_CLOSE,
    EXPECT_NOTHING, /* behind the top value */
    EXPECT_FAILED,  /* an error was given; there is no way on */
};

struct json_state {
    json_source source; /* NULL: the window is the whole text */
    void *arg;
    const char *window;
    char *window_own;
    size_t at, end; /* the bytes of the window not read yet */
    uint64_t base;  /* file offset of window[0] */
    bool eof;
    bool skipping; /* strings are checked, not kept */
    enum json_expect expect;
    uint64_t is_array; /* bit per open level */
    char *text;        /* current string, key or number */
    size_t text_cap, max_string;
    locale_t c_locale; /* for strtod_l, made when first needed */
    char key[64];      /* the last key, quoted, for messages */
    char name[256];
};

static int read_fail(struct json_pull *p, struct leat_error *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The offset of the next unread byte becomes the place of messages. */
static void place_here(struct json_pull *p)
{
    p->offset = p->state->base + p->state->at;
}

static int fail_text(const struct json_pull *p, struct leat_error *e, int code, const char *fmt,
                     va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof text, fmt, ap);
    return error_set(e, code, "%s: byte %" PRIu64 ": %s", p->state->name, p->offset, text);
}

int json_fail(const struct json_pull *p, struct leat_error *e, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = fail_text(p, e, code, fmt, ap);
    va_end(ap);
    return rc;
}

/* A format error at the next unread byte; the reader is of no use afterwards. */
static int read_fail(struct json_pull *p, struct leat_error *e, const char *fmt, ...)
{
    place_here(p);
    p->state->expect = EXPECT_FAILED;
    va_list ap;
    va_start(ap, fmt);
    int rc = fail_text(p, e, LEAT_ERR_FORMAT, fmt, ap);
    va_end(ap);
    return rc;
}

/* Makes at least `need` unread bytes stand in the window where the source has them. */
static int window_fill(struct json_pull *p, size_t need, struct leat_error *e)
{
    struct json_state *s = p->state;
    if (s->end - s->at >= need || s->eof)
        return 0;
    memmove(s->window_own, s->window_own + s->at, s->end - s->at);
    s->base += s->at;
    s->end -= s->at;
    s->at = 0;
    while (s->end < need) {
        int64_t n = s->source(s->arg, s->window_own + s->end, WINDOW_BYTES - s->end, e);
        if (n < 0) {
            s->expect = EXPECT_FAILED;
            return (int)n;
        }
        assert((uint64_t)n <= WINDOW_BYTES - s->end);
        if (n == 0) {
            s->eof = true;
            break;
        }
        s->end += (size_t)n;
    }
    return 0;
}

#define PEEK_END (-1000) /* no byte, and no enum leat_code */

/* The next byte without taking it, PEEK_END, or the code of a source that failed. */
static inline int byte_peek(struct json_pull *p, struct leat_error *e)
{
    struct json_state *s = p->state;
    if (s->at == s->end) {
        int rc = window_fill(p, 1, e);
        if (rc < 0)
            return rc;
        if (s->at == s->end)
            return PEEK_END;
    }
    return (unsigned char)s->window[s->at];
}

/* Skips white space (section 2) and peeks at the byte behind it. */
static int token_peek(struct json_pull *p, struct leat_error *e)
{
    struct json_state *s = p->state;
    for (;;) {
        int c = byte_peek(p, e);
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return c;
        s->at++;
    }
}

/* "'x'" or "byte 0x00" for messages. */
static const char *byte_name(char *dst, size_t cap, int c)
{
    if (c == PEEK_END)
        snprintf(dst, cap, "the end of the text");
    else if (c > 0x20 && c < 0x7f)
        snprintf(dst, cap, "'%c'", c);
    else
        snprintf(dst, cap, "byte 0x%02x", (unsigned)c);
    return dst;
}

static int fail_unexpected(struct json_pull *p, struct leat_error *e, int c, const char *wanted)
{
    char got[32];
    if (c < 0 && c != PEEK_END)
        return c; /* the source failed and said so */
    return read_fail(p, e, "%s stands where %s was expected", byte_name(got, sizeof got, c),
                     wanted);
}

/* ---- text ---- */

static int text_reserve(struct json_pull *p, size_t need, struct leat_error *e)
{
    struct json_state *s = p->state;
    if (need + 1 <= s->text_cap)
        return 0;
    size_t cap = s->text_cap ? s->text_cap : 256;
    while (cap < need + 1)
        cap *= 2;
    char *text = realloc(s->text, cap);
    if (!text) {
        s->expect = EXPECT_FAILED;
        return error_set(e, LEAT_ERR_MEMORY, "%s: no memory for a string of %zu bytes", s->name,
                         need);
    }
    s->text = text;
    s->text_cap = cap;
    return 0;
}

static int text_append(struct json_pull *p, size_t *len, const char *bytes, size_t n,
                       struct leat_error *e)
{
    struct json_state *s = p->state;
    if (s->skipping || n == 0)
        return 0;
    if (n > s->max_string - *len)
        return read_fail(p, e, "a string is longer than the %zu bytes that are accepted here",
                         s->max_string);
    int rc = text_reserve(p, *len + n, e);
    if (rc < 0)
        return rc;
    memcpy(s->text + *len, bytes, n);
    *len += n;
    return 0;
}

/* How many bytes from s on are plain: ASCII, no control, no quote, no backslash. Eight at a
 * time: a byte's top bit in `stop` is set when the byte itself has it, or when the subtraction
 * borrowed. The borrow may mark a byte behind a marked one wrongly; the loop below decides those
 * one by one. */
static size_t plain_run(const char *s, size_t n)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    size_t i = 0;
    while (n - i >= 8) {
        uint64_t v;
        memcpy(&v, s + i, 8);
        uint64_t quote = v ^ (ones * '"'), slash = v ^ (ones * '\\');
        uint64_t stop = (v | (v - ones * 0x20) | (quote - ones) | (slash - ones)) & tops;
        if (stop)
            break;
        i += 8;
    }
    while (i < n) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\')
            break;
        i++;
    }
    return i;
}

/* Four hexadecimal digits at `text`, or -1. */
static int32_t hex4(const char *text)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)text[i];
        unsigned char low = c | 0x20;
        int d = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* \uXXXX at the backslash: one code point, a pair of surrogates taken together (section 7). */
static int escape_unicode(struct json_pull *p, size_t *len, struct leat_error *e)
{
    struct json_state *s = p->state;
    int rc = window_fill(p, 12, e);
    if (rc < 0)
        return rc;
    const char *w = s->window + s->at;
    size_t left = s->end - s->at, took = 6;
    int32_t c = left >= 6 ? hex4(w + 2) : -1;
    if (c < 0)
        return read_fail(p, e, "\\u is not followed by four hexadecimal digits");
    if (c >= 0xdc00 && c < 0xe000)
        return read_fail(p, e, "\\u%04x is the second half of a surrogate pair without the first",
                         (unsigned)c);
    if (c >= 0xd800 && c < 0xdc00) {
        int32_t low = left >= 12 && w[6] == '\\' && w[7] == 'u' ? hex4(w + 8) : -1;
        if (low < 0xdc00 || low >= 0xe000)
            return read_fail(p, e,
                             "\\u%04x is the first half of a surrogate pair without the second",
                             (unsigned)c);
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        took = 12;
    }
    char bytes[4];
    rc = text_append(p, len, bytes, (size_t)utf8_write(bytes, (uint32_t)c), e);
    s->at += took;
    return rc;
}

static int escape_read(struct json_pull *p, size_t *len, struct leat_error *e)
{
    struct json_state *s = p->state;
    int rc = window_fill(p, 2, e);
    if (rc < 0)
        return rc;
    if (s->end - s->at < 2)
        return read_fail(p, e, "the text ends inside a string");
    char c = s->window[s->at + 1];
    switch (c) {
    case 'u':
        return escape_unicode(p, len, e);
    case '"':
    case '\\':
    case '/':
        break;
    case 'b':
        c = '\b';
        break;
    case 'f':
        c = '\f';
        break;
    case 'n':
        c = '\n';
        break;
    case 'r':
        c = '\r';
        break;
    case 't':
        c = '\t';
        break;
    default: {
        char got[32];
        return read_fail(p, e, "a backslash is followed by %s, which is no escape",
                         byte_name(got, sizeof got, (unsigned char)c));
    }
    }
    rc = text_append(p, len, &c, 1, e);
    s->at += 2;
    return rc;
}

/* A string whose opening quote is the next byte. */
static int string_read(struct json_pull *p, struct leat_error *e)
{
    struct json_state *s = p->state;
    size_t len = 0;
    s->at++;
    for (;;) {
        int c = byte_peek(p, e);
        if (c == PEEK_END)
            return read_fail(p, e, "the text ends inside a string");
        if (c < 0)
            return c;
        int rc = 0;
        if (c == '"') {
            s->at++;
            break;
        } else if (c == '\\') {
            rc = escape_read(p, &len, e);
        } else if (c < 0x20) {
            return read_fail(p, e, "a string holds the control byte 0x%02x", (unsigned)c);
        } else if (c < 0x80) {
            size_t n = plain_run(s->window + s->at, s->end - s->at);
            rc = text_append(p, &len, s->window + s->at, n, e);
            s->at += n;
        } else {
            rc = window_fill(p, 4, e);
            uint32_t point;
            int n = rc < 0 ? 0 : utf8_next(s->window + s->at, s->end - s->at, &point);
            if (rc == 0 && n == 0)
                return read_fail(p, e, "a string holds byte 0x%02x, which is not valid UTF-8 here",
                                 (unsigned)c);
            if (rc == 0)
                rc = text_append(p, &len, s->window + s->at, (size_t)n, e);
            s->at += (size_t)n;
        }
        if (rc < 0)
            return rc;
    }
    int rc = text_reserve(p, 0, e);
    if (rc < 0)
        return rc;
    s->text[len] = '\0';
    p->text = s->text;
    p->text_len = len;
    return 0;
}

/* ---- numbers (section 6) ---- */

/* The value of a valid spelling: exactly rounded, whatever the locale of the program is. */
static double number_value(struct json_state *s, const char *text)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *c = text;
    bool negative = *c == '-';
    c += negative;
    uint64_t digits = 0;
    int32_t exponent = 0;
    const uint64_t exact = UINT64_C(1) << 53;
    bool point = false;
    for (; (*c >= '0' && *c <= '9') || *c == '.'; c++) {
        if (*c == '.') {
            point = true;
            continue;
        }
        if (digits > exact / 10)
            goto slow;
        digits = 10 * digits + (uint64_t)(*c - '0');
        exponent -= point;
    }
    if (*c == 'e' || *c == 'E') {
        c++;
        bool minus = *c == '-';
        c += *c == '-' || *c == '+';
        int32_t x = 0;
        for (; *c; c++) {
            x = 10 * x + (*c - '0');
            if (x > 9999)
                goto slow;
        }
        exponent += minus ? -x : x;
    }
    /* Both factors are exact and the result is rounded once: W. D. Clinger, How to read floating
     * point numbers accurately, 1990. */
    if (digits <= exact && exponent >= -22 && exponent <= 22) {
        double v = (double)digits;
        v = exponent < 0 ? v / tens[-exponent] : v * tens[exponent];
        return negative ? -v : v;
    }
slow:
    if (!s->c_locale)
        s->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return s->c_locale ? strtod_l(text, NULL, s->c_locale) : NAN;
}

/* True when the spelling (digits with an optional minus) fits int64. */
static bool integer_value(const char *text, int64_t *out)
{
    errno = 0;
    char *end;
    long long v = strtoll(text, &end, 10);
    if (errno != 0 || *end)
        return false;
    *out = v;
    return true;
}

static int number_read(struct json_pull *p, struct leat_error *e)
{
    struct json_state *s = p->state;
    int rc = text_reserve(p, NUMBER_MAX, e);
    if (rc < 0)
        return rc;
    uint64_t start = s->base + s->at;
    size_t n = 0;
    bool whole = true;
    /* One character more of the spelling, and the byte behind it in c. */
#define NUMBER_TAKE()                                                                              \
    do {                                                                                           \
        if (n == NUMBER_MAX)                                                                       \
            return read_fail(p, e, "a number has more than %d characters", NUMBER_MAX);            \
        s->text[n++] = (char)c;                                                                    \
        s->at++;                                                                                   \
        c = byte_peek(p, e);                                                                       \
    } while (0)
#define IS_DIGIT(x) ((x) >= '0' && (x) <= '9')
    int c = byte_peek(p, e);
    if (c == '-')
        NUMBER_TAKE();
    if (!IS_DIGIT(c))
        return fail_unexpected(p, e, c, "a digit");
    if (c == '0') {
        NUMBER_TAKE();
        if (IS_DIGIT(c))
            return read_fail(p, e, "a number begins with a zero");
    } else {
        while (IS_DIGIT(c))
            NUMBER_TAKE();
    }
    if (c == '.') {
        whole = false;
        NUMBER_TAKE();
        if (!IS_DIGIT(c))
            return fail_unexpected(p, e, c, "a digit behind the decimal point");
        while (IS_DIGIT(c))
            NUMBER_TAKE();
    }
    if (c == 'e' || c == 'E') {
        whole = false;
        NUMBER_TAKE();
        if (c == '+' || c == '-')
            NUMBER_TAKE();
        if (!IS_DIGIT(c))
            return fail_unexpected(p, e, c, "a digit of the exponent");
        while (IS_DIGIT(c))
            NUMBER_TAKE();
    }
#undef NUMBER_TAKE
#undef IS_DIGIT
    if (c < 0 && c != PEEK_END)
        return c;
    s->text[n] = '\0';
    p->text = s->text;
    p->text_len = n;
    p->number = number_value(s, s->text);
    p->is_integer = whole && integer_value(s->text, &p->integer);
    if (!isfinite(p->number)) {
        char quoted[48];
        rc = read_fail(p, e, "the number %s%s%s is out of range (it began at byte %" PRIu64 ")",
                       error_quote(quoted, sizeof quoted, s->text, n),
                       *s->key ? " behind key " : "", s->key, start);
        return rc;
    }
    return 0;
}

/* ---- events ---- */

static int word_read(struct json_pull *p, const char *word, struct leat_error *e)
{
    struct json_state *s = p->state;
    size_t n = strlen(word);
    int rc = window_fill(p, n, e);
    if (rc < 0)
        return rc;
    if (s->end - s->at < n || memcmp(s->window + s->at, word, n) != 0)
        return read_fail(p, e, "a word that is not true, false or null");
    s->at += n;
    return 0;
}

/* What comes after a value at the present depth. */
static void value_done(struct json_pull *p)
{
    p->state->expect = p->depth > 0 ? EXPECT_COMMA_OR_CLOSE : EXPECT_NOTHING;
}

static bool level_is_array(const struct json_pull *p)
{
    return p->depth > 0 && (p->state->is_array >> (p->depth - 1) & 1);
}

static int level_open(struct json_pull *p, bool array, struct leat_error *e)
{
    struct json_state *s = p->state;
    if (p->depth == JSON_PULL_DEPTH)
        return read_fail(p, e, "the values are nested more than %d deep", JSON_PULL_DEPTH);
    uint64_t bit = UINT64_C(1) << p->depth++;
    s->is_array = array ? s->is_array | bit : s->is_array & ~bit;
    s->at++;
    s->expect = array ? EXPECT_VALUE_OR_CLOSE : EXPECT_KEY_OR_CLOSE;
    return array ? JSON_ARRAY : JSON_OBJECT;
}

static int level_close(struct json_pull *p)
{
    bool array = level_is_array(p);
    p->state->at++;
    p->depth--;
    value_done(p);
    return array ? JSON_ARRAY_END : JSON_OBJECT_END;
}

/* A value that begins with byte c. */
static int value_read(struct json_pull *p, int c, struct leat_error *e)
{
    int rc, event;
    switch (c) {
    case '{':
        return level_open(p, false, e);
    case '[':
        return level_open(p, true, e);
    case '"':
        event = JSON_STRING;
        rc = string_read(p, e);
        break;
    case 't':
        event = JSON_TRUE;
        rc = word_read(p, "true", e);
        break;
    case 'f':
        event = JSON_FALSE;
        rc = word_read(p, "false", e);
        break;
    case 'n':
        event = JSON_NULL;
        rc = word_read(p, "null", e);
        break;
    default:
        if (c != '-' && (c < '0' || c > '9'))
            return fail_unexpected(p, e, c, "a value");
        event = JSON_NUMBER;
        rc = number_read(p, e);
        break;
    }
    if (rc < 0)
        return rc;
    value_done(p);
    return event;
}

static int key_read(struct json_pull *p, struct leat_error *e)
{
    struct json_state *s = p->state;
    int rc = string_read(p, e);
    if (rc < 0)
        return rc;
    if (!s->skipping)
        error_quote(s->key, sizeof s->key, p->text, p->text_len);
    int c = token_peek(p, e);
    if (c != ':')
        return fail_unexpected(p, e, c, "':' behind a key");
    s->at++;
    s->expect = EXPECT_VALUE;
    return JSON_KEY;
}

static int fail_trailing(struct json_pull *p, struct leat_error *e, int c)
{
    if (c == 0)
        return read_fail(p, e, "NUL bytes follow the JSON value; only spaces are legal there");
    char got[32];
    return read_fail(p, e, "%s follows the JSON value; only spaces are legal there",
                     byte_name(got, sizeof got, c));
}

static int event_read(struct json_pull *p, struct leat_error *e)
{
    struct json_state *s = p->state;
    if (s->expect == EXPECT_FAILED)
        return error_set(e, LEAT_ERR_STATE, "%s: reading goes on after an error", s->name);
    int c = token_peek(p, e);
    if (c < 0 && c != PEEK_END)
        return c;
    switch (s->expect) {
    case EXPECT_NOTHING:
        return c == PEEK_END ? JSON_END : fail_trailing(p, e, c);
    case EXPECT_VALUE_OR_CLOSE:
        if (c == ']')
            return level_close(p);
        return value_read(p, c, e);
    case EXPECT_VALUE:
        return value_read(p, c, e);
    case EXPECT_KEY_OR_CLOSE:
        if (c == '}')
            return level_close(p);
        if (c != '"')
            return fail_unexpected(p, e, c, "a key or '}'");
        return key_read(p, e);
    case EXPECT_COMMA_OR_CLOSE: {
        bool array = level_is_array(p);
        if (c == (array ? ']' : '}'))
            return level_close(p);
        if (c != ',')
            return fail_unexpected(p, e, c, array ? "',' or ']'" : "',' or '}'");
        s->at++;
        c = token_peek(p, e);
        if (array)
            return value_read(p, c, e);
        if (c != '"')
            return fail_unexpected(p, e, c, "a key");
        return key_read(p, e);
    }
    case EXPECT_FAILED:
        break;
    }
    assert(!"a state that was handled above");
    return LEAT_ERR_INTERNAL;
}

int json_pull_next(struct json_pull *p, struct leat_error *e)
{
    p->text = NULL;
    p->text_len = 0;
    p->is_integer = false;
    int event = event_read(p, e);
    if (event < 0)
        p->state->expect = EXPECT_FAILED;
    else
        place_here(p);
    return event;
}

int json_skip(struct json_pull *p, struct leat_error *e)
{
    struct json_state *s = p->state;
    int depth = p->depth, event;
    s->skipping = true;
    do {
        event = json_pull_next(p, e);
    } while (event >= 0 && (p->depth > depth || event == JSON_KEY));
    s->skipping = false;
    p->text = NULL;
    p->text_len = 0;
    if (event < 0)
        return event;
    if (event == JSON_END || p->depth < depth)
        return json_fail(p, e, LEAT_ERR_STATE, "there is no value to skip");
    return 0;
}

/* ---- life ---- */

static int state_open(struct json_pull *p, const char *name, size_t max_string,
                      struct leat_error *e)
{
    *p = (struct json_pull){0};
    struct json_state *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for a JSON reader");
    s->max_string = max_string < SIZE_MAX / 4 ? max_string : SIZE_MAX / 4;
    error_quote(s->name, sizeof s->name, name, strlen(name));
    p->state = s;
    return 0;
}

/* A byte order mark is refused by name (section 8.1 forbids writing one). */
static int start_check(struct json_pull *p, struct leat_error *e)
{
    struct json_state *s = p->state;
    int rc = window_fill(p, 3, e);
    if (rc < 0)
        return rc;
    if (s->end - s->at >= 3 && memcmp(s->window + s->at, "\xef\xbb\xbf", 3) == 0)
        return read_fail(p, e, "a byte order mark stands before the JSON value; remove it");
    return 0;
}

int json_pull_open(struct json_pull *p, const char *name, json_source source, void *arg,
                   size_t max_string, struct leat_error *e)
{
    int rc = state_open(p, name, max_string, e);
    if (rc < 0)
        return rc;
    struct json_state *s = p->state;
    s->source = source;
    s->arg = arg;
    s->window = s->window_own = malloc(WINDOW_BYTES);
    if (!s->window)
        rc = error_set(e, LEAT_ERR_MEMORY, "no memory for a JSON reader");
    if (rc == 0)
        rc = start_check(p, e);
    if (rc < 0)
        json_pull_close(p);
    return rc;
}

int json_pull_open_memory(struct json_pull *p, const char *name, const void *bytes, size_t n,
                          size_t max_string, struct leat_error *e)
{
    int rc = state_open(p, name, max_string, e);
    if (rc < 0)
        return rc;
    struct json_state *s = p->state;
    s->window = n > 0 ? bytes : "";
    s->end = n;
    s->eof = true;
    rc = start_check(p, e);
    if (rc < 0)
        json_pull_close(p);
    return rc;
}

void json_pull_close(struct json_pull *p)
{
    struct json_state *s = p->state;
    if (!s)
        return;
    if (s->c_locale)
        freelocale(s->c_locale);
    free(s->window_own);
    free(s->text);
    free(s);
    p->state = NULL;
    p->text = NULL;
}
