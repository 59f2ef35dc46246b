/* Rotation frequencies per pair, from base and scaling, in double precision. Pure. Sources: the
 * Llama 3.1 model card's published scaling rule; YaRN (Peng et al. 2023, arXiv 2309.00071) as
 * the models' own code computes it. */
#include <math.h>

#include "hparams.h"

static double clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Llama 3.1: long wavelengths are slowed by the factor, short ones stay, between them a blend. */
static double llama3(const struct rope_params *p, double freq)
{
    double wavelength = 2 * M_PI / freq, t;

    if (wavelength < p->original_context / p->high)
        return freq;
    if (wavelength > p->original_context / p->low)
        return freq / p->factor;
    t = (p->original_context / wavelength - p->low) / (p->high - p->low);
    return (1 - t) * freq / p->factor + t * freq;
}

/* The pair at which n turns fit into the original context. */
static double yarn_pair(const struct rope_params *p, int32_t dims, double n)
{
    return dims * log(p->original_context / (n * 2 * M_PI)) / (2 * log(p->base));
}

static double yarn(const struct rope_params *p, int32_t dims, int32_t i, double freq)
{
    double lo = yarn_pair(p, dims, p->beta_fast), hi = yarn_pair(p, dims, p->beta_slow), mix, span;

    if (p->truncate) {
        lo = floor(lo);
        hi = ceil(hi);
    }
    lo = lo < 0 ? 0 : lo;
    hi = hi > dims - 1 ? dims - 1 : hi;
    span = hi - lo > 0.001 ? hi - lo : 0.001;
    mix = (1 - clamp01((i - lo) / span)) * p->ext_factor;
    return freq / p->factor * (1 - mix) + freq * mix;
}

int rope_build(const struct rope_params *p, int32_t dims, double *inv_freq, float *magnitude,
               const char *what, struct leat_error *e)
{
    double m = 1;

    if (!(p->base > 1) || !isfinite(p->base))
        return error_set(e, LEAT_ERR_FORMAT, "%s: the rope base %g is not a number above 1", what,
                         p->base);
    if (p->scaling != ROPE_SCALING_NONE && !(p->factor > 0 && isfinite(p->factor)))
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: the rope scaling factor %g is not a positive number", what,
                         p->factor);
    if (p->scaling >= ROPE_SCALING_LLAMA3 &&
        !(p->original_context >= 1 && isfinite(p->original_context)))
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: rope scaling needs the original context, which is %g", what,
                         p->original_context);
    if (p->scaling == ROPE_SCALING_LLAMA3 && !(p->low > 0 && p->high > p->low && isfinite(p->high)))
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: rope scaling llama3 with low_freq_factor %g and "
                         "high_freq_factor %g",
                         what, p->low, p->high);
    if (p->scaling == ROPE_SCALING_YARN && !(p->beta_fast > 0 && p->beta_slow > 0))
        return error_set(e, LEAT_ERR_FORMAT,
                         "%s: rope scaling yarn with beta_fast %g and beta_slow %g", what,
                         p->beta_fast, p->beta_slow);
    for (int32_t i = 0; i < dims / 2; i++) {
        double freq = pow(p->base, -2.0 * i / dims);

        if (p->scaling == ROPE_SCALING_LINEAR)
            freq /= p->factor;
        else if (p->scaling == ROPE_SCALING_LLAMA3)
            freq = llama3(p, freq);
        else if (p->scaling == ROPE_SCALING_YARN)
            freq = yarn(p, dims, i, freq);
        inv_freq[i] = freq;
    }
    if (p->scaling == ROPE_SCALING_YARN) {
        m = p->magnitude > 0 ? p->magnitude : p->factor > 1 ? 0.1 * log(p->factor) + 1 : 1;
        m *= p->attn_factor;
    }
    *magnitude = (float)m;
    return 0;
}
