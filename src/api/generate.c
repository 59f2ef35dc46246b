/* Sessions, generation and evaluation of the public API: turns requests into jobs and jobs into
 * results. Threads: an engine from any, a session by one at a time; whatever touches a state does
 * so under the pass lock. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "../base/clock.h"
#include "../base/error.h"
#include "../session/sampling_params.h"

/* ---- sessions ---- */

static int session_new(struct leat_engine *g, struct leat_session **out, struct leat_error *e)
{
    *out = NULL;
    if (g->sessions >= g->facts.sessions)
        return error_set(
            e, LEAT_ERR_STATE,
            "this engine was opened for %d session%s at once, and that many are open; close one, "
            "or open it with more (sessions)",
            (int)g->facts.sessions, g->facts.sessions == 1 ? "" : "s");
    struct leat_session *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for a session");
    s->engine = g;
    atomic_init(&s->cancelled, false);
    *out = s;
    return 0;
}

int leat_session_open(struct leat_engine *g, struct leat_session **out, struct leat_error *e)
{
    struct leat_session *s;
    *out = NULL;
    scheduler_lock(g->scheduler);
    int code = session_new(g, &s, e);
    if (code == 0 &&
        (code = timeline_open(g->pool, g->ledger, g->facts.context, &s->timeline, e)) < 0)
        free(s);
    if (code == 0) {
        g->sessions++;
        *out = s;
    }
    scheduler_unlock(g->scheduler);
    return code;
}

void leat_session_close(struct leat_session *s)
{
    if (!s)
        return;
    struct leat_engine *g = s->engine;
    scheduler_lock(g->scheduler);
    route_record_decode_from(g, s, INT32_MAX);
    timeline_close(&s->timeline);
    g->sessions--;
    scheduler_unlock(g->scheduler);
    free(s);
}

const int32_t *leat_session_tokens(const struct leat_session *s, int32_t *n)
{
    *n = s->timeline.n;
    return s->timeline.ids;
}

int leat_session_truncate(struct leat_session *s, int32_t upto, int32_t *kept, struct leat_error *e)
{
    scheduler_lock(s->engine->scheduler);
    int code = timeline_truncate(&s->timeline, upto, e);
    scheduler_unlock(s->engine->scheduler);
    if (kept)
        *kept = s->timeline.n;
    return code;
}

int leat_session_fork(struct leat_session *s, int32_t upto, struct leat_session **out,
                      struct leat_error *e)
{
    struct leat_engine *g = s->engine;
    struct leat_session *f;
    *out = NULL;
    scheduler_lock(g->scheduler);
    int code = session_new(g, &f, e);
    if (code == 0 && (code = timeline_fork(&s->timeline, upto, g->pool, &f->timeline, e)) < 0)
        free(f);
    if (code == 0) {
        g->sessions++;
        *out = f;
    }
    scheduler_unlock(g->scheduler);
    return code;
}

void leat_session_cancel(struct leat_session *s)
{
    atomic_store_explicit(&s->cancelled, true, memory_order_relaxed);
}

/* ---- requests to jobs ---- */

const char *leat_finish_word(enum leat_finish f)
{
    static const char *const words[] = {"none", "stop", "length", "cancelled", "error"};
    return (unsigned)f < sizeof words / sizeof *words ? words[f] : "none";
}

_Static_assert((int)FINISH_ERROR == (int)LEAT_FINISH_ERROR &&
                   (int)FINISH_STOP == (int)LEAT_FINISH_STOP,
               "same order");

struct task { /* one request on its way */
    const struct leat_request *request;
    struct generation how;
    struct job job;
    bool open;
};

static int tell_progress(void *arg, const struct job_progress *p)
{
    const struct leat_request *r = ((struct task *)arg)->request;
    struct leat_progress q = {
        .prompt_done = p->prompt_done,
        .prompt_total = p->prompt_total,
        .generated = p->generated,
        .layer = p->layer,
        .n_layer = p->n_layer,
        .elapsed_s = p->elapsed_s,
    };
    return r->on_progress(r->arg, &q);
}

static int tell_token(void *arg, int32_t id)
{
    const struct leat_request *r = ((struct task *)arg)->request;
    return r->on_token(r->arg, id);
}

static int tell_text(void *arg, const char *text, size_t len)
{
    const struct leat_request *r = ((struct task *)arg)->request;
    return r->on_text(r->arg, text, len);
}

