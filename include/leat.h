/* Leat: language models bigger than the memory they are given. The public C API.
 *
 * The life of each object
 *
 *   leat_params     Values for the parameter table (memory, context, temperature, ...; `leat
 *                   params` prints it). leat_params_open -> leat_params_set ... ->
 *                   leat_params_close. Calls that take one copy what they need: it may be changed
 *                   or closed afterwards.
 *   leat_engine     One model, opened within a memory budget. leat_open reads headers, tokenizer
 *                   and norms, divides the budget and obtains every large piece of memory; matrices
 *                   are read by the first pass. Its facts never change; what is resident is shared
 *                   by all its sessions. leat_close needs every session of it to be closed before.
 *   leat_session    One text being continued, on one engine: a growing list of token ids, of which
 *                   the first part has been evaluated. leat_session_open -> leat_generate /
 *                   leat_eval / leat_session_truncate ... -> leat_session_close.
 *   leat_result     What one generation gave. Filled by leat_generate, also when it failed or was
 *                   cancelled; the caller ends it with leat_result_free.
 *   leat_tokenizer  A vocabulary: borrowed from an engine (leat_engine_tokenizer, lives as long as
 *                   it), or opened alone with leat_tokenizer_open and ended with
 *                   leat_tokenizer_close.
 *   leat_report     What a container holds (leat_inspect); ended with leat_report_close.
 *
 * Threads: an engine may be used from any thread, a session (and a params set) by one thread at a
 * time. Calls of several threads share the engine pass by pass. leat_cancel may be called from any
 * thread and from a signal handler. Callbacks run on the thread that made the call.
 *
 * Failures: a call that can fail returns 0 (or a count) or a negative enum leat_code and fills the
 * caller's struct leat_error (NULL is allowed). The library never prints, never exits, never reads
 * the environment. Memory that a call hands out as char * or int32_t * is the caller's and goes
 * back through leat_free. */
#ifndef LEAT_H
#define LEAT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "leat_error.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef LEAT_API
#define LEAT_API __attribute__((visibility("default")))
#endif

LEAT_API const char *leat_version(void); /* "0.1.0" */
LEAT_API void leat_free(void *p);        /* NULL ok */
/* Lowercase word of a code: "usage", "file", "format", "memory", ... */
LEAT_API const char *leat_code_word(int code);

/* ---- parameters ---- */

struct leat_params;
/* All at their defaults. */
LEAT_API int leat_params_open(struct leat_params **out, struct leat_error *e);
LEAT_API void leat_params_close(struct leat_params *p); /* NULL ok */
/* value in the command line's spelling: "2G", "auto", "0.7", "true". Strict: an unknown key,
 * trailing junk or a value out of bounds is LEAT_ERR_USAGE. A list parameter (stop, logit_bias)
 * gains one value per call. */
LEAT_API int leat_params_set(struct leat_params *p, const char *key, const char *value,
                             struct leat_error *e);
/* The value's spelling, NULL where it is unset or the key is unknown. Free with leat_free. */
LEAT_API char *leat_params_get(const struct leat_params *p, const char *key);
/* The whole table as JSON, with the values of p unless p is NULL. Free with leat_free. */
LEAT_API char *leat_params_json(const struct leat_params *p);

/* The rows themselves, table by table (NULL past the last one), for a program of this tree that
 * joins rows of its own to them (base/params.h). The `commands` of a row says who reads it. */
struct param;
enum leat_param_use {
    LEAT_PARAM_ENGINE = 1,   /* read by leat_open */
    LEAT_PARAM_GENERATE = 2, /* read by leat_generate */
};
LEAT_API const struct param *leat_param_rows(int32_t table, int32_t *count);

/* ---- memory: the plan and the ledger ---- */

#define LEAT_MEMORY_ROWS 32

struct leat_memory_row {
    const char *key, *name; /* "kv_cache", "KV cache" */
    uint64_t planned_bytes; /* what the plan gives it */
    uint64_t held_bytes;    /* now; 0 in a plan that was refused */
    uint64_t peak_bytes;
};

