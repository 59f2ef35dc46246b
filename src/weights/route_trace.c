/* Routing traces in memory: reading a file, our own form, and the checks that both forms share.
 * A trace takes memory in proportion to the bytes of its file, whatever its figures claim. */
#include "route_trace_room.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MOST (UINT64_C(1) << 30)

uint64_t route_checksum(const uint8_t *p, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

void route_trace_free(struct route_trace *t)
{
    if (!t)
        return;
    free(t->expert_bytes);
    free(t->row);
    free(t->expert);
    free(t->weight);
    free(t->hit);
    free(t);
}

uint64_t route_trace_cycle_bytes(const struct route_trace *t)
{
    uint64_t tokens = 0;
    double bytes = 0;
    int32_t turn = -1, token = -1;

    for (int64_t i = 0; i < t->n_rows; i++) {
        const struct route_row *r = &t->row[i];
        if (r->phase != ROUTE_DECODE)
            continue;
        tokens += r->turn != turn || r->token != token;
        turn = r->turn;
        token = r->token;
        bytes += (double)t->expert_bytes[r->layer] * r->n;
    }
    return tokens ? (uint64_t)(bytes / (double)tokens) : 0;
}

/* ---- a trace that grows ---- */

static int no_memory(const char *path, struct leat_error *e)
{
    return error_set(e, LEAT_ERR_MEMORY, "%s: the system refused memory for this routing trace",
                     path);
}

int route_builder_sizes(struct route_builder *b, uint64_t n_layers, uint64_t n_experts,
                        const char *where, struct leat_error *e)
{
    if (n_layers < 1 || n_layers > ROUTE_LAYERS_MOST || n_experts < 1 ||
        n_experts > ROUTE_EXPERTS_MOST)
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: %s: %" PRIu64 " layers of %" PRIu64
                         " experts; a routing trace has 1 to %d of 1 to %d",
                         b->path, where, n_layers, n_experts, ROUTE_LAYERS_MOST,
                         ROUTE_EXPERTS_MOST);
    b->t->n_layers = (int32_t)n_layers;
    b->t->n_experts = (int32_t)n_experts;
    b->t->expert_bytes = calloc((size_t)n_layers, sizeof *b->t->expert_bytes);
    return b->t->expert_bytes ? 0 : no_memory(b->path, e);
}

static bool grow(void **p, int64_t room, size_t size)
{
    void *more = realloc(*p, (size_t)room * size);

    if (more)
        *p = more;
    return more != NULL;
}

static int make_room(struct route_builder *b, int32_t n, struct leat_error *e)
{
    struct route_trace *t = b->t;

    if (t->n_rows == b->rows_room) {
        b->rows_room = b->rows_room ? 2 * b->rows_room : 1024;
        if (!grow((void **)&t->row, b->rows_room, sizeof *t->row))
            return no_memory(b->path, e);
    }
    if (t->n_choices + n > b->choices_room) {
        b->choices_room = 2 * b->choices_room + 1024;
        if (!grow((void **)&t->expert, b->choices_room, sizeof *t->expert) ||
            !grow((void **)&t->weight, b->choices_room, sizeof *t->weight) ||
            !grow((void **)&t->hit, b->choices_room, sizeof *t->hit))
            return no_memory(b->path, e);
    }
    return 0;
}

static int check_row(const struct route_builder *b, const struct route_row *r,
                     const uint16_t *expert, const float *weight, const char *where,
                     struct leat_error *e)
{
    const struct route_trace *t = b->t;
    const int32_t turn = t->n_rows ? t->row[t->n_rows - 1].turn : 0;

