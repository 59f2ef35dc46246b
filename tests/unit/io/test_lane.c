/* Lanes: every byte of every window, order of urgency, taking back, waking, and what happens when
 * reads fail. */
#include "scratch.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>

#include "../../../src/io/lane.h"
#include "../../../src/io/lane_faults.h"

#define SIZE UINT64_C(9000011)
#define MEM  (UINT64_C(16) << 20)

static struct leat_error err;
static uint8_t *bytes, *mem;
static struct file *data;

static int setup(void **state)
{
    (void)state;
    scratch_open();
    bytes = scratch_bytes(2, SIZE);
    scratch_write("data", bytes, SIZE);
    mem = mmap(NULL, MEM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mem != MAP_FAILED);
    assert_int_equal(file_open(scratch_path("data"), &data, &err), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    file_close(data);
    munmap(mem, MEM);
    free(bytes);
    scratch_close();
    return 0;
}

static int no_fault(void **state)
{
    (void)state;
    lane_fault_pread = NULL;
    return 0;
}

static enum lane_choice choice; /* the back end under test */

static struct lanes *open_lanes(int32_t n)
{
    struct lanes *l;

    if (lanes_open(n, choice, &l, &err))
        fail_msg("%s", err.message);
    assert_int_equal(lanes_count(l), n);
    return l;
}

static void reap_all(struct lanes *l, int32_t n)
{
    struct lane_request *done[8];

    while (n > 0) {
        int32_t k = lanes_reap(l, done, 8, true);
        assert_true(k >= 0 && k <= n);
        n -= k;
    }
    assert_int_equal(lanes_reap(l, done, 8, true), 0); /* nothing is left: it does not wait */
}

static void check(const struct lane_request *r)
{
    assert_int_equal(r->code, 0);
    assert_memory_equal((uint8_t *)r->dst + lane_inner(r->offset), bytes + r->offset, r->bytes);
}

static void test_bounds(void **state)
{
    struct lanes *l = NULL;

    (void)state;
    assert_int_equal(lanes_open(0, LANE_CHOICE_AUTO, &l, &err), LEAT_ERR_USAGE);
    assert_int_equal(lanes_open(65, LANE_CHOICE_AUTO, &l, &err), LEAT_ERR_USAGE);
    assert_null(l);
    assert_int_equal(lane_window(0, 4096), 4096);
    assert_int_equal(lane_window(1, 4096), 8192);
    assert_int_equal(lane_window(4095, 1), 4096);
    assert_int_equal(lane_window(4095, 2), 8192);
    lanes_close(NULL);
}

static void test_reads(void **state)
{
    static const int32_t counts[] = {1, 2, 5, 16};
    static struct lane_request r[64];

    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        assert_int_equal(file_set_direct(data, direct ? FILE_DIRECT_AUTO : FILE_DIRECT_OFF, &err),
                         0);
        for (int k = 0; k < 4; k++) {
            struct lanes *l = open_lanes(counts[k]);
            struct lane_stats s;
            uint64_t seed = 11, wanted = 0, reads = 0;

            for (int round = 0; round < 6; round++) {
                uint64_t at = 0;
                int32_t n = 0;
                memset(mem, 0xee, MEM);
                while (n < 64) {
                    uint64_t offset = scratch_random(&seed) % SIZE, len;
                    len = scratch_random(&seed) % (round ? 400000 : 5000);
                    if (n == 0) /* the end of the file: padding lies beyond it */
                        offset = SIZE - len;
                    if (offset + len > SIZE)
                        len = SIZE - offset;
                    if (at + lane_window(offset, len) + 4096 > MEM)
                        break;
                    r[n] = (struct lane_request){.file = data,
                                                 .offset = offset,
                                                 .bytes = len,
                                                 .dst = mem + at,
                                                 .advice = n % 3 == 1,
                                                 .urgent = n % 3 == 2};
                    at += lane_window(offset, len) + 4096; /* a guard that must stay as it is */
                    wanted += len;
                    lanes_submit(l, &r[n++]);
                }
                reap_all(l, n);
                reads += (uint64_t)n;
                for (int32_t i = 0; i < n; i++) {
                    const uint8_t *guard =
                        (uint8_t *)r[i].dst + lane_window(r[i].offset, r[i].bytes);
                    check(&r[i]);
                    assert_true(r[i].seconds >= 0);
                    for (int j = 0; j < 4096; j++)
                        assert_int_equal(guard[j], 0xee);
                }
            }
            lanes_get_stats(l, &s);
            assert_int_equal(s.reads, reads);
            assert_int_equal(s.bytes_wanted, wanted);
            assert_true(s.bytes_read >= wanted);
            assert_true(s.busy_s > 0);
            assert_in_range(s.in_flight_peak, 1, counts[k]);
            lanes_close(l);
        }
    }
}

