/* One file opened for reading: refusals by name, exact header reads, and the proof that direct
 * reads work on it. Owns two descriptors (buffered, and direct where it works). Knows nothing of
 * formats, of lanes or of who reads. Thread rule: every call from any thread; file_set_direct
 * before lanes use the file. */
#include "file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "file_fd.h"

#ifndef O_DIRECT
#define O_DIRECT 0 /* a system without it: every file is read buffered */
#endif

struct file {
    char *path;
    int fd;
    int direct_fd;      /* -1 = never opened */
    atomic_bool direct; /* lanes use direct_fd */
    enum file_direct mode;
    uint64_t size, device, inode;
    struct timespec mtime;
    uint64_t read_lo, read_hi; /* what file_read touched since the last drop; lo > hi = nothing */
    pthread_mutex_t lock;      /* over read_lo, read_hi, note */
    atomic_bool noted;
    atomic_bool no_cached; /* the system does not say what is cached */
    bool owned;            /* by this user: mincore tells the truth */
    char note[384];
};

/* Paths come from outside: they are quoted in every message. */
static const char *quoted(char *dst, size_t cap, const char *path)
{
    return error_quote(dst, cap, path, strlen(path));
}

static int refuse_kind(const char *path, mode_t mode, struct leat_error *e)
{
    char q[512];
    const char *kind = S_ISDIR(mode)    ? "a directory"
                       : S_ISFIFO(mode) ? "a FIFO (named pipe)"
                       : S_ISCHR(mode)  ? "a character device"
                       : S_ISBLK(mode)  ? "a block device"
                       : S_ISSOCK(mode) ? "a socket"
                                        : "not a regular file";

    return error_set(e, LEAT_ERR_FILE, "%s: is %s; a regular file is needed",
                     quoted(q, sizeof q, path), kind);
}

static int refuse_open(const char *path, int errnum, struct leat_error *e)
{
    char q[512];

    quoted(q, sizeof q, path);
    if (errnum == ELOOP)
        return error_set(e, LEAT_ERR_FILE, "%s: cannot open: the symbolic links lead in a circle",
                         q);
    if (errnum == ENOENT) {
        struct stat st;
        if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
            return error_set(
                e, LEAT_ERR_FILE,
                "%s: cannot open: the symbolic link points to a file that is not there", q);
    }
    if (errnum == EMFILE || errnum == ENFILE)
        return error_set_errno(e, LEAT_ERR_FILE, errnum,
                               "%s: cannot open (raise the limit with ulimit -n)", q);
    return error_set_errno(e, LEAT_ERR_FILE, errnum, "%s: cannot open", q);
}

