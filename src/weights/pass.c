/* One walk through the schedule: which rows come next, from where, and what happens after an error.
 * Owns no memory. Thread rule: thread 0. */
#include <assert.h>

#include "weights_room.h"

int weights_pass_begin(struct weights *w, const struct pass_need *need, struct weights_pass **out,
                       struct leat_error *e)
{
    struct weights_pass *p = &w->pass;
    int rc;

    *out = NULL;
    if (p->running)
        return error_set(e, LEAT_ERR_STATE, "a pass is running already");
    rc = weights_check_cancel(w, e);
    if (rc)
        return rc;
    p->need = *need;
    p->running = true;
    p->broken = false;
    p->index = p->row = 0;
    p->viewing = false;
    w->pass_no++;
    resident_retry(w);
    weights_pump(w); /* now it is known whether the head is wanted */
    *out = p;
    return 0;
}

/* The view given last ends: its piece makes room for new ones. */
static void end_view(struct weights_pass *p)
{
    if (p->viewing)
        stream_pop(p->w);
    p->viewing = false;
}

static int broken(struct weights_pass *p, int rc)
{
    p->broken = true;
    return rc;
}

static int next_resident(struct weights_pass *p, const struct dense *d, struct weights_view *v,
                         struct leat_error *e)
{
    struct weights *w = p->w;
    bool waited = false;
    int32_t ready;
    int rc;

    while ((ready = resident_rows_ready(w, d)) <= p->row) {
        rc = resident_failure(w, e);
        if (!rc)
            rc = weights_check_cancel(w, e);
        if (rc)
            return broken(p, rc);
        weights_wait(w, &waited);
    }
    *v = (struct weights_view){.data = resident_row(w, d, p->row),
                               .row_bytes = d->part->row_bytes,
                               .row0 = p->row,
                               .rows = ready - p->row};
    p->row = ready;
    return 1;
}

static int next_streamed(struct weights_pass *p, const struct dense *d, struct weights_view *v,
                         struct leat_error *e)
{
    struct weights *w = p->w;
    struct piece *front = stream_front(w, p->index, p->row);
    bool waited = false;
    int rc;

    if (!front) /* the pump always has asked for it: the ring holds at least two pieces */
        return broken(p, error_set(e, LEAT_ERR_INTERNAL, "unit %d: row %d is not in the stream",
                                   (int)d->unit, (int)p->row));
    while (front->state == READ_FLYING) {
        rc = weights_check_cancel(w, e);
        if (rc)
            return broken(p, rc);
        weights_wait(w, &waited);
    }
    if (front->state == READ_FAILED)
        return broken(p, lane_error(&front->req, e));
    *v = (struct weights_view){.data =
                                   (const uint8_t *)front->req.dst + lane_inner(front->req.offset),
                               .row_bytes = d->part->row_bytes,
                               .row0 = front->row0,
                               .rows = front->rows};
    p->row += front->rows;
    p->viewing = true;
    return 1;
}

/* What every question for a unit begins with: the view before ends, arrivals are noted, and it must be
 * this unit's turn. */
static int unit_turn(struct weights_pass *p, unit_id u, const struct dense **out,
                     struct leat_error *e)
{
    struct weights *w = p->w;
    const struct dense *d;
    int rc;

    assert(p->running);
    end_view(p);
    rc = weights_check_cancel(w, e);
    if (rc)
        return rc;
    if (p->broken)
        return error_set(e, LEAT_ERR_STATE, "the pass has failed; it can only be ended");
    weights_reap(w, false);
    weights_pump(w);
    d = p->index < w->n_dense ? &w->dense[p->index] : NULL;
    if (!d || d->unit != u || (d->head && !p->need.head))
        return broken(p,
                      error_set(e, LEAT_ERR_STATE, "unit %d was asked for out of order", (int)u));
    *out = d;
    return 0;
}

int weights_whole(struct weights_pass *p, unit_id u, struct weights_view *v, struct leat_error *e)
{
    const struct dense *d = NULL;
    int rc = unit_turn(p, u, &d, e);

    if (rc)
        return rc;
    if (p->row > 0 || d->resident_rows < d->part->rows ||
        resident_rows_ready(p->w, d) < d->part->rows)
        return 0;
    *v = (struct weights_view){.data = resident_row(p->w, d, 0),
                               .row_bytes = d->part->row_bytes,
                               .row0 = 0,
                               .rows = d->part->rows};
    p->index++;
    p->row = 0;
    return 1;
}

int weights_next(struct weights_pass *p, unit_id u, struct weights_view *v, struct leat_error *e)
{
    const struct dense *d = NULL;
    int rc = unit_turn(p, u, &d, e);

    if (rc)
        return rc;
    if (p->row == d->part->rows) {
        p->index++;
        p->row = 0;
        return 0;
    }
    return p->row < d->resident_rows ? next_resident(p, d, v, e) : next_streamed(p, d, v, e);
}

int weights_pass_end(struct weights_pass *p)
{
    struct weights *w = p->w;

    if (!p->running)
        return 0;
    end_view(p);
    if (w->experts)
        experts_abandon(w, p->broken);
    /* What was read ahead for the next pass stays; after an error, or a pass that was not walked to
     * its end, the stream starts afresh. */
    if (p->broken || !stream_ended(w))
        stream_reset(w);
    p->running = false;
    weights_pump(w);
    return 0;
}
