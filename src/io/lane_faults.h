/* Injected faults, compiled only with -DLEAT_FAULTS (tests): every read system call of the lanes
 * goes through this pointer. Set it while no lanes are open. Private to io/ and its tests. */
#ifndef IO_LANE_FAULTS_H
#define IO_LANE_FAULTS_H

#include <stdbool.h>
#include <sys/types.h>

#ifdef LEAT_FAULTS
/* As pread; direct tells which descriptor it is. NULL = pread itself. */
extern ssize_t (*lane_fault_pread)(int fd, void *dst, size_t n, off_t offset, bool direct);
#endif

#endif
