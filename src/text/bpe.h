/* Merging the characters of one piece of text into tokens: byte-pair encoding by the rank of merge
 * rules, or SentencePiece's by the score of the joined token. O(n log n) in the length of a piece.
 * Knows no file format, no special tokens and no splitting rules. Immutable but for the cuts, which
 * any thread may fill; scratch is the caller's. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <pthread.h>
#include <stdatomic.h>

#include "tokenizer.h"
#include "vocab.h"

/* Where long pieces may be cut: filled by the first call that meets one, under the lock. */
struct bpe_cuts {
    pthread_mutex_t lock;
    atomic_bool ready;
    size_t over; /* longer pieces than this are cut */
    uint32_t mask;
    uint8_t bits[];
};

struct bpe {
    const struct vocab *vocab;
    const struct merges *merges; /* NULL: by score */
    int32_t byte_id[256];        /* token of one byte, -1 = none; used with byte_fallback */
    int32_t unknown;             /* for characters that nothing else covers; -1 = none */
    bool byte_fallback;
    bool fuse_unknown;     /* a run of unknown characters is one token */
    bool skip_unknown;     /* without unknown: characters are left out before merging, not after */
    bool ignore_merges;    /* a piece that is a token is that token */
    bool whole_newlines;   /* the same for pieces of newlines only */
    struct bpe_cuts *cuts; /* see bpe_prepare_cuts; NULL = pieces are never cut */
};

/* A place where the piece may be cut: no token of the vocabulary holds these two characters side by
 * side, so no merge can ever join them, and the parts encode to the same tokens as the whole.
 * Obtains a bit table for every pair of neighbours of the vocabulary; call when pieces can be long
 * (no splitting before). The table is filled when the first long piece comes: a start with a short
 * prompt does not wait for it. */
#define BPE_CUT_OVER 4096 /* the merges of a piece up to here stay in the cache */
int bpe_prepare_cuts(struct bpe *b, struct arena *a, size_t over, struct leat_error *e);

struct bpe_symbol {
    int32_t id;         /* -1 = not a token */
    uint32_t at, len;   /* bytes of the piece */
    int32_t prev, next; /* -1 = none; len 0 = merged away */
};
struct bpe_merge {
    uint64_t key; /* priority in the upper half (least first), left symbol in the lower */
    int32_t result;
};
struct bpe_work { /* scratch, zero-initialised; the owner frees it with bpe_work_free */
    struct bpe_symbol *symbol;
    struct bpe_merge *heap;
    size_t symbol_cap, heap_cap, n, heap_n;
};
void bpe_work_free(struct bpe_work *w);

/* After the last use. */
void bpe_close_cuts(struct bpe *b);

/* Appends the tokens of piece (well-formed UTF-8, under 2 GiB). */
int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n,
               struct token_list *out, struct leat_error *e);

#endif
