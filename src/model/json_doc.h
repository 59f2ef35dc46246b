/* A small JSON document flattened into (path, value) pairs: "text_config.rope_scaling.factor",
 * "layer_types[3]". For config.json and its like: at most 1 MiB and 65,536 values; duplicate
 * keys are refused. Memory of a caller's arena.
 * Thread rule: built by one thread, then read by any. */
#ifndef MODEL_JSON_DOC_H
#define MODEL_JSON_DOC_H

#include <stdbool.h>

#include "../base/arena.h"
#include "../base/error.h"
#include "name_index.h"

enum json_kind {
    JSON_IS_NULL,
    JSON_IS_BOOL,
    JSON_IS_NUMBER,
    JSON_IS_STRING,
    JSON_IS_OBJECT,
    JSON_IS_ARRAY
};

struct json_value {
    const char *path; /* first member: indexed by name_index; "" is the top */
    enum json_kind kind;
    bool truth;
    bool whole; /* a number that fits int64, in integer */
    int64_t integer;
    double number;
    const char *text; /* of a string, and a number's spelling */
    int64_t count;    /* members of an object or array */
};

struct json_doc {
    const char *name; /* quoted path of the file, for messages */
    int64_t n;
    struct json_value *values;
    struct name_index index;
};

int json_doc_open(const char *path, struct arena *a, struct json_doc *d, struct leat_error *e);
const struct json_value *json_doc_find(const struct json_doc *d,
                                       const char *path); /* NULL = absent */

#endif
