/* One read from start to end on the calling thread: from the page cache where all of it lies there
 * already, else the aligned window directly, or the wanted bytes buffered with the page cache
 * dropped behind. Owns nothing; knows nothing of queues. Thread rule: any thread, one request by
 * one thread. */
#include <errno.h>
#include <fcntl.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "file_fd.h"
#include "lane_backend.h"
#include "lane_faults.h"

#define EAGAIN_TRIES 1000 /* a millisecond apart */
#define STUCK_TRIES  16   /* reads in a row that bring nothing new */

#ifdef LEAT_FAULTS
ssize_t (*lane_fault_pread)(int fd, void *dst, size_t n, off_t offset, bool direct);
#endif

static ssize_t read_call(int fd, void *dst, uint64_t n, uint64_t offset, bool direct)
{
    if (n > FILE_CALL_MAX)
        n = FILE_CALL_MAX;
#ifdef LEAT_FAULTS
    if (lane_fault_pread)
        return lane_fault_pread(fd, dst, (size_t)n, (off_t)offset, direct);
#endif
    (void)direct;
    return pread(fd, dst, (size_t)n, (off_t)offset);
}

static int fail(struct lane_request *r, enum lane_why why, int errnum, uint64_t got)
{
    r->why = (int32_t)why;
    r->errnum = errnum;
    r->got = got < r->bytes ? got : r->bytes;
    r->code = LEAT_ERR_FILE;
    return r->code;
}

/* True when the call is worth repeating after this error. */
static bool may_retry(int errnum, int *eagain, struct lane_tally *t)
{
    if (errnum == EINTR) {
        t->retries++;
        return true;
    }
    if (errnum == EAGAIN && (*eagain)++ < EAGAIN_TRIES) {
        const struct timespec ms = {.tv_nsec = 1000000};
        t->retries++;
        (void)nanosleep(&ms, NULL);
        return true;
    }
    return false;
}

enum outcome { SERVED, FAILED, REFUSED };

/* REFUSED: EINVAL, with errno's value in r->errnum. */
static enum outcome read_direct(struct lane_request *r, int fd, struct lane_tally *t)
{
    const uint64_t inner = lane_inner(r->offset), start = r->offset - inner;
    const uint64_t need = inner + r->bytes, window = lane_window(r->offset, r->bytes);
    char *dst = r->dst;
    uint64_t pos = 0, best = 0; /* pos is always aligned; best = bytes seen so far */
    int eagain = 0, stuck = 0;

    while (best < need) {
        const int tried = r->tried; /* elsewhere: it ends as if it had been tried here */
        const ssize_t n =
            tried ? -1 : read_call(fd, dst + pos, window - pos, start + pos, true);

        r->tried = 0;
        if (n < 0) {
            const int errnum = tried ? tried : errno;
            if (may_retry(errnum, &eagain, t))
                continue;
            if (errnum == EINVAL) {
                r->errnum = errnum;
                return REFUSED;
            }
            fail(r, LANE_ERRNO, errnum, best > inner ? best - inner : 0);
            return FAILED;
        }
        t->bytes_read += (uint64_t)n;
        if (n == 0 || pos + (uint64_t)n <= best) {
            if (n == 0 && pos == best) {
                fail(r, LANE_EOF, 0, best > inner ? best - inner : 0);
                return FAILED;
            }
            if (start + best >= file_size(r->file) || !file_is_unchanged(r->file)) {
                fail(r, LANE_EOF, 0, best > inner ? best - inner : 0);
                return FAILED;
            }
            if (++stuck > STUCK_TRIES) {
                fail(r, LANE_STUCK, 0, best > inner ? best - inner : 0);
                return FAILED;
            }
        } else {
            best = pos + (uint64_t)n;
            stuck = 0;
        }
        if (best < need)
            t->retries++;
        /* A short read may end anywhere; the next one starts at the block that it ended in. */
        pos = best & ~(FILE_ALIGN - 1);
    }
    return SERVED;
}

