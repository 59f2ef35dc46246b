/* What an engine is made of, for the files of api/ only. Built and taken down in engine.c; facts
 * and plan never change after that; `sessions` is counted under the scheduler's pass lock,
 * `cancelled` is set from anywhere. */
#ifndef API_ENGINE_H
#define API_ENGINE_H

#include <stdatomic.h>

#include "../../include/leat.h"
#include "../base/params.h"
#include "../plan/budget.h"
#include "../session/scheduler.h"
#include "../text/tokenizer.h"

struct leat_params {
    struct param_set set;
};

struct leat_tokenizer {
    struct tokenizer *t;
    /* of one opened alone from GGUF */
    struct gguf *gguf;
    struct arena arena;
};

struct route_record;

struct leat_engine {
    struct ledger *ledger;
    struct model *model;
    struct leat_tokenizer text; /* text.t NULL: none that works, tokenizer_error says why */
    struct leat_error tokenizer_error;
    const struct kernels *kernels;
    struct team *team;
    struct weights *weights;
    struct state_pool *pool;
    struct decoder *decoder;
    struct scheduler *scheduler;
    struct route_record *record; /* NULL = no routing is recorded; under the pass lock */
    atomic_bool cancelled;
    int32_t sessions;       /* open now */
    uint64_t process_bytes; /* charged to ROW_PROCESS */
    struct budget budget;
    struct leat_plan plan;
    struct leat_facts facts;
    char kv_type[8];
};

struct leat_session {
    struct leat_engine *engine;
    struct timeline timeline;
    atomic_bool cancelled;
};

/* ---- route_record.c: does nothing when no routing is recorded. Under the pass lock. ---- */

/* A call begins: the next turn. */
void route_record_turn(struct leat_engine *g);
/* Tokens of s from position `from` on are decoded. INT32_MAX: none; a session that closes. */
void route_record_decode_from(struct leat_engine *g, const struct leat_session *s, int32_t from);

/* Opens the joined parameter table at its defaults. */
int api_params_open(struct param_set *s, struct leat_error *e);

/* What the process holds beside the ledger's rows, and what that will grow to (process.c). */
uint64_t process_bytes(uint64_t rss_before, uint64_t rss_now, uint64_t ledger_held, int32_t threads,
                       uint64_t ceiling_bytes, uint64_t weight_bytes);
/* The process row differs by so much between runs of the same program; a refusal names a figure
 * that covers it. */
#define PROCESS_SLACK (UINT64_C(1) << 20)

void plan_report(const struct budget *b, const struct budget_ask *ask,
                 const struct weights_need *need, struct leat_plan *out);

/* The vocabulary of an open model. */
int model_tokenizer_open(const struct model *m, struct ledger *l, struct tokenizer **out,
                         struct leat_error *e);

#endif
