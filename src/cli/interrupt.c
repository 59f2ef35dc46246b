/* Ctrl-C and SIGTERM: the first cancels what the engine does, the second ends the program. Owns
 * the two signals. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/select.h>

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

bool interrupt_wait(int fd)
{
    sigset_t both, before;
    bool ready = fd >= FD_SETSIZE; /* then the read itself waits */
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    /* Blocked but while it waits: a signal just before the wait must not be slept through. */
    sigprocmask(SIG_BLOCK, &both, &before);
    while (!ready && !interrupt_came()) {
        fd_set fds;
        FD_ZERO(&fds);
        FD_SET(fd, &fds);
        ready = pselect(fd + 1, &fds, NULL, NULL, NULL, &before) >= 0 || errno != EINTR;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return !interrupt_came();
}
