/* Records the routing of an engine into a file (weights/route_trace.h): owns the writer and knows
 * from where on each session decodes. Everything happens under the pass lock; what could not be
 * written is told when the record ends. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "../base/error.h"
#include "../weights/route_trace.h"

struct record_session {
    const struct seq_state *seq; /* NULL = free */
    int32_t decode_from;
};

struct route_record {
    struct route_writer *writer;
    int32_t turn; /* -1 before the first call */
    int32_t n_sessions;
    struct record_session *session; /* room for as many as the engine may open */
    uint16_t expert[ROUTE_CHOICES_MOST];
    uint8_t hit[ROUTE_CHOICES_MOST];
};

static int32_t decode_from(const struct route_record *r, const struct seq_state *seq)
{
    for (int32_t i = 0; i < r->n_sessions; i++)
        if (r->session[i].seq == seq)
            return r->session[i].decode_from;
    return INT32_MAX;
}

static void on_routing(void *arg, const struct decoder_routing *c)
{
    struct route_record *r = arg;

    for (int32_t t = 0; t < c->n; t++) {
        const int32_t *ids = c->ids + (size_t)t * (size_t)c->k;
        const struct route_row row = {
            .turn = r->turn > 0 ? r->turn : 0,
            .token = c->pos[t],
            .layer = c->layer,
            .phase = c->pos[t] >= decode_from(r, c->seq[t]) ? ROUTE_DECODE : ROUTE_PREFILL,
            .n = (uint8_t)c->k,
        };
        for (int32_t i = 0; i < c->k; i++) {
            r->expert[i] = (uint16_t)ids[i];
            r->hit[i] = c->hit[ids[i]];
        }
        route_writer_put(r->writer, &row, r->expert, c->weights + (size_t)t * (size_t)c->k, r->hit);
    }
}

void route_record_turn(struct leat_engine *g)
{
    if (g->record)
        g->record->turn++;
}

void route_record_decode_from(struct leat_engine *g, const struct leat_session *s, int32_t from)
{
    struct route_record *r = g->record;
    struct record_session *x = NULL;

    for (int32_t i = 0; r && i < r->n_sessions; i++)
        if (r->session[i].seq == s->timeline.state)
            x = &r->session[i];
    for (int32_t i = 0; r && !x && i < r->n_sessions; i++)
        if (!r->session[i].seq)
            x = &r->session[i];
    if (x) /* a session that only prefills needs no entry */
        *x = (struct record_session){from == INT32_MAX ? NULL : s->timeline.state, from};
}

static void record_free(struct route_record *r)
{
    if (r)
        free(r->session);
    free(r);
}

static int writer_open(const struct leat_engine *g, const char *path, struct route_record *r,
                       struct leat_error *e)
{
    const struct model *m = g->model;
    uint64_t *bytes = calloc((size_t)m->n_layer, sizeof *bytes);
    const char *slash = strrchr(m->path, '/');
    int code = 0;

    if (!bytes)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for a routing trace");
    for (int32_t i = 0; i < m->n_layer; i++) {
        const struct unit *u = m->layers[i].expert0 >= 0 ? &m->units[m->layers[i].expert0] : NULL;
        for (int32_t p = 0; u && p < u->n_parts; p++)
            bytes[i] += u->part[p].bytes;
    }
    code = route_writer_open(path, slash && slash[1] ? slash + 1 : m->path, m->n_layer, m->n_expert,
                             bytes, &r->writer, e);
    free(bytes);
    return code;
}

int leat_record_begin(struct leat_engine *g, const char *path, struct leat_error *e)
{
    struct route_record *r;
    int code;

    if (g->model->n_expert < 1)
        return error_set(e, LEAT_ERR_USAGE,
                         "%s has no experts: there is no routing to record (leave --trace-routes "
                         "away)",
                         g->model->path);
    if (g->model->n_expert_used > ROUTE_CHOICES_MOST)
        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s uses %d experts per token, a routing trace holds at most %d",
                         g->model->path, (int)g->model->n_expert_used, ROUTE_CHOICES_MOST);
    if (g->record)
        return error_set(e, LEAT_ERR_STATE, "a routing is being recorded already");
    r = calloc(1, sizeof *r);
    if (r)
        r->session = calloc((size_t)g->facts.sessions, sizeof *r->session);
    if (!r || !r->session) {
        record_free(r);
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for a routing trace");
    }
    r->turn = -1;
    r->n_sessions = g->facts.sessions;
    if ((code = writer_open(g, path, r, e)) < 0) {
        record_free(r);
        return code;
    }
    scheduler_lock(g->scheduler);
    g->record = r;
    decoder_watch_routing(g->decoder, on_routing, r);
    scheduler_unlock(g->scheduler);
    return 0;
}

int leat_record_end(struct leat_engine *g, struct leat_error *e)
{
    struct route_record *r = g->record;
    int code;

    if (!r)
        return 0;
    scheduler_lock(g->scheduler);
    decoder_watch_routing(g->decoder, NULL, NULL);
    g->record = NULL;
    scheduler_unlock(g->scheduler);
    code = route_writer_close(r->writer, e);
    record_free(r);
    return code;
}
