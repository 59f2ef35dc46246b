/* leat.h as a program uses it: sessions, batches, cancelling, several threads, budgets. Needs the
 * shared test data. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../../include/leat.h"

#ifdef __SANITIZE_ADDRESS__
#define SANITIZER_GROWTH                                                                           \
    (UINT64_C(256) << 20) /* what it keeps for itself between two opens is no figure of ours */
#else
#define SANITIZER_GROWTH 0
#endif

static char dense_path[1024], moe_path[1024];

#define ASSERT_OK(call, e)                                                                         \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            fail_msg("%s: %s", #call, (e).message);                                                \
    } while (0)

static struct leat_params *params_of(const char *const *pairs)
{
    struct leat_error e;
    struct leat_params *p;
    ASSERT_OK(leat_params_open(&p, &e), e);
    for (; pairs && pairs[0]; pairs += 2)
        ASSERT_OK(leat_params_set(p, pairs[0], pairs[1], &e), e);
    return p;
}

static const char *const greedy[] = {"temp",    "0",        "ignore_eos", "true",    "predict",
                                     "40",      "sessions", "16",         "kv_type", "f32",
                                     "threads", "2",        NULL};

static struct leat_engine *engine_of(const char *path, struct leat_params *p)
{
    struct leat_error e;
    struct leat_engine *g;
    ASSERT_OK(leat_open(path, p, NULL, &g, &e), e);
    return g;
}

static struct leat_session *session_of(struct leat_engine *g)
{
    struct leat_error e;
    struct leat_session *s;
    ASSERT_OK(leat_session_open(g, &s, &e), e);
    return s;
}

/* ---- parameters ---- */

static void test_params(void **state)
{
    (void)state;
    struct leat_error e;
    struct leat_params *p = params_of(NULL);
    char *v = leat_params_get(p, "temp");
    assert_string_equal(v, "0.8");
    leat_free(v);
    assert_int_equal(leat_params_set(p, "memory", "3G", &e), 0);
    v = leat_params_get(p, "memory");
    assert_string_equal(v, "3G");
    leat_free(v);
    assert_null(leat_params_get(p, "nonsense"));
    assert_int_equal(leat_params_set(p, "nonsense", "1", &e), LEAT_ERR_USAGE);
    assert_int_equal(leat_params_set(p, "temp", "1x", &e), LEAT_ERR_USAGE);
    assert_int_equal(leat_params_set(p, "temp", "nan", NULL),
                     LEAT_ERR_USAGE); /* no error object is fine */
    char *json = leat_params_json(p), *table = leat_params_json(NULL);
    assert_non_null(strstr(json, "\"kv_type\""));
    assert_non_null(strstr(table, "\"kv_type\""));
    leat_free(json);
    leat_free(table);
    leat_params_close(p);
    leat_params_close(NULL);
    int32_t n, total = 0;
    for (int32_t t = 0; leat_param_rows(t, &n); t++)
        total += n;
    assert_true(total > 20);
}

/* ---- opening ---- */

static void test_open_failures(void **state)
{
    (void)state;
    struct leat_error e = {0};
    struct leat_engine *g = (struct leat_engine *)&e;
    struct leat_plan plan;
    assert_int_equal(leat_open("/nowhere/model.gguf", NULL, &plan, &g, &e), LEAT_ERR_FILE);
    assert_null(g);
    assert_int_equal(plan.n_rows, 0);
    leat_close(NULL);
    leat_session_close(NULL);
    leat_result_free(NULL);
    leat_tokenizer_close(NULL);
    leat_report_close(NULL);
}

