/* bench_run MODEL THREADS N_DECODE ISA < ids: prompt and decode rates with the weights in memory, as one JSON object.
 *
 * Reads prompt ids (blank-separated) from standard input. One warm-up generation reads the weights and touches all memory; the second, in a
 * fresh session, is measured. For tools/bench-peers, which times the other engine in the same way. Uses leat.h only. */
#include <stdio.h>
#include <stdlib.h>

#include "leat.h"

static void die(const struct leat_error *e)
{
    fprintf(stderr, "bench_run: %s\n", e->message);
    exit(1);
}

static void set(struct leat_params *p, const char *key, const char *value)
{
    struct leat_error e;
    if (leat_params_set(p, key, value, &e) < 0)
        die(&e);
}

static void generate(struct leat_engine *g, struct leat_params *p, const int32_t *ids, int32_t n, struct leat_result *r)
{
    struct leat_error e;
    struct leat_session *s;
    if (leat_session_open(g, &s, &e) < 0)
        die(&e);
    struct leat_request q = {.session = s, .params = p, .ids = ids, .n_ids = n};
    if (leat_generate(g, &q, 1, r, &e) < 0)
        die(&e);
    leat_session_close(s);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: bench_run MODEL THREADS N_DECODE ISA < ids\n");
        return 2;
    }
    static int32_t ids[1 << 16];
    int32_t n = 0;
    while (n < 1 << 16 && scanf("%d", &ids[n]) == 1)
        n++;
    int decode = atoi(argv[3]);
    char predict[16], context[16];
    snprintf(predict, sizeof predict, "%d", decode + 1); /* the first token belongs to the prompt */
    snprintf(context, sizeof context, "%d", n + decode + 16);

    struct leat_error e;
    struct leat_params *p;
    struct leat_engine *g;
    struct leat_result r;
    if (leat_params_open(&p, &e) < 0)
        die(&e);
    set(p, "threads", argv[2]);
    set(p, "isa", argv[4]);
    set(p, "context", context);
    set(p, "temp", "0");
    set(p, "ignore_eos", "true");
    set(p, "predict", "3");
    if (leat_open(argv[1], p, NULL, &g, &e) < 0)
        die(&e);
    generate(g, p, ids, n, &r);
    leat_result_free(&r);
    set(p, "predict", predict);
    struct leat_stats before, after;
    leat_engine_stats(g, 0, &before);
    generate(g, p, ids, n, &r);
    leat_engine_stats(g, 0, &after);
    printf("{\"prompt_per_s\": %.3f, \"decode_per_s\": %.3f, \"read_bytes\": %llu, \"isa\": \"%s\"}\n", n / r.prompt_s, decode / r.decode_s,
           (unsigned long long)(after.read_bytes - before.read_bytes), leat_engine_facts(g)->isa);
    leat_result_free(&r);
    leat_close(g);
    leat_params_close(p);
    return 0;
}
