/* Command lines and configuration files to values.
 * Owns the grammar of both; knows no parameter by name. One thread per set. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"
#include "params_match.h"
#include "params_value.h"

#define SOURCE_LINE "command line"
#define SOURCE_FILE "config file"

static bool row_meets(const struct param *p, uint32_t command)
{
    return command == UINT32_MAX || (p->commands & command) != 0;
}

/* ---- flags ---- */

/* One spelling of a row, n bytes, against a name. */
static bool spelling_is(const struct param *p, const char *flag, size_t n, const char *name,
                        bool *no)
{
    *no = false;
    if (strlen(name) == n && memcmp(flag, name, n) == 0)
        return true;
    if (p->type != PARAM_BOOL || n < 3 || flag[1] != '-' || strncmp(name, "--no-", 5) != 0)
        return false;
    *no = true;
    return strlen(name + 5) == n - 2 && memcmp(flag + 2, name + 5, n - 2) == 0;
}

int32_t params_match(const struct param_set *s, const char *name, uint32_t command, bool *no)
{
    for (int32_t i = 0; i < s->n; i++) {
        const struct param *p = s->rows[i];
        if (!row_meets(p, command))
            continue;
        if (p->flag && spelling_is(p, p->flag, strlen(p->flag), name, no))
            return i;
        const char *at = p->aliases, *word;
        size_t n;
        while ((n = word_next(&at, &word)) > 0)
            if (spelling_is(p, word, n, name, no))
                return i;
    }
    *no = false;
    return -1;
}

#define NAME_MAX_LEN 48 /* no flag or key is longer; a longer word is near to none */

/* Letters to insert, delete, change or swap with the next one to make a into b (optimal string
 * alignment: Damerau, A technique for computer detection and correction of spelling
 * errors, 1964). */
static int edit_distance(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b);
    int rows[3][NAME_MAX_LEN + 1];
    if (na > NAME_MAX_LEN || nb > NAME_MAX_LEN)
        return NAME_MAX_LEN;
    int *before = rows[0], *above = rows[1], *row = rows[2];
    for (int j = 0; j <= nb; j++)
        above[j] = j;
    for (int i = 1; i <= na; i++) {
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
        int *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[nb];
}

/* How far a candidate is from what was typed; a beginning of it counts as one letter away. */
static int word_distance(const char *typed, const char *candidate)
{
    size_t n = strlen(typed);
    if (n >= 3 && strncmp(typed, candidate, n) == 0)
        return 1;
    return edit_distance(typed, candidate);
}

static bool word_is_near(int distance, const char *typed)
{
    return distance <= 1 + (int)strlen(typed) / 3 && distance < (int)strlen(typed);
}

const char *params_nearest_flag(const struct param_set *s, const char *name, uint32_t command)
{
    const char *best = NULL;
    int least = NAME_MAX_LEN;
    const char *bare = name + strspn(name, "-");
    if (strlen(bare) < 2)
        return NULL;
    for (int32_t i = 0; i < s->n; i++) {
        const struct param *p = s->rows[i];
        if (!p->flag || !row_meets(p, command))
            continue;
        /* An alias that is near leads to the spelling that is printed everywhere. */
        int d = word_distance(bare, p->flag + strspn(p->flag, "-"));
        const char *at = p->aliases, *word;
        size_t n;
        while ((n = word_next(&at, &word)) > 0) {
            char alias[NAME_MAX_LEN + 1];
            size_t dashes = strspn(word, "-");
            if (n > NAME_MAX_LEN || n - dashes < 2)
                continue;
            memcpy(alias, word, n);
            alias[n] = '\0';
            int other = word_distance(bare, alias + dashes);
            d = other < d ? other : d;
        }
        if (d < least) {
            least = d;
            best = p->flag;
        }
    }
    return best && word_is_near(least, bare) ? best : NULL;
}

const char *params_nearest_key(const struct param_set *s, const char *key)
{
    const char *best = NULL;
    int least = NAME_MAX_LEN;
    for (int32_t i = 0; i < s->n; i++) {
        int d = word_distance(key, s->rows[i]->key);
        if (d < least) {
            least = d;
            best = s->rows[i]->key;
        }
    }
    return best && word_is_near(least, key) ? best : NULL;
}

