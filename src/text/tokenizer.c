/* The tokenizer as others see it: life, facts, and encoding (cut out added tokens, normalise,
 * split, merge). Knows no file format. Immutable after opening: any thread, each call with scratch
 * of its own. */
#include "tokenizer_internal.h"

#include <assert.h>
#include <stdio.h>

#include "../base/utf8.h"
#include "unicode.h"

/* --- life --- */

int tokenizer_new(struct ledger *l, struct tokenizer **out, struct leat_error *e)
{
    struct arena a;
    *out = NULL;
    arena_init(&a, l, ROW_TOKENIZER);
    struct tokenizer *t = arena_alloc(&a, sizeof *t, _Alignof(struct tokenizer), e);
    if (!t) {
        arena_close(&a);
        return LEAT_ERR_MEMORY;
    }
    t->arena = a;
    t->bos = t->eos = -1;
    t->kind = t->pre = t->note = "";
    t->bpe.vocab = &t->vocab;
    t->bpe.unknown = -1;
    for (int i = 0; i < 256; i++)
        t->bpe.byte_id[i] = -1;
    *out = t;
    return 0;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    normalizer_close(&t->normalizer);
    splitter_close(&t->splitter);
    bpe_close_cuts(&t->bpe);
    struct arena a = t->arena; /* t itself lies in it */
    arena_close(&a);
}

bool tokenizer_byte_spelling(const char *s, size_t n, int *byte)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return false;
    int v = 0;
    for (int i = 3; i < 5; i++) {
        int c = (unsigned char)s[i];
        int d = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : -1;
        if (d < 0)
            return false;
        v = v * 16 + d;
    }
    *byte = v;
    return true;
}

int tokenizer_find_bytes(struct tokenizer *t)
{
    int found = 0;
    for (int i = 0; i < 256; i++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", (unsigned)i);
        t->bpe.byte_id[i] = vocab_find(&t->vocab, s, 6);
        if (t->bpe.byte_id[i] >= 0) {
            t->vocab.flags[t->bpe.byte_id[i]] |= TOKEN_BYTE;
            found++;
        }
    }
    return found;
}

int tokenizer_finish(struct tokenizer *t, bool cuts, struct leat_error *e)
{
    added_sort(&t->added);
    added_sort(&t->added_normalized);
    /* The most that detokenizer_feed writes for one token: each byte may become U+FFFD, a mark its
     * text. */
    size_t most = t->vocab.longest;
    if (t->mark && t->mark_text_n > t->mark_n)
        most = most / t->mark_n * t->mark_text_n + most % t->mark_n;
    t->longest = 3 * most + 8;
    return cuts ? bpe_prepare_cuts(&t->bpe, &t->arena, BPE_CUT_OVER, e) : 0;
}

/* --- facts --- */

int32_t tokenizer_size(const struct tokenizer *t)
{
    return t->vocab.n;
}

int32_t tokenizer_plain_size(const struct tokenizer *t)
{
    int32_t n = t->vocab.n;
    while (n > 0 && (!vocab_has(&t->vocab, n - 1) ||
                     t->vocab.flags[n - 1] & (TOKEN_CONTROL | TOKEN_USER_DEFINED)))
        n--;
    return n;
}

const char *tokenizer_kind(const struct tokenizer *t)
{
    return t->kind;
}

const char *tokenizer_pre(const struct tokenizer *t)
{
    return t->pre;
}

const char *tokenizer_note(const struct tokenizer *t)
{
    return t->note;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->n_prefix > 0;
}

bool tokenizer_adds_eos(const struct tokenizer *t)
{
    return t->n_suffix > 0;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    if (vocab_has(&t->vocab, id) && (t->vocab.flags[id] & TOKEN_END))
        return true;
    for (int32_t i = 0; i < t->n_end; i++)
        if (t->end[i] == id)
            return true;
    return false;
}

uint32_t tokenizer_flags(const struct tokenizer *t, int32_t id)
{
    return vocab_has(&t->vocab, id) ? t->vocab.flags[id] : 0;
}

const char *tokenizer_spelling(const struct tokenizer *t, int32_t id, size_t *len)
{
    size_t n;
    if (!vocab_has(&t->vocab, id))
        return NULL;
    const char *s = vocab_text(&t->vocab, id, &n);
    if (len)
        *len = n;
    return s;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *spelling, size_t len)
{
    return vocab_find(&t->vocab, spelling, len);
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    return t->longest;
}

/* --- lists --- */

