/* Parameter rows of generation (sampling_params.h). Bounds stand here once: parsing checks them,
 * nothing else does. */
#include "sampling_params.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USE             SAMPLING_PARAM_USE
#define TOKENS_MAX      1e9 /* no context is longer */
#define PENALTY_MAX     100.0
#define BIAS_MAX        1e6
#define TEMPERATURE_MAX 100.0
#define SEED_MAX                                                                                   \
    9007199254740991.0 /* 2^53 - 1: survives JSON readers that keep numbers as doubles */

const struct param sampling_params[] = {
    {.key = "predict",
     .flag = "--predict",
     .aliases = "-n",
     .label = "Tokens to generate",
     .group = "Generation",
     .unit = "tokens",
     .help = "Generate at most this many tokens; -1: until an end token or the context is full.",
     .type = PARAM_INT,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .min = -1,
     .max = TOKENS_MAX,
     .def = "-1",
     .commands = USE},
    {.key = "stop",
     .flag = "--stop",
     .label = "Stop string",
     .group = "Generation",
     .unit = "text",
     .help = "End when this text has been generated; it is not printed.",
     .type = PARAM_LIST,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .commands = USE},
    {.key = "ignore_eos",
     .flag = "--ignore-eos",
     .label = "Ignore end tokens",
     .group = "Generation",
     .help = "Go on after end tokens: they are sampled and counted.",
     .type = PARAM_BOOL,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .def = "false",
     .commands = USE},
    {.key = "seed",
     .flag = "--seed",
     .aliases = "-s",
     .label = "Seed",
     .group = "Sampling",
     .help = "Seed of the random numbers; same seed, same text. auto: a new one each time, which "
             "--stats and --json say.",
     .type = PARAM_INT,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .accepts_auto = true,
     .min = 0,
     .max = SEED_MAX,
     .def = "auto",
     .commands = USE},
    {.key = "temp",
     .flag = "--temp",
     .aliases = "--temperature",
     .label = "Temperature",
     .group = "Sampling",
     .help = "Flattens (above 1) or sharpens the distribution; 0: always the likeliest token.",
     .type = PARAM_FLOAT,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .min = 0,
     .max = TEMPERATURE_MAX,
     .def = "0.8",
     .commands = USE},
    {.key = "top_k",
     .flag = "--top-k",
     .label = "Top-k",
     .group = "Sampling",
     .unit = "tokens",
     .help = "Draw from the k likeliest tokens; 0: off.",
     .type = PARAM_INT,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .min = 0,
     .max = TOKENS_MAX,
     .def = "40",
     .commands = USE},
    {.key = "top_p",
     .flag = "--top-p",
     .label = "Top-p",
     .group = "Sampling",
     .help = "Draw from the fewest likeliest tokens that hold this share of probability; 1: off.",
     .type = PARAM_FLOAT,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .min = 0,
     .max = 1,
     .def = "0.95",
     .commands = USE},
    {.key = "min_p",
     .flag = "--min-p",
     .label = "Min-p",
     .group = "Sampling",
     .help = "Leave out tokens less likely than this share of the likeliest one; 0: off.",
     .type = PARAM_FLOAT,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .min = 0,
     .max = 1,
     .def = "0.05",
     .commands = USE},
    {.key = "repeat_penalty",
     .flag = "--repeat-penalty",
     .label = "Repetition penalty",
     .group = "Sampling",
     .help = "Divides the logits of tokens seen lately (multiplies negative ones); 1: off.",
     .type = PARAM_FLOAT,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .min = 0.01,
     .max = PENALTY_MAX,
     .def = "1",
     .commands = USE},
    {.key = "frequency_penalty",
     .flag = "--frequency-penalty",
     .label = "Frequency penalty",
     .group = "Sampling",
     .help = "Taken from a token's logit for each time it was seen lately; 0: off.",
     .type = PARAM_FLOAT,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .min = -PENALTY_MAX,
     .max = PENALTY_MAX,
     .def = "0",
     .commands = USE},
    {.key = "presence_penalty",
     .flag = "--presence-penalty",
     .label = "Presence penalty",
     .group = "Sampling",
     .help = "Taken once from the logit of a token seen lately; 0: off.",
     .type = PARAM_FLOAT,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .min = -PENALTY_MAX,
     .max = PENALTY_MAX,
     .def = "0",
     .commands = USE},
    {.key = "repeat_last_n",
     .flag = "--repeat-last-n",
     .label = "Penalty window",
     .group = "Sampling",
     .unit = "tokens",
     .help = "How many tokens back the penalties look, prompt included; 0: none, -1: all.",
     .type = PARAM_INT,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .min = -1,
     .max = TOKENS_MAX,
     .def = "64",
     .commands = USE},
    {.key = "logit_bias",
     .flag = "--logit-bias",
     .label = "Logit bias",
     .group = "Sampling",
     .unit = "id=v",
     .help = "Added to the logit of token ID before everything else; -inf: never that token.",
     .type = PARAM_LIST,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .commands = USE},
};
const int32_t sampling_params_count = sizeof sampling_params / sizeof *sampling_params;

