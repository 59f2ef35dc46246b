/* From token ids back to text: the bytes of one token, and a stream of whole characters.
 * Immutable tokenizer, caller's detokenizer: any thread. */
#include <assert.h>

#include "../base/utf8.h"
#include "tokenizer_internal.h"
#include "unicode.h"

struct out { /* a piece as it is written; n counts on past cap */
    char *dst;
    size_t cap, n;
};

static void put(struct out *o, const char *s, size_t n)
{
    if (o->n < o->cap) {
        size_t fit = o->cap - o->n < n ? o->cap - o->n : n;
        if (fit)
            memcpy(o->dst + o->n, s, fit);
    }
    o->n += n;
}

/* Letters of the byte alphabet to bytes; a spelling with any other character is text. */
static void put_bytes(struct out *o, const char *s, size_t n)
{
    uint32_t c = 0;
    for (size_t i = 0; i < n;) {
        int k = utf8_next(s + i, n - i, &c);
        if (k == 0 || byte_alphabet_byte(c) < 0) {
            put(o, s, n);
            return;
        }
        i += (size_t)k;
    }
    for (size_t i = 0; i < n;) {
        i += (size_t)utf8_next(s + i, n - i, &c);
        char byte = (char)byte_alphabet_byte(c);
        put(o, &byte, 1);
    }
}

static void put_text(struct out *o, const struct tokenizer *t, const char *s, size_t n)
{
    size_t i = 0;
    while (t->mark && i < n) {
        const char *hit = memmem(s + i, n - i, t->mark, t->mark_n);
        if (!hit)
            break;
        put(o, s + i, (size_t)(hit - s) - i);
        put(o, t->mark_text, t->mark_text_n);
        i = (size_t)(hit - s) + t->mark_n;
    }
    put(o, s + i, n - i);
}

/* The spelling to decode: an added token that normalising changed stands for the changed one. */
static const char *spelling(const struct tokenizer *t, int32_t id, size_t *n)
{
    uint32_t lo = 0, hi = t->n_renamed;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct added_token *r = &t->renamed[mid];
        if ((int32_t)r->id == id) {
            *n = r->len;
            return r->text;
        }
        if ((int32_t)r->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return vocab_text(&t->vocab, id, n);
}

size_t tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, char *dst, size_t cap)
{
    struct out o = {dst, cap, 0};
    if (!vocab_has(&t->vocab, id))
        return 0;
    uint32_t flags = t->vocab.flags[id];
    size_t n;
    const char *s = spelling(t, id, &n);
    int byte;
    if (flags & (TOKEN_CONTROL | TOKEN_UNKNOWN | TOKEN_UNUSED)) {
        if (special)
            put(&o, s, n);
    } else if (t->decode == DECODE_BYTES) {
        if (flags & TOKEN_USER_DEFINED)
            put(&o, s, n);
        else
            put_bytes(&o, s, n);
    } else if ((flags & TOKEN_BYTE) && t->decode_byte_tokens &&
               tokenizer_byte_spelling(s, n, &byte)) {
        char b = (char)byte;
        put(&o, &b, 1);
    } else {
        put_text(&o, t, s, n);
    }
    return o.n;
}

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool special, bool at_start)
{
    *d = (struct detokenizer){.t = t, .special = special, .started = !at_start};
}

/* What the first bytes of a text lose; returns the new length. */
static size_t strip_start(const struct tokenizer *t, char *p, size_t n)
{
    size_t gone = 0;
    if (t->strip == STRIP_ONE_SPACE)
        gone = n && p[0] == ' ';
    else if (t->strip == STRIP_FIRST_MARKS)
        while (gone < n && p[gone] == ' ')
            gone++;
    memmove(p, p + gone, n - gone);
    return n - gone;
}

size_t detokenizer_feed(struct detokenizer *d, int32_t id, char *dst, size_t cap)
{
    size_t most = tokenizer_longest(d->t);
    assert(cap >= 8 + most);
    /* The raw bytes stand at the far end of dst; whole characters move to its front, where even
     * three bytes for each of theirs cannot catch up with them. */
    size_t room = (most - 8) / 3 + sizeof d->held;
    char *raw = dst + cap - room;
    size_t n = (size_t)d->n_held;
    memcpy(raw, d->held, n);
    size_t piece = tokenizer_piece(d->t, id, d->special, raw + n, room - n);
    assert(piece <= room - n);
    if (piece && !d->started) {
        piece = strip_start(d->t, raw + n, piece);
        d->started = true;
    }
    n += piece;
    size_t i = 0, written = 0;
    d->n_held = 0;
    while (i < n) {
        uint32_t c;
        int k = utf8_next(raw + i, n - i, &c);
        if (k > 0) {
            memmove(dst + written, raw + i, (size_t)k);
            written += (size_t)k;
            i += (size_t)k;
        } else if (utf8_is_cut(raw + i, n - i)) {
            d->n_held = (int32_t)(n - i);
            memcpy(d->held, raw + i, n - i);
            break;
        } else {
            i += unicode_bad_length(raw + i, n - i);
            memcpy(dst + written, "\xef\xbf\xbd", 3);
            written += 3;
        }
    }
    return written;
}

size_t detokenizer_flush(struct detokenizer *d, char *dst, size_t cap)
{
    assert(cap >= 3);
    if (d->n_held == 0)
        return 0;
    d->n_held = 0;
    memcpy(dst, "\xef\xbf\xbd", 3);
    return 3;
}
