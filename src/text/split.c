/* The steps of a pre-tokenizer. A step that cuts finds matches in each piece and turns them into
 * pieces by its behaviour (names and rules: Hugging Face tokenizers, SplitDelimiterBehavior); a
 * step that rewrites makes a new text with the same pieces. Pure but for the caller's scratch. */
#include "split.h"

#include <assert.h>

#include "../base/utf8.h"
#include "unicode.h"

int splitter_add(struct splitter *s, const struct split_step *step, const char *owner,
                 struct leat_error *e)
{
    if (s->n == SPLIT_STEPS)
        return error_set(e, LEAT_ERR_UNSUPPORTED, "%s: more than %d pre-tokenizers", owner,
                         SPLIT_STEPS);
    s->step[s->n++] = *step;
    return 0;
}

void splitter_close(struct splitter *s)
{
    for (int i = 0; i < s->n; i++)
        regex_close(s->step[i].regex);
    s->n = 0;
}

void split_work_free(struct split_work *w)
{
    for (int i = 0; i < 2; i++) {
        text_buf_free(&w->text[i]);
        free(w->list[i].p);
    }
    free(w->marks.p);
    free(w->is_match);
    *w = (struct split_work){0};
}

static int pieces_add(struct split_pieces *l, size_t at, size_t end, struct leat_error *e)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        struct split_piece *p = realloc(l->p, cap * sizeof *p);
        if (!p)
            return error_set(e, LEAT_ERR_MEMORY, "the system refused %zu bytes to split a text",
                             cap * sizeof *p);
        l->p = p;
        l->cap = cap;
    }
    l->p[l->n++] = (struct split_piece){(uint32_t)at, (uint32_t)(end - at)};
    return 0;
}

/* --- marks: a piece as a row of matches and gaps --- */

static int mark_add(struct split_work *w, size_t at, size_t end, bool match, struct leat_error *e)
{
    int rc = pieces_add(&w->marks, at, end, e);
    if (rc < 0)
        return rc;
    if (w->is_match_cap < w->marks.cap) {
        bool *p = realloc(w->is_match, w->marks.cap * sizeof *p);
        if (!p)
            return error_set(e, LEAT_ERR_MEMORY, "the system refused memory to split a text");
        w->is_match = p;
        w->is_match_cap = w->marks.cap;
    }
    w->is_match[w->marks.n - 1] = match;
    return 0;
}

/* A match [at, end) behind *done, with the gap before it. */
static int mark_match(struct split_work *w, size_t *done, size_t at, size_t end,
                      struct leat_error *e)
{
    int rc = at > *done ? mark_add(w, *done, at, false, e) : 0;
    if (rc == 0)
        rc = mark_add(w, at, end, true, e);
    *done = end;
    return rc;
}

static int mark_regex(const struct split_step *s, struct split_work *w, struct regex_work *rw,
                      const char *text, size_t n, size_t *done, struct leat_error *e)
{
    size_t from = 0, start, end, last_end = SIZE_MAX;
    int rc;
    while ((rc = regex_find(s->regex, rw, text, n, from, &start, &end, e)) > 0) {
        bool empty = start == end;
        if (!empty || start != last_end) { /* no empty match right behind another */
            rc = mark_match(w, done, start, end, e);
            if (rc < 0)
                return rc;
            last_end = end;
        }
        from = end;
        if (empty) {
            uint32_t c;
            int k = utf8_next(text + from, n - from, &c);
            if (k == 0)
                return 0;
            from += (size_t)k;
        }
        if (from >= n)
            return 0; /* an empty match at the very end cuts nothing */
    }
    return rc;
}

static int mark_string(const struct split_step *s, struct split_work *w, const char *text, size_t n,
                       size_t *done, struct leat_error *e)
{
    size_t from = 0;
    const char *hit;
    while (s->pattern_n && (hit = memmem(text + from, n - from, s->pattern, s->pattern_n))) {
        size_t at = (size_t)(hit - text);
        int rc = mark_match(w, done, at, at + s->pattern_n, e);
        if (rc < 0)
            return rc;
        from = at + s->pattern_n;
    }
    return 0;
}

static int mark_chars(enum split_kind kind, struct split_work *w, const char *text, size_t n,
                      size_t *done, struct leat_error *e)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        int k = utf8_next(text + i, n - i, &c);
        assert(k > 0);
        bool hit = kind == SPLIT_DIGITS  ? unicode_is_numeric(c)
                   : kind == SPLIT_PUNCT ? unicode_is_punct(c)
                                         : unicode_is_space(c);
        if (hit) {
            int rc = mark_match(w, done, i, i + (size_t)k, e);
            if (rc < 0)
                return rc;
        }
        i += (size_t)k;
    }
    return 0;
}

