/* The compute team: a fixed set of threads that run one function together, then wait. The caller
 * is thread 0 and works too. Waiting threads spin shortly (tens of microseconds), then sleep on
 * a futex, so that a long wait for the drive burns no core. Thread rule: team_run and team_for
 * from the one thread that owns the team; never nested. */
#ifndef BASE_TEAM_H
#define BASE_TEAM_H

#include <stdint.h>

#include "error.h"

#define TEAM_MAX 256

struct team;

/* threads: 1..TEAM_MAX, the caller included. */
int team_open(int32_t threads, struct team **out, struct leat_error *e);
void team_close(struct team *t);
int32_t team_threads(const struct team *t);

/* Runs fn(arg, thread, threads) once on every thread; returns when all are done (memory is
 * synchronised). */
void team_run(struct team *t, void (*fn)(void *arg, int32_t thread, int32_t threads), void *arg);

/* Splits [0, total) in chunks handed out dynamically; fn(arg, thread, begin, end). With total <=
 * chunk or one thread it runs on the caller alone, without waking anyone. */
void team_for(struct team *t, int64_t total, int64_t chunk,
              void (*fn)(void *arg, int32_t thread, int64_t begin, int64_t end), void *arg);

/* The same with runs that shrink: each takes a share of what is left, in multiples of granule. Long
 * runs first suit work that walks memory in order, short ones last let all threads end together. */
void team_guided(struct team *t, int64_t total, int64_t granule,
                 void (*fn)(void *arg, int32_t thread, int64_t begin, int64_t end), void *arg);

#endif
