/* Block formats: the numbers of GGUF tensor types (docs/formats.md; the GGUF specification's type table). Pure. */
#ifndef KERNELS_FORMAT_H
#define KERNELS_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

enum format { /* values are GGUF type ids */
    FORMAT_F32 = 0,
    FORMAT_F16 = 1,
    FORMAT_Q4_0 = 2,
    FORMAT_Q5_0 = 6,
    FORMAT_Q5_1 = 7,
    FORMAT_Q8_0 = 8,
    FORMAT_Q4_K = 12,
    FORMAT_Q5_K = 13,
    FORMAT_Q6_K = 14,
    FORMAT_IQ4_NL = 20,
    FORMAT_IQ4_XS = 23,
    FORMAT_I8 = 24, /* integers and F64 are known as metadata only: no kernel */
    FORMAT_I16 = 25,
    FORMAT_I32 = 26,
    FORMAT_I64 = 27,
    FORMAT_F64 = 28,
    FORMAT_BF16 = 30,
    FORMAT_MXFP4 = 39,
    FORMAT_LIMIT = 64, /* every id we know is below */
};

/* How activations are held for a product with weights of a format. */
enum act_kind {
    ACT_F32,   /* as they are */
    ACT_Q8_32, /* int8, one f32 scale per 32 */
    ACT_Q8_256 /* int8, one f32 scale per 256, and sums of 16 */
};

struct format_info {
    const char *name;      /* "Q4_K" */
    int32_t block;         /* elements per block */
    int32_t block_bytes;
    enum act_kind act;
    bool runs;             /* there are kernels for it */
};

/* NULL for an id that is no format of ours (see format_foreign_name for those we can name). */
const struct format_info *format_info(uint32_t id);
/* Name of an id that Leat knows of but cannot run (other GGUF types, retired ids, formats of other programs), else
 * NULL. *why (may be NULL) gets a short reason: "retired", "not supported by this build", "written for another program". */
const char *format_foreign_name(uint32_t id, const char **why);
/* Bytes of a row of cols elements; 0 when cols is not a multiple of the block or on overflow. */
uint64_t format_row_bytes(uint32_t id, uint64_t cols);

#endif
