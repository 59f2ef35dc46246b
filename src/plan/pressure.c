/* A window that is strained may be somebody's passing burst, so two in a row ask for a step down;
 * the window in which a step is taken is not judged, for giving memory back faults too. Steps back
 * up are single and slow: a cache that grows into memory that is wanted elsewhere costs more than
 * one that stays small. Any thread, one at a time. */
#include "pressure.h"

void pressure_start(struct pressure *p, const struct pressure_sample *s)
{
    *p = (struct pressure){.from = *s, .calm_since_s = s->now_s};
}

/* Events a second between two readings of a counter; 0 when either is not known. */
static double rate(uint64_t from, uint64_t to, double seconds)
{
    return from == UINT64_MAX || to == UINT64_MAX || to < from ? 0 : (double)(to - from) / seconds;
}

bool pressure_look(struct pressure *p, const struct pressure_sample *s)
{
    const double seconds = s->now_s - p->from.now_s;
    double faults, stall;

    if (seconds < PRESSURE_WINDOW_S)
        return false;
    faults = rate(p->from.major_faults, s->major_faults, seconds);
    stall = rate(p->from.stall_us, s->stall_us, seconds) * 1e-6;
    p->from = *s;
    if (faults >= PRESSURE_FAULTS || stall >= PRESSURE_STALL) {
        p->calm_since_s = s->now_s;
        if (++p->strained < PRESSURE_IN_A_ROW || p->steps == PRESSURE_STEPS_MOST)
            return false;
        p->faults_per_s = faults;
        p->stall_share = stall;
        p->strained = 0;
        if (++p->steps > p->steps_peak)
            p->steps_peak = p->steps;
        return true;
    }
    p->strained = 0;
    if (p->steps == 0 || s->now_s - p->calm_since_s < PRESSURE_CALM_S)
        return false;
    p->calm_since_s = s->now_s;
    p->steps--;
    return true;
}

uint64_t pressure_ceiling(uint64_t ceiling_bytes, uint64_t smallest_bytes, int32_t steps)
{
    const uint64_t above = ceiling_bytes > smallest_bytes ? ceiling_bytes - smallest_bytes : 0;

    return ceiling_bytes - above / 8 * (uint64_t)steps;
}
