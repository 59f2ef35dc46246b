/* Files that tests write: a folder of their own in the current directory, and bytes that tell where
 * they lie. One thread. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char scratch_dir[64];

/* The byte at `offset` of file number `seed`: neighbours, blocks and files all differ. */
static inline uint8_t scratch_byte(uint64_t seed, uint64_t offset)
{
    uint64_t x = (offset >> 3) + seed * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 31;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 29;
    return (uint8_t)(x >> (8 * (offset & 7)));
}

static inline uint8_t *scratch_bytes(uint64_t seed, uint64_t n)
{
    uint8_t *b = malloc(n ? n : 1);

    assert_non_null(b);
    for (uint64_t i = 0; i < n; i++)
        b[i] = scratch_byte(seed, i);
    return b;
}

static inline void scratch_open(void)
{
    strcpy(scratch_dir, "scratch-XXXXXX");
    assert_non_null(mkdtemp(scratch_dir));
}

static inline const char *scratch_path(const char *name)
{
    static char path[4][128];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", scratch_dir, name);
    return path[turn];
}

static inline void scratch_write(const char *name, const void *bytes, uint64_t n)
{
    FILE *f = fopen(scratch_path(name), "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Pages of the file that lie in the page cache. */
static inline size_t scratch_cached(const char *name)
{
    int fd = open(scratch_path(name), O_RDONLY);
    struct stat st;
    size_t n = 0, pages;
    unsigned char *in;
    void *m;

    assert_int_equal(fstat(fd, &st), 0);
    pages = ((size_t)st.st_size + 4095) / 4096;
    in = malloc(pages);
    m = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(in && m != MAP_FAILED);
    assert_int_equal(mincore(m, (size_t)st.st_size, in), 0);
    for (size_t i = 0; i < pages; i++)
        n += in[i] & 1;
    munmap(m, (size_t)st.st_size);
    free(in);
    close(fd);
    return n;
}

/* Puts `from` on into the cache and the bytes before it out of it. False: this file system keeps
 * its own mind. */
static inline bool scratch_cache(const char *name, uint64_t from)
{
    int fd = open(scratch_path(name), O_RDONLY);
    char block[4096];
    ssize_t n;

    assert_int_equal(fsync(fd), 0);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (scratch_cached(name)) {
        close(fd);
        return false;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no read-ahead over `from` */
    for (uint64_t at = from; (n = pread(fd, block, sizeof block, (off_t)at)) > 0;)
        at += (uint64_t)n;
    close(fd);
    return true;
}

static inline void scratch_close(void)
{
    char cmd[128];

    snprintf(cmd, sizeof cmd, "rm -rf '%s'", scratch_dir);
    assert_int_equal(system(cmd), 0);
}

/* A reproducible sequence. */
static inline uint64_t scratch_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

#endif
