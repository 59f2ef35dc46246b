/* Lanes: reads in flight. One contract, two back ends: io_uring, and a pool of reading threads.
 *
 * A request reads the aligned window around [offset, offset + bytes) of a file into memory that has
 * room for the window; the wanted bytes then lie at dst + lane_inner(offset). With FILE_DIRECT_AUTO,
 * what lies in the page cache already is copied from there. Urgent requests go
 * before the others, demand goes before advice; within a kind, first come, first served. Order of
 * completion is free. A file that was changed or cut short since it was opened fails the request.
 * Thread rule: submit, reap, take back from one thread (thread 0 of the compute team); lanes_wake
 * from any thread and from signal handlers. */
#ifndef IO_LANE_H
#define IO_LANE_H

#include "file.h"

#define LANES_MAX 64

struct lane_request {
    struct file *file;
    uint64_t offset, bytes; /* the wanted bytes */
    void *dst;              /* FILE_ALIGN aligned, lane_window() bytes long */
    bool advice;            /* a guess: served only when no demand waits */
    bool urgent;            /* the compute waits for it already: served before all others */
    int32_t group;          /* requests with the same number are of use only together; 0 = alone */
    void *user;             /* the caller's own */
    /* results, valid once reaped */
    int code;                  /* 0, or a negative leat_code */
    double seconds;            /* from start to end of the read */
    uint64_t got;              /* wanted bytes that came before a failure */
    int32_t why, errnum;       /* the lanes' own: what failed, for lane_error() */
    int32_t state, cached;     /* the lanes' own */
    int32_t tried;             /* the lanes' own: errno of a direct read that failed already */
    int32_t ring;              /* the lanes' own: where it is, of thread 0 alone */
    struct lane_request *next; /* the lanes' own while queued */
};

/* Bytes of the aligned window around the wanted bytes, and where they lie inside it. A window that
 * would pass the end of file is read short; the rest of the memory is left alone. */
static inline uint64_t lane_inner(uint64_t offset)
{
    return offset & (FILE_ALIGN - 1);
}
static inline uint64_t lane_window(uint64_t offset, uint64_t bytes)
{
    return (lane_inner(offset) + bytes + FILE_ALIGN - 1) & ~(FILE_ALIGN - 1);
}

struct lane_stats {
    uint64_t reads, bytes_wanted, bytes_read; /* bytes_read counts whole windows */
    uint64_t bytes_cached;                    /* of bytes_read: found in the page cache */
    uint64_t retries;                         /* short, interrupted, EAGAIN */
    double busy_s;                            /* time with at least one read in flight */
    double lane_s; /* of each lane with a read in flight, summed */
    double urgent_s;       /* time with at least one urgent request not served yet */
    uint64_t urgent_bytes; /* bytes of all reads that ended meanwhile */
    int32_t in_flight_peak;
};

struct lanes;
/* What so many lanes hold beside the memory that they read into: stacks, and the page cache that a
 * buffered read causes before it is dropped (a file may turn to buffered reads at any time). */
uint64_t lanes_bytes(int32_t lanes);
enum lane_choice {
    LANE_CHOICE_AUTO, /* io_uring where the system lets us, else threads: lanes_note() says why */
    LANE_CHOICE_URING,
    LANE_CHOICE_THREADS,
};
/* lanes: 1..LANES_MAX. LEAT_ERR_UNSUPPORTED when io_uring was asked for and cannot be had. */
int lanes_open(int32_t lanes, enum lane_choice choice, struct lanes **out, struct leat_error *e);
const char *lanes_backend(const struct lanes *l); /* "io_uring" or "threads" */
/* Why AUTO took threads; NULL otherwise. Lives as long as l. */
const char *lanes_note(const struct lanes *l);
void lanes_close(struct lanes *l); /* waits for reads in flight; queued ones are dropped */
int32_t lanes_count(const struct lanes *l);
/* Never blocks, never fails: a failing read is reported by its request. Urgent requests may be held
 * until the next lanes_reap, so that those that belong together are seen together: call it soon. */
void lanes_submit(struct lanes *l, struct lane_request *r);
/* Serves a request at once, on the calling thread, when all of it lies in the page cache and may be
 * taken from there: true, with its results. False: nothing happened, submit it. For small reads: it
 * copies as long as it takes. */
bool lanes_read_cached(struct lanes *l, struct lane_request *r);
/* Gives finished requests, up to max; wait = true blocks for at least one if any is queued or in
 * flight, or until lanes_wake(). Returns their number. A failed request has code < 0 and its error
 * text from lane_error(). */
int32_t lanes_reap(struct lanes *l, struct lane_request **done, int32_t max, bool wait);
/* Makes a waiting lanes_reap (or the next one that would wait) return at once, with 0 if need be.
 */
void lanes_wake(struct lanes *l);
/* Fills e with the failure of a reaped request: path, offset, wanted and got bytes, errno's text.
 * Returns its code. */
int lane_error(const struct lane_request *r, struct leat_error *e);
/* Takes a queued request back; false when it is already in flight or done (it must then be reaped).
 */
bool lanes_take_back(struct lanes *l, struct lane_request *r);
void lanes_get_stats(const struct lanes *l, struct lane_stats *out);

#endif
