/* Byte-pair encoding of one piece with a heap of possible merges (docs/tokenizers.md).
 * Knows ids, ranks and scores only. Any thread: scratch is the caller's, the cuts are filled under
 * their lock. */
#include "bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../base/utf8.h"
#include "text_buf.h"

void bpe_work_free(struct bpe_work *w)
{
    free(w->symbol);
    free(w->heap);
    *w = (struct bpe_work){0};
}

/* Tokens that merging may produce: special ones never come out of plain text. */
static bool plain(const struct bpe *b, int32_t id)
{
    return id >= 0 &&
           !(b->vocab->flags[id] & (TOKEN_CONTROL | TOKEN_UNKNOWN | TOKEN_UNUSED | TOKEN_BYTE));
}

static int32_t find_plain(const struct bpe *b, const char *text, size_t n)
{
    int32_t id = vocab_find(b->vocab, text, n);
    return plain(b, id) ? id : -1;
}

/* --- cuts --- */

static uint32_t pair_bit(const struct bpe_cuts *c, uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 21 | right) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32) & c->mask;
}

int bpe_prepare_cuts(struct bpe *b, struct arena *a, size_t over, struct leat_error *e)
{
    uint64_t bits = 1 << 12;
    while (bits < 2 * b->vocab->text_n && bits < (UINT64_C(1) << 22))
        bits *= 2;
    struct bpe_cuts *c = arena_alloc(a, sizeof *c + bits / 8, _Alignof(struct bpe_cuts), e);
    if (!c)
        return LEAT_ERR_MEMORY;
    c->over = over;
    c->mask = (uint32_t)bits - 1;
    if (pthread_mutex_init(&c->lock, NULL) != 0)
        return error_set(e, LEAT_ERR_INTERNAL, "cannot make a tokenizer's lock");
    b->cuts = c;
    return 0;
}

void bpe_close_cuts(struct bpe *b)
{
    if (b->cuts)
        pthread_mutex_destroy(&b->cuts->lock);
    b->cuts = NULL;
}

static void cuts_fill(const struct bpe *b)
{
    struct bpe_cuts *cuts = b->cuts;
    for (int32_t id = 0; id < b->vocab->n; id++) {
        if (!vocab_has(b->vocab, id) || !plain(b, id))
            continue;
        size_t n, i = 0;
        const char *s = vocab_text(b->vocab, id, &n);
        uint32_t c, before = UINT32_MAX;
        while (i < n) {
            int k = utf8_next(s + i, n - i, &c);
            if (k == 0) /* spellings are checked when they are read */
                break;
            if (i > 0) {
                uint32_t bit = pair_bit(cuts, before, c);
                cuts->bits[bit / 8] |= (uint8_t)(1u << bit % 8);
            }
            before = c;
            i += (size_t)k;
        }
    }
}

static const struct bpe_cuts *cuts_of(const struct bpe *b)
{
    struct bpe_cuts *c = b->cuts;
    if (!atomic_load_explicit(&c->ready, memory_order_acquire)) {
        pthread_mutex_lock(&c->lock);
        if (!atomic_load_explicit(&c->ready, memory_order_relaxed))
            cuts_fill(b);
        atomic_store_explicit(&c->ready, true, memory_order_release);
        pthread_mutex_unlock(&c->lock);
    }
    return c;
}

/* --- heap: least key on top --- */

static void heap_down(struct bpe_merge *h, size_t n, size_t i)
{
    struct bpe_merge m = h[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && h[child + 1].key < h[child].key)
            child++;
        if (m.key <= h[child].key)
            break;
        h[i] = h[child];
        i = child;
    }
    h[i] = m;
}

static int heap_room(struct bpe_work *w, struct leat_error *e)
{
    if (w->heap_n < w->heap_cap)
        return 0;
    size_t cap = w->heap_cap ? 2 * w->heap_cap : 64;
    struct bpe_merge *p = realloc(w->heap, cap * sizeof *p);
    if (!p)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused %zu bytes to encode a text",
                         cap * sizeof *p);
    w->heap = p;
    w->heap_cap = cap;
    return 0;
}

