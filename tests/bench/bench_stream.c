/* bench_stream: one measured run of Leat for tools/bench-stream, and the probe of a drive.
 *
 *   bench_stream run MODEL N_PROMPT SECONDS KEY=VALUE... < ids
 *       Evaluates N_PROMPT ids as one prompt, then the others one by one, whatever the model would
 *       have chosen, until they end or SECONDS have passed. record=FILE: the routing of the ids
 *       behind the prompt, with hits. warm=N: the first N ids are evaluated
 *       and forgotten before that; skip=N: it begins behind the first N. One JSON object: the time
 *       of each token and what was read meanwhile.
 *   bench_stream probe FILE SECONDS LANES KIB MIB
 *       Direct reads at random places into huge pages, LANES at a time, round and round through MIB
 *       of memory; prints bytes per second. A virtual drive copies: into memory that the
 *       processor's cache does not hold it is slower, as it is for the run that is compared.
 *
 * Uses leat.h only. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "leat.h"

#define IDS_MAX (1 << 16)
#define LANES_MAX 64
#define HUGE (2u << 20)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const struct leat_error *e)
{
    fprintf(stderr, "bench_stream: %s\n", e->message);
    exit(1);
}

/* ---- a run ---- */

static void set(struct leat_params *p, const char *key, const char *value)
{
    struct leat_error e;
    if (leat_params_set(p, key, value, &e) < 0)
        die(&e);
}

/* Evaluates ids and forgets the token that was chosen behind them: the next id takes its place. */
static void force(struct leat_engine *g, struct leat_session *s, struct leat_params *p,
                  const int32_t *ids, int32_t n)
{
    struct leat_error e;
    struct leat_result r;
    struct leat_request q = {.session = s, .params = p, .ids = ids, .n_ids = n};
    int32_t have;
    if (leat_generate(g, &q, 1, &r, &e) < 0)
        die(&e);
    leat_result_free(&r);
    leat_session_tokens(s, &have);
    if (leat_session_truncate(s, have - 1, NULL, &e) < 0)
        die(&e);
}

static uint64_t status_bytes(const char *key)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)))
            sscanf(line + strlen(key), " %llu", &kib);
    if (f)
        fclose(f);
    return (uint64_t)kib << 10;
}

static unsigned long long io_bytes(const char *key)
{
    char line[256];
    unsigned long long v = 0;
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)))
            sscanf(line + strlen(key), " %llu", &v);
    if (f)
        fclose(f);
    return v;
}

static void print_stats(const char *name, const struct leat_stats *a, const struct leat_stats *b)
{
#define PART(field) (unsigned long long)(b->field - a->field)
    printf("\"%s\": {\"compute_s\": %.6f, \"wait_s\": %.6f, \"sample_s\": %.6f, \"waits\": %llu, "
           "\"reads\": %llu, \"read_bytes\": %llu, \"wanted_bytes\": %llu, "
           "\"page_cache_read_bytes\": %llu, \"read_busy_s\": %.6f, \"stream_read_bytes\": %llu, "
           "\"resident_read_bytes\": %llu, \"expert_read_bytes\": %llu, \"row_read_bytes\": %llu, "
           "\"expert_hits\": %llu, \"expert_misses\": %llu, \"expert_evictions\": %llu, "
           "\"expert_hit_bytes\": %llu, \"expert_miss_bytes\": %llu, \"major_faults\": %llu}, ",
           name, b->compute_s - a->compute_s, b->wait_s - a->wait_s, b->sample_s - a->sample_s,
           PART(waits), PART(reads), PART(read_bytes), PART(wanted_bytes),
           PART(page_cache_read_bytes), b->read_busy_s - a->read_busy_s, PART(stream_read_bytes),
           PART(resident_read_bytes), PART(expert_read_bytes), PART(row_read_bytes),
           PART(expert_hits), PART(expert_misses), PART(expert_evictions), PART(expert_hit_bytes),
           PART(expert_miss_bytes), PART(major_faults));
#undef PART
}

