/* Where the bytes of a model go in memory, as pure arithmetic over struct model: windows, pieces,
 * the resident share, expert slots by size. No memory but the caller's, no reads. Private to
 * weights/. Any thread. */
#ifndef WEIGHTS_LAYOUT_H
#define WEIGHTS_LAYOUT_H

#include "weights.h"

/* A matrix up to this size is small: it is kept whole before large ones share what is left. */
#define LAYOUT_SMALL (UINT64_C(256) << 10)
/* One load of resident bytes: a multiple of FILE_ALIGN. */
#define LAYOUT_CHUNK (UINT64_C(2) << 20)

/* One dense unit of the schedule. */
struct dense {
    const struct part *part;
    unit_id unit;
    bool head;
    /* resident: the first rows */
    int32_t resident_rows;
    uint64_t resident_at;          /* of the window in the resident region */
    int32_t first_chunk, n_chunks; /* in the order of loading */
    /* stream: the rest, in pieces of this many rows */
    int32_t piece_rows;
};

/* Bytes of the window around the first `rows` rows. */
uint64_t dense_window(const struct dense *d, int32_t rows);
void dense_init(struct dense *d, const struct model *m, int32_t schedule_index);
/* The largest window that any piece of it may need, wherever it starts. */
uint64_t dense_piece_bound(const struct dense *d);

/* Sets resident_rows, resident_at, chunks and piece_rows of n units so that their windows take at
 * most `bytes` of the ledger. Returns the bytes taken (not rounded). */
uint64_t layout_resident(struct dense *d, int32_t n, uint64_t bytes);

/* bytes as the ledger can grant them without passing `bytes`. */
uint64_t layout_granted(uint64_t bytes);

/* The reads of one expert: adjacent parts are read together. */
struct expert_extent {
    int32_t file;
    uint64_t offset, bytes, at; /* at: of the window in the slot */
};
struct expert_reads {
    int32_t n;
    struct expert_extent extent[UNIT_PARTS];
    int32_t of_part[UNIT_PARTS]; /* extent that holds the part */
    uint64_t slot_bytes;         /* sum of the windows */
};
void expert_reads(const struct unit *u, struct expert_reads *r);

#define LAYOUT_CLASSES 16
struct expert_layout {
    int32_t n_layers;      /* 1 + highest layer that has experts */
    int32_t n_units, most; /* experts in all, and the most in one layer */
    int32_t n_classes;
    struct {
        uint64_t slot_bytes; /* ascending */
        int32_t units, slots;
    } class[LAYOUT_CLASSES];
    uint64_t min_bytes, all_bytes; /* as the ledger would charge */
};
/* Fails when units contradict each other (a layer's experts not in order). */
int expert_layout(const struct model *m, struct expert_layout *l, struct leat_error *e);
/* The experts of a layer are units i to end - 1, in order; i is its first. */
int32_t expert_run_end(const struct model *m, int32_t i);
/* Largest slot that any expert of the layer needs. */
uint64_t expert_layer_bytes(const struct model *m, unit_id first, int32_t n);
int32_t expert_class_of(const struct expert_layout *l, uint64_t slot_bytes);
/* Divides bytes (>= min_bytes) into slots of each class. Returns the bytes used. */
uint64_t expert_slots(struct expert_layout *l, uint64_t bytes);

/* Buffers for reading rows of tables and vectors. */
struct row_layout {
    int32_t n;
    uint64_t buffer_bytes;
};
void row_layout(const struct model *m, int32_t lanes, struct row_layout *r);

#endif
