/* See directory.h: the container-neutral list of tensors, and small path helpers. */
#include "directory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../base/checked.h"

struct tensor *directory_find(const struct directory *d, const char *name)
{
    int64_t i = name_index_find(&d->index, name);

    return i < 0 ? NULL : &d->tensors[i];
}

int directory_warn(struct directory *d, struct leat_error *e, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    char *copy;

    if (d->n_warnings > WARNINGS_MOST)
        return 0;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (d->n_warnings == WARNINGS_MOST)
        snprintf(text, sizeof text, "more warnings of this kind are not listed");
    if (d->n_warnings == d->cap_warnings) {
        int32_t cap = d->cap_warnings ? 2 * d->cap_warnings : 8;
        const char **grown = arena_array(d->arena, (uint64_t)cap, sizeof *grown, sizeof *grown, e);

        if (!grown)
            return LEAT_ERR_MEMORY;
        if (d->n_warnings)
            memcpy(grown, d->warnings, (size_t)d->n_warnings * sizeof *grown);
        d->warnings = grown;
        d->cap_warnings = cap;
    }
    copy = arena_copy(d->arena, text, strlen(text), e);
    if (!copy)
        return LEAT_ERR_MEMORY;
    d->warnings[d->n_warnings++] = copy;
    return 0;
}

int directory_finish(struct directory *d, struct leat_error *e)
{
    char name[200], a[300], b[300];
    int rc = name_index_init(&d->index, d->tensors, sizeof *d->tensors, (uint64_t)d->n_tensors,
                             d->arena, e);

    if (rc)
        return rc;
    d->total_bytes = 0;
    for (int64_t i = 0; i < d->n_tensors; i++) {
        const struct tensor *t = &d->tensors[i], *o;

        if (!checked_add(d->total_bytes, t->bytes, &d->total_bytes))
            return error_set(e, LEAT_ERR_FORMAT, "the tensors are more bytes than any drive holds");
        if (name_index_add(&d->index, (uint32_t)i))
            continue;
        o = directory_find(d, t->name);
        error_quote(name, sizeof name, t->name, strlen(t->name));
        error_quote(a, sizeof a, d->files[o->file].path, strlen(d->files[o->file].path));
        error_quote(b, sizeof b, d->files[t->file].path, strlen(d->files[t->file].path));
        return error_set(e, LEAT_ERR_FORMAT,
                         "tensor '%s' is in two files: %s and %s; remove one of them", name, a, b);
    }
    return 0;
}

void directory_close(struct directory *d)
{
    for (int32_t i = 0; i < d->n_files; i++) {
        file_close(d->files[i].file);
        d->files[i].file = NULL;
    }
    d->n_files = 0;
}

char *path_join(struct arena *a, const char *folder, const char *name, struct leat_error *e)
{
    size_t n = strlen(folder), m = strlen(name);
    char *s = arena_alloc(a, n + m + 2, 1, e);

    if (!s)
        return NULL;
    memcpy(s, folder, n);
    if (n == 0 || s[n - 1] != '/')
        s[n++] = '/';
    memcpy(s + n, name, m + 1);
    return s;
}

char *path_folder(struct arena *a, const char *path, struct leat_error *e)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return arena_copy(a, ".", 1, e);
    if (slash == path)
        return arena_copy(a, "/", 1, e);
    return arena_copy(a, path, (size_t)(slash - path), e);
}

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}
