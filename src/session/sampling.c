/* The sampler (sampling.h): bias, penalties, cuts, draw. Owns no memory, knows no tokenizer and no
 * session. Pure but for the generator; one thread per sampler. */
#include "sampling.h"

#include <float.h>
#include <math.h>

void sampler_init(struct sampler *s, const struct sampling *how)
{
    s->how = *how;
    rng_seed(&s->rng, how->seed);
}

/* ---- the greatest logit ---- */

#define LANES                                                                                      \
    16 /* independent maxima, so that the loop needs no order and compiles to vector code */

static float greatest(const float *x, int32_t n, bool *bad)
{
    float m[LANES];
    uint32_t wrong[LANES] = {0};
    int32_t i = 0;
    for (int j = 0; j < LANES; j++)
        m[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
            wrong[j] |= !(x[i + j] <= FLT_MAX); /* NaN or +infinity */
        }
    float best = -INFINITY;
    uint32_t any = 0;
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
        any |= !(x[i] <= FLT_MAX);
    }
    for (int j = 0; j < LANES; j++) {
        best = m[j] > best ? m[j] : best;
        any |= wrong[j];
    }
    *bad = any != 0;
    return best;
}

/* ---- heaps; the root is the entry that comes last in the given order ---- */

typedef bool (*before_fn)(const struct candidate *a, const struct candidate *b);

static bool by_rank(const struct candidate *a, const struct candidate *b) /* the likelier first */
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static bool by_rank_reversed(const struct candidate *a, const struct candidate *b)
{
    return by_rank(b, a);
}

static bool by_id(const struct candidate *a, const struct candidate *b)
{
    return a->id < b->id;
}

static inline void sift(struct candidate *h, int32_t n, int32_t i, before_fn before)
{
    const struct candidate x = h[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(&h[child], &h[child + 1]))
            child++;
        if (!before(&x, &h[child]))
            break;
        h[i] = h[child];
        i = child;
    }
    h[i] = x;
}

static void heapify(struct candidate *h, int32_t n, before_fn before)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift(h, n, i, before);
}

/* Moves the root behind the shrunken heap of n - 1. */
static void pop(struct candidate *h, int32_t n, before_fn before)
{
    struct candidate x = h[0];
    h[0] = h[n - 1];
    h[n - 1] = x;
    sift(h, n - 1, 0, before);
}

static void sort_by_id(struct candidate *c, int32_t n)
{
    heapify(c, n, by_id);
    for (int32_t left = n; left > 1; left--)
        pop(c, left, by_id);
}

/* ---- bias and penalties ---- */

static void apply_bias(const struct sampling *how, float *logits, int32_t n)
{
    for (int32_t i = 0; i < how->n_bias; i++)
        if (how->bias[i].id >= 0 && how->bias[i].id < n)
            logits[how->bias[i].id] += how->bias[i].bias;
}

static void sift_ids(int32_t *h, int32_t n, int32_t i)
{
    const int32_t x = h[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && h[child] < h[child + 1])
            child++;
        if (x >= h[child])
            break;
        h[i] = h[child];
        i = child;
    }
    h[i] = x;
}

static void sort_ids(int32_t *ids, int32_t n) /* heap sort: qsort may allocate */
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_ids(ids, n, i);
    for (int32_t left = n - 1; left > 0; left--) {
        int32_t x = ids[0];
        ids[0] = ids[left];
        ids[left] = x;
        sift_ids(ids, left, 0);
    }
}

static void apply_penalties(const struct sampling *how, float *logits, int32_t n,
                            const int32_t *history, int32_t n_history, int32_t *sorted)
{
    int32_t window =
        how->repeat_last_n < 0 || how->repeat_last_n > n_history ? n_history : how->repeat_last_n;
    if (window == 0 || (how->repeat_penalty == 1.0f && how->frequency_penalty == 0.0f &&
                        how->presence_penalty == 0.0f))
        return;
    for (int32_t i = 0; i < window; i++)
        sorted[i] = history[n_history - window + i];
    sort_ids(sorted, window);
    for (int32_t i = 0, j; i < window; i = j) {
        const int32_t id = sorted[i];
        for (j = i + 1; j < window && sorted[j] == id;)
            j++;
        if (id < 0 || id >= n)
            continue;
        float x = logits[id];
        x = x > 0 ? x / how->repeat_penalty : x * how->repeat_penalty;
        logits[id] = x - (float)(j - i) * how->frequency_penalty - how->presence_penalty;
    }
}

