/* Opening and closing an engine: headers and tokenizer first, then the budget, then every large
 * piece of memory. Reads no weights. One thread opens and one closes; between them only
 * `cancelled` and `sessions` change. */
#include "engine.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/clock.h"
#include "../base/error.h"
#include "../base/os.h"
#include "../plan/budget_params.h"
#include "../weights/evict.h"

#ifndef LEAT_VERSION
#define LEAT_VERSION "0.1.0"
#endif

const char *leat_version(void)
{
    return LEAT_VERSION;
}

void leat_free(void *p)
{
    free(p);
}

const char *leat_code_word(int code)
{
    return error_code_word(code);
}

/* ---- the plan, as callers see it ---- */

void plan_report(const struct budget *b, const struct budget_ask *ask,
                 const struct weights_need *need, struct leat_plan *out)
{
    out->n_rows = 0;
    for (int i = 0; i < BUDGET_ROWS; i++) {
        if (b->row[i] == 0)
            continue;
        out->row[out->n_rows++] = (struct leat_memory_row){
            .key = ledger_row_key((enum ledger_row)i),
            .name = ledger_row_name((enum ledger_row)i),
            .planned_bytes = b->row[i],
        };
    }
    out->ceiling_bytes = ask->ceiling_bytes;
    out->total_bytes = b->total_bytes;
    out->smallest_bytes = b->smallest_bytes;
    out->context = b->context;
    out->width = b->width;
    out->logit_rows = b->max_logits;
    out->sessions = b->n_seq;
    out->dense_bytes = need->resident_all;
    out->experts_bytes = need->experts_all;
    out->resident_bytes = b->resident_bytes;
    out->stream_bytes = b->stream_bytes;
    out->expert_cache_bytes = b->expert_cache_bytes;
    snprintf(out->why_context, sizeof out->why_context, "%s", b->why_context);
    snprintf(out->why_width, sizeof out->why_width, "%s", b->why_width);
    budget_summary(b, need, ask->ceiling_bytes, out->summary, sizeof out->summary);
}

/* ---- opening ---- */

_Static_assert(BUDGET_ROWS <= LEAT_MEMORY_ROWS, "leat.h holds every row of the ledger");

struct opening {
    const struct param_set *set;
    struct budget_ask ask;
    struct leat_plan plan;
    uint64_t rss_before;
    double start_s;
    /* The vocabulary is built beside the first reads when the plan does not depend on its size. */
    struct leat_engine *engine;
    pthread_t text_thread;
    bool text_runs;
    atomic_bool text_done;
    uint64_t text_bound; /* bytes that it takes at most; 0 = not known */
};

static void text_build(struct leat_engine *g)
{
    if (model_tokenizer_open(g->model, g->ledger, &g->text.t, &g->tokenizer_error) < 0)
        g->text.t = NULL; /* evaluation works without one; whoever needs it gets the reason */
}

static int text_check(struct leat_engine *g, struct leat_error *e)
{
    const struct model *m = g->model;
    if (!g->text.t)
        return 0;
    /* Added tokens without a row exist (the image token of Gemma 3's text models): they are never
     * sampled, and an error when a prompt holds one. */
    if (tokenizer_plain_size(g->text.t) > m->n_vocab)
        return error_set(e, LEAT_ERR_FORMAT,
                         "the vocabulary has %d tokens and the embedding table only %d rows",
                         (int)tokenizer_plain_size(g->text.t), (int)m->n_vocab);
    return 0;
}

static void *text_main(void *arg)
{
    struct opening *o = arg;
    text_build(o->engine);
    atomic_store(&o->text_done, true);
    return NULL;
}

static void text_start(struct leat_engine *g, struct opening *o)
{
    sigset_t all, before; /* signals belong to the program's own threads */
    o->engine = g;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    o->text_runs = pthread_create(&o->text_thread, NULL, text_main, o) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!o->text_runs)
        text_build(g);
}

