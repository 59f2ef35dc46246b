/* Opens a GGUF file: header, keys, tensor table. Owns the checks of docs/malformed.md G1 to G39:
 * every count, length, offset and product is checked before it is used, and no memory is obtained
 * that the file's size does not justify. The header passes through one window; arrays are stepped
 * over, never held. Refuses to know what any key means but general.alignment and
 * general.architecture's type. Values are read in gguf_value.c. Thread rule: gguf_open by one
 * thread; the result is immutable. */
#include "gguf.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/checked.h"
#include "../kernels/format.h"
#include "gguf_internal.h"

/* Smallest records, in bytes: key length 8, key 1, type 4, value 1; name length 8, name 1,
 * dimensions 4, one dimension 8, type 4, offset 8. */
#define KV_LEAST     UINT64_C(14)
#define TENSOR_LEAST UINT64_C(33)
/* Limits of ours, far above any model known; they bound the memory a hostile file can ask for. */
#define KV_MOST        UINT64_C(262144)
#define TENSOR_MOST    UINT64_C(262144)
#define KEY_LENGTH     UINT64_C(65535) /* the specification's own limit */
#define NAME_LENGTH    UINT64_C(63)
#define ALIGNMENT_MOST (UINT64_C(1) << 20)
#define STEPS_MOST                                                                                 \
    (UINT64_C(1) << 25) /* strings and bools in arrays, each of which has to be looked at */
#define HELD_STRING UINT64_C(4096)
#define HELD_TOTAL  (UINT64_C(8) << 20)

struct header { /* the parse in progress */
    struct gguf *g;
    struct gguf_names *names;
    struct arena *arena;
    struct file_cursor cur;
    uint64_t held;  /* bytes of strings held */
    uint64_t steps; /* array elements looked at one by one */
    bool allow_foreign;
    struct leat_error *e;
};

static int bad(struct header *h, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int bad(struct header *h, int code, const char *fmt, ...)
{
    char text[1536], path[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    error_quote(path, sizeof path, file_path(h->g->file), strlen(file_path(h->g->file)));
    return error_set(h->e, code, "%s: %s", path, text);
}

#define ULL(x) ((unsigned long long)(x))

static uint32_t le32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t le64(const unsigned char *p)
{
    return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

static int read_u32(struct header *h, uint32_t *out)
{
    unsigned char b[4];
    int rc = cursor_read(&h->cur, b, sizeof b, h->e);

    if (rc == 0)
        *out = le32(b);
    return rc;
}

static int read_u64(struct header *h, uint64_t *out)
{
    unsigned char b[8];
    int rc = cursor_read(&h->cur, b, sizeof b, h->e);

    if (rc == 0)
        *out = le64(b);
    return rc;
}

/* Bytes of one value of a type; 0 for strings and arrays. */
uint64_t gguf_type_bytes(enum gguf_type t)
{
    switch (t) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL:
        return 1;
    case GGUF_U16:
    case GGUF_I16:
        return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32:
        return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64:
        return 8;
    case GGUF_STRING:
    case GGUF_ARRAY:
        break;
    }
    return 0;
}

const char *gguf_type_name(enum gguf_type t)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};

    return (unsigned)t < sizeof names / sizeof names[0] ? names[t] : "?";
}

const char *gguf_types_that_run(char *dst, size_t cap)
{
    size_t n = 0;

    dst[0] = 0;
    for (uint32_t id = 0; id < FORMAT_LIMIT && n < cap; id++) {
        const struct format_info *f = format_info(id);

        if (f && f->runs)
            n += (size_t)snprintf(dst + n, cap - n, "%s%s", n ? ", " : "", f->name);
    }
    return dst;
}

