/* leat bench --routes: a model driven with a recorded routing, from a cold cache. Opens the trace
 * before the model, so that a wrong one costs nothing; times nothing itself. One thread. */
#include <stdio.h>
#include <string.h>

#include "bench_report.h"
#include "../base/error.h"

struct routes_bench {
    struct options *o;
    struct leat_routes *routes;
    struct leat_routes_facts facts;
    struct leat_plan plan;
    struct leat_engine *engine;
    struct leat_routes_run run;
};

static int on_progress(void *arg, const struct leat_progress *p)
{
    (void)arg;
    progress_show(p);
    return 0;
}

static int refuse_others(const struct options *o, struct leat_error *e)
{
    static const char *const others[] = {"prompt_tokens", "decode_tokens", "depth", "runs",
                                         "formats",       "csv",           "stats"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (option_given(o, others[i]))
            return error_set(e, LEAT_ERR_USAGE,
                             "%s does not go with --routes: the trace says what is evaluated, and "
                             "the table what it took",
                             o->set.rows[params_find(&o->set, others[i])]->flag);
    return 0;
}

static int drive(struct routes_bench *b, const char *model, struct leat_params *params,
                 struct leat_error *e)
{
    char context[16];
    int code = refuse_others(b->o, e);
    if (code < 0 || (code = leat_routes_open(option(b->o, "routes")->s, &b->routes, e)) < 0)
        return code;
    leat_routes_facts(b->routes, &b->facts);
    snprintf(context, sizeof context, "%d",
             (int)(b->facts.prompt_tokens + b->facts.decode_tokens + 1));
    if (!option_given(b->o, "context"))
        code = leat_params_set(params, "context", context, e);
    if (code < 0 || (code = leat_open(model, params, &b->plan, &b->engine, e)) < 0)
        return code;
    interrupt_watch(b->engine);
    if ((code = record_begin(b->o, b->engine, e)) < 0)
        return code;
    progress_begin();
    code = leat_routes_drive(b->engine, b->routes, on_progress, NULL, &b->run, e);
    progress_end();
    return record_end(b->engine, code, e);
}

/* ---- what it says ---- */

static double hit_share(const struct leat_routes_part *p)
{
    const double asked = (double)(p->expert_hit_bytes + p->expert_miss_bytes);
    return asked > 0 ? (double)p->expert_hit_bytes / asked : 0;
}

static void part_print(const char *what, const struct leat_routes_part *p)
{
    char text[160], size[24], busy[24], hits[16];
    if (p->tokens == 0)
        return;
    snprintf(busy, sizeof busy, "-");
    snprintf(hits, sizeof hits, "-");
    if (p->read_busy_s > 0)
        snprintf(busy, sizeof busy, "%.2f", (double)p->read_bytes / p->read_busy_s / 1e9);
    if (p->expert_hit_bytes + p->expert_miss_bytes > 0)
        snprintf(hits, sizeof hits, "%.1f %%", 100 * hit_share(p));
    snprintf(text, sizeof text, "%-7s %8d %10.2f %13s %14s %12s %13.0f %%\n", what, (int)p->tokens,
             p->elapsed_s > 0 ? p->tokens / p->elapsed_s : 0, hits,
             format_bytes(size, sizeof size, p->read_bytes / (uint64_t)p->tokens), busy,
             p->elapsed_s > 0 ? 100 * p->wait_s / p->elapsed_s : 0);
    output_bytes(text, strlen(text));
}

/* A rate of the page cache must not pass for the drive's. */
static void cached_print(const struct leat_routes_run *r)
{
    const double read = (double)(r->prompt.read_bytes + r->decode.read_bytes);
    const double cached =
        (double)(r->prompt.page_cache_read_bytes + r->decode.page_cache_read_bytes);
    char text[128];
    if (cached <= 0)
        return;
    snprintf(text, sizeof text,
             "%.0f %% of the bytes read were in the page cache: this is not the drive's rate\n",
             100 * cached / read);
    output_bytes(text, strlen(text));
}

static void routes_print(const struct routes_bench *b)
{
    const struct leat_facts *f = leat_engine_facts(b->engine);
    const struct leat_routes_facts *t = &b->facts;
    char text[512], quoted[160];
    const char *name = *t->model ? t->model : "a model that is not named";
    snprintf(text, sizeof text,
             "%s (%s), KV %s\n%s\nrouting of %s: %d layers, %d of %d experts, %d turn%s%s\n\n",
             f->name && *f->name ? f->name : f->path, f->arch, f->kv_type,
             leat_engine_plan(b->engine)->summary,
             error_quote(quoted, sizeof quoted, name, strlen(name)), (int)t->layers,
             (int)t->experts_used, (int)t->experts, (int)t->turns, t->turns == 1 ? "" : "s",
             t->cut ? "; its file was cut off, this is what it holds" : "");
    output_bytes(text, strlen(text));
    snprintf(text, sizeof text, "%-7s %8s %10s %13s %14s %12s %15s\n", "", "tokens", "tokens/s",
             "hits (bytes)", "read a token", "read GB/s", "time waiting");
    output_bytes(text, strlen(text));
    part_print("prompt", &b->run.prompt);
    part_print("decode", &b->run.decode);
    cached_print(&b->run);
}

static json_t *part_json(const struct leat_routes_part *p)
{
    json_t *o = json_object();
    const uint64_t asked = p->expert_hit_bytes + p->expert_miss_bytes;
    json_object_set_new(o, "tokens", json_integer(p->tokens));
    json_object_set_new(o, "elapsed_s", json_real(p->elapsed_s));
    json_object_set_new(o, "tokens_per_s", json_rate(p->tokens, p->elapsed_s));
    json_object_set_new(o, "wait_s", json_real(p->wait_s));
    json_object_set_new(o, "read_busy_s", json_real(p->read_busy_s));
    json_object_set_new(o, "read_bytes", json_bytes_of(p->read_bytes));
    json_object_set_new(o, "page_cache_read_bytes", json_bytes_of(p->page_cache_read_bytes));
    json_object_set_new(o, "expert_read_bytes", json_bytes_of(p->expert_read_bytes));
    json_object_set_new(o, "read_bytes_per_token",
                        p->tokens ? json_real((double)p->read_bytes / p->tokens) : json_null());
    json_object_set_new(o, "read_bytes_per_s", json_rate((double)p->read_bytes, p->read_busy_s));
    json_object_set_new(o, "expert_hits", json_integer((json_int_t)p->expert_hits));
    json_object_set_new(o, "expert_misses", json_integer((json_int_t)p->expert_misses));
    json_object_set_new(o, "expert_evictions", json_integer((json_int_t)p->expert_evictions));
    json_object_set_new(o, "expert_hit_bytes", json_bytes_of(p->expert_hit_bytes));
    json_object_set_new(o, "expert_miss_bytes", json_bytes_of(p->expert_miss_bytes));
    json_object_set_new(o, "expert_hit_share", asked ? json_real(hit_share(p)) : json_null());
    return o;
}

static void routes_json(const struct routes_bench *b)
{
    const struct leat_routes_facts *t = &b->facts;
    json_t *top = json_object(), *r = json_object();
    struct leat_stats s;
    json_object_set_new(r, "model", json_text_of(t->model));
    json_object_set_new(r, "turns", json_integer(t->turns));
    json_object_set_new(r, "prompt_tokens", json_integer(t->prompt_tokens));
    json_object_set_new(r, "decode_tokens", json_integer(t->decode_tokens));
    json_object_set_new(r, "layers", json_integer(t->layers));
    json_object_set_new(r, "experts", json_integer(t->experts));
    json_object_set_new(r, "experts_used", json_integer(t->experts_used));
    json_object_set_new(r, "cut", json_boolean(t->cut));
    json_object_set_new(top, "routes", r);
    json_object_set_new(top, "plan", plan_json(leat_engine_plan(b->engine)));
    json_object_set_new(top, "prompt", part_json(&b->run.prompt));
    json_object_set_new(top, "decode", part_json(&b->run.decode));
    leat_engine_stats(b->engine, 0, &s);
    json_object_set_new(top, "stats",
                        stats_json(b->engine, &s, NULL,
                                   b->run.prompt.elapsed_s + b->run.decode.elapsed_s,
                                   (double)t->prompt_tokens + t->decode_tokens));
    output_json(top);
}

int bench_routes(struct options *o, const char *model, struct leat_params *params)
{
    struct routes_bench b = {.o = o};
    struct leat_error e = {0};
    int status = EXIT_OK;
    if (drive(&b, model, params, &e) < 0)
        status = report_error(o, &e, &b.plan);
    else if (o->json)
        routes_json(&b);
    else
        routes_print(&b);
    interrupt_watch(NULL);
    leat_close(b.engine);
    leat_routes_close(b.routes);
    return status;
}