/* The reads go on while the vocabulary is not there yet. */
static void text_wait(struct leat_engine *g, struct opening *o)
{
    if (!o->text_runs)
        return;
    while (g->weights && !atomic_load(&o->text_done) && weights_load(g->weights))
        ;
    pthread_join(o->text_thread, NULL);
    o->text_runs = false;
}

/* What a vocabulary from a GGUF file can take at most, from the size of the header that holds it: a token
 * is 8 bytes and its text there, with a score and a type 16, and becomes its text and up to 24 bytes; a
 * merge rule is 11 bytes and more there, and becomes up to 20 (text/vocab.h). */
static uint64_t text_bound(const struct model *m)
{
    uint64_t header = UINT64_MAX;
    if (m->container != MODEL_GGUF)
        return 0;
    for (int32_t u = 0; u < m->n_units; u++)
        for (int32_t p = 0; p < m->units[u].n_parts; p++)
            if (m->units[u].part[p].file == 0 && m->units[u].part[p].offset < header)
                header = m->units[u].part[p].offset;
    return header < (UINT64_C(1) << 40) ? header * 6 + (UINT64_C(8) << 20) : 0;
}

static int open_headers(struct leat_engine *g, const char *path, struct opening *o,
                        struct leat_error *e)
{
    /* The ceiling comes into force with the budget, which needs what the headers say. */
    int code = ledger_open(UINT64_MAX, &g->ledger, e);
    if (code < 0 || (code = model_open(path, g->ledger, &g->model, e)) < 0)
        return code;
    if (g->model->n_expert == 0 &&
        evict_find(params_get(o->set, "eviction")->s) != evict_find(NULL))
        return error_set(e, LEAT_ERR_USAGE, "%s has no experts: --eviction would do nothing here",
                         g->model->path);
    return kernels_select(params_get(o->set, "isa")->s, &g->kernels, e);
}

static int ask_ceiling(struct opening *o, struct leat_error *e)
{
    o->plan.available_bytes = os_memory_available(NULL);
    o->plan.ceiling_by_hand = budget_ask_read(o->set, &o->ask);
    if (o->plan.ceiling_by_hand)
        return 0;
    if (o->plan.available_bytes == OS_UNKNOWN)
        return error_set(
            e, LEAT_ERR_USAGE,
            "this system does not say how much memory is available; give a budget (--memory)");
    o->ask.ceiling_bytes = budget_default_ceiling(o->plan.available_bytes);
    return 0;
}

/* Whether the vocabulary may be built later: whatever it takes up to its bound, the plan is the same, and
 * there is room to spare. */
static bool plan_without_text(struct leat_engine *g, struct opening *o)
{
    struct budget_ask ask = o->ask;
    struct budget least, most;
    ask.tokenizer_bytes = 0;
    if (o->text_bound == 0 || budget_resolve(g->model, &ask, &least, NULL) < 0)
        return false;
    ask.tokenizer_bytes = o->text_bound;
    return budget_resolve(g->model, &ask, &most, NULL) == 0 && least.context == most.context &&
           least.width == most.width && least.max_logits == most.max_logits &&
           least.resident_bytes == most.resident_bytes && least.stream_bytes == most.stream_bytes &&
           least.expert_cache_bytes == most.expert_cache_bytes &&
           (ask.ceiling_bytes == UINT64_MAX || most.total_bytes <= ask.ceiling_bytes);
}

static int resolve_again(struct leat_engine *g, struct opening *o, struct leat_error *e)
{
    struct budget_ask *ask = &o->ask;
    struct weights_need need;
    ask->tokenizer_bytes = ledger_held(g->ledger, DOMAIN_HELD, ROW_TOKENIZER);
    int code = budget_resolve(g->model, ask, &g->budget, e);
    if (code == LEAT_ERR_MEMORY) {
        ask->process_bytes += PROCESS_SLACK;
        code = budget_resolve(g->model, ask, &g->budget, e);
    }
    if (g->budget.total_bytes > 0 &&
        weights_need(g->model, ask->lanes, g->budget.width, &need, NULL) == 0)
        plan_report(&g->budget, ask, &need, &o->plan);
    return code;
}