static int open_again(const char *path, int flags)
{
    int fd;

    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
    while (fd < 0 && errno == EINTR);
    if (fd >= 0) /* wanted for the opening alone: reads shall wait for their bytes */
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

/* Buffered reads take what they ask for and no read-ahead: header pages and weights' pages are
 * dropped behind them, and what nobody asked for would stay. */
static void read_exactly(struct file *f)
{
#ifdef POSIX_FADV_RANDOM
    (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
#else
    (void)f;
#endif
}

int file_open(const char *path, struct file **out, struct leat_error *e)
{
    struct stat st;
    struct file *f;
    int fd;

    *out = NULL;
    if (!path || !*path)
        return error_set(e, LEAT_ERR_FILE, "cannot open a file: the path is empty");
    /* Looked at before it is opened: opening a device or a FIFO can block or have effects of its
     * own. */
    if (stat(path, &st))
        return refuse_open(path, errno, e);
    if (!S_ISREG(st.st_mode))
        return refuse_kind(path, st.st_mode, e);
    fd = open_again(path, 0);
    if (fd < 0)
        return refuse_open(path, errno, e);
    if (fstat(fd, &st)) {
        int rc = refuse_open(path, errno, e);
        close(fd);
        return rc;
    }
    if (!S_ISREG(st.st_mode)) { /* it was exchanged in between */
        close(fd);
        return refuse_kind(path, st.st_mode, e);
    }
    f = calloc(1, sizeof *f);
    if (f)
        f->path = strdup(path);
    if (!f || !f->path) {
        free(f);
        close(fd);
        return error_set(e, LEAT_ERR_MEMORY, "out of memory while opening a file");
    }
    f->fd = fd;
    f->direct_fd = -1;
    f->mode = FILE_DIRECT_OFF;
    f->size = (uint64_t)st.st_size;
    f->owned = geteuid() == 0 || geteuid() == st.st_uid;
    f->device = (uint64_t)st.st_dev;
    f->inode = (uint64_t)st.st_ino;
    f->mtime = st.st_mtim;
    f->read_lo = UINT64_MAX;
    pthread_mutex_init(&f->lock, NULL);
    read_exactly(f);
    *out = f;
    return 0;
}

void file_close(struct file *f)
{
    if (!f)
        return;
    if (f->direct_fd >= 0)
        close(f->direct_fd);
    close(f->fd);
    pthread_mutex_destroy(&f->lock);
    free(f->path);
    free(f);
}

const char *file_path(const struct file *f)
{
    return f->path;
}

uint64_t file_size(const struct file *f)
{
    return f->size;
}

void file_identity(const struct file *f, uint64_t *device, uint64_t *inode)
{
    *device = f->device;
    *inode = f->inode;
}

int file_fd(const struct file *f)
{
    return f->fd;
}

int file_direct_fd(const struct file *f)
{
    return atomic_load_explicit(&f->direct, memory_order_acquire) ? f->direct_fd : -1;
}

bool file_is_unchanged(const struct file *f)
{
    struct stat st;

    return fstat(f->fd, &st) == 0 && (uint64_t)st.st_size == f->size &&
           st.st_mtim.tv_sec == f->mtime.tv_sec && st.st_mtim.tv_nsec == f->mtime.tv_nsec;
}

#ifdef RWF_NOWAIT
#define PAGES_AT_ONCE 1024 /* asked of mincore */

/* Linux 6.5's cachestat(2): how many pages of a range are in the cache. Its number is the same on
 * every architecture. 1 all of them, 0 not all, -1 the system does not say. */
static int all_cached_stat(const struct file *f, uint64_t from, uint64_t bytes)
{
    struct {
        uint64_t offset, length;
    } range = {from, bytes};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } stat = {0};

    if (syscall(451, f->fd, &range, &stat, 0u) != 0)
        return -1;
    return stat.cached == bytes / FILE_ALIGN;
}

/* The same for older systems. They tell only the owner the truth. */
static int all_cached_mincore(const struct file *f, uint64_t from, uint64_t bytes)
{
    unsigned char in[PAGES_AT_ONCE];
    int all = 1;
    void *map;

    if (!f->owned)
        return -1;
    map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, f->fd, (off_t)from);
    if (map == MAP_FAILED)
        return -1;
    for (uint64_t at = 0; at < bytes && all > 0; at += PAGES_AT_ONCE * FILE_ALIGN) {
        const uint64_t n = bytes - at < PAGES_AT_ONCE * FILE_ALIGN ? bytes - at
                                                                   : PAGES_AT_ONCE * FILE_ALIGN;
        if (mincore((char *)map + at, (size_t)n, in) != 0)
            all = -1;
        for (uint64_t p = 0; p < n / FILE_ALIGN && all > 0; p++)
            all = in[p] & 1;
    }
    munmap(map, (size_t)bytes);
    return all;
}
#endif

