/* The expert cache: routed experts in slots of a few sizes under one budget, over all layers.
 * Within a call a wanted expert is pinned until it was given back, what is read is never evicted,
 * and the policy names the victim among the rest. Owns the slots; knows no policy by name and no
 * ring. Thread rule: thread 0.
 *
 * A call (experts_begin) has items, one per id. Misses are read as far as free slots allow and go
 * on in waves as slots come back, so any call works with two slots. In ascending order a pinned
 * expert that is wanted later may have to give way to one that is wanted now. */
#include <assert.h>

#include "../base/checked.h"
#include "experts_room.h"

/* ---- tables ---- */

struct expert_cache *experts_carve(const struct model *m, const struct expert_layout *l,
                                   struct carver *c)
{
    struct expert_cache *x = carve(c, 1, sizeof *x);
    struct layer_experts *layer = carve(c, (uint64_t)l->n_layers, sizeof *layer);
    unit_id first = m->n_units, last = -1;
    const int32_t slots = l->n_units > 2 ? l->n_units : 2; /* whatever the budget will be */
    struct unit_state *unit;
    struct slot *slot;
    int32_t *empty, *bag, *bag_number;
    struct item *item;
    struct evict *evict;
    bool *hit;
    const struct evict_shape shape = {l->n_layers, l->most, m->n_expert_used};

    for (int32_t i = 0; i < m->n_units; i++)
        if (m->units[i].kind == UNIT_EXPERT) {
            first = i < first ? i : first;
            last = i;
        }
    unit = carve(c, (uint64_t)(last - first + 1), sizeof *unit);
    slot = carve(c, (uint64_t)slots, sizeof *slot);
    empty = carve(c, (uint64_t)slots, sizeof *empty);
    bag = carve(c, (uint64_t)slots, sizeof *bag);
    bag_number = carve(c, (uint64_t)slots, sizeof *bag_number);
    item = carve(c, (uint64_t)l->most, sizeof *item);
    hit = carve(c, (uint64_t)l->most, sizeof *hit);
    evict = carve(c, evict_bytes(&shape) / sizeof(double), sizeof(double));
    if (!x)
        return NULL;
    x->layout = *l;
    x->layer = layer;
    x->first_unit = first;
    x->unit = unit;
    x->slot = slot;
    x->empty = empty;
    x->bag = bag;
    x->bag_number = bag_number;
    x->item = item;
    x->hit = hit;
    x->evict = evict;
    for (int32_t i = 0; i <= last - first; i++)
        unit[i] = (struct unit_state){.slot = -1};
    for (int32_t i = 0; i < l->n_layers; i++)
        layer[i].first = -1;
    for (int32_t i = first; i <= last;) {
        int32_t end;
        if (m->units[i].kind != UNIT_EXPERT) {
            i++;
            continue;
        }
        end = expert_run_end(m, i);
        layer[m->units[i].layer] = (struct layer_experts){
            i, end - i, expert_class_of(l, expert_layer_bytes(m, i, end - i))};
        for (; i < end; i++)
            unit[i - first].number = m->units[i].layer * l->most + m->units[i].expert;
    }
    return x;
}

/* ---- slots that may be taken ---- */

void experts_offer(struct expert_cache *x, int32_t slot)
{
    struct slot *s = &x->slot[slot];
    const int32_t first = x->class_first[s->class];
    int32_t at;

    assert(s->bag_at < 0);
    if (s->state == SLOT_EMPTY) {
        x->empty[first + x->empty_n[s->class]++] = slot;
        return;
    }
    at = first + x->bag_n[s->class]++;
    x->bag[at] = slot;
    x->bag_number[at] = state_of(x, s->unit)->number;
    s->bag_at = at;
}

static void bag_remove(struct expert_cache *x, int32_t slot)
{
    struct slot *s = &x->slot[slot];
    const int32_t at = s->bag_at, last = x->class_first[s->class] + --x->bag_n[s->class];

    assert(at >= 0);
    x->bag[at] = x->bag[last];
    x->bag_number[at] = x->bag_number[last];
    x->slot[x->bag[at]].bag_at = at;
    s->bag_at = -1;
}

/* ---- opening ---- */

