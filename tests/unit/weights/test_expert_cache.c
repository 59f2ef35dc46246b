/* The expert cache: every byte of every expert at many cache sizes, both orders, waves, evictions
 * by policy, leases, advice, cancellation, failing drives. */
#include "world.h"
#include "../../../src/weights/evict.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#define KIB (UINT64_C(1) << 10)

static struct world world;
static struct leat_error err;
static const int32_t layers[] = {0, 1, 3};

static int setup(void **state)
{
    (void)state;
    world_open(&world, true, true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

static int no_fault(void **state)
{
    (void)state;
    lane_fault_pread = NULL;
    return 0;
}

static struct weights_pass *begin(struct opened *o)
{
    const struct pass_need need = {.width = 1, .head = true};
    struct weights_pass *p;

    if (weights_pass_begin(o->w, &need, &p, &err))
        fail_msg("%s", err.message);
    return p;
}

/* n distinct experts of the layer, ascending. */
static int32_t choose(int32_t layer, int32_t n, uint64_t *seed, uint16_t *ids)
{
    int32_t all, left, got = 0;

    world_experts(&world, layer, &all);
    left = n = n < all ? n : all;
    for (int32_t i = 0; i < all; i++)
        if ((int32_t)(scratch_random(seed) % (uint64_t)(all - i)) < left) {
            ids[got++] = (uint16_t)i;
            left--;
        }
    assert_int_equal(got, n);
    return n;
}

static int call(struct weights_pass *p, int32_t layer, const uint16_t *ids, int32_t n, bool ordered)
{
    int32_t all, first = world_experts(&world, layer, &all), given = 0, last = -1;
    bool seen[64] = {false};
    struct expert_view v;
    int rc = experts_begin(p, layer, ids, n, ordered, &err);

    if (rc)
        return rc;
    while ((rc = experts_next(p, &v, &err)) == 1) {
        assert_in_range(v.expert, 0, all - 1);
        assert_false(seen[v.expert]);
        seen[v.expert] = true;
        if (ordered)
            assert_true(v.expert > last);
        last = v.expert;
        world_expert(&world, &v, first + v.expert);
        experts_done(p, &v);
        given++;
    }
    if (rc)
        return rc;
    assert_int_equal(given, n);
    for (int32_t i = 0; i < n; i++)
        assert_true(seen[ids[i]]);
    return 0;
}

static void must(int rc)
{
    if (rc)
        fail_msg("%s", err.message);
}

static void test_calls(void **state)
{
    static const uint64_t caches[] = {0, 300 * KIB, 700 * KIB, 1200 * KIB, UINT64_MAX};
    static const int32_t lanes[] = {1, 3, 16};

    (void)state;
    for (size_t c = 0; c < 5; c++)
        for (size_t k = 0; k < 3; k++)
            for (int policy = 0; evict_policy(policy); policy++) {
                struct opened o = world_weights(
                    &world, policy ? 0 : UINT64_MAX, 0, caches[c], lanes[k],
                    k == 1 ? FILE_DIRECT_OFF : FILE_DIRECT_AUTO, evict_policy(policy)->name);
                struct weights_stats st;
                uint64_t seed = c * 3 + k, calls = 0;
                uint16_t ids[64];

                for (int pass = 0; pass < 12; pass++) {
                    struct weights_pass *p = begin(&o);
                    for (int i = 0; i < 3; i++) {
                        /* Decode asks for a few, prefill for nearly all. */
                        int32_t n = choose(layers[i], pass % 4 == 3 ? 15 : 4, &seed, ids);
                        must(call(p, layers[i], ids, n, pass % 2 == 1));
                        calls += (uint64_t)n;
                        if (pass == 5)
                            must(world_unit(&world, p, world.schedule[i], &err));
                    }
                    must(call(p, 0, ids, 0, false));
                    assert_int_equal(weights_pass_end(p), 0);
                }
                weights_get_stats(o.w, &st);
                assert_int_equal(st.expert_hits + st.expert_misses, calls);
                assert_true(st.expert_bytes_read >= st.expert_miss_bytes);
                if (caches[c] == UINT64_MAX) {
                    assert_int_equal(st.expert_evictions, 0);
                    assert_in_range(st.expert_misses, 1, 37); /* each expert at most once */
                    assert_true(st.expert_hits > 100);
                } else {
                    assert_true(st.expert_evictions > 10);
                }
                assert_true(st.waits > 0 && st.expert_misses > 0);
                if (caches[c] == 700 * KIB)
                    assert_true(st.expert_hits > 20);
                opened_close(&o);
            }
}

/* More are given only when they are there: what was read before is, what is missing is not, and nothing is
 * given twice. Several leases live side by side. */
static void test_more(void **state)
{
    struct opened o = world_weights(&world, UINT64_MAX, 0, UINT64_MAX, 4, FILE_DIRECT_AUTO, NULL);
    const uint16_t warm[] = {2, 7, 11}, all[] = {0, 2, 7, 11};
    struct expert_view v[4], extra;
    struct weights_pass *p = begin(&o);
    int32_t n, first = world_experts(&world, 0, &n);
    uint32_t seen = 0;

    (void)state;
    must(call(p, 0, warm, 3, false));
    must(experts_begin(p, 0, all, 4, false, &err));
    assert_int_equal(experts_next(p, &v[0], &err), 1);
    assert_int_equal(experts_more(p, &v[1]), 1);
    assert_int_equal(experts_more(p, &v[2]), 1);
    for (int i = 0; i < 3; i++) { /* the three that were there, whatever has come meanwhile */
        assert_int_equal(v[i].expert, warm[i]);
        seen |= 1u << v[i].expert;
    }
    for (int i = 0; i < 3; i++) { /* all three leases hold */
        world_expert(&world, &v[i], first + v[i].expert);
        experts_done(p, &v[i]);
    }
    assert_int_equal(experts_next(p, &v[3], &err), 1); /* waits for the one that is missing */
    assert_int_equal(v[3].expert, 0);
    assert_int_equal(experts_more(p, &extra), 0); /* nothing is left */
    world_expert(&world, &v[3], first);
    experts_done(p, &v[3]);
    assert_int_equal(experts_more(p, &extra), 0);
    assert_int_equal(experts_next(p, &extra, &err), 0);
    assert_int_equal(seen, 1u << 2 | 1u << 7 | 1u << 11);
    assert_int_equal(weights_pass_end(p), 0);
    opened_close(&o);
}

/* Hits come first, in any order they are asked for; misses follow. */
static void test_hits_first(void **state)
{
    struct opened o = world_weights(&world, UINT64_MAX, 0, UINT64_MAX, 4, FILE_DIRECT_AUTO, NULL);
    const uint16_t warm[] = {2, 7, 11}, all[] = {0, 1, 2, 5, 7, 9, 11};
    struct weights_stats before, after;
    struct expert_view v;
    struct weights_pass *p = begin(&o);
    int32_t n, first = world_experts(&world, 0, &n);

    (void)state;
    must(call(p, 0, warm, 3, false));
    weights_get_stats(o.w, &before);
    must(experts_begin(p, 0, all, 7, false, &err));
    for (int i = 0; i < 7; i++) {
        assert_int_equal(experts_next(p, &v, &err), 1);
        world_expert(&world, &v, first + v.expert);
        if (i < 3)
            assert_int_equal(v.expert, warm[i]);
        experts_done(p, &v);
    }
    assert_int_equal(experts_next(p, &v, &err), 0);
    weights_get_stats(o.w, &after);
    assert_int_equal(after.expert_hits - before.expert_hits, 3);
    assert_int_equal(after.expert_misses - before.expert_misses, 4);
    assert_int_equal(after.expert_hit_bytes - before.expert_hit_bytes,
                     3 * (2 * 30 * 501 + 41 * 333));
    assert_int_equal(after.expert_bytes_read - before.expert_bytes_read,
                     4 * (2 * 30 * 501 + 41 * 333));
    assert_int_equal(weights_pass_end(p), 0);
    opened_close(&o);
}

/* Parts that lie side by side are one read. */
static void test_joined_reads(void **state)
{
    struct opened o = world_weights(&world, UINT64_MAX, 0, UINT64_MAX, 4, FILE_DIRECT_AUTO, NULL);
    const uint16_t ids[] = {3, 8};
    struct weights_stats before, after;
    struct weights_pass *p;

    (void)state;
    world_walk(&world, &o, true); /* nothing but experts is read from here on */
    p = begin(&o);
    weights_get_stats(o.w, &before);
    must(call(p, 1, ids, 2, false));
    weights_get_stats(o.w, &after);
    assert_int_equal(after.lanes.reads - before.lanes.reads, 2);
    must(call(p, 0, ids, 2, false));
    weights_get_stats(o.w, &before);
    assert_int_equal(before.lanes.reads - after.lanes.reads, 6);
    assert_int_equal(weights_pass_end(p), 0);
    opened_close(&o);
}

/* What stays after a sequence of uses, against a list kept by hand. */
static void test_lru_victims(void **state)
{
    struct opened o;
    struct weights_need need;
    struct weights_stats a, b;
    uint16_t id;
    int32_t slots, n, held[64], n_held = 0;
    uint64_t seed = 9, slot_bytes;

    (void)state;
    (void)world_experts(&world, 3, &n);
    must(weights_need(&world.model, 2, 1, &need, &err));
    slot_bytes = 3 * 4096 * 2 + 2 * 50 * 777 + 61 * 900; /* at most: three windows */
    o = world_weights(&world, UINT64_MAX, 0, 5 * slot_bytes, 2, FILE_DIRECT_AUTO, "lru");
    /* Only layer 3 is used, the largest size: its slots are those of its own class. */
    struct weights_pass *p = begin(&o);
    for (slots = 0; slots < n; slots++) { /* how many are there? until one use evicts */
        id = (uint16_t)slots;
        must(call(p, 3, &id, 1, false));
        weights_get_stats(o.w, &a);
        if (a.expert_evictions)
            break;
        held[n_held++] = slots;
    }
    assert_in_range(slots, 2, n - 1);
    memmove(held, held + 1, (size_t)(n_held - 1) * sizeof *held);
    held[n_held - 1] = slots;
    assert_int_equal(weights_pass_end(p), 0);
    for (int i = 0; i < 300; i++) {
        int32_t at = 0;
        p = begin(&o);
        id = (uint16_t)(scratch_random(&seed) % (uint64_t)n);
        weights_get_stats(o.w, &a);
        must(call(p, 3, &id, 1, false));
        weights_get_stats(o.w, &b);
        while (at < n_held && held[at] != id)
            at++;
        assert_int_equal(b.expert_hits - a.expert_hits, at < n_held);
        assert_int_equal(b.expert_evictions - a.expert_evictions, at == n_held);
        if (at == n_held)
            at = 0; /* the oldest went */
        memmove(held + at, held + at + 1, (size_t)(n_held - 1 - at) * sizeof *held);
        held[n_held - 1] = id;
        assert_int_equal(weights_pass_end(p), 0);
    }
    opened_close(&o);
}

/* Half-life of 16 passes, by the definition: a sum of 2^(-age / 16) over all uses. */
static void test_decay_victims(void **state)
{
    struct opened o = world_weights(&world, UINT64_MAX, 0, 700 * KIB, 2, FILE_DIRECT_AUTO, "decay");
    double score[64] = {0};
    bool held[64] = {false};
    struct weights_stats a, b;
    int32_t n, n_held = 0, capacity = -1, frequent_kept = 0;
    uint64_t seed = 4;

    (void)state;
    (void)world_experts(&world, 3, &n);
    for (int pass = 0; pass < 400; pass++) {
        struct weights_pass *p = begin(&o);
        /* Skewed: low numbers are frequent. */
        uint64_t r = scratch_random(&seed) % (uint64_t)(n * n);
        int32_t victim = -1;
        uint16_t id = 0;

        while ((uint64_t)((id + 1) * (id + 1)) <= r)
            id++;
        weights_get_stats(o.w, &a);
        must(call(p, 3, &id, 1, false));
        weights_get_stats(o.w, &b);
        for (int32_t i = 0; i < n; i++)
            score[i] *= 0.95760328069857364694; /* 2^(-1/16) */
        assert_int_equal(b.expert_hits - a.expert_hits, held[id]);
        if (b.expert_evictions != a.expert_evictions) {
            if (capacity < 0)
                capacity = n_held;
            assert_int_equal(n_held, capacity);
            for (int32_t i = 0; i < n; i++)
                if (held[i] && (victim < 0 || score[i] < score[victim]))
                    victim = i;
            held[victim] = false;
            n_held--;
        }
        if (!held[id])
            n_held++;
        held[id] = true;
        score[id] += 1;
        frequent_kept += held[n - 1];
        assert_int_equal(weights_pass_end(p), 0);
    }
    assert_in_range(capacity, 2, n - 1);
    assert_true(frequent_kept > 300);
    opened_close(&o);
}

static void test_wrong_use(void **state)
{
    struct opened o = world_weights(&world, UINT64_MAX, 0, 0, 2, FILE_DIRECT_AUTO, NULL);
    const uint16_t ids[] = {0, 1, 2, 3}, twice[] = {1, 1}, far[] = {12};
    struct expert_view v[3];
    struct weights_pass *p = begin(&o);

    (void)state;
    assert_int_equal(experts_begin(p, 2, ids, 1, false, &err),
                     LEAT_ERR_STATE); /* no experts there */
    assert_int_equal(experts_begin(p, 99, ids, 1, false, &err), LEAT_ERR_STATE);
    assert_int_equal(experts_begin(p, 0, twice, 2, false, &err), LEAT_ERR_INTERNAL);
    assert_int_equal(experts_begin(p, 0, far, 1, false, &err), LEAT_ERR_INTERNAL);
    must(experts_begin(p, 0, ids, 4, false, &err));
    assert_int_equal(experts_begin(p, 0, ids, 4, false, &err),
                     LEAT_ERR_STATE); /* the first is not done */
    /* Two slots: two leases, then an error instead of a wait without end. */
    assert_int_equal(experts_next(p, &v[0], &err), 1);
    assert_int_equal(experts_next(p, &v[1], &err), 1);
    assert_int_equal(experts_next(p, &v[2], &err), LEAT_ERR_STATE);
    assert_int_equal(weights_pass_end(p), 0); /* takes the leases back */
    p = begin(&o);
    must(call(p, 0, ids, 4, true));
    assert_int_equal(weights_pass_end(p), 0);
    opened_close(&o);
}

/* A leased expert keeps its bytes whatever else is read meanwhile. */
static void test_lease_holds(void **state)
{
    struct opened o = world_weights(&world, UINT64_MAX, 0, 0, 4, FILE_DIRECT_AUTO, NULL);
    uint16_t ids[12];
    struct expert_view v;
    int32_t n, first = world_experts(&world, 0, &n);

    (void)state;
    for (int32_t i = 0; i < n; i++)
        ids[i] = (uint16_t)i;
    for (int ordered = 0; ordered < 2; ordered++) {
        struct weights_pass *p = begin(&o);
        must(experts_begin(p, 0, ids, n, ordered, &err));
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(experts_next(p, &v, &err), 1);
            world_expert(&world, &v, first + v.expert);
            for (int k = 0; k < 50; k++)
                world_expert(&world, &v, first + v.expert);
            experts_done(p, &v);
        }
        assert_int_equal(experts_next(p, &v, &err), 0);
        assert_int_equal(weights_pass_end(p), 0);
    }
    opened_close(&o);
}

/* In ascending order with two slots that hold the last two: they must give way, and all still come.
 */
static void test_pinned_give_way(void **state)
{
    struct opened o = world_weights(&world, UINT64_MAX, 0, 0, 4, FILE_DIRECT_AUTO, NULL);
    const uint16_t last[] = {10, 11}, all[] = {0, 3, 4, 9, 10, 11};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct weights_pass *p = begin(&o);
        must(call(p, 0, last, 2, true));
        must(call(p, 0, all, 6, true));
        must(call(p, 0, last, 2, true));
        must(call(p, 0, all, 6, false));
        must(call(p, 3, all, 3, true)); /* of another size: the same two slots */
        assert_int_equal(weights_pass_end(p), 0);
    }
    opened_close(&o);
}