static void test_refused_plan_then_the_figure(void **state)
{
    (void)state;
    struct leat_error e;
    struct leat_engine *g;
    struct leat_plan plan;
    const char *const tiny[] = {"memory", "2M", NULL};
    struct leat_params *p = params_of(tiny);
    assert_int_equal(leat_open(dense_path, p, &plan, &g, &e), LEAT_ERR_MEMORY);
    assert_null(g);
    uint64_t sum = 0;
    for (int32_t i = 0; i < plan.n_rows; i++)
        sum += plan.row[i].planned_bytes;
    assert_true(plan.n_rows > 5 && sum == plan.total_bytes && plan.total_bytes == e.needed_bytes);
    assert_true(plan.ceiling_bytes == UINT64_C(2) << 20 && plan.ceiling_by_hand);
    char figure[32];
    snprintf(figure, sizeof figure, "%llu",
             (unsigned long long)(e.needed_bytes + SANITIZER_GROWTH));
    ASSERT_OK(leat_params_set(p, "memory", figure, &e), e);
    ASSERT_OK(leat_open(dense_path, p, &plan, &g, &e), e);
    assert_true(plan.total_bytes <= plan.ceiling_bytes);
    struct leat_stats s;
    leat_engine_stats(g, 0, &s);
    assert_true(s.held_bytes <= plan.ceiling_bytes);
    assert_true(s.resident_read_bytes == 0 &&
                s.stream_read_bytes == 0); /* norms alone are read so early */
    leat_close(g);
    leat_params_close(p);
}

static void test_many_opens_do_not_grow(void **state)
{
    (void)state;
    struct leat_params *p = params_of(greedy);
    uint64_t at[3];
    for (int i = 0; i < 30; i++) {
        struct leat_engine *g = engine_of(i % 2 ? moe_path : dense_path, p);
        struct leat_session *s = session_of(g);
        struct leat_request q = {.session = s,
                                 .params = p,
                                 .text = "Once",
                                 .text_len = 4,
                                 .text_flags = LEAT_ENCODE_ADD_SPECIAL};
        struct leat_result r;
        struct leat_error e;
        struct leat_stats t;
        ASSERT_OK(leat_generate(g, &q, 1, &r, &e), e);
        leat_result_free(&r);
        leat_session_close(s);
        leat_engine_stats(g, 0, &t);
        leat_close(g);
        if (i % 14 == 1)
            at[i / 14] = t.rss_bytes;
    }
    assert_true(at[2] < at[1] + (UINT64_C(512) << 10) +
                            SANITIZER_GROWTH); /* as many again, no more memory */
    leat_params_close(p);
}

/* ---- one timeline ---- */

static void run(struct leat_engine *g, struct leat_session *s, struct leat_params *p,
                const int32_t *ids, int32_t n, struct leat_result *r)
{
    struct leat_error e;
    struct leat_request q = {.session = s, .params = p, .ids = ids, .n_ids = n};
    ASSERT_OK(leat_generate(g, &q, 1, r, &e), e);
}

static const int32_t prompt[] = {1, 403, 407, 261, 378};

static void test_a_session_goes_on(void **state)
{
    (void)state;
    struct leat_error e;
    struct leat_params *p = params_of(greedy);
    struct leat_engine *g = engine_of(dense_path, p);
    struct leat_session *a = session_of(g), *b = session_of(g), *f;
    struct leat_result whole, part, rest, forked, again;
    int32_t n, kept;

    run(g, a, p, prompt, 5, &whole);
    assert_int_equal(whole.n_tokens, 40);
    assert_memory_equal(leat_session_tokens(a, &n), prompt, sizeof prompt);
    assert_int_equal(n, 45);

    /* 15, then 25 more without a new prompt: the same 40 */
    ASSERT_OK(leat_params_set(p, "predict", "15", &e), e);
    run(g, b, p, prompt, 5, &part);
    ASSERT_OK(leat_session_fork(b, 12, &f, &e), e);
    ASSERT_OK(leat_params_set(p, "predict", "25", &e), e);
    run(g, b, p, NULL, 0, &rest);
    assert_memory_equal(part.tokens, whole.tokens, 15 * sizeof(int32_t));
    assert_memory_equal(rest.tokens, whole.tokens + 15, 25 * sizeof(int32_t));
    /* text of the parts is the text of the whole */
    assert_int_equal(part.text_len + rest.text_len, whole.text_len);
    assert_memory_equal(part.text, whole.text, part.text_len);
    assert_memory_equal(rest.text, whole.text + part.text_len, rest.text_len);

    /* a fork at 12 goes the same way; its origin is not disturbed */
    run(g, f, p, NULL, 0, &forked);
    assert_memory_equal(forked.tokens, whole.tokens + 7, 25 * sizeof(int32_t));

    /* cut back to the prompt: the last id is evaluated again */
    ASSERT_OK(leat_session_truncate(b, 5, &kept, &e), e);
    assert_int_equal(kept, 5);
    run(g, b, p, NULL, 0, &again);
    assert_memory_equal(again.tokens, whole.tokens, 25 * sizeof(int32_t));

    struct leat_result *all[] = {&whole, &part, &rest, &forked, &again};
    for (int i = 0; i < 5; i++)
        leat_result_free(all[i]);
    leat_session_close(a);
    leat_session_close(b);
    leat_session_close(f);
    leat_close(g);
    leat_params_close(p);
}