int experts_open(struct weights *w, uint64_t bytes, struct leat_error *e)
{
    struct expert_cache *x = w->experts;
    uint64_t used, at = 0;
    void *mem = NULL;
    int rc;

    if (bytes < x->layout.min_bytes) {
        char need[24], got[24];
        return error_set(
            e, LEAT_ERR_MEMORY,
            "the expert cache needs room for two experts: %s, but it was given %s (raise "
            "--expert-cache or the memory budget)",
            format_bytes(need, sizeof need, x->layout.min_bytes),
            format_bytes(got, sizeof got, bytes));
    }
    used = expert_slots(&x->layout, bytes);
    rc = ledger_take(w->ledger, DOMAIN_HELD, ROW_EXPERTS, used, &mem, e);
    if (rc)
        return rc;
    x->mem = mem;
    x->taken = used;
    evict_make(w->policy,
               &(struct evict_shape){x->layout.n_layers, x->layout.most, w->m->n_expert_used},
               x->evict);
    for (int32_t c = 0; c < x->layout.n_classes; c++) {
        x->class_first[c] = x->n_slots;
        for (int32_t i = 0; i < x->layout.class[c].slots; i++) {
            x->slot[x->n_slots] =
                (struct slot){.at = at, .unit = -1, .class = c, .item = -1, .bag_at = -1};
            experts_offer(x, x->n_slots++);
            at += x->layout.class[c].slot_bytes;
        }
    }
    assert(at == used);
    return 0;
}

void experts_close(struct weights *w)
{
    struct expert_cache *x = w->experts;

    if (x->taken)
        ledger_give(w->ledger, DOMAIN_HELD, ROW_EXPERTS, x->mem, x->taken);
    x->taken = 0;
}

/* ---- reading ---- */

static struct expert_load *free_load(struct expert_cache *x)
{
    for (int32_t i = 0; i < EXPERT_LOADS; i++)
        if (x->load[i].pending == 0)
            return &x->load[i];
    return NULL;
}

static void forget(struct expert_cache *x, struct slot *s)
{
    if (s->unit >= 0) {
        state_of(x, s->unit)->slot = -1;
        evict_gone(x->evict, state_of(x, s->unit)->number);
    }
    s->unit = -1;
    s->state = SLOT_EMPTY;
}

/* A slot for a unit of this class: an empty one, else the policy's victim; larger slots only when
 * the class has none to give. -1 = none. */
static int32_t take_slot(struct expert_cache *x, int32_t class)
{
    for (int32_t c = class; c < x->layout.n_classes; c++)
        if (x->empty_n[c] > 0)
            return x->empty[x->class_first[c] + --x->empty_n[c]];
    for (int32_t c = class; c < x->layout.n_classes; c++)
        if (x->bag_n[c] > 0) {
            const int32_t first = x->class_first[c];
            const int32_t slot =
                x->bag[first + evict_victim(x->evict, x->bag_number + first, x->bag_n[c])];
            bag_remove(x, slot);
            return slot;
        }
    return -1;
}

static void start_read(struct weights *w, struct expert_load *l, int32_t slot, unit_id u,
                       bool advice)
{
    struct expert_cache *x = w->experts;
    struct slot *s = &x->slot[slot];
    struct expert_reads r;

    if (s->state == SLOT_READY)
        w->stats.expert_evictions++;
    forget(x, s);
    s->unit = u;
    s->state = SLOT_READING;
    state_of(x, u)->slot = slot;
    expert_reads(&w->m->units[u], &r);
    *l = (struct expert_load){.n = r.n, .pending = r.n, .slot = slot};
    for (int32_t i = 0; i < r.n; i++) {
        const struct expert_extent *t = &r.extent[i];
        weights_request(w, &l->req[i], t->file, t->offset, t->bytes, x->mem + s->at + t->at,
                        read_tag(READ_EXPERT, (int32_t)(l - x->load)));
        l->req[i].urgent = !advice;
        l->req[i].group = 1 + (int32_t)(l - x->load);
        l->req[i].advice = advice;
        lanes_submit(w->lanes, &l->req[i]);
    }
}

