/* The ledger: accounts per domain and row, ceilings, and the one door to large memory.
 * Owns the sums and the promise that nothing is obtained over a ceiling; knows nothing of what the
 * memory is for beyond its row. One lock; the mapping is made under it, so that a peak never counts
 * memory that the system refused. */
#include "ledger.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "checked.h"
#include "os.h"

struct account {
    uint64_t held, peak;
};

struct ledger_side {
    struct account rows[ROW_COUNT];
    uint64_t total, ceiling;
};

struct ledger {
    pthread_mutex_t lock;
    struct ledger_side sides[DOMAIN_COUNT];
    uint64_t mapped; /* bytes that ledger_take obtained and ledger_give has not returned */
    uint64_t huge;   /* of these, asked for as huge pages */
};

static const struct {
    const char *key, *name;
} row_names[ROW_COUNT] = {
    [ROW_PROCESS] = {"process", "process"},
    [ROW_PAGE_CACHE] = {"page_cache", "page cache caused"},
    [ROW_MODEL] = {"model", "model directory"},
    [ROW_TOKENIZER] = {"tokenizer", "tokenizer"},
    [ROW_VECTORS] = {"vectors", "norms and biases"},
    [ROW_KV] = {"kv_cache", "KV cache"},
    [ROW_RECURRENT] = {"recurrent", "recurrent state"},
    [ROW_COMPUTE] = {"compute", "compute buffers"},
    [ROW_LOGITS] = {"logits", "logits"},
    [ROW_RESIDENT] = {"resident", "resident weights"},
    [ROW_STREAM] = {"stream", "stream ring"},
    [ROW_EXPERTS] = {"expert_cache", "expert cache"},
    [ROW_ROWS] = {"rows", "gathered rows"},
    [ROW_LANES] = {"lanes", "lanes"},
    [ROW_SERVER] = {"server", "server"},
};

const char *ledger_row_name(enum ledger_row r)
{
    assert((unsigned)r < ROW_COUNT);
    return row_names[r].name;
}

const char *ledger_row_key(enum ledger_row r)
{
    assert((unsigned)r < ROW_COUNT);
    return row_names[r].key;
}

int ledger_open(uint64_t ceiling_bytes, struct ledger **out, struct leat_error *e)
{
    *out = NULL;
    struct ledger *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for the ledger (%zu bytes)", sizeof *l);
    if (pthread_mutex_init(&l->lock, NULL) != 0) {
        free(l);
        return error_set(e, LEAT_ERR_INTERNAL, "cannot make the ledger's lock");
    }
    for (int d = 0; d < DOMAIN_COUNT; d++)
        l->sides[d].ceiling = UINT64_MAX;
    l->sides[DOMAIN_HELD].ceiling = ceiling_bytes;
    *out = l;
    return 0;
}

