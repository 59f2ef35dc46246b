/* A safetensors model as a directory: one file, or shards with or without an index, under
 * whatever names; or one lone file. Owns the checks of docs/malformed.md J1 and J2. Shards are
 * found by the names beside the named folder (so links of a Hugging Face cache work); what a
 * shard's own header says wins over the index. Knows nothing of config.json's content. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../base/json_pull.h"
#include "hf_index.h"
#include "safetensors.h"

#define SHARDS_MOST 4096
#define ONE_FILE    "model.safetensors"

struct shards { /* names of the files to open; owned */
    char **names;
    int32_t n, cap;
};

static const char *quote(char *q, size_t cap, const char *s)
{
    return error_quote(q, cap, s, strlen(s));
}

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);

    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static int shards_add(struct shards *s, const char *name, struct leat_error *e)
{
    if (s->n == SHARDS_MOST)
        return error_set(e, LEAT_ERR_UNSUPPORTED, "more than %d .safetensors files", SHARDS_MOST);
    if (s->n == s->cap) {
        int32_t cap = s->cap ? 2 * s->cap : 16;
        char **grown = realloc(s->names, (size_t)cap * sizeof *grown);

        if (!grown)
            return error_set(e, LEAT_ERR_MEMORY, "no memory to list shards");
        s->names = grown;
        s->cap = cap;
    }
    s->names[s->n] = strdup(name);
    if (!s->names[s->n])
        return error_set(e, LEAT_ERR_MEMORY, "no memory to list shards");
    s->n++;
    return 0;
}

static void shards_free(struct shards *s)
{
    for (int32_t i = 0; i < s->n; i++)
        free(s->names[i]);
    free(s->names);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* There as a file, or as a link whose target is gone. */
static bool is_named(const char *path, bool *dangling)
{
    struct stat st;

    *dangling = false;
    if (stat(path, &st) == 0)
        return true;
    *dangling = lstat(path, &st) == 0;
    return *dangling;
}

/* ---- which files ---- */

/* Without an index: every .safetensors file of the folder. Two kinds are something else when
 * ordinary names are there too: the same weights under the names of their first program, and
 * adapters. */
static int scan(const char *folder, struct shards *out, char *index, size_t index_cap,
                struct leat_error *e)
{
    struct shards others = {0};
    struct dirent *entry;
    DIR *dir = opendir(folder);
    char q[500];
    int rc = 0;

    index[0] = 0;
    if (!dir)
        return error_set_errno(e, LEAT_ERR_FILE, errno, "%s: cannot list the folder",
                               quote(q, sizeof q, folder));
    while (!rc && (entry = readdir(dir)) != NULL) {
        const char *n = entry->d_name;

        if (ends(n, ".safetensors.index.json") && (!index[0] || strcmp(n, index) < 0))
            snprintf(index, index_cap, "%s", n);
        if (!ends(n, ".safetensors"))
            continue;
        if (strncmp(n, "consolidated", 12) == 0 || strncmp(n, "adapter_", 8) == 0)
            rc = shards_add(&others, n, e);
        else
            rc = shards_add(out, n, e);
    }
    closedir(dir);
    if (!rc && out->n == 0) {
        struct shards none = *out;

        *out = others;
        others = none;
    }
    shards_free(&others);
    if (out->n > 1)
        qsort(out->names, (size_t)out->n, sizeof out->names[0], compare_names);
    return rc;
}

static int from_index(const struct hf_index *x, struct shards *out, struct leat_error *e)
{
    int rc = 0;

    for (int32_t i = 0; i < x->n_files && !rc; i++)
        rc = shards_add(out, x->files[i], e);
    return rc;
}

/* Decides the list; x is filled when an index was used. */
static int choose(struct directory *d, struct shards *out, struct hf_index *x, struct leat_error *e)
{
    struct shards found = {0};
    char index[256], q[300], q2[300];
    char *path = path_join(d->arena, d->folder, ONE_FILE, e);
    bool dangling, one;
    int rc;

    if (!path)
        return LEAT_ERR_MEMORY;
    one = is_named(path, &dangling);
    rc = scan(d->folder, &found, index, sizeof index, e);
    if (!rc && index[0]) {
        path = path_join(d->arena, d->folder, "model.safetensors.index.json", e);
        if (path && is_named(path, &dangling))
            snprintf(index, sizeof index, "model.safetensors.index.json");
        path = path_join(d->arena, d->folder, index, e);
        rc = path ? hf_index_read(path, d->arena, x, e) : LEAT_ERR_MEMORY;
    }
    if (!rc && one && x->n_files > 0 && !hf_index_has_file(x, ONE_FILE)) {
        rc = directory_warn(d, e, "%s is read and the index %s is not, though both are there",
                            ONE_FILE, quote(q, sizeof q, index));
        hf_index_forget(x);
    }
    if (!rc && x->n_files > 0)
        rc = from_index(x, out, e);
    else if (!rc && one)
        rc = shards_add(out, ONE_FILE, e);
    else if (!rc) {
        struct shards none = *out;

        *out = found;
        found = none;
    }
    shards_free(&found);
    if (!rc && out->n == 0)
        rc = error_set(e, LEAT_ERR_FILE, "%s: the folder holds no .safetensors file%s%s",
                       quote(q, sizeof q, d->folder), d->config ? " beside " : "",
                       d->config ? quote(q2, sizeof q2, path_base(d->config)) : "");
    return rc;
}

/* ---- are they there, and do they lie where they may ---- */

static int check_present(struct directory *d, const struct shards *s, struct leat_error *e)
{
    char list[900] = "", q[500];
    int32_t missing = 0, dangling = 0;
    size_t n = 0;

    for (int32_t i = 0; i < s->n; i++) {
        struct stat st;
        char *p = path_join(d->arena, d->folder, s->names[i], e);

        if (!p)
            return LEAT_ERR_MEMORY;
        if (stat(p, &st) == 0)
            continue;
        missing++;
        dangling += lstat(p, &st) == 0;
        if (n < sizeof list - 200)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "",
                                  quote(q, 140, s->names[i]));
        else if (n < sizeof list - 6)
            n += (size_t)snprintf(list + n, sizeof list - n, ", ..."), n = sizeof list;
    }
    if (missing == 0)
        return 0;
    return error_set(e, LEAT_ERR_FILE, "%s: %d of %d shards %s not there%s: %s",
                     quote(q, sizeof q, d->folder), missing, s->n, missing == 1 ? "is" : "are",
                     dangling == missing ? " (links that lead nowhere: not downloaded yet)"
                     : dangling          ? " (some are links that lead nowhere: not downloaded yet)"
                                         : "",
                     list);
}