/* ---- the page cache ---- */

#define EACH   UINT64_C(70001)
#define PIECES ((int32_t)(SIZE / EACH))

/* Reads the file through n lanes in pieces, checks every byte, and says how many came from the page
 * cache. */
static uint64_t read_pieces(struct file *f, int32_t n, int32_t *give_back)
{
    static struct lane_request r[PIECES];
    struct lanes *l = open_lanes(n);
    struct lane_stats s;
    int32_t left = PIECES, back = 0;

    memset(mem, 0, MEM);
    for (int32_t i = 0; i < PIECES; i++) {
        r[i] = (struct lane_request){.file = f,
                                     .offset = (uint64_t)i * EACH,
                                     .bytes = EACH,
                                     .dst = mem + (uint64_t)i * (EACH + 8192) / 4096 * 4096,
                                     .urgent = i % 5 == 4};
        lanes_submit(l, &r[i]);
    }
    /* Queued ones may be taken back and given again, also those that wait for their turn to be
     * copied. */
    for (int32_t i = PIECES - 1; give_back && i >= 0; i--) {
        if (!lanes_take_back(l, &r[i]))
            continue;
        back++;
        lanes_submit(l, &r[i]);
    }
    reap_all(l, left);
    for (int32_t i = 0; i < PIECES; i++)
        check(&r[i]);
    lanes_get_stats(l, &s);
    assert_int_equal(s.reads, PIECES);
    assert_int_equal(s.bytes_wanted, PIECES * EACH);
    assert_true(s.bytes_cached <= s.bytes_read);
    if (give_back)
        *give_back += back;
    lanes_close(l);
    return s.bytes_cached;
}

/* With the file cached from byte `from` on, n lanes find `want` bytes there and leave as many pages as there
 * were. The system may take pages away at any time, so one time out of several must be undisturbed. */
static void check_found(int32_t n, uint64_t from, uint64_t want, int32_t *give_back)
{
    const size_t pages = (SIZE + 4095) / 4096 - from / 4096;
    uint64_t got = 0;
    size_t left = 0;

    for (int tries = 0; tries < 20; tries++) {
        assert_true(scratch_cache("data", from));
        got = read_pieces(data, n, give_back);
        left = scratch_cached("data");
        if (got == want && left == pages)
            return;
    }
    fail_msg("%d lanes: %llu bytes of %llu found, %zu pages of %zu left", (int)n,
             (unsigned long long)got, (unsigned long long)want, left, pages);
}

static void test_page_cache(void **state)
{
    static const int32_t counts[] = {1, 3, 16, 64};
    const uint64_t half = SIZE / 2 & ~UINT64_C(4095);
    int32_t back = 0;
    struct lanes *l;
    struct lane_request r = {.file = data, .offset = 12345, .bytes = 5000, .dst = mem};

    (void)state;
    assert_int_equal(file_set_direct(data, FILE_DIRECT_AUTO, &err), 0);
    if (!file_is_direct(data) || !scratch_cache("data", SIZE))
        skip();
    for (int k = 0; k < 4; k++) {
        assert_true(scratch_cache("data", SIZE)); /* nothing is there, and nothing is put there */
        assert_int_equal(read_pieces(data, counts[k], NULL), 0);
        assert_int_equal(scratch_cached("data"), 0);

        /* A piece is taken from there whole, or not at all. */
        check_found(counts[k], half,
                    (uint64_t)(PIECES - (int32_t)((half + EACH - 1) / EACH)) * EACH, &back);
        check_found(counts[k], 0, PIECES * EACH, &back);
        assert_int_equal(file_set_direct(data, FILE_DIRECT_ON, &err), 0); /* that is: always */
        assert_int_equal(read_pieces(data, counts[k], NULL), 0);
        assert_int_equal(file_set_direct(data, FILE_DIRECT_OFF, &err), 0);
        check_found(counts[k], 0, PIECES * EACH, NULL); /* what others had cached stays */
        assert_true(scratch_cache("data", SIZE));
        assert_in_range(read_pieces(data, counts[k], NULL), 0, SIZE / 2);
        assert_in_range(scratch_cached("data"), 0, PIECES); /* pages at seams, at most */
        assert_int_equal(file_set_direct(data, FILE_DIRECT_AUTO, &err), 0);
    }
    assert_true(back > 0);

    /* At once, on the calling thread. */
    l = open_lanes(1);
    assert_true(scratch_cache("data", SIZE));
    assert_false(lanes_read_cached(l, &r));
    assert_true(scratch_cache("data", 0));
    assert_true(lanes_read_cached(l, &r));
    check(&r);
    assert_int_equal(file_set_direct(data, FILE_DIRECT_ON, &err), 0);
    assert_false(lanes_read_cached(l, &r));
    assert_int_equal(file_set_direct(data, FILE_DIRECT_AUTO, &err), 0);
    lanes_close(l);
}

