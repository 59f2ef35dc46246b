/* Forming and running passes (scheduler.h). Knows neither weights nor text; a job decides what its
 * logits mean. */
#include "scheduler.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct scheduler {
    struct scheduler_config c;
    pthread_mutex_t lock;
    float *logits;             /* max_logits rows */
    struct candidate *scratch; /* n_logits */
    double sample_s;
    /* the pass being formed, width entries each */
    int32_t *ids, *pos;
    struct seq_state **seq;
    uint8_t *want;
    struct job **wants; /* max_logits: whose row it is */
};

struct pass { /* over the scheduler's arrays */
    int32_t n, rows;
};

static uint64_t logits_bytes(const struct scheduler_config *c)
{
    return (uint64_t)c->max_logits * (uint64_t)c->n_logits * sizeof(float);
}

static uint64_t scratch_bytes(const struct scheduler_config *c)
{
    return (uint64_t)c->n_logits *
           sizeof(struct candidate); /* charged by plan/budget.c: budget_sampler_bytes */
}

int scheduler_open(const struct scheduler_config *c, struct scheduler **out, struct leat_error *e)
{
    struct scheduler *s = calloc(1, sizeof *s);
    void *p = NULL;
    int code = LEAT_ERR_MEMORY;
    *out = NULL;
    if (!s)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for the scheduler");
    pthread_mutex_init(&s->lock, NULL);
    s->c = *c;
    const size_t width = (size_t)c->width, rows = (size_t)c->max_logits;
    s->ids = malloc(width * sizeof *s->ids);
    s->pos = malloc(width * sizeof *s->pos);
    s->seq = malloc(width * sizeof(struct seq_state *));
    s->want = malloc(width);
    s->wants = malloc(rows * sizeof(struct job *));
    if (!s->ids || !s->pos || !s->seq || !s->want || !s->wants) {
        error_set(e, LEAT_ERR_MEMORY, "the system refused memory for the scheduler");
        goto fail;
    }
    if ((code = ledger_take(c->ledger, DOMAIN_HELD, ROW_LOGITS, logits_bytes(c), &p, e)) < 0)
        goto fail;
    s->logits = p;
    if ((code = ledger_take(c->ledger, DOMAIN_HELD, ROW_LOGITS, scratch_bytes(c), &p, e)) < 0)
        goto fail;
    s->scratch = p;
    *out = s;
    return 0;
fail:
    scheduler_close(s);
    return code;
}

void scheduler_close(struct scheduler *s)
{
    if (!s)
        return;
    if (s->logits)
        ledger_give(s->c.ledger, DOMAIN_HELD, ROW_LOGITS, s->logits, logits_bytes(&s->c));
    if (s->scratch)
        ledger_give(s->c.ledger, DOMAIN_HELD, ROW_LOGITS, s->scratch, scratch_bytes(&s->c));
    pthread_mutex_destroy(&s->lock);
    free(s->ids);
    free(s->pos);
    free(s->seq);
    free(s->want);
    free(s->wants);
    free(s);
}

void scheduler_lock(struct scheduler *s)
{
    pthread_mutex_lock(&s->lock);
}

void scheduler_unlock(struct scheduler *s)
{
    pthread_mutex_unlock(&s->lock);
}

double scheduler_sample_seconds(struct scheduler *s)
{
    scheduler_lock(s);
    double t = s->sample_s;
    scheduler_unlock(s);
    return t;
}

/* ---- forming a pass ---- */

static bool wants_logits(const struct job *j)
{
    return j->c.predict != 0 && j->c.timeline->n < j->c.timeline->context;
}

/* Puts up to n pending ids of a timeline into the pass. */
static void put(struct scheduler *s, struct pass *p, const struct timeline *t, int32_t n)
{
    const int32_t from = state_length(t->state);
    for (int32_t i = 0; i < n; i++, p->n++) {
        s->ids[p->n] = t->ids[from + i];
        s->pos[p->n] = from + i;
        s->seq[p->n] = t->state;
        s->want[p->n] = 0;
    }
}

static void put_job(struct scheduler *s, struct pass *p, struct job *j, int32_t n)
{
    const int32_t pending = timeline_pending(j->c.timeline);
    if (n > pending)
        n = pending;
    if (n == pending && wants_logits(j)) {
        if (p->rows == s->c.max_logits)
            n--; /* its last id waits for a row of logits */
        else
            s->wants[p->rows++] = j;
    }
    if (n <= 0)
        return;
    put(s, p, j->c.timeline, n);
    if (n == pending && wants_logits(j))
        s->want[p->n - 1] = 1;
}