static void test_wrong_requests(void **state)
{
    (void)state;
    struct leat_error e;
    struct leat_params *p = params_of(greedy);
    const char *const one[] = {"predict", "3", "temp", "0", NULL};
    struct leat_params *single = params_of(one);
    struct leat_engine *g = engine_of(dense_path, p), *h = engine_of(dense_path, single);
    struct leat_session *a = session_of(g), *b = session_of(h), *c;
    struct leat_result r[3];
    const int32_t bad[] = {1, 512};

    /* more sessions than were asked for */
    assert_int_equal(leat_session_open(h, &c, &e), LEAT_ERR_STATE);
    assert_null(c);
    /* another engine's session */
    struct leat_request q[3] = {{.session = b, .params = p, .ids = prompt, .n_ids = 5}};
    assert_int_equal(leat_generate(g, q, 1, r, &e), LEAT_ERR_STATE);
    leat_result_free(&r[0]);
    /* one session twice */
    q[0].session = a;
    q[1] = q[0];
    assert_int_equal(leat_generate(g, q, 2, r, &e), LEAT_ERR_STATE);
    /* an unknown id fails alone; its neighbour gets what it would get */
    c = session_of(g);
    q[1] = (struct leat_request){.session = c, .params = p, .ids = bad, .n_ids = 2};
    assert_int_equal(leat_generate(g, q, 2, r, &e), LEAT_ERR_USAGE);
    assert_int_equal(r[0].finish, LEAT_FINISH_LENGTH);
    assert_int_equal(r[0].n_tokens, 40);
    assert_int_equal(r[1].finish, LEAT_FINISH_ERROR);
    assert_int_equal(r[1].error.code, LEAT_ERR_USAGE);
    leat_result_free(&r[0]);
    leat_result_free(&r[1]);
    /* nothing to continue */
    q[1] = (struct leat_request){.session = c, .params = p};
    assert_int_equal(leat_generate(g, &q[1], 1, r, &e), LEAT_ERR_USAGE);
    leat_result_free(&r[0]);
    /* no request at all */
    assert_int_equal(leat_generate(g, q, 0, r, &e), 0);
    leat_session_close(a);
    leat_session_close(b);
    leat_session_close(c);
    leat_close(g);
    leat_close(h);
    leat_params_close(p);
    leat_params_close(single);
}

/* ---- together ---- */

static void prompts(int32_t (*ids)[64], int32_t *n)
{
    uint32_t x = 12345;
    for (int i = 0; i < 16; i++) {
        n[i] = 1 + (i * 13) % 60;
        for (int k = 0; k < n[i]; k++) {
            x = x * 1664525u + 1013904223u;
            ids[i][k] = k ? (int32_t)(3 + (x >> 8) % 500) : 1;
        }
    }
}

