/* See hf_index.h. Reads through a window; refuses names that could lead out of the folder
 * (docs/malformed.md J1). */
#include "hf_index.h"

#include <stdlib.h>
#include <string.h>

#include "../base/json_pull.h"
#include "../io/file.h"
#include "name_index.h"

#define INDEX_BYTES  (UINT64_C(128) << 20)
#define ENTRIES_MOST 350000
#define FILES_MOST   4096
#define NAME_MOST    1024

struct reading {
    struct hf_index *x;
    struct arena *arena;
    struct file *file;
    uint64_t at;
    struct json_pull pull;
    struct hf_index_entry *entries; /* grows, owned */
    int64_t n, cap;
    const char *files[FILES_MOST];
    int32_t n_files;
    struct leat_error *e;
};

static int64_t feed(void *arg, void *dst, size_t cap, struct leat_error *e)
{
    struct reading *r = arg;
    uint64_t left = file_size(r->file) - r->at;
    size_t n = left < cap ? (size_t)left : cap;
    int rc = n ? file_read(r->file, r->at, dst, n, e) : 0;

    r->at += n;
    return rc ? rc : (int64_t)n;
}

static bool key_is(const struct reading *r, const char *word)
{
    return r->pull.text_len == strlen(word) && memcmp(r->pull.text, word, r->pull.text_len) == 0;
}

static int bad_shard(struct reading *r, const char *name, size_t n, const char *why)
{
    char q[300];

    return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "weight_map names the file '%s', which %s",
                     error_quote(q, sizeof q, name, n), why);
}

/* A plain name below the folder. */
static int check_shard(struct reading *r, const char *s, size_t n)
{
    if (n == 0 || n > NAME_MOST || !name_is_text(s, n))
        return bad_shard(r, s, n, "is no file name");
    if (s[0] == '/')
        return bad_shard(r, s, n, "is an absolute path");
    for (const char *p = s; p;) {
        const char *slash = strchr(p, '/');
        size_t len = slash ? (size_t)(slash - p) : strlen(p);

        if (len == 0 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return bad_shard(r, s, n, "leads out of the folder");
        p = slash ? slash + 1 : NULL;
    }
    if (n < 12 || strcmp(s + n - 12, ".safetensors") != 0)
        return bad_shard(r, s, n, "is no .safetensors file");
    return 0;
}

/* Index of the file in files; most tensors are in the file of the one before. */
static int file_of(struct reading *r, int32_t last, int32_t *out)
{
    const char *s = r->pull.text;
    int rc;

    if (last < r->n_files && strcmp(r->files[last], s) == 0 && strlen(s) == r->pull.text_len) {
        *out = last;
        return 0;
    }
    rc = check_shard(r, s, r->pull.text_len);
    if (rc)
        return rc;
    for (int32_t i = 0; i < r->n_files; i++)
        if (strcmp(r->files[i], s) == 0) {
            *out = i;
            return 0;
        }
    if (r->n_files == FILES_MOST)
        return json_fail(&r->pull, r->e, LEAT_ERR_UNSUPPORTED, "more than %d shards", FILES_MOST);
    r->files[r->n_files] = arena_copy(r->arena, s, r->pull.text_len, r->e);
    if (!r->files[r->n_files])
        return LEAT_ERR_MEMORY;
    *out = r->n_files++;
    return 0;
}

static int new_entry(struct reading *r, struct hf_index_entry **out)
{
    if (r->n == ENTRIES_MOST)
        return json_fail(&r->pull, r->e, LEAT_ERR_UNSUPPORTED, "more than %d tensors",
                         ENTRIES_MOST);
    if (r->pull.text_len > NAME_MOST || !name_is_text(r->pull.text, r->pull.text_len))
        return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT,
                         "a tensor name that is too long or holds a NUL");
    if (r->n == r->cap) {
        int64_t cap = r->cap ? 2 * r->cap : 256;
        struct hf_index_entry *grown = realloc(r->entries, (size_t)cap * sizeof *grown);

        if (!grown)
            return error_set(r->e, LEAT_ERR_MEMORY, "no memory to read an index");
        r->entries = grown;
        r->cap = cap;
    }
    *out = &r->entries[r->n];
    (*out)->name = arena_copy(r->arena, r->pull.text, r->pull.text_len, r->e);
    if (!(*out)->name)
        return LEAT_ERR_MEMORY;
    r->n++;
    return 0;
}

static int read_map(struct reading *r)
{
    int event = json_pull_next(&r->pull, r->e), rc;
    struct hf_index_entry *entry;
    int32_t last = 0;
    char q[200];

    if (event < 0)
        return event;
    if (event != JSON_OBJECT)
        return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "weight_map is not an object");
    for (;;) {
        event = json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event == JSON_OBJECT_END)
            return 0;
        rc = new_entry(r, &entry);
        if (rc)
            return rc;
        event = json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event != JSON_STRING)
            return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT,
                             "weight_map: the file of '%s' is not a string",
                             error_quote(q, sizeof q, r->entries[r->n - 1].name,
                                         strlen(r->entries[r->n - 1].name)));
        rc = file_of(r, last, &last);
        if (rc)
            return rc;
        r->entries[r->n - 1].file = last;
    }
}