static void test_advice(void **state)
{
    struct opened o = world_weights(&world, UINT64_MAX, 0, UINT64_MAX, 4, FILE_DIRECT_AUTO, NULL);
    const uint16_t ids[] = {1, 2, 3, 4};
    struct weights_stats a, b;
    struct weights_pass *p = begin(&o);

    (void)state;
    weights_advise(p, 1, ids, 4);
    weights_advise(p, 1, ids, 4); /* once is enough */
    weights_advise(p, 2, ids, 4);
    must(call(p, 1, ids, 4, true));
    weights_get_stats(o.w, &a);
    assert_int_equal(a.expert_bytes_read, 4 * (2 * 30 * 513 + 41 * 301));
    weights_advise(p, 3, ids, 4);
    assert_int_equal(weights_pass_end(p), 0);
    p = begin(&o);
    must(call(p, 3, ids, 4, false));
    weights_get_stats(o.w, &b);
    assert_int_equal(b.expert_bytes_read - a.expert_bytes_read, 4 * (2 * 50 * 777 + 61 * 900));
    assert_int_equal(b.expert_evictions, 0);
    assert_int_equal(weights_pass_end(p), 0);
    opened_close(&o);
    /* A full cache: a guess evicts nothing. */
    o = world_weights(&world, UINT64_MAX, 0, 0, 4, FILE_DIRECT_AUTO, NULL);
    p = begin(&o);
    must(call(p, 3, ids, 4, false));
    weights_get_stats(o.w, &a);
    weights_advise(p, 0, ids, 4);
    weights_get_stats(o.w, &b);
    assert_int_equal(a.expert_evictions, b.expert_evictions);
    assert_int_equal(weights_pass_end(p), 0);
    opened_close(&o);
}

