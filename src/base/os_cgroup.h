/* Limits that control groups (v1 and v2) put on this process. Linux only; os_linux.c alone uses it.
 * root stands before /proc and the mount points ("" = the real ones). Any thread. */
#ifndef BASE_OS_CGROUP_H
#define BASE_OS_CGROUP_H

#include <stdint.h>

/* limit - use + reclaimable page cache, the least over every ancestor; OS_UNKNOWN when nothing
 * limits. *file: the limit's file, lives for ever. */
uint64_t cgroup_memory_room(const char *root, const char **file);

/* "full ... total=" of memory.pressure of this process's own group of v2, in microseconds; OS_UNKNOWN
 * without one. Format: the kernel's Documentation/accounting/psi. */
uint64_t cgroup_memory_stall_us(const char *root);

/* The same figure out of a file of that format. */
uint64_t cgroup_stall_read(const char *root, const char *dir, const char *name);

/* Processors' worth of time that the tightest ancestor allows; 0 when nothing limits. */
double cgroup_cpu_quota(const char *root);

#endif