struct leat_plan { /* how the budget was divided; filled also when it was refused */
    int32_t n_rows;
    struct leat_memory_row row[LEAT_MEMORY_ROWS]; /* of a refused plan: the smallest footprint */
    uint64_t ceiling_bytes;                       /* UINT64_MAX = none */
    uint64_t total_bytes;                         /* sum of the rows */
    uint64_t smallest_bytes;  /* the smallest ceiling that works with what was pinned */
    uint64_t available_bytes; /* what the machine had; UINT64_MAX = not known */
    int ceiling_by_hand;      /* 1: the memory parameter; 0: a share of what is available */
    int32_t context, width, logit_rows, sessions;
    uint64_t dense_bytes, experts_bytes;                       /* of the model, all of it */
    uint64_t resident_bytes, stream_bytes, expert_cache_bytes; /* what each may take */
    char why_context[96], why_width[96];
    char summary[256]; /* one line: whether and how it streams */
};

/* ---- engine ---- */

struct leat_engine;

/* model: a GGUF file (any shard of a split one), a safetensors folder or a file of it, or a link
 * of the Hugging Face cache. params NULL = defaults. plan (NULL ok) is filled when the headers
 * could be read, also when the budget is refused: then the code is LEAT_ERR_MEMORY,
 * e->needed_bytes the figure that works, and no weight has been read. */
LEAT_API int leat_open(const char *model, const struct leat_params *params, struct leat_plan *plan,
                       struct leat_engine **out, struct leat_error *e);
LEAT_API void leat_close(struct leat_engine *g); /* NULL ok */

struct leat_facts {                             /* immutable; strings live as long as the engine */
    const char *path, *arch, *name, *container; /* "gguf", "safetensors" */
    int32_t n_layer, n_embd, n_ctx_train;
    int32_t n_vocab;                 /* rows of the embedding table */
    int32_t n_logits;                /* width of a row of logits */
    int32_t n_expert, n_expert_used; /* 0 = dense */
    uint64_t tensor_bytes;           /* all tensor data in the files */
    int32_t n_files;
    int32_t context, width, sessions, threads, lanes;
    const char *kv_type, *isa, *direct;
    const char *eviction; /* policy of the expert cache; NULL = no experts */
    double load_s; /* what leat_open took */
};
LEAT_API const struct leat_facts *leat_engine_facts(const struct leat_engine *g);
/* As it was made; for what is held now see leat_engine_memory. */
LEAT_API const struct leat_plan *leat_engine_plan(const struct leat_engine *g);

/* Stops everything that runs on the engine within one unit's time: it ends as cancelled. Stays in
 * force until leat_uncancel, so that a call made just before leat_generate is not lost.
 * Async-signal-safe. */
LEAT_API void leat_cancel(struct leat_engine *g);
LEAT_API void leat_uncancel(struct leat_engine *g);

struct leat_stats { /* since leat_open; the difference of two gives a run's share */
    uint64_t passes, pass_tokens;
    double compute_s; /* in passes, less the wait for reads */
    double wait_s;    /* the decoder waited for reads */
    double sample_s;  /* choosing tokens */
    uint64_t waits;
    uint64_t reads, retries;
    uint64_t read_bytes;   /* that reached memory, windows and all */
    uint64_t page_cache_read_bytes; /* of them found in the page cache */
    uint64_t wanted_bytes; /* of them asked for */
    double read_busy_s;    /* at least one read in flight */
    double read_lane_s;    /* of each lane that reads, summed; by read_busy_s: lanes in use */
    int32_t reads_in_flight_peak;
    uint64_t stream_read_bytes, resident_read_bytes, expert_read_bytes, row_read_bytes;
    uint64_t expert_hits, expert_misses, expert_evictions, expert_hit_bytes, expert_miss_bytes;
    int32_t direct_files, buffered_files;
    const char *direct_note; /* why a file is not read directly, NULL = all as asked */
    const char *lane_backend; /* what reads go through: "io_uring" or "threads" */
    const char *lane_note;    /* why not io_uring, NULL = it is, or threads were asked for */
    double urgent_s; /* somebody waited, or was about to wait, for a read that had been asked for */
    uint64_t urgent_read_bytes; /* bytes of the reads that ended in that time */
    /* memory, of the whole process; UINT64_MAX = not known */
    uint64_t held_bytes; /* ledger: sum of the rows, now */
    uint64_t rss_bytes, rss_peak_bytes, major_faults;
    uint64_t huge_asked_bytes, huge_came_bytes; /* UINT64_MAX unless asked for: slow to find out */
};
LEAT_API void leat_engine_stats(const struct leat_engine *g, int with_huge_pages,
                                struct leat_stats *out);
