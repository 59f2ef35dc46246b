/* The options of one command: the library's rows joined with the program's own, read from the
 * command line and the configuration file. The only reader of the environment. One thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "../base/error.h"

#define TEXT_COMMANDS (CMD_RUN | CMD_TOKENIZE | CMD_EVAL)

static const struct param program_rows[] = {
    {.key = "model",
     .flag = "--model",
     .aliases = "-m",
     .label = "Model",
     .group = "Model and text",
     .unit = "path",
     .help = "The model, if it is not the first bare word.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .commands = TEXT_COMMANDS | CMD_INSPECT | CMD_BENCH},
    {.key = "prompt",
     .flag = "--prompt",
     .aliases = "-p",
     .label = "Text",
     .group = "Model and text",
     .unit = "text",
     .help = "The text, bytes exactly as given.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .commands = TEXT_COMMANDS},
    {.key = "file",
     .flag = "--file",
     .aliases = "-f",
     .label = "Text file",
     .group = "Model and text",
     .unit = "path",
     .help = "The text from a file, bytes exactly as they are; - is standard input.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .commands = TEXT_COMMANDS},
    {.key = "tokens",
     .flag = "--tokens",
     .label = "Token ids",
     .group = "Model and text",
     .unit = "ids",
     .help = "Ids in place of a text: \"1 5 9\"; nothing is added to them.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .commands = CMD_RUN | CMD_EVAL},
    {.key = "special",
     .flag = "--special",
     .label = "Special tokens",
     .group = "Model and text",
     .help = "Spellings of control tokens in the text become those tokens, and generated ones are "
             "printed.",
     .type = PARAM_BOOL,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .def = "false",
     .commands = TEXT_COMMANDS},
    {.key = "bos",
     .flag = "--bos",
     .label = "Begin token",
     .group = "Model and text",
     .help = "Add BOS and EOS as the model's rule says; --no-bos adds none.",
     .type = PARAM_BOOL,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .def = "true",
     .commands = TEXT_COMMANDS},
    {.key = "decode",
     .flag = "--decode",
     .label = "Decode",
     .group = "Model and text",
     .help = "The text is a list of ids; print what they spell.",
     .type = PARAM_BOOL,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .def = "false",
     .commands = CMD_TOKENIZE},
    {.key = "tensors",
     .flag = "--tensors",
     .label = "Tensor list",
     .group = "Output",
     .help = "List every tensor (with --json they always are).",
     .type = PARAM_BOOL,
     .level = PARAM_BASIC,
     .def = "false",
     .commands = CMD_INSPECT},
    {.key = "logits",
     .flag = "--logits",
     .label = "Logits file",
     .group = "Output",
     .unit = "path",
     .help = "Write the logits as raw float32, row i for token i.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .commands = CMD_EVAL},
    {.key = "prompt_tokens",
     .flag = "--prompt-tokens",
     .label = "Prompt lengths",
     .group = "Measuring",
     .unit = "list",
     .help = "Lengths of the prompts to measure, separated by commas; 0: none.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .def = "512",
     .commands = CMD_BENCH},
    {.key = "decode_tokens",
     .flag = "--decode-tokens",
     .label = "Decode lengths",
     .group = "Measuring",
     .unit = "list",
     .help = "Numbers of tokens to decode one by one, separated by commas; 0: none.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .def = "64",
     .commands = CMD_BENCH},
    {.key = "depth",
     .flag = "--depth",
     .label = "Depths",
     .group = "Measuring",
     .unit = "list",
     .help = "Tokens that are in the context already, separated by commas.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .def = "0",
     .commands = CMD_BENCH},
    {.key = "runs",
     .flag = "--runs",
     .aliases = "-r",
     .label = "Runs",
     .group = "Measuring",
     .help = "Repetitions of each measure, after one that does not count.",
     .type = PARAM_INT,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .min = 1,
     .max = BENCH_RUNS_MAX,
     .def = "3",
     .commands = CMD_BENCH},
    {.key = "kernels",
     .flag = "--kernels",
     .label = "Kernels alone",
     .group = "Measuring",
     .help = "Measure the products of each format in place of a model.",
     .type = PARAM_BOOL,
     .by_line_only = true,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .def = "false",
     .commands = CMD_BENCH},
    {.key = "formats",
     .flag = "--formats",
     .label = "Formats",
     .group = "Measuring",
     .unit = "list",
     .help = "With --kernels: only these formats, separated by commas (Q4_K,Q8_0).",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .commands = CMD_BENCH},
    {.key = "budget_cycles",
     .flag = "--budget-cycles",
     .label = "Budgets",
     .group = "Measuring",
     .unit = "list",
     .help = "Sizes of the cache to replay, separated by commas, in token cycles: bytes of the "
             "experts of one token.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .scope = PARAM_REQUEST,
     .def = "0.5,0.95,1.5,2,3,4",
     .commands = CMD_REPLAY},
    {.key = "as_csv",
     .flag = "--csv",
     .label = "As CSV",
     .group = "Output",
     .help = "Print the trace as CSV in place of replaying it.",
     .type = PARAM_BOOL,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .def = "false",
     .commands = CMD_REPLAY},
    {.key = "routes",
     .flag = "--routes",
     .label = "Recorded routing",
     .group = "Measuring",
     .unit = "path",
     .help = "Drive a mixture of experts with the routing of this trace, from a cold cache.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .commands = CMD_BENCH},
    {.key = "trace_routes",
     .flag = "--trace-routes",
     .label = "Routing trace",
     .group = "Output",
     .unit = "path",
     .help = "Record which experts every token chooses into this file.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .commands = CMD_RUN | CMD_EVAL | CMD_BENCH},
    {.key = "json",
     .flag = "--json",
     .label = "JSON",
     .group = "Output",
     .help = "One object on standard output; an error is one object on standard error.",
     .type = PARAM_BOOL,
     .level = PARAM_BASIC,
     .def = "false",
     .commands = CMD_ALL},
    {.key = "stats",
     .flag = "--stats",
     .label = "Statistics",
     .group = "Output",
     .help = "Times, rates, reads and memory on standard error.",
     .type = PARAM_BOOL,
     .level = PARAM_BASIC,
     .def = "false",
     .commands = CMD_RUN | CMD_EVAL | CMD_BENCH},
    {.key = "csv",
     .flag = "--csv",
     .label = "CSV file",
     .group = "Output",
     .unit = "path",
     .help = "Write one row per token: its time, reads, hits and memory.",
     .type = PARAM_STRING,
     .by_line_only = true,
     .level = PARAM_ADVANCED,
     .scope = PARAM_REQUEST,
     .commands = CMD_RUN | CMD_BENCH},
    {.key = "show_config",
     .flag = "--show-config",
     .label = "Show configuration",
     .group = "Output",
     .help = "Print what the options and the configuration file add up to, and end.",
     .type = PARAM_BOOL,
     .by_line_only = true,
     .level = PARAM_ADVANCED,
     .def = "false",
     .commands = CMD_ALL},
    {.key = "help",
     .flag = "--help",
     .aliases = "-h",
     .label = "Help",
     .group = "Output",
     .help = "Print this and end.",
     .type = PARAM_BOOL,
     .by_line_only = true,
     .level = PARAM_BASIC,
     .def = "false",
     .commands = CMD_ALL},
};

#define MAX_TABLES 8

int options_open(struct options *o, const struct command *c, struct leat_error *e)
{
    const struct param *tables[MAX_TABLES] = {program_rows};
    int32_t counts[MAX_TABLES] = {sizeof program_rows / sizeof *program_rows}, n = 1;
    memset(o, 0, sizeof *o);
    o->command = c;
    while (n < MAX_TABLES && (tables[n] = leat_param_rows(n - 1, &counts[n])))
        n++;
    return params_open(&o->set, tables, counts, n, e);
}

void options_close(struct options *o)
{
    params_close(&o->set);
}

/* Known before anything is parsed, so that a wrong option is reported in the form that was asked
 * for. */
