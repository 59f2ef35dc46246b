/* The steps of a normalizer. Unicode's decompositions and compositions come from utf8proc, one
 * stretch of non-ASCII text at a time; the ordering of marks is our own, because a long run of them
 * must not take quadratic time. Pure but for the caller's scratch. */
#include "normalize.h"

#include <assert.h>
#include <utf8proc.h>

#include "../base/utf8.h"
#include "unicode.h"

int normalizer_add(struct normalizer *z, const struct normalize_step *s, const char *owner,
                   struct leat_error *e)
{
    if (z->n == NORMALIZE_STEPS)
        return error_set(e, LEAT_ERR_UNSUPPORTED, "%s: more than %d normalizers", owner,
                         NORMALIZE_STEPS);
    z->step[z->n++] = *s;
    return 0;
}

void normalizer_close(struct normalizer *z)
{
    for (int i = 0; i < z->n; i++)
        regex_close(z->step[i].regex);
    z->n = 0;
}

void normalize_work_free(struct normalize_work *w)
{
    text_buf_free(&w->a);
    text_buf_free(&w->b);
    free(w->points);
    *w = (struct normalize_work){0};
}

/* --- NFC, NFD, NFKC, NFKD --- */

static int points_reserve(struct normalize_work *w, size_t n, struct leat_error *e)
{
    if (n <= w->points_cap)
        return 0;
    size_t cap = w->points_cap ? w->points_cap : 64;
    while (cap < n)
        cap *= 2;
    int32_t *p = realloc(w->points, cap * sizeof *p);
    if (!p)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused %zu bytes to normalise a text",
                         cap * sizeof *p);
    w->points = p;
    w->points_cap = cap;
    return 0;
}

static unsigned combining_class(int32_t c)
{
    return (unsigned)utf8proc_get_property(c)->combining_class & 255;
}

/* Canonical ordering (Unicode 15, definition D108): each run of marks in stable order of its
 * classes. */
static int order_marks(struct normalize_work *w, size_t n, struct leat_error *e)
{
    int rc = points_reserve(w, 2 * n, e); /* the second half is room for sorting */
    for (size_t i = 0; rc == 0 && i < n;) {
        size_t start = i;
        unsigned before = 0;
        bool sorted = true;
        for (; i < n; i++) {
            unsigned k = combining_class(w->points[i]);
            if (k == 0)
                break;
            sorted = sorted && k >= before;
            before = k;
        }
        if (!sorted) {
            uint32_t first[257] = {0};
            int32_t *p = w->points + start, *room = w->points + n;
            size_t run = i - start;
            for (size_t j = 0; j < run; j++)
                first[combining_class(p[j]) + 1]++;
            for (int k = 0; k < 256; k++)
                first[k + 1] += first[k];
            memcpy(room, p, run * sizeof *p);
            for (size_t j = 0; j < run; j++)
                p[first[combining_class(room[j])]++] = room[j];
        }
        while (i < n && combining_class(w->points[i]) == 0)
            i++;
    }
    return rc;
}

static int normal_form_stretch(struct normalize_work *w, const char *text, size_t n,
                               utf8proc_option_t options, struct text_buf *out,
                               struct leat_error *e)
{
    size_t count = 0;
    int boundary = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        int k = utf8_next(text + i, n - i, &c);
        assert(k > 0);
        i += (size_t)k;
        int rc = points_reserve(w, count + 32, e); /* the longest decomposition has 18 */
        if (rc < 0)
            return rc;
        utf8proc_ssize_t m =
            utf8proc_decompose_char((int32_t)c, w->points + count,
                                    (utf8proc_ssize_t)(w->points_cap - count), options, &boundary);
        if (m < 0 || (size_t)m > w->points_cap - count)
            return error_set(e, LEAT_ERR_INTERNAL, "U+%04X cannot be decomposed", c);
        count += (size_t)m;
    }
    int rc = order_marks(w, count, e);
    if (rc < 0)
        return rc;
    if (options & UTF8PROC_COMPOSE) {
        utf8proc_ssize_t m = utf8proc_normalize_utf32(w->points, (utf8proc_ssize_t)count,
                                                      UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        if (m < 0)
            return error_set(e, LEAT_ERR_INTERNAL, "a text cannot be composed");
        count = (size_t)m;
    }
    rc = text_buf_reserve(out, 4 * count, e);
    for (size_t i = 0; rc == 0 && i < count; i++)
        out->n += (size_t)utf8_write(out->p + out->n, (uint32_t)w->points[i]);
    return rc;
}

/* ASCII is its own normal form, and only the one character before a stretch of others can join with
 * it. */
static int normal_form(struct normalize_work *w, const char *text, size_t n,
                       utf8proc_option_t options, struct text_buf *out, struct leat_error *e)
{
    size_t i = 0;
    int rc = 0;
    while (rc == 0 && i < n) {
        size_t start = i;
        while (i < n && !(text[i] & 0x80))
            i++;
        size_t plain = i < n && i > start ? i - 1 : i;
        rc = text_buf_add(out, text + start, plain - start, e);
        while (i < n && (text[i] & 0x80))
            i++;
        if (rc == 0 && i > plain)
            rc = normal_form_stretch(w, text + plain, i - plain, options, out, e);
    }
    return rc;
}

/* --- the others --- */

