/* When the system takes memory back while a run goes on: whether to hold less, and when to hold
 * more again. Pure: figures in, a number of steps out; who reads the figures and who changes the
 * budget is the caller's business (api/). Thread rule: one thread at a time. */
#ifndef PLAN_PRESSURE_H
#define PLAN_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

#define PRESSURE_WINDOW_S   1.0 /* a judgement is made over at least this long */
#define PRESSURE_FAULTS     200 /* major faults a second: each waits some 0.2 ms for the drive */
#define PRESSURE_STALL      0.05 /* share of the time in which everything stood still */
#define PRESSURE_IN_A_ROW   2    /* strained windows before anything is done */
#define PRESSURE_CALM_S     30.0 /* calm before one step is taken back */
#define PRESSURE_STEPS_MOST 7

struct pressure_sample {
    double now_s;          /* a clock that only rises */
    uint64_t major_faults; /* of the process since its start; UINT64_MAX = not known */
    uint64_t stall_us;     /* since boot (os_memory_stall_us); UINT64_MAX = not known */
};

struct pressure {
    struct pressure_sample from; /* the window's beginning */
    double calm_since_s;
    int32_t strained; /* windows in a row */
    int32_t steps;    /* held back by now, 0..PRESSURE_STEPS_MOST */
    int32_t steps_peak;
    double faults_per_s, stall_share; /* of the window that asked for the last step */
};

void pressure_start(struct pressure *p, const struct pressure_sample *s);
/* True when p->steps has changed: the budget should follow. A figure that is not known counts as
 * calm. */
bool pressure_look(struct pressure *p, const struct pressure_sample *s);
/* The ceiling after so many steps: each takes an eighth of what lies above the smallest. */
uint64_t pressure_ceiling(uint64_t ceiling_bytes, uint64_t smallest_bytes, int32_t steps);

#endif
