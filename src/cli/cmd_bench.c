/* leat bench: rates of a model, or of the kernels alone, beside the limits of the machine, which
 * are measured first and given back before a model is opened. Times its own calls; what a token
 * moves comes from leat_engine_work. One thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "bench_report.h"
#include "../base/clock.h"
#include "../base/error.h"

#define LENGTH_MAX (1 << 24)

struct list {
    int32_t n, v[BENCH_LIST];
};

struct bench {
    struct options *o;
    const char *model;
    struct list prompts, decodes, depths;
    int32_t runs, longest; /* ids that one measure needs at most */
    int32_t *ids;
    struct leat_params *params;
    struct leat_params *generate; /* greedy, never ending by itself */
    struct leat_plan plan;
    struct leat_engine *engine;
    struct leat_session *base; /* holds the depth that is measured at */
    struct leat_limits limits;
    struct leat_drive drive;
    bool probed;
    struct account_csv csv;
    double elapsed_s; /* of all runs */
    struct bench_test *tests;
    int32_t n_tests;
    struct bench_kernels kernels;
};

/* ---- what was asked ---- */

static int read_list(const struct options *o, const char *key, struct list *out,
                     struct leat_error *e)
{
    const char *flag = o->set.rows[params_find(&o->set, key)]->flag;
    const char *text = option(o, key)->s, *at = text;
    char quoted[64];
    do {
        char *end;
        const long x = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (x < 0 || x > LENGTH_MAX || (*end && *end != ','))
            return error_set(e, LEAT_ERR_USAGE,
                             "%s wants numbers from 0 to %d, separated by commas, not '%s'", flag,
                             LENGTH_MAX, error_quote(quoted, sizeof quoted, text, strlen(text)));
        if (out->n == BENCH_LIST)
            return error_set(e, LEAT_ERR_USAGE, "%s takes at most %d numbers", flag, BENCH_LIST);
        out->v[out->n++] = (int32_t)x;
        at = *end ? end + 1 : NULL;
    } while (at);
    return 0;
}

static void add_tests(struct bench *b, enum bench_kind kind, const struct list *lengths)
{
    for (int32_t d = 0; d < b->depths.n; d++)
        for (int32_t i = 0; i < lengths->n; i++) {
            /* A decode begins with the pass of one id, whose token is not counted. */
            const int32_t need = b->depths.v[d] + lengths->v[i] + 2;
            if (lengths->v[i] == 0)
                continue;
            b->longest = need > b->longest ? need : b->longest;
            b->tests[b->n_tests++] =
                (struct bench_test){.kind = kind, .tokens = lengths->v[i], .depth = b->depths.v[d]};
        }
}

static int read_tests(struct bench *b, struct leat_error *e)
{
    int code;
    b->runs = (int32_t)option(b->o, "runs")->i;
    if (option_given(b->o, "formats"))
        return error_set(e, LEAT_ERR_USAGE, "--formats goes with --kernels");
    if ((code = read_list(b->o, "prompt_tokens", &b->prompts, e)) < 0 ||
        (code = read_list(b->o, "decode_tokens", &b->decodes, e)) < 0 ||
        (code = read_list(b->o, "depth", &b->depths, e)) < 0)
        return code;
    b->tests = calloc(BENCH_TESTS, sizeof *b->tests);
    if (!b->tests)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for the measures");
    add_tests(b, BENCH_PROMPT, &b->prompts);
    add_tests(b, BENCH_DECODE, &b->decodes);
    if (b->n_tests == 0)
        return error_set(e, LEAT_ERR_USAGE,
                         "nothing to measure: --prompt-tokens and --decode-tokens are both 0");
    return 0;
}

/* ---- one run ---- */

static int on_progress(void *arg, const struct leat_progress *p)
{
    (void)arg;
    progress_show(p);
    return 0;
}

static int on_token(void *arg, int32_t id)
{
    struct bench *b = arg;
    return !account_csv_token(&b->csv, id);
}

/* Appends n ids and generates; fails unless every token came. */
static int generate(struct bench *b, struct leat_session *s, int32_t from, int32_t n,
                    int32_t predict, struct leat_result *r, struct leat_error *e)
{
    char text[16];
    snprintf(text, sizeof text, "%d", (int)predict);
    int code = leat_params_set(b->generate, "predict", text, e);
    if (code < 0)
        return code;
    struct leat_request q = {
        .session = s,
        .params = b->generate,
        .ids = b->ids + from,
        .n_ids = n,
        .on_token = on_token,
        .on_progress = on_progress,
        .arg = b,
    };
    code = leat_generate(b->engine, &q, 1, r, e);
    if (code == 0 && r->n_tokens != predict)
        code =
            error_set(e, LEAT_ERR_CONTEXT,
                      "the context of %d tokens was full after %d of %d: give a larger --context",
                      (int)leat_engine_facts(b->engine)->context, (int)r->n_tokens, (int)predict);
    return code;
}