static int fail_unknown(const struct param_set *s, const char *name, uint32_t command,
                        struct leat_error *e)
{
    char quoted[80];
    bool no;
    bool elsewhere = params_match(s, name, UINT32_MAX, &no) >= 0;
    const char *near = params_nearest_flag(s, name, command);
    error_quote(quoted, sizeof quoted, name, strlen(name));
    if (elsewhere)
        return error_set(e, LEAT_ERR_USAGE, "this command has no option %s (another has)%s%s",
                         quoted, near ? "; the nearest one is " : "", near ? near : "");
    return error_set(e, LEAT_ERR_USAGE, "unknown option %s%s%s%s", quoted,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* ---- command line ---- */

/* Longest flag name taken from an argument, the dashes included. */
#define ARG_NAME 64

/* Splits an argument that begins with '-': its name, and the value written in the same word (or
 * NULL). */
static void arg_split(const struct param_set *s, const char *arg, uint32_t command, char *name,
                      const char **value)
{
    const char *equal = strchr(arg, '=');
    bool no;
    *value = NULL;
    size_t n = strlen(arg);
    if (arg[1] == '-') {
        if (equal) {
            n = (size_t)(equal - arg);
            *value = equal + 1;
        }
    } else if (n > 2 && params_match(s, arg, command, &no) < 0) {
        char letter[3] = {'-', arg[1], '\0'};
        int32_t row = params_match(s, letter, command, &no);
        /* "-p=x" might mean the text "x" or "=x": it stays whole, and is unknown. */
        if (row >= 0 && s->rows[row]->type != PARAM_BOOL && arg[2] != '=') {
            n = 2;
            *value = arg + 2;
        }
    }
    if (n >= ARG_NAME)
        n = ARG_NAME - 1;
    memcpy(name, arg, n);
    name[n] = '\0';
}

int params_parse(struct param_set *s, int argc, char *const *argv, uint32_t command,
                 const char **words, int32_t max_words, int32_t *n_words, struct leat_error *e)
{
    char quoted[80];
    bool flags = true;
    *n_words = 0;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (flags && strcmp(arg, "--") == 0) {
            flags = false;
            continue;
        }
        if (!flags || arg[0] != '-' || arg[1] == '\0') {
            if (*n_words == max_words)
                return error_set(e, LEAT_ERR_USAGE, "'%s' is one argument too many",
                                 error_quote(quoted, sizeof quoted, arg, strlen(arg)));
            words[(*n_words)++] = arg;
            continue;
        }
        char name[ARG_NAME];
        const char *value;
        bool no;
        arg_split(s, arg, command, name, &value);
        int32_t row = params_match(s, name, command, &no);
        if (row < 0)
            return fail_unknown(s, name, command, e);
        const struct param *p = s->rows[row];
        if (no && value)
            return error_set(e, LEAT_ERR_USAGE, "%s takes no value", name);
        if (p->type == PARAM_BOOL && !value) {
            value = no ? "false" : "true";
        } else if (!value) {
            if (i + 1 == argc)
                return error_set(e, LEAT_ERR_USAGE, "%s needs a value behind it", name);
            value = argv[++i]; /* as it is: a text may begin with '-' */
        }
        int rc = params_set(s, p->key, value, SOURCE_LINE, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- configuration file ---- */

static char *blanks_trim(char *s)
{
    s += strspn(s, " \t\r\n");
    size_t n = strlen(s);
    while (n > 0 && strchr(" \t\r\n", s[n - 1]))
        n--;
    s[n] = '\0';
    return s;
}

/* A value in double quotes keeps its blanks and knows \n \t \\ \". In place; false = malformed. */
static bool quotes_undo(char *s)
{
    char *out = s, *c = s + 1;
    for (; *c != '"'; c++) {
        char got = *c;
        if (got == '\\') {
            c++;
            if (*c != 'n' && *c != 't' && *c != '\\' && *c != '"')
                return false;
            got = *c == 'n' ? '\n' : *c == 't' ? '\t' : *c;
        } else if (got == '\0') {
            return false;
        }
        *out++ = got;
    }
    bool whole = c[1] == '\0';
    *out = '\0';
    return whole;
}

/* One line; a value that was set by other means than a file stays as it is. */
static int line_read(struct param_set *s, char *line, struct leat_error *e)
{
    char *key = blanks_trim(line);
    if (*key == '\0' || *key == '#')
        return 0;
    char *equal = strchr(key, '=');
    if (!equal)
        return error_set(e, LEAT_ERR_USAGE, "'key = value' was expected");
    *equal = '\0';
    key = blanks_trim(key);
    char *value = blanks_trim(equal + 1);
    if (*value == '"' && !quotes_undo(value))
        return error_set(e, LEAT_ERR_USAGE,
                         "%s: a value in double quotes ends with one, and knows only the escapes "
                         "\\n, \\t, \\\\ and \\\"",
                         key);
    int32_t row = params_find(s, key);
    if (row >= 0 && s->rows[row]->by_line_only)
        return error_set(e, LEAT_ERR_USAGE,
                         "%s is for the command line only; a configuration file cannot set it",
                         key);
    if (row >= 0 && s->values[row].set && strcmp(s->values[row].source, SOURCE_FILE) != 0) {
        struct param_value checked = {0}; /* still, a wrong line is wrong */
        int rc = value_parse(s->rows[row], value, &checked, e);
        value_clear(&checked);
        return rc;
    }
    return params_set(s, key, value, SOURCE_FILE, e);
}

int params_read_file(struct param_set *s, const char *path, struct leat_error *e)
{
    char quoted[256];
    error_quote(quoted, sizeof quoted, path, strlen(path));
    FILE *f = fopen(path, "re");
    if (!f) {
        if (errno == ENOENT || errno == ENOTDIR)
            return 0;
        return error_set_errno(e, LEAT_ERR_FILE, errno, "cannot open %s", quoted);
    }
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;
    ssize_t n;
    errno = 0;
    for (int number = 1; rc == 0 && (n = getline(&line, &cap, f)) >= 0; number++) {
        if (strlen(line) != (size_t)n)
            rc = error_set(e, LEAT_ERR_USAGE, "the line holds a NUL byte");
        else
            rc = line_read(s, line, e);
        if (rc < 0)
            error_prefix(e, "%s line %d", quoted, number);
        errno = 0;
    }
    if (rc == 0 && (ferror(f) || errno != 0))
        rc = error_set_errno(e, LEAT_ERR_FILE, errno, "cannot read %s", quoted);
    free(line);
    fclose(f);
    return rc;
}
