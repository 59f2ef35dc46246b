/* leat replay: a recorded routing against every eviction policy, as table, plot and JSON. Decides
 * nothing about policies. One thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "../base/error.h"

#define BUDGETS  32 /* at most */
#define POLICIES 12
#define CYCLES   1e6 /* the largest budget */

/* Hit rates at one budget; [0] is Belady's bound, then the policies, the default first. */
struct row {
    double cycles, hit[1 + POLICIES];
    uint64_t bytes;
};

struct replayed {
    int32_t n_rows, n; /* n: rates of a row */
    const char *name[1 + POLICIES];
    struct row row[BUDGETS];
};

static int read_budgets(const struct options *o, struct replayed *r, struct leat_error *e)
{
    const char *text = option(o, "budget_cycles")->s, *at = text;
    char quoted[64];

    while (at) {
        char *end;
        const double x = (*at >= '0' && *at <= '9') || *at == '.' ? strtod(at, &end) : -1;
        if (!(x > 0 && x <= CYCLES) || (*end && *end != ','))
            return error_set(e, LEAT_ERR_USAGE,
                             "--budget-cycles wants numbers above 0 and up to %.0f, separated by "
                             "commas, not '%s'",
                             CYCLES, error_quote(quoted, sizeof quoted, text, strlen(text)));
        if (r->n_rows == BUDGETS)
            return error_set(e, LEAT_ERR_USAGE, "--budget-cycles takes at most %d numbers",
                             BUDGETS);
        r->row[r->n_rows++].cycles = x;
        at = *end ? end + 1 : NULL;
    }
    return 0;
}

static int replay(const struct leat_replay *t, struct replayed *r, struct leat_error *e)
{
    const double cycle = (double)leat_replay_facts(t)->cycle_bytes;

    r->name[0] = "belady";
    for (r->n = 1; r->n <= POLICIES && (r->name[r->n] = leat_eviction(r->n - 1)); r->n++)
        ;
    for (int32_t i = 0; i < r->n_rows; i++) {
        struct row *row = &r->row[i];
        row->bytes = (uint64_t)(row->cycles * cycle);
        for (int32_t k = 0; k < r->n; k++) {
            const int code = leat_replay_run(t, k ? r->name[k] : NULL, row->bytes, &row->hit[k], e);
            if (code < 0)
                return code;
        }
    }
    return 0;
}

static void print_json(const struct leat_replay *t, const struct replayed *r)
{
    json_t *top = json_object(), *rows = json_array();

    json_object_set_new(top, "cycle_bytes", json_bytes_of(leat_replay_facts(t)->cycle_bytes));
    json_object_set_new(top, "rows", rows);
    for (int32_t i = 0; i < r->n_rows; i++) {
        json_t *x = json_object();
        json_object_set_new(x, "budget_bytes", json_bytes_of(r->row[i].bytes));
        json_object_set_new(x, "cycles", json_real(r->row[i].cycles));
        json_object_set_new(x, "default", json_real(r->row[i].hit[1]));
        for (int32_t k = 0; k < r->n; k++)
            json_object_set_new(x, r->name[k], json_real(r->row[i].hit[k]));
        json_array_append_new(rows, x);
    }
    output_json(top);
}

/* ---- for people ---- */

static void print_facts(const struct leat_replay *t)
{
    const struct leat_replay_facts *f = leat_replay_facts(t);
    char quoted[200];

    if (*f->model)
        printf("%s\n", error_quote(quoted, sizeof quoted, f->model, strlen(f->model)));
    printf("%d layers of %d experts, %.2f GiB; prefill of %lld tokens, %lld decoded\n"
           "token cycle: %.1f MiB; hits are a share of the bytes that decoding asks for\n",
           (int)f->n_layers, (int)f->n_experts, (double)f->all_bytes / (1 << 30),
           (long long)f->prefill_tokens, (long long)f->decode_tokens,
           (double)f->cycle_bytes / (1 << 20));
}

static void print_table(const struct replayed *r)
{
    printf("\n%7s %9s", "cycles", "MiB");
    for (int32_t k = 0; k < r->n; k++)
        printf(" %6s%s", r->name[k], k == 1 ? "*" : "");
    puts("");
    for (int32_t i = 0; i < r->n_rows; i++) {
        printf("%7.4g %9.0f", r->row[i].cycles, (double)r->row[i].bytes / (1 << 20));
        for (int32_t k = 0; k < r->n; k++)
            printf(" %6.1f%s", 100 * r->row[i].hit[k], k == 1 ? " " : "");
        puts("");
    }
    puts("* the default");
}

