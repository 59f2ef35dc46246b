/* Files: refusals by name and without blocking, exact reads, cursors, and the proof of direct
 * reads. */
#include "scratch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "../../../src/io/file.h"

#define SIZE 300007

static struct leat_error err;
static uint8_t *bytes;

static int setup(void **state)
{
    (void)state;
    scratch_open();
    bytes = scratch_bytes(1, SIZE);
    scratch_write("data", bytes, SIZE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(bytes);
    scratch_close();
    return 0;
}

static void refuse(const char *path, const char *word)
{
    struct file *f = (struct file *)1;

    memset(&err, 0, sizeof err);
    assert_int_equal(file_open(path, &f, &err), LEAT_ERR_FILE);
    assert_null(f);
    if (!strstr(err.message, word))
        fail_msg("'%s' does not say '%s'", err.message, word);
    if (path && *path && !strstr(err.message, path))
        fail_msg("'%s' does not name %s", err.message, path);
}

static void test_refusals(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int s;

    (void)state;
    alarm(20); /* a FIFO without a writer would block an ordinary open for ever */
    refuse("", "empty");
    refuse(NULL, "empty");
    refuse(scratch_path("absent"), "No such file");
    refuse(scratch_dir, "a directory");
    assert_int_equal(mkfifo(scratch_path("fifo"), 0600), 0);
    refuse(scratch_path("fifo"), "a FIFO");
    refuse("/dev/null", "a character device");
    s = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(a.sun_path, scratch_path("socket"), sizeof a.sun_path - 1);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    refuse(scratch_path("socket"), "a socket");
    close(s);
    assert_int_equal(symlink("loop", scratch_path("loop")), 0);
    refuse(scratch_path("loop"), "circle");
    assert_int_equal(symlink("nowhere", scratch_path("dangling")), 0);
    refuse(scratch_path("dangling"), "not there");
    assert_int_equal(file_open(scratch_path("absent"), &(struct file *){NULL}, NULL),
                     LEAT_ERR_FILE);
    alarm(0);
}

static struct file *open_data(const char *name)
{
    struct file *f;

    if (file_open(scratch_path(name), &f, &err))
        fail_msg("%s", err.message);
    return f;
}

static void test_read(void **state)
{
    struct file *f = open_data("data"), *g;
    uint8_t *got = malloc(SIZE);
    uint64_t seed = 3, d1, i1, d2, i2;

    (void)state;
    assert_int_equal(file_size(f), SIZE);
    assert_string_equal(file_path(f), scratch_path("data"));
    for (int k = 0; k < 300; k++) {
        uint64_t at = scratch_random(&seed) % SIZE, n = scratch_random(&seed) % (SIZE - at + 1);
        memset(got, 0, n);
        assert_int_equal(file_read(f, at, got, n, &err), 0);
        assert_memory_equal(got, bytes + at, n);
    }
    assert_int_equal(file_read(f, SIZE, got, 0, &err), 0);
    assert_int_equal(file_read(f, SIZE - 10, got, 11, &err), LEAT_ERR_FILE);
    assert_non_null(strstr(err.message, "wanted 11 bytes at offset 299997, got 10"));
    assert_int_equal(file_read(f, UINT64_MAX - 2, got, 11, &err), LEAT_ERR_FILE);
    assert_int_equal(file_read(f, UINT64_C(1) << 63, got, 1, &err), LEAT_ERR_FILE);

    assert_int_equal(symlink("data", scratch_path("link")), 0);
    g = open_data("link");
    file_identity(f, &d1, &i1);
    file_identity(g, &d2, &i2);
    assert_true(d1 == d2 && i1 == i2);
    file_close(g);
    file_close(f);
    file_close(NULL);
    free(got);
}

static void test_cursor(void **state)
{
    struct file *f = open_data("data");
    uint8_t *got = malloc(SIZE), buf[1000];
    uint64_t seed = 7, taken = 0;

    (void)state;
    for (int round = 0; round < 30; round++) {
        struct file_cursor c;
        uint64_t at = scratch_random(&seed) % 1000, limit = SIZE - scratch_random(&seed) % 1000;
        size_t cap = 1 + scratch_random(&seed) % sizeof buf;

        cursor_open(&c, f, at, limit, buf, cap);
        while (cursor_left(&c)) {
            uint64_t n = scratch_random(&seed) % (round % 2 ? 2500 : 100);
            assert_int_equal(cursor_left(&c), limit - at);
            if (n > cursor_left(&c)) {
                assert_int_equal(cursor_read(&c, got, n, &err), LEAT_ERR_FORMAT);
                assert_int_equal(cursor_skip(&c, n, &err), LEAT_ERR_FORMAT);
                n = cursor_left(&c);
            }
            if (scratch_random(&seed) % 3 == 0) {
                const uint8_t *there = cursor_take(&c, n);
                assert_int_equal(c.offset, there ? at + n : at);
                if (there) {
                    taken++;
                    assert_memory_equal(there, bytes + at, n);
                } else {
                    assert_int_equal(cursor_read(&c, got, n, &err), 0);
                    assert_memory_equal(got, bytes + at, n);
                }
            } else if (scratch_random(&seed) % 3 == 0) {
                assert_int_equal(cursor_skip(&c, n, &err), 0);
            } else {
                assert_int_equal(cursor_read(&c, got, n, &err), 0);
                assert_memory_equal(got, bytes + at, n);
            }
            at += n;
            assert_int_equal(c.offset, at);
        }
        assert_int_equal(cursor_read(&c, got, 1, &err), LEAT_ERR_FORMAT);
        assert_non_null(strstr(err.message, "wanted 1 bytes"));
    }
    assert_true(taken > 100);
    file_close(f);
    free(got);
}

static void test_drop(void **state)
{
    struct file *f = open_data("data");
    uint8_t got[20000];

    (void)state;
    if (!scratch_cache("data", SIZE))
        skip(); /* a file system that lives in memory */
    assert_int_equal(file_read(f, 5000, got, sizeof got, &err), 0);
    assert_int_equal(scratch_cached("data"), 6); /* and no read-ahead around them */
    file_drop_cache(f);
    assert_int_equal(scratch_cached("data"), 0);
    file_close(f);
}

/* What others had cached stays, whatever is read: headers, and both ways for the proof. */
static void test_cached_stays(void **state)
{
    struct file *f = open_data("data");
    uint8_t got[20000];

    (void)state;
    if (!scratch_cache("data", 0))
        skip();
    assert_int_equal(scratch_cached("data"), (SIZE + 4095) / 4096);
    assert_int_equal(file_read(f, 5000, got, sizeof got, &err), 0);
    assert_memory_equal(got, bytes + 5000, sizeof got);
    file_drop_cache(f);
    assert_int_equal(file_set_direct(f, FILE_DIRECT_AUTO, &err), 0);
    assert_int_equal(scratch_cached("data"), (SIZE + 4095) / 4096);
    file_close(f);
    /* And what nobody had cached does not stay. */
    f = open_data("data");
    assert_true(scratch_cache("data", SIZE));
    assert_int_equal(file_set_direct(f, FILE_DIRECT_AUTO, &err), 0);
    assert_int_equal(scratch_cached("data"), 0);
    file_close(f);
}

static void test_direct(void **state)
{
    struct file *f = open_data("data"), *g;

    (void)state;
    assert_int_equal(file_set_direct(f, FILE_DIRECT_OFF, &err), 0);
    assert_false(file_is_direct(f));
    assert_null(file_direct_note(f));
    if (file_set_direct(f, FILE_DIRECT_ON, &err)) {
        assert_non_null(strstr(err.message, "direct reads do not work here"));
        assert_int_equal(file_set_direct(f, FILE_DIRECT_AUTO, &err), 0);
        assert_non_null(file_direct_note(f));
        print_message("no direct reads here: %s\n", file_direct_note(f));
        file_close(f);
        skip();
    }
    assert_true(file_is_direct(f));
    assert_int_equal(file_set_direct(f, FILE_DIRECT_OFF, &err), 0);
    assert_false(file_is_direct(f));
    assert_int_equal(file_set_direct(f, FILE_DIRECT_AUTO, &err), 0);
    assert_true(file_is_direct(f));
    assert_null(file_direct_note(f));
    file_close(f);

    /* The path names another file by now: its bytes must not be taken for ours. */
    f = open_data("data");
    scratch_write("other", bytes, SIZE);
    assert_int_equal(rename(scratch_path("data"), scratch_path("kept")), 0);
    assert_int_equal(rename(scratch_path("other"), scratch_path("data")), 0);
    assert_int_equal(file_set_direct(f, FILE_DIRECT_AUTO, &err), 0);
    assert_false(file_is_direct(f));
    assert_non_null(strstr(file_direct_note(f), "another file"));
    file_close(f);

    /* Files smaller than a block, and empty ones. */
    scratch_write("tiny", bytes, 5);
    scratch_write("empty", bytes, 0);
    f = open_data("tiny");
    g = open_data("empty");
    assert_int_equal(file_set_direct(f, FILE_DIRECT_ON, &err), 0);
    assert_int_equal(file_set_direct(g, FILE_DIRECT_ON, &err), 0);
    file_close(f);
    file_close(g);
}

/* procfs has regular files that refuse O_DIRECT. */
static void test_direct_refused(void **state)
{
    struct file *f;

    (void)state;
    if (file_open("/proc/version", &f, &err))
        skip();
    assert_int_equal(file_set_direct(f, FILE_DIRECT_ON, &err), LEAT_ERR_FILE);
    assert_non_null(strstr(err.message, "/proc/version: direct reads do not work here"));
    assert_int_equal(file_set_direct(f, FILE_DIRECT_AUTO, &err), 0);
    assert_false(file_is_direct(f));
    assert_non_null(strstr(file_direct_note(f), "/proc/version: read buffered"));
    file_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_read),
        cmocka_unit_test(test_cursor),         cmocka_unit_test(test_drop),
        cmocka_unit_test(test_cached_stays),   cmocka_unit_test(test_direct),
        cmocka_unit_test(test_direct_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
