/* From Oniguruma's Ruby syntax to PCRE2's. The two share most of it; this file translates what they
 * read differently (\s \w \b \h and \v, scripts, class intersections, {,n}, bytes) and refuses by
 * name what has no equal. Sources: Oniguruma doc/RE (6.9), pcre2pattern(3). Pure; any thread. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>

#include "regex.h"

/* White_Space; PCRE2's own \s has U+180E too. */
#define SPACE                                                                                      \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                                  \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{"     \
    "1fff}\\x{200b}-\\x{2027}"                                                                     \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* Alphabetic, marks, decimal digits and connectors; the ranges are the alphabetic symbols (circled
 * letters). */
#define WORD                                                                                       \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{"     \
    "1f169}\\x{1f170}-\\x{1f189}"
#define HEX "0-9A-Fa-f"

struct syntax {
    const char *p, *end, *start;
    const char *owner;
    struct text_buf *out;
    struct leat_error *e;
};

static int refuse(struct syntax *s, const char *what)
{
    char quoted[160];
    return error_set(
        s->e, LEAT_ERR_UNSUPPORTED,
        "%s: the regular expression \"%s\" uses %s at byte %zu, which is not supported", s->owner,
        error_quote(quoted, sizeof quoted, s->start, (size_t)(s->end - s->start)), what,
        (size_t)(s->p - s->start));
}

static int put(struct syntax *s, const char *text)
{
    return text_buf_puts(s->out, text, s->e);
}

static int put_bytes(struct syntax *s, const char *text, size_t n)
{
    return text_buf_add(s->out, text, n, s->e);
}

static int put_code(struct syntax *s, unsigned long c)
{
    char text[24];
    snprintf(text, sizeof text, "\\x{%lx}", c);
    return put(s, text);
}

/* The name in \p{...}: general categories are the same in both; a bare script is Script in one and
 * Script_Extensions in the other (PCRE2 since 10.40). p stands on the brace. */
static int property(struct syntax *s, bool negated)
{
    const char *close =
        s->p < s->end && *s->p == '{' ? memchr(s->p, '}', (size_t)(s->end - s->p)) : NULL;
    if (!close || close - s->p > 40)
        return refuse(s, "a property without {NAME}");
    const char *name = s->p + 1;
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    int n = (int)(close - name);
    for (int i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '&')
            return refuse(s, "a property name it should not have");
    static const char *const categories =
        " C Cc Cf Cn Co Cs L Ll Lm Lo Lt Lu L& M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc "
        "Sk Sm So Z Zl Zp Zs Any ";
    static const char *const long_names[][2] = {
        {"Letter", "L"},
        {"Mark", "M"},
        {"Number", "N"},
        {"Punctuation", "P"},
        {"Symbol", "S"},
        {"Separator", "Z"},
        {"Other", "C"},
        {"Uppercase_Letter", "Lu"},
        {"Lowercase_Letter", "Ll"},
        {"Decimal_Number", "Nd"},
    };
    char text[64], key[48];
    snprintf(key, sizeof key, " %.*s ", n, name);
    const char *kind = negated ? "P" : "p";
    if (n > 0 && strstr(categories, key)) {
        snprintf(text, sizeof text, "\\%s{%.*s}", kind, n, name);
    } else {
        const char *category = NULL;
        for (size_t i = 0; i < sizeof long_names / sizeof *long_names; i++)
            if (strlen(long_names[i][0]) == (size_t)n &&
                memcmp(long_names[i][0], name, (size_t)n) == 0)
                category = long_names[i][1];
        if (category)
            snprintf(text, sizeof text, "\\%s{%s}", kind, category);
        else if (PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40)
            snprintf(text, sizeof text, "\\%s{sc:%.*s}", kind, n, name);
        else
            snprintf(text, sizeof text, "\\%s{%.*s}", kind, n, name);
    }
    s->p = close + 1;
    return put(s, text);
}

static int hex_digits(struct syntax *s, int most, unsigned long *c)
{
    int n = 0;
    *c = 0;
    while (s->p < s->end && n < most && isxdigit((unsigned char)*s->p)) {
        int d = *s->p <= '9' ? *s->p - '0' : (*s->p | 32) - 'a' + 10;
        *c = *c * 16 + (unsigned long)d;
        s->p++;
        n++;
    }
    return n;
}

