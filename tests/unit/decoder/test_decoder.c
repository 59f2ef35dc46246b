/* The decoder on small models made in memory: against a reference in double precision, and
 * against itself: width, threads, company, pieces, order of experts, forks and failures never
 * change a token's logits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"
#include "tiny_model.h"

#define SMALL                                                                                      \
    .layers = 3, .embd = 64, .head = 4, .head_kv = 2, .dk = 16, .dv = 16, .ff = 96, .vocab = 50
#define MOE .experts = 8, .used = 3, .weights_norm = true

static const struct tiny_spec specs[] = {
    {.name = "llama", SMALL, .rope_pairs = true, .rope_factors = true},
    {.name = "qwen2", SMALL, .qkv_bias = true, .tied = true},
    {.name = "qwen3", SMALL, .qk_norm = QK_NORM_HEAD},
    {.name = "gemma3",
     SMALL,
     .window = 9,
     .window_every = 3,
     .qk_norm = QK_NORM_HEAD,
     .act = ACTFN_GELU_TANH,
     .embd_scale = 8,
     .sandwich = true,
     .tied = true},
    {.name = "gemma2",
     SMALL,
     .window = 70,
     .window_every = 2,
     .act = ACTFN_GELU_TANH,
     .attn_softcap = 5,
     .final_softcap = 3,
     .sandwich = true,
     .embd_scale = 8,
     .tied = true},
    {.name = "mixtral", SMALL, .rope_pairs = true, MOE},
    {.name = "sigmoid with groups and a shared expert",
     SMALL,
     .experts = 12,
     .used = 4,
     .groups = 4,
     .groups_used = 2,
     .gating = GATING_SIGMOID,
     .weights_norm = true,
     .weights_scale = 1.5f,
     .select_bias = true,
     .ff_shared = 40,
     .dense_first = true,
     .qkv_bias = true,
     .rope_dims = 8},
    {.name = "gated shared expert, no renormalisation",
     SMALL,
     .experts = 8,
     .used = 3,
     .ff_shared = 48,
     .shared_gate = true},
    {.name = "late softmax, sinks and biases",
     SMALL,
     .window = 8,
     .window_every = 2,
     .experts = 8,
     .used = 3,
     .gating = GATING_TOPK_SOFTMAX,
     .act = ACTFN_SWIGLU_OAI,
     .ffn_bias = true,
     .router_bias = true,
     .qkv_bias = true,
     .o_bias = true,
     .sinks = true,
     .magnitude = 1.2f},
    {.name = "root of softplus", SMALL, .gating = GATING_SQRT_SOFTPLUS, .select_bias = true, MOE},
    {.name = "fused, layer norms, head bias, scales",
     SMALL,
     .fused_qkv = true,
     .fused_ff = true,
     .layer_norm = true,
     .output_bias = true,
     .residual_scale = 0.4f,
     .logit_scale = 0.4f,
     .embd_scale = 3,
     .rope_dims = 12,
     .act = ACTFN_GELU_ERF},
    {.name = "wide norms, uneven heads, some layers unrotated",
     .layers = 3,
     .embd = 36,
     .head = 6,
     .head_kv = 1,
     .dk = 10,
     .dv = 6,
     .ff = 20,
     .vocab = 33,
     .qk_norm = QK_NORM_WIDE,
     .rope_off_odd = true,
     .act = ACTFN_RELU2},
};
#define SPECS ((int)(sizeof specs / sizeof *specs))

#define LONG 150 /* tokens: three pages */

static void ids_make(int32_t *ids, int32_t n, int32_t vocab)
{
    uint32_t s = 9;
    for (int32_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        ids[i] = (int32_t)(s >> 8) % vocab;
    }
}

/* Largest relative L2 distance of a row. */
static double distance(const float *got, const double *want, int32_t rows, int32_t cols)
{
    double worst = 0;
    for (int32_t r = 0; r < rows; r++) {
        double d = 0, s = 0;
        for (int32_t c = 0; c < cols; c++) {
            d +=
                (got[r * cols + c] - want[r * cols + c]) * (got[r * cols + c] - want[r * cols + c]);
            s += want[r * cols + c] * want[r * cols + c];
        }
        if (!(sqrt(d / s) <= worst))
            worst = sqrt(d / s);
    }
    return worst;
}

