/* One parameter's value: from text, to text, compared. Shared by params_*.c only. Pure. */
#ifndef BASE_PARAMS_VALUE_H
#define BASE_PARAMS_VALUE_H

#include "params.h"

/* Parses text (command-line spelling) as a value of p into *v, which must be zeroed or a valid
 * value; a LIST gets one more item, every other type is replaced. On failure *v is unchanged and
 * the error names p, the text and what is allowed. */
int value_parse(const struct param *p, const char *text, struct param_value *v,
                struct leat_error *e);
void value_clear(struct param_value *v); /* frees what it owns and zeroes it */
/* Same value; set and source do not matter. */
bool value_equal(const struct param *p, const struct param_value *a, const struct param_value *b);
/* Whether there is a value at all. */
bool value_present(const struct param *p, const struct param_value *v);
/* The default of p as a value; asserts that it is one (params_open has checked it). */
void value_default(const struct param *p, struct param_value *v);

/* A number in its shortest spelling that reads back the same; dst of 40 bytes is enough. */
const char *spell_float(char *dst, size_t cap, double v);
const char *spell_size(char *dst, size_t cap, uint64_t bytes);

/* The next word of a list separated by blanks: its length, 0 at the end; *at moves behind it. */
size_t word_next(const char **at, const char **word);

/* A string that grows; failed is set when memory ran out, and text is NULL then. */
struct text {
    char *text;
    size_t len, cap;
    bool failed;
};
void text_add(struct text *t, const char *bytes, size_t n);
void text_adds(struct text *t, const char *string);

#endif
