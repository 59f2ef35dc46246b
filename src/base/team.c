/* The compute team. Owns its threads and the hand-over of one job at a time to them; knows nothing
 * of what a job computes. team_run and team_for come from the one thread that owns the team.
 *
 * How a job is handed over. The owner writes the job's fields and then publishes a new `gate` word:
 * the job's number, and how many workers have entered it. A worker enters by adding one to the gate
 * of a job it has not seen yet; only then may it read the fields. team_run waits for every worker.
 * team_for closes the gate once all chunks are handed out and waits only for those that entered, so
 * that a worker which still sleeps (or which the system runs elsewhere) never holds up a small
 * job. */
#include "team.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "os.h"

/* How long a thread spins before it sleeps: longer than the gaps between the matrices of one token
 * (a few microseconds), and about what one sleep and wake of a thread costs, so that spinning never
 * costs more than twice the better choice. */
#define SPIN_S    40e-6
#define SPIN_STEP 32 /* pauses between two looks at the clock */

#define LINE 64

#define GATE_CLOSED  (UINT64_C(1) << 31)
#define GATE_ENTERED (GATE_CLOSED - 1)

struct worker {
    struct team *team;
    pthread_t thread;
    int32_t index;
};

struct team {
    int32_t threads;
    bool spin; /* not with more threads than processors: there spinning steals from work */
    struct worker *workers; /* threads - 1 of them */

    /* The job: written by the owner while no worker is inside, read by workers that entered. */
    void (*run)(void *arg, int32_t thread, int32_t threads);
    void (*part)(void *arg, int32_t thread, int64_t begin, int64_t end);
    void *arg;
    int64_t total, chunk;
    bool guided; /* runs shrink from a share of what is left down to chunk */

    alignas(LINE) _Atomic uint64_t gate; /* job number << 32 | closed | workers inside or done */
    alignas(LINE) _Atomic uint32_t bell; /* job number; the word that idle workers sleep on */
    _Atomic uint32_t asleep;             /* workers that sleep on the bell, or are about to */
    _Atomic bool stop;
    alignas(LINE) _Atomic uint32_t done; /* workers that left the job; the owner sleeps on it */
    _Atomic bool owner_asleep;
    alignas(LINE) _Atomic int64_t next; /* first item that nobody has taken */
    alignas(LINE) char tail[1];
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Waits a short while for *word to differ from value; false when it still does not. */
static bool word_spin(const struct team *t, _Atomic uint32_t *word, uint32_t value)
{
    if (atomic_load_explicit(word, memory_order_acquire) != value)
        return true;
    if (!t->spin)
        return false;
    double end = clock_now() + SPIN_S;
    do {
        for (int i = 0; i < SPIN_STEP; i++) {
            cpu_relax();
            if (atomic_load_explicit(word, memory_order_acquire) != value)
                return true;
        }
    } while (clock_now() < end);
    return false;
}

/* Shares per thread that guided runs are cut for: 2 leaves room for a thread that came late or runs
 * slowly, and the first runs are still a quarter of the whole with two threads. */
#define GUIDED_SHARES 2

static void parts_take_guided(struct team *t, int32_t thread)
{
    const int64_t total = t->total, chunk = t->chunk, shares = (int64_t)t->threads * GUIDED_SHARES;
    int64_t begin = atomic_load_explicit(&t->next, memory_order_relaxed), n;
    for (;;) {
        do {
            if (begin >= total)
                return;
            n = (total - begin) / shares / chunk * chunk;
            n = n > chunk ? n : chunk;
            n = n < total - begin ? n : total - begin;
        } while (!atomic_compare_exchange_weak_explicit(&t->next, &begin, begin + n,
                                                        memory_order_relaxed,
                                                        memory_order_relaxed));
        t->part(t->arg, thread, begin, begin + n);
        begin = atomic_load_explicit(&t->next, memory_order_relaxed);
    }
}

static void parts_take(struct team *t, int32_t thread)
{
    const int64_t total = t->total, chunk = t->chunk;
    if (t->guided) {
        parts_take_guided(t, thread);
        return;
    }
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&t->next, chunk, memory_order_relaxed);
        if (begin >= total)
            return;
        int64_t end = chunk < total - begin ? begin + chunk : total;
        t->part(t->arg, thread, begin, end);
    }
}

static void job_do(struct team *t, int32_t thread)
{
    if (t->run)
        t->run(t->arg, thread, t->threads);
    else
        parts_take(t, thread);
}