/* An index comes from the network with the model and must not lead the reader elsewhere: a shard
 * that is a link has to end in the folder itself or where the index's own file really lies (the
 * cache keeps all of them in one place). */
static int check_links(struct directory *d, const struct shards *s, const char *index_path,
                       struct leat_error *e)
{
    char *home = realpath(d->folder, NULL), *index = realpath(index_path, NULL), *target = NULL;
    size_t n_home = home ? strlen(home) : 0, n_index = 0;
    char q[500], q2[500];
    int rc = home && index ? 0
                           : error_set_errno(e, LEAT_ERR_FILE, errno, "%s: cannot resolve the path",
                                             quote(q, sizeof q, d->folder));

    if (index)
        n_index = (size_t)(path_base(index) - index);
    for (int32_t i = 0; i < s->n && !rc; i++) {
        char *p = path_join(d->arena, d->folder, s->names[i], e);

        target = p ? realpath(p, NULL) : NULL;
        if (!target)
            rc = error_set_errno(e, LEAT_ERR_FILE, errno, "%s: cannot resolve the path",
                                 quote(q, sizeof q, s->names[i]));
        else if (!(strncmp(target, home, n_home) == 0 && target[n_home] == '/') &&
                 !(strncmp(target, index, n_index) == 0 && !strchr(target + n_index, '/')))
            rc = error_set(
                e, LEAT_ERR_FORMAT,
                "%s: the index names shard '%s', which is a link out of the folder; put the "
                "file itself there, or name the folder that holds all of them",
                quote(q, sizeof q, index_path), quote(q2, sizeof q2, s->names[i]));
        free(target);
    }
    free(home);
    free(index);
    return rc;
}

/* ---- reading ---- */

static int read_file(struct directory *d, const char *path, struct tensor_list *list,
                     struct leat_error *e)
{
    struct directory_file *f = &d->files[d->n_files];
    int64_t before = list->n;
    int rc = file_open(path, &f->file, e);

    if (rc)
        return rc;
    d->n_files++; /* from here the directory closes it */
    f->path = path;
    rc = safetensors_read(f->file, d->n_files - 1, d->arena, list, e);
    f->n_tensors = list->n - before;
    return rc;
}

