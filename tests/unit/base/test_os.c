/* Memory and processor limits, read from made-up /proc and cgroup files below a folder of our
 * own; and the mapping functions. What the figures must be is worked out by hand beside each
 * machine. */
#include "unit_base.h"

#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../../src/base/os.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static char root[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st;
    (void)kind;
    (void)f;
    return remove(path);
}

static int root_make(void **state)
{
    (void)state;
    strcpy(root, "/tmp/leat-test-os-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int root_remove(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes root + path, folders included. */
static void put(const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", root, path);
    for (char *c = name + strlen(root) + 1; *c; c++) {
        if (*c == '/') {
            *c = '\0';
            mkdir(name, 0700);
            *c = '/';
        }
    }
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_meminfo(void)
{
    put("/proc/meminfo", "MemTotal:       33554432 kB\nMemFree:         1000 kB\n"
                         "MemAvailable:   10485760 kB\nCached:          900 kB\n");
}

static void assert_room(uint64_t bytes, const char *source)
{
    const char *from = "?";
    uint64_t room = os_memory_available_in(root, &from);
    if (room != bytes)
        fail_msg("%llu bytes of room, not %llu", (unsigned long long)room,
                 (unsigned long long)bytes);
    if (source)
        assert_string_equal(from, source);
    else
        assert_null(from);
}

static void test_nothing(void **state)
{
    (void)state;
    assert_room(OS_UNKNOWN, NULL); /* no /proc at all: unknown, not zero */
    assert_int_equal(os_cpus_in(root), 1);
    put_meminfo();
    assert_room(10 * GIB, "/proc/meminfo"); /* no cgroup files */
}

static void put_v2(const char *group)
{
    char text[256];
    snprintf(text, sizeof text, "0::%s\n", group);
    put_meminfo();
    put("/proc/self/cgroup", text);
    put("/proc/self/mountinfo", "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
                                "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:3 - cgroup2 "
                                "cgroup2 rw,nsdelegate\n");
}

static void test_v2(void **state)
{
    (void)state;
    put_v2("/user.slice/job");
    put("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
    put("/sys/fs/cgroup/user.slice/job/memory.current", "123456\n");
    put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
    assert_room(10 * GIB, "/proc/meminfo"); /* "max" is no limit, and nothing is subtracted */

    /* 4 GiB limit, 3 GiB in use of which 1.5 GiB is page cache: 2.5 GiB. */
    put("/sys/fs/cgroup/user.slice/job/memory.max", "4294967296\n");
    put("/sys/fs/cgroup/user.slice/job/memory.current", "3221225472\n");
    put("/sys/fs/cgroup/user.slice/job/memory.stat",
        "anon 1000\nfile 5\ninactive_file 1073741824\nactive_file 536870912\nslab 7\n");
    assert_room(2560 * MIB, "/sys/fs/cgroup/user.slice/job/memory.max");

    /* An ancestor is tighter: 1 GiB limit, all in use, 256 MiB of it page cache. */
    put("/sys/fs/cgroup/user.slice/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/user.slice/memory.current", "1073741824\n");
    put("/sys/fs/cgroup/user.slice/memory.stat", "inactive_file 268435456\nactive_file 0\n");
    assert_room(256 * MIB, "/sys/fs/cgroup/user.slice/memory.max");

    /* memory.high is where the kernel begins to hold allocations up. */
    put("/sys/fs/cgroup/user.slice/job/memory.high", "1700000000\n"); /* use is 1610612736 */
    assert_room(1700000000 - 1536 * MIB, "/sys/fs/cgroup/user.slice/job/memory.high");

    /* Use over the limit (it was lowered): no room, not 2^64. */
    put("/sys/fs/cgroup/user.slice/memory.max", "1000\n");
    assert_room(0, "/sys/fs/cgroup/user.slice/memory.max");
}

static void test_stall(void **state)
{
    (void)state;
    assert_true(os_memory_stall_us_in(root) == OS_UNKNOWN);
    put("/proc/pressure/memory", "some avg10=1.00 avg60=0.10 avg300=0.00 total=500\n"
                                 "full avg10=0.50 avg60=0.00 avg300=0.00 total=300\n");
    assert_true(os_memory_stall_us_in(root) == 300);
    /* The group's own figure goes before the machine's. */
    put_v2("/job");
    put("/sys/fs/cgroup/job/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
                                              "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
    assert_true(os_memory_stall_us_in(root) == 7);
    /* What is not of the format is not known: "some" alone, no figure, a figure out of range. */
    put("/sys/fs/cgroup/job/memory.pressure", "some avg10=0.00 total=9\nfull avg10=0.00 total=x\n");
    put("/proc/pressure/memory", "full avg10=0.00 total=99999999999999999999999\n");
    assert_true(os_memory_stall_us_in(root) == OS_UNKNOWN);
}

/* In a container with a namespace of its own the path is "/" and the mount is the container's
 * group. */
static void test_v2_container(void **state)
{
    (void)state;
    put_v2("/");
    put("/sys/fs/cgroup/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/memory.current", "1073741824\n");
    assert_room(GIB, "/sys/fs/cgroup/memory.max");
    /* Moved into it from outside: the path leads out of what can be seen. */
    put("/proc/self/cgroup", "0::/../../system.slice/x\n");
    assert_room(GIB, "/sys/fs/cgroup/memory.max");
}

static void test_v1(void **state)
{
    (void)state;
    put_meminfo();
    put("/proc/self/cgroup",
        "12:cpu,cpuacct:/docker/abc\n9:memory:/docker/abc/in\n1:name=systemd:/x\n");
    put("/proc/self/mountinfo",
        "40 30 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "41 30 0:31 /docker/abc /sys/fs/cgroup/my\\040memory ro - cgroup cgroup rw,memory\n"
        "42 30 0:32 / /sys/fs/cgroup/systemd ro - cgroup cgroup rw,xattr,name=systemd\n");
    put("/sys/fs/cgroup/my memory/in/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/my memory/in/memory.usage_in_bytes", "500\n");
    put("/sys/fs/cgroup/my memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_room(10 * GIB, "/proc/meminfo"); /* the huge number is no limit */

    put("/sys/fs/cgroup/my memory/memory.limit_in_bytes", "3221225472\n");
    put("/sys/fs/cgroup/my memory/memory.usage_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/my memory/memory.stat",
        "inactive_file 9\nactive_file 9\ntotal_inactive_file 536870912\ntotal_active_file 1024\n");
    assert_room(1536 * MIB + KIB, "/sys/fs/cgroup/my memory/memory.limit_in_bytes");
}

static void test_cpus(void **state)
{
    (void)state;
    put_v2("/a/b");
    put("/proc/self/status",
        "Name:\tx\nCpus_allowed:\tff,0000000f\nCpus_allowed_list:\t0-3,32-39\n");
    assert_int_equal(os_cpus_in(root), 12);
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_int_equal(os_cpus_in(root), 12);
    put("/sys/fs/cgroup/a/cpu.max", "350000 100000\n"); /* 3.5 processors: 3 */
    assert_int_equal(os_cpus_in(root), 3);
    put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n"); /* half of one: still 1 */
    assert_int_equal(os_cpus_in(root), 1);
}

static void test_cpus_v1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:cpu,cpuacct:/j\n");
    put("/proc/self/mountinfo",
        "40 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
    put("/proc/self/status", "Cpus_allowed:\tff\n");
    put("/sys/fs/cgroup/cpu,cpuacct/j/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/j/cpu.cfs_period_us", "100000\n");
    assert_int_equal(os_cpus_in(root), 8);
    put("/sys/fs/cgroup/cpu,cpuacct/j/cpu.cfs_quota_us", "200000\n");
    assert_int_equal(os_cpus_in(root), 2);
}

/* The real machine: figures that must hold on any. */
static void test_here(void **state)
{
    (void)state;
    const char *source = NULL;
    uint64_t available = os_memory_available(&source);
    assert_true(available != OS_UNKNOWN && available > 0);
    assert_non_null(source);
    assert_true(os_cpus() >= 1);
    assert_true(os_rss() > 100 * KIB && os_rss() <= os_rss_peak());
    assert_true(os_major_faults() != OS_UNKNOWN);

    /* Touched memory shows in the figures. */
    uint64_t before = os_rss();
    char *p = os_map(64 * MIB, false);
    assert_non_null(p);
    memset(p, 1, 64 * MIB);
    assert_true(os_rss() >= before + 60 * MIB);
    assert_true(os_rss_peak() >= before + 60 * MIB);
    os_unmap(p, 64 * MIB);
    assert_true(os_rss() < before + 30 * MIB);
}

static void test_map(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        char *p = os_map(2 * MIB * (uint64_t)(i + 1), true);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (2 * MIB), 0);
        p[0] = p[2 * MIB * (uint64_t)(i + 1) - 1] = 1;
        unsigned char seen[4];
        assert_int_equal(mincore(p + 2 * MIB * (uint64_t)i, 4096, seen), 0);
        os_unmap(p, 2 * MIB * (uint64_t)(i + 1));
    }
    assert_null(os_map(0, false));
    assert_null(os_map(UINT64_MAX & ~(2 * MIB - 1), true));
    assert_null(os_map(UINT64_C(1) << 62, false));
}

#define UNDER_ROOT(f) cmocka_unit_test_setup_teardown(f, root_make, root_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        UNDER_ROOT(test_nothing),    UNDER_ROOT(test_v2),        UNDER_ROOT(test_v2_container),
        UNDER_ROOT(test_v1),         UNDER_ROOT(test_cpus),      UNDER_ROOT(test_cpus_v1),
        UNDER_ROOT(test_stall),
        cmocka_unit_test(test_here), cmocka_unit_test(test_map),
    };
    return cmocka_run_group_tests_name("os", tests, NULL, NULL);
}
