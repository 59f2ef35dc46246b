/* What a back end of the lanes gives: one struct of functions and what it can do. Private to io/.
 * lane.c alone calls these; the thread rule is that of lane.h. */
#ifndef IO_LANE_BACKEND_H
#define IO_LANE_BACKEND_H

#include "lane.h"

/* A buffered read goes in steps of this, each dropped from the page cache before the next. */
#define LANE_BUFFERED_STEP (UINT64_C(256) << 10)

enum lane_caps {
    LANE_CAP_TAKE_BACK = 1 << 0, /* a queued request can be taken back before it starts */
    LANE_CAP_URGENT = 1 << 1,    /* keeps the three orders of urgency apart */
};

struct lane_backend {
    const char *name;
    uint32_t caps;
    uint64_t bytes_per_lane; /* stacks, rings: what the back end holds for one lane */
    int (*open)(int32_t lanes, struct lanes **out, struct leat_error *e);
    void (*close)(struct lanes *l);
    void (*submit)(struct lanes *l, struct lane_request *r);
    bool (*read_cached)(struct lanes *l, struct lane_request *r);
    int32_t (*reap)(struct lanes *l, struct lane_request **done, int32_t max, bool wait);
    void (*wake)(struct lanes *l);
    bool (*take_back)(struct lanes *l, struct lane_request *r);
    void (*get_stats)(struct lanes *l, struct lane_stats *out);
};

/* A back end's own struct starts with this one. */
struct lanes {
    const struct lane_backend *ops;
    int32_t count;
    char note[160]; /* why it is not the back end that would be better; "" = it is */
};

enum lane_why { /* lane_request.why */
                LANE_FINE,
                LANE_ERRNO,   /* errnum says what */
                LANE_EOF,     /* the file ended inside the wanted bytes */
                LANE_CHANGED, /* size or modification time are not those of the opening */
                LANE_STUCK, /* reads kept coming back short without reaching the end of the file */
};

struct lane_tally {
    uint64_t bytes_read, bytes_cached, retries;
};

/* Whether the request may be and can be taken from the page cache. */
bool lane_is_cached(const struct lane_request *r);
/* Serves one request on the calling thread, whole: from the page cache if cached (lane_is_cached
 * said so just now), else window, retries, fall back to buffered. Fills the results but for
 * seconds; t is added to. */
void lane_read(struct lane_request *r, bool cached, struct lane_tally *t);

extern const struct lane_backend lane_threads;
/* Has notify called after each request that these lanes (of lane_threads) have finished, on the
 * thread that read it, with their lock held: it must only wake somebody. Before the first submit. */
void lane_threads_notify(struct lanes *l, void (*notify)(void *arg), void *arg);
#ifdef LEAT_HAVE_URING
extern const struct lane_backend lane_uring;
#endif

#endif