static bool asks_for(int argc, char **argv, const char *flag)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], flag) == 0)
            return true;
    return false;
}

/* $XDG_CONFIG_HOME/leat/config, or ~/.config/leat/config; false when there is no home either. */
static bool config_path(char *dst, size_t cap)
{
    const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;
    if (base && base[0] == '/')
        n = snprintf(dst, cap, "%s/leat/config", base);
    else if (home && *home)
        n = snprintf(dst, cap, "%s/.config/leat/config", home);
    return n > 0 && (size_t)n < cap;
}

int options_read(struct options *o, int argc, char **argv, struct leat_error *e)
{
    char path[4096];
    o->json = asks_for(argc, argv, "--json");
    int code = params_parse(&o->set, argc, argv, o->command->rows, o->words, o->command->max_words,
                            &o->n_words, e);
    if (code == 0 && config_path(path, sizeof path))
        code = params_read_file(&o->set, path, e);
    if (code == 0)
        o->json = option(o, "json")->b;
    return code;
}

const struct param_value *option(const struct options *o, const char *key)
{
    return params_get(&o->set, key);
}

bool option_given(const struct options *o, const char *key)
{
    return params_get(&o->set, key)->set;
}

static int pass_on(struct leat_params *p, const struct param *row, const struct param_value *v,
                   struct leat_error *e)
{
    if (row->type == PARAM_LIST) {
        for (int32_t i = 0; i < v->n_list; i++) {
            int code = leat_params_set(p, row->key, v->list[i], e);
            if (code < 0)
                return code;
        }
        return 0;
    }
    char *text = params_spell(row, v);
    if (!text)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for the options");
    int code = leat_params_set(p, row->key, text, e);
    free(text);
    return code;
}