/* Whether all of [offset, offset + n) lies in the page cache: 1, 0, or -1 = cannot be told. */
static int all_cached(struct file *f, uint64_t offset, uint64_t n)
{
    int all = -1;
#ifdef RWF_NOWAIT
    const uint64_t from = offset & ~(FILE_ALIGN - 1);
    const uint64_t to = (offset + n + FILE_ALIGN - 1) & ~(FILE_ALIGN - 1);

    if (n == 0 || atomic_load_explicit(&f->no_cached, memory_order_relaxed))
        return -1;
    all = all_cached_stat(f, from, to - from);
    if (all < 0)
        all = all_cached_mincore(f, from, to - from);
    if (all < 0)
        atomic_store_explicit(&f->no_cached, true, memory_order_relaxed);
#else
    (void)f;
    (void)offset;
    (void)n;
#endif
    return all;
}

bool file_is_cached(struct file *f, uint64_t offset, uint64_t n)
{
    return all_cached(f, offset, n) > 0;
}

uint64_t file_read_cached(struct file *f, uint64_t offset, void *dst, uint64_t n)
{
    uint64_t got = 0;
#ifdef RWF_NOWAIT
    while (got < n) {
        const uint64_t left = n - got;
        struct iovec v = {(char *)dst + got, (size_t)(left < FILE_CALL_MAX ? left : FILE_CALL_MAX)};
        const ssize_t r = preadv2(f->fd, &v, 1, (off_t)(offset + got), RWF_NOWAIT);

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0 && errno != EAGAIN) /* this file system has no such reads */
            atomic_store_explicit(&f->no_cached, true, memory_order_relaxed);
        if (r <= 0)
            break;
        got += (uint64_t)r;
    }
#else
    (void)f;
    (void)offset;
    (void)dst;
    (void)n;
#endif
    return got;
}

bool file_reads_cache(const struct file *f)
{
    return f->mode == FILE_DIRECT_AUTO;
}

int file_read(struct file *f, uint64_t offset, void *dst, size_t n, struct leat_error *e)
{
    size_t got = 0;
    char q[512];

    /* What lies in the cache already is not ours to drop. */
    if (offset <= (uint64_t)INT64_MAX - n && file_is_cached(f, offset, n))
        got = (size_t)file_read_cached(f, offset, dst, n);
    pthread_mutex_lock(&f->lock);
    if (got < n && offset + got < f->read_lo)
        f->read_lo = offset + got;
    if (got < n && offset + n > f->read_hi)
        f->read_hi = offset + n;
    pthread_mutex_unlock(&f->lock);
    while (got < n) {
        size_t want = n - got < FILE_CALL_MAX ? n - got : (size_t)FILE_CALL_MAX;
        ssize_t r;

        if (offset > (uint64_t)INT64_MAX - n)
            break;
        r = pread(f->fd, (char *)dst + got, want, (off_t)(offset + got));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return error_set_errno(
                e, LEAT_ERR_FILE, errno,
                "%s: reading %zu bytes at offset %llu failed after %zu bytes%s",
                quoted(q, sizeof q, f->path), n, (unsigned long long)offset, got,
                errno == EIO ? " (the storage failed; this is not a bad download)" : "");
        if (r == 0)
            break;
        got += (size_t)r;
    }
    if (got < n)
        return error_set(e, LEAT_ERR_FILE,
                         "%s: the file ends too early: wanted %zu bytes at offset %llu, got %zu "
                         "(the file has %llu bytes); is the download complete?",
                         quoted(q, sizeof q, f->path), n, (unsigned long long)offset, got,
                         (unsigned long long)f->size);
    return 0;
}

void file_drop_cache(struct file *f)
{
    uint64_t lo, hi;

    pthread_mutex_lock(&f->lock);
    lo = f->read_lo & ~(FILE_ALIGN - 1);
    hi = f->read_hi;
    f->read_lo = UINT64_MAX;
    f->read_hi = 0;
    pthread_mutex_unlock(&f->lock);
#ifdef POSIX_FADV_DONTNEED
    /* Only what we read: other programs may live from the rest. */
    if (lo < hi && hi <= (uint64_t)INT64_MAX)
        (void)posix_fadvise(f->fd, (off_t)lo,
                            (off_t)((hi - lo + FILE_ALIGN - 1) & ~(FILE_ALIGN - 1)),
                            POSIX_FADV_DONTNEED);
#endif
}

