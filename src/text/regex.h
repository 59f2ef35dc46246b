/* Regular expressions as tokenizers write them: Oniguruma's (Ruby) syntax, translated to PCRE2 with
 * UTF and Unicode properties, compiled with JIT where the system allows it. What the two understand
 * differently is either translated or refused by name. Compiled patterns are immutable; the match
 * scratch is the caller's. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include "text_buf.h"

struct regex;

/* owner: what the pattern belongs to, for messages ("pre_tokenizer of FILE"). */
int regex_open(const char *pattern, size_t n, const char *owner, struct regex **out,
               struct leat_error *e);
void regex_close(struct regex *r); /* NULL ok */

/* The pattern in PCRE2's syntax; appended to out. For tests. */
int regex_translate(const char *pattern, size_t n, const char *owner, struct text_buf *out,
                    struct leat_error *e);

struct regex_work { /* scratch, zero-initialised; the owner frees it */
    void *match, *context, *stack;
};
void regex_work_free(struct regex_work *w);

/* The first match in text (well-formed UTF-8) at or after from: 1 with *start and *end, 0 none,
 * negative on failure (a pattern that runs away). */
int regex_find(const struct regex *r, struct regex_work *w, const char *text, size_t n, size_t from,
               size_t *start, size_t *end, struct leat_error *e);

#endif