bool lane_is_cached(const struct lane_request *r)
{
#ifdef LEAT_FAULTS
    if (lane_fault_pread) /* faults are for the reads that reach a drive */
        return false;
#endif
    return r->bytes > 0 && file_is_direct(r->file) && file_reads_cache(r->file) &&
           file_is_cached(r->file, r->offset, r->bytes);
}

/* False when some of it left the page cache meanwhile. */
static bool read_cached(struct lane_request *r, struct lane_tally *t)
{
    if (file_read_cached(r->file, r->offset, (char *)r->dst + lane_inner(r->offset), r->bytes) <
        r->bytes)
        return false;
    t->bytes_read += r->bytes;
    t->bytes_cached += r->bytes;
    return true;
}

/* Drops [from, to) and the parts of pages at both ends: a neighbour that still wants them reads
 * them again. */
static void drop_behind(int fd, uint64_t from, uint64_t to)
{
#ifdef POSIX_FADV_DONTNEED
    from &= ~(FILE_ALIGN - 1);
    to = (to + FILE_ALIGN - 1) & ~(FILE_ALIGN - 1);
    (void)posix_fadvise(fd, (off_t)from, (off_t)(to - from), POSIX_FADV_DONTNEED);
#else
    (void)fd;
    (void)from;
    (void)to;
#endif
}

static enum outcome read_buffered(struct lane_request *r, struct lane_tally *t)
{
    const int fd = file_fd(r->file);
    char *dst = (char *)r->dst + lane_inner(r->offset);
    uint64_t pos = 0;
    int eagain = 0;

    while (pos < r->bytes) {
        const uint64_t at = r->offset + pos;
        /* Steps end at multiples of their size, so that no page is shared by two of them. */
        uint64_t n = LANE_BUFFERED_STEP - at % LANE_BUFFERED_STEP;
        bool cached; /* before us: not ours to drop */
        ssize_t got;

        if (n > r->bytes - pos)
            n = r->bytes - pos;
        cached = file_is_cached(r->file, at, n);
        got = read_call(fd, dst + pos, n, at, false);
        if (got < 0) {
            const int errnum = errno;
            if (may_retry(errnum, &eagain, t))
                continue;
            fail(r, LANE_ERRNO, errnum, pos);
            return FAILED;
        }
        if (got == 0) {
            fail(r, LANE_EOF, 0, pos);
            return FAILED;
        }
        t->bytes_read += (uint64_t)got;
        if ((uint64_t)got < n)
            t->retries++;
        pos += (uint64_t)got;
        if (cached)
            t->bytes_cached += (uint64_t)got;
        else
            drop_behind(fd, at, r->offset + pos);
    }
    return SERVED;
}

void lane_read(struct lane_request *r, bool cached, struct lane_tally *t)
{
    const int direct = file_direct_fd(r->file);
    enum outcome o = SERVED;

    r->code = 0;
    r->why = LANE_FINE;
    r->errnum = 0;
    r->got = 0;
    if (r->bytes == 0)
        return;
    if (direct >= 0 && !(cached && read_cached(r, t)))
        o = read_direct(r, direct, t);
    if (o == REFUSED && !file_give_up_direct(r->file, r->errnum, r->offset)) {
        fail(r, LANE_ERRNO, r->errnum, 0);
        o = FAILED;
    }
    if (direct < 0 || o == REFUSED)
        o = read_buffered(r, t);
    if (o == SERVED) {
        r->errnum = 0;
        r->got = r->bytes;
    }
    /* Bytes of a file that changed under us belong to no model: better no answer than a wrong one.
     * It also is the better reason when the file became too short. */
    if (!file_is_unchanged(r->file) && (o == SERVED || r->why == LANE_EOF))
        fail(r, LANE_CHANGED, 0, o == SERVED ? r->bytes : r->got);
}