/* Sets v from the little-endian bytes of one value. */
int gguf_decode(enum gguf_type t, const unsigned char *b, struct gguf_kv *kv)
{
    uint32_t u32;
    uint64_t u64;
    float f;
    double d;

    switch (t) {
    case GGUF_U8:
        kv->v.u = b[0];
        return 0;
    case GGUF_BOOL:
        kv->v.u = b[0];
        return b[0] > 1 ? LEAT_ERR_FORMAT : 0;
    case GGUF_I8:
        kv->v.i = (int8_t)b[0];
        return 0;
    case GGUF_U16:
        kv->v.u = (uint64_t)b[0] | (uint64_t)b[1] << 8;
        return 0;
    case GGUF_I16:
        kv->v.i = (int16_t)((uint16_t)b[0] | (uint16_t)(b[1] << 8));
        return 0;
    case GGUF_U32:
        kv->v.u = le32(b);
        return 0;
    case GGUF_I32:
        kv->v.i = (int32_t)le32(b);
        return 0;
    case GGUF_U64:
        kv->v.u = le64(b);
        return 0;
    case GGUF_I64:
        kv->v.i = (int64_t)le64(b);
        return 0;
    case GGUF_F32:
        u32 = le32(b);
        memcpy(&f, &u32, sizeof f);
        kv->v.f = (double)f;
        return 0;
    case GGUF_F64:
        u64 = le64(b);
        memcpy(&d, &u64, sizeof d);
        kv->v.f = d;
        return 0;
    case GGUF_STRING:
    case GGUF_ARRAY:
        break;
    }
    return LEAT_ERR_INTERNAL;
}

/* ---- keys ---- */

static int read_key(struct header *h, int64_t i, struct gguf_kv *kv)
{
    uint64_t len;
    char *key;
    int rc = read_u64(h, &len);

    if (rc)
        return rc;
    if (len == 0)
        return bad(h, LEAT_ERR_FORMAT, "key %lld has an empty name", (long long)i);
    if (len > cursor_left(&h->cur))
        return bad(h, LEAT_ERR_FORMAT, "key %lld: name of %llu bytes, but only %llu bytes are left",
                   (long long)i, ULL(len), ULL(cursor_left(&h->cur)));
    if (len > KEY_LENGTH)
        return bad(h, LEAT_ERR_FORMAT, "key %lld: name of %llu bytes (the limit is %llu)",
                   (long long)i, ULL(len), ULL(KEY_LENGTH));
    key = arena_alloc(h->arena, (size_t)len + 1, 1, h->e);
    if (!key)
        return LEAT_ERR_MEMORY;
    rc = cursor_read(&h->cur, key, (size_t)len, h->e);
    if (rc)
        return rc;
    if (!name_is_text(key, (size_t)len)) {
        char q[128];
        return bad(h, LEAT_ERR_FORMAT, "key %lld: name '%s' is not UTF-8 text without NUL",
                   (long long)i, error_quote(q, sizeof q, key, (size_t)len));
    }
    kv->key = key;
    return 0;
}

static int read_string_value(struct header *h, struct gguf_kv *kv, const char *key)
{
    uint64_t len;
    char *s;
    int rc = read_u64(h, &len);

    if (rc)
        return rc;
    if (len > cursor_left(&h->cur))
        return bad(h, LEAT_ERR_FORMAT,
                   "key '%s': string of %llu bytes, but only %llu bytes are left", key, ULL(len),
                   ULL(cursor_left(&h->cur)));
    kv->count = len;
    kv->offset = h->cur.offset;
    if (len > HELD_STRING || h->held + len > HELD_TOTAL)
        return cursor_skip(&h->cur, len, h->e);
    s = arena_alloc(h->arena, (size_t)len + 1, 1, h->e);
    if (!s)
        return LEAT_ERR_MEMORY;
    rc = cursor_read(&h->cur, s, (size_t)len, h->e);
    h->held += len;
    kv->str = s;
    return rc;
}

/* Steps over the elements and checks what cannot be checked by arithmetic: string lengths and
 * bools. */
static int walk_array(struct header *h, const struct gguf_kv *kv, const char *key)
{
    uint64_t size = gguf_type_bytes(kv->elem), bytes;
    int rc;

    if ((size == 0 || kv->elem == GGUF_BOOL) && kv->count > STEPS_MOST - h->steps)
        return bad(h, LEAT_ERR_UNSUPPORTED,
                   "key '%s': %llu elements are too many; the arrays of a file may hold %llu "
                   "strings and bools in all",
                   key, ULL(kv->count), ULL(STEPS_MOST));
    h->steps += size == 0 || kv->elem == GGUF_BOOL ? kv->count : 0;
    if (kv->elem == GGUF_BOOL) {
        for (uint64_t left = kv->count, at = 0; left > 0;) {
            unsigned char b[512];
            size_t n = left < sizeof b ? (size_t)left : sizeof b;

            rc = cursor_read(&h->cur, b, n, h->e);
            if (rc)
                return rc;
            for (size_t i = 0; i < n; i++)
                if (b[i] > 1)
                    return bad(h, LEAT_ERR_FORMAT,
                               "key '%s': element %llu is %u, not a bool (0 or 1)", key,
                               ULL(at + i), b[i]);
            left -= n;
            at += n;
        }
        return 0;
    }
    if (size > 0) {
        if (!checked_mul(kv->count, size, &bytes))
            return LEAT_ERR_FORMAT; /* excluded by the check of the count */
        return cursor_skip(&h->cur, bytes, h->e);
    }
    for (uint64_t i = 0; i < kv->count; i++) {
        const unsigned char *p = cursor_take(&h->cur, 8);
        uint64_t len;

        if (p)
            len = le64(p);
        else if ((rc = read_u64(h, &len)))
            return rc;
        if (len > cursor_left(&h->cur))
            return bad(h, LEAT_ERR_FORMAT,
                       "key '%s': string %llu of %llu bytes, but only %llu bytes are left", key,
                       ULL(i), ULL(len), ULL(cursor_left(&h->cur)));
        if (!cursor_take(&h->cur, len) && (rc = cursor_skip(&h->cur, len, h->e)))
            return rc;
    }
    return 0;
}