/* ---- faults ---- */

static struct {
    pthread_mutex_t lock;
    sem_t entered, gate;
    int calls, fail_at, errnum;
    bool gated;
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t faulty(int fd, void *dst, size_t n, off_t offset, bool direct)
{
    int call_no, errnum = 0;

    (void)direct;
    pthread_mutex_lock(&fault.lock);
    call_no = fault.calls++;
    if (fault.fail_at >= 0 && call_no == fault.fail_at)
        errnum = fault.errnum;
    pthread_mutex_unlock(&fault.lock);
    if (fault.gated) {
        sem_post(&fault.entered);
        while (sem_wait(&fault.gate))
            ;
    }
    if (errnum) {
        errno = errnum;
        return -1;
    }
    return pread(fd, dst, n, offset);
}

static void test_failing_drive(void **state)
{
    uint16_t ids[64];
    int failures = 0;

    (void)state;
    lane_fault_pread = faulty;
    for (int at = 0; at < 60; at++) {
        struct opened o;
        uint64_t seed = 3;

        fault.fail_at = -1;
        o = world_weights(&world, UINT64_MAX, 0, at % 2 ? 0 : 700 * KIB, 4, FILE_DIRECT_AUTO, NULL);
        world_walk(&world, &o, true); /* the dense part is read */
        pthread_mutex_lock(&fault.lock);
        fault.calls = 0;
        fault.errnum = at % 3 ? EIO : EINTR;
        fault.fail_at = at;
        pthread_mutex_unlock(&fault.lock);
        for (int pass = 0; pass < 8; pass++) {
            struct weights_pass *p = begin(&o);
            int rc = 0;
            for (int i = 0; !rc && i < 3; i++) {
                int32_t n = choose(layers[i], 6, &seed, ids);
                rc = call(p, layers[i], ids, n, pass % 2);
            }
            if (rc) {
                assert_int_equal(rc, LEAT_ERR_FILE);
                assert_non_null(strstr(err.message, "storage error"));
                assert_non_null(strstr(err.message, "expert"));
                failures++;
            }
            assert_int_equal(weights_pass_end(p), 0);
        }
        fault.fail_at = -1;
        opened_close(&o);
    }
    assert_in_range(failures, 30, 40); /* two thirds of 60 fail, each once */
}

static void *cancel_when_reading(void *arg)
{
    while (sem_wait(&fault.entered))
        ;
    weights_cancel(arg);
    for (int i = 0; i < 10000; i++)
        sem_post(&fault.gate);
    return NULL;
}

static void test_cancel(void **state)
{
    uint16_t ids[64];

    (void)state;
    for (int k = 0; k < 6; k++) {
        struct opened o;
        struct weights_pass *p;
        struct expert_view v;
        uint64_t seed = 8;
        pthread_t t;
        int32_t n;

        fault.fail_at = -1;
        lane_fault_pread = faulty;
        o = world_weights(&world, UINT64_MAX, 0, k % 2 ? 0 : 1000 * KIB, k < 3 ? 1 : 4,
                          FILE_DIRECT_AUTO, NULL);
        world_walk(&world, &o, true);
        sem_init(&fault.entered, 0, 0);
        sem_init(&fault.gate, 0, 0);
        fault.gated = true; /* no read is in flight now */
        p = begin(&o);
        assert_int_equal(pthread_create(&t, NULL, cancel_when_reading, o.w), 0);
        n = choose(1, 9, &seed, ids);
        assert_int_equal(call(p, 1, ids, n, k % 2), LEAT_ERR_CANCELLED);
        assert_int_equal(experts_next(p, &v, &err), LEAT_ERR_CANCELLED);
        pthread_join(t, NULL);
        assert_int_equal(weights_pass_end(p), 0);
        fault.gated = false;
        weights_uncancel(o.w);
        for (int pass = 0; pass < 4; pass++) {
            p = begin(&o);
            for (int i = 0; i < 3; i++) {
                n = choose(layers[i], 9, &seed, ids);
                must(call(p, layers[i], ids, n, pass % 2));
            }
            /* And once more in the middle of a call, with a lease. */
            must(experts_begin(p, 1, ids, n, pass % 2, &err));
            assert_int_equal(experts_next(p, &v, &err), 1);
            weights_cancel(o.w);
            assert_int_equal(experts_next(p, &v, &err), LEAT_ERR_CANCELLED);
            assert_int_equal(weights_pass_end(p), 0);
            weights_uncancel(o.w);
        }
        opened_close(&o);
    }
}

static void test_smallest(void **state)
{
    struct weights_need need;
    struct weights_config c = {.model = &world.model, .lanes = 3, .resident_bytes = UINT64_MAX};
    struct weights *w;

    (void)state;
    must(weights_need(&world.model, 3, 1, &need, &err));
    assert_int_equal(ledger_open(UINT64_MAX, &c.ledger, &err), 0);
    assert_true(need.experts_min >= 2 * (2 * 50 * 777 + 61 * 900));
    c.expert_cache_bytes = need.experts_min;
    must(weights_open(&c, &w, &err));
    assert_int_equal(ledger_held(c.ledger, DOMAIN_HELD, ROW_EXPERTS), need.experts_min);
    weights_close(w);
    c.expert_cache_bytes = need.experts_all;
    must(weights_open(&c, &w, &err));
    assert_int_equal(ledger_held(c.ledger, DOMAIN_HELD, ROW_EXPERTS), need.experts_all);
    weights_close(w);
    c.expert_cache_bytes = need.experts_min - 1;
    assert_int_equal(weights_open(&c, &w, &err), LEAT_ERR_MEMORY);
    assert_int_equal(ledger_total(c.ledger, DOMAIN_HELD), 0);
    ledger_close(c.ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_hits_first),
        cmocka_unit_test(test_more),
        cmocka_unit_test(test_joined_reads),
        cmocka_unit_test(test_lru_victims),
        cmocka_unit_test(test_decay_victims),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_lease_holds),
        cmocka_unit_test(test_pinned_give_way),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_smallest),
        cmocka_unit_test_teardown(test_failing_drive, no_fault),
        cmocka_unit_test_teardown(test_cancel, no_fault),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
