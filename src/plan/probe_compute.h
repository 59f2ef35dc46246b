/* What this machine reads from memory and computes at most, as facts: bytes per second with so many
 * threads, multiply-adds per second of an instruction set on registers alone. Each probe runs for
 * about the time it is given and says what it ran; what cannot be measured is missing, with the
 * reason. Knows no model, and of the kernels only the names of their tiers; prints nothing.
 * Thread rule: any thread, one probe at a time (two would measure each other). */
#ifndef PLAN_PROBE_COMPUTE_H
#define PLAN_PROBE_COMPUTE_H

#include <stdint.h>

struct compute_fact {
    /* Units per second. The best round is what the machine can do, the median what it did while
     * others used it too. Only where missing is NULL. */
    double best_per_s, median_per_s;
    const char *unit;    /* "bytes", "multiply-adds" */
    const char *source;  /* what was run: "vpdpbusd, 512 bit" */
    const char *missing; /* why there is no figure; NULL = there is one */
    int32_t threads, rounds;
    double spent_s;
};

/* Bytes that a read probe wants to walk: far beyond every cache, at most `most`. 0 when so few would
 * measure caches instead. */
uint64_t probe_memory_bytes(uint64_t most);
/* Reads memory[0, bytes) from end to end, the threads in turn a part each, again and again. All of it
 * has been written to (untouched pages are all one page of zeros). */
void probe_memory_read(const void *memory, uint64_t bytes, int32_t threads, double time_s,
                       struct compute_fact *out);

enum compute_kind {
    COMPUTE_INT8, /* products of bytes, summed to int32: the multiply-add-horizontal form */
    COMPUTE_F32,  /* fused where the tier has it */
};
/* isa: the name of a tier of kernels. */
void probe_multiply_add(const char *isa, enum compute_kind kind, int32_t threads, double time_s,
                        struct compute_fact *out);

#endif
