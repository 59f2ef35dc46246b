/* What a sequence remembers: pages of 64 positions, one per layer, in one region that is charged
 * to the ledger at once. Owns the region, the pages' reference counts and each sequence's page
 * tables; knows nothing of what the decoder computes. Thread rule: one thread at a time per
 * pool.
 *
 * A page is a header line and then, kv head by kv head, 64 key rows and 64 value rows. Freed
 * pages of one size form a list, last freed first taken; only when it is empty is memory touched
 * that was never used. */
#include "state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../base/checked.h"

#define UNIT      64 /* a page reference counts units of this many bytes from the region's start */
#define NO_PAGE   UINT32_MAX
#define MAX_BYTES ((uint64_t)UNIT * (NO_PAGE - 1))

struct page {
    uint32_t refs;
    uint32_t next; /* of the free list */
};

struct page_size { /* pages of one size */
    uint64_t bytes;
    uint64_t n_free;
    uint32_t free;
};

struct layer_shape {
    int32_t size; /* index in sizes; -1: this layer keeps no keys */
    int32_t window;
    uint64_t head_bytes, v_offset; /* keys and values of one kv head; where its values start */
};

struct state_pool {
    struct ledger *ledger;
    enum kv_type type;
    uint8_t *base;
    uint64_t bytes, top; /* region; what was ever in use lies below top */
    uint64_t pages_used;
    int32_t n_layer, n_sizes, n_seqs;
    int32_t table_pages; /* page table entries a sequence starts with, per layer */
    struct page_size *sizes;
    struct layer_shape *layers;
};

struct seq_state {
    struct state_pool *pool;
    int32_t length;
    int32_t end;     /* pages [first[layer], end) are held in every layer */
    int32_t cap;     /* entries per layer of table */
    int32_t *first;  /* [n_layer] */
    uint32_t *table; /* [n_layer][cap] */
};

static int32_t pages_of(int64_t positions)
{
    return (int32_t)((positions + ATTN_TILE - 1) / ATTN_TILE);
}

static uint64_t head_bytes(const struct layer *l, enum kv_type t)
{
    return ATTN_TILE * (kv_row_bytes(t, l->head_dim_k) + kv_row_bytes(t, l->head_dim_v));
}

static uint64_t page_bytes(const struct layer *l, enum kv_type t)
{
    return l->n_head_kv > 0 ? UNIT + (uint64_t)l->n_head_kv * head_bytes(l, t) : 0;
}

uint64_t state_bytes(const struct model *m, enum kv_type t, int32_t context, int32_t width,
                     int32_t n_seq)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layers[i];
        int64_t pages = pages_of(context);
        if (l->window > 0) {
            int64_t span = (int64_t)l->window - 1 + STATE_SLACK + width;
            int64_t held = (span + ATTN_TILE - 2) / ATTN_TILE + 1;
            pages = held < pages ? held : pages;
        }
        uint64_t bytes;
        if (!checked_mul(page_bytes(l, t), (uint64_t)pages, &bytes) ||
            !checked_add(sum, bytes, &sum))
            return UINT64_MAX;
    }
    if (!checked_mul(sum, (uint64_t)n_seq, &sum))
        return UINT64_MAX;
    return sum;
}

/* ---- the pool ---- */

static int32_t size_index(struct state_pool *p, uint64_t bytes)
{
    for (int32_t i = 0; i < p->n_sizes; i++)
        if (p->sizes[i].bytes == bytes)
            return i;
    p->sizes[p->n_sizes] = (struct page_size){.bytes = bytes, .free = NO_PAGE};
    return p->n_sizes++;
}