static int read_metadata(struct reading *r)
{
    int event = json_pull_next(&r->pull, r->e), rc;

    if (event < 0)
        return event;
    if (event != JSON_OBJECT)
        return event == JSON_NULL
                   ? 0
                   : json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "metadata is not an object");
    for (;;) {
        event = json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event == JSON_OBJECT_END)
            return 0;
        if (!key_is(r, "total_size")) {
            rc = json_skip(&r->pull, r->e);
            if (rc)
                return rc;
            continue;
        }
        event = json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event != JSON_NUMBER || r->pull.number < 0 || r->pull.number > 9e18)
            return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT,
                             "metadata.total_size is not a number of bytes");
        r->x->total_size = r->pull.is_integer ? r->pull.integer : (int64_t)r->pull.number;
    }
}

static int read_top(struct reading *r)
{
    bool map = false, meta = false;
    int event = json_pull_next(&r->pull, r->e), rc;

    if (event < 0)
        return event;
    if (event != JSON_OBJECT)
        return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "the index is not an object");
    for (;;) {
        event = json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event == JSON_OBJECT_END)
            break;
        if ((key_is(r, "weight_map") && map) || (key_is(r, "metadata") && meta))
            return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "duplicate field '%s'",
                             map ? "weight_map" : "metadata");
        if (key_is(r, "weight_map")) {
            map = true;
            rc = read_map(r);
        } else if (key_is(r, "metadata")) {
            meta = true;
            rc = read_metadata(r);
        } else {
            rc = json_skip(&r->pull, r->e);
        }
        if (rc)
            return rc;
    }
    if (!map || r->n == 0)
        return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "the index has no weight_map");
    event = json_pull_next(&r->pull, r->e); /* the end */
    return event < 0 ? event : 0;
}

static int take(struct reading *r)
{
    struct hf_index *x = r->x;
    struct name_index names = {0};
    struct arena scratch;
    char q[300];
    int rc;

    x->entries = arena_array(r->arena, (uint64_t)r->n, sizeof *x->entries,
                             _Alignof(struct hf_index_entry), r->e);
    x->files =
        arena_array(r->arena, (uint64_t)r->n_files, sizeof *x->files, sizeof *x->files, r->e);
    if (!x->entries || !x->files)
        return LEAT_ERR_MEMORY;
    memcpy(x->entries, r->entries, (size_t)r->n * sizeof *x->entries);
    memcpy(x->files, r->files, (size_t)r->n_files * sizeof *x->files);
    x->n_entries = r->n;
    x->n_files = r->n_files;
    arena_init(&scratch, NULL, ROW_MODEL);
    rc = name_index_init(&names, x->entries, sizeof *x->entries, (uint64_t)r->n, &scratch, r->e);
    for (int64_t i = 0; i < r->n && !rc; i++)
        if (!name_index_add(&names, (uint32_t)i))
            rc =
                json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "duplicate tensor '%s'",
                          error_quote(q, sizeof q, x->entries[i].name, strlen(x->entries[i].name)));
    arena_close(&scratch);
    return rc;
}

int hf_index_read(const char *path, struct arena *a, struct hf_index *x, struct leat_error *e)
{
    struct reading *r = calloc(1, sizeof *r); /* too large for the stack */
    char q[500];
    int rc;

    if (!r)
        return error_set(e, LEAT_ERR_MEMORY, "no memory to read an index");
    r->x = x;
    r->arena = a;
    r->e = e;
    x->path = path;
    x->total_size = -1;
    rc = file_open(path, &r->file, e);
    if (!rc && file_size(r->file) > INDEX_BYTES)
        rc = error_set(e, LEAT_ERR_FORMAT, "%s: an index of %llu bytes",
                       error_quote(q, sizeof q, path, strlen(path)),
                       (unsigned long long)file_size(r->file));
    if (!rc)
        rc = json_pull_open(&r->pull, path, feed, r, 4 * NAME_MOST, e);
    if (!rc) {
        rc = read_top(r);
        if (!rc)
            rc = take(r);
        json_pull_close(&r->pull);
    }
    if (r->file) {
        file_drop_cache(r->file);
        file_close(r->file);
    }
    free(r->entries);
    free(r);
    return rc;
}

bool hf_index_has_file(const struct hf_index *x, const char *name)
{
    for (int32_t i = 0; i < x->n_files; i++)
        if (strcmp(x->files[i], name) == 0)
            return true;
    return false;
}

void hf_index_forget(struct hf_index *x)
{
    x->n_files = 0;
    x->n_entries = 0;
    x->total_size = -1;
}
