/* The progress line on a terminal: by the clock, wiped before text appears. Silent in a pipe. One
 * thread. */
#include <stdio.h>
#include <unistd.h>

#include "cli.h"
#include "../base/clock.h"

#define SHOW_AFTER_S 0.5 /* short work shows nothing */
#define SHOW_EVERY_S 0.1

static bool on_terminal, shown;
static double last_s;

void progress_begin(void)
{
    on_terminal = isatty(STDERR_FILENO) == 1;
    shown = false;
    last_s = clock_now() + SHOW_AFTER_S - SHOW_EVERY_S;
}

void progress_show(const struct leat_progress *p)
{
    if (!on_terminal || p->generated > 0)
        return;
    double now = clock_now();
    if (now - last_s < SHOW_EVERY_S)
        return;
    last_s = now;
    shown = true;
    fprintf(stderr, "\rprompt: %d of %d tokens, ", (int)p->prompt_done, (int)p->prompt_total);
    if (p->n_layer > 0)
        fprintf(stderr, "layer %d of %d, ", (int)p->layer + 1, (int)p->n_layer);
    fprintf(stderr, "%.1f s\033[K", p->elapsed_s);
    fflush(stderr);
}

void progress_end(void)
{
    if (!shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    shown = false;
}

const char *warning_of(const struct leat_engine *g, char *dst, size_t cap)
{
    const struct leat_facts *f = leat_engine_facts(g);
    if (f->n_ctx_train <= 0 || f->context <= f->n_ctx_train)
        return NULL;
    snprintf(dst, cap, "a context of %d is beyond the %d tokens it was trained for",
             (int)f->context, (int)f->n_ctx_train);
    return dst;
}

bool say_how(const struct options *o)
{
    return option(o, "stats")->b || isatty(STDERR_FILENO) == 1;
}

/* ---- the routing trace ---- */

int record_begin(const struct options *o, struct leat_engine *g, struct leat_error *e)
{
    const char *path = option(o, "trace_routes")->s;
    return path ? leat_record_begin(g, path, e) : 0;
}

int record_end(struct leat_engine *g, int code, struct leat_error *e)
{
    const int ended = leat_record_end(g, code < 0 ? NULL : e);
    return code < 0 ? code : ended;
}
