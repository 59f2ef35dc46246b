/* What leat bench measured, between the file that measures (cmd_bench.c) and the one that writes it
 * (bench_print.c). One thread. */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include "cli.h"

#define BENCH_LIST  16  /* values of one list */
#define BENCH_TESTS 512 /* BENCH_LIST * BENCH_LIST of each kind */

enum bench_kind { BENCH_PROMPT, BENCH_DECODE };

struct bench_test {
    enum bench_kind kind;
    int32_t tokens, depth;
    int32_t runs;                        /* finished */
    double rate[BENCH_RUNS_MAX];         /* tokens per second; ascending once all are done */
    struct leat_work work;               /* of a decoded token, the mean over the run */
    double macs;                         /* of a whole prompt */
    struct leat_stats spent;             /* over all runs that count */
    double elapsed_s;
};

struct bench_kernels {
    struct leat_kernel_rate *rate;
    int32_t n;
    struct leat_op_rate *op; /* of what is no product; none when formats were chosen */
    int32_t n_ops;
};

/* ---- bench_routes.c ---- */

int bench_routes(struct options *o, const char *model,
                 struct leat_params *params); /* exit status */

struct bench_result { /* of a model */
    const struct leat_engine *engine;
    const struct leat_limits *limits;
    const struct leat_drive *drive; /* NULL: not probed, as nothing streams */
    const struct bench_test *tests;
    int32_t n_tests;
    struct leat_stats since_open;
    double elapsed_s; /* of all runs, warm-ups too */
};

double bench_median(const struct bench_test *t);
uint64_t bench_token_bytes(const struct leat_work *w); /* moved for one decoded token */

void bench_print(const struct bench_result *r);
json_t *bench_json(const struct bench_result *r);
void bench_kernels_print(const struct leat_limits *l, const struct bench_kernels *k);
json_t *bench_kernels_json(const struct leat_limits *l, const struct bench_kernels *k);

#endif
