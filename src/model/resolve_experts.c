/* Experts of one layer, in every layout that is in the world: one stacked tensor per part, gate
 * and up stacked together, or one tensor per expert and part. Each expert becomes one unit of
 * three parts. */
#include <stdio.h>

#include "resolve_internal.h"

struct layout {                      /* names of one naming scheme */
    const char *stacked[UNIT_PARTS]; /* {E, Fx, n} or {Fx, E, n} */
    const char *fused, *fused_down;  /* {E, 2 Fx, n}, gate rows first */
    const char *single[UNIT_PARTS];  /* with %d for the expert */
};

static const struct layout layouts_gguf[] = {
    {
        .stacked = {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"},
        .fused = "ffn_gate_up_exps.weight",
        .fused_down = "ffn_down_exps.weight",
        .single = {"ffn_gate.%d.weight", "ffn_up.%d.weight", "ffn_down.%d.weight"},
    },
};

static const struct layout layouts_hf[] = {
    {
        .fused = "mlp.experts.gate_up_proj",
        .fused_down = "mlp.experts.down_proj",
        .single = {"mlp.experts.%d.gate_proj.weight", "mlp.experts.%d.up_proj.weight",
                   "mlp.experts.%d.down_proj.weight"},
    },
    {
        .fused = "block_sparse_moe.experts.gate_up_proj",
        .fused_down = "block_sparse_moe.experts.down_proj",
        .single = {"block_sparse_moe.experts.%d.w1.weight", "block_sparse_moe.experts.%d.w3.weight",
                   "block_sparse_moe.experts.%d.w2.weight"},
    },
};

/* The shape of one expert's part. */
static void part_shape(const struct build *b, int32_t layer, int part, int64_t *rows, int64_t *cols)
{
    const int64_t E = b->h->n_embd, F = b->m->layers[layer].n_ff;

    *rows = part == EXPERT_DOWN ? E : F;
    *cols = part == EXPERT_DOWN ? F : E;
}

static struct tensor *find(struct build *b, int32_t layer, const char *rest)
{
    return rest ? directory_find(b->d, resolve_layer_name(b, layer, rest)) : NULL;
}

/* Cuts a stacked tensor of `rows_each` rows per expert: expert x's part starts at row x *
 * rows_each + first. */
static int cut(struct build *b, int32_t layer, int part, struct tensor *t, int64_t rows_each,
               int64_t first)
{
    const int32_t n = b->h->n_expert;
    int64_t rows, cols;
    int rc;

    part_shape(b, layer, part, &rows, &cols);
    rc = resolve_check_shape(b, t, (uint64_t)cols, (uint64_t)rows_each, (uint64_t)n);
    if (!rc)
        rc = resolve_check_type(b, t);
    if (rc)
        return rc;
    t->used = true;
    for (int32_t x = 0; x < n; x++) {
        struct unit *u = &b->m->units[b->m->layers[layer].expert0 + x];

        if (!u->name)
            u->name = t->name;
        resolve_part(&u->part[part], t, (int32_t)rows, (uint64_t)(x * rows_each + first));
    }
    return 0;
}

/* 1 done, 0 not this layout. */
static int try_stacked(struct build *b, int32_t layer, const struct layout *l)
{
    int64_t rows, cols;
    int rc = 0;

    if (!find(b, layer, l->stacked[EXPERT_GATE]))
        return 0;
    for (int part = 0; part < UNIT_PARTS && !rc; part++) {
        struct tensor *t = find(b, layer, l->stacked[part]);

        part_shape(b, layer, part, &rows, &cols);
        rc = t ? cut(b, layer, part, t, rows, 0) : resolve_missing(b, b->name, NULL);
    }
    return rc ? rc : 1;
}

static int try_fused(struct build *b, int32_t layer, const struct layout *l)
{
    struct tensor *gate_up = find(b, layer, l->fused), *down;
    const int64_t F = b->m->layers[layer].n_ff;
    int rc;

    if (!gate_up)
        return 0;
    rc = cut(b, layer, EXPERT_GATE, gate_up, 2 * F, 0);
    if (!rc)
        rc = cut(b, layer, EXPERT_UP, gate_up, 2 * F, F);
    if (rc)
        return rc;
    down = find(b, layer, l->fused_down);
    rc = down ? cut(b, layer, EXPERT_DOWN, down, b->h->n_embd, 0)
              : resolve_missing(b, b->name, NULL);
    return rc ? rc : 1;
}

static struct tensor *find_single(struct build *b, int32_t layer, const char *pattern,
                                  int32_t expert)
{
    char rest[100];
    const char *at = NULL;

    for (const char *p = pattern; *p && !at; p++)
        if (p[0] == '%')
            at = p;
    snprintf(rest, sizeof rest, "%.*s%d%s", (int)(at - pattern), pattern, expert, at + 2);
    return find(b, layer, rest);
}

static int try_single(struct build *b, int32_t layer, const struct layout *l)
{
    int64_t rows, cols;
    int rc;

    if (!find_single(b, layer, l->single[EXPERT_GATE], 0))
        return 0;
    for (int32_t x = 0; x < b->h->n_expert; x++)
        for (int part = 0; part < UNIT_PARTS; part++) {
            struct unit *u = &b->m->units[b->m->layers[layer].expert0 + x];
            struct tensor *t = find_single(b, layer, l->single[part], x);

            if (!t)
                return resolve_missing(b, b->name, NULL);
            part_shape(b, layer, part, &rows, &cols);
            rc = resolve_check_shape(b, t, (uint64_t)cols, (uint64_t)rows, 1);
            if (!rc)
                rc = resolve_check_type(b, t);
            if (rc)
                return rc;
            t->used = true;
            if (!u->name)
                u->name = t->name;
            resolve_part(&u->part[part], t, (int32_t)rows, 0);
        }
    return 1;
}

int resolve_experts(struct build *b, int32_t layer)
{
    const struct layout *layouts = b->d->gguf_container ? layouts_gguf : layouts_hf;
    const size_t n = b->d->gguf_container ? 1 : sizeof layouts_hf / sizeof layouts_hf[0];
    struct layer *l = &b->m->layers[layer];
    char wanted[256];
    int rc = resolve_router(b, layer);

    if (rc)
        return rc;
    l->ffn = FFN_MOE;
    l->n_ff = b->h->n_ff_expert > 0 ? b->h->n_ff_expert : b->h->n_ff[layer];
    l->expert0 = b->m->n_units;
    for (int32_t x = 0; x < b->h->n_expert; x++) {
        struct unit *u = resolve_new_unit(b, UNIT_EXPERT, layer, NULL);

        u->expert = x;
        u->n_parts = UNIT_PARTS;
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = try_stacked(b, layer, &layouts[i]);
        if (rc == 0)
            rc = try_fused(b, layer, &layouts[i]);
        if (rc == 0)
            rc = try_single(b, layer, &layouts[i]);
    }
    if (rc)
        return rc < 0 ? rc : 0;
    snprintf(wanted, sizeof wanted, "%s",
             resolve_layer_name(b, layer,
                                layouts[0].stacked[0] ? layouts[0].stacked[0] : layouts[0].fused));
    find_single(b, layer, layouts[0].single[0], 0);
    return resolve_missing(b, wanted, b->name);
}