/* ---- faults ---- */

static struct {
    pthread_mutex_t lock;
    sem_t gate, entered;
    bool gated;                    /* every read waits for the gate */
    int calls, errnum, fail_calls; /* the first fail_calls calls fail with errnum */
    bool direct_only;
    uint64_t shorten; /* give at most this many bytes per call */
    off_t order[64];
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t faulty(int fd, void *dst, size_t n, off_t offset, bool direct)
{
    int call;

    pthread_mutex_lock(&fault.lock);
    call = fault.calls++;
    if (call < 64)
        fault.order[call] = offset;
    pthread_mutex_unlock(&fault.lock);
    if (fault.gated) {
        sem_post(&fault.entered);
        while (sem_wait(&fault.gate))
            ;
    }
    if (call < fault.fail_calls && (direct || !fault.direct_only)) {
        errno = fault.errnum;
        return -1;
    }
    if (fault.shorten && n > fault.shorten) {
        /* The system would refuse an unaligned length: read whole and tell less. */
        ssize_t r = pread(fd, dst, n, offset);
        if (r > (ssize_t)fault.shorten) {
            memset((char *)dst + fault.shorten, 0x55, (size_t)r - fault.shorten);
            r = (ssize_t)fault.shorten;
        }
        return r;
    }
    return pread(fd, dst, n, offset);
}

static void set_fault(int errnum, int calls, uint64_t shorten, bool gated)
{
    fault.calls = 0;
    fault.errnum = errnum;
    fault.fail_calls = calls;
    fault.shorten = shorten;
    fault.gated = gated;
    fault.direct_only = false;
    sem_init(&fault.gate, 0, 0);
    sem_init(&fault.entered, 0, 0);
    lane_fault_pread = faulty;
}

static struct lane_request one(struct file *f, uint64_t offset, uint64_t n)
{
    struct lanes *l = open_lanes(2);
    struct lane_request r = {.file = f, .offset = offset, .bytes = n, .dst = mem};
    struct lane_request *done;

    memset(mem, 0, MEM);
    lanes_submit(l, &r);
    assert_int_equal(lanes_reap(l, &done, 1, true), 1);
    assert_ptr_equal(done, &r);
    lanes_close(l);
    return r;
}

static void test_short_and_interrupted(void **state)
{
    static const uint64_t shorts[] = {1000, 4096, 5000, 100001, 262144};

    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct lane_request r;
        assert_int_equal(file_set_direct(data, direct ? FILE_DIRECT_AUTO : FILE_DIRECT_OFF, &err),
                         0);
        for (int i = 0; i < 5; i++) {
            /* Less than a block per call never gets on with aligned reads: an error, not a loop. */
            set_fault(0, 0, shorts[i], false);
            r = one(data, 70003, 1000000);
            if (shorts[i] < 4096 && file_is_direct(data)) {
                assert_int_equal(r.code, LEAT_ERR_FILE);
                assert_int_equal(lane_error(&r, &err), LEAT_ERR_FILE);
                assert_non_null(strstr(err.message, "stop short"));
            } else {
                check(&r);
            }
            assert_true(fault.calls > 3);
        }
        set_fault(EINTR, 20, 0, false);
        r = one(data, 70003, 1000000);
        check(&r);
        set_fault(EAGAIN, 5, 0, false);
        r = one(data, 70003, 1000000);
        check(&r);
        assert_true(fault.calls > 5);
    }
}

