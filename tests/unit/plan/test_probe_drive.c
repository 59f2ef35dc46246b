/* The probe of the drive: a figure or a reason, never both and never neither; shapes that fit the
 * memory; refusals and the page cache are told from a rate. No speed is asserted. */
#include "../io/scratch.h"

#include <errno.h>

#include "../../../src/base/os.h"
#include "../../../src/io/lane_faults.h"
#include "../../../src/plan/probe_drive.h"

#define FILE_BYTES (UINT64_C(12) << 20)

static int64_t direct_calls, buffered_calls;

static ssize_t counted(int fd, void *dst, size_t n, off_t offset, bool direct)
{
    __atomic_add_fetch(direct ? &direct_calls : &buffered_calls, 1, __ATOMIC_RELAXED);
    return pread(fd, dst, n, offset);
}

static ssize_t refused(int fd, void *dst, size_t n, off_t offset, bool direct)
{
    if (!direct)
        return pread(fd, dst, n, offset);
    errno = EINVAL;
    return -1;
}

static ssize_t broken(int fd, void *dst, size_t n, off_t offset, bool direct)
{
    (void)fd, (void)dst, (void)n, (void)offset, (void)direct;
    errno = EIO;
    return -1;
}

static const char *file_make(const char *name, uint64_t bytes)
{
    uint8_t *b = scratch_bytes(1, bytes);
    const char *path = scratch_path(name);
    scratch_write(name, b, bytes);
    free(b);
    return path;
}

static void drop(const char *path)
{
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && fsync(fd) == 0);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void check_rate(const struct drive_rate *r, uint64_t memory)
{
    if (*r->missing) {
        assert_true(r->bytes_per_s == 0 && r->read_bytes == 0 && r->in_flight == 0);
        return;
    }
    assert_true(r->bytes_per_s > 0);
    assert_true(r->in_flight >= 2 && r->in_flight <= 16);
    assert_true(r->read_bytes >= 256 << 10);
    assert_true(r->read_bytes * (uint64_t)r->in_flight <= memory);
}

static void test_rates(void **state)
{
    (void)state;
    const char *paths[2] = {file_make("a", FILE_BYTES), file_make("b", FILE_BYTES / 2)};
    for (uint64_t memory = DRIVE_MEMORY_LEAST; memory <= 4 * DRIVE_MEMORY_BEST; memory *= 8) {
        const uint64_t room = memory < DRIVE_MEMORY_BEST ? memory : DRIVE_MEMORY_BEST;
        struct drive_fact f;
        drop(paths[0]);
        drop(paths[1]);
        direct_calls = buffered_calls = 0;
        lane_fault_pread = counted;
        probe_drive(paths, 2, memory, 0.1, &f);
        lane_fault_pread = NULL;
        check_rate(&f.direct, room);
        check_rate(&f.buffered, room);
        assert_true(f.spent_s > 0);
        assert_true(*f.direct.missing || direct_calls > 0);
        assert_true(buffered_calls > 0);
        /* each call reads a quarter of a MiB or more; a call that is not counted reads nothing */
        assert_true(f.read_bytes >= (*f.direct.missing ? 0 : (uint64_t)direct_calls << 18));
    }
}

static void test_cached_is_not_a_rate(void **state)
{
    (void)state;
    const char *path = file_make("cached", FILE_BYTES);
    struct drive_fact f;
    drop(path);
    const int fd = open(path, O_RDONLY);
    char *b = malloc(FILE_BYTES);
    assert_true(fd >= 0 && b && pread(fd, b, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
    probe_drive(&path, 1, DRIVE_MEMORY_BEST, 0.05, &f);
    free(b);
    close(fd);
    check_rate(&f.buffered, DRIVE_MEMORY_BEST);
    assert_true(f.buffered.bytes_per_s == 0);
    assert_non_null(strstr(f.buffered.missing, "page cache"));
    assert_true(*f.direct.missing || f.direct.bytes_per_s > 0); /* is not read from there */
}

static void test_refused(void **state)
{
    (void)state;
    const char *path = file_make("refused", FILE_BYTES);
    struct drive_fact f;
    drop(path);
    const size_t cached = scratch_cached("refused"); /* dropping is advice */
    lane_fault_pread = refused; /* few and small reads, that find places of their own */
    probe_drive(&path, 1, DRIVE_MEMORY_LEAST, 0.05, &f);
    lane_fault_pread = NULL;
    check_rate(&f.direct, DRIVE_MEMORY_LEAST);
    check_rate(&f.buffered, DRIVE_MEMORY_LEAST);
    assert_true(f.direct.bytes_per_s == 0 && *f.direct.missing);
    assert_true(f.buffered.bytes_per_s > 0 || cached > 0); /* measured all the same */
}

static void test_broken(void **state)
{
    (void)state;
    const char *path = file_make("broken", FILE_BYTES);
    struct drive_fact f;
    lane_fault_pread = broken;
    probe_drive(&path, 1, DRIVE_MEMORY_BEST, 0.05, &f);
    lane_fault_pread = NULL;
    assert_true(f.direct.bytes_per_s == 0 && f.buffered.bytes_per_s == 0);
    assert_non_null(strstr(f.buffered.missing, "broken"));
    assert_true(*f.direct.missing);
}

static void test_nothing_to_measure(void **state)
{
    (void)state;
    const char *small = file_make("small", 100 << 10), *none = scratch_path("none");
    struct drive_fact f;
    probe_drive(&small, 1, DRIVE_MEMORY_BEST, 0.05, &f);
    assert_true(*f.direct.missing && *f.buffered.missing && f.read_bytes == 0);
    probe_drive(&none, 1, DRIVE_MEMORY_BEST, 0.05, &f);
    assert_non_null(strstr(f.direct.missing, "none"));
    assert_true(f.direct.bytes_per_s == 0);
    small = file_make("large", FILE_BYTES);
    probe_drive(&small, 1, 0, 0.05, &f);
    assert_true(*f.direct.missing && *f.buffered.missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_cached_is_not_a_rate),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_nothing_to_measure),
    };
    scratch_open();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close();
    return failed;
}