/* ---- direct reads ---- */

static void copy_text(char *dst, size_t cap, const char *src)
{
    size_t n = strlen(src);

    if (n >= cap)
        n = cap - 1;
    memcpy(dst, src, n);
    dst[n] = '\0';
}

static void note_set(struct file *f, const char *why)
{
    char q[256];

    pthread_mutex_lock(&f->lock);
    if (!atomic_load(&f->noted)) { /* the first reason stays: others hold pointers to it */
        struct leat_error e = {0};
        error_set(&e, LEAT_ERR_FILE, "%s: read buffered: %s", quoted(q, sizeof q, f->path), why);
        copy_text(f->note, sizeof f->note, e.message);
        atomic_store(&f->noted, true);
    }
    pthread_mutex_unlock(&f->lock);
}

const char *file_direct_note(const struct file *f)
{
    return atomic_load(&f->noted) ? f->note : NULL;
}

bool file_is_direct(const struct file *f)
{
    return file_direct_fd(f) >= 0;
}

bool file_give_up_direct(struct file *f, int errnum, uint64_t offset)
{
    char why[128];
    struct leat_error e = {0};

    if (f->mode == FILE_DIRECT_ON)
        return false;
    error_set_errno(&e, LEAT_ERR_FILE, errnum, "the direct read at offset %llu was refused",
                    (unsigned long long)offset);
    copy_text(why, sizeof why, e.message);
    note_set(f, why);
    atomic_store_explicit(&f->direct, false, memory_order_release);
    return true;
}

static ssize_t read_retry(int fd, void *dst, size_t n, uint64_t offset)
{
    ssize_t r;

    do
        r = pread(fd, dst, n, (off_t)offset);
    while (r < 0 && errno == EINTR);
    return r;
}

/* Reads the aligned window at offset both ways. NULL when equal, else why direct reads are not
 * believed. */
static const char *prove_window(struct file *f, uint64_t offset, void *direct, void *buffered,
                                int *errnum)
{
    ssize_t a = read_retry(f->direct_fd, direct, FILE_ALIGN, offset), b;

    *errnum = errno;
    if (a < 0)
        return "a direct read of 4096 bytes was refused";
    *errnum = 0;
    b = read_retry(f->fd, buffered, FILE_ALIGN, offset);
    if (b < 0) {
        *errnum = errno;
        return "a buffered read to compare with failed";
    }
    if (a != b)
        return "a direct read gave another number of bytes than a buffered one";
    if (memcmp(direct, buffered, (size_t)a))
        return "a direct read gave other bytes than a buffered one";
    return NULL;
}

static const char *prove_direct(struct file *f, int *errnum)
{
    const uint64_t last = f->size ? (f->size - 1) & ~(FILE_ALIGN - 1) : 0;
    const uint64_t at[3] = {0, (f->size / 2) & ~(FILE_ALIGN - 1), last};
    const char *why = NULL;
    bool cached[3] = {false, false, false}; /* before us: others live from it */
    struct stat st;
    void *mem = NULL;

    *errnum = 0;
    if (O_DIRECT == 0)
        return "this system has no direct reads";
    f->direct_fd = open_again(f->path, O_DIRECT);
    if (f->direct_fd < 0) {
        *errnum = errno;
        return "the file system refuses to open it for direct reads";
    }
    if (fstat(f->direct_fd, &st) || (uint64_t)st.st_dev != f->device ||
        (uint64_t)st.st_ino != f->inode)
        return "its path names another file by now";
    if (posix_memalign(&mem, FILE_ALIGN, 2 * FILE_ALIGN))
        return "no memory for the comparison";
    for (int i = 0; i < 3 && !why; i++) {
        cached[i] = file_is_cached(f, at[i], FILE_ALIGN);
        why = prove_window(f, at[i], mem, (char *)mem + FILE_ALIGN, errnum);
    }
    free(mem);
#ifdef POSIX_FADV_DONTNEED
    for (int i = 0; i < 3; i++)
        if (!cached[i])
            (void)posix_fadvise(f->fd, (off_t)at[i], (off_t)FILE_ALIGN, POSIX_FADV_DONTNEED);
#endif
    return why;
}