/* The ids of a text that is to be continued. */
static int prompt_encode(const struct leat_engine *g, const struct leat_request *r,
                         struct token_list *out, struct leat_error *e)
{
    const struct tokenizer *t = g->text.t;
    if (!t) {
        if (e)
            *e = g->tokenizer_error;
        return g->tokenizer_error.code;
    }
    /* A text that cannot fit is refused before its ids take memory. Normalisation and stripping may
     * drop bytes, hence twice. */
    const uint64_t most = (uint64_t)g->facts.context * tokenizer_longest(t);
    if (r->text_len / 2 > most)
        return error_set(e, LEAT_ERR_CONTEXT,
                         "a text of %zu bytes does not fit a context of %d tokens, whose longest is "
                         "%zu bytes: give a larger context or a shorter text",
                         r->text_len, (int)g->facts.context, tokenizer_longest(t));
    int code = tokenizer_encode(t, r->text, r->text_len, r->text_flags, out, e);
    if (code < 0)
        return code;
    const bool add = (r->text_flags & LEAT_ENCODE_ADD_SPECIAL) != 0;
    if (add && tokenizer_adds_eos(t) && out->n > 0 && out->ids[out->n - 1] == tokenizer_eos(t))
        out->n--; /* what comes behind an end would not continue the text */
    if (add && out->n == 0 && r->text_len == 0 && r->session->timeline.n == 0 &&
        tokenizer_bos(t) >= 0)
        code = token_list_add(out, tokenizer_bos(t), e);
    return code;
}

/* Appends the prompt to the session and keeps a copy in the result. */
static int prompt_append(struct leat_engine *g, const struct leat_request *r,
                         struct leat_result *result, struct leat_error *e)
{
    struct token_list list = {0};
    struct timeline *t = &r->session->timeline;
    const int32_t *ids = r->ids;
    int32_t n = r->ids ? r->n_ids : 0;
    int code = 0;
    if (!r->ids && r->text) {
        code = prompt_encode(g, r, &list, e);
        ids = list.ids;
        n = list.n <= INT32_MAX ? (int32_t)list.n : INT32_MAX;
    }
    if (code == 0)
        code = timeline_append(t, ids, n, g->model->n_vocab, e);
    if (code == 0 && t->n == 0)
        code = error_set(
            e, LEAT_ERR_USAGE, "there is nothing to continue: the prompt has no token%s",
            g->text.t && tokenizer_bos(g->text.t) < 0 ? " and this model has no BOS" : "");
    if (code == 0) {
        result->prompt_tokens = malloc(((size_t)n + 1) * sizeof *ids);
        if (!result->prompt_tokens)
            code =
                error_set(e, LEAT_ERR_MEMORY, "the system refused memory for the ids of a prompt");
    }
    if (code == 0 && n > 0)
        memcpy(result->prompt_tokens, ids, (size_t)n * sizeof *ids);
    result->n_prompt = code == 0 ? n : 0;
    token_list_free(&list);
    return code;
}

/* A generation needs the logits of the last id: when all were evaluated, that one is evaluated
 * again. */
static int make_pending(struct leat_engine *g, struct timeline *t, struct leat_error *e)
{
    int code = 0;
    scheduler_lock(g->scheduler);
    if (timeline_pending(t) == 0) {
        int32_t kept;
        code = state_truncate(t->state, t->n - 1, &kept);
        if (code < 0)
            error_set(e, code, "the last token of the session cannot be evaluated again");
    }
    scheduler_unlock(g->scheduler);
    return code;
}

static int task_open(struct leat_engine *g, struct task *k, const struct param_set *set,
                     struct leat_result *result, struct leat_error *e)
{
    const struct leat_request *r = k->request;
    if (!r->session || r->session->engine != g)
        return error_set(e, LEAT_ERR_STATE, "the session of a request belongs to another engine");
    int code = generation_read(set, g->facts.n_logits, &k->how, e);
    if (code < 0)
        return code;
    result->seed = k->how.sampling.seed;
    if ((code = prompt_append(g, r, result, e)) < 0 ||
        (code = make_pending(g, &r->session->timeline, e)) < 0)
        return code;
    struct job_config c = {
        .timeline = &r->session->timeline,
        .tokenizer = g->text.t,
        .sampling = k->how.sampling,
        .stops = k->how.stops,
        .predict = k->how.predict,
        .ignore_eos = k->how.ignore_eos,
        .special = r->special != 0,
        .cancelled = &r->session->cancelled,
        .on_token = r->on_token ? tell_token : NULL,
        .on_text = r->on_text ? tell_text : NULL,
        .on_progress = r->on_progress ? tell_progress : NULL,
        .arg = k,
    };
    code = job_open(&k->job, &c, e);
    k->open = code == 0;
    return code;
}

static void task_close(struct task *k, struct leat_result *result)
{
    if (k->open) {
        struct job *j = &k->job;
        result->finish = (enum leat_finish)j->finish;
        result->error = j->error;
        result->tokens = j->tokens.ids;
        result->n_tokens = (int32_t)j->tokens.n;
        result->text = j->text;
        result->text_len = j->text_len;
        if (j->stopped_by >= 0)
            result->stopped_by = strdup(j->c.stops.strings[j->stopped_by]);
        const double now = clock_now();
        result->prompt_s = (j->first_s > 0 ? j->first_s : now) - j->start_s;
        result->decode_s = j->first_s > 0 ? j->last_s - j->first_s : 0;
        result->sample_s = j->sample_s;
        j->tokens = (struct token_list){0}; /* handed over */
        j->text = NULL;
        job_close(j);
        atomic_store_explicit(&k->request->session->cancelled, false, memory_order_relaxed);
    }
    generation_close(&k->how);
}

