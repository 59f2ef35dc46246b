/* Decayed frequency: each use counts one, and what was counted halves every HALF_LIFE passes (a
 * pass is a token when text is generated).
 *
 * score(now) = score(then) * 2^((then - now) / H), + 1 at a use. All scores fade alike, so the
 * order of two units never changes between uses: log2(score(now)) + now / H is the same number at
 * any time, and it is the key. */
#include <math.h>

#include "evict_policies.h"

#define HALF_LIFE 16.0

static double use(double key, double now)
{
    const double age = now / HALF_LIFE;

    return log2(exp2(key - age) + 1.0) + age; /* exp2(-INFINITY) is 0: a first use */
}

const struct evict_policy evict_decay = {.name = "decay", .use = use};