static int read_array(struct header *h, struct gguf_kv *kv, const char *key)
{
    uint32_t elem;
    uint64_t least, need;
    int rc = read_u32(h, &elem);

    if (!rc)
        rc = read_u64(h, &kv->count);
    if (rc)
        return rc;
    if (elem == GGUF_ARRAY)
        return bad(h, LEAT_ERR_FORMAT, "key '%s': an array of arrays, which GGUF files do not hold",
                   key);
    if (elem > GGUF_F64)
        return bad(h, LEAT_ERR_FORMAT, "key '%s': array of unknown value type %u", key, elem);
    kv->elem = (enum gguf_type)elem;
    kv->offset = h->cur.offset;
    least = kv->elem == GGUF_STRING ? 8 : gguf_type_bytes(kv->elem);
    if (!checked_mul(kv->count, least, &need) || need > cursor_left(&h->cur))
        return bad(h, LEAT_ERR_FORMAT,
                   "key '%s': array of %llu %s values, but only %llu bytes are left", key,
                   ULL(kv->count), gguf_type_name(kv->elem), ULL(cursor_left(&h->cur)));
    return walk_array(h, kv, key);
}

static int read_kv(struct header *h, int64_t i)
{
    struct gguf_kv *kv = &h->g->kv[i];
    unsigned char b[8];
    char key[160];
    uint32_t type;
    int rc = read_key(h, i, kv);

    if (!rc)
        rc = read_u32(h, &type);
    if (rc)
        return rc;
    error_quote(key, sizeof key, kv->key, strlen(kv->key));
    if (!name_index_add(&h->names->keys, (uint32_t)i))
        return bad(h, LEAT_ERR_FORMAT, "duplicate key '%s'", key);
    if (type > GGUF_F64)
        return bad(h, LEAT_ERR_FORMAT, "key '%s': unknown value type %u", key, type);
    kv->type = (enum gguf_type)type;
    kv->offset = h->cur.offset;
    if (kv->type == GGUF_STRING) {
        rc = read_string_value(h, kv, key);
    } else if (kv->type == GGUF_ARRAY) {
        rc = read_array(h, kv, key);
    } else {
        rc = cursor_read(&h->cur, b, (size_t)gguf_type_bytes(kv->type), h->e);
        if (!rc && gguf_decode(kv->type, b, kv))
            rc = bad(h, LEAT_ERR_FORMAT, "key '%s' is %u, not a bool (0 or 1)", key, b[0]);
    }
    kv->end = h->cur.offset;
    return rc;
}

static int check_general(struct header *h)
{
    const struct gguf_kv *a = gguf_find(h->g, "general.architecture");
    const struct gguf_kv *al = gguf_find(h->g, "general.alignment");

    if (a && a->type != GGUF_STRING)
        return bad(h, LEAT_ERR_FORMAT, "key 'general.architecture' is of type %s, not a string",
                   gguf_type_name(a->type));
    h->g->alignment = 32;
    if (!al)
        return 0;
    if (al->type != GGUF_U32)
        return bad(h, LEAT_ERR_FORMAT, "key 'general.alignment' is of type %s, not u32",
                   gguf_type_name(al->type));
    if (al->v.u == 0 || (al->v.u & (al->v.u - 1)) != 0)
        return bad(h, LEAT_ERR_FORMAT, "key 'general.alignment' is %llu, not a power of two",
                   ULL(al->v.u));
    if (al->v.u > ALIGNMENT_MOST)
        return bad(h, LEAT_ERR_FORMAT,
                   "key 'general.alignment' is %llu; the largest accepted is %llu", ULL(al->v.u),
                   ULL(ALIGNMENT_MOST));
    h->g->alignment = al->v.u;
    return 0;
}

