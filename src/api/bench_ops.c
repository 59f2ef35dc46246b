/* Speed of the kernels that are no products: activations, norms, rope, attention, sampling, each alone on
 * one thread, over values made up here. Owns the timing; the limits to compare with come from
 * leat_measure_limits. One thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "../base/clock.h"
#include "../base/error.h"
#include "../base/os.h"
#include "../session/sampling.h"

#define WIDTH   4096 /* values of a row */
#define HEAD    128
#define QUERIES 4 /* of a kv head, each token */
#define DEPTH   8192
#define PROMPT  512
#define VOCAB   256000
#define SECONDS 0.05
#define BYTES   (UINT64_C(32) << 20)

struct ops_bench {
    const struct kernels *k;
    float *x, *y, *w;
    struct candidate *candidates;
    uint8_t *kv, *scratch;
    char *memory;
    enum kv_type type;
    int32_t prompt; /* tokens of the attention; 1 = decode */
    struct sampler sampler;
};

/* ---- what is timed ---- */

static void do_prepare_32(struct ops_bench *b)
{
    b->k->act_prepare(ACT_Q8_32, b->x, b->scratch, WIDTH);
}

static void do_prepare_256(struct ops_bench *b)
{
    b->k->act_prepare(ACT_Q8_256, b->x, b->scratch, WIDTH);
}

static void do_rms_norm(struct ops_bench *b)
{
    b->k->rms_norm(b->x, b->w, 1e-5f, b->y, WIDTH);
}

static void do_gated(struct ops_bench *b)
{
    b->k->gated(ACTFN_SILU, b->x, b->w, b->y, WIDTH);
}

static void do_add(struct ops_bench *b)
{
    b->k->add_scaled(b->y, b->x, 1e-30f, WIDTH);
}

static void do_softmax(struct ops_bench *b)
{
    memcpy(b->y, b->x, WIDTH * sizeof *b->y);
    b->k->softmax(b->y, WIDTH);
}

static void do_rope(struct ops_bench *b)
{
    b->k->rope(b->y, WIDTH / HEAD, HEAD, 0, HEAD, true, b->w, b->w + HEAD / 2);
}

static void do_kv_store(struct ops_bench *b)
{
    b->k->kv_store(b->type, b->x, b->scratch, WIDTH);
}

static void do_sample(struct ops_bench *b)
{
    struct leat_error e;
    int32_t id;
    memcpy(b->y, b->x, VOCAB * sizeof *b->y);
    (void)sampler_pick(&b->sampler, b->y, VOCAB, NULL, 0, NULL, b->candidates, &id, &e);
}

/* One kv head: the queries of one token behind DEPTH positions, or those of a prompt of its own, four
 * tokens at a time. */
static void do_attention(struct ops_bench *b)
{
    enum { TOGETHER = 4, MOST = TOGETHER * QUERIES };
    const float *q[MOST];
    float *acc[MOST], m[MOST], l[MOST];
    int32_t lo[MOST], hi[MOST];
    const int32_t step = b->prompt > 1 ? TOGETHER : 1;
    const uint64_t row = kv_row_bytes(b->type, HEAD), page = 2 * row * ATTN_TILE;
    for (int32_t t = 0; t < b->prompt; t += step) {
        const int32_t first = b->prompt > 1 ? t : DEPTH - 1, last = first + step - 1;
        struct attn_tile a = {.type = b->type,
                              .k_stride = row,
                              .v_stride = row,
                              .dk = HEAD,
                              .dv = HEAD,
                              .nq = step * QUERIES,
                              .q = q,
                              .acc = acc,
                              .m = m,
                              .l = l,
                              .lo = lo,
                              .hi = hi,
                              .scratch = b->scratch};
        for (int32_t i = 0; i < a.nq; i++) {
            q[i] = b->x + (size_t)i * HEAD;
            acc[i] = b->y + (size_t)i * HEAD;
            memset(acc[i], 0, HEAD * sizeof(float));
            m[i] = -INFINITY;
            l[i] = lo[i] = 0;
        }
        for (int32_t p = 0; p <= last / ATTN_TILE; p++) {
            for (int32_t i = 0; i < a.nq; i++) {
                const int32_t seen = first + i / QUERIES + 1 - p * ATTN_TILE;
                hi[i] = seen < 0 ? 0 : seen < ATTN_TILE ? seen : ATTN_TILE;
            }
            a.k = b->kv + (uint64_t)p * page;
            a.v = (const uint8_t *)a.k + row * ATTN_TILE;
            a.ahead = p < last / ATTN_TILE ? (const uint8_t *)a.k + page : NULL;
            b->k->attn_tile(&a);
        }
    }
}

