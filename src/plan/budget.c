/* The policy that divides a memory budget (budget.h): what is charged in full, what shrinks when
 * it is tight, and who gets what is left over. Pure: figures in, figures out; it measures nothing,
 * opens nothing, and knows neither platform nor architecture. Any thread. */
#include "budget.h"

#include <string.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "budget_internal.h"

/* Positions a session gets when nobody asked: enough for a long answer, and a KV cache that small
 * machines hold. */
#define CONTEXT_WANTED 4096
/* Below this a chat forgets its own question; only a smaller trained length or a pin goes under
 * it. */
#define CONTEXT_LEAST 512
/* A chosen context is a multiple of this (whole KV pages, and figures that a person can read). */
#define CONTEXT_STEP 64
/* Wide enough that unpacking a block is paid once per many tokens; wider gained little in anyone's
 * engine. */
#define WIDTH_WANTED 512
/* Buffers of a pass may take a tenth of the budget (PLANNER P53): what they take, weights do not
 * have. */
#define BUFFER_SHARE 10
/* The KV cache may take a quarter of what is left above the smallest weights before a free context
 * shrinks. */
#define KV_SHARE 4
/* A ring hides reads with a few pieces per lane; every byte beyond that is read again each pass instead of once. It
 * gets at most a quarter of what dense weights may take, resident and ring together. */
#define RING_SHARE 4
/* Rows of logits beyond one per sequence are only worth what nobody misses; evaluation is faster
 * with them. */
#define LOGITS_SPARE (UINT64_C(1) << 20)
/* The default ceiling leaves a quarter of what is available to everybody else. */
#define DEFAULT_NUMERATOR   3
#define DEFAULT_DENOMINATOR 4

uint64_t budget_default_ceiling(uint64_t available_bytes)
{
    return available_bytes / DEFAULT_DENOMINATOR * DEFAULT_NUMERATOR;
}

uint64_t budget_timeline_bytes(int32_t context, int32_t n_seq)
{
    /* ids, and a copy that the penalties sort */
    return (uint64_t)n_seq * ledger_rounded((uint64_t)context * 2 * sizeof(int32_t));
}

uint64_t budget_sampler_bytes(int32_t n_logits)
{
    /* one candidate: a logit and its id */
    return ledger_rounded((uint64_t)n_logits * (sizeof(float) + sizeof(int32_t)));
}

static uint64_t sum2(uint64_t a, uint64_t b)
{
    uint64_t r;
    return checked_add(a, b, &r) ? r : UINT64_MAX;
}

/* One way to run: what was chosen, and its price with the smallest weights. */
struct choice {
    int32_t context, width, max_logits;
    struct weights_need need;
    uint64_t kv, compute, logits;
    uint64_t resident, stream, experts; /* smallest */
    uint64_t total;
};

static uint64_t clamp(uint64_t v, uint64_t least, uint64_t most)
{
    return v < least ? least : v > most ? most : v;
}

/* The smallest memory of the dense weights, or what was pinned: never less than what must stay,
 * never more than there is. */
static void dense_least(const struct budget_ask *ask, struct choice *x)
{
    const struct weights_need *n = &x->need;
    if (ask->resident_bytes == BUDGET_AUTO)
        x->resident = n->resident_all <= sum2(n->resident_min, n->stream_min) ? n->resident_all
                                                                              : n->resident_min;
    else
        x->resident = clamp(ask->resident_bytes, n->resident_min, n->resident_all);
    x->stream = x->resident >= n->resident_all ? 0 : n->stream_min;
}

static int experts_least(const struct budget_costs *c, const struct budget_ask *ask,
                         struct choice *x, struct leat_error *e)
{
    const struct weights_need *n = &x->need;
    x->experts = 0;
    if (n->experts_all == 0 && ask->expert_cache_bytes != BUDGET_AUTO)
        return error_set(e, LEAT_ERR_USAGE,
                         "%s has no experts: an expert cache would do nothing here", c->name);
    if (n->experts_all > 0)
        x->experts = ask->expert_cache_bytes == BUDGET_AUTO
                         ? n->experts_min
                         : clamp(ask->expert_cache_bytes, n->experts_min, n->experts_all);
    return 0;
}

static uint64_t fixed_bytes(const struct budget_ask *ask, const struct choice *x)
{
    uint64_t s = sum2(ask->process_bytes, sum2(ask->model_bytes, ask->tokenizer_bytes));
    return sum2(s, sum2(x->need.vectors,
                        x->need.lanes)); /* lanes: with the page cache that buffered reads cause */
}

