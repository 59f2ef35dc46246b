/* Writing routing traces in our own form: rows gather in a buffer, a full buffer becomes a block
 * with its own checksum, and the end mark is written by close. A block is one write, so what a
 * killed run leaves is whole blocks and at most a part of one. */
#include "route_trace_room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct route_writer {
    int fd, failure; /* failure: errno of the first write that failed, 0 = none */
    int64_t rows;    /* of all blocks written */
    uint32_t block_rows;
    int32_t n_layers, n_experts;
    struct route_row before; /* the row before, in this block */
    size_t n;                /* bytes in block, its head included */
    uint8_t block[ROUTE_BLOCK_HEAD + ROUTE_BLOCK_FULL + ROUTE_ROW_MOST];
    char path[];
};

static void put(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static void write_all(struct route_writer *w, const uint8_t *p, size_t n)
{
    while (n && !w->failure) {
        const ssize_t put_n = write(w->fd, p, n);
        if (put_n < 0 && errno == EINTR)
            continue;
        if (put_n <= 0) {
            w->failure = put_n < 0 ? errno : ENOSPC;
            return;
        }
        p += put_n;
        n -= (size_t)put_n;
    }
}

/* A name given by mistake must not cost the user a model: what is replaced is a trace, or empty,
 * or no plain file. */
static int open_file(const char *path, int *fd, struct leat_error *e)
{
    uint8_t head[ROUTE_MAGIC_BYTES - 1];
    struct stat st;

    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0 && (errno == EACCES || errno == EINVAL || errno == ENXIO))
        *fd = open(path, O_WRONLY | O_CLOEXEC);
    if (*fd < 0)
        return error_set_errno(e, LEAT_ERR_FILE, errno, "%s: cannot write a routing trace", path);
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        const ssize_t got = pread(*fd, head, sizeof head, 0);
        if (got != (ssize_t)sizeof head || memcmp(head, ROUTE_MAGIC, sizeof head) != 0) {
            close(*fd);
            *fd = -1;
            return error_set(e, LEAT_ERR_FILE,
                             "%s: there is a file that is no routing trace, and it is not "
                             "overwritten; remove it or give another name",
                             path);
        }
        if (ftruncate(*fd, 0) < 0) {
            const int why = errno;
            close(*fd);
            *fd = -1;
            return error_set_errno(e, LEAT_ERR_FILE, why, "%s: cannot write a routing trace", path);
        }
    }
    return 0;
}

static void write_head(struct route_writer *w, const char *model, const uint64_t *expert_bytes)
{
    const size_t name = strnlen(model, sizeof((struct route_trace *)0)->model - 1);
    const size_t n = ROUTE_HEAD_BYTES + name + (size_t)w->n_layers * 8;
    uint8_t *head = malloc(n + 8), *at = head;

    if (!head) {
        w->failure = ENOMEM;
        return;
    }
    memcpy(at, ROUTE_MAGIC, ROUTE_MAGIC_BYTES);
    put(at + 8, (uint64_t)w->n_layers, 4);
    put(at + 12, (uint64_t)w->n_experts, 4);
    put(at + 16, name, 4);
    memcpy(at + ROUTE_HEAD_BYTES, model, name);
    at += ROUTE_HEAD_BYTES + name;
    for (int32_t i = 0; i < w->n_layers; i++, at += 8)
        put(at, expert_bytes[i], 8);
    put(at, route_checksum(head, n), 8);
    write_all(w, head, n + 8);
    free(head);
}