/* ---- timing ---- */

/* Seconds of a call, the best of several runs of many. */
static double best_call(struct ops_bench *b, void (*op)(struct ops_bench *))
{
    const double start = clock_now();
    double best = 0, now = start;
    int64_t calls = 1;
    do {
        const double before = clock_now();
        for (int64_t i = 0; i < calls; i++)
            op(b);
        now = clock_now();
        if (now - before < 1e-3 && calls < 1 << 20) {
            calls *= 2;
            continue;
        }
        if (best == 0 || (now - before) / (double)calls < best)
            best = (now - before) / (double)calls;
    } while (now - start < SECONDS || best == 0);
    return best;
}

static int measure(struct ops_bench *b, const char *name, int32_t values,
                   void (*op)(struct ops_bench *), double bytes, double macs,
                   int (*on_rate)(void *arg, const struct leat_op_rate *r), void *arg,
                   struct leat_error *e)
{
    const double s = best_call(b, op);
    struct leat_op_rate r = {.name = name,
                             .isa = b->k->isa,
                             .values = values,
                             .seconds = s,
                             .bytes_per_s = bytes / s,
                             .macs_per_s = macs / s};
    return on_rate(arg, &r) == 0 ? 0 : error_set(e, LEAT_ERR_CANCELLED, "cancelled");
}

static void fill(struct ops_bench *b, enum kv_type type)
{
    const uint64_t row = kv_row_bytes(type, HEAD);
    b->type = type;
    for (int32_t i = 0; i < 2 * DEPTH; i++)
        b->k->kv_store(type, b->x + i % 64, b->kv + (uint64_t)i * row, HEAD);
}

static int attention(struct ops_bench *b, int (*on_rate)(void *, const struct leat_op_rate *),
                     void *arg, struct leat_error *e)
{
    static const struct {
        enum kv_type type;
        const char *decode, *prompt, *store;
    } kinds[] = {{KV_F16, "attention, f16, decode", "attention, f16, prompt", "kv store, f16"},
                 {KV_Q8_0, "attention, q8_0, decode", "attention, q8_0, prompt", "kv store, q8_0"},
                 {KV_Q4_0, "attention, q4_0, decode", "attention, q4_0, prompt", "kv store, q4_0"}};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof kinds / sizeof *kinds; i++) {
        const double row = (double)kv_row_bytes(kinds[i].type, HEAD);
        const double pairs =
            (double)PROMPT * (PROMPT + 1) / 2 * QUERIES; /* of query and position */
        fill(b, kinds[i].type);
        b->prompt = 1;
        code = measure(b, kinds[i].decode, DEPTH, do_attention, 2.0 * DEPTH * row,
                       2.0 * DEPTH * HEAD * QUERIES, on_rate, arg, e);
        b->prompt = PROMPT;
        if (code == 0)
            code = measure(b, kinds[i].prompt, PROMPT, do_attention, 2.0 * PROMPT * row,
                           2.0 * pairs * HEAD, on_rate, arg, e);
        if (code == 0)
            code = measure(b, kinds[i].store, WIDTH, do_kv_store,
                           4.0 * WIDTH + (double)kv_row_bytes(kinds[i].type, WIDTH), 0, on_rate,
                           arg, e);
    }
    return code;
}

