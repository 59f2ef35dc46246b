/* What this processor and its memory can do at most: bytes read per second over a buffer far beyond
 * the caches, and multiply-adds per second of one chain of instructions on registers alone. Each
 * measure takes about the seconds it is given and keeps the best of its rounds, for other work on
 * the machine can only slow a round. Prints nothing. Starts threads of its own: from any thread,
 * one measure at a time. */
#ifndef PLAN_PROBE_COMPUTE_H
#define PLAN_PROBE_COMPUTE_H

#include <stdint.h>

#include "../base/team.h"

enum probe_form {
    PROBE_NONE,
    PROBE_MADDUBS,  /* avx2: vpmaddubsw, vpmaddwd, vpaddd: 32 multiply-adds */
    PROBE_VNNI_256, /* avxvnni: vpdpbusd, 32 */
    PROBE_VNNI_512, /* avx512 with VNNI: vpdpbusd, 64 */
    PROBE_FMA,      /* fused multiply-add of 8 floats */
};

/* The int8 form of a tier of kernels ("avx2", ...); PROBE_NONE where there is none to compare with.
 * The tier must be one that this processor runs (kernels_select). */
enum probe_form probe_form_of(const char *isa);
const char *probe_form_name(enum probe_form f); /* NULL for PROBE_NONE */

/* Bytes of a buffer that holds far more than the caches and little of what is available. */
uint64_t probe_buffer_bytes(void);
/* All threads of the team read their parts of bytes at p (64-byte aligned) over and over; gives
 * bytes per second of all together. */
double probe_read(struct team *t, const void *p, uint64_t bytes, double seconds);
/* Multiply-adds per second of all threads together; 0 where the form is not to be had. */
double probe_macs(struct team *t, enum probe_form f, double seconds);

#endif
