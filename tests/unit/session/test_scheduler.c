/* The scheduler over a decoder, a state and a vocabulary that are made up here: what is checked is
 * how passes are formed. The made-up decoder's logits are a hash of a sequence's ids so far, so
 * any mix-up of sequences, positions or rows shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../../src/base/error.h"
#include "../../../src/session/rng.h"
#include "../../../src/session/sampling_params.h"
#include "../../../src/session/scheduler.h"

enum { VOCAB = 50, LOGITS = 53, CONTEXT = 200, END = 49, MAX_SEQ = 16 };

/* ---- what stands in for the rooms below ---- */

struct seq_state {
    int32_t n;
    uint64_t hash;
};

static struct {
    int32_t max_width, max_rows; /* limits that must hold */
    uint64_t passes, tokens, rows;
    int32_t fail_at, cancel_at; /* pass number; 0 = never */
    decoder_watch watch;
    void *watch_arg;
} fake;

int state_open(struct state_pool *p, struct seq_state **out, struct leat_error *e)
{
    (void)p;
    (void)e;
    *out = calloc(1, sizeof **out);
    (*out)->hash = 1;
    return 0;
}

void state_close(struct seq_state *s)
{
    free(s);
}

int32_t state_length(const struct seq_state *s)
{
    return s->n;
}

int state_fork(const struct seq_state *s, int32_t upto, struct seq_state **out,
               struct leat_error *e)
{
    assert_int_equal(upto, s->n);
    state_open(NULL, out, e);
    **out = *s;
    return 0;
}

int state_truncate(struct seq_state *s, int32_t upto, int32_t *kept)
{
    (void)upto;
    s->n = 0;
    s->hash = 1;
    *kept = 0; /* as a recurrent state without snapshots would */
    return 0;
}

void decoder_set_watch(struct decoder *d, decoder_watch fn, void *arg)
{
    (void)d;
    fake.watch = fn;
    fake.watch_arg = arg;
}

static uint64_t mix(uint64_t h, int32_t id)
{
    uint64_t x = h ^ ((uint64_t)id + 17);
    return rng_splitmix(&x);
}

int decoder_run(struct decoder *d, const struct ubatch *b, float *logits, struct leat_error *e)
{
    (void)d;
    int32_t rows = 0;
    assert_true(b->n >= 1 && b->n <= fake.max_width);
    fake.passes++;
    if (fake.fail_at && fake.passes == (uint64_t)fake.fail_at)
        return error_set(e, LEAT_ERR_FILE, "made-up failure");
    if (fake.cancel_at && fake.passes == (uint64_t)fake.cancel_at)
        return error_set(e, LEAT_ERR_CANCELLED, "cancelled");
    for (int32_t i = 0; i < b->n; i++) {
        struct seq_state *s = b->seq[i];
        for (int32_t j = 0; j + 1 < i; j++) /* one run per sequence */
            assert_false(b->seq[j] == s && b->seq[i - 1] != s);
        assert_int_equal(b->pos[i], s->n);
        assert_in_range(b->ids[i], 0, VOCAB - 1);
        s->hash = mix(s->hash, b->ids[i]);
        s->n++;
        if (b->want_logits[i]) {
            for (int32_t k = 0; k < LOGITS; k++) {
                uint64_t h = mix(s->hash, 1000 + k);
                logits[(size_t)rows * LOGITS + (size_t)k] =
                    k >= VOCAB ? 1e9f : (float)(h % 100000) / 10000.0f;
            }
            rows++;
        }
    }
    assert_true(rows <= fake.max_rows);
    fake.tokens += (uint64_t)b->n;
    fake.rows += (uint64_t)rows;
    if (fake.watch)
        fake.watch(fake.watch_arg, 0, 1);
    return 0;
}

/* a vocabulary of letters; END ends, 0 is a control token */
uint32_t tokenizer_flags(const struct tokenizer *t, int32_t id)
{
    (void)t;
    return id == 0 ? TOKEN_CONTROL : 0;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id)
{
    (void)t;
    return id == END;
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    (void)t;
    return 4;
}

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool special, bool at_start)
{
    memset(d, 0, sizeof *d);
    d->t = t;
    d->special = special;
    d->started = !at_start;
}

size_t detokenizer_feed(struct detokenizer *d, int32_t id, char *dst, size_t cap)
{
    (void)d;
    assert_true(cap >= 12);
    if (id == END)
        return 0;
    dst[0] = (char)('A' + id % 26);
    dst[1] = (char)('a' + id / 26);
    return 2;
}

size_t detokenizer_flush(struct detokenizer *d, char *dst, size_t cap)
{
    (void)d;
    (void)dst;
    (void)cap;
    return 0;
}