/* ---- tensors ---- */

static int check_type(struct header *h, struct gguf_tensor *t, const char *name)
{
    const struct format_info *f = format_info(t->type);
    const char *foreign, *why = NULL;
    char known[300];

    if (f && (f->runs || h->allow_foreign))
        return 0;
    foreign = format_foreign_name(t->type, &why);
    gguf_types_that_run(known, sizeof known);
    if (foreign)
        return bad(h, LEAT_ERR_UNSUPPORTED,
                   "tensor '%s' is of type %s (%u): %s. The file is well formed up to here; this "
                   "build runs %s",
                   name, foreign, t->type, why ? why : "not supported by this build", known);
    return bad(h, LEAT_ERR_UNSUPPORTED,
               "tensor '%s' is of type number %d, which no GGUF version known to this build "
               "defines; the file may come "
               "from a newer or another program. This build runs %s",
               name, (int)t->type, known);
}

/* Row and tensor bytes; every product checked before it is made. */
static int check_shape(struct header *h, struct gguf_tensor *t, const char *name)
{
    const struct format_info *f = format_info(t->type);
    uint64_t n = 1;

    for (int d = 0; d < 4; d++)
        if (!checked_mul(n, t->dims[d], &n) || n > INT64_MAX)
            return bad(h, LEAT_ERR_FORMAT,
                       "tensor '%s': the number of values %llu x %llu x %llu x %llu is too large",
                       name, ULL(t->dims[0]), ULL(t->dims[1]), ULL(t->dims[2]), ULL(t->dims[3]));
    if (t->dims[0] % (uint64_t)f->block)
        return bad(h, LEAT_ERR_FORMAT,
                   "tensor '%s': rows of %llu values are not whole blocks of %d (%s)", name,
                   ULL(t->dims[0]), f->block, f->name);
    if (!checked_mul(t->dims[0] / (uint64_t)f->block, (uint64_t)f->block_bytes, &t->row_bytes) ||
        !checked_mul(t->row_bytes, n / t->dims[0], &t->bytes) || t->bytes > INT64_MAX)
        return bad(h, LEAT_ERR_FORMAT,
                   "tensor '%s': %llu values of %s are more bytes than any file holds", name,
                   ULL(n), f->name);
    return 0;
}

static int read_tensor_name(struct header *h, int64_t i, struct gguf_tensor *t)
{
    char name[NAME_LENGTH + 1], q[300];
    uint64_t len;
    int rc = read_u64(h, &len);

    if (rc)
        return rc;
    if (len == 0)
        return bad(h, LEAT_ERR_FORMAT, "tensor %lld has an empty name", (long long)i);
    if (len > NAME_LENGTH)
        return bad(h, LEAT_ERR_FORMAT, "tensor %lld: name of %llu bytes (the limit is %llu)",
                   (long long)i, ULL(len), ULL(NAME_LENGTH));
    rc = cursor_read(&h->cur, name, (size_t)len, h->e);
    if (rc)
        return rc;
    error_quote(q, sizeof q, name, (size_t)len);
    if (!name_is_text(name, (size_t)len))
        return bad(h, LEAT_ERR_FORMAT, "tensor %lld: name '%s' is not UTF-8 text without NUL",
                   (long long)i, q);
    t->name = arena_copy(h->arena, name, (size_t)len, h->e);
    if (!t->name)
        return LEAT_ERR_MEMORY;
    if (!name_index_add(&h->names->tensors, (uint32_t)i))
        return bad(h, LEAT_ERR_FORMAT, "duplicate tensor '%s'", q);
    return 0;
}

