/* See rig.h. */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static _Atomic long calls;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
    calls++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    calls++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    calls++;
    return __real_realloc(p, n);
}

long allocations(void)
{
    return calls;
}

void rig_open(struct rig *r, const struct model *m, struct weights *w, const struct how *h,
              int32_t context, int32_t n_seq)
{
    struct leat_error e = {0};
    assert_int_equal(ledger_open(UINT64_MAX, &r->ledger, &e), 0);
    assert_int_equal(team_open(h->threads, &r->team, &e), 0);
    const uint64_t bytes = state_bytes(m, h->kv, context, h->width, n_seq);
    assert_int_equal(state_pool_open(m, h->kv, bytes, r->ledger, &r->pool, &e), 0);
    struct decoder_config c = {.model = m,
                               .weights = w,
                               .team = r->team,
                               .kernels = h->kernels,
                               .ledger = r->ledger,
                               .max_width = h->width,
                               .max_logits = h->width};
    if (!c.kernels)
        assert_int_equal(kernels_select("auto", &c.kernels, &e), 0);
    if (decoder_open(&c, &r->decoder, &e) != 0)
        fail_msg("%s", e.message);
    assert_true(ledger_held(r->ledger, DOMAIN_HELD, ROW_COMPUTE) ==
                decoder_bytes(m, h->width, h->width, h->threads));
}

void rig_close(struct rig *r)
{
    decoder_close(r->decoder);
    state_pool_close(r->pool);
    team_close(r->team);
    ledger_close(r->ledger);
}

#define MOST_OTHERS 15
#define MOST_WIDTH  512

static uint32_t mix(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 10;
}

void evaluate(const struct model *m, struct weights *w, const struct how *h, const int32_t *ids,
              int32_t n, float *logits)
{
    struct rig r;
    struct leat_error e = {0};
    uint32_t seed = 77;
    int32_t done[MOST_OTHERS + 1] = {0}, length[MOST_OTHERS + 1];
    struct seq_state *seq[MOST_OTHERS + 1];
    const size_t row = (size_t)m->n_head_out;
    float *rows = malloc((size_t)h->width * row * sizeof *rows);
    rig_open(&r, m, w, h, 2 * n + 64, h->others + 1);
    for (int32_t i = 0; i <= h->others; i++) {
        assert_int_equal(state_open(r.pool, &seq[i], &e), 0);
        length[i] = i == 0 ? n : 1 + (int32_t)(mix(&seed) % (uint32_t)(2 * n));
    }
    while (done[0] < n) {
        int32_t in_ids[MOST_WIDTH], pos[MOST_WIDTH], width = 0, n_wanted = 0;
        struct seq_state *in_seq[MOST_WIDTH];
        uint8_t want[MOST_WIDTH];
        /* The sequence under test stands at a changing place among the others. */
        const int32_t at = h->others ? (int32_t)(mix(&seed) % (uint32_t)(h->others + 1)) : 0;
        int32_t wanted_before = 0;
        for (int32_t k = 0; k <= h->others; k++) {
            const int32_t i = k == at ? 0 : k < at ? k + 1 : k;
            int32_t most = h->others ? (h->width - width) - (h->others - k) : h->width;
            if (h->others && most > 1)
                most = 1 + (int32_t)(mix(&seed) % (uint32_t)most);
            for (int32_t j = 0; j < most && done[i] + j < length[i] && width < h->width;
                 j++, width++) {
                pos[width] = done[i] + j;
                in_seq[width] = seq[i];
                in_ids[width] =
                    i == 0 ? ids[pos[width]] : (int32_t)(mix(&seed) % (uint32_t)m->n_vocab);
                if (i == 0)
                    want[width] =
                        h->sparse == 0 || pos[width] % h->sparse == 0 || pos[width] == n - 1;
                else
                    want[width] = mix(&seed) % 2;
                if (i == 0 && j == 0)
                    wanted_before = n_wanted;
                n_wanted += want[width];
            }
        }
        if (width == 0)
            break;
        struct ubatch b = {width, in_ids, in_seq, pos, want};
        const long before = allocations();
        if (decoder_run(r.decoder, &b, rows, &e) != 0)
            fail_msg("%s", e.message);
        assert_int_equal(allocations(), before);
        int32_t got = wanted_before;
        for (int32_t t = 0; t < width; t++) {
            if (in_seq[t] == seq[0] && want[t])
                memcpy(logits + (size_t)pos[t] * row, rows + (size_t)got++ * row,
                       row * sizeof *rows);
            for (int32_t i = 0; i <= h->others; i++)
                done[i] += in_seq[t] == seq[i];
        }
        for (int32_t i = 0; i <= h->others; i++)
            assert_int_equal(state_length(seq[i]), done[i]);
    }
    for (int32_t i = 0; i <= h->others; i++)
        state_close(seq[i]);
    rig_close(&r);
    free(rows);
}