/* \x and \u; p stands behind the letter. */
static int code_escape(struct syntax *s, char letter)
{
    unsigned long c;
    if (letter == 'x' && s->p < s->end && *s->p == '{') {
        s->p++;
        if (hex_digits(s, 8, &c) == 0 || s->p == s->end || *s->p != '}' || c > 0x10ffff)
            return refuse(s, "a code point that is none");
        s->p++;
        return put_code(s, c);
    }
    int n = hex_digits(s, letter == 'x' ? 2 : 4, &c);
    if (n == 0 || (letter == 'u' && n != 4))
        return refuse(s, "a code point that is none");
    if (letter == 'x' && c >= 0x80)
        return refuse(s, "a raw byte");
    return put_code(s, c);
}

/* What is the same inside and outside a class. p stands behind the backslash. Returns 1 when done,
 * 0 when the caller must look, negative on failure; *set: it was a set of characters. */
static int escape_common(struct syntax *s, bool *set)
{
    char c = *s->p;
    int rc;
    *set = false;
    switch (c) {
    case 'r':
    case 'n':
    case 't':
    case 'f':
    case 'a':
    case 'e': {
        const char text[3] = {'\\', c, '\0'};
        s->p++;
        rc = put(s, text);
        break;
    }
    case 'v':
        s->p++;
        rc = put_code(s, 0xb);
        break;
    case 'x':
    case 'u':
        s->p++;
        rc = code_escape(s, c);
        break;
    case 'd':
    case 'D': {
        s->p++;
        *set = true;
        rc = put(s, c == 'd' ? "\\p{Nd}" : "\\P{Nd}");
        break;
    }
    case 'p':
    case 'P':
        s->p++;
        *set = true;
        rc = property(s, c == 'P');
        break;
    default:
        if (isalnum((unsigned char)c))
            return 0;
        s->p++;
        if (c & 0x80) /* the rest of the character follows by itself */
            rc = put_bytes(s, &c, 1);
        else {
            const char text[2] = {'\\', c};
            rc = put_bytes(s, text, 2);
        }
    }
    return rc < 0 ? rc : 1;
}

static int class_escape(struct syntax *s, bool *set)
{
    int rc = escape_common(s, set);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    char c = *s->p++;
    *set = true;
    switch (c) {
    case 's':
        return put(s, SPACE);
    case 'S':
        return put(s, NOT_SPACE);
    case 'w':
        return put(s, WORD);
    case 'h':
        return put(s, HEX);
    case 'b':
        *set = false;
        return put_code(s, 8);
    case '0':
        *set = false;
        return put_code(s, 0);
    default:
        s->p--;
        return refuse(s, "an escape that is not known inside a class");
    }
}

/* Members of a class up to ] or &&, without the brackets. */
static int class_members(struct syntax *s, bool *intersect)
{
    bool after_set = false, first = true;
    *intersect = false;
    while (s->p < s->end && (*s->p != ']' || first)) {
        int rc;
        bool set = false;
        if (s->p[0] == '&' && s->end - s->p > 1 && s->p[1] == '&') {
            s->p += 2;
            *intersect = true;
            return 0;
        }
        if (*s->p == '[')
            return refuse(s, "a class inside a class");
        if (*s->p == '\\') {
            s->p++;
            if (s->p == s->end)
                return refuse(s, "a backslash at its end");
            rc = class_escape(s, &set);
        } else if (*s->p == '-' && after_set) {
            s->p++; /* a set cannot begin a range: the dash is itself */
            rc = put(s, "\\-");
        } else if (*s->p == '-' && s->end - s->p > 2 && s->p[1] == '\\' &&
                   strchr("sSwWdDhHpP", s->p[2])) {
            return refuse(s, "a range that ends in a set");
        } else {
            rc = put_bytes(s, s->p++, 1);
        }
        if (rc < 0)
            return rc;
        after_set = set;
        first = false;
    }
    if (s->p == s->end)
        return refuse(s, "a class without an end");
    s->p++;
    return 0;
}

/* [...] and its one form of intersection, A and B or A without B, which becomes a lookahead on one
 * character. */
