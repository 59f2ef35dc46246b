/* Text to token ids and back. One object per vocabulary, from GGUF keys or from tokenizer.json.
 * Immutable after opening: encode and decode from any thread, each with its own buffers.
 * Rules and sources: docs/tokenizers.md. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "../model/gguf.h"

struct tokenizer;

enum token_flags {
    TOKEN_CONTROL = 1, /* prints nothing unless asked */
    TOKEN_USER_DEFINED = 2,
    TOKEN_UNKNOWN = 4,
    TOKEN_UNUSED = 8,
    TOKEN_BYTE = 16,
    TOKEN_END = 32,   /* ends generation (docs/tokenizers.md, end of generation) */
    TOKEN_NEVER = 64, /* not to be sampled: suppressed by the file, or an unused control token */
};

/* Memory (ROW_TOKENIZER) comes through arenas on ledger l (NULL: plain memory). */
int tokenizer_open_gguf(const struct gguf *g, struct ledger *l, struct tokenizer **out,
                        struct leat_error *e);
/* path: a tokenizer.json, which is then read alone, or a folder that holds one; in a folder
 * tokenizer_config.json, generation_config.json, config.json and special_tokens_map.json are read
 * too when present (special ids, stop ids, add_bos). */
int tokenizer_open_json(const char *path, struct ledger *l, struct tokenizer **out,
                        struct leat_error *e);
void tokenizer_close(struct tokenizer *t);

int32_t tokenizer_size(const struct tokenizer *t);     /* number of ids: 0..size-1 */
/* The same without added and control tokens at the end, for which a model need not have rows. */
int32_t tokenizer_plain_size(const struct tokenizer *t);
const char *tokenizer_kind(const struct tokenizer *t); /* "spm", "bpe" */
const char *tokenizer_pre(const struct tokenizer *t);  /* pre-tokenizer name, "" = none */
const char *tokenizer_note(
    const struct tokenizer *t); /* what had to be assumed, one line; "" = nothing */
int32_t tokenizer_bos(const struct tokenizer *t); /* -1 = none */
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
uint32_t tokenizer_flags(const struct tokenizer *t, int32_t id);
/* The vocabulary's own spelling of a token (UTF-8, "▁" and byte alphabet not undone); NULL for an
 * unknown id. */
const char *tokenizer_spelling(const struct tokenizer *t, int32_t id, size_t *len);
int32_t tokenizer_find(const struct tokenizer *t, const char *spelling, size_t len); /* -1 = none */

struct token_list { /* grows; owner frees with token_list_free; zero-initialised = empty */
    int32_t *ids;
    size_t n, cap;
};
void token_list_free(struct token_list *l);
int token_list_add(struct token_list *l, int32_t id, struct leat_error *e);

enum encode_flags {
    ENCODE_SPECIAL = 1, /* text of control tokens becomes those tokens; without it it is text */
    ENCODE_ADD_SPECIAL =
        2, /* add BOS / EOS as the model's rule says (a BOS that the text already spells with
                               ENCODE_SPECIAL is not doubled) */
};
/* Appends the ids of text (any bytes; invalid UTF-8 is replaced by U+FFFD per maximal subpart, as
 * Python's 'replace'). */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, uint32_t flags,
                     struct token_list *out, struct leat_error *e);

/* Bytes of one id as it stands in the middle of a text; control tokens give 0 bytes unless special.
 * Returns the length that is needed (may exceed cap; dst is then cut). */
size_t tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, char *dst, size_t cap);

/* Streaming: gives whole characters only. Zero-initialise, then feed ids; at the end flush. The
 * first text of a sequence loses one leading space where the tokenizer adds one. */
struct detokenizer {
    const struct tokenizer *t;
    bool special, started;
    char held[8];
    int32_t n_held;
};
void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool special,
                      bool at_start);
/* Appends to dst (cap >= 8 + longest piece of the vocabulary, see tokenizer_longest); returns bytes
 * written. */
size_t detokenizer_feed(struct detokenizer *d, int32_t id, char *dst, size_t cap);
size_t detokenizer_flush(struct detokenizer *d, char *dst,
                         size_t cap); /* an incomplete character becomes U+FFFD */
size_t tokenizer_longest(const struct tokenizer *t);

#endif