/* The ledger's rows as they stand; returns their number (at most LEAT_MEMORY_ROWS). */
LEAT_API int32_t leat_engine_memory(const struct leat_engine *g, struct leat_memory_row *rows);

/* ---- text ---- */

struct leat_tokenizer;

enum leat_encode {
    LEAT_ENCODE_SPECIAL =
        1, /* text of control tokens becomes those tokens; without it, it stays text */
    LEAT_ENCODE_ADD_SPECIAL = 2, /* add BOS and EOS as the model's rule says */
};
struct leat_vocab {
    const char *kind, *pre; /* "spm" or "bpe"; the pre-tokenizer's name, "" = none */
    int32_t size;           /* ids 0 .. size-1 */
    int32_t bos, eos;       /* -1 = none */
    int adds_bos, adds_eos;
};

/* source: a model, a vocabulary-only GGUF, a folder, or a tokenizer.json alone. */
LEAT_API int leat_tokenizer_open(const char *source, struct leat_tokenizer **out,
                                 struct leat_error *e);
LEAT_API void leat_tokenizer_close(struct leat_tokenizer *t); /* NULL ok; never a borrowed one */
/* Borrowed. NULL when the model has none that works, with the reason in e. */
LEAT_API const struct leat_tokenizer *leat_engine_tokenizer(const struct leat_engine *g,
                                                            struct leat_error *e);
LEAT_API void leat_tokenizer_facts(const struct leat_tokenizer *t, struct leat_vocab *out);
/* *ids is new memory (leat_free), also for *n = 0. */
LEAT_API int leat_encode(const struct leat_tokenizer *t, const char *text, size_t len,
                         uint32_t flags, int32_t **ids, size_t *n, struct leat_error *e);
/* The text of ids as one sequence: whole characters, U+FFFD for what is none. Control tokens give
 * nothing unless special. New memory, NUL-terminated. */
LEAT_API int leat_decode(const struct leat_tokenizer *t, const int32_t *ids, size_t n, int special,
                         char **text, size_t *len, struct leat_error *e);
/* The vocabulary's own spelling of an id; NULL for an unknown one. Not copied. */
LEAT_API const char *leat_piece(const struct leat_tokenizer *t, int32_t id, size_t *len);
LEAT_API int leat_is_end(const struct leat_tokenizer *t, int32_t id); /* ends generation */

/* ---- sessions ---- */

struct leat_session;

/* At most the parameter "sessions" at once on one engine. */
LEAT_API int leat_session_open(struct leat_engine *g, struct leat_session **out,
                               struct leat_error *e);
LEAT_API void leat_session_close(struct leat_session *s); /* NULL ok */
/* Ids of the timeline; the last of them may not have been evaluated yet. */
LEAT_API const int32_t *leat_session_tokens(const struct leat_session *s, int32_t *n);
/* Forgets ids from upto on. *kept (NULL ok) says how many remain: fewer where the past cannot be
 * restored. */
LEAT_API int leat_session_truncate(struct leat_session *s, int32_t upto, int32_t *kept,
                                   struct leat_error *e);
/* A new session that shares the first upto ids. */
LEAT_API int leat_session_fork(struct leat_session *s, int32_t upto, struct leat_session **out,
                               struct leat_error *e);
/* Ends this session's generation at the next token; from any thread, signal handlers too. In force
 * until its call returns. */
LEAT_API void leat_session_cancel(struct leat_session *s);

/* ---- generation ---- */