/* Every sequence, sampled with a seed of its own, alone and beside 1, 7 and 15 others. */
static void beside(const char *path)
{
    struct leat_error e;
    struct leat_params *p = params_of(greedy), *own[16];
    struct leat_engine *g = engine_of(path, p);
    struct leat_result alone[16], r[16];
    static const int32_t crowds[] = {2, 8, 16};
    int32_t ids[16][64], n[16];
    prompts(ids, n);
    for (int i = 0; i < 16; i++) {
        char seed[16];
        snprintf(seed, sizeof seed, "%d", 100 + i);
        own[i] = params_of(greedy);
        leat_params_set(own[i], "temp", i % 3 ? "1" : "0", NULL);
        leat_params_set(own[i], "seed", seed, NULL);
        leat_params_set(own[i], "predict", i % 2 ? "30" : "17", NULL);
        struct leat_session *s = session_of(g);
        run(g, s, own[i], ids[i], n[i], &alone[i]);
        leat_session_close(s);
    }
    for (int c = 0; c < 3; c++) {
        struct leat_session *s[16];
        struct leat_request q[16] = {{0}};
        struct leat_stats before, after;
        for (int i = 0; i < crowds[c]; i++) {
            s[i] = session_of(g);
            q[i] = (struct leat_request){
                .session = s[i], .params = own[i], .ids = ids[i], .n_ids = n[i]};
        }
        leat_engine_stats(g, 0, &before);
        ASSERT_OK(leat_generate(g, q, crowds[c], r, &e), e);
        leat_engine_stats(g, 0, &after);
        assert_true(after.passes - before.passes < 60); /* they rode together */
        for (int i = 0; i < crowds[c]; i++) {
            assert_int_equal(r[i].n_tokens, alone[i].n_tokens);
            assert_memory_equal(r[i].tokens, alone[i].tokens,
                                sizeof(int32_t) * (size_t)r[i].n_tokens);
            assert_string_equal(r[i].text, alone[i].text);
            leat_result_free(&r[i]);
            leat_session_close(s[i]);
        }
    }
    for (int i = 0; i < 16; i++) {
        leat_result_free(&alone[i]);
        leat_params_close(own[i]);
    }
    leat_close(g);
    leat_params_close(p);
}

static void test_beside_others_dense(void **state)
{
    (void)state;
    beside(dense_path);
}

static void test_beside_others_moe(void **state)
{
    (void)state;
    beside(moe_path);
}

struct worker {
    struct leat_engine *g;
    struct leat_params *p;
    const int32_t *ids;
    int32_t n;
    struct leat_result r;
    int code;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct leat_session *s;
    w->code = leat_session_open(w->g, &s, NULL);
    if (w->code < 0)
        return NULL;
    struct leat_request q = {.session = s, .params = w->p, .ids = w->ids, .n_ids = w->n};
    w->code = leat_generate(w->g, &q, 1, &w->r, NULL);
    leat_session_close(s);
    return NULL;
}

static void test_threads_share_an_engine(void **state)
{
    (void)state;
    struct leat_params *p = params_of(greedy);
    struct leat_engine *g = engine_of(moe_path, p);
    struct worker w[6] = {{0}};
    pthread_t t[6];
    int32_t ids[16][64], n[16];
    prompts(ids, n);
    for (int i = 0; i < 6; i++) {
        w[i] = (struct worker){.g = g, .p = p, .ids = ids[i], .n = n[i]};
        assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(w[i].code, 0);
    }
    for (int i = 0; i < 6; i++) {
        struct worker again = {.g = g, .p = p, .ids = ids[i], .n = n[i]};
        work(&again);
        assert_int_equal(again.r.n_tokens, w[i].r.n_tokens);
        assert_memory_equal(again.r.tokens, w[i].r.tokens,
                            sizeof(int32_t) * (size_t)again.r.n_tokens);
        leat_result_free(&again.r);
        leat_result_free(&w[i].r);
    }
    leat_close(g);
    leat_params_close(p);
}

/* ---- cancelling ---- */

static int cancel_at_ten(void *arg, int32_t id)
{
    struct worker *w = arg;
    (void)id;
    if (++w->n == 10)
        leat_cancel(w->g);
    return 0;
}

static int end_at_three(void *arg, int32_t id)
{
    (void)id;
    return ++*(int32_t *)arg == 3;
}

static int cancel_session(void *arg, const char *text, size_t len)
{
    (void)text;
    (void)len;
    leat_session_cancel(arg);
    return 0;
}

