/* The ledger's row "process": what program, libraries, stacks and small allocations take, now and
 * later. Pure; any thread. */
#include "engine.h"

/* What one more thread comes to hold: the touched part of its stack, its own heap arena,
 * thread-local data. Lanes have a row of their own. */
#define THREAD_BYTES (UINT64_C(96) << 10)
/* Code and read-only data that are touched only later (kernels, sampling, libraries), and the
 * heap's own growth. */
#define GROWTH_BYTES (UINT64_C(2) << 20)
/* Page tables: 8 bytes per page of 4 KiB where huge pages could not be had. Not in VmRSS, but in
 * every cgroup's account. */
#define PAGE_TABLE_SHARE 512
/* What may come to be held beside the weights, when no ceiling says: it decides a few hundred KiB
 * of page tables only. */
#define BESIDE_WEIGHTS (UINT64_C(512) << 20)

uint64_t process_bytes(uint64_t rss_before, uint64_t rss_now, uint64_t ledger_held, int32_t threads,
                       uint64_t ceiling_bytes, uint64_t weight_bytes)
{
    uint64_t now = rss_now > ledger_held ? rss_now - ledger_held : 0;
    uint64_t held = now > rss_before ? now : rss_before;
    uint64_t most = weight_bytes + BESIDE_WEIGHTS;
    uint64_t tables = (most < ceiling_bytes ? most : ceiling_bytes) / PAGE_TABLE_SHARE;
    return held + GROWTH_BYTES + tables + (uint64_t)threads * THREAD_BYTES;
}
