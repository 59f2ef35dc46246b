/* The leat program: finds the command, reads its options, runs it. Each command has a file of its
 * own (cmd_*.c). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "../base/error.h"

const struct command commands[] = {
    {"run", "MODEL (-p TEXT | -f FILE)", "generate: continue a text",
     "Continues the text of -p or -f, bytes exactly as given: nothing is trimmed, no chat template "
     "is applied. The "
     "continuation goes to standard output. Ctrl-C ends it cleanly.",
     CMD_RUN | LEAT_PARAM_ENGINE | LEAT_PARAM_GENERATE, 4, run_command},
    {"inspect", "MODEL", "what a model file holds",
     "Prints metadata, groups of tensors with their bytes and bytes per token, unit sizes and "
     "files, from headers alone; any "
     "well-formed container is accepted, and what it lacks to run is said.",
     CMD_INSPECT, 1, inspect_command},
    {"tokenize", "SOURCE (-p TEXT | -f FILE)", "text to ids, or with --decode ids to text",
     "SOURCE is a model, a vocabulary-only GGUF, a folder, or a tokenizer.json alone.",
     CMD_TOKENIZE, 1, tokenize_command},
    {"eval", "MODEL (--tokens \"1 5 9\" | -f FILE)", "logits and perplexity",
     "Evaluates the tokens from position 0 and prints the perplexity, exp of the mean negative log "
     "likelihood of all tokens but "
     "the first. With --tokens no tokenizer is needed.",
     CMD_EVAL | LEAT_PARAM_ENGINE, 1, eval_command},
    {"bench", "(MODEL | --kernels)", "rates, beside what the machine can do",
     "Measures prompts and decoding of MODEL at several lengths and depths, or with --kernels the "
     "products of every format, and says what share of the machine's own limits, measured at the "
     "same time, that is. Token ids are made up: speed does not depend on what they say. With "
     "--routes a recorded routing says which experts they choose.",
     CMD_BENCH | LEAT_PARAM_ENGINE, 1, bench_command},
    {"replay", "TRACE", "eviction policies on a recorded routing",
     "Replays which experts were chosen (a trace of --trace-routes, or CSV) against every eviction "
     "policy of the expert cache at several budgets, beside Belady's bound, which knows the "
     "future, and prints what share of the bytes that decoding asks for would have been in the "
     "cache. No model is needed.",
     CMD_REPLAY, 1, replay_command},
    {"params", "", "the parameter table",
     "Prints every parameter: key, flag, bounds, default, help. With --json it is enough to draw a "
     "form from.",
     CMD_PARAMS, 0, params_command},
};
const int32_t n_commands = sizeof commands / sizeof *commands;

static const struct command *command_find(const char *name)
{
    for (int32_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int unknown_command(const char *name, bool json)
{
    struct options o = {.json = json};
    struct leat_error e = {0};
    char quoted[80], names[160] = "";
    for (int32_t i = 0; i < n_commands; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                 commands[i].name);
    error_set(&e, LEAT_ERR_USAGE, "there is no command '%s'; the commands are %s, help and version",
              error_quote(quoted, sizeof quoted, name, strlen(name)), names);
    return report_error(&o, &e, NULL);
}

static int help(int argc, char **argv)
{
    const struct command *c = argc > 0 ? command_find(argv[0]) : NULL;
    if (argc == 0)
        usage_program();
    else if (c)
        usage_command(c);
    else if (strcmp(argv[0], "man") == 0)
        return usage_man();
    else
        return unknown_command(argv[0], false);
    return EXIT_OK;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct options o;
    struct leat_error e = {0};
    int code = options_open(&o, c, &e);
    if (code < 0)
        return report_error(&o, &e, NULL);
    code = options_read(&o, argc, argv, &e);
    int status = EXIT_OK;
    if (option(&o, "help")->b) {
        usage_command(c);
    } else if (option(&o, "show_config")->b) {
        options_show(&o, code < 0 ? &e : NULL);
        status = code < 0 ? EXIT_USAGE : EXIT_OK;
    } else if (code < 0) {
        status = report_error(&o, &e, NULL);
    } else {
        status = c->run(&o);
    }
    options_close(&o);
    return status;
}

static bool is_any(const char *s, const char *a, const char *b, const char *c)
{
    return strcmp(s, a) == 0 || strcmp(s, b) == 0 || strcmp(s, c) == 0;
}

/* A standard stream that was closed gets a descriptor on which its use fails: else the next file
 * opened, a model or the logits, would take its number and be written to. */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    /* A closed pipe and a file at its size limit are failed writes, handled where they happen. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        fputs("leat: no command; leat help lists them\n", stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    const struct command *c = command_find(name);
    int status;
    if (c)
        status = run(c, argc - 2, argv + 2);
    else if (is_any(name, "help", "--help", "-h"))
        status = help(argc - 2, argv + 2);
    else if (is_any(name, "version", "--version", "-V"))
        status = printf("leat %s\n", leat_version()) > 0 ? EXIT_OK : EXIT_FAILED;
    else
        status = unknown_command(name, argc > 2 && strcmp(argv[argc - 1], "--json") == 0);
    return output_close(status);
}