/* A bias is read as any float of a table is: strictly, and whatever the locale. */
static bool number_read(const char *text, float *out)
{
    static const struct param row = {
        .key = "bias", .type = PARAM_FLOAT, .min = -BIAS_MAX, .max = BIAS_MAX};
    const struct param *const table = &row;
    struct param_set s;
    if (params_open(&s, &table, &(const int32_t){1}, 1, NULL) < 0)
        return false;
    bool ok = params_set(&s, "bias", text, "logit_bias", NULL) == 0;
    *out = (float)params_get(&s, "bias")->f;
    params_close(&s);
    return ok;
}

static int bias_read(const char *text, int32_t n_logits, struct logit_bias *out,
                     struct leat_error *e)
{
    char quoted[80], *end;
    const char *equal = strchr(text, '=');
    errno = 0;
    long id = strtol(text, &end, 10);
    error_quote(quoted, sizeof quoted, text, strlen(text));
    if (!equal || end != equal || text[0] < '0' || text[0] > '9' || errno != 0)
        return error_set(e, LEAT_ERR_USAGE, "--logit-bias '%s': ID=V was expected", quoted);
    if (id >= n_logits)
        return error_set(e, LEAT_ERR_USAGE, "--logit-bias '%s': this model's ids go from 0 to %d",
                         quoted, (int)n_logits - 1);
    *out = (struct logit_bias){.id = (int32_t)id, .bias = -INFINITY};
    if (strcmp(equal + 1, "-inf") == 0)
        return 0;
    if (!number_read(equal + 1, &out->bias))
        return error_set(e, LEAT_ERR_USAGE,
                         "--logit-bias '%s': V is a number from -%.0f to %.0f, or -inf", quoted,
                         BIAS_MAX, BIAS_MAX);
    return 0;
}

static int seed_draw(uint64_t *out, struct leat_error *e)
{
    uint32_t r; /* short enough to be typed again */
    if (getentropy(&r, sizeof r) != 0)
        return error_set_errno(e, LEAT_ERR_FILE, errno,
                               "the system gave no random seed; give one with --seed");
    *out = r;
    return 0;
}

int generation_read(const struct param_set *s, int32_t n_logits, struct generation *out,
                    struct leat_error *e)
{
    memset(out, 0, sizeof *out);
    out->predict = (int32_t)params_get(s, "predict")->i;
    out->ignore_eos = params_get(s, "ignore_eos")->b;
    const struct param_value *stop = params_get(s, "stop");
    out->stops = (struct stop_set){.strings = (const char *const *)stop->list, .n = stop->n_list};
    struct sampling *how = &out->sampling;
    how->temperature = (float)params_get(s, "temp")->f;
    how->top_k = (int32_t)params_get(s, "top_k")->i;
    how->top_p = (float)params_get(s, "top_p")->f;
    how->min_p = (float)params_get(s, "min_p")->f;
    how->repeat_penalty = (float)params_get(s, "repeat_penalty")->f;
    how->frequency_penalty = (float)params_get(s, "frequency_penalty")->f;
    how->presence_penalty = (float)params_get(s, "presence_penalty")->f;
    how->repeat_last_n = (int32_t)params_get(s, "repeat_last_n")->i;

    const struct param_value *seed = params_get(s, "seed");
    int code = 0;
    if (seed->is_auto)
        code = seed_draw(&how->seed, e);
    else
        how->seed = (uint64_t)seed->i;
    const struct param_value *bias = params_get(s, "logit_bias");
    if (code == 0 && bias->n_list > 0) {
        out->bias = calloc((size_t)bias->n_list, sizeof *out->bias);
        if (!out->bias)
            code = error_set(e, LEAT_ERR_MEMORY, "the system refused memory for %d logit biases",
                             (int)bias->n_list);
    }
    for (int32_t i = 0; code == 0 && i < bias->n_list; i++)
        code = bias_read(bias->list[i], n_logits, &out->bias[i], e);
    how->bias = out->bias;
    how->n_bias = bias->n_list;
    if (code < 0)
        generation_close(out);
    return code;
}

void generation_close(struct generation *g)
{
    free(g->bias);
    memset(g, 0, sizeof *g);
}
