/* See safetensors.h. Strict as the reference reader: the tensors must cover the data exactly, in
 * order, without hole or overlap; unlike it, a duplicate name is said to be one. Thread rule:
 * pure but for the file. */
#include "safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/json_pull.h"
#include "../kernels/format.h"

#define HEADER_MOST UINT64_C(100000000) /* the reference reader's limit */
#define TENSORS_MOST                                                                               \
    350000 /* twice the largest model known; bounds what a hostile header can ask for */
#define NAME_MOST   1024
#define META_MOST   4096
#define STRING_MOST ((size_t)16 << 20)
#define META_SHOWN  4096 /* bytes of a metadata value that are kept */

struct dtype {
    const char *name;
    uint32_t bits, format;
};

static const struct dtype dtypes[] = {
    {"BOOL", 8, FORMAT_FOREIGN},    {"F4", 4, FORMAT_FOREIGN},      {"F6_E2M3", 6, FORMAT_FOREIGN},
    {"F6_E3M2", 6, FORMAT_FOREIGN}, {"U8", 8, FORMAT_FOREIGN},      {"I8", 8, FORMAT_I8},
    {"F8_E5M2", 8, FORMAT_FOREIGN}, {"F8_E4M3", 8, FORMAT_FOREIGN}, {"F8_E8M0", 8, FORMAT_FOREIGN},
    {"I16", 16, FORMAT_I16},        {"U16", 16, FORMAT_FOREIGN},    {"F16", 16, FORMAT_F16},
    {"BF16", 16, FORMAT_BF16},      {"I32", 32, FORMAT_I32},        {"U32", 32, FORMAT_FOREIGN},
    {"F32", 32, FORMAT_F32},        {"C64", 64, FORMAT_FOREIGN},    {"F64", 64, FORMAT_F64},
    {"I64", 64, FORMAT_I64},        {"U64", 64, FORMAT_FOREIGN},
};

struct reader { /* one header in progress */
    struct file *file;
    int32_t file_index;
    struct arena *arena;
    struct tensor_list *list;
    int64_t first;       /* of this file in the list */
    uint64_t at, end;    /* of the header's bytes still to be fed */
    uint64_t data, size; /* where tensor data starts; of the file */
    struct json_pull pull;
    bool meta_seen;
    struct leat_error *e;
};

static const char *quote_path(const struct reader *r, char *q, size_t cap)
{
    const char *p = file_path(r->file);

    return error_quote(q, cap, p, strlen(p));
}

static int bad(struct reader *r, const char *text)
{
    char q[512];

    return error_set(r->e, LEAT_ERR_FORMAT, "%s: %s", quote_path(r, q, sizeof q), text);
}

static int64_t feed(void *arg, void *dst, size_t cap, struct leat_error *e)
{
    struct reader *r = arg;
    uint64_t left = r->end - r->at;
    size_t n = left < cap ? (size_t)left : cap;
    int rc = n ? file_read(r->file, r->at, dst, n, e) : 0;

    r->at += n;
    return rc ? rc : (int64_t)n;
}

/* The place of an error: the tensor's quoted name and a text. */
static int bad_tensor(struct reader *r, const struct tensor *t, const char *text)
{
    char q[300];

    return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "tensor '%s': %s",
                     error_quote(q, sizeof q, t->name, strlen(t->name)), text);
}

/* Whether the present key is exactly this word. */
static bool key_is(const struct reader *r, const char *word)
{
    return r->pull.text_len == strlen(word) && memcmp(r->pull.text, word, r->pull.text_len) == 0;
}

static const struct dtype *dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

static int read_dtype(struct reader *r, struct tensor *t, const struct dtype **out)
{
    char q[80], name[300];
    int event = json_pull_next(&r->pull, r->e);

    if (event < 0)
        return event;
    if (event != JSON_STRING)
        return bad_tensor(r, t, "dtype is not a string");
    *out = strlen(r->pull.text) == r->pull.text_len ? dtype_find(r->pull.text) : NULL;
    if (*out)
        return 0;
    return json_fail(
        &r->pull, r->e, LEAT_ERR_UNSUPPORTED,
        "tensor '%s': dtype '%s' is not known to this build (F32, F16, BF16 and 17 others are)",
        error_quote(name, sizeof name, t->name, strlen(t->name)),
        error_quote(q, sizeof q, r->pull.text, r->pull.text_len));
}