static int read_tensor(struct header *h, int64_t i)
{
    struct gguf_tensor *t = &h->g->tensors[i];
    char name[300];
    uint32_t n_dims;
    int rc = read_tensor_name(h, i, t);

    if (!rc)
        rc = read_u32(h, &n_dims);
    if (rc)
        return rc;
    error_quote(name, sizeof name, t->name, strlen(t->name));
    if (n_dims < 1 || n_dims > 4)
        return bad(h, LEAT_ERR_FORMAT, "tensor '%s' has %u dimensions (1 to 4 are legal)", name,
                   n_dims);
    t->n_dims = (int32_t)n_dims;
    for (int d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d >= t->n_dims)
            continue;
        rc = read_u64(h, &t->dims[d]);
        if (rc)
            return rc;
        if (t->dims[d] == 0)
            return bad(h, LEAT_ERR_FORMAT, "tensor '%s': dimension %d is 0", name, d);
        if (t->dims[d] > INT64_MAX)
            return bad(h, LEAT_ERR_FORMAT, "tensor '%s': dimension %d is %llu, too large", name, d,
                       ULL(t->dims[d]));
    }
    rc = read_u32(h, &t->type);
    if (!rc)
        rc = read_u64(h, &t->offset);
    if (!rc)
        rc = check_type(h, t, name);
    if (!rc)
        rc = check_shape(h, t, name);
    return rc;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;

    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Places: aligned, inside the file, disjoint. Turns offsets into file offsets. */
static int place_tensors(struct header *h)
{
    struct gguf *g = h->g;
    uint64_t size = file_size(g->file), header_end = h->cur.offset, data, end, last = 0;
    const struct gguf_tensor **order;
    char q[300], q2[300];
    int rc = 0;

    if (!checked_align(header_end, g->alignment, &g->data_start))
        return bad(h, LEAT_ERR_FORMAT, "the header ends at %llu, past any data", ULL(header_end));
    if (g->n_tensors == 0) {
        g->trailing_bytes = size > g->data_start ? size - g->data_start : 0;
        return 0;
    }
    if (g->data_start > size)
        return bad(
            h, LEAT_ERR_FORMAT,
            "the file is cut short: tensor data starts at byte %llu, but the file has %llu bytes",
            ULL(g->data_start), ULL(size));
    data = size - g->data_start;
    order = malloc((size_t)g->n_tensors * sizeof *order);
    if (!order)
        return bad(h, LEAT_ERR_MEMORY, "no memory to sort %lld tensors", (long long)g->n_tensors);
    for (int64_t i = 0; i < g->n_tensors && !rc; i++) {
        struct gguf_tensor *t = &g->tensors[i];

        error_quote(q, sizeof q, t->name, strlen(t->name));
        if (t->offset % g->alignment)
            rc = bad(h, LEAT_ERR_FORMAT,
                     "tensor '%s': offset %llu is not a multiple of the alignment %llu", q,
                     ULL(t->offset), ULL(g->alignment));
        else if (t->offset > data || t->bytes > data - t->offset)
            rc = bad(h, LEAT_ERR_FORMAT,
                     "tensor '%s' lies outside the file: %llu bytes at data offset %llu, but the "
                     "file holds "
                     "%llu bytes of data (is it cut short?)",
                     q, ULL(t->bytes), ULL(t->offset), ULL(data));
        else
            t->offset += g->data_start;
        order[i] = t;
    }
    if (rc) {
        free(order);
        return rc;
    }
    qsort(order, (size_t)g->n_tensors, sizeof *order, by_offset);
    for (int64_t i = 0; i + 1 < g->n_tensors; i++)
        if (order[i]->offset + order[i]->bytes > order[i + 1]->offset) {
            error_quote(q, sizeof q, order[i]->name, strlen(order[i]->name));
            error_quote(q2, sizeof q2, order[i + 1]->name, strlen(order[i + 1]->name));
            rc = bad(h, LEAT_ERR_FORMAT, "tensors '%s' and '%s' overlap", q, q2);
            break;
        }
    last = order[g->n_tensors - 1]->offset + order[g->n_tensors - 1]->bytes;
    free(order);
    if (!rc && checked_align(last, g->alignment, &end) && size > end)
        g->trailing_bytes = size - last;
    return rc;
}

/* ---- opening ---- */

