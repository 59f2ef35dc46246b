/* Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing over U+10FFFF. Pure, any
 * thread. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character at s (n bytes left): its length 1..4 and code point, 0 when it is none. */
static inline int utf8_next(const char *text, size_t n, uint32_t *code_point)
{
    const unsigned char *s = (const unsigned char *)text;
    if (n == 0)
        return 0;
    if (s[0] < 0x80) {
        *code_point = s[0];
        return 1;
    }
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    int len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n < (size_t)len)
        return 0;
    uint32_t c = s[0] & (0xffu >> (len + 1));
    for (int i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    if ((len == 3 && c < 0x800) || (len == 4 && c < 0x10000) || c > 0x10ffff ||
        (c >= 0xd800 && c < 0xe000))
        return 0;
    *code_point = c;
    return len;
}

/* True when the n bytes are the beginning of a valid character whose rest is missing. */
static inline bool utf8_is_cut(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    if (n == 0 || s[0] < 0xc2 || s[0] > 0xf4)
        return false;
    size_t len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n >= len)
        return false;
    if (n > 1) { /* the second byte alone tells overlong forms, surrogates and too large ones */
        unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
        unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
        if (s[1] < low || s[1] > high)
            return false;
    }
    return n < 3 || (s[2] & 0xc0) == 0x80;
}

/* Writes the code point (valid, no surrogate) to dst of 4 bytes; returns the length. */
static inline int utf8_write(char *dst, uint32_t c)
{
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    int len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--) {
        dst[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    dst[0] = (char)((0xf00u >> len & 0xff) | c);
    return len;
}

#endif
