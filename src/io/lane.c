/* The lanes' front: picks the back end, forwards to it, and says in words why a read failed. Owns
 * no thread and no memory. Thread rule: that of lane.h. */
#include "lane.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "lane_backend.h"

/* The best back end that works here comes first; reading threads work everywhere. */
static const struct lane_backend *const backends[] = {&lane_threads};

uint64_t lanes_bytes(int32_t lanes)
{
    uint64_t most = 0;

    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (backends[i]->bytes_per_lane > most)
            most = backends[i]->bytes_per_lane;
    return (most + LANE_BUFFERED_STEP) * (uint64_t)(lanes > 0 ? lanes : 0);
}

int lanes_open(int32_t lanes, struct lanes **out, struct leat_error *e)
{
    int rc = LEAT_ERR_UNSUPPORTED;

    *out = NULL;
    if (lanes < 1 || lanes > LANES_MAX)
        return error_set(e, LEAT_ERR_USAGE, "lanes: %d is out of bounds (1 to %d)", (int)lanes,
                         LANES_MAX);
    for (size_t i = 0; i < sizeof backends / sizeof *backends && rc; i++)
        rc = backends[i]->open(lanes, out, e);
    return rc;
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