    if (r->turn < turn)
        return error_set(e, LEAT_ERR_FORMAT, "%s: %s: turn %d comes after turn %d", b->path, where,
                         (int)r->turn, (int)turn);
    if (r->token < 0)
        return error_set(e, LEAT_ERR_FORMAT, "%s: %s: token %d is no position", b->path, where,
                         (int)r->token);
    if (r->layer < 0 || r->layer >= t->n_layers)
        return error_set(e, LEAT_ERR_FORMAT, "%s: %s: layer %d of a model with %d layers", b->path,
                         where, (int)r->layer, (int)t->n_layers);
    if (t->expert_bytes[r->layer] == 0)
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: %s: layer %d has no experts: its head names no bytes for it", b->path,
                         where, (int)r->layer);
    if (r->n < 1)
        return error_set(e, LEAT_ERR_FORMAT, "%s: %s: no expert was chosen", b->path, where);
    for (int32_t i = 0; i < r->n; i++) {
        if (expert[i] >= t->n_experts)
            return error_set(e, LEAT_ERR_FORMAT, "%s: %s: expert %d of a layer with %d experts",
                             b->path, where, (int)expert[i], (int)t->n_experts);
        for (int32_t k = 0; k < i; k++)
            if (expert[k] == expert[i])
                return error_set(e, LEAT_ERR_FORMAT, "%s: %s: expert %d was chosen twice", b->path,
                                 where, (int)expert[i]);
        if (weight && !isfinite(weight[i]))
            return error_set(e, LEAT_ERR_FORMAT, "%s: %s: the weight of expert %d is no number",
                             b->path, where, (int)expert[i]);
    }
    return 0;
}

int route_builder_add(struct route_builder *b, const struct route_row *r, const uint16_t *expert,
                      const float *weight, const uint8_t *hit, const char *where,
                      struct leat_error *e)
{
    struct route_trace *t = b->t;
    int rc = check_row(b, r, expert, weight, where, e);

    if (rc || (rc = make_room(b, r->n, e)))
        return rc;
    t->row[t->n_rows] = *r;
    t->row[t->n_rows++].first = t->n_choices;
    for (int32_t i = 0; i < r->n; i++, t->n_choices++) {
        t->expert[t->n_choices] = expert[i];
        t->weight[t->n_choices] = weight ? weight[i] : 0;
        t->hit[t->n_choices] = hit[i];
    }
    return 0;
}

/* ---- our own form ---- */

struct cursor {
    const uint8_t *p, *end;
    bool over; /* something was asked for behind the end: what was given is 0 */
};

static uint64_t get(struct cursor *c, int bytes)
{
    uint64_t v = 0;

    if (c->end - c->p < bytes) {
        c->over = true;
        c->p = c->end;
        return 0;
    }
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)c->p[i] << (8 * i);
    c->p += bytes;
    return v;
}

/* A difference to a figure before: seven bits a byte, least first, the sign in bit 0. */
static int64_t get_difference(struct cursor *c)
{
    uint64_t v = 0;

    for (int shift = 0; shift < 35; shift += 7) {
        const uint64_t b = get(c, 1);
        v |= (b & 127) << shift;
        if (b < 128)
            return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
    }
    c->over = true;
    return 0;
}

static int32_t figure(struct cursor *c, int32_t before)
{
    const int64_t v = before + get_difference(c);

    if (v < 0 || v > INT32_MAX) {
        c->over = true;
        return 0;
    }
    return (int32_t)v;
}

static int read_row(struct route_builder *b, struct cursor *c, struct route_row *r,
                    const char *where, struct leat_error *e)
{
    uint16_t expert[ROUTE_CHOICES_MOST];
    float weight[ROUTE_CHOICES_MOST];
    uint8_t hit[ROUTE_CHOICES_MOST], bits = 0;
    const uint64_t flags = get(c, 1);
    const int wide = b->t->n_experts > 256 ? 2 : 1;

    r->phase = flags & ROUTE_FLAG_DECODE ? ROUTE_DECODE : ROUTE_PREFILL;
    r->turn = figure(c, r->turn);
    r->token = figure(c, r->token);
    r->layer = figure(c, r->layer);
    r->n = (uint8_t)get(c, 1);
    for (int32_t i = 0; i < r->n; i++)
        expert[i] = (uint16_t)get(c, wide);
    for (int32_t i = 0; i < r->n; i++) {
        if (i % 8 == 0)
            bits = (uint8_t)get(c, 1);
        hit[i] = bits >> (i % 8) & 1;
    }
    for (int32_t i = 0; flags & ROUTE_FLAG_WEIGHTS && i < r->n; i++) {
        const uint32_t v = (uint32_t)get(c, 4);
        memcpy(&weight[i], &v, 4);
    }
    if (c->over || flags > (ROUTE_FLAG_DECODE | ROUTE_FLAG_WEIGHTS))
        return error_set(e, LEAT_ERR_FORMAT, "%s: %s is damaged; record the trace anew", b->path,
                         where);
    return route_builder_add(b, r, expert, flags & ROUTE_FLAG_WEIGHTS ? weight : NULL, hit, where,
                             e);
}

