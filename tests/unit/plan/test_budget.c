/* The division of a budget, over random figures: what holds for every model and machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../../src/base/error.h"
#include "../../../src/plan/budget.h"
#include "../../../src/plan/budget_params.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

/* A made-up model. */
struct figures {
    uint64_t kv_per_token, kv_window, compute_fixed, compute_per_token, logit_row, vectors,
        resident_min, resident_all, stream_min, stream_good, experts_min, experts_all, row_bytes,
        lanes;
};

static uint64_t fig_kv(const void *arg, int32_t context, int32_t width)
{
    const struct figures *f = arg;
    return ledger_rounded(f->kv_per_token * (uint64_t)context + f->kv_window * (uint64_t)width);
}

static uint64_t fig_compute(const void *arg, int32_t width, int32_t max_logits)
{
    const struct figures *f = arg;
    return ledger_rounded(f->compute_fixed + f->compute_per_token * (uint64_t)width +
                          64 * (uint64_t)max_logits);
}

static uint64_t fig_logits(const void *arg, int32_t max_logits)
{
    const struct figures *f = arg;
    return ledger_rounded(f->logit_row * (uint64_t)max_logits);
}

static int fig_weights(const void *arg, int32_t width, struct weights_need *out,
                       struct leat_error *e)
{
    const struct figures *f = arg;
    (void)e;
    *out = (struct weights_need){
        .vectors = f->vectors,
        .resident_min = f->resident_min,
        .resident_all = f->resident_all,
        .stream_min = f->stream_min,
        .stream_good = f->stream_good,
        .experts_min = f->experts_min,
        .experts_all = f->experts_all,
        .rows = ledger_rounded(f->row_bytes * (uint64_t)width),
        .lanes = f->lanes,
    };
    return 0;
}

static uint64_t seed = 88172645463325252u;

static uint64_t below(uint64_t n) /* xorshift */
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return n ? seed % n : 0;
}

static uint64_t scale(uint64_t n) /* of every size alike */
{
    return below(n >> below(30)) + 1;
}

static struct figures random_figures(void)
{
    struct figures f = {0};
    f.kv_per_token = scale(4 * MIB);
    f.kv_window = below(2) ? scale(MIB) : 0;
    f.compute_fixed = scale(64 * MIB);
    f.compute_per_token = scale(4 * MIB);
    f.logit_row = 4 * scale(300000);
    f.vectors = ledger_rounded(scale(64 * MIB));
    f.resident_min = below(4) ? ledger_rounded(scale(256 * MIB)) : 0;
    f.resident_all = ledger_rounded(f.resident_min + (below(4) ? scale(64 * 1024 * MIB) : 0));
    if (f.resident_all > f.resident_min) {
        f.stream_min = ledger_rounded(4 * MIB + scale(64 * MIB));
        f.stream_good = ledger_rounded(f.stream_min * (1 + below(8)));
    }
    if (below(2)) {
        f.experts_min = ledger_rounded(scale(512 * MIB));
        f.experts_all = ledger_rounded(f.experts_min + scale(512 * 1024 * MIB));
    }
    f.row_bytes = scale(64 * KIB);
    f.lanes = ledger_rounded(scale(4 * MIB));
    return f;
}

static struct budget_ask random_ask(const struct figures *f)
{
    struct budget_ask a = {
        .process_bytes = scale(128 * MIB),
        .model_bytes = 4096 * scale(4096),
        .tokenizer_bytes = 4096 * below(16384),
        .context = -1,
        .width = -1,
        .threads = 4,
        .lanes = 1 + (int32_t)below(16),
        .n_seq = 1,
        .max_logits = 1,
        .resident_bytes = BUDGET_AUTO,
        .expert_cache_bytes = BUDGET_AUTO,
    };
    if (below(3) == 0)
        a.context = (int32_t)scale(131072);
    if (below(3) == 0)
        a.width = (int32_t)scale(2048);
    if (below(3) == 0)
        a.max_logits = below(3) ? -(int32_t)(1 + below(2)) : (int32_t)(1 + below(64));
    if (below(3) == 0)
        a.n_seq = 1 + (int32_t)below(64);
    if (below(4) == 0)
        a.resident_bytes = below(f->resident_all + MIB);
    if (f->experts_all && below(4) == 0)
        a.expert_cache_bytes = below(f->experts_all + MIB);
    return a;
}

