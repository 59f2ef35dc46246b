/* Speed of the products.
 *
 *     bench_matmul [-i ISA] [-t THREADS] [-f FORMAT] [-r ROWS] [-c COLS] [-n TOKENS] [-s SECONDS]
 *                  [-w MIB] [-k CHUNK]
 *
 * First what the machine can do at most (plan/probe_compute.h), then, without -n, decode (1 token,
 * weights far beyond the caches, GB/s of weights) and prefill (512 tokens, GMAC/s) of every format,
 * each with its share of the limit: bytes against reads of the same weights in alternation (median, by
 * the clock), multiply-adds against the tier's own peak. Threads take halves, thirds, ... of the rows, each pinned, in calls of
 * CHUNK rows (all by default). A rate is the best of several rounds, a round the processor time of
 * its slowest thread, so that other work on the machine counts little. -w MIB: weights to walk with
 * fewer than 8 tokens (200; 0 for one copy: what arithmetic allows with small ROWS). */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../src/kernels/kernels.h"
#include "../../src/plan/probe_compute.h"

enum { MAX_THREADS = 64, REPEAT_BYTES = 64 << 20 /* shorter walks are repeated within a round */ };

static int32_t walk_mib = 200, chunk;
static double peak[2]; /* multiply-adds per second by enum compute_kind; 0 = not measured */

struct bench {
    const struct kernels *k;
    struct matmul m;
    int32_t threads, copies; /* copies of the weights, walked in turn */
    int32_t repeats;         /* of the walk */
    size_t copy_bytes;
    void *scratch[MAX_THREADS];
    pthread_barrier_t barrier;
    double spent[MAX_THREADS]; /* processor time of each thread's part */
};

struct job {
    struct bench *b;
    int32_t id;
};

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *run_thread(void *arg)
{
    struct job *j = arg;
    struct bench *b = j->b;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(j->id, &set);
    sched_setaffinity(0, sizeof set, &set);
    int32_t share = (b->m.rows + b->threads - 1) / b->threads;
    int32_t begin = j->id * share, end = begin + share < b->m.rows ? begin + share : b->m.rows;
    pthread_barrier_wait(&b->barrier);
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    int32_t step = chunk > 0 ? chunk : share > 0 ? share : 1;
    for (int32_t i = 0; i < b->copies * b->repeats; i++) {
        struct matmul m = b->m;
        m.w = (const char *)m.w + (size_t)(i % b->copies) * b->copy_bytes;
        for (int32_t row = begin; row < end; row += step)
            b->k->matmul(&m, row, end - row < step ? end : row + step, b->scratch[j->id]);
    }
    b->spent[j->id] = now(CLOCK_THREAD_CPUTIME_ID) - start;
    return NULL;
}

static double round_seconds(struct bench *b)
{
    pthread_t th[MAX_THREADS];
    struct job jobs[MAX_THREADS];
    pthread_barrier_init(&b->barrier, NULL, (unsigned)b->threads);
    for (int32_t i = 0; i < b->threads; i++) {
        jobs[i] = (struct job){b, i};
        pthread_create(&th[i], NULL, run_thread, &jobs[i]);
    }
    double t = 0;
    for (int32_t i = 0; i < b->threads; i++) {
        pthread_join(th[i], NULL);
        t = b->spent[i] > t ? b->spent[i] : t;
    }
    pthread_barrier_destroy(&b->barrier);
    return t;
}

