/* The inside of struct tokenizer, shared by the files that build it (tokenizer_gguf.c,
 * tokenizer_json.c and its parts) and those that use it (tokenizer.c, detokenizer.c). Not for other
 * rooms. */
#ifndef TEXT_TOKENIZER_INTERNAL_H
#define TEXT_TOKENIZER_INTERNAL_H

#include "added.h"
#include "bpe.h"
#include "json_tree.h"
#include "normalize.h"
#include "split.h"
#include "tokenizer.h"

#define TOKENIZER_ENDS   64        /* end ids, those of the model's files included */
#define TOKENIZER_AROUND 8         /* ids put before and behind a text */
#define TOKENIZER_EXTRA  (1 << 18) /* added tokens of one file */

enum decode_kind {
    DECODE_BYTES, /* spellings are letters of the byte alphabet */
    DECODE_TEXT,  /* spellings are text; mark stands for a space, <0xXX> for a byte */
};
enum decode_strip { STRIP_NONE, STRIP_ONE_SPACE, STRIP_FIRST_MARKS };

struct tokenizer {
    struct arena arena;
    struct vocab vocab;
    struct merges merges;
    struct bpe bpe;
    struct normalizer normalizer;
    struct splitter splitter;
    struct added_set added;            /* found in the text as it is given */
    struct added_set added_normalized; /* found in the normalised text */
    struct added_token *renamed;       /* those of them that normalising changes, by id: they are
                                          decoded as they were found */
    uint32_t n_renamed;

    enum decode_kind decode;
    enum decode_strip strip;      /* what the start of a decoded text loses */
    const char *mark, *mark_text; /* DECODE_TEXT: what is replaced by what; NULL = nothing */
    size_t mark_n, mark_text_n;
    bool decode_byte_tokens;

    int32_t bos, eos; /* -1 = none */
    int32_t prefix[TOKENIZER_AROUND], suffix[TOKENIZER_AROUND];
    int32_t n_prefix, n_suffix;
    int32_t end[TOKENIZER_ENDS], n_end;

    const char *kind, *pre, *note;
    size_t longest; /* see tokenizer_longest */
};

/* A tokenizer with nothing in it; closed by tokenizer_close at any stage. */
int tokenizer_new(struct ledger *l, struct tokenizer **out, struct leat_error *e);
/* After vocabulary, flags, normalizer and pieces of bpe are there: byte tokens, cuts, lengths.
 * cuts: pieces may be long. */
int tokenizer_finish(struct tokenizer *t, bool cuts, struct leat_error *e);
/* Fills bpe.byte_id from tokens <0x00> .. <0xFF> and marks them TOKEN_BYTE. Returns how many there
 * are. */
int tokenizer_find_bytes(struct tokenizer *t);
/* True and *byte when the spelling is <0xXX>. */
bool tokenizer_byte_spelling(const char *s, size_t n, int *byte);

/* stop_set.c: the tokens that end generation by their spelling, and ids taken from files.
 * added_only: look at added and control tokens only (a normal token of a byte-level vocabulary is
 * text). */
void stop_set_by_spelling(struct tokenizer *t, bool added_only);
void stop_set_add(struct tokenizer *t, int64_t id);
/* After all have been added: exceptions. */
void stop_set_finish(struct tokenizer *t);

/* tokenizer_parts.c: the four objects of tokenizer.json that are rules. path: quoted, for messages.
 * n may be NULL or null. Texts are copied to t->arena. */
int tokenizer_parse_normalizer(struct tokenizer *t, const struct json_node *n, const char *path,
                               struct leat_error *e);
int tokenizer_parse_splitter(struct tokenizer *t, const struct json_node *n, const char *path,
                             struct leat_error *e);
int tokenizer_parse_post(struct tokenizer *t, const struct json_node *n, const char *path,
                         struct leat_error *e);
int tokenizer_parse_decoder(struct tokenizer *t, const struct json_node *n, const char *path,
                            struct leat_error *e);

/* tokenizer_config.c: the files beside tokenizer.json. */
struct token_extra { /* an entry of added_tokens_decoder or added_tokens */
    struct token_extra *next;
    const char *content;
    size_t content_n;
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
};
struct folder_config {
    struct arena *arena;
    int add_bos, add_eos;  /* -1 = not said */
    const char *bos, *eos; /* spellings; NULL = not said */
    size_t bos_n, eos_n;
    int64_t bos_id; /* -1 = not said */
    int64_t end[TOKENIZER_ENDS];
    int n_end;
    struct token_extra *extra, **extra_tail;
    uint64_t extra_n, extra_bytes;
};
int folder_config_read(const char *folder, struct arena *a, struct folder_config *c,
                       struct leat_error *e);
/* One object of added_tokens; the JSON_OBJECT event was taken. id -1: it must hold one. */
int token_extra_read(struct json_pull *p, int64_t id, struct arena *a, struct token_extra *x,
                     struct leat_error *e);
/* BOS, EOS, prefix, suffix and stop ids by the files' word. */
int folder_config_apply(const struct folder_config *c, struct tokenizer *t, const char *path,
                        struct leat_error *e);

#endif