/* The base session holds depth tokens; what a truncation could not restore is evaluated again. */
static int fill_base(struct bench *b, int32_t depth, struct leat_error *e)
{
    struct leat_result r = {0};
    int32_t n;
    int code = 0;
    if (!b->base && (code = leat_session_open(b->engine, &b->base, e)) < 0)
        return code;
    leat_session_tokens(b->base, &n);
    if (n > depth && (code = leat_session_truncate(b->base, depth, &n, e)) < 0)
        return code;
    if (n < depth)
        code = generate(b, b->base, n, depth - n, 0, &r, e);
    leat_result_free(&r);
    return code;
}

/* Run 0 warms up and does not count. A depth is shared by fork where two sessions fit, else the
 * base itself runs and is cut back. */
static int run_once(struct bench *b, struct bench_test *t, int32_t run, struct leat_error *e)
{
    const bool forks = t->depth > 0 && leat_engine_facts(b->engine)->sessions > 1;
    struct leat_session *s = NULL;
    struct leat_result r = {0};
    struct leat_stats before, after;
    int code = fill_base(b, t->depth, e);
    if (code == 0 && forks)
        code = leat_session_fork(b->base, t->depth, &s, e);
    if (code < 0)
        return code;
    const bool prompt = t->kind == BENCH_PROMPT;
    account_csv_begin(&b->csv, b->engine, (int32_t)(t - b->tests), run);
    leat_engine_stats(b->engine, 0, &before);
    const double start = clock_now();
    code = generate(b, s ? s : b->base, t->depth, prompt ? t->tokens : 1,
                    prompt ? 1 : t->tokens + 1, &r, e);
    const double elapsed = clock_now() - start;
    leat_engine_stats(b->engine, 0, &after);
    const double seconds = prompt ? r.prompt_s : r.decode_s;
    b->elapsed_s += elapsed;
    if (code == 0 && run > 0 && seconds > 0) {
        t->rate[t->runs++] = t->tokens / seconds;
        stats_add(&t->spent, &before, &after);
        t->elapsed_s += elapsed;
    }
    leat_result_free(&r);
    leat_session_close(s);
    return code;
}

/* ---- all of them ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void count_work(const struct bench *b, struct bench_test *t)
{
    struct leat_work w;
    uint64_t kv = 0;
    for (int32_t i = 0; i < t->tokens; i++) {
        /* the first id of a decode is at position depth, the tokens counted follow it */
        leat_engine_work(b->engine, t->depth + i + (t->kind == BENCH_DECODE), &w);
        kv += w.kv_bytes;
        t->macs += (double)(w.matrix_macs + w.attention_macs);
    }
    t->macs += (double)w.head_macs; /* logits are made of a prompt's last token only */
    w.kv_bytes = kv / (uint64_t)t->tokens;
    t->work = w;
}

static int run_tests(struct bench *b, struct leat_error *e)
{
    int code = 0;
    progress_begin();
    for (int32_t i = 0; code == 0 && i < b->n_tests; i++) {
        struct bench_test *t = &b->tests[i];
        count_work(b, t);
        for (int32_t k = 0; code == 0 && k <= b->runs; k++)
            code = run_once(b, t, k, e);
        if (code == 0 && t->runs == 0)
            code = error_set(e, LEAT_ERR_STATE, "the clock did not move while a test ran");
        qsort(t->rate, (size_t)t->runs, sizeof *t->rate, compare);
    }
    progress_end();
    return code;
}

static int set_params(struct bench *b, struct leat_error *e)
{
    char context[16];
    bool deep = false;
    int code = 0;
    for (int32_t i = 0; i < b->depths.n; i++)
        deep |= b->depths.v[i] > 0;
    snprintf(context, sizeof context, "%d", (int)b->longest);
    if (!option_given(b->o, "context"))
        code = leat_params_set(b->params, "context", context, e);
    if (code == 0 && deep && !option_given(b->o, "sessions"))
        code = leat_params_set(b->params, "sessions", "2", e);
    if (code == 0)
        code = leat_params_open(&b->generate, e);
    if (code == 0)
        code = leat_params_set(b->generate, "temp", "0", e);
    if (code == 0)
        code = leat_params_set(b->generate, "ignore_eos", "true", e);
    return code;
}

/* Ids that jump about the vocabulary, so that a mixture's routing has something to choose by. */
static int make_ids(struct bench *b, struct leat_error *e)
{
    const uint32_t vocab = (uint32_t)leat_engine_facts(b->engine)->n_vocab;
    uint64_t x = 1;
    b->ids = malloc((size_t)b->longest * sizeof *b->ids);
    if (!b->ids)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for %d ids", (int)b->longest);
    for (int32_t i = 0; i < b->longest; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
        b->ids[i] = (int32_t)((x >> 33) % vocab);
    }
    return 0;
}

/* The drive is probed where it matters, with the memory that the engine has later: a model of
 * which more is read than was thought is closed for it and opened again. */