void token_list_free(struct token_list *l)
{
    free(l->ids);
    memset(l, 0, sizeof *l);
}

/* ---- a bench ---- */

struct bench {
    struct ledger *ledger;
    struct scheduler *s;
    atomic_bool cancelled;
    struct timeline t[MAX_SEQ];
    struct job job[MAX_SEQ], *jobs[MAX_SEQ];
    int32_t n;
};

static struct tokenizer *const words = (struct tokenizer *)&fake; /* never looked into */

static void bench_open(struct bench *b, int32_t width, int32_t rows)
{
    memset(b, 0, sizeof *b);
    memset(&fake, 0, sizeof fake);
    fake.max_width = width;
    fake.max_rows = rows;
    assert_int_equal(ledger_open(UINT64_MAX, &b->ledger, NULL), 0);
    struct scheduler_config c = {.ledger = b->ledger,
                                 .width = width,
                                 .max_logits = rows,
                                 .n_logits = LOGITS,
                                 .n_sampled = VOCAB,
                                 .cancelled = &b->cancelled};
    assert_int_equal(scheduler_open(&c, &b->s, NULL), 0);
}

static struct job *bench_add(struct bench *b, int32_t n_prompt, struct job_config c)
{
    int32_t i = b->n++, ids[CONTEXT];
    for (int32_t k = 0; k < n_prompt; k++)
        ids[k] = (7 * i + 3 * k) % (VOCAB - 2) + 1;
    assert_int_equal(timeline_open(NULL, b->ledger, CONTEXT, &b->t[i], NULL), 0);
    assert_int_equal(timeline_append(&b->t[i], ids, n_prompt, VOCAB, NULL), 0);
    c.timeline = &b->t[i];
    c.tokenizer = words;
    c.sampling.top_p = 1;
    c.sampling.repeat_penalty = 1;
    assert_int_equal(job_open(&b->job[i], &c, NULL), 0);
    b->jobs[i] = &b->job[i];
    return &b->job[i];
}

static void bench_close(struct bench *b)
{
    for (int32_t i = 0; i < b->n; i++) {
        job_close(&b->job[i]);
        timeline_close(&b->t[i]);
    }
    scheduler_close(b->s);
    ledger_close(b->ledger);
}

/* What a sequence must give: worked out from the formula alone. */
static int32_t expected(int32_t i, int32_t n_prompt, int32_t predict, bool ignore_eos, int32_t *ids)
{
    uint64_t h = 1;
    int32_t n = 0;
    for (int32_t k = 0; k < n_prompt; k++)
        h = mix(h, (7 * i + 3 * k) % (VOCAB - 2) + 1);
    while (n < predict && n_prompt + n < CONTEXT) {
        int32_t best = 0;
        for (int32_t k = 1; k < VOCAB; k++)
            if (mix(h, 1000 + k) % 100000 > mix(h, 1000 + best) % 100000)
                best = k;
        ids[n++] = best;
        if (best == END && !ignore_eos)
            break;
        h = mix(h, best);
    }
    return n;
}

static void check(const struct job *j, int32_t i, int32_t n_prompt, int32_t predict,
                  bool ignore_eos)
{
    int32_t want[CONTEXT];
    int32_t n = expected(i, n_prompt, predict, ignore_eos, want);
    assert_int_equal((int32_t)j->tokens.n, n);
    assert_memory_equal(j->tokens.ids, want, (size_t)n * sizeof *want);
    bool ended = n > 0 && want[n - 1] == END && !ignore_eos;
    assert_int_equal(j->finish, ended ? FINISH_STOP : FINISH_LENGTH);
}

static void test_alone_and_beside_others(void **state)
{
    (void)state;
    static const int32_t widths[] = {1, 2, 3, 7, 16, 64, 512}, rows[] = {1, 2, 16},
                         crowds[] = {1, 2, 8, 16};
    for (int w = 0; w < 7; w++)
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 4; c++) {
                struct bench b;
                if (rows[r] > widths[w])
                    continue;
                bench_open(&b, widths[w], rows[r]);
                for (int32_t i = 0; i < crowds[c]; i++)
                    bench_add(&b, 1 + (i * 29) % 97,
                              (struct job_config){.predict = 24 + i, .ignore_eos = i % 2});
                scheduler_run(b.s, b.jobs, b.n);
                for (int32_t i = 0; i < b.n; i++)
                    check(&b.job[i], i, 1 + (i * 29) % 97, 24 + i, i % 2);
                bench_close(&b);
            }
}

