/* bench_sample [N_VOCAB]: microseconds of one choice, median of many, for each way to sample. The
 * logits are a Gaussian of deviation 3 with a few high ones, as models give them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../src/session/sampling.h"

enum { ROUNDS = 201 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    const int32_t n = argc > 1 ? atoi(argv[1]) : 256000;
    if (n < 1000)
        return 2;
    static const struct {
        const char *name;
        struct sampling how;
    } ways[] = {
        {"greedy", {.top_p = 1, .repeat_penalty = 1}},
        {"temp 0.8", {.temperature = 0.8f, .top_p = 1, .repeat_penalty = 1}},
        {"top-k 40, top-p 0.95, min-p 0.05",
         {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .repeat_penalty = 1}},
        {"top-k 1000", {.temperature = 1, .top_k = 1000, .top_p = 1, .repeat_penalty = 1}},
        {"top-p 0.95", {.temperature = 1, .top_p = 0.95f, .repeat_penalty = 1}},
        {"min-p 0.05", {.temperature = 1, .top_p = 1, .min_p = 0.05f, .repeat_penalty = 1}},
    };
    float *base = malloc((size_t)n * sizeof *base), *x = malloc((size_t)n * sizeof *x);
    struct candidate *scratch = malloc((size_t)n * sizeof *scratch);
    struct rng r;
    rng_seed(&r, 1);
    for (int32_t i = 0; i < n; i++)
        base[i] = 3 * (float)(sqrt(-2 * log(1 - rng_unit(&r))) * cos(6.2831853 * rng_unit(&r)));
    for (int i = 0; i < 30; i++)
        base[rng_next(&r) % (uint64_t)n] = 14 + (float)(6 * rng_unit(&r));
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct sampler s;
        double t[ROUNDS];
        sampler_init(&s, &ways[w].how);
        for (int i = 0; i < ROUNDS; i++) {
            struct leat_error e;
            int32_t id;
            memcpy(x, base, (size_t)n * sizeof *x);
            const double start = now();
            if (sampler_pick(&s, x, n, NULL, 0, NULL, scratch, &id, &e) < 0)
                return 1;
            t[i] = now() - start;
        }
        qsort(t, ROUNDS, sizeof *t, by_value);
        printf("%-34s %8.1f us  (10 %%: %.1f, 90 %%: %.1f)\n", ways[w].name, t[ROUNDS / 2] * 1e6,
               t[ROUNDS / 10] * 1e6, t[ROUNDS * 9 / 10] * 1e6);
    }
    free(base);
    free(x);
    free(scratch);
    return 0;
}
