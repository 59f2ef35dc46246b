/* Lanes over io_uring. Whole direct reads go into the ring from the thread that asks for them and come out
 * of it there: no other thread needs a processor before a read can start or its end be seen. All else
 * - what lies in the page cache, files that are read buffered, and every read that did not bring all
 * it should - goes to a pool of reading threads (lane_threads), which knows how a read can go wrong;
 * so a request ends the same way whichever back end it was given to. Owns the ring, the pool and an
 * eventfd by which the pool and lanes_wake end a wait. Thread rule: that of lane.h; a mutex guards the
 * counters alone.
 *
 * Source of the protocol: io_uring(7), io_uring_enter(2), through liburing. */
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../base/clock.h"
#include "file_fd.h"
#include "lane_backend.h"
#include "lane_faults.h"
#include "lane_queue.h"

#define RING_ENTRIES 128 /* LANES_MAX, and the eventfd */
/* Some drives, virtual ones above all, tell of all reads that they were given together when the last of
 * them has ended: then nothing of them can be computed while the rest is read. Such a drive is given the
 * urgent reads in two steps, the last group alone, and nothing more while it is at work (docs/streaming.md).
 * What tells it is how often several large reads ended all at once while somebody slept for them. */
#define TOGETHER_BYTES (UINT64_C(128) << 10) /* smaller reads say nothing */
#define TOGETHER_FADE  0.95
#define TOGETHER_SHARE 0.7
#define FILES_MAX      64 /* registered with the ring; more are used by their descriptors */
#define RING_BYTES     (UINT64_C(4) << 10) /* of both queues, for one lane */

/* request.ring; request.state belongs to the pool, whose threads write it. */
enum uring_state { URING_IDLE, URING_QUEUED, URING_FLYING, URING_DONE, URING_WITH_POOL };

struct uring_lanes {
    struct lanes base;
    struct io_uring ring;
    struct lanes *pool;
    int32_t with_pool; /* requests that the pool has */
    struct lane_queue queue[URGENCIES], done;
    int32_t queued, flying;
    int32_t flying_large; /* of them at least TOGETHER_BYTES */
    int32_t urgent_now;   /* urgent requests of the present step that may still start */
    double together;      /* share of the sleeps after which all reads had ended at once */
    int event;
    uint64_t event_value; /* where the ring reads the eventfd to */
    bool event_armed;
    atomic_bool woken;
    bool files_registered;
    int32_t n_files;
    int file_fd[FILES_MAX];
    pthread_mutex_t lock; /* of what follows */
    struct lane_stats stats;
    struct lane_watch busy, urgent;
};

static struct uring_lanes *self(struct lanes *l)
{
    return (struct uring_lanes *)l;
}

