/* The lanes' front: picks the back end, forwards to it, and says in words why a read failed. Owns
 * no thread and no memory. Thread rule: that of lane.h. */
#include "lane.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lane_backend.h"

static const struct lane_backend *const backends[] = {
#ifdef LEAT_HAVE_URING
    &lane_uring,
#endif
    &lane_threads,
};

uint64_t lanes_bytes(int32_t lanes)
{
    uint64_t most = 0;

    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (backends[i]->bytes_per_lane > most)
            most = backends[i]->bytes_per_lane;
    return (most + LANE_BUFFERED_STEP) * (uint64_t)(lanes > 0 ? lanes : 0);
}

static int uring_open(int32_t lanes, struct lanes **out, struct leat_error *e)
{
#ifdef LEAT_HAVE_URING
    return lane_uring.open(lanes, out, e);
#else
    (void)lanes;
    (void)out;
    return error_set(e, LEAT_ERR_UNSUPPORTED, "this build of Leat has no io_uring");
#endif
}

int lanes_open(int32_t lanes, enum lane_choice choice, struct lanes **out, struct leat_error *e)
{
    struct leat_error why = {0};
    int rc;

    *out = NULL;
    if (lanes < 1 || lanes > LANES_MAX)
        return error_set(e, LEAT_ERR_USAGE, "lanes: %d is out of bounds (1 to %d)", (int)lanes,
                         LANES_MAX);
    if (choice != LANE_CHOICE_THREADS) {
        rc = uring_open(lanes, out, &why);
        if (!rc)
            return 0;
        if (choice == LANE_CHOICE_URING)
            return error_set(e, rc, "%s; --lane-backend auto or threads works without it",
                             why.message);
    }
    rc = lane_threads.open(lanes, out, e);
    if (!rc && choice == LANE_CHOICE_AUTO)
        snprintf((*out)->note, sizeof (*out)->note, "%.150s", why.message);
    return rc;
}

const char *lanes_backend(const struct lanes *l)
{
    return l->ops->name;
}

const char *lanes_note(const struct lanes *l)
{
    return l->note[0] ? l->note : NULL;
}

void lanes_close(struct lanes *l)
{
    if (l)
        l->ops->close(l);
}

int32_t lanes_count(const struct lanes *l)
{
    return l->count;
}

void lanes_submit(struct lanes *l, struct lane_request *r)
{
    assert(((uintptr_t)r->dst & (FILE_ALIGN - 1)) == 0);
    l->ops->submit(l, r);
}

bool lanes_read_cached(struct lanes *l, struct lane_request *r)
{
    assert(((uintptr_t)r->dst & (FILE_ALIGN - 1)) == 0);
    return l->ops->read_cached(l, r);
}

int32_t lanes_reap(struct lanes *l, struct lane_request **done, int32_t max, bool wait)
{
    return l->ops->reap(l, done, max, wait);
}

void lanes_wake(struct lanes *l)
{
    l->ops->wake(l);
}

bool lanes_take_back(struct lanes *l, struct lane_request *r)
{
    return (l->ops->caps & LANE_CAP_TAKE_BACK) && l->ops->take_back(l, r);
}

void lanes_get_stats(const struct lanes *l, struct lane_stats *out)
{
    l->ops->get_stats((struct lanes *)(uintptr_t)l,
                      out); /* counters lie under the back end's lock */
}

int lane_error(const struct lane_request *r, struct leat_error *e)
{
    const unsigned long long offset = r->offset, wanted = r->bytes, got = r->got;
    const char *path = file_path(r->file);
    char q[512];

    error_quote(q, sizeof q, path, strlen(path));
    switch ((enum lane_why)r->why) {
    case LANE_FINE:
        return r->code;
    case LANE_EOF:
        return error_set(
            e, r->code,
            "%s: the file ends too early: wanted %llu bytes at offset %llu, got %llu; is the "
            "download complete?",
            q, wanted, offset, got);
    case LANE_CHANGED:
        return error_set(
            e, r->code,
            "%s: the file was changed while it was open: wanted %llu bytes at offset %llu, got "
            "%llu; start again with a file that nobody writes to",
            q, wanted, offset, got);
    case LANE_STUCK:
        return error_set(
            e, r->code,
            "%s: reads stop short without reaching the end of the file: wanted %llu bytes at "
            "offset %llu, got %llu",
            q, wanted, offset, got);
    case LANE_ERRNO:
        break;
    }
    if (r->errnum == EIO)
        return error_set_errno(
            e, r->code, r->errnum,
            "%s: storage error: the drive failed to read %llu bytes at offset %llu (got "
            "%llu); this is not a bad download, see the system's log",
            q, wanted, offset, got);
    return error_set_errno(e, r->code, r->errnum,
                           "%s: reading %llu bytes at offset %llu failed (got %llu)", q, wanted,
                           offset, got);
}