/* Prices a choice with the smallest weights that go with it. */
static int price(const struct budget_costs *c, const struct budget_ask *ask, int32_t context,
                 int32_t width, int32_t max_logits, struct choice *x, struct leat_error *e)
{
    memset(x, 0, sizeof *x);
    x->context = context;
    x->width = width;
    x->max_logits = max_logits < width ? max_logits : width;
    int code = c->weights(c->arg, width, &x->need, e);
    if (code < 0 || (code = experts_least(c, ask, x, e)) < 0)
        return code;
    dense_least(ask, x);
    x->kv = c->kv(c->arg, context, width);
    x->compute = c->compute(c->arg, width, x->max_logits);
    x->logits = c->logits(c->arg, x->max_logits);
    uint64_t weights = sum2(x->resident, sum2(x->stream, x->experts));
    uint64_t buffers = sum2(x->kv, sum2(x->compute, sum2(x->logits, x->need.rows)));
    x->total = sum2(fixed_bytes(ask, x), sum2(weights, buffers));
    return 0;
}

static int32_t least_context(const struct budget_costs *c, const struct budget_ask *ask)
{
    if (ask->context >= 0)
        return ask->context;
    return c->n_ctx_train > 0 && c->n_ctx_train < CONTEXT_LEAST ? c->n_ctx_train : CONTEXT_LEAST;
}

static int32_t wanted_context(const struct budget_costs *c, const struct budget_ask *ask)
{
    if (ask->context >= 0)
        return ask->context;
    return c->n_ctx_train > 0 && c->n_ctx_train < CONTEXT_WANTED ? c->n_ctx_train : CONTEXT_WANTED;
}

static int32_t least_logits(const struct budget_ask *ask)
{
    if (ask->max_logits > 0)
        return ask->max_logits;
    return ask->max_logits == BUDGET_LOGITS_SPARE ? ask->n_seq : 1;
}

static int smallest(const struct budget_costs *c, const struct budget_ask *ask, struct choice *x,
                    struct leat_error *e)
{
    int32_t width = ask->width > 0 ? ask->width : 1;
    return price(c, ask, least_context(c, ask), width, least_logits(ask), x, e);
}

