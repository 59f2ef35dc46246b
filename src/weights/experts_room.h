/* The expert cache inside: what its files share (expert_cache.c: calls, leases, reads;
 * experts_resize.c: another size between passes). Private to them. Thread rule: thread 0. */
#ifndef WEIGHTS_EXPERTS_ROOM_H
#define WEIGHTS_EXPERTS_ROOM_H

#include "weights_room.h"

enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_READY };

struct slot {
    uint64_t at;  /* in the region */
    unit_id unit; /* -1 = empty */
    enum slot_state state;
    int32_t class, item; /* item of the present call that wants it, -1 = none */
    int32_t bag_at;      /* -1 = not in the bag: empty, being read or wanted */
    bool leased;
};

struct unit_state {
    int32_t slot;   /* -1 = not in the cache */
    int32_t number; /* the policy's: layer * most + expert */
};

struct expert_load {
    struct lane_request req[UNIT_PARTS];
    int32_t n, pending, slot; /* pending 0 = free */
    bool spoiled;             /* a read failed or was taken back */
    bool failed;
    struct lane_request failure;
};

enum item_state { ITEM_MISSING, ITEM_READING, ITEM_READY, ITEM_LEASED, ITEM_GIVEN, ITEM_FAILED };
struct item {
    unit_id unit;
    int32_t slot;
    enum item_state state;
    bool hit; /* it was ready when the call began */
};

struct layer_experts {
    unit_id first; /* -1 = none */
    int32_t n, class;
};

struct expert_cache {
    struct expert_layout layout;
    struct layer_experts *layer;
    struct unit_state *unit; /* by unit - first_unit */
    unit_id first_unit;
    struct slot *slot;
    struct evict *evict; /* the policy and what it remembers */
    /* Per class a run as long as its slots, from class_first on: slots that are empty, as a stack;
     * the bag, slots that may be evicted in no order, with the policy's number of what they hold. */
    int32_t *empty, *bag, *bag_number;
    int32_t class_first[LAYOUT_CLASSES], empty_n[LAYOUT_CLASSES], bag_n[LAYOUT_CLASSES];
    struct expert_load load[EXPERT_LOADS];
    uint8_t *mem;
    uint64_t taken;
    int32_t n_slots;
    /* the call in progress */
    struct item *item;
    bool *hit;             /* as long as item */
    const int32_t *chosen; /* experts_chosen; NULL = not known */
    int32_t tokens, per_token;
    int32_t n_items, n_given, class, leases;
    int32_t next_issue; /* no missing item lies before it */
    bool ordered;
    bool waited;
    struct lane_request failure; /* of a FAILED item */
};

static inline struct unit_state *state_of(struct expert_cache *x, unit_id u)
{
    return &x->unit[u - x->first_unit];
}

/* Puts a slot that is empty, or ready and wanted by nobody, among those that may be evicted. */
void experts_offer(struct expert_cache *x, int32_t slot);

#endif
