/* Speed of attention over one head's history.
 *
 *     bench_attn [-i ISA] [-t THREADS] [-k TYPE] [-d HEAD_DIM] [-g GROUP] [-n TOKENS] [-p DEPTH]
 *                [-h HEADS] [-s SECONDS]
 *
 * TOKENS (1: decode) new tokens behind DEPTH old ones, GROUP query heads per kv head. Every thread
 * walks HEADS kv heads of its own, in pages as the decoder keeps them: rows of keys, then rows of
 * values. Printed: the time of a head, GB/s of keys and values read (each tile once per block of
 * 64 queries), and GMAC/s over visible positions. A rate is the best of several rounds; a round is
 * the processor time of its slowest thread. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../src/kernels/kernels.h"

enum { MAX_THREADS = 64, QUERIES = 64 };

static const char *const types[] = {"f32", "f16", "q8_0", "q4_0"};

struct bench {
    const struct kernels *k;
    enum kv_type type;
    int32_t dim, group, tokens, depth, heads, threads;
    size_t row, page; /* bytes */
    int32_t pages;
    uint8_t *kv[MAX_THREADS]; /* heads * pages */
    float *q[MAX_THREADS], *out[MAX_THREADS];
    void *scratch[MAX_THREADS];
    pthread_barrier_t barrier;
    double spent[MAX_THREADS];
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

static int32_t clamp(int32_t x)
{
    return x < 0 ? 0 : x > ATTN_TILE ? ATTN_TILE : x;
}

/* Tokens [t0, t0 + nt) of one head, tile by tile. */
static void block_run(struct bench *b, int32_t id, const uint8_t *head, int32_t t0, int32_t nt)
{
    const float *q[QUERIES];
    float *acc[QUERIES], m[QUERIES], l[QUERIES];
    int32_t lo[QUERIES], hi[QUERIES];
    const int32_t nq = nt * b->group;
    for (int32_t i = 0; i < nq; i++) {
        size_t at = ((size_t)t0 * (size_t)b->group + (size_t)i) * (size_t)b->dim;
        q[i] = b->q[id] + at;
        acc[i] = b->out[id] + at;
        memset(acc[i], 0, (size_t)b->dim * sizeof(float));
        m[i] = -INFINITY;
        l[i] = 0;
    }
    struct attn_tile a = {.type = b->type,
                          .k_stride = b->row,
                          .v_stride = b->row,
                          .dk = b->dim,
                          .dv = b->dim,
                          .nq = nq,
                          .q = q,
                          .acc = acc,
                          .m = m,
                          .l = l,
                          .lo = lo,
                          .hi = hi,
                          .scratch = b->scratch[id]};
    const int32_t last = b->depth + t0 + nt - 1;
    for (int32_t page = 0; page <= last / ATTN_TILE; page++) {
        for (int32_t i = 0; i < nq; i++) {
            lo[i] = 0;
            hi[i] = clamp(b->depth + t0 + i / b->group + 1 - page * ATTN_TILE);
        }
        a.k = head + (size_t)page * b->page;
        a.v = (const uint8_t *)a.k + b->row * ATTN_TILE;
        a.ahead = page < last / ATTN_TILE ? (const uint8_t *)a.k + b->page : NULL;
        b->k->attn_tile(&a);
    }
}

