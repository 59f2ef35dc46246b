/* Trees of small JSON values, and the pull reader's view of a file. Knows no tokenizer. One thread.
 */
#include "json_tree.h"

#include <inttypes.h>
#include <string.h>

#include "../io/file.h"

#define STRING_LONGEST ((size_t)16 << 20)

static bool is_scalar(int event)
{
    return event == JSON_STRING || event == JSON_NUMBER || event == JSON_TRUE ||
           event == JSON_FALSE || event == JSON_NULL;
}

static struct json_node *node_new(struct json_pull *p, int event, struct arena *a,
                                  struct leat_error *e)
{
    struct json_node *n = arena_alloc(a, sizeof *n, _Alignof(struct json_node), e);
    if (!n)
        return NULL;
    n->kind = (enum json_event)event;
    if (event == JSON_STRING || event == JSON_NUMBER) {
        n->text_n = p->text_len;
        n->text = arena_copy(a, p->text, p->text_len, e);
        if (!n->text)
            return NULL;
    }
    if (event == JSON_NUMBER) {
        n->number = p->number;
        n->integer = p->integer;
        n->is_integer = p->is_integer;
    }
    return n;
}

/* Refused while the object is open: a search of its members, so objects are kept small. */
static int key_check(struct json_pull *p, const struct json_node *object, int64_t members,
                     struct leat_error *e)
{
    char q[120];
    if (members > 4096)
        return json_fail(p, e, LEAT_ERR_UNSUPPORTED,
                         "an object of over 4096 members does not belong here");
    for (const struct json_node *n = object->child; n; n = n->next)
        if (n->key_n == p->text_len && memcmp(n->key, p->text, p->text_len) == 0)
            return json_fail(p, e, LEAT_ERR_FORMAT, "key \"%s\" stands twice",
                             error_quote(q, sizeof q, p->text, p->text_len));
    return 0;
}

int json_tree_read(struct json_pull *p, struct arena *a, struct json_node **out,
                   struct leat_error *e)
{
    struct json_node *open[JSON_PULL_DEPTH + 1], *last[JSON_PULL_DEPTH + 1];
    int64_t members[JSON_PULL_DEPTH + 1];
    int depth = 0;
    const char *key = NULL;
    size_t key_n = 0;
    *out = NULL;
    for (int64_t count = 0;;) {
        int ev = json_pull_next(p, e);
        if (ev < 0)
            return ev;
        if (ev == JSON_KEY) {
            int rc = key_check(p, open[depth - 1], ++members[depth - 1], e);
            if (rc < 0)
                return rc;
            key_n = p->text_len;
            key = arena_copy(a, p->text, key_n, e);
            if (!key)
                return LEAT_ERR_MEMORY;
            continue;
        }
        if (ev == JSON_OBJECT_END || ev == JSON_ARRAY_END) {
            if (--depth == 0)
                return 0;
            continue;
        }
        if (!is_scalar(ev) && ev != JSON_OBJECT && ev != JSON_ARRAY)
            return json_fail(p, e, LEAT_ERR_FORMAT, "a value is missing");
        if (++count > JSON_TREE_NODES)
            return json_fail(p, e, LEAT_ERR_UNSUPPORTED,
                             "more values than a tokenizer's settings have");
        struct json_node *n = node_new(p, ev, a, e);
        if (!n)
            return LEAT_ERR_MEMORY;
        if (depth == 0) {
            *out = n;
        } else {
            if (open[depth - 1]->kind == JSON_OBJECT) {
                n->key = key;
                n->key_n = key_n;
            }
            if (last[depth - 1])
                last[depth - 1]->next = n;
            else
                open[depth - 1]->child = n;
            last[depth - 1] = n;
        }
        if (!is_scalar(ev)) {
            open[depth] = n;
            last[depth] = NULL;
            members[depth] = 0;
            depth++;
        } else if (depth == 0) {
            return 0;
        }
    }
}

