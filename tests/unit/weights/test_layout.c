/* The arithmetic of residency: equal shares, small matrices whole, the ledger filled, expert slots
 * by size; on models of any size (nothing is read). */
#include "../io/scratch.h"

#include "../../../src/weights/layout.h"

static struct unit units[40000];
static unit_id schedule[2000];
static struct dense dense[2000];
static struct leat_error err;

static void add(struct model *m, int32_t rows, uint64_t row_bytes, uint64_t offset)
{
    const unit_id u = m->n_units++;

    units[u] = (struct unit){.kind = UNIT_DENSE,
                             .n_parts = 1,
                             .expert = -1,
                             .part = {{.rows = rows,
                                       .cols = 1,
                                       .offset = offset,
                                       .row_bytes = row_bytes,
                                       .bytes = (uint64_t)rows * row_bytes}}};
    schedule[m->n_schedule++] = u;
}

/* n_layer layers of seven matrices, as a model of that width has them, 4.5 bits a weight. */
static struct model make_dense(int32_t layers, int32_t width, uint64_t odd)
{
    struct model m = {
        .units = units, .schedule = schedule, .n_files = 1, .head = -1, .token_embd = -1};
    uint64_t at = odd;

    for (int32_t l = 0; l < layers; l++)
        for (int32_t k = 0; k < 7; k++) {
            const int32_t rows = k == 1 || k == 2 ? width / 4 : k >= 4 && k < 6 ? 3 * width : width;
            const uint64_t row_bytes = (uint64_t)(k == 6 ? 3 * width : width) / 32 * 18;
            add(&m, rows, row_bytes, at);
            at += (uint64_t)rows * row_bytes + 32 * (odd % 7);
        }
    return m;
}

static uint64_t fill(const struct model *m, uint64_t bytes)
{
    for (int32_t i = 0; i < m->n_schedule; i++)
        dense_init(&dense[i], m, i);
    return layout_resident(dense, m->n_schedule, bytes);
}

static void test_shares(void **state)
{
    static const int32_t widths[] = {64, 640, 4096, 16384};

    (void)state;
    for (int w = 0; w < 4; w++) {
        const struct model m = make_dense(40, widths[w], 4099);
        struct weights_need need;
        int32_t before[280] = {0};

        assert_int_equal(weights_need(&m, 8, 1, &need, &err), 0);
        for (int step = 0; step <= 32; step++) {
            const uint64_t bytes = need.resident_all / 32 * (uint64_t)step;
            const uint64_t used = fill(&m, bytes);
            uint64_t at = 0, lo = UINT64_MAX, hi = 0, slack = UINT64_MAX;
            int32_t chunks = 0;

            assert_true(used <= layout_granted(bytes) && ledger_rounded(used) <= bytes);
            for (int32_t i = 0; i < m.n_schedule; i++) {
                const struct dense *d = &dense[i];
                const int32_t rows = d->part->rows, kept = d->resident_rows;

                assert_in_range(kept, 0, rows);
                /* Windows one behind the other, chunks in order. */
                assert_int_equal(d->resident_at, at);
                assert_int_equal(d->first_chunk, chunks);
                at += dense_window(d, kept);
                chunks += d->n_chunks;
                assert_true((uint64_t)d->n_chunks * LAYOUT_CHUNK >= dense_window(d, kept));
                if (kept < rows) {
                    assert_in_range(d->piece_rows, 1, rows);
                    assert_true(
                        lane_window(FILE_ALIGN - 1, (uint64_t)d->piece_rows * d->part->row_bytes) <=
                        dense_piece_bound(d));
                    const uint64_t more = dense_window(d, kept + 1) - dense_window(d, kept);
                    slack = more < slack ? more : slack;
                }
                if (kept == 0 || kept == rows)
                    continue;
                /* A row more or less than the common share, in 2^-30: (kept - 1) / rows < share <
                 * (kept + 1) / rows. */
                const uint64_t least = ((uint64_t)(kept > 1 ? kept - 1 : 0) << 30) / (uint64_t)rows;
                const uint64_t most = ((uint64_t)(kept + 1) << 30) / (uint64_t)rows;
                hi = least > hi ? least : hi;
                lo = most < lo ? most : lo;
            }
            assert_int_equal(at, used);
            assert_true(hi <= lo); /* one share fits them all */
            if (step == 32 && bytes == need.resident_all) {
                assert_int_equal(ledger_rounded(used), need.resident_all);
            } else if (slack != UINT64_MAX) {
                /* Full: not one more row of the smallest step fits. */
                assert_true(used + slack > layout_granted(bytes) || slack == 0);
            }
            for (int32_t i = 0; widths[w] >= 640 && i < m.n_schedule; i++) {
                assert_true(dense[i].resident_rows + 1 >=
                            before[i]); /* a bigger budget only moves the boundary */
                before[i] = dense[i].resident_rows;
            }
        }
    }
}

