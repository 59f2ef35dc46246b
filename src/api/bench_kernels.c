/* Speed of the products, format by format, with weights made up here. Owns the timing; the limits
 * to compare with come from leat_measure_limits. One thread, which is thread 0 of the teams. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bench.h"
#include "../base/clock.h"
#include "../base/error.h"
#include "../base/os.h"

#define ROWS       2048
#define COLS       2048
#define GRANULE    32 /* rows: what a thread takes at least */
#define SECONDS    0.2
#define TOKENS_MAX 512

struct product {
    const struct kernels *k;
    struct matmul m;
    uint64_t copy_bytes; /* rows [i * ROWS, (i + 1) * ROWS) are those of copy i */
    char *scratch;
    uint64_t scratch_bytes; /* of each thread */
};

static void run_rows(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct product *p = arg;
    void *scratch = p->scratch + (uint64_t)thread * p->scratch_bytes;
    while (begin < end) {
        const int64_t copy = begin / ROWS, last = (copy + 1) * ROWS;
        const int64_t stop = end < last ? end : last;
        struct matmul m = p->m;
        m.w = (const char *)m.w + (uint64_t)copy * p->copy_bytes;
        p->k->matmul(&m, (int32_t)(begin - copy * ROWS), (int32_t)(stop - copy * ROWS), scratch);
        begin = stop;
    }
}

/* Seconds of one walk over all copies, the best of several. */
static double best_walk(struct team *t, struct product *p, int64_t copies)
{
    const double start = clock_now();
    double best = 0, now = start;
    for (int i = 0; i < 3 || now - start < SECONDS; i++) {
        const double before = clock_now();
        team_guided(t, copies * ROWS, GRANULE, run_rows, p);
        now = clock_now();
        if (i > 0 && now > before && (best == 0 || now - before < best)) /* the first warms up */
            best = now - before;
    }
    return best;
}

/* Bytes of every value, and ordinary numbers where a format keeps its scales: time must not depend
 * on denormals or infinities. */
static void fill_weights(uint8_t *w, uint64_t bytes, enum format f)
{
    const struct format_info *info = format_info(f);
    if (info->block == 1) {
        memset(w, 0x3c, bytes);
        return;
    }
    for (uint64_t i = 0; i < bytes; i++)
        w[i] = (uint8_t)(i * 2654435761u >> 13);
    for (uint64_t i = 0; i + (uint64_t)info->block_bytes <= bytes;
         i += (uint64_t)info->block_bytes) {
        uint8_t *d = w + i + (f == FORMAT_Q6_K ? 208 : 0);
        d[0] = f == FORMAT_MXFP4 ? 120 : 0x12;
        if (f != FORMAT_MXFP4)
            d[1] = 0x1c;
        if (f == FORMAT_Q4_K || f == FORMAT_Q5_K || f == FORMAT_Q5_1)
            d[2] = 0x12, d[3] = 0x1c;
    }
}

struct kernel_bench {
    struct bench_machine machine;
    char *acts, *scratch;
    float *y, *x;
    uint64_t acts_bytes, scratch_bytes, y_bytes;
    int (*on_rate)(void *arg, const struct leat_kernel_rate *r);
    void *arg;
};

static int measure(struct kernel_bench *b, enum format f, int32_t threads, int32_t tokens,
                   struct leat_error *e)
{
    const struct format_info *info = format_info(f);
    const uint64_t row = format_row_bytes(f, COLS), copy = row * ROWS;
    const int64_t copies = tokens < TOKENS_MAX ? (int64_t)(b->machine.bytes / copy) : 1;
    struct product p = {
        .k = b->machine.kernels,
        .copy_bytes = copy,
        .scratch = b->scratch,
        .scratch_bytes = b->scratch_bytes,
    };
    p.m = (struct matmul){
        .format = f,
        .w = b->machine.memory,
        .row_bytes = row,
        .rows = ROWS,
        .cols = COLS,
        .act = b->acts,
        .act_stride = act_row_bytes(info->act, COLS),
        .tokens = tokens,
        .y = b->y,
        .y_stride = ROWS,
    };
    const double s = best_walk(threads > 1 ? b->machine.all : b->machine.one, &p, copies);
    struct leat_kernel_rate r = {
        .format = info->name,
        .isa = b->machine.kernels->isa,
        .threads = threads,
        .tokens = tokens,
        .rows = ROWS,
        .cols = COLS,
        .weight_bytes_per_s = s > 0 ? (double)copy * (double)copies / s : 0,
        .macs_per_s = s > 0 ? (double)ROWS * COLS * tokens * (double)copies / s : 0,
        .floats = info->act == ACT_F32,
    };
    if (b->on_rate(b->arg, &r) != 0)
        return error_set(e, LEAT_ERR_CANCELLED, "cancelled");
    return 0;
}

