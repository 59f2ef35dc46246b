/* The probe of probe_drive.h. Owns, while it runs, descriptors of its own on the files, lanes and
 * the memory they read into. Every shape (size and number of reads) has a short round; the best
 * of them are read once more for longer, and that figure counts: the best of many short ones
 * would be luck.
 * Thread rule: as the header says. */
#include "probe_drive.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/clock.h"
#include "../base/os.h"
#include "../io/lane.h"

#define IN_FLIGHT_MOST 16
#define FINALS         3   /* shapes of the second round */
#define FIRST_SHARE    0.4 /* of the time, for all shapes together */
#define FINAL_SHARE    0.4 /* for the finals together; the rest is for buffered reads */
#define PLACE_TRIES    16
#define CACHED_MOST    0.01 /* of the bytes: more of them, and the rate is not the drive's */

static const uint64_t sizes[] = {UINT64_C(256) << 10, UINT64_C(1) << 20, UINT64_C(2) << 20};
static const int32_t depths[] = {2, 4, 8, IN_FLIGHT_MOST};
#define SHAPES (sizeof sizes / sizeof *sizes * (sizeof depths / sizeof *depths))

struct shape {
    uint64_t bytes;
    int32_t in_flight;
    double bytes_per_s;
};

struct drive_probe {
    struct file **file;
    int32_t n_files;
    struct lanes *lanes;
    char *memory;
    uint64_t memory_bytes;
    uint64_t random;     /* state of the places' generator */
    uint64_t bytes_left; /* of DRIVE_READ_MOST */
};

