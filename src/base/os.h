/* What the operating system knows, asked in one place (os_linux.c; others later). Any thread. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <stdbool.h>
#include <stdint.h>

#define OS_UNKNOWN UINT64_MAX

/* Memory this process may still come to hold: MemAvailable, and limit - use (reclaimable page
 * cache counted as free) of every cgroup ancestor, v1 and v2; the least of them. OS_UNKNOWN when
 * nothing could be read. *source (may be NULL) names the file that set it; lives for ever. */
uint64_t os_memory_available(const char **source);
uint64_t os_rss(void);      /* VmRSS in bytes */
uint64_t os_rss_peak(void); /* VmHWM in bytes */
uint64_t os_major_faults(void);
/* Microseconds since boot in which every runnable task stood still for want of memory: of this
 * process's cgroup (v2) where it says so, else of the machine. Pressure stall information, "full".
 * OS_UNKNOWN when the system does not say. */
uint64_t os_memory_stall_us(void);
int32_t os_cpus(void); /* affinity and cgroup quota (rounded down, at least 1) */
/* AnonHugePages of this process in bytes (smaps_rollup; slow), OS_UNKNOWN if not known. */
uint64_t os_huge_bytes(void);

/* Memory straight from the system: zeroed, bytes a multiple of 4096; huge = 2 MiB aligned and
 * advised as huge pages. NULL when refused. */
void *os_map(uint64_t bytes, bool huge);
void os_unmap(void *p, uint64_t bytes);

/* As os_memory_available and os_cpus, but /proc and /sys are looked for under root ("" = the
 * real ones): for tests and made-up machines. The processor count then takes its affinity from
 * root/proc/self/status. */
uint64_t os_memory_available_in(const char *root, const char **source);
int32_t os_cpus_in(const char *root);
uint64_t os_memory_stall_us_in(const char *root);

/* Sleeps while *word == value; may return early. Wakes up to n sleepers of word. */
void os_word_wait(_Atomic uint32_t *word, uint32_t value);
void os_word_wake(_Atomic uint32_t *word, int32_t n);

#endif
