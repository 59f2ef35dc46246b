/* Ctrl-C and SIGTERM: the first cancels what the engine does, the second ends the program. Owns
 * the two signals. */
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "cli.h"

static _Atomic(struct leat_engine *) watched; /* signal handlers have no other way to find it */
static atomic_bool came;

static void on_signal(int number)
{
    struct leat_engine *g = atomic_load(&watched);
    atomic_store(&came, true);
    if (g)
        leat_cancel(g); /* async-signal-safe by contract */
    (void)number;       /* SA_RESETHAND: the next one has its usual effect */
}

void interrupt_watch(struct leat_engine *g)
{
    static bool installed;
    atomic_store(&watched, g);
    if (g && atomic_load(&came))
        leat_cancel(g);
    if (installed)
        return;
    installed = true;
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

bool interrupt_came(void)
{
    return atomic_load(&came);
}
