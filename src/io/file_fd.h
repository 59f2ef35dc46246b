/* What the lanes know of a file and nobody else: its descriptors, and how direct reading is given
 * up. Private to io/. Thread rule: any thread. */
#ifndef IO_FILE_FD_H
#define IO_FILE_FD_H

#include "file.h"

/* One read system call never asks for more than this (Linux stops at 2 GiB - 4 KiB), a multiple of
 * FILE_ALIGN. */
#define FILE_CALL_MAX (UINT64_C(1) << 30)

/* Buffered descriptor; always valid. */
int file_fd(const struct file *f);
/* Direct descriptor, or -1 when the file is (by now) read buffered. It stays open until file_close.
 */
int file_direct_fd(const struct file *f);
/* A direct read was refused: turns the file to buffered reads for good and remembers why. False
 * when direct reads were demanded (FILE_DIRECT_ON): then the refusal is the caller's error. */
bool file_give_up_direct(struct file *f, int errnum, uint64_t offset);
/* Whether all of [offset, offset + n) lies in the page cache; false too when it cannot be told. */
bool file_is_cached(struct file *f, uint64_t offset, uint64_t n);
/* Bytes of [offset, offset + n) copied to dst: n, or fewer when some left the page cache meanwhile.
 * Reads nothing from the drive. Only after file_is_cached said yes: a read that may not wait starts
 * the system's read-ahead all the same, and would fill the cache with what is not there. */
uint64_t file_read_cached(struct file *f, uint64_t offset, void *dst, uint64_t n);
/* True when bytes that lie in the page cache are to be taken from there although the file is read
 * directly (FILE_DIRECT_AUTO). */
bool file_reads_cache(const struct file *f);
/* True when size and modification time are those of file_open. */
bool file_is_unchanged(const struct file *f);

#endif
