/* What the drive gives to reads of a model's own files, as facts: bytes per second at the best of
 * a few sizes and numbers of reads in flight, direct and buffered. Reads lie at random aligned
 * places and go by lanes into huge-page memory that was touched before, as the weights' own do.
 * What cannot be measured is missing, with the reason: direct reads that are refused, buffered
 * ones of a file that lies in the page cache. Leaves the page cache as it was. Prints nothing.
 * Thread rule: any thread, one probe at a time (two would measure each other). */
#ifndef PLAN_PROBE_DRIVE_H
#define PLAN_PROBE_DRIVE_H

#include <stdint.h>

#define DRIVE_MEMORY_BEST  (UINT64_C(32) << 20) /* more is not used */
#define DRIVE_MEMORY_LEAST (UINT64_C(1) << 20)
#define DRIVE_READ_MOST    (UINT64_C(4) << 30) /* once so many bytes were asked for, it ends */

struct drive_rate {
    double bytes_per_s;  /* the best; only where missing is empty */
    uint64_t read_bytes; /* of one read, with which it came */
    int32_t in_flight;
    char missing[256]; /* why there is no figure; "" = there is one */
};

struct drive_fact {
    struct drive_rate direct, buffered;
    uint64_t read_bytes; /* what the probe read in all */
    double spent_s;
};

/* paths[0..n): files of one model. memory_bytes: what the reads may go to, of which at most
 * DRIVE_MEMORY_BEST are taken; few leave the larger reads out. time_s: about what it takes. */
void probe_drive(const char *const *paths, int32_t n, uint64_t memory_bytes, double time_s,
                 struct drive_fact *out);

#endif
