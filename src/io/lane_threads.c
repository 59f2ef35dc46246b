/* Lanes as a pool of reading threads: each takes the most urgent request, reads it with no lock
 * held, and puts it on the list of finished ones. Owns the threads and the queues; requests and
 * their memory stay the caller's. Thread rule: that of lane.h; idle threads sleep on a condition, a
 * waiting reap sleeps on a semaphore (which a signal handler may post). */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../base/clock.h"
#include "lane_backend.h"

#define LANE_STACK      (UINT64_C(256) << 10) /* address space */
#define LANE_STACK_USED (UINT64_C(32) << 10)  /* what of it is touched, generously */

enum request_state { LANE_IDLE, LANE_QUEUED, LANE_READING, LANE_DONE };
enum urgency { URGENT, DEMAND, ADVICE, URGENCIES };

struct queue {
    struct lane_request *head, **tail;
};

struct thread_lanes {
    struct lanes base;
    pthread_mutex_t lock;
    pthread_cond_t work;
    sem_t ready; /* posted once per finished request and per wake */
    atomic_bool woken;
    struct queue queue[URGENCIES], done;
    int32_t queued, reading;
    bool closing;
    double busy_since; /* while reading > 0 */
    struct lane_stats stats;
    int32_t started;
    pthread_t thread[LANES_MAX];
};

static void queue_init(struct queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_put(struct queue *q, struct lane_request *r)
{
    r->next = NULL;
    *q->tail = r;
    q->tail = &r->next;
}

static struct lane_request *queue_take(struct queue *q)
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

static enum urgency urgency_of(const struct lane_request *r)
{
    return r->urgent ? URGENT : r->advice ? ADVICE : DEMAND;
}

static struct lane_request *take_next(struct thread_lanes *t)
{
    struct lane_request *r = NULL;

    for (int i = 0; i < URGENCIES && !r; i++)
        r = queue_take(&t->queue[i]);
    return r;
}

static void *lane_main(void *arg)
{
    struct thread_lanes *t = arg;

    pthread_mutex_lock(&t->lock);
    for (;;) {
        struct lane_tally tally = {0};
        struct lane_request *r;
        double start, end;

        while (!t->queued && !t->closing)
            pthread_cond_wait(&t->work, &t->lock);
        if (t->closing)
            break;
        r = take_next(t);
        t->queued--;
        r->state = LANE_READING;
        start = clock_now();
        if (t->reading++ == 0)
            t->busy_since = start;
        if (t->reading > t->stats.in_flight_peak)
            t->stats.in_flight_peak = t->reading;
        pthread_mutex_unlock(&t->lock);

        lane_read(r, &tally);

        pthread_mutex_lock(&t->lock);
        end = clock_now();
        r->seconds = end - start;
        r->state = LANE_DONE;
        if (--t->reading == 0)
            t->stats.busy_s += end - t->busy_since;
        t->stats.reads++;
        t->stats.bytes_wanted += r->code ? 0 : r->bytes;
        t->stats.bytes_read += tally.bytes_read;
        t->stats.bytes_cached += tally.bytes_cached;
        t->stats.retries += tally.retries;
        queue_put(&t->done, r);
        sem_post(&t->ready);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void threads_close(struct lanes *l)
{
    struct thread_lanes *t = (struct thread_lanes *)l;

    pthread_mutex_lock(&t->lock);
    t->closing = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int32_t i = 0; i < t->started; i++)
        pthread_join(t->thread[i], NULL);
    sem_destroy(&t->ready);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static int threads_open(int32_t lanes, struct lanes **out, struct leat_error *e)
{
    struct thread_lanes *t = calloc(1, sizeof *t);
    pthread_attr_t attr;
    sigset_t all, before;
    int rc = 0;

    if (!t)
        return error_set(e, LEAT_ERR_MEMORY, "out of memory while opening the lanes");
    t->base.ops = &lane_threads;
    t->base.count = lanes;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    sem_init(&t->ready, 0, 0);
    for (int i = 0; i < URGENCIES; i++)
        queue_init(&t->queue[i]);
    queue_init(&t->done);

    pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, (size_t)LANE_STACK); /* else the default: also fine */
    sigfillset(&all); /* signals are the program's business, never a lane's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!rc && t->started < lanes) {
        rc = pthread_create(&t->thread[t->started], &attr, lane_main, t);
        if (!rc)
            t->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc) {
        threads_close(&t->base);
        return error_set_errno(e, LEAT_ERR_MEMORY, rc,
                               "cannot start %d reading threads (use fewer lanes)", (int)lanes);
    }
    *out = &t->base;
    return 0;
}

static void threads_submit(struct lanes *l, struct lane_request *r)
{
    struct thread_lanes *t = (struct thread_lanes *)l;

    pthread_mutex_lock(&t->lock);
    assert(r->state != LANE_QUEUED && r->state != LANE_READING);
    r->state = LANE_QUEUED;
    queue_put(&t->queue[urgency_of(r)], r);
    t->queued++;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

static int32_t threads_reap(struct lanes *l, struct lane_request **done, int32_t max, bool wait)
{
    struct thread_lanes *t = (struct thread_lanes *)l;

    for (;;) {
        bool pending;
        int32_t n = 0;

        pthread_mutex_lock(&t->lock);
        while (n < max && (done[n] = queue_take(&t->done)))
            done[n++]->state = LANE_IDLE;
        pending = t->queued || t->reading || t->done.head;
        pthread_mutex_unlock(&t->lock);
        for (int32_t i = 0; i < n; i++) /* their posts; one that was used up already does no harm */
            (void)sem_trywait(&t->ready);
        if (n || !wait || !pending || max <= 0)
            return n;
        if (atomic_exchange(&t->woken, false))
            return 0;
        while (sem_wait(&t->ready) && errno == EINTR)
            ;
    }
}

static void threads_wake(struct lanes *l)
{
    struct thread_lanes *t = (struct thread_lanes *)l;

    atomic_store(&t->woken, true);
    sem_post(&t->ready);
}

static bool threads_take_back(struct lanes *l, struct lane_request *r)
{
    struct thread_lanes *t = (struct thread_lanes *)l;
    bool found = false;

    pthread_mutex_lock(&t->lock);
    if (r->state == LANE_QUEUED) {
        struct queue *q = &t->queue[urgency_of(r)];
        struct lane_request **at = &q->head;

        while (*at && *at != r)
            at = &(*at)->next;
        assert(*at == r); /* its urgency was changed while it was queued */
        *at = r->next;
        if (!r->next)
            q->tail = at;
        r->next = NULL;
        r->state = LANE_IDLE;
        t->queued--;
        found = true;
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}

static void threads_get_stats(struct lanes *l, struct lane_stats *out)
{
    struct thread_lanes *t = (struct thread_lanes *)l;

    pthread_mutex_lock(&t->lock);
    *out = t->stats;
    if (t->reading)
        out->busy_s += clock_now() - t->busy_since;
    pthread_mutex_unlock(&t->lock);
}

const struct lane_backend lane_threads = {
    .name = "threads",
    .caps = LANE_CAP_TAKE_BACK | LANE_CAP_URGENT,
    .bytes_per_lane = LANE_STACK_USED,
    .open = threads_open,
    .close = threads_close,
    .submit = threads_submit,
    .reap = threads_reap,
    .wake = threads_wake,
    .take_back = threads_take_back,
    .get_stats = threads_get_stats,
};
