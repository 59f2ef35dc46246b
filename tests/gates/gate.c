/* gate MODEL [MODEL2 ...]: byte identity between ways of running. Exit 0, 1 (a gate failed), 2 (usage).
 *
 * The first model is the reference and is run through every gate; further models (the same weights in other files: split
 * shards) must give the same bytes in a few of them. The reference run is fully resident, one thread, one lane. Every gate
 * compares all logits of a fixed token sequence and the ids of a greedy continuation, and asserts that what it
 * means to exercise happened: reads, waits, evictions. Prints one line per gate and a last line "N passed, N failed".
 * Uses leat.h only. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "leat.h"

enum { N_EVAL = 530, N_SHORT = 80, N_PROMPT = 70, N_GEN = 16, MAX_SET = 16 }; /* N_EVAL: wider than the widest ubatch */

struct setting {
    const char *key, *value;
};

struct run {
    float *logits; /* N_EVAL rows of width */
    int32_t width;
    int32_t gen[N_GEN + 1];
    int32_t n_gen;
    struct leat_stats stats;
    struct leat_plan plan;
};

static int passed, failed;
static int32_t eval_ids[N_EVAL];

static void die(const char *what, const struct leat_error *e)
{
    fprintf(stderr, "gate: %s: %s\n", what, e->message);
    exit(1);
}

static struct leat_params *make_params(const struct setting *s, int n)
{
    struct leat_error e = {0};
    struct leat_params *p;
    if (leat_params_open(&p, &e) < 0)
        die("params", &e);
    for (int i = 0; i < n; i++)
        if (leat_params_set(p, s[i].key, s[i].value, &e) < 0)
            die(s[i].key, &e);
    return p;
}

static int keep_row(void *arg, int32_t position, const float *logits, int32_t width)
{
    struct run *r = arg;
    if (!r->logits) {
        r->width = width;
        r->logits = malloc((size_t)N_EVAL * (size_t)width * sizeof(float));
        if (!r->logits)
            return 1;
    }
    memcpy(r->logits + (size_t)position * (size_t)width, logits, (size_t)width * sizeof(float));
    return 0;
}

static void fill_ids(int32_t n_vocab)
{
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < N_EVAL; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        eval_ids[i] = (int32_t)(3 + x % (uint64_t)(n_vocab - 8));
    }
}

/* Evaluates the fixed ids and continues a shorter prompt greedily, on one engine. */
static void run_one(const char *model, const struct setting *s, int n, int n_eval, struct run *r)
{
    struct leat_error e = {0};
    struct leat_params *p = make_params(s, n);
    struct leat_engine *g;
    memset(r, 0, sizeof *r);
    if (leat_open(model, p, &r->plan, &g, &e) < 0)
        die(model, &e);
    if (!eval_ids[1])
        fill_ids(leat_engine_facts(g)->n_vocab);
    struct leat_session *q;
    struct leat_eval ev;
    if (leat_session_open(g, &q, &e) < 0)
        die("session", &e);
    if (leat_eval(q, eval_ids, n_eval, keep_row, r, &ev, &e) < 0)
        die("eval", &e);
    leat_session_close(q);
    if (leat_session_open(g, &q, &e) < 0)
        die("session", &e);
    struct leat_request rq = {.session = q, .params = p, .ids = eval_ids, .n_ids = N_PROMPT};
    struct leat_result rs;
    if (leat_generate(g, &rq, 1, &rs, &e) < 0)
        die("generate", &e);
    r->n_gen = rs.n_tokens;
    memcpy(r->gen, rs.tokens, sizeof(int32_t) * (size_t)(rs.n_tokens <= N_GEN ? rs.n_tokens : N_GEN));
    leat_result_free(&rs);
    leat_session_close(q);
    leat_engine_stats(g, 0, &r->stats);
    leat_close(g);
    leat_params_close(p);
}

