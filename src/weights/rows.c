/* Rows of tables on demand: from resident memory where they are, else one read each through a few
 * buffers. Owns the buffers. Thread rule: thread 0. */
#include <assert.h>
#include <string.h>

#include "weights_room.h"

int rows_open(struct weights *w, int32_t lanes, struct leat_error *e)
{
    struct rows *r = &w->rows;
    void *mem = NULL;
    uint64_t bytes;
    int rc;

    row_layout(w->m, lanes, &r->layout);
    assert(r->layout.n <= ROW_BUFFERS);
    bytes = (uint64_t)r->layout.n * r->layout.buffer_bytes;
    rc = ledger_take(w->ledger, DOMAIN_HELD, ROW_ROWS, bytes, &mem, e);
    if (rc)
        return rc;
    r->mem = mem;
    r->taken = bytes;
    return 0;
}

void rows_close(struct weights *w)
{
    if (w->rows.taken)
        ledger_give(w->ledger, DOMAIN_HELD, ROW_ROWS, w->rows.mem, w->rows.taken);
    w->rows.taken = 0;
}

void rows_arrived(struct weights *w, int32_t slot, struct lane_request *r)
{
    struct rows *x = &w->rows;

    (void)slot;
    x->flying--;
    if (r->code && !x->failed) {
        x->failed = true;
        x->failure = *r;
    }
    if (!r->code)
        w->stats.row_bytes_read += r->bytes;
}

/* The row when its bytes are in memory by now. */
static const void *row_in_memory(const struct weights *w, unit_id table, int32_t row)
{
    const int32_t i = w->schedule_index[table];

    if (i < 0 || row >= resident_rows_ready(w, &w->dense[i]))
        return NULL;
    return resident_row(w, &w->dense[i], row);
}

static int32_t seen_before(const int32_t *ids, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == ids[n])
            return i;
    return -1;
}

/* Waits for the reads in flight; on cancellation the queued ones are taken back first. */
static int finish_batch(struct weights *w, int32_t n, bool *waited, struct leat_error *e)
{
    struct rows *x = &w->rows;
    int rc = 0;

    while (x->flying) {
        if (!rc) {
            rc = weights_check_cancel(w, e);
            for (int32_t i = 0; rc && i < n; i++)
                if (lanes_take_back(w->lanes, &x->req[i]))
                    x->flying--;
        }
        if (x->flying)
            weights_wait(w, waited);
    }
    if (!rc && x->failed) {
        w->pass.broken = true;
        rc = lane_error(&x->failure, e);
    }
    return rc;
}

int weights_rows(struct weights_pass *p, unit_id table, const int32_t *ids, int32_t n, void *dst,
                 struct leat_error *e)
{
    struct weights *w = p->w;
    struct rows *x = &w->rows;
    const struct part *part = &w->m->units[table].part[0];
    const uint64_t row_bytes = part->row_bytes;
    bool waited = false;
    int rc = weights_check_cancel(w, e);

    assert(p->running && x->flying == 0);
    if (rc)
        return rc;
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= part->rows)
            return error_set(e, LEAT_ERR_INTERNAL, "row %d is not in a table of %d rows",
                             (int)ids[i], (int)part->rows);
    if (lane_window(FILE_ALIGN - 1, row_bytes) > x->layout.buffer_bytes)
        return error_set(e, LEAT_ERR_INTERNAL, "unit %d is no table", (int)table);
    weights_reap(w, false);
    x->failed = false;
    for (int32_t i = 0; i < n;) {
        int32_t batch = 0;

        for (; i < n && batch < x->layout.n; i++) {
            const void *row;
            if (seen_before(ids, i) >= 0)
                continue; /* copied below */
            row = row_in_memory(w, table, ids[i]);
            if (row) {
                memcpy((char *)dst + (uint64_t)i * row_bytes, row, row_bytes);
                continue;
            }
            weights_request(w, &x->req[batch], part->file,
                            part->offset + (uint64_t)ids[i] * row_bytes, row_bytes,
                            x->mem + (uint64_t)batch * x->layout.buffer_bytes,
                            read_tag(READ_ROW, batch));
            x->req[batch].urgent = true;
            x->target[batch] = i;
            x->flying++;
            if (lanes_read_cached(w->lanes, &x->req[batch]))
                rows_arrived(w, batch, &x->req[batch]);
            else
                lanes_submit(w->lanes, &x->req[batch]);
            batch++;
        }
        rc = finish_batch(w, batch, &waited, e);
        if (rc)
            return rc;
        for (int32_t k = 0; k < batch; k++)
            memcpy((char *)dst + (uint64_t)x->target[k] * row_bytes,
                   (const char *)x->req[k].dst + lane_inner(x->req[k].offset), row_bytes);
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t first = seen_before(ids, i);
        if (first >= 0)
            memcpy((char *)dst + (uint64_t)i * row_bytes, (char *)dst + (uint64_t)first * row_bytes,
                   row_bytes);
    }
    return 0;
}