static int resolve(struct leat_engine *g, struct opening *o, struct leat_error *e)
{
    struct budget_ask *ask = &o->ask;
    const struct param_value *threads = params_get(o->set, "threads");
    int code = ask_ceiling(o, e);
    if (code < 0)
        return code;
    ask->threads = threads->is_auto ? os_cpus() : (int32_t)threads->i;
    if (ask->threads > TEAM_MAX)
        ask->threads = TEAM_MAX;
    ask->lanes = (int32_t)params_get(o->set, "lanes")->i;
    ask->kv = (enum kv_type)params_get(o->set, "kv_type")->i;
    ask->model_bytes = ledger_held(g->ledger, DOMAIN_HELD, ROW_MODEL);
    ask->process_bytes =
        process_bytes(o->rss_before, os_rss(), ledger_total(g->ledger, DOMAIN_HELD), ask->threads,
                      ask->ceiling_bytes, g->model->total_bytes);
    o->text_bound = text_bound(g->model);
    if (plan_without_text(g, o)) {
        code = resolve_again(g, o, e); /* as if it took nothing: once more when it is there */
        if (code == 0)
            text_start(g, o);
        return code;
    }
    text_build(g);
    if ((code = text_check(g, e)) < 0)
        return code;
    ask->process_bytes =
        process_bytes(o->rss_before, os_rss(), ledger_total(g->ledger, DOMAIN_HELD), ask->threads,
                      ask->ceiling_bytes, g->model->total_bytes);
    return resolve_again(g, o, e);
}

/* The parallel vocabulary has come: what is said of the plan is made exact. */
static int settle_text(struct leat_engine *g, struct opening *o, struct leat_error *e)
{
    if (!o->text_runs)
        return 0;
    text_wait(g, o);
    int code = text_check(g, e);
    return code < 0 ? code : resolve_again(g, o, e);
}

static int obtain(struct leat_engine *g, struct opening *o, struct leat_error *e)
{
    const struct budget *b = &g->budget;
    const struct model *m = g->model;
    int code = ledger_set_ceiling(g->ledger, DOMAIN_HELD, o->ask.ceiling_bytes, e);
    if (code < 0 ||
        (code = ledger_charge(g->ledger, DOMAIN_HELD, ROW_PROCESS, b->row[ROW_PROCESS], e)) < 0)
        return code;
    g->process_bytes = b->row[ROW_PROCESS];
    if ((code = team_open(o->ask.threads, &g->team, e)) < 0)
        return code;
    struct weights_config w = {
        .model = m,
        .ledger = g->ledger,
        .lanes = o->ask.lanes,
        .lane_choice = (enum lane_choice)params_get(o->set, "lane_backend")->i,
        .direct = (enum file_direct)params_get(o->set, "direct")->i,
        .resident_bytes = b->resident_bytes,
        .stream_bytes = b->stream_bytes,
        .expert_cache_bytes = b->expert_cache_bytes,
        .eviction = params_get(o->set, "eviction")->s,
    };
    if ((code = weights_open(&w, &g->weights, e)) < 0)
        return code;
    struct decoder_config d = {
        .model = m,
        .weights = g->weights,
        .team = g->team,
        .kernels = g->kernels,
        .ledger = g->ledger,
        .max_width = b->width,
        .max_logits = b->max_logits,
    };
    if ((code = decoder_open(&d, &g->decoder, e)) < 0)
        return code;
    uint64_t pages = state_bytes(m, o->ask.kv, b->context, b->width, b->n_seq);
    if ((code = state_pool_open(m, o->ask.kv, pages, g->ledger, &g->pool, e)) < 0)
        return code;
    if ((code = settle_text(g, o, e)) < 0)
        return code;
    int32_t sampled = g->text.t ? tokenizer_size(g->text.t) : m->n_head_out;
    struct scheduler_config s = {
        .decoder = g->decoder,
        .ledger = g->ledger,
        .width = b->width,
        .max_logits = b->max_logits,
        .n_logits = m->n_head_out,
        .n_sampled = sampled < m->n_head_out ? sampled : m->n_head_out,
        .cancelled = &g->cancelled,
    };
    return scheduler_open(&s, &g->scheduler, e);
}