/* One id of each sequence that decodes, the rest for prompts. Whoever comes first this time comes
 * last the next, so that nobody starves when a pass is narrower than the crowd. */
static void form(struct scheduler *s, struct pass *p, struct job *const *jobs, int32_t n,
                 int32_t *turn)
{
    int32_t waiting = 0; /* running jobs not yet looked at */
    for (int32_t i = 0; i < n; i++)
        waiting += job_running(jobs[i]);
    p->n = p->rows = 0;
    const int32_t first = *turn;
    for (int32_t i = 0; i < n && p->n < s->c.width; i++) {
        struct job *j = jobs[(first + i) % n];
        if (!job_running(j))
            continue;
        waiting--;
        int32_t room = s->c.width - p->n - waiting; /* leave one place for each of the others */
        put_job(s, p, j, room > 1 ? room : 1);
        *turn = (first + i + 1) % n;
    }
}

/* ---- running ---- */

struct watch {
    struct job *const *jobs;
    int32_t n;
};

static void watch_layer(void *arg, int32_t layer, int32_t n_layer)
{
    const struct watch *w = arg;
    for (int32_t i = 0; i < w->n; i++)
        job_progress_tell(w->jobs[i], layer, n_layer);
}

static bool is_set(const atomic_bool *b)
{
    return b && atomic_load_explicit(b, memory_order_relaxed);
}

static int32_t end_finished(struct scheduler *s, struct job *const *jobs, int32_t n)
{
    int32_t running = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!job_running(jobs[i]))
            continue;
        if (is_set(s->c.cancelled) || is_set(jobs[i]->c.cancelled))
            job_end(jobs[i], FINISH_CANCELLED);
        else if (timeline_pending(jobs[i]->c.timeline) == 0)
            job_end(jobs[i],
                    FINISH_LENGTH); /* the prompt alone was asked for, or the context is full */
        running += job_running(jobs[i]);
    }
    return running;
}

static void run_pass(struct scheduler *s, struct job *const *jobs, int32_t n, int32_t *turn)
{
    struct watch w = {jobs, n};
    struct leat_error e = {0};
    struct pass p;
    scheduler_lock(s);
    form(s, &p, jobs, n, turn);
    struct ubatch b = {
        .n = p.n, .ids = s->ids, .seq = s->seq, .pos = s->pos, .want_logits = s->want};
    decoder_set_watch(s->c.decoder, watch_layer, &w);
    int code = decoder_run(s->c.decoder, &b, s->logits, &e);
    decoder_set_watch(s->c.decoder, NULL, NULL);
    for (int32_t i = 0; code >= 0 && i < p.rows; i++) {
        struct job *j = s->wants[i];
        const double before = j->sample_s;
        job_sample(j, s->logits + (size_t)i * (size_t)s->c.n_logits, s->c.n_sampled, s->scratch);
        s->sample_s += j->sample_s - before;
    }
    scheduler_unlock(s);
    for (int32_t i = 0; i < n; i++) {
        if (code < 0)
            job_fail(jobs[i], &e);
        job_tell(jobs[i]);
    }
}

void scheduler_run(struct scheduler *s, struct job *const *jobs, int32_t n)
{
    int32_t turn = 0;
    while (end_finished(s, jobs, n) > 0)
        run_pass(s, jobs, n, &turn);
    for (int32_t i = 0; i < n; i++)
        job_tell(jobs[i]);
}

int scheduler_eval(struct scheduler *s, struct timeline *t,
                   int (*on_row)(void *arg, int32_t position, const float *logits, int32_t n),
                   void *arg, struct leat_error *e)
{
    const int32_t most = s->c.width < s->c.max_logits ? s->c.width : s->c.max_logits;
    int code = 0;
    while (code == 0 && timeline_pending(t) > 0) {
        if (is_set(s->c.cancelled))
            return error_set(e, LEAT_ERR_CANCELLED, "cancelled");
        scheduler_lock(s);
        struct pass p = {0, 0};
        const int32_t from = state_length(t->state), left = timeline_pending(t);
        put(s, &p, t, left < most ? left : most);
        memset(s->want, 1, (size_t)p.n);
        struct ubatch b = {
            .n = p.n, .ids = s->ids, .seq = s->seq, .pos = s->pos, .want_logits = s->want};
        code = decoder_run(s->c.decoder, &b, s->logits, e);
        for (int32_t i = 0; code == 0 && i < p.n; i++)
            if (on_row(arg, from + i, s->logits + (size_t)i * (size_t)s->c.n_logits, s->c.n_logits))
                code = error_set(e, LEAT_ERR_CANCELLED, "ended by the caller");
        scheduler_unlock(s);
    }
    return code;
}