static struct budget_costs costs_of(const struct figures *f, int32_t trained)
{
    return (struct budget_costs){.arg = f,
                                 .name = "made-up",
                                 .n_ctx_train = trained,
                                 .kv = fig_kv,
                                 .compute = fig_compute,
                                 .logits = fig_logits,
                                 .weights = fig_weights};
}

static int32_t random_trained(void)
{
    return below(8) == 0 ? 0 : (int32_t)scale(262144);
}

static void check_granted(const struct figures *f, const struct budget_costs *c,
                          const struct budget_ask *a, const struct budget *b)
{
    uint64_t sum = 0;
    for (int i = 0; i < BUDGET_ROWS; i++)
        sum += b->row[i];
    assert_true(sum == b->total_bytes);
    assert_true(sum <= a->ceiling_bytes);
    assert_true(b->smallest_bytes <= a->ceiling_bytes);
    /* pins are kept, and every charge is what the choice costs */
    assert_true(a->context < 0 || b->context == a->context);
    assert_true(a->width <= 0 || b->width == a->width);
    assert_true(b->row[ROW_PROCESS] == a->process_bytes && b->row[ROW_MODEL] == a->model_bytes &&
                b->row[ROW_TOKENIZER] == a->tokenizer_bytes);
    assert_true(b->row[ROW_KV] == fig_kv(f, b->context, b->width));
    assert_true(b->row[ROW_COMPUTE] == fig_compute(f, b->width, b->max_logits));
    assert_true(b->row[ROW_LOGITS] == fig_logits(f, b->max_logits));
    assert_true(b->row[ROW_VECTORS] == f->vectors && b->row[ROW_LANES] == f->lanes);
    assert_true(b->row[ROW_ROWS] == ledger_rounded(f->row_bytes * (uint64_t)b->width));
    assert_true(b->row[ROW_PAGE_CACHE] == 0);
    if (a->context < 0) {
        int32_t least = c->n_ctx_train > 0 && c->n_ctx_train < 512 ? c->n_ctx_train : 512;
        assert_true(b->context >= least && b->context <= 4096);
        assert_true(c->n_ctx_train == 0 || b->context <= c->n_ctx_train);
    }
    assert_true(b->width >= 1 && (a->width > 0 || b->width <= 512));
    assert_true(b->max_logits >= 1 && b->max_logits <= b->width);
    if (a->max_logits == BUDGET_LOGITS_SPARE) {
        int32_t rows = a->n_seq < b->width ? a->n_seq : b->width;
        assert_true(b->max_logits >= rows);
        assert_true(b->row[ROW_LOGITS] + b->row[ROW_COMPUTE] <=
                    fig_logits(f, rows) + fig_compute(f, b->width, rows) + MIB);
    }
    assert_true(a->max_logits < 1 ||
                b->max_logits == (a->max_logits < b->width ? a->max_logits : b->width));
    /* weights */
    assert_true(b->resident_bytes >= f->resident_min && b->resident_bytes <= f->resident_all);
    if (b->resident_bytes < f->resident_all)
        assert_true(b->stream_bytes >= f->stream_min && b->stream_bytes <= f->stream_good);
    else
        assert_true(b->stream_bytes == 0);
    if (f->experts_all)
        assert_true(b->expert_cache_bytes >= f->experts_min &&
                    b->expert_cache_bytes <= f->experts_all);
    else
        assert_true(b->expert_cache_bytes == 0);
    if (a->resident_bytes != BUDGET_AUTO && a->resident_bytes >= f->resident_min &&
        a->resident_bytes <= f->resident_all)
        assert_true(b->resident_bytes == a->resident_bytes);
    /* a context that was chosen takes a quarter of what the smallest weights leave, or is the least
     */
    if (a->context < 0) {
        uint64_t dense = a->resident_bytes == BUDGET_AUTO
                             ? (f->resident_all <= f->resident_min + f->stream_min
                                    ? f->resident_all
                                    : f->resident_min + f->stream_min)
                             : b->resident_bytes + (b->stream_bytes ? f->stream_min : 0);
        uint64_t experts =
            a->expert_cache_bytes == BUDGET_AUTO ? f->experts_min : b->expert_cache_bytes;
        uint64_t rest = sum - b->row[ROW_KV] - b->row[ROW_RESIDENT] - b->row[ROW_STREAM] -
                        b->row[ROW_EXPERTS] + dense + experts;
        int32_t least = c->n_ctx_train > 0 && c->n_ctx_train < 512 ? c->n_ctx_train : 512;
        assert_true(b->context == least || b->row[ROW_KV] <= (a->ceiling_bytes - rest) / 4);
        if (b->context > least && b->context < 4096 && b->context < c->n_ctx_train)
            assert_true(fig_kv(f, b->context + 64, b->width) > (a->ceiling_bytes - rest) / 4);
    }
    /* nothing is left unused while something streams */
    uint64_t left = a->ceiling_bytes - sum;
    if (a->resident_bytes == BUDGET_AUTO && b->resident_bytes < f->resident_all)
        assert_true(left == 0 && b->expert_cache_bytes == (a->expert_cache_bytes == BUDGET_AUTO
                                                               ? f->experts_min
                                                               : b->expert_cache_bytes));
    if (a->expert_cache_bytes == BUDGET_AUTO && a->resident_bytes == BUDGET_AUTO &&
        b->expert_cache_bytes < f->experts_all)
        assert_true(left == 0);
}