static int sampling(struct ops_bench *b, int (*on_rate)(void *, const struct leat_op_rate *),
                    void *arg, struct leat_error *e)
{
    static const struct {
        const char *name;
        struct sampling how;
    } ways[] = {
        {"sample, greedy", {.top_p = 1, .repeat_penalty = 1}},
        {"sample, temperature", {.temperature = 1, .top_p = 1, .repeat_penalty = 1}},
        {"sample, top-k 40", {.temperature = 1, .top_k = 40, .top_p = 1, .repeat_penalty = 1}},
        {"sample, top-p 0.95", {.temperature = 1, .top_p = 0.95f, .repeat_penalty = 1}},
    };
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof ways / sizeof *ways; i++) {
        sampler_init(&b->sampler, &ways[i].how);
        code = measure(b, ways[i].name, VOCAB, do_sample, 4.0 * VOCAB, 0, on_rate, arg, e);
    }
    return code;
}

static int small_ops(struct ops_bench *b, int (*on_rate)(void *, const struct leat_op_rate *),
                     void *arg, struct leat_error *e)
{
    static const struct {
        const char *name;
        void (*op)(struct ops_bench *);
        double bytes; /* read and written, for a value */
    } ops[] = {
        {"activations, 32", do_prepare_32, 5.125},
        {"activations, 256", do_prepare_256, 5.0},
        {"rms norm", do_rms_norm, 12},
        {"gated silu", do_gated, 12},
        {"add scaled", do_add, 12},
        {"softmax", do_softmax, 8},
        {"rope", do_rope, 8},
    };
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof ops / sizeof *ops; i++)
        code = measure(b, ops[i].name, WIDTH, ops[i].op, ops[i].bytes * WIDTH, 0, on_rate, arg, e);
    return code;
}

/* Places in one piece of memory, huge pages where the system gives them. */
static void carve_up(struct ops_bench *b)
{
    char *at = b->memory;
    b->kv = (uint8_t *)at;
    at += UINT64_C(2) * DEPTH * HEAD * sizeof(float);
    b->x = (float *)(void *)at;
    at += VOCAB * sizeof(float);
    b->y = (float *)(void *)at;
    at += VOCAB * sizeof(float);
    b->w = (float *)(void *)at;
    at += WIDTH * sizeof(float);
    b->candidates = (struct candidate *)(void *)at;
    at += VOCAB * sizeof(struct candidate);
    b->scratch = (uint8_t *)(((uintptr_t)at + 63) & ~(uintptr_t)63);
    for (int32_t i = 0; i < VOCAB; i++)
        b->x[i] = (float)((i * 37 + i / 101 * 11) % 101 - 50) * 0.05f;
    for (int32_t i = 0; i < 30; i++) /* what a model is sure of */
        b->x[i * 8009 % VOCAB] = 14 + 0.1f * (float)i;
    for (int32_t i = 0; i < WIDTH; i++)
        b->w[i] = 0.5f + (float)(i % 7) * 0.01f;
    memcpy(b->y, b->x, VOCAB * sizeof *b->y);
}

int leat_measure_ops(const struct leat_params *params,
                     int (*on_rate)(void *arg, const struct leat_op_rate *r), void *arg,
                     struct leat_error *e)
{
    struct ops_bench b = {0};
    struct param_set defaults = {0};
    const struct param_set *set = &defaults;
    int code = 0;
    if (params)
        set = &params->set;
    else
        code = api_params_open(&defaults, e);
    if (code == 0)
        code = kernels_select(params_get(set, "isa")->s, &b.k, e);
    if (!params)
        params_close(&defaults);
    if (code < 0)
        return code;
    b.memory = os_map(BYTES, true);
    if (!b.memory)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory to measure with");
    carve_up(&b);
    code = small_ops(&b, on_rate, arg, e);
    if (code == 0)
        code = attention(&b, on_rate, arg, e);
    if (code == 0)
        code = sampling(&b, on_rate, arg, e);
    os_unmap(b.memory, BYTES);
    return code;
}
