/* Dense weights: every byte of every view at many budgets, over several passes, with one or many
 * lanes, direct and buffered; heads left out; rows of tables; cancellation; files cut short;
 * failing drives. */
#include "world.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>

static struct world world;
static struct leat_error err;

static int setup(void **state)
{
    (void)state;
    world_open(&world, true, false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

static int no_fault(void **state)
{
    (void)state;
    lane_fault_pread = NULL;
    return 0;
}

#define MIB (UINT64_C(1) << 20)

static bool direct_works(void)
{
    return file_set_direct(world.files[0].file, FILE_DIRECT_AUTO, &err) == 0 &&
           file_is_direct(world.files[0].file);
}

static void test_walks(void **state)
{
    static const uint64_t residents[] = {
        0, 5000, 300000, 2 * MIB, 9 * MIB, 20 * MIB + 12345, 28 * MIB, UINT64_MAX};
    static const uint64_t rings[] = {0, 7 * MIB, 24 * MIB, 200 * MIB};
    static const int32_t lanes[] = {1, 2, 7, 16};
    uint64_t waits = 0, cached = 0;
    int turn = 0;

    (void)state;
    for (size_t r = 0; r < sizeof residents / sizeof *residents; r++)
        for (size_t s = 0; s < sizeof rings / sizeof *rings; s++)
            for (size_t k = 0; k < 4; k++, turn++) {
                struct weights_stats st;
                struct opened o;
                uint64_t wanted;
                enum file_direct mode = turn % 4 < 2 ? FILE_DIRECT_AUTO : FILE_DIRECT_OFF;

                if ((turn + (int)(r + s)) % 2) /* half of the grid keeps the test short */
                    continue;
                if (mode == FILE_DIRECT_AUTO && turn % 8 < 4 && direct_works())
                    mode = FILE_DIRECT_ON; /* the files lie in the page cache */
                o = world_weights(&world, residents[r], rings[s], 0, lanes[k], mode, NULL);
                for (int pass = 0; pass < 3; pass++)
                    world_walk(&world, &o, true);
                weights_get_stats(o.w, &st);
                wanted = 0;
                for (int32_t i = 0; i < world.model.n_schedule; i++)
                    wanted += world.units[world.schedule[i]].part[0].bytes;
                assert_int_equal(wanted, world.dense_bytes);
                assert_int_equal(st.passes, 3);
                if (residents[r] == UINT64_MAX) {
                    assert_int_equal(st.resident_bytes_read, wanted);
                    assert_int_equal(st.stream_bytes_read, 0);
                    assert_int_equal(st.stream_ring_bytes, 0);
                } else {
                    /* Three passes of what is not resident, and what was read ahead for the fourth.
                     */
                    const uint64_t rest = wanted - st.resident_bytes_read;
                    assert_true(rest > 0);
                    assert_true(st.stream_bytes_read >= 3 * rest &&
                                st.stream_bytes_read <= 4 * rest);
                    assert_true(st.resident_bytes_read <= residents[r]);
                    assert_true(st.stream_ring_bytes > 0);
                    /* The ledger is filled: what is left over is less than padding, a row each, and
                     * the rounding. */
                    if (residents[r] >= 9 * MIB)
                        assert_true(st.resident_bytes + 2 * MIB >= residents[r] &&
                                    st.resident_bytes_read + 15 * 8192 + 13 * 13000 + 2500000 >=
                                        st.resident_bytes);
                }
                waits += st.waits;
                cached += st.lanes.bytes_cached;
                assert_true(mode != FILE_DIRECT_ON || st.lanes.bytes_cached == 0);
                assert_true(st.waits == 0 || st.wait_s > 0);
                opened_close(&o);
            }
    assert_true(waits > 0);
    assert_true(cached > 0 || !direct_works());
}

/* Whole units: at once when all is there, in a view that lives as long as the pass; else as if
 * never asked. */
static void test_whole(void **state)
{
    static const uint64_t residents[] = {0, 9 * MIB, UINT64_MAX};
    const struct pass_need need = {.width = 1, .head = true};
    int whole[3] = {0};

    (void)state;
    for (int k = 0; k < 3; k++)
        for (int pass = 0; pass < 3; pass++) {
            struct opened o = world_weights(&world, residents[k], 9 * MIB, 0, 3,
                                            pass % 2 ? FILE_DIRECT_OFF : FILE_DIRECT_AUTO, NULL);
            struct weights_view v[64];
            struct weights_pass *p;

            while (weights_load(o.w))
                ;
            if (pass)
                world_walk(&world, &o, true); /* all resident rows have arrived */
            assert_int_equal(weights_pass_begin(o.w, &need, &p, &err), 0);
            for (int32_t i = 0; i < world.model.n_schedule; i++) {
                const unit_id u = world.schedule[i];
                const struct part *part = &world.units[u].part[0];
                const int rc = weights_whole(p, u, &v[i], &err);

                assert_in_range(rc, 0, 1);
                if (rc == 0) {
                    v[i].data = NULL;
                    if (pass && residents[k] == UINT64_MAX)
                        fail_msg("unit %d is in memory and was not given", (int)u);
                    assert_int_equal(world_unit(&world, p, u, &err), 0);
                    continue;
                }
                whole[k]++;
                assert_int_equal(v[i].row0, 0);
                assert_int_equal(v[i].rows, part->rows);
                assert_int_equal(v[i].row_bytes, part->row_bytes);
            }
            for (int32_t i = 0; i < world.model.n_schedule; i++)
                if (v[i].data)
                    assert_memory_equal(v[i].data, world_row(&world, world.schedule[i], 0, 0),
                                        (uint64_t)v[i].rows * v[i].row_bytes);
            assert_int_equal(weights_pass_end(p), 0);

            /* Its turn is over then; and out of turn it is an error, as weights_next says. */
            assert_int_equal(weights_pass_begin(o.w, &need, &p, &err), 0);
            if (weights_whole(p, world.schedule[0], &v[0], &err) == 1)
                assert_int_equal(weights_next(p, world.schedule[0], &v[1], &err), LEAT_ERR_STATE);
            else
                assert_int_equal(weights_whole(p, world.schedule[1], &v[1], &err), LEAT_ERR_STATE);
            assert_int_equal(weights_whole(p, world.schedule[0], &v[1], &err), LEAT_ERR_STATE);
            assert_int_equal(weights_pass_end(p), 0);
            world_walk(&world, &o, true);
            opened_close(&o);
        }
    assert_int_equal(whole[0], 0);
    assert_true(whole[1] > 0); /* the small ones */
    assert_true(whole[2] >= 2 * world.model.n_schedule);
}

static void test_head_left_out(void **state)
{
    static const uint64_t rings[] = {0, 300 * MIB};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct opened o = world_weights(&world, 0, rings[k], 0, 3, FILE_DIRECT_AUTO, NULL);
        struct weights_stats st;
        const uint64_t body = world.dense_bytes - world.head_bytes;
        static const bool heads[] = {false, false, true, false, true, true, false};
        uint64_t most = 0;

        for (int i = 0; i < 7; i++) {
            world_walk(&world, &o, heads[i]);
            most += body + (heads[i] ? world.head_bytes : 0);
            weights_get_stats(o.w, &st);
            /* A head that nobody wants is never read: only bodies are read ahead. */
            assert_true(st.stream_bytes_read >= most - (i ? 0 : 0) &&
                        st.stream_bytes_read <= most + body);
        }
        opened_close(&o);
    }
}

static void check_rows(struct opened *o, struct weights_pass *p, unit_id table, const int32_t *ids,
                       int32_t n)
{
    const uint64_t rb = world.units[table].part[0].row_bytes;
    uint8_t *dst = malloc((uint64_t)n * rb + 1);

    (void)o;
    dst[(uint64_t)n * rb] = 0x77;
    if (weights_rows(p, table, ids, n, dst, &err))
        fail_msg("%s", err.message);
    for (int32_t i = 0; i < n; i++)
        assert_memory_equal(dst + (uint64_t)i * rb, world_row(&world, table, 0, ids[i]), rb);
    assert_int_equal(dst[(uint64_t)n * rb], 0x77);
    free(dst);
}

static void test_rows(void **state)
{
    static const uint64_t residents[] = {0, 20 * MIB, UINT64_MAX};

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct opened o =
            world_weights(&world, residents[k], 0, 0, 1 + 3 * k, FILE_DIRECT_AUTO, NULL);
        const struct pass_need need = {.width = 512, .head = true};
        struct weights_stats before, after;
        struct weights_pass *p;
        int32_t ids[512], same[40];
        uint64_t seed = 5;

        for (int pass = 0; pass < 2; pass++) {
            assert_int_equal(weights_pass_begin(o.w, &need, &p, &err), 0);
            for (int i = 0; i < 512; i++)
                ids[i] = (int32_t)(scratch_random(&seed) % 1000);
            check_rows(&o, p, world.table, ids, 512);
            check_rows(&o, p, world.tied, ids, 512);
            ids[0] = 0;
            ids[1] = 3000;
            check_rows(&o, p, world.tied, ids, 2);
            check_rows(&o, p, world.tied, ids, 0);
            weights_get_stats(o.w, &before);
            for (int i = 0; i < 40; i++)
                same[i] = i % 2 ? 7 : 999;
            check_rows(&o, p, world.table, same, 40);
            weights_get_stats(o.w, &after);
            assert_int_equal(after.row_bytes_read - before.row_bytes_read, 2 * 5001);
            ids[0] = 1000;
            assert_int_equal(weights_rows(p, world.table, ids, 1, same, &err), LEAT_ERR_INTERNAL);
            ids[0] = -1;
            assert_int_equal(weights_rows(p, world.table, ids, 1, same, &err), LEAT_ERR_INTERNAL);
            for (int32_t i = 0; i < world.model.n_schedule; i++)
                assert_int_equal(world_unit(&world, p, world.schedule[i], &err), 0);
            if (residents[k] ==
                UINT64_MAX) { /* the tied head is in memory by now: nothing is read */
                weights_get_stats(o.w, &before);
                check_rows(&o, p, world.tied, ids + 2, 500);
                weights_get_stats(o.w, &after);
                assert_int_equal(after.row_bytes_read, before.row_bytes_read);
            }
            assert_int_equal(weights_pass_end(p), 0);
        }
        opened_close(&o);
    }
}