int state_pool_open(const struct model *m, enum kv_type t, uint64_t bytes, struct ledger *l,
                    struct state_pool **out, struct leat_error *e)
{
    *out = NULL;
    if (bytes > MAX_BYTES)
        return error_set(
            e, LEAT_ERR_USAGE,
            "a KV cache of %llu bytes: at most %llu are possible; ask for a smaller context",
            (unsigned long long)bytes, (unsigned long long)MAX_BYTES);
    struct state_pool *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for the KV cache's bookkeeping");
    p->ledger = l;
    p->type = t;
    p->bytes = bytes;
    p->n_layer = m->n_layer;
    p->sizes = calloc((size_t)m->n_layer, sizeof *p->sizes);
    p->layers = calloc((size_t)m->n_layer, sizeof *p->layers);
    int rc = LEAT_ERR_MEMORY;
    if (!p->sizes || !p->layers) {
        error_set(e, rc, "no memory for the KV cache's bookkeeping");
        goto fail;
    }
    uint64_t full = 0; /* bytes of one more page in every layer without a window */
    for (int32_t i = 0; i < m->n_layer; i++) {
        const struct layer *x = &m->layers[i];
        struct layer_shape *s = &p->layers[i];
        const uint64_t size = page_bytes(x, t);
        assert(size % UNIT == 0);
        s->size = size ? size_index(p, size) : -1;
        s->window = x->window;
        s->head_bytes = head_bytes(x, t);
        s->v_offset = ATTN_TILE * kv_row_bytes(t, x->head_dim_k);
        full += x->window > 0 ? 0 : size;
    }
    int64_t table =
        (int64_t)pages_of(m->n_ctx_train) + 1; /* grows beyond it only past the trained context */
    if (full > 0 && (uint64_t)table > bytes / full + 1)
        table = (int64_t)(bytes / full) + 1;
    p->table_pages = table < 16 ? 16 : (int32_t)table;
    if (bytes > 0) {
        void *base;
        rc = ledger_take(l, DOMAIN_HELD, ROW_KV, bytes, &base, e);
        if (rc < 0)
            goto fail;
        p->base = base;
    }
    *out = p;
    return 0;
fail:
    state_pool_close(p);
    return rc;
}

void state_pool_close(struct state_pool *p)
{
    if (!p)
        return;
    assert(p->n_seqs == 0);
    if (p->base)
        ledger_give(p->ledger, DOMAIN_HELD, ROW_KV, p->base, p->bytes);
    free(p->sizes);
    free(p->layers);
    free(p);
}

enum kv_type state_pool_type(const struct state_pool *p)
{
    return p->type;
}

uint64_t state_pool_free_bytes(const struct state_pool *p)
{
    uint64_t sum = p->bytes - p->top;
    for (int32_t i = 0; i < p->n_sizes; i++)
        sum += p->sizes[i].n_free * p->sizes[i].bytes;
    return sum;
}

static struct page *page_at(const struct state_pool *p, uint32_t ref)
{
    assert(ref != NO_PAGE);
    return (struct page *)(void *)(p->base + (uint64_t)ref * UNIT);
}

/* The caller has checked that there is one. */
static uint32_t page_take(struct state_pool *p, int32_t size)
{
    struct page_size *s = &p->sizes[size];
    uint32_t ref = s->free;
    if (ref != NO_PAGE) {
        s->free = page_at(p, ref)->next;
        s->n_free--;
    } else {
        assert(p->bytes - p->top >= s->bytes);
        ref = (uint32_t)(p->top / UNIT);
        p->top += s->bytes;
    }
    page_at(p, ref)->refs = 1;
    p->pages_used++;
    return ref;
}

static void page_drop(struct state_pool *p, int32_t size, uint32_t ref)
{
    struct page *page = page_at(p, ref);
    assert(page->refs > 0);
    if (--page->refs > 0)
        return;
    struct page_size *s = &p->sizes[size];
    page->next = s->free;
    s->free = ref;
    s->n_free++;
    if (--p->pages_used > 0)
        return;
    /* Nothing is in use: forget how the region was cut, so that any mix of sizes fits again. */
    p->top = 0;
    for (int32_t i = 0; i < p->n_sizes; i++) {
        p->sizes[i].free = NO_PAGE;
        p->sizes[i].n_free = 0;
    }
}

/* ---- sequences ---- */

static uint32_t *table_of(const struct seq_state *s, int32_t layer)
{
    return s->table + (size_t)layer * (size_t)s->cap;
}

/* Drops pages [begin, end) of one layer. */
static void pages_drop(struct seq_state *s, int32_t layer, int32_t begin, int32_t end)
{
    for (int32_t i = begin; i < end; i++)
        page_drop(s->pool, s->pool->layers[layer].size, table_of(s, layer)[i]);
}