static void test_passes_are_full(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 64, 16);
    for (int32_t i = 0; i < 16; i++)
        bench_add(&b, 4, (struct job_config){.predict = 20, .ignore_eos = true});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(fake.passes,
                     20); /* one for all prompts and the first token, then one per token */
    assert_int_equal(fake.rows, 16 * 20);
    bench_close(&b);

    bench_open(&b, 64, 1); /* a long prompt: whole passes, and logits once */
    bench_add(&b, 150, (struct job_config){.predict = 1});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(fake.passes, 3);
    assert_int_equal(fake.rows, 1);
    bench_close(&b);
}

static void test_full_context_is_length(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 64, 1);
    struct job *j =
        bench_add(&b, CONTEXT - 5, (struct job_config){.predict = -1, .ignore_eos = true});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(j->finish, FINISH_LENGTH);
    assert_int_equal(j->tokens.n, 5);
    assert_int_equal(fake.tokens, CONTEXT - 1); /* the last one is not evaluated for nothing */
    bench_close(&b);

    bench_open(&b, 64, 1);
    j = bench_add(&b, CONTEXT, (struct job_config){.predict = 3});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(j->finish, FINISH_LENGTH);
    assert_int_equal(j->tokens.n, 0);
    assert_int_equal(fake.rows, 0);
    int32_t one = 1;
    struct leat_error e;
    assert_int_equal(timeline_append(&b.t[0], &one, 1, VOCAB, &e), LEAT_ERR_CONTEXT);
    bench_close(&b);
}

static void test_prompt_alone(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 64, 1);
    struct job *j = bench_add(&b, 70, (struct job_config){.predict = 0});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(j->finish, FINISH_LENGTH);
    assert_int_equal(j->tokens.n, 0);
    assert_int_equal(fake.tokens, 70);
    assert_int_equal(fake.rows, 0);
    bench_close(&b);
}

/* ---- callbacks ---- */

struct heard {
    char text[1024];
    size_t n;
    int32_t ids[CONTEXT], n_ids, stop_after, progress, first_pass;
};

static int hear_text(void *arg, const char *text, size_t len)
{
    struct heard *h = arg;
    memcpy(h->text + h->n, text, len);
    h->n += len;
    return 0;
}

static int hear_token(void *arg, int32_t id)
{
    struct heard *h = arg;
    if (h->n_ids == 0)
        h->first_pass = (int32_t)fake.passes;
    h->ids[h->n_ids++] = id;
    return h->stop_after && h->n_ids >= h->stop_after;
}

static int hear_progress(void *arg, const struct job_progress *p)
{
    struct heard *h = arg;
    assert_true(p->prompt_done <= p->prompt_total && p->elapsed_s >= 0);
    h->progress++;
    return 0;
}

static void test_callbacks_hear_everything_once(void **state)
{
    (void)state;
    struct bench b;
    struct heard h = {.n = 0};
    bench_open(&b, 8, 1);
    struct job *j = bench_add(&b, 20,
                              (struct job_config){.predict = 30,
                                                  .ignore_eos = true,
                                                  .on_text = hear_text,
                                                  .on_token = hear_token,
                                                  .on_progress = hear_progress,
                                                  .arg = &h});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(h.n_ids, 30);
    assert_memory_equal(h.ids, j->tokens.ids, 30 * sizeof(int32_t));
    assert_int_equal(h.n, j->text_len);
    assert_memory_equal(h.text, j->text, h.n);
    assert_true(h.progress >= 3);
    bench_close(&b);

    memset(&h, 0, sizeof h);
    h.stop_after = 4;
    bench_open(&b, 8, 2);
    j = bench_add(&b, 20,
                  (struct job_config){.predict = 30,
                                      .ignore_eos = true,
                                      .on_text = hear_text,
                                      .on_token = hear_token,
                                      .arg = &h});
    bench_add(&b, 5, (struct job_config){.predict = 30, .ignore_eos = true});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(j->finish, FINISH_CANCELLED);
    assert_int_equal(j->tokens.n, 4);
    assert_int_equal(h.n, j->text_len);
    check(&b.job[1], 1, 5, 30, true); /* the other one goes on */
    bench_close(&b);
}

static void test_nobody_starves_in_a_narrow_pass(void **state)
{
    (void)state;
    struct bench b;
    struct heard h = {.n = 0};
    bench_open(&b, 1, 1);
    for (int32_t i = 0; i < 8; i++)
        bench_add(&b, i == 3 ? 40 : 1,
                  (struct job_config){.predict = 50,
                                      .ignore_eos = true,
                                      .on_token = i == 3 ? hear_token : NULL,
                                      .arg = &h});
    scheduler_run(b.s, b.jobs, b.n);
    check(&b.job[3], 3, 40, 50, true);
    assert_int_equal(fake.tokens, 7 * 50 + 40 + 49);
    assert_int_equal(h.first_pass,
                     40 * 8 - 4); /* its 40 turns of 8: the fourth place of the last round */
    bench_close(&b);
}

