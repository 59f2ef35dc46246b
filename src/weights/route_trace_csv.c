/* The CSV form of routing traces, as published with Helldez/BigMoeOnEdge (docs/routes.md): a head
 * of lines that begin with '#', a line of column names, then one line per chosen expert. */
#include "route_trace_room.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE        "# route_trace v1"
#define COLUMNS           "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes"
#define LINE_MOST         4096
#define EXPERT_BYTES_MOST (UINT64_C(1) << 50)

enum column { TURN, PHASE, STEP, LAYER, SLOT, EXPERT, WEIGHT, HIT, BYTES, N_COLUMNS };
static const char *const column_name[N_COLUMNS] = {
    "turn", "phase", "step", "layer", "slot", "expert", "weight", "residency", "expert_bytes"};
static const uint64_t column_most[N_COLUMNS] = {
    INT32_MAX, 1, INT32_MAX, ROUTE_LAYERS_MOST - 1, ROUTE_CHOICES_MOST - 1, ROUTE_EXPERTS_MOST - 1,
    0,         1, UINT64_MAX};

struct csv {
    struct route_builder *b;
    char text[LINE_MOST]; /* the present line, without its end */
    uint64_t line;
    bool named; /* the line of column names came */
    /* the row that is being put together */
    struct route_row row;
    uint64_t row_line;
    uint16_t expert[ROUTE_CHOICES_MOST];
    float weight[ROUTE_CHOICES_MOST];
    uint8_t hit[ROUTE_CHOICES_MOST];
};

static int wrong(const struct csv *c, struct leat_error *e, const char *what)
{
    char q[80];

    return error_set(e, LEAT_ERR_FORMAT, "%s: line %" PRIu64 ": %s: '%s'", c->b->path, c->line,
                     what, error_quote(q, sizeof q, c->text, strlen(c->text)));
}

/* Digits only, at most most; false for anything else. *at ends behind them. */
static bool number(const char **at, uint64_t most, uint64_t *out)
{
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0 && *out <= most;
}

/* The figure behind key ("n_layer=") in the line. */
static bool value_of(const char *text, const char *key, uint64_t most, uint64_t *out)
{
    const char *at = strstr(text, key);

    if (!at || at == text || at[-1] != ' ')
        return false;
    at += strlen(key);
    return number(&at, most, out) && (*at == '\0' || *at == ' ');
}

/* The last part of the model's path, up to the next " key=". */
static void take_name(struct route_trace *t, const char *text)
{
    const char *at = strstr(text, "model=") + strlen("model="), *end = strstr(at, " arch=");
    const char *from = at;
    size_t n;

    end = end ? end : at + strcspn(at, " ");
    for (const char *p = at; p < end; p++)
        from = *p == '/' ? p + 1 : from;
    n = (size_t)(end - from) < sizeof t->model ? (size_t)(end - from) : sizeof t->model - 1;
    memcpy(t->model, from, n);
    t->model[n] = '\0';
}

static int head_line(struct csv *c, struct leat_error *e)
{
    struct route_trace *t = c->b->t;
    uint64_t layers, experts, layer, bytes;
    char where[40];

    if (strncmp(c->text, "# model=", 8) == 0) {
        if (t->expert_bytes)
            return wrong(c, e, "a second line of the model");
        if (!value_of(c->text, "n_layer=", UINT64_MAX, &layers) ||
            !value_of(c->text, "n_expert=", UINT64_MAX, &experts))
            return wrong(c, e, "'n_layer=' and 'n_expert=' with a number each must stand here");
        take_name(t, c->text);
        snprintf(where, sizeof where, "line %" PRIu64, c->line);
        return route_builder_sizes(c->b, layers, experts, where, e);
    }
    if (strncmp(c->text, "# layer=", 8) == 0) {
        if (!t->expert_bytes)
            return wrong(c, e, "a layer before the line '# model='");
        if (!value_of(c->text, "layer=", (uint64_t)t->n_layers - 1, &layer) ||
            !value_of(c->text, "expert_bytes=", EXPERT_BYTES_MOST, &bytes))
            return wrong(c, e, "a layer of the model and 'expert_bytes=' must stand here");
        if (t->expert_bytes[layer])
            return wrong(c, e, "this layer was described before");
        t->expert_bytes[layer] = bytes;
    }
    return 0; /* other remarks */
}

static int end_row(struct csv *c, struct leat_error *e)
{
    char where[40];
    int rc;

    if (c->row.n == 0)
        return 0;
    snprintf(where, sizeof where, "line %" PRIu64, c->row_line);
    rc = route_builder_add(c->b, &c->row, c->expert, c->weight, c->hit, where, e);
    c->row.n = 0;
    return rc;
}