static void test_eio(void **state)
{
    struct lane_request r;

    (void)state;
    set_fault(EIO, 1, 0, false);
    r = one(data, 123456, 7890);
    assert_int_equal(lane_error(&r, &err), LEAT_ERR_FILE);
    assert_non_null(strstr(err.message, "storage error"));
    assert_non_null(strstr(err.message, "not a bad download"));
    assert_non_null(strstr(err.message, "7890 bytes at offset 123456"));
    assert_non_null(strstr(err.message, scratch_path("data")));
    assert_non_null(strstr(err.message, strerror(EIO)));
    r = one(data, 123456, 7890); /* the next try works */
    check(&r);
}

static void test_einval(void **state)
{
    struct file *f;
    struct lane_request r;

    (void)state;
    assert_int_equal(file_open(scratch_path("data"), &f, &err), 0);
    if (file_set_direct(f, FILE_DIRECT_ON, &err)) {
        file_close(f);
        skip();
    }
    set_fault(EINVAL, 1, 0, false);
    r = one(f, 5, 100000); /* demanded: an error */
    assert_int_equal(r.code, LEAT_ERR_FILE);
    lane_error(&r, &err);
    assert_non_null(strstr(err.message, strerror(EINVAL)));
    assert_true(file_is_direct(f));
    assert_int_equal(file_set_direct(f, FILE_DIRECT_AUTO, &err), 0);
    set_fault(EINVAL, 1, 0, false);
    r = one(f, 5, 100000); /* wished for: buffered from now on, with the reason */
    check(&r);
    assert_false(file_is_direct(f));
    assert_non_null(strstr(file_direct_note(f), strerror(EINVAL)));
    r = one(f, 300, 100000);
    check(&r);
    file_close(f);
}

static void test_truncated(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct file *f;
        struct lane_request r;

        scratch_write("cut", bytes, 500000);
        assert_int_equal(file_open(scratch_path("cut"), &f, &err), 0);
        assert_int_equal(file_set_direct(f, direct ? FILE_DIRECT_AUTO : FILE_DIRECT_OFF, &err), 0);
        r = one(f, 499000, 1000); /* padding beyond the end is fine */
        check(&r);
        r = one(f, 499000, 1001);
        assert_int_equal(lane_error(&r, &err), LEAT_ERR_FILE);
        assert_non_null(strstr(err.message, "wanted 1001 bytes at offset 499000, got 1000"));
        assert_non_null(strstr(err.message, "cut"));
        r = one(f, 900000, 10);
        lane_error(&r, &err);
        assert_non_null(strstr(err.message, "wanted 10 bytes at offset 900000, got 0"));
        assert_int_equal(truncate(scratch_path("cut"), 400000), 0);
        r = one(f, 399000, 2000);
        assert_int_equal(lane_error(&r, &err), LEAT_ERR_FILE);
        assert_non_null(strstr(err.message, "changed while it was open"));
        assert_non_null(strstr(err.message, "got 1000"));
        r = one(f, 0, 100); /* these bytes are there, but of which file? */
        assert_int_equal(r.code, LEAT_ERR_FILE);
        file_close(f);
    }
}

static void test_order_and_take_back(void **state)
{
    struct lanes *l;
    struct lane_request r[6];
    struct lane_stats s;

    (void)state;
    assert_int_equal(file_set_direct(data, FILE_DIRECT_OFF, &err), 0);
    set_fault(0, 0, 0, true);
    l = open_lanes(1);
    for (int i = 0; i < 6; i++)
        r[i] = (struct lane_request){
            .file = data, .offset = 100000 * (uint64_t)i, .bytes = 10, .dst = mem + 8192 * i};
    r[1].advice = r[2].advice = true;
    r[4].urgent = true;
    lanes_submit(l, &r[0]);
    while (sem_wait(&fault.entered))
        ; /* the one lane is busy with r[0] now */
    for (int i = 1; i < 6; i++)
        lanes_submit(l, &r[i]);
    assert_false(lanes_take_back(l, &r[0])); /* in flight */
    assert_true(lanes_take_back(l, &r[2]));
    assert_false(lanes_take_back(l, &r[2])); /* no longer queued */
    assert_true(lanes_take_back(l, &r[5]));  /* the last of its queue */
    lanes_submit(l, &r[5]);
    for (int i = 0; i < 5; i++)
        sem_post(&fault.gate);
    reap_all(l, 5);
    assert_int_equal(fault.calls, 5);
    assert_int_equal(fault.order[0], 0);
    assert_int_equal(fault.order[1], 400000); /* urgent */
    assert_int_equal(fault.order[2], 300000); /* demand */
    assert_int_equal(fault.order[3], 500000); /* demand, later */
    assert_int_equal(fault.order[4], 100000); /* advice */
    lanes_get_stats(l, &s);
    assert_int_equal(s.reads, 5);
    lanes_close(l);
}

