/* The files beside tokenizer.json in a model's folder: special tokens by name, whether they are
 * added, which ids end generation. Each is optional; one that is there must be right. Knows which
 * key wins, not how text is encoded. One thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tokenizer_internal.h"

#define CONFIG_BYTES (UINT64_C(64) << 20)

struct reading { /* one file */
    struct folder_config *c;
    struct json_file file;
    struct leat_error *e;
};

/* --- values --- */

static int wrong(struct reading *r, const char *key, const char *wanted)
{
    return json_fail(&r->file.pull, r->e, LEAT_ERR_FORMAT, "\"%s\" is not %s", key, wanted);
}

static int read_tree(struct reading *r, struct json_node **n)
{
    return json_tree_read(&r->file.pull, r->c->arena, n, r->e);
}

/* true, false or null. */
static int read_flag(struct reading *r, const char *key, int *flag)
{
    int ev = json_pull_next(&r->file.pull, r->e);
    if (ev < 0)
        return ev;
    if (ev != JSON_TRUE && ev != JSON_FALSE && ev != JSON_NULL)
        return wrong(r, key, "true or false");
    if (ev != JSON_NULL)
        *flag = ev == JSON_TRUE;
    return 0;
}

/* "TEXT", {"content": "TEXT", ...} or null; the first file that says one wins. */
static int read_token(struct reading *r, const char *key, const char **text, size_t *n)
{
    struct json_node *node;
    int rc = read_tree(r, &node);
    if (rc < 0 || node->kind == JSON_NULL)
        return rc;
    const struct json_node *s = node->kind == JSON_OBJECT ? json_tree_get(node, "content") : node;
    if (!s || s->kind != JSON_STRING)
        return wrong(r, key, "a token");
    if (!*text) {
        *text = s->text;
        *n = s->text_n;
    }
    return 0;
}

static int one_id(struct reading *r, const char *key, const struct json_node *n, int64_t *id)
{
    if (n->kind != JSON_NUMBER || !n->is_integer || n->integer < 0 || n->integer > INT32_MAX)
        return wrong(r, key, "a token id");
    *id = n->integer;
    return 0;
}

/* An id, a list of ids, or null. */
static int read_ends(struct reading *r, const char *key)
{
    struct json_node *n;
    int rc = read_tree(r, &n);
    if (rc < 0 || n->kind == JSON_NULL)
        return rc;
    bool list = n->kind == JSON_ARRAY;
    for (const struct json_node *m = list ? n->child : n; m; m = list ? m->next : NULL) {
        int64_t id = -1;
        rc = one_id(r, key, m, &id);
        if (rc < 0)
            return rc;
        if (r->c->n_end == TOKENIZER_ENDS)
            return wrong(r, key,
                         "a list of at most "
                         "64"
                         " ids");
        r->c->end[r->c->n_end++] = id;
    }
    return 0;
}

static int read_bos_id(struct reading *r, const char *key)
{
    struct json_node *n;
    int64_t id = -1;
    int rc = read_tree(r, &n);
    if (rc < 0 || n->kind == JSON_NULL)
        return rc;
    if (n->kind == JSON_ARRAY && n->child && !n->child->next)
        rc = one_id(r, key, n->child, &id);
    else
        rc = one_id(r, key, n, &id);
    if (rc == 0 && r->c->bos_id < 0)
        r->c->bos_id = id;
    return rc;
}

/* --- added tokens --- */

static int extra_flag(struct json_pull *p, const char *key, bool *flag, struct leat_error *e)
{
    int ev = json_pull_next(p, e);
    if (ev < 0)
        return ev;
    if (ev != JSON_TRUE && ev != JSON_FALSE)
        return json_fail(p, e, LEAT_ERR_FORMAT, "\"%s\" of an added token is not true or false",
                         key);
    *flag = ev == JSON_TRUE;
    return 0;
}

