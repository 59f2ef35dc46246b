/* The tables and objects of leat bench. Computes shares from what was measured, measures nothing.
 * One thread. */
#include <stdarg.h>
#include <stdio.h>

#include "account.h"
#include "bench_report.h"
#include "../base/error.h"

static void line(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void line(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n > 0)
        output_bytes(text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

double bench_median(const struct bench_test *t)
{
    const int32_t n = t->runs;
    return n < 1 ? 0 : n % 2 ? t->rate[n / 2] : (t->rate[n / 2 - 1] + t->rate[n / 2]) / 2;
}

uint64_t bench_token_bytes(const struct leat_work *w)
{
    return w->dense_bytes + w->expert_bytes + w->row_bytes + w->kv_bytes;
}

/* "42 %", or "-" where a limit was not measured. */
static const char *percent(char *dst, size_t cap, double x, double limit)
{
    if (limit > 0)
        snprintf(dst, cap, "%.0f %%", 100 * x / limit);
    else
        snprintf(dst, cap, "-");
    return dst;
}

static json_t *share(double x, double limit)
{
    return limit > 0 ? json_real(x / limit) : json_null();
}

static json_t *measured(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

/* ---- limits ---- */

static void limits_print(const struct leat_limits *l)
{
    line("%d thread%s, %s kernels. Limits of this machine, measured now:\n", (int)l->threads,
         l->threads == 1 ? "" : "s", l->isa);
    if (l->read_bytes_per_s > 0)
        line("  reads from memory %8.2f GB/s, by one thread %.2f\n", l->read_bytes_per_s / 1e9,
             l->read_1_bytes_per_s / 1e9);
    else
        line("  reads from memory not measured: the budget leaves less than eight caches\n");
    if (l->int8_form)
        line("  int8 products     %8.1f GMAC/s (%s)\n", l->int8_macs_per_s / 1e9, l->int8_form);
    if (l->float_form)
        line("  float products    %8.1f GMAC/s (%s)\n", l->float_macs_per_s / 1e9, l->float_form);
}

static json_t *limits_json(const struct leat_limits *l)
{
    json_t *o = json_object();
    json_object_set_new(o, "threads", json_integer(l->threads));
    json_object_set_new(o, "isa", json_text_of(l->isa));
    json_object_set_new(o, "read_bytes_per_s", measured(l->read_bytes_per_s));
    json_object_set_new(o, "read_1_thread_bytes_per_s", measured(l->read_1_bytes_per_s));
    json_object_set_new(o, "int8_macs_per_s", measured(l->int8_macs_per_s));
    json_object_set_new(o, "int8_1_thread_macs_per_s", measured(l->int8_1_macs_per_s));
    json_object_set_new(o, "int8_form", json_text_of(l->int8_form));
    json_object_set_new(o, "float_macs_per_s", measured(l->float_macs_per_s));
    json_object_set_new(o, "float_1_thread_macs_per_s", measured(l->float_1_macs_per_s));
    json_object_set_new(o, "float_form", json_text_of(l->float_form));
    return o;
}

/* ---- a model ---- */

static void prompts_print(const struct leat_limits *l, const struct bench_test *tests, int32_t n)
{
    bool head = false;
    for (int32_t i = 0; i < n; i++) {
        const struct bench_test *t = &tests[i];
        char part[16];
        if (t->kind != BENCH_PROMPT)
            continue;
        if (!head)
            line("\n%7s %8s %10s %23s %11s %13s\n", "prompt", "depth", "tokens/s", "least .. most",
                 "GMAC/s", "of int8 peak");
        head = true;
        const double macs = t->macs * bench_median(t) / t->tokens;
        line("%7d %8d %10.2f %10.2f .. %9.2f %11.2f %13s\n", (int)t->tokens, (int)t->depth,
             bench_median(t), t->rate[0], t->rate[t->runs - 1], macs / 1e9,
             percent(part, sizeof part, macs, l->int8_macs_per_s));
    }
}

static void decodes_print(const struct leat_limits *l, const struct bench_test *tests, int32_t n)
{
    bool head = false;
    for (int32_t i = 0; i < n; i++) {
        const struct bench_test *t = &tests[i];
        char part[16], size[24];
        if (t->kind != BENCH_DECODE)
            continue;
        if (!head)
            line("\n%7s %8s %9s %20s %11s %8s %9s\n", "decode", "depth", "tokens/s",
                 "least .. most", "a token", "GB/s", "of reads");
        head = true;
        const double bytes = (double)bench_token_bytes(&t->work) * bench_median(t);
        line("%7d %8d %9.2f %8.2f .. %8.2f %11s %8.2f %9s\n", (int)t->tokens, (int)t->depth,
             bench_median(t), t->rate[0], t->rate[t->runs - 1],
             format_bytes(size, sizeof size, bench_token_bytes(&t->work)), bytes / 1e9,
             percent(part, sizeof part, bytes, l->read_bytes_per_s));
    }
}

static const char *kind_name(const struct bench_test *t)
{
    return t->kind == BENCH_PROMPT ? "prompt" : "decode";
}

static void reads_print(const struct bench_test *tests, int32_t n)
{
    bool head = false;
    for (int32_t i = 0; i < n; i++) {
        const struct bench_test *t = &tests[i];
        const struct leat_stats *s = &t->spent;
        const double asked = (double)(s->expert_hits + s->expert_misses);
        char wait[16], hits[16], size[24];
        if (s->read_bytes == 0 || s->pass_tokens == 0)
            continue;
        if (!head)
            line("\n%-7s %8s %8s %19s %15s %18s\n", "reads", "tokens", "depth", "read a token",
                 "time waiting", "expert hits");
        head = true;
        line("%-7s %8d %8d %19s %15s %18s\n", kind_name(t), (int)t->tokens, (int)t->depth,
             format_bytes(size, sizeof size, s->read_bytes / s->pass_tokens),
             percent(wait, sizeof wait, s->wait_s, t->elapsed_s),
             percent(hits, sizeof hits, (double)s->expert_hits, asked));
    }
}

static void probe_print(const char *name, const struct leat_drive_rate *x)
{
    if (x->bytes_per_s > 0)
        line("  reads from drive  %8.2f GB/s, %s, %d of %d KiB in flight\n", x->bytes_per_s / 1e9,
             name, (int)x->in_flight, (int)(x->read_bytes >> 10));
    else
        line("  reads from drive, %s, not measured:\n    %s\n", name, x->missing);
}

/* What was read within a measure, beside the probe of the same minutes. */
static void drive_print(const struct bench_result *r)
{
    char text[128];
    bool head = false;
    for (int32_t i = 0; r->drive && i < r->n_tests; i++) {
        const struct bench_test *t = &r->tests[i];
        if (t->spent.read_bytes == 0)
            continue;
        if (!head)
            line("\n%-7s %8s %8s %s\n", "drive", "tokens", "depth", "while reads were in flight");
        head = true;
        line("%-7s %8d %8d %s\n", kind_name(t), (int)t->tokens, (int)t->depth,
             drive_text(r->drive, &t->spent, text, sizeof text));
        const double urgent = stats_urgent_rate(&t->spent);
        const double probed = drive_probed(r->drive, &t->spent)->bytes_per_s;
        const char *why;
        char part[16];
        if (urgent > 0 && stats_drive_rate(&t->spent, &why) > 0)
            line("%25s %.2f GB/s (%s) while one was waited for\n", "", urgent / 1e9,
                 percent(part, sizeof part, urgent, probed));
    }
}

#define BAR_COLUMNS 54

static void times_print(const struct bench_test *tests, int32_t n)
{
    line("\n%-7s %8s %8s %s\n", "time", "tokens", "depth", TIME_BAR_HEAD);
    for (int32_t i = 0; i < n; i++) {
        const struct bench_test *t = &tests[i];
        const struct leat_stats *s = &t->spent;
        char bar[BAR_COLUMNS + 1], c[16], w[16], p[16], o[16];
        time_bar(bar, sizeof bar, s, t->elapsed_s, BAR_COLUMNS);
        line("%-7s %8d %8d %s\n%25s computing %s, waiting %s, sampling %s, other %s\n",
             kind_name(t), (int)t->tokens, (int)t->depth, bar, "",
             percent(c, sizeof c, s->compute_s, t->elapsed_s),
             percent(w, sizeof w, s->wait_s, t->elapsed_s),
             percent(p, sizeof p, s->sample_s, t->elapsed_s),
             percent(o, sizeof o, stats_other_seconds(s, t->elapsed_s), t->elapsed_s));
    }
}

void bench_print(const struct bench_result *r)
{
    const struct leat_facts *f = leat_engine_facts(r->engine);
    line("%s (%s), KV %s\n%s\n", f->name && *f->name ? f->name : f->path, f->arch, f->kv_type,
         leat_engine_plan(r->engine)->summary);
    limits_print(r->limits);
    if (r->drive) {
        probe_print("direct", &r->drive->direct);
        probe_print("buffered", &r->drive->buffered);
    }
    prompts_print(r->limits, r->tests, r->n_tests);
    decodes_print(r->limits, r->tests, r->n_tests);
    reads_print(r->tests, r->n_tests);
    drive_print(r);
    times_print(r->tests, r->n_tests);
}

static json_t *rates_json(const struct bench_test *t)
{
    json_t *a = json_array();
    for (int32_t i = 0; i < t->runs; i++)
        json_array_append_new(a, json_real(t->rate[i]));
    return a;
}

static json_t *test_json(const struct leat_limits *l, const struct leat_drive *d,
                         const struct bench_test *t)
{
    json_t *o = json_object();
    const double median = bench_median(t);
    const struct leat_stats *spent = &t->spent;
    const double asked = (double)(spent->expert_hits + spent->expert_misses);
    json_object_set_new(o, "kind", json_string(kind_name(t)));
    json_object_set_new(o, "tokens", json_integer(t->tokens));
    json_object_set_new(o, "depth_tokens", json_integer(t->depth));
    json_object_set_new(o, "runs", json_integer(t->runs));
    json_object_set_new(o, "median_tokens_per_s", json_real(median));
    json_object_set_new(o, "least_tokens_per_s", json_real(t->rate[0]));
    json_object_set_new(o, "most_tokens_per_s", json_real(t->rate[t->runs - 1]));
    json_object_set_new(o, "runs_tokens_per_s", rates_json(t));
    if (t->kind == BENCH_DECODE) {
        const double rate = (double)bench_token_bytes(&t->work) * median;
        json_object_set_new(o, "dense_bytes_per_token", json_bytes_of(t->work.dense_bytes));
        json_object_set_new(o, "expert_bytes_per_token", json_bytes_of(t->work.expert_bytes));
        json_object_set_new(o, "row_bytes_per_token", json_bytes_of(t->work.row_bytes));
        json_object_set_new(o, "kv_bytes_per_token", json_bytes_of(t->work.kv_bytes));
        json_object_set_new(o, "bytes_per_token", json_bytes_of(bench_token_bytes(&t->work)));
        json_object_set_new(o, "bytes_per_s", json_real(rate));
        json_object_set_new(o, "read_limit_share", share(rate, l->read_bytes_per_s));
    } else {
        const double rate = t->macs * median / t->tokens;
        json_object_set_new(o, "macs_per_prompt", json_real(t->macs));
        json_object_set_new(o, "macs_per_s", json_real(rate));
        json_object_set_new(o, "int8_limit_share", share(rate, l->int8_macs_per_s));
    }
    json_object_set_new(o, "read_bytes_per_evaluated_token",
                        spent->pass_tokens > 0
                            ? json_real((double)spent->read_bytes / (double)spent->pass_tokens)
                            : json_null());
    json_object_set_new(o, "compute_share", share(spent->compute_s, t->elapsed_s));
    json_object_set_new(o, "wait_share", share(spent->wait_s, t->elapsed_s));
    json_object_set_new(o, "sample_share", share(spent->sample_s, t->elapsed_s));
    json_object_set_new(o, "other_share",
                        share(stats_other_seconds(spent, t->elapsed_s), t->elapsed_s));
    json_object_set_new(o, "expert_hit_share", share((double)spent->expert_hits, asked));
    json_object_set_new(o, "expert_evictions", json_bytes_of(spent->expert_evictions));
    json_object_set_new(o, "lanes_in_use", measured(stats_lanes(spent)));
    json_object_set_new(o, "drive", drive_json(d, spent));
    return o;
}

json_t *bench_json(const struct bench_result *r)
{
    const struct leat_engine *g = r->engine;
    const struct leat_facts *f = leat_engine_facts(g);
    json_t *o = json_object(), *a = json_array();
    for (int32_t i = 0; i < r->n_tests; i++)
        json_array_append_new(a, test_json(r->limits, r->drive, &r->tests[i]));
    json_object_set_new(o, "model", json_text_of(f->path));
    json_object_set_new(o, "name", json_text_of(f->name));
    json_object_set_new(o, "arch", json_text_of(f->arch));
    json_object_set_new(o, "threads", json_integer(f->threads));
    json_object_set_new(o, "isa", json_text_of(f->isa));
    json_object_set_new(o, "kv_type", json_text_of(f->kv_type));
    json_object_set_new(o, "context", json_integer(f->context));
    json_object_set_new(o, "width", json_integer(f->width));
    json_object_set_new(o, "plan", json_text_of(leat_engine_plan(g)->summary));
    json_object_set_new(o, "load_s", json_real(f->load_s));
    json_object_set_new(o, "limits", limits_json(r->limits));
    json_object_set_new(o, "tests", a);
    json_object_set_new(
        o, "stats",
        stats_json(g, &r->since_open, r->drive, r->elapsed_s, (double)r->since_open.pass_tokens));
    return o;
}

/* ---- kernels ---- */

static double read_limit(const struct leat_limits *l, const struct leat_kernel_rate *r)
{
    return r->threads == 1 ? l->read_1_bytes_per_s : l->read_bytes_per_s;
}

static double macs_limit(const struct leat_limits *l, const struct leat_kernel_rate *r)
{
    if (r->floats)
        return r->threads == 1 ? l->float_1_macs_per_s : l->float_macs_per_s;
    return r->threads == 1 ? l->int8_1_macs_per_s : l->int8_macs_per_s;
}

/* The weights of many tokens stay in the caches: reads are no limit there. */
static bool beyond_caches(const struct leat_kernel_rate *r)
{
    return r->tokens < 8;
}

static void bench_ops_print(const struct leat_limits *l, const struct bench_kernels *k);

void bench_kernels_print(const struct leat_limits *l, const struct bench_kernels *k)
{
    limits_print(l);
    line("\n%-8s %7s %7s %12s %11s %14s %13s\n", "format", "threads", "tokens", "weights GB/s",
         "of reads", "GMAC/s", "of peak");
    for (int32_t i = 0; i < k->n; i++) {
        const struct leat_kernel_rate *r = &k->rate[i];
        char reads[16] = "-", peak[16];
        if (beyond_caches(r))
            percent(reads, sizeof reads, r->weight_bytes_per_s, read_limit(l, r));
        line("%-8s %7d %7d %12.2f %11s %14.2f %13s\n", r->format, (int)r->threads, (int)r->tokens,
             r->weight_bytes_per_s / 1e9, reads, r->macs_per_s / 1e9,
             percent(peak, sizeof peak, r->macs_per_s, macs_limit(l, r)));
    }
    bench_ops_print(l, k);
}

static void bench_ops_print(const struct leat_limits *l, const struct bench_kernels *k)
{
    if (k->n_ops == 0)
        return;
    line("\n%-24s %7s %10s %9s %7s %9s %7s\n", "others, one thread", "values", "us", "GB/s",
         "reads", "GMAC/s", "peak");
    for (int32_t i = 0; i < k->n_ops; i++) {
        const struct leat_op_rate *r = &k->op[i];
        char reads[16], peak[16] = "-", macs[16] = "-";
        if (r->macs_per_s > 0) {
            snprintf(macs, sizeof macs, "%.2f", r->macs_per_s / 1e9);
            percent(peak, sizeof peak, r->macs_per_s, l->float_1_macs_per_s);
        }
        line("%-24s %7d %10.2f %9.2f %7s %9s %7s\n", r->name, (int)r->values, r->seconds * 1e6,
             r->bytes_per_s / 1e9,
             percent(reads, sizeof reads, r->bytes_per_s, l->read_1_bytes_per_s), macs, peak);
    }
}

static json_t *ops_json(const struct leat_limits *l, const struct bench_kernels *k)
{
    json_t *a = json_array();
    for (int32_t i = 0; i < k->n_ops; i++) {
        const struct leat_op_rate *r = &k->op[i];
        const bool macs = r->macs_per_s > 0;
        json_t *x = json_object();
        json_object_set_new(x, "name", json_string(r->name));
        json_object_set_new(x, "values", json_integer(r->values));
        json_object_set_new(x, "seconds", json_real(r->seconds));
        json_object_set_new(x, "bytes_per_s", measured(r->bytes_per_s));
        json_object_set_new(x, "read_limit_share", share(r->bytes_per_s, l->read_1_bytes_per_s));
        json_object_set_new(x, "macs_per_s", macs ? measured(r->macs_per_s) : json_null());
        json_object_set_new(x, "macs_limit_share",
                            macs ? share(r->macs_per_s, l->float_1_macs_per_s) : json_null());
        json_array_append_new(a, x);
    }
    return a;
}

json_t *bench_kernels_json(const struct leat_limits *l, const struct bench_kernels *k)
{
    json_t *o = json_object(), *a = json_array();
    for (int32_t i = 0; i < k->n; i++) {
        const struct leat_kernel_rate *r = &k->rate[i];
        json_t *x = json_object();
        json_object_set_new(x, "format", json_string(r->format));
        json_object_set_new(x, "threads", json_integer(r->threads));
        json_object_set_new(x, "tokens", json_integer(r->tokens));
        json_object_set_new(x, "rows", json_integer(r->rows));
        json_object_set_new(x, "cols", json_integer(r->cols));
        json_object_set_new(x, "weight_bytes_per_s", measured(r->weight_bytes_per_s));
        json_object_set_new(x, "read_limit_share",
                            beyond_caches(r) ? share(r->weight_bytes_per_s, read_limit(l, r))
                                             : json_null());
        json_object_set_new(x, "macs_per_s", measured(r->macs_per_s));
        json_object_set_new(x, "macs_limit", json_string(r->floats ? "float" : "int8"));
        json_object_set_new(x, "macs_limit_share", share(r->macs_per_s, macs_limit(l, r)));
        json_array_append_new(a, x);
    }
    json_object_set_new(o, "limits", limits_json(l));
    json_object_set_new(o, "kernels", a);
    json_object_set_new(o, "others", ops_json(l, k));
    return o;
}