enum { PLOT_ROWS = 21, PLOT_LEFT = 6, PLOT_COLUMNS = 66 };

/* Belady's letter, then the policies': their first letter where it is free. */
static char letter_of(const struct replayed *r, int32_t k)
{
    static const char spare[] = "123456789abcd";
    const char c = (char)(r->name[k][0] - 'a' + 'A');

    for (int32_t i = 0; i < k; i++)
        if (letter_of(r, i) == c)
            return spare[k];
    return c;
}

/* Budgets side by side in the order given, hit rate upwards; where curves meet, the better known
 * (bound, then default) is drawn. */
static void print_plot(const struct replayed *r)
{
    char grid[PLOT_ROWS][PLOT_COLUMNS + 1];
    const int32_t step = PLOT_COLUMNS / r->n_rows;

    for (int32_t y = 0; y < PLOT_ROWS; y++) {
        memset(grid[y], y % 5 == 0 ? '.' : ' ', PLOT_COLUMNS);
        grid[y][PLOT_COLUMNS] = '\0';
    }
    for (int32_t k = r->n - 1; k >= 0; k--)
        for (int32_t i = 0; i < r->n_rows; i++) {
            const int32_t x0 = i * step + step / 2;
            const bool last = i + 1 == r->n_rows;
            for (int32_t x = 0; x < (last ? 1 : step); x++) {
                const double part = (double)x / step, a = r->row[i].hit[k],
                             b = last ? a : r->row[i + 1].hit[k];
                const int32_t y =
                    PLOT_ROWS - 1 - (int32_t)((a + (b - a) * part) * (PLOT_ROWS - 1) + 0.5);
                char *cell = &grid[y][x0 + x];
                if (x == 0)
                    *cell = letter_of(r, k);
                else if (*cell == ' ' || *cell == '.')
                    *cell = k == 0 ? '-' : k == 1 ? '=' : '\'';
            }
        }
    puts("");
    for (int32_t y = 0; y < PLOT_ROWS; y++) {
        size_t n = strlen(grid[y]);
        while (n > 0 && grid[y][n - 1] == ' ')
            n--;
        if (y % 5 == 0)
            printf("%3d %% %.*s\n", 100 - y * 100 / (PLOT_ROWS - 1), (int)n, grid[y]);
        else
            printf("%s%.*s\n", n ? "      " : "", (int)n, grid[y]);
    }
    printf("%*s", PLOT_LEFT, "");
    for (int32_t i = 0; i < r->n_rows; i++)
        printf("%*.4g%*s", step / 2 + 1, r->row[i].cycles, step - step / 2 - 1, "");
    printf(" cycles\n%*s", PLOT_LEFT, "");
    for (int32_t k = 0; k < r->n; k++)
        printf("%s%c %s", k ? ", " : "", letter_of(r, k), r->name[k]);
    puts("");
}

int replay_command(struct options *o)
{
    struct leat_error e = {0};
    struct leat_replay *t = NULL;
    struct replayed r = {0};
    int code = read_budgets(o, &r, &e);

    if (code == 0 && o->n_words == 0)
        code = error_set(&e, LEAT_ERR_USAGE, "no trace was named: leat replay TRACE");
    if (code == 0)
        code = leat_replay_open(o->words[0], &t, &e);
    if (code == 0 && leat_replay_facts(t)->cut)
        fputs("leat: the trace ends without its end mark; what was written is used\n", stderr);
    if (code == 0 && option(o, "as_csv")->b)
        code = leat_replay_csv(t, stdout, &e);
    else if (code == 0)
        code = replay(t, &r, &e);
    if (code < 0) {
        leat_replay_close(t);
        return report_error(o, &e, NULL);
    }
    if (!option(o, "as_csv")->b && o->json) {
        print_json(t, &r);
    } else if (!option(o, "as_csv")->b) {
        print_facts(t);
        print_table(&r);
        print_plot(&r);
    }
    leat_replay_close(t);
    return EXIT_OK;
}
