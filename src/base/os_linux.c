/* Linux: memory figures, processors, mapping, futexes; os_cgroup.c has the cgroup limits.
 * Reads /proc anew at each call and keeps nothing. Any thread. */
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checked.h"
#include "ledger.h"
#include "os_cgroup.h"

/* The figure behind "Key:" in a file of such lines, in bytes (the kernel writes kB). */
static uint64_t figure_read(const char *root, const char *path, const char *key)
{
    char name[4096];
    if ((size_t)snprintf(name, sizeof name, "%s%s", root, path) >= sizeof name)
        return OS_UNKNOWN;
    FILE *f = fopen(name, "re");
    if (!f)
        return OS_UNKNOWN;
    char line[512];
    size_t n = strlen(key);
    uint64_t kib, bytes = OS_UNKNOWN;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            char *end;
            errno = 0;
            kib = strtoull(line + n + 1, &end, 10);
            if (errno != 0 || end == line + n + 1 || !checked_mul(kib, 1024, &bytes))
                bytes = OS_UNKNOWN;
            break;
        }
    }
    fclose(f);
    return bytes;
}

uint64_t os_memory_available_in(const char *root, const char **source)
{
    const char *from = NULL;
    uint64_t least = figure_read(root, "/proc/meminfo", "MemAvailable");
    if (least != OS_UNKNOWN)
        from = "/proc/meminfo";
    const char *file = NULL;
    uint64_t room = cgroup_memory_room(root, &file);
    if (room != OS_UNKNOWN && room < least) {
        least = room;
        from = file;
    }
    if (source)
        *source = from;
    return least;
}

uint64_t os_memory_available(const char **source)
{
    return os_memory_available_in("", source);
}

uint64_t os_rss(void)
{
    return figure_read("", "/proc/self/status", "VmRSS");
}

uint64_t os_rss_peak(void)
{
    return figure_read("", "/proc/self/status", "VmHWM");
}

uint64_t os_huge_bytes(void)
{
    return figure_read("", "/proc/self/smaps_rollup", "AnonHugePages");
}

uint64_t os_major_faults(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_majflt : OS_UNKNOWN;
}

uint64_t os_memory_stall_us_in(const char *root)
{
    const uint64_t own = cgroup_memory_stall_us(root);

    return own != OS_UNKNOWN ? own : cgroup_stall_read(root, "/proc/pressure", "memory");
}

uint64_t os_memory_stall_us(void)
{
    return os_memory_stall_us_in("");
}

/* Processors of the affinity mask, "Cpus_allowed: ff,ffffffff": the bits that are set. */
static int32_t affinity_count(const char *root)
{
    char name[4096];
    if ((size_t)snprintf(name, sizeof name, "%s/proc/self/status", root) >= sizeof name)
        return 0;
    FILE *f = fopen(name, "re");
    if (!f)
        return 0;
    static const char key[] = "Cpus_allowed:";
    char *line = NULL;
    size_t cap = 0;
    int32_t count = 0;
    while (getline(&line, &cap, f) > 0) {
        if (strncmp(line, key, sizeof key - 1) != 0)
            continue;
        for (const char *p = line + sizeof key - 1; *p; p++) {
            int v = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : 0;
            count += __builtin_popcount((unsigned)v);
        }
        break;
    }
    free(line);
    fclose(f);
    return count;
}

int32_t os_cpus_in(const char *root)
{
    int32_t n = affinity_count(root);
    if (n == 0 && *root == '\0') {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        n = online > 0 ? (int32_t)online : 1;
    }
    double quota = cgroup_cpu_quota(root);
    if (quota > 0 && quota < n)
        n = (int32_t)quota;
    return n < 1 ? 1 : n;
}

int32_t os_cpus(void)
{
    return os_cpus_in("");
}

void *os_map(uint64_t bytes, bool huge)
{
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    uint64_t whole = bytes;
    if (bytes == 0 || (huge && !checked_add(bytes, LEDGER_HUGE, &whole)) || whole > SIZE_MAX / 2)
        return NULL;
    char *p = mmap(NULL, (size_t)whole, prot, flags, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (!huge)
        return p;
    /* The system aligns to its small pages only: map more than needed, give back both ends. */
    char *begin = (char *)align_up((uintptr_t)p, LEDGER_HUGE);
    char *end = begin + bytes;
    if (begin > p)
        munmap(p, (size_t)(begin - p));
    if (p + whole > end)
        munmap(end, (size_t)(p + whole - end));
    madvise(begin, (size_t)bytes, MADV_HUGEPAGE); /* advice: without it the memory is only slower */
    return begin;
}

void os_unmap(void *p, uint64_t bytes)
{
    if (p && bytes > 0)
        munmap(p, (size_t)bytes);
}

void os_word_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void os_word_wake(_Atomic uint32_t *word, int32_t n)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}