/* ---- the cuts ---- */

/* The k likeliest, in ascending order of id. Ids come in ascending order, so an equal logit never
 * displaces one. */
static int32_t keep_top_k(const float *logits, int32_t n, int32_t k, struct candidate *out)
{
    for (int32_t i = 0; i < k; i++)
        out[i] = (struct candidate){logits[i], i};
    heapify(out, k, by_rank);
    float worst = out[0].logit;
    for (int32_t i = k; i < n; i++) {
        if (logits[i] <= worst)
            continue;
        out[0] = (struct candidate){logits[i], i};
        sift(out, k, 0, by_rank);
        worst = out[0].logit;
    }
    sort_by_id(out, k);
    return k;
}

/* The shortest run of the likeliest whose share of total reaches p; at least one. */
static int32_t keep_top_p(struct candidate *c, int32_t n, float max, double total, float p)
{
    double sum = 0;
    int32_t left = n;
    heapify(c, n, by_rank_reversed);
    while (left > 0) {
        sum += exp((double)c[0].logit - (double)max);
        pop(c, left--, by_rank_reversed);
        if (sum >= (double)p * total)
            break;
    }
    const int32_t kept = n - left; /* they lie behind what is left */
    for (int32_t i = 0; i < kept; i++)
        c[i] = c[left + i];
    sort_by_id(c, kept);
    return kept;
}

static int32_t keep(const struct sampling *how, const float *logits, int32_t n, float max,
                    struct candidate *out)
{
    const bool cut_k = how->top_k > 0 && how->top_k < n, cut_p = how->top_p < 1.0f;
    const float least = how->min_p > 0 ? max + logf(how->min_p) : -INFINITY;
    double total = 0;
    int32_t kept = 0;
    if (cut_k) {
        keep_top_k(logits, n, how->top_k, out);
        for (int32_t i = 0; i < how->top_k; i++) {
            if (cut_p)
                total += exp((double)out[i].logit - (double)max);
            if (out[i].logit >= least && out[i].logit > -INFINITY)
                out[kept++] = out[i];
        }
    } else {
        for (int32_t i = 0; i < n; i++) {
            if (cut_p)
                total += exp((double)logits[i] - (double)max);
            if (logits[i] >= least && logits[i] > -INFINITY)
                out[kept++] = (struct candidate){logits[i], i};
        }
    }
    return cut_p ? keep_top_p(out, kept, max, total, how->top_p) : kept;
}

int32_t sampler_keep(const struct sampling *how, const float *logits, int32_t n,
                     struct candidate *out)
{
    bool bad;
    return keep(how, logits, n, greatest(logits, n, &bad), out);
}

/* One of the kept, by its weight at the temperature; the walk is in ascending order of id. */
static int32_t draw(struct sampler *s, struct candidate *c, int32_t n, float max)
{
    const double t = (double)s->how.temperature;
    double total = 0, sum = 0;
    for (int32_t i = 0; i < n; i++) {
        c[i].logit = (float)exp(((double)c[i].logit - (double)max) / t);
        total += (double)c[i].logit;
    }
    const double at = rng_unit(&s->rng) * total;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)c[i].logit;
        if (sum > at)
            return c[i].id;
    }
    int32_t i = n - 1; /* rounding at the very end: the last that has any weight */
    while (i > 0 && c[i].logit == 0)
        i--;
    return c[i].id;
}

int sampler_pick(struct sampler *s, float *logits, int32_t n, const int32_t *history,
                 int32_t n_history, int32_t *sorted, struct candidate *scratch, int32_t *id,
                 struct leat_error *e)
{
    bool bad;
    apply_bias(&s->how, logits, n);
    apply_penalties(&s->how, logits, n, history, n_history, sorted);
    const float max = greatest(logits, n, &bad);
    if (bad)
        return error_set(e, LEAT_ERR_FORMAT,
                         "the logits after %d tokens hold NaN or infinity: the model's weights are "
                         "damaged or overflow",
                         (int)n_history);
    if (max == -INFINITY)
        return error_set(e, LEAT_ERR_FORMAT,
                         "no token is left to choose after %d tokens: every logit is -infinity",
                         (int)n_history);
    if (s->how.temperature <= 0) {
        int32_t i = 0;
        while (logits[i] != max)
            i++;
        *id = i;
        return 0;
    }
    *id = draw(s, scratch, keep(&s->how, logits, n, max, scratch), max);
    return 0;
}