static void test_small_whole(void **state)
{
    struct model m = make_dense(4, 4096, 0);
    uint64_t at = UINT64_C(1) << 33;

    (void)state;
    for (int k = 0; k < 4; k++) { /* routers and the like */
        add(&m, 128, 2048, at);
        at += 128 * 2048;
    }
    add(&m, 129, 2048, at); /* just over the limit */
    fill(&m, UINT64_C(64) << 20);
    for (int k = 28; k < 32; k++)
        assert_int_equal(dense[k].resident_rows, 128);
    assert_in_range(dense[32].resident_rows, 1, 128);
    /* With less, small ones may not take it all. */
    fill(&m, UINT64_C(2) << 20);
    for (int k = 28; k < 33; k++)
        assert_true(dense[k].resident_rows < dense[k].part->rows);
    assert_int_equal(fill(&m, 0), 0);
    assert_int_equal(fill(&m, 4095), 0);
}

static void test_huge(void **state)
{
    const struct model m = make_dense(280, 65536, 12345); /* over a terabyte */
    struct weights_need need;

    (void)state;
    assert_int_equal(weights_need(&m, 64, 512, &need, &err), 0);
    assert_true(need.resident_all > UINT64_C(4) << 40);
    assert_int_equal(need.stream_min, UINT64_C(4) << 20);
    assert_true(fill(&m, need.resident_all - 1) < need.resident_all);
    assert_int_equal(ledger_rounded(fill(&m, need.resident_all)), need.resident_all);
}

static void test_stream_figures(void **state)
{
    struct model m = {.units = units, .schedule = schedule, .n_files = 1, .head = -1};
    struct weights_need need;

    (void)state;
    assert_int_equal(weights_need(&m, 4, 1, &need, &err), 0);
    assert_int_equal(need.stream_min, 0);
    assert_int_equal(need.resident_all, 0);
    assert_int_equal(need.experts_min, 0);
    assert_int_equal(need.experts_all, 0);
    add(&m, 4, 4096, 0); /* 16 KiB in any window of 20 KiB */
    assert_int_equal(weights_need(&m, 4, 1, &need, &err), 0);
    assert_int_equal(need.stream_min, 2 * 20480);
    assert_int_equal(need.resident_all, 16384);
    add(&m, 3, 3000000, 50000); /* rows over 2 MiB are pieces of their own */
    assert_int_equal(weights_need(&m, 4, 1, &need, &err), 0);
    assert_int_equal(need.stream_min,
                     ledger_rounded(2 * 3006464)); /* up(3000000 + 4095, 4096) each */
    assert_true(need.stream_good >= need.stream_min);
    /* Contradictions are errors, not reads beside the mark. */
    units[1].part[0].bytes++;
    assert_int_equal(weights_need(&m, 4, 1, &need, &err), LEAT_ERR_INTERNAL);
    units[1].part[0].bytes--;
    units[1].part[0].offset = UINT64_MAX - 5;
    assert_int_equal(weights_need(&m, 4, 1, &need, &err), LEAT_ERR_INTERNAL);
    units[1].part[0].offset = 0;
    units[1].part[0].file = 1;
    assert_int_equal(weights_need(&m, 4, 1, &need, &err), LEAT_ERR_INTERNAL);
    units[1].part[0].file = 0;
    schedule[1] = 7;
    assert_int_equal(weights_need(&m, 4, 1, &need, &err), LEAT_ERR_INTERNAL);
    assert_int_equal(weights_need(&m, 0, 1, &need, &err), LEAT_ERR_USAGE);
}

/* Experts in layers, `sizes` kinds of layers whose experts differ by `step` bytes. */
static struct model make_experts(int32_t layers, int32_t n, uint64_t bytes, int32_t sizes,
                                 uint64_t step)
{
    struct model m = {.units = units, .schedule = schedule, .n_files = 1, .head = -1};
    uint64_t at = 4099;

    for (int32_t l = 0; l < layers; l++)
        for (int32_t i = 0; i < n; i++) {
            struct unit *u = &units[m.n_units++];
            *u = (struct unit){.kind = UNIT_EXPERT, .layer = l, .expert = i, .n_parts = 3};
            for (int k = 0; k < 3; k++) {
                const uint64_t b = bytes + (k == 2 ? step * (uint64_t)(l % sizes) : 0);
                u->part[k] =
                    (struct part){.rows = 1, .cols = 1, .row_bytes = b, .bytes = b, .offset = at};
                at += b + 5000;
            }
        }
    return m;
}