/* Values by the definitions of the three formats. */
static double value_of(const struct vector *v, int32_t i)
{
    const uint8_t *b = world.bytes[v->part.file] + v->part.offset;

    if (v->part.format == FORMAT_F32) {
        float f;
        memcpy(&f, b + 4 * i, 4);
        return (double)f;
    }
    const unsigned h = b[2 * i] | (unsigned)b[2 * i + 1] << 8;
    const double sign = h >> 15 ? -1 : 1;
    const int ebits = v->part.format == FORMAT_F16 ? 5 : 8, mbits = 15 - ebits;
    const int exp = (int)(h >> mbits & ((1u << ebits) - 1)), bias = (1 << (ebits - 1)) - 1;
    const double frac = (double)(h & ((1u << mbits) - 1)) / (1 << mbits);

    if (exp == (1 << ebits) - 1)
        return frac != 0 ? (double)NAN : sign * (double)INFINITY;
    return exp ? sign * ldexp(1 + frac, exp - bias) : sign * ldexp(frac, 1 - bias);
}

static void test_vectors(void **state)
{
    struct opened o = world_weights(&world, 0, 0, 0, 2, FILE_DIRECT_AUTO, NULL);

    (void)state;
    assert_null(weights_vector(o.w, -1));
    for (int32_t k = 0; k < world.model.n_vectors; k++) {
        const float *f = weights_vector(o.w, k);
        for (int32_t i = 0; i < world.vectors[k].part.cols; i++) {
            const float want =
                (float)(value_of(&world.vectors[k], i) + (double)world.vectors[k].add);
            if (isnan(want))
                assert_true(isnan(f[i]));
            else if (f[i] != want)
                fail_msg("vector %d, value %d: %g, not %g", (int)k, (int)i, (double)f[i],
                         (double)want);
        }
    }
    opened_close(&o);
}

