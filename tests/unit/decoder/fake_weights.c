/* See fake_weights.h. Aborts through cmocka when the decoder breaks the order that weights.h
 * asks for. */
#include "fake_weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../../../src/kernels/kernels.h"

enum { LEASES = 64, WHOLES = 4096 };

struct weights_pass {
    struct weights *w;
    struct pass_need need;
    int32_t at, row, views; /* in the schedule */
    uint8_t *view;          /* copy of the rows given last */
    size_t view_bytes;
    /* experts */
    uint16_t ids[512];
    int32_t n_ids, given, layer;
    struct lease {
        uint8_t *part[UNIT_PARTS];
        const struct unit *unit; /* NULL = free */
    } lease[LEASES];
    uint8_t *whole[WHOLES]; /* views that live as long as the pass */
    int32_t n_whole;
};

struct weights {
    const struct model *m;
    uint8_t *(*parts)[UNIT_PARTS];
    float **vectors;
    struct fake_behaviour b;
    struct fake_counts counts;
    struct weights_pass pass;
    bool running;
    uint32_t seed;
};

struct weights *fake_weights_open(const struct model *m)
{
    struct weights *w = calloc(1, sizeof *w);
    w->m = m;
    w->seed = 1;
    w->parts = calloc((size_t)m->n_units, sizeof *w->parts);
    w->vectors = calloc((size_t)m->n_vectors + 1, sizeof *w->vectors);
    for (int32_t i = 0; i < m->n_units; i++)
        for (int32_t p = 0; p < m->units[i].n_parts;
             p++) /* one byte off, as bytes of a file may lie */
            w->parts[i][p] = calloc(1, m->units[i].part[p].bytes + 1);
    for (int32_t i = 0; i < m->n_vectors; i++)
        w->vectors[i] = calloc((size_t)m->vectors[i].part.cols, sizeof(float));
    return w;
}

void weights_close(struct weights *w)
{
    for (int32_t i = 0; i < w->m->n_units; i++)
        for (int32_t p = 0; p < UNIT_PARTS; p++)
            free(w->parts[i][p]);
    for (int32_t i = 0; i < w->m->n_vectors; i++)
        free(w->vectors[i]);
    free(w->parts);
    free(w->vectors);
    free(w);
}

void *fake_part(struct weights *w, unit_id u, int32_t part)
{
    return w->parts[u][part] + 1;
}

float *fake_vector(struct weights *w, vec_id v)
{
    return w->vectors[v];
}

int fake_weights_read(struct weights *w, struct leat_error *e)
{
    for (int32_t i = 0; i < w->m->n_units; i++)
        for (int32_t p = 0; p < w->m->units[i].n_parts; p++) {
            const struct part *x = &w->m->units[i].part[p];
            int rc =
                file_read(w->m->files[x->file].file, x->offset, fake_part(w, i, p), x->bytes, e);
            if (rc < 0)
                return rc;
        }
    for (int32_t i = 0; i < w->m->n_vectors; i++) {
        const struct part *x = &w->m->vectors[i].part;
        uint8_t *bytes = malloc(x->bytes);
        int rc = file_read(w->m->files[x->file].file, x->offset, bytes, x->bytes, e);
        if (rc == 0)
            kernels_tier(0)->dequant(x->format, bytes, w->vectors[i], x->cols);
        free(bytes);
        if (rc < 0)
            return rc;
        for (int32_t c = 0; c < x->cols; c++)
            w->vectors[i][c] += w->m->vectors[i].add;
    }
    return 0;
}

void fake_behave(struct weights *w, struct fake_behaviour b)
{
    w->b = b;
    w->counts = (struct fake_counts){0};
}

struct fake_counts *fake_counts(struct weights *w)
{
    return &w->counts;
}

const float *weights_vector(const struct weights *w, vec_id v)
{
    return v < 0 ? NULL : w->vectors[v];
}

/* Counts a call; true when it is the one that shall fail. */
static bool call_fails(struct weights *w)
{
    return ++w->counts.calls == w->b.fail_at;
}

static int cancelled(struct leat_error *e)
{
    return error_set(e, LEAT_ERR_CANCELLED, "cancelled");
}