static void test_expert_slots(void **state)
{
    static const struct {
        int32_t layers, n;
        uint64_t bytes;
        int32_t sizes;
        uint64_t step;
    } kinds[] = {{48, 128, 600000, 1, 0},
                 {48, 128, 600000, 2, 300000},
                 {60, 384, 9000000, 3, 5000000},
                 {2, 1, 1000, 1, 0},
                 {40, 8, 50000, 40, 50000}};

    (void)state;
    for (int k = 0; k < 5; k++) {
        const struct model m = make_experts(kinds[k].layers, kinds[k].n, kinds[k].bytes,
                                            kinds[k].sizes, kinds[k].step);
        struct expert_layout l;

        assert_int_equal(expert_layout(&m, &l, &err), 0);
        assert_int_equal(l.n_units, kinds[k].layers * kinds[k].n);
        assert_in_range(l.n_classes, 1, LAYOUT_CLASSES);
        for (int step = 0; step <= 20; step++) {
            uint64_t budget = l.min_bytes + (l.all_bytes - l.min_bytes) / 20 * (uint64_t)step, used,
                     sum = 0;
            int32_t slots = 0, wanted = 0;

            if (step == 20)
                budget = UINT64_MAX;
            used = expert_slots(&l, budget);
            for (int32_t c = 0; c < l.n_classes; c++) {
                sum += l.class[c].slot_bytes * (uint64_t)l.class[c].slots;
                slots += l.class[c].slots;
                wanted += l.class[c].units;
                if (c)
                    assert_true(l.class[c].slot_bytes > l.class[c - 1].slot_bytes);
                assert_true(l.class[c].slots <= l.class[c].units || l.class[c].slots == 2);
            }
            assert_int_equal(wanted, l.n_units);
            assert_int_equal(sum, used);
            assert_true(ledger_rounded(used) <= budget);
            assert_true(l.class[l.n_classes - 1].slots >= 2);
            if (step == 20)
                assert_true(slots >= l.n_units);
            else if (slots < l.n_units) /* full to less than a slot */
                assert_true(used + l.class[l.n_classes - 1].slot_bytes > layout_granted(budget));
        }
        for (int32_t i = 0; i < m.n_units; i++) { /* every expert fits the slots of its layer */
            struct expert_reads r;
            expert_reads(&m.units[i], &r);
            assert_true(r.slot_bytes <= l.class[expert_class_of(&l, r.slot_bytes)].slot_bytes);
        }
    }
}

static void test_expert_reads(void **state)
{
    struct unit u = {.kind = UNIT_EXPERT, .n_parts = 3};
    struct expert_reads r;

    (void)state;
    /* Down, gate, up side by side in the file, in that order. */
    u.part[0] = (struct part){.offset = 20100, .bytes = 1000};
    u.part[1] = (struct part){.offset = 21100, .bytes = 900};
    u.part[2] = (struct part){.offset = 20000, .bytes = 100};
    expert_reads(&u, &r);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.extent[0].offset, 20000);
    assert_int_equal(r.extent[0].bytes, 2000);
    assert_int_equal(r.slot_bytes, 8192);
    u.part[1].file = 1; /* another file: a read of its own */
    expert_reads(&u, &r);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.of_part[0], 0);
    assert_int_equal(r.of_part[2], 0);
    assert_int_equal(r.of_part[1], 1);
    u.part[1].file = 0;
    u.part[1].offset = 9000000; /* far away */
    u.part[0].offset = 5;
    expert_reads(&u, &r);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.extent[0].offset, 5);
    assert_int_equal(r.of_part[0], 0);
    assert_int_equal(r.of_part[2], 1);
    assert_int_equal(r.of_part[1], 2);
    u.n_parts = 1;
    expert_reads(&u, &r);
    assert_int_equal(r.n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),       cmocka_unit_test(test_small_whole),
        cmocka_unit_test(test_huge),         cmocka_unit_test(test_stream_figures),
        cmocka_unit_test(test_expert_slots), cmocka_unit_test(test_expert_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