static int data_line(struct csv *c, struct leat_error *e)
{
    uint64_t v[N_COLUMNS] = {0};
    const char *at = c->text;
    float weight = 0;
    char what[80];

    for (int i = 0; i < N_COLUMNS; i++) {
        bool good;
        if (i == WEIGHT) {
            char *end;
            weight = strtof(at, &end);
            good = end > at && (*at == '-' || *at == '.' || (*at >= '0' && *at <= '9'));
            at = end;
        } else {
            good = number(&at, column_most[i], &v[i]);
        }
        if (!good || *at != (i + 1 < N_COLUMNS ? ',' : '\0')) {
            snprintf(what, sizeof what, "column %d (%s) is not a figure in its bounds", i + 1,
                     column_name[i]);
            return wrong(c, e, what);
        }
        at++;
    }
    if (v[SLOT] == 0) {
        const int rc = end_row(c, e);
        if (rc)
            return rc;
        c->row = (struct route_row){.turn = (int32_t)v[TURN],
                                    .token = (int32_t)v[STEP],
                                    .layer = (int32_t)v[LAYER],
                                    .phase = (uint8_t)v[PHASE]};
        c->row_line = c->line;
    } else if (v[SLOT] != c->row.n || (int32_t)v[TURN] != c->row.turn ||
               (int32_t)v[STEP] != c->row.token || (int32_t)v[LAYER] != c->row.layer ||
               (uint8_t)v[PHASE] != c->row.phase) {
        return wrong(c, e, "the slots of a token in a layer must follow each other from 0");
    }
    c->expert[c->row.n] = (uint16_t)v[EXPERT];
    c->weight[c->row.n] = weight;
    c->hit[c->row.n++] = (uint8_t)v[HIT];
    return 0;
}

static int take_line(struct csv *c, struct leat_error *e)
{
    if (c->line == 1)
        return strcmp(c->text, FIRST_LINE) == 0
                   ? 0
                   : wrong(c, e, "a routing trace as CSV begins with '" FIRST_LINE "', not with");
    if (c->text[0] == '#')
        return c->named ? 0 : head_line(c, e);
    if (c->named)
        return data_line(c, e);
    if (strcmp(c->text, COLUMNS) != 0)
        return wrong(c, e, "the columns must be '" COLUMNS "', not");
    if (!c->b->t->expert_bytes)
        return wrong(c, e, "no line '# model=... n_layer=... n_expert=...' came before");
    c->named = true;
    return 0;
}

int route_csv_parse(struct route_builder *b, const uint8_t *data, size_t n, struct leat_error *e)
{
    struct csv *c = calloc(1, sizeof *c);
    size_t at = 0;
    int rc = 0;

    if (!c)
        return error_set(e, LEAT_ERR_MEMORY, "%s: the system refused memory for this routing trace",
                         b->path);
    c->b = b;
    while (rc == 0 && at < n) {
        const uint8_t *end = memchr(data + at, '\n', n - at);
        size_t len = end ? (size_t)(end - data) - at : n - at;
        const size_t next = at + len + 1;
        c->line++;
        if (!end)
            rc = error_set(e, LEAT_ERR_FORMAT,
                           "%s: line %" PRIu64
                           " is not ended: the file was cut off; record or copy it anew",
                           b->path, c->line);
        else if (len >= sizeof c->text || memchr(data + at, '\0', len))
            rc = error_set(e, LEAT_ERR_FORMAT,
                           "%s: line %" PRIu64 ": %zu bytes, or a zero byte among them: no text of "
                           "a routing trace",
                           b->path, c->line, len);
        if (rc)
            break;
        if (len && data[at + len - 1] == '\r')
            len--;
        memcpy(c->text, data + at, len);
        c->text[len] = '\0';
        rc = take_line(c, e);
        at = next;
    }
    if (rc == 0 && !c->named)
        rc = error_set(e, LEAT_ERR_FORMAT,
                       "%s: the file ends after line %" PRIu64 ", before the names of its columns",
                       b->path, c->line);
    if (rc == 0)
        rc = end_row(c, e);
    free(c);
    return rc;
}

int route_trace_csv(const struct route_trace *t, FILE *f)
{
    const int32_t used = t->n_rows ? t->row[0].n : 0;

    errno = 0;
    fprintf(f, "%s\n# model=%s arch=unknown n_layer=%d n_expert=%d n_expert_used=%d\n", FIRST_LINE,
            t->model, (int)t->n_layers, (int)t->n_experts, (int)used);
    for (int32_t i = 0; i < t->n_layers; i++)
        if (t->expert_bytes[i])
            fprintf(f, "# layer=%d expert_bytes=%" PRIu64 "\n", (int)i, t->expert_bytes[i]);
    fprintf(f, "%s\n", COLUMNS);
    for (int64_t i = 0; i < t->n_rows && !ferror(f); i++) {
        const struct route_row *r = &t->row[i];
        for (int32_t k = 0; k < r->n; k++) {
            const int64_t at = r->first + k;
            fprintf(f, "%d,%d,%d,%d,%d,%d,%.9g,%d,%" PRIu64 "\n", (int)r->turn, (int)r->phase,
                    (int)r->token, (int)r->layer, (int)k, (int)t->expert[at], (double)t->weight[at],
                    (int)t->hit[at], t->hit[at] ? 0 : t->expert_bytes[r->layer]);
        }
    }
    if (fflush(f) != 0 || ferror(f))
        return errno ? errno : EIO;
    return 0;
}