int options_params(const struct options *o, struct leat_params **out, struct leat_error *e)
{
    int code = leat_params_open(out, e);
    for (int32_t i = 0; code == 0 && i < o->set.n; i++) {
        const struct param *row = o->set.rows[i];
        bool ours = (row->commands & (LEAT_PARAM_ENGINE | LEAT_PARAM_GENERATE)) != 0;
        if (ours && (row->commands & o->command->rows) && o->set.values[i].set)
            code = pass_on(*out, row, &o->set.values[i], e);
    }
    if (code < 0) {
        leat_params_close(*out);
        *out = NULL;
    }
    return code;
}

int options_model(struct options *o, const char **model, struct leat_error *e)
{
    const char *named = option(o, "model")->s;
    const int32_t used = o->n_words > 0 && !named ? 1 : 0;
    *model = used ? o->words[0] : named;
    if (!*model)
        return error_set(e, LEAT_ERR_USAGE, "no model was named: leat %s %s", o->command->name,
                         o->command->arguments);
    for (int32_t i = used; i < o->n_words; i++)
        o->words[i - used] = o->words[i];
    o->n_words -= used;
    return 0;
}

/* A value as params_read_file() would read it. */
static void show_value(const char *value)
{
    static const char special[] = " \t\r\n\"\\";
    size_t n = strlen(value);
    bool plain = n > 0 && !strchr(special, value[0]) && !strchr(special, value[n - 1]) &&
                 !strpbrk(value, "\n\r\"\\");
    if (plain) {
        fputs(value, stdout);
        return;
    }
    putchar('"');
    for (const char *c = value; *c; c++) {
        if (*c == '\n' || *c == '\t')
            printf("\\%c", *c == '\n' ? 'n' : 't');
        else if (*c == '"' || *c == '\\')
            printf("\\%c", *c);
        else
            putchar(*c);
    }
    putchar('"');
}

static void show_row(const struct param *row, const struct param_value *v)
{
    if (row->type == PARAM_LIST) {
        for (int32_t i = 0; i < v->n_list; i++) {
            printf("%s = ", row->key);
            show_value(v->list[i]);
            putchar('\n');
        }
        return;
    }
    char *text = params_spell(row, v);
    if (text) {
        printf("%s = ", row->key);
        show_value(text);
        putchar('\n');
    }
    free(text);
}

static void show_json(const struct options *o, const struct leat_error *problem)
{
    json_t *config = json_object(), *top = json_object();
    for (int32_t i = 0; i < o->set.n; i++) {
        const struct param *row = o->set.rows[i];
        const struct param_value *v = &o->set.values[i];
        if (!(row->commands & o->command->rows))
            continue;
        json_t *x = json_object(), *value;
        char *text = row->type == PARAM_LIST ? NULL : params_spell(row, v);
        if (row->type == PARAM_LIST) {
            value = json_array();
            for (int32_t k = 0; k < v->n_list; k++)
                json_array_append_new(value, json_text_of(v->list[k]));
        } else if (text && !v->is_auto && (row->type == PARAM_INT || row->type == PARAM_SIZE)) {
            value = json_integer((json_int_t)v->i);
        } else if (text && !v->is_auto && row->type == PARAM_FLOAT) {
            value = json_real(v->f);
        } else if (text && !v->is_auto && row->type == PARAM_BOOL) {
            value = json_boolean(v->b);
        } else {
            value = json_text_of(text);
        }
        free(text);
        json_object_set_new(x, "value", value);
        json_object_set_new(x, "source", json_text_of(v->source));
        json_object_set_new(config, row->key, x);
    }
    json_object_set_new(top, "command", json_string(o->command->name));
    json_object_set_new(top, "valid", json_boolean(problem == NULL));
    if (problem)
        json_object_set_new(top, "error", json_text_of(problem->message));
    json_object_set_new(top, "config", config);
    output_json(top);
}

void options_show(const struct options *o, const struct leat_error *problem)
{
    if (o->json) {
        show_json(o, problem);
        return;
    }
    printf("# leat %s%s%s\n", o->command->name, problem ? ": not valid: " : ": valid",
           problem ? problem->message : "");
    for (int32_t i = 0; i < o->set.n; i++) {
        const struct param *row = o->set.rows[i];
        if (!(row->commands & o->command->rows) || row->by_line_only)
            continue; /* what is printed is a configuration file */
        if (o->set.values[i].set)
            printf("# from the %s\n", o->set.values[i].source);
        show_row(row, &o->set.values[i]);
    }
}
