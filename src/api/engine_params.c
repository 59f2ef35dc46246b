/* The parameter table: the rooms' rows and the engine's own, joined; leat_params over them. One
 * thread per set. */
#include <stdlib.h>

#include "engine.h"
#include "../base/error.h"
#include "../plan/budget_params.h"
#include "../session/sampling_params.h"

#define USE         LEAT_PARAM_ENGINE
#define THREADS_MAX 256 /* TEAM_MAX */
#define LANES_MAX   64

_Static_assert(BUDGET_PARAM_USE == LEAT_PARAM_ENGINE && SAMPLING_PARAM_USE == LEAT_PARAM_GENERATE,
               "bits of param.commands");
_Static_assert(THREADS_MAX == TEAM_MAX, "bounds of threads");

static const struct param engine_params[] = {
    {.key = "kv_type",
     .flag = "--kv-type",
     .label = "KV type",
     .group = "Memory",
     .help = "How keys and values are kept.",
     .choices = "f32 f16 q8_0 q4_0",
     .type = PARAM_CHOICE,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .lossy = true,
     .def = "f16",
     .commands = USE},
    {.key = "eviction",
     .flag = "--eviction",
     .label = "Eviction",
     .group = "Memory",
     .help = "Which routed expert leaves the expert cache first; it changes speed, never results.",
     .choices = "echo decay lru slru aged",
     .type = PARAM_CHOICE,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .def = "echo",
     .commands = USE},
    {.key = "threads",
     .flag = "--threads",
     .aliases = "-t",
     .label = "Threads",
     .group = "Compute",
     .help = "Threads that compute; auto: the processors this process may use.",
     .type = PARAM_INT,
     .level = PARAM_BASIC,
     .scope = PARAM_SESSION,
     .accepts_auto = true,
     .min = 1,
     .max = THREADS_MAX,
     .def = "auto",
     .commands = USE},
    {.key = "isa",
     .flag = "--isa",
     .label = "Instruction set",
     .group = "Compute",
     .help = "Which kernels compute; auto: the best this processor has.",
#if defined(__aarch64__)
     .choices = "auto scalar neon i8mm",
#else
     .choices = "auto scalar avx2 avxvnni avx512",
#endif
     .type = PARAM_CHOICE,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .def = "auto",
     .commands = USE},
    {.key = "lanes",
     .flag = "--lanes",
     .label = "Lanes",
     .group = "Reading",
     .help = "Reads in flight at most.",
     .type = PARAM_INT,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .min = 1,
     .max = LANES_MAX,
     .def = "8",
     .commands = USE},
    {.key = "lane_backend",
     .flag = "--lane-backend",
     .label = "Lanes by",
     .group = "Reading",
     .help = "How reads reach the system; auto: io_uring where it lets us, else threads.",
     .choices = "auto uring threads",
     .type = PARAM_CHOICE,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .def = "auto",
     .commands = USE},
    {.key = "direct",
     .flag = "--direct",
     .label = "Direct reads",
     .group = "Reading",
     .help = "Read weights past the page cache; auto: where that works.",
     .choices = "auto on off",
     .type = PARAM_CHOICE,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .def = "auto",
     .commands = USE},
};

static const struct {
    const struct param *rows;
    const int32_t *count;
} tables[] = {
    {sampling_params, &sampling_params_count},
    {budget_params, &budget_params_count},
    {engine_params, &(const int32_t){sizeof engine_params / sizeof *engine_params}},
};
#define N_TABLES ((int32_t)(sizeof tables / sizeof *tables))

const struct param *leat_param_rows(int32_t table, int32_t *count)
{
    if (table < 0 || table >= N_TABLES)
        return NULL;
    *count = *tables[table].count;
    return tables[table].rows;
}

int api_params_open(struct param_set *s, struct leat_error *e)
{
    const struct param *rows[N_TABLES];
    int32_t counts[N_TABLES];
    for (int32_t i = 0; i < N_TABLES; i++)
        rows[i] = leat_param_rows(i, &counts[i]);
    return params_open(s, rows, counts, N_TABLES, e);
}

int leat_params_open(struct leat_params **out, struct leat_error *e)
{
    struct leat_params *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for parameters");
    int code = api_params_open(&p->set, e);
    if (code < 0) {
        free(p);
        return code;
    }
    *out = p;
    return 0;
}

void leat_params_close(struct leat_params *p)
{
    if (!p)
        return;
    params_close(&p->set);
    free(p);
}

int leat_params_set(struct leat_params *p, const char *key, const char *value, struct leat_error *e)
{
    return params_set(&p->set, key, value, "api", e);
}

char *leat_params_get(const struct leat_params *p, const char *key)
{
    int32_t i = params_find(&p->set, key);
    return i < 0 ? NULL : params_spell(p->set.rows[i], &p->set.values[i]);
}

char *leat_params_json(const struct leat_params *p)
{
    struct param_set defaults;
    if (p)
        return params_json(&p->set, true);
    if (api_params_open(&defaults, NULL) < 0)
        return NULL;
    char *text = params_json(&defaults, false);
    params_close(&defaults);
    return text;
}
