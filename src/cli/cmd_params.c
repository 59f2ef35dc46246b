/* leat params: the parameter table, for people and for programs that draw forms from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "../base/error.h"

#define COLUMNS 80

/* Words of text, each line indented by four, at most COLUMNS wide. */
static void print_wrapped(FILE *f, const char *text)
{
    size_t at = 0;

    while (*text) {
        size_t n = strcspn(text, " ");
        if (at == 0 || at + 1 + n > COLUMNS)
            at = (size_t)fprintf(f, "%s    %.*s", at ? "\n" : "", (int)n, text) - (at ? 1 : 0);
        else
            at += (size_t)fprintf(f, " %.*s", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', f);
}

/* One row: key, flag, what it takes, default; then its sentence. */
static void print_row(FILE *f, const struct param *p)
{
    fprintf(f, "%-18s %-20s ", p->key, p->flag ? p->flag : "-");
    switch (p->type) {
    case PARAM_BOOL:
        fputs("true|false", f);
        break;
    case PARAM_INT:
    case PARAM_FLOAT:
        fprintf(f, "%.10g to %.10g", p->min, p->max);
        break;
    case PARAM_SIZE:
        fputs("SIZE", f);
        break;
    case PARAM_CHOICE:
        fputs(p->choices, f);
        break;
    case PARAM_STRING:
        fputs("text", f);
        break;
    case PARAM_LIST:
        fputs("text, several times", f);
        break;
    }
    fprintf(f, "%s  [%s]\n", p->accepts_auto ? ", auto" : "", p->def ? p->def : "unset");
    print_wrapped(f, p->help);
}

static char *params_text(const struct param_set *s)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    fputs("key                flag                 takes  [default]\n", f);
    for (int32_t i = 0; i < s->n; i++) {
        if (i == 0 || strcmp(s->rows[i]->group, s->rows[i - 1]->group))
            fprintf(f, "\n%s\n\n", s->rows[i]->group);
        print_row(f, s->rows[i]);
    }
    fputs("\nKeys stand in the configuration file (KEY = VALUE); flags on the command line.\n"
          "SIZE is a number with K, M, G, T (powers of 1024) or KB, MB, GB, TB (of 1000).\n",
          f);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

int params_command(struct options *o)
{
    char *text = o->json ? params_json(&o->set, false) : params_text(&o->set);
    if (!text) {
        struct leat_error e = {0};
        error_set(&e, LEAT_ERR_MEMORY, "no memory for the parameter table");
        return report_error(o, &e, NULL);
    }
    output_bytes(text, strlen(text));
    if (o->json)
        output_bytes("\n", 1);
    free(text);
    return EXIT_OK;
}
