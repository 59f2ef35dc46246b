/* The product in portable C: the definition of every format's order of summation (docs/kernels.md).
 *
 * Integer formats: blocks ascending into one accumulator per (row, token), which starts at +0:
 *   32-element:  acc = acc + dx * (d * (float)sum(q x) [+ m * (float)sum(x)])
 *   256-element: acc = acc + dx * (d * (float)sum(s * sum16(q x)) [- m * (float)sum(t * sum16(x))])
 * with every integer sum exact and no fused multiply-add, so wider kernels give the same bits.
 * Float formats: element k goes to lane k mod 16, acc[lane] = acc[lane] + w * x, then the lanes are
 * added in pairs 8, 4, 2, 1 apart. Knows nothing of threads or of where weights come from. */
#include "act.h"
#include "format_unpack.h"
#include "matmul_tiers.h"

#include <assert.h>
#include <string.h>

/* Range: |q| <= 128 and |x| <= 127, so 32 products stay below 2^20. */
static int32_t dot32(const int8_t *q, const int8_t *x)
{
    int32_t sum = 0;
    for (int i = 0; i < 32; i++)
        sum += q[i] * x[i];
    return sum;
}

static int32_t dot16(const int8_t *q, const int8_t *x)
{
    int32_t sum = 0;
    for (int i = 0; i < 16; i++)
        sum += q[i] * x[i];
    return sum;
}

/* One block of one row against one token: what is added to the accumulator. block counts blocks of
 * this format. */
static float block_term(enum unpack_class class, const struct unpacked *u, const char *act,
                        const struct act_layout *l, int32_t block)
{
    float dx = ((const float *)(act + l->scale))[block];
    if (class == UNPACK_32 || class == UNPACK_32_MIN) {
        float v = u->d * (float)dot32(u->q, (const int8_t *)act + 32 * (size_t)block);
        if (class == UNPACK_32_MIN)
            v = v + u->m * (float)((const int16_t *)(act + l->sums))[block];
        return dx * v;
    }
    /* Range: |s| <= 128 and |q| <= 127 give at most 256 * 128 * 127 * 127 < 2^29. */
    const int8_t *x = (const int8_t *)act + 256 * (size_t)block;
    int32_t sum = 0;
    for (int k = 0; k < 16; k++)
        sum += u->s[k] * dot16(u->q + 16 * k, x + 16 * k);
    float v = u->d * (float)sum;
    if (class == UNPACK_256_MIN) {
        const int16_t *sums = (const int16_t *)(act + l->sums) + 16 * (size_t)block;
        int32_t min = 0;
        for (int k = 0; k < 16; k++)
            min += u->t[k] * sums[k];
        v = v - u->m * (float)min;
    }
    return dx * v;
}

static void row_integers(const struct matmul *m, const struct unpack_row *u, int32_t row)
{
    const struct format_info *info = format_info((uint32_t)m->format);
    struct act_layout l = act_layout_of(info->act, m->cols);
    const uint8_t *w = (const uint8_t *)m->w + (size_t)row * m->row_bytes;
    /* y itself is the accumulator; a block is unpacked once for all tokens. */
    for (int32_t t = 0; t < m->tokens; t++)
        m->y[(size_t)t * m->y_stride + (size_t)row] = 0.0f;
    for (int32_t b = 0; b < m->cols / info->block; b++, w += info->block_bytes) {
        struct unpacked block;
        u->unpack(w, &block);
        for (int32_t t = 0; t < m->tokens; t++) {
            const char *act = (const char *)m->act + (size_t)t * m->act_stride;
            float *y = &m->y[(size_t)t * m->y_stride + (size_t)row];
            *y = *y + block_term(u->class, &block, act, &l, b);
        }
    }
}

static float lanes_sum(float *lane)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            lane[i] = lane[i] + lane[i + n];
    return lane[0];
}

static void row_floats(const struct matmul *m, int32_t row)
{
    enum { CHUNK = 256, TOKENS = 8 };
    const uint8_t *w = (const uint8_t *)m->w + (size_t)row * m->row_bytes;
    size_t element = (size_t)format_info((uint32_t)m->format)->block_bytes;
    float wf[CHUNK], lane[TOKENS][16];
    for (int32_t t0 = 0; t0 < m->tokens; t0 += TOKENS) {
        int32_t nt = m->tokens - t0 < TOKENS ? m->tokens - t0 : TOKENS;
        memset(lane, 0, sizeof lane);
        for (int32_t c = 0; c < m->cols; c += CHUNK) {
            int32_t n = m->cols - c < CHUNK ? m->cols - c : CHUNK;
            dequant_scalar(m->format, w + element * (size_t)c, wf, n);
            for (int32_t t = 0; t < nt; t++) {
                const float *x =
                    (const float *)((const char *)m->act + (size_t)(t0 + t) * m->act_stride) + c;
                int32_t k = 0;
                for (; k + 16 <= n; k += 16)
                    for (int i = 0; i < 16; i++)
                        lane[t][i] = lane[t][i] + wf[k + i] * x[k + i];
                for (int i = 0; k + i < n; i++)
                    lane[t][i] = lane[t][i] + wf[k + i] * x[k + i];
            }
        }
        for (int32_t t = 0; t < nt; t++)
            m->y[(size_t)(t0 + t) * m->y_stride + (size_t)row] = lanes_sum(lane[t]);
    }
}

void matmul_scalar(const struct matmul *m, int32_t row_begin, int32_t row_end, void *scratch)
{
    (void)scratch;
    const struct unpack_row *u = unpack_row_of(m->format);
    assert(u != NULL && row_begin >= 0 && row_end <= m->rows);
    assert(m->cols % format_info((uint32_t)m->format)->block == 0);
    for (int32_t r = row_begin; r < row_end; r++)
        if (u->unpack != NULL)
            row_integers(m, u, r);
        else
            row_floats(m, r);
}
