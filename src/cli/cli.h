/* What the files of the program share: commands, options, output. Includes leat.h and base/ only.
 * One thread. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../include/leat.h"
#include "../base/params.h"

/* Bits of param.commands, beside LEAT_PARAM_ENGINE and LEAT_PARAM_GENERATE. */
enum command_bit {
    CMD_RUN = 1 << 8,
    CMD_INSPECT = 1 << 9,
    CMD_TOKENIZE = 1 << 10,
    CMD_EVAL = 1 << 11,
    CMD_PARAMS = 1 << 12,
    CMD_BENCH = 1 << 13,
    CMD_REPLAY = 1 << 14,
    CMD_ALL =
        CMD_RUN | CMD_INSPECT | CMD_TOKENIZE | CMD_EVAL | CMD_PARAMS | CMD_BENCH | CMD_REPLAY,
};

enum { BENCH_RUNS_MAX = 100 };

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct options { /* one command's resolved configuration */
    const struct command *command;
    struct param_set set;
    bool json;            /* --json, known even when the rest does not parse */
    const char *words[4]; /* positional */
    int32_t n_words;
};

struct command {
    const char *name, *arguments, *summary; /* arguments as usage prints them: "MODEL" */
    const char *about;                      /* a paragraph for usage and man page */
    uint32_t rows;                          /* bits of the rows it reads */
    int32_t max_words;
    int (*run)(struct options *o); /* exit status */
};
extern const struct command commands[];
extern const int32_t n_commands;

int run_command(struct options *o);
int inspect_command(struct options *o);
int tokenize_command(struct options *o);
int eval_command(struct options *o);
int bench_command(struct options *o);
int params_command(struct options *o);
int replay_command(struct options *o);

/* ---- options.c ---- */

int options_open(struct options *o, const struct command *c, struct leat_error *e);
void options_close(struct options *o);
/* Command line, then the configuration file for what it left open. */
int options_read(struct options *o, int argc, char **argv, struct leat_error *e);
const struct param_value *option(const struct options *o, const char *key);
bool option_given(const struct options *o, const char *key); /* by hand or by the file */
/* The library's own rows among them. */
int options_params(const struct options *o, struct leat_params **out, struct leat_error *e);
/* The one MODEL: the bare word or -m. Checks that no word is left over. */
int options_model(struct options *o, const char **model, struct leat_error *e);
void options_show(const struct options *o, const struct leat_error *problem); /* --show-config */
int options_version(const struct options *o);

/* ---- usage.c ---- */

void usage_program(void);
void usage_command(const struct command *c);
int usage_man(void); /* docs/leat.1 */

/* ---- input.c ---- */

/* The text of -p or -f (- is standard input), bytes as they are. *text is new memory. 1 = given, 0
 * = neither was. */
int input_text(const struct options *o, char **text, size_t *len, struct leat_error *e);
/* Ids as numbers between blanks or commas, in [ ] or not. *ids is new memory. */
int input_ids(const char *text, size_t len, int32_t **ids, int32_t *n, struct leat_error *e);

/* ---- render.c ---- */

/* Writes to standard output; what fails there is remembered and told by output_close. */
void output_bytes(const char *bytes, size_t n);
bool output_broken(void);
int output_close(int status); /* flushes; returns the exit status */
void output_json(json_t *o);  /* one object, one newline; takes the reference */
/* One line (or the object) on standard error; returns the exit status of the code. plan may be
 * NULL. */
int report_error(const struct options *o, const struct leat_error *e, const struct leat_plan *plan);
json_t *json_text_of(const char *text);      /* NULL gives null; what is no UTF-8 is quoted */
json_t *json_bytes_of(uint64_t bytes);       /* UINT64_MAX gives null */
json_t *json_rate(double n, double seconds); /* null where it was not measured */
json_t *plan_json(const struct leat_plan *p);
/* d NULL: the drive was not probed. */
json_t *stats_json(const struct leat_engine *g, const struct leat_stats *s,
                   const struct leat_drive *d, double elapsed_s, double tokens);
void stats_print(const struct leat_engine *g, const struct leat_stats *s,
                 const struct leat_drive *d, double elapsed_s, double tokens);
void rate_print(const char *what, double tokens, double seconds);

/* ---- progress.c ---- */

void progress_begin(void); /* quiet unless standard error is a terminal */
void progress_show(const struct leat_progress *p);
void progress_end(void); /* wipes the line */
/* What is amiss with how the engine was opened, as one line; NULL: nothing. */
const char *warning_of(const struct leat_engine *g, char *dst, size_t cap);
bool say_how(const struct options *o); /* the one line on streaming goes to standard error */

/* --trace-routes: begins the trace where it was asked for; ends it, and gives the code of what ran
 * in between, or where that worked, of the trace. */
int record_begin(const struct options *o, struct leat_engine *g, struct leat_error *e);
int record_end(struct leat_engine *g, int code, struct leat_error *e);

/* ---- interrupt.c ---- */

void interrupt_watch(
    struct leat_engine *g); /* Ctrl-C and SIGTERM cancel g from now on; NULL: remember only */
bool interrupt_came(void);
/* Waits until fd can be read; false when the program was interrupted instead. */
bool interrupt_wait(int fd);

#endif
