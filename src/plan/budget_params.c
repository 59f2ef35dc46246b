/* Parameter rows of the budget (budget_params.h). Bounds stand here once: parsing checks them,
 * nothing else does. */
#include "budget_params.h"

#define USE          BUDGET_PARAM_USE
#define SIZE_LIMIT   0x1p60
#define TOKENS_MAX   1e8
#define WIDTH_MAX    8192.0
#define SESSIONS_MAX 1024.0

const struct param budget_params[] = {
    {.key = "memory",
     .flag = "--memory",
     .label = "Memory budget",
     .group = "Memory",
     .unit = "bytes",
     .help = "Hard ceiling on the memory held; auto: three quarters of what is available.",
     .type = PARAM_SIZE,
     .level = PARAM_BASIC,
     .scope = PARAM_SESSION,
     .accepts_auto = true,
     .min = 1,
     .max = SIZE_LIMIT,
     .def = "auto",
     .commands = USE},
    {.key = "context",
     .flag = "--context",
     .aliases = "-c --ctx-size",
     .label = "Context",
     .group = "Memory",
     .unit = "tokens",
     .help = "Longest text, prompt and answer together; auto: what the model was trained for, at "
             "most 4096, less where "
             "the budget is tight.",
     .type = PARAM_INT,
     .level = PARAM_BASIC,
     .scope = PARAM_SESSION,
     .accepts_auto = true,
     .min = 1,
     .max = TOKENS_MAX,
     .def = "auto",
     .commands = USE},
    {.key = "resident",
     .flag = "--resident",
     .label = "Resident weights",
     .group = "Memory",
     .unit = "bytes",
     .help = "Memory for dense weights that stay; the rest streams. 0: as little as possible; "
             "auto: what the budget leaves.",
     .type = PARAM_SIZE,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .accepts_auto = true,
     .min = 0,
     .max = SIZE_LIMIT,
     .def = "auto",
     .commands = USE},
    {.key = "expert_cache",
     .flag = "--expert-cache",
     .label = "Expert cache",
     .group = "Memory",
     .unit = "bytes",
     .help = "Memory for routed experts. 0: the working slots alone; auto: what the budget leaves.",
     .type = PARAM_SIZE,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .accepts_auto = true,
     .min = 0,
     .max = SIZE_LIMIT,
     .def = "auto",
     .commands = USE},
    {.key = "ubatch",
     .flag = "--ubatch",
     .aliases = "-b --ubatch-size",
     .label = "Ubatch width",
     .group = "Memory",
     .unit = "tokens",
     .help = "Tokens that ride one pass; auto: 512, less where the budget is tight.",
     .type = PARAM_INT,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .accepts_auto = true,
     .min = 1,
     .max = WIDTH_MAX,
     .def = "auto",
     .commands = USE},
    {.key = "sessions",
     .label = "Sessions",
     .group = "Memory",
     .help = "Texts that may be open at once, each with a whole context.",
     .type = PARAM_INT,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .min = 1,
     .max = SESSIONS_MAX,
     .def = "1",
     .commands = USE},
    {.key = "logit_rows",
     .label = "Rows of logits",
     .group = "Memory",
     .help = "Tokens of one pass that can give logits. Unset: one per session, more while they "
             "take less "
             "than 1 MiB; auto: as many as a tenth of the budget holds, which evaluation likes.",
     .type = PARAM_INT,
     .level = PARAM_ADVANCED,
     .scope = PARAM_SESSION,
     .accepts_auto = true,
     .min = 1,
     .max = WIDTH_MAX,
     .commands = USE},
};
const int32_t budget_params_count = sizeof budget_params / sizeof *budget_params;

static int32_t int_or(const struct param_value *v, int32_t automatic)
{
    return v->is_auto ? automatic : (int32_t)v->i;
}

static uint64_t size_or_auto(const struct param_value *v)
{
    return v->is_auto ? BUDGET_AUTO : (uint64_t)v->i;
}

bool budget_ask_read(const struct param_set *s, struct budget_ask *ask)
{
    const struct param_value *memory = params_get(s, "memory"), *rows = params_get(s, "logit_rows");
    ask->context = int_or(params_get(s, "context"), -1);
    ask->width = int_or(params_get(s, "ubatch"), -1);
    ask->n_seq = (int32_t)params_get(s, "sessions")->i;
    ask->max_logits = !rows->set ? BUDGET_LOGITS_SPARE : int_or(rows, BUDGET_LOGITS_SHARE);
    ask->resident_bytes = size_or_auto(params_get(s, "resident"));
    ask->expert_cache_bytes = size_or_auto(params_get(s, "expert_cache"));
    if (memory->is_auto)
        return false;
    ask->ceiling_bytes = (uint64_t)memory->i;
    return true;
}
