/* What gguf.c and gguf_value.c share; nobody else includes this. */
#ifndef MODEL_GGUF_INTERNAL_H
#define MODEL_GGUF_INTERNAL_H

#include "gguf.h"
#include "name_index.h"

#define GGUF_WINDOW (64u << 10)

struct gguf_names { /* gguf.index */
    struct name_index keys, tensors;
};

uint64_t gguf_type_bytes(enum gguf_type t);
/* One scalar from its little-endian bytes; negative for a bool other than 0 and 1. */
int gguf_decode(enum gguf_type t, const unsigned char *b, struct gguf_kv *kv);

#endif
