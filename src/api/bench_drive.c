/* What the drive gives to reads of a model's files, for `leat bench`. Reads the model's headers to
 * know its files; has no engine. Any thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "../base/error.h"
#include "../base/os.h"
#include "../plan/budget_params.h"
#include "../plan/probe_drive.h"

#define PROBE_SECONDS   1.0
#define AVAILABLE_SHARE 4 /* of what is available, a fourth is taken */
/* What is held beside the memory that is measured with (program, threads, headers), generously. */
#define BESIDE (UINT64_C(64) << 20)

uint64_t bench_memory_most(const struct param_set *set)
{
    struct budget_ask ask = {0};
    const uint64_t available = os_memory_available(NULL);
    const bool given = budget_ask_read(set, &ask);
    const uint64_t most = available == OS_UNKNOWN ? UINT64_MAX : available / AVAILABLE_SHARE;
    uint64_t room = UINT64_MAX;
    if (given)
        room =
            ask.ceiling_bytes - (ask.ceiling_bytes / 2 < BESIDE ? ask.ceiling_bytes / 2 : BESIDE);
    return room < most ? room : most;
}

static void rate_copy(const struct drive_rate *r, struct leat_drive_rate *out)
{
    out->bytes_per_s = r->bytes_per_s;
    out->read_bytes = r->read_bytes;
    out->in_flight = r->in_flight;
    snprintf(out->missing, sizeof out->missing, "%s", r->missing);
}

/* The paths of a model's files; each and the list are new memory. */
static int files_of(const char *model, char ***paths, int32_t *n, struct leat_error *e)
{
    struct ledger *l = NULL;
    struct model *m = NULL;
    int code = ledger_open(UINT64_MAX, &l, e);
    *n = 0;
    if (code == 0)
        code = model_open(model, l, &m, e);
    *paths = code == 0 ? calloc((size_t)m->n_files + 1, sizeof(char *)) : NULL;
    for (int32_t i = 0; *paths && i < m->n_files; i++) {
        (*paths)[i] = strdup(file_path(m->files[i].file));
        *n += (*paths)[i] != NULL;
    }
    if (code == 0 && (!*paths || *n < m->n_files))
        code = error_set(e, LEAT_ERR_MEMORY, "no memory for the names of a model's files");
    if (m)
        model_close(m);
    ledger_close(l);
    return code;
}

int leat_measure_drive(const char *model, const struct leat_params *params, struct leat_drive *out,
                       struct leat_error *e)
{
    struct param_set defaults = {0};
    struct drive_fact f;
    char **paths = NULL;
    int32_t n = 0;
    memset(out, 0, sizeof *out);
    int code = params ? 0 : api_params_open(&defaults, e);
    const uint64_t most = code == 0 ? bench_memory_most(params ? &params->set : &defaults) : 0;
    params_close(&defaults);
    if (code == 0)
        code = files_of(model, &paths, &n, e);
    if (code == 0) {
        probe_drive((const char *const *)paths, n, most / 4, PROBE_SECONDS, &f);
        rate_copy(&f.direct, &out->direct);
        rate_copy(&f.buffered, &out->buffered);
        out->probe_bytes = f.read_bytes;
        out->probe_s = f.spent_s;
    }
    for (int32_t i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
    return code;
}
