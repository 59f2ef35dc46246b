/* Error texts: formatting, prefixing, and making untrusted bytes printable.
 * Owns the promise that a message is valid UTF-8 without control bytes and ends at a character
 * boundary; knows nothing of who fails or why. Pure; any thread. */
#include "error.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

/* A code point that may reach a terminal or a log as it is. Left out are controls and the invisible
 * characters that reorder or hide text around them. */
static bool code_point_printable(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0))
        return false;
    if ((c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e))
        return false;
    if ((c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c == 0xad || c == 0x61c)
        return false;
    if ((c >= 0xfff9 && c <= 0xfffb) || (c & 0xfffe) == 0xfffe)
        return false;
    return !(c >= 0xe0000 && c <= 0xe0fff);
}

/* Makes text (len bytes, NUL behind) printable in place: what is not becomes '?'. A character that
 * was cut in half at the end is dropped. Returns the new length. */
static size_t text_clean(char *text, size_t len)
{
    size_t in = 0, out = 0;
    while (in < len) {
        uint32_t c;
        int n = utf8_next(text + in, len - in, &c);
        if (n > 0 && code_point_printable(c)) {
            memmove(text + out, text + in, (size_t)n);
            out += (size_t)n;
            in += (size_t)n;
        } else if (n > 0) {
            text[out++] = c == '\n' || c == '\t' ? ' ' : '?';
            in += (size_t)n;
        } else {
            if (utf8_is_cut(text + in, len - in))
                break;
            text[out++] = '?';
            in++;
        }
    }
    text[out] = '\0';
    return out;
}

static void message_store(struct leat_error *e, int code, char *text, size_t len)
{
    len = text_clean(text, len);
    e->code = code;
    memcpy(e->message, text, len + 1);
}

/* Length of what vsnprintf left in a buffer of cap bytes. */
static size_t printed(int n, size_t cap)
{
    if (n < 0)
        return 0;
    return (size_t)n < cap ? (size_t)n : cap - 1;
}

int error_set(struct leat_error *e, int code, const char *fmt, ...)
{
    assert(code < 0);
    if (!e)
        return code;
    /* Formatted aside, so that the arguments may include the present message. */
    char text[LEAT_ERROR_TEXT];
    text[0] = '\0';
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    e->needed_bytes = 0;
    message_store(e, code, text, printed(n, sizeof text));
    return code;
}

int error_set_errno(struct leat_error *e, int code, int errnum, const char *fmt, ...)
{
    assert(code < 0);
    if (!e)
        return code;
    char text[LEAT_ERROR_TEXT], reason[128];
    text[0] = '\0';
    va_list ap;
    va_start(ap, fmt);
    size_t len = printed(vsnprintf(text, sizeof text, fmt, ap), sizeof text);
    va_end(ap);
    /* The GNU form: may return a constant instead of filling the buffer. */
    const char *r = strerror_r(errnum, reason, sizeof reason);
    size_t tail = strlen(r) + 2;
    if (len + tail >= sizeof text) /* the reason matters more than the end of a long text */
        len = sizeof text - 1 - tail;
    while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
        len--;
    snprintf(text + len, sizeof text - len, ": %s", r);
    e->needed_bytes = 0;
    message_store(e, code, text, strlen(text));
    return code;
}

int error_prefix(struct leat_error *e, const char *fmt, ...)
{
    if (!e)
        return LEAT_ERR_INTERNAL;
    char text[LEAT_ERROR_TEXT];
    text[0] = '\0';
    va_list ap;
    va_start(ap, fmt);
    size_t len = printed(vsnprintf(text, sizeof text, fmt, ap), sizeof text);
    va_end(ap);
    int more = snprintf(text + len, sizeof text - len, ": %s", e->message);
    if (more > 0)
        len += printed(more, sizeof text - len);
    message_store(e, e->code, text, len);
    return e->code;
}

const char *error_quote(char *dst, size_t cap, const void *text, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    const char *s = text;
    if (cap == 0)
        return dst;
    size_t room = cap - 1, out = 0, in = 0;
    size_t keep = 0; /* longest prefix of the output that leaves room for the three dots */
    while (in < n) {
        uint32_t c;
        int got = utf8_next(s + in, n - in, &c);
        bool plain = got > 0 && code_point_printable(c);
        size_t from = got > 0 ? (size_t)got : 1;
        size_t width = plain ? from : 4 * from;
        if (out + width > room) {
            size_t dots = room < 3 ? room : 3;
            memset(dst + keep, '.', dots);
            dst[keep + dots] = '\0';
            return dst;
        }
        if (plain) {
            memcpy(dst + out, s + in, from);
        } else {
            for (size_t i = 0; i < from; i++) {
                unsigned char b = (unsigned char)s[in + i];
                char *d = dst + out + 4 * i;
                d[0] = '\\';
                d[1] = 'x';
                d[2] = hex[b >> 4];
                d[3] = hex[b & 15];
            }
        }
        out += width;
        in += from;
        if (out + 3 <= room)
            keep = out;
    }
    dst[out] = '\0';
    return dst;
}

const char *format_bytes(char *dst, size_t cap, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(dst, cap, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
        return dst;
    }
    double v = (double)bytes / 1024.0;
    size_t u = 0;
    while (v >= 1023.5 && u + 1 < sizeof units / sizeof *units) {
        v /= 1024.0;
        u++;
    }
    int digits = v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
    snprintf(dst, cap, "%.*f %s", digits, v, units[u]);
    return dst;
}

const char *error_code_word(int code)
{
    switch (code) {
    case LEAT_OK:
        return "ok";
    case LEAT_ERR_USAGE:
        return "usage";
    case LEAT_ERR_FILE:
        return "file";
    case LEAT_ERR_FORMAT:
        return "format";
    case LEAT_ERR_UNSUPPORTED:
        return "unsupported";
    case LEAT_ERR_MEMORY:
        return "memory";
    case LEAT_ERR_CONTEXT:
        return "context";
    case LEAT_ERR_CANCELLED:
        return "cancelled";
    case LEAT_ERR_STATE:
        return "state";
    default:
        return "internal";
    }
}
