/* What `leat bench` asks the library: the machine's limits, and what a token's pass has to move and
 * multiply. Owns no measurement of a model: callers time their own calls. Any thread. */
#include <string.h>

#include "bench.h"
#include "../base/error.h"
#include "../base/os.h"
#include "../plan/probe_compute.h"

#define PROBE_SECONDS 0.2
#define BYTES_LEAST   (UINT64_C(32) << 20)

int bench_machine(const struct leat_params *params, struct bench_machine *out, struct leat_error *e)
{
    struct param_set defaults = {0};
    memset(out, 0, sizeof *out);
    int code = params ? 0 : api_params_open(&defaults, e);
    const struct param_set *set = params ? &params->set : &defaults;
    if (code == 0) {
        const struct param_value *threads = params_get(set, "threads");
        out->threads = threads->is_auto ? os_cpus() : (int32_t)threads->i;
        out->threads = out->threads < TEAM_MAX ? out->threads : TEAM_MAX;
        code = kernels_select(params_get(set, "isa")->s, &out->kernels, e);
    }
    const uint64_t most = code == 0 ? bench_memory_most(set) : 0;
    params_close(&defaults);
    if (code == 0)
        code = team_open(1, &out->one, e);
    if (code == 0)
        code = team_open(out->threads, &out->all, e);
    out->bytes = probe_memory_bytes(most);
    out->beyond_caches = out->bytes > 0;
    out->bytes = out->bytes > 0 ? out->bytes : BYTES_LEAST;
    if (code == 0 && !(out->memory = os_map(out->bytes, true)))
        code = error_set(e, LEAT_ERR_MEMORY,
                         "the system refused %llu bytes of memory to measure with",
                         (unsigned long long)out->bytes);
    if (code < 0)
        bench_machine_close(out);
    return code;
}

void bench_machine_close(struct bench_machine *m)
{
    if (m->memory)
        os_unmap(m->memory, m->bytes);
    if (m->all)
        team_close(m->all);
    if (m->one)
        team_close(m->one);
    memset(m, 0, sizeof *m);
}

/* What was not measured stays 0. */
static double rate_of(const struct compute_fact *f)
{
    return f->missing ? 0 : f->best_per_s;
}

int leat_measure_limits(const struct leat_params *params, struct leat_limits *out,
                        struct leat_error *e)
{
    struct bench_machine m;
    struct compute_fact f;
    memset(out, 0, sizeof *out);
    int code = bench_machine(params, &m, e);
    if (code < 0)
        return code;
    if (m.beyond_caches)
        memset(m.memory, 1, m.bytes); /* pages of zeros would all be one */
    const char *isa = m.kernels->isa;
    out->threads = m.threads;
    out->isa = isa;
    if (m.beyond_caches) {
        probe_memory_read(m.memory, m.bytes, 1, PROBE_SECONDS, &f);
        out->read_1_bytes_per_s = out->read_bytes_per_s = rate_of(&f);
    }
    if (m.beyond_caches && m.threads > 1) {
        probe_memory_read(m.memory, m.bytes, m.threads, PROBE_SECONDS, &f);
        out->read_bytes_per_s = rate_of(&f);
    }
    probe_multiply_add(isa, COMPUTE_INT8, 1, PROBE_SECONDS / 2, &f);
    out->int8_1_macs_per_s = rate_of(&f);
    probe_multiply_add(isa, COMPUTE_INT8, m.threads, PROBE_SECONDS / 2, &f);
    out->int8_macs_per_s = rate_of(&f);
    out->int8_form = f.source;
    probe_multiply_add(isa, COMPUTE_F32, 1, PROBE_SECONDS / 2, &f);
    out->float_1_macs_per_s = rate_of(&f);
    probe_multiply_add(isa, COMPUTE_F32, m.threads, PROBE_SECONDS / 2, &f);
    out->float_macs_per_s = rate_of(&f);
    out->float_form = f.source;
    bench_machine_close(&m);
    return 0;
}

/* ---- the work of a token ---- */

static void add_unit(const struct unit *u, uint64_t *bytes, uint64_t *macs)
{
    for (int32_t p = 0; p < u->n_parts; p++) {
        *bytes += u->part[p].bytes;
        *macs += (uint64_t)u->part[p].rows * (uint64_t)u->part[p].cols;
    }
}

/* Which experts are chosen is not known: the mean of a layer's, times those used. */
static void add_experts(const struct model *m, const struct layer *l, struct leat_work *w)
{
    uint64_t bytes = 0, macs = 0;
    if (l->expert0 < 0 || m->n_expert < 1)
        return;
    for (int32_t i = 0; i < m->n_expert; i++)
        add_unit(&m->units[l->expert0 + i], &bytes, &macs);
    w->expert_bytes += (uint64_t)((__uint128_t)bytes * (uint32_t)m->n_expert_used /
                                  (uint32_t)m->n_expert);
    w->matrix_macs += (uint64_t)((__uint128_t)macs * (uint32_t)m->n_expert_used /
                                 (uint32_t)m->n_expert);
}

static void add_attention(const struct layer *l, enum kv_type t, int32_t position,
                          struct leat_work *w)
{
    uint64_t seen = (uint64_t)position + 1;
    if (l->n_head_kv < 1)
        return;
    if (l->window > 0 && seen > (uint64_t)l->window)
        seen = (uint64_t)l->window;
    w->kv_bytes += seen * (uint64_t)l->n_head_kv *
                   (kv_row_bytes(t, l->head_dim_k) + kv_row_bytes(t, l->head_dim_v));
    w->attention_macs +=
        seen * (uint64_t)l->n_head * ((uint64_t)l->head_dim_k + (uint64_t)l->head_dim_v);
}

void leat_engine_work(const struct leat_engine *g, int32_t position, struct leat_work *out)
{
    const struct model *m = g->model;
    uint64_t head_bytes = 0;
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < m->n_schedule; i++)
        if (m->schedule[i] != m->head)
            add_unit(&m->units[m->schedule[i]], &out->dense_bytes, &out->matrix_macs);
    add_unit(&m->units[m->head], &head_bytes, &out->head_macs);
    out->dense_bytes += head_bytes;
    out->row_bytes = m->units[m->token_embd].part[0].row_bytes;
    for (int32_t i = 0; i < m->n_layer; i++) {
        add_experts(m, &m->layers[i], out);
        add_attention(&m->layers[i], state_pool_type(g->pool), position, out);
    }
}
