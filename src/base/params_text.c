/* What is printed from the parameter table: usage text, JSON description, the reproduce line.
 * Owns layout and quoting; knows no parameter by name. Pure, any thread. */
#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"
#include "params_value.h"

static bool row_meets(const struct param *p, uint32_t command)
{
    return command == UINT32_MAX || (p->commands & command) != 0;
}

/* ---- the reproduce line ---- */

/* Quoted for a POSIX shell where that is needed: single quotes carry every byte but themselves. */
static void text_add_quoted(struct text *t, const char *s)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_./,:+@%=";
    if (*s && s[strspn(s, plain)] == '\0') {
        text_adds(t, s);
        return;
    }
    text_adds(t, "'");
    for (; *s; s++) {
        if (*s == '\'')
            text_adds(t, "'\\''");
        else
            text_add(t, s, 1);
    }
    text_adds(t, "'");
}

static void text_add_flag(struct text *t, const struct param *p, const char *value)
{
    text_adds(t, t->len > 0 ? " " : "");
    text_adds(t, p->flag);
    if (value) {
        text_adds(t, " ");
        text_add_quoted(t, value);
    }
}

static void text_add_switch(struct text *t, const struct param *p, const struct param_value *v)
{
    text_adds(t, t->len > 0 ? " " : "");
    if (!v->is_auto && !v->b && p->flag[1] == '-') {
        text_adds(t, "--no-");
        text_adds(t, p->flag + 2);
        return;
    }
    text_adds(t, p->flag);
    if (v->is_auto)
        text_adds(t, "=auto");
}

/* A pinned value is a setting of its own even where it equals the default: a planner leaves it
 * alone. */
static bool value_worth_saying(const struct param *p, const struct param_value *v)
{
    struct param_value def;
    if (!value_present(p, v))
        return false;
    if (v->set)
        return true;
    value_default(p, &def);
    bool same = value_equal(p, v, &def);
    value_clear(&def);
    return !same;
}

char *params_reproduce(const struct param_set *s, uint32_t command)
{
    struct text t = {0};
    text_adds(&t, "");
    for (int32_t i = 0; i < s->n; i++) {
        const struct param *p = s->rows[i];
        const struct param_value *v = &s->values[i];
        if (!p->flag || !row_meets(p, command) || !value_worth_saying(p, v))
            continue;
        if (p->type == PARAM_BOOL) {
            text_add_switch(&t, p, v);
        } else if (p->type == PARAM_LIST && !v->is_auto) {
            for (int32_t k = 0; k < v->n_list; k++)
                text_add_flag(&t, p, v->list[k]);
        } else {
            char *value = params_spell(p, v);
            if (!value) {
                free(t.text);
                return NULL;
            }
            text_add_flag(&t, p, value);
            free(value);
        }
    }
    return t.text;
}

/* ---- usage ---- */

#define USAGE_INDENT 2
#define USAGE_HELP   30 /* column where help texts begin */
#define USAGE_LEAST  40 /* narrower terminals get lines that they wrap themselves */

