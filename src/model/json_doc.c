/* See json_doc.h. */
#include "json_doc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/json_pull.h"
#include "../io/file.h"

#define DOC_BYTES  (UINT64_C(1) << 20)
#define DOC_VALUES 65536
#define DOC_PATH   512

struct flatten { /* the reading in progress */
    struct json_doc *doc;
    struct arena *arena;
    struct json_pull pull;
    struct json_value *values; /* grows, owned */
    int64_t n, cap;
    char path[DOC_PATH];
    size_t len; /* of path */
    struct leat_error *e;
};

static int fail(struct flatten *f, const char *what)
{
    char q[200];

    return json_fail(&f->pull, f->e, LEAT_ERR_FORMAT, "field '%s': %s",
                     error_quote(q, sizeof q, f->path, f->len), what);
}

static int append_key(struct flatten *f, const char *key, size_t n)
{
    size_t dot = f->len > 0;

    if (!name_is_text(key, n))
        return fail(f, "a key with a NUL inside");
    if (f->len + dot + n >= sizeof f->path)
        return fail(f, "the keys down to here are too long");
    if (dot)
        f->path[f->len++] = '.';
    memcpy(f->path + f->len, key, n);
    f->len += n;
    f->path[f->len] = 0;
    return 0;
}

/* Index in values, negative on failure. */
static int64_t add(struct flatten *f, enum json_kind kind)
{
    struct json_value *v;

    if (f->n == DOC_VALUES)
        return fail(f, "more values than a configuration has");
    if (f->n == f->cap) {
        int64_t cap = f->cap ? 2 * f->cap : 256;
        struct json_value *grown = realloc(f->values, (size_t)cap * sizeof *grown);

        if (!grown)
            return error_set(f->e, LEAT_ERR_MEMORY, "no memory to read a configuration");
        f->values = grown;
        f->cap = cap;
    }
    v = &f->values[f->n];
    memset(v, 0, sizeof *v);
    v->kind = kind;
    v->path = arena_copy(f->arena, f->path, f->len, f->e);
    if (!v->path)
        return LEAT_ERR_MEMORY;
    return f->n++;
}

static int add_scalar(struct flatten *f, int event)
{
    int64_t i = add(f, event == JSON_NULL     ? JSON_IS_NULL
                       : event == JSON_NUMBER ? JSON_IS_NUMBER
                       : event == JSON_STRING ? JSON_IS_STRING
                                              : JSON_IS_BOOL);
    struct json_value *v;

    if (i < 0)
        return (int)i;
    v = &f->values[i];
    v->truth = event == JSON_TRUE;
    if (event != JSON_NUMBER && event != JSON_STRING)
        return 0;
    v->number = f->pull.number;
    v->whole = event == JSON_NUMBER && f->pull.is_integer;
    v->integer = f->pull.integer;
    v->text = arena_copy(f->arena, f->pull.text, f->pull.text_len, f->e);
    return v->text ? 0 : LEAT_ERR_MEMORY;
}

/* The open containers, so that nothing recurses. */
struct open_container {
    int64_t index;
    size_t len; /* of the path without members */
    bool array;
};

static int walk(struct flatten *f)
{
    struct open_container open[JSON_PULL_DEPTH + 1];
    int depth = 0, rc;

    for (;;) {
        int event = json_pull_next(&f->pull, f->e);
        struct open_container *o = depth ? &open[depth - 1] : NULL;

        if (event < 0)
            return event;
        if (event == JSON_END)
            return 0;
        if (event == JSON_OBJECT_END || event == JSON_ARRAY_END) {
            depth--;
            continue;
        }
        if (o && (event == JSON_KEY || o->array)) { /* the path of the value that comes */
            char number[32];

            f->len = o->len;
            f->path[f->len] = 0;
            if (event == JSON_KEY) {
                rc = append_key(f, f->pull.text, f->pull.text_len);
            } else {
                snprintf(number, sizeof number, "[%" PRId64 "]", f->values[o->index].count);
                rc = f->len + strlen(number) >= sizeof f->path
                         ? fail(f, "the keys down to here are too long")
                         : 0;
                if (!rc) {
                    memcpy(f->path + f->len, number, strlen(number) + 1);
                    f->len += strlen(number);
                }
            }
            f->values[o->index].count++;
            if (rc)
                return rc;
            if (event == JSON_KEY)
                continue;
        }
        if (event == JSON_OBJECT || event == JSON_ARRAY) {
            int64_t i = add(f, event == JSON_OBJECT ? JSON_IS_OBJECT : JSON_IS_ARRAY);

            if (i < 0)
                return (int)i;
            open[depth++] = (struct open_container){i, f->len, event == JSON_ARRAY};
        } else {
            rc = add_scalar(f, event);
            if (rc)
                return rc;
        }
    }
}

static int index_values(struct flatten *f)
{
    struct json_doc *doc = f->doc;
    int rc;

    doc->values = arena_array(f->arena, (uint64_t)f->n, sizeof *doc->values,
                              _Alignof(struct json_value), f->e);
    if (!doc->values)
        return LEAT_ERR_MEMORY;
    memcpy(doc->values, f->values, (size_t)f->n * sizeof *doc->values);
    doc->n = f->n;
    rc = name_index_init(&doc->index, doc->values, sizeof *doc->values, (uint64_t)f->n, f->arena,
                         f->e);
    for (int64_t i = 0; i < f->n && !rc; i++)
        if (!name_index_add(&doc->index, (uint32_t)i)) {
            char q[200];

            rc = error_set(
                f->e, LEAT_ERR_FORMAT, "%s: duplicate field '%s'", doc->name,
                error_quote(q, sizeof q, doc->values[i].path, strlen(doc->values[i].path)));
        }
    return rc;
}

int json_doc_open(const char *path, struct arena *a, struct json_doc *d, struct leat_error *e)
{
    struct flatten f = {.doc = d, .arena = a, .e = e};
    struct file *file;
    char quoted[500];
    void *bytes = NULL;
    uint64_t size;
    int rc = file_open(path, &file, e);

    if (rc)
        return rc;
    memset(d, 0, sizeof *d);
    size = file_size(file);
    error_quote(quoted, sizeof quoted, path, strlen(path));
    d->name = arena_copy(a, quoted, strlen(quoted), e);
    if (!d->name) {
        rc = LEAT_ERR_MEMORY;
    } else if (size > DOC_BYTES) {
        rc = error_set(e, LEAT_ERR_FORMAT,
                       "%s: %llu bytes, more than a configuration has (the limit is %llu)", d->name,
                       (unsigned long long)size, (unsigned long long)DOC_BYTES);
    } else {
        bytes = malloc((size_t)size + 1);
        rc = bytes ? file_read(file, 0, bytes, (size_t)size, e)
                   : error_set(e, LEAT_ERR_MEMORY, "no memory to read %s", d->name);
    }
    file_drop_cache(file);
    file_close(file);
    if (!rc)
        rc = json_pull_open_memory(&f.pull, path, bytes, (size_t)size, (size_t)DOC_BYTES, e);
    if (!rc) {
        rc = walk(&f);
        json_pull_close(&f.pull);
    }
    if (!rc)
        rc = index_values(&f);
    free(f.values);
    free(bytes);
    return rc;
}

const struct json_value *json_doc_find(const struct json_doc *d, const char *path)
{
    int64_t i = name_index_find(&d->index, path);

    return i < 0 ? NULL : &d->values[i];
}