/* Drops pages from `keep` on in every layer. */
static void pages_cut(struct seq_state *s, int32_t keep)
{
    if (s->end <= keep)
        return;
    for (int32_t i = 0; i < s->pool->n_layer; i++) {
        if (s->pool->layers[i].size < 0)
            continue;
        pages_drop(s, i, s->first[i] > keep ? s->first[i] : keep, s->end);
        s->first[i] = s->first[i] > keep ? keep : s->first[i];
    }
    s->end = keep;
}

int state_open(struct state_pool *p, struct seq_state **out, struct leat_error *e)
{
    *out = NULL;
    struct seq_state *s = calloc(1, sizeof *s);
    if (s) {
        s->cap = p->table_pages;
        s->first = calloc((size_t)p->n_layer, sizeof *s->first);
        s->table = calloc((size_t)p->n_layer * (size_t)s->cap, sizeof *s->table);
    }
    if (!s || !s->first || !s->table) {
        if (s) {
            free(s->first);
            free(s->table);
        }
        free(s);
        return error_set(e, LEAT_ERR_MEMORY, "no memory for a sequence's page tables");
    }
    s->pool = p;
    p->n_seqs++;
    *out = s;
    return 0;
}

void state_close(struct seq_state *s)
{
    if (!s)
        return;
    pages_cut(s, 0);
    s->pool->n_seqs--;
    free(s->first);
    free(s->table);
    free(s);
}

int32_t state_length(const struct seq_state *s)
{
    return s->length;
}

enum kv_type state_type(const struct seq_state *s)
{
    return s->pool->type;
}

/* The first page that tokens from position `length` on need, less the slack. */
static int32_t first_needed(const struct layer_shape *l, int32_t length)
{
    if (l->window <= 0)
        return 0;
    int64_t p = (int64_t)length - l->window + 1 - STATE_SLACK;
    return p > 0 ? (int32_t)(p / ATTN_TILE) : 0;
}

/* Is everything still there that a token at position `length` sees? */
static bool restorable(const struct seq_state *s, int32_t length)
{
    for (int32_t i = 0; i < s->pool->n_layer; i++) {
        const struct layer_shape *l = &s->pool->layers[i];
        if (l->size < 0 || s->first[i] == 0)
            continue;
        if ((int64_t)length - l->window + 1 < (int64_t)s->first[i] * ATTN_TILE)
            return false;
    }
    return true;
}

static int table_grow(struct seq_state *s, int32_t pages, struct leat_error *e)
{
    if (pages <= s->cap)
        return 0;
    const int32_t n_layer = s->pool->n_layer;
    const int64_t cap = (int64_t)s->cap * 2 > pages ? (int64_t)s->cap * 2 : pages;
    uint32_t *table = calloc((size_t)n_layer * (size_t)cap, sizeof *table);
    if (!table)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for a sequence's page tables");
    for (int32_t i = 0; i < n_layer; i++)
        memcpy(table + (size_t)i * (size_t)cap, table_of(s, i), (size_t)s->cap * sizeof *table);
    free(s->table);
    s->table = table;
    s->cap = (int32_t)cap;
    return 0;
}

int state_fork(const struct seq_state *s, int32_t upto, struct seq_state **out,
               struct leat_error *e)
{
    *out = NULL;
    if (upto < 0 || upto > s->length)
        return error_set(e, LEAT_ERR_USAGE, "a fork at position %d of a sequence of %d", (int)upto,
                         (int)s->length);
    if (!restorable(s, upto))
        return error_set(
            e, LEAT_ERR_STATE,
            "a fork at position %d of a sequence of %d: its window layers no longer hold what "
            "lies before; start from an earlier fork or from the beginning",
            (int)upto, (int)s->length);
    struct seq_state *f;
    int rc = state_open(s->pool, &f, e);
    if (rc < 0)
        return rc;
    const int32_t end = pages_of(upto);
    rc = table_grow(f, end, e);
    if (rc < 0) {
        state_close(f);
        return rc;
    }
    for (int32_t i = 0; i < s->pool->n_layer; i++) {
        const struct layer_shape *l = &s->pool->layers[i];
        if (l->size < 0)
            continue;
        int32_t first = first_needed(l, upto);
        f->first[i] = first > s->first[i] ? first : s->first[i];
        for (int32_t j = f->first[i]; j < end; j++) {
            table_of(f, i)[j] = table_of(s, i)[j];
            page_at(s->pool, table_of(f, i)[j])->refs++;
        }
    }
    f->end = end;
    f->length = upto;
    *out = f;
    return 0;
}

