/* The sampler (sampling.h): bias, penalties, cuts, draw. Owns no memory, knows no tokenizer and no
 * session. Pure but for the generator; one thread per sampler. */
#include "sampling.h"

#include <math.h>

#include "sampling_scan.h"

void sampler_init(struct sampler *s, const struct sampling *how)
{
    s->how = *how;
    rng_seed(&s->rng, how->seed);
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

#define FEW_K 1024 /* top-k up to here looks only at blocks that hold high logits */

/* A logit that at least k reach: the k-th of the blocks' greatest. -INFINITY when there are fewer
 * blocks. */
static float reached_by(const struct candidate *top, int32_t blocks, int32_t k)
{
    struct candidate h[FEW_K];
    if (k > FEW_K || k >= blocks)
        return -INFINITY;
    for (int32_t i = 0; i < k; i++)
        h[i] = (struct candidate){top[i].logit, i};
    heapify(h, k, by_rank);
    for (int32_t i = k; i < blocks; i++) {
        if (top[i].logit <= h[0].logit)
            continue;
        h[0] = (struct candidate){top[i].logit, i};
        sift(h, k, 0, by_rank);
    }
    return h[0].logit;
}

/* All logits of at least least, in ascending order of id, into out; top holds the blocks' greatest
 * and may be the last entries of out's n: a block's own is read before its logits are written. */
static int32_t keep_from(const float *logits, int32_t n, float least, const struct candidate *top,
                         struct candidate *out)
{
    int32_t kept = 0;
    for (int32_t b = 0, i = 0; i < n; b++) {
        const int32_t end = n - i < SCAN_BLOCK ? n : i + SCAN_BLOCK;
        if (top[b].logit < least || top[b].logit == -INFINITY) {
            i = end;
            continue;
        }
        for (; i < end; i++)
            if (logits[i] >= least && logits[i] > -INFINITY)
                out[kept++] = (struct candidate){logits[i], i};
    }
    return kept;
}

/* The k likeliest of n, which come in ascending order of id, so that an equal logit never
 * displaces one; what stays is in that order too. */
static int32_t keep_top_k(struct candidate *c, int32_t n, int32_t k)
{
    if (n <= k)
        return n;
    heapify(c, k, by_rank);
    for (int32_t i = k; i < n; i++) {
        if (c[i].logit <= c[0].logit)
            continue;
        c[0] = c[i];
        sift(c, k, 0, by_rank);
    }
    sort_by_id(c, k);
    return k;
}

/* The shortest run of the likeliest whose share of total reaches p; at least one. *reached: the n
 * were enough. */
static int32_t keep_top_p(struct candidate *c, int32_t n, float max, double total, float p,
                          bool *reached)
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
    *reached = sum >= (double)p * total;
    const int32_t kept = n - left; /* they lie behind what is left */
    for (int32_t i = 0; i < kept; i++)
        c[i] = c[left + i];
    sort_by_id(c, kept);
    return kept;
}

/* Where the blocks' greatest stay while candidates are written (keep_from). */
static struct candidate *tops(struct candidate *scratch, int32_t n)
{
    return scratch + (n - scan_blocks(n));
}

/* top-p over the whole vocabulary: first among those within a distance of the greatest that
 * should be enough, and if they are not, among all. */
static int32_t keep_share(const struct sampling *how, const float *logits, int32_t n, float max,
                          float least, struct candidate *out)
{
    double mass[SCAN_DEPTHS];
    const double total = scan_mass(logits, n, max, tops(out, n), mass),
                 wanted = (double)how->top_p * total;
    float from = -INFINITY;
    bool reached = false;
    for (int32_t d = SCAN_DEPTHS - 1; d >= 0; d--)
        if (mass[d] * (1 - 1e-4) > wanted)
            from = max - scan_depth[d];
    from = from > least ? from : least;
    int32_t kept = keep_from(logits, n, from, tops(out, n), out);
    kept = keep_top_p(out, kept, max, total, how->top_p, &reached);
    if (reached || from == least)
        return kept;
    kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (logits[i] >= least && logits[i] > -INFINITY)
            out[kept++] = (struct candidate){logits[i], i};
    return keep_top_p(out, kept, max, total, how->top_p, &reached);
}