void ledger_close(struct ledger *l)
{
    if (!l)
        return;
    assert(l->mapped == 0 && "memory taken from the ledger was not given back");
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* The lock is no part of the ledger's visible value, so a reader may hold a const pointer. */
static struct ledger *ledger_lock(const struct ledger *l)
{
    struct ledger *m = (struct ledger *)(uintptr_t)l;
    pthread_mutex_lock(&m->lock);
    return m;
}

static void ledger_unlock(struct ledger *l)
{
    pthread_mutex_unlock(&l->lock);
}

static bool bytes_round(uint64_t bytes, uint64_t *out)
{
    return checked_align(bytes, bytes >= LEDGER_HUGE ? LEDGER_HUGE : LEDGER_PAGE, out);
}

uint64_t ledger_rounded(uint64_t bytes)
{
    uint64_t r;
    return bytes_round(bytes, &r) ? r : UINT64_MAX;
}

/* Refuses when bytes more would take the domain over its ceiling. Called with the lock held. */
static int charge_check(const struct ledger_side *s, enum ledger_domain d, enum ledger_row r,
                        uint64_t bytes, struct leat_error *e)
{
    uint64_t sum;
    if (!checked_add(s->total, bytes, &sum))
        return error_set(e, LEAT_ERR_MEMORY,
                         "%s: %" PRIu64 " bytes are more than a machine can hold",
                         ledger_row_name(r), bytes);
    if (sum <= s->ceiling)
        return 0;
    char want[24], held[24], limit[24], need[24];
    error_set(
        e, LEAT_ERR_MEMORY,
        "%s needs %s, but %s of the %s %s budget are in use; the budget must be at least "
        "%" PRIu64 " bytes (%s)",
        ledger_row_name(r), format_bytes(want, sizeof want, bytes),
        format_bytes(held, sizeof held, s->total), format_bytes(limit, sizeof limit, s->ceiling),
        d == DOMAIN_LOCKED ? "locked memory" : "memory", sum, format_bytes(need, sizeof need, sum));
    if (e)
        e->needed_bytes = sum;
    return LEAT_ERR_MEMORY;
}

static void charge_apply(struct ledger_side *s, enum ledger_row r, uint64_t bytes)
{
    struct account *a = &s->rows[r];
    s->total += bytes;
    a->held += bytes;
    if (a->held > a->peak)
        a->peak = a->held;
}

static void charge_undo(struct ledger_side *s, enum ledger_row r, uint64_t bytes)
{
    assert(s->rows[r].held >= bytes && s->total >= bytes);
    s->rows[r].held -= bytes;
    s->total -= bytes;
}

int ledger_take(struct ledger *l, enum ledger_domain d, enum ledger_row r, uint64_t bytes,
                void **out, struct leat_error *e)
{
    assert((unsigned)d < DOMAIN_COUNT && (unsigned)r < ROW_COUNT);
    *out = NULL;
    if (bytes == 0)
        return 0;
    uint64_t rounded;
    if (!bytes_round(bytes, &rounded))
        return error_set(e, LEAT_ERR_MEMORY,
                         "%s: %" PRIu64 " bytes are more than a machine can hold",
                         ledger_row_name(r), bytes);
    bool huge = rounded >= LEDGER_HUGE;
    ledger_lock(l);
    struct ledger_side *s = &l->sides[d];
    int rc = charge_check(s, d, r, rounded, e);
    if (rc == 0) {
        void *p = os_map(rounded, huge);
        if (p) {
            charge_apply(s, r, rounded);
            l->mapped += rounded;
            l->huge += huge ? rounded : 0;
            *out = p;
        } else {
            char want[24];
            rc = error_set(e, LEAT_ERR_MEMORY,
                           "%s: the system refused %s although the budget allows it (address-space "
                           "limit or overcommit setting)",
                           ledger_row_name(r), format_bytes(want, sizeof want, rounded));
        }
    }
    ledger_unlock(l);
    return rc;
}

void ledger_give(struct ledger *l, enum ledger_domain d, enum ledger_row r, void *p, uint64_t bytes)
{
    assert((unsigned)d < DOMAIN_COUNT && (unsigned)r < ROW_COUNT);
    assert(!p == (bytes == 0));
    if (!p)
        return;
    uint64_t rounded = ledger_rounded(bytes);
    ledger_lock(l);
    os_unmap(p, rounded);
    charge_undo(&l->sides[d], r, rounded);
    assert(l->mapped >= rounded);
    l->mapped -= rounded;
    l->huge -= rounded >= LEDGER_HUGE ? rounded : 0;
    ledger_unlock(l);
}

int ledger_charge(struct ledger *l, enum ledger_domain d, enum ledger_row r, uint64_t bytes,
                  struct leat_error *e)
{
    assert((unsigned)d < DOMAIN_COUNT && (unsigned)r < ROW_COUNT);
    ledger_lock(l);
    int rc = charge_check(&l->sides[d], d, r, bytes, e);
    if (rc == 0)
        charge_apply(&l->sides[d], r, bytes);
    ledger_unlock(l);
    return rc;
}

void ledger_refund(struct ledger *l, enum ledger_domain d, enum ledger_row r, uint64_t bytes)
{
    assert((unsigned)d < DOMAIN_COUNT && (unsigned)r < ROW_COUNT);
    ledger_lock(l);
    charge_undo(&l->sides[d], r, bytes);
    ledger_unlock(l);
}

static uint64_t read_locked(const struct ledger *l, const uint64_t *value)
{
    struct ledger *m = ledger_lock(l);
    uint64_t v = *value;
    ledger_unlock(m);
    return v;
}

uint64_t ledger_held(const struct ledger *l, enum ledger_domain d, enum ledger_row r)
{
    assert((unsigned)d < DOMAIN_COUNT && (unsigned)r < ROW_COUNT);
    return read_locked(l, &l->sides[d].rows[r].held);
}

uint64_t ledger_peak(const struct ledger *l, enum ledger_domain d, enum ledger_row r)
{
    assert((unsigned)d < DOMAIN_COUNT && (unsigned)r < ROW_COUNT);
    return read_locked(l, &l->sides[d].rows[r].peak);
}

uint64_t ledger_total(const struct ledger *l, enum ledger_domain d)
{
    assert((unsigned)d < DOMAIN_COUNT);
    return read_locked(l, &l->sides[d].total);
}

uint64_t ledger_ceiling(const struct ledger *l, enum ledger_domain d)
{
    assert((unsigned)d < DOMAIN_COUNT);
    return read_locked(l, &l->sides[d].ceiling);
}

int ledger_set_ceiling(struct ledger *l, enum ledger_domain d, uint64_t bytes, struct leat_error *e)
{
    assert((unsigned)d < DOMAIN_COUNT);
    int rc = 0;
    ledger_lock(l);
    struct ledger_side *s = &l->sides[d];
    if (bytes < s->ceiling && bytes < s->total) {
        char want[24], held[24];
        rc = error_set(e, LEAT_ERR_MEMORY,
                       "the memory budget cannot be lowered to %s: %" PRIu64
                       " bytes (%s) are in use",
                       format_bytes(want, sizeof want, bytes), s->total,
                       format_bytes(held, sizeof held, s->total));
        if (e)
            e->needed_bytes = s->total;
    } else {
        s->ceiling = bytes;
    }
    ledger_unlock(l);
    return rc;
}

void ledger_huge_pages(const struct ledger *l, uint64_t *asked, uint64_t *came)
{
    *asked = read_locked(l, &l->huge);
    *came = os_huge_bytes();
}