static int measure_format(struct kernel_bench *b, enum format f, struct leat_error *e)
{
    const struct format_info *info = format_info(f);
    const uint64_t copy = format_row_bytes(f, COLS) * ROWS;
    const size_t act = act_row_bytes(info->act, COLS);
    uint8_t *w = b->machine.memory;
    fill_weights(w, copy, f);
    for (uint64_t i = 1; i < b->machine.bytes / copy; i++)
        memcpy(w + i * copy, w, copy);
    for (int32_t t = 0; t < TOKENS_MAX; t++) {
        for (int32_t c = 0; c < COLS; c++)
            b->x[c] = (float)((c * 37 + t * 11) % 101 - 50);
        b->machine.kernels->act_prepare(info->act, b->x, b->acts + act * (size_t)t, COLS);
    }
    static const int32_t tokens[] = {1, 4, TOKENS_MAX};
    int code = b->machine.threads > 1 ? measure(b, f, 1, 1, e) : 0;
    for (size_t i = 0; code == 0 && i < sizeof tokens / sizeof *tokens; i++)
        code = measure(b, f, b->machine.threads, tokens[i], e);
    return code;
}

/* Whether a name is among those of a list separated by commas. */
static bool listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    while (list) {
        const size_t k = strcspn(list, ",");
        if (k == n && strncasecmp(list, name, n) == 0)
            return true;
        list = list[k] ? list + k + 1 : NULL;
    }
    return false;
}

static int check_formats(const char *list, struct leat_error *e)
{
    for (const char *at = list; at;) {
        const size_t k = strcspn(at, ",");
        bool known = false;
        for (uint32_t f = 0; f < FORMAT_LIMIT; f++) {
            const struct format_info *info = format_info(f);
            known |= info && info->runs && strlen(info->name) == k &&
                     strncasecmp(info->name, at, k) == 0;
        }
        if (!known) {
            char quoted[64];
            return error_set(e, LEAT_ERR_USAGE,
                             "there are no kernels of a format '%s' (names as in leat inspect, "
                             "separated by commas)",
                             error_quote(quoted, sizeof quoted, at, k));
        }
        at = at[k] ? at + k + 1 : NULL;
    }
    return 0;
}

static int obtain(struct kernel_bench *b, struct leat_error *e)
{
    b->acts_bytes = act_row_bytes(ACT_F32, COLS) * TOKENS_MAX; /* the widest kind */
    b->scratch_bytes = (matmul_scratch_bytes(COLS, TOKENS_MAX) + 4095) & ~(uint64_t)4095;
    b->y_bytes = (uint64_t)ROWS * TOKENS_MAX * sizeof(float);
    b->acts = os_map(b->acts_bytes, true);
    b->scratch = os_map(b->scratch_bytes * (uint64_t)b->machine.threads, true);
    b->y = os_map(b->y_bytes, true);
    b->x = malloc(COLS * sizeof *b->x);
    if (!b->acts || !b->scratch || !b->y || !b->x)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory to measure with");
    return 0;
}

int leat_measure_kernels(const struct leat_params *params, const char *formats,
                         int (*on_rate)(void *arg, const struct leat_kernel_rate *r), void *arg,
                         struct leat_error *e)
{
    struct kernel_bench b = {.on_rate = on_rate, .arg = arg};
    int code = check_formats(formats, e);
    if (code < 0 || (code = bench_machine(params, &b.machine, e)) < 0)
        return code;
    code = obtain(&b, e);
    for (uint32_t f = 0; code == 0 && f < FORMAT_LIMIT; f++) {
        const struct format_info *info = format_info(f);
        if (info && info->runs && (!formats || listed(formats, info->name)))
            code = measure_format(&b, (enum format)f, e);
    }
    if (b.acts)
        os_unmap(b.acts, b.acts_bytes);
    if (b.scratch)
        os_unmap(b.scratch, b.scratch_bytes * (uint64_t)b.machine.threads);
    if (b.y)
        os_unmap(b.y, b.y_bytes);
    free(b.x);
    bench_machine_close(&b.machine);
    return code;
}
