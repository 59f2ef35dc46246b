/* What a sequence remembers: pages of ATTN_TILE positions per layer, shared between forks and
 * copied on write. Pages of a sliding-window layer that no later token can see go back to the
 * pool. Written by the decoder only; owned by session/. Thread rule: one thread at a time per
 * pool (the engine's pass lock). */
#ifndef DECODER_STATE_H
#define DECODER_STATE_H

#include "../base/ledger.h"
#include "../model/model.h"

struct state_pool;
struct seq_state;

/* Window layers keep this many positions behind what the next token sees, so that a sequence can
 * be shortened by as many right after a pass (drafts, stop strings) and is exact. */
#define STATE_SLACK ATTN_TILE

/* Bytes of pages that n_seq sequences of context positions each need at most when ubatches are
 * up to width wide (closed formula: full layers context; window layers window + STATE_SLACK +
 * width and one page for alignment, or the context where that is less). UINT64_MAX when beyond
 * counting. Not rounded by the ledger. */
uint64_t state_bytes(const struct model *m, enum kv_type t, int32_t context, int32_t width,
                     int32_t n_seq);

/* The pool charges bytes (ROW_KV) at once; memory is touched as pages are first used. */
int state_pool_open(const struct model *m, enum kv_type t, uint64_t bytes, struct ledger *l,
                    struct state_pool **out, struct leat_error *e);
void state_pool_close(struct state_pool *p);
enum kv_type state_pool_type(const struct state_pool *p);
uint64_t state_pool_free_bytes(const struct state_pool *p);

int state_open(struct state_pool *p, struct seq_state **out, struct leat_error *e); /* empty */
void state_close(struct seq_state *s);                                              /* NULL ok */
int32_t state_length(const struct seq_state *s); /* positions held: 0..length-1 */
enum kv_type state_type(const struct seq_state *s);
/* A new sequence that shares the first upto positions. Fails when a window layer has dropped
 * what upto needs. */
int state_fork(const struct seq_state *s, int32_t upto, struct seq_state **out,
               struct leat_error *e);
/* Forgets positions >= upto; *kept says how many remain (less than upto, possibly 0, where the
 * past cannot be restored). */
int state_truncate(struct seq_state *s, int32_t upto, int32_t *kept);

/* ---- for the decoder ---- */
/* Makes room for positions [length, length + n) in every layer. LEAT_ERR_MEMORY when the pool is
 * empty; nothing changes then. */
int state_reserve(struct seq_state *s, int32_t n, struct leat_error *e);
/* Page of a layer and kv head that holds positions [page * ATTN_TILE, ...): k and v rows
 * kv_row_bytes apart. */
void state_page(const struct seq_state *s, int32_t layer, int32_t kv_head, int32_t page, void **k,
                void **v);
/* Gives back what state_reserve took beyond the length (a pass that failed). */
void state_unreserve(struct seq_state *s);
/* After the pass: length += n and window pages out of sight are given back. */
void state_commit(struct seq_state *s, int32_t n);

#endif
