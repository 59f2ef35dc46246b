/* The parameter mechanism: one row per tunable, and everything that is made from it:
 * command-line parsing, usage text, bounds, defaults, JSON description, configuration file, the
 * reproduce line (docs/params.md). The mechanism knows no parameter; rooms bring their rows,
 * api/ joins them, cli/ adds rows of its commands. Thread rule: tables are immutable; a value
 * set belongs to one thread. */
#ifndef BASE_PARAMS_H
#define BASE_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

enum param_type {
    PARAM_BOOL, /* --flag, --no-flag, key = true|false */
    PARAM_INT,
    PARAM_FLOAT,
    PARAM_SIZE,   /* bytes: number with K M G T (1024) or KB MB GB TB (1000) */
    PARAM_CHOICE, /* one of choices */
    PARAM_STRING,
    PARAM_LIST, /* a string that may be given several times; values are kept in order */
};
enum param_level { PARAM_BASIC, PARAM_ADVANCED, PARAM_EXPERIMENTAL, PARAM_DEBUG };
enum param_scope { PARAM_SESSION, PARAM_REQUEST };

struct param {
    const char *key;     /* "memory", "top_k": configuration file, JSON, API */
    const char *flag;    /* "--memory"; NULL = no flag */
    const char *aliases; /* further spellings, separated by blanks: "-t --n-threads"; NULL = none */
    const char *label;   /* "Memory budget" */
    const char *group;   /* "Memory" */
    const char *unit;    /* "bytes", "tokens", "" */
    const char *help;    /* one sentence */
    const char *choices; /* of PARAM_CHOICE, separated by blanks */
    enum param_type type;
    enum param_level level;
    enum param_scope scope;
    bool accepts_auto; /* the word "auto" is a value of its own, kept as PARAM value is_auto */
    bool by_line_only; /* no default for every call: refused in a configuration file */
    bool lossy;        /* changes the answer's quality */
    double min, max;   /* of INT, FLOAT, SIZE: the constants that validation uses; both 0 = none */
    const char *def;   /* default in the spelling of the command line; NULL = unset */
    uint32_t commands; /* bit set of the commands that read it; owner-defined */
};

struct param_value {
    bool set; /* by hand (flag, file, API): pinned */
    bool is_auto;
    bool b;
    int64_t i; /* INT, SIZE, CHOICE (index) */
    double f;
    char *s;     /* STRING, CHOICE (word); owned */
    char **list; /* LIST; owned */
    int32_t n_list;
    const char *source; /* "default", "config file", "command line", "api"; NULL = unset */
};

struct param_set { /* joined tables and their values */
    const struct param **rows;
    struct param_value *values;
    int32_t n;
};

/* tables: n_tables arrays with counts[i] rows each; order is kept. Duplicate keys or flags are
 * LEAT_ERR_INTERNAL. All values are set to their defaults. */
int params_open(struct param_set *s, const struct param *const *tables, const int32_t *counts,
                int32_t n_tables, struct leat_error *e);
void params_close(struct param_set *s);
int32_t params_find(const struct param_set *s, const char *key); /* -1 = none */
const struct param_value *params_get(const struct param_set *s,
                                     const char *key); /* asserts that key exists */

/* Sets one value from text in the command line's spelling; strict: trailing junk, out of bounds,
 * unknown choice are LEAT_ERR_USAGE naming the parameter, the value and what is allowed; the value
 * stays as it was then. A LIST grows while the source stays the same; another source begins it
 * anew. source is a constant text. */
int params_set(struct param_set *s, const char *key, const char *text, const char *source,
               struct leat_error *e);

/* Parses argv[0..argc): flags of rows whose commands meet `command`; "--flag value" and
 * "--flag=value", "-n5" for one-letter ones; "--" ends flags. Positional words go to words[] (at
 * most max_words, else usage error). An unknown flag, or one of another command, is a usage
 * error that names the nearest one. */
int params_parse(struct param_set *s, int argc, char *const *argv, uint32_t command,
                 const char **words, int32_t max_words, int32_t *n_words, struct leat_error *e);
/* "key = value" lines, '#' begins a comment line; a value in double quotes keeps its blanks and
 * knows \n \t \\ \". Unknown keys and bad values are errors with line number, a missing file is
 * 0. Values that were set by other means than a file stay, so the file may be read before or
 * after the command line. */
int params_read_file(struct param_set *s, const char *path, struct leat_error *e);

/* Every parameter that was set by hand or is not at its default, in table order, as arguments
 * quoted for a shell; parsing it gives the same set. Caller frees. */
char *params_reproduce(const struct param_set *s, uint32_t command);
/* The value in the command line's spelling ("auto", "512M", ...; a list's items joined with ", "),
 * NULL where it is unset. Caller frees. */
char *params_spell(const struct param *p, const struct param_value *v);
/* Usage text of the rows of a command, groups in table order, wrapped at `columns`; levels above
 * max_level left out. Caller frees. */
char *params_usage(const struct param_set *s, uint32_t command, enum param_level max_level,
                   int32_t columns);
/* The whole table (with values when values is true) as a JSON text; caller frees. */
char *params_json(const struct param_set *s, bool values);

/* SIZE spelling: 0 on success. */
int parse_size(const char *text, uint64_t *out);

#endif