static int heap_push(struct bpe_work *w, struct bpe_merge m, struct leat_error *e)
{
    int rc = heap_room(w, e);
    if (rc < 0)
        return rc;
    size_t i = w->heap_n++;
    while (i > 0 && m.key < w->heap[(i - 1) / 2].key) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = m;
    return 0;
}

static struct bpe_merge heap_pop(struct bpe_work *w)
{
    struct bpe_merge top = w->heap[0];
    w->heap[0] = w->heap[--w->heap_n];
    if (w->heap_n)
        heap_down(w->heap, w->heap_n, 0);
    return top;
}

/* --- merging --- */

/* Order of floats as order of unsigned integers (IEEE 754), the highest score first. */
static uint32_t score_priority(float score)
{
    uint32_t u;
    if (score == 0)
        score = 0; /* minus zero is zero */
    memcpy(&u, &score, 4);
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return ~u;
}

/* The merge of the symbols left and its next, if there is one. */
static bool merge_of(const struct bpe *b, const struct bpe_work *w, const char *piece, int32_t left,
                     struct bpe_merge *m)
{
    const struct bpe_symbol *l = &w->symbol[left];
    if (l->next < 0)
        return false;
    const struct bpe_symbol *r = &w->symbol[l->next];
    uint32_t priority;
    if (b->merges) {
        if (!merges_find(b->merges, l->id, r->id, &priority, &m->result) || !plain(b, m->result))
            return false;
    } else {
        m->result = find_plain(b, piece + l->at, (size_t)l->len + r->len);
        if (m->result < 0)
            return false;
        priority = score_priority(b->vocab->score[m->result]);
    }
    m->key = (uint64_t)priority << 32 | (uint32_t)left;
    return true;
}

