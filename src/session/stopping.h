/* Stop strings over a text that grows: where the first one ends it, and how much of the text no
 * stop string can take back any more. Byte by byte, so the answer does not depend on how the text
 * was cut into tokens. Pure; any thread. */
#ifndef SESSION_STOPPING_H
#define SESSION_STOPPING_H

#include <stddef.h>
#include <stdint.h>

struct stop_set {
    const char *const *strings; /* the caller's; empty strings never match */
    int32_t n;
};

#define STOP_NONE ((size_t)-1)

/* Looks for the first byte of text[from..len) that completes a stop string (which may begin before
 * from). Returns where the text must be cut, at a character boundary, and which string did it (the
 * longest of those that end there); STOP_NONE when there is none. */
size_t stop_find(const struct stop_set *s, const char *text, size_t from, size_t len,
                 int32_t *which);

/* The length of the text that may be shown now: what follows could still become a stop string.
 * Never inside a character. */
size_t stop_safe(const struct stop_set *s, const char *text, size_t len);

#endif
