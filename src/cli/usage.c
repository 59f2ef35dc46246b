/* Usage texts and the man page, made from the command table and the parameter table. `leat help
 * man` writes docs/leat.1. One thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define COLUMNS 80

static const char sizes[] =
    "SIZE is a number with K, M, G, T (powers of 1024) or KB, MB, GB, TB (powers of 1000).";
static const char configured[] =
    "Defaults can be set in ~/.config/leat/config (or $XDG_CONFIG_HOME/leat/config), "
    "one \"key = value\" a line; leat params lists the keys.";

void usage_program(void)
{
    printf("leat %s: runs language models bigger than the memory they are given.\n\nusage:\n",
           leat_version());
    for (int32_t i = 0; i < n_commands; i++) {
        char head[96];
        const int n =
            snprintf(head, sizeof head, "leat %s %s", commands[i].name, commands[i].arguments);
        printf("  %-34s%s %s\n", head, n > 34 ? "\n                                    " : "",
               commands[i].summary);
    }
    printf("  %-34s %s\n", "leat help [COMMAND]", "this, or the options of a command");
    printf("  %-34s %s\n", "leat version", "the version");
    puts("\nleat COMMAND --help lists a command's options. Every command takes --json.");
}

/* A paragraph, wrapped. */
static void print_wrapped(const char *s)
{
    int at = 0;
    while (*s) {
        size_t n = strcspn(s, " ");
        if (at > 0 && at + 1 + (int)n > COLUMNS) {
            putchar('\n');
            at = 0;
        } else if (at > 0) {
            putchar(' ');
            at++;
        }
        fwrite(s, 1, n, stdout);
        at += (int)n;
        s += n;
        s += strspn(s, " ");
    }
    putchar('\n');
}

void usage_command(const struct command *c)
{
    struct options o;
    printf("usage: leat %s%s%s\n\n", c->name, *c->arguments ? " " : "", c->arguments);
    print_wrapped(c->about);
    if (options_open(&o, c, NULL) < 0)
        return;
    char *text = params_usage(&o.set, c->rows, PARAM_ADVANCED, COLUMNS);
    printf("\n%s\n", text ? text : "");
    bool any_size = false;
    for (int32_t i = 0; i < o.set.n; i++)
        any_size |= o.set.rows[i]->type == PARAM_SIZE && (o.set.rows[i]->commands & c->rows);
    if (any_size)
        print_wrapped(sizes);
    print_wrapped(configured);
    free(text);
    options_close(&o);
}

/* ---- man page (man 7 man) ---- */

static void man_text(const char *s)
{
    bool start = true;
    for (; *s; s++) {
        if (start && (*s == '.' || *s == '\''))
            fputs("\\&", stdout);
        if (*s == '\\')
            fputs("\\e", stdout);
        else if (*s == '-')
            fputs("\\-", stdout);
        else
            putchar(*s);
        start = *s == '\n';
    }
}

static void man_value(const struct param *p)
{
    static const char *const words[] = {NULL, "N", "X", "SIZE", NULL, "TEXT", "TEXT"};
    const char *word = p->type == PARAM_CHOICE ? NULL : words[p->type];
    if ((p->type == PARAM_STRING || p->type == PARAM_LIST) && p->unit && *p->unit) {
        fputs(" \\fI", stdout);
        for (const char *u = p->unit; *u; u++)
            putchar(*u >= 'a' && *u <= 'z' ? *u - 32 : *u);
        fputs("\\fR", stdout);
    } else if (word) {
        printf(" \\fI%s\\fR", word);
    } else if (p->type == PARAM_CHOICE) {
        fputs(" \\fI", stdout);
        for (const char *c = p->choices; *c; c++)
            putchar(*c == ' ' ? '|' : *c);
        fputs("\\fR", stdout);
    }
    if (p->accepts_auto)
        fputs("|auto", stdout);
}

static void man_row(const struct param *p)
{
    fputs(".TP\n\\fB", stdout);
    if (p->aliases && p->aliases[1] != '-') {
        for (const char *c = p->aliases; *c && *c != ' '; c++)
            fputs(*c == '-' ? "\\-" : (char[]){*c, 0}, stdout);
        fputs("\\fR, \\fB", stdout);
    }
    man_text(p->flag);
    fputs("\\fR", stdout);
    man_value(p);
    putchar('\n');
    man_text(p->help);
    if (p->type == PARAM_LIST)
        fputs(" May be given several times.", stdout);
    if (p->lossy)
        fputs(" Changes the quality of the answer.", stdout);
    if (p->def && *p->def && strcmp(p->def, "false") != 0) {
        fputs(" Default: ", stdout);
        man_text(p->def);
        putchar('.');
    }
    fputs("\nRead by:", stdout);
    for (int32_t i = 0, n = 0; i < n_commands; i++)
        if (p->commands & commands[i].rows)
            printf("%s %s", n++ ? "," : "", commands[i].name);
    puts(".");
}

int usage_man(void)
{
    struct options o;
    if (options_open(&o, &commands[0], NULL) < 0)
        return EXIT_FAILED;
    printf(".\\\" Made by `leat help man` from the parameter table; do not edit.\n.TH LEAT 1 \"\" "
           "\"leat %s\" \"\"\n"
           ".SH NAME\nleat \\- run language models bigger than the memory they are given\n.SH "
           "SYNOPSIS\n",
           leat_version());
    for (int32_t i = 0; i < n_commands; i++)
        printf("%s.B leat %s\n%s\n", i ? ".br\n" : "", commands[i].name, commands[i].arguments);
    puts(".SH DESCRIPTION\nA transformer never needs all of its weights at once. Leat keeps what "
         "is worth keeping in memory and "
         "reads the rest from the drive, ahead of the compute; the answer is the same, byte for "
         "byte, as when everything is "
         "in memory. \\fB\\-\\-memory\\fR is a hard ceiling on the memory held.\n.SH COMMANDS");
    for (int32_t i = 0; i < n_commands; i++) {
        printf(".TP\n.B %s\n", commands[i].name);
        man_text(commands[i].about);
        putchar('\n');
    }
    puts(".SH OPTIONS");
    man_text(sizes);
    putchar('\n');
    for (int32_t i = 0; i < o.set.n; i++)
        if (o.set.rows[i]->flag)
            man_row(o.set.rows[i]);
    puts(".SH FILES\n.TP\n.I ~/.config/leat/config");
    man_text(configured);
    puts(
        "\n.SH EXIT STATUS\n0: it worked. 1: it failed, or was cancelled. 2: it was used wrongly.");
    options_close(&o);
    return EXIT_OK;
}
