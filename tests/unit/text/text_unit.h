/* Shared by the tests of src/text: where data lies, reading whole files and JSON, encoding into a
 * plain array. */
#ifndef TESTS_TEXT_UNIT_H
#define TESTS_TEXT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../src/text/tokenizer.h"

/* A path below the folder that environment variable name holds; NULL when that file is not there.
 */
const char *data_path(const char *env, const char *name);
/* A new empty file or folder in the test's own folder, removed at exit. */
const char *scratch_file(const char *name);
const char *scratch_folder(const char *name);
void write_file(const char *path, const void *bytes, size_t n);

struct opened {
    struct tokenizer *t;
    struct gguf *g;
    struct arena a;
    struct ledger *l;
};
/* By the name's ending: .gguf, else tokenizer.json or folder. 0 or the code; e is filled. */
int open_any(struct opened *o, const char *path, struct leat_error *e);
void close_any(struct opened *o);

/* Ids of a JSON array; the caller frees. */
int32_t *ids_of(const json_t *array, size_t *n);
/* True when text encodes to ids; prints the difference otherwise. */
bool encodes_to(const struct tokenizer *t, const char *text, size_t n, uint32_t flags,
                const json_t *ids, const char *what);
/* The decoded text of ids, special tokens shown; NUL-terminated, the caller frees. */
char *decode_all(const struct tokenizer *t, const int32_t *ids, size_t n, size_t *len);

#endif
