/* The random numbers of sampling: xoshiro256** 1.0 seeded through SplitMix64 (Blackman and Vigna,
 * "Scrambled Linear Pseudorandom Number Generators", 2021; Steele, Lea, Flood, "Fast Splittable
 * Pseudorandom Number Generators", 2014). Same seed, same numbers, on every machine. Not for
 * secrets. One thread per generator. */
#ifndef SESSION_RNG_H
#define SESSION_RNG_H

#include <stdint.h>

struct rng {
    uint64_t s[4]; /* not all zero */
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
double rng_unit(struct rng *r); /* [0, 1), 53 bits */
uint64_t rng_splitmix(uint64_t *state);

#endif
