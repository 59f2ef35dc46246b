/* Rewriting a text before it is split: the normalizer of a tokenizer, as a list of steps. Immutable
 * after opening; scratch is the caller's. Knows no vocabulary and no file format. */
#ifndef TEXT_NORMALIZE_H
#define TEXT_NORMALIZE_H

#include <stdbool.h>

#include "../base/arena.h"
#include "regex.h"

enum normalize_kind {
    NORMALIZE_NFC,
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_LOWERCASE,     /* one character at a time, full mapping */
    NORMALIZE_PREPEND,       /* content before a text that is not empty */
    NORMALIZE_REPLACE,       /* every occurrence of pattern by content */
    NORMALIZE_REPLACE_REGEX, /* every match of regex by content */
    NORMALIZE_STRIP,         /* white space at left, right */
    NORMALIZE_STRIP_ACCENTS, /* combining marks go */
    NORMALIZE_NMT,           /* control characters go, odd white space becomes a space */
    NORMALIZE_BYTE_LEVEL,    /* bytes to their letters */
};

struct normalize_step {
    enum normalize_kind kind;
    const char *pattern, *content;
    size_t pattern_n, content_n;
    struct regex *regex; /* owned by the normalizer */
    bool left, right;
};

#define NORMALIZE_STEPS 16

struct normalizer {
    struct normalize_step step[NORMALIZE_STEPS];
    int n;
};

/* Adds a copy of s, whose texts live as long as the normalizer; LEAT_ERR_UNSUPPORTED when there are
 * too many. On failure the caller still owns s->regex. */
int normalizer_add(struct normalizer *z, const struct normalize_step *s, const char *owner,
                   struct leat_error *e);
void normalizer_close(struct normalizer *z);

struct normalize_work { /* zero-initialised; the owner frees it */
    struct text_buf a, b;
    int32_t *points; /* one stretch of characters for NFC and its kin */
    size_t points_cap;
};
void normalize_work_free(struct normalize_work *w);

/* *out, *out_n: the rewritten text, either text itself or in w until its next use. */
int normalizer_run(const struct normalizer *z, struct normalize_work *w, struct regex_work *rw,
                   const char *text, size_t n, const char **out, size_t *out_n,
                   struct leat_error *e);

#endif