/* The most rows of logits, up to width, that cost no more than limit beyond the least. */
static int32_t logits_by_limit(const struct budget_costs *c, int32_t least, int32_t width,
                               uint64_t limit)
{
    int32_t lo = least < width ? least : width, hi = width;
    const uint64_t base = c->logits(c->arg, lo) + c->compute(c->arg, width, lo);
    while (lo < hi) {
        int32_t mid = lo + (hi - lo + 1) / 2;
        if (sum2(c->logits(c->arg, mid), c->compute(c->arg, width, mid)) - base <= limit)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static int32_t wanted_logits(const struct budget_costs *c, const struct budget_ask *ask,
                             int32_t width)
{
    const uint64_t share = ask->ceiling_bytes / BUFFER_SHARE;
    if (ask->max_logits > 0)
        return ask->max_logits;
    return logits_by_limit(
        c, least_logits(ask), width,
        ask->max_logits == BUDGET_LOGITS_SPARE && share > LOGITS_SPARE ? LOGITS_SPARE : share);
}

/* The longest context from least to most whose KV cache stays within limit; else least. */
static int32_t context_by_limit(const struct budget_costs *c, int32_t least, int32_t most,
                                int32_t width, uint64_t limit)
{
    if (c->kv(c->arg, most, width) <= limit)
        return most;
    int32_t lo = 0, hi = (most - least) / CONTEXT_STEP; /* in steps above least */
    while (lo < hi) {
        int32_t mid = lo + (hi - lo + 1) / 2;
        if (c->kv(c->arg, least + mid * CONTEXT_STEP, width) <= limit)
            lo = mid;
        else
            hi = mid - 1;
    }
    return least + lo * CONTEXT_STEP;
}

/* Chooses context, width and rows of logits: those wanted, smaller where the budget is tight. */
static int choose(const struct budget_costs *c, const struct budget_ask *ask, struct budget *out,
                  struct choice *x, struct leat_error *e)
{
    const uint64_t ceiling = ask->ceiling_bytes, share = ceiling / BUFFER_SHARE;
    const int32_t most = wanted_context(c, ask), least = least_context(c, ask);
    bool free_width = ask->width <= 0, free_logits = ask->max_logits <= 0,
         free_context = ask->context < 0;
    int32_t width = free_width ? (most < WIDTH_WANTED ? most : WIDTH_WANTED) : ask->width;
    int32_t logits = wanted_logits(c, ask, width);
    int code;

    out->why_context = !free_context            ? "asked for"
                       : most == c->n_ctx_train ? "the length it was trained for"
                                                : "the default";
    out->why_width = !free_width ? "asked for" : "the default";
    if (free_width && ask->max_logits == BUDGET_LOGITS_SHARE && logits < width) {
        width = logits; /* every token wants its logits: a wider pass could not be used */
        out->why_width = "as many rows of logits as a tenth of the budget holds";
    }
    if ((code = price(c, ask, most, width, logits, x, e)) < 0)
        return code;
    while (free_width && width > 1 && sum2(x->compute, sum2(x->logits, x->need.rows)) > share) {
        width /= 2;
        if (free_logits && logits > width)
            logits = width;
        out->why_width = "buffers within a tenth of the budget";
        if ((code = price(c, ask, most, width, logits, x, e)) < 0)
            return code;
    }

    uint64_t rest = x->total - x->kv;
    uint64_t above = ceiling > rest ? ceiling - rest : 0;
    int32_t context =
        free_context ? context_by_limit(c, least, most, width, above / KV_SHARE) : most;
    if (context < most) {
        out->why_context = "KV cache within a quarter of what the budget leaves";
        if ((code = price(c, ask, context, width, logits, x, e)) < 0)
            return code;
    }
    /* The smallest choice fits, so this ends. */
    while (x->total > ceiling) {
        if (ask->max_logits == BUDGET_LOGITS_SPARE && logits > least_logits(ask)) {
            logits = least_logits(ask); /* not to be spared after all */
        } else if (free_context && context > least) {
            context = context_by_limit(c, least, context - 1, width, above);
            out->why_context = "the budget";
        } else if (free_width && width > 1) {
            width /= 2;
            if (free_logits && logits > width)
                logits = width;
            out->why_width = "the budget";
        } else {
            logits = least_logits(ask); /* a pinned smallest choice would have been refused */
        }
        if ((code = price(c, ask, context, width, logits, x, e)) < 0)
            return code;
        rest = x->total - x->kv;
        above = ceiling > rest ? ceiling - rest : 0;
    }
    return 0;
}

/* Hands what is left to the weights: dense first, then experts. */
static void spend(const struct budget_ask *ask, struct choice *x)
{
    const struct weights_need *n = &x->need;
    uint64_t left = ask->ceiling_bytes == UINT64_MAX ? UINT64_MAX : ask->ceiling_bytes - x->total;
    bool dense_free = ask->resident_bytes == BUDGET_AUTO;

    if (x->resident < n->resident_all) {
        uint64_t dense = sum2(left, sum2(x->resident, x->stream));
        if (dense_free && dense >= n->resident_all) {
            x->resident = n->resident_all;
            x->stream = 0;
        } else {
            uint64_t ring = dense - x->resident;
            if (dense_free && ring > dense / RING_SHARE)
                ring = dense / RING_SHARE;
            x->stream = ring < n->stream_good ? ring : n->stream_good;
            if (x->stream < n->stream_min)
                x->stream = n->stream_min;
            if (dense_free)
                x->resident = dense - x->stream;
        }
        left = left == UINT64_MAX ? left : dense - x->resident - x->stream;
    }
    if (ask->expert_cache_bytes == BUDGET_AUTO && x->experts < n->experts_all) {
        uint64_t room = sum2(left, x->experts);
        x->experts = room < n->experts_all ? room : n->experts_all;
    }
}

static void report(const struct budget_ask *ask, const struct choice *x, struct budget *out)
{
    out->context = x->context;
    out->width = x->width;
    out->max_logits = x->max_logits;
    out->n_seq = ask->n_seq;
    out->kv_bytes = x->kv;
    out->compute_bytes = x->compute;
    out->logits_bytes = x->logits;
    out->resident_bytes = x->resident;
    out->stream_bytes = x->stream;
    out->expert_cache_bytes = x->experts;
    out->rows_bytes = x->need.rows;
    out->vectors_bytes = x->need.vectors;
    out->lanes_bytes = x->need.lanes;

    memset(out->row, 0, sizeof out->row);
    out->row[ROW_PROCESS] = ask->process_bytes;
    out->row[ROW_MODEL] = ask->model_bytes;
    out->row[ROW_TOKENIZER] = ask->tokenizer_bytes;
    out->row[ROW_VECTORS] = x->need.vectors;
    out->row[ROW_KV] = x->kv;
    out->row[ROW_COMPUTE] = x->compute;
    out->row[ROW_LOGITS] = x->logits;
    out->row[ROW_RESIDENT] = x->resident;
    out->row[ROW_STREAM] = x->stream;
    out->row[ROW_EXPERTS] = x->experts;
    out->row[ROW_ROWS] = x->need.rows;
    out->row[ROW_LANES] = x->need.lanes;
    out->total_bytes = 0;
    for (int i = 0; i < BUDGET_ROWS; i++)
        out->total_bytes = sum2(out->total_bytes, out->row[i]);
}

int budget_divide(const struct budget_costs *c, const struct budget_ask *ask, struct budget *out,
                  struct leat_error *e)
{
    struct choice x;
    memset(out, 0, sizeof *out);
    out->why_context = out->why_width = "";
    int code = smallest(c, ask, &x, e);
    if (code < 0)
        return code;
    const uint64_t least = x.total;
    if (least > ask->ceiling_bytes) {
        report(ask, &x, out);
        out->why_context = ask->context >= 0 ? "asked for" : "the smallest";
        out->why_width = ask->width > 0 ? "asked for" : "the smallest";
        out->smallest_bytes = least;
        return budget_refuse(c->name, ask, out, e);
    }
    if ((code = choose(c, ask, out, &x, e)) < 0)
        return code;
    spend(ask, &x);
    report(ask, &x, out);
    out->smallest_bytes = least;
    return 0;
}