static void test_wrong_use(void **state)
{
    struct opened o = world_weights(&world, 0, 0, 0, 2, FILE_DIRECT_AUTO, NULL);
    const struct pass_need need = {.width = 1, .head = false};
    struct weights_pass *p, *q;
    struct weights_view v;

    (void)state;
    assert_int_equal(weights_pass_begin(o.w, &need, &p, &err), 0);
    assert_int_equal(weights_pass_begin(o.w, &need, &q, &err), LEAT_ERR_STATE);
    assert_int_equal(weights_next(p, world.schedule[1], &v, &err), LEAT_ERR_STATE);
    assert_int_equal(weights_next(p, world.schedule[0], &v, &err),
                     LEAT_ERR_STATE); /* it stays broken */
    assert_int_equal(weights_pass_end(p), 0);
    world_walk(&world, &o, true);
    /* A pass that is given up half way without an error. */
    assert_int_equal(weights_pass_begin(o.w, &need, &p, &err), 0);
    assert_int_equal(world_unit(&world, p, world.schedule[0], &err), 0);
    assert_int_equal(weights_next(p, world.schedule[1], &v, &err), 1);
    assert_int_equal(weights_pass_end(p), 0);
    assert_int_equal(weights_pass_end(p), 0);
    for (int i = 0; i < 3; i++)
        world_walk(&world, &o, i != 1);
    opened_close(&o);
}

