/* A strict pull reader for JSON (RFC 8259) from a stream: safetensors headers, tokenizer.json,
 * config.json. No tree is built; memory is one window plus the current string. Refuses: invalid
 * UTF-8, BOM, lone surrogate escapes, control bytes in strings, trailing bytes other than white
 * space after the value (unless told), depth over JSON_PULL_DEPTH. Duplicate keys are the caller's
 * business. Thread rule: one thread per reader.
 *
 * Use:  json_pull_next() gives events in order; inside an object JSON_KEY comes before each value.
 *       json_skip() jumps over the value that comes next. */
#ifndef BASE_JSON_PULL_H
#define BASE_JSON_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

#define JSON_PULL_DEPTH 64

enum json_event {
    JSON_OBJECT, /* { */
    JSON_OBJECT_END,
    JSON_ARRAY, /* [ */
    JSON_ARRAY_END,
    JSON_KEY,    /* text, text_len */
    JSON_STRING, /* text, text_len: decoded bytes, may hold NUL */
    JSON_NUMBER, /* text = its spelling; number; integer when is_integer */
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL,
    JSON_END, /* after the top value and the white space behind it */
};

/* Gives up to cap bytes at dst; returns how many, 0 at the end, negative leat_code on failure (e
 * filled). */
typedef int64_t (*json_source)(void *arg, void *dst, size_t cap, struct leat_error *e);

struct json_pull {
    const char *text; /* of KEY, STRING, NUMBER: valid until the next call; NUL-terminated */
    size_t text_len;
    double number;
    int64_t integer;
    bool is_integer; /* the spelling has no fraction or exponent and fits int64 */
    uint64_t offset; /* byte offset just behind the current event, for messages */
    int depth;
    struct json_state *state;
};

/* name: the file's name for messages (copied, quoted). max_string: longest string accepted. */
int json_pull_open(struct json_pull *p, const char *name, json_source source, void *arg,
                   size_t max_string, struct leat_error *e);
int json_pull_open_memory(struct json_pull *p, const char *name, const void *bytes, size_t n,
                          size_t max_string, struct leat_error *e);
void json_pull_close(struct json_pull *p);

/* Returns enum json_event >= 0, or a negative leat_code with name, byte offset and reason in e. */
int json_pull_next(struct json_pull *p, struct leat_error *e);
/* Skips one whole value (the next one). 0 or negative. */
int json_skip(struct json_pull *p, struct leat_error *e);
/* An error at the present place: "NAME: byte N: " + text. Returns code. */
int json_fail(const struct json_pull *p, struct leat_error *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
