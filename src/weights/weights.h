/* Weights: bytes for the decoder, from memory or from the drive, within the ledger. The decoder
 * cannot tell which.
 *
 * Objects: struct weights (one per engine: resident rows, stream ring, expert cache, vectors) and
 * struct weights_pass (one walk through all layers; one at a time). Thread rule: thread 0 of the
 * compute team alone calls these, weights_pass_cancel apart (any thread, signal handlers too).
 *
 * Resident: small matrices whole, every large matrix the same share of its rows (the first rows).
 * Stream: the other rows as pieces in schedule order, round and round; reads run ahead by bytes
 * through the ring into the next pass. Experts: leased slots. A resident byte is read once, in use
 * order, ahead of the first pass that needs it. */
#ifndef WEIGHTS_WEIGHTS_H
#define WEIGHTS_WEIGHTS_H

#include "../base/ledger.h"
#include "../io/lane.h"
#include "../model/model.h"

#define WEIGHTS_PIECE (UINT64_C(2) << 20) /* target bytes of a piece: whole rows, at least one */

struct weights_config {
    const struct model *model;
    struct ledger *ledger;
    int32_t lanes; /* 1..64 */
    enum lane_choice lane_choice;
    enum file_direct direct;
    uint64_t resident_bytes; /* ROW_RESIDENT may take this much; UINT64_MAX = everything dense */
    /* Of the ring, when anything streams; at least weights_need.stream_min. */
    uint64_t stream_bytes;
    /* ROW_EXPERTS; at least experts_min when there are experts; UINT64_MAX = all. */
    uint64_t expert_cache_bytes;
    const char *eviction; /* policy of the expert cache (evict.h); NULL = the default */
};

/* What a model needs, before anything is built (pure; rounded as the ledger would charge). */
struct weights_need {
    uint64_t vectors;      /* ROW_VECTORS: the vectors as f32, and the tables of this room */
    uint64_t resident_min; /* smallest legal resident_bytes */
    uint64_t resident_all; /* every dense byte resident: no stream */
    uint64_t stream_min;   /* two pieces with their windows; 0 when nothing would stream */
    uint64_t stream_good;  /* a ring that hides reads well */
    uint64_t experts_min;  /* working slots with no cache at all */
    uint64_t experts_all;
    uint64_t rows;  /* ROW_ROWS: read buffers; they do not grow with width */
    uint64_t lanes; /* ROW_LANES */
};
int weights_need(const struct model *m, int32_t lanes, int32_t width, struct weights_need *out,
                 struct leat_error *e);

struct weights;
int weights_open(const struct weights_config *c, struct weights **out, struct leat_error *e);
void weights_close(struct weights *w);

/* Goes on with loading ahead of the first pass: notes what arrived, asks for more, waits for one
 * read. False when all was asked for. A failed read is left to the pass that needs it. */
bool weights_load(struct weights *w);

const float *weights_vector(const struct weights *w,
                            vec_id v); /* NULL for -1; lives as long as w */

struct weights_view {
    const void *data; /* row0's bytes */
    uint64_t row_bytes;
    int32_t row0, rows; /* rows [row0, row0 + rows) of the unit */
};

struct pass_need {
    int32_t width; /* tokens of the ubatch */
    bool head;     /* logits are wanted: the head's rows are needed */
};

struct weights_pass;
int weights_pass_begin(struct weights *w, const struct pass_need *need, struct weights_pass **out,
                       struct leat_error *e);
/* The next rows of a dense unit: 1 rows, 0 all were given, negative error or cancelled. Units must
 * be asked in schedule order, each until 0. Resident rows come first. A view lives until the next
 * call on the pass. */
int weights_next(struct weights_pass *p, unit_id u, struct weights_view *v, struct leat_error *e);
/* A unit that is wholly in memory, at once: 1 all its rows, in a view that lives as long as the
 * pass (its turn in the schedule is over then); 0 it streams, or has not arrived yet, and nothing
 * happened: weights_next gives it. Never waits; negative error. */
int weights_whole(struct weights_pass *p, unit_id u, struct weights_view *v, struct leat_error *e);
/* Gathers rows of a table as stored bytes: dst[i] gets row ids[i], row_bytes apart. From memory
 * where resident, else read. */
int weights_rows(struct weights_pass *p, unit_id table, const int32_t *ids, int32_t n, void *dst,
                 struct leat_error *e);

struct expert_view {
    int32_t expert;
    const struct unit *unit;      /* formats and shapes */
    const void *data[UNIT_PARTS]; /* row 0 of each part; rows lie part.row_bytes apart */
    void *lease;
};
/* ids: distinct, ascending. ordered = false: hits first, then misses as they arrive. ordered =
 * true: ascending. */
int experts_begin(struct weights_pass *p, int32_t layer, const uint16_t *ids, int32_t n,
                  bool ordered, struct leat_error *e);
/* What each token of the pass chose in the layer of the experts_begin that comes next: ids token by
 * token, per_token each, alive until then. For the eviction policy; may be left out. */
void experts_chosen(struct weights_pass *p, const int32_t *ids, int32_t tokens, int32_t per_token);
/* 1 an expert, leased until experts_done; 0 all were given; negative error. At most one lease at a
 * time is promised. */
int experts_next(struct weights_pass *p, struct expert_view *v, struct leat_error *e);
/* hit[id] of each id of the last experts_begin: 1 = it was in the cache when that began, else 0.
 * Other entries stay as they are; hit reaches to the highest id. */
void experts_hits(const struct weights_pass *p, uint8_t *hit);
/* One more that is there already, beside those leased: 1 and an expert, 0 when none can be had
 * without waiting. Never fails, never waits. */
int experts_more(struct weights_pass *p, struct expert_view *v);
void experts_done(struct weights_pass *p, struct expert_view *v);
/* Advice: these may be wanted soon. May do nothing. */
void weights_advise(struct weights_pass *p, int32_t layer, const uint16_t *ids, int32_t n);

int weights_pass_end(struct weights_pass *p); /* also after an error: drains what must be drained */
void weights_cancel(
    struct weights *w); /* any thread: the running pass fails with LEAT_ERR_CANCELLED */
void weights_uncancel(struct weights *w);

struct weights_stats {
    struct lane_stats lanes;
    uint64_t passes;
    uint64_t resident_bytes, stream_ring_bytes, expert_slots_bytes; /* now */
    uint64_t stream_bytes_read, resident_bytes_read, expert_bytes_read, row_bytes_read;
    uint64_t expert_hits, expert_misses, expert_hit_bytes, expert_miss_bytes, expert_evictions;
    uint64_t waits; /* times the decoder had to wait for a read */
    double wait_s;  /* and how long */
    int32_t direct_files, buffered_files;
    const char *direct_note; /* why a file is not read directly; NULL = all as asked */
    const char *lane_backend, *lane_note; /* lanes_backend(), lanes_note() */
};
const char *weights_eviction(const struct weights *w); /* name of the policy */
void weights_get_stats(const struct weights *w, struct weights_stats *out);

#endif