/* out: room for n, with the blocks' greatest at its end. */
static int32_t keep(const struct sampling *how, const float *logits, int32_t n, float max,
                    struct candidate *out)
{
    const bool cut_k = how->top_k > 0 && how->top_k < n, cut_p = how->top_p < 1.0f;
    const float least = how->min_p > 0 ? max + logf(how->min_p) : -INFINITY;
    if (!cut_k && cut_p)
        return keep_share(how, logits, n, max, least, out);
    if (!cut_k)
        return keep_from(logits, n, least, tops(out, n), out);
    /* -infinity is never drawn, so that it is left out here changes only who fills up the k. */
    const float from = reached_by(tops(out, n), scan_blocks(n), how->top_k);
    int32_t kept = keep_from(logits, n, from, tops(out, n), out), m = 0;
    kept = keep_top_k(out, kept, how->top_k);
    double total = 0;
    for (int32_t i = 0; i < kept; i++) {
        if (cut_p)
            total += exp((double)out[i].logit - (double)max);
        if (out[i].logit >= least)
            out[m++] = out[i];
    }
    bool reached;
    return cut_p ? keep_top_p(out, m, max, total, how->top_p, &reached) : m;
}

int32_t sampler_keep(const struct sampling *how, const float *logits, int32_t n,
                     struct candidate *out)
{
    bool bad;
    return keep(how, logits, n, scan_greatest(logits, n, tops(out, n), &bad), out);
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

/* One of all n, by its weight at the temperature, as draw does it: first the block, then the id. */
static int32_t draw_of_all(struct sampler *s, const float *logits, int32_t n, float max,
                           struct candidate *sums)
{
    const float t = s->how.temperature;
    const int32_t blocks = scan_blocks(n);
    float w[SCAN_BLOCK];
    double total = 0, sum = 0;
    scan_sums(logits, n, max, t, sums);
    for (int32_t b = 0; b < blocks; b++)
        total += (double)sums[b].logit;
    const double at = rng_unit(&s->rng) * total;
    int32_t b = 0, last = 0; /* the last block that has any weight */
    for (; b < blocks; b++) {
        if (sums[b].logit > 0)
            last = b;
        if (sum + (double)sums[b].logit > at)
            break;
        sum += (double)sums[b].logit;
    }
    b = b < blocks ? b : last;
    const int32_t first = b * SCAN_BLOCK, m = n - first < SCAN_BLOCK ? n - first : SCAN_BLOCK;
    scan_weights(logits + first, m, max, t, w);
    int32_t pick = -1;
    for (int32_t i = 0; i < m; i++) {
        if (w[i] == 0)
            continue;
        pick = i; /* at the very end rounding may leave nothing: the last that has any weight */
        sum += (double)w[i];
        if (sum > at)
            break;
    }
    return first + pick;
}

int sampler_pick(struct sampler *s, float *logits, int32_t n, const int32_t *history,
                 int32_t n_history, int32_t *sorted, struct candidate *scratch, int32_t *id,
                 struct leat_error *e)
{
    bool bad;
    apply_bias(&s->how, logits, n);
    apply_penalties(&s->how, logits, n, history, n_history, sorted);
    const struct candidate *top = tops(scratch, n);
    const float max = scan_greatest(logits, n, tops(scratch, n), &bad);
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
        while (top[i / SCAN_BLOCK].logit != max)
            i += SCAN_BLOCK;
        while (logits[i] != max)
            i++;
        *id = i;
        return 0;
    }
    const bool all =
        (s->how.top_k <= 0 || s->how.top_k >= n) && s->how.top_p >= 1 && s->how.min_p <= 0;
    *id = all ? draw_of_all(s, logits, n, max, scratch)
              : draw(s, scratch, keep(&s->how, logits, n, max, scratch), max);
    return 0;
}
