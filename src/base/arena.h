/* A bump allocator over the ledger: many small objects of one row that live and die together.
 * Thread rule: one thread at a time; the owner frees everything at once with arena_close. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "ledger.h"

struct arena {
    struct ledger *ledger;
    enum ledger_row row;
    struct arena_chunk *chunks; /* newest first */
    size_t used, cap;           /* of the newest chunk */
    size_t total;               /* bytes handed out */
};

/* ledger may be NULL (tests, tools): then plain memory that nobody charges. Obtains nothing yet. */
void arena_init(struct arena *a, struct ledger *ledger, enum ledger_row row);
/* Zeroed memory, align a power of two up to 64; bytes 0 gives a valid pointer. NULL + error when
 * refused. Chunks grow from 16 KiB to 1 MiB; a large request gets a chunk of its own size. */
void *arena_alloc(struct arena *a, size_t bytes, size_t align, struct leat_error *e);
/* n objects of size bytes each, product checked. */
void *arena_array(struct arena *a, uint64_t n, size_t size, size_t align, struct leat_error *e);
char *arena_copy(struct arena *a, const void *bytes, size_t n, struct leat_error *e); /* + NUL */
void arena_close(struct arena *a);

#endif