/* A list of whole numbers >= 0; at most `most` of them. */
static int read_numbers(struct reader *r, const struct tensor *t, const char *what, uint64_t *out,
                        int most, int *n)
{
    char text[200], q[60];
    int event = json_pull_next(&r->pull, r->e);

    *n = 0;
    if (event >= 0 && event != JSON_ARRAY) {
        snprintf(text, sizeof text, "%s is not a list", what);
        return bad_tensor(r, t, text);
    }
    for (;;) {
        event = event < 0 ? event : json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event == JSON_ARRAY_END)
            return 0;
        if (event != JSON_NUMBER || !r->pull.is_integer || r->pull.integer < 0) {
            snprintf(text, sizeof text, "%s holds %s, which is not a whole number of 0 to 2^63 - 1",
                     what,
                     event == JSON_NUMBER ? error_quote(q, sizeof q, r->pull.text, r->pull.text_len)
                                          : "something else than numbers");
            return bad_tensor(r, t, text);
        }
        if (*n == most) {
            snprintf(text, sizeof text, "%s has more than %d numbers", what, most);
            return bad_tensor(r, t, text);
        }
        out[(*n)++] = (uint64_t)r->pull.integer;
    }
}

/* Shape (outermost first) to dims (innermost first), and bytes from them. */
static int set_shape(struct reader *r, struct tensor *t, const struct dtype *dt,
                     const uint64_t *shape, int n)
{
    uint64_t count = 1, bits, row;

    t->n_dims = n;
    for (int i = 0; i < TENSOR_DIMS; i++)
        t->dims[i] = i < n ? shape[n - 1 - i] : 1;
    for (int i = 0; i < n; i++)
        if (!checked_mul(count, shape[i], &count))
            return bad_tensor(r, t, "the number of values is too large");
    if (!checked_mul(count, dt->bits, &bits))
        return bad_tensor(r, t, "the number of bytes is too large");
    if (bits % 8)
        return bad_tensor(r, t, "its bits are not a whole number of bytes");
    t->format = dt->format;
    t->type_name = dt->name;
    t->bytes = bits / 8;
    row = t->dims[0] * dt->bits; /* no overflow unless another dimension is 0 */
    t->row_bytes = count && row % 8 == 0 ? row / 8 : 0;
    return 0;
}

static int set_place(struct reader *r, struct tensor *t, const uint64_t *range, int n)
{
    uint64_t data = r->size - r->data;
    char text[240];

    if (n != 2)
        return bad_tensor(r, t, "data_offsets is not a pair of numbers");
    if (range[0] > range[1])
        return bad_tensor(r, t, "data_offsets ends before it begins");
    if (range[1] > data) {
        snprintf(text, sizeof text,
                 "its data end at %" PRIu64 ", but the file holds %" PRIu64
                 " bytes of data: it is not complete",
                 range[1], data);
        return bad_tensor(r, t, text);
    }
    if (range[1] - range[0] != t->bytes) {
        snprintf(text, sizeof text,
                 "data_offsets span %" PRIu64 " bytes, but shape and dtype %s ask for %" PRIu64,
                 range[1] - range[0], t->type_name, t->bytes);
        return bad_tensor(r, t, text);
    }
    t->offset = r->data + range[0];
    return 0;
}

static int read_tensor(struct reader *r, struct tensor *t)
{
    const struct dtype *dt = NULL;
    uint64_t shape[TENSOR_DIMS], range[2];
    int n_shape = -1, n_range = -1, event = json_pull_next(&r->pull, r->e), rc = 0;

    if (event < 0)
        return event;
    if (event != JSON_OBJECT)
        return bad_tensor(r, t, "is not described by an object");
    for (;;) {
        event = json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event == JSON_OBJECT_END)
            break;
        if ((key_is(r, "dtype") && dt) || (key_is(r, "shape") && n_shape >= 0) ||
            (key_is(r, "data_offsets") && n_range >= 0))
            return bad_tensor(r, t, "a field comes twice");
        if (key_is(r, "dtype"))
            rc = read_dtype(r, t, &dt);
        else if (key_is(r, "shape"))
            rc = read_numbers(r, t, "shape", shape, TENSOR_DIMS, &n_shape);
        else if (key_is(r, "data_offsets"))
            rc = read_numbers(r, t, "data_offsets", range, 2, &n_range);
        else
            rc = json_skip(&r->pull, r->e);
        if (rc)
            return rc;
    }
    if (!dt || n_shape < 0 || n_range < 0)
        return bad_tensor(r, t,
                          !dt           ? "dtype is missing"
                          : n_shape < 0 ? "shape is missing"
                                        : "data_offsets is missing");
    rc = set_shape(r, t, dt, shape, n_shape);
    return rc ? rc : set_place(r, t, range, n_range);
}

