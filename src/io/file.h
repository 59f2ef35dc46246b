/* One file opened for reading: header reads that leave no page cache behind, and the facts that
 * direct reads need. The weights' own reads go through lanes (io/lane.h). Thread rule: every call
 * from any thread; the descriptor is read with pread only. */
#ifndef IO_FILE_H
#define IO_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/error.h"

/* Reads are aligned to this in offset, length and memory; a drive that wants more is read buffered.
 */
#define FILE_ALIGN UINT64_C(4096)

enum file_direct {
    FILE_DIRECT_AUTO, /* direct where it works and was proved (but from the page cache what lies there), else
                         buffered with dropped pages */
    FILE_DIRECT_ON,   /* error where it does not work */
    FILE_DIRECT_OFF,
};

struct file;

/* Refuses directories, FIFOs, devices, sockets and link loops by name, without blocking. */
int file_open(const char *path, struct file **out, struct leat_error *e);
void file_close(struct file *f);
const char *file_path(const struct file *f);
uint64_t file_size(const struct file *f);
/* Identity for "is it the same file": device and inode. */
void file_identity(const struct file *f, uint64_t *device, uint64_t *inode);

/* Reads exactly n bytes at offset (buffered; retries short and interrupted reads). A shorter file
 * is an error that names wanted and got. */
int file_read(struct file *f, uint64_t offset, void *dst, size_t n, struct leat_error *e);
/* Drops this file's clean pages from the page cache where the system lets us (after headers were
 * read). */
void file_drop_cache(struct file *f);

/* Decides how lanes read this file; call before lanes use it. With AUTO and ON the first direct
 * read is compared with a buffered read of the same bytes. After it file_is_direct() is fixed,
 * except that EINVAL on a later direct read turns that file to buffered for good under AUTO. */
int file_set_direct(struct file *f, enum file_direct mode, struct leat_error *e);
bool file_is_direct(const struct file *f);
/* Why the file is read buffered although direct reads were wanted; NULL when it is read as asked.
 * Lives as long as f. */
const char *file_direct_note(const struct file *f);

/* A sequential window reader over file_read for parsers: memory is one buffer. */
struct file_cursor {
    struct file *file;
    uint64_t offset; /* of the next byte to be given */
    uint64_t limit;  /* reads stop here (file size, or less) */
    uint8_t *buf;
    size_t cap, have, pos;
};
/* buf of cap bytes belongs to the caller. */
void cursor_open(struct file_cursor *c, struct file *f, uint64_t offset, uint64_t limit, void *buf,
                 size_t cap);
static inline uint64_t cursor_left(const struct file_cursor *c)
{
    return c->limit - c->offset;
}
/* Copies n bytes and advances; n > left is LEAT_ERR_FORMAT naming file, offset, wanted and left. */
int cursor_read(struct file_cursor *c, void *dst, size_t n, struct leat_error *e);
int cursor_skip(struct file_cursor *c, uint64_t n, struct leat_error *e);
/* The next n bytes where they lie, and advances: good until the next call. NULL, and nothing
 * happened, when the window does not hold them all: then cursor_read. */
static inline const uint8_t *cursor_take(struct file_cursor *c, uint64_t n)
{
    const uint8_t *p = c->buf + c->pos;

    if (n > c->have - c->pos)
        return NULL;
    c->pos += (size_t)n;
    c->offset += n;
    return p;
}

#endif