/* Reads nothing, so that the memory and the file need not be there. */
static uint64_t largest_call, called;
static ssize_t pretend(int fd, void *dst, size_t n, off_t offset, bool direct)
{
    (void)fd;
    (void)dst;
    (void)offset;
    if (direct)
        assert_true(((uintptr_t)dst | n | (uint64_t)offset) % 4096 == 0);
    largest_call = n > largest_call ? n : largest_call;
    called += n;
    return (ssize_t)n;
}

static void test_over_2_gib(void **state)
{
    const uint64_t want = (UINT64_C(5) << 30) + 12345, offset = 777;
    void *far =
        mmap(NULL, want + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct file *f;

    (void)state;
    assert_true(far != MAP_FAILED);
    scratch_write("sparse", bytes, 10);
    assert_int_equal(truncate(scratch_path("sparse"), (off_t)(UINT64_C(6) << 30)), 0);
    assert_int_equal(file_open(scratch_path("sparse"), &f, &err), 0);
    for (int direct = 0; direct < 2; direct++) {
        struct lanes *l;
        struct lane_request r = {.file = f, .offset = offset, .bytes = want, .dst = far}, *done;

        assert_int_equal(file_set_direct(f, direct ? FILE_DIRECT_AUTO : FILE_DIRECT_OFF, &err), 0);
        lane_fault_pread = pretend;
        largest_call = called = 0;
        l = open_lanes(1);
        lanes_submit(l, &r);
        assert_int_equal(lanes_reap(l, &done, 1, true), 1);
        lanes_close(l);
        assert_int_equal(r.code, 0);
        assert_true(largest_call < UINT64_C(1) << 31);
        assert_int_equal(called, file_is_direct(f) ? lane_window(offset, want) : want);
    }
    file_close(f);
    munmap(far, want + 8192);
}

static void *wake_when_reading(void *arg)
{
    while (sem_wait(&fault.entered))
        ;
    lanes_wake(arg);
    return NULL;
}

static void test_wake_and_close(void **state)
{
    struct lanes *l;
    struct lane_request r[3], *done;
    pthread_t t;

    (void)state;
    set_fault(0, 0, 0, true);
    l = open_lanes(1);
    for (int i = 0; i < 3; i++) {
        r[i] = (struct lane_request){.file = data, .offset = 5, .bytes = 10, .dst = mem + 8192 * i};
        lanes_submit(l, &r[i]);
    }
    assert_int_equal(pthread_create(&t, NULL, wake_when_reading, l), 0);
    assert_int_equal(lanes_reap(l, &done, 1, true), 0); /* nothing came, but it was woken */
    pthread_join(t, NULL);
    assert_int_equal(lanes_reap(l, &done, 1, false), 0);
    for (int i = 0; i < 3; i++)
        sem_post(&fault.gate);
    lanes_close(l); /* waits for the one in flight, drops the others */
    assert_in_range(fault.calls, 1, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test_teardown(test_reads, no_fault),
        cmocka_unit_test_teardown(test_page_cache, no_fault),
        cmocka_unit_test_teardown(test_short_and_interrupted, no_fault),
        cmocka_unit_test_teardown(test_eio, no_fault),
        cmocka_unit_test_teardown(test_einval, no_fault),
        cmocka_unit_test_teardown(test_truncated, no_fault),
        cmocka_unit_test_teardown(test_order_and_take_back, no_fault),
        cmocka_unit_test_teardown(test_over_2_gib, no_fault),
        cmocka_unit_test_teardown(test_wake_and_close, no_fault),
    };

    struct lanes *l;
    int failed;

    choice = LANE_CHOICE_THREADS;
    failed = cmocka_run_group_tests_name("threads", tests, setup, teardown);
    if (lanes_open(1, LANE_CHOICE_URING, &l, &err)) {
        printf("io_uring skipped: %s\n", err.message);
        return failed;
    }
    lanes_close(l);
    choice = LANE_CHOICE_URING;
    return failed + cmocka_run_group_tests_name("io_uring", tests, setup, teardown);
}
