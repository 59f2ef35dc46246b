/* A GGUF model as a directory: one file, or the parts NAME-00001-of-000NN.gguf of a split one,
 * whichever of them was named. Owns the checks of docs/malformed.md G43. Parts are looked for
 * beside the named path (a link's own folder, so that links of a Hugging Face cache work). Knows
 * split.* keys and general.architecture, nothing else. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../kernels/format.h"
#include "directory.h"

#define SPLIT_MOST 65535

struct split_name { /* PREFIX-00001-of-00005.gguf */
    size_t prefix;  /* bytes of the path up to the first '-' */
    uint32_t no, count;
};

static bool five_digits(const char *s, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)s[i]))
            return false;
        *out = *out * 10 + (uint32_t)(s[i] - '0');
    }
    return true;
}

/* Whether path ends in -NNNNN-of-NNNNN.gguf. */
static bool parse_split_name(const char *path, struct split_name *s)
{
    size_t n = strlen(path);
    const char *tail;

    if (n < 20)
        return false;
    tail = path + n - 20;
    if (tail[0] != '-' || memcmp(tail + 6, "-of-", 4) != 0 || strcmp(tail + 15, ".gguf") != 0)
        return false;
    s->prefix = n - 20;
    return five_digits(tail + 1, &s->no) && five_digits(tail + 10, &s->count) && s->no >= 1 &&
           s->count >= 1;
}

static int bad(const struct gguf *g, struct leat_error *e, int code, const char *text)
{
    char path[512];
    const char *p = file_path(g->file);

    return error_set(e, code, "%s: %s", error_quote(path, sizeof path, p, strlen(p)), text);
}

/* split.no and split.count of a part; 0 and 1 when absent. */
static int split_keys(const struct gguf *g, uint64_t *no, uint64_t *count, struct leat_error *e)
{
    int rc;

    *no = 0;
    *count = 1;
    rc = gguf_get_u64(g, "split.count", SPLIT_MOST, count, e);
    if (rc >= 0)
        rc = gguf_get_u64(g, "split.no", SPLIT_MOST, no, e);
    if (rc < 0)
        return rc;
    if (*count == 0)
        *count = 1;
    if (*no >= *count) {
        char text[120];
        snprintf(text, sizeof text, "split.no is %llu, but split.count is %llu",
                 (unsigned long long)*no, (unsigned long long)*count);
        return bad(g, e, LEAT_ERR_FORMAT, text);
    }
    return 0;
}

static char *part_path(struct arena *a, const char *path, const struct split_name *s, uint32_t no,
                       struct leat_error *e)
{
    char *p = arena_copy(a, path, strlen(path), e);
    char digits[6];

    if (!p)
        return NULL;
    snprintf(digits, sizeof digits, "%05u", no % 100000);
    memcpy(p + s->prefix + 1, digits, 5);
    return p;
}

/* All missing parts in one message. */
static int check_present(const char *path, const struct split_name *s, struct arena *a,
                         struct leat_error *e)
{
    char list[900] = "", q[300];
    uint32_t missing = 0, dangling = 0;

    for (uint32_t i = 1; i <= s->count; i++) {
        struct stat st;
        char *p = part_path(a, path, s, i, e);
        size_t used = strlen(list);

        if (!p)
            return LEAT_ERR_MEMORY;
        if (stat(p, &st) == 0)
            continue;
        missing++;
        dangling += lstat(p, &st) == 0;
        if (used < sizeof list - 200)
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                     error_quote(q, sizeof q, path_base(p), strlen(path_base(p))));
        else if (missing > 1000)
            break; /* enough to know; each name costs a look at the file system */
    }
    if (missing == 0)
        return 0;
    error_quote(q, sizeof q, path, strlen(path));
    return error_set(e, LEAT_ERR_FILE, "%s: %s%u of its %u parts %s not there: %s%s%s", q,
                     missing > 1000 ? "at least " : "", missing, s->count,
                     missing == 1 ? "is" : "are", list,
                     strlen(list) >= sizeof list - 200 ? ", ..." : "",
                     dangling ? " (a link without its target is a part not downloaded)" : "");
}

static void add_tensors(struct directory *d, const struct gguf *g, int32_t file)
{
    for (int64_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *s = &g->tensors[i];
        struct tensor *t = &d->tensors[d->n_tensors++];
        const struct format_info *f = format_info(s->type);

        t->name = s->name;
        t->file = file;
        t->format = s->type;
        t->type_name = f->name; /* gguf_open let no other type pass */
        t->n_dims = s->n_dims;
        for (int k = 0; k < TENSOR_DIMS; k++)
            t->dims[k] = k < 4 ? s->dims[k] : 1;
        t->offset = s->offset;
        t->bytes = s->bytes;
        t->row_bytes = s->row_bytes;
    }
}

static int same_architecture(const struct gguf *first, const struct gguf *g, struct leat_error *e)
{
    const struct gguf_kv *a = gguf_find(first, "general.architecture");
    const struct gguf_kv *b = gguf_find(g, "general.architecture");

    if (!a || !b || !a->str || !b->str || strcmp(a->str, b->str) == 0)
        return 0;
    return bad(g, e, LEAT_ERR_FORMAT,
               "this part has another general.architecture than the first part");
}