static void test_cancel(void **state)
{
    (void)state;
    struct leat_error e;
    struct leat_params *p = params_of(greedy);
    struct leat_engine *g = engine_of(dense_path, p);
    struct leat_session *s = session_of(g), *t = session_of(g);
    struct worker w = {.g = g};
    struct leat_request q[2] = {{.session = s,
                                 .params = p,
                                 .ids = prompt,
                                 .n_ids = 5,
                                 .on_token = cancel_at_ten,
                                 .arg = &w},
                                {.session = t, .params = p, .ids = prompt, .n_ids = 5}};
    struct leat_result r[2];
    assert_int_equal(leat_generate(g, q, 2, r, &e), LEAT_ERR_CANCELLED);
    assert_int_equal(r[0].finish, LEAT_FINISH_CANCELLED);
    assert_int_equal(r[1].finish, LEAT_FINISH_CANCELLED);
    assert_int_equal(r[0].n_tokens, 10);
    assert_true(r[0].text_len > 0);
    leat_result_free(&r[0]);
    leat_result_free(&r[1]);
    /* it stays in force until it is taken back */
    q[0] = (struct leat_request){.session = s, .params = p};
    assert_int_equal(leat_generate(g, q, 1, r, &e), LEAT_ERR_CANCELLED);
    assert_int_equal(r[0].n_tokens, 0);
    leat_result_free(&r[0]);
    leat_uncancel(g);
    /* what was not done is done now: the session goes on where it was */
    ASSERT_OK(leat_params_set(p, "predict", "30", &e), e);
    ASSERT_OK(leat_generate(g, q, 1, r, &e), e);
    assert_int_equal(r[0].n_tokens, 30);
    struct leat_session *u = session_of(g);
    struct leat_result whole;
    ASSERT_OK(leat_params_set(p, "predict", "40", &e), e);
    run(g, u, p, prompt, 5, &whole);
    assert_memory_equal(r[0].tokens, whole.tokens + 10, 30 * sizeof(int32_t));
    leat_result_free(&r[0]);
    leat_result_free(&whole);
    /* a callback, or the session's own cancelling, ends one sequence */
    int32_t heard = 0;
    leat_session_truncate(s, 0, NULL, &e);
    leat_session_truncate(t, 0, NULL, &e);
    leat_session_truncate(u, 0, NULL, &e);
    struct leat_request three[3] = {{.session = s,
                                     .params = p,
                                     .ids = prompt,
                                     .n_ids = 5,
                                     .on_token = end_at_three,
                                     .arg = &heard},
                                    {.session = t, .params = p, .ids = prompt, .n_ids = 5},
                                    {.session = u,
                                     .params = p,
                                     .ids = prompt,
                                     .n_ids = 5,
                                     .on_text = cancel_session,
                                     .arg = u}};
    struct leat_result out[3];
    assert_int_equal(leat_generate(g, three, 3, out, &e), LEAT_ERR_CANCELLED);
    assert_int_equal(out[0].n_tokens, 3);
    assert_int_equal(out[1].finish, LEAT_FINISH_LENGTH);
    assert_int_equal(out[1].n_tokens, 40);
    assert_int_equal(out[2].finish, LEAT_FINISH_CANCELLED);
    assert_true(out[2].n_tokens < 5);
    for (int i = 0; i < 3; i++)
        leat_result_free(&out[i]);
    leat_session_close(s);
    leat_session_close(t);
    leat_session_close(u);
    leat_close(g);
    leat_params_close(p);
}

/* ---- evaluation ---- */

struct rows {
    float data[5][512];
    int32_t n;
};

static int keep_row(void *arg, int32_t position, const float *logits, int32_t width)
{
    struct rows *x = arg;
    assert_int_equal(position, x->n);
    assert_int_equal(width, 512);
    memcpy(x->data[x->n++], logits, sizeof x->data[0]);
    return 0;
}

static void test_eval(void **state)
{
    (void)state;
    struct leat_error e;
    struct leat_params *p = params_of(greedy);
    struct leat_engine *g = engine_of(dense_path, p);
    struct leat_session *s = session_of(g);
    struct rows x = {.n = 0};
    struct leat_eval v;
    ASSERT_OK(leat_eval(s, prompt, 5, keep_row, &x, &v, &e), e);
    assert_int_equal(x.n, 5);
    double nll = 0;
    for (int i = 0; i < 4; i++) {
        double sum = 0;
        for (int k = 0; k < 512; k++)
            sum += exp((double)x.data[i][k]);
        nll += log(sum) - (double)x.data[i][prompt[i + 1]];
    }
    assert_true(fabs(v.nll_sum - nll) < 1e-5 &&
                fabs(v.perplexity - exp(nll / 4)) < 1e-5 * v.perplexity);
    assert_int_equal(leat_eval(s, prompt, 5, NULL, NULL, &v, &e),
                     LEAT_ERR_STATE); /* not at position 0 any more */
    /* what was evaluated can be continued: the greedy token is the argmax of the last row */
    struct leat_result r;
    int32_t best = 0;
    for (int32_t k = 1; k < 512; k++)
        best = x.data[4][k] > x.data[4][best] ? k : best;
    run(g, s, p, NULL, 0, &r);
    assert_int_equal(r.tokens[0], best);
    leat_result_free(&r);
    leat_session_close(s);
    leat_close(g);
    leat_params_close(p);
}

