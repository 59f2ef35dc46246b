/* The compute team: every item once, results visible, every thread takes part in team_run, jobs
 * of many sizes in a row, threads that sleep and wake. Run under the thread sanitizer by `make
 * check-all`. */
#include "unit_base.h"

#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "../../../src/base/team.h"

static struct leat_error err;

static const int32_t sizes[] = {1, 2, 3, 8, 16};
#define N_SIZES (sizeof sizes / sizeof *sizes)

struct marks {
    uint32_t *items; /* plain memory: a missing barrier is a race that the sanitizer sees */
    int64_t total, chunk;
    int32_t threads;
    _Atomic int bad;
};

static void mark_items(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    struct marks *m = arg;
    if (begin < 0 || begin >= end || end > m->total || thread < 0 || thread >= m->threads)
        m->bad++;
    if (m->threads > 1 && m->total > m->chunk && end - begin > m->chunk)
        m->bad++;
    for (int64_t i = begin; i < end; i++)
        m->items[i]++;
}

static void test_for(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_SIZES; k++) {
        struct team *t;
        assert_int_equal(team_open(sizes[k], &t, &err), 0);
        assert_int_equal(team_threads(t), sizes[k]);
        static uint32_t items[5000];
        memset(items, 0, sizeof items);
        struct marks m = {.items = items, .threads = sizes[k]};
        uint64_t seed = 5;
        uint32_t rounds = 0;
        for (int i = 0; i < 300; i++) {
            m.total = (int64_t)(random_next(&seed) % 5000);
            m.chunk = 1 + (int64_t)(random_next(&seed) % 700);
            team_for(t, m.total, m.chunk, mark_items, &m);
            for (int64_t j = 0; j < m.total;
                 j++) { /* read by the owner, then cleared for the next */
                if (items[j] != 1)
                    fail_msg("item %d was done %u times", (int)j, items[j]);
                items[j] = 0;
                rounds++;
            }
        }
        assert_true(rounds > 0);
        assert_int_equal(m.bad, 0);
        team_close(t);
    }
}

struct presence {
    int32_t seen[TEAM_MAX];
    _Atomic int bad;
};

static void mark_presence(void *arg, int32_t thread, int32_t threads)
{
    struct presence *p = arg;
    if (thread < 0 || thread >= threads)
        p->bad++;
    p->seen[thread]++;
}

static void test_run(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_SIZES; k++) {
        struct team *t;
        struct presence p = {0};
        assert_int_equal(team_open(sizes[k], &t, &err), 0);
        for (int round = 1; round <= 200; round++) {
            team_run(t, mark_presence, &p);
            for (int32_t i = 0; i < sizes[k]; i++)
                assert_int_equal(p.seen[i], round);
        }
        assert_int_equal(p.bad, 0);
        team_close(t);
    }
}

/* Mixed kinds of jobs: a worker that comes late to a closed team_for must not enter the next job
 * twice. */
static void test_mixed(void **state)
{
    (void)state;
    struct team *t;
    static uint32_t items[64];
    memset(items, 0, sizeof items);
    assert_int_equal(team_open(4, &t, &err), 0);
    struct presence p = {0};
    struct marks m = {.items = items, .total = 64, .chunk = 8, .threads = 4};
    for (int round = 1; round <= 3000; round++) {
        team_for(t, 64, 8, mark_items, &m);
        if (round % 3 == 0)
            team_run(t, mark_presence, &p);
    }
    for (int i = 0; i < 64; i++)
        assert_int_equal(items[i], 3000);
    for (int i = 0; i < 4; i++)
        assert_int_equal(p.seen[i], 1000);
    assert_int_equal(m.bad + p.bad, 0);
    team_close(t);
}

/* Runs of team_guided: each begins at and, the last apart, is a multiple of the granule; all of them
 * together are everything once; and they do shrink. */
struct runs {
    uint32_t *items;
    int64_t total, granule;
    _Atomic int64_t longest, shortest;
    _Atomic int bad;
};