static int class_whole(struct syntax *s)
{
    s->p++;
    bool negated = s->p < s->end && *s->p == '^', intersect;
    if (negated)
        s->p++;
    struct text_buf members = {0}, *whole = s->out;
    s->out = &members;
    int rc = class_members(s, &intersect);
    s->out = whole;
    if (rc == 0 && !intersect) {
        rc = put(s, negated ? "[^" : "[");
        rc = rc < 0 ? rc : put_bytes(s, members.p, members.n);
        rc = rc < 0 ? rc : put(s, "]");
    } else if (rc == 0 && negated) {
        rc = refuse(s, "a negated intersection of classes");
    } else if (rc == 0) {
        bool nested = s->p < s->end && *s->p == '[', without = false;
        if (nested) {
            s->p++;
            without = s->p < s->end && *s->p == '^';
            s->p += without;
        }
        rc = put(s, without ? "(?:(?![" : "(?:(?=[");
        rc = rc < 0 ? rc : class_members(s, &intersect);
        if (rc == 0 && (intersect || (nested && (s->p == s->end || *s->p++ != ']'))))
            rc = refuse(s, "more than one intersection of classes");
        rc = rc < 0 ? rc : put(s, "])[");
        rc = rc < 0 ? rc : put_bytes(s, members.p, members.n);
        rc = rc < 0 ? rc : put(s, "])");
    }
    text_buf_free(&members);
    return rc;
}

static int escape(struct syntax *s)
{
    bool set;
    s->p++;
    if (s->p == s->end)
        return refuse(s, "a backslash at its end");
    int rc = escape_common(s, &set);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    char c = *s->p++;
    switch (c) {
    case 's':
        return put(s, "[" SPACE "]");
    case 'S':
        return put(s, "[^" SPACE "]");
    case 'w':
        return put(s, "[" WORD "]");
    case 'W':
        return put(s, "[^" WORD "]");
    case 'h':
        return put(s, "[" HEX "]");
    case 'H':
        return put(s, "[^" HEX "]");
    case 'b':
        return put(s, "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))");
    case 'B':
        return put(s, "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))");
    case 'A':
    case 'z':
    case 'Z':
    case 'G':
    case 'R': {
        const char text[3] = {'\\', c, '\0'};
        return put(s, text);
    }
    default:
        s->p--;
        return refuse(s, c >= '0' && c <= '9' ? "a back reference" : "an escape that is not known");
    }
}

/* (?...) : only the heads that mean the same in both. */
static int group(struct syntax *s)
{
    static const char *const heads[] = {
        "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (s->end - s->p < 2 || s->p[1] != '?')
        return put_bytes(s, s->p++, 1);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        size_t n = strlen(heads[i]);
        if ((size_t)(s->end - s->p) >= n && memcmp(s->p, heads[i], n) == 0) {
            s->p += n;
            return put(s, heads[i]);
        }
    }
    if (s->p == s->start && s->end - s->p >= 4 && memcmp(s->p, "(?i)", 4) == 0) {
        s->p += 4;
        return put(s, "(?i)");
    }
    return refuse(s, "a kind of group that is not known");
}

/* {n}, {n,}, {,m}, {n,m}; any other brace is itself. */
static int interval(struct syntax *s)
{
    const char *p = s->p + 1, *low = p;
    while (p < s->end && isdigit((unsigned char)*p))
        p++;
    size_t low_n = (size_t)(p - low), high_n = 0;
    const char *high = NULL;
    if (p < s->end && *p == ',') {
        high = ++p;
        while (p < s->end && isdigit((unsigned char)*p))
            p++;
        high_n = (size_t)(p - high);
    }
    if (p == s->end || *p != '}' || (low_n == 0 && high_n == 0)) {
        s->p++;
        return put(s, "\\{");
    }
    p++;
    if (p < s->end && (*p == '+' || (*p == '?' && !high)))
        return refuse(s, "a quantifier behind a counted one");
    int rc = put(s, "{");
    rc = rc < 0 ? rc : low_n ? put_bytes(s, low, low_n) : put(s, "0");
    if (high) {
        rc = rc < 0 ? rc : put(s, ",");
        rc = rc < 0 ? rc : put_bytes(s, high, high_n);
    }
    s->p = p;
    return rc < 0 ? rc : put(s, "}");
}

int regex_translate(const char *pattern, size_t n, const char *owner, struct text_buf *out,
                    struct leat_error *e)
{
    struct syntax s = {
        .p = pattern, .end = pattern + n, .start = pattern, .owner = owner, .out = out, .e = e};
    int rc = 0;
    if (n > 65536)
        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s: a regular expression of %zu bytes is too long", owner, n);
    if (n && memchr(pattern, '\0', n))
        return refuse(&s, "a NUL byte");
    while (rc == 0 && s.p < s.end) {
        switch (*s.p) {
        case '\\':
            rc = escape(&s);
            break;
        case '[':
            rc = class_whole(&s);
            break;
        case '(':
            rc = group(&s);
            break;
        case '{':
            rc = interval(&s);
            break;
        case '}':
            s.p++;
            rc = put(&s, "\\}");
            break;
        default:
            rc = put_bytes(&s, s.p++, 1);
        }
    }
    return rc;
}