static void test_reference(void **state)
{
    (void)state;
    int32_t ids[LONG];
    for (int i = 0; i < SPECS; i++) {
        struct tiny *t = tiny_open(&specs[i], 100 + (uint64_t)i);
        const int32_t V = specs[i].vocab;
        double *want = malloc(LONG * (size_t)V * sizeof *want);
        float *got = malloc(LONG * (size_t)V * sizeof *got);
        ids_make(ids, LONG, V);
        tiny_reference(t, ids, LONG, want);
        for (int32_t tier = 0; kernels_tier(tier); tier++)
            for (int kv = KV_F32; kv < KV_TYPES; kv++) {
                const struct how h = {.width = 64,
                                      .threads = 2,
                                      .kv = (enum kv_type)kv,
                                      .kernels = kernels_tier(tier)};
                evaluate(&t->m, t->w, &h, ids, LONG, got);
                const double d = distance(got, want, LONG, V);
                /* Halves carry 11 bits, Q8_0 about 7, Q4_0 about 3; a choice of experts may then
                 * flip in a model of noise. */
                static const double bounds[KV_TYPES] = {1e-5, 2e-2, 2e-1, 4e-1};
                const double bound = bounds[kv];
                if (specs[i].experts && kv != KV_F32)
                    continue;
                if (!(d < bound))
                    fail_msg("%s (%s, kv type %d): relative distance %.3g", specs[i].name,
                             kernels_tier(tier)->isa, kv, d);
            }
        free(want);
        free(got);
        tiny_close(t);
    }
}

/* ---- identity ---- */

#define QUANT                                                                                      \
    .layers = 3, .embd = 256, .head = 4, .head_kv = 2, .dk = 64, .dv = 64, .vocab = 70,            \
    .qk_norm = QK_NORM_HEAD

static const struct tiny_spec quant_specs[] = {
    {.name = "Q8_0", QUANT, .ff = 512, .format = FORMAT_Q8_0, .format2 = FORMAT_Q4_0},
    {.name = "Q4_K and Q6_K",
     QUANT,
     .ff = 512,
     .format = FORMAT_Q4_K,
     .format2 = FORMAT_Q6_K,
     .window = 33,
     .window_every = 2},
    {.name = "F16 and Q8_0",
     QUANT,
     .ff = 160,
     .format = FORMAT_F16,
     .format2 = FORMAT_Q8_0,
     .tied = true},
    {.name = "experts of Q4_K and Q8_0",
     QUANT,
     .ff = 256,
     .format = FORMAT_Q4_K,
     .format2 = FORMAT_Q8_0,
     .experts = 16,
     .used = 4,
     .weights_norm = true,
     .ff_shared = 256,
     .shared_gate = true},
};
#define QUANT_SPECS ((int)(sizeof quant_specs / sizeof *quant_specs))

static void same(const char *name, const struct how *h, const float *got, const float *want,
                 int32_t rows, int32_t cols, int32_t sparse)
{
    for (int32_t r = 0; r < rows; r++) {
        if (sparse && r % sparse && r != rows - 1)
            continue;
        if (memcmp(got + r * cols, want + r * cols, (size_t)cols * sizeof *got) != 0)
            fail_msg("%s: row %d differs at width %d, %d threads, %d others, kv type %d, %s", name,
                     r, h->width, h->threads, h->others, h->kv,
                     h->kernels ? h->kernels->isa : "best");
    }
}

