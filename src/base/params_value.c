/* Values of parameters: strict parsing of each type, and the way back to text.
 * Owns the spelling of numbers and sizes; knows no parameter by name. The locale of the program has
 * no say: numbers are always written with a point. Pure, any thread. */
#include "params_value.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"

/* ---- small texts ---- */

void text_add(struct text *t, const char *bytes, size_t n)
{
    if (t->failed)
        return;
    if (t->len + n + 1 > t->cap) {
        size_t cap = t->cap ? t->cap : 256;
        while (cap < t->len + n + 1)
            cap *= 2;
        char *text = realloc(t->text, cap);
        if (!text) {
            free(t->text);
            *t = (struct text){.failed = true};
            return;
        }
        t->text = text;
        t->cap = cap;
    }
    if (n > 0)
        memcpy(t->text + t->len, bytes, n);
    t->len += n;
    t->text[t->len] = '\0';
}

void text_adds(struct text *t, const char *string)
{
    text_add(t, string, strlen(string));
}

size_t word_next(const char **at, const char **word)
{
    if (!*at)
        return 0;
    *word = *at + strspn(*at, " ");
    size_t n = strcspn(*word, " ");
    *at = *word + n;
    return n;
}

/* ---- numbers ---- */

/* strtod and printf with a decimal point, whatever the program's locale is. */
static bool c_locale_enter(locale_t *own, locale_t *before)
{
    *own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!*own)
        return false;
    *before = uselocale(*own);
    return true;
}

static void c_locale_leave(locale_t own, locale_t before)
{
    uselocale(before);
    freelocale(own);
}

const char *spell_float(char *dst, size_t cap, double v)
{
    locale_t own, before;
    if (fabs(v) < 1e15 && v == floor(v)) { /* "100", where %g would give "1e+02" */
        snprintf(dst, cap, "%.0f", v);
        return dst;
    }
    bool entered = c_locale_enter(&own, &before);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(dst, cap, "%.*g", digits, v);
        if (strtod(dst, NULL) == v)
            break;
    }
    if (entered)
        c_locale_leave(own, before);
    return dst;
}

static bool parse_float(const char *text, double *out)
{
    /* Decimal only: strtod would also take blanks, hexadecimal, "inf" and "nan". */
    if (*text == '\0' || text[strspn(text, "+-.0123456789eE")] != '\0')
        return false;
    locale_t own, before;
    if (!c_locale_enter(&own, &before))
        return false;
    char *end;
    double v = strtod(text, &end);
    c_locale_leave(own, before);
    if (end == text || *end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

static bool parse_int(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits < '0' || *digits > '9')
        return false;
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno != 0 || *end)
        return false;
    *out = v;
    return true;
}