static int take_list(struct directory *d, struct tensor_list *list, struct leat_error *e)
{
    d->tensors =
        arena_array(d->arena, (uint64_t)list->n, sizeof *d->tensors, _Alignof(struct tensor), e);
    d->meta = arena_array(d->arena, (uint64_t)list->n_meta, sizeof *d->meta,
                          _Alignof(struct text_pair), e);
    if (!d->tensors || !d->meta)
        return LEAT_ERR_MEMORY;
    if (list->n)
        memcpy(d->tensors, list->items, (size_t)list->n * sizeof *d->tensors);
    if (list->n_meta)
        memcpy(d->meta, list->meta, (size_t)list->n_meta * sizeof *d->meta);
    d->n_tensors = list->n;
    d->n_meta = list->n_meta;
    return directory_finish(d, e);
}

static int read_files(struct directory *d, char *const *paths, int32_t n, struct leat_error *e)
{
    struct tensor_list list = {0};
    int rc = 0;

    d->files =
        arena_array(d->arena, (uint64_t)n, sizeof *d->files, _Alignof(struct directory_file), e);
    if (!d->files)
        return LEAT_ERR_MEMORY;
    for (int32_t i = 0; i < n && !rc; i++)
        rc = read_file(d, paths[i], &list, e);
    if (!rc)
        rc = take_list(d, &list, e);
    free(list.items);
    free(list.meta);
    return rc;
}

/* The index against the headers, which win. */
static int compare_index(struct directory *d, const struct hf_index *x, struct leat_error *e)
{
    int64_t absent = 0, elsewhere = 0;
    const char *one = NULL;
    char q[300];
    int rc = 0;

    for (int64_t i = 0; i < x->n_entries; i++) {
        const struct tensor *t = directory_find(d, x->entries[i].name);

        absent += !t;
        if (t && t->file != x->entries[i].file)
            elsewhere++;
        if (!one && (!t || t->file != x->entries[i].file))
            one = x->entries[i].name;
    }
    if (one)
        rc = directory_warn(d, e,
                            "the index is wrong about %" PRId64 " tensors ('%s' is one): %" PRId64
                            " are in no shard, %" PRId64
                            " in another; the shards' own headers are used",
                            absent + elsewhere, quote(q, sizeof q, one), absent, elsewhere);
    if (!rc && d->n_tensors > x->n_entries - absent)
        rc =
            directory_warn(d, e, "the shards hold %" PRId64 " tensors that the index does not list",
                           d->n_tensors - (x->n_entries - absent));
    if (!rc && x->total_size >= 0 && (uint64_t)x->total_size != d->total_bytes)
        rc = directory_warn(
            d, e, "the index says a total size of %" PRId64 " bytes, but the shards hold %" PRIu64,
            x->total_size, d->total_bytes);
    return rc;
}

static int open_shards(struct directory *d, struct leat_error *e)
{
    struct shards s = {0};
    struct hf_index x = {.total_size = -1};
    char **paths = NULL;
    int rc = choose(d, &s, &x, e);

    if (!rc)
        rc = check_present(d, &s, e);
    if (!rc && x.n_files > 0)
        rc = check_links(d, &s, x.path, e);
    if (!rc) {
        paths = arena_array(d->arena, (uint64_t)s.n, sizeof *paths, sizeof *paths, e);
        rc = paths ? 0 : LEAT_ERR_MEMORY;
    }
    for (int32_t i = 0; i < s.n && !rc; i++) {
        paths[i] = path_join(d->arena, d->folder, s.names[i], e);
        rc = paths[i] ? 0 : LEAT_ERR_MEMORY;
    }
    if (!rc)
        rc = read_files(d, paths, s.n, e);
    if (!rc && x.n_files > 0)
        rc = compare_index(d, &x, e);
    shards_free(&s);
    return rc;
}

int directory_open_folder(const char *folder, struct arena *a, struct directory *d,
                          struct leat_error *e)
{
    struct stat st;
    char *config;
    int rc;

    d->arena = a;
    d->folder = arena_copy(a, folder, strlen(folder), e);
    config = d->folder ? path_join(a, folder, "config.json", e) : NULL;
    if (!config)
        return LEAT_ERR_MEMORY;
    if (lstat(config, &st) == 0) /* a link that leads nowhere is said when it is opened */
        d->config = config;
    rc = open_shards(d, e);
    if (rc)
        directory_close(d);
    return rc;
}

int directory_open_lone(const char *path, struct arena *a, struct directory *d,
                        struct leat_error *e)
{
    char *copy;
    int rc;

    d->arena = a;
    copy = arena_copy(a, path, strlen(path), e);
    rc = copy ? read_files(d, &copy, 1, e) : LEAT_ERR_MEMORY;
    if (rc)
        directory_close(d);
    return rc;
}
