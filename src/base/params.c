/* The joined parameter table and its values: opening with checks, finding, setting.
 * Owns the values; knows no parameter by name. Parsing of whole command lines and files is in
 * params_parse.c, everything that is printed in params_text.c. One thread per set. */
#include "params.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "params_match.h"
#include "params_value.h"

int32_t params_find(const struct param_set *s, const char *key)
{
    for (int32_t i = 0; i < s->n; i++)
        if (strcmp(s->rows[i]->key, key) == 0)
            return i;
    return -1;
}

const struct param_value *params_get(const struct param_set *s, const char *key)
{
    int32_t i = params_find(s, key);
    assert(i >= 0 && "no such parameter in the joined tables");
    return &s->values[i];
}

/* A spelling already owned by an earlier row that a same command reads: the "--no-" forms of
 * switches count. */
static int spelling_check(const struct param_set *s, int32_t row, const char *flag, size_t n,
                          struct leat_error *e)
{
    char name[64];
    if (n < 2 || n >= sizeof name || flag[0] != '-')
        return error_set(e, LEAT_ERR_INTERNAL, "parameter %s: '%.*s' is no flag", s->rows[row]->key,
                         (int)(n < 64 ? n : 64), flag);
    memcpy(name, flag, n);
    name[n] = '\0';
    bool no;
    const uint32_t readers = s->rows[row]->commands;
    int32_t other = params_match(s, name, readers ? readers : UINT32_MAX, &no);
    if (other >= 0 && other != row)
        return error_set(e, LEAT_ERR_INTERNAL, "parameters %s and %s share the flag %s",
                         s->rows[other]->key, s->rows[row]->key, name);
    return 0;
}

static int row_check(struct param_set *s, int32_t row, struct leat_error *e)
{
    const struct param *p = s->rows[row];
    int32_t first = params_find(s, p->key);
    if (first != row)
        return error_set(e, LEAT_ERR_INTERNAL, "two parameters have the key %s", p->key);
    int rc = p->flag ? spelling_check(s, row, p->flag, strlen(p->flag), e) : 0;
    const char *at = p->aliases, *word;
    size_t n;
    while (rc == 0 && (n = word_next(&at, &word)) > 0)
        rc = spelling_check(s, row, word, n, e);
    if (rc == 0 && p->type == PARAM_BOOL && p->flag && strlen(p->flag) < 48) {
        char no[64] = "--no-";
        strcat(no, p->flag + strspn(p->flag, "-"));
        rc = spelling_check(s, row, no, strlen(no), e);
    }
    if (rc == 0 && p->min > p->max)
        rc = error_set(e, LEAT_ERR_INTERNAL, "parameter %s: its bounds are reversed", p->key);
    if (rc == 0 && (p->type == PARAM_CHOICE) != (p->choices != NULL))
        rc = error_set(e, LEAT_ERR_INTERNAL, "parameter %s: choices and type disagree", p->key);
    if (rc == 0 && p->def) {
        rc = value_parse(p, p->def, &s->values[row], e);
        s->values[row].source = "default";
        if (rc == LEAT_ERR_USAGE) {
            error_prefix(e, "the default of parameter %s", p->key);
            if (e)
                e->code = LEAT_ERR_INTERNAL;
            rc = LEAT_ERR_INTERNAL;
        }
    }
    return rc;
}

int params_open(struct param_set *s, const struct param *const *tables, const int32_t *counts,
                int32_t n_tables, struct leat_error *e)
{
    *s = (struct param_set){0};
    size_t total = 0;
    for (int32_t t = 0; t < n_tables; t++)
        total += (size_t)counts[t];
    s->rows = calloc(total + 1, sizeof *s->rows);
    s->values = calloc(total + 1, sizeof *s->values);
    int rc = 0;
    if (!s->rows || !s->values)
        rc = error_set(e, LEAT_ERR_MEMORY, "no memory for the parameter table");
    for (int32_t t = 0; rc == 0 && t < n_tables; t++)
        for (int32_t i = 0; i < counts[t]; i++)
            s->rows[s->n++] = &tables[t][i];
    for (int32_t i = 0; rc == 0 && i < s->n; i++)
        rc = row_check(s, i, e);
    if (rc < 0)
        params_close(s);
    return rc;
}

void params_close(struct param_set *s)
{
    for (int32_t i = 0; s->values && i < s->n; i++)
        value_clear(&s->values[i]);
    free(s->values);
    free((void *)s->rows);
    *s = (struct param_set){0};
}

int params_set(struct param_set *s, const char *key, const char *text, const char *source,
               struct leat_error *e)
{
    int32_t row = params_find(s, key);
    if (row < 0) {
        char quoted[80];
        const char *near = params_nearest_key(s, key);
        return error_set(e, LEAT_ERR_USAGE, "there is no parameter '%s'%s%s%s",
                         error_quote(quoted, sizeof quoted, key, strlen(key)),
                         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    const struct param *p = s->rows[row];
    struct param_value *v = &s->values[row];
    if (p->type != PARAM_LIST) {
        int rc = value_parse(p, text, v, e);
        if (rc < 0)
            return rc;
    } else {
        /* A list grows while one source speaks; the next source begins it anew. */
        bool again = v->set && v->source && strcmp(v->source, source) == 0;
        struct param_value fresh = {0};
        int rc = value_parse(p, text, again ? v : &fresh, e);
        if (rc < 0)
            return rc;
        if (!again) {
            value_clear(v);
            *v = fresh;
        }
    }
    v->set = true;
    v->source = source;
    return 0;
}
