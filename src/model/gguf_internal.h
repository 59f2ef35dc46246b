/* What gguf.c and gguf_value.c share; nobody else includes this. */
#ifndef MODEL_GGUF_INTERNAL_H
#define MODEL_GGUF_INTERNAL_H

#include "gguf.h"
#include "name_index.h"

#define GGUF_WINDOW (64u << 10)

#define GGUF_TYPES_THAT_RUN "F32, F16, BF16, Q4_0, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, MXFP4"

struct gguf_names { /* gguf.index */
    struct name_index keys, tensors;
};

uint64_t gguf_type_bytes(enum gguf_type t);
/* One scalar from its little-endian bytes; negative for a bool other than 0 and 1. */
int gguf_decode(enum gguf_type t, const unsigned char *b, struct gguf_kv *kv);

#endif
