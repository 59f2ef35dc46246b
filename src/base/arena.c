/* A bump allocator: chunks from the ledger, handed out piece by piece, freed together.
 * Owns its chunks; refuses to know what lies in them. One thread at a time. */
#include "arena.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"

#define CHUNK_MIN  (UINT64_C(16) << 10)
#define CHUNK_MAX  (UINT64_C(1) << 20)
#define CHUNK_HEAD 64 /* keeps the first object on a cache line of its own */

struct arena_chunk {
    struct arena_chunk *next;
    uint64_t bytes; /* as taken, this head included */
    void *block;    /* without a ledger: what calloc gave, else NULL */
};

_Static_assert(sizeof(struct arena_chunk) <= CHUNK_HEAD, "the head must fit");

void arena_init(struct arena *a, struct ledger *ledger, enum ledger_row row)
{
    *a = (struct arena){.ledger = ledger, .row = row};
}

static struct arena_chunk *chunk_open(struct arena *a, uint64_t bytes, struct leat_error *e)
{
    void *p = NULL, *block = NULL;
    if (a->ledger) {
        if (ledger_take(a->ledger, DOMAIN_HELD, a->row, bytes, &p, e) < 0)
            return NULL;
    } else {
        block = calloc(1, (size_t)bytes + CHUNK_HEAD);
        if (!block) {
            error_set(e, LEAT_ERR_MEMORY, "the system refused %" PRIu64 " bytes", bytes);
            return NULL;
        }
        p = (void *)align_up((uintptr_t)block, CHUNK_HEAD);
    }
    struct arena_chunk *c = p;
    c->bytes = bytes;
    c->block = block;
    return c;
}

/* The next ordinary chunk is as large as all handed out so far, within its bounds: few chunks for a
 * large arena, little waste in a small one. */
static uint64_t chunk_next_bytes(const struct arena *a)
{
    uint64_t bytes = CHUNK_MIN;
    while (bytes < CHUNK_MAX && bytes < a->total)
        bytes *= 2;
    return bytes;
}

void *arena_alloc(struct arena *a, size_t bytes, size_t align, struct leat_error *e)
{
    assert(align > 0 && align <= CHUNK_HEAD && (align & (align - 1)) == 0);
    uint64_t at, end;
    if (a->chunks && checked_align(a->used, align, &at) && checked_add(at, bytes, &end) &&
        end <= a->cap) {
        a->used = (size_t)end;
        a->total += bytes;
        return (char *)a->chunks + at;
    }
    uint64_t whole, rounded;
    if (!checked_add(bytes, CHUNK_HEAD, &whole) || !checked_align(whole, LEDGER_PAGE, &rounded) ||
        rounded > SIZE_MAX / 2) {
        error_set(e, LEAT_ERR_MEMORY, "%zu bytes are more than a machine can hold", bytes);
        return NULL;
    }
    uint64_t ordinary = chunk_next_bytes(a);
    bool alone = whole > ordinary;
    struct arena_chunk *c = chunk_open(a, alone ? ledger_rounded(rounded) : ordinary, e);
    if (!c)
        return NULL;
    if (alone && a->chunks) { /* behind the newest, whose rest stays in use */
        c->next = a->chunks->next;
        a->chunks->next = c;
    } else {
        c->next = a->chunks;
        a->chunks = c;
        a->cap = (size_t)c->bytes;
        a->used = (size_t)whole;
    }
    a->total += bytes;
    return (char *)c + CHUNK_HEAD;
}

void *arena_array(struct arena *a, uint64_t n, size_t size, size_t align, struct leat_error *e)
{
    uint64_t bytes;
    if (!checked_mul(n, size, &bytes) || bytes > SIZE_MAX / 2) {
        error_set(e, LEAT_ERR_MEMORY,
                  "%" PRIu64 " objects of %zu bytes are more than a machine can hold", n, size);
        return NULL;
    }
    return arena_alloc(a, (size_t)bytes, align, e);
}

char *arena_copy(struct arena *a, const void *bytes, size_t n, struct leat_error *e)
{
    char *p = n < SIZE_MAX ? arena_alloc(a, n + 1, 1, e) : NULL;
    if (p && n > 0)
        memcpy(p, bytes, n);
    return p; /* the NUL is there: the memory is zeroed */
}

void arena_close(struct arena *a)
{
    struct arena_chunk *c = a->chunks;
    while (c) {
        struct arena_chunk *next = c->next;
        if (a->ledger)
            ledger_give(a->ledger, DOMAIN_HELD, a->row, c, c->bytes);
        else
            free(c->block);
        c = next;
    }
    *a = (struct arena){.ledger = a->ledger, .row = a->row};
}
