/* The weights room inside: struct weights and what its files give each other. Private to weights/.
 * Thread rule: thread 0 of the compute team, the cancel flag apart. */
#ifndef WEIGHTS_WEIGHTS_ROOM_H
#define WEIGHTS_WEIGHTS_ROOM_H

#include <stdatomic.h>

#include "evict.h"
#include "layout.h"

#define LOADS_AHEAD  512 /* loads of resident bytes submitted beyond the first that is missing */
#define LOADS_BESIDE 128 /* the same while there is a stream */
#define RING_PIECES  512 /* pieces in the ring at most */
#define ROW_BUFFERS  64
#define EXPERT_LOADS 64 /* experts being read at once */
#define REAP_AT_ONCE 32

/* Who asked for a read: request.user = kind << 24 | index. */
enum read_kind { READ_LOAD, READ_PIECE, READ_ROW, READ_EXPERT };
static inline void *read_tag(enum read_kind kind, int32_t index)
{
    return (void *)(((uintptr_t)kind << 24) | (uintptr_t)(uint32_t)index);
}

enum read_state { READ_FREE, READ_FLYING, READ_READY, READ_FAILED };

/* resident.c: one load in flight or waiting for those before it. */
struct load {
    struct lane_request req;
    enum read_state state;
};

struct resident {
    uint8_t *mem;
    uint64_t taken, bytes;          /* of the ledger; used */
    int32_t n_chunks, next, prefix; /* chunks: in all, next to submit, arrived without a gap */
    int32_t next_unit;              /* schedule index that `next` belongs to */
    struct load load[LOADS_AHEAD];  /* chunk c at c % LOADS_AHEAD */
};

/* stream.c: the byte ring. Pieces leave in the order they were asked for. */
struct piece {
    struct lane_request req;
    enum read_state state;
    int32_t index, row0, rows; /* schedule index and rows */
    uint64_t pass;             /* that it is for */
    uint64_t at, room;         /* place in the ring */
};

struct stream {
    uint8_t *mem;
    uint64_t taken, room, tail; /* of the ledger; usable; where the next piece goes */
    uint64_t slot_bytes;        /* nonzero: the ring is small, every piece takes this much */
    int32_t head, count;        /* of piece[], a ring too */
    int32_t index, row;         /* next rows to ask for */
    uint64_t pass;              /* that they are for */
    struct piece piece[RING_PIECES];
};

/* rows.c */
struct rows {
    uint8_t *mem;
    uint64_t taken;
    struct row_layout layout;
    struct lane_request req[ROW_BUFFERS];
    int32_t target[ROW_BUFFERS]; /* index in dst that the buffer is read for */
    int32_t flying;
    bool failed;
    struct lane_request failure;
};

struct expert_cache;

struct weights_pass {
    struct weights *w;
    struct pass_need need;
    bool running, broken; /* broken: it failed or was cancelled */
    int32_t index, row;   /* schedule index asked for now, rows of it given */
    bool viewing;         /* the last view lies in the ring's first piece */
};

struct weights {
    const struct model *m;
    struct ledger *ledger;
    struct lanes *lanes;
    uint64_t lanes_taken, tables_taken;
    const struct evict_policy *policy;
    int32_t n_dense;
    struct dense *dense;     /* by schedule index */
    int32_t *schedule_index; /* by unit; -1 = not in the schedule */
    float **vector;          /* by vec_id */
    struct resident resident;
    struct stream stream;
    struct rows rows;
    struct expert_cache *experts; /* NULL when there are none */
    struct weights_pass pass;
    uint64_t pass_no; /* of the running or last pass; 0 before the first */
    atomic_bool cancel;
    struct weights_stats stats;
};

/* Memory for tables: run once with base NULL to learn the size, once more to lay out. */
struct carver {
    uint8_t *base;
    uint64_t used;
};
void *carve(struct carver *c, uint64_t n, uint64_t size);

/* weights.c */
void weights_reap(struct weights *w, bool wait);
/* Waits for at least one read (or a cancellation) and accounts for the time. The first wait of a
 * call counts: *waited. */
void weights_wait(struct weights *w, bool *waited);
/* Submits what may be read ahead by now, in order of use. */
void weights_pump(struct weights *w);
int weights_check_cancel(struct weights *w, struct leat_error *e);
/* Fills a request for the wanted bytes of a model file. */
void weights_request(struct weights *w, struct lane_request *r, int32_t file, uint64_t offset,
                     uint64_t bytes, void *dst, void *tag);

/* resident.c */
int resident_open(struct weights *w, uint64_t bytes, struct leat_error *e);
void resident_close(struct weights *w);
bool resident_submit(struct weights *w); /* the next load; false = none may be submitted now */
void resident_arrived(struct weights *w, int32_t slot, struct lane_request *r);
int32_t resident_rows_ready(const struct weights *w, const struct dense *d);
/* The failure of the load that the missing rows of d wait for, else 0. */
int resident_failure(const struct weights *w, struct leat_error *e);
void resident_retry(struct weights *w); /* failed loads are read again */
const void *resident_row(const struct weights *w, const struct dense *d, int32_t row);

/* stream.c */
int stream_open(struct weights *w, uint64_t bytes, struct leat_error *e);
void stream_close(struct weights *w);
bool stream_submit(struct weights *w);
void stream_arrived(struct weights *w, int32_t slot, struct lane_request *r);
/* The first piece when it is that of (index, row) in this pass, else NULL. */
struct piece *stream_front(struct weights *w, int32_t index, int32_t row);
void stream_pop(struct weights *w);
bool stream_ended(const struct weights *w); /* nothing of the running pass is left in it */
void stream_reset(struct weights *w);       /* drains, and starts again with the next pass */
uint64_t stream_min(const struct dense *d, int32_t n);

/* rows.c */
int rows_open(struct weights *w, int32_t lanes, struct leat_error *e);
void rows_close(struct weights *w);
void rows_arrived(struct weights *w, int32_t slot, struct lane_request *r);

/* vectors.c: floats for all vectors from the carver, and their bytes from the files. */
float **vectors_carve(const struct model *m, struct carver *c);
int vectors_read(struct weights *w, struct leat_error *e);

/* expert_cache.c */
struct expert_cache *experts_carve(const struct model *m, const struct expert_layout *l,
                                   struct carver *c);
int experts_open(struct weights *w, uint64_t bytes, struct leat_error *e);
void experts_close(struct weights *w);
void experts_arrived(struct weights *w, int32_t index, struct lane_request *r);
void experts_abandon(struct weights *w, bool drain); /* ends the call in progress */

#endif