static void identity_of(const struct tiny_spec *s, uint64_t seed, int kv)
{
    static const struct {
        int32_t width, threads, others, sparse, piece;
        bool shuffle;
    } ways[] = {
        {2, 2, 0, 0, 7, true},     {7, 3, 0, 0, 0, true},   {16, 1, 0, 0, 5, false},
        {17, 2, 0, 0, 33, true},   {64, 4, 0, 0, 13, true}, {64, 2, 0, 5, 0, false},
        {150, 2, 0, 150, 9, true}, {8, 2, 7, 0, 0, true},   {64, 3, 15, 0, 21, false},
        {1, 4, 0, 0, 1, false},    {16, 2, 1, 3, 0, true},
    };
    int32_t ids[LONG];
    struct tiny *t = tiny_open(s, seed);
    const size_t floats = LONG * (size_t)s->vocab;
    float *want = malloc(floats * sizeof *want), *got = malloc(floats * sizeof *got);
    ids_make(ids, LONG, s->vocab);
    for (int32_t tier = 0; kernels_tier(tier); tier++) {
        struct how h = {
            .width = 1, .threads = 1, .kv = (enum kv_type)kv, .kernels = kernels_tier(tier)};
        const bool best = kernels_tier(tier + 1) == NULL;
        if (!best && (tier > 0 || seed % 4 != 0 || s->format != FORMAT_F32))
            continue; /* the best tier for all models, the portable one for some */
        fake_behave(t->w, (struct fake_behaviour){0});
        evaluate(&t->m, t->w, &h, ids, LONG, want);
        for (size_t i = 0; i < floats; i++)
            assert_true(isfinite(want[i]));
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            h.width = ways[w].width;
            h.threads = ways[w].threads;
            h.others = ways[w].others;
            h.sparse = ways[w].sparse;
            fake_behave(t->w, (struct fake_behaviour){.piece_rows = ways[w].piece,
                                                      .shuffle = ways[w].shuffle});
            memset(got, 0, floats * sizeof *got);
            evaluate(&t->m, t->w, &h, ids, LONG, got);
            same(s->name, &h, got, want, LONG, s->vocab, h.sparse);
            /* What this way means to exercise happened. */
            if (ways[w].piece && ways[w].piece < 33)
                assert_true(fake_counts(t->w)->most_views > 1);
            if (!ways[w].piece)
                assert_true(fake_counts(t->w)->wholes > 0);
            if (s->experts && s->used > 1 && h.width <= 16)
                assert_true(fake_counts(t->w)->together > 0);
            if (s->experts)
                assert_true(h.width > 16 && h.sparse != 150
                                ? fake_counts(t->w)->ordered > 0
                                : h.width > 16 || fake_counts(t->w)->unordered > 0);
        }
    }
    free(want);
    free(got);
    tiny_close(t);
}

static void test_identity(void **state)
{
    (void)state;
    for (int i = 0; i < SPECS; i++)
        identity_of(&specs[i], 300 + (uint64_t)i, i % KV_TYPES);
}

static void test_identity_quantised(void **state)
{
    (void)state;
    for (int i = 0; i < QUANT_SPECS; i++)
        identity_of(&quant_specs[i], 400 + (uint64_t)i, (i + 1) % KV_TYPES);
}

/* ---- logits nobody wants ---- */

static void test_no_logits(void **state)
{
    (void)state;
    for (int i = 0; i < SPECS; i++) {
        struct tiny *t = tiny_open(&specs[i], 500);
        const struct how h = {.width = 20, .threads = 2};
        struct rig r;
        struct seq_state *seq[20];
        int32_t ids[20], pos[20];
        uint8_t none[20] = {0}, last[20] = {0};
        struct leat_error e = {0};
        float a[64], b[64];
        ids_make(ids, 20, specs[i].vocab);
        rig_open(&r, &t->m, t->w, &h, 40, 2);
        for (int two = 0; two < 2;
             two++) { /* the last token after a pass without logits, and all in one pass */
            assert_int_equal(state_open(r.pool, &seq[0], &e), 0);
            for (int32_t p = 0; p < 20; p++) {
                seq[p] = seq[0];
                pos[p] = p;
            }
            last[19] = 1;
            fake_behave(t->w, (struct fake_behaviour){0});
            struct ubatch u = {20, ids, seq, pos, last};
            if (two) {
                u.n = 19;
                u.want_logits = none;
                assert_int_equal(decoder_run(r.decoder, &u, NULL, &e), 0);
                assert_int_equal(fake_counts(t->w)->heads, 0);
                u = (struct ubatch){1, ids + 19, seq, pos + 19, last + 19};
            }
            assert_int_equal(decoder_run(r.decoder, &u, two ? b : a, &e), 0);
            assert_int_equal(fake_counts(t->w)->heads, 1);
            state_close(seq[0]);
        }
        assert_memory_equal(a, b, sizeof(float) * (size_t)specs[i].vocab);
        rig_close(&r);
        tiny_close(t);
    }
}

/* ---- failures: no length changes, and the next try gives the same ---- */