static int open_part(struct directory *d, const char *path, struct gguf **out, struct leat_error *e)
{
    struct directory_file *f = &d->files[d->n_files];
    int rc = gguf_open(path, true, d->arena, out, e);

    if (rc)
        return rc;
    f->file = (*out)->file; /* from here the directory closes it */
    f->path = file_path((*out)->file);
    f->trailing_bytes = (*out)->trailing_bytes;
    f->n_tensors = (*out)->n_tensors;
    d->n_files++;
    return 0;
}

/* Opens the other parts and checks that all belong together. parts[named] is open already as
 * file 0. */
static int open_parts(struct directory *d, const char *path, const struct split_name *s,
                      struct gguf **parts, struct leat_error *e)
{
    uint64_t no, count;
    char text[200];
    int rc;

    for (uint32_t i = 0; i < s->count; i++) {
        if (i + 1 != s->no) {
            char *p = part_path(d->arena, path, s, i + 1, e);

            rc = p ? open_part(d, p, &parts[i], e) : LEAT_ERR_MEMORY;
            if (rc)
                return rc;
        }
        rc = split_keys(parts[i], &no, &count, e);
        if (rc)
            return rc;
        if (count != s->count || no != i) {
            snprintf(text, sizeof text,
                     "its name says part %u of %u, but its keys say part %llu of %llu; it does not "
                     "belong here",
                     i + 1, s->count, (unsigned long long)no + 1, (unsigned long long)count);
            return bad(parts[i], e, LEAT_ERR_FORMAT, text);
        }
        rc = same_architecture(parts[0], parts[i], e);
        if (rc)
            return rc;
    }
    return 0;
}

/* Every part that says how many tensors all parts hold must be right. */
static int check_total(struct gguf **parts, uint32_t n, uint64_t total, struct leat_error *e)
{
    char text[200];

    for (uint32_t i = 0; i < n; i++) {
        uint64_t said = total;
        int rc = gguf_get_u64(parts[i], "split.tensors.count", INT32_MAX, &said, e);

        if (rc < 0)
            return rc;
        if (said != total) {
            snprintf(text, sizeof text,
                     "split.tensors.count is %llu, but the %u part%s hold%s %llu tensors",
                     (unsigned long long)said, n, n == 1 ? "" : "s", n == 1 ? "s" : "",
                     (unsigned long long)total);
            return bad(parts[i], e, LEAT_ERR_FORMAT, text);
        }
    }
    return 0;
}

static int fill(struct directory *d, struct gguf **parts, uint32_t n, struct leat_error *e)
{
    struct directory_file *ordered;
    uint64_t total = 0;
    int rc;

    for (uint32_t i = 0; i < n; i++)
        total += (uint64_t)parts[i]->n_tensors;
    rc = check_total(parts, n, total, e);
    if (rc)
        return rc;
    d->tensors = arena_array(d->arena, total, sizeof *d->tensors, _Alignof(struct tensor), e);
    ordered = arena_array(d->arena, n, sizeof *ordered, _Alignof(struct directory_file), e);
    if (!d->tensors || !ordered)
        return LEAT_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;

        while (d->files[k].file != parts[i]->file)
            k++;
        ordered[i] = d->files[k];
    }
    d->files = ordered;
    for (uint32_t i = 0; i < n; i++)
        add_tensors(d, parts[i], (int32_t)i);
    d->gguf = parts[0];
    return directory_finish(d, e);
}

int directory_open_gguf(const char *path, struct arena *a, struct directory *d,
                        struct leat_error *e)
{
    struct directory_file one = {0};
    struct split_name s = {0, 1, 1};
    struct gguf *named, **parts;
    uint64_t no, count;
    char text[200];
    int rc;

    d->arena = a;
    d->gguf_container = true;
    d->files = &one;
    rc = open_part(d, path, &named, e);
    if (!rc)
        rc = split_keys(named, &no, &count, e);
    if (!rc && count > 1) {
        if (!parse_split_name(path, &s) || s.count != count || s.no != no + 1) {
            snprintf(text, sizeof text,
                     "this is part %llu of %llu by its keys, but its name does not end in "
                     "-%05llu-of-%05llu.gguf, so "
                     "the other parts cannot be found",
                     (unsigned long long)no + 1, (unsigned long long)count,
                     (unsigned long long)no + 1, (unsigned long long)count);
            rc = bad(named, e, LEAT_ERR_FORMAT, text);
        } else {
            rc = check_present(path, &s, a, e);
        }
    }
    if (rc)
        goto fail;
    d->files = arena_array(a, s.count, sizeof *d->files, _Alignof(struct directory_file), e);
    parts = arena_array(a, s.count, sizeof(struct gguf *), sizeof(struct gguf *), e);
    if (!d->files || !parts) {
        d->files = &one;
        rc = LEAT_ERR_MEMORY;
        goto fail;
    }
    d->files[0] = one;
    parts[s.no - 1] = named;
    rc = open_parts(d, path, &s, parts, e);
    if (!rc)
        rc = fill(d, parts, s.count, e);
fail:
    if (rc)
        directory_close(d);
    if (d->files == &one)
        d->files = NULL;
    return rc;
}
