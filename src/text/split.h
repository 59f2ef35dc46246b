/* Cutting a text into the pieces that are encoded one by one: the pre-tokenizer, as a list of
 * steps, each of which works on every piece that the one before left. Immutable after opening;
 * scratch is the caller's. Knows no vocabulary and no file format. */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include <stdbool.h>

#include "../base/arena.h"
#include "regex.h"

enum split_kind {
    SPLIT_REGEX,
    SPLIT_STRING,
    SPLIT_DIGITS,          /* each character of Nd, Nl, No is a match */
    SPLIT_PUNCT,           /* each punctuation character */
    SPLIT_SPACE,           /* each white space character */
    SPLIT_THREES,          /* in runs of N: groups of three counted from the right */
    SPLIT_THREES_WORD_END, /* the same in runs of Nd that no word character follows */
    SPLIT_THREES_ZERO,     /* in runs of Nd: a cut where a multiple of three is left */
    SPLIT_TRAILING_SPACE,  /* white space at the end is a piece */
    SPLIT_METASPACE,       /* space to pattern, one in front by the scheme; cut says where */
    SPLIT_PREFIX_SPACE,    /* a space before a piece that has none */
    SPLIT_BYTE_LEVEL,      /* bytes to their letters; cuts nothing */
};
enum split_behaviour {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT,
    SPLIT_CONTIGUOUS
};
enum split_scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

struct split_step {
    enum split_kind kind;
    enum split_behaviour behaviour;
    enum split_scheme scheme; /* METASPACE */
    bool invert;
    bool cut;            /* METASPACE */
    struct regex *regex; /* owned by the splitter */
    const char *pattern; /* STRING; METASPACE: what stands for a space */
    size_t pattern_n;
};

#define SPLIT_STEPS 16

struct splitter {
    struct split_step step[SPLIT_STEPS];
    int n;
};

int splitter_add(struct splitter *s, const struct split_step *step, const char *owner,
                 struct leat_error *e);
void splitter_close(struct splitter *s);

struct split_piece {
    uint32_t at, len;
};
struct split_pieces {
    struct split_piece *p;
    size_t n, cap;
};
struct split_work { /* zero-initialised; the owner frees it */
    struct text_buf text[2];
    struct split_pieces list[2], marks;
    bool *is_match; /* beside marks */
    size_t is_match_cap;
};
void split_work_free(struct split_work *w);

/* *out: the text that the pieces lie in, text itself or in w; *pieces: in w. at_start: text begins
 * where the whole input begins. Both live until w's next use. */
int splitter_run(const struct splitter *s, struct split_work *w, struct regex_work *rw,
                 const char *text, size_t n, bool at_start, const char **out,
                 const struct split_pieces **pieces, struct leat_error *e);

#endif