static void *copy_out(const void *bytes, size_t n)
{
    uint8_t *p = aligned_alloc(64, (n + 64) / 64 * 64); /* not counted by the tests as malloc is */
    memcpy(p, bytes, n);
    return p;
}

static void view_end(struct weights_pass *p)
{
    if (p->view)
        memset(p->view, 0xff, p->view_bytes); /* NaN in every format that has one */
    free(p->view);
    p->view = NULL;
}

int weights_pass_begin(struct weights *w, const struct pass_need *need, struct weights_pass **out,
                       struct leat_error *e)
{
    assert_false(w->running);
    if (call_fails(w))
        return cancelled(e);
    w->pass = (struct weights_pass){.w = w, .need = *need};
    w->running = true;
    w->counts.passes++;
    *out = &w->pass;
    return 0;
}

int weights_next(struct weights_pass *p, unit_id u, struct weights_view *v, struct leat_error *e)
{
    struct weights *w = p->w;
    const struct part *x = &w->m->units[u].part[0];
    view_end(p);
    if (call_fails(w))
        return cancelled(e);
    assert_true(p->at < w->m->n_schedule);
    assert_int_equal(w->m->schedule[p->at], u);
    const bool head = p->at == w->m->n_schedule - 1;
    assert_true(!head || p->need.head);
    if (p->row == x->rows) {
        p->at++;
        p->row = p->views = 0;
        w->counts.heads += head;
        return 0;
    }
    int32_t n = x->rows - p->row;
    if (w->b.piece_rows > 0 && n > w->b.piece_rows)
        n = w->b.piece_rows;
    p->view_bytes = (size_t)n * x->row_bytes;
    p->view =
        copy_out((uint8_t *)fake_part(w, u, 0) + (size_t)p->row * x->row_bytes, p->view_bytes);
    *v = (struct weights_view){
        .data = p->view, .row_bytes = x->row_bytes, .row0 = p->row, .rows = n};
    p->row += n;
    p->views++;
    w->counts.most_views = p->views > w->counts.most_views ? p->views : w->counts.most_views;
    return 1;
}

/* Every other unit is there as a whole, when views are not to come in pieces. */
int weights_whole(struct weights_pass *p, unit_id u, struct weights_view *v, struct leat_error *e)
{
    struct weights *w = p->w;
    const struct part *x = &w->m->units[u].part[0];
    view_end(p);
    if (call_fails(w))
        return cancelled(e);
    assert_true(p->at < w->m->n_schedule && p->row == 0);
    assert_int_equal(w->m->schedule[p->at], u);
    w->seed = w->seed * 1664525u + 1013904223u;
    if (w->b.piece_rows > 0 || w->seed >> 31 || p->n_whole == WHOLES)
        return 0;
    const bool head = p->at == w->m->n_schedule - 1;
    assert_true(!head || p->need.head);
    uint8_t *data = copy_out(fake_part(w, u, 0), (size_t)x->rows * x->row_bytes);
    p->whole[p->n_whole++] = data;
    *v = (struct weights_view){.data = data, .row_bytes = x->row_bytes, .row0 = 0, .rows = x->rows};
    p->at++;
    w->counts.heads += head;
    w->counts.wholes++;
    return 1;
}

int weights_rows(struct weights_pass *p, unit_id table, const int32_t *ids, int32_t n, void *dst,
                 struct leat_error *e)
{
    const struct part *x = &p->w->m->units[table].part[0];
    if (call_fails(p->w))
        return cancelled(e);
    for (int32_t i = 0; i < n; i++)
        memcpy((uint8_t *)dst + (size_t)i * x->row_bytes,
               (uint8_t *)fake_part(p->w, table, 0) + (size_t)ids[i] * x->row_bytes, x->row_bytes);
    return 0;
}