int state_truncate(struct seq_state *s, int32_t upto, int32_t *kept)
{
    if (upto < 0)
        return LEAT_ERR_USAGE;
    if (upto < s->length)
        s->length = restorable(s, upto) ? upto : 0;
    pages_cut(s, pages_of(s->length));
    *kept = s->length;
    return 0;
}

void state_unreserve(struct seq_state *s)
{
    pages_cut(s, pages_of(s->length));
}

int state_reserve(struct seq_state *s, int32_t n, struct leat_error *e)
{
    struct state_pool *p = s->pool;
    assert(n >= 0);
    if (n > INT32_MAX - ATTN_TILE - s->length)
        return error_set(e, LEAT_ERR_CONTEXT,
                         "a sequence of %d positions and %d more: too long to count",
                         (int)s->length, (int)n);
    int32_t end = pages_of((int64_t)s->length + n);
    if (end < s->end)
        end = s->end;
    /* The page that the first new position falls into, where it already holds older ones. */
    const int32_t partial = n > 0 && s->length % ATTN_TILE != 0 ? s->length / ATTN_TILE : -1;
    int rc = table_grow(s, end, e);
    if (rc < 0)
        return rc;

    /* What is needed, before anything is taken. */
    uint64_t fresh = 0, wanted = 0;
    for (int32_t c = 0; c < p->n_sizes; c++) {
        uint64_t pages = 0;
        for (int32_t i = 0; i < p->n_layer; i++) {
            if (p->layers[i].size != c)
                continue;
            pages += (uint64_t)(end - s->end);
            if (partial >= 0 && page_at(p, table_of(s, i)[partial])->refs > 1)
                pages++;
        }
        wanted += pages * p->sizes[c].bytes;
        if (pages > p->sizes[c].n_free)
            fresh += (pages - p->sizes[c].n_free) * p->sizes[c].bytes;
    }
    if (fresh > p->bytes - p->top) {
        char need[24], have[24];
        return error_set(
            e, LEAT_ERR_MEMORY,
            "the KV cache is full: %d more positions need %s, %s are free; use a shorter context "
            "or fewer sequences at a time, or allow more memory",
            (int)n, format_bytes(need, sizeof need, wanted),
            format_bytes(have, sizeof have, state_pool_free_bytes(p)));
    }

    for (int32_t i = 0; i < p->n_layer; i++) {
        const int32_t size = p->layers[i].size;
        if (size < 0)
            continue;
        uint32_t *table = table_of(s, i);
        if (partial >= 0 && page_at(p, table[partial])->refs > 1) {
            uint32_t own = page_take(p, size);
            memcpy((uint8_t *)page_at(p, own) + UNIT, (uint8_t *)page_at(p, table[partial]) + UNIT,
                   p->sizes[size].bytes - UNIT);
            page_drop(p, size, table[partial]);
            table[partial] = own;
        }
        for (int32_t j = s->end; j < end; j++)
            table[j] = page_take(p, size);
    }
    s->end = end;
    return 0;
}

void state_page(const struct seq_state *s, int32_t layer, int32_t kv_head, int32_t page, void **k,
                void **v)
{
    const struct layer_shape *l = &s->pool->layers[layer];
    assert(page >= s->first[layer] && page < s->end);
    uint8_t *head = (uint8_t *)page_at(s->pool, table_of(s, layer)[page]) + UNIT +
                    (uint64_t)kv_head * l->head_bytes;
    *k = head;
    *v = head + l->v_offset;
}

void state_commit(struct seq_state *s, int32_t n)
{
    assert(n >= 0 && pages_of((int64_t)s->length + n) <= s->end);
    s->length += n;
    for (int32_t i = 0; i < s->pool->n_layer; i++) {
        const struct layer_shape *l = &s->pool->layers[i];
        if (l->size < 0)
            continue;
        const int32_t first = first_needed(l, s->length);
        if (first > s->first[i]) {
            pages_drop(s, i, s->first[i], first);
            s->first[i] = first;
        }
    }
}