/* ---- faults ---- */

static struct {
    pthread_mutex_t lock;
    sem_t entered, gate;
    int calls, fail_at, errnum; /* call number fail_at (and later, if so said) fails */
    bool later, gated;
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t faulty(int fd, void *dst, size_t n, off_t offset, bool direct)
{
    int call, errnum = 0;

    (void)direct;
    pthread_mutex_lock(&fault.lock);
    call = fault.calls++;
    if (fault.fail_at >= 0 && (call == fault.fail_at || (fault.later && call > fault.fail_at)))
        errnum = fault.errnum;
    pthread_mutex_unlock(&fault.lock);
    if (fault.gated && n > 65536) { /* rows and vectors pass */
        sem_post(&fault.entered);
        while (sem_wait(&fault.gate))
            ;
    }
    if (errnum) {
        errno = errnum;
        return -1;
    }
    return pread(fd, dst, n, offset);
}

static void set_fault(int errnum, int at, bool later)
{
    fault.calls = 0;
    fault.errnum = errnum;
    fault.fail_at = at;
    fault.later = later;
    fault.gated = false;
    sem_init(&fault.entered, 0, 0);
    sem_init(&fault.gate, 0, 0);
    lane_fault_pread = faulty;
}

static int try_walk(struct opened *o, struct leat_error *e)
{
    const struct pass_need need = {.width = 1, .head = true};
    struct weights_pass *p;
    int rc = weights_pass_begin(o->w, &need, &p, e);

    for (int32_t i = 0; !rc && i < world.model.n_schedule; i++)
        rc = world_unit(&world, p, world.schedule[i], e);
    if (p)
        weights_pass_end(p);
    return rc;
}

static void test_failing_drive(void **state)
{
    static const uint64_t residents[] = {0, 20 * MIB, UINT64_MAX};
    int failures = 0;

    (void)state;
    for (int k = 0; k < 3; k++)
        for (int at = 0; at < 40; at += 3) {
            struct opened o;
            set_fault(EIO, -1, false);
            o = world_weights(&world, residents[k], 9 * MIB, 0, 4, FILE_DIRECT_AUTO, NULL);
            pthread_mutex_lock(&fault.lock);
            fault.fail_at = fault.calls + at;
            pthread_mutex_unlock(&fault.lock);
            for (int pass = 0; pass < 4; pass++) {
                memset(&err, 0, sizeof err);
                if (try_walk(&o, &err)) {
                    assert_int_equal(err.code, LEAT_ERR_FILE);
                    assert_non_null(strstr(err.message, "storage error"));
                    failures++;
                }
            }
            world_walk(&world, &o, true); /* one failure, then all is well again */
            opened_close(&o);
        }
    assert_true(failures >= 20);
}

static void test_retries_and_refusals(void **state)
{
    static const int errnums[] = {EINTR, EAGAIN, EINVAL};

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct opened o;
        struct weights_stats st;

        set_fault(errnums[k], -1, false);
        o = world_weights(&world, 9 * MIB, 9 * MIB, 0, 4, FILE_DIRECT_AUTO, NULL);
        pthread_mutex_lock(&fault.lock);
        fault.fail_at = fault.calls + 2;
        pthread_mutex_unlock(&fault.lock);
        weights_get_stats(o.w, &st);
        for (int i = 0; i < 2; i++)
            if (st.direct_files || errnums[k] != EINVAL)
                world_walk(&world, &o, true);
        if (st.direct_files == WORLD_FILES && errnums[k] == EINVAL) {
            weights_get_stats(o.w, &st);
            assert_int_equal(st.direct_files, WORLD_FILES - 1);
            assert_int_equal(st.buffered_files, 1);
            assert_non_null(strstr(st.direct_note, strerror(EINVAL)));
        }
        opened_close(&o);
    }
}