static int new_tensor(struct reader *r)
{
    struct tensor_list *l = r->list;
    struct tensor *t;
    char q[100];

    if (r->pull.text_len > NAME_MOST)
        return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT,
                         "a tensor name of %zu bytes (the limit is %d)", r->pull.text_len,
                         NAME_MOST);
    if (!name_is_text(r->pull.text, r->pull.text_len))
        return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "tensor name '%s' has a NUL inside",
                         error_quote(q, sizeof q, r->pull.text, r->pull.text_len));
    if (l->n == TENSORS_MOST)
        return json_fail(&r->pull, r->e, LEAT_ERR_UNSUPPORTED, "more than %d tensors",
                         TENSORS_MOST);
    if (l->n == l->cap) {
        int64_t cap = l->cap ? 2 * l->cap : 64;
        struct tensor *grown = realloc(l->items, (size_t)cap * sizeof *grown);

        if (!grown)
            return bad(r, "no memory for its tensors");
        l->items = grown;
        l->cap = cap;
    }
    t = &l->items[l->n];
    memset(t, 0, sizeof *t);
    t->file = r->file_index;
    t->name = arena_copy(r->arena, r->pull.text, r->pull.text_len, r->e);
    if (!t->name)
        return LEAT_ERR_MEMORY;
    l->n++;
    return read_tensor(r, t);
}

static int keep_meta(struct reader *r, const char *key, const char *value, size_t n)
{
    struct tensor_list *l = r->list;
    struct text_pair *m;

    if (l->n_meta == META_MOST)
        return 0;
    if (l->n_meta == l->cap_meta) {
        int64_t cap = l->cap_meta ? 2 * l->cap_meta : 16;
        struct text_pair *grown = realloc(l->meta, (size_t)cap * sizeof *grown);

        if (!grown)
            return bad(r, "no memory for its metadata");
        l->meta = grown;
        l->cap_meta = cap;
    }
    m = &l->meta[l->n_meta++];
    m->key = key;
    m->value = arena_copy(r->arena, value, n < META_SHOWN ? n : META_SHOWN, r->e);
    return m->value ? 0 : LEAT_ERR_MEMORY;
}

/* __metadata__: an object of strings; null counts as absent. */
static int read_meta(struct reader *r)
{
    int event = json_pull_next(&r->pull, r->e), rc;

    if (event < 0)
        return event;
    if (r->meta_seen)
        return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "duplicate key '__metadata__'");
    r->meta_seen = true;
    if (event == JSON_NULL)
        return 0;
    if (event != JSON_OBJECT)
        return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT,
                         "__metadata__ is not an object of strings");
    for (;;) {
        const char *key;
        char q[100];

        event = json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event == JSON_OBJECT_END)
            return 0;
        key = arena_copy(r->arena, r->pull.text, r->pull.text_len, r->e);
        if (!key)
            return LEAT_ERR_MEMORY;
        event = json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event != JSON_STRING)
            return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "__metadata__ '%s' is not a string",
                             error_quote(q, sizeof q, key, strlen(key)));
        rc = keep_meta(r, key, r->pull.text, r->pull.text_len);
        if (rc)
            return rc;
    }
}

static int read_object(struct reader *r)
{
    int event = json_pull_next(&r->pull, r->e), rc;

    if (event < 0)
        return event;
    if (event != JSON_OBJECT)
        return json_fail(&r->pull, r->e, LEAT_ERR_FORMAT, "the header is not a JSON object");
    for (;;) {
        event = json_pull_next(&r->pull, r->e);
        if (event < 0)
            return event;
        if (event == JSON_OBJECT_END)
            break;
        rc = key_is(r, "__metadata__") ? read_meta(r) : new_tensor(r);
        if (rc)
            return rc;
    }
    event = json_pull_next(&r->pull, r->e);
    return event < 0 ? event : 0;
}

