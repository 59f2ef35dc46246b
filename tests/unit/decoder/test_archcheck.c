/* Tiny random models of every architecture that runs, written with the logits they must give by
 * ../shared/data/archcheck (numpy, float64, straight from the formulas): model files through
 * src/model, weights through the test double, logits within 1e-5 relative L2 per token. Skipped
 * where that folder, python3 or numpy is absent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../src/base/json_pull.h"
#include "fake_weights.h"
#include "rig.h"

#define NAMES       "llama mixtral qwen2 qwen3 qwen3moe gemma3"
#define MOST_TOKENS 64
#define MOST_VOCAB  256

struct expected {
    int32_t ids[MOST_TOKENS], n, cols;
    double logits[MOST_TOKENS * MOST_VOCAB];
};

static char folder[] = "/tmp/leat-archcheck-XXXXXX";

static void expected_read(const char *path, struct expected *x)
{
    static char text[1 << 20];
    struct json_pull p;
    struct leat_error e = {0};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_int_equal(json_pull_open_memory(&p, path, text, n, 4096, &e), 0);
    int32_t numbers = 0;
    bool tokens = false;
    memset(x, 0, sizeof *x);
    for (int ev; (ev = json_pull_next(&p, &e)) != JSON_END;) {
        assert_true(ev >= 0);
        if (ev == JSON_KEY)
            tokens = strcmp(p.text, "tokens") == 0;
        else if (ev == JSON_NUMBER && tokens)
            x->ids[x->n++] = (int32_t)p.integer;
        else if (ev == JSON_NUMBER)
            x->logits[numbers++] = p.number;
        assert_true(x->n < MOST_TOKENS && numbers < MOST_TOKENS * MOST_VOCAB);
    }
    json_pull_close(&p);
    assert_true(x->n > 0 && numbers % x->n == 0);
    x->cols = numbers / x->n;
}

static void check(const char *name)
{
    static struct expected x;
    static float got[MOST_TOKENS * MOST_VOCAB];
    char path[512];
    struct leat_error e = {0};
    struct ledger *ledger;
    struct model *m;
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    expected_read(path, &x);
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    assert_int_equal(ledger_open(UINT64_MAX, &ledger, &e), 0);
    if (model_open(path, ledger, &m, &e) != 0)
        fail_msg("%s", e.message);
    struct weights *w = fake_weights_open(m);
    if (fake_weights_read(w, &e) != 0)
        fail_msg("%s", e.message);
    assert_int_equal(m->n_head_out, x.cols);
    for (int32_t tier = 0; kernels_tier(tier); tier++)
        for (int32_t width = 1; width <= 64; width *= 8) {
            const struct how h = {.width = width, .threads = 2, .kernels = kernels_tier(tier)};
            double worst = 0;
            evaluate(m, w, &h, x.ids, x.n, got);
            for (int32_t r = 0; r < x.n; r++) {
                double d = 0, s = 0;
                for (int32_t c = 0; c < x.cols; c++) {
                    d += pow(got[r * x.cols + c] - x.logits[r * x.cols + c], 2);
                    s += pow(x.logits[r * x.cols + c], 2);
                }
                worst = sqrt(d / s) > worst ? sqrt(d / s) : worst;
            }
            print_message("%s, %s, width %d: relative L2 %.2g\n", name, kernels_tier(tier)->isa,
                          width, worst);
            assert_true(worst < 1e-5);
        }
    weights_close(w);
    model_close(m);
    ledger_close(ledger);
}

static void test_architectures(void **state)
{
    (void)state;
    char names[] = NAMES;
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " "))
        check(name);
}

int main(void)
{
    const char *data = getenv("LEAT_TEST_DATA");
    char command[1024];
    const char *script = "archcheck/archcheck.py";
    snprintf(command, sizeof command, "%s/%s", data ? data : ".", script);
    if (!data || access(command, R_OK) != 0) {
        printf("skipped: %s is not there\n", command);
        return 77;
    }
    if (!mkdtemp(folder))
        return 1;
    snprintf(command, sizeof command,
             "for p in python3 /usr/bin/python3; do $p '%s/%s' %s %s >/dev/null 2>&1 && exit 0; "
             "done; exit 1",
             data, script, folder, NAMES);
    if (system(command) != 0) {
        snprintf(command, sizeof command, "rm -rf %s", folder);
        if (system(command) != 0)
            return 1;
        printf("skipped: archcheck.py does not run (python3 and numpy are needed)\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_architectures)};
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 ? 1 : rc;
}
