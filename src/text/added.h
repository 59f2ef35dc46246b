/* Tokens that are cut out of a text before anything else: a set of spellings, searched leftmost and
 * longest first. The set is a sorted list walked like a trie, so it costs 16 bytes a token.
 * Immutable after added_sort. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/arena.h"

enum added_flags {
    ADDED_LSTRIP = 1,      /* takes the white space before it */
    ADDED_RSTRIP = 2,      /* and behind it */
    ADDED_SINGLE_WORD = 4, /* not next to a word character */
    ADDED_SPECIAL = 8,     /* found only when special tokens are asked for */
};

struct added_token {
    const char *text; /* lives as long as the set */
    uint32_t len;     /* over 0 */
    uint32_t id : 24, flags : 8;
};

struct added_set {
    struct added_token *token;
    uint32_t n, cap;
    uint32_t first[257]; /* tokens that begin with byte b: first[b] .. first[b + 1] - 1 */
};

int added_open(struct added_set *s, struct arena *a, uint32_t most, struct leat_error *e);
void added_add(struct added_set *s, const char *text, size_t len, int32_t id, uint32_t flags);
/* Call once after the last added_add. Of two tokens with one spelling the later id is kept. */
void added_sort(struct added_set *s);

struct added_hit {
    size_t start, end; /* white space taken included */
    int32_t id;
};
/* The next token in text at or behind from; nothing before from is taken. False = none. */
bool added_next(const struct added_set *s, const char *text, size_t n, size_t from, bool special,
                struct added_hit *hit);

#endif