static const struct {
    const char *suffix;
    uint64_t bytes;
} size_units[] = {
    {"", 1},
    {"B", 1},
    {"K", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"KB", UINT64_C(1000)},
    {"M", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"MB", UINT64_C(1000000)},
    {"G", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
    {"GB", UINT64_C(1000000000)},
    {"T", UINT64_C(1) << 40},
    {"TiB", UINT64_C(1) << 40},
    {"TB", UINT64_C(1000000000000)},
};

/* strcasecmp for ASCII only: the program's locale has no say. */
static bool same_word(const char *a, const char *b)
{
    for (;; a++, b++) {
        char x = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a;
        char y = *b >= 'A' && *b <= 'Z' ? (char)(*b + 32) : *b;
        if (x != y)
            return false;
        if (x == '\0')
            return true;
    }
}

int parse_size(const char *text, uint64_t *out)
{
    const char *c = text;
    uint64_t whole = 0, part = 0, scale = 1;
    if (*c < '0' || *c > '9')
        return LEAT_ERR_USAGE;
    for (; *c >= '0' && *c <= '9'; c++)
        if (!checked_mul(whole, 10, &whole) || !checked_add(whole, (uint64_t)(*c - '0'), &whole))
            return LEAT_ERR_USAGE;
    bool fraction = *c == '.';
    if (fraction) {
        c++;
        if (*c < '0' || *c > '9')
            return LEAT_ERR_USAGE;
        /* Six places suffice for a byte of a megabyte; more would overflow part * unit below. */
        for (int places = 0; *c >= '0' && *c <= '9'; c++, places++) {
            if (places >= 6)
                return LEAT_ERR_USAGE;
            part = 10 * part + (uint64_t)(*c - '0');
            scale *= 10;
        }
    }
    for (size_t i = 0; i < sizeof size_units / sizeof *size_units; i++) {
        if (!same_word(c, size_units[i].suffix))
            continue;
        uint64_t unit = size_units[i].bytes, bytes;
        if (fraction && unit == 1)
            return LEAT_ERR_USAGE;
        if (!checked_mul(whole, unit, &bytes) || !checked_add(bytes, part * unit / scale, &bytes))
            return LEAT_ERR_USAGE;
        *out = bytes;
        return 0;
    }
    return LEAT_ERR_USAGE;
}

const char *spell_size(char *dst, size_t cap, uint64_t bytes)
{
    static const char letters[] = "KMGT";
    int unit = -1;
    while (unit < 3 && bytes > 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(dst, cap, "%" PRIu64 "%.*s", bytes, unit >= 0, unit >= 0 ? letters + unit : "");
    return dst;
}

/* ---- values ---- */

void value_clear(struct param_value *v)
{
    free(v->s);
    for (int32_t i = 0; i < v->n_list; i++)
        free(v->list[i]);
    free(v->list);
    *v = (struct param_value){0};
}

bool value_present(const struct param *p, const struct param_value *v)
{
    if (v->is_auto)
        return true;
    if (p->type == PARAM_STRING || p->type == PARAM_CHOICE)
        return v->s != NULL;
    if (p->type == PARAM_LIST)
        return v->n_list > 0;
    return v->source != NULL;
}

bool value_equal(const struct param *p, const struct param_value *a, const struct param_value *b)
{
    if (value_present(p, a) != value_present(p, b) || a->is_auto != b->is_auto)
        return false;
    if (a->is_auto || !value_present(p, a))
        return true;
    switch (p->type) {
    case PARAM_BOOL:
        return a->b == b->b;
    case PARAM_INT:
    case PARAM_SIZE:
        return a->i == b->i;
    case PARAM_FLOAT:
        return a->f == b->f;
    case PARAM_CHOICE:
    case PARAM_STRING:
        return strcmp(a->s, b->s) == 0;
    case PARAM_LIST:
        if (a->n_list != b->n_list)
            return false;
        for (int32_t i = 0; i < a->n_list; i++)
            if (strcmp(a->list[i], b->list[i]) != 0)
                return false;
        return true;
    }
    return false;
}

/* "--memory" for people who type flags, the key where there is no flag. */
static const char *name_of(const struct param *p)
{
    return p->flag ? p->flag : p->key;
}

static int fail_value(const struct param *p, const char *text, struct leat_error *e,
                      const char *allowed)
{
    char quoted[80];
    return error_set(e, LEAT_ERR_USAGE, "%s '%s': %s%s", name_of(p),
                     error_quote(quoted, sizeof quoted, text, strlen(text)), allowed,
                     p->accepts_auto ? ", or auto" : "");
}

static bool has_bounds(const struct param *p)
{
    return p->min != 0 || p->max != 0;
}

static int fail_bounds(const struct param *p, const char *text, struct leat_error *e)
{
    char low[40], high[40], allowed[128];
    if (p->type == PARAM_SIZE) {
        spell_size(low, sizeof low, p->min > 0 ? (uint64_t)p->min : 0);
        spell_size(high, sizeof high, p->max < 0x1p63 ? (uint64_t)p->max : INT64_MAX);
    } else if (p->type == PARAM_INT) { /* whole bounds are written out, not as 1e+05 */
        snprintf(low, sizeof low, "%.0f", p->min);
        snprintf(high, sizeof high, "%.0f", p->max);
    } else {
        spell_float(low, sizeof low, p->min);
        spell_float(high, sizeof high, p->max);
    }
    snprintf(allowed, sizeof allowed, "must be %s to %s", low, high);
    return fail_value(p, text, e, allowed);
}

static int fail_choice(const struct param *p, const char *text, struct leat_error *e)
{
    struct text t = {0};
    const char *at = p->choices, *word;
    size_t n;
    text_adds(&t, "must be ");
    for (bool first = true; (n = word_next(&at, &word)) > 0; first = false) {
        bool last = at[strspn(at, " ")] == '\0';
        text_adds(&t, first ? "" : last && !p->accepts_auto ? " or " : ", ");
        text_add(&t, word, n);
    }
    int rc = fail_value(p, text, e, t.failed ? "not one of the choices" : t.text);
    free(t.text);
    return rc;
}

static int fail_memory(const struct param *p, struct leat_error *e)
{
    return error_set(e, LEAT_ERR_MEMORY, "no memory for the value of %s", name_of(p));
}

static int list_append(const struct param *p, const char *text, struct param_value *v,
                       struct leat_error *e)
{
    char *item = strdup(text);
    char **list = item ? realloc(v->list, ((size_t)v->n_list + 1) * sizeof *list) : NULL;
    if (!list) {
        free(item);
        return fail_memory(p, e);
    }
    v->list = list;
    list[v->n_list++] = item;
    return 0;
}

static bool parse_bool(const char *text, bool *out)
{
    bool on = strcmp(text, "true") == 0 || strcmp(text, "on") == 0;
    if (!on && strcmp(text, "false") != 0 && strcmp(text, "off") != 0)
        return false;
    *out = on;
    return true;
}

int value_parse(const struct param *p, const char *text, struct param_value *v,
                struct leat_error *e)
{
    struct param_value n = {0};
    if (p->accepts_auto && strcmp(text, "auto") == 0) {
        value_clear(v);
        v->is_auto = true;
        return 0;
    }
    switch (p->type) {
    case PARAM_BOOL:
        if (!parse_bool(text, &n.b))
            return fail_value(p, text, e, "must be true or false");
        break;
    case PARAM_INT:
        if (!parse_int(text, &n.i))
            return fail_value(p, text, e, "must be a whole number");
        if (has_bounds(p) && ((double)n.i < p->min || (double)n.i > p->max))
            return fail_bounds(p, text, e);
        break;
    case PARAM_FLOAT:
        if (!parse_float(text, &n.f))
            return fail_value(p, text, e, "must be a number");
        if (has_bounds(p) && (n.f < p->min || n.f > p->max))
            return fail_bounds(p, text, e);
        break;
    case PARAM_SIZE: {
        uint64_t bytes;
        if (parse_size(text, &bytes) < 0)
            return fail_value(p, text, e,
                              "must be a number of bytes with K, M, G or T (1024) or KB, MB, GB or "
                              "TB (1000) behind it, such as 512M or 1.5G");
        if (bytes > INT64_MAX ||
            (has_bounds(p) && ((double)bytes < p->min || (double)bytes > p->max)))
            return fail_bounds(p, text, e);
        n.i = (int64_t)bytes;
        break;
    }
    case PARAM_CHOICE: {
        const char *at = p->choices, *word;
        size_t len, want = strlen(text);
        while ((len = word_next(&at, &word)) > 0) {
            if (len == want && memcmp(word, text, len) == 0)
                break;
            n.i++;
        }
        if (len == 0)
            return fail_choice(p, text, e);
        n.s = strdup(text);
        if (!n.s)
            return fail_memory(p, e);
        break;
    }
    case PARAM_STRING:
        n.s = strdup(text);
        if (!n.s)
            return fail_memory(p, e);
        break;
    case PARAM_LIST:
        v->is_auto = false;
        return list_append(p, text, v, e);
    }
    n.set = v->set;
    n.source = v->source;
    value_clear(v);
    *v = n;
    return 0;
}

void value_default(const struct param *p, struct param_value *v)
{
    *v = (struct param_value){0};
    if (!p->def)
        return;
    int rc = value_parse(p, p->def, v, NULL);
    assert(rc == 0 || rc == LEAT_ERR_MEMORY);
    (void)rc;
    v->source = "default";
}

char *params_spell(const struct param *p, const struct param_value *v)
{
    char number[40];
    if (!value_present(p, v))
        return NULL;
    if (v->is_auto)
        return strdup("auto");
    switch (p->type) {
    case PARAM_BOOL:
        return strdup(v->b ? "true" : "false");
    case PARAM_INT:
        snprintf(number, sizeof number, "%" PRId64, v->i);
        return strdup(number);
    case PARAM_FLOAT:
        return strdup(spell_float(number, sizeof number, v->f));
    case PARAM_SIZE:
        return strdup(spell_size(number, sizeof number, (uint64_t)v->i));
    case PARAM_CHOICE:
    case PARAM_STRING:
        return strdup(v->s);
    case PARAM_LIST: {
        struct text t = {0};
        for (int32_t i = 0; i < v->n_list; i++) {
            text_adds(&t, i ? ", " : "");
            text_adds(&t, v->list[i]);
        }
        return t.text;
    }
    }
    return NULL;
}