static int run(int argc, char **argv)
{
    static int32_t ids[IDS_MAX];
    static double at[IDS_MAX];
    static uint64_t read_at[IDS_MAX], miss_at[IDS_MAX];
    const int32_t n_prompt = atoi(argv[3]);
    const double seconds = atof(argv[4]);
    int32_t n = 0;
    while (n < IDS_MAX && scanf("%d", &ids[n]) == 1)
        n++;
    struct leat_error e;
    struct leat_params *p;
    struct leat_engine *g;
    struct leat_session *s = NULL;
    struct leat_stats opened, prompt, now_stats;
    char context[16];
    if (leat_params_open(&p, &e) < 0)
        die(&e);
    snprintf(context, sizeof context, "%d", n + 8);
    set(p, "context", context);
    set(p, "temp", "0");
    set(p, "ignore_eos", "true");
    set(p, "predict", "1");
    int32_t warm = 0, skip = 0;
    const char *record = NULL;
    for (int i = 5; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (!eq) {
            fprintf(stderr, "bench_stream: KEY=VALUE, not %s\n", argv[i]);
            return 2;
        }
        *eq = '\0';
        if (!strcmp(argv[i], "warm"))
            warm = atoi(eq + 1) < n ? atoi(eq + 1) : n;
        else if (!strcmp(argv[i], "record"))
            record = eq + 1;
        else if (!strcmp(argv[i], "skip"))
            skip = atoi(eq + 1);
        else
            set(p, argv[i], eq + 1);
    }
    if (skip < 0 || n_prompt < 1 || skip > n - n_prompt) {
        fprintf(stderr, "bench_stream: a prompt of %d behind %d of %d ids\n", n_prompt, skip, n);
        return 2;
    }
    const double t0 = now();
    if (leat_open(argv[2], p, NULL, &g, &e) < 0 || leat_session_open(g, &s, &e) < 0)
        die(&e);
    if (warm) {
        force(g, s, p, ids, warm);
        if (leat_session_truncate(s, 0, NULL, &e) < 0)
            die(&e);
    }
    leat_engine_stats(g, 0, &opened);
    const double t1 = now();
    force(g, s, p, ids + skip, n_prompt);
    const double t2 = now();
    if (record && leat_record_begin(g, record, &e) < 0)
        die(&e);
    leat_engine_stats(g, 0, &prompt);
    now_stats = prompt;
    const unsigned long long io0 = io_bytes("read_bytes:");
    int32_t done = 0;
    while (skip + n_prompt + done < n && (done == 0 || now() - t2 < seconds)) {
        force(g, s, p, ids + skip + n_prompt + done, 1);
        leat_engine_stats(g, 0, &now_stats);
        at[done] = now() - t2;
        read_at[done] = now_stats.read_bytes - prompt.read_bytes;
        miss_at[done++] = now_stats.expert_miss_bytes - prompt.expert_miss_bytes;
    }
    const unsigned long long io1 = io_bytes("read_bytes:");
    if (record && leat_record_end(g, &e) < 0)
        die(&e);
    const struct leat_plan *plan = leat_engine_plan(g);
    printf("{\"load_s\": %.4f, \"prompt_s\": %.4f, \"prompt_tokens\": %d, \"tokens\": %d, ", t1 - t0,
           t2 - t1, n_prompt, done);
    for (int k = 0; k < 3; k++) {
        printf("\"%s\": [", k == 0 ? "at_s" : k == 1 ? "read_at_bytes" : "miss_at_bytes");
        for (int32_t i = 0; i < done; i++)
            if (k == 0)
                printf("%s%.5f", i ? ", " : "", at[i]);
            else
                printf("%s%llu", i ? ", " : "",
                       (unsigned long long)(k == 1 ? read_at : miss_at)[i]);
        printf("], ");
    }
    print_stats("prompt", &opened, &prompt);
    print_stats("decode", &prompt, &now_stats);
    leat_engine_stats(g, 1, &now_stats);
    printf("\"reads_in_flight_peak\": %d, \"huge_asked_bytes\": %llu, \"huge_came_bytes\": %llu, ",
           now_stats.reads_in_flight_peak, (unsigned long long)now_stats.huge_asked_bytes,
           (unsigned long long)now_stats.huge_came_bytes);
    printf("\"ceiling_bytes\": %llu, \"dense_bytes\": %llu, \"experts_bytes\": %llu, "
           "\"resident_bytes\": %llu, \"stream_bytes\": %llu, \"expert_cache_bytes\": %llu, "
           "\"width\": %d, \"held_bytes\": %llu, \"drive_read_bytes\": %llu, "
           "\"written_bytes\": %llu, \"isa\": \"%s\", \"rss_peak_bytes\": %llu}\n",
           (unsigned long long)plan->ceiling_bytes, (unsigned long long)plan->dense_bytes,
           (unsigned long long)plan->experts_bytes, (unsigned long long)plan->resident_bytes,
           (unsigned long long)plan->stream_bytes, (unsigned long long)plan->expert_cache_bytes,
           (int)plan->width, (unsigned long long)now_stats.held_bytes, io1 - io0,
           io_bytes("write_bytes:"), leat_engine_facts(g)->isa,
           (unsigned long long)status_bytes("VmHWM:"));
    leat_session_close(s);
    leat_close(g);
    leat_params_close(p);
    return 0;
}

