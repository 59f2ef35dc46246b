/* Opening and closing of the weights room, and the pump between it and the lanes: what was read
 * goes to its owner, what may be read ahead is submitted in order of use. Owns struct weights; each
 * kind of memory belongs to its own file. Thread rule: thread 0, weights_cancel apart. */
#include <assert.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/clock.h"
#include "weights_room.h"

void *carve(struct carver *c, uint64_t n, uint64_t size)
{
    uint8_t *at = c->base ? c->base + c->used : NULL;

    c->used += align_up(n * size, 64);
    return at;
}

/* The tables, struct weights first. Returns it, or NULL when only the size is asked for. */
static struct weights *tables_carve(const struct model *m, const struct expert_layout *l,
                                    struct carver *c)
{
    struct weights *w = carve(c, 1, sizeof *w);
    struct dense *dense = carve(c, (uint64_t)m->n_schedule, sizeof *dense);
    int32_t *index = carve(c, (uint64_t)m->n_units, sizeof *index);
    float **vector = vectors_carve(m, c);
    struct expert_cache *x = l->n_units ? experts_carve(m, l, c) : NULL;

    if (w) {
        w->m = m;
        w->dense = dense;
        w->n_dense = m->n_schedule;
        w->schedule_index = index;
        w->vector = vector;
        w->experts = x;
    }
    return w;
}

/* What a hand or a reader could have got wrong in a way that would make us read beside the mark. */
static int check_model(const struct model *m, struct leat_error *e)
{
    for (int32_t i = 0; i < m->n_units; i++) {
        const struct unit *u = &m->units[i];
        if (u->n_parts < 1 || u->n_parts > UNIT_PARTS)
            return error_set(e, LEAT_ERR_INTERNAL, "unit %d has %d parts", (int)i, (int)u->n_parts);
        for (int32_t k = 0; k < u->n_parts; k++) {
            const struct part *p = &u->part[k];
            uint64_t bytes, end;
            if (p->file < 0 || p->file >= m->n_files || p->rows < 1 || p->row_bytes == 0 ||
                !checked_mul((uint64_t)p->rows, p->row_bytes, &bytes) || bytes != p->bytes ||
                !checked_add(p->offset, bytes, &end) || end > (uint64_t)INT64_MAX - FILE_ALIGN)
                return error_set(e, LEAT_ERR_INTERNAL,
                                 "unit %d, part %d: rows and bytes do not fit together", (int)i,
                                 (int)k);
        }
    }
    for (int32_t i = 0; i < m->n_schedule; i++) {
        const unit_id u = m->schedule[i];
        if (u < 0 || u >= m->n_units || m->units[u].n_parts != 1 || m->units[u].kind == UNIT_EXPERT)
            return error_set(e, LEAT_ERR_INTERNAL, "the schedule's entry %d is not a dense unit",
                             (int)i);
    }
    return 0;
}

int weights_need(const struct model *m, int32_t lanes, int32_t width, struct weights_need *out,
                 struct leat_error *e)
{
    struct expert_layout l;
    struct row_layout r;
    struct carver c = {0};
    uint64_t most = 0, dense = 0;
    int rc;

    (void)width; /* rows are gathered straight into the caller's memory, through buffers that do not
                    grow with it */
    *out = (struct weights_need){0};
    if (lanes < 1 || lanes > LANES_MAX)
        return error_set(e, LEAT_ERR_USAGE, "lanes: %d is out of bounds (1 to %d)", (int)lanes,
                         LANES_MAX);
    rc = check_model(m, e);
    if (!rc)
        rc = expert_layout(m, &l, e);
    if (rc)
        return rc;
    tables_carve(m, &l, &c);
    row_layout(m, lanes, &r);
    for (int32_t i = 0; i < m->n_schedule; i++) {
        struct dense d;
        uint64_t bound;
        dense_init(&d, m, i);
        dense += dense_window(&d, d.part->rows);
        bound = dense_piece_bound(&d);
        if (bound > most)
            most = bound;
    }
    out->vectors = ledger_rounded(c.used);
    out->resident_min = 0;
    out->resident_all = ledger_rounded(dense);
    out->stream_min = ledger_rounded(2 * most);
    /* While a piece is used, every lane reads one and has the next one waiting. */
    out->stream_good = ledger_rounded((2 * (uint64_t)lanes + 2) * most);
    if (out->stream_good > out->resident_all)
        out->stream_good = out->resident_all;
    if (out->stream_good < out->stream_min)
        out->stream_good = out->stream_min;
    out->experts_min = l.min_bytes;
    out->experts_all = l.all_bytes;
    out->rows = ledger_rounded((uint64_t)r.n * r.buffer_bytes);
    out->lanes = lanes_bytes(lanes);
    return 0;
}

