/* See inspect_meta.h. Values are spelt for people: strings quoted for printing and cut, arrays
 * by their first elements. */
#include "inspect_meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json_doc.h"

#define VALUE_SHOWN  160 /* bytes of a string */
#define ARRAYS_SHOWN 200 /* arrays whose first elements are read */
#define ELEMENTS     4

static const char *keep(const struct directory *d, const char *text, struct leat_error *e)
{
    return arena_copy(d->arena, text, strlen(text), e);
}

static const char *spell_string(const struct directory *d, const struct gguf_kv *kv,
                                struct leat_error *e)
{
    char head[VALUE_SHOWN + 1], q[700];
    size_t n = kv->count < sizeof head ? (size_t)kv->count : sizeof head;

    if (kv->str)
        memcpy(head, kv->str, n);
    else if (file_read(d->gguf->file, kv->offset, head, n, e))
        return NULL;
    error_quote(q, sizeof q, head, n < VALUE_SHOWN ? n : VALUE_SHOWN);
    if (kv->count > VALUE_SHOWN)
        snprintf(q + strlen(q), sizeof q - strlen(q), "... (%" PRIu64 " bytes)", kv->count);
    return keep(d, q, e);
}

/* One element into dst; 1, 0 at the end, negative. */
static int spell_element(struct gguf_array *r, char *dst, size_t cap, struct leat_error *e)
{
    const char *text;
    size_t len;
    int64_t whole;
    double number;
    char q[100];
    int rc;

    if (r->kv->elem == GGUF_STRING) {
        rc = gguf_array_string(r, &text, &len, e);
        if (rc > 0)
            snprintf(dst, cap, "\"%s\"", error_quote(q, sizeof q, text, len));
        return rc;
    }
    if (r->kv->elem == GGUF_F32 || r->kv->elem == GGUF_F64) {
        rc = gguf_array_float(r, &number, e);
        if (rc > 0)
            snprintf(dst, cap, "%g", number);
        return rc;
    }
    rc = gguf_array_int(r, &whole, e);
    if (rc > 0)
        snprintf(dst, cap, "%" PRId64, whole);
    return rc;
}

/* An element that cannot be spelt (a number over 2^63, a string over the limit) ends the list
 * with "...". */
static const char *spell_array(const struct directory *d, const struct gguf_kv *kv,
                               struct leat_error *e)
{
    char text[600] = "[", one[128];
    struct gguf_array r;
    size_t n = 1;

    if (gguf_array_open(d->gguf, kv, &r, e))
        return NULL;
    for (int i = 0; i < ELEMENTS; i++) {
        if (spell_element(&r, one, sizeof one, NULL) <= 0)
            break;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? ", " : "", one);
    }
    snprintf(text + n, sizeof text - n, "%s]", r.left ? (n > 1 ? ", ..." : "...") : "");
    gguf_array_close(&r);
    return keep(d, text, e);
}

static const char *spell_scalar(const struct directory *d, const struct gguf_kv *kv,
                                struct leat_error *e)
{
    char text[64];

    switch (kv->type) {
    case GGUF_F32:
    case GGUF_F64:
        snprintf(text, sizeof text, "%.9g", kv->v.f);
        break;
    case GGUF_BOOL:
        return kv->v.u ? "true" : "false";
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        snprintf(text, sizeof text, "%" PRId64, kv->v.i);
        break;
    default:
        snprintf(text, sizeof text, "%" PRIu64, kv->v.u);
        break;
    }
    return keep(d, text, e);
}

static int list_keys(struct inspect *i, const struct directory *d, struct leat_error *e)
{
    int arrays = 0;

    for (int64_t k = 0; k < d->gguf->n_kv; k++) {
        const struct gguf_kv *kv = &d->gguf->kv[k];
        struct inspect_meta *m = &i->meta[i->n_meta++];
        char q[300], type[60];

        snprintf(type, sizeof type, "%s", gguf_type_name(kv->type));
        if (kv->type == GGUF_ARRAY)
            snprintf(type, sizeof type, "%s[%" PRIu64 "]", gguf_type_name(kv->elem), kv->count);
        m->key = keep(d, error_quote(q, sizeof q, kv->key, strlen(kv->key)), e);
        m->type = kv->type == GGUF_ARRAY ? keep(d, type, e) : gguf_type_name(kv->type);
        if (kv->type == GGUF_STRING)
            m->value = spell_string(d, kv, e);
        else if (kv->type == GGUF_ARRAY)
            m->value = arrays++ < ARRAYS_SHOWN ? spell_array(d, kv, e) : "";
        else
            m->value = spell_scalar(d, kv, e);
        if (!m->key || !m->type || !m->value)
            return LEAT_ERR_MEMORY;
    }
    return 0;
}

static int add_text(struct inspect *i, const struct directory *d, const char *key, const char *type,
                    const char *value, struct leat_error *e)
{
    struct inspect_meta *m = &i->meta[i->n_meta++];
    char q[700];

    m->key = keep(d, error_quote(q, 300, key, strlen(key)), e);
    m->type = type;
    error_quote(q, sizeof q, value, strlen(value) < VALUE_SHOWN ? strlen(value) : VALUE_SHOWN);
    if (strlen(value) > VALUE_SHOWN)
        snprintf(q + strlen(q), sizeof q - strlen(q), "... (%zu bytes)", strlen(value));
    m->value = keep(d, q, e);
    return m->key && m->value ? 0 : LEAT_ERR_MEMORY;
}

/* Leaves of config.json; containers show in their paths. */
static int list_config(struct inspect *i, const struct directory *d, const struct json_doc *doc,
                       struct leat_error *e)
{
    int rc = 0;

    for (int64_t k = 0; k < doc->n && !rc; k++) {
        const struct json_value *v = &doc->values[k];

        switch (v->kind) {
        case JSON_IS_NULL:
            rc = add_text(i, d, v->path, "null", "null", e);
            break;
        case JSON_IS_BOOL:
            rc = add_text(i, d, v->path, "bool", v->truth ? "true" : "false", e);
            break;
        case JSON_IS_NUMBER:
            rc = add_text(i, d, v->path, "number", v->text, e);
            break;
        case JSON_IS_STRING:
            rc = add_text(i, d, v->path, "string", v->text, e);
            break;
        case JSON_IS_OBJECT:
        case JSON_IS_ARRAY:
            break;
        }
    }
    return rc;
}

int inspect_list_meta(struct inspect *i, const struct directory *d, struct leat_error *e)
{
    struct json_doc doc = {0};
    uint64_t n = (uint64_t)d->n_meta + (d->gguf ? (uint64_t)d->gguf->n_kv : 0);
    int rc = 0;

    if (d->config) {
        rc = json_doc_open(d->config, d->arena, &doc, e);
        if (rc)
            return rc;
        n += (uint64_t)doc.n;
    }
    i->meta = arena_array(d->arena, n, sizeof *i->meta, _Alignof(struct inspect_meta), e);
    if (!i->meta)
        return LEAT_ERR_MEMORY;
    if (d->gguf)
        rc = list_keys(i, d, e);
    for (int64_t k = 0; k < d->n_meta && !rc; k++)
        rc = add_text(i, d, d->meta[k].key, "string", d->meta[k].value, e);
    return rc ? rc : list_config(i, d, &doc, e);
}
