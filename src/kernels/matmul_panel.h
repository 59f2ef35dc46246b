/* The activations of one product call as the wide kernels want them: a panel of up to PANEL_TOKENS
 * tokens and PANEL_COLS columns in which the tokens of a 32-column block lie together, with the
 * sums a format needs worked out. A single token is used where it lies.
 * Compiled into each instruction set's file. Private to a thread: the arrays lie in its scratch. */
#ifndef KERNELS_MATMUL_PANEL_H
#define KERNELS_MATMUL_PANEL_H

#include <string.h>

#include "act.h"
#include "kernels.h"

enum {
    PANEL_TOKENS = 64,
    PANEL_FEW = 4,     /* up to so many the kernels keep their sums in registers */
    PANEL_COLS = 2048, /* of so many tokens; of fewer more */
    PANEL_COLS_MAX = 65536,
};

/* What a kernel needs besides levels and scales. t counts tokens, b blocks of 32, s blocks of
 * 256. */
enum panel_sums {
    PANEL_NONE,
    PANEL_BIAS,    /* int32 [b][t] = -offset * sum of the block */
    PANEL_FSUM,    /* float [b][t] = sum of the block */
    PANEL_PAIRS32, /* int16 [s][t][8]: sums of 32 */
    PANEL_SUMS16,  /* int16 [s][t][16]: sums of 16 */
    PANEL_BIAS16,  /* int32 [s][t][16] = -offset * sum of 16 */
    PANEL_BIAS32,  /* int32 [s][t][8] = -offset * sum of 32 */
};

struct panel {
    int32_t tokens; /* of this panel; three are held as four, the last one twice */
    int32_t valid;  /* tokens that are really there */
    int32_t cols;
    const int8_t *x;    /* [b][t][32] */
    const float *scale; /* [b][t] or [s][t] */
    const void *sums;   /* by enum panel_sums */
    /* Storage in the thread's scratch. */
    int8_t *x_store;
    float *scale_store;
    void *sums_store;
};

/* Scratch: levels, scales, sums (the largest kind of each for either shape of panel), then what
 * the kernels ask for themselves. */
enum {
    PANEL_X_BYTES = PANEL_TOKENS * PANEL_COLS,
    PANEL_SCALE_BYTES = PANEL_TOKENS * PANEL_COLS / 32 * 4,
    PANEL_SUMS_BYTES = PANEL_TOKENS * PANEL_COLS / 16 * 4,
    PANEL_BYTES = PANEL_X_BYTES + PANEL_SCALE_BYTES + PANEL_SUMS_BYTES,
};
_Static_assert(PANEL_SUMS_BYTES >= PANEL_COLS_MAX / 16 * 4, "sums of a single token fit");

static inline void panel_init(struct panel *p, void *scratch)
{
    char *at = scratch;
    p->x_store = (int8_t *)at;
    p->scale_store = (float *)(at + PANEL_X_BYTES);
    p->sums_store = at + PANEL_X_BYTES + PANEL_SCALE_BYTES;
}

/* Sums of token t of the panel into their place; sums points at the panel's first column. */
static inline void panel_put_sums(struct panel *p, enum panel_sums kind, int32_t offset, int32_t t,
                                  const int16_t *sums)
{
    int32_t nt = p->tokens, n32 = p->cols / 32, n256 = p->cols / 256;
    int32_t *i32 = p->sums_store;
    int16_t *i16 = p->sums_store;
    float *f32 = p->sums_store;
    switch (kind) {
    case PANEL_NONE:
        break;
    case PANEL_BIAS:
        for (int32_t b = 0; b < n32; b++)
            i32[b * nt + t] = -offset * sums[b];
        break;
    case PANEL_FSUM:
        for (int32_t b = 0; b < n32; b++)
            f32[b * nt + t] = (float)sums[b];
        break;
    case PANEL_PAIRS32:
        for (int32_t s = 0; s < n256; s++)
            for (int32_t i = 0; i < 8; i++)
                i16[(s * nt + t) * 8 + i] =
                    (int16_t)(sums[16 * s + 2 * i] + sums[16 * s + 2 * i + 1]);
        break;
    case PANEL_SUMS16:
        for (int32_t s = 0; s < n256; s++)
            memcpy(i16 + (s * nt + t) * 16, sums + 16 * s, 32);
        break;
    case PANEL_BIAS16:
        for (int32_t s = 0; s < n256; s++)
            for (int32_t i = 0; i < 16; i++)
                i32[(s * nt + t) * 16 + i] = -offset * sums[16 * s + i];
        break;
    case PANEL_BIAS32:
        for (int32_t s = 0; s < n256; s++)
            for (int32_t i = 0; i < 8; i++)
                i32[(s * nt + t) * 8 + i] =
                    -offset * (sums[16 * s + 2 * i] + sums[16 * s + 2 * i + 1]);
        break;
    }
}

