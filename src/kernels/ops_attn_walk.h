/* The second half of the wide attention tiles: which rows and columns meet which queries, and the tile
 * itself. Included once by each of ops_attn_avx2.c and ops_attn_avx512.c, behind what it stands on:
 *     ATTN_TARGET, ATTN_ENTRY     the functions' target, the tile's name
 *     COLS ROWS FEW BLOCK, struct value_block, stream_at, lines_fetch, up16, scores_make, weights_make
 *     values_cols(type, nq, n, block, v, stride, c0, at)   a block of queries over n columns
 *     row_unpack(type, row, c0, n, to)                     columns [c0, c0 + n) of a row as f32 */

typedef void (*values_fn)(int32_t n, struct value_block *b, const uint8_t *v, uint64_t stride,
                          int32_t c0, int32_t at);

#define VALUES(name, type, nq)                                                                     \
    ATTN_TARGET static void values_##name##_##nq(int32_t n, struct value_block *b,                 \
                                                 const uint8_t *v, uint64_t stride, int32_t c0,    \
                                                 int32_t at)                                       \
    {                                                                                              \
        values_cols(type, nq, n, b, v, stride, c0, at);                                            \
    }
#define VALUES_FEW(name, type)                                                                     \
    VALUES(name, type, 1)                                                                          \
    VALUES(name, type, 2)                                                                          \
    VALUES(name, type, 3)                                                                          \
    VALUES(name, type, 4)
VALUES_FEW(f32, KV_F32)
VALUES(f32, KV_F32, 5)
VALUES(f32, KV_F32, 6)
VALUES_FEW(f16, KV_F16)
VALUES_FEW(q8_0, KV_Q8_0)
VALUES_FEW(q4_0, KV_Q4_0)
#define VALUES_ROW(name) values_##name##_1, values_##name##_2, values_##name##_3, values_##name##_4
static const values_fn values_few[KV_TYPES][FEW] = {[KV_F32] = {VALUES_ROW(f32)},
                                                    [KV_F16] = {VALUES_ROW(f16)},
                                                    [KV_Q8_0] = {VALUES_ROW(q8_0)},
                                                    [KV_Q4_0] = {VALUES_ROW(q4_0)}};
static const values_fn values_many[BLOCK] = {VALUES_ROW(f32), values_f32_5, values_f32_6};

/* Columns [c0, c0 + n) of rows [first, last) as f32, COLS apart. */
INLINE void rows_stage(enum kv_type t, const struct attn_tile *a, int32_t first, int32_t last,
                       int32_t c0, int32_t n, float *out)
{
    const uint64_t begin = (uint64_t)c0 * a->v_stride / (uint64_t)a->dv,
                   end = (uint64_t)(c0 + n) * a->v_stride / (uint64_t)a->dv;
    const int32_t lines = (int32_t)((end - begin + 63) / 64);
    const uint8_t *ahead = NULL;
    for (int32_t j = first; j < last; j++) {
        if (j % ROWS == 0 || !ahead)
            ahead = stream_at(a, a->v_stride, j & ~(ROWS - 1), true) + begin;
        lines_fetch(ahead + (uint64_t)(j % ROWS) * a->v_stride, lines);
        const uint8_t *row = (const uint8_t *)a->v + (uint64_t)j * a->v_stride;
        row_unpack(t, row, c0, n, out + (size_t)j * COLS);
    }
}

ATTN_TARGET static void rows_stage_any(const struct attn_tile *a, int32_t first, int32_t last,
                                       int32_t c0, int32_t n, float *out)
{
    switch (a->type) {
    case KV_F32:
        rows_stage(KV_F32, a, first, last, c0, n, out);
        break;
    case KV_F16:
        rows_stage(KV_F16, a, first, last, c0, n, out);
        break;
    case KV_Q8_0:
        rows_stage(KV_Q8_0, a, first, last, c0, n, out);
        break;
    case KV_Q4_0:
        rows_stage(KV_Q4_0, a, first, last, c0, n, out);
        break;
    }
}

/* Up to FEW queries, rows from memory: a few rows at a time with all their columns, so that memory
 * is read in order; acc waits in the first cache meanwhile. */
