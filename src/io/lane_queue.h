/* Requests that wait: first come, first served, in three orders of urgency. Private to the back
 * ends. Thread rule: whoever holds the back end's lock, or its one thread. */
#ifndef IO_LANE_QUEUE_H
#define IO_LANE_QUEUE_H

#include <assert.h>

#include "lane.h"

enum lane_urgency { URGENT, DEMAND, ADVICE, URGENCIES };

struct lane_queue {
    struct lane_request *head, **tail;
};

static inline void queue_init(struct lane_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static inline void queue_put(struct lane_queue *q, struct lane_request *r)
{
    r->next = NULL;
    *q->tail = r;
    q->tail = &r->next;
}

static inline struct lane_request *queue_take(struct lane_queue *q)
{
    struct lane_request *r = q->head;

    if (r) {
        q->head = r->next;
        if (!q->head)
            q->tail = &q->head;
        r->next = NULL;
    }
    return r;
}

static inline void queue_remove(struct lane_queue *q, struct lane_request *r)
{
    struct lane_request **at = &q->head;

    while (*at && *at != r)
        at = &(*at)->next;
    assert(*at == r); /* its urgency was changed while it was queued */
    *at = r->next;
    if (!r->next)
        q->tail = at;
    r->next = NULL;
}

static inline enum lane_urgency urgency_of(const struct lane_request *r)
{
    return r->urgent ? URGENT : r->advice ? ADVICE : DEMAND;
}

/* How long there was at least one of something, and each of them, and what came meanwhile. */
struct lane_watch {
    int32_t n;
    double since, total; /* seconds */
    double sum, sum_to;  /* seconds of all of them, counted up to then */
    uint64_t bytes;
};

static inline double watch_sum(const struct lane_watch *w, double now)
{
    return w->sum + (w->n > 0 ? w->n * (now - w->sum_to) : 0);
}

static inline void watch_begin(struct lane_watch *w, double now)
{
    w->sum = watch_sum(w, now);
    w->sum_to = now;
    if (w->n++ == 0)
        w->since = now;
}

static inline void watch_end(struct lane_watch *w, double now)
{
    w->sum = watch_sum(w, now);
    w->sum_to = now;
    if (--w->n == 0)
        w->total += now - w->since;
}

static inline void watch_bytes(struct lane_watch *w, uint64_t bytes)
{
    w->bytes += w->n > 0 ? bytes : 0;
}

static inline double watch_seconds(const struct lane_watch *w, double now)
{
    return w->total + (w->n > 0 ? now - w->since : 0);
}

#endif