void token_list_free(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

int token_list_add(struct token_list *l, int32_t id, struct leat_error *e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        int32_t *p = cap <= SIZE_MAX / sizeof *p ? realloc(l->ids, cap * sizeof *p) : NULL;
        if (!p)
            return error_set(e, LEAT_ERR_MEMORY, "the system refused room for %zu tokens", cap);
        l->ids = p;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return 0;
}

/* --- encoding --- */

struct encoding { /* scratch of one call */
    const struct tokenizer *t;
    bool special;
    struct token_list *out;
    struct text_buf repaired;
    struct regex_work regex;
    struct normalize_work normalize;
    struct split_work split;
    struct bpe_work bpe;
};

static void encoding_close(struct encoding *w)
{
    text_buf_free(&w->repaired);
    regex_work_free(&w->regex);
    normalize_work_free(&w->normalize);
    split_work_free(&w->split);
    bpe_work_free(&w->bpe);
}

/* Text without added tokens, normalised. */
static int encode_plain(struct encoding *w, const char *text, size_t n, bool at_start,
                        struct leat_error *e)
{
    const struct split_pieces *pieces;
    const char *in;
    int rc =
        splitter_run(&w->t->splitter, &w->split, &w->regex, text, n, at_start, &in, &pieces, e);
    for (size_t i = 0; rc == 0 && i < pieces->n; i++)
        rc = bpe_encode(&w->t->bpe, &w->bpe, in + pieces->p[i].at, pieces->p[i].len, w->out, e);
    return rc;
}

static int encode_normalized(struct encoding *w, const char *text, size_t n, bool at_start,
                             struct leat_error *e)
{
    struct added_hit hit;
    size_t from = 0;
    int rc = 0;
    while (rc == 0 && added_next(&w->t->added_normalized, text, n, from, w->special, &hit)) {
        if (hit.start > from)
            rc = encode_plain(w, text + from, hit.start - from, at_start && from == 0, e);
        if (rc == 0)
            rc = token_list_add(w->out, hit.id, e);
        from = hit.end;
    }
    return rc == 0 && from < n ? encode_plain(w, text + from, n - from, at_start && from == 0, e)
                               : rc;
}

static int encode_fragment(struct encoding *w, const char *text, size_t n, bool at_start,
                           struct leat_error *e)
{
    int rc = normalizer_run(&w->t->normalizer, &w->normalize, &w->regex, text, n, &text, &n, e);
    if (rc == 0 && n > INT32_MAX)
        rc = error_set(e, LEAT_ERR_USAGE, "a text of over 2 GiB cannot be encoded at once");
    return rc < 0 ? rc : encode_normalized(w, text, n, at_start, e);
}

static int encode_text(struct encoding *w, const char *text, size_t n, struct leat_error *e)
{
    struct added_hit hit;
    size_t from = 0;
    int rc = 0;
    while (rc == 0 && added_next(&w->t->added, text, n, from, w->special, &hit)) {
        if (hit.start > from)
            rc = encode_fragment(w, text + from, hit.start - from, from == 0, e);
        if (rc == 0)
            rc = token_list_add(w->out, hit.id, e);
        from = hit.end;
    }
    return rc == 0 && from < n ? encode_fragment(w, text + from, n - from, from == 0, e) : rc;
}

/* True when ids begin (at_end: end) with the n ids of around: the text spells them itself. */
static bool has_around(const struct token_list *l, size_t first, const int32_t *around, int32_t n,
                       bool at_end)
{
    size_t have = l->n - first;
    if (n == 0 || have < (size_t)n)
        return false;
    const int32_t *at = l->ids + (at_end ? l->n - (size_t)n : first);
    return memcmp(at, around, (size_t)n * sizeof *at) == 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, uint32_t flags,
                     struct token_list *out, struct leat_error *e)
{
    struct encoding w = {.t = t, .special = (flags & ENCODE_SPECIAL) != 0, .out = out};
    bool around = (flags & ENCODE_ADD_SPECIAL) != 0;
    size_t first = out->n;
    if (len > INT32_MAX)
        return error_set(e, LEAT_ERR_USAGE, "a text of over 2 GiB cannot be encoded at once");
    int rc = unicode_repair(text, len, &w.repaired, e);
    if (rc > 0) {
        text = w.repaired.p;
        len = w.repaired.n;
    }
    for (int32_t i = 0; rc >= 0 && around && i < t->n_prefix; i++)
        rc = token_list_add(out, t->prefix[i], e);
    size_t body = out->n;
    rc = rc < 0 ? rc : encode_text(&w, text, len, e);
    encoding_close(&w);
    if (rc == 0 && around && w.special && has_around(out, body, t->prefix, t->n_prefix, false)) {
        memmove(out->ids + first, out->ids + body, (out->n - body) * sizeof *out->ids);
        out->n -= body - first;
    }
    if (around && !(w.special && has_around(out, first, t->suffix, t->n_suffix, true)))
        for (int32_t i = 0; rc == 0 && i < t->n_suffix; i++)
            rc = token_list_add(out, t->suffix[i], e);
    if (rc < 0)
        out->n = first;
    return rc;
}
