/* What an engine can account for: passes, reads, memory. Copies figures of the rooms; decides
 * nothing. Any thread. */
#include <string.h>

#include "engine.h"
#include "../base/os.h"

void leat_engine_stats(const struct leat_engine *g, int with_huge_pages, struct leat_stats *out)
{
    struct weights_stats w;
    struct decoder_stats d;
    scheduler_lock(g->scheduler); /* between passes the figures belong together */
    weights_get_stats(g->weights, &w);
    decoder_get_stats(g->decoder, &d);
    scheduler_unlock(g->scheduler);
    *out = (struct leat_stats){
        .passes = d.passes,
        .pass_tokens = d.tokens,
        .compute_s = d.compute_s,
        .wait_s = w.wait_s,
        .sample_s = scheduler_sample_seconds(g->scheduler),
        .waits = w.waits,
        .reads = w.lanes.reads,
        .retries = w.lanes.retries,
        .read_bytes = w.lanes.bytes_read,
        .page_cache_read_bytes = w.lanes.bytes_cached,
        .wanted_bytes = w.lanes.bytes_wanted,
        .read_busy_s = w.lanes.busy_s,
        .read_lane_s = w.lanes.lane_s,
        .reads_in_flight_peak = w.lanes.in_flight_peak,
        .stream_read_bytes = w.stream_bytes_read,
        .resident_read_bytes = w.resident_bytes_read,
        .expert_read_bytes = w.expert_bytes_read,
        .row_read_bytes = w.row_bytes_read,
        .expert_hits = w.expert_hits,
        .expert_misses = w.expert_misses,
        .expert_evictions = w.expert_evictions,
        .expert_hit_bytes = w.expert_hit_bytes,
        .expert_miss_bytes = w.expert_miss_bytes,
        .direct_files = w.direct_files,
        .buffered_files = w.buffered_files,
        .direct_note = w.direct_note,
        .lane_backend = w.lane_backend,
        .lane_note = w.lane_note,
        .urgent_s = w.lanes.urgent_s,
        .urgent_read_bytes = w.lanes.urgent_bytes,
        .held_bytes = ledger_total(g->ledger, DOMAIN_HELD),
        .rss_bytes = os_rss(),
        .rss_peak_bytes = os_rss_peak(),
        .major_faults = os_major_faults(),
        .huge_asked_bytes = OS_UNKNOWN,
        .huge_came_bytes = OS_UNKNOWN,
    };
    if (with_huge_pages)
        ledger_huge_pages(g->ledger, &out->huge_asked_bytes, &out->huge_came_bytes);
}

int32_t leat_engine_memory(const struct leat_engine *g, struct leat_memory_row *rows)
{
    int32_t n = 0;
    for (int i = 0; i < ROW_COUNT; i++) {
        const enum ledger_row r = (enum ledger_row)i;
        struct leat_memory_row x = {
            .key = ledger_row_key(r),
            .name = ledger_row_name(r),
            .planned_bytes = g->budget.row[i],
            .held_bytes = ledger_held(g->ledger, DOMAIN_HELD, r),
            .peak_bytes = ledger_peak(g->ledger, DOMAIN_HELD, r),
        };
        if (x.planned_bytes || x.peak_bytes)
            rows[n++] = x;
    }
    return n;
}