static int extra_member(struct json_pull *p, const char *key, struct arena *a, int64_t *id,
                        struct token_extra *x, struct leat_error *e)
{
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {{"special", &x->special},
                 {"normalized", &x->normalized},
                 {"lstrip", &x->lstrip},
                 {"rstrip", &x->rstrip},
                 {"single_word", &x->single_word}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(key, flags[i].key) == 0)
            return extra_flag(p, flags[i].key, flags[i].flag, e);
    bool is_id = strcmp(key, "id") == 0;
    if (!is_id && strcmp(key, "content") != 0)
        return json_skip(p, e);
    int ev = json_pull_next(p, e);
    if (ev < 0)
        return ev;
    if (is_id) {
        if (ev != JSON_NUMBER || !p->is_integer || p->integer < 0)
            return json_fail(p, e, LEAT_ERR_FORMAT, "\"id\" of an added token is not an id");
        *id = p->integer;
        return 0;
    }
    if (ev != JSON_STRING || p->text_len == 0 || p->text_len > VOCAB_MAX_TOKEN)
        return json_fail(p, e, LEAT_ERR_FORMAT,
                         "\"content\" of an added token is not a text of 1 to %d bytes",
                         VOCAB_MAX_TOKEN);
    x->content_n = p->text_len;
    x->content = arena_copy(a, p->text, p->text_len, e);
    return x->content ? 0 : LEAT_ERR_MEMORY;
}

int token_extra_read(struct json_pull *p, int64_t id, struct arena *a, struct token_extra *x,
                     struct leat_error *e)
{
    bool normalized_said = false;
    *x = (struct token_extra){0};
    for (;;) {
        int ev = json_pull_next(p, e);
        if (ev < 0)
            return ev;
        if (ev == JSON_OBJECT_END)
            break;
        char key[32];
        snprintf(key, sizeof key, "%s", p->text); /* a longer key is none of ours */
        normalized_said = normalized_said || strcmp(key, "normalized") == 0;
        if (strcmp(key, "content") == 0 && x->content)
            return json_fail(p, e, LEAT_ERR_FORMAT, "\"content\" stands twice");
        int rc = extra_member(p, key, a, &id, x, e);
        if (rc < 0)
            return rc;
    }
    if (!x->content || id < 0)
        return json_fail(p, e, LEAT_ERR_FORMAT, "an added token without \"%s\"",
                         x->content ? "id" : "content");
    if (id >= VOCAB_MAX_IDS)
        return json_fail(p, e, LEAT_ERR_UNSUPPORTED,
                         "an added token has id %" PRId64 "; ids below %d are supported", id,
                         VOCAB_MAX_IDS);
    x->id = (int32_t)id;
    if (!normalized_said)
        x->normalized = !x->special;
    return 0;
}

/* {"ID": {...}, ...} */
static int read_decoder_entries(struct reading *r)
{
    struct json_pull *p = &r->file.pull;
    struct folder_config *c = r->c;
    int ev = json_pull_next(p, r->e);
    if (ev < 0 || ev == JSON_NULL)
        return ev < 0 ? ev : 0;
    if (ev != JSON_OBJECT)
        return wrong(r, "added_tokens_decoder", "an object");
    while ((ev = json_pull_next(p, r->e)) == JSON_KEY) {
        char *end = NULL;
        errno = 0;
        long long id = p->text[0] >= '0' && p->text[0] <= '9' ? strtoll(p->text, &end, 10) : -1;
        if (id < 0 || errno || end != p->text + p->text_len)
            return json_fail(p, r->e, LEAT_ERR_FORMAT,
                             "a key of \"added_tokens_decoder\" is not an id");
        ev = json_pull_next(p, r->e);
        if (ev < 0)
            return ev;
        if (ev != JSON_OBJECT)
            return wrong(r, "added_tokens_decoder", "an object of objects");
        struct token_extra *x =
            arena_alloc(c->arena, sizeof *x, _Alignof(struct token_extra), r->e);
        int rc = x ? token_extra_read(p, id, c->arena, x, r->e) : LEAT_ERR_MEMORY;
        if (rc < 0)
            return rc;
        if (c->extra_n == TOKENIZER_EXTRA)
            return wrong(r, "added_tokens_decoder", "a list of a reasonable length");
        *c->extra_tail = x;
        c->extra_tail = &x->next;
        c->extra_n++;
        c->extra_bytes += x->content_n;
    }
    return ev < 0 ? ev : 0;
}

