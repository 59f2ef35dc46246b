/* Resident rows: one region, filled once by the lanes in order of use, ahead of the first pass.
 * Owns the region and its loads; knows no ring and no expert. Thread rule: thread 0. */
#include <assert.h>

#include "weights_room.h"

int resident_open(struct weights *w, uint64_t bytes, struct leat_error *e)
{
    struct resident *r = &w->resident;
    void *mem = NULL;
    int rc;

    r->bytes = layout_resident(w->dense, w->n_dense, bytes);
    if (w->n_dense)
        r->n_chunks = w->dense[w->n_dense - 1].first_chunk + w->dense[w->n_dense - 1].n_chunks;
    if (r->bytes == 0)
        return 0;
    rc = ledger_take(w->ledger, DOMAIN_HELD, ROW_RESIDENT, r->bytes, &mem, e);
    if (rc)
        return rc;
    r->mem = mem;
    r->taken = r->bytes;
    return 0;
}

void resident_close(struct weights *w)
{
    struct resident *r = &w->resident;

    if (r->taken)
        ledger_give(w->ledger, DOMAIN_HELD, ROW_RESIDENT, r->mem, r->taken);
    r->taken = 0;
}

/* Chunk c lies in the window of unit d, whose window starts at an aligned offset of the file. */
static void chunk_request(struct weights *w, const struct dense *d, int32_t chunk)
{
    struct resident *r = &w->resident;
    struct load *l = &r->load[chunk % LOADS_AHEAD];
    const uint64_t window0 = d->part->offset - lane_inner(d->part->offset);
    const uint64_t skip = (uint64_t)(chunk - d->first_chunk) * LAYOUT_CHUNK;
    const uint64_t rows_end = d->part->offset + (uint64_t)d->resident_rows * d->part->row_bytes;
    const uint64_t begin = skip ? window0 + skip : d->part->offset;
    uint64_t end = window0 + skip + LAYOUT_CHUNK;

    if (end > rows_end)
        end = rows_end;
    weights_request(w, &l->req, d->part->file, begin, end - begin, r->mem + d->resident_at + skip,
                    read_tag(READ_LOAD, chunk % LOADS_AHEAD));
    l->state = READ_FLYING;
    lanes_submit(w->lanes, &l->req);
}

bool resident_submit(struct weights *w)
{
    struct resident *r = &w->resident;
    /* Pieces of the stream queue behind these: not too far. */
    const int32_t ahead = w->stream.taken ? LOADS_BESIDE : LOADS_AHEAD;

    if (r->next == r->n_chunks || r->next - r->prefix >= ahead)
        return false;
    while (r->next >= w->dense[r->next_unit].first_chunk + w->dense[r->next_unit].n_chunks)
        r->next_unit++;
    chunk_request(w, &w->dense[r->next_unit], r->next);
    r->next++;
    return true;
}

void resident_arrived(struct weights *w, int32_t slot, struct lane_request *req)
{
    struct resident *r = &w->resident;

    r->load[slot].state = req->code ? READ_FAILED : READ_READY;
    if (!req->code)
        w->stats.resident_bytes_read += req->bytes;
    while (r->prefix < r->next && r->load[r->prefix % LOADS_AHEAD].state == READ_READY) {
        r->load[r->prefix % LOADS_AHEAD].state = READ_FREE;
        r->prefix++;
    }
}

int32_t resident_rows_ready(const struct weights *w, const struct dense *d)
{
    const struct resident *r = &w->resident;
    const int32_t chunks = r->prefix - d->first_chunk;
    uint64_t bytes;

    if (chunks >= d->n_chunks)
        return d->resident_rows;
    if (chunks <= 0)
        return 0;
    bytes = (uint64_t)chunks * LAYOUT_CHUNK - lane_inner(d->part->offset);
    return (int32_t)(bytes / d->part->row_bytes);
}

int resident_failure(const struct weights *w, struct leat_error *e)
{
    const struct resident *r = &w->resident;
    const struct load *l = &r->load[r->prefix % LOADS_AHEAD];

    if (r->prefix == r->next || l->state != READ_FAILED)
        return 0;
    return lane_error(&l->req, e);
}

void resident_retry(struct weights *w)
{
    struct resident *r = &w->resident;

    for (int32_t c = r->prefix; c < r->next; c++) {
        struct load *l = &r->load[c % LOADS_AHEAD];
        if (l->state == READ_FAILED) {
            l->state = READ_FLYING;
            lanes_submit(w->lanes, &l->req);
        }
    }
}

const void *resident_row(const struct weights *w, const struct dense *d, int32_t row)
{
    assert(row < d->resident_rows);
    return w->resident.mem + d->resident_at + lane_inner(d->part->offset) +
           (uint64_t)row * d->part->row_bytes;
}
