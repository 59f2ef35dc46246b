/* A recorded routing: which experts each token chose, layer by layer, and what the cache then had.
 * Held whole in memory, written and read as our own compact form or the published CSV form
 * (docs/routes.md). Pure data: knows no engine, no cache. Thread rule: one thread at a time. */
#ifndef WEIGHTS_ROUTE_TRACE_H
#define WEIGHTS_ROUTE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../base/error.h"

enum route_phase { ROUTE_PREFILL = 0, ROUTE_DECODE = 1 };

#define ROUTE_LAYERS_MOST  4096
#define ROUTE_EXPERTS_MOST 65535
#define ROUTE_CHOICES_MOST 255 /* experts of one token in one layer */

/* What one token chose in one layer. */
struct route_row {
    int32_t turn;  /* conversation turn, never falling */
    int32_t token; /* absolute position in its text */
    int32_t layer; /* of the model */
    uint8_t phase; /* enum route_phase */
    uint8_t n;     /* experts chosen, at least 1 */
    int64_t first; /* index of the first of them in the three arrays below */
};

struct route_trace {
    char model[256];        /* a name for people; "" = not known */
    int32_t n_layers;       /* 1 + highest layer */
    int32_t n_experts;      /* per layer */
    uint64_t *expert_bytes; /* by layer: bytes of one expert; 0 = a layer without experts */
    int64_t n_rows, n_choices;
    struct route_row *row; /* in the order in which it happened: ubatch by ubatch, within a ubatch
                              layer by layer, within a layer token by token */
    uint16_t *expert;      /* in the order of choice (best first where that is known), distinct */
    float *weight;         /* as it is multiplied; 0 = not recorded */
    uint8_t *hit;          /* 1 = was in the cache when it was wanted */
    bool cut;              /* the file ends without its end mark: the run that wrote it was killed,
                              and these are the rows that it had written. Say so to the user. */
};

/* Either form, told apart by its first bytes; a pipe will do. Errors: LEAT_ERR_FILE when it cannot
 * be read, LEAT_ERR_FORMAT (with line or offset, figure and remedy) when it is no trace,
 * LEAT_ERR_MEMORY. *out is NULL then. Whatever is in it, a trace that was read is sound: layers and
 * experts within their counts, experts of a row distinct, every layer of a row with bytes. */
int route_trace_read(const char *path, struct route_trace **out, struct leat_error *e);
/* The same from memory; path is for messages only. */
int route_trace_parse(const char *path, const uint8_t *data, size_t n, struct route_trace **out,
                      struct leat_error *e);
void route_trace_free(struct route_trace *t); /* NULL ok */
/* Bytes that one token of the decode reads when nothing is cached: the mean over decoded tokens of
 * the sum over layers of chosen experts' bytes. The cycle of budgets. 0 when nothing is decoded. */
uint64_t route_trace_cycle_bytes(const struct route_trace *t);
/* The published CSV form, which route_trace_read reads back to the same trace (weights to nine
 * digits). 0, or the errno of a failed write; f stays the caller's. */
int route_trace_csv(const struct route_trace *t, FILE *f);

/* Writes our form row by row; nothing is kept but a small buffer. What a killed run has written
 * can be read up to the last full buffer. */
struct route_writer;
/* Replaces a trace (or an empty file) at path; another file is refused, LEAT_ERR_FILE. */
int route_writer_open(const char *path, const char *model, int32_t n_layers, int32_t n_experts,
                      const uint64_t *expert_bytes, struct route_writer **out,
                      struct leat_error *e);
/* r->n figures at expert, weight (NULL = not recorded) and hit; r->first is not looked at. The row
 * must be sound (see route_trace_read). The first failure is kept and told by close. */
void route_writer_put(struct route_writer *w, const struct route_row *r, const uint16_t *expert,
                      const float *weight, const uint8_t *hit);
/* Whether a write has failed already. */
bool route_writer_failed(const struct route_writer *w);
int route_writer_close(struct route_writer *w, struct leat_error *e); /* NULL ok: 0 */

#endif