/* --- files --- */

enum which { TOKENIZER_CONFIG, SPECIAL_MAP, GENERATION_CONFIG, MODEL_CONFIG };

static int read_member(struct reading *r, enum which which, const char *key)
{
    struct folder_config *c = r->c;
    if (which == TOKENIZER_CONFIG || which == SPECIAL_MAP) {
        if (strcmp(key, "bos_token") == 0)
            return read_token(r, key, &c->bos, &c->bos_n);
        if (strcmp(key, "eos_token") == 0)
            return read_token(r, key, &c->eos, &c->eos_n);
    }
    if (which == TOKENIZER_CONFIG) {
        if (strcmp(key, "add_bos_token") == 0)
            return read_flag(r, "add_bos_token", &c->add_bos);
        if (strcmp(key, "add_eos_token") == 0)
            return read_flag(r, "add_eos_token", &c->add_eos);
        if (strcmp(key, "added_tokens_decoder") == 0)
            return read_decoder_entries(r);
    }
    if (which == GENERATION_CONFIG || which == MODEL_CONFIG) {
        if (strcmp(key, "eos_token_id") == 0)
            return read_ends(r, "eos_token_id");
        if (strcmp(key, "bos_token_id") == 0)
            return read_bos_id(r, "bos_token_id");
    }
    return json_skip(&r->file.pull, r->e);
}

/* The members of an object whose opening was taken. text_config, the text part of a model of
 * several kinds of input, is read like the top. */
static int read_members(struct reading *r, enum which which)
{
    struct json_pull *p = &r->file.pull;
    int depth = 1;
    while (depth > 0) {
        int ev = json_pull_next(p, r->e);
        if (ev < 0)
            return ev;
        if (ev == JSON_OBJECT_END) {
            depth--;
            continue;
        }
        char key[32];
        snprintf(key, sizeof key, "%s", p->text);
        if (which != MODEL_CONFIG || depth > 1 || strcmp(key, "text_config") != 0) {
            int rc = read_member(r, which, key);
            if (rc < 0)
                return rc;
            continue;
        }
        ev = json_pull_next(p, r->e);
        if (ev < 0)
            return ev;
        if (ev != JSON_OBJECT && ev != JSON_NULL)
            return wrong(r, "text_config", "an object");
        depth += ev == JSON_OBJECT;
    }
    return 0;
}