enum leat_finish {
    LEAT_FINISH_NONE,
    LEAT_FINISH_STOP,   /* an end token or a stop string */
    LEAT_FINISH_LENGTH, /* predict reached, or the context is full */
    LEAT_FINISH_CANCELLED,
    LEAT_FINISH_ERROR,
};
/* "stop", "length", "cancelled", "error" */
LEAT_API const char *leat_finish_word(enum leat_finish f);

struct leat_progress {
    int32_t prompt_done, prompt_total; /* tokens of this session's prompt */
    int32_t generated;
    int32_t layer, n_layer; /* within the running pass */
    double elapsed_s;
};

struct leat_request {
    struct leat_session *session;
    const struct leat_params *params; /* those with LEAT_PARAM_GENERATE are read; NULL = defaults */
    /* What is appended to the session first: ids, or when ids is NULL, text (NULL: nothing). An
     * EOS is never put behind a text that is to be continued; an empty text at the start of a
     * session is BOS alone. */
    const int32_t *ids;
    int32_t n_ids;
    const char *text;
    size_t text_len;
    uint32_t text_flags; /* enum leat_encode */
    int special;         /* control tokens that are generated print their spelling */
    /* All optional. Return 0 to go on; anything else ends this sequence as cancelled.
     * on_token: every id sampled. on_text: whole characters that no stop string can take back.
     * on_progress: after each layer; look at the clock and return soon. */
    int (*on_token)(void *arg, int32_t id);
    int (*on_text)(void *arg, const char *text, size_t len);
    int (*on_progress)(void *arg, const struct leat_progress *p);
    void *arg;
};

struct leat_result {
    enum leat_finish finish;
    struct leat_error error; /* with LEAT_FINISH_ERROR */
    int32_t *prompt_tokens;  /* what was appended */
    int32_t n_prompt;
    int32_t *tokens; /* every id sampled, the end token included */
    int32_t n_tokens;
    char *text; /* without end tokens and stop strings; NUL-terminated */
    size_t text_len;
    char *stopped_by; /* the stop string that ended it, else NULL */
    uint64_t seed;    /* the one that was used */
    double prompt_s;  /* from the start until the first token was sampled */
    double decode_s;  /* from there until the last one */
    double sample_s;
};

/* Runs n requests of different sessions of one engine together: their tokens ride the same passes,
 * and each gets byte for byte what it would get alone. Returns 0 when each ended with stop or
 * length; otherwise the code of the first that did not (LEAT_ERR_CANCELLED included).
 * results[0..n) are filled in every case. */
LEAT_API int leat_generate(struct leat_engine *g, const struct leat_request *requests, int32_t n,
                           struct leat_result *results, struct leat_error *e);
LEAT_API void leat_result_free(struct leat_result *r); /* the content; NULL ok */

/* ---- evaluation ---- */

struct leat_eval {
    int32_t n;         /* ids evaluated */
    double nll_sum;    /* of tokens 1 .. n-1, natural logarithm */
    double perplexity; /* exp(nll_sum / (n - 1)); not a number for n = 1 */
    double eval_s;
};
/* Appends ids to an empty session and gives the row of logits after each of them, in order.
 * on_logits (NULL ok) may end the call by returning non-zero. Needs no tokenizer. */
LEAT_API int leat_eval(struct leat_session *s, const int32_t *ids, int32_t n,
                       int (*on_logits)(void *arg, int32_t position, const float *logits,
                                        int32_t width),
                       void *arg, struct leat_eval *out, struct leat_error *e);

/* ---- measuring ---- */

struct leat_limits { /* what the machine can do at most; a rate of 0 was not measured */
    int32_t threads;
    const char *isa;
    double read_1_bytes_per_s; /* of memory far beyond the caches, by one thread */
    double read_bytes_per_s;   /* by all threads */
    double int8_macs_per_s;    /* multiply-adds on registers alone, by all threads, of int8_form */
    double int8_1_macs_per_s;  /* by one thread */
    double float_macs_per_s, float_1_macs_per_s;
    const char *int8_form, *float_form; /* instructions; NULL = none was measured */
};
/* With the threads and kernels that params name (NULL = defaults). Takes about a second of those
 * threads and, until it returns, 256 MiB (eight times the largest cache, where that is more) that
 * no engine's budget knows of: call it before leat_open. Where the memory parameter leaves less,
 * reads from memory are not measured. */
