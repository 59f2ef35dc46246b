/* The ledger: the account of every byte the process holds, and the only source of large memory.
 *
 * Memory is charged to (domain, row) before it is obtained; a charge that would take the domain
 * over its ceiling fails with LEAT_ERR_MEMORY and needed_bytes = what the ceiling would have to
 * be, and obtains nothing. Memory of 2 MiB and more is 2 MiB aligned, a multiple of 2 MiB, and
 * advised as huge pages; smaller memory is whole 4 KiB pages. All of it is zeroed. Thread rule:
 * every call from any thread (a lock inside; never called in the hot path). */
#ifndef BASE_LEDGER_H
#define BASE_LEDGER_H

#include <stdint.h>

#include "error.h"

enum ledger_domain {
    DOMAIN_HELD,   /* host memory held by this process */
    DOMAIN_LOCKED, /* the part of it locked against reclaim */
    DOMAIN_COUNT,
};

enum ledger_row {
    ROW_PROCESS,    /* program, libraries, stacks, small allocations */
    ROW_PAGE_CACHE, /* page cache caused and not yet dropped */
    ROW_MODEL,      /* model directory: files, units, hyperparameters */
    ROW_TOKENIZER,
    ROW_VECTORS,   /* norms, biases and other vectors, converted to f32 */
    ROW_KV,        /* pages of attention state */
    ROW_RECURRENT, /* recurrent state, conv tails, snapshots */
    ROW_COMPUTE,   /* activations and scratch of a pass */
    ROW_LOGITS,
    ROW_RESIDENT, /* dense rows and whole units loaded once */
    ROW_STREAM,   /* the byte ring */
    ROW_EXPERTS,  /* expert cache */
    ROW_ROWS,     /* rows gathered from tables, and their reads */
    ROW_LANES,
    ROW_SERVER,
    ROW_COUNT,
};

#define LEDGER_HUGE (UINT64_C(2) << 20)
#define LEDGER_PAGE UINT64_C(4096)

struct ledger;

/* ceiling_bytes: the hard ceiling of DOMAIN_HELD; UINT64_MAX = none. */
int ledger_open(uint64_t ceiling_bytes, struct ledger **out, struct leat_error *e);
void ledger_close(struct ledger *l); /* NULL ok; asserts in debug that all was given back */

/* What ledger_take will really charge for this many bytes (rounded to pages or huge pages). */
uint64_t ledger_rounded(uint64_t bytes);

int ledger_take(struct ledger *l, enum ledger_domain d, enum ledger_row r, uint64_t bytes,
                void **out, struct leat_error *e);
/* p and bytes as taken; NULL p with bytes 0 is a no-op. The memory goes back to the system. */
void ledger_give(struct ledger *l, enum ledger_domain d, enum ledger_row r, void *p,
                 uint64_t bytes);

/* Account without memory (process row, page cache, memory a library obtained). */
int ledger_charge(struct ledger *l, enum ledger_domain d, enum ledger_row r, uint64_t bytes,
                  struct leat_error *e);
void ledger_refund(struct ledger *l, enum ledger_domain d, enum ledger_row r, uint64_t bytes);

uint64_t ledger_held(const struct ledger *l, enum ledger_domain d, enum ledger_row r); /* now */
uint64_t ledger_peak(const struct ledger *l, enum ledger_domain d, enum ledger_row r);
uint64_t ledger_total(const struct ledger *l, enum ledger_domain d);
uint64_t ledger_ceiling(const struct ledger *l, enum ledger_domain d);
/* Raising is always granted; lowering under what is held fails with needed_bytes and changes
 * nothing. */
int ledger_set_ceiling(struct ledger *l, enum ledger_domain d, uint64_t bytes,
                       struct leat_error *e);
/* Huge pages: bytes that were asked for as huge pages, and how many really came (from smaps;
 * slow). */
void ledger_huge_pages(const struct ledger *l, uint64_t *asked, uint64_t *came);

const char *ledger_row_name(enum ledger_row r); /* "KV cache", for people */
const char *ledger_row_key(enum ledger_row r);  /* "kv_cache", for JSON */

#endif