static void verdict(const char *name, int ok, const char *note)
{
    printf("%s  %s%s%s\n", ok ? "ok  " : "FAIL", name, *note ? ": " : "", note);
    fflush(stdout);
    if (ok)
        passed++;
    else
        failed++;
}

static int same(const struct run *a, const struct run *b, int n_eval, char *note, size_t cap)
{
    note[0] = 0;
    if (a->width != b->width || a->n_gen != b->n_gen) {
        snprintf(note, cap, "widths %d %d, generated %d %d", a->width, b->width, a->n_gen, b->n_gen);
        return 0;
    }
    for (int i = 0; i < n_eval; i++) {
        size_t row = (size_t)i * (size_t)a->width;
        if (memcmp(a->logits + row, b->logits + row, (size_t)a->width * sizeof(float))) {
            int j = 0;
            while (!memcmp(a->logits + row + j, b->logits + row + j, sizeof(float)))
                j++;
            snprintf(note, cap, "logits differ first at token %d, id %d: %.9g and %.9g", i, j,
                     (double)a->logits[row + (size_t)j], (double)b->logits[row + (size_t)j]);
            return 0;
        }
    }
    if (memcmp(a->gen, b->gen, sizeof(int32_t) * (size_t)a->n_gen)) {
        snprintf(note, cap, "the greedy continuations differ");
        return 0;
    }
    return 1;
}

/* What must have happened besides identity. */
enum need { NEED_READS = 1, NEED_STREAM = 2, NEED_WAITS = 4, NEED_EVICTIONS = 8, NEED_HITS = 16, NEED_BUFFERED = 32, NEED_DIRECT = 64, NEED_URING = 128, NEED_THREADS = 256 };

static void gate(const char *name, const char *model, const struct run *ref, const struct setting *s, int n, int n_eval, unsigned need)
{
    char note[256];
    struct run r;
    run_one(model, s, n, n_eval, &r);
    int ok = same(ref, &r, n_eval, note, sizeof note);
    const struct leat_stats *t = &r.stats;
    const char *miss = NULL;
    if ((need & NEED_READS) && !t->reads)
        miss = "nothing was read";
    if ((need & NEED_STREAM) && !t->stream_read_bytes)
        miss = "nothing streamed";
    if ((need & NEED_WAITS) && !t->waits)
        miss = "no wait happened";
    if ((need & NEED_EVICTIONS) && !t->expert_evictions)
        miss = "no expert was evicted";
    if ((need & NEED_HITS) && !t->expert_hits)
        miss = "no expert was a hit";
    if ((need & NEED_BUFFERED) && !t->buffered_files)
        miss = "no file was read buffered";
    if ((need & NEED_DIRECT) && !t->direct_files)
        miss = "no file was read directly";
    if ((need & NEED_URING) && strcmp(t->lane_backend, "io_uring") != 0)
        miss = "it did not read through io_uring";
    if ((need & NEED_THREADS) && strcmp(t->lane_backend, "threads") != 0)
        miss = "it did not read through threads";
    if (ok && miss) {
        ok = 0;
        snprintf(note, sizeof note, "%s", miss);
    }
    if (ok)
        snprintf(note, sizeof note, "reads %llu, streamed %.1f MB, waits %llu, hits %llu, misses %llu, evictions %llu",
                 (unsigned long long)t->reads, (double)t->stream_read_bytes / 1e6, (unsigned long long)t->waits,
                 (unsigned long long)t->expert_hits, (unsigned long long)t->expert_misses, (unsigned long long)t->expert_evictions);
    verdict(name, ok, note);
    free(r.logits);
}

/* The smallest budget that a model is granted with these settings. */
static uint64_t smallest(const char *model, const struct setting *s, int n)
{
    struct leat_error e = {0};
    struct setting t[MAX_SET];
    memcpy(t, s, sizeof *s * (size_t)n);
    t[n] = (struct setting){"memory", "1M"};
    struct leat_params *p = make_params(t, n + 1);
    struct leat_engine *g;
    int rc = leat_open(model, p, NULL, &g, &e);
    leat_params_close(p);
    if (rc != LEAT_ERR_MEMORY || !e.needed_bytes) {
        fprintf(stderr, "gate: a budget of 1 MiB was not refused with a figure: %s\n", e.message);
        exit(1);
    }
    return e.needed_bytes;
}

