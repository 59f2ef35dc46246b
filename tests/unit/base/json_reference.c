/* See json_reference.h. */
#include "json_reference.h"

#include <jansson.h>

#define FLAGS (JSON_DECODE_ANY | JSON_ALLOW_NUL)

bool reference_accepts(const char *text, size_t n)
{
    json_t *v = json_loadb(text, n, FLAGS, NULL);
    json_decref(v);
    return v != NULL;
}

bool reference_same(const char *a, size_t na, const char *b, size_t nb)
{
    json_t *x = json_loadb(a, na, FLAGS, NULL), *y = json_loadb(b, nb, FLAGS, NULL);
    bool same = x && y && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}