static int read_file(struct folder_config *c, const char *folder, const char *name,
                     enum which which, struct leat_error *e)
{
    struct reading r = {.c = c, .e = e};
    char path[4200], q[300];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(e, LEAT_ERR_FILE, "%s: the path is too long",
                         error_quote(q, sizeof q, folder, strlen(folder)));
    /* Absent is one thing, a link whose target was not downloaded another: that one fails to open. */
    if (lstat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    int rc = json_file_open(&r.file, path, CONFIG_BYTES, e);
    if (rc < 0)
        return rc;
    int ev = json_pull_next(&r.file.pull, e);
    rc = ev < 0 ? ev
         : ev == JSON_OBJECT
             ? read_members(&r, which)
             : json_fail(&r.file.pull, e, LEAT_ERR_FORMAT, "the file does not hold an object");
    if (rc == 0) {
        ev = json_pull_next(&r.file.pull, e); /* nothing may follow */
        rc = ev < 0 ? ev : 0;
    }
    json_file_close(&r.file);
    return rc;
}

int folder_config_read(const char *folder, struct arena *a, struct folder_config *c,
                       struct leat_error *e)
{
    *c = (struct folder_config){.arena = a, .add_bos = -1, .add_eos = -1, .bos_id = -1};
    c->extra_tail = &c->extra;
    int rc = read_file(c, folder, "tokenizer_config.json", TOKENIZER_CONFIG, e);
    rc = rc < 0 ? rc : read_file(c, folder, "special_tokens_map.json", SPECIAL_MAP, e);
    rc = rc < 0 ? rc : read_file(c, folder, "generation_config.json", GENERATION_CONFIG, e);
    return rc < 0 ? rc : read_file(c, folder, "config.json", MODEL_CONFIG, e);
}

/* --- what they mean --- */

static int named_id(const struct tokenizer *t, const char *what, const char *s, size_t n,
                    const char *path, int32_t *id, struct leat_error *e)
{
    char q[120];
    if (!s || n == 0)
        return 0;
    *id = vocab_find(&t->vocab, s, n);
    if (*id < 0)
        return error_set(e, LEAT_ERR_FORMAT, "%s: its %s \"%s\" is not in the vocabulary", path,
                         what, error_quote(q, sizeof q, s, n));
    return 0;
}

/* Puts id first in (or takes it from the front of) the ids before a text; for the ids behind, last.
 */
static int around_set(int32_t *list, int32_t *n, int32_t id, bool wanted, bool behind)
{
    int32_t at = behind ? *n - 1 : 0;
    bool there = *n > 0 && list[at] == id;
    if (wanted == there || id < 0)
        return 0;
    if (!wanted) {
        memmove(list + at, list + at + 1, (size_t)(*n - at - 1) * sizeof *list);
        --*n;
        return 0;
    }
    if (*n == TOKENIZER_AROUND)
        return -1;
    if (!behind)
        memmove(list + 1, list, (size_t)*n * sizeof *list);
    list[behind ? *n : 0] = id;
    ++*n;
    return 0;
}

int folder_config_apply(const struct folder_config *c, struct tokenizer *t, const char *path,
                        struct leat_error *e)
{
    int rc = named_id(t, "bos_token", c->bos, c->bos_n, path, &t->bos, e);
    rc = rc < 0 ? rc : named_id(t, "eos_token", c->eos, c->eos_n, path, &t->eos, e);
    if (rc < 0)
        return rc;
    if (t->bos < 0 && vocab_has(&t->vocab, (int32_t)c->bos_id))
        t->bos = (int32_t)c->bos_id;
    if (t->bos < 0 && t->n_prefix > 0)
        t->bos = t->prefix[0];
    if (t->eos < 0 && c->n_end > 0 && vocab_has(&t->vocab, (int32_t)c->end[0]))
        t->eos = (int32_t)c->end[0];
    if (t->eos < 0 && t->n_suffix > 0)
        t->eos = t->suffix[t->n_suffix - 1];
    if ((c->add_bos == 1 && t->bos < 0) || (c->add_eos == 1 && t->eos < 0))
        return error_set(e, LEAT_ERR_FORMAT, "%s: %s is true, but no %s is named", path,
                         c->add_bos == 1 && t->bos < 0 ? "add_bos_token" : "add_eos_token",
                         c->add_bos == 1 && t->bos < 0 ? "bos_token" : "eos_token");
    if (c->add_bos >= 0)
        rc = around_set(t->prefix, &t->n_prefix, t->bos, c->add_bos == 1, false);
    if (c->add_eos >= 0)
        rc = rc < 0 ? rc : around_set(t->suffix, &t->n_suffix, t->eos, c->add_eos == 1, true);
    if (rc < 0)
        return error_set(e, LEAT_ERR_UNSUPPORTED, "%s: more than %d tokens around a text", path,
                         TOKENIZER_AROUND);
    stop_set_add(t, t->eos);
    for (int i = 0; i < c->n_end; i++)
        stop_set_add(t, c->end[i]);
    return 0;
}
