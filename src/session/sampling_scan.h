/* Passes over all logits of a vocabulary, for the sampler: each reads them once, in order, with
 * the widest vectors that the processor has; results are the same bits with any. Knows nothing of
 * what is chosen. Pure; any thread. */
#ifndef SESSION_SAMPLING_SCAN_H
#define SESSION_SAMPLING_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "sampling.h"

/* Logits are looked at in blocks, so that what few of them hold is found without a second pass. */
#define SCAN_BLOCK 128
static inline int32_t scan_blocks(int32_t n)
{
    return n / SCAN_BLOCK + (n % SCAN_BLOCK != 0);
}

/* The greatest logit; top[block].logit: that of each block. *bad: NaN or +infinity is among
 * them. */
float scan_greatest(const float *x, int32_t n, struct candidate *top, bool *bad);

/* Distances from the greatest logit; what lies within each is summed by scan_mass. */
#define SCAN_DEPTHS 4
extern const float scan_depth[SCAN_DEPTHS];
/* Sum of exp(x - max); top as scan_greatest left it; mass[i]: of those with x >= max -
 * scan_depth[i]. */
double scan_mass(const float *x, int32_t n, float max, const struct candidate *top,
                 double mass[SCAN_DEPTHS]);

/* Weights exp((x - max) / t) of up to SCAN_BLOCK logits; and their sum for each block, as a float,
 * in sum[block].logit. */
void scan_weights(const float *x, int32_t n, float max, float t, float *w);
void scan_sums(const float *x, int32_t n, float max, float t, struct candidate *sum);

#endif