static void test_failures(void **state)
{
    (void)state;
    static const int which[] = {0, 3, 5, 7};
    for (int w = 0; w < 4; w++) {
        const struct tiny_spec *s = &specs[which[w]];
        struct tiny *t = tiny_open(s, 600);
        const struct how h = {.width = 32, .threads = 2};
        struct rig r;
        struct seq_state *seq[32];
        int32_t ids[32], pos[32], wanted = 0, failures = 0;
        uint8_t want[32];
        struct leat_error e = {0};
        static float first[32 * 50], again[32 * 50];
        ids_make(ids, 32, s->vocab);
        rig_open(&r, &t->m, t->w, &h, 64, 2);
        struct seq_state *a, *b;
        assert_int_equal(state_open(r.pool, &a, &e), 0);
        assert_int_equal(state_open(r.pool, &b, &e), 0);
        for (int32_t i = 0; i < 32; i++) {
            seq[i] = i < 20 ? a : b;
            pos[i] = i < 20 ? i : i - 20;
            want[i] = i % 4 == 3;
            wanted += want[i];
        }
        struct ubatch u = {32, ids, seq, pos, want};
        for (int32_t at = 1;; at++) {
            fake_behave(t->w, (struct fake_behaviour){.piece_rows = 40, .fail_at = at});
            int rc = decoder_run(r.decoder, &u, first, &e);
            if (rc == 0)
                break;
            failures++;
            assert_int_equal(rc, LEAT_ERR_CANCELLED);
            assert_int_equal(state_length(a), 0);
            assert_int_equal(state_length(b), 0);
        }
        assert_true(failures > 10);
        assert_int_equal(state_length(a), 20);
        assert_int_equal(state_length(b), 12);
        int32_t kept;
        assert_int_equal(state_truncate(a, 0, &kept), 0);
        assert_int_equal(state_truncate(b, 0, &kept), 0);
        fake_behave(t->w, (struct fake_behaviour){0});
        assert_int_equal(decoder_run(r.decoder, &u, again, &e), 0);
        assert_memory_equal(first, again, sizeof(float) * (size_t)(wanted * s->vocab));
        state_close(a);
        state_close(b);
        rig_close(&r);
        tiny_close(t);
    }
}

/* ---- forks and cuts: what was computed for the shared past serves ---- */

static void run_tokens(struct rig *r, struct seq_state *s, const int32_t *ids, int32_t n,
                       int32_t vocab, float *logits)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t pos = state_length(s);
        uint8_t want = 1;
        struct leat_error e = {0};
        struct ubatch u = {1, ids + i, &s, &pos, &want};
        if (decoder_run(r->decoder, &u, logits + i * vocab, &e) != 0)
            fail_msg("%s", e.message);
    }
}

static void test_forks(void **state)
{
    (void)state;
    const struct tiny_spec *s = &specs[3]; /* windows */
    struct tiny *t = tiny_open(s, 700);
    const struct how h = {.width = 1, .threads = 2, .kv = KV_F16};
    struct rig r;
    int32_t ids[LONG], kept;
    struct seq_state *a, *b;
    struct leat_error e = {0};
    static float whole[LONG * 50], part[LONG * 50];
    ids_make(ids, LONG, s->vocab);
    rig_open(&r, &t->m, t->w, &h, LONG + 20, 3);
    assert_int_equal(state_open(r.pool, &a, &e), 0);
    run_tokens(&r, a, ids, LONG, s->vocab, whole);
    /* A fork in the middle of a page, both going on with other tokens, then the old ones again. */
    assert_int_equal(state_fork(a, LONG - 10, &b, &e), 0);
    run_tokens(&r, a, ids, 7, s->vocab, part);
    run_tokens(&r, b, ids + LONG - 10, 10, s->vocab, part);
    assert_memory_equal(part, whole + (LONG - 10) * s->vocab,
                        sizeof(float) * (size_t)(10 * s->vocab));
    assert_int_equal(state_truncate(b, LONG - 40, &kept), 0);
    assert_int_equal(kept, LONG - 40);
    run_tokens(&r, b, ids + LONG - 40, 40, s->vocab, part);
    assert_memory_equal(part, whole + (LONG - 40) * s->vocab,
                        sizeof(float) * (size_t)(40 * s->vocab));
    state_close(a);
    state_close(b);
    rig_close(&r);
    tiny_close(t);
}

/* ---- wrong calls ---- */

