/* A small JSON value as a tree, read by the strict pull reader: the parts of tokenizer.json that
 * say how, not the vocabulary. Lives in a caller's arena. Duplicate keys are refused. Built by one
 * thread. */
#ifndef TEXT_JSON_TREE_H
#define TEXT_JSON_TREE_H

#include "../base/arena.h"
#include "../base/json_pull.h"

struct json_node {
    enum json_event kind; /* OBJECT, ARRAY, STRING, NUMBER, TRUE, FALSE, NULL */
    const char *key;      /* in an object; NUL-terminated */
    const char *text;     /* of a string, NUL-terminated; of a number, its spelling */
    size_t key_n, text_n;
    int64_t integer;
    double number;
    bool is_integer;
    struct json_node *child; /* of an object or array: the first */
    struct json_node *next;
};

#define JSON_TREE_NODES 200000

/* The value that comes next in p. */
int json_tree_read(struct json_pull *p, struct arena *a, struct json_node **out,
                   struct leat_error *e);
const struct json_node *json_tree_get(const struct json_node *object,
                                      const char *key); /* NULL: absent or no object */

/* Typed members: 1 found, 0 absent or null, negative: of another type (owner names the object). */
int json_tree_bool(const struct json_node *o, const char *key, const char *owner, bool *out,
                   struct leat_error *e);
int json_tree_string(const struct json_node *o, const char *key, const char *owner,
                     const struct json_node **out, struct leat_error *e);
int json_tree_integer(const struct json_node *o, const char *key, const char *owner, int64_t *out,
                      struct leat_error *e);
/* A string that must be there and be text without NUL: 0 or negative. */
int json_tree_word(const struct json_node *o, const char *key, const char *owner, const char **out,
                   struct leat_error *e);
bool json_tree_is(const struct json_node *string, const char *text);

/* Reads files for the pull reader. */
struct file;
struct json_file {
    struct file *file;
    uint64_t offset;
    struct json_pull pull;
};
/* Refuses files of more than limit bytes. Opens the file and stands before its first event. */
int json_file_open(struct json_file *f, const char *path, uint64_t limit, struct leat_error *e);
void json_file_close(struct json_file *f);

#endif
