/* A growing run of bytes for one call's scratch. Owns its memory; the owner frees it with
 * text_buf_free. Zero-initialised = empty. Pure; one thread per buffer. */
#ifndef TEXT_TEXT_BUF_H
#define TEXT_TEXT_BUF_H

#include <stdlib.h>
#include <string.h>

#include "../base/error.h"

struct text_buf {
    char *p;
    size_t n, cap;
};

static inline void text_buf_free(struct text_buf *b)
{
    free(b->p);
    *b = (struct text_buf){0};
}

/* Makes room for more bytes behind the present ones. */
static inline int text_buf_reserve(struct text_buf *b, size_t more, struct leat_error *e)
{
    if (more <= b->cap - b->n)
        return 0;
    size_t cap = b->cap ? b->cap : 256;
    if (more > SIZE_MAX / 4 - b->n)
        return error_set(e, LEAT_ERR_MEMORY, "a text of over %zu bytes does not fit", more);
    while (cap - b->n < more)
        cap *= 2;
    char *p = realloc(b->p, cap);
    if (!p)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused %zu bytes for a text", cap);
    b->p = p;
    b->cap = cap;
    return 0;
}

static inline int text_buf_add(struct text_buf *b, const void *bytes, size_t n,
                               struct leat_error *e)
{
    int rc = text_buf_reserve(b, n, e);
    if (rc < 0)
        return rc;
    if (n)
        memcpy(b->p + b->n, bytes, n);
    b->n += n;
    return 0;
}

static inline int text_buf_puts(struct text_buf *b, const char *s, struct leat_error *e)
{
    return text_buf_add(b, s, strlen(s), e);
}

#endif