static void test_a_long_prompt_leaves_room_for_the_others(void **state)
{
    (void)state;
    struct bench b;
    struct heard h = {.n = 0};
    bench_open(&b, 16, 4);
    for (int32_t i = 0; i < 4; i++)
        bench_add(&b, i == 0 ? 150 : 1,
                  (struct job_config){.predict = 10,
                                      .ignore_eos = true,
                                      .on_token = i == 3 ? hear_token : NULL,
                                      .arg = &h});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(h.first_pass, 1);
    check(&b.job[0], 0, 150, 10, true);
    bench_close(&b);
}

static void test_stop_string_ends_and_is_not_shown(void **state)
{
    (void)state;
    int32_t ids[CONTEXT];
    char stop[8];
    struct heard h = {.n = 0};
    struct bench b;
    expected(0, 20, 30, true, ids);
    /* across two tokens: the second letter of token 10 and the first of token 11 */
    snprintf(stop, sizeof stop, "%c%c", 'a' + ids[10] / 26, 'A' + ids[11] % 26);
    const char *const list[] = {stop};
    bench_open(&b, 8, 1);
    struct job *j = bench_add(&b, 20,
                              (struct job_config){.predict = 30,
                                                  .ignore_eos = true,
                                                  .stops = {list, 1},
                                                  .on_text = hear_text,
                                                  .arg = &h});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(j->finish, FINISH_STOP);
    assert_int_equal(j->stopped_by, 0);
    assert_true(j->tokens.n <= 12);
    assert_int_equal(j->text_len % 2, 1); /* one letter of the token in which the stop began */
    assert_int_equal(h.n, j->text_len);
    assert_memory_equal(h.text, j->text, h.n);
    assert_null(strstr(j->text, stop));
    bench_close(&b);
}

static void test_failures_and_cancelling(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, 8, 2);
    bench_add(&b, 4, (struct job_config){.predict = 30, .ignore_eos = true});
    bench_add(&b, 4, (struct job_config){.predict = 2, .ignore_eos = true});
    fake.fail_at = 5;
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(b.job[0].finish, FINISH_ERROR);
    assert_int_equal(b.job[0].error.code, LEAT_ERR_FILE);
    assert_int_equal(b.job[0].tokens.n, 4);
    assert_int_equal(b.job[1].finish, FINISH_LENGTH);
    bench_close(&b);

    bench_open(&b, 8, 1);
    bench_add(&b, 4, (struct job_config){.predict = 30, .ignore_eos = true});
    fake.cancel_at = 7;
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(b.job[0].finish, FINISH_CANCELLED);
    assert_int_equal(b.job[0].tokens.n, 6);
    bench_close(&b);

    bench_open(&b, 8, 1); /* set before: nothing is run at all */
    bench_add(&b, 4, (struct job_config){.predict = 30});
    atomic_store(&b.cancelled, true);
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(b.job[0].finish, FINISH_CANCELLED);
    assert_int_equal(fake.passes, 0);
    bench_close(&b);

    atomic_bool own = true; /* one of two */
    bench_open(&b, 8, 2);
    bench_add(&b, 4, (struct job_config){.predict = 30, .cancelled = &own});
    bench_add(&b, 4, (struct job_config){.predict = 5, .ignore_eos = true});
    scheduler_run(b.s, b.jobs, b.n);
    assert_int_equal(b.job[0].finish, FINISH_CANCELLED);
    check(&b.job[1], 1, 4, 5, true);
    bench_close(&b);
}

/* ---- evaluation ---- */

static int take_row(void *arg, int32_t position, const float *logits, int32_t n)
{
    float(*rows)[LOGITS] = arg;
    assert_int_equal(n, LOGITS);
    memcpy(rows[position], logits, sizeof *rows);
    return position == 150;
}