static int open_model(struct bench *b, struct leat_error *e)
{
    static const char *const asks[] = {"memory", "resident", "expert_cache"};
    const struct leat_plan *p = &b->plan;
    int code = 0;
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
        b->probed |= option_given(b->o, asks[i]);
    for (;;) {
        if (b->probed)
            code = leat_measure_drive(b->model, b->params, &b->drive, e);
        if (code < 0 || (code = leat_open(b->model, b->params, &b->plan, &b->engine, e)) < 0)
            return code;
        if (b->probed || (p->stream_bytes == 0 && p->expert_cache_bytes >= p->experts_bytes))
            return 0;
        leat_close(b->engine);
        b->engine = NULL;
        b->probed = true;
    }
}

static int bench_model(struct bench *b, struct leat_error *e)
{
    int code = account_csv_open(&b->csv, option(b->o, "csv")->s, e);
    if (code < 0 || (code = set_params(b, e)) < 0 ||
        (code = leat_measure_limits(b->params, &b->limits, e)) < 0 || (code = open_model(b, e)) < 0)
        return code;
    interrupt_watch(b->engine);
    if (b->longest > leat_engine_facts(b->engine)->context)
        return error_set(e, LEAT_ERR_USAGE,
                         "the longest measure needs a context of %d tokens, and this one has %d",
                         (int)b->longest, (int)leat_engine_facts(b->engine)->context);
    if ((code = make_ids(b, e)) < 0 || (code = record_begin(b->o, b->engine, e)) < 0)
        return code;
    return record_end(b->engine, run_tests(b, e), e);
}

static int on_rate(void *arg, const struct leat_kernel_rate *r)
{
    struct bench_kernels *k = arg;
    struct leat_kernel_rate *more = realloc(k->rate, ((size_t)k->n + 1) * sizeof *more);
    if (!more)
        return 1;
    k->rate = more;
    k->rate[k->n++] = *r;
    return interrupt_came();
}

static int on_op(void *arg, const struct leat_op_rate *r)
{
    struct bench_kernels *k = arg;
    struct leat_op_rate *more = realloc(k->op, ((size_t)k->n_ops + 1) * sizeof *more);
    if (!more)
        return 1;
    k->op = more;
    k->op[k->n_ops++] = *r;
    return interrupt_came();
}

static int bench_kernels(struct bench *b, struct leat_error *e)
{
    if (b->o->n_words > 0 || option(b->o, "model")->s)
        return error_set(e, LEAT_ERR_USAGE, "--kernels measures without a model");
    static const char *const of_models[] = {"prompt_tokens", "decode_tokens", "depth",
                                            "runs",          "routes",        "trace_routes",
                                            "csv",           "stats"};
    for (size_t i = 0; i < sizeof of_models / sizeof *of_models; i++)
        if (option_given(b->o, of_models[i]))
            return error_set(e, LEAT_ERR_USAGE, "%s does not go with --kernels",
                             b->o->set.rows[params_find(&b->o->set, of_models[i])]->flag);
    const char *formats = option(b->o, "formats")->s;
    int code = leat_measure_limits(b->params, &b->limits, e);
    if (code == 0)
        code = leat_measure_kernels(b->params, formats, on_rate, &b->kernels, e);
    if (code == 0 && !formats)
        code = leat_measure_ops(b->params, on_op, &b->kernels, e);
    return code;
}

static void report_model(const struct bench *b)
{
    const bool stats = option(b->o, "stats")->b;
    struct bench_result r = {
        .engine = b->engine,
        .limits = &b->limits,
        .drive = b->probed ? &b->drive : NULL,
        .tests = b->tests,
        .n_tests = b->n_tests,
        .elapsed_s = b->elapsed_s,
    };
    leat_engine_stats(b->engine, stats, &r.since_open);
    if (b->o->json) {
        output_json(bench_json(&r));
        return;
    }
    bench_print(&r);
    if (stats)
        stats_print(b->engine, &r.since_open, r.drive, b->elapsed_s,
                    (double)r.since_open.pass_tokens);
}

int bench_command(struct options *o)
{
    struct bench b = {.o = o};
    struct leat_error e = {0};
    const bool kernels = option(o, "kernels")->b;
    int status = EXIT_OK, code = 0;
    interrupt_watch(NULL);
    const bool routes = !kernels && option(o, "routes")->s;
    if (!kernels && (code = options_model(o, &b.model, &e)) == 0 && !routes)
        code = read_tests(&b, &e);
    if (code == 0)
        code = options_params(o, &b.params, &e);
    if (code == 0 && routes) {
        status = bench_routes(o, b.model, b.params);
        leat_params_close(b.params);
        return status;
    }
    if (code == 0 && kernels)
        code = bench_kernels(&b, &e);
    else if (code == 0)
        code = account_csv_close(&b.csv, bench_model(&b, &e), &e);
    if (code < 0)
        status = report_error(o, &e, &b.plan);
    else if (kernels && o->json)
        output_json(bench_kernels_json(&b.limits, &b.kernels));
    else if (kernels)
        bench_kernels_print(&b.limits, &b.kernels);
    else
        report_model(&b);
    leat_session_close(b.base);
    interrupt_watch(NULL);
    leat_close(b.engine);
    leat_params_close(b.generate);
    leat_params_close(b.params);
    free(b.kernels.rate);
    free(b.kernels.op);
    free(b.tests);
    free(b.ids);
    return status;
}