static void why_set(struct drive_rate *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void why_set(struct drive_rate *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(r->missing, sizeof r->missing, format, args);
    va_end(args);
}

/* ---- places ---- */

static uint64_t next_random(struct drive_probe *p)
{
    uint64_t z = p->random += UINT64_C(0x9e3779b97f4a7c15); /* SplitMix64, Steele et al. 2014 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A whole aligned read somewhere; files in proportion to their size. False: no file is so long. */
static bool place_choose(struct drive_probe *p, uint64_t bytes, struct lane_request *r)
{
    uint64_t sum = 0, at;
    for (int32_t i = 0; i < p->n_files; i++)
        sum += file_size(p->file[i]) >= bytes ? file_size(p->file[i]) : 0;
    if (sum == 0)
        return false;
    at = next_random(p) % sum;
    for (int32_t i = 0; i < p->n_files; i++) {
        const uint64_t size = file_size(p->file[i]);
        if (size < bytes)
            continue;
        if (at < size) {
            const uint64_t places = (size - bytes) / FILE_ALIGN + 1;
            r->file = p->file[i];
            r->offset = next_random(p) % places * FILE_ALIGN;
            return true;
        }
        at -= size;
    }
    return false;
}

/* ---- one round ---- */

/* Two reads of the same bytes at once would be one from the drive and one from the page cache. */
static bool overlaps(const struct lane_request *r, const struct lane_request *all, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (&all[i] != r && all[i].file == r->file && all[i].offset < r->offset + r->bytes &&
            r->offset < all[i].offset + all[i].bytes)
            return true;
    return false;
}

/* all[0..n): the requests of this round; where the others lie is kept clear, if there is room. */
static void submit(struct drive_probe *p, struct lane_request *r, const struct lane_request *all,
                   int32_t n)
{
    int32_t tries = 0;
    do
        place_choose(p, r->bytes, r);
    while (overlaps(r, all, n) && ++tries < PLACE_TRIES);
    p->bytes_left -= p->bytes_left < r->bytes ? p->bytes_left : r->bytes;
    lanes_submit(p->lanes, r);
}

/* Keeps s->in_flight reads in flight until the time is over, then lets them come in. The rate is
 * of the bytes that came within the time. 0, or the code of a read that failed; its text in e. */
static int round_run(struct drive_probe *p, struct shape *s, double time_s, uint64_t *read_bytes,
                     struct leat_error *e)
{
    struct lane_request request[IN_FLIGHT_MOST] = {0}, *done[IN_FLIGHT_MOST];
    const double start = clock_now();
    double now = start, last = start;
    int32_t flying = 0;
    uint64_t came = 0;
    int code = 0;
    for (; flying < s->in_flight; flying++) {
        struct lane_request *r = &request[flying];
        r->bytes = s->bytes;
        r->dst = p->memory + (uint64_t)flying * s->bytes;
        submit(p, r, request, flying);
    }
    while (flying > 0) {
        const int32_t n = lanes_reap(p->lanes, done, IN_FLIGHT_MOST, true);
        now = clock_now();
        const bool over = now - start >= time_s || p->bytes_left == 0;
        for (int32_t i = 0; i < n; i++) {
            flying--;
            if (done[i]->code < 0 && code == 0)
                code = lane_error(done[i], e);
            /* The tail has fewer and fewer reads in flight: it does not count, unless nothing
             * else came. */
            if (last == start || now - start < time_s) {
                came += done[i]->got;
                last = now;
            }
            *read_bytes += done[i]->got;
            if (!over && code == 0) {
                submit(p, done[i], request, s->in_flight);
                flying++;
            }
        }
    }
    s->bytes_per_s = code == 0 && last > start ? (double)came / (last - start) : 0;
    return code;
}

/* ---- all of them ---- */

static int by_rate(const void *a, const void *b)
{
    const double x = ((const struct shape *)a)->bytes_per_s,
                 y = ((const struct shape *)b)->bytes_per_s;
    return (x < y) - (x > y);
}

static int32_t shapes_list(struct drive_probe *p, struct shape *out)
{
    struct lane_request r;
    int32_t n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof depths / sizeof *depths; k++)
            if (sizes[i] * (uint64_t)depths[k] <= p->memory_bytes && place_choose(p, sizes[i], &r))
                out[n++] = (struct shape){.bytes = sizes[i], .in_flight = depths[k]};
    return n;
}

/* All files read in one way. False: why is in the rate. */
static bool way_set(struct drive_probe *p, enum file_direct mode, struct drive_rate *out)
{
    struct leat_error e = {0};
    for (int32_t i = 0; i < p->n_files; i++)
        if (file_set_direct(p->file[i], mode, &e) < 0) {
            why_set(out, "%s", e.message);
            return false;
        }
    return true;
}

static void rate_set(const struct shape *best, struct drive_rate *out)
{
    out->bytes_per_s = best->bytes_per_s;
    out->read_bytes = best->bytes;
    out->in_flight = best->in_flight;
    if (best->bytes_per_s <= 0)
        why_set(out, "the clock did not move while reads came");
}

/* The shapes, best first, and how many there are. */
static int32_t direct_measure(struct drive_probe *p, struct shape *shape, double time_s,
                              struct drive_fact *out)
{
    struct leat_error e = {0};
    const int32_t n = shapes_list(p, shape);
    const int32_t finals = n < FINALS ? n : FINALS;
    int code = 0;
    if (!way_set(p, FILE_DIRECT_ON, &out->direct))
        return n;
    for (int32_t i = 0; i < n && code == 0; i++)
        code = round_run(p, &shape[i], time_s * FIRST_SHARE / n, &out->read_bytes, &e);
    qsort(shape, (size_t)n, sizeof *shape, by_rate);
    for (int32_t i = 0; i < finals && code == 0; i++)
        code = round_run(p, &shape[i], time_s * FINAL_SHARE / finals, &out->read_bytes, &e);
    qsort(shape, (size_t)finals, sizeof *shape, by_rate);
    if (code < 0)
        why_set(&out->direct, "%s", e.message);
    else
        rate_set(&shape[0], &out->direct);
    return n;
}

/* At the shape that was best for direct reads, or the middle one where there is none: buffered
 * reads are copied piece by piece and differ little. */
static void buffered_measure(struct drive_probe *p, struct shape *shape, double time_s,
                             struct drive_fact *out)
{
    struct lane_stats before, after;
    struct leat_error e = {0};
    uint64_t bytes = 0;
    if (!way_set(p, FILE_DIRECT_OFF, &out->buffered))
        return;
    lanes_get_stats(p->lanes, &before);
    const int code = round_run(p, shape, time_s, &bytes, &e);
    lanes_get_stats(p->lanes, &after);
    out->read_bytes += bytes;
    const uint64_t cached = after.bytes_cached - before.bytes_cached;
    if (code < 0)
        why_set(&out->buffered, "%s", e.message);
    else if ((double)cached > CACHED_MOST * (double)bytes)
        why_set(&out->buffered, "%.0f %% of what was read lies in the page cache",
                100 * (double)cached / (double)bytes);
    else
        rate_set(shape, &out->buffered);
}

static void missing_both(struct drive_fact *out, const char *why)
{
    why_set(&out->direct, "%s", why);
    why_set(&out->buffered, "%s", why);
}

static int open_all(struct drive_probe *p, const char *const *paths, int32_t n,
                    struct leat_error *e)
{
    struct shape any[SHAPES];
    int code = 0;
    p->file = calloc((size_t)n + 1, sizeof(struct file *));
    if (!p->file)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for %d files", (int)n);
    for (; code == 0 && p->n_files < n; p->n_files += code == 0)
        code = file_open(paths[p->n_files], &p->file[p->n_files], e);
    if (code < 0)
        return code;
    if (shapes_list(p, any) == 0)
        return error_set(e, LEAT_ERR_FILE,
                         "no file holds the %llu bytes of the smallest read, or no memory two of "
                         "them",
                         (unsigned long long)sizes[0]);
    if ((code = lanes_open(IN_FLIGHT_MOST, LANE_CHOICE_AUTO, &p->lanes, e)) < 0)
        return code;
    p->memory = os_map(p->memory_bytes, true);
    if (!p->memory)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused %llu bytes to read into",
                         (unsigned long long)p->memory_bytes);
    memset(p->memory, 1, p->memory_bytes); /* pages that come while it reads would be measured */
    return 0;
}

static void close_all(struct drive_probe *p)
{
    lanes_close(p->lanes);
    if (p->memory)
        os_unmap(p->memory, p->memory_bytes);
    for (int32_t i = 0; i < p->n_files; i++)
        file_close(p->file[i]);
    free(p->file);
}

void probe_drive(const char *const *paths, int32_t n, uint64_t memory_bytes, double time_s,
                 struct drive_fact *out)
{
    const double start = clock_now();
    struct drive_probe p = {.random = (uint64_t)(start * 1e9), .bytes_left = DRIVE_READ_MOST};
    struct shape shape[SHAPES];
    struct leat_error e = {0};
    memset(out, 0, sizeof *out);
    p.memory_bytes = memory_bytes < DRIVE_MEMORY_BEST ? memory_bytes : DRIVE_MEMORY_BEST;
    p.memory_bytes &= ~(DRIVE_MEMORY_LEAST - 1);
    if (open_all(&p, paths, n, &e) < 0) {
        missing_both(out, e.message);
    } else {
        const int32_t shapes = direct_measure(&p, shape, time_s, out);
        struct shape *best = &shape[*out->direct.missing ? shapes / 2 : 0];
        buffered_measure(&p, best, time_s * (1 - FIRST_SHARE - FINAL_SHARE), out);
    }
    close_all(&p);
    out->spent_s = clock_now() - start;
}