/* Fills p with columns [col, col + cols) of tokens [token, token + tokens) of the call. */
static inline void panel_load(struct panel *p, const struct matmul *m, enum act_kind kind,
                              int32_t token, int32_t tokens, int32_t col, int32_t cols,
                              enum panel_sums sums, int32_t offset)
{
    struct act_layout l = act_layout_of(kind, m->cols);
    int32_t group = kind == ACT_Q8_32 ? 32 : 256, part = kind == ACT_Q8_32 ? 32 : 16;
    p->valid = tokens;
    p->tokens = tokens = tokens == 3 ? 4 : tokens;
    p->cols = cols;
    const char *act = (const char *)m->act + (size_t)token * m->act_stride;
    p->sums = p->sums_store;
    for (int32_t t = 0; t < tokens; t++) {
        const char *row = act + (size_t)(t < p->valid ? t : p->valid - 1) * m->act_stride;
        panel_put_sums(p, sums, offset, t, (const int16_t *)(row + l.sums) + col / part);
    }
    if (tokens == 1) {
        p->x = (const int8_t *)act + col;
        p->scale = (const float *)(act + l.scale) + col / group;
        return;
    }
    int32_t nb = cols / 32, ng = cols / group;
    for (int32_t t = 0; t < tokens; t++) {
        const char *row = act + (size_t)(t < p->valid ? t : p->valid - 1) * m->act_stride;
        const int8_t *x = (const int8_t *)row + col;
        const float *scale = (const float *)(row + l.scale) + col / group;
        for (int32_t b = 0; b < nb; b++)
            memcpy(p->x_store + ((size_t)b * (size_t)tokens + (size_t)t) * 32, x + 32 * (size_t)b,
                   32);
        for (int32_t g = 0; g < ng; g++)
            p->scale_store[g * tokens + t] = scale[g];
    }
    p->x = p->x_store;
    p->scale = p->scale_store;
}

/* One panel's part of a call, for the row loop of a format. */
struct panel_call {
    const struct matmul *m;
    const struct panel *p;
    int32_t token; /* first token of the panel */
    int32_t row_begin, row_end;
    size_t at;  /* byte of a row where the panel's columns start */
    bool first; /* accumulators start at 0, else go on from y */
    void *work; /* scratch past the panel */
};

typedef void panel_rows(const struct panel_call *c);

/* Walks tokens and columns in panels. y carries the accumulators from one panel of columns to the
 * next, so the cut is not seen in any sum. Up to few_tokens go in panels of PANEL_FEW: unpacking
 * the weights again is cheaper then than keeping sums in memory. */
static inline void panel_walk(const struct matmul *m, int32_t row_begin, int32_t row_end,
                              void *scratch, panel_rows *rows, enum panel_sums sums, int32_t offset,
                              int32_t few_tokens)
{
    const struct format_info *info = format_info((uint32_t)m->format);
    struct panel p;
    panel_init(&p, scratch);
    struct panel_call c = {m, &p, 0, row_begin, row_end, 0, true, (char *)scratch + PANEL_BYTES};
    int32_t tiles = (m->tokens + PANEL_TOKENS - 1) / PANEL_TOKENS;
    int32_t tile = tiles > 0 ? (m->tokens + tiles - 1) / tiles : 0;
    if (m->tokens <= few_tokens && tile > PANEL_FEW)
        tile = PANEL_FEW;
    int32_t held = tile == 3 ? 4 : tile > 0 ? tile : 1;
    int32_t width = PANEL_TOKENS * PANEL_COLS / held / 256 * 256;
    width = width < PANEL_COLS_MAX ? width : PANEL_COLS_MAX;
    for (c.token = 0; c.token < m->tokens; c.token += tile) {
        int32_t nt = m->tokens - c.token < tile ? m->tokens - c.token : tile;
        for (int32_t col = 0; col < m->cols; col += width) {
            int32_t nc = m->cols - col < width ? m->cols - col : width;
            panel_load(&p, m, info->act, c.token, nt, col, nc, sums, offset);
            c.at = (size_t)(col / info->block) * (size_t)info->block_bytes;
            c.first = col == 0;
            rows(&c);
        }
    }
}

#endif
