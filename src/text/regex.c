/* PCRE2 behind the regular expressions of tokenizers: compile, match, limits.
 * Owns compiled code and match scratch; the syntax lives in regex_syntax.c. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "regex.h"

#include <pcre2.h>
#include <stdbool.h>

#define JIT_STACK_MIN  (32u << 10)
#define JIT_STACK_MAX  (16u << 20)
#define HEAP_LIMIT_KIB (64u << 10)
#define MATCH_LIMIT    20000000u

struct regex {
    pcre2_code *code;
    char owner[256];
};

int regex_open(const char *pattern, size_t n, const char *owner, struct regex **out,
               struct leat_error *e)
{
    struct text_buf b = {0};
    *out = NULL;
    int rc = regex_translate(pattern, n, owner, &b, e);
    if (rc < 0) {
        text_buf_free(&b);
        return rc;
    }
    struct regex *r = calloc(1, sizeof *r);
    pcre2_compile_context *cc = pcre2_compile_context_create(NULL);
    if (!r || !cc) {
        rc = error_set(e, LEAT_ERR_MEMORY, "the system refused memory for a regular expression");
        goto done;
    }
    /* Ruby: the dot stops at \n only, and ^ and $ are ends of lines. */
    pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
    int code;
    PCRE2_SIZE at;
    r->code = pcre2_compile((PCRE2_SPTR)b.p, b.n,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                            &code, &at, cc);
    if (!r->code) {
        PCRE2_UCHAR why[160];
        char quoted[160];
        if (pcre2_get_error_message(code, why, sizeof why) < 0)
            why[0] = '\0';
        rc = error_set(e, LEAT_ERR_UNSUPPORTED,
                       "%s: the regular expression \"%s\" cannot be used: %s", owner,
                       error_quote(quoted, sizeof quoted, pattern, n), (const char *)why);
        goto done;
    }
    /* Without JIT (a system that forbids it) matching is slower and otherwise the same. */
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
    error_quote(r->owner, sizeof r->owner, owner, strlen(owner));
    *out = r;
    r = NULL;
done:
    pcre2_compile_context_free(cc);
    free(r);
    text_buf_free(&b);
    return rc;
}

void regex_close(struct regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    free(r);
}

static int regex_work_open(struct regex_work *w, struct leat_error *e)
{
    pcre2_match_context *mc = pcre2_match_context_create(NULL);
    w->context = mc;
    w->match = pcre2_match_data_create(1, NULL);
    if (!mc || !w->match)
        return error_set(e, LEAT_ERR_MEMORY,
                         "the system refused memory to match a regular expression");
    w->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX,
                                      NULL); /* NULL: the small built-in one */
    if (w->stack)
        pcre2_jit_stack_assign(mc, NULL, w->stack);
    pcre2_set_match_limit(mc, MATCH_LIMIT);
    pcre2_set_heap_limit(mc, HEAP_LIMIT_KIB);
    return 0;
}

void regex_work_free(struct regex_work *w)
{
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    *w = (struct regex_work){0};
}

int regex_find(const struct regex *r, struct regex_work *w, const char *text, size_t n, size_t from,
               size_t *start, size_t *end, struct leat_error *e)
{
    if (!w->context || !w->match) {
        regex_work_free(w);
        int rc = regex_work_open(w, e);
        if (rc < 0)
            return rc;
    }
    int rc =
        pcre2_match(r->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, w->match, w->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         w->match, w->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        PCRE2_UCHAR why[160];
        if (pcre2_get_error_message(rc, why, sizeof why) < 0)
            why[0] = '\0';
        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s: its regular expression gave up on a text of %zu bytes: %s", r->owner,
                         n, (const char *)why);
    }
    PCRE2_SIZE *v = pcre2_get_ovector_pointer(w->match);
    *start = v[0];
    *end = v[1];
    if (*start > *end) /* \K inside a lookahead */
        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s: its regular expression ends before it starts", r->owner);
    return 1;
}