/* One sequence alone, then beside `others` of other lengths: same ids. */
static void gate_beside(const char *model, int others, const char *memory)
{
    struct leat_error e = {0};
    char sessions[16], name[96], n_text[16];
    snprintf(sessions, sizeof sessions, "%d", others + 1);
    snprintf(n_text, sizeof n_text, "%d", N_GEN);
    struct setting s[MAX_SET] = {{"sessions", sessions}, {"predict", n_text}, {"temp", "0"}, {"ignore_eos", "true"}, {"context", "256"}, {"threads", "2"}, {"ubatch", "64"}};
    int n = 7;
    if (memory)
        s[n++] = (struct setting){"memory", memory};
    struct leat_params *p = make_params(s, n);
    struct leat_engine *g;
    if (leat_open(model, p, NULL, &g, &e) < 0)
        die(model, &e);
    struct leat_session *q[16];
    struct leat_request rq[16];
    struct leat_result alone[16], beside[16];
    int bad = 0;
    memset(rq, 0, sizeof rq);
    for (int i = 0; i <= others; i++) { /* each alone */
        if (leat_session_open(g, &q[i], &e) < 0)
            die("session", &e);
        rq[i] = (struct leat_request){.session = q[i], .params = p, .ids = eval_ids + 3 * i, .n_ids = 1 + (i * 29) % 97};
        if (leat_generate(g, &rq[i], 1, &alone[i], &e) < 0)
            die("generate", &e);
        leat_session_close(q[i]);
    }
    struct leat_stats before, after;
    leat_engine_stats(g, 0, &before);
    for (int i = 0; i <= others; i++) {
        if (leat_session_open(g, &q[i], &e) < 0)
            die("session", &e);
        rq[i].session = q[i];
    }
    if (leat_generate(g, rq, others + 1, beside, &e) < 0)
        die("generate", &e);
    leat_engine_stats(g, 0, &after);
    for (int i = 0; i <= others; i++) {
        bad += alone[i].n_tokens != beside[i].n_tokens ||
               memcmp(alone[i].tokens, beside[i].tokens, sizeof(int32_t) * (size_t)alone[i].n_tokens) != 0;
        leat_result_free(&alone[i]);
        leat_result_free(&beside[i]);
        leat_session_close(q[i]);
    }
    uint64_t passes = after.passes - before.passes;
    char note[128];
    snprintf(note, sizeof note, "%d of %d differ; %llu passes", bad, others + 1, (unsigned long long)passes);
    snprintf(name, sizeof name, "alone and beside %d others%s", others, memory ? ", streamed" : "");
    /* riding together means far fewer passes than each alone would take */
    verdict(name, !bad && passes < (uint64_t)(others + 1) * N_GEN + (others ? 0 : 1000), note);
    leat_close(g);
    leat_params_close(p);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: gate MODEL [THE SAME MODEL IN OTHER FILES ...]\n");
        return 2;
    }
    const char *model = argv[1];
    char predict[16];
    snprintf(predict, sizeof predict, "%d", N_GEN);
    const struct setting base[] = {{"predict", predict}, {"temp", "0"}, {"ignore_eos", "true"}, {"context", "640"}};
    enum { NB = 4 };
    struct setting s[MAX_SET];
    memcpy(s, base, sizeof base);
    char name[128], value[32];

    struct run ref;
    s[NB] = (struct setting){"threads", "1"};
    s[NB + 1] = (struct setting){"lanes", "1"};
    run_one(model, s, NB + 2, N_EVAL, &ref);
    double sum = 0;
    for (size_t i = 0; i < (size_t)N_EVAL * (size_t)ref.width; i++)
        sum += isfinite(ref.logits[i]) ? fabs((double)ref.logits[i]) : NAN;
    int varied = 0;
    for (int i = 1; i < ref.n_gen; i++)
        varied += ref.gen[i] != ref.gen[0];
    snprintf(name, sizeof name, "mean |logit| %.3f, %d ids differ from the first", sum / N_EVAL / ref.width, varied);
    verdict("the reference is finite and not constant", isfinite(sum) && sum > 0 && varied > 0, name);
    int moe = ref.stats.expert_hits + ref.stats.expert_misses > 0;

    static const char *const counts[] = {"1", "2", "3", "4", "5", "6", "7", "8"};
    for (int i = 0; i < 8; i++) {
        s[NB] = (struct setting){"threads", counts[i]};
        snprintf(name, sizeof name, "threads %s", counts[i]);
        gate(name, model, &ref, s, NB + 1, N_SHORT, NEED_READS);
    }
    static const char *const widths[] = {"1", "2", "7", "16", "64", "512"};
    for (int i = 0; i < 6; i++) {
        s[NB] = (struct setting){"ubatch", widths[i]};
        s[NB + 1] = (struct setting){"threads", "2"};
        snprintf(name, sizeof name, "ubatch width %s", widths[i]);
        gate(name, model, &ref, s, NB + 2, N_EVAL, NEED_READS);
    }
    s[NB] = (struct setting){"direct", "on"};
    gate("direct reads", model, &ref, s, NB + 1, N_SHORT, NEED_READS | NEED_DIRECT);
    s[NB] = (struct setting){"direct", "off"};
    gate("buffered reads", model, &ref, s, NB + 1, N_SHORT, NEED_READS | NEED_BUFFERED);

    /* budgets: width pinned so that only residency differs */
    static const char *const budget_width[] = {"1", "16", "64"};
    for (int w = 0; w < 3; w++) {
        s[NB] = (struct setting){"ubatch", budget_width[w]};
        uint64_t least = smallest(model, s, NB + 1);
        uint64_t full = ref.plan.total_bytes > least ? ref.plan.total_bytes : least + 1;
        for (int k = 0; k < 4; k++) {
            uint64_t m = least + (full - least) / 4 * (uint64_t)k;
            snprintf(value, sizeof value, "%llu", (unsigned long long)m);
            s[NB + 1] = (struct setting){"memory", value};
            snprintf(name, sizeof name, "width %s, budget %.2f MB%s", budget_width[w], (double)m / 1e6, k ? "" : " (the smallest)");
            gate(name, model, &ref, s, NB + 2, w ? N_SHORT : 32, NEED_READS | (k == 0 ? NEED_STREAM | NEED_WAITS : 0));
        }
    }
    s[NB] = (struct setting){"ubatch", "16"};
    static const char *const lanes[] = {"1", "2", "3", "4", "8", "16"};
    static const char *const backends[] = {"threads", "uring"};
    const int n_backends = strcmp(ref.stats.lane_backend, "io_uring") == 0 ? 2 : 1;
    if (n_backends == 1)
        printf("SKIP io_uring: %s\n", ref.stats.lane_note ? ref.stats.lane_note : "not here");
    for (int i = 0; i < 12 * n_backends; i++) {
        const char *lane = lanes[i / 2 % 6], *backend = backends[i / 12];
        const int d = i % 2;
        s[NB + 1] = (struct setting){"lanes", lane};
        s[NB + 2] = (struct setting){"lane_backend", backend};
        s[NB + 3] = (struct setting){"direct", d ? "off" : "on"};
        snprintf(value, sizeof value, "%llu", (unsigned long long)smallest(model, s, NB + 4));
        s[NB + 4] = (struct setting){"memory", value};
        snprintf(name, sizeof name, "streamed, %s lanes by %s, %s", lane, backend, d ? "buffered" : "direct");
        gate(name, model, &ref, s, NB + 5, N_SHORT,
             NEED_READS | NEED_STREAM | NEED_WAITS | (d ? NEED_BUFFERED : NEED_DIRECT) | (i / 12 ? NEED_URING : NEED_THREADS));
    }
    if (moe) {
        static const char *const caches[] = {"0", "1M", "2M", "4M", "8M", "auto"};
        for (int i = 0; i < 6; i++)
            for (int w = 0; w < 3; w++) {
                s[NB] = (struct setting){"ubatch", budget_width[w]};
                s[NB + 1] = (struct setting){"expert_cache", caches[i]};
                s[NB + 2] = (struct setting){"threads", "2"};
                snprintf(name, sizeof name, "expert cache %s, width %s", caches[i], budget_width[w]);
                gate(name, model, &ref, s, NB + 3, w ? N_SHORT : 32, NEED_READS | (i == 0 ? NEED_EVICTIONS : 0) | (i == 5 ? NEED_HITS : 0));
            }
    }
    for (int i = 0; moe && leat_eviction(i); i++)
        for (int w = 0; w < 3; w++) {
            s[NB] = (struct setting){"ubatch", budget_width[w]};
            s[NB + 1] = (struct setting){"expert_cache", w ? "1M" : "4M"};
            s[NB + 2] = (struct setting){"eviction", leat_eviction(i)};
            snprintf(name, sizeof name, "eviction %s, width %s", leat_eviction(i), budget_width[w]);
            gate(name, model, &ref, s, NB + 3, w ? N_SHORT : 32, NEED_READS | NEED_EVICTIONS | (w ? 0 : NEED_HITS));
        }
    for (int i = 2; i < argc; i++) {
        s[NB] = (struct setting){"ubatch", "16"};
        snprintf(name, sizeof name, "other files, resident: %.80s", argv[i]);
        gate(name, argv[i], &ref, s, NB + 1, N_SHORT, NEED_READS);
        uint64_t l = smallest(argv[i], s, NB + 1);
        snprintf(value, sizeof value, "%llu", (unsigned long long)l);
        s[NB + 1] = (struct setting){"memory", value};
        snprintf(name, sizeof name, "other files, streamed: %.80s", argv[i]);
        gate(name, argv[i], &ref, s, NB + 2, N_SHORT, NEED_READS | NEED_STREAM);
    }
    static const char *const kv_types[] = {"f32", "q8_0", "q4_0"}; /* f16 is the default */
    for (int i = 0; i < 3; i++) {
        static const char *const kv_width[] = {"1", "7", "64"};
        char note[256];
        struct run one;
        s[NB] = (struct setting){"kv_type", kv_types[i]};
        s[NB + 1] = (struct setting){"threads", "1"};
        run_one(model, s, NB + 2, N_SHORT, &one);
        snprintf(name, sizeof name, "kv type %s is not f16", kv_types[i]);
        verdict(name, !same(&ref, &one, N_SHORT, note, sizeof note), "");
        s[NB + 1] = (struct setting){"threads", "3"};
        for (int w = 0; w < 3; w++) {
            s[NB + 2] = (struct setting){"ubatch", kv_width[w]};
            snprintf(name, sizeof name, "kv type %s, width %s", kv_types[i], kv_width[w]);
            gate(name, model, &one, s, NB + 3, N_SHORT, NEED_READS);
        }
        free(one.logits);
    }
    static const int beside[] = {1, 7, 15};
    for (int i = 0; i < 3; i++)
        gate_beside(model, beside[i], NULL);
    {
        const struct setting b[] = {{"sessions", "8"}, {"predict", predict}, {"temp", "0"}, {"ignore_eos", "true"}, {"context", "256"}, {"threads", "2"}, {"ubatch", "64"}};
        snprintf(value, sizeof value, "%llu", (unsigned long long)(smallest(model, b, 7) + (1u << 20)));
        gate_beside(model, 7, value);
    }
    free(ref.logits);
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
