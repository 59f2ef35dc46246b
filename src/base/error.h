/* Filling struct leat_error. Thread rule: pure; the caller owns the struct. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#include "../../include/leat_error.h"

/* Sets code and message (printf form, cut at a character boundary when too long) and returns code.
 * Bytes that came from a file must go through error_quote() first. e may be NULL. */
int error_set(struct leat_error *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As error_set, with ": " and the text of errnum (an errno value) appended. */
int error_set_errno(struct leat_error *e, int code, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts text before the present message ("loading X: " + message); keeps the code. Returns the
 * code. */
int error_prefix(struct leat_error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Copies n bytes of untrusted text into dst (cap bytes, always terminated) so that it can be
 * printed: valid printable UTF-8 stays, control bytes and invalid bytes become \xNN, long text
 * ends in "...". Returns dst. */
const char *error_quote(char *dst, size_t cap, const void *text, size_t n);

/* "1.50 GiB", "640 KiB", "12 bytes": at least two significant digits; dst of 24 bytes is enough. */
const char *format_bytes(char *dst, size_t cap, uint64_t bytes);

/* Lowercase word of a code for JSON: "usage", "file", "format", "unsupported", "memory", ... */
const char *error_code_word(int code);

#endif