/* All reads of a load came back (or were taken back). */
static void end_load(struct expert_cache *x, struct expert_load *l)
{
    struct slot *s = &x->slot[l->slot];
    struct item *item = s->item >= 0 ? &x->item[s->item] : NULL;

    if (!l->spoiled) {
        s->state = SLOT_READY;
        if (item)
            item->state = ITEM_READY;
        else
            experts_offer(x, l->slot);
        return;
    }
    if (item) {
        item->state = ITEM_FAILED;
        item->slot = -1;
        x->failure = l->failure;
    }
    s->item = -1;
    forget(x, s);
    experts_offer(x, l->slot);
}

void experts_arrived(struct weights *w, int32_t index, struct lane_request *r)
{
    struct expert_cache *x = w->experts;
    struct expert_load *l = &x->load[index];

    if (r->code) {
        if (!l->failed)
            l->failure = *r;
        l->failed = l->spoiled = true;
    } else {
        w->stats.expert_bytes_read += r->bytes;
    }
    if (--l->pending == 0)
        end_load(x, l);
}

static struct expert_load *load_of(struct expert_cache *x, int32_t slot)
{
    for (int32_t i = 0; i < EXPERT_LOADS; i++)
        if (x->load[i].pending && x->load[i].slot == slot)
            return &x->load[i];
    return NULL;
}

/* A read that was advice is wanted now: what still waits in the queue goes to the front. */
static void make_urgent(struct weights *w, int32_t slot)
{
    struct expert_load *l = load_of(w->experts, slot);

    for (int32_t i = 0; l && i < l->n; i++) {
        struct lane_request *r = &l->req[i];
        if (r->advice && lanes_take_back(w->lanes, r)) {
            r->advice = false;
            r->urgent = true;
            lanes_submit(w->lanes, r);
        }
    }
}

/* ---- a call ---- */

/* Takes the slot of the item that is wanted last of all that are only pinned. */
static int32_t take_pinned(struct expert_cache *x, int32_t before)
{
    for (int32_t i = x->n_items - 1; i > before; i--) {
        struct item *t = &x->item[i];
        if (t->state == ITEM_READY && x->slot[t->slot].class >= x->class) {
            const int32_t slot = t->slot;
            t->state = ITEM_MISSING;
            t->slot = -1;
            x->slot[slot].item = -1;
            if (i < x->next_issue)
                x->next_issue = i;
            return slot;
        }
    }
    return -1;
}

/* Starts the reads of missing items in order, as far as slots go. must: this item may take a pinned
 * slot. */
static void issue(struct weights *w, int32_t must)
{
    struct expert_cache *x = w->experts;

    for (; x->next_issue < x->n_items; x->next_issue++) {
        const int32_t i = x->next_issue;
        struct item *t = &x->item[i];
        struct expert_load *l;
        int32_t slot;

        if (t->state != ITEM_MISSING)
            continue;
        l = free_load(x);
        if (!l)
            return;
        slot = take_slot(x, x->class);
        if (slot < 0 && i == must)
            slot = take_pinned(x, i);
        if (slot < 0)
            return;
        start_read(w, l, slot, t->unit, false);
        t->slot = slot;
        t->state = ITEM_READING;
        x->slot[slot].item = i;
    }
}

static void count_use(struct weights *w, unit_id u, bool hit)
{
    const struct unit *unit = &w->m->units[u];
    uint64_t bytes = 0;

    for (int32_t i = 0; i < unit->n_parts; i++)
        bytes += unit->part[i].bytes;
    if (hit) {
        w->stats.expert_hits++;
        w->stats.expert_hit_bytes += bytes;
    } else {
        w->stats.expert_misses++;
        w->stats.expert_miss_bytes += bytes;
    }
}

void experts_chosen(struct weights_pass *p, const int32_t *ids, int32_t tokens, int32_t per_token)
{
    struct expert_cache *x = p->w->experts;

    if (!x)
        return;
    x->chosen = ids;
    x->tokens = tokens;
    x->per_token = per_token;
}

/* Tells the policy of the call, whose hits are noted. */
static void tell_policy(struct weights *w, int32_t layer, const uint16_t *ids, int32_t n)
{
    struct expert_cache *x = w->experts;

    evict_used(x->evict, &(struct evict_call){.pass = w->pass_no,
                                              .layer = layer,
                                              .n = n,
                                              .ids = ids,
                                              .hit = x->hit,
                                              .slots = x->n_slots,
                                              .chosen = x->chosen,
                                              .tokens = x->chosen ? x->tokens : 0,
                                              .per_token = x->per_token});
    x->chosen = NULL;
}

