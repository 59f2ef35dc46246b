/* What a budget says to people: the refusal with its sum, and the one line on how weights stream.
 * Pure; any thread. */
#include <inttypes.h>
#include <stdio.h>

#include "../base/error.h"
#include "budget_internal.h"

int budget_refuse(const char *name, const struct budget_ask *ask, const struct budget *out,
                  struct leat_error *e)
{
    char sum[LEAT_ERROR_TEXT], a[24], b[24];
    size_t n = 0;
    sum[0] = 0;
    for (int i = 0; i < BUDGET_ROWS && n < sizeof sum; i++)
        if (out->row[i] > 0)
            n += (size_t)snprintf(sum + n, sizeof sum - n, "%s%s %" PRIu64, n ? ", " : "",
                                  ledger_row_name((enum ledger_row)i), out->row[i]);
    int code =
        error_set(e, LEAT_ERR_MEMORY,
                  "%s needs at least %s, and the budget is %s; the smallest sum in bytes, with a "
                  "context of %d and a "
                  "width of %d: %s. Give --memory %" PRIu64 " or more%s",
                  name, format_bytes(a, sizeof a, out->total_bytes),
                  format_bytes(b, sizeof b, ask->ceiling_bytes), (int)out->context, (int)out->width,
                  sum, out->smallest_bytes,
                  ask->context > 0 || ask->width > 1 ? ", or ask for less context or width" : "");
    if (e)
        e->needed_bytes = out->smallest_bytes;
    return code;
}

const char *budget_summary(const struct budget *b, const struct weights_need *need,
                           uint64_t ceiling_bytes, char *dst, size_t cap)
{
    char total[24], ceiling[24], x[24], y[24], z[24], experts[96] = "";
    if (need->experts_all > 0)
        snprintf(experts, sizeof experts, "; experts: %s",
                 b->expert_cache_bytes >= need->experts_all ? "all in memory" : "");
    if (need->experts_all > b->expert_cache_bytes)
        snprintf(experts, sizeof experts, "; experts stream through a cache of %s (all: %s)",
                 format_bytes(x, sizeof x, b->expert_cache_bytes),
                 format_bytes(y, sizeof y, need->experts_all));
    char dense[128] = "dense weights in memory";
    if (b->resident_bytes < need->resident_all)
        snprintf(
            dense, sizeof dense,
            "dense weights stream: %s of %s in memory, the rest through a ring of %s every pass",
            format_bytes(x, sizeof x, b->resident_bytes),
            format_bytes(y, sizeof y, need->resident_all),
            format_bytes(z, sizeof z, b->stream_bytes));
    format_bytes(total, sizeof total, b->total_bytes);
    if (ceiling_bytes == UINT64_MAX)
        snprintf(dst, cap, "%s%s; %s held, no limit", dense, experts, total);
    else
        snprintf(dst, cap, "%s%s; %s held of %s", dense, experts, total,
                 format_bytes(ceiling, sizeof ceiling, ceiling_bytes));
    return dst;
}