static int read_counts(struct header *h, uint64_t *n_tensors, uint64_t *n_kv)
{
    unsigned char b[24];
    uint64_t size = file_size(h->g->file), most;
    char q[64];
    int rc;

    if (size < 4)
        return bad(h, LEAT_ERR_FORMAT, "not a GGUF file: it has %llu bytes", ULL(size));
    rc = cursor_read(&h->cur, b, 4, h->e);
    if (rc)
        return rc;
    if (memcmp(b, "GGUF", 4) != 0)
        return bad(h, LEAT_ERR_FORMAT, "not a GGUF file: it starts with '%s' instead of 'GGUF'%s",
                   error_quote(q, sizeof q, b, 4),
                   memcmp(b, "FUGG", 4) == 0 ? " (byte-swapped magic)" : "");
    if (size < sizeof b)
        return bad(h, LEAT_ERR_FORMAT,
                   "the file is cut short: %llu bytes, but the header alone has 24", ULL(size));
    rc = cursor_read(&h->cur, b + 4, sizeof b - 4, h->e);
    if (rc)
        return rc;
    h->g->version = le32(b + 4);
    *n_tensors = le64(b + 8);
    *n_kv = le64(b + 16);
    if (h->g->version == 0x02000000 || h->g->version == 0x03000000)
        return bad(h, LEAT_ERR_UNSUPPORTED,
                   "a big-endian file (version %u byte-swapped); only "
                   "little-endian GGUF files are read",
                   h->g->version >> 24);
    if (h->g->version != 2 && h->g->version != 3)
        return bad(h, LEAT_ERR_UNSUPPORTED, "GGUF version %u; versions 2 and 3 are read",
                   h->g->version);
    most = cursor_left(&h->cur);
    if (*n_kv > most / KV_LEAST)
        return bad(h, LEAT_ERR_FORMAT, "%llu keys cannot fit in the %llu bytes of the file",
                   ULL(*n_kv), ULL(size));
    if (*n_tensors > most / TENSOR_LEAST)
        return bad(h, LEAT_ERR_FORMAT, "%llu tensors cannot fit in the %llu bytes of the file",
                   ULL(*n_tensors), ULL(size));
    if (*n_kv > KV_MOST || *n_tensors > TENSOR_MOST)
        return bad(h, LEAT_ERR_UNSUPPORTED,
                   "%llu keys and %llu tensors; at most %llu of each are read", ULL(*n_kv),
                   ULL(*n_tensors), ULL(KV_MOST));
    return 0;
}

static int read_header(struct header *h)
{
    struct gguf *g = h->g;
    uint64_t n_tensors = 0, n_kv = 0;
    int rc = read_counts(h, &n_tensors, &n_kv);

    if (rc)
        return rc;
    h->names = arena_alloc(h->arena, sizeof *h->names, _Alignof(struct gguf_names), h->e);
    g->kv = arena_array(h->arena, n_kv, sizeof *g->kv, _Alignof(struct gguf_kv), h->e);
    g->tensors =
        arena_array(h->arena, n_tensors, sizeof *g->tensors, _Alignof(struct gguf_tensor), h->e);
    if (!h->names || !g->kv || !g->tensors)
        return LEAT_ERR_MEMORY;
    rc = name_index_init(&h->names->keys, g->kv, sizeof *g->kv, n_kv, h->arena, h->e);
    if (!rc)
        rc = name_index_init(&h->names->tensors, g->tensors, sizeof *g->tensors, n_tensors,
                             h->arena, h->e);
    if (rc)
        return rc;
    g->index = h->names;
    for (uint64_t i = 0; i < n_kv; i++) {
        rc = read_kv(h, (int64_t)i);
        if (rc)
            return rc;
        g->n_kv = (int64_t)i + 1;
    }
    rc = check_general(h);
    if (rc)
        return rc;
    for (uint64_t i = 0; i < n_tensors; i++) {
        rc = read_tensor(h, (int64_t)i);
        if (rc)
            return rc;
        g->n_tensors = (int64_t)i + 1;
    }
    return place_tensors(h);
}

int gguf_open(const char *path, bool allow_foreign, struct arena *a, struct gguf **out,
              struct leat_error *e)
{
    struct header h = {.arena = a, .allow_foreign = allow_foreign, .e = e};
    void *window = NULL;
    int rc;

    *out = NULL;
    h.g = arena_alloc(a, sizeof *h.g, _Alignof(struct gguf), e);
    if (!h.g)
        return LEAT_ERR_MEMORY;
    rc = file_open(path, &h.g->file, e);
    if (rc)
        return rc;
    window = malloc(GGUF_WINDOW);
    if (!window) {
        rc = bad(&h, LEAT_ERR_MEMORY, "no memory to read the header");
        goto fail;
    }
    cursor_open(&h.cur, h.g->file, 0, file_size(h.g->file), window, GGUF_WINDOW);
    rc = read_header(&h);
    free(window);
    if (rc)
        goto fail;
    file_drop_cache(h.g->file);
    *out = h.g;
    return 0;
fail:
    gguf_close(h.g);
    return rc;
}

void gguf_close(struct gguf *g)
{
    if (!g || !g->file)
        return;
    file_close(g->file);
    g->file = NULL;
}
