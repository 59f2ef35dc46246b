/* See world.h. */
#include "world.h"

static uint64_t place(struct world *x, int32_t file, uint64_t bytes, uint64_t gap)
{
    const uint64_t at = x->size[file] + gap;

    x->size[file] = at + bytes;
    return at;
}

static struct part make_part(struct world *x, int32_t file, int32_t rows, uint64_t row_bytes,
                             uint64_t gap)
{
    const uint64_t bytes = (uint64_t)rows * row_bytes;

    return (struct part){.file = file,
                         .format = FORMAT_Q8_0,
                         .rows = rows,
                         .cols = (int32_t)row_bytes,
                         .offset = place(x, file, bytes, gap),
                         .bytes = bytes,
                         .row_bytes = row_bytes};
}

static unit_id add_unit(struct world *x, enum unit_kind kind, int32_t layer, bool scheduled,
                        struct part p)
{
    struct model *m = &x->model;
    const unit_id u = m->n_units++;

    x->units[u] = (struct unit){.kind = kind,
                                .layer = layer,
                                .expert = -1,
                                .scheduled = scheduled,
                                .n_parts = 1,
                                .part = {p},
                                .name = "unit"};
    if (scheduled) {
        x->schedule[m->n_schedule++] = u;
        x->dense_bytes += p.bytes;
    }
    return u;
}

static void add_dense(struct world *x)
{
    /* Rows, bytes per row, file, gap before. */
    static const struct {
        int32_t rows;
        uint64_t row_bytes;
        int32_t file;
        uint64_t gap;
    } mats[] = {
        {700, 12320, 1, 3},   {64, 64, 0, 29},     {333, 777, 2, 1},     {3, 2500000, 1, 4091},
        {1, 100, 2, 0},       {2000, 576, 0, 32},  {5000, 1000, 2, 100}, {17, 4096, 0, 4000},
        {4096, 1024, 1, 123}, {100, 30011, 2, 77},
    };
    struct model *m = &x->model;

    /* The tied head lies first in its file, as embeddings do. */
    x->tied = add_unit(x, UNIT_TABLE, -1, false, make_part(x, 0, 3001, 1156, 4099));
    x->table = add_unit(x, UNIT_TABLE, -1, false, make_part(x, 1, 1000, 5001, 17));
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) {
        unit_id u =
            add_unit(x, UNIT_DENSE, (int32_t)i / 3, true,
                     make_part(x, mats[i].file, mats[i].rows, mats[i].row_bytes, mats[i].gap));
        if (mats[i].row_bytes > WEIGHTS_PIECE)
            x->big_row = u;
    }
    x->units[x->tied].scheduled = true;
    x->schedule[m->n_schedule++] = x->tied;
    x->head_bytes = x->units[x->tied].part[0].bytes;
    x->dense_bytes += x->head_bytes;
    m->token_embd = m->head = x->tied;
}

static void add_experts(struct world *x)
{
    /* Layer 0: three matrices that hold one part of all experts each (GGUF). Layer 1: the parts of
     * an expert side by side (safetensors). Layer 3: larger ones; layer 2 has none. */
    static const struct {
        int32_t layer, n, rows[UNIT_PARTS];
        uint64_t row_bytes[UNIT_PARTS];
        bool together;
    } layers[] = {
        {0, 12, {30, 30, 41}, {501, 501, 333}, false},
        {1, 16, {30, 30, 41}, {513, 513, 301}, true},
        {3, 9, {50, 50, 61}, {777, 777, 900}, false},
    };
    struct model *m = &x->model;

    for (size_t k = 0; k < sizeof layers / sizeof *layers; k++) {
        const unit_id first = m->n_units;
        for (int32_t i = 0; i < layers[k].n; i++)
            x->units[m->n_units++] = (struct unit){.kind = UNIT_EXPERT,
                                                   .layer = layers[k].layer,
                                                   .expert = i,
                                                   .n_parts = UNIT_PARTS,
                                                   .name = "experts"};
        for (int32_t i = 0; i < layers[k].n * UNIT_PARTS; i++) {
            const int32_t part = layers[k].together ? i % UNIT_PARTS : i / layers[k].n;
            const int32_t expert = layers[k].together ? i / UNIT_PARTS : i % layers[k].n;
            x->units[first + expert].part[part] =
                make_part(x, (int32_t)k % WORLD_FILES, layers[k].rows[part],
                          layers[k].row_bytes[part], !layers[k].together && expert == 0 ? 1001 : 0);
        }
    }
}

static void add_vectors(struct world *x)
{
    struct model *m = &x->model;
    static const enum format formats[] = {FORMAT_F32, FORMAT_F16, FORMAT_BF16};
    static const int32_t cols[] = {640, 1, 9000};

    for (int i = 0; i < 3; i++) {
        const uint64_t b = (uint64_t)cols[i] * (i ? 2 : 4);
        x->vectors[m->n_vectors++] = (struct vector){.part = {.file = i,
                                                              .format = formats[i],
                                                              .rows = 1,
                                                              .cols = cols[i],
                                                              .offset = place(x, i, b, 13),
                                                              .bytes = b,
                                                              .row_bytes = b},
                                                     .add = i == 2 ? 1.0f : 0.0f,
                                                     .name = "norm"};
    }
}