int file_set_direct(struct file *f, enum file_direct mode, struct leat_error *e)
{
    const char *why = NULL;
    char text[256];
    int errnum = 0;

    f->mode = mode;
    if (mode == FILE_DIRECT_OFF) {
        atomic_store_explicit(&f->direct, false, memory_order_release);
        return 0;
    }
    if (file_is_direct(f))
        return 0; /* proved before */
    if (f->direct_fd < 0)
        why = prove_direct(f, &errnum);
    else
        why = atomic_load(&f->noted) ? "direct reads were refused before" : NULL;
    if (!why) {
        atomic_store_explicit(&f->direct, true, memory_order_release);
        return 0;
    }
    if (f->direct_fd >= 0 && !atomic_load(&f->noted)) { /* not proved: nothing may use it */
        close(f->direct_fd);
        f->direct_fd = -1;
    }
    if (errnum) {
        struct leat_error se = {0};
        error_set_errno(&se, LEAT_ERR_FILE, errnum, "%s", why);
        copy_text(text, sizeof text, se.message);
        why = text;
    }
    if (mode == FILE_DIRECT_ON) {
        char q[512];
        return error_set(e, LEAT_ERR_FILE,
                         "%s: direct reads do not work here: %s (use --direct auto or off)",
                         quoted(q, sizeof q, f->path), why);
    }
    note_set(f, why);
    return 0;
}

/* ---- cursor ---- */

void cursor_open(struct file_cursor *c, struct file *f, uint64_t offset, uint64_t limit, void *buf,
                 size_t cap)
{
    assert(buf && cap);
    if (limit > file_size(f))
        limit = file_size(f);
    if (limit < offset)
        limit = offset; /* nothing left; the first read says where */
    *c = (struct file_cursor){.file = f, .offset = offset, .limit = limit, .buf = buf, .cap = cap};
}

static int cursor_check(const struct file_cursor *c, uint64_t n, struct leat_error *e)
{
    char q[512];

    if (n <= cursor_left(c))
        return 0;
    return error_set(e, LEAT_ERR_FORMAT,
                     "%s: the file ends too early: wanted %llu bytes at offset %llu, %llu left",
                     quoted(q, sizeof q, file_path(c->file)), (unsigned long long)n,
                     (unsigned long long)c->offset, (unsigned long long)cursor_left(c));
}

int cursor_read(struct file_cursor *c, void *dst, size_t n, struct leat_error *e)
{
    char *to = dst;
    int rc = cursor_check(c, n, e);

    if (rc)
        return rc;
    while (n) {
        size_t take = c->have - c->pos;

        if (take == 0 && n >= c->cap) { /* longer than the window: no copy through it */
            rc = file_read(c->file, c->offset, to, n, e);
            if (rc)
                return rc;
            c->offset += n;
            return 0;
        }
        if (take == 0) {
            size_t fill = cursor_left(c) < c->cap ? (size_t)cursor_left(c) : c->cap;
            c->pos = c->have = 0;
            rc = file_read(c->file, c->offset, c->buf, fill, e);
            if (rc)
                return rc;
            c->have = take = fill;
        }
        if (take > n)
            take = n;
        memcpy(to, c->buf + c->pos, take);
        c->pos += take;
        c->offset += take;
        to += take;
        n -= take;
    }
    return 0;
}

int cursor_skip(struct file_cursor *c, uint64_t n, struct leat_error *e)
{
    int rc = cursor_check(c, n, e);

    if (rc)
        return rc;
    if (n <= c->have - c->pos)
        c->pos += (size_t)n;
    else
        c->pos = c->have = 0;
    c->offset += n;
    return 0;
}
