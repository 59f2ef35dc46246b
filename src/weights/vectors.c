/* Vectors (norms, biases): read once when the room opens, held as f32. Owns their floats inside the
 * tables. Thread rule: thread 0, read by any thread afterwards. */
#include <assert.h>
#include <string.h>

#include "weights_room.h"

float **vectors_carve(const struct model *m, struct carver *c)
{
    float **vector = carve(c, (uint64_t)m->n_vectors, sizeof *vector);

    for (int32_t i = 0; i < m->n_vectors; i++) {
        float *f = carve(c, (uint64_t)m->vectors[i].part.cols, sizeof *f);
        if (vector)
            vector[i] = f;
    }
    return vector;
}

const float *weights_vector(const struct weights *w, vec_id v)
{
    if (v < 0)
        return NULL;
    assert(v < w->m->n_vectors);
    return w->vector[v];
}

static uint32_t value_bytes(enum format f)
{
    return f == FORMAT_F32 ? 4 : f == FORMAT_F16 || f == FORMAT_BF16 ? 2 : 0;
}

static void convert(enum format f, const uint8_t *src, float add, float *dst, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h;
        float x;

        if (f == FORMAT_F32) {
            memcpy(&x, src + 4 * i, sizeof x);
        } else {
            memcpy(&h, src + 2 * i, sizeof h);
            x = f == FORMAT_F16 ? half_to_float(h) : bf16_to_float(h);
        }
        dst[i] = add != 0 ? x + add : x; /* -0 stays -0 */
    }
}

/* A stretch of one vector that fits a row buffer. */
struct stretch {
    vec_id v;
    uint64_t first, n;
};

static int check_vector(const struct vector *v, struct leat_error *e)
{
    char q[256];

    if (value_bytes(v->part.format) == 0)
        return error_set(
            e, LEAT_ERR_UNSUPPORTED, "%s: a vector in this format is not supported",
            error_quote(q, sizeof q, v->name ? v->name : "", v->name ? strlen(v->name) : 0));
    if (v->part.cols < 0 || v->part.bytes != (uint64_t)v->part.cols * value_bytes(v->part.format))
        return error_set(
            e, LEAT_ERR_INTERNAL, "%s: bytes and values do not fit together",
            error_quote(q, sizeof q, v->name ? v->name : "", v->name ? strlen(v->name) : 0));
    return 0;
}

static int read_batch(struct weights *w, const struct stretch *s, int32_t n, struct leat_error *e)
{
    struct rows *x = &w->rows;

    x->failed = false;
    for (int32_t i = 0; i < n; i++) {
        const struct part *p = &w->m->vectors[s[i].v].part;
        const uint32_t b = value_bytes(p->format);

        weights_request(w, &x->req[i], p->file, p->offset + s[i].first * b, s[i].n * b,
                        x->mem + (uint64_t)i * x->layout.buffer_bytes, read_tag(READ_ROW, i));
        x->flying++;
        if (lanes_read_cached(w->lanes, &x->req[i]))
            rows_arrived(w, i, &x->req[i]);
        else
            lanes_submit(w->lanes, &x->req[i]);
    }
    while (x->flying)
        weights_reap(w, true);
    if (x->failed)
        return lane_error(&x->failure, e);
    for (int32_t i = 0; i < n; i++) {
        const struct vector *v = &w->m->vectors[s[i].v];
        convert(v->part.format, (const uint8_t *)x->req[i].dst + lane_inner(x->req[i].offset),
                v->add, w->vector[s[i].v] + s[i].first, s[i].n);
    }
    return 0;
}

int vectors_read(struct weights *w, struct leat_error *e)
{
    const uint64_t room = w->rows.layout.buffer_bytes - FILE_ALIGN; /* wherever a stretch starts */
    struct stretch s[ROW_BUFFERS];
    int32_t n = 0;
    int rc;

    for (int32_t v = 0; v < w->m->n_vectors; v++) {
        const struct vector *x = &w->m->vectors[v];
        uint64_t at = 0, most;

        rc = check_vector(x, e);
        if (rc)
            return rc;
        most = room / value_bytes(x->part.format);
        while (at < (uint64_t)x->part.cols) {
            const uint64_t left = (uint64_t)x->part.cols - at;
            s[n++] = (struct stretch){v, at, left < most ? left : most};
            at += s[n - 1].n;
            if (n == w->rows.layout.n) {
                rc = read_batch(w, s, n, e);
                if (rc)
                    return rc;
                n = 0;
            }
        }
    }
    rc = n ? read_batch(w, s, n, e) : 0;
    w->stats.row_bytes_read = 0; /* counts rows of tables only */
    return rc;
}