static int check_names(struct reader *r)
{
    struct name_index index = {0};
    struct arena scratch;
    const struct tensor *first = r->list->items + r->first;
    uint64_t n = (uint64_t)(r->list->n - r->first);
    char q[300], text[400];
    int rc;

    arena_init(&scratch, NULL, ROW_MODEL);
    rc = name_index_init(&index, first, sizeof *first, n, &scratch, r->e);
    for (uint64_t i = 0; i < n && !rc; i++)
        if (!name_index_add(&index, (uint32_t)i)) {
            snprintf(text, sizeof text, "duplicate tensor '%s'",
                     error_quote(q, sizeof q, first[i].name, strlen(first[i].name)));
            rc = bad(r, text);
        }
    arena_close(&scratch);
    return rc;
}

static int by_place(const void *a, const void *b)
{
    const struct tensor *x = *(const struct tensor *const *)a,
                        *y = *(const struct tensor *const *)b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The data must be covered exactly: holes and overlaps could hide a second file in this one. */
static int check_cover(struct reader *r)
{
    uint64_t n = (uint64_t)(r->list->n - r->first), at = r->data;
    const struct tensor **order = malloc((size_t)(n ? n : 1) * sizeof *order);
    char q[300], text[500];
    int rc = 0;

    if (!order)
        return bad(r, "no memory to check its tensors");
    for (uint64_t i = 0; i < n; i++)
        order[i] = &r->list->items[r->first + (int64_t)i];
    qsort(order, (size_t)n, sizeof *order, by_place);
    for (uint64_t i = 0; i < n && !rc; i++) {
        const struct tensor *t = order[i];

        if (t->offset != at) {
            snprintf(text, sizeof text,
                     "tensor '%s' starts at data offset %" PRIu64
                     ", but the data before it end at %" PRIu64 ": %s",
                     error_quote(q, sizeof q, t->name, strlen(t->name)), t->offset - r->data,
                     at - r->data, t->offset < at ? "they overlap" : "a hole, which is not legal");
            rc = bad(r, text);
        }
        at = t->offset + t->bytes;
    }
    free(order);
    if (!rc && at != r->size) {
        snprintf(text, sizeof text, "%" PRIu64 " bytes follow the last tensor, which is not legal",
                 r->size - at);
        rc = bad(r, text);
    }
    return rc;
}

/* Length word and limits, before anything is allocated. */
static int read_length(struct reader *r, uint64_t *length)
{
    unsigned char b[8], last;
    char text[240];
    int rc;

    r->size = file_size(r->file);
    if (r->size < sizeof b) {
        snprintf(text, sizeof text,
                 "not a safetensors file: %" PRIu64 " bytes, less than the length of its header",
                 r->size);
        return bad(r, text);
    }
    rc = file_read(r->file, 0, b, sizeof b, r->e);
    if (rc)
        return rc;
    *length = 0;
    for (int i = 7; i >= 0; i--)
        *length = *length << 8 | b[i];
    if (*length > HEADER_MOST || *length > r->size - sizeof b) {
        snprintf(text, sizeof text,
                 "not a safetensors file: its header would be %" PRIu64 " bytes, but %s %" PRIu64,
                 *length, *length > HEADER_MOST ? "the limit is" : "the file has",
                 *length > HEADER_MOST ? HEADER_MOST : r->size);
        return bad(r, text);
    }
    if (*length < 2)
        return bad(r, "not a safetensors file: its header is empty");
    rc = file_read(r->file, sizeof b + *length - 1, &last, 1, r->e);
    if (rc)
        return rc;
    if (last == 0)
        return bad(r, "the header is padded with NUL bytes; only spaces are legal there");
    return 0;
}

int safetensors_read(struct file *f, int32_t file, struct arena *a, struct tensor_list *list,
                     struct leat_error *e)
{
    struct reader r = {
        .file = f, .file_index = file, .arena = a, .list = list, .first = list->n, .e = e};
    uint64_t length = 0;
    int rc = read_length(&r, &length);

    if (rc)
        return rc;
    r.at = 8;
    r.end = r.data = 8 + length;
    rc = json_pull_open(&r.pull, file_path(f), feed, &r, STRING_MOST, e);
    if (rc)
        return rc;
    rc = read_object(&r);
    json_pull_close(&r.pull);
    if (!rc)
        rc = check_names(&r);
    if (!rc)
        rc = check_cover(&r);
    file_drop_cache(f);
    return rc;
}