static void *run_thread(void *arg)
{
    struct job *j = arg;
    struct bench *b = j->b;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(j->id, &set);
    sched_setaffinity(0, sizeof set, &set);
    const int32_t step = QUERIES / b->group;
    pthread_barrier_wait(&b->barrier);
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    for (int32_t h = 0; h < b->heads; h++)
        for (int32_t t0 = 0; t0 < b->tokens; t0 += step)
            block_run(b, j->id, b->kv[j->id] + (size_t)h * (size_t)b->pages * b->page, t0,
                      b->tokens - t0 < step ? b->tokens - t0 : step);
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

static void prepare(struct bench *b, int32_t id)
{
    const size_t pages = (size_t)b->heads * (size_t)b->pages;
    const size_t nq = (size_t)b->tokens * (size_t)b->group;
    b->kv[id] = big(pages * b->page);
    b->q[id] = big(nq * (size_t)b->dim * sizeof(float));
    b->out[id] = big(nq * (size_t)b->dim * sizeof(float));
    b->scratch[id] = big(attn_scratch_bytes(b->dim, b->dim, QUERIES));
    float x[1024];
    for (int32_t r = 0; r < 2 * ATTN_TILE; r++) {
        for (int32_t c = 0; c < b->dim; c++)
            x[c] = (float)((c * 37 + r * 11) % 101 - 50) * 0.02f;
        b->k->kv_store(b->type, x, b->kv[id] + (size_t)r * b->row, b->dim);
    }
    for (size_t p = 1; p < pages; p++)
        memcpy(b->kv[id] + p * b->page, b->kv[id], 2 * ATTN_TILE * b->row);
    for (size_t i = 0; i < nq * (size_t)b->dim; i++)
        b->q[id][i] = (float)((int)(i * 29 % 97) - 48) * 0.01f;
}

int main(int argc, char **argv)
{
    struct bench b = {.threads = 1,
                      .type = KV_F16,
                      .dim = 64,
                      .group = 4,
                      .tokens = 1,
                      .depth = 8192,
                      .heads = 8};
    const char *isa = "auto";
    double seconds = 0.5;
    int c;
    while ((c = getopt(argc, argv, "i:t:k:d:g:n:p:h:s:")) != -1)
        switch (c) {
        case 'i':
            isa = optarg;
            break;
        case 't':
            b.threads = atoi(optarg);
            break;
        case 'k':
            for (size_t i = 0; i < sizeof types / sizeof *types; i++)
                if (strcmp(optarg, types[i]) == 0)
                    b.type = (enum kv_type)i;
            break;
        case 'd':
            b.dim = atoi(optarg);
            break;
        case 'g':
            b.group = atoi(optarg);
            break;
        case 'n':
            b.tokens = atoi(optarg);
            break;
        case 'p':
            b.depth = atoi(optarg);
            break;
        case 'h':
            b.heads = atoi(optarg);
            break;
        case 's':
            seconds = atof(optarg);
            break;
        default:
            return 2;
        }
    struct leat_error e;
    if (kernels_select(isa, &b.k, &e) < 0) {
        fprintf(stderr, "%s\n", e.message);
        return 2;
    }
    if (b.threads < 1 || b.threads > MAX_THREADS || b.dim < 1 || b.dim > 1024 || b.group < 1 ||
        b.group > QUERIES || b.tokens < 1 || b.depth < 0 || b.heads < 1) {
        fprintf(stderr, "bench_attn: a figure is out of range\n");
        return 2;
    }
    b.row = kv_row_bytes(b.type, b.dim);
    b.page = (2 * ATTN_TILE * b.row + 127) / 64 * 64; /* a header line, as in state.c */
    b.pages = (b.depth + b.tokens + ATTN_TILE - 1) / ATTN_TILE;
    for (int32_t i = 0; i < b.threads; i++)
        prepare(&b, i);
    double best = 1e9, start = now(CLOCK_MONOTONIC), seen = 0, read = 0;
    for (int32_t i = 0; i < 3 || now(CLOCK_MONOTONIC) - start < seconds; i++) {
        double t = round_seconds(&b);
        best = t < best ? t : best;
    }
    const int32_t step = QUERIES / b.group;
    for (int32_t t = 0; t < b.tokens; t++)
        seen += b.depth + t + 1;
    for (int32_t t0 = 0; t0 < b.tokens; t0 += step)
        read += b.depth + (t0 + step < b.tokens ? t0 + step : b.tokens);
    const double all = (double)b.heads * b.threads / best;
    printf("%-7s %-5s threads %d  dim %-4d group %-3d tokens %-4d depth %-6d %9.1f us/head "
           "%7.2f GB/s %8.2f GMAC/s\n",
           b.k->isa, types[b.type], b.threads, b.dim, b.group, b.tokens, b.depth,
           best / b.heads * 1e6, read * 2 * (double)b.row * all * 1e-9,
           seen * b.group * 2 * b.dim * all * 1e-9);
    return 0;
}