static void notify(void *arg)
{
    const struct uring_lanes *u = arg;
    const uint64_t one = 1;

    /* A counter that is full has woken the reader already. */
    while (write(u->event, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* ---- opening ---- */

static void uring_close(struct lanes *l);

static int refused(struct leat_error *e, int errnum)
{
    const char *remedy = errnum == EPERM    ? " (switched off here: kernel.io_uring_disabled, or a "
                                              "container's rules)"
                         : errnum == ENOSYS ? " (Linux 5.6 or later has it)"
                         : errnum == ENOMEM ? " (the limit on locked memory, ulimit -l, is too low)"
                                            : "";

    return error_set(e, LEAT_ERR_UNSUPPORTED, "the system refuses io_uring: %s%s", strerror(errnum),
                     remedy);
}

static int ring_open(struct io_uring *ring)
{
#if defined(IORING_SETUP_COOP_TASKRUN) && defined(IORING_SETUP_TASKRUN_FLAG)
    /* Completions need not interrupt the kernels: they are looked for often enough. */
    if (io_uring_queue_init(RING_ENTRIES, ring,
                            IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG) == 0)
        return 0;
#endif
    return -io_uring_queue_init(RING_ENTRIES, ring, 0);
}

static int uring_open(int32_t lanes, struct lanes **out, struct leat_error *e)
{
    struct uring_lanes *u = calloc(1, sizeof *u);
    int rc;

    if (!u)
        return error_set(e, LEAT_ERR_MEMORY, "out of memory while opening the lanes");
    u->base.ops = &lane_uring;
    u->base.count = lanes;
    u->event = -1;
    for (int i = 0; i < URGENCIES; i++)
        queue_init(&u->queue[i]);
    queue_init(&u->done);
    rc = ring_open(&u->ring);
    if (rc) {
        free(u);
        return refused(e, rc);
    }
    pthread_mutex_init(&u->lock, NULL);
    u->event = eventfd(0, EFD_CLOEXEC);
    if (u->event < 0)
        rc = error_set_errno(e, LEAT_ERR_UNSUPPORTED, errno, "the system refuses an eventfd");
    if (!rc)
        rc = lane_threads.open(lanes, &u->pool, e);
    if (rc) {
        uring_close(&u->base);
        return rc;
    }
    lane_threads_notify(u->pool, notify, u);
    u->files_registered = io_uring_register_files_sparse(&u->ring, FILES_MAX) == 0;
    *out = &u->base;
    return 0;
}

/* ---- into the ring ---- */

/* Index of a registered file, -1 when it is none. */
static int file_index(struct uring_lanes *u, int fd)
{
    if (!u->files_registered)
        return -1;
    for (int32_t i = 0; i < u->n_files; i++)
        if (u->file_fd[i] == fd)
            return i;
    if (u->n_files == FILES_MAX ||
        io_uring_register_files_update(&u->ring, (unsigned)u->n_files, &fd, 1) != 1)
        return -1;
    u->file_fd[u->n_files] = fd;
    return u->n_files++;
}

static void to_pool(struct uring_lanes *u, struct lane_request *r)
{
    r->ring = URING_WITH_POOL;
    r->state = 0; /* its own to judge */
    u->with_pool++;
    lane_threads.submit(u->pool, r);
}

static void event_arm(struct uring_lanes *u)
{
    struct io_uring_sqe *sqe;

    if (u->event_armed)
        return;
    sqe = io_uring_get_sqe(&u->ring);
    if (!sqe)
        return;
    io_uring_prep_read(sqe, u->event, &u->event_value, sizeof u->event_value, 0);
    io_uring_sqe_set_data(sqe, NULL);
    u->event_armed = true;
}

/* Urgent requests at the head of the queue that start together: all, or without the last group when there
 * are several. */
static int32_t urgent_step(const struct uring_lanes *u)
{
    const struct lane_request *last = NULL;
    int32_t n = 0, before = 0; /* in all; ahead of the last group */

    for (const struct lane_request *r = u->queue[URGENT].head; r; r = r->next, n++)
        if (!last || r->group == 0 || r->group != last->group) {
            last = r;
            before = n;
        }
    return before > 0 ? before : n;
}

/* A request that may go into the ring by now, most urgent first; NULL when none may. */
static struct lane_request *next_request(struct uring_lanes *u)
{
    const bool in_steps = u->together > TOGETHER_SHARE;

    if (u->flying >= u->base.count)
        return NULL;
    if (u->queue[URGENT].head) {
        if (in_steps && u->flying == 0)
            u->urgent_now = urgent_step(u);
        if (in_steps && u->urgent_now-- <= 0) {
            u->urgent_now = 0;
            return NULL;
        }
        return queue_take(&u->queue[URGENT]);
    }
    for (int i = DEMAND; i < URGENCIES; i++)
        if (u->queue[i].head)
            return queue_take(&u->queue[i]);
    return NULL;
}

/* Puts what may fly into the ring and tells the kernel of it. */
static void refill(struct uring_lanes *u)
{
    struct lane_request *r;

    while ((r = next_request(u))) {
        const int fd = file_direct_fd(r->file);
        const uint64_t inner = lane_inner(r->offset);
        struct io_uring_sqe *sqe = fd >= 0 ? io_uring_get_sqe(&u->ring) : NULL;
        int index;

        u->queued--;
        if (!sqe) { /* the file turned to buffered reads while the request waited */
            to_pool(u, r);
            continue;
        }
        index = file_index(u, fd);
        io_uring_prep_read(sqe, index >= 0 ? index : fd, r->dst,
                           (unsigned)lane_window(r->offset, r->bytes), r->offset - inner);
        if (index >= 0)
            sqe->flags |= IOSQE_FIXED_FILE;
        io_uring_sqe_set_data(sqe, r);
        r->ring = URING_FLYING;
        r->seconds = clock_now(); /* its start, until it ends */
        u->flying++;
        u->flying_large += r->bytes >= TOGETHER_BYTES;
        pthread_mutex_lock(&u->lock);
        watch_begin(&u->busy, r->seconds);
        if (u->flying > u->stats.in_flight_peak)
            u->stats.in_flight_peak = u->flying;
        pthread_mutex_unlock(&u->lock);
    }
    if (io_uring_sq_ready(&u->ring) > 0)
        (void)io_uring_submit(&u->ring); /* what it refuses now stays there for the next time */
}

static void uring_submit(struct lanes *l, struct lane_request *r)
{
    struct uring_lanes *u = self(l);

    if (r->urgent) {
        pthread_mutex_lock(&u->lock);
        watch_begin(&u->urgent, clock_now());
        pthread_mutex_unlock(&u->lock);
    }
    if (file_direct_fd(r->file) < 0 || r->bytes == 0 ||
        lane_window(r->offset, r->bytes) > FILE_CALL_MAX || lane_is_cached(r)) {
        r->tried = 0;
        to_pool(u, r);
        return;
    }
    r->ring = URING_QUEUED;
    r->tried = 0;
    queue_put(&u->queue[urgency_of(r)], r);
    u->queued++;
    if (!r->urgent)
        refill(u);
}

/* ---- out of the ring ---- */

static void finish(struct uring_lanes *u, struct lane_request *r, double now)
{
    r->ring = URING_DONE;
    queue_put(&u->done, r);
    if (r->urgent)
        watch_end(&u->urgent, now);
}

static void landed(struct uring_lanes *u, struct lane_request *r, int64_t got)
{
    const double now = clock_now();
    const uint64_t need = lane_inner(r->offset) + r->bytes;
    const bool whole = got >= 0 && (uint64_t)got >= need && file_is_unchanged(r->file);

    u->flying--;
    u->flying_large -= r->bytes >= TOGETHER_BYTES;
    pthread_mutex_lock(&u->lock);
    watch_end(&u->busy, now);
    watch_bytes(&u->urgent, got > 0 ? (uint64_t)got : 0);
    if (whole) {
        r->code = 0;
        r->why = LANE_FINE;
        r->errnum = 0;
        r->got = r->bytes;
        r->seconds = now - r->seconds;
        u->stats.reads++;
        u->stats.bytes_wanted += r->bytes;
        u->stats.bytes_read += (uint64_t)got;
        finish(u, r, now);
    } else {
        u->stats.retries++;
        u->stats.bytes_read += got > 0 ? (uint64_t)got : 0;
    }
    pthread_mutex_unlock(&u->lock);
    if (!whole) {
        r->tried = got < 0 ? (int32_t)-got : 0;
        to_pool(u, r);
    }
}

/* With injected faults, what the ring read counts for nothing: the hook reads again, and says how it went. */
static int64_t outcome(const struct lane_request *r, int res)
{
#ifdef LEAT_FAULTS
    if (lane_fault_pread) {
        const uint64_t start = r->offset - lane_inner(r->offset);
        const ssize_t n =
            lane_fault_pread(file_direct_fd(r->file), r->dst,
                             (size_t)lane_window(r->offset, r->bytes), (off_t)start, true);
        return n < 0 ? -errno : n;
    }
#else
    (void)r;
#endif
    return res;
}

/* Takes what the ring has finished. */
static void drain(struct uring_lanes *u)
{
    struct io_uring_cqe *cqe;

    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        struct lane_request *r = io_uring_cqe_get_data(cqe);
        const int res = cqe->res;

        io_uring_cqe_seen(&u->ring, cqe);
        if (r)
            landed(u, r, outcome(r, res));
        else
            u->event_armed = false;
    }
}

/* Takes what the pool has finished. */
static void drain_pool(struct uring_lanes *u)
{
    struct lane_request *r;

    while (u->with_pool && lane_threads.reap(u->pool, &r, 1, false) == 1) {
        u->with_pool--;
        pthread_mutex_lock(&u->lock);
        watch_bytes(&u->urgent, r->code ? 0 : r->bytes);
        finish(u, r, clock_now());
        pthread_mutex_unlock(&u->lock);
    }
}

static int32_t uring_reap(struct lanes *l, struct lane_request **done, int32_t max, bool wait)
{
    struct uring_lanes *u = self(l);
    int32_t slept_for = 0; /* large reads in flight when the sleep began */

    for (;;) {
        int32_t n = 0;

        drain(u);
        if (slept_for > 1 && u->flying_large < slept_for)
            u->together =
                TOGETHER_FADE * u->together + (u->flying_large == 0 ? 1 - TOGETHER_FADE : 0);
        drain_pool(u);
        while (n < max && (done[n] = queue_take(&u->done)))
            done[n++]->ring = URING_IDLE;
        if (u->queued || io_uring_sq_ready(&u->ring) > 0)
            refill(u);
        if (n || !wait || max <= 0 || (!u->queued && !u->flying && !u->with_pool && !u->done.head))
            return n;
        if (atomic_exchange(&u->woken, false))
            return 0;
        event_arm(u);
        slept_for = u->flying_large;
        /* Interrupted by a signal: its handler may have called lanes_wake. */
        (void)io_uring_submit_and_wait(&u->ring, 1);
    }
}

static void uring_wake(struct lanes *l)
{
    struct uring_lanes *u = self(l);

    atomic_store(&u->woken, true);
    notify(u);
}

static bool uring_take_back(struct lanes *l, struct lane_request *r)
{
    struct uring_lanes *u = self(l);

    if (r->ring == URING_QUEUED) {
        queue_remove(&u->queue[urgency_of(r)], r);
        u->queued--;
    } else if (r->ring == URING_WITH_POOL && lane_threads.take_back(u->pool, r)) {
        u->with_pool--;
    } else {
        return false;
    }
    r->ring = URING_IDLE;
    if (r->urgent) {
        pthread_mutex_lock(&u->lock);
        watch_end(&u->urgent, clock_now());
        pthread_mutex_unlock(&u->lock);
    }
    return true;
}

static bool uring_read_cached(struct lanes *l, struct lane_request *r)
{
    return lane_threads.read_cached(self(l)->pool, r);
}

static void uring_get_stats(struct lanes *l, struct lane_stats *out)
{
    struct uring_lanes *u = self(l);
    const double now = clock_now();

    lane_threads.get_stats(u->pool, out);
    pthread_mutex_lock(&u->lock);
    out->reads += u->stats.reads;
    out->bytes_wanted += u->stats.bytes_wanted;
    out->bytes_read += u->stats.bytes_read;
    out->retries += u->stats.retries;
    out->lane_s += watch_sum(&u->busy, now);
    out->busy_s += watch_seconds(&u->busy, now); /* both at once counts twice: rare */
    out->urgent_s = watch_seconds(&u->urgent, now);
    out->urgent_bytes = u->urgent.bytes;
    if (u->stats.in_flight_peak > out->in_flight_peak)
        out->in_flight_peak = u->stats.in_flight_peak;
    pthread_mutex_unlock(&u->lock);
}

static void uring_close(struct lanes *l)
{
    struct uring_lanes *u = self(l);
    struct io_uring_cqe *cqe;

    for (int i = 0; i < URGENCIES; i++)
        queue_init(&u->queue[i]);
    while (u->flying) { /* the kernel still writes to their memory */
        if (io_uring_wait_cqe(&u->ring, &cqe) < 0)
            continue;
        u->flying -= io_uring_cqe_get_data(cqe) != NULL;
        io_uring_cqe_seen(&u->ring, cqe);
    }
    if (u->pool)
        lane_threads.close(u->pool);
    io_uring_queue_exit(&u->ring);
    if (u->event >= 0)
        close(u->event);
    pthread_mutex_destroy(&u->lock);
    free(u);
}

const struct lane_backend lane_uring = {
    .name = "io_uring",
    .caps = LANE_CAP_TAKE_BACK | LANE_CAP_URGENT,
    .bytes_per_lane = (UINT64_C(32) << 10) + RING_BYTES, /* a lane of the pool, and of the ring */
    .open = uring_open,
    .close = uring_close,
    .submit = uring_submit,
    .read_cached = uring_read_cached,
    .reap = uring_reap,
    .wake = uring_wake,
    .take_back = uring_take_back,
    .get_stats = uring_get_stats,
};
