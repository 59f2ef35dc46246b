/* Threads, kernels and memory for measuring without an engine; for the files bench*.c only. */
#ifndef API_BENCH_H
#define API_BENCH_H

#include "engine.h"
#include "../base/team.h"

struct bench_machine {
    int32_t threads;
    const struct kernels *kernels;
    struct team *one, *all; /* of one thread, and of threads */
    void *memory;           /* far beyond the caches; zeroed, not touched */
    uint64_t bytes;
    bool beyond_caches; /* so many bytes measure memory and not caches */
};

/* On failure everything is given back. */
int bench_machine(const struct leat_params *params, struct bench_machine *out,
                  struct leat_error *e);
void bench_machine_close(struct bench_machine *m);
/* What a measurement before an engine is opened may hold: part of what is available, and what a
 * ceiling that was given leaves, so that the peak of the process stays under it. */
uint64_t bench_memory_most(const struct param_set *set);

#endif