static void mark_run(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    struct runs *r = arg;
    const int64_t n = end - begin;
    (void)thread;
    if (begin % r->granule != 0 || n <= 0 || (end != r->total && n % r->granule != 0))
        r->bad++;
    for (int64_t x = r->longest; n > x && !atomic_compare_exchange_weak(&r->longest, &x, n);)
        ;
    for (int64_t x = r->shortest; n < x && !atomic_compare_exchange_weak(&r->shortest, &x, n);)
        ;
    for (int64_t j = begin; j < end; j++)
        r->items[j]++;
}

static void test_guided(void **state)
{
    (void)state;
    static uint32_t items[5000];
    for (int32_t threads = 1; threads <= 4; threads++) {
        struct team *t;
        uint64_t seed = 7;
        assert_int_equal(team_open(threads, &t, &err), 0);
        for (int i = 0; i < 300; i++) {
            struct runs r = {.items = items, .shortest = INT64_MAX};
            r.total = 1 + (int64_t)(random_next(&seed) % 5000);
            r.granule = 1 + (int64_t)(random_next(&seed) % 64);
            memset(items, 0, sizeof items);
            team_guided(t, r.total, r.granule, mark_run, &r);
            for (int64_t j = 0; j < 5000; j++)
                assert_int_equal(items[j], j < r.total);
            assert_int_equal(r.bad, 0);
            if (threads > 1 && r.total >= 100 * r.granule) {
                assert_true(r.longest >= r.total / (2 * threads) / r.granule * r.granule);
                assert_true(r.shortest <= r.granule);
            }
        }
        team_close(t);
    }
}

static void note_thread(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    int64_t *n = arg;
    assert_int_equal(thread, 0);
    assert_int_equal(begin, 0);
    *n += end;
}

static void test_inline(void **state)
{
    (void)state;
    struct team *t;
    int64_t n = 0;
    assert_int_equal(team_open(3, &t, &err), 0);
    team_for(t, 10, 10, note_thread, &n); /* one chunk: the caller alone */
    assert_int_equal(n, 10);
    team_for(t, 0, 1, note_thread, &n);
    team_for(t, -5, 1, note_thread, &n);
    assert_int_equal(n, 10);
    team_close(t);
    assert_int_equal(team_open(1, &t, &err), 0);
    team_for(t, 100, 1, note_thread, &n); /* one thread: all at once */
    assert_int_equal(n, 110);
    team_close(t);
}

static void test_refusals(void **state)
{
    (void)state;
    struct team *t = (struct team *)&err;
    assert_int_equal(team_open(0, &t, &err), LEAT_ERR_USAGE);
    assert_null(t);
    assert_int_equal(team_open(TEAM_MAX + 1, &t, &err), LEAT_ERR_USAGE);
    assert_contains(err.message, "257");
    team_close(NULL);
}

static void check_mask(void *arg, int32_t thread, int32_t threads)
{
    (void)threads;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (thread > 0 && !sigismember(&mask, SIGINT))
        (*(_Atomic int *)arg)++;
}

/* Ctrl-C must reach the program's own thread. */
static void test_signals(void **state)
{
    (void)state;
    struct team *t;
    _Atomic int bad = 0;
    assert_int_equal(team_open(4, &t, &err), 0);
    team_run(t, check_mask, &bad);
    team_close(t);
    assert_int_equal(bad, 0);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* An idle team costs no processor time: over 200 ms of waiting, three workers together use less
 * than a fifth of one processor (they spin 40 us each). */
static void test_idle(void **state)
{
    (void)state;
    struct team *t;
    struct presence p = {0};
    assert_int_equal(team_open(4, &t, &err), 0);
    team_run(t, mark_presence, &p);
    double before = cpu_seconds();
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    double used = cpu_seconds() - before;
    team_run(t, mark_presence, &p); /* and they wake again */
    assert_int_equal(p.seen[3], 2);
    team_close(t);
    if (used > 0.04)
        fail_msg("an idle team used %.3f s of processor time in 0.2 s", used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_for),     cmocka_unit_test(test_run),
        cmocka_unit_test(test_mixed),   cmocka_unit_test(test_guided),
        cmocka_unit_test(test_inline),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_signals), cmocka_unit_test(test_idle),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
