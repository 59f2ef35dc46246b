/* The account of a run: differences of statistics, the drive's rate beside the probed one, the
 * bar of the time split, and the CSV file with one row per token. Owns that file while it is
 * open; measures nothing but the clock between two tokens. One thread. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "account.h"
#include "../base/clock.h"
#include "../base/error.h"

/* More of the bytes than this from the page cache, and the rate says little of the drive. */
#define CACHED_SHARE 0.01

/* ---- differences ---- */

void stats_add(struct leat_stats *sum, const struct leat_stats *a, const struct leat_stats *z)
{
    struct leat_stats s = *z;
#define ADD(field) s.field = sum->field + (z->field - a->field)
    ADD(passes);
    ADD(pass_tokens);
    ADD(compute_s);
    ADD(wait_s);
    ADD(sample_s);
    ADD(waits);
    ADD(reads);
    ADD(retries);
    ADD(read_bytes);
    ADD(page_cache_read_bytes);
    ADD(wanted_bytes);
    ADD(read_busy_s);
    ADD(read_lane_s);
    ADD(urgent_s);
    ADD(urgent_read_bytes);
    ADD(stream_read_bytes);
    ADD(resident_read_bytes);
    ADD(expert_read_bytes);
    ADD(row_read_bytes);
    ADD(expert_hits);
    ADD(expert_misses);
    ADD(expert_evictions);
    ADD(expert_hit_bytes);
    ADD(expert_miss_bytes);
    if (a->major_faults != UINT64_MAX && z->major_faults != UINT64_MAX)
        ADD(major_faults);
#undef ADD
    *sum = s;
}

double stats_other_seconds(const struct leat_stats *s, double elapsed_s)
{
    const double rest = elapsed_s - s->compute_s - s->wait_s - s->sample_s;
    return rest > 0 ? rest : 0;
}

double stats_lanes(const struct leat_stats *s)
{
    return s->read_busy_s > 0 ? s->read_lane_s / s->read_busy_s : 0;
}

/* ---- the drive ---- */

double stats_drive_rate(const struct leat_stats *s, const char **why)
{
    *why = NULL;
    if (s->read_bytes == 0 || s->read_busy_s <= 0)
        *why = "nothing was read";
    else if ((double)s->page_cache_read_bytes > CACHED_SHARE * (double)s->read_bytes)
        *why = "page cache";
    return *why ? 0 : (double)s->read_bytes / s->read_busy_s;
}

double stats_urgent_rate(const struct leat_stats *s)
{
    return s->urgent_s > 0 ? (double)s->urgent_read_bytes / s->urgent_s : 0;
}

const struct leat_drive_rate *drive_probed(const struct leat_drive *d, const struct leat_stats *s)
{
    return s->buffered_files == 0 ? &d->direct : &d->buffered;
}

const char *drive_text(const struct leat_drive *d, const struct leat_stats *s, char *dst,
                       size_t cap)
{
    const char *why;
    const double reached = stats_drive_rate(s, &why);
    const double probed = d ? drive_probed(d, s)->bytes_per_s : 0;
    char first[48] = "probe not measured", second[64];
    if (probed > 0)
        snprintf(first, sizeof first, "%.2f GB/s probed", probed / 1e9);
    snprintf(second, sizeof second, "reached not measured (%s)", why ? why : "");
    if (reached > 0)
        snprintf(second, sizeof second, "%.2f GB/s reached", reached / 1e9);
    const int n = snprintf(dst, cap, "%s, %s", first, second);
    if (probed > 0 && reached > 0 && n > 0 && (size_t)n < cap)
        snprintf(dst + n, cap - (size_t)n, " (%.0f %%)", 100 * reached / probed);
    return dst;
}

static json_t *real_or_null(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static json_t *rate_json(const struct leat_drive_rate *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "bytes_per_s", real_or_null(r->bytes_per_s));
    json_object_set_new(o, "read_bytes",
                        r->bytes_per_s > 0 ? json_bytes_of(r->read_bytes) : json_null());
    json_object_set_new(o, "in_flight",
                        r->bytes_per_s > 0 ? json_integer(r->in_flight) : json_null());
    json_object_set_new(o, "not_measured", json_text_of(*r->missing ? r->missing : NULL));
    return o;
}

json_t *drive_json(const struct leat_drive *d, const struct leat_stats *s)
{
    const char *why;
    const double reached = stats_drive_rate(s, &why);
    const double probed = d ? drive_probed(d, s)->bytes_per_s : 0;
    const double urgent = why ? 0 : stats_urgent_rate(s);
    json_t *o = json_object();
    json_object_set_new(o, "probed_bytes_per_s", real_or_null(probed));
    json_object_set_new(o, "reached_bytes_per_s", real_or_null(reached));
    json_object_set_new(o, "reached_share",
                        probed > 0 ? real_or_null(reached / probed) : json_null());
    json_object_set_new(o, "reached_not_measured", json_text_of(why));
    json_object_set_new(o, "urgent_bytes_per_s", real_or_null(urgent));
    json_object_set_new(o, "urgent_share",
                        probed > 0 ? real_or_null(urgent / probed) : json_null());
    json_object_set_new(o, "probe_direct", d ? rate_json(&d->direct) : json_null());
    json_object_set_new(o, "probe_buffered", d ? rate_json(&d->buffered) : json_null());
    return o;
}

