/* What the program writes: text, JSON objects, errors, tables. Owns standard output and standard
 * error. One thread. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "../base/error.h"

/* ---- standard output ---- */

static int output_errno; /* of the first write that failed */

void output_bytes(const char *bytes, size_t n)
{
    if (output_errno)
        return;
    errno = 0;
    if (fwrite(bytes, 1, n, stdout) != n || fflush(stdout) != 0)
        output_errno = errno ? errno : EIO;
}

bool output_broken(void)
{
    return output_errno != 0;
}

int output_close(int status)
{
    errno = 0;
    if (fflush(stdout) != 0 && !output_errno)
        output_errno = errno ? errno : EIO;
    if (!output_errno)
        return status;
    if (output_errno != EPIPE) /* a reader that went away knows */
        fprintf(stderr, "leat: cannot write to standard output: %s\n", strerror(output_errno));
    return EXIT_FAILED;
}

void output_json(json_t *o)
{
    char *text = json_dumps(o, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    json_decref(o);
    if (!text) {
        fputs("leat: no memory for the JSON object\n", stderr);
        output_errno = ENOMEM;
        return;
    }
    size_t n = strlen(text);
    text[n] = '\n';
    output_bytes(text, n + 1);
    free(text);
}

/* ---- pieces of JSON ---- */

json_t *json_text_of(const char *text)
{
    if (!text)
        return json_null();
    json_t *j = json_string(text);
    if (j)
        return j;
    size_t cap = 4 * strlen(text) + 1;
    char *quoted = malloc(cap);
    j = quoted ? json_string(error_quote(quoted, cap, text, strlen(text))) : json_null();
    free(quoted);
    return j;
}

json_t *json_bytes_of(uint64_t bytes)
{
    return bytes <= INT64_MAX ? json_integer((json_int_t)bytes) : json_null();
}

json_t *json_rate(double n, double seconds)
{
    return n > 0 && seconds > 0 ? json_real(n / seconds) : json_null();
}

static void set_count(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static json_t *rows_json(const struct leat_memory_row *rows, int32_t n, bool held)
{
    json_t *a = json_array();
    for (int32_t i = 0; i < n; i++) {
        json_t *r = json_object();
        json_object_set_new(r, "row", json_string(rows[i].key));
        json_object_set_new(r, "planned_bytes", json_bytes_of(rows[i].planned_bytes));
        if (held) {
            json_object_set_new(r, "held_bytes", json_bytes_of(rows[i].held_bytes));
            json_object_set_new(r, "peak_bytes", json_bytes_of(rows[i].peak_bytes));
        }
        json_array_append_new(a, r);
    }
    return a;
}

json_t *plan_json(const struct leat_plan *p)
{
    json_t *o = json_object();
    json_object_set_new(o, "ceiling_bytes", json_bytes_of(p->ceiling_bytes));
    json_object_set_new(
        o, "ceiling_source",
        json_string(p->ceiling_by_hand ? "asked for" : "three quarters of what is available"));
    json_object_set_new(o, "available_bytes", json_bytes_of(p->available_bytes));
    json_object_set_new(o, "total_bytes", json_bytes_of(p->total_bytes));
    json_object_set_new(o, "smallest_bytes", json_bytes_of(p->smallest_bytes));
    json_object_set_new(o, "context", json_integer(p->context));
    json_object_set_new(o, "context_reason", json_text_of(p->why_context));
    json_object_set_new(o, "width", json_integer(p->width));
    json_object_set_new(o, "width_reason", json_text_of(p->why_width));
    json_object_set_new(o, "dense_bytes", json_bytes_of(p->dense_bytes));
    json_object_set_new(o, "experts_bytes", json_bytes_of(p->experts_bytes));
    json_object_set_new(o, "rows", rows_json(p->row, p->n_rows, false));
    return o;
}

/* ---- errors ---- */

/* The refusal of a budget for people: the sum as a table. */
static void print_refusal(const struct leat_error *e, const struct leat_plan *p)
{
    char a[24], b[24];
    fprintf(stderr,
            "leat: the budget of %s is too small.\nThe smallest sum, with a context of %d and a "
            "width of %d:\n",
            format_bytes(a, sizeof a, p->ceiling_bytes), (int)p->context, (int)p->width);
    for (int32_t i = 0; i < p->n_rows; i++)
        fprintf(stderr, "  %-24s %16" PRIu64 " bytes %12s\n", p->row[i].name,
                p->row[i].planned_bytes, format_bytes(b, sizeof b, p->row[i].planned_bytes));
    fprintf(stderr, "  %-24s %16" PRIu64 " bytes %12s\nGive --memory %" PRIu64 " or more", "sum",
            p->total_bytes, format_bytes(b, sizeof b, p->total_bytes), e->needed_bytes);
    if (p->ceiling_by_hand)
        fputs(".\n", stderr);
    else
        fprintf(stderr, "; %s are available now.\n", format_bytes(b, sizeof b, p->available_bytes));
}

int report_error(const struct options *o, const struct leat_error *e, const struct leat_plan *plan)
{
    const int status = e->code == LEAT_ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    fflush(stdout);
    const bool refused = plan && plan->n_rows > 0 && e->code == LEAT_ERR_MEMORY &&
                         plan->total_bytes > plan->ceiling_bytes;
    if (!o->json) {
        if (refused)
            print_refusal(e, plan);
        else
            fprintf(stderr, "leat: %s\n", e->message);
        return status;
    }
    json_t *in = json_object(), *top = json_object();
    json_object_set_new(in, "code", json_string(leat_code_word(e->code)));
    json_object_set_new(in, "message", json_text_of(e->message));
    if (e->needed_bytes)
        json_object_set_new(in, "needed_bytes", json_bytes_of(e->needed_bytes));
    if (refused)
        json_object_set_new(in, "budget", plan_json(plan));
    json_object_set_new(top, "error", in);
    char *text = json_dumps(top, JSON_PRESERVE_ORDER);
    fprintf(stderr, "%s\n",
            text ? text : "{\"error\": {\"code\": \"memory\", \"message\": \"no memory\"}}");
    free(text);
    json_decref(top);
    return status;
}

/* ---- statistics ---- */

json_t *stats_json(const struct leat_engine *g, const struct leat_stats *s,
                   const struct leat_drive *d, double elapsed_s, double tokens)
{
    const struct leat_facts *f = leat_engine_facts(g);
    const struct leat_plan *p = leat_engine_plan(g);
    struct leat_memory_row rows[LEAT_MEMORY_ROWS];
    const int32_t n = leat_engine_memory(g, rows);
    json_t *o = json_object(), *time = json_object(), *memory = json_object();
    const uint64_t asked = s->expert_hits + s->expert_misses;
    json_object_set_new(o, "load_s", json_real(f->load_s));
    json_object_set_new(time, "total_s", json_real(elapsed_s));
    json_object_set_new(time, "wait_s", json_real(s->wait_s));
    json_object_set_new(time, "compute_s", json_real(s->compute_s));
    json_object_set_new(time, "sample_s", json_real(s->sample_s));
    json_object_set_new(time, "other_s", json_real(stats_other_seconds(s, elapsed_s)));
    json_object_set_new(o, "time", time);
    set_count(o, "passes", s->passes);
    set_count(o, "pass_tokens", s->pass_tokens);
    set_count(o, "reads", s->reads);
    set_count(o, "read_bytes", s->read_bytes);
    set_count(o, "page_cache_read_bytes", s->page_cache_read_bytes);
    json_object_set_new(o, "read_bytes_per_token",
                        tokens > 0 ? json_real((double)s->read_bytes / tokens) : json_null());
    json_object_set_new(o, "read_bytes_per_s", json_rate((double)s->read_bytes, s->read_busy_s));
    json_object_set_new(o, "read_busy_s", json_real(s->read_busy_s));
    json_object_set_new(o, "lanes_in_use",
                        s->read_busy_s > 0 ? json_real(stats_lanes(s)) : json_null());
    json_object_set_new(o, "drive", drive_json(d, s));
    set_count(o, "stream_read_bytes", s->stream_read_bytes);
    set_count(o, "resident_read_bytes", s->resident_read_bytes);
    set_count(o, "expert_read_bytes", s->expert_read_bytes);
    set_count(o, "row_read_bytes", s->row_read_bytes);
    set_count(o, "waits", s->waits);
    set_count(o, "retries", s->retries);
    json_object_set_new(o, "reads_in_flight_peak", json_integer(s->reads_in_flight_peak));
    set_count(o, "expert_hits", s->expert_hits);
    set_count(o, "expert_misses", s->expert_misses);
    set_count(o, "expert_evictions", s->expert_evictions);
    json_object_set_new(o, "expert_hit_share",
                        asked > 0 ? json_real((double)s->expert_hits / (double)asked)
                                  : json_null());
    json_object_set_new(o, "direct_files", json_integer(s->direct_files));
    json_object_set_new(o, "buffered_files", json_integer(s->buffered_files));
    json_object_set_new(o, "direct_note", json_text_of(s->direct_note));
    json_object_set_new(o, "lane_backend", json_string(s->lane_backend));
    json_object_set_new(o, "lane_note", json_text_of(s->lane_note));
    json_object_set_new(o, "urgent_s", json_real(s->urgent_s));
    set_count(o, "urgent_read_bytes", s->urgent_read_bytes);
    json_object_set_new(o, "urgent_read_bytes_per_s",
                        json_rate((double)s->urgent_read_bytes, s->urgent_s));
    json_object_set_new(o, "context", json_integer(f->context));
    json_object_set_new(o, "width", json_integer(f->width));
    json_object_set_new(o, "threads", json_integer(f->threads));
    json_object_set_new(o, "lanes", json_integer(f->lanes));
    json_object_set_new(o, "kv_type", json_string(f->kv_type));
    json_object_set_new(o, "isa", json_string(f->isa));
    json_object_set_new(o, "eviction", json_text_of(f->eviction));
    json_object_set_new(o, "plan", json_text_of(p->summary));
    json_object_set_new(memory, "ceiling_bytes", json_bytes_of(p->ceiling_bytes));
    json_object_set_new(memory, "planned_bytes", json_bytes_of(p->total_bytes));
    json_object_set_new(memory, "smallest_bytes", json_bytes_of(p->smallest_bytes));
    json_object_set_new(memory, "held_bytes", json_bytes_of(s->held_bytes));
    json_object_set_new(memory, "rss_bytes", json_bytes_of(s->rss_bytes));
    json_object_set_new(memory, "rss_peak_bytes", json_bytes_of(s->rss_peak_bytes));
    json_object_set_new(memory, "major_faults", json_bytes_of(s->major_faults));
    json_object_set_new(memory, "huge_asked_bytes", json_bytes_of(s->huge_asked_bytes));
    json_object_set_new(memory, "huge_came_bytes", json_bytes_of(s->huge_came_bytes));
    json_object_set_new(memory, "rows", rows_json(rows, n, true));
    json_object_set_new(o, "memory", memory);
    return o;
}

void rate_print(const char *what, double tokens, double seconds)
{
    if (tokens > 0 && seconds > 0)
        fprintf(stderr, "  %-22s %10.0f tokens in %9.3f s, %10.2f tokens/s\n", what, tokens,
                seconds, tokens / seconds);
    else
        fprintf(stderr, "  %-22s %10.0f tokens, rate not measured\n", what, tokens);
}

static void share_print(const char *what, double seconds, double total)
{
    fprintf(stderr, "    %-20s %27.3f s, %10.1f %%\n", what, seconds,
            total > 0 ? 100 * seconds / total : 0.0);
}

static void bytes_print(const char *what, uint64_t bytes)
{
    char size[24];
    if (bytes == UINT64_MAX)
        fprintf(stderr, "  %-22s not measured\n", what);
    else
        fprintf(stderr, "  %-22s %20" PRIu64 " bytes %17s\n", what, bytes,
                format_bytes(size, sizeof size, bytes));
}

static void memory_print(const struct leat_engine *g, const struct leat_stats *s)
{
    const struct leat_plan *p = leat_engine_plan(g);
    struct leat_memory_row rows[LEAT_MEMORY_ROWS];
    const int32_t n = leat_engine_memory(g, rows);
    char a[24], b[24], c[24];
    uint64_t planned = 0, peak = 0;
    fprintf(stderr, "memory                       planned           held now               peak\n");
    for (int32_t i = 0; i < n; i++) {
        fprintf(stderr, "  %-18s %15s %18s %18s\n", rows[i].name,
                format_bytes(a, sizeof a, rows[i].planned_bytes),
                format_bytes(b, sizeof b, rows[i].held_bytes),
                format_bytes(c, sizeof c, rows[i].peak_bytes));
        planned += rows[i].planned_bytes;
        peak += rows[i].peak_bytes;
    }
    fprintf(stderr, "  %-18s %15s %18s %18s\n", "sum", format_bytes(a, sizeof a, planned),
            format_bytes(b, sizeof b, s->held_bytes), format_bytes(c, sizeof c, peak));
    bytes_print("budget", p->ceiling_bytes);
    bytes_print("peak by the system", s->rss_peak_bytes); /* VmHWM */
    bytes_print("huge pages asked for", s->huge_asked_bytes);
    bytes_print("huge pages that came", s->huge_came_bytes);
    if (s->major_faults == UINT64_MAX)
        fprintf(stderr, "  %-22s not measured\n", "major faults");
    else
        fprintf(stderr, "  %-22s %20" PRIu64 "\n", "major faults", s->major_faults);
}

void stats_print(const struct leat_engine *g, const struct leat_stats *s,
                 const struct leat_drive *d, double elapsed_s, double tokens)
{
    const struct leat_facts *f = leat_engine_facts(g);
    const uint64_t asked = s->expert_hits + s->expert_misses;
    char drive[128];
    fprintf(stderr, "  %-22s %31.3f s\n", "load", f->load_s);
    fprintf(stderr, "  %-22s %31.3f s\n", "run", elapsed_s);
    share_print("waiting for reads", s->wait_s, elapsed_s);
    share_print("computing", s->compute_s, elapsed_s);
    share_print("sampling", s->sample_s, elapsed_s);
    share_print("other", stats_other_seconds(s, elapsed_s), elapsed_s);
    fprintf(stderr, "reading (%s, %d lanes by %s)\n",
            s->buffered_files == 0 ? "direct"
            : s->direct_files == 0 ? "buffered"
                                   : "direct and buffered",
            (int)f->lanes, s->lane_backend);
    if (s->lane_note)
        fprintf(stderr, "  %s\n", s->lane_note);
    bytes_print("read", s->read_bytes);
    if (tokens > 0)
        bytes_print("read per token", (uint64_t)((double)s->read_bytes / tokens));
    if (s->page_cache_read_bytes > 0)
        bytes_print("  found in the page cache", s->page_cache_read_bytes);
    bytes_print("  resident, once", s->resident_read_bytes);
    bytes_print("  streamed", s->stream_read_bytes);
    bytes_print("  experts", s->expert_read_bytes);
    bytes_print("  table rows", s->row_read_bytes);
    fprintf(stderr, "  %-22s %20" PRIu64 ", %" PRIu64 " retried, %" PRIu64 " waited for\n", "reads",
            s->reads, s->retries, s->waits);
    if (s->read_busy_s > 0) {
        fprintf(stderr, "  %-22s %20.1f MB/s while reads were in flight\n", "rate",
                (double)s->read_bytes / s->read_busy_s / 1e6);
        fprintf(stderr, "  %-22s %20.1f of %d, at most %d\n", "lanes in use", stats_lanes(s),
                (int)f->lanes, (int)s->reads_in_flight_peak);
    } else {
        fprintf(stderr, "  %-22s not measured: no read went by a lane\n", "rate, lanes in use");
    }
    if (s->urgent_s > 0)
        fprintf(stderr, "  %-22s %20.1f MB/s while a read was waited for\n", "",
                (double)s->urgent_read_bytes / s->urgent_s / 1e6);
    fprintf(stderr, "  %-10s %s\n", "drive", drive_text(d, s, drive, sizeof drive));
    if (s->direct_note)
        fprintf(stderr, "  %s\n", s->direct_note);
    if (asked > 0)
        fprintf(stderr,
                "  %-22s %20" PRIu64 " hits, %" PRIu64 " misses (%.1f %% hits), %" PRIu64
                " evictions\n",
                "experts", s->expert_hits, s->expert_misses,
                100.0 * (double)s->expert_hits / (double)asked, s->expert_evictions);
    memory_print(g, s);
}