int experts_begin(struct weights_pass *p, int32_t layer, const uint16_t *ids, int32_t n,
                  bool ordered, struct leat_error *e)
{
    struct weights *w = p->w;
    struct expert_cache *x = w->experts;
    const struct layer_experts *le;
    int rc;

    assert(p->running);
    rc = weights_check_cancel(w, e);
    if (rc)
        return rc;
    if (!x || layer < 0 || layer >= x->layout.n_layers || x->layer[layer].first < 0)
        return error_set(e, LEAT_ERR_STATE, "layer %d has no experts", (int)layer);
    if (x->n_given < x->n_items || x->leases)
        return error_set(e, LEAT_ERR_STATE,
                         "layer %d: the experts before were not all taken and given back",
                         (int)layer);
    le = &x->layer[layer];
    for (int32_t i = 0; i < n; i++)
        if (ids[i] >= le->n || (i > 0 && ids[i] <= ids[i - 1]))
            return error_set(e, LEAT_ERR_INTERNAL,
                             "layer %d: expert %d of %d is out of bounds or out of order",
                             (int)layer, (int)ids[i], (int)le->n);
    weights_reap(w, false);
    x->n_items = n;
    x->n_given = 0;
    x->class = le->class;
    x->next_issue = 0;
    x->ordered = ordered;
    x->waited = false;
    for (int32_t i = 0; i < n; i++) {
        struct item *t = &x->item[i];
        struct unit_state *u = state_of(x, le->first + ids[i]);

        *t = (struct item){le->first + ids[i], u->slot, ITEM_MISSING, false};
        if (u->slot >= 0) {
            struct slot *s = &x->slot[u->slot];
            t->state = s->state == SLOT_READY ? ITEM_READY : ITEM_READING;
            s->item = i;
            if (s->bag_at >= 0)
                bag_remove(x, u->slot);
            if (t->state == ITEM_READING)
                make_urgent(w, u->slot);
        }
        x->hit[i] = u->slot >= 0;
        t->hit = t->state == ITEM_READY;
        count_use(w, t->unit, t->hit);
    }
    tell_policy(w, layer, ids, n);
    issue(w, -1);
    weights_reap(w, false); /* those reads start now */
    weights_pump(w);
    return 0;
}

void experts_hits(const struct weights_pass *p, uint8_t *hit)
{
    const struct expert_cache *x = p->w->experts;

    for (int32_t i = 0; i < x->n_items; i++)
        hit[p->w->m->units[x->item[i].unit].expert] = x->item[i].hit;
}

static int give(struct weights *w, struct item *t, struct expert_view *v)
{
    struct expert_cache *x = w->experts;
    const struct unit *u = &w->m->units[t->unit];
    struct expert_reads r;

    expert_reads(u, &r);
    *v = (struct expert_view){.expert = u->expert, .unit = u, .lease = &x->slot[t->slot]};
    for (int32_t i = 0; i < u->n_parts; i++) {
        const struct expert_extent *t_ext = &r.extent[r.of_part[i]];
        v->data[i] = x->mem + x->slot[t->slot].at + t_ext->at + lane_inner(t_ext->offset) +
                     (u->part[i].offset - t_ext->offset);
    }
    t->state = ITEM_LEASED;
    x->slot[t->slot].leased = true;
    x->leases++;
    x->n_given++;
    return 1;
}

/* The item to give now: the next in order; else a hit, the first that has come, or the first that is
 * missing. -1 = all were given. */
static int32_t pick(const struct expert_cache *x)
{
    int32_t come = -1, missing = -1;

    for (int32_t i = 0; i < x->n_items; i++) {
        const struct item *t = &x->item[i];
        if (t->state == ITEM_LEASED || t->state == ITEM_GIVEN)
            continue;
        if (x->ordered || t->state == ITEM_FAILED || (t->state == ITEM_READY && t->hit))
            return i;
        if (t->state == ITEM_READY)
            come = come < 0 ? i : come;
        else if (missing < 0)
            missing = i;
    }
    return come >= 0 ? come : missing;
}

