/* Products over weights as they come, and the preparation of what they read. Spreads rows, or
 * tokens, over the team; results do not depend on how. Knows no layer. Thread rule: thread 0 of
 * the team. */
#include "decoder_room.h"

#include <string.h>

#define STEP         16 /* rows are handed out in multiples of what kernels take at a time */
#define WIDE         8  /* above this many tokens a call loads a panel of activations of its own, */
#define WIDE_ROWS    64 /* which pays from about this many rows on (docs/kernels.md) */
#define CHUNK_BYTES  (UINT64_C(32) << 10) /* less weight than this is not worth another thread */
#define CHUNK_FLOATS 16384

void tokens_run(struct decoder *d, int32_t n, int64_t work,
                void (*fn)(void *arg, int32_t thread, int64_t begin, int64_t end), void *arg)
{
    int64_t chunk = CHUNK_FLOATS / (work > 0 ? work : 1);
    team_for(d->team, n, chunk > 0 ? chunk : 1, fn, arg);
}

int64_t product_chunk(const struct decoder *d, int64_t rows, uint64_t row_bytes, int32_t n)
{
    /* Enough pieces that the last one is small, each large enough for what a kernel does once
     * per call. */
    int64_t chunk = rows / ((int64_t)d->threads * 8),
            least = (int64_t)(CHUNK_BYTES / (row_bytes ? row_bytes : 1));
    if (n > 1)
        least = least / n > 32 ? least / n : 32;
    if (n > WIDE && least < WIDE_ROWS)
        least = WIDE_ROWS;
    chunk = chunk > least ? chunk : least;
    return (chunk + STEP - 1) / STEP * STEP + (chunk <= 0 ? STEP : 0);
}

void input_row_prepare(const struct decoder *d, const struct input *in, unsigned kinds, int64_t t)
{
    float *row = in->x + (size_t)t * in->stride;
    for (int kind = 0; kind < ACT_KINDS; kind++) {
        if (!(kinds & 1u << kind))
            continue;
        if (kind == ACT_F32)
            memset(row + in->cols, 0, (size_t)(pad16(in->cols) - in->cols) * sizeof *row);
        else
            d->k->act_prepare((enum act_kind)kind, row,
                              in->prepared[kind] + (size_t)t * in->prepared_stride[kind], in->cols);
    }
}

struct prepare_job {
    const struct decoder *d;
    const struct input *in;
    unsigned kinds;
};

static void prepare_rows(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct prepare_job *j = arg;
    (void)thread;
    for (int64_t t = begin; t < end; t++)
        input_row_prepare(j->d, j->in, j->kinds, t);
}

void input_prepare(struct decoder *d, const struct input *in, unsigned kinds, int32_t n)
{
    struct prepare_job j = {d, in, kinds};
    tokens_run(d, n, in->cols, prepare_rows, &j);
}

const void *input_rows(const struct input *in, enum act_kind kind, size_t *stride)
{
    *stride = kind == ACT_F32 ? in->stride * sizeof(float) : in->prepared_stride[kind];
    return kind == ACT_F32 ? (const void *)in->x : in->prepared[kind];
}

struct product_job {
    const struct decoder *d;
    struct matmul m;
    const struct product_post *post; /* NULL = nothing */
    int32_t row0;                    /* of the view in the unit */
};

static void product_rows(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct product_job *j = arg;
    const struct kernels *k = j->d->k;
    k->matmul(&j->m, (int32_t)begin, (int32_t)end, decoder_scratch(j->d, thread));
    if (!j->post)
        return;
    const int32_t n = (int32_t)(end - begin);
    for (int32_t t = 0; t < j->m.tokens; t++) {
        float *y = j->m.y + (size_t)t * j->m.y_stride + begin;
        if (j->post->bias)
            k->add(y, j->post->bias + j->row0 + begin, n);
        if (j->post->scale != 1)
            k->scale(y, j->post->scale, n);
        if (j->post->softcap != 0)
            k->softcap(y, j->post->softcap, n);
    }
}

int product(struct decoder *d, unit_id u, const struct input *in, int32_t n, float *y,
            size_t y_stride, const struct product_post *post, struct leat_error *e)
{
    const struct part *p = &d->m->units[u].part[0];
    struct weights_view v;
    struct product_job j = {.d = d, .post = post};
    int rc;
    while ((rc = weights_next(d->pass, u, &v, e)) > 0) {
        if (n == 0)
            continue;
        j.m = (struct matmul){.format = p->format,
                              .w = v.data,
                              .row_bytes = v.row_bytes,
                              .rows = v.rows,
                              .cols = p->cols,
                              .tokens = n,
                              .y = y + v.row0,
                              .y_stride = y_stride};
        j.m.act = input_rows(in, part_kind(p), &j.m.act_stride);
        j.row0 = v.row0;
        team_for(d->team, v.rows, product_chunk(d, v.rows, v.row_bytes, n), product_rows, &j);
    }
    return rc;
}
