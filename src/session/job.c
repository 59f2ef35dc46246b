/* One generation in progress (job.h): from a row of logits to text that was told. Knows no passes
 * and no budget. The scheduler's caller alone. */
#include "job.h"

#include <stdlib.h>
#include <string.h>

#include "../base/clock.h"

/* Room for the text before the first growth, per token that may come. */
#define TEXT_PER_TOKEN 8
#define TEXT_START_MAX (256u << 10)

/* True when the ids so far print nothing: then the first text of the sequence is the one
 * generated. */
static bool prints_nothing(const struct tokenizer *t, const struct timeline *l)
{
    for (int32_t i = 0; i < l->n; i++)
        if (!(tokenizer_flags(t, l->ids[i]) & TOKEN_CONTROL))
            return false;
    return true;
}

int job_open(struct job *j, const struct job_config *c, struct leat_error *e)
{
    memset(j, 0, sizeof *j);
    j->c = *c;
    j->stopped_by = -1;
    j->start_s = clock_now();
    j->prompt_start = state_length(c->timeline->state);
    j->prompt_total = timeline_pending(c->timeline);
    sampler_init(&j->sampler, &c->sampling);
    if (c->tokenizer)
        detokenizer_init(&j->detok, c->tokenizer, c->special,
                         prints_nothing(c->tokenizer, c->timeline));

    int32_t room = c->timeline->context - c->timeline->n;
    size_t most = (size_t)(c->predict >= 0 && c->predict < room ? c->predict : room) + 1;
    j->tokens.ids =
        malloc(most * sizeof(int32_t)); /* all of it now: nothing is obtained per token */
    j->tokens.cap = most;
    j->piece_cap = c->tokenizer ? tokenizer_longest(c->tokenizer) + sizeof j->detok.held : 0;
    j->piece = malloc(j->piece_cap + 1);
    j->text_cap = most * TEXT_PER_TOKEN < TEXT_START_MAX ? most * TEXT_PER_TOKEN : TEXT_START_MAX;
    j->text = malloc(j->text_cap + 1);
    if (!j->tokens.ids || !j->piece || !j->text) {
        job_close(j);
        return error_set(e, LEAT_ERR_MEMORY,
                         "the system refused memory for the text of a generation");
    }
    j->text[0] = 0;
    if (c->predict == 0 || room <= 0)
        j->finish = j->prompt_total > 0 ? FINISH_NONE : FINISH_LENGTH;
    return 0;
}

void job_close(struct job *j)
{
    token_list_free(&j->tokens);
    free(j->piece);
    free(j->text);
    j->piece = j->text = NULL;
}

static bool text_add(struct job *j, const char *bytes, size_t n)
{
    if (n > j->text_cap - j->text_len) {
        size_t cap = 2 * j->text_cap + n;
        char *p = realloc(j->text, cap + 1);
        if (!p)
            return false;
        j->text = p;
        j->text_cap = cap;
    }
    memcpy(j->text + j->text_len, bytes, n);
    j->text_len += n;
    j->text[j->text_len] = 0;
    return true;
}

static void out_of_memory(struct job *j)
{
    error_set(&j->error, LEAT_ERR_MEMORY, "the system refused memory for the text of a generation");
    j->finish = FINISH_ERROR;
}

/* Looks for a stop string in what is new; cuts the text there and ends. */
static void scan(struct job *j)
{
    int32_t which = -1;
    size_t cut = stop_find(&j->c.stops, j->text, j->scanned, j->text_len, &which);
    j->scanned = j->text_len;
    if (cut == STOP_NONE)
        return;
    j->text_len = j->scanned = cut;
    j->text[cut] = 0;
    j->stopped_by = which;
    j->finish = FINISH_STOP;
}

/* What an incomplete character becomes at the end; it may complete a stop string like any other
 * text. */
static void flush(struct job *j)
{
    if (!j->c.tokenizer || j->stopped_by >= 0)
        return;
    size_t n = detokenizer_flush(&j->detok, j->piece, j->piece_cap);
    if (n > 0 && text_add(j, j->piece, n)) {
        enum finish why = j->finish;
        scan(j);
        if (j->stopped_by < 0 || why >= FINISH_CANCELLED)
            j->finish = why;
    }
}

void job_end(struct job *j, enum finish why)
{
    if (!job_running(j))
        return;
    j->finish = why;
    flush(j);
}

void job_fail(struct job *j, const struct leat_error *e)
{
    if (!job_running(j))
        return;
    if (e->code == LEAT_ERR_CANCELLED) {
        job_end(j, FINISH_CANCELLED);
    } else {
        j->error = *e;
        job_end(j, FINISH_ERROR);
    }
}

void job_sample(struct job *j, float *logits, int32_t n, struct candidate *scratch)
{
    struct timeline *t = j->c.timeline;
    struct leat_error e = {0};
    int32_t id = -1;
    const double before = clock_now();
    int code = sampler_pick(&j->sampler, logits, n, t->ids, t->n, t->sorted, scratch, &id, &e);
    j->last_s = clock_now();
    j->sample_s += j->last_s - before;
    if (j->first_s == 0)
        j->first_s = j->last_s;
    if (code < 0) {
        job_fail(j, &e);
        return;
    }
    j->tokens.ids[j->tokens.n++] = id;
    t->ids[t->n++] = id; /* there is room: a full context ended the job before */

    const bool ends = j->c.tokenizer && tokenizer_is_end(j->c.tokenizer, id) && !j->c.ignore_eos;
    if (ends) {
        job_end(j, FINISH_STOP);
        return;
    }
    if (j->c.tokenizer) {
        size_t len = detokenizer_feed(&j->detok, id, j->piece, j->piece_cap);
        if (!text_add(j, j->piece, len)) {
            out_of_memory(j);
            return;
        }
        scan(j);
        if (!job_running(j))
            return;
    }
    if ((j->c.predict >= 0 && j->tokens.n >= (size_t)j->c.predict) || t->n >= t->context)
        job_end(j, FINISH_LENGTH);
}

void job_tell(struct job *j)
{
    const struct job_config *c = &j->c;
    int stop = 0;
    for (; j->told < j->tokens.n; j->told++)
        if (c->on_token && c->on_token(c->arg, j->tokens.ids[j->told]))
            stop = 1;
    size_t safe = job_running(j) ? stop_safe(&c->stops, j->text, j->text_len) : j->text_len;
    if (c->on_text && safe > j->shown && c->on_text(c->arg, j->text + j->shown, safe - j->shown))
        stop = 1;
    j->shown = safe > j->shown ? safe : j->shown;
    if (stop && job_running(j)) {
        job_end(j, FINISH_CANCELLED);
        if (c->on_text && j->text_len > j->shown)
            c->on_text(c->arg, j->text + j->shown, j->text_len - j->shown);
        j->shown = j->text_len;
    }
}

void job_progress_tell(struct job *j, int32_t layer, int32_t n_layer)
{
    if (!j->c.on_progress || !job_running(j))
        return;
    int32_t done = state_length(j->c.timeline->state) - j->prompt_start;
    struct job_progress p = {
        .prompt_done = done < j->prompt_total ? done : j->prompt_total,
        .prompt_total = j->prompt_total,
        .generated = (int32_t)j->tokens.n,
        .layer = layer,
        .n_layer = n_layer,
        .elapsed_s = clock_now() - j->start_s,
    };
    if (j->c.on_progress(j->c.arg, &p) && j->c.cancelled)
        atomic_store_explicit(j->c.cancelled, true, memory_order_relaxed);
}
