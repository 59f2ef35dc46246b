/* Lanes as a pool of reading threads: each takes the most urgent request, reads it with no lock
 * held, and puts it on the list of finished ones. A lane that copies from the page cache computes:
 * no more of them at once than processors, or they take time from each other and from whoever waits
 * for the bytes; the other lanes meanwhile serve what the drive must be asked for. Owns the threads
 * and the queues; requests and their memory stay the caller's. Thread rule: that of lane.h; idle
 * threads sleep on a condition, a waiting reap sleeps on a semaphore (which a signal handler may
 * post). */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../base/clock.h"
#include "../base/os.h"
#include "lane_backend.h"
#include "lane_queue.h"

#define LANE_STACK      (UINT64_C(256) << 10) /* address space */
#define LANE_STACK_USED (UINT64_C(32) << 10)  /* what of it is touched, generously */

enum request_state { LANE_IDLE, LANE_QUEUED, LANE_ASKING, LANE_READING, LANE_DONE };
enum request_cached { NOT_ASKED, IN_CACHE, ON_DRIVE };
struct thread_lanes {
    struct lanes base;
    pthread_mutex_t lock;
    pthread_cond_t work;
    sem_t ready; /* posted once per finished request and per wake */
    atomic_bool woken;
    struct lane_queue queue[URGENCIES], done;
    int32_t queued, reading;
    int32_t copying, copiers; /* from the page cache: now, and at most */
    int32_t set_aside;        /* queued ones that wait for their turn to be copied */
    bool closing;
    void (*notify)(void *arg); /* after each finished request, from the lane that served it */
    void *notify_arg;
    struct lane_watch busy, urgent; /* reads at work; urgent requests not served yet */
    struct lane_stats stats;
    int32_t started;
    pthread_t thread[LANES_MAX];
};

static void count(struct thread_lanes *t, const struct lane_request *r,
                  const struct lane_tally *tally)
{
    t->stats.reads++;
    t->stats.bytes_wanted += r->code ? 0 : r->bytes;
    t->stats.bytes_read += tally->bytes_read;
    t->stats.bytes_cached += tally->bytes_cached;
    t->stats.retries += tally->retries;
}

/* The most urgent request that a lane may work on by now. It stays in its queue. */
static struct lane_request *find_next(const struct thread_lanes *t)
{
    for (int i = 0; i < URGENCIES; i++)
        for (struct lane_request *r = t->queue[i].head; r; r = r->next)
            if (r->state == LANE_QUEUED && (r->cached != IN_CACHE || t->copying < t->copiers))
                return r;
    return NULL;
}

/* Finds out, with no lock held, whether the request will be a copy, and leaves it in its place when
 * it is not its turn. */
static bool may_start(struct thread_lanes *t, struct lane_request *r)
{
    bool cached;

    if (r->cached != NOT_ASKED) {
        t->set_aside -= r->cached == IN_CACHE;
        return true;
    }
    r->state = LANE_ASKING;
    pthread_mutex_unlock(&t->lock);
    cached = lane_is_cached(r);
    pthread_mutex_lock(&t->lock);
    r->state = LANE_QUEUED;
    r->cached = cached ? IN_CACHE : ON_DRIVE;
    if (!cached || t->copying < t->copiers)
        return true;
    t->set_aside++;
    return false;
}

/* Reads the request that was found; the lock is not held meanwhile. */
static void serve(struct thread_lanes *t, struct lane_request *r)
{
    const bool copies = r->cached == IN_CACHE;
    struct lane_tally tally = {0};
    double start, end;

    queue_remove(&t->queue[urgency_of(r)], r);
    t->queued--;
    r->state = LANE_READING;
    start = clock_now();
    t->reading++;
    watch_begin(&t->busy, start);
    if (t->reading > t->stats.in_flight_peak)
        t->stats.in_flight_peak = t->reading;
    t->copying += copies;
    /* A lane that leaves a turn to copy unused wakes one that sleeps for it. */
    if (t->set_aside && t->copying < t->copiers)
        pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);

    lane_read(r, copies, &tally);

    pthread_mutex_lock(&t->lock);
    end = clock_now();
    r->seconds = end - start;
    r->state = LANE_DONE;
    t->copying -= copies;
    t->reading--;
    watch_end(&t->busy, end);
    watch_bytes(&t->urgent, tally.bytes_read);
    if (r->urgent)
        watch_end(&t->urgent, end);
    count(t, r, &tally);
    queue_put(&t->done, r);
    sem_post(&t->ready);
    if (t->notify)
        t->notify(t->notify_arg);
}

static void *lane_main(void *arg)
{
    struct thread_lanes *t = arg;

    pthread_mutex_lock(&t->lock);
    while (!t->closing) {
        struct lane_request *r = find_next(t);

        if (!r)
            pthread_cond_wait(&t->work, &t->lock);
        else if (may_start(t, r))
            serve(t, r);
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
    t->copiers = os_cpus();
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
    assert(r->state == LANE_IDLE || r->state == LANE_DONE);
    r->state = LANE_QUEUED;
    r->cached = NOT_ASKED;
    queue_put(&t->queue[urgency_of(r)], r);
    t->queued++;
    if (r->urgent)
        watch_begin(&t->urgent, clock_now());
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

static bool threads_read_cached(struct lanes *l, struct lane_request *r)
{
    struct thread_lanes *t = (struct thread_lanes *)l;
    struct lane_tally tally = {0};
    const double start = clock_now();

    if (!lane_is_cached(r))
        return false;
    lane_read(r, true, &tally);
    r->seconds = clock_now() - start;
    pthread_mutex_lock(&t->lock);
    count(t, r, &tally);
    pthread_mutex_unlock(&t->lock);
    return true;
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
        queue_remove(&t->queue[urgency_of(r)], r);
        t->set_aside -= r->cached == IN_CACHE;
        r->state = LANE_IDLE;
        t->queued--;
        if (r->urgent)
            watch_end(&t->urgent, clock_now());
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
    out->busy_s = watch_seconds(&t->busy, clock_now());
    out->lane_s = watch_sum(&t->busy, clock_now());
    out->urgent_s = watch_seconds(&t->urgent, clock_now());
    out->urgent_bytes = t->urgent.bytes;
    pthread_mutex_unlock(&t->lock);
}

void lane_threads_notify(struct lanes *l, void (*notify)(void *arg), void *arg)
{
    struct thread_lanes *t = (struct thread_lanes *)l;

    pthread_mutex_lock(&t->lock);
    t->notify = notify;
    t->notify_arg = arg;
    pthread_mutex_unlock(&t->lock);
}

const struct lane_backend lane_threads = {
    .name = "threads",
    .caps = LANE_CAP_TAKE_BACK | LANE_CAP_URGENT,
    .bytes_per_lane = LANE_STACK_USED,
    .open = threads_open,
    .close = threads_close,
    .submit = threads_submit,
    .read_cached = threads_read_cached,
    .reap = threads_reap,
    .wake = threads_wake,
    .take_back = threads_take_back,
    .get_stats = threads_get_stats,
};