void world_open(struct world *x, bool dense, bool experts)
{
    *x = (struct world){0};
    scratch_open();
    x->model.token_embd = x->model.head = x->table = x->big_row = x->tied = -1;
    x->model.n_files = WORLD_FILES;
    x->model.files = x->files;
    x->model.units = x->units;
    x->model.vectors = x->vectors;
    x->model.schedule = x->schedule;
    for (int i = 0; i < WORLD_FILES; i++)
        x->size[i] = 11;
    if (dense)
        add_dense(x);
    if (experts)
        add_experts(x);
    add_vectors(x);
    for (int i = 0; i < WORLD_FILES; i++) {
        x->bytes[i] = scratch_bytes((uint64_t)i + 1, x->size[i]);
        world_rewrite(x, i);
    }
}

void world_rewrite(struct world *x, int32_t file)
{
    const char name[8] = {'f', (char)('0' + file), 0};
    struct leat_error e;

    file_close(x->files[file].file);
    scratch_write(name, x->bytes[file], x->size[file]);
    if (file_open(scratch_path(name), &x->files[file].file, &e))
        fail_msg("%s", e.message);
    x->files[file].path = file_path(x->files[file].file);
}

void world_close(struct world *x)
{
    for (int i = 0; i < WORLD_FILES; i++) {
        file_close(x->files[i].file);
        free(x->bytes[i]);
    }
    scratch_close();
}

struct opened world_weights(struct world *x, uint64_t resident, uint64_t stream, uint64_t experts,
                            int32_t lanes, enum file_direct direct, const char *eviction)
{
    struct opened o;
    struct weights_need need;
    struct leat_error e = {0};
    struct weights_config c = {
        .model = &x->model, .lanes = lanes, .direct = direct, .eviction = eviction};

    assert_int_equal(ledger_open(UINT64_MAX, &o.ledger, &e), 0);
    assert_int_equal(weights_need(&x->model, lanes, 1, &need, &e), 0);
    c.ledger = o.ledger;
    c.resident_bytes = resident > need.resident_min ? resident : need.resident_min;
    c.stream_bytes = stream > need.stream_min ? stream : need.stream_min;
    c.expert_cache_bytes = experts > need.experts_min ? experts : need.experts_min;
    if (weights_open(&c, &o.w, &e))
        fail_msg("%s", e.message);
    assert_int_equal(ledger_held(o.ledger, DOMAIN_HELD, ROW_VECTORS), need.vectors);
    assert_int_equal(ledger_held(o.ledger, DOMAIN_HELD, ROW_ROWS), need.rows);
    assert_int_equal(ledger_held(o.ledger, DOMAIN_HELD, ROW_LANES), need.lanes);
    assert_true(ledger_held(o.ledger, DOMAIN_HELD, ROW_RESIDENT) <= c.resident_bytes);
    assert_true(ledger_held(o.ledger, DOMAIN_HELD, ROW_STREAM) <= c.stream_bytes);
    assert_true(ledger_held(o.ledger, DOMAIN_HELD, ROW_EXPERTS) <= c.expert_cache_bytes);
    return o;
}

void opened_close(struct opened *o)
{
    weights_close(o->w);
    assert_int_equal(ledger_total(o->ledger, DOMAIN_HELD), 0);
    ledger_close(o->ledger);
}

const uint8_t *world_row(const struct world *x, unit_id u, int32_t part, int32_t row)
{
    const struct part *p = &x->units[u].part[part];

    return x->bytes[p->file] + p->offset + (uint64_t)row * p->row_bytes;
}

int world_unit(struct world *x, struct weights_pass *p, unit_id u, struct leat_error *e)
{
    const struct part *part = &x->units[u].part[0];
    struct weights_view v;
    int32_t row = 0;
    int rc;

    while ((rc = weights_next(p, u, &v, e)) == 1) {
        assert_int_equal(v.row0, row);
        assert_true(v.rows > 0);
        assert_int_equal(v.row_bytes, part->row_bytes);
        if (memcmp(v.data, world_row(x, u, 0, row), (uint64_t)v.rows * v.row_bytes))
            fail_msg("unit %d: wrong bytes in rows %d to %d", (int)u, (int)row,
                     (int)(row + v.rows - 1));
        row += v.rows;
    }
    if (rc == 0)
        assert_int_equal(row, part->rows);
    return rc;
}

void world_walk(struct world *x, struct opened *o, bool head)
{
    const struct pass_need need = {.width = 1, .head = head};
    struct weights_pass *p;
    struct leat_error e = {0};

    if (weights_pass_begin(o->w, &need, &p, &e))
        fail_msg("%s", e.message);
    for (int32_t i = 0; i < x->model.n_schedule; i++) {
        if (x->schedule[i] == x->model.head && !head)
            continue;
        if (world_unit(x, p, x->schedule[i], &e))
            fail_msg("%s", e.message);
    }
    assert_int_equal(weights_pass_end(p), 0);
}

void world_expert(struct world *x, const struct expert_view *v, unit_id u)
{
    const struct unit *unit = &x->units[u];

    assert_ptr_equal(v->unit, unit);
    assert_int_equal(v->expert, unit->expert);
    for (int32_t k = 0; k < unit->n_parts; k++)
        if (memcmp(v->data[k], world_row(x, u, k, 0), unit->part[k].bytes))
            fail_msg("layer %d, expert %d, part %d: wrong bytes", (int)unit->layer,
                     (int)unit->expert, (int)k);
}

unit_id world_experts(const struct world *x, int32_t layer, int32_t *n)
{
    unit_id first = -1;

    *n = 0;
    for (int32_t i = 0; i < x->model.n_units; i++)
        if (x->units[i].kind == UNIT_EXPERT && x->units[i].layer == layer) {
            first = first < 0 ? i : first;
            (*n)++;
        }
    return first;
}