LEAT_API int leat_measure_limits(const struct leat_params *params, struct leat_limits *out,
                                 struct leat_error *e);

struct leat_drive_rate {
    double bytes_per_s;  /* 0: was not measured */
    uint64_t read_bytes; /* of one read, with which the rate came */
    int32_t in_flight;   /* reads at once */
    char missing[256];   /* why there is no figure; "" = there is one */
};
struct leat_drive { /* reads of a model's files at random places, the best shape of a few */
    struct leat_drive_rate direct, buffered; /* buffered: only of what is not in the page cache */
    uint64_t probe_bytes;                    /* read for it */
    double probe_s;
};
/* Takes about a second, reads 4 GiB at most and holds 32 MiB at most (less under a small memory
 * parameter) until it returns: call it before leat_open. Fails where the headers of the model
 * cannot be read; what could not be measured is no failure. */
LEAT_API int leat_measure_drive(const char *model, const struct leat_params *params,
                                struct leat_drive *out, struct leat_error *e);

struct leat_kernel_rate { /* the product of a matrix of weights with the activations of tokens */
    const char *format, *isa;
    int32_t threads, tokens, rows, cols;
    double weight_bytes_per_s, macs_per_s;
    int floats; /* 1: multiplies floats, so that float_macs_per_s is its limit */
};
/* formats: names separated by commas, NULL = all that run. Each with 1 token and 1 thread, and with
 * 1, 4 and 512 tokens and all threads; the weights of 1 and 4 tokens lie far beyond the caches.
 * on_rate returns 0 to go on, anything else ends the call as cancelled. Memory as with
 * leat_measure_limits. */
LEAT_API int leat_measure_kernels(const struct leat_params *params, const char *formats,
                                  int (*on_rate)(void *arg, const struct leat_kernel_rate *r),
                                  void *arg, struct leat_error *e);

struct leat_op_rate { /* a kernel that is no product, alone, by one thread, its values in the caches */
    const char *name, *isa;
    int32_t values;     /* of a call: a row's, positions, ids */
    double seconds;     /* of a call */
    double bytes_per_s; /* read and written; of attention, keys and values once */
    double macs_per_s;  /* float multiply-adds; 0 = not counted */
};
/* Activations, norms, rope and their like over rows of 4096; attention of a kv head of 128 with 4 queries a
 * token, behind 8192 positions (decode) and over a prompt of 512; sampling of 256,000 ids. on_rate
 * returns 0 to go on, anything else ends the call as cancelled. Takes two seconds and 32 MiB. */
LEAT_API int leat_measure_ops(const struct leat_params *params,
                              int (*on_rate)(void *arg, const struct leat_op_rate *r), void *arg,
                              struct leat_error *e);

struct leat_work { /* what the pass of one token moves and multiplies, from the headers alone */
    uint64_t dense_bytes;  /* matrices that every token multiplies, the head among them */
    uint64_t expert_bytes; /* routed experts that are chosen for a token, of their mean size */
    uint64_t row_bytes;    /* its row of the embedding table */
    uint64_t kv_bytes;     /* keys and values it sees: position + 1, or a layer's window */
    uint64_t matrix_macs;  /* multiply-adds of dense_bytes and expert_bytes, without the head */
    uint64_t head_macs;
    uint64_t attention_macs; /* with those keys and values */
};
LEAT_API void leat_engine_work(const struct leat_engine *g, int32_t position,
                               struct leat_work *out);

/* ---- replay of a recorded routing ---- */

struct leat_replay; /* read once; no engine is needed */