ATTN_TARGET static void values_add_few(const struct attn_tile *a, int32_t first, int32_t last,
                                       const float *weights, const float *factors)
{
    for (int32_t j0 = first & ~(ROWS - 1); j0 < last; j0 += ROWS) {
        struct value_block b = {.ahead = NULL};
        int32_t n = 0, at[FEW] = {0};
        for (int32_t i = 0; i < a->nq; i++) {
            const int32_t lo = a->lo[i] > j0 ? a->lo[i] : j0,
                          hi = a->hi[i] < j0 + ROWS ? a->hi[i] : j0 + ROWS;
            if (lo >= hi)
                continue;
            b.p[n] = weights + (size_t)i * ATTN_TILE;
            b.factor[n] = a->lo[i] >= j0 ? factors[i] : 1.0f; /* once, with the first rows */
            b.lo[n] = lo;
            b.hi[n] = hi;
            at[n++] = i;
        }
        if (n == 0)
            continue;
        const uint8_t *ahead = stream_at(a, a->v_stride, j0, true);
        for (int32_t c0 = 0; c0 < a->dv; c0 += COLS) {
            const int32_t cols = a->dv - c0 < COLS ? a->dv - c0 : COLS;
            for (int32_t i = 0; i < n; i++)
                b.acc[i] = a->acc[at[i]];
            const uint64_t bytes = ROWS * a->v_stride, dv = (uint64_t)a->dv,
                           begin = bytes * (uint64_t)c0 / dv,
                           end = bytes * (uint64_t)(c0 + cols) / dv;
            b.ahead = ahead + begin;
            b.ahead_lines = (int32_t)(((end - begin) / ROWS + 63) / 64);
            values_few[a->type][n - 1](cols, &b, a->v, a->v_stride, c0, c0);
        }
    }
}

ATTN_TARGET static void values_add(const struct attn_tile *a, int32_t first, int32_t last,
                                   const float *weights, const float *factors, float *rows)
{
    if (a->nq <= FEW) {
        values_add_few(a, first, last, weights, factors);
        return;
    }
    for (int32_t c0 = 0; c0 < a->dv; c0 += COLS) {
        const int32_t n = a->dv - c0 < COLS ? a->dv - c0 : COLS;
        rows_stage_any(a, first, last, c0, n, rows);
        struct value_block b = {.ahead = (const uint8_t *)rows}; /* nothing */
        int32_t held = 0;
        for (int32_t i = 0; i < a->nq; i++) {
            if (a->lo[i] < a->hi[i]) {
                b.acc[held] = a->acc[i];
                b.p[held] = weights + (size_t)i * ATTN_TILE;
                b.factor[held] = factors[i];
                b.lo[held] = a->lo[i];
                b.hi[held++] = a->hi[i];
            }
            if (held == BLOCK || (held > 0 && i == a->nq - 1)) {
                values_many[held - 1](n, &b, (const uint8_t *)rows, COLS * sizeof(float), 0, c0);
                held = 0;
            }
        }
    }
}

ATTN_TARGET void ATTN_ENTRY(const struct attn_tile *a)
{
    float *weights = a->scratch;
    float *factors = weights + (size_t)a->nq * ATTN_TILE;
    float *padded = factors + up16(a->nq);
    float *rows = padded;
    int32_t first = ATTN_TILE, last = 0;
    for (int32_t i = 0; i < a->nq; i++) {
        assert(a->lo[i] >= 0 && a->hi[i] <= ATTN_TILE);
        if (a->lo[i] >= a->hi[i])
            continue;
        first = a->lo[i] < first ? a->lo[i] : first;
        last = a->hi[i] > last ? a->hi[i] : last;
    }
    if (first >= last)
        return;
    if (a->dk % 16 != 0) {
        const size_t row = (size_t)up16(a->dk);
        memset(padded, 0, (size_t)a->nq * row * sizeof *padded);
        for (int32_t i = 0; i < a->nq; i++)
            memcpy(padded + (size_t)i * row, a->q[i], (size_t)a->dk * sizeof *padded);
        rows += (size_t)a->nq * row;
    } else {
        padded = NULL;
    }
    scores_make(a, first, last, weights, rows, padded);
    for (int32_t i = 0; i < a->nq; i++)
        if (a->lo[i] < a->hi[i])
            factors[i] = weights_make(weights + (size_t)i * ATTN_TILE, a->lo[i], a->hi[i],
                                      a->softcap, &a->m[i], &a->l[i]);
    values_add(a, first, last, weights, factors, rows);
}