static void test_truncated(void **state)
{
    struct opened o = world_weights(&world, 9 * MIB, 9 * MIB, 0, 4, FILE_DIRECT_AUTO, NULL);
    const char *path = world.files[2].path;

    (void)state;
    world_walk(&world, &o, true);
    assert_int_equal(truncate(path, 1000000), 0);
    /* What was read ahead before is still right; then the change shows. */
    assert_int_equal(try_walk(&o, &err) || try_walk(&o, &err), 1);
    assert_int_equal(err.code, LEAT_ERR_FILE);
    assert_non_null(strstr(err.message, "changed while it was open"));
    assert_non_null(strstr(err.message, path));
    opened_close(&o);
    world_rewrite(&world, 2); /* the next tests see the whole file */
}

static void *cancel_when_reading(void *arg)
{
    while (sem_wait(&fault.entered))
        ;
    weights_cancel(arg);
    for (int i = 0; i < 100000; i++)
        sem_post(&fault.gate);
    return NULL;
}

static void test_cancel(void **state)
{
    static const uint64_t residents[] = {0, 9 * MIB, UINT64_MAX};
    int cancelled = 0;

    (void)state;
    for (int k = 0; k < 3; k++)
        for (int32_t stop = 0; stop < world.model.n_schedule; stop += 2) {
            struct opened o =
                world_weights(&world, residents[k], 7 * MIB, 0, 3, FILE_DIRECT_AUTO, NULL);
            const struct pass_need need = {.width = 1, .head = true};
            struct weights_pass *p;
            struct weights_view v;
            int32_t id = 5;
            uint8_t row[8192];

            if (stop % 4 == 0)
                world_walk(&world, &o, true);
            assert_int_equal(weights_pass_begin(o.w, &need, &p, &err), 0);
            for (int32_t i = 0; i < stop; i++)
                assert_int_equal(world_unit(&world, p, world.schedule[i], &err), 0);
            if (weights_next(p, world.schedule[stop], &v, &err) ==
                1) { /* in the middle of a unit */
                weights_cancel(o.w);
                assert_int_equal(weights_next(p, world.schedule[stop], &v, &err),
                                 LEAT_ERR_CANCELLED);
                assert_int_equal(weights_rows(p, world.table, &id, 1, row, &err),
                                 LEAT_ERR_CANCELLED);
                cancelled++;
            }
            assert_int_equal(weights_pass_end(p), 0);
            assert_int_equal(weights_pass_begin(o.w, &need, &p, &err), LEAT_ERR_CANCELLED);
            weights_uncancel(o.w);
            world_walk(&world, &o, true);
            world_walk(&world, &o, false);
            opened_close(&o);
        }
    assert_true(cancelled > 10);
}

/* Another thread cancels while this one waits for the drive: for the first load, for the first
 * piece. */
static void test_cancel_while_waiting(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct weights_stats st;
        struct opened o;
        pthread_t t;

        set_fault(0, -1, false);
        fault.gated = true;
        o = world_weights(&world, k % 2 ? UINT64_MAX : 0, 0, 0, k < 2 ? 1 : 5, FILE_DIRECT_AUTO,
                          NULL);
        assert_int_equal(pthread_create(&t, NULL, cancel_when_reading, o.w), 0);
        assert_int_equal(try_walk(&o, &err), LEAT_ERR_CANCELLED);
        pthread_join(t, NULL);
        weights_get_stats(o.w, &st);
        assert_true(st.stream_bytes_read + st.resident_bytes_read < world.dense_bytes);
        weights_uncancel(o.w);
        world_walk(&world, &o, true);
        opened_close(&o);
    }
}