static int read_block(struct route_builder *b, const uint8_t *data, size_t n, uint64_t rows,
                      uint64_t offset, struct leat_error *e)
{
    struct cursor c = {data, data + n, false};
    struct route_row r = {0};
    char where[96];
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < rows; i++) {
        snprintf(where, sizeof where, "row %" PRIu64 " of the block at offset %" PRIu64, i + 1,
                 offset);
        rc = read_row(b, &c, &r, where, e);
    }
    if (rc == 0 && c.p < c.end)
        rc = error_set(e, LEAT_ERR_FORMAT,
                       "%s: offset %" PRIu64 ": a block of %" PRIu64
                       " rows has %zu bytes too many; record the trace anew",
                       b->path, offset, rows, (size_t)(c.end - c.p));
    return rc;
}

static int read_head(struct route_builder *b, struct cursor *c, const uint8_t *data,
                     struct leat_error *e)
{
    struct route_trace *t = b->t;
    uint64_t layers, experts, name;
    int rc;

    (void)get(c, ROUTE_MAGIC_BYTES);
    layers = get(c, 4);
    experts = get(c, 4);
    name = get(c, 4);
    if (!c->over && name >= sizeof t->model)
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: offset 16: a model's name of %" PRIu64
                         " bytes, at most %zu are taken",
                         b->path, name, sizeof t->model - 1);
    if (!c->over && (rc = route_builder_sizes(b, layers, experts, "offset 8", e)))
        return rc;
    for (uint64_t i = 0; !c->over && i < name; i++)
        t->model[i] = (char)get(c, 1);
    for (uint64_t i = 0; !c->over && i < layers; i++)
        t->expert_bytes[i] = get(c, 8);
    const size_t head = (size_t)(c->p - data);
    const uint64_t sum = get(c, 8);
    if (c->over)
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: a routing trace that was cut off in its head, after %zu bytes; "
                         "record it anew",
                         b->path, (size_t)(c->end - data));
    if (sum != route_checksum(data, head))
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: the head of this routing trace (its first %zu bytes) is damaged; "
                         "record it anew",
                         b->path, head);
    return 0;
}

static int read_own(struct route_builder *b, const uint8_t *data, size_t n, struct leat_error *e)
{
    struct cursor c = {data, data + n, false};
    int rc = read_head(b, &c, data, e);

    while (rc == 0) {
        const uint64_t offset = (uint64_t)(c.p - data);
        const uint64_t bytes = get(&c, 4), rows = get(&c, 4), sum = get(&c, 8);
        if (!c.over && bytes == 0) { /* the end mark: the sum is the number of all rows */
            if (sum != (uint64_t)b->t->n_rows || rows != 0)
                return error_set(e, LEAT_ERR_FORMAT,
                                 "%s: offset %" PRIu64 ": the trace ends with %" PRIu64
                                 " rows, but %" PRId64 " were read; record it anew",
                                 b->path, offset, sum, b->t->n_rows);
            if (c.p < c.end)
                return error_set(e, LEAT_ERR_FORMAT,
                                 "%s: offset %zu: %zu bytes behind the end of the trace", b->path,
                                 (size_t)(c.p - data), (size_t)(c.end - c.p));
            return 0;
        }
        if (!c.over && bytes > ROUTE_BLOCK_MOST)
            return error_set(e, LEAT_ERR_FORMAT,
                             "%s: offset %" PRIu64 ": a block of %" PRIu64
                             " bytes, at most %u are taken; record the trace anew",
                             b->path, offset, bytes, ROUTE_BLOCK_MOST);
        if (c.over || (uint64_t)(c.end - c.p) < bytes) {
            b->t->cut = true;
            return 0;
        }
        if (sum != route_checksum(c.p, (size_t)bytes))
            return error_set(e, LEAT_ERR_FORMAT,
                             "%s: the block at offset %" PRIu64 " (%" PRIu64
                             " bytes) is damaged; record the trace anew",
                             b->path, offset, bytes);
        rc = read_block(b, c.p, (size_t)bytes, rows, offset, e);
        c.p += bytes;
    }
    return rc;
}