static bool any_reading(const struct expert_cache *x)
{
    for (int32_t i = 0; i < EXPERT_LOADS; i++)
        if (x->load[i].pending)
            return true;
    return false;
}

int experts_next(struct weights_pass *p, struct expert_view *v, struct leat_error *e)
{
    struct weights *w = p->w;
    struct expert_cache *x = w->experts;
    int rc = weights_check_cancel(w, e);

    assert(p->running && x);
    if (rc)
        return rc;
    weights_reap(w, false);
    for (;;) {
        const int32_t i = pick(x);
        struct item *t = i >= 0 ? &x->item[i] : NULL;

        if (!t)
            return 0;
        if (t->state == ITEM_READY)
            return give(w, t, v);
        if (t->state == ITEM_FAILED) {
            char q[256];
            const char *name = w->m->units[t->unit].name ? w->m->units[t->unit].name : "";
            p->broken = true;
            rc = lane_error(&x->failure, e);
            error_quote(q, sizeof q, name, __builtin_strlen(name));
            return e ? error_prefix(e, "expert %d of %s", (int)w->m->units[t->unit].expert, q) : rc;
        }
        issue(w, i);
        if (t->state == ITEM_MISSING && x->leases && !any_reading(x)) {
            p->broken = true;
            return error_set(e, LEAT_ERR_STATE,
                             "an expert was asked for while all slots are leased");
        }
        rc = weights_check_cancel(w, e);
        if (rc)
            return rc;
        weights_wait(w, &x->waited);
    }
}

int experts_more(struct weights_pass *p, struct expert_view *v)
{
    struct expert_cache *x = p->w->experts;
    const int32_t i = pick(x);

    assert(p->running && x);
    return i >= 0 && x->item[i].state == ITEM_READY ? give(p->w, &x->item[i], v) : 0;
}

void experts_done(struct weights_pass *p, struct expert_view *v)
{
    struct weights *w = p->w;
    struct expert_cache *x = w->experts;
    struct slot *s = v->lease;

    assert(s && s->leased && s->item >= 0);
    s->leased = false;
    x->item[s->item].state = ITEM_GIVEN;
    s->item = -1;
    x->leases--;
    v->lease = NULL;
    experts_offer(x, (int32_t)(s - x->slot));
    issue(w, -1);
}

void experts_abandon(struct weights *w, bool drain)
{
    struct expert_cache *x = w->experts;

    for (int32_t i = 0; i < x->n_items; i++) {
        struct item *t = &x->item[i];
        struct slot *s = t->slot >= 0 ? &x->slot[t->slot] : NULL;
        if (!s || s->item != i)
            continue;
        s->item = -1;
        s->leased = false;
        if (s->state == SLOT_READY)
            experts_offer(x, t->slot);
    }
    x->n_items = x->n_given = x->leases = 0;
    for (int32_t i = EXPERT_LOADS - 1; drain && i >= 0; i--) {
        struct expert_load *l = &x->load[i];
        for (int32_t k = 0; k < l->n && l->pending; k++)
            if (lanes_take_back(w->lanes, &l->req[k])) {
                l->spoiled = true;
                if (--l->pending == 0)
                    end_load(x, l);
            }
    }
    for (int32_t i = 0; drain && i < EXPERT_LOADS; i++)
        while (x->load[i].pending)
            weights_reap(w, true);
}

void weights_advise(struct weights_pass *p, int32_t layer, const uint16_t *ids, int32_t n)
{
    struct weights *w = p->w;
    struct expert_cache *x = w->experts;

    if (!x || layer < 0 || layer >= x->layout.n_layers || x->layer[layer].first < 0)
        return;
    for (int32_t i = 0; i < n; i++) {
        const struct layer_experts *le = &x->layer[layer];
        struct expert_load *l = free_load(x);
        const int32_t first = x->class_first[le->class];

        if (!l || x->empty_n[le->class] == 0)
            return; /* a guess evicts nothing */
        if (ids[i] >= le->n || state_of(x, le->first + ids[i])->slot >= 0)
            continue;
        start_read(w, l, x->empty[first + --x->empty_n[le->class]], le->first + ids[i], true);
    }
}
