/* The use order of dense units (model.schedule): layer by layer, inside a layer in the order of
 * enum mat_role, the head last. The stream of the weights room reads in exactly this order, pass
 * after pass. Knows roles, no names. */
#include "resolve.h"

static int32_t put(struct model *m, unit_id *list, int32_t n, unit_id u)
{
    if (u < 0)
        return n;
    if (list) {
        list[n] = u;
        m->units[u].scheduled = true;
    }
    return n + 1;
}

static int32_t walk(struct model *m, unit_id *list)
{
    int32_t n = 0;

    for (int32_t i = 0; i < m->n_layer; i++)
        for (int r = 0; r < MAT_COUNT; r++)
            n = put(m, list, n, m->layers[i].mat[r]);
    return put(m, list, n, m->head);
}

int schedule_build(struct model *m, struct arena *a, struct leat_error *e)
{
    unit_id *list;

    m->n_schedule = walk(m, NULL);
    list = arena_array(a, (uint64_t)m->n_schedule, sizeof *list, sizeof *list, e);
    if (!list)
        return LEAT_ERR_MEMORY;
    walk(m, list);
    m->schedule = list;
    return 0;
}