const struct json_node *json_tree_get(const struct json_node *object, const char *key)
{
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    size_t n = strlen(key);
    for (const struct json_node *m = object->child; m; m = m->next)
        if (m->key_n == n && memcmp(m->key, key, n) == 0)
            return m;
    return NULL;
}

static int wrong(const char *owner, const char *key, const char *wanted, struct leat_error *e)
{
    return error_set(e, LEAT_ERR_FORMAT, "%s: \"%s\" is not %s", owner, key, wanted);
}

static const struct json_node *present(const struct json_node *o, const char *key)
{
    const struct json_node *n = json_tree_get(o, key);
    return n && n->kind != JSON_NULL ? n : NULL;
}

int json_tree_bool(const struct json_node *o, const char *key, const char *owner, bool *out,
                   struct leat_error *e)
{
    const struct json_node *n = present(o, key);
    if (!n)
        return 0;
    if (n->kind != JSON_TRUE && n->kind != JSON_FALSE)
        return wrong(owner, key, "true or false", e);
    *out = n->kind == JSON_TRUE;
    return 1;
}

int json_tree_string(const struct json_node *o, const char *key, const char *owner,
                     const struct json_node **out, struct leat_error *e)
{
    const struct json_node *n = present(o, key);
    if (!n)
        return 0;
    if (n->kind != JSON_STRING)
        return wrong(owner, key, "a string", e);
    *out = n;
    return 1;
}

int json_tree_integer(const struct json_node *o, const char *key, const char *owner, int64_t *out,
                      struct leat_error *e)
{
    const struct json_node *n = present(o, key);
    if (!n)
        return 0;
    if (n->kind != JSON_NUMBER || !n->is_integer)
        return wrong(owner, key, "an integer", e);
    *out = n->integer;
    return 1;
}

int json_tree_word(const struct json_node *o, const char *key, const char *owner, const char **out,
                   struct leat_error *e)
{
    const struct json_node *n = NULL;
    int rc = json_tree_string(o, key, owner, &n, e);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return error_set(e, LEAT_ERR_FORMAT, "%s: \"%s\" is missing", owner, key);
    if (memchr(n->text, '\0', n->text_n))
        return wrong(owner, key, "text without NUL", e);
    *out = n->text;
    return 0;
}

bool json_tree_is(const struct json_node *string, const char *text)
{
    size_t n = strlen(text);
    return string && string->kind == JSON_STRING && string->text_n == n &&
           memcmp(string->text, text, n) == 0;
}

/* --- files --- */

static int64_t file_source(void *arg, void *dst, size_t cap, struct leat_error *e)
{
    struct json_file *f = arg;
    uint64_t left = file_size(f->file) - f->offset;
    size_t n = left < cap ? (size_t)left : cap;
    int rc = n ? file_read(f->file, f->offset, dst, n, e) : 0;
    if (rc < 0)
        return rc;
    f->offset += n;
    return (int64_t)n;
}

int json_file_open(struct json_file *f, const char *path, uint64_t limit, struct leat_error *e)
{
    *f = (struct json_file){0};
    int rc = file_open(path, &f->file, e);
    if (rc < 0)
        return rc;
    char q[300], have[24], most[24];
    if (file_size(f->file) > limit)
        rc = error_set(e, LEAT_ERR_UNSUPPORTED,
                       "%s: %s is more than the %s that are read of such a file",
                       error_quote(q, sizeof q, path, strlen(path)),
                       format_bytes(have, sizeof have, file_size(f->file)),
                       format_bytes(most, sizeof most, limit));
    else
        rc = json_pull_open(&f->pull, path, file_source, f, STRING_LONGEST, e);
    if (rc < 0) {
        file_close(f->file);
        f->file = NULL;
    }
    return rc;
}

void json_file_close(struct json_file *f)
{
    if (!f->file)
        return;
    json_pull_close(&f->pull);
    file_drop_cache(f->file);
    file_close(f->file);
    f->file = NULL;
}