/* Nothing has arrived: weights_whole says so at once and weights_next waits. */
static void test_whole_not_there(void **state)
{
    const struct pass_need need = {.width = 1, .head = true};
    struct weights_pass *p;
    struct weights_view v;
    struct opened o;

    (void)state;
    set_fault(0, -1, false);
    fault.gated = true;
    o = world_weights(&world, UINT64_MAX, 0, 0, 1, FILE_DIRECT_AUTO, NULL);
    assert_int_equal(weights_pass_begin(o.w, &need, &p, &err), 0);
    assert_int_equal(weights_whole(p, world.schedule[0], &v, &err), 0);
    assert_int_equal(weights_whole(p, world.schedule[0], &v, &err), 0);
    for (int i = 0; i < 100000; i++)
        sem_post(&fault.gate);
    assert_int_equal(world_unit(&world, p, world.schedule[0], &err), 0);
    assert_int_equal(weights_pass_end(p), 0);
    opened_close(&o);
}

static void test_smallest(void **state)
{
    struct weights_need need;
    struct ledger *l;
    struct weights *w;
    struct weights_config c = {.model = &world.model, .lanes = 4};
    uint64_t sum;

    (void)state;
    assert_int_equal(weights_need(&world.model, 4, 1, &need, &err), 0);
    sum = need.vectors + need.resident_min + need.stream_min + need.rows + need.lanes;
    c.resident_bytes = need.resident_min;
    c.stream_bytes = need.stream_min;
    assert_int_equal(ledger_open(sum, &l, &err), 0);
    c.ledger = l;
    if (weights_open(&c, &w, &err))
        fail_msg("%s", err.message);
    assert_int_equal(ledger_total(l, DOMAIN_HELD), sum);
    assert_int_equal(ledger_held(l, DOMAIN_HELD, ROW_STREAM), need.stream_min);
    assert_int_equal(ledger_held(l, DOMAIN_HELD, ROW_RESIDENT), need.resident_min);
    world_walk(&world, &(struct opened){l, w}, true);
    weights_close(w);
    /* A byte less is refused, and nothing is left behind. */
    c.stream_bytes--;
    assert_int_equal(weights_open(&c, &w, &err), LEAT_ERR_MEMORY);
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 0);
    c.stream_bytes++;
    assert_int_equal(ledger_set_ceiling(l, DOMAIN_HELD, sum - 1, &err), 0);
    assert_int_equal(weights_open(&c, &w, &err), LEAT_ERR_MEMORY);
    assert_true(err.needed_bytes > 0);
    assert_int_equal(ledger_total(l, DOMAIN_HELD), 0);
    ledger_close(l);
    /* Everything resident: no ring. */
    assert_int_equal(ledger_open(UINT64_MAX, &l, &err), 0);
    c.ledger = l;
    c.resident_bytes = need.resident_all;
    c.stream_bytes = 0;
    assert_int_equal(weights_open(&c, &w, &err), 0);
    assert_int_equal(ledger_held(l, DOMAIN_HELD, ROW_STREAM), 0);
    assert_int_equal(ledger_held(l, DOMAIN_HELD, ROW_RESIDENT), need.resident_all);
    weights_close(w);
    c.resident_bytes--;
    assert_int_equal(weights_open(&c, &w, &err), LEAT_ERR_MEMORY); /* now it must stream */
    c.lanes = 0;
    assert_int_equal(weights_open(&c, &w, &err), LEAT_ERR_USAGE);
    c.lanes = 2;
    c.eviction = "dice";
    assert_int_equal(weights_open(&c, &w, &err), LEAT_ERR_USAGE);
    ledger_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_head_left_out),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_smallest),
        cmocka_unit_test_teardown(test_failing_drive, no_fault),
        cmocka_unit_test_teardown(test_retries_and_refusals, no_fault),
        cmocka_unit_test_teardown(test_truncated, no_fault),
        cmocka_unit_test_teardown(test_whole_not_there, no_fault),
        cmocka_unit_test_teardown(test_cancel, no_fault),
        cmocka_unit_test_teardown(test_cancel_while_waiting, no_fault),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
