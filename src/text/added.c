/* Search for added tokens. Rules of lstrip, rstrip and single_word: Hugging Face tokenizers, added
 * vocabulary. Pure; any thread. */
#include "added.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../base/utf8.h"
#include "unicode.h"

int added_open(struct added_set *s, struct arena *a, uint32_t most, struct leat_error *e)
{
    *s = (struct added_set){.cap = most};
    s->token = arena_array(a, most, sizeof *s->token, 8, e);
    return s->token ? 0 : LEAT_ERR_MEMORY;
}

void added_add(struct added_set *s, const char *text, size_t len, int32_t id, uint32_t flags)
{
    assert(s->n < s->cap && len > 0 && len <= UINT32_MAX && id >= 0 && id < 1 << 24);
    struct added_token *t = &s->token[s->n++];
    t->text = text;
    t->len = (uint32_t)len;
    t->id = (uint32_t)id & 0xffffffu;
    t->flags = flags & 0xffu;
}

static int compare(const void *pa, const void *pb)
{
    const struct added_token *a = pa, *b = pb;
    int c = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
    if (c)
        return c;
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return a->id > b->id ? -1 : a->id < b->id;
}

void added_sort(struct added_set *s)
{
    uint32_t n = 0;
    if (s->n)
        qsort(s->token, s->n, sizeof *s->token, compare);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct added_token *t = &s->token[i];
        if (n && s->token[n - 1].len == t->len &&
            memcmp(s->token[n - 1].text, t->text, t->len) == 0)
            continue;
        s->token[n++] = *t;
    }
    s->n = n;
    for (uint32_t i = 0, b = 0; b <= 256; b++) {
        while (i < n && (unsigned char)s->token[i].text[0] < b)
            i++;
        s->first[b] = i;
    }
}

/* The first token of [lo, hi) whose byte at depth is not less than c; all are longer than depth. */
static uint32_t lower(const struct added_set *s, uint32_t lo, uint32_t hi, size_t depth, unsigned c)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)s->token[mid].text[depth] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest token at the start of text; NULL = none. */
static const struct added_token *longest_at(const struct added_set *s, const char *text, size_t n,
                                            bool special)
{
    unsigned c = (unsigned char)text[0];
    uint32_t lo = s->first[c], hi = s->first[c + 1];
    const struct added_token *best = NULL;
    for (size_t depth = 1; lo < hi; depth++) {
        const struct added_token *t = &s->token[lo];
        if (t->len == depth) { /* the shortest sorts first */
            if (special || !(t->flags & ADDED_SPECIAL))
                best = t;
            lo++;
        }
        if (depth == n)
            break;
        c = (unsigned char)text[depth];
        lo = lower(s, lo, hi, depth, c);
        hi = lower(s, lo, hi, depth, c + 1);
    }
    return best;
}

static bool word_before(const char *text, size_t at)
{
    size_t i = at;
    while (i > 0 && at - i < 4 && ((unsigned char)text[--i] & 0xc0) == 0x80)
        ;
    uint32_t c;
    return at > 0 && utf8_next(text + i, at - i, &c) > 0 && unicode_is_word(c);
}

static bool word_behind(const char *text, size_t n, size_t at)
{
    uint32_t c;
    return at < n && utf8_next(text + at, n - at, &c) > 0 && unicode_is_word(c);
}

static size_t space_before(const char *text, size_t at, size_t least)
{
    while (at > least) {
        size_t i = at - 1;
        while (i > least && ((unsigned char)text[i] & 0xc0) == 0x80)
            i--;
        uint32_t c;
        if (utf8_next(text + i, at - i, &c) == 0 || !unicode_is_space(c))
            break;
        at = i;
    }
    return at;
}

static size_t space_behind(const char *text, size_t n, size_t at)
{
    uint32_t c;
    int k;
    while (at < n && (k = utf8_next(text + at, n - at, &c)) > 0 && unicode_is_space(c))
        at += (size_t)k;
    return at;
}

bool added_next(const struct added_set *s, const char *text, size_t n, size_t from, bool special,
                struct added_hit *hit)
{
    if (s->n == 0)
        return false;
    for (size_t i = from; i < n; i++) {
        unsigned c = (unsigned char)text[i];
        if (s->first[c] == s->first[c + 1])
            continue;
        const struct added_token *t = longest_at(s, text + i, n - i, special);
        if (!t)
            continue;
        size_t end = i + t->len;
        if ((t->flags & ADDED_SINGLE_WORD) && (word_before(text, i) || word_behind(text, n, end))) {
            i = end - 1; /* passed over whole, as the reference does */
            continue;
        }
        hit->id = (int32_t)t->id;
        hit->start = t->flags & ADDED_LSTRIP ? space_before(text, i, from) : i;
        hit->end = t->flags & ADDED_RSTRIP ? space_behind(text, n, end) : end;
        return true;
    }
    return false;
}