static int merge_all(const struct bpe *b, struct bpe_work *w, const char *piece,
                     struct leat_error *e)
{
    struct bpe_merge m;
    w->heap_n = 0;
    for (size_t i = 0; i + 1 < w->n; i++) {
        if (!merge_of(b, w, piece, (int32_t)i, &m))
            continue;
        int rc = heap_room(w, e);
        if (rc < 0)
            return rc;
        w->heap[w->heap_n++] = m;
    }
    for (size_t i = w->heap_n / 2; i-- > 0;)
        heap_down(w->heap, w->heap_n, i);
    while (w->heap_n) {
        m = heap_pop(w);
        int32_t at = (int32_t)(uint32_t)m.key;
        struct bpe_symbol *l = &w->symbol[at];
        struct bpe_merge now;
        /* A neighbour may have changed since: the entry stands if the pair still makes that token.
         */
        if (l->len == 0 || !merge_of(b, w, piece, at, &now) || now.result != m.result)
            continue;
        struct bpe_symbol *r = &w->symbol[l->next];
        l->id = m.result;
        l->len += r->len;
        l->next = r->next;
        r->len = 0;
        if (l->next >= 0)
            w->symbol[l->next].prev = at;
        int rc = 0;
        if (l->prev >= 0 && merge_of(b, w, piece, l->prev, &m))
            rc = heap_push(w, m, e);
        if (rc == 0 && merge_of(b, w, piece, at, &m))
            rc = heap_push(w, m, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* --- symbols --- */

static int symbol_add(struct bpe_work *w, int32_t id, size_t at, size_t len, struct leat_error *e)
{
    if (w->n == w->symbol_cap) {
        size_t cap = w->symbol_cap ? 2 * w->symbol_cap : 64;
        struct bpe_symbol *p = realloc(w->symbol, cap * sizeof *p);
        if (!p)
            return error_set(e, LEAT_ERR_MEMORY, "the system refused %zu bytes to encode a text",
                             cap * sizeof *p);
        w->symbol = p;
        w->symbol_cap = cap;
    }
    int32_t i = (int32_t)w->n++;
    w->symbol[i] = (struct bpe_symbol){
        .id = id, .at = (uint32_t)at, .len = (uint32_t)len, .prev = i - 1, .next = -1};
    if (i > 0)
        w->symbol[i - 1].next = i;
    return 0;
}

static bool bytes_covered(const struct bpe *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (b->byte_id[(unsigned char)s[i]] < 0)
            return false;
    return true;
}

/* The symbols of one character that is not a token. */
static int symbol_add_unknown(const struct bpe *b, struct bpe_work *w, const char *piece, size_t at,
                              size_t len, bool *in_unknown, struct leat_error *e)
{
    if (!b->merges) /* by score the text decides: it may still be half of a token */
        return symbol_add(w, -1, at, len, e);
    if (b->byte_fallback && bytes_covered(b, piece + at, len)) {
        int rc = 0;
        for (size_t i = 0; i < len && rc == 0; i++)
            rc = symbol_add(w, b->byte_id[(unsigned char)piece[at + i]], at + i, 1, e);
        *in_unknown = false;
        return rc;
    }
    if (b->unknown < 0)
        return b->skip_unknown ? 0 : symbol_add(w, -1, at, len, e);
    if (*in_unknown && b->fuse_unknown) {
        w->symbol[w->n - 1].len += (uint32_t)len;
        return 0;
    }
    *in_unknown = true;
    return symbol_add(w, b->unknown, at, len, e);
}

/* Tokens of a symbol that no merge made a token of. */
static int emit_unknown(const struct bpe *b, const char *s, size_t n, struct token_list *out,
                        struct leat_error *e)
{
    if (b->byte_fallback && bytes_covered(b, s, n)) {
        int rc = 0;
        for (size_t i = 0; i < n && rc == 0; i++)
            rc = token_list_add(out, b->byte_id[(unsigned char)s[i]], e);
        return rc;
    }
    return b->unknown >= 0 ? token_list_add(out, b->unknown, e) : 0;
}

static int encode_part(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n,
                       struct token_list *out, struct leat_error *e)
{
    int rc = 0;
    bool in_unknown = false;
    w->n = 0;
    for (size_t i = 0; i < n && rc == 0;) {
        uint32_t c;
        int k = utf8_next(piece + i, n - i, &c);
        assert(k > 0);
        int32_t id = find_plain(b, piece + i, (size_t)k);
        if (id >= 0) {
            in_unknown = false;
            rc = symbol_add(w, id, i, (size_t)k, e);
        } else {
            rc = symbol_add_unknown(b, w, piece, i, (size_t)k, &in_unknown, e);
        }
        i += (size_t)k;
    }
    if (rc == 0 && w->n > 1)
        rc = merge_all(b, w, piece, e);
    if (rc < 0 || w->n == 0)
        return rc;
    for (int32_t i = 0; i >= 0 && rc == 0; i = w->symbol[i].next) {
        const struct bpe_symbol *s = &w->symbol[i];
        rc = s->id >= 0 ? token_list_add(out, s->id, e)
                        : emit_unknown(b, piece + s->at, s->len, out, e);
    }
    return rc;
}

static bool only_newlines(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != '\n')
            return false;
    return n > 0;
}

int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n,
               struct token_list *out, struct leat_error *e)
{
    assert(n <= INT32_MAX);
    if (b->ignore_merges || (b->whole_newlines && only_newlines(piece, n))) {
        int32_t id = find_plain(b, piece, n);
        if (id >= 0)
            return token_list_add(out, id, e);
    }
    if (!b->cuts || n <= b->cuts->over)
        return encode_part(b, w, piece, n, out, e);
    const struct bpe_cuts *cuts = cuts_of(b);
    size_t start = 0;
    uint32_t c, before = 0;
    for (size_t i = 0; i < n;) {
        int k = utf8_next(piece + i, n - i, &c);
        assert(k > 0);
        if (i > start) {
            uint32_t bit = pair_bit(cuts, before, c);
            if (!(cuts->bits[bit / 8] >> bit % 8 & 1)) {
                int rc = encode_part(b, w, piece + start, i - start, out, e);
                if (rc < 0)
                    return rc;
                start = i;
            }
        }
        before = c;
        i += (size_t)k;
    }
    return encode_part(b, w, piece + start, n - start, out, e);
}