static int replace(const struct normalize_step *s, const char *text, size_t n, struct text_buf *out,
                   struct leat_error *e)
{
    size_t i = 0;
    int rc = 0;
    while (rc == 0 && i < n) {
        const char *hit = memmem(text + i, n - i, s->pattern, s->pattern_n);
        size_t stop = hit ? (size_t)(hit - text) : n;
        rc = text_buf_add(out, text + i, stop - i, e);
        if (rc == 0 && hit)
            rc = text_buf_add(out, s->content, s->content_n, e);
        i = hit ? stop + s->pattern_n : n;
    }
    return rc;
}

static int replace_regex(const struct normalize_step *s, struct regex_work *rw, const char *text,
                         size_t n, struct text_buf *out, struct leat_error *e)
{
    size_t done = 0, from = 0, start, end, last_end = SIZE_MAX;
    int rc;
    while ((rc = regex_find(s->regex, rw, text, n, from, &start, &end, e)) > 0) {
        uint32_t c;
        bool empty = start == end;
        if (!empty || start != last_end) { /* no empty match right behind another */
            rc = text_buf_add(out, text + done, start - done, e);
            rc = rc < 0 ? rc : text_buf_add(out, s->content, s->content_n, e);
            if (rc < 0)
                return rc;
            done = last_end = end;
        }
        from = end;
        if (empty) {
            int k = utf8_next(text + from, n - from, &c);
            if (k == 0)
                break;
            from += (size_t)k;
        }
    }
    return rc < 0 ? rc : text_buf_add(out, text + done, n - done, e);
}

/* What one character becomes: n characters in to, 0 = it goes. */
static int map_char(enum normalize_kind kind, uint32_t c, uint32_t to[2])
{
    to[0] = c;
    switch (kind) {
    case NORMALIZE_LOWERCASE:
        if (c ==
            0x130) { /* SpecialCasing.txt: the only unconditional lowercase of two characters */
            to[0] = 'i';
            to[1] = 0x307;
            return 2;
        }
        to[0] = (uint32_t)utf8proc_tolower((int32_t)c);
        return 1;
    case NORMALIZE_STRIP_ACCENTS:
        return unicode_is_mark(c) ? 0 : 1;
    case NORMALIZE_NMT: /* SentencePiece, nmt_nfkc */
        if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
            c == 0x9f)
            return 0;
        if (c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
            (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
            c == 0xfeff || c == 0xfffd)
            to[0] = ' ';
        return 1;
    default:
        return 1;
    }
}

static int map_chars(enum normalize_kind kind, const char *text, size_t n, struct text_buf *out,
                     struct leat_error *e)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = 0, to[2];
        int k = utf8_next(text + i, n - i, &c);
        assert(k > 0);
        i += (size_t)k;
        int m = map_char(kind, c, to);
        int rc = text_buf_reserve(out, 8, e);
        if (rc < 0)
            return rc;
        for (int j = 0; j < m; j++)
            out->n += (size_t)utf8_write(out->p + out->n, to[j]);
    }
    return 0;
}

static int strip(const struct normalize_step *s, const char *text, size_t n, struct text_buf *out,
                 struct leat_error *e)
{
    size_t start = 0, stop = s->right ? 0 : n;
    bool leading = s->left;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        int k = utf8_next(text + i, n - i, &c);
        assert(k > 0);
        i += (size_t)k;
        if (!unicode_is_space(c)) {
            leading = false;
            if (s->right)
                stop = i;
        } else if (leading) {
            start = i;
        }
    }
    return text_buf_add(out, text + start, stop > start ? stop - start : 0, e);
}

static int step_run(const struct normalize_step *s, struct normalize_work *w, struct regex_work *rw,
                    const char *text, size_t n, struct text_buf *out, struct leat_error *e)
{
    static const utf8proc_option_t form[] = {
        [NORMALIZE_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [NORMALIZE_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [NORMALIZE_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [NORMALIZE_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    int rc = 0;
    switch (s->kind) {
    case NORMALIZE_NFC:
    case NORMALIZE_NFD:
    case NORMALIZE_NFKC:
    case NORMALIZE_NFKD:
        return normal_form(w, text, n, form[s->kind], out, e);
    case NORMALIZE_PREPEND:
        if (n)
            rc = text_buf_add(out, s->content, s->content_n, e);
        return rc < 0 ? rc : text_buf_add(out, text, n, e);
    case NORMALIZE_REPLACE:
        return replace(s, text, n, out, e);
    case NORMALIZE_REPLACE_REGEX:
        return replace_regex(s, rw, text, n, out, e);
    case NORMALIZE_STRIP:
        return strip(s, text, n, out, e);
    case NORMALIZE_BYTE_LEVEL:
        return byte_alphabet_add(out, text, n, e);
    case NORMALIZE_LOWERCASE:
    case NORMALIZE_STRIP_ACCENTS:
    case NORMALIZE_NMT:
        return map_chars(s->kind, text, n, out, e);
    }
    return error_set(e, LEAT_ERR_INTERNAL, "normalizer %d", (int)s->kind);
}

int normalizer_run(const struct normalizer *z, struct normalize_work *w, struct regex_work *rw,
                   const char *text, size_t n, const char **out, size_t *out_n,
                   struct leat_error *e)
{
    struct text_buf *to = &w->a, *other = &w->b;
    *out = text;
    *out_n = n;
    for (int i = 0; i < z->n; i++) {
        to->n = 0;
        int rc = step_run(&z->step[i], w, rw, *out, *out_n, to, e);
        if (rc == 0)
            rc = text_buf_reserve(to, 1, e); /* never a null pointer */
        if (rc < 0)
            return rc;
        *out = to->p;
        *out_n = to->n;
        struct text_buf *swap = to;
        to = other;
        other = swap;
    }
    return 0;
}