/* ---- files ---- */

static bool begins(const uint8_t *data, size_t n, const char *with, size_t len)
{
    return n >= len && memcmp(data, with, len) == 0;
}

int route_trace_parse(const char *path, const uint8_t *data, size_t n, struct route_trace **out,
                      struct leat_error *e)
{
    struct route_builder b = {.path = path};
    int rc;

    *out = NULL;
    b.t = calloc(1, sizeof *b.t);
    if (!b.t)
        return no_memory(path, e);
    if (begins(data, n, ROUTE_MAGIC, ROUTE_MAGIC_BYTES))
        rc = read_own(&b, data, n, e);
    else if (begins(data, n, ROUTE_MAGIC, ROUTE_MAGIC_BYTES - 1))
        rc = error_set(e, LEAT_ERR_FORMAT,
                       "%s: a routing trace of another version; record it anew with this program",
                       path);
    else if (begins(data, n, "#", 1))
        rc = route_csv_parse(&b, data, n, e);
    else if (begins(data, n,
                    "\xfd"
                    "7zXZ",
                    5) ||
             begins(data, n, "\x1f\x8b", 2) || begins(data, n, "\x28\xb5\x2f\xfd", 4))
        rc = error_set(e, LEAT_ERR_FORMAT,
                       "%s: this file is compressed; unpack it first (xz -d, gzip -d or zstd -d)",
                       path);
    else
        rc = error_set(e, LEAT_ERR_FORMAT,
                       "%s: not a routing trace: it begins neither as --trace-routes writes it nor "
                       "with '# route_trace v1'",
                       path);
    if (rc) {
        route_trace_free(b.t);
        return rc;
    }
    *out = b.t;
    return 0;
}

/* The whole file, freed by the caller. */
static int read_file(const char *path, uint8_t **data, size_t *n, struct leat_error *e)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t room = 0;

    *data = NULL;
    *n = 0;
    if (fd < 0)
        return error_set_errno(e, LEAT_ERR_FILE, errno, "%s: cannot open the routing trace", path);
    for (;;) {
        if (*n == room) {
            room = room ? 2 * room : 64u << 10;
            uint8_t *more = room > FILE_MOST ? NULL : realloc(*data, room);
            if (!more) {
                close(fd);
                return room > FILE_MOST
                           ? error_set(e, LEAT_ERR_FORMAT,
                                       "%s: more than 1 GiB; no routing trace of that size is read",
                                       path)
                           : no_memory(path, e);
            }
            *data = more;
        }
        const ssize_t got = read(fd, *data + *n, room - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            const int why = errno;
            close(fd);
            return error_set_errno(e, LEAT_ERR_FILE, why,
                                   "%s: cannot read the routing trace at offset %zu", path, *n);
        }
        if (got == 0)
            break;
        *n += (size_t)got;
    }
    close(fd);
    return 0;
}

int route_trace_read(const char *path, struct route_trace **out, struct leat_error *e)
{
    uint8_t *data;
    size_t n;
    int rc = read_file(path, &data, &n, e);

    *out = NULL;
    if (rc == 0)
        rc = route_trace_parse(path, data, n, out, e);
    free(data);
    return rc;
}