int route_writer_open(const char *path, const char *model, int32_t n_layers, int32_t n_experts,
                      const uint64_t *expert_bytes, struct route_writer **out, struct leat_error *e)
{
    const size_t len = strlen(path) + 1;
    struct route_writer *w;
    int rc, fd;

    *out = NULL;
    if (n_layers < 1 || n_layers > ROUTE_LAYERS_MOST || n_experts < 1 ||
        n_experts > ROUTE_EXPERTS_MOST)
        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s: a routing trace has 1 to %d layers of 1 to %d experts, this model %d "
                         "of %d",
                         path, ROUTE_LAYERS_MOST, ROUTE_EXPERTS_MOST, (int)n_layers,
                         (int)n_experts);
    if ((rc = open_file(path, &fd, e)))
        return rc;
    w = calloc(1, sizeof *w + len);
    if (!w) {
        close(fd);
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for a routing trace");
    }
    memcpy(w->path, path, len);
    w->fd = fd;
    w->n_layers = n_layers;
    w->n_experts = n_experts;
    w->n = ROUTE_BLOCK_HEAD;
    write_head(w, model, expert_bytes);
    if (w->failure)
        return route_writer_close(w, e);
    *out = w;
    return 0;
}

static void flush_block(struct route_writer *w)
{
    const size_t n = w->n - ROUTE_BLOCK_HEAD;

    if (n == 0)
        return;
    put(w->block, n, 4);
    put(w->block + 4, w->block_rows, 4);
    put(w->block + 8, route_checksum(w->block + ROUTE_BLOCK_HEAD, n), 8);
    write_all(w, w->block, w->n);
    w->rows += w->block_rows;
    w->block_rows = 0;
    w->before = (struct route_row){0};
    w->n = ROUTE_BLOCK_HEAD;
}

static void put_difference(struct route_writer *w, int64_t d)
{
    uint64_t v = d < 0 ? (uint64_t)(-d - 1) << 1 | 1 : (uint64_t)d << 1;

    for (; v > 127; v >>= 7)
        w->block[w->n++] = (uint8_t)(v | 128);
    w->block[w->n++] = (uint8_t)v;
}

void route_writer_put(struct route_writer *w, const struct route_row *r, const uint16_t *expert,
                      const float *weight, const uint8_t *hit)
{
    const int wide = w->n_experts > 256 ? 2 : 1;

    if (w->failure)
        return;
    w->block[w->n++] = (uint8_t)((r->phase == ROUTE_DECODE ? ROUTE_FLAG_DECODE : 0) |
                                 (weight ? ROUTE_FLAG_WEIGHTS : 0));
    put_difference(w, (int64_t)r->turn - w->before.turn);
    put_difference(w, (int64_t)r->token - w->before.token);
    put_difference(w, (int64_t)r->layer - w->before.layer);
    w->block[w->n++] = r->n;
    for (int32_t i = 0; i < r->n; i++, w->n += (size_t)wide)
        put(w->block + w->n, expert[i], wide);
    for (int32_t i = 0; i < r->n; i++) {
        if (i % 8 == 0)
            w->block[w->n++] = 0;
        w->block[w->n - 1] |= (uint8_t)((hit[i] ? 1u : 0u) << (i % 8));
    }
    for (int32_t i = 0; weight && i < r->n; i++, w->n += 4) {
        uint32_t bits;
        memcpy(&bits, &weight[i], 4);
        put(w->block + w->n, bits, 4);
    }
    w->before = *r;
    w->block_rows++;
    if (w->n >= ROUTE_BLOCK_HEAD + ROUTE_BLOCK_FULL)
        flush_block(w);
}

bool route_writer_failed(const struct route_writer *w)
{
    return w->failure != 0;
}

int route_writer_close(struct route_writer *w, struct leat_error *e)
{
    uint8_t end[ROUTE_BLOCK_HEAD] = {0};
    int rc = 0;

    if (!w)
        return 0;
    flush_block(w);
    put(end + 8, (uint64_t)w->rows, 8);
    write_all(w, end, sizeof end);
    if (close(w->fd) < 0 && !w->failure)
        w->failure = errno;
    if (w->failure)
        rc = error_set_errno(e, LEAT_ERR_FILE, w->failure,
                             "%s: the routing trace could not be written whole", w->path);
    free(w);
    return rc;
}