/* ---- the time split ---- */

void time_bar(char *dst, size_t cap, const struct leat_stats *s, double elapsed_s, int columns)
{
    const double part[] = {s->compute_s, s->wait_s, s->sample_s};
    static const char sign[] = "#=s";
    double sum = 0;
    int at = 0;
    if (cap == 0)
        return;
    if (columns > (int)cap - 1)
        columns = (int)cap - 1;
    for (int i = 0; i < 3 && elapsed_s > 0; i++) {
        sum += part[i]; /* ends are rounded, not lengths: they cannot add up to too much */
        for (; at < columns && at + 0.5 < sum / elapsed_s * columns; at++)
            dst[at] = sign[i];
    }
    for (; at < columns; at++)
        dst[at] = elapsed_s > 0 ? '.' : '?';
    dst[at] = '\0';
}

/* ---- one row per token ---- */

static const char csv_head[] =
    "measure,run,token,id,evaluated_tokens,total_s,compute_s,wait_s,sample_s,other_s,reads,"
    "read_bytes,page_cache_read_bytes,stream_read_bytes,resident_read_bytes,expert_read_bytes,"
    "row_read_bytes,read_busy_s,lanes_in_use,read_bytes_per_s,expert_hits,expert_misses,"
    "expert_evictions,major_faults,held_bytes,rss_bytes\n";

int account_csv_open(struct account_csv *c, const char *path, struct leat_error *e)
{
    memset(c, 0, sizeof *c);
    int code = result_file_open(&c->file, path, "--csv", "CSV file", e);
    if (code == 0)
        (void)result_file_write(&c->file, csv_head, sizeof csv_head - 1);
    return code;
}

void account_csv_begin(struct account_csv *c, const struct leat_engine *g, int32_t measure,
                       int32_t run)
{
    if (!c->file.file)
        return;
    c->engine = g;
    c->measure = measure;
    c->run = run;
    c->token = 0;
    leat_engine_stats(g, 0, &c->last);
    c->last_s = clock_now();
}

struct line {
    char text[1024];
    size_t n;
};

static void put(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(l->text + l->n, sizeof l->text - l->n, format, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof l->text - l->n)
        l->n += (size_t)n;
}

static void put_count(struct line *l, uint64_t n) /* an empty field where it is not known */
{
    if (n == UINT64_MAX)
        put(l, ",");
    else
        put(l, ",%" PRIu64, n);
}

static void put_measured(struct line *l, double x)
{
    if (x > 0)
        put(l, ",%.6g", x);
    else
        put(l, ",");
}

bool account_csv_token(struct account_csv *c, int32_t id)
{
    struct leat_stats now, s = {0};
    struct line l = {.n = 0};
    const char *why;
    if (!c->file.file)
        return true;
    leat_engine_stats(c->engine, 0, &now);
    stats_add(&s, &c->last, &now);
    const double at = clock_now(), total = at - c->last_s;
    put(&l, "%d,%d,%d,%d,%" PRIu64 ",%.9f,%.9f,%.9f,%.9f,%.9f", (int)c->measure, (int)c->run,
        (int)c->token, (int)id, s.pass_tokens, total, s.compute_s, s.wait_s, s.sample_s,
        stats_other_seconds(&s, total));
    put_count(&l, s.reads);
    put_count(&l, s.read_bytes);
    put_count(&l, s.page_cache_read_bytes);
    put_count(&l, s.stream_read_bytes);
    put_count(&l, s.resident_read_bytes);
    put_count(&l, s.expert_read_bytes);
    put_count(&l, s.row_read_bytes);
    put(&l, ",%.9f", s.read_busy_s);
    put_measured(&l, stats_lanes(&s));
    put_measured(&l, stats_drive_rate(&s, &why));
    put_count(&l, s.expert_hits);
    put_count(&l, s.expert_misses);
    put_count(&l, s.expert_evictions);
    put_count(&l, s.major_faults);
    put_count(&l, s.held_bytes);
    put_count(&l, s.rss_bytes);
    put(&l, "\n");
    c->last = now;
    c->last_s = at;
    c->token++;
    c->rows++;
    return result_file_write(&c->file, l.text, l.n);
}

int account_csv_close(struct account_csv *c, int code, struct leat_error *e)
{
    const bool whole = code >= 0 || c->rows > 0;
    /* Why the run failed says more than that its file is not whole either. */
    if (code < 0 && code != LEAT_ERR_CANCELLED) {
        (void)result_file_close(&c->file, whole, code, NULL);
        return code;
    }
    return result_file_close(&c->file, whole, code, e);
}
