/* One GGUF file: header, keys and tensor table; no tensor data is read and arrays are not held.
 * Format: GGUF specification v2 and v3 (docs/formats.md). Every figure from the file is checked;
 * see docs/malformed.md.
 * Thread rule: immutable after gguf_open; array readers are one thread each. */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H

#include <stdbool.h>

#include "../base/arena.h"
#include "../io/file.h"

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING,
    GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64,
};

const char *gguf_type_name(enum gguf_type t); /* "u32", "string", ... */
/* "F32, F16, Q4_0, ...": the tensor types with kernels, for messages. */
const char *gguf_types_that_run(char *dst, size_t cap);

struct gguf_kv {
    const char *key;       /* NUL-terminated, checked UTF-8 without NUL */
    enum gguf_type type;   /* GGUF_ARRAY for arrays */
    enum gguf_type elem;   /* of an array */
    uint64_t count;        /* elements of an array; bytes of a string */
    uint64_t offset;       /* file offset of the first element, or of a string's bytes */
    uint64_t end;          /* file offset behind the value */
    union {
        uint64_t u;        /* unsigned integers and bool */
        int64_t i;
        double f;
    } v;
    const char *str;       /* a string of at most 4096 bytes is held here, else NULL */
};

struct gguf_tensor {
    const char *name;
    uint32_t type;         /* enum format, checked to be known; row bytes and sizes are checked */
    int32_t n_dims;
    uint64_t dims[4];      /* ne0 first, 1 beyond n_dims */
    uint64_t offset;       /* absolute in the file */
    uint64_t bytes, row_bytes;
};

struct gguf {
    struct file *file;     /* owned */
    uint32_t version;
    uint64_t alignment, data_start;
    int64_t n_kv, n_tensors;
    struct gguf_kv *kv;
    struct gguf_tensor *tensors;
    uint64_t trailing_bytes; /* behind the last tensor; legal */
    void *index;           /* hash of keys and names */
};

/* Objects live in arena a (the caller closes it after gguf_close). On failure nothing is left
 * open. A tensor type of known block size that has no kernels is kept when allow_foreign, else
 * refused by name; retired types and those of other programs are refused by name in any case. */
int gguf_open(const char *path, bool allow_foreign, struct arena *a, struct gguf **out,
              struct leat_error *e);
void gguf_close(struct gguf *g);

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); /* NULL = absent */
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

/* Typed access by value; any integer width is taken. Returns 1 found, 0 absent (*out untouched),
 * negative: present but of another type or out of range (error names file, key, what was found). */
int gguf_get_u64(const struct gguf *g, const char *key, uint64_t max, uint64_t *out,
                 struct leat_error *e);
/* finite */
int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct leat_error *e);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct leat_error *e);
/* A string of any length, copied to the arena; NUL inside is refused unless len is given. */
int gguf_get_str(const struct gguf *g, const char *key, struct arena *a, const char **out,
                 size_t *len, struct leat_error *e);

/* Reads an array front to back through one 64 KiB window. */
struct gguf_array {
    const struct gguf_kv *kv;
    struct file_cursor cursor;
    uint64_t left;
    uint8_t *window; /* owned */
    uint8_t *across; /* an element that lies across the window's end, owned; grows */
    size_t across_cap;
};
int gguf_array_open(const struct gguf *g, const struct gguf_kv *kv, struct gguf_array *r,
                    struct leat_error *e);
void gguf_array_close(struct gguf_array *r);
/* Each returns 1 with the next element, 0 at the end, negative on failure (other element type
 * included). A string is not NUL-terminated and lives until the next call. */
int gguf_array_string(struct gguf_array *r, const char **text, size_t *len, struct leat_error *e);
/* any integer type or bool */
int gguf_array_int(struct gguf_array *r, int64_t *out, struct leat_error *e);
int gguf_array_float(struct gguf_array *r, double *out, struct leat_error *e);  /* f32 or f64 */

#endif