static int set_direct(struct weights *w, enum file_direct mode, struct leat_error *e)
{
    for (int32_t i = 0; i < w->m->n_files; i++) {
        const int rc = file_set_direct(w->m->files[i].file, mode, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int open_parts(struct weights *w, const struct weights_config *c, struct leat_error *e)
{
    int rc;

    for (int32_t i = 0; i < w->m->n_units; i++)
        w->schedule_index[i] = -1;
    for (int32_t i = 0; i < w->n_dense; i++) {
        dense_init(&w->dense[i], w->m, i);
        if (w->schedule_index[w->dense[i].unit] >= 0)
            return error_set(e, LEAT_ERR_INTERNAL, "unit %d is in the schedule twice",
                             (int)w->dense[i].unit);
        w->schedule_index[w->dense[i].unit] = i;
    }
    rc = set_direct(w, c->direct, e);
    if (rc)
        return rc;
    rc = ledger_charge(w->ledger, DOMAIN_HELD, ROW_LANES, lanes_bytes(c->lanes), e);
    if (rc)
        return rc;
    w->lanes_taken = lanes_bytes(c->lanes);
    rc = lanes_open(c->lanes, c->lane_choice, &w->lanes, e);
    if (!rc)
        rc = rows_open(w, c->lanes, e);
    if (!rc)
        rc = vectors_read(w, e);
    if (!rc)
        rc = resident_open(w, c->resident_bytes, e);
    if (!rc)
        rc = stream_open(w, c->stream_bytes, e);
    if (!rc && w->experts)
        rc = experts_open(w, c->expert_cache_bytes, e);
    return rc;
}

int weights_open(const struct weights_config *c, struct weights **out, struct leat_error *e)
{
    const struct evict_policy *policy = evict_find(c->eviction);
    struct expert_layout l;
    struct carver size = {0}, place = {0};
    struct weights *w;
    void *mem = NULL;
    int rc;

    *out = NULL;
    if (c->lanes < 1 || c->lanes > LANES_MAX)
        return error_set(e, LEAT_ERR_USAGE, "lanes: %d is out of bounds (1 to %d)", (int)c->lanes,
                         LANES_MAX);
    if (!policy)
        return error_set(e, LEAT_ERR_USAGE, "no such eviction policy (known: %s)", evict_names());
    rc = check_model(c->model, e);
    if (!rc)
        rc = expert_layout(c->model, &l, e);
    if (rc)
        return rc;
    tables_carve(c->model, &l, &size);
    rc = ledger_take(c->ledger, DOMAIN_HELD, ROW_VECTORS, size.used, &mem, e);
    if (rc)
        return rc;
    place.base = mem;
    w = tables_carve(c->model, &l, &place);
    assert(place.used == size.used && (void *)w == mem);
    w->ledger = c->ledger;
    w->tables_taken = size.used;
    w->policy = policy;
    w->pass.w = w;
    rc = open_parts(w, c, e);
    if (rc) {
        weights_close(w);
        return rc;
    }
    weights_pump(w); /* loading starts now, and nobody waits for it yet */
    *out = w;
    return 0;
}

void weights_close(struct weights *w)
{
    struct ledger *ledger;

    if (!w)
        return;
    ledger = w->ledger;
    /* First the lanes: no read may be in flight when its memory goes. */
    lanes_close(w->lanes);
    if (w->experts)
        experts_close(w);
    stream_close(w);
    resident_close(w);
    rows_close(w);
    if (w->lanes_taken)
        ledger_refund(ledger, DOMAIN_HELD, ROW_LANES, w->lanes_taken);
    ledger_give(ledger, DOMAIN_HELD, ROW_VECTORS, w, w->tables_taken);
}

const char *weights_eviction(const struct weights *w)
{
    return w->policy->name;
}

/* ---- between the lanes and the owners ---- */

void weights_request(struct weights *w, struct lane_request *r, int32_t file, uint64_t offset,
                     uint64_t bytes, void *dst, void *tag)
{
    *r = (struct lane_request){
        .file = w->m->files[file].file, .offset = offset, .bytes = bytes, .dst = dst, .user = tag};
}

void weights_reap(struct weights *w, bool wait)
{
    struct lane_request *done[REAP_AT_ONCE];
    int32_t n;

    do {
        n = lanes_reap(w->lanes, done, REAP_AT_ONCE, wait);
        for (int32_t i = 0; i < n; i++) {
            const uintptr_t tag = (uintptr_t)done[i]->user;
            const int32_t index = (int32_t)(tag & 0xffffff);
            switch ((enum read_kind)(tag >> 24)) {
            case READ_LOAD:
                resident_arrived(w, index, done[i]);
                break;
            case READ_PIECE:
                stream_arrived(w, index, done[i]);
                break;
            case READ_ROW:
                rows_arrived(w, index, done[i]);
                break;
            case READ_EXPERT:
                experts_arrived(w, index, done[i]);
                break;
            }
        }
        wait = false;
    } while (n == REAP_AT_ONCE);
}

bool weights_load(struct weights *w)
{
    weights_pump(w);
    if (w->resident.next == w->resident.n_chunks || resident_failure(w, NULL))
        return false;
    weights_reap(w, true);
    return true;
}

void weights_wait(struct weights *w, bool *waited)
{
    const double start = clock_now();

    weights_pump(w); /* never wait for what was not asked for */
    weights_reap(w, true);
    w->stats.wait_s += clock_now() - start;
    if (!*waited)
        w->stats.waits++;
    *waited = true;
}

/* Loads go first up to the unit that the stream reads now, in the first pass; later there is no
 * order between them. */
static bool load_is_next(const struct weights *w)
{
    const struct resident *r = &w->resident;
    const struct stream *s = &w->stream;

    if (s->pass > 1 || s->index >= w->n_dense)
        return true;
    return r->next < w->dense[s->index].first_chunk + w->dense[s->index].n_chunks;
}

void weights_pump(struct weights *w)
{
    bool loads = true, pieces = true;

    /* When one kind may not go on, the other does: the drive shall not idle. */
    while (loads || pieces) {
        if (loads && (!pieces || load_is_next(w)))
            loads = resident_submit(w);
        else
            pieces = stream_submit(w);
    }
}

int weights_check_cancel(struct weights *w, struct leat_error *e)
{
    if (!atomic_load_explicit(&w->cancel, memory_order_acquire))
        return 0;
    w->pass.broken = true;
    return error_set(e, LEAT_ERR_CANCELLED, "cancelled");
}

void weights_cancel(struct weights *w)
{
    atomic_store_explicit(&w->cancel, true, memory_order_release);
    lanes_wake(w->lanes);
}

void weights_uncancel(struct weights *w)
{
    atomic_store_explicit(&w->cancel, false, memory_order_release);
}

void weights_get_stats(const struct weights *w, struct weights_stats *out)
{
    *out = w->stats;
    lanes_get_stats(w->lanes, &out->lanes);
    out->passes = w->pass_no;
    out->resident_bytes = ledger_held(w->ledger, DOMAIN_HELD, ROW_RESIDENT);
    out->stream_ring_bytes = ledger_held(w->ledger, DOMAIN_HELD, ROW_STREAM);
    out->expert_slots_bytes = ledger_held(w->ledger, DOMAIN_HELD, ROW_EXPERTS);
    out->direct_files = out->buffered_files = 0;
    out->lane_backend = lanes_backend(w->lanes);
    out->lane_note = lanes_note(w->lanes);
    out->direct_note = NULL;
    for (int32_t i = 0; i < w->m->n_files; i++) {
        const struct file *f = w->m->files[i].file;
        if (file_is_direct(f))
            out->direct_files++;
        else
            out->buffered_files++;
        if (!out->direct_note && !file_is_direct(f))
            out->direct_note = file_direct_note(f);
    }
}