/* ---- the drive ---- */

struct probe {
    int fd;
    size_t bytes;    /* of a read */
    size_t memory;   /* to read into */
    uint64_t places; /* whole reads in the file */
    uint64_t seed, done;
    double end; /* at first the seconds that it takes */
    pthread_barrier_t *ready;
    int failed;
};

static void *probe_lane(void *arg)
{
    struct probe *p = arg;
    const size_t step = (p->bytes + HUGE - 1) & ~((size_t)HUGE - 1);
    const size_t room = p->memory / step > 0 ? p->memory / step * step : step;
    size_t into = 0;
    char *raw = mmap(NULL, room + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) {
        p->failed = 1;
        pthread_barrier_wait(p->ready);
        return NULL;
    }
    char *buf = (char *)(((uintptr_t)raw + HUGE - 1) & ~((uintptr_t)HUGE - 1));
    madvise(buf, room, MADV_HUGEPAGE);
    memset(buf, 1, room);
    pthread_barrier_wait(p->ready); /* touching that memory is not measured */
    p->end += now();
    while (now() < p->end) {
        p->seed = p->seed * 6364136223846793005u + 1442695040888963407u;
        const off_t at = (off_t)((p->seed >> 20) % p->places * p->bytes);
        if (pread(p->fd, buf + into, p->bytes, at) != (ssize_t)p->bytes) {
            p->failed = 1;
            break;
        }
        into = into + step < room ? into + step : 0;
        p->done += p->bytes;
    }
    munmap(raw, room + HUGE);
    return NULL;
}

static int probe(char **argv)
{
    const double seconds = atof(argv[3]);
    const int lanes = atoi(argv[4]);
    const size_t bytes = (size_t)atol(argv[5]) << 10, memory = (size_t)atol(argv[6]) << 20;
    struct stat st;
    const int fd = open(argv[2], O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        perror(argv[2]);
        return 1;
    }
    if (lanes < 1 || lanes > LANES_MAX || bytes < 4096 || (uint64_t)st.st_size < bytes) {
        fprintf(stderr, "bench_stream: 1 to %d lanes, reads of 4 KiB to the size of the file\n",
                LANES_MAX);
        return 2;
    }
    struct probe p[LANES_MAX] = {0};
    pthread_t thread[LANES_MAX];
    pthread_barrier_t ready;
    pthread_barrier_init(&ready, NULL, (unsigned)lanes + 1);
    const double seed = now();
    for (int i = 0; i < lanes; i++) {
        p[i] = (struct probe){.fd = fd,
                              .bytes = bytes,
                              .memory = memory / (size_t)lanes,
                              .ready = &ready,
                              .places = (uint64_t)st.st_size / bytes,
                              .seed = (uint64_t)(seed * 1e6) * 7919 + (uint64_t)i * 104729 + 1,
                              .end = seconds};
        if (pthread_create(&thread[i], NULL, probe_lane, &p[i])) {
            fprintf(stderr, "bench_stream: no thread\n");
            return 1;
        }
    }
    uint64_t done = 0;
    int failed = 0;
    pthread_barrier_wait(&ready);
    const double t0 = now();
    for (int i = 0; i < lanes; i++) {
        pthread_join(thread[i], NULL);
        done += p[i].done;
        failed |= p[i].failed;
    }
    const double took = now() - t0;
    close(fd);
    if (failed) {
        fprintf(stderr, "bench_stream: %s: a direct read failed\n", argv[2]);
        return 1;
    }
    printf("{\"bytes_per_s\": %.0f}\n", (double)done / took);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 5 && !strcmp(argv[1], "run"))
        return run(argc, argv);
    if (argc == 7 && !strcmp(argv[1], "probe"))
        return probe(argv);
    fprintf(stderr, "usage: bench_stream run MODEL N_PROMPT SECONDS [KEY=VALUE...] < ids\n"
                    "       bench_stream probe FILE SECONDS LANES KIB MIB\n");
    return 2;
}
