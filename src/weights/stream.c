/* The stream: the rows that are not resident, as pieces, through one byte ring in schedule order,
 * from pass to pass. Reads run ahead as far as the ring allows. Owns the ring; knows no resident
 * row but their number. Thread rule: thread 0. */
#include <assert.h>

#include "../base/checked.h"
#include "weights_room.h"

/* Below this many of the largest pieces, pieces of almost equal size would waste the ring's end on
 * every turn: then each takes the same room. */
#define SMALL_RING 8

static uint64_t largest_piece(const struct dense *d, int32_t n)
{
    uint64_t most = 0;

    for (int32_t i = 0; i < n; i++) {
        const uint64_t b = dense_piece_bound(&d[i]);
        if (b > most)
            most = b;
    }
    return most;
}

uint64_t stream_min(const struct dense *d, int32_t n)
{
    return n ? ledger_rounded(2 * largest_piece(d, n)) : 0;
}

int stream_open(struct weights *w, uint64_t bytes, struct leat_error *e)
{
    struct stream *s = &w->stream;
    const uint64_t most = largest_piece(w->dense, w->n_dense),
                   least = stream_min(w->dense, w->n_dense);
    uint64_t all = 0, room;
    void *mem = NULL;
    int rc;

    for (int32_t i = 0; i < w->n_dense; i++) {
        const struct dense *d = &w->dense[i];
        if (d->resident_rows < d->part->rows)
            all +=
                (uint64_t)((d->part->rows - d->resident_rows + d->piece_rows - 1) / d->piece_rows) *
                most;
    }
    s->pass = 1;
    if (all == 0)
        return 0;
    if (bytes < least) {
        char need[24], got[24];
        error_set(e, LEAT_ERR_MEMORY,
                  "the stream needs room for two pieces: %s, but it was given %s (raise the memory "
                  "budget)",
                  format_bytes(need, sizeof need, least), format_bytes(got, sizeof got, bytes));
        return LEAT_ERR_MEMORY;
    }
    /* More than a whole pass is of no use. */
    all = ledger_rounded(all > 2 * most ? all : 2 * most);
    room = layout_granted(bytes < all ? bytes : all);
    rc = ledger_take(w->ledger, DOMAIN_HELD, ROW_STREAM, room, &mem, e);
    if (rc)
        return rc;
    s->mem = mem;
    s->taken = room;
    s->room = room;
    if (room / most < SMALL_RING) {
        s->slot_bytes = most;
        s->room = room / most * most;
    }
    return 0;
}

void stream_close(struct weights *w)
{
    struct stream *s = &w->stream;

    if (s->taken)
        ledger_give(w->ledger, DOMAIN_HELD, ROW_STREAM, s->mem, s->taken);
    s->taken = 0;
}

/* Place for `size` bytes behind the newest piece; false = not now. */
static bool find_place(struct stream *s, uint64_t size, uint64_t *at)
{
    const struct piece *first = &s->piece[s->head];

    if (s->count == RING_PIECES)
        return false;
    if (s->count == 0) {
        *at = 0;
        return size <= s->room;
    }
    if (s->tail > first->at) { /* used: [first, tail) */
        if (s->tail + size <= s->room) {
            *at = s->tail;
            return true;
        }
        *at = 0;
        return size <= first->at;
    }
    *at = s->tail; /* used: all but [tail, first) */
    return s->tail + size <= first->at;
}

/* Moves to the next rows that must be read. False when they are not known yet: whether the next
 * pass wants the head is said when it begins. */
static bool find_rows(struct weights *w)
{
    struct stream *s = &w->stream;

    for (;;) {
        const struct dense *d;

        if (s->index == w->n_dense) {
            s->index = s->row = 0;
            s->pass++;
        }
        if (s->pass > w->pass_no + 1)
            return false;
        d = &w->dense[s->index];
        if (s->row < d->resident_rows)
            s->row = d->resident_rows;
        if (d->head && s->row < d->part->rows) {
            if (s->pass > w->pass_no)
                return false;
            if (!w->pass.need.head)
                s->row = d->part->rows;
        }
        if (s->row < d->part->rows)
            return true;
        s->index++;
        s->row = 0;
    }
}

bool stream_submit(struct weights *w)
{
    struct stream *s = &w->stream;
    const struct dense *d;
    struct piece *p;
    uint64_t offset, bytes, room, at;
    int32_t rows, slot;

    if (s->room == 0 || s->count == RING_PIECES || !find_rows(w))
        return false;
    d = &w->dense[s->index];
    rows = d->part->rows - s->row < d->piece_rows ? d->part->rows - s->row : d->piece_rows;
    offset = d->part->offset + (uint64_t)s->row * d->part->row_bytes;
    bytes = (uint64_t)rows * d->part->row_bytes;
    room = s->slot_bytes ? s->slot_bytes : lane_window(offset, bytes);
    if (!find_place(s, room, &at))
        return false;
    slot = (s->head + s->count) % RING_PIECES;
    p = &s->piece[slot];
    p->state = READ_FLYING;
    p->index = s->index;
    p->row0 = s->row;
    p->rows = rows;
    p->pass = s->pass;
    p->at = at;
    p->room = room;
    s->count++;
    s->tail = at + room;
    s->row += rows;
    weights_request(w, &p->req, d->part->file, offset, bytes, s->mem + at,
                    read_tag(READ_PIECE, slot));
    lanes_submit(w->lanes, &p->req);
    return true;
}

void stream_arrived(struct weights *w, int32_t slot, struct lane_request *r)
{
    w->stream.piece[slot].state = r->code ? READ_FAILED : READ_READY;
    if (!r->code)
        w->stats.stream_bytes_read += r->bytes;
}

struct piece *stream_front(struct weights *w, int32_t index, int32_t row)
{
    struct stream *s = &w->stream;
    struct piece *p = &s->piece[s->head];

    if (s->count == 0 || p->pass != w->pass_no || p->index != index || p->row0 != row)
        return NULL;
    return p;
}

void stream_pop(struct weights *w)
{
    struct stream *s = &w->stream;

    assert(s->count > 0 && s->piece[s->head].state != READ_FLYING);
    s->piece[s->head].state = READ_FREE;
    s->head = (s->head + 1) % RING_PIECES;
    s->count--;
}

bool stream_ended(const struct weights *w)
{
    const struct stream *s = &w->stream;

    if (s->room == 0)
        return true;
    if (s->count)
        return s->piece[s->head].pass > w->pass_no;
    return s->pass > w->pass_no || s->index == w->n_dense;
}

void stream_reset(struct weights *w)
{
    struct stream *s = &w->stream;

    /* Newest first: the lanes would start the oldest next. */
    for (int32_t i = s->count - 1; i >= 0; i--) {
        struct piece *p = &s->piece[(s->head + i) % RING_PIECES];
        if (p->state == READ_FLYING && lanes_take_back(w->lanes, &p->req))
            p->state = READ_FREE;
    }
    for (int32_t i = 0; i < s->count; i++) {
        struct piece *p = &s->piece[(s->head + i) % RING_PIECES];
        while (p->state == READ_FLYING)
            weights_reap(w, true);
        p->state = READ_FREE;
    }
    s->head = s->count = 0;
    s->tail = 0;
    s->index = s->row = 0;
    s->pass = w->pass_no + 1;
}
