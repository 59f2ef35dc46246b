/* The pre-tokenizers of gpt2-type GGUF vocabularies, as data: the name in tokenizer.ggml.pre, its
 * patterns and its flags (docs/tokenizers.md). Pure. */
#ifndef TEXT_PRE_TABLE_H
#define TEXT_PRE_TABLE_H

#include "split.h"

#define PRE_STEPS 8

struct pre_pattern {
    const char *key; /* "L3", as docs/tokenizers.md calls it */
    const char
        *step[PRE_STEPS]; /* regular expressions (all isolated), or "@WORD" for a rule in code */
    bool marks_space; /* space becomes U+2581 and bytes keep their own spelling: no byte alphabet */
    bool plain;       /* no byte alphabet, and space stays a space */
};

struct pre_row {
    const char *names;   /* separated by blanks */
    const char *pattern; /* key of a pre_pattern */
    bool ignore_merges, add_bos, clean_spaces, no_bos_default, mask_lstrip;
};

const struct pre_row *pre_find(const char *name, size_t n); /* NULL = not known */
const struct pre_row *pre_default(void);                    /* for a file that names none */
const struct pre_pattern *pre_pattern_find(const char *key);
/* Adds the pattern's steps to s. */
int pre_pattern_open(const struct pre_pattern *p, const char *owner, struct splitter *s,
                     struct leat_error *e);
/* Visits every row, for tests: NULL behind the last. */
const struct pre_row *pre_at(size_t i);

#endif
