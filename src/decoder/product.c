/* Products over weights as they come, and the preparation of what they read. Spreads rows, or
 * tokens, over the team; results do not depend on how. Knows no layer. Thread rule: thread 0 of
 * the team. */
#include "decoder_room.h"

#include <assert.h>
#include <string.h>

#define STEP         16 /* rows are handed out in multiples of what kernels take at a time */
#define WIDE         8  /* above this many tokens a call loads a panel of activations of its own, */
#define WIDE_ROWS    64 /* which pays from about this many rows on (docs/kernels.md) */
#define CHUNK_BYTES  (UINT64_C(32) << 10) /* less weight than this is not worth another thread */
#define CHUNK_FLOATS 16384

/* With more tokens than a panel holds, work is cut both ways: blocks of rows by the tokens of one
 * panel. Each panel is then loaded once for many rows, which runs of rows alone do not give when they
 * are short enough to let all threads end together (docs/kernels.md). */
#define TILE_TOKENS 64
#define TILE_ITEMS  8 /* a thread, at least, so that all end together */

void tokens_run(struct decoder *d, int32_t n, int64_t work,
                void (*fn)(void *arg, int32_t thread, int64_t begin, int64_t end), void *arg)
{
    int64_t chunk = CHUNK_FLOATS / (work > 0 ? work : 1);
    team_for(d->team, n, chunk > 0 ? chunk : 1, fn, arg);
}

int64_t product_chunk(int64_t rows, uint64_t row_bytes, int32_t n)
{
    /* Small enough that the last one is soon done, large enough for what a kernel does once per
     * call. */
    int64_t least = (int64_t)(CHUNK_BYTES / (row_bytes ? row_bytes : 1));
    if (n > 1)
        least = least / n > 32 ? least / n : 32;
    if (n > WIDE && least < WIDE_ROWS)
        least = WIDE_ROWS;
    least = least < rows ? least : rows;
    return (least + STEP - 1) / STEP * STEP + (least <= 0 ? STEP : 0);
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

/* Several products over the same input in one region of the team: their rows behind each other. */
#define MANY 3 /* q, k, v */

struct product_job {
    const struct decoder *d;
    int32_t n; /* of m */
    struct matmul m[MANY];
    const struct product_post *post[MANY]; /* NULL = nothing */
    int32_t row0[MANY];                    /* of the view in the unit */
    int64_t tile_rows, tiles;              /* rows of a block, tiles of tokens: product_tiles */
};

/* Rows [begin, end) of product i for the tokens of m. */
static void product_part(const struct product_job *j, int32_t i, const struct matmul *m,
                         int32_t thread, int32_t begin, int32_t end)
{
    const struct kernels *k = j->d->k;
    const struct product_post *post = j->post[i];
    k->matmul(m, begin, end, decoder_scratch(j->d, thread));
    if (!post)
        return;
    for (int32_t t = 0; t < m->tokens; t++) {
        float *y = m->y + (size_t)t * m->y_stride + begin;
        if (post->bias)
            k->add(y, post->bias + j->row0[i] + begin, end - begin);
        if (post->scale != 1)
            k->scale(y, post->scale, end - begin);
        if (post->softcap != 0)
            k->softcap(y, post->softcap, end - begin);
    }
}

/* Tokens [token, token + tokens) of a product. */
static struct matmul tokens_of(const struct matmul *m, int32_t token, int32_t tokens)
{
    struct matmul part = *m;
    part.act = (const char *)m->act + (size_t)token * m->act_stride;
    part.y = m->y + (size_t)token * m->y_stride;
    part.tokens = tokens;
    return part;
}

/* Rows [begin, end) of all products, one behind the other, for n tokens from a first one. */
static void product_block(const struct product_job *j, int32_t thread, int64_t begin, int64_t end,
                          int32_t token, int32_t n)
{
    int64_t first = 0;
    for (int32_t i = 0; i < j->n; i++) {
        const int64_t b = begin > first ? begin - first : 0, rows = j->m[i].rows,
                      e = end - first < rows ? end - first : rows;
        if (b < e) {
            const struct matmul m = tokens_of(&j->m[i], token, n);
            product_part(j, i, &m, thread, (int32_t)b, (int32_t)e);
        }
        first += rows;
    }
}

static void product_rows(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct product_job *j = arg;
    product_block(j, thread, begin, end, 0, j->m[0].tokens);
}

/* Item i: tile i mod tiles of block i / tiles. */
static void product_tiles(void *arg, int32_t thread, int64_t begin, int64_t end)
{
    const struct product_job *j = arg;
    int64_t rows = 0;
    for (int32_t i = 0; i < j->n; i++)
        rows += j->m[i].rows;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / j->tiles * j->tile_rows, token = i % j->tiles * TILE_TOKENS,
                      left = j->m[0].tokens - token;
        product_block(j, thread, row, row + j->tile_rows < rows ? row + j->tile_rows : rows,
                      (int32_t)token, (int32_t)(left < TILE_TOKENS ? left : TILE_TOKENS));
    }
}