/* True when the worker may take part in job number `job`. */
static bool job_enter(struct team *t, uint32_t job)
{
    uint64_t g = atomic_load(&t->gate);
    do {
        if ((uint32_t)(g >> 32) != job || (g & GATE_CLOSED))
            return false;
    } while (!atomic_compare_exchange_weak(&t->gate, &g, g + 1));
    return true;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct team *t = w->team;
    uint32_t seen = 0;
    char name[16]; /* the system's limit */
    snprintf(name, sizeof name, "leat-team-%d", (int)w->index);
    pthread_setname_np(pthread_self(), name);
    for (;;) {
        if (!word_spin(t, &t->bell, seen)) {
            atomic_fetch_add(&t->asleep, 1);
            while (atomic_load(&t->bell) == seen)
                os_word_wait(&t->bell, seen);
            atomic_fetch_sub(&t->asleep, 1);
        }
        seen = atomic_load(&t->bell);
        if (atomic_load(&t->stop))
            return NULL;
        if (!job_enter(t, seen))
            continue;
        job_do(t, w->index);
        atomic_fetch_add(&t->done, 1);
        if (atomic_load(&t->owner_asleep))
            os_word_wake(&t->done, 1);
    }
}

static void bell_ring(struct team *t, uint32_t job)
{
    atomic_store(&t->bell, job);
    if (atomic_load(&t->asleep) > 0)
        os_word_wake(&t->bell, t->threads);
}

static void done_wait(struct team *t, uint32_t wanted)
{
    for (;;) {
        uint32_t done = atomic_load(&t->done);
        if (done == wanted)
            return;
        if (word_spin(t, &t->done, done))
            continue;
        atomic_store(&t->owner_asleep, true);
        os_word_wait(&t->done, done);
        atomic_store(&t->owner_asleep, false);
    }
}

/* Opens the gate of the job whose fields are set, works on it as thread 0, and waits. */
static void job_run(struct team *t)
{
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    uint32_t job = atomic_load_explicit(&t->bell, memory_order_relaxed) + 1;
    atomic_store(&t->gate, (uint64_t)job << 32);
    bell_ring(t, job);
    job_do(t, 0);
    uint32_t wanted = (uint32_t)t->threads - 1;
    if (!t->run)
        wanted = (uint32_t)(atomic_fetch_or(&t->gate, GATE_CLOSED) & GATE_ENTERED);
    done_wait(t, wanted);
}

int team_open(int32_t threads, struct team **out, struct leat_error *e)
{
    *out = NULL;
    if (threads < 1 || threads > TEAM_MAX)
        return error_set(e, LEAT_ERR_USAGE, "%d threads: 1 to %d are possible", (int)threads,
                         TEAM_MAX);
    struct team *t = aligned_alloc(LINE, sizeof *t);
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    if (!t || !workers) {
        free(t);
        free(workers);
        return error_set(e, LEAT_ERR_MEMORY, "no memory for a team of %d threads", (int)threads);
    }
    memset(t, 0, sizeof *t);
    t->workers = workers;
    t->threads = 1;
    t->spin = threads <= os_cpus();
    /* Signals belong to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int errnum = 0;
    for (int32_t i = 1; i < threads && errnum == 0; i++) {
        struct worker *w = &workers[i - 1];
        *w = (struct worker){.team = t, .index = i};
        errnum = pthread_create(&w->thread, NULL, worker_main, w);
        if (errnum == 0)
            t->threads = i + 1; /* no job runs yet, so no worker reads it */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errnum != 0) {
        int32_t made = t->threads;
        team_close(t);
        return error_set_errno(e, LEAT_ERR_MEMORY, errnum, "cannot start thread %d of %d",
                               (int)made + 1, (int)threads);
    }
    *out = t;
    return 0;
}

void team_close(struct team *t)
{
    if (!t)
        return;
    atomic_store(&t->stop, true);
    bell_ring(t, atomic_load(&t->bell) + 1);
    for (int32_t i = 1; i < t->threads; i++)
        pthread_join(t->workers[i - 1].thread, NULL);
    free(t->workers);
    free(t);
}

int32_t team_threads(const struct team *t)
{
    return t->threads;
}

void team_run(struct team *t, void (*fn)(void *arg, int32_t thread, int32_t threads), void *arg)
{
    if (t->threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    t->run = fn;
    t->part = NULL;
    t->arg = arg;
    job_run(t);
}

static void team_parts(struct team *t, int64_t total, int64_t chunk, bool guided,
                       void (*fn)(void *arg, int32_t thread, int64_t begin, int64_t end), void *arg)
{
    assert(chunk > 0);
    if (total <= 0)
        return;
    if (t->threads == 1 || total <= chunk) {
        fn(arg, 0, 0, total);
        return;
    }
    assert(total <= INT64_MAX / 2 && chunk <= INT64_MAX / 2 / TEAM_MAX);
    t->run = NULL;
    t->part = fn;
    t->arg = arg;
    t->total = total;
    t->chunk = chunk;
    t->guided = guided;
    job_run(t);
}

void team_for(struct team *t, int64_t total, int64_t chunk,
              void (*fn)(void *arg, int32_t thread, int64_t begin, int64_t end), void *arg)
{
    team_parts(t, total, chunk, false, fn, arg);
}

void team_guided(struct team *t, int64_t total, int64_t granule,
                 void (*fn)(void *arg, int32_t thread, int64_t begin, int64_t end), void *arg)
{
    team_parts(t, total, granule, true, fn, arg);
}
