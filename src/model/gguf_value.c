/* Values of an open GGUF file: typed access by key, and array readers over one window.
 * Owns the conversion of value types; refuses to know what a key means. Thread rule: any thread; a
 * reader belongs to one thread. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_internal.h"

/* The longest string that is read from an array, and from a key: tokens and chat templates are far
 * below. */
#define ELEMENT_LONGEST (UINT64_C(1) << 20)
#define STRING_LONGEST  (UINT64_C(16) << 20)

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    const struct gguf_names *n = g->index;
    int64_t i = n ? name_index_find(&n->keys, key) : -1;

    return i < 0 ? NULL : &g->kv[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    const struct gguf_names *n = g->index;
    int64_t i = n ? name_index_find(&n->tensors, name) : -1;

    return i < 0 ? NULL : &g->tensors[i];
}

static const char *quote_path(const struct gguf *g, char *q, size_t cap)
{
    const char *path = file_path(g->file);

    return error_quote(q, cap, path, strlen(path));
}

static int wrong_type(const struct gguf *g, const struct gguf_kv *kv, const char *wanted,
                      struct leat_error *e)
{
    char path[512], key[200];

    return error_set(
        e, LEAT_ERR_FORMAT, "%s: key '%s' is of type %s, not %s", quote_path(g, path, sizeof path),
        error_quote(key, sizeof key, kv->key, strlen(kv->key)), gguf_type_name(kv->type), wanted);
}

static bool is_unsigned(enum gguf_type t)
{
    return t == GGUF_U8 || t == GGUF_U16 || t == GGUF_U32 || t == GGUF_U64;
}

static bool is_signed(enum gguf_type t)
{
    return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;
}

int gguf_get_u64(const struct gguf *g, const char *key, uint64_t max, uint64_t *out,
                 struct leat_error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    char path[512];

    if (!kv)
        return 0;
    if (is_signed(kv->type) && kv->v.i < 0)
        return error_set(e, LEAT_ERR_FORMAT, "%s: key '%s' is %" PRId64 ", which is negative",
                         quote_path(g, path, sizeof path), key, kv->v.i);
    if (!is_unsigned(kv->type) && !is_signed(kv->type))
        return wrong_type(g, kv, "an integer", e);
    if (kv->v.u > max) /* the bits of a signed value that is not negative read the same */
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: key '%s' is %" PRIu64 "; the most it may be is %" PRIu64,
                         quote_path(g, path, sizeof path), key, kv->v.u, max);
    *out = kv->v.u;
    return 1;
}

int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct leat_error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    char path[512];

    if (!kv)
        return 0;
    if (kv->type != GGUF_F32 && kv->type != GGUF_F64)
        return wrong_type(g, kv, "a floating-point number", e);
    if (!isfinite(kv->v.f) || !isfinite((float)kv->v.f))
        return error_set(e, LEAT_ERR_FORMAT, "%s: key '%s' is not a finite number",
                         quote_path(g, path, sizeof path), key);
    *out = (float)kv->v.f;
    return 1;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct leat_error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    if (!kv)
        return 0;
    if (kv->type != GGUF_BOOL)
        return wrong_type(g, kv, "a bool", e);
    *out = kv->v.u != 0;
    return 1;
}

int gguf_get_str(const struct gguf *g, const char *key, struct arena *a, const char **out,
                 size_t *len, struct leat_error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    char path[512];
    char *s;
    int rc;

    if (!kv)
        return 0;
    if (kv->type != GGUF_STRING)
        return wrong_type(g, kv, "a string", e);
    if (kv->count > STRING_LONGEST)
        return error_set(e, LEAT_ERR_UNSUPPORTED,
                         "%s: key '%s' is a string of %" PRIu64
                         " bytes; the longest that is read is %" PRIu64,
                         quote_path(g, path, sizeof path), key, kv->count, STRING_LONGEST);
    s = arena_alloc(a, (size_t)kv->count + 1, 1, e);
    if (!s)
        return LEAT_ERR_MEMORY;
    if (kv->str) {
        memcpy(s, kv->str, (size_t)kv->count);
    } else {
        rc = file_read(g->file, kv->offset, s, (size_t)kv->count, e);
        if (rc)
            return rc;
    }
    if (!len && memchr(s, 0, (size_t)kv->count))
        return error_set(e, LEAT_ERR_FORMAT, "%s: key '%s' is a string with a NUL inside",
                         quote_path(g, path, sizeof path), key);
    *out = s;
    if (len)
        *len = (size_t)kv->count;
    return 1;
}