/* Characters of a UTF-8 text, as columns. */
static int32_t columns_of(const char *s, size_t n)
{
    int32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

static void text_add_blanks(struct text *t, int32_t n)
{
    for (; n > 0; n--)
        text_adds(t, " ");
}

/* Words of s from column `at` on, wrapped at `columns`, further lines beginning at `indent`. */
static void text_add_wrapped(struct text *t, const char *s, int32_t at, int32_t indent,
                             int32_t columns)
{
    const char *word;
    size_t n;
    bool first = true;
    while ((n = word_next(&s, &word)) > 0) {
        int32_t width = columns_of(word, n);
        if (!first && at + 1 + width > columns) {
            text_adds(t, "\n");
            text_add_blanks(t, indent);
            at = indent;
        } else if (!first) {
            text_adds(t, " ");
            at++;
        }
        text_add(t, word, n);
        at += width;
        first = false;
    }
    text_adds(t, "\n");
}

/* What stands for the value behind a flag: N, X, SIZE, a|b|c, or the unit or TEXT in capitals. */
static void text_add_placeholder(struct text *t, const struct param *p)
{
    const char *at = p->choices, *word;
    size_t n;
    switch (p->type) {
    case PARAM_BOOL:
        return;
    case PARAM_INT:
        text_adds(t, " N");
        break;
    case PARAM_FLOAT:
        text_adds(t, " X");
        break;
    case PARAM_SIZE:
        text_adds(t, " SIZE");
        break;
    case PARAM_CHOICE:
        for (bool first = true; (n = word_next(&at, &word)) > 0; first = false) {
            text_adds(t, first ? " " : "|");
            text_add(t, word, n);
        }
        break;
    case PARAM_STRING:
    case PARAM_LIST:
        text_adds(t, " ");
        if (!p->unit || !*p->unit)
            text_adds(t, "TEXT");
        for (const char *u = p->unit; u && *u; u++) {
            char c = *u >= 'a' && *u <= 'z' ? (char)(*u - 32) : *u;
            text_add(t, &c, 1);
        }
        break;
    }
    if (p->accepts_auto)
        text_adds(t, "|auto");
}

static void text_add_row(struct text *t, const struct param *p, int32_t columns)
{
    struct text head = {0}, help = {0};
    const char *at = p->aliases, *word;
    size_t n;
    text_add_blanks(&head, USAGE_INDENT);
    /* Short spellings first, as everybody does: "-t, --threads N". */
    while ((n = word_next(&at, &word)) > 0) {
        if (word[1] != '-') {
            text_add(&head, word, n);
            text_adds(&head, ", ");
        }
    }
    text_adds(&head, p->flag);
    if (p->type == PARAM_BOOL && p->def && strcmp(p->def, "true") == 0 && p->flag[1] == '-') {
        text_adds(&head, ", --no-"); /* what one will want to write */
        text_adds(&head, p->flag + 2);
    }
    at = p->aliases;
    while ((n = word_next(&at, &word)) > 0) {
        if (word[1] == '-') {
            text_adds(&head, ", ");
            text_add(&head, word, n);
        }
    }
    text_add_placeholder(&head, p);

    text_adds(&help, p->help ? p->help : "");
    if (p->type == PARAM_LIST)
        text_adds(&help, " (may be given several times)");
    if (p->lossy)
        text_adds(&help, " (changes the quality of the answer)");
    if (p->level == PARAM_EXPERIMENTAL)
        text_adds(&help, " (experimental)");
    if (p->def && *p->def && !(p->type == PARAM_BOOL && strcmp(p->def, "false") == 0)) {
        text_adds(&help, " [");
        text_adds(&help, p->def);
        text_adds(&help, "]");
    }
    if (!head.failed && !help.failed) {
        int32_t width = columns_of(head.text, head.len);
        text_add(t, head.text, head.len);
        if (width + 2 > USAGE_HELP) {
            text_adds(t, "\n");
            width = 0;
        }
        text_add_blanks(t, USAGE_HELP - width);
        text_add_wrapped(t, help.text, USAGE_HELP, USAGE_HELP, columns);
    } else {
        free(t->text);
        *t = (struct text){.failed = true};
    }
    free(head.text);
    free(help.text);
}

static bool row_shown(const struct param *p, uint32_t command, enum param_level max_level)
{
    return p->flag && row_meets(p, command) && p->level <= max_level;
}

static const char *group_of(const struct param *p)
{
    return p->group ? p->group : "Options";
}

char *params_usage(const struct param_set *s, uint32_t command, enum param_level max_level,
                   int32_t columns)
{
    struct text t = {0};
    text_adds(&t, "");
    if (columns < USAGE_LEAST)
        columns = USAGE_LEAST;
    for (int32_t i = 0; i < s->n; i++) {
        if (!row_shown(s->rows[i], command, max_level))
            continue;
        const char *group = group_of(s->rows[i]);
        bool seen = false; /* the group was printed with an earlier row */
        for (int32_t k = 0; k < i && !seen; k++)
            seen = row_shown(s->rows[k], command, max_level) &&
                   strcmp(group_of(s->rows[k]), group) == 0;
        if (seen)
            continue;
        text_adds(&t, t.len > 0 ? "\n" : "");
        text_adds(&t, group);
        text_adds(&t, ":\n");
        for (int32_t k = i; k < s->n; k++)
            if (row_shown(s->rows[k], command, max_level) &&
                strcmp(group_of(s->rows[k]), group) == 0)
                text_add_row(&t, s->rows[k], columns);
    }
    return t.text;
}

/* ---- JSON ---- */

/* A string from outside may be no UTF-8, which JSON cannot carry: then its quoted form. */
static json_t *json_text(const char *s)
{
    if (!s)
        return json_null();
    json_t *j = json_string(s);
    if (j)
        return j;
    size_t n = strlen(s);
    char *quoted = n < SIZE_MAX / 8 ? malloc(4 * n + 1) : NULL;
    j = quoted ? json_string(error_quote(quoted, 4 * n + 1, s, n)) : NULL;
    free(quoted);
    return j;
}

static json_t *json_words(const char *words)
{
    json_t *a = json_array();
    const char *word;
    size_t n;
    while ((n = word_next(&words, &word)) > 0)
        json_array_append_new(a, json_stringn(word, n));
    return a;
}

/* A bound as a whole number where it is one. */
static json_t *json_bound(const struct param *p, double v)
{
    bool number = p->type == PARAM_INT || p->type == PARAM_FLOAT || p->type == PARAM_SIZE;
    if (!number || (p->min == 0 && p->max == 0))
        return json_null();
    if (p->type != PARAM_FLOAT && fabs(v) < 0x1p63)
        return json_integer((json_int_t)v);
    return json_real(v);
}

static json_t *json_value(const struct param *p, const struct param_value *v)
{
    if (!value_present(p, v))
        return json_null();
    if (v->is_auto)
        return json_string("auto");
    switch (p->type) {
    case PARAM_BOOL:
        return json_boolean(v->b);
    case PARAM_INT:
    case PARAM_SIZE:
        return json_integer((json_int_t)v->i);
    case PARAM_FLOAT:
        return json_real(v->f);
    case PARAM_CHOICE:
    case PARAM_STRING:
        return json_text(v->s);
    case PARAM_LIST: {
        json_t *a = json_array();
        for (int32_t i = 0; i < v->n_list; i++)
            json_array_append_new(a, json_text(v->list[i]));
        return a;
    }
    }
    return json_null();
}

static json_t *json_row(const struct param *p, const struct param_value *v, bool values)
{
    static const char *const types[] = {"bool", "int", "float", "size", "choice", "string", "list"};
    static const char *const levels[] = {"basic", "advanced", "experimental", "debug"};
    struct param_value def;
    value_default(p, &def);
    json_t *o = json_object();
    json_object_set_new(o, "key", json_text(p->key));
    json_object_set_new(o, "flag", json_text(p->flag));
    json_object_set_new(o, "aliases", json_words(p->aliases));
    json_object_set_new(o, "label", json_text(p->label));
    json_object_set_new(o, "group", json_text(group_of(p)));
    json_object_set_new(o, "help", json_text(p->help));
    json_object_set_new(o, "type", json_string(types[p->type]));
    json_object_set_new(o, "unit", json_text(p->unit ? p->unit : ""));
    json_object_set_new(o, "choices", json_words(p->choices));
    json_object_set_new(o, "accepts_auto", json_boolean(p->accepts_auto));
    json_object_set_new(o, "min", json_bound(p, p->min));
    json_object_set_new(o, "max", json_bound(p, p->max));
    json_object_set_new(o, "default", json_value(p, &def));
    json_object_set_new(o, "level", json_string(levels[p->level]));
    json_object_set_new(o, "scope", json_string(p->scope == PARAM_SESSION ? "session" : "request"));
    json_object_set_new(o, "lossy", json_boolean(p->lossy));
    json_object_set_new(o, "commands", json_integer((json_int_t)p->commands));
    if (values) {
        json_object_set_new(o, "value", json_value(p, v));
        json_object_set_new(o, "set", json_boolean(v->set));
        json_object_set_new(o, "source", json_text(v->source));
    }
    value_clear(&def);
    return o;
}

char *params_json(const struct param_set *s, bool values)
{
    json_t *rows = json_array(), *top = json_object();
    for (int32_t i = 0; i < s->n; i++)
        json_array_append_new(rows, json_row(s->rows[i], &s->values[i], values));
    json_object_set_new(top, "params", rows);
    char *text = json_dumps(top, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    json_decref(top);
    return text;
}
