/* The arithmetic of dense residency and of row buffers: windows, pieces, and which rows stay
 * resident. Pure; knows no ledger, no lane. Any thread. */
#include "layout.h"

#include <assert.h>

#include "../base/checked.h"

#define SHARE_ONE (UINT64_C(1) << 30) /* shares of rows are fixed-point fractions of this */

uint64_t layout_granted(uint64_t bytes)
{
    return align_down(bytes, bytes >= LEDGER_HUGE ? LEDGER_HUGE : LEDGER_PAGE);
}

uint64_t dense_window(const struct dense *d, int32_t rows)
{
    if (rows == 0)
        return 0;
    return lane_window(d->part->offset, (uint64_t)rows * d->part->row_bytes);
}

void dense_init(struct dense *d, const struct model *m, int32_t schedule_index)
{
    const unit_id u = m->schedule[schedule_index];

    *d = (struct dense){.part = &m->units[u].part[0], .unit = u, .head = u == m->head};
    assert(d->part->rows > 0 && d->part->row_bytes > 0);
}

/* Rows of the largest piece: its window fits WEIGHTS_PIECE wherever it starts, unless one row alone
 * does not. */
static int32_t most_piece_rows(const struct dense *d)
{
    const uint64_t fit = (WEIGHTS_PIECE - FILE_ALIGN) / d->part->row_bytes;

    if (fit == 0)
        return 1;
    return fit < (uint64_t)d->part->rows ? (int32_t)fit : d->part->rows;
}

uint64_t dense_piece_bound(const struct dense *d)
{
    const uint64_t bytes = (uint64_t)most_piece_rows(d) * d->part->row_bytes;

    return lane_window(FILE_ALIGN - 1, bytes);
}

static int32_t rows_of_share(const struct dense *d, uint64_t share)
{
    return (int32_t)(((uint64_t)d->part->rows * share) >> 30);
}

static uint64_t large_bytes(const struct dense *d, int32_t n, uint64_t small, uint64_t share)
{
    uint64_t sum = 0;

    for (int32_t i = 0; i < n; i++)
        if (d[i].part->bytes > small)
            sum += dense_window(&d[i], rows_of_share(&d[i], share));
    return sum;
}

static uint64_t small_bytes(const struct dense *d, int32_t n, uint64_t small)
{
    uint64_t sum = 0;

    for (int32_t i = 0; i < n; i++)
        if (d[i].part->bytes <= small)
            sum += dense_window(&d[i], d[i].part->rows);
    return sum;
}

/* Every large unit the same share of its rows, the largest that fits; then single rows, in schedule
 * order, until not one more fits. */
static void share_out(struct dense *d, int32_t n, uint64_t small, uint64_t room)
{
    uint64_t lo = 0, hi = SHARE_ONE, left;

    while (hi - lo > 1) {
        const uint64_t mid = lo + (hi - lo) / 2;
        if (large_bytes(d, n, small, mid) <= room)
            lo = mid;
        else
            hi = mid;
    }
    left = room - large_bytes(d, n, small, lo);
    for (int32_t i = 0; i < n; i++) {
        const uint64_t now = dense_window(&d[i], rows_of_share(&d[i], lo));
        int32_t rows = rows_of_share(&d[i], lo);

        if (d[i].part->bytes <= small)
            continue;
        if (rows < d[i].part->rows && dense_window(&d[i], rows + 1) - now <= left) {
            left -= dense_window(&d[i], rows + 1) - now;
            rows++;
        }
        d[i].resident_rows = rows;
    }
}

uint64_t layout_resident(struct dense *d, int32_t n, uint64_t bytes)
{
    const uint64_t room = layout_granted(bytes);
    uint64_t small = LAYOUT_SMALL, at = 0;
    int32_t chunk = 0;

    if (ledger_rounded(small_bytes(d, n, UINT64_MAX)) <= bytes) {
        for (int32_t i = 0; i < n; i++)
            d[i].resident_rows = d[i].part->rows;
    } else {
        /* Small ones together take a quarter at most: else the large ones would stream whole. */
        while (small && small_bytes(d, n, small) > room / 4)
            small /= 2;
        for (int32_t i = 0; i < n; i++)
            d[i].resident_rows = d[i].part->bytes <= small ? d[i].part->rows : 0;
        share_out(d, n, small, room - small_bytes(d, n, small));
    }
    for (int32_t i = 0; i < n; i++) {
        const uint64_t window = dense_window(&d[i], d[i].resident_rows);
        const int32_t rest = d[i].part->rows - d[i].resident_rows, most = most_piece_rows(&d[i]);

        d[i].resident_at = at;
        at += window;
        d[i].first_chunk = chunk;
        d[i].n_chunks = (int32_t)((window + LAYOUT_CHUNK - 1) / LAYOUT_CHUNK);
        chunk += d[i].n_chunks;
        /* Equal pieces instead of full ones and a crumb. */
        d[i].piece_rows = 0;
        if (rest > 0) {
            const int64_t pieces = ((int64_t)rest + most - 1) / most;
            d[i].piece_rows = (int32_t)((rest + pieces - 1) / pieces);
        }
    }
    return at;
}

void row_layout(const struct model *m, int32_t lanes, struct row_layout *r)
{
    r->n = 4 * lanes < 64 ? 4 * lanes : 64;
    r->buffer_bytes = 4 * FILE_ALIGN; /* vectors are read through them too */
    for (int32_t i = 0; i < m->n_units; i++) {
        const struct unit *u = &m->units[i];
        if (u->kind == UNIT_TABLE) {
            const uint64_t w = lane_window(FILE_ALIGN - 1, u->part[0].row_bytes);
            if (w > r->buffer_bytes)
                r->buffer_bytes = w;
        }
    }
}
