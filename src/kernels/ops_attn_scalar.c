/* Attention over one tile of 64 positions, portable version, and the scratch that every tier
 * needs. Knows no sequence, no page, no mask but a range per query. Orders as in ops.h. Pure;
 * any thread. */
#include "ops.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops_math.h"

#define LANES 8
#define COLS  64 /* values of a row that are unpacked at a time */

/* Weights and a factor of every query, a copy of the queries where rows are no multiple of 16,
 * and whichever is larger: 32 whole key rows, or 64 rows of 64 value columns. */
size_t attn_scratch_bytes(int32_t dk, int32_t dv, int32_t nq)
{
    (void)dv;
    const size_t key = ((size_t)dk + 15) / 16 * 16, queries = ((size_t)nq + 15) / 16 * 16;
    size_t keys = key * 32;
    size_t values = (size_t)ATTN_TILE * COLS;
    size_t weights = queries * ATTN_TILE + queries;
    size_t copies = dk % 16 != 0 ? queries * key : 0;
    return (weights + copies + (keys > values ? keys : values)) * sizeof(float);
}

/* Values [c0, c1) of a row; c0 is a multiple of 64. */
static void row_unpack(enum kv_type t, const uint8_t *row, int32_t c0, int32_t c1, float *out)
{
    switch (t) {
    case KV_F32:
        memcpy(out, row + (size_t)c0 * 4, (size_t)(c1 - c0) * 4);
        break;
    case KV_F16:
        for (int32_t c = c0; c < c1; c++) {
            uint16_t h;
            memcpy(&h, row + (size_t)c * 2, 2);
            *out++ = half_to_float(h);
        }
        break;
    case KV_Q8_0:
        for (int32_t c = c0; c < c1; c++) {
            const uint8_t *block = row + (size_t)(c / 32) * 34;
            uint16_t h;
            memcpy(&h, block, 2);
            *out++ = half_to_float(h) * (float)(int8_t)block[2 + c % 32];
        }
        break;
    case KV_Q4_0:
        for (int32_t c = c0; c < c1; c++) {
            const uint8_t *block = row + (size_t)(c / 32) * 18;
            const int32_t pair = block[2 + c % 16];
            uint16_t h;
            memcpy(&h, block, 2);
            *out++ = half_to_float(h) * (float)((c % 32 < 16 ? pair & 15 : pair >> 4) - 8);
        }
        break;
    }
}

/* k is padded with zeros to a multiple of 8. */
static float dot(const float *q, const float *k, int32_t n)
{
    float lane[LANES] = {0};
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int32_t j = 0; j < LANES; j++)
            lane[j] += q[i + j] * k[i + j];
    for (int32_t j = 0; i < n; i++, j++)
        lane[j] += q[i] * k[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Scores to weights: running maximum and sum of one query. Returns the factor of what was summed
 * so far. */
static float weights_make(float *s, int32_t lo, int32_t hi, float softcap, float *m, float *l)
{
    float max = *m;
    for (int32_t j = lo; j < hi; j++) {
        if (softcap != 0)
            s[j] = softcap * ops_tanh(s[j] / softcap);
        max = s[j] > max ? s[j] : max;
    }
    float lane[LANES] = {0};
    for (int32_t j = lo; j < hi; j++) {
        s[j] = ops_exp(s[j] - max);
        lane[j % LANES] += s[j];
    }
    float factor = ops_exp(*m - max);
    float sum =
        ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
    *l = *l * factor + sum;
    *m = max;
    return factor;
}

void ops_attn_tile_scalar(const struct attn_tile *a)
{
    float *weights = a->scratch;
    float *rows = weights + (size_t)a->nq * ATTN_TILE;
    int32_t first = ATTN_TILE, last = 0;
    for (int32_t i = 0; i < a->nq; i++) {
        assert(a->lo[i] >= 0 && a->hi[i] <= ATTN_TILE);
        if (a->lo[i] >= a->hi[i])
            continue;
        first = a->lo[i] < first ? a->lo[i] : first;
        last = a->hi[i] > last ? a->hi[i] : last;
    }
    for (int32_t j = first; j < last; j++) {
        row_unpack(a->type, (const uint8_t *)a->k + (size_t)j * a->k_stride, 0, a->dk, rows);
        for (int32_t i = 0; i < a->nq; i++)
            if (j >= a->lo[i] && j < a->hi[i])
                weights[(size_t)i * ATTN_TILE + j] = dot(a->q[i], rows, a->dk);
    }
    for (int32_t i = 0; i < a->nq; i++) {
        if (a->lo[i] >= a->hi[i])
            continue;
        float f = weights_make(weights + (size_t)i * ATTN_TILE, a->lo[i], a->hi[i], a->softcap,
                               &a->m[i], &a->l[i]);
        for (int32_t c = 0; c < a->dv; c++)
            a->acc[i][c] *= f;
    }
    for (int32_t c0 = 0; c0 < a->dv; c0 += COLS) {
        const int32_t c1 = c0 + COLS < a->dv ? c0 + COLS : a->dv, n = c1 - c0;
        for (int32_t j = first; j < last; j++)
            row_unpack(a->type, (const uint8_t *)a->v + (size_t)j * a->v_stride, c0, c1,
                       rows + (size_t)j * COLS);
        for (int32_t i = 0; i < a->nq; i++) {
            float *acc = a->acc[i] + c0;
            for (int32_t j = a->lo[i]; j < a->hi[i]; j++) {
                const float p = weights[(size_t)i * ATTN_TILE + j];
                const float *v = rows + (size_t)j * COLS;
                for (int32_t c = 0; c < n; c++)
                    acc[c] += p * v[c];
            }
        }
    }
}
