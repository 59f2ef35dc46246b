/* The arithmetic of experts: which bytes of an expert are read together, and slots of a few sizes
 * under one budget. Pure. Any thread. */
#include <assert.h>
#include <string.h>

#include "../base/checked.h"
#include "layout.h"

/* Parts whose windows would touch anyway are one read. */
#define JOIN_GAP FILE_ALIGN

void expert_reads(const struct unit *u, struct expert_reads *r)
{
    int32_t order[UNIT_PARTS];

    *r = (struct expert_reads){0};
    for (int32_t i = 0; i < u->n_parts;
         i++) { /* by file and offset: insertion sort of at most three */
        const struct part *p = &u->part[i];
        int32_t at = i;

        while (at > 0) {
            const struct part *q = &u->part[order[at - 1]];
            if (q->file < p->file || (q->file == p->file && q->offset <= p->offset))
                break;
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    for (int32_t i = 0; i < u->n_parts; i++) {
        const struct part *p = &u->part[order[i]];
        struct expert_extent *x = r->n ? &r->extent[r->n - 1] : NULL;

        if (!x || x->file != p->file || p->offset > x->offset + x->bytes + JOIN_GAP) {
            x = &r->extent[r->n++];
            *x = (struct expert_extent){.file = p->file, .offset = p->offset, .bytes = p->bytes};
        } else if (p->offset + p->bytes > x->offset + x->bytes) {
            x->bytes = p->offset + p->bytes - x->offset;
        }
        r->of_part[order[i]] = r->n - 1;
    }
    for (int32_t i = 0; i < r->n; i++) {
        r->extent[i].at = r->slot_bytes;
        r->slot_bytes += lane_window(r->extent[i].offset, r->extent[i].bytes);
    }
}

int32_t expert_run_end(const struct model *m, int32_t i)
{
    const int32_t layer = m->units[i].layer;

    while (i < m->n_units && m->units[i].kind == UNIT_EXPERT && m->units[i].layer == layer)
        i++;
    return i;
}

uint64_t expert_layer_bytes(const struct model *m, unit_id first, int32_t n)
{
    uint64_t most = 0;

    for (int32_t i = 0; i < n; i++) {
        struct expert_reads r;
        expert_reads(&m->units[first + i], &r);
        if (r.slot_bytes > most)
            most = r.slot_bytes;
    }
    return most;
}

int32_t expert_class_of(const struct expert_layout *l, uint64_t slot_bytes)
{
    int32_t c = 0;

    while (c < l->n_classes && l->class[c].slot_bytes < slot_bytes)
        c++;
    assert(c < l->n_classes);
    return c;
}

/* The largest layer size not above `limit`; 0 = none. */
static uint64_t largest_size(const struct model *m, uint64_t limit)
{
    uint64_t best = 0;

    for (int32_t i = 0; i < m->n_units;) {
        if (m->units[i].kind != UNIT_EXPERT) {
            i++;
            continue;
        }
        const int32_t end = expert_run_end(m, i);
        const uint64_t size = expert_layer_bytes(m, i, end - i);
        if (size <= limit && size > best)
            best = size;
        i = end;
    }
    return best;
}

/* Classes from the largest size down; a size at most size / tolerance below its class's joins it.
 * False when there would be too many. */
static bool make_classes(const struct model *m, struct expert_layout *l, uint64_t tolerance)
{
    uint64_t size = largest_size(m, UINT64_MAX);

    l->n_classes = 0;
    while (size) {
        if (l->n_classes == LAYOUT_CLASSES)
            return false;
        memmove(&l->class[1], &l -> class[0], (size_t)l -> n_classes * sizeof l->class[0]);
        memset(&l->class[0], 0, sizeof l->class[0]);
        l->class[0].slot_bytes = size;
        l->n_classes++;
        size = largest_size(m, size - size / tolerance - 1);
    }
    return true;
}

static int check_order(const struct model *m, struct expert_layout *l, struct leat_error *e)
{
    for (int32_t i = 0; i < m->n_units;) {
        int32_t n, end;

        if (m->units[i].kind != UNIT_EXPERT) {
            i++;
            continue;
        }
        end = expert_run_end(m, i);
        n = end - i;
        for (int32_t k = 0; k < n; k++)
            if (m->units[i + k].expert != k || m->units[i + k].n_parts < 1 ||
                m->units[i + k].n_parts > UNIT_PARTS)
                return error_set(e, LEAT_ERR_INTERNAL, "layer %d: experts are not in order",
                                 (int)m->units[i].layer);
        if (m->units[i].layer < 0)
            return error_set(e, LEAT_ERR_INTERNAL, "experts outside the layers");
        if (m->units[i].layer >= l->n_layers)
            l->n_layers = m->units[i].layer + 1;
        if (n > l->most)
            l->most = n;
        l->n_units += n;
        i = end;
    }
    return 0;
}

int expert_layout(const struct model *m, struct expert_layout *l, struct leat_error *e)
{
    uint64_t all = 0, largest;
    int rc;

    *l = (struct expert_layout){0};
    rc = check_order(m, l, e);
    if (rc || l->n_units == 0)
        return rc;
    for (uint64_t tolerance = 32; !make_classes(m, l, tolerance); tolerance /= 2)
        assert(tolerance > 1); /* sizes that halve 16 times do not exist */
    for (int32_t i = 0; i < m->n_units;) {
        if (m->units[i].kind != UNIT_EXPERT) {
            i++;
            continue;
        }
        const int32_t end = expert_run_end(m, i);
        l->class[expert_class_of(l, expert_layer_bytes(m, i, end - i))].units += end - i;
        i = end;
    }
    for (int32_t c = 0; c < l->n_classes; c++)
        all += l->class[c].slot_bytes * (uint64_t)l->class[c].units;
    largest = l->class[l->n_classes - 1].slot_bytes;
    l->min_bytes = ledger_rounded(2 * largest);
    l->all_bytes = ledger_rounded(all > 2 * largest ? all : 2 * largest);
    return 0;
}

uint64_t expert_slots(struct expert_layout *l, uint64_t bytes)
{
    const int32_t top = l->n_classes - 1;
    const uint64_t room = layout_granted(bytes < l->all_bytes ? bytes : l->all_bytes);
    uint64_t all = 0, used = 2 * l->class[top].slot_bytes, rest;

    assert(room >= used);
    for (int32_t c = 0; c <= top; c++) {
        all += l->class[c].slot_bytes * (uint64_t)l->class[c].units;
        l->class[c].slots = 0;
    }
    /* Two slots that any expert fits, so that one can be read while one is used; the rest by each
     * class's part of all bytes, so that every layer has the same chance. */
    l->class[top].slots = 2;
    rest = room - used;
    for (int32_t c = top; c >= 0; c--) {
        const uint64_t size = l->class[c].slot_bytes;
        const unsigned __int128 part =
            (unsigned __int128)rest * (size * (uint64_t)l->class[c].units) / all;
        int32_t most = l->class[c].units - l->class[c].slots;
        int32_t n = (uint64_t)part / size < (uint64_t)(most > 0 ? most : 0)
                        ? (int32_t)((uint64_t)part / size)
                        : most;
        if (n > 0) {
            l->class[c].slots += n;
            used += (uint64_t)n * size;
        }
    }
    for (int32_t c = top; c >= 0; c--)
        while (l->class[c].slots < l->class[c].units && used + l->class[c].slot_bytes <= room) {
            l->class[c].slots++;
            used += l->class[c].slot_bytes;
        }
    return used;
}
