/* Between the files route_trace*.c: a trace that grows, and the figures of our own form. Private
 * to them. */
#ifndef WEIGHTS_ROUTE_TRACE_ROOM_H
#define WEIGHTS_ROUTE_TRACE_ROOM_H

#include "route_trace.h"

/* Our own form (docs/routes.md); all figures little endian. */
#define ROUTE_MAGIC       "LEATRTE\1"
#define ROUTE_MAGIC_BYTES 8
#define ROUTE_HEAD_BYTES  20 /* before the name: magic; layers, experts, length of name u32 */
#define ROUTE_BLOCK_HEAD  16          /* bytes u32, rows u32, checksum u64 */
#define ROUTE_BLOCK_FULL  (16u << 10) /* a block is written when it has so many bytes */
#define ROUTE_BLOCK_MOST  (1u << 20)  /* and no reader takes a larger one */
/* A row at most: one byte, three varints of five, one count, figures of every choice. */
#define ROUTE_ROW_MOST (1 + 3 * 5 + 1 + ROUTE_CHOICES_MOST * (2 + 4) + (ROUTE_CHOICES_MOST + 7) / 8)
enum route_flag { ROUTE_FLAG_DECODE = 1, ROUTE_FLAG_WEIGHTS = 2 };

uint64_t route_checksum(const uint8_t *p, size_t n); /* FNV-1a, 64 bits */

/* The trace being read; where names the place of a row for messages ("line 7"). */
struct route_builder {
    struct route_trace *t;
    int64_t rows_room, choices_room;
    const char *path;
};
/* Sets n_layers and n_experts and makes expert_bytes, all 0. */
int route_builder_sizes(struct route_builder *b, uint64_t n_layers, uint64_t n_experts,
                        const char *where, struct leat_error *e);
/* Checks a whole row and appends it. */
int route_builder_add(struct route_builder *b, const struct route_row *r, const uint16_t *expert,
                      const float *weight, const uint8_t *hit, const char *where,
                      struct leat_error *e);

int route_csv_parse(struct route_builder *b, const uint8_t *data, size_t n, struct leat_error *e);

#endif
