/* A model made by hand for the tests of weights/: files whose every byte is known, matrices at odd
 * offsets with odd rows, and the check that a walk gives exactly those bytes. One thread. */
#ifndef TESTS_WEIGHTS_WORLD_H
#define TESTS_WEIGHTS_WORLD_H

#include "../io/scratch.h"

#include "../../../src/io/lane_faults.h"
#include "../../../src/weights/weights.h"

#define WORLD_FILES 3

struct world {
    struct model model;
    struct model_file files[WORLD_FILES];
    uint8_t *bytes[WORLD_FILES]; /* the truth */
    uint64_t size[WORLD_FILES];
    struct unit units[400];
    struct vector vectors[8];
    unit_id schedule[64];
    unit_id table, big_row, tied; /* an untied table, a matrix of rows over 2 MiB, the tied head */
    uint64_t dense_bytes;         /* of all scheduled units */
    uint64_t head_bytes;
};

/* dense: matrices and tables; experts: three layers of experts of different sizes. */
void world_open(struct world *x, bool dense, bool experts);
void world_close(struct world *x);
/* Writes the file anew and opens it again (no weights may be open). */
void world_rewrite(struct world *x, int32_t file);

struct opened {
    struct ledger *ledger;
    struct weights *w;
};
/* Opens weights over the world; the budgets are clipped from below by what weights_need says. */
struct opened world_weights(struct world *x, uint64_t resident, uint64_t stream, uint64_t experts,
                            int32_t lanes, enum file_direct direct, const char *eviction);
void opened_close(struct opened *o);

const uint8_t *world_row(const struct world *x, unit_id u, int32_t part, int32_t row);
/* One whole pass over the dense units, every byte checked. */
void world_walk(struct world *x, struct opened *o, bool head);
/* Asks for the rows of unit u until 0 and checks them. Returns 0 or the first error. */
int world_unit(struct world *x, struct weights_pass *p, unit_id u, struct leat_error *e);
/* Checks what an expert view says and holds. */
void world_expert(struct world *x, const struct expert_view *v, unit_id u);
/* Experts of a layer of the world. */
unit_id world_experts(const struct world *x, int32_t layer, int32_t *n);

#endif