static void test_what_is_granted_fits(void **state)
{
    (void)state;
    int granted = 0, refused = 0, streamed = 0, shrunk = 0;
    for (int round = 0; round < 20000; round++) {
        struct figures f = random_figures();
        struct budget_ask a = random_ask(&f);
        struct budget_costs c = costs_of(&f, random_trained());
        struct budget b;
        struct leat_error e = {0};
        a.ceiling_bytes = scale(64 * 1024 * MIB);
        int code = budget_divide(&c, &a, &b, &e);
        if (code < 0) {
            assert_int_equal(code, LEAT_ERR_MEMORY);
            refused++;
            /* the figure that the refusal names works, and is the smallest that does */
            assert_true(e.needed_bytes > a.ceiling_bytes && e.needed_bytes == b.smallest_bytes);
            a.ceiling_bytes = e.needed_bytes - 1;
            assert_int_equal(budget_divide(&c, &a, &b, NULL), LEAT_ERR_MEMORY);
            assert_true(b.total_bytes == a.ceiling_bytes + 1);
            a.ceiling_bytes++;
            assert_int_equal(budget_divide(&c, &a, &b, &e), 0);
            assert_true(b.total_bytes <= a.ceiling_bytes);
        }
        check_granted(&f, &c, &a, &b);
        granted++;
        streamed += b.resident_bytes < f.resident_all;
        shrunk += a.context < 0 && b.context < 4096 && b.context < c.n_ctx_train;
    }
    assert_true(refused > 1000 && granted > 1000 && streamed > 500 && shrunk > 200);
}

static void test_no_ceiling(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct figures f = random_figures();
        struct budget_ask a = random_ask(&f);
        struct budget_costs c = costs_of(&f, random_trained());
        struct budget b;
        a.ceiling_bytes = UINT64_MAX;
        assert_int_equal(budget_divide(&c, &a, &b, NULL), 0);
        if (a.resident_bytes == BUDGET_AUTO)
            assert_true(b.resident_bytes == f.resident_all && b.stream_bytes == 0);
        if (a.expert_cache_bytes == BUDGET_AUTO)
            assert_true(b.expert_cache_bytes == f.experts_all);
        if (a.context < 0)
            assert_int_equal(b.context,
                             c.n_ctx_train > 0 && c.n_ctx_train < 4096 ? c.n_ctx_train : 4096);
    }
}

/* More memory never gives less weight in memory, at one context and width. */
static void test_more_memory_is_never_worse(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        struct figures f = random_figures();
        struct budget_ask a = random_ask(&f);
        struct budget_costs c = costs_of(&f, 4096);
        struct budget b, before = {0};
        a.context = 600;
        a.width = 16;
        a.max_logits = 1; /* a share of the ceiling would rise with it */
        a.resident_bytes = a.expert_cache_bytes = BUDGET_AUTO;
        a.ceiling_bytes = 0;
        assert_int_equal(budget_divide(&c, &a, &b, NULL), LEAT_ERR_MEMORY);
        a.ceiling_bytes = b.smallest_bytes;
        for (int step = 0; step < 30; step++) {
            assert_int_equal(budget_divide(&c, &a, &b, NULL), 0);
            assert_true(b.resident_bytes + b.stream_bytes >=
                            before.resident_bytes + before.stream_bytes ||
                        b.resident_bytes == f.resident_all);
            assert_true(b.expert_cache_bytes >= before.expert_cache_bytes);
            before = b;
            a.ceiling_bytes += scale(8 * 1024 * MIB);
        }
    }
}