static bool sessions_distinct(const struct leat_request *r, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < i; j++)
            if (r[i].session == r[j].session)
                return false;
    return true;
}

static int outcome(const struct leat_result *results, int32_t n, struct leat_error *e)
{
    for (int32_t i = 0; i < n; i++) {
        if (results[i].finish == LEAT_FINISH_ERROR) {
            if (e)
                *e = results[i].error;
            return results[i].error.code;
        }
        if (results[i].finish == LEAT_FINISH_CANCELLED)
            return error_set(e, LEAT_ERR_CANCELLED, "cancelled after %d tokens",
                             (int)results[i].n_tokens);
    }
    return 0;
}

static void record_turn(struct leat_engine *g, const struct leat_request *requests, int32_t n)
{
    scheduler_lock(g->scheduler);
    route_record_turn(g);
    for (int32_t i = 0; i < n; i++)
        if (requests[i].session && requests[i].session->engine == g)
            route_record_decode_from(g, requests[i].session, requests[i].session->timeline.n);
    scheduler_unlock(g->scheduler);
}

int leat_generate(struct leat_engine *g, const struct leat_request *requests, int32_t n,
                  struct leat_result *results, struct leat_error *e)
{
    struct param_set defaults = {0};
    struct task *tasks = calloc((size_t)n + 1, sizeof *tasks);
    struct job **jobs = calloc((size_t)n + 1, sizeof(struct job *));
    int32_t n_jobs = 0;
    int code = 0;
    memset(results, 0, (size_t)n * sizeof *results);
    if (!tasks || !jobs)
        code = error_set(e, LEAT_ERR_MEMORY, "the system refused memory for %d requests", (int)n);
    else if (!sessions_distinct(requests, n))
        code = error_set(e, LEAT_ERR_STATE, "two requests of one call have the same session");
    else
        code = api_params_open(&defaults, e);
    if (code < 0) {
        free(tasks);
        free(jobs);
        return code;
    }
    for (int32_t i = 0; i < n; i++) {
        tasks[i].request = &requests[i];
        const struct param_set *set = requests[i].params ? &requests[i].params->set : &defaults;
        if (task_open(g, &tasks[i], set, &results[i], &results[i].error) < 0)
            results[i].finish = LEAT_FINISH_ERROR;
        else
            jobs[n_jobs++] = &tasks[i].job;
    }
    record_turn(g, requests, n);
    scheduler_run(g->scheduler, jobs, n_jobs);
    for (int32_t i = 0; i < n; i++)
        task_close(&tasks[i], &results[i]);
    params_close(&defaults);
    free(tasks);
    free(jobs);
    return outcome(results, n, e);
}

void leat_result_free(struct leat_result *r)
{
    if (!r)
        return;
    free(r->prompt_tokens);
    free(r->tokens);
    free(r->text);
    free(r->stopped_by);
    memset(r, 0, sizeof *r);
}

/* ---- evaluation ---- */

struct evaluation {
    const struct timeline *timeline;
    int (*on_logits)(void *arg, int32_t position, const float *logits, int32_t width);
    void *arg;
    double nll_sum;
};

/* -log softmax(logits)[id], in double and in ascending order of id. */
static double surprise(const float *logits, int32_t n, int32_t id)
{
    float max = logits[0];
    double sum = 0;
    for (int32_t i = 1; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)max);
    return log(sum) + (double)max - (double)logits[id];
}

static int take_row(void *arg, int32_t position, const float *logits, int32_t n)
{
    struct evaluation *v = arg;
    if (position + 1 < v->timeline->n && v->timeline->ids[position + 1] < n)
        v->nll_sum += surprise(logits, n, v->timeline->ids[position + 1]);
    return v->on_logits ? v->on_logits(v->arg, position, logits, n) : 0;
}

int leat_eval(struct leat_session *s, const int32_t *ids, int32_t n,
              int (*on_logits)(void *arg, int32_t position, const float *logits, int32_t width),
              void *arg, struct leat_eval *out, struct leat_error *e)
{
    struct leat_engine *g = s->engine;
    struct evaluation v = {.timeline = &s->timeline, .on_logits = on_logits, .arg = arg};
    const double start = clock_now();
    memset(out, 0, sizeof *out);
    if (s->timeline.n != 0)
        return error_set(e, LEAT_ERR_STATE,
                         "evaluation begins at position 0, and this session holds %d tokens",
                         (int)s->timeline.n);
    if (n < 1)
        return error_set(e, LEAT_ERR_USAGE, "there is nothing to evaluate: no token was given");
    int code = timeline_append(&s->timeline, ids, n, g->model->n_vocab, e);
    scheduler_lock(g->scheduler);
    route_record_turn(g);
    route_record_decode_from(g, s, INT32_MAX);
    scheduler_unlock(g->scheduler);
    if (code == 0)
        code = scheduler_eval(g->scheduler, &s->timeline, take_row, &v, e);
    out->n = state_length(s->timeline.state);
    out->nll_sum = v.nll_sum;
    out->perplexity = n > 1 ? exp(v.nll_sum / (n - 1)) : NAN;
    out->eval_s = clock_now() - start;
    return code;
}
