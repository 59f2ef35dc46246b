/* Block formats as data: names, sizes, and what is known of ids that Leat cannot run.
 * Source of the figures: the GGUF specification's type table; sizes of
 * the blocks are the sums of their fields (docs/kernels.md).
 * Knows nothing of files, tensors or instruction sets. Pure, any thread. */
#include "format.h"

#include <stddef.h>

/* Indexed by GGUF type id; a row without a name is no format. */
static const struct format_info infos[FORMAT_LIMIT] = {
    [FORMAT_F32] = {"F32", 1, 4, ACT_F32, true},
    [FORMAT_F16] = {"F16", 1, 2, ACT_F32, true},
    [FORMAT_BF16] = {"BF16", 1, 2, ACT_F32, true},
    [FORMAT_Q4_0] = {"Q4_0", 32, 18, ACT_Q8_32, true},
    [FORMAT_Q5_0] = {"Q5_0", 32, 22, ACT_Q8_32, true},
    [FORMAT_Q5_1] = {"Q5_1", 32, 24, ACT_Q8_32, true},
    [FORMAT_Q8_0] = {"Q8_0", 32, 34, ACT_Q8_32, true},
    [FORMAT_MXFP4] = {"MXFP4", 32, 17, ACT_Q8_32, true},
    [FORMAT_Q4_K] = {"Q4_K", 256, 144, ACT_Q8_256, true},
    [FORMAT_Q5_K] = {"Q5_K", 256, 176, ACT_Q8_256, true},
    [FORMAT_Q6_K] = {"Q6_K", 256, 210, ACT_Q8_256, true},
    [FORMAT_IQ4_NL] = {"IQ4_NL", 32, 18, ACT_Q8_32, true},
    [FORMAT_IQ4_XS] = {"IQ4_XS", 256, 136, ACT_Q8_256, true},
    /* No kernels: metadata types, and block formats whose sizes let a file be inspected. */
    [FORMAT_I8] = {"I8", 1, 1, ACT_F32, false},
    [FORMAT_I16] = {"I16", 1, 2, ACT_F32, false},
    [FORMAT_I32] = {"I32", 1, 4, ACT_F32, false},
    [FORMAT_I64] = {"I64", 1, 8, ACT_F32, false},
    [FORMAT_F64] = {"F64", 1, 8, ACT_F32, false},
    [3] = {"Q4_1", 32, 20, ACT_Q8_32, false},
    [9] = {"Q8_1", 32, 36, ACT_Q8_32, false},
    [10] = {"Q2_K", 256, 84, ACT_Q8_256, false},
    [11] = {"Q3_K", 256, 110, ACT_Q8_256, false},
    [15] = {"Q8_K", 256, 292, ACT_Q8_256, false},
    [16] = {"IQ2_XXS", 256, 66, ACT_Q8_256, false},
    [17] = {"IQ2_XS", 256, 74, ACT_Q8_256, false},
    [18] = {"IQ3_XXS", 256, 98, ACT_Q8_256, false},
    [19] = {"IQ1_S", 256, 50, ACT_Q8_256, false},
    [21] = {"IQ3_S", 256, 110, ACT_Q8_256, false},
    [22] = {"IQ2_S", 256, 82, ACT_Q8_256, false},
    [29] = {"IQ1_M", 256, 56, ACT_Q8_256, false},
    [34] = {"TQ1_0", 256, 54, ACT_Q8_256, false},
    [35] = {"TQ2_0", 256, 66, ACT_Q8_256, false},
    [40] = {"NVFP4", 64, 36, ACT_Q8_32, false},
    [41] = {"Q1_0", 128, 18, ACT_Q8_32, false},
    [42] = {"Q2_0", 64, 18, ACT_Q8_32, false},
};

/* Ids of no block format of ours that are met in files all the same. Ranges, both ends included. */
struct foreign {
    uint32_t first, last;
    const char *name, *why;
};

#define RETIRED "retired"
#define OTHER   "written for another program"

static const struct foreign foreigns[] = {
    {4, 4, "Q4_2", RETIRED},
    {5, 5, "Q4_3", RETIRED},
    {31, 31, "Q4_0_4_4", RETIRED},
    {32, 32, "Q4_0_4_8", RETIRED},
    {33, 33, "Q4_0_8_8", RETIRED},
    {36, 36, "I2_S or IQ4_NL_4_4", OTHER},
    {37, 37, "IQ4_NL_4_8", RETIRED},
    {38, 38, "IQ4_NL_8_8", RETIRED},
    {97, 97, "Q8_0_X4", OTHER},
    {98, 98, "Q8_1_X4", OTHER},
    {99, 99, "Q8_2_X4", OTHER},
    {133, 133, "Q6_0", OTHER},
    {134, 134, "IQ1_BN", OTHER},
    {135, 135, "IQ2_BN", OTHER},
    {136, 136, "Q8_K64", OTHER},
    {137, 137, "IQ2_K", OTHER},
    {138, 138, "IQ3_K", OTHER},
    {139, 139, "IQ4_K", OTHER},
    {140, 140, "IQ5_K", OTHER},
    {141, 141, "IQ6_K", OTHER},
    {144, 144, "IQ4_KS", OTHER},
    {145, 145, "IQ2_KS", OTHER},
    {146, 146, "IQ4_KSS", OTHER},
    {147, 151, "an activation format (Q8_K16 ... Q8_KV)", OTHER},
    {152, 152, "IQ5_KS", OTHER},
    {153, 153, "IQ2_KT", OTHER},
    {154, 154, "IQ3_KT", OTHER},
    {155, 155, "IQ4_KT", OTHER},
    {156, 156, "IQ3_KS", OTHER},
    {157, 157, "IQ2_KL", OTHER},
    {158, 158, "IQ1_KT", OTHER},
    {202, 399, "a row-interleaved format (_R4, _R8 or _R16)", OTHER},
};

const struct format_info *format_info(uint32_t id)
{
    if (id >= FORMAT_LIMIT || infos[id].name == NULL)
        return NULL;
    return &infos[id];
}

const char *format_foreign_name(uint32_t id, const char **why)
{
    if (why != NULL)
        *why = NULL;
    const struct format_info *own = format_info(id);
    if (own != NULL) {
        if (own->runs)
            return NULL;
        if (why != NULL)
            *why = "not supported by this build";
        return own->name;
    }
    for (size_t i = 0; i < sizeof foreigns / sizeof foreigns[0]; i++)
        if (id >= foreigns[i].first && id <= foreigns[i].last) {
            if (why != NULL)
                *why = foreigns[i].why;
            return foreigns[i].name;
        }
    return NULL;
}

uint64_t format_row_bytes(uint32_t id, uint64_t cols)
{
    const struct format_info *f = format_info(id);
    if (f == NULL || cols % (uint64_t)f->block != 0)
        return 0;
    uint64_t bytes;
    if (__builtin_mul_overflow(cols / (uint64_t)f->block, (uint64_t)f->block_bytes, &bytes))
        return 0;
    return bytes;
}