static void test_usage(void **state)
{
    (void)state;
    struct tiny *t = tiny_open(&specs[0], 800);
    const struct how h = {.width = 4, .threads = 1};
    struct rig r;
    struct seq_state *a, *b;
    struct leat_error e = {0};
    float logits[4 * 50];
    rig_open(&r, &t->m, t->w, &h, 8, 2);
    assert_int_equal(state_open(r.pool, &a, &e), 0);
    assert_int_equal(state_open(r.pool, &b, &e), 0);
    int32_t ids[5] = {1, 2, 3, 4, 5}, bad[4] = {1, 50, 3, 4}, pos[5] = {0, 1, 2, 3, 4},
            gap[4] = {0, 2, 3, 4}, two[4] = {0, 0, 1, 1};
    struct seq_state *aa[5] = {a, a, a, a, a}, *abab[4] = {a, b, a, b};
    const uint8_t want[5] = {1, 1, 1, 1, 1};
    const struct ubatch wrong[] = {
        {5, ids, aa, pos, want}, {0, ids, aa, pos, want},   {4, bad, aa, pos, want},
        {4, ids, aa, gap, want}, {4, ids, abab, two, want}, {3, ids, aa, pos + 1, want},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(decoder_run(r.decoder, &wrong[i], logits, &e), LEAT_ERR_USAGE);
        assert_true(strlen(e.message) > 10);
        assert_int_equal(state_length(a), 0);
    }
    /* A full pool: the sequence before the one that does not fit gives its room back. */
    struct state_pool *small;
    struct seq_state *c, *d;
    const uint64_t one = state_bytes(&t->m, KV_F32, 64, 4, 1);
    assert_int_equal(state_pool_open(&t->m, KV_F32, one, r.ledger, &small, &e), 0);
    assert_int_equal(state_open(small, &c, &e), 0);
    assert_int_equal(state_open(small, &d, &e), 0);
    struct seq_state *cd[2] = {c, d};
    struct ubatch u = {2, ids, cd, two, want};
    assert_int_equal(decoder_run(r.decoder, &u, logits, &e), LEAT_ERR_MEMORY);
    assert_true(state_pool_free_bytes(small) == one);
    struct ubatch v = {1, ids, cd, two, want};
    assert_int_equal(decoder_run(r.decoder, &v, logits, &e), 0);
    state_close(a);
    state_close(b);
    state_close(c);
    state_close(d);
    state_pool_close(small);
    rig_close(&r);
    tiny_close(t);
}

/* A matrix whose shape is not what the layers say is refused by name, before any memory is
 * taken. */
static void test_shapes(void **state)
{
    (void)state;
    struct tiny *t = tiny_open(&specs[5], 900);
    struct leat_error e = {0};
    struct decoder *d;
    struct team *team;
    struct ledger *ledger;
    assert_int_equal(team_open(1, &team, &e), 0);
    assert_int_equal(ledger_open(UINT64_MAX, &ledger, &e), 0);
    struct decoder_config c = {&t->m, t->w, team, kernels_tier(0), ledger, 4, 4};
    t->m.units[t->m.layers[1].expert0 + 3].part[EXPERT_DOWN].cols = 95;
    t->m.units[t->m.layers[1].expert0 + 3].name = "blk.1.down";
    assert_int_equal(decoder_open(&c, &d, &e), LEAT_ERR_FORMAT);
    assert_non_null(strstr(e.message, "blk.1.down"));
    assert_non_null(strstr(e.message, "64 x 95"));
    t->m.units[t->m.layers[1].expert0 + 3].part[EXPERT_DOWN].cols = 96;
    t->m.vectors[t->m.output_norm].part.cols = 63;
    assert_int_equal(decoder_open(&c, &d, &e), LEAT_ERR_FORMAT);
    t->m.vectors[t->m.output_norm].part.cols = 64;
    assert_int_equal(decoder_open(&c, &d, &e), 0);
    decoder_close(d);
    assert_true(ledger_held(ledger, DOMAIN_HELD, ROW_COMPUTE) == 0);
    ledger_close(ledger);
    team_close(team);
    tiny_close(t);
}

static int32_t watched;

static void watch(void *arg, int32_t layer, int32_t n_layer)
{
    assert_ptr_equal(arg, &watched);
    assert_int_equal(layer, watched % n_layer);
    watched++;
}

static void test_watch(void **state)
{
    (void)state;
    struct tiny *t = tiny_open(&specs[0], 1000);
    const struct how h = {.width = 4, .threads = 1};
    struct rig r;
    struct seq_state *a;
    struct leat_error e = {0};
    float logits[4 * 50];
    const int32_t ids[4] = {1, 2, 3, 4};
    rig_open(&r, &t->m, t->w, &h, 8, 1);
    assert_int_equal(state_open(r.pool, &a, &e), 0);
    decoder_set_watch(r.decoder, watch, &watched);
    run_tokens(&r, a, ids, 4, 50, logits);
    assert_int_equal(watched, 4 * 3);
    struct decoder_stats stats;
    decoder_get_stats(r.decoder, &stats);
    assert_true(stats.passes == 4 && stats.tokens == 4 && stats.compute_s > 0);
    state_close(a);
    rig_close(&r);
    tiny_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_identity_quantised),
        cmocka_unit_test(test_no_logits),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_watch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