/* ---- text ---- */

static void test_text(void **state)
{
    (void)state;
    struct leat_error e;
    struct leat_tokenizer *t;
    struct leat_vocab v;
    int32_t *ids;
    char *text;
    size_t n, len;
    ASSERT_OK(leat_tokenizer_open(dense_path, &t, &e), e);
    leat_tokenizer_facts(t, &v);
    assert_int_equal(v.size, 512);
    assert_int_equal(v.bos, 1);
    assert_string_equal(v.kind, "spm");
    ASSERT_OK(leat_encode(t, "Once upon a time", 16, LEAT_ENCODE_ADD_SPECIAL, &ids, &n, &e), e);
    assert_int_equal(n, 5);
    assert_memory_equal(ids, prompt, sizeof prompt);
    ASSERT_OK(leat_decode(t, ids, n, 0, &text, &len, &e), e);
    assert_string_equal(text, "Once upon a time");
    leat_free(text);
    leat_free(ids);
    ASSERT_OK(leat_encode(t, "", 0, 0, &ids, &n, &e), e);
    assert_int_equal(n, 0);
    assert_non_null(ids);
    leat_free(ids);
    const int32_t bad[] = {512};
    assert_int_equal(leat_decode(t, bad, 1, 0, &text, &len, &e), LEAT_ERR_USAGE);
    assert_null(text);
    assert_null(leat_piece(t, -1, &len));
    assert_memory_equal(leat_piece(t, 1, &len), "<s>", 3);
    assert_false(leat_is_end(t, -1));
    assert_true(leat_is_end(t, 2));
    leat_tokenizer_close(t);
    assert_int_equal(leat_tokenizer_open("/nowhere", &t, &e), LEAT_ERR_FILE);
    assert_null(t);
}

static void test_inspect(void **state)
{
    (void)state;
    struct leat_error e;
    struct leat_report *r;
    ASSERT_OK(leat_inspect(moe_path, &r, &e), e);
    char *json = leat_report_json(r), *text = leat_report_text(r, 1);
    assert_non_null(strstr(json, "\"token_cycle_bytes\""));
    assert_non_null(strstr(text, "ffn_gate_inp"));
    leat_free(json);
    leat_free(text);
    leat_report_close(r);
    assert_int_equal(leat_inspect("/nowhere", &r, &e), LEAT_ERR_FILE);
}

static void test_words(void **state)
{
    (void)state;
    assert_string_equal(leat_code_word(LEAT_ERR_MEMORY), "memory");
    assert_string_equal(leat_finish_word(LEAT_FINISH_CANCELLED), "cancelled");
    assert_string_equal(leat_finish_word((enum leat_finish)99), "none");
    assert_true(strlen(leat_version()) >= 5);
}

int main(void)
{
    const char *data = getenv("LEAT_TEST_DATA");
    snprintf(dense_path, sizeof dense_path, "%s/stories260K/stories260K-f32.gguf",
             data ? data : "../shared/data");
    snprintf(moe_path, sizeof moe_path, "%s/stories260K-moe/stories260K-moe8x2-varied-f32.gguf",
             data ? data : "../shared/data");
    if (access(dense_path, R_OK) != 0 || access(moe_path, R_OK) != 0) {
        printf("skipped: no stories260K in the test data (LEAT_TEST_DATA)\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_open_failures),
        cmocka_unit_test(test_refused_plan_then_the_figure),
        cmocka_unit_test(test_many_opens_do_not_grow),
        cmocka_unit_test(test_a_session_goes_on),
        cmocka_unit_test(test_wrong_requests),
        cmocka_unit_test(test_beside_others_dense),
        cmocka_unit_test(test_beside_others_moe),
        cmocka_unit_test(test_threads_share_an_engine),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_inspect),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