static void *big(size_t bytes)
{
    bytes = (bytes + ((size_t)2 << 20) - 1) & ~(((size_t)2 << 20) - 1);
    void *p = aligned_alloc((size_t)2 << 20, bytes);
    if (p == NULL) {
        perror("memory");
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static double best_seconds(struct bench *b, double seconds)
{
    double best = 1e9, start = now(CLOCK_MONOTONIC);
    for (int32_t i = 0; i < 3 || now(CLOCK_MONOTONIC) - start < seconds; i++) {
        double t = round_seconds(b);
        best = t < best ? t : best;
    }
    return best;
}

static void measure_peaks(const struct kernels *k, int32_t threads, double seconds)
{
    for (int kind = COMPUTE_INT8; kind <= COMPUTE_F32; kind++) {
        struct compute_fact f;
        probe_multiply_add(k->isa, (enum compute_kind)kind, threads, seconds, &f);
        if (f.missing != NULL) {
            printf("limit, threads %d: %s\n", threads, f.missing);
            continue;
        }
        peak[kind] = f.best_per_s;
        printf("limit, threads %d: %8.2f GMAC/s (%s)\n", threads, f.best_per_s * 1e-9, f.source);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The product's rate over that of bare reads of the same weights: a median over rounds in which the
 * two take turns, for what the memory gives changes with the machine's other guests. */
static double read_share(struct bench *b, const void *w, size_t bytes, double seconds)
{
    enum { ROUNDS_MAX = 1000 };
    static double shares[ROUNDS_MAX];
    int32_t n = 0;
    double start = now(CLOCK_MONOTONIC);
    while (n < ROUNDS_MAX && (n < 5 || now(CLOCK_MONOTONIC) - start < seconds)) {
        struct compute_fact reads; /* its shortest: three rounds of each way to read */
        probe_memory_read(w, bytes, b->threads, 0, &reads);
        if (reads.missing != NULL)
            return 0;
        double before = now(CLOCK_MONOTONIC);
        round_seconds(b);
        double product = (double)bytes * b->repeats / (now(CLOCK_MONOTONIC) - before);
        shares[n++] = product / reads.median_per_s;
    }
    qsort(shares, (size_t)n, sizeof *shares, compare);
    return shares[n / 2];
}

static void measure(const struct kernels *k, int32_t threads, enum format f, int32_t rows,
                    int32_t cols, int32_t tokens, double seconds)
{
    const struct format_info *info = format_info(f);
    if (cols % info->block != 0) {
        printf("%-7s %-6s has no rows of %d\n", k->isa, info->name, cols);
        return;
    }
    struct bench b = {.k = k, .threads = threads};
    size_t row = format_row_bytes(f, (uint64_t)cols), act = act_row_bytes(info->act, cols);
    b.copy_bytes = row * (size_t)rows;
    size_t target = tokens < 8 ? (size_t)walk_mib << 20 : b.copy_bytes;
    b.copies = (int32_t)((target + b.copy_bytes - 1) / b.copy_bytes);
    b.copies = b.copies > 0 ? b.copies : 1;
    size_t bytes = b.copy_bytes * (size_t)b.copies;
    b.repeats = bytes * (size_t)tokens < REPEAT_BYTES
                    ? (int32_t)(REPEAT_BYTES / (bytes * (size_t)tokens))
                    : 1;
    uint8_t *w = big(bytes);
    for (size_t i = 0; i < bytes; i++)
        w[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i + 1 < bytes && info->block > 1; i += (size_t)info->block_bytes) {
        uint8_t *d = w + i + (f == FORMAT_Q6_K ? 208 : 0); /* ordinary scales */
        d[0] = f == FORMAT_MXFP4 ? 120 : 0x12;
        if (f != FORMAT_MXFP4)
            d[1] = 0x1c;
        if (f == FORMAT_Q4_K || f == FORMAT_Q5_K || f == FORMAT_Q5_1)
            d[2] = 0x12, d[3] = 0x1c;
    }
    if (info->block == 1)
        memset(w, 0x3c, bytes);
    char *acts = big(act * (size_t)tokens);
    float *x = malloc((size_t)cols * sizeof *x);
    for (int32_t t = 0; t < tokens; t++) {
        for (int32_t c = 0; c < cols; c++)
            x[c] = (float)((c * 37 + t * 11) % 101 - 50);
        k->act_prepare(info->act, x, acts + act * (size_t)t, cols);
    }
    for (int32_t i = 0; i < threads; i++)
        b.scratch[i] = big(matmul_scratch_bytes(cols, tokens));
    float *y = big((size_t)rows * (size_t)tokens * sizeof *y);
    b.m = (struct matmul){f, w, row, rows, cols, acts, act, tokens, y, (size_t)rows};
    double share = 0;
    if (tokens < 8 && walk_mib > 0)
        share = read_share(&b, w, bytes, seconds);
    double best = best_seconds(&b, share > 0 ? 0 : seconds);
    double macs = (double)rows * cols * tokens * b.copies * b.repeats;
    bytes *= (size_t)b.repeats;
    double most = peak[info->act == ACT_F32 ? COMPUTE_F32 : COMPUTE_INT8];
    printf("%-7s %-6s threads %d  %6d x %-6d tokens %-4d  %7.2f GB/s (%3.0f %%)  %8.2f GMAC/s "
           "(%3.0f %%)\n",
           k->isa, info->name, threads, rows, cols, tokens, (double)bytes / best * 1e-9,
           100 * share, macs / best * 1e-9, most > 0 ? 100 * macs / best / most : 0);
    fflush(stdout);
    for (int32_t i = 0; i < threads; i++)
        free(b.scratch[i]);
    free(w);
    free(acts);
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    const char *isa = "auto", *format = NULL;
    int32_t threads = 1, rows = 0, cols = 0, tokens = 0;
    double seconds = 0.5;
    int c;
    while ((c = getopt(argc, argv, "i:t:f:r:c:n:s:w:k:")) != -1)
        switch (c) {
        case 'i':
            isa = optarg;
            break;
        case 't':
            threads = atoi(optarg);
            break;
        case 'f':
            format = optarg;
            break;
        case 'r':
            rows = atoi(optarg);
            break;
        case 'c':
            cols = atoi(optarg);
            break;
        case 'n':
            tokens = atoi(optarg);
            break;
        case 's':
            seconds = atof(optarg);
            break;
        case 'w':
            walk_mib = atoi(optarg);
            break;
        case 'k':
            chunk = atoi(optarg);
            break;
        default:
            return 2;
        }
    const struct kernels *k;
    struct leat_error e;
    if (kernels_select(isa, &k, &e) < 0 || threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "%s\n", e.message);
        return 2;
    }
    measure_peaks(k, threads, seconds / 2);
    for (uint32_t id = 0; id < FORMAT_LIMIT; id++) {
        const struct format_info *info = format_info(id);
        if (info == NULL || !info->runs || (format != NULL && strcmp(format, info->name) != 0))
            continue;
        int32_t r = rows ? rows : 2048, w = cols ? cols : 2048;
        if (tokens > 0) {
            measure(k, threads, (enum format)id, r, w, tokens, seconds);
            continue;
        }
        measure(k, threads, (enum format)id, r, w, 1, seconds);
        measure(k, threads, (enum format)id, r, w, 512, seconds);
    }
    return 0;
}