/* ---- arrays ---- */

int gguf_array_open(const struct gguf *g, const struct gguf_kv *kv, struct gguf_array *r,
                    struct leat_error *e)
{
    memset(r, 0, sizeof *r);
    if (kv->type != GGUF_ARRAY)
        return wrong_type(g, kv, "an array", e);
    r->window = malloc(GGUF_WINDOW);
    if (!r->window)
        return error_set(e, LEAT_ERR_MEMORY, "no memory to read an array");
    r->kv = kv;
    r->left = kv->count;
    cursor_open(&r->cursor, g->file, kv->offset, kv->end, r->window, GGUF_WINDOW);
    return 0;
}

void gguf_array_close(struct gguf_array *r)
{
    if (r->window && r->cursor.file)
        file_drop_cache(r->cursor.file);
    free(r->window);
    free(r->across);
    memset(r, 0, sizeof *r);
}

static int wrong_element(const struct gguf_array *r, const char *wanted, struct leat_error *e)
{
    char path[512], key[200];
    const char *p = file_path(r->cursor.file);

    return error_set(e, LEAT_ERR_FORMAT, "%s: key '%s' is an array of %s, not of %s",
                     error_quote(path, sizeof path, p, strlen(p)),
                     error_quote(key, sizeof key, r->kv->key, strlen(r->kv->key)),
                     gguf_type_name(r->kv->elem), wanted);
}

/* An element of n bytes: in the window, or copied behind it when it lies across its end. */
static int element(struct gguf_array *r, size_t n, const uint8_t **out, struct leat_error *e)
{
    *out = cursor_take(&r->cursor, n);
    if (*out)
        return 0;
    if (n > r->across_cap) {
        size_t cap = r->across_cap ? r->across_cap : 256;
        uint8_t *grown;

        while (cap < n)
            cap *= 2;
        grown = realloc(r->across, cap);
        if (!grown)
            return error_set(e, LEAT_ERR_MEMORY, "no memory for a string of %zu bytes", n);
        r->across = grown;
        r->across_cap = cap;
    }
    *out = r->across;
    return cursor_read(&r->cursor, r->across, n, e);
}

int gguf_array_string(struct gguf_array *r, const char **text, size_t *len, struct leat_error *e)
{
    const uint8_t *p;
    uint64_t n = 0;
    int rc;

    if (r->kv->elem != GGUF_STRING)
        return wrong_element(r, "strings", e);
    if (r->left == 0)
        return 0;
    rc = element(r, 8, &p, e);
    if (rc)
        return rc;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | p[i];
    if (n > cursor_left(&r->cursor) || n > ELEMENT_LONGEST) {
        char key[200];
        return error_set(e, LEAT_ERR_FORMAT, "key '%s': a string of %" PRIu64 " bytes in an array",
                         error_quote(key, sizeof key, r->kv->key, strlen(r->kv->key)), n);
    }
    rc = element(r, (size_t)n, &p, e);
    if (rc)
        return rc;
    r->left--;
    *text = (const char *)p;
    *len = (size_t)n;
    return 1;
}

static int array_scalar(struct gguf_array *r, struct gguf_kv *v, struct leat_error *e)
{
    const uint8_t *p;
    int rc;

    if (r->left == 0)
        return 0;
    rc = element(r, (size_t)gguf_type_bytes(r->kv->elem), &p, e);
    if (rc)
        return rc;
    if (gguf_decode(r->kv->elem, p, v))
        return wrong_element(r, "bools (0 or 1)", e);
    r->left--;
    return 1;
}

int gguf_array_int(struct gguf_array *r, int64_t *out, struct leat_error *e)
{
    struct gguf_kv v = {0};
    enum gguf_type t = r->kv->elem;
    int rc;

    if (!is_unsigned(t) && !is_signed(t) && t != GGUF_BOOL)
        return wrong_element(r, "integers", e);
    rc = array_scalar(r, &v, e);
    if (rc <= 0)
        return rc;
    if (!is_signed(t) && v.v.u > INT64_MAX)
        return wrong_element(r, "integers below 2^63", e);
    *out = v.v.i;
    return 1;
}

int gguf_array_float(struct gguf_array *r, double *out, struct leat_error *e)
{
    struct gguf_kv v = {0};
    int rc;

    if (r->kv->elem != GGUF_F32 && r->kv->elem != GGUF_F64)
        return wrong_element(r, "floating-point numbers", e);
    rc = array_scalar(r, &v, e);
    if (rc > 0)
        *out = v.v.f;
    return rc;
}