static void test_refusal_prints_the_sum(void **state)
{
    (void)state;
    struct figures f = {.kv_per_token = KIB,
                        .compute_fixed = MIB,
                        .compute_per_token = KIB,
                        .logit_row = KIB,
                        .vectors = MIB,
                        .resident_min = 4 * MIB,
                        .resident_all = 400 * MIB,
                        .stream_min = 8 * MIB,
                        .stream_good = 64 * MIB,
                        .row_bytes = KIB,
                        .lanes = MIB};
    struct budget_ask a = {.ceiling_bytes = 10 * MIB,
                           .process_bytes = 7 * MIB,
                           .model_bytes = MIB,
                           .context = -1,
                           .width = -1,
                           .threads = 1,
                           .lanes = 1,
                           .n_seq = 1,
                           .max_logits = 1,
                           .resident_bytes = BUDGET_AUTO,
                           .expert_cache_bytes = BUDGET_AUTO};
    struct budget_costs c = costs_of(&f, 2048);
    struct budget b;
    struct leat_error e = {0};
    assert_int_equal(budget_divide(&c, &a, &b, &e), LEAT_ERR_MEMORY);
    assert_non_null(strstr(e.message, "made-up"));
    for (int i = 0; i < BUDGET_ROWS; i++)
        assert_int_equal(strstr(e.message, ledger_row_name((enum ledger_row)i)) != NULL,
                         b.row[i] > 0);
    char figure[32];
    snprintf(figure, sizeof figure, "--memory %llu", (unsigned long long)e.needed_bytes);
    assert_non_null(strstr(e.message, figure));

    a.expert_cache_bytes = MIB; /* a cache of experts where there are none */
    assert_int_equal(budget_divide(&c, &a, &b, &e), LEAT_ERR_USAGE);
}

static void test_default_ceiling(void **state)
{
    (void)state;
    assert_true(budget_default_ceiling(4000) == 3000);
    assert_true(budget_default_ceiling(UINT64_MAX - 1) < UINT64_MAX - 1);
    assert_true(budget_default_ceiling(0) == 0);
}

static void test_parameter_rows(void **state)
{
    (void)state;
    struct param_set s;
    struct budget_ask a = {.ceiling_bytes = 77};
    const struct param *tables[] = {budget_params};
    const int32_t counts[] = {budget_params_count};
    assert_int_equal(params_open(&s, tables, counts, 1, NULL), 0);
    assert_false(budget_ask_read(&s, &a));
    assert_true(a.ceiling_bytes == 77 && a.context == -1 && a.width == -1 && a.n_seq == 1 &&
                a.max_logits == BUDGET_LOGITS_SPARE);
    assert_true(a.resident_bytes == BUDGET_AUTO && a.expert_cache_bytes == BUDGET_AUTO);
    params_set(&s, "memory", "2G", "api", NULL);
    params_set(&s, "context", "100", "api", NULL);
    params_set(&s, "ubatch", "7", "api", NULL);
    params_set(&s, "sessions", "5", "api", NULL);
    params_set(&s, "resident", "0", "api", NULL);
    assert_true(budget_ask_read(&s, &a));
    assert_true(a.ceiling_bytes == 2048 * MIB && a.context == 100 && a.width == 7 && a.n_seq == 5 &&
                a.max_logits == BUDGET_LOGITS_SPARE && a.resident_bytes == 0);
    params_set(&s, "logit_rows", "auto", "api", NULL);
    budget_ask_read(&s, &a);
    assert_int_equal(a.max_logits, BUDGET_LOGITS_SHARE);
    params_set(&s, "logit_rows", "9", "api", NULL);
    budget_ask_read(&s, &a);
    assert_int_equal(a.max_logits, 9);
    params_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_granted_fits),
        cmocka_unit_test(test_no_ceiling),
        cmocka_unit_test(test_more_memory_is_never_worse),
        cmocka_unit_test(test_refusal_prints_the_sum),
        cmocka_unit_test(test_default_ceiling),
        cmocka_unit_test(test_parameter_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
