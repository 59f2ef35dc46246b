/* The policies, for evict.c. */
#ifndef WEIGHTS_EVICT_POLICIES_H
#define WEIGHTS_EVICT_POLICIES_H

#include "evict.h"

extern const struct evict_policy evict_decay, evict_lru, evict_slru, evict_aged, evict_echo;

#endif