struct leat_replay_facts { /* as long as the object */
    const char *model;     /* a name for people, "" = not known */
    int32_t n_layers, n_experts;
    int64_t prefill_tokens, decode_tokens;
    uint64_t cycle_bytes; /* of the experts of one decoded token over all layers, the mean */
    uint64_t all_bytes;   /* of all experts of the model */
    int cut;              /* 1: the file lacks its end; what is there was read */
};
/* A trace in our own form or as CSV (docs/routes.md). */
LEAT_API int leat_replay_open(const char *trace, struct leat_replay **out, struct leat_error *e);
LEAT_API void leat_replay_close(struct leat_replay *r); /* NULL ok */
LEAT_API const struct leat_replay_facts *leat_replay_facts(const struct leat_replay *r);
/* The names of the eviction policies, the default first; NULL past the last one. */
LEAT_API const char *leat_eviction(int32_t i);
/* *hit: share of the bytes asked for by the decode that a cache of budget_bytes would have held, 0
 * to 1. policy NULL: Belady's bound, which knows the future. */
LEAT_API int leat_replay_run(const struct leat_replay *r, const char *policy, uint64_t budget_bytes,
                             double *hit, struct leat_error *e);
LEAT_API int leat_replay_csv(const struct leat_replay *r, FILE *f, struct leat_error *e);

/* ---- routing of a mixture of experts (docs/routes.md) ---- */

/* Records into the file at path, from now on and until leat_record_end or leat_close, which experts
 * every token chooses. A trace that is there already is replaced, another file is not. A turn of
 * the trace is a call of leat_generate or leat_eval. */
LEAT_API int leat_record_begin(struct leat_engine *g, const char *path, struct leat_error *e);
/* Ends the trace and tells whether all of it was written. 0 when none was begun. */
LEAT_API int leat_record_end(struct leat_engine *g, struct leat_error *e);

struct leat_routes; /* a recorded routing, to drive a model with */
LEAT_API int leat_routes_open(const char *path, struct leat_routes **out, struct leat_error *e);
LEAT_API void leat_routes_close(struct leat_routes *r); /* NULL ok */

struct leat_routes_facts {
    const char *model; /* that was recorded; "" = not known. Lives as long as the trace */
    int32_t turns, prompt_tokens, decode_tokens;
    int32_t layers; /* with experts */
    int32_t experts, experts_used;
    int cut; /* 1: the end of the file is missing; what is there was read */
};
LEAT_API void leat_routes_facts(const struct leat_routes *r, struct leat_routes_facts *out);

struct leat_routes_part {
    int32_t tokens;
    double elapsed_s, wait_s, read_busy_s;
    uint64_t read_bytes, page_cache_read_bytes, expert_read_bytes; /* as in leat_stats */
    uint64_t expert_hits, expert_misses, expert_hit_bytes, expert_miss_bytes, expert_evictions;
};
struct leat_routes_run {
    struct leat_routes_part prompt, decode; /* sums over all turns */
};
/* Evaluates made-up tokens, prompts and decoded ones as they were recorded, while the recorded
 * experts take the place of those that the router chooses (its arithmetic runs as always). The
 * figures are those of the recorded traffic, the text is nobody's. The model must have as many
 * experts as were recorded and use as many of them; its layers with experts take the recorded ones
 * in order, and from the first again when it has more. Needs a session, and a context of all the
 * tokens and one. on_progress: as in a request. */
LEAT_API int leat_routes_drive(struct leat_engine *g, const struct leat_routes *r,
                               int (*on_progress)(void *arg, const struct leat_progress *p),
                               void *arg, struct leat_routes_run *out, struct leat_error *e);

/* ---- inspection ---- */

struct leat_report;
/* Any well-formed container, runnable or not. */
LEAT_API int leat_inspect(const char *path, struct leat_report **out, struct leat_error *e);
LEAT_API void leat_report_close(struct leat_report *r); /* NULL ok */
/* One JSON object; every tensor is in it. New memory, NULL when the system refused it. */
LEAT_API char *leat_report_json(const struct leat_report *r);
/* For people, 80 columns or so; the list of tensors when tensors is not 0. New memory, NULL when
 * the system refused it. */
LEAT_API char *leat_report_text(const struct leat_report *r, int tensors);

#ifdef __cplusplus
}
#endif

#endif
