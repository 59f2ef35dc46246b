/* The file: a head of 32 bytes ("LEATUSE" and version 1, key of the model u64, number of experts
 * u32, FNV-1a of the scores u64), then one f32 a score, all little endian. Scores that fade: a use
 * is worth 2^(now / half-life), which orders them as fading would; usage_settle divides that out
 * before it grows out of a float's range. */
#include "expert_usage.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/error.h"

#define HEAD_BYTES 32
static const uint8_t magic[8] = {'L', 'E', 'A', 'T', 'U', 'S', 'E', 1};

static uint64_t fnv(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}
#define FNV_START UINT64_C(0xcbf29ce484222325)

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get64(const uint8_t *p)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

uint64_t usage_model_key(const struct model *m)
{
    uint64_t h = fnv(FNV_START, m->name, strlen(m->name));
    uint8_t figure[8];

    for (int32_t u = 0; u < m->n_units; u++)
        for (int32_t p = 0; p < m->units[u].n_parts; p++) {
            const struct part *part = &m->units[u].part[p];
            put64(figure, part->offset ^ (uint64_t)part->file << 56);
            h = fnv(h, figure, 8);
            put64(figure, part->bytes ^ (uint64_t)part->format << 56);
            h = fnv(h, figure, 8);
        }
    return h;
}

uint64_t usage_file_bytes(int32_t n_experts)
{
    return HEAD_BYTES + (uint64_t)n_experts * 4;
}

static int read_all(int fd, const char *path, uint8_t *dst, size_t n, struct leat_error *e)
{
    size_t have = 0;

    while (have < n) {
        const ssize_t got = read(fd, dst + have, n - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(e, LEAT_ERR_FILE, errno, "%s: cannot read usage statistics",
                                   path);
        if (got == 0)
            return error_set(e, LEAT_ERR_FORMAT,
                             "%s: usage statistics end after %zu of %zu bytes; the file is not used",
                             path, have, n);
        have += (size_t)got;
    }
    return 0;
}

static int scores_from(struct usage *u, const char *path, const uint8_t *data, struct leat_error *e)
{
    const uint8_t *at = data + HEAD_BYTES;

    if (memcmp(data, magic, sizeof magic) != 0)
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: not usage statistics of this version; the file is not used", path);
    if (get64(data + 8) != u->model || get64(data + 16) != (uint64_t)u->n)
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: usage statistics of another model; the file is not used", path);
    if (get64(data + 24) != fnv(FNV_START, at, (size_t)u->n * 4))
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: usage statistics are damaged; the file is not used", path);
    for (int32_t i = 0; i < u->n; i++, at += 4) {
        const uint32_t bits =
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        float v;
        memcpy(&v, &bits, 4);
        if (!(v >= 0) || isinf(v))
            return error_set(e, LEAT_ERR_FORMAT,
                             "%s: the score of expert %d is no count; the file is not used", path,
                             (int)i);
        u->score[i] = v;
    }
    return 0;
}

bool usage_read(struct usage *u, const char *path, struct leat_error *e)
{
    const size_t n = (size_t)usage_file_bytes(u->n);
    /* A FIFO or a device in its place must not hold the program up. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    uint8_t *data;
    int rc;

    u->now = 0;
    memset(u->score, 0, (size_t)u->n * sizeof *u->score);
    if (fd < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            error_set_errno(e, LEAT_ERR_FILE, errno, "%s: cannot open usage statistics", path);
        return false;
    }
    data = malloc(n);
    if (!data)
        rc = error_set(e, LEAT_ERR_MEMORY, "the system refused memory for usage statistics");
    else if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        rc = error_set(e, LEAT_ERR_FILE, "%s: usage statistics are not in a plain file", path);
    else
        rc = read_all(fd, path, data, n, e);
    if (!rc)
        rc = scores_from(u, path, data, e);
    free(data);
    close(fd);
    if (rc)
        memset(u->score, 0, (size_t)u->n * sizeof *u->score);
    return rc == 0;
}

static int write_all(int fd, const uint8_t *p, size_t n)
{
    while (n) {
        const ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? errno : ENOSPC;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

static uint8_t *encode(const struct usage *u)
{
    uint8_t *data = malloc((size_t)usage_file_bytes(u->n)), *at;

    if (!data)
        return NULL;
    at = data + HEAD_BYTES;
    memcpy(data, magic, sizeof magic);
    put64(data + 8, u->model);
    put64(data + 16, (uint64_t)u->n);
    for (int32_t i = 0; i < u->n; i++) {
        uint32_t bits;
        memcpy(&bits, &u->score[i], 4);
        for (int b = 0; b < 4; b++)
            *at++ = (uint8_t)(bits >> (8 * b));
    }
    put64(data + 24, fnv(FNV_START, data + HEAD_BYTES, (size_t)u->n * 4));
    return data;
}

/* The last folder of the path, where it is missing; its parent must be there. */
static void make_folder(const char *path)
{
    char dir[4096];
    const char *slash = strrchr(path, '/');

    if (!slash || slash == path || (size_t)(slash - path) >= sizeof dir)
        return;
    memcpy(dir, path, (size_t)(slash - path));
    dir[slash - path] = '\0';
    (void)mkdir(dir, 0700);
}

int usage_write(const struct usage *u, const char *path, struct leat_error *e)
{
    char name[4096 + 16];
    uint8_t *data = encode(u);
    int fd, rc;

    if (!data)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for usage statistics");
    if ((size_t)snprintf(name, sizeof name, "%s.XXXXXX", path) >= sizeof name) {
        free(data);
        return error_set(e, LEAT_ERR_FILE, "%s: the path is too long", path);
    }
    make_folder(path);
    fd = mkostemp(name, O_CLOEXEC);
    rc = fd < 0 ? errno : write_all(fd, data, (size_t)usage_file_bytes(u->n));
    if (fd >= 0 && close(fd) < 0 && !rc)
        rc = errno;
    if (!rc && rename(name, path) < 0)
        rc = errno;
    if (rc && fd >= 0)
        (void)unlink(name);
    free(data);
    return rc ? error_set_errno(e, LEAT_ERR_FILE, rc, "%s: cannot write usage statistics", path)
              : 0;
}

void usage_note(struct usage *u, unit_id unit, int32_t tokens)
{
    const int32_t i = unit - u->first;

    if (i >= 0 && i < u->n)
        u->score[i] += (float)(tokens * exp2(u->now / USAGE_HALF_LIFE));
}

void usage_settle(struct usage *u)
{
    const float fade = (float)exp2(-u->now / USAGE_HALF_LIFE);

    for (int32_t i = 0; i < u->n; i++)
        u->score[i] *= fade;
    u->now = 0;
}

void usage_advance(struct usage *u, int32_t tokens)
{
    u->now += tokens;
    if (u->now > 32 * USAGE_HALF_LIFE)
        usage_settle(u);
}