/* Marks a run of digits [start, end) in groups of three counted from its end; count: characters in
 * it. */
static int mark_threes(struct split_work *w, const char *text, size_t start, size_t end,
                       size_t count, size_t *done, struct leat_error *e)
{
    size_t first = count % 3 ? count % 3 : 3, in_group = 0, group = start;
    for (size_t i = start; i < end;) {
        uint32_t c = 0;
        i += (size_t)utf8_next(text + i, end - i, &c);
        if (++in_group == first || i == end) {
            int rc = mark_match(w, done, group, i, e);
            if (rc < 0)
                return rc;
            group = i;
            in_group = 0;
            first = 3;
        }
    }
    return 0;
}

/* The three ways of grouping digits from the right (patterns AF, AYA and SUP of
 * docs/tokenizers.md); as regular expressions they take quadratic time on long runs. */
static int mark_digit_groups(enum split_kind kind, struct split_work *w, const char *text, size_t n,
                             size_t *done, struct leat_error *e)
{
    for (size_t i = 0; i < n;) {
        size_t start = i, count = 0;
        uint32_t c = 0;
        int k = 0;
        while (i < n && (k = utf8_next(text + i, n - i, &c)) > 0 &&
               (kind == SPLIT_THREES ? unicode_is_numeric(c) : unicode_is_digit(c))) {
            i += (size_t)k;
            count++;
        }
        int rc = 0;
        if (count == 0)
            i += (size_t)k;
        else if (kind == SPLIT_THREES_WORD_END && i < n && unicode_is_word(c))
            continue;
        else if (kind != SPLIT_THREES_ZERO)
            rc = mark_threes(w, text, start, i, count, done, e);
        else
            for (size_t j = start; rc == 0 && j < i; count--) {
                if (count % 3 == 0)
                    rc = mark_match(w, done, j, j, e);
                j += (size_t)utf8_next(text + j, i - j, &c);
            }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int mark_trailing_space(struct split_work *w, const char *text, size_t n, size_t *done,
                               struct leat_error *e)
{
    size_t tail = n;
    bool in_space = false;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        int k = utf8_next(text + i, n - i, &c);
        assert(k > 0);
        bool space = unicode_is_space(c);
        if (space && !in_space)
            tail = i;
        in_space = space;
        i += (size_t)k;
    }
    return in_space ? mark_match(w, done, tail, n, e) : 0;
}

static int marks_of(const struct split_step *s, struct split_work *w, struct regex_work *rw,
                    const char *text, size_t n, struct leat_error *e)
{
    size_t done = 0;
    int rc;
    w->marks.n = 0;
    switch (s->kind) {
    case SPLIT_REGEX:
        rc = mark_regex(s, w, rw, text, n, &done, e);
        break;
    case SPLIT_STRING:
    case SPLIT_METASPACE:
        rc = mark_string(s, w, text, n, &done, e);
        break;
    case SPLIT_DIGITS:
    case SPLIT_PUNCT:
    case SPLIT_SPACE:
        rc = mark_chars(s->kind, w, text, n, &done, e);
        break;
    case SPLIT_THREES:
    case SPLIT_THREES_WORD_END:
    case SPLIT_THREES_ZERO:
        rc = mark_digit_groups(s->kind, w, text, n, &done, e);
        break;
    case SPLIT_TRAILING_SPACE:
        rc = mark_trailing_space(w, text, n, &done, e);
        break;
    default:
        return error_set(e, LEAT_ERR_INTERNAL, "split %d has no marks", (int)s->kind);
    }
    if (rc == 0 && done < n)
        rc = mark_add(w, done, n, false, e);
    if (rc == 0 && s->invert)
        for (size_t i = 0; i < w->marks.n; i++)
            w->is_match[i] = !w->is_match[i];
    return rc;
}

/* --- behaviour --- */

/* Turns w->marks (relative to base) into pieces. */
static int marks_to_pieces(const struct split_work *w, enum split_behaviour behaviour, size_t base,
                           struct split_pieces *to, struct leat_error *e)
{
    int rc = 0;
    size_t n = w->marks.n;
    for (size_t i = 0; rc == 0 && i < n;) {
        size_t at = w->marks.p[i].at, end = at + w->marks.p[i].len;
        bool match = w->is_match[i++];
        switch (behaviour) {
        case SPLIT_ISOLATED:
            break;
        case SPLIT_REMOVED:
            if (match)
                continue;
            break;
        case SPLIT_WITH_PREVIOUS: /* a gap takes the one match behind it */
            if (!match && i < n && w->is_match[i])
                end = w->marks.p[i].at + w->marks.p[i].len, i++;
            break;
        case SPLIT_WITH_NEXT: /* a match takes the gap behind it */
            if (match && i < n && !w->is_match[i])
                end = w->marks.p[i].at + w->marks.p[i].len, i++;
            break;
        case SPLIT_CONTIGUOUS:
            for (; i < n && w->is_match[i] == match; i++)
                end = w->marks.p[i].at + w->marks.p[i].len;
            break;
        }
        if (end > at)
            rc = pieces_add(to, base + at, base + end, e);
    }
    return rc;
}

/* --- steps that rewrite --- */

static bool starts_with(const char *text, size_t n, const char *prefix, size_t m)
{
    return n >= m && memcmp(text, prefix, m) == 0;
}

static int rewrite_piece(const struct split_step *s, const char *text, size_t n, bool at_start,
                         struct text_buf *out, struct leat_error *e)
{
    int rc = 0;
    if (s->kind == SPLIT_BYTE_LEVEL)
        return byte_alphabet_add(out, text, n, e);
    if (s->kind == SPLIT_PREFIX_SPACE) {
        if (!starts_with(text, n, " ", 1))
            rc = text_buf_add(out, " ", 1, e);
        return rc < 0 ? rc : text_buf_add(out, text, n, e);
    }
    bool has = starts_with(text, n, s->pattern, s->pattern_n) || starts_with(text, n, " ", 1);
    if (!has && (s->scheme == SCHEME_ALWAYS || (s->scheme == SCHEME_FIRST && at_start)))
        rc = text_buf_add(out, s->pattern, s->pattern_n, e);
    for (size_t i = 0; rc == 0 && i < n;) {
        const char *hit = memchr(text + i, ' ', n - i);
        size_t stop = hit ? (size_t)(hit - text) : n;
        rc = text_buf_add(out, text + i, stop - i, e);
        if (rc == 0 && hit)
            rc = text_buf_add(out, s->pattern, s->pattern_n, e);
        i = hit ? stop + 1 : n;
    }
    return rc;
}

static bool rewrites(enum split_kind k)
{
    return k == SPLIT_METASPACE || k == SPLIT_PREFIX_SPACE || k == SPLIT_BYTE_LEVEL;
}

/* One step over all pieces of from; its pieces go to to. *text changes when the step rewrites. */
static int step_run(const struct split_step *s, struct split_work *w, struct regex_work *rw,
                    const char **text, bool at_start, const struct split_pieces *from,
                    struct split_pieces *to, struct leat_error *e)
{
    struct text_buf *room = *text == w->text[0].p ? &w->text[1] : &w->text[0];
    bool rewrite = rewrites(s->kind);
    int rc = 0;
    to->n = 0;
    room->n = 0;
    for (size_t i = 0; rc == 0 && i < from->n; i++) {
        size_t at = from->p[i].at, len = from->p[i].len;
        if (rewrite) {
            size_t start = room->n;
            rc = rewrite_piece(s, *text + at, len, at_start && at == 0, room, e);
            if (rc == 0 && room->n > UINT32_MAX / 2)
                rc = error_set(e, LEAT_ERR_USAGE, "a text of over 2 GiB cannot be encoded at once");
            if (rc == 0 && room->n > start && !(s->kind == SPLIT_METASPACE && s->cut)) {
                rc = pieces_add(to, start, room->n, e);
            } else if (rc == 0 && room->n > start) {
                rc = marks_of(s, w, rw, room->p + start, room->n - start, e);
                rc = rc < 0 ? rc : marks_to_pieces(w, SPLIT_WITH_NEXT, start, to, e);
            }
        } else {
            rc = marks_of(s, w, rw, *text + at, len, e);
            rc = rc < 0 ? rc : marks_to_pieces(w, s->behaviour, at, to, e);
        }
    }
    if (rewrite && room->p)
        *text = room->p;
    return rc;
}

int splitter_run(const struct splitter *s, struct split_work *w, struct regex_work *rw,
                 const char *text, size_t n, bool at_start, const char **out,
                 const struct split_pieces **pieces, struct leat_error *e)
{
    struct split_pieces *from = &w->list[0], *to = &w->list[1];
    from->n = 0;
    int rc = n ? pieces_add(from, 0, n, e) : 0;
    for (int i = 0; rc == 0 && i < s->n; i++) {
        rc = step_run(&s->step[i], w, rw, &text, at_start, from, to, e);
        struct split_pieces *swap = from;
        from = to;
        to = swap;
    }
    *out = text;
    *pieces = from;
    return rc;
}
