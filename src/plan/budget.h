/* How a budget is divided: one pure function over figures of model and machine. The planner will
 * replace the policy and keep the shape. Names no platform. Any thread. */
#ifndef PLAN_BUDGET_H
#define PLAN_BUDGET_H

#include "../decoder/decoder.h"

#define BUDGET_AUTO UINT64_MAX
#define BUDGET_ROWS ROW_COUNT

#define BUDGET_LOGITS_SHARE (-1) /* as many rows as a tenth of the budget holds: evaluation */
#define BUDGET_LOGITS_SPARE (-2) /* one for each sequence, more while they cost next to nothing */

struct budget_ask {         /* what was asked; -1 or BUDGET_AUTO = free to choose */
    uint64_t ceiling_bytes; /* the hard ceiling on what is held; UINT64_MAX = none */
    uint64_t process_bytes; /* VmRSS of the process beside the model, and what it will grow by */
    uint64_t model_bytes, tokenizer_bytes; /* held already */
    int32_t context, width, threads, lanes, n_seq;
    int32_t max_logits; /* rows of logits per pass, or one of the two below */
    uint64_t resident_bytes, expert_cache_bytes; /* less than what must be there means that */
    enum kv_type kv;
};

struct budget { /* what was decided */
    int32_t context, width, max_logits, n_seq;
    uint64_t kv_bytes, compute_bytes, logits_bytes;
    uint64_t resident_bytes, stream_bytes, expert_cache_bytes, rows_bytes, vectors_bytes,
        lanes_bytes;
    uint64_t row[BUDGET_ROWS]; /* the sum, row by row */
    uint64_t total_bytes;
    uint64_t smallest_bytes;             /* the smallest ceiling that works with these pins */
    const char *why_context, *why_width; /* short reasons for people */
};

/* LEAT_ERR_MEMORY with needed_bytes and the sum row by row in the message when the smallest
 * footprint is over the ceiling; the figure it names then works, and *out holds that smallest
 * footprint. */
int budget_resolve(const struct model *m, const struct budget_ask *ask, struct budget *out,
                   struct leat_error *e);

/* The default ceiling: three quarters of what is available within every cgroup limit (pure). */
uint64_t budget_default_ceiling(uint64_t available_bytes);

/* One line for people: whether and how weights stream under this budget. dst of 256 bytes is
 * enough. */
const char *budget_summary(const struct budget *b, const struct weights_need *need,
                           uint64_t ceiling_bytes, char *dst, size_t cap);

/* ---- the policy alone, over costs given as functions (budget_resolve fills them from the rooms,
 * tests from formulas) ---- */

/* Each as the ledger would charge, and never falling when an argument rises. */
struct budget_costs {
    const void *arg;
    const char *name;    /* of the model, for messages */
    int32_t n_ctx_train; /* 0 = not known */
    uint64_t (*kv)(const void *arg, int32_t context, int32_t width);
    uint64_t (*compute)(const void *arg, int32_t width, int32_t max_logits);
    uint64_t (*logits)(const void *arg, int32_t max_logits);
    int (*weights)(const void *arg, int32_t width, struct weights_need *out, struct leat_error *e);
};
int budget_divide(const struct budget_costs *c, const struct budget_ask *ask, struct budget *out,
                  struct leat_error *e);

/* Bytes the session room takes beside the pages and the rows of logits: ids of the timelines,
 * scratch of the sampler. */
uint64_t budget_timeline_bytes(int32_t context, int32_t n_seq); /* ROW_KV */
uint64_t budget_sampler_bytes(int32_t n_logits);                /* ROW_LOGITS */

#endif