static void test_eval_gives_every_row_in_order(void **state)
{
    (void)state;
    static float a[CONTEXT][LOGITS], c[CONTEXT][LOGITS];
    static const int32_t shapes[][2] = {{1, 1}, {7, 7}, {64, 5}, {512, 512}};
    for (int k = 0; k < 4; k++) {
        struct bench b;
        bench_open(&b, shapes[k][0], shapes[k][1]);
        bench_add(&b, 120, (struct job_config){.predict = 0});
        assert_int_equal(scheduler_eval(b.s, &b.t[0], take_row, k ? c : a, NULL), 0);
        assert_int_equal(fake.rows, 120);
        if (k)
            assert_memory_equal(a, c, sizeof a);
        bench_close(&b);
    }
    struct bench b;
    bench_open(&b, 16, 16);
    bench_add(&b, 180, (struct job_config){.predict = 0});
    assert_int_equal(scheduler_eval(b.s, &b.t[0], take_row, c, NULL), LEAT_ERR_CANCELLED);
    bench_close(&b);
}

static void test_timelines_fork_and_cut(void **state)
{
    (void)state;
    struct bench b;
    struct timeline f;
    bench_open(&b, 64, 1);
    bench_add(&b, 10, (struct job_config){.predict = 3, .ignore_eos = true});
    scheduler_run(b.s, b.jobs, b.n);
    struct timeline *t = &b.t[0];
    assert_int_equal(t->n, 13);
    assert_int_equal(timeline_pending(t), 1); /* the last sampled one was not evaluated */
    assert_int_equal(timeline_fork(t, 13, NULL, &f, NULL), 0);
    assert_int_equal(f.n, 13);
    assert_memory_equal(f.ids, t->ids, 13 * sizeof *f.ids);
    timeline_close(&f);
    assert_int_equal(timeline_truncate(t, 12, NULL), 0);
    assert_int_equal(t->n, 12);
    assert_int_equal(timeline_truncate(t, 5, NULL), 0);
    assert_int_equal(t->n, 0); /* this state could keep nothing, and the timeline says so */
    assert_int_equal(timeline_truncate(t, 5, NULL), LEAT_ERR_USAGE);
    int32_t bad[] = {1, VOCAB};
    assert_int_equal(timeline_append(t, bad, 2, VOCAB, NULL), LEAT_ERR_USAGE);
    assert_int_equal(t->n, 0);
    bench_close(&b);
}

static void test_parameter_rows(void **state)
{
    (void)state;
    struct param_set s;
    struct generation g;
    struct leat_error e;
    const struct param *tables[] = {sampling_params};
    const int32_t counts[] = {sampling_params_count};
    assert_int_equal(params_open(&s, tables, counts, 1, &e), 0);
    assert_int_equal(generation_read(&s, 100, &g, &e), 0);
    assert_int_equal(g.predict, -1);
    assert_true(g.sampling.temperature == 0.8f && g.sampling.top_k == 40 &&
                g.sampling.top_p == 0.95f && g.sampling.min_p == 0.05f);
    generation_close(&g);
    params_set(&s, "seed", "12345678901", "api", NULL);
    params_set(&s, "stop", "a", "api", NULL);
    params_set(&s, "stop", "b", "api", NULL);
    params_set(&s, "logit_bias", "7=-1.5", "api", NULL);
    params_set(&s, "logit_bias", "9=-inf", "api", NULL);
    assert_int_equal(generation_read(&s, 100, &g, &e), 0);
    assert_true(g.sampling.seed == UINT64_C(12345678901));
    assert_int_equal(g.stops.n, 2);
    assert_string_equal(g.stops.strings[1], "b");
    assert_int_equal(g.sampling.n_bias, 2);
    assert_true(g.bias[0].id == 7 && g.bias[0].bias == -1.5f && g.bias[1].bias < -1e30f);
    generation_close(&g);
    static const char *const wrong[] = {"100=1", "-1=1", "=1",   "1=",    "1",
                                        "1=nan", "1=1x", " 1=1", "1=inf", "99999999999=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct param_set w;
        assert_int_equal(params_open(&w, tables, counts, 1, &e), 0);
        assert_int_equal(params_set(&w, "logit_bias", wrong[i], "api", &e), 0);
        assert_int_equal(generation_read(&w, 100, &g, &e), LEAT_ERR_USAGE);
        params_close(&w);
    }
    params_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_and_beside_others),
        cmocka_unit_test(test_passes_are_full),
        cmocka_unit_test(test_nobody_starves_in_a_narrow_pass),
        cmocka_unit_test(test_a_long_prompt_leaves_room_for_the_others),
        cmocka_unit_test(test_full_context_is_length),
        cmocka_unit_test(test_prompt_alone),
        cmocka_unit_test(test_callbacks_hear_everything_once),
        cmocka_unit_test(test_stop_string_ends_and_is_not_shown),
        cmocka_unit_test(test_failures_and_cancelling),
        cmocka_unit_test(test_eval_gives_every_row_in_order),
        cmocka_unit_test(test_timelines_fork_and_cut),
        cmocka_unit_test(test_parameter_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