static void state_facts(struct leat_engine *g, const struct opening *o)
{
    const struct model *m = g->model;
    snprintf(g->kv_type, sizeof g->kv_type, "%s", params_get(o->set, "kv_type")->s);
    g->plan = o->plan;
    g->facts = (struct leat_facts){
        .path = m->path,
        .arch = m->arch,
        .name = m->name,
        .container = m->container == MODEL_GGUF ? "gguf" : "safetensors",
        .n_layer = m->n_layer,
        .n_embd = m->n_embd,
        .n_ctx_train = m->n_ctx_train,
        .n_vocab = m->n_vocab,
        .n_logits = m->n_head_out,
        .n_expert = m->n_expert,
        .n_expert_used = m->n_expert_used,
        .tensor_bytes = m->total_bytes,
        .n_files = m->n_files,
        .context = g->budget.context,
        .width = g->budget.width,
        .sessions = g->budget.n_seq,
        .threads = o->ask.threads,
        .lanes = o->ask.lanes,
        .kv_type = g->kv_type,
        .isa = g->kernels->isa,
        .eviction = m->n_expert ? weights_eviction(g->weights) : NULL,
        .load_s = clock_now() - o->start_s,
    };
}

int leat_open(const char *model, const struct leat_params *params, struct leat_plan *plan,
              struct leat_engine **out, struct leat_error *e)
{
    struct opening o = {.rss_before = os_rss(), .start_s = clock_now()};
    struct param_set defaults = {0};
    int code = 0;
    *out = NULL;
    o.ask.ceiling_bytes = UINT64_MAX;
    if (plan)
        memset(plan, 0, sizeof *plan);
    struct leat_engine *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for an engine");
    atomic_init(&g->cancelled, false);
    if (!params && (code = api_params_open(&defaults, e)) < 0)
        goto fail;
    o.set = params ? &params->set : &defaults;
    if ((code = open_headers(g, model, &o, e)) < 0)
        goto fail;
    code = resolve(g, &o, e);
    if (code == 0)
        code = obtain(g, &o, e);
    if (plan)
        *plan = o.plan;
    if (code < 0)
        goto fail;
    state_facts(g, &o);
    params_close(&defaults);
    *out = g;
    return 0;
fail:
    text_wait(g, &o);
    params_close(&defaults);
    leat_close(g);
    return code;
}

void leat_close(struct leat_engine *g)
{
    if (!g)
        return;
    (void)leat_record_end(g, NULL);
    scheduler_close(g->scheduler);
    if (g->decoder)
        decoder_close(g->decoder);
    if (g->pool)
        state_pool_close(g->pool);
    if (g->weights)
        weights_close(g->weights);
    if (g->team)
        team_close(g->team);
    if (g->text.t)
        tokenizer_close(g->text.t);
    if (g->model)
        model_close(g->model);
    if (g->process_bytes > 0)
        ledger_refund(g->ledger, DOMAIN_HELD, ROW_PROCESS, g->process_bytes);
    ledger_close(g->ledger);
    free(g);
}

const struct leat_facts *leat_engine_facts(const struct leat_engine *g)
{
    return &g->facts;
}

const struct leat_plan *leat_engine_plan(const struct leat_engine *g)
{
    return &g->plan;
}

void leat_cancel(struct leat_engine *g)
{
    atomic_store_explicit(&g->cancelled, true, memory_order_relaxed);
    weights_cancel(g->weights);
}

void leat_uncancel(struct leat_engine *g)
{
    weights_uncancel(g->weights);
    atomic_store_explicit(&g->cancelled, false, memory_order_relaxed);
}
