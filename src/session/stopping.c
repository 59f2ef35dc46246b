/* Stop strings (stopping.h). Knows bytes and character boundaries, no tokens. Pure; any thread. */
#include "stopping.h"

#include <string.h>

static size_t to_boundary(const char *text, size_t at, size_t len)
{
    while (at > 0 && at < len && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

size_t stop_find(const struct stop_set *s, const char *text, size_t from, size_t len,
                 int32_t *which)
{
    for (size_t end = from + 1; end <= len; end++) {
        size_t longest = 0;
        for (int32_t i = 0; i < s->n; i++) {
            size_t n = strlen(s->strings[i]);
            if (n > longest && n <= end && memcmp(text + end - n, s->strings[i], n) == 0) {
                longest = n;
                *which = i;
            }
        }
        if (longest > 0)
            return to_boundary(text, end - longest, len);
    }
    return STOP_NONE;
}

size_t stop_safe(const struct stop_set *s, const char *text, size_t len)
{
    size_t hold = 0; /* the longest end of the text that begins a stop string */
    for (int32_t i = 0; i < s->n; i++) {
        size_t n = strlen(s->strings[i]);
        for (size_t k = n > 0 ? n - 1 : 0; k > hold; k--)
            if (k <= len && memcmp(text + len - k, s->strings[i], k) == 0) {
                hold = k;
                break;
            }
    }
    return to_boundary(text, len - hold, len);
}