/* Rows of a block: as many as leave the threads enough items. */
static int64_t tile_rows(int64_t rows, int64_t tiles, int32_t threads)
{
    int64_t n = rows * tiles / ((int64_t)threads * TILE_ITEMS);
    n = n < rows ? n : rows;
    n = n > WIDE_ROWS ? n : WIDE_ROWS;
    return (n + STEP - 1) / STEP * STEP;
}

static void job_add(struct product_job *j, const struct product_out *o,
                    const struct weights_view *v, const struct input *in, int32_t n)
{
    const struct part *p = &j->d->m->units[o->unit].part[0];
    struct matmul *m = &j->m[j->n];
    *m = (struct matmul){.format = p->format,
                         .w = v->data,
                         .row_bytes = v->row_bytes,
                         .rows = v->rows,
                         .cols = p->cols,
                         .tokens = n,
                         .y = o->y + v->row0,
                         .y_stride = o->y_stride};
    m->act = input_rows(in, part_kind(p), &m->act_stride);
    j->row0[j->n] = v->row0;
    j->post[j->n++] = o->post;
}

static void job_run(struct product_job *j)
{
    int64_t rows = 0;
    uint64_t bytes = 0;
    for (int32_t i = 0; i < j->n; i++) {
        rows += j->m[i].rows;
        bytes += (uint64_t)j->m[i].rows * j->m[i].row_bytes;
    }
    if (rows > 0 && j->m[0].tokens > TILE_TOKENS && team_threads(j->d->team) > 1) {
        j->tiles = (j->m[0].tokens + TILE_TOKENS - 1) / TILE_TOKENS;
        j->tile_rows = tile_rows(rows, j->tiles, team_threads(j->d->team));
        team_for(j->d->team, (rows + j->tile_rows - 1) / j->tile_rows * j->tiles, 1, product_tiles,
                 j);
    } else if (rows > 0) {
        team_guided(j->d->team, rows, product_chunk(rows, bytes / (uint64_t)rows, j->m[0].tokens),
                    product_rows, j);
    }
    j->n = 0;
}

int products(struct decoder *d, const struct product_out *outs, int32_t count,
             const struct input *in, int32_t n, struct leat_error *e)
{
    struct product_job j = {.d = d};
    assert(count <= MANY);
    for (int32_t i = 0; i < count; i++) {
        struct weights_view v;
        int rc;
        if (outs[i].unit < 0)
            continue;
        rc = weights_whole(d->pass, outs[i].unit, &v, e);
        if (rc < 0)
            return rc;
        if (rc > 0) {
            if (n > 0)
                job_add(&j, &outs[i], &v, in, n);
            continue;
        }
        job_run(&j); /* its rows come piece by piece, each piece until the next */
        while ((rc = weights_next(d->pass, outs[i].unit, &v, e)) > 0)
            if (n > 0) {
                job_add(&j, &outs[i], &v, in, n);
                job_run(&j);
            }
        if (rc < 0)
            return rc;
    }
    job_run(&j);
    return 0;
}

int product(struct decoder *d, unit_id u, const struct input *in, int32_t n, float *y,
            size_t y_stride, const struct product_post *post, struct leat_error *e)
{
    const struct product_out out = {u, y, y_stride, post};
    return products(d, &out, 1, in, n, e);
}