int experts_begin(struct weights_pass *p, int32_t layer, const uint16_t *ids, int32_t n,
                  bool ordered, struct leat_error *e)
{
    struct weights *w = p->w;
    if (call_fails(w))
        return cancelled(e);
    assert_int_equal(p->given, p->n_ids); /* the layer before has taken all of its own */
    assert_true(n > 0 && n <= 512);
    for (int32_t i = 0; i < n; i++) {
        assert_true(ids[i] < w->m->n_expert && (i == 0 || ids[i] > ids[i - 1]));
        p->ids[i] = ids[i];
    }
    for (int32_t i = n - 1; !ordered && w->b.shuffle && i > 0; i--) {
        w->seed = w->seed * 1664525u + 1013904223u;
        int32_t j = (int32_t)(w->seed >> 8) % (i + 1);
        uint16_t t = p->ids[i];
        p->ids[i] = p->ids[j];
        p->ids[j] = t;
    }
    p->n_ids = n;
    p->given = 0;
    p->layer = layer;
    w->counts.ordered += ordered;
    w->counts.unordered += !ordered;
    return 0;
}

static bool any_leased(const struct weights_pass *p)
{
    for (int32_t i = 0; i < LEASES; i++)
        if (p->lease[i].unit)
            return true;
    return false;
}

static int lease_give(struct weights_pass *p, struct expert_view *v)
{
    struct weights *w = p->w;
    const int32_t expert = p->ids[p->given++];
    const unit_id u = w->m->layers[p->layer].expert0 + expert;
    struct lease *l = p->lease;
    while (l < p->lease + LEASES && l->unit)
        l++;
    assert_true(l < p->lease + LEASES);
    *v = (struct expert_view){.expert = expert, .unit = &w->m->units[u], .lease = l};
    assert_int_equal(v->unit->expert, expert);
    l->unit = v->unit;
    for (int32_t i = 0; i < v->unit->n_parts; i++)
        v->data[i] = l->part[i] = copy_out(fake_part(w, u, i), v->unit->part[i].bytes);
    w->counts.experts++;
    return 1;
}

int experts_next(struct weights_pass *p, struct expert_view *v, struct leat_error *e)
{
    if (call_fails(p->w))
        return cancelled(e);
    assert_false(any_leased(p)); /* one lease at a time is what is promised while it waits */
    return p->given == p->n_ids ? 0 : lease_give(p, v);
}

void experts_chosen(struct weights_pass *p, const int32_t *ids, int32_t tokens, int32_t per_token)
{
    (void)p;
    (void)ids;
    (void)tokens;
    (void)per_token;
}

void experts_hits(const struct weights_pass *p, uint8_t *hit)
{
    for (int32_t i = 0; i < p->n_ids; i++)
        hit[p->ids[i]] = 1;
}

/* Three times of four there is one. */
int experts_more(struct weights_pass *p, struct expert_view *v)
{
    struct weights *w = p->w;
    assert_true(any_leased(p));
    w->seed = w->seed * 1664525u + 1013904223u;
    if (p->given == p->n_ids || w->seed >> 30 == 0)
        return 0;
    w->counts.together++;
    return lease_give(p, v);
}

static void lease_end(struct lease *l)
{
    for (int32_t i = 0; l->unit && i < UNIT_PARTS; i++) {
        if (l->part[i])
            memset(l->part[i], 0xff, l->unit->part[i].bytes);
        free(l->part[i]);
        l->part[i] = NULL;
    }
    l->unit = NULL;
}

void experts_done(struct weights_pass *p, struct expert_view *v)
{
    struct lease *l = v->lease;
    assert_true(l >= p->lease && l < p->lease + LEASES && l->unit == v->unit);
    lease_end(l);
}

void weights_advise(struct weights_pass *p, int32_t layer, const uint16_t *ids, int32_t n)
{
    (void)p;
    (void)layer;
    (void)ids;
    (void)n;
}

int weights_pass_end(struct weights_pass *p)
{
    assert_true(p->w->running);
    view_end(p);
    for (int32_t i = 0; i < LEASES; i++)
        lease_end(&p->lease[i]);
    for (int32_t i = 0; i < p->n_whole; i++)
        free(p->whole[i]);
    p->w->running = false;
    return 0;
}

void weights_get_stats(const struct weights *w, struct weights_stats *out)
{
    *out = (struct weights_stats){.passes = (uint64_t)w->counts.passes};
}
