/* The parameter mechanism, on a made-up table: each row's round trip, parsing of command lines
 * and files, refusals and hints, usage and JSON, and the reproduce line read back through a real
 * shell. */
#include "unit_base.h"

#include <jansson.h>
#include <unistd.h>

#include "../../../src/base/params.h"

static struct leat_error err;

enum { CMD_RUN = 1, CMD_EVAL = 2, CMD_BOTH = 3 };

static const struct param engine_rows[] = {
    {.key = "memory",
     .flag = "--memory",
     .label = "Memory budget",
     .group = "Memory",
     .unit = "bytes",
     .help = "hard ceiling on what is held in memory",
     .type = PARAM_SIZE,
     .accepts_auto = true,
     .min = 1 << 20,
     .max = 0x1p50,
     .def = "auto",
     .commands = CMD_BOTH},
    {.key = "lock",
     .flag = "--lock",
     .group = "Memory",
     .help = "lock memory",
     .type = PARAM_BOOL,
     .def = "false",
     .commands = CMD_RUN},
    {.key = "threads",
     .flag = "--threads",
     .aliases = "-t --n-threads",
     .group = "Speed",
     .help = "threads that compute",
     .type = PARAM_INT,
     .min = 1,
     .max = 256,
     .accepts_auto = true,
     .def = "auto",
     .commands = CMD_BOTH},
    {.key = "kv_type",
     .flag = "--kv-type",
     .group = "Memory",
     .help = "format of the KV cache",
     .type = PARAM_CHOICE,
     .choices = "f32 f16 q8_0",
     .lossy = true,
     .def = "f16",
     .level = PARAM_ADVANCED,
     .commands = CMD_BOTH},
    {.key = "direct",
     .flag = "--direct",
     .group = "Speed",
     .help = "direct reads",
     .type = PARAM_BOOL,
     .accepts_auto = true,
     .def = "auto",
     .level = PARAM_EXPERIMENTAL,
     .commands = CMD_BOTH},
    {.key = "inner",
     .group = "Speed",
     .help = "has no flag",
     .type = PARAM_INT,
     .def = "3",
     .max = 9,
     .level = PARAM_DEBUG,
     .commands = CMD_BOTH},
};
static const struct param program_rows[] = {
    {.key = "prompt",
     .flag = "--prompt",
     .aliases = "-p",
     .group = "Text",
     .help = "text to continue, byte for byte as it is given here, with nothing trimmed from it",
     .type = PARAM_STRING,
     .scope = PARAM_REQUEST,
     .commands = CMD_RUN},
    {.key = "predict",
     .flag = "--predict",
     .aliases = "-n",
     .group = "Text",
     .unit = "tokens",
     .help = "tokens to generate",
     .type = PARAM_INT,
     .min = -1,
     .max = 1e9,
     .def = "-1",
     .scope = PARAM_REQUEST,
     .commands = CMD_RUN},
    {.key = "temp",
     .flag = "--temp",
     .group = "Sampling",
     .help = "temperature",
     .type = PARAM_FLOAT,
     .min = 0,
     .max = 100,
     .def = "0.8",
     .scope = PARAM_REQUEST,
     .commands = CMD_RUN},
    {.key = "stop",
     .flag = "--stop",
     .group = "Sampling",
     .help = "text that ends generation",
     .type = PARAM_LIST,
     .scope = PARAM_REQUEST,
     .commands = CMD_RUN},
    {.key = "logits",
     .flag = "--logits",
     .group = "Output",
     .unit = "file",
     .help = "write logits",
     .type = PARAM_STRING,
     .commands = CMD_EVAL},
    {.key = "bias",
     .flag = "--bias",
     .group = "Sampling",
     .help = "unbounded",
     .type = PARAM_FLOAT,
     .commands = CMD_RUN},
    {.key = "offset",
     .flag = "--offset",
     .group = "Sampling",
     .help = "unbounded",
     .type = PARAM_INT,
     .commands = CMD_RUN},
    {.key = "color",
     .flag = "--color",
     .group = "Output",
     .help = "colours",
     .type = PARAM_BOOL,
     .def = "true",
     .commands = CMD_BOTH},
};
#define N(a) ((int32_t)(sizeof(a) / sizeof *(a)))

static const struct param *const tables[] = {engine_rows, program_rows};
static const int32_t counts[] = {N(engine_rows), N(program_rows)};

static struct param_set opened(void)
{
    struct param_set s;
    if (params_open(&s, tables, counts, 2, &err) < 0)
        fail_msg("%s", err.message);
    return s;
}

static const char *words[4];
static int32_t n_words;

/* Parses a command line given as words, the last of them NULL. */
static int parse(struct param_set *s, uint32_t command, const char *first, ...)
{
    char *argv[32];
    int argc = 0;
    va_list ap;
    va_start(ap, first);
    for (const char *w = first; w; w = va_arg(ap, const char *))
        argv[argc++] = (char *)(uintptr_t)w;
    va_end(ap);
    return params_parse(s, argc, argv, command, words, 4, &n_words, &err);
}

#define assert_refused(code, part)                                                                 \
    do {                                                                                           \
        assert_int_equal((code), LEAT_ERR_USAGE);                                                  \
        assert_contains(err.message, part);                                                        \
    } while (0)

static void test_defaults(void **state)
{
    (void)state;
    struct param_set s = opened();
    assert_int_equal(s.n, N(engine_rows) + N(program_rows));
    assert_true(params_get(&s, "memory")->is_auto);
    assert_false(params_get(&s, "memory")->set);
    assert_string_equal(params_get(&s, "memory")->source, "default");
    assert_int_equal(params_get(&s, "kv_type")->i, 1);
    assert_string_equal(params_get(&s, "kv_type")->s, "f16");
    assert_true(params_get(&s, "temp")->f == 0.8);
    assert_true(params_get(&s, "color")->b);
    assert_null(params_get(&s, "prompt")->s);
    assert_null(params_get(&s, "bias")->source);
    assert_int_equal(params_find(&s, "nothing"), -1);
    params_close(&s);
}

/* For every row: what is set comes back, and its spelling sets the same again. */
static void test_round_trip(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        const char *texts[10];
    } rows[] = {
        {"memory", {"auto", "1M", "512M", "1.5G", "1048577", "3GB", "1125899906842624"}},
        {"lock", {"true", "false", "on", "off"}},
        {"threads", {"1", "256", "auto", "+7"}},
        {"kv_type", {"f32", "f16", "q8_0"}},
        {"direct", {"auto", "true", "false"}},
        {"inner", {"0", "9"}},
        {"prompt", {"", " two  blanks ", "a'b\"c\\d\n\t$x", "--json", "\xff\xfe"}},
        {"predict", {"-1", "0", "1000000000"}},
        {"temp", {"0", "0.1", "1e-3", "100", "0.30000000000000004", ".5", "5."}},
        {"stop", {"\n\n", "", "auto"}},
        {"logits", {"out.f32", "/a b/c"}},
        {"bias", {"-1e308", "12345.678", "-0.0"}},
        {"offset", {"-9223372036854775808", "9223372036854775807"}},
        {"color", {"false"}},
    };
    struct param_set s = opened(), t = opened();
    assert_int_equal(N(rows), s.n); /* no row without a trial */
    for (int32_t r = 0; r < N(rows); r++) {
        int32_t row = params_find(&s, rows[r].key);
        assert_int_equal(row, r);
        const struct param *p = s.rows[row];
        for (int i = 0; i < 10 && rows[r].texts[i]; i++) {
            if (params_set(&s, p->key, rows[r].texts[i], "api", &err) < 0)
                fail_msg("%s", err.message);
            char *spelled = params_spell(p, &s.values[row]);
            assert_non_null(spelled);
            if (p->type == PARAM_LIST)
                assert_string_equal(s.values[row].list[i], rows[r].texts[i]);
            else if (params_set(&t, p->key, spelled, "api", &err) < 0)
                fail_msg("%s: %s", p->key, err.message);
            else {
                const struct param_value *a = &s.values[row], *b = &t.values[row];
                assert_true(a->set && b->set);
                assert_true(a->is_auto == b->is_auto && a->b == b->b && a->i == b->i &&
                            a->f == b->f);
                assert_true(!a->s == !b->s && (!a->s || strcmp(a->s, b->s) == 0));
            }
            free(spelled);
        }
    }
    params_close(&s);
    params_close(&t);
}

static void test_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *key, *set, *spelled;
    } rows[] = {
        {"memory", "1536M", "1536M"}, {"memory", "2048M", "2G"}, {"memory", "1.5GiB", "1536M"},
        {"memory", "2mb", "2000000"}, {"threads", "007", "7"},   {"temp", "0.70", "0.7"},
        {"temp", "1e1", "10"},        {"lock", "on", "true"},
    };
    struct param_set s = opened();
    for (int32_t i = 0; i < N(rows); i++) {
        assert_int_equal(params_set(&s, rows[i].key, rows[i].set, "api", &err), 0);
        int32_t row = params_find(&s, rows[i].key);
        char *spelled = params_spell(s.rows[row], &s.values[row]);
        assert_string_equal(spelled, rows[i].spelled);
        free(spelled);
    }
    params_close(&s);
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {"0", 0},
        {"4096", 4096},
        {"1K", 1024},
        {"1KB", 1000},
        {"1k", 1024},
        {"3M", 3145728},
        {"3MB", 3000000},
        {"2G", 2147483648},
        {"2GB", 2000000000},
        {"1T", 1099511627776},
        {"1TB", 1000000000000},
        {"1TiB", 1099511627776},
        {"0.5G", 536870912},
        {"1.25K", 1280},
        {"0.000001MB", 1},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {"",         "K",        "-1",         "+1",
                                      "1 G",      " 1G",      "1G ",        "1.G",
                                      ".5G",      "1.5",      "1e3",        "0x10",
                                      "1P",       "1KK",      "1.5.5G",     "1.1B",
                                      "1,5G",     "infinity", "1.1234567G", "18446744073709551616",
                                      "16777216T"};
    uint64_t bytes;
    for (int32_t i = 0; i < N(rows); i++) {
        assert_int_equal(parse_size(rows[i].text, &bytes), 0);
        if (bytes != rows[i].bytes)
            fail_msg("%s is not %llu", rows[i].text, (unsigned long long)bytes);
    }
    for (int32_t i = 0; i < N(bad); i++)
        if (parse_size(bad[i], &bytes) == 0)
            fail_msg("'%s' was accepted as a size", bad[i]);
}

static void test_refusals(void **state)
{
    (void)state;
    struct param_set s = opened();
    static const struct {
        const char *key, *text, *part;
    } rows[] = {
        {"threads", "", "--threads ''"},
        {"threads", "4x", "--threads '4x': must be a whole number, or auto"},
        {"threads", "4.0", "whole number"},
        {"threads", " 4", "whole number"},
        {"threads", "0", "must be 1 to 256"},
        {"threads", "257", "must be 1 to 256"},
        {"threads", "99999999999999999999", "whole number"},
        {"predict", "-2", "must be -1 to 1000000000"},
        {"predict", "auto", "whole number"},
        {"temp", "nan", "must be a number"},
        {"temp", "inf", "must be a number"},
        {"temp", "0x1p3", "must be a number"},
        {"temp", "1e999", "must be a number"},
        {"temp", "-0.1", "must be 0 to 100"},
        {"temp", "1.0junk", "must be a number"},
        {"memory", "12Q", "such as 512M"},
        {"memory", "1K", "must be 1M to 1024T, or auto"},
        {"memory", "99999T", "must be 1M to 1024T"},
        {"kv_type", "q3", "--kv-type 'q3': must be f32, f16 or q8_0"},
        {"kv_type", "f", "must be f32"},
        {"kv_type", "", "must be f32"},
        {"kv_type", "f32 f16", "must be f32"},
        {"lock", "yes please", "must be true or false"},
        {"direct", "maybe", "must be true or false, or auto"},
        {"inner", "10", "inner '10': must be 0 to 9"},
        {"threds", "1", "did you mean threads?"},
        {"zzzzzz", "1", "there is no parameter 'zzzzzz'"},
        {"temp", "\x1b[2J", "--temp '\\x1b[2J'"},
    };
    for (int32_t i = 0; i < N(rows); i++)
        assert_refused(params_set(&s, rows[i].key, rows[i].text, "api", &err), rows[i].part);
    for (int32_t i = 0; i < s.n; i++)
        assert_false(s.values[i].set); /* a refused value changes nothing */
    assert_true(params_get(&s, "threads")->is_auto);
    assert_true(params_get(&s, "temp")->f == 0.8);
    params_close(&s);
}

static void test_parse(void **state)
{
    (void)state;
    struct param_set s = opened();
    assert_int_equal(parse(&s, CMD_RUN, "model.gguf", "-p", "", "-n5", "--memory=64M", "-t", "2",
                           "--lock", "--no-color", "--temp", "0", "--stop", "a", "--stop=b=c",
                           "--direct=auto", "word", NULL),
                     0);
    assert_int_equal(n_words, 2);
    assert_string_equal(words[0], "model.gguf");
    assert_string_equal(words[1], "word");
    assert_string_equal(params_get(&s, "prompt")->s, "");
    assert_true(params_get(&s, "prompt")->set);
    assert_string_equal(params_get(&s, "prompt")->source, "command line");
    assert_int_equal(params_get(&s, "predict")->i, 5);
    assert_int_equal(params_get(&s, "memory")->i, 64 << 20);
    assert_false(params_get(&s, "memory")->is_auto);
    assert_int_equal(params_get(&s, "threads")->i, 2);
    assert_true(params_get(&s, "lock")->b);
    assert_false(params_get(&s, "color")->b);
    assert_int_equal(params_get(&s, "stop")->n_list, 2);
    assert_string_equal(params_get(&s, "stop")->list[0], "a");
    assert_string_equal(params_get(&s, "stop")->list[1], "b=c");
    assert_true(params_get(&s, "direct")->is_auto && params_get(&s, "direct")->set);

    /* The last one of a scalar wins; a value may look like a flag; "--" and "-" are words. */
    assert_int_equal(parse(&s, CMD_RUN, "-n", "1", "--predict", "-1", "-p", "--lock", "-", "--",
                           "--lock", "-x", NULL),
                     0);
    assert_int_equal(params_get(&s, "predict")->i, -1);
    assert_string_equal(params_get(&s, "prompt")->s, "--lock");
    assert_int_equal(n_words, 3);
    assert_string_equal(words[0], "-");
    assert_string_equal(words[1], "--lock");
    assert_string_equal(words[2], "-x");
    assert_int_equal(parse(&s, CMD_RUN, "-ptext with blanks", NULL), 0);
    assert_string_equal(params_get(&s, "prompt")->s, "text with blanks");
    params_close(&s);
}

static void test_parse_refusals(void **state)
{
    (void)state;
    struct param_set s = opened();
    assert_refused(parse(&s, CMD_RUN, "--thraeds", "2", NULL), "did you mean --threads?");
    assert_refused(parse(&s, CMD_RUN, "--n-thread", "2", NULL), "did you mean --threads?");
    assert_refused(parse(&s, CMD_RUN, "--mem", "2G", NULL), "did you mean --memory?");
    assert_refused(parse(&s, CMD_RUN, "--memry=2G", NULL), "unknown option --memry; did you");
    assert_refused(parse(&s, CMD_RUN, "--xyzzyplugh", NULL), "unknown option --xyzzyplugh");
    assert_null(strstr(err.message, "did you mean"));
    assert_refused(parse(&s, CMD_RUN, "--logits", "f", NULL),
                   "this command has no option --logits");
    assert_refused(parse(&s, CMD_EVAL, "-p", "x", NULL), "this command has no option -p");
    assert_int_equal(parse(&s, CMD_EVAL, "--logits", "f", NULL), 0);
    assert_refused(parse(&s, CMD_RUN, "--memory", NULL), "--memory needs a value");
    assert_refused(parse(&s, CMD_RUN, "-p", NULL), "-p needs a value");
    assert_refused(parse(&s, CMD_RUN, "--no-lock=true", NULL), "takes no value");
    assert_refused(parse(&s, CMD_RUN, "--no-threads", NULL), "unknown option --no-threads");
    assert_refused(parse(&s, CMD_RUN, "--lock=maybe", NULL), "must be true or false");
    assert_refused(parse(&s, CMD_RUN, "-p=x", NULL), "unknown option -p=x");
    assert_refused(parse(&s, CMD_RUN, "-n5x", NULL), "whole number");
    assert_refused(parse(&s, CMD_RUN, "-5", NULL), "unknown option -5");
    assert_refused(parse(&s, CMD_RUN, "a", "b", "c", "d", "e\n", NULL),
                   "'e\\x0a' is one argument too");
    assert_refused(parse(&s, CMD_RUN, "--LOCK", NULL), "unknown option");
    char wide[300];
    memset(wide, '-', 200);
    wide[200] = '\0';
    assert_refused(parse(&s, CMD_RUN, wide, NULL), "unknown option");
    params_close(&s);
}

static int read_config(struct param_set *s, const char *text, size_t n)
{
    char path[] = "/tmp/leat-test-params-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
    int rc = params_read_file(s, path, &err);
    unlink(path);
    return rc;
}

static void test_file(void **state)
{
    (void)state;
    struct param_set s = opened();
    assert_int_equal(params_read_file(&s, "/nonexistent/leat/config", &err), 0);
    assert_int_equal(params_read_file(&s, "/", &err), LEAT_ERR_FILE);
    static const char good[] =
        "# a comment\n\n  threads = 3  \r\nmemory=1G\nstop = \" a\\n\\\"\\\\\"\n"
        "stop = b # not a comment\nprompt =\nlock = true\ntemp = 0.5";
    assert_int_equal(parse(&s, CMD_RUN, "--temp", "1", NULL), 0);
    if (read_config(&s, good, sizeof good - 1) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(params_get(&s, "threads")->i, 3);
    assert_string_equal(params_get(&s, "threads")->source, "config file");
    assert_int_equal(params_get(&s, "memory")->i, 1 << 30);
    assert_int_equal(params_get(&s, "stop")->n_list, 2);
    assert_string_equal(params_get(&s, "stop")->list[0], " a\n\"\\");
    assert_string_equal(params_get(&s, "stop")->list[1], "b # not a comment");
    assert_string_equal(params_get(&s, "prompt")->s, "");
    assert_true(params_get(&s, "temp")->f == 1); /* the command line was read first, and stays */
    /* The command line replaces the file's list; it does not add to it. */
    assert_int_equal(parse(&s, CMD_RUN, "--stop", "x", "--stop", "y", NULL), 0);
    assert_int_equal(params_get(&s, "stop")->n_list, 2);
    assert_string_equal(params_get(&s, "stop")->list[0], "x");

    static const struct {
        const char *text;
        size_t n;
        const char *part;
    } bad[] = {
#define DOC(s) s, sizeof s - 1
        {DOC("threads = 3\nthreds = 4\n"), "line 2: there is no parameter 'threds'; did you mean"},
        {DOC("\n\nthreads 3\n"), "line 3: 'key = value' was expected"},
        {DOC("threads = x\n"), "line 1: --threads 'x': must be a whole number"},
        {DOC("temp = x\n"), "line 1: --temp 'x'"},
        {DOC("stop = \"a\n"), "double quotes"},
        {DOC("stop = \"a\\q\"\n"), "double quotes"},
        {DOC("stop = \"a\" b\n"), "double quotes"},
        {DOC("stop = \"\"\"\n"), "double quotes"},
        {DOC("stop = \"\\\n"), "double quotes"},
        {DOC("stop = a\0b\n"), "NUL"},
        {DOC("= 3\n"), "there is no parameter ''"},
    };
    for (int32_t i = 0; i < N(bad); i++)
        assert_refused(read_config(&s, bad[i].text, bad[i].n), bad[i].part);
    params_close(&s);
}

/* Reads a command line back through the shell that a user would paste it into. */
static char **shell_words(const char *line, int *argc, char **memory)
{
    struct {
        char *text;
        size_t n, cap;
    } out = {malloc(65536), 0, 65536};
    static char command[65536];
    int n = snprintf(command, sizeof command, "printf '%%s\\0' %s", line);
    assert_true(n > 0 && (size_t)n < sizeof command);
    if (!*line)
        strcpy(command, "true");
    FILE *f = popen(command, "r");
    assert_non_null(f);
    out.n = fread(out.text, 1, out.cap, f);
    assert_int_equal(pclose(f), 0);
    char **argv = calloc(64, sizeof *argv);
    *argc = 0;
    for (size_t at = 0; at < out.n; at += strlen(out.text + at) + 1)
        argv[(*argc)++] = out.text + at;
    *memory = out.text;
    return argv;
}

static bool same_value(const struct param_value *a, const struct param_value *b)
{
    if (a->set != b->set || a->is_auto != b->is_auto || a->b != b->b || a->i != b->i ||
        a->f != b->f || a->n_list != b->n_list || !a->s != !b->s)
        return false;
    if (a->s && strcmp(a->s, b->s) != 0)
        return false;
    for (int32_t i = 0; i < a->n_list; i++)
        if (strcmp(a->list[i], b->list[i]) != 0)
            return false;
    return true;
}

static void set_randomly(struct param_set *s, int32_t row, uint64_t *seed)
{
    const struct param *p = s->rows[row];
    char text[64];
    uint64_t r = random_next(seed) >> 11;
    int times = p->type == PARAM_LIST ? 1 + (int)(r % 3) : 1;
    while (times-- > 0) {
        r = random_next(seed) >> 11;
        if (p->accepts_auto && r % 4 == 0) {
            strcpy(text, "auto");
        } else if (p->type == PARAM_BOOL) {
            strcpy(text, r % 2 ? "true" : "false");
        } else if (p->type == PARAM_CHOICE) {
            const char *all[] = {"f32", "f16", "q8_0"};
            strcpy(text, all[r % 3]);
        } else if (p->type == PARAM_SIZE) {
            sprintf(text, "%llu",
                    (1ULL << 20) + (unsigned long long)(r % (1ULL << 45)) * (r % 2 ? 1 : 16));
        } else if (p->type == PARAM_FLOAT) {
            double top = p->max > 0 ? p->max : 1e300;
            sprintf(text, "%.17g", (double)r / 0x1p53 * top);
        } else if (p->type == PARAM_INT) {
            double span = p->max > p->min ? p->max - p->min + 1 : 1e18;
            sprintf(text, "%lld", (long long)(p->min + (double)r / 0x1p53 * span));
        } else {
            size_t n = r % 12;
            for (size_t i = 0; i < n; i++) {
                static const char odd[] = " '\"\\$`!*?~#;&|<>()[]{}\n\t-=a\xc3\xa9\xff%%";
                text[i] = odd[random_next(seed) % (sizeof odd - 1)];
            }
            text[n] = '\0';
        }
        if (params_set(s, p->key, text, "command line", &err) < 0)
            fail_msg("%s", err.message);
    }
}

/* To arguments and back is the identity, for random settings of everything. */
static void test_reproduce(void **state)
{
    (void)state;
    uint64_t seed = 4711;
    int said = 0;
    for (int round = 0; round < 250; round++) {
        struct param_set s = opened(), t = opened();
        for (int32_t i = 0; i < s.n; i++)
            if (s.rows[i]->flag && (s.rows[i]->commands & CMD_RUN) && random_next(&seed) % 2)
                set_randomly(&s, i, &seed);
        char *line = params_reproduce(&s, CMD_RUN), *memory;
        int argc;
        char **argv = shell_words(line, &argc, &memory);
        if (params_parse(&t, argc, argv, CMD_RUN, words, 0, &n_words, &err) < 0)
            fail_msg("%s: %s", line, err.message);
        for (int32_t i = 0; i < s.n; i++) {
            if (!same_value(&s.values[i], &t.values[i]))
                fail_msg("%s differs after: %s", s.rows[i]->key, line);
            said += t.values[i].set;
        }
        free(memory);
        free(argv);
        free(line);
        params_close(&s);
        params_close(&t);
    }
    assert_true(said > 1000);
}

static void test_reproduce_text(void **state)
{
    (void)state;
    struct param_set s = opened();
    char *line = params_reproduce(&s, CMD_RUN);
    assert_string_equal(line, "");
    free(line);
    assert_int_equal(parse(&s, CMD_RUN, "--no-lock", "-n", "7", "-p", "it's", "--stop", "",
                           "--memory", "1024M", "--direct=auto", NULL),
                     0);
    params_set(&s, "logits", "x", "api", &err); /* not an option of `run` */
    /* A value that no hand set but that is not the default (a plan's) is said too. */
    struct param_value *threads = &s.values[params_find(&s, "threads")];
    threads->is_auto = false;
    threads->i = 6;
    line = params_reproduce(&s, CMD_RUN);
    assert_string_equal(line, "--memory 1G --no-lock --threads 6 --direct=auto --prompt 'it'\\''s' "
                              "--predict 7 --stop ''");
    free(line);
    params_close(&s);
}

static void test_usage(void **state)
{
    (void)state;
    struct param_set s = opened();
    char *text = params_usage(&s, CMD_RUN, PARAM_ADVANCED, 80);
    static const char *const order[] = {"Memory:\n",
                                        "  --memory SIZE|auto",
                                        "--lock",
                                        "--kv-type f32|f16|q8_0",
                                        "Speed:\n",
                                        "-t, --threads, --n-threads N|auto",
                                        "Text:\n",
                                        "-p, --prompt TEXT",
                                        "-n, --predict N",
                                        "Sampling:\n",
                                        "--temp X",
                                        "[0.8]",
                                        "--stop TEXT",
                                        "Output:\n",
                                        "--color, --no-color"};
    const char *at = text;
    for (int32_t i = 0; i < N(order); i++) {
        const char *next = strstr(at, order[i]);
        if (!next)
            fail_msg("'%s' is not in its place in:\n%s", order[i], text);
        at = next + 1;
    }
    assert_null(strstr(text, "--logits")); /* another command's */
    assert_null(strstr(text, "--direct")); /* experimental */
    assert_null(strstr(text, "has no flag"));
    assert_contains(text, "changes the quality");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strlen(line) > 80)
            fail_msg("a line has %zu columns: %s", strlen(line), line);
    free(text);
    text = params_usage(&s, CMD_EVAL, PARAM_DEBUG, 100);
    assert_contains(text, "--logits FILE");
    assert_contains(text, "--direct");
    assert_null(strstr(text, "--prompt"));
    free(text);
    params_close(&s);
}

static void test_json(void **state)
{
    (void)state;
    struct param_set s = opened();
    assert_int_equal(parse(&s, CMD_RUN, "-p", "\xff", "--stop", "a", "--memory", "1G", NULL), 0);
    char *text = params_json(&s, true);
    json_t *top = json_loads(text, 0, NULL);
    assert_non_null(top);
    json_t *rows = json_object_get(top, "params");
    assert_int_equal(json_array_size(rows), (size_t)s.n);
    for (int32_t i = 0; i < s.n; i++) { /* enough to draw a form without knowing a parameter */
        json_t *o = json_array_get(rows, (size_t)i);
        static const char *const fields[] = {"key",   "flag",  "aliases", "label",   "group",
                                             "help",  "type",  "unit",    "choices", "accepts_auto",
                                             "min",   "max",   "default", "level",   "scope",
                                             "lossy", "value", "set",     "source"};
        for (int32_t k = 0; k < N(fields); k++)
            if (!json_object_get(o, fields[k]))
                fail_msg("row %d has no %s", i, fields[k]);
        assert_string_equal(json_string_value(json_object_get(o, "key")), s.rows[i]->key);
    }
    json_t *memory = json_array_get(rows, 0);
    assert_int_equal(json_integer_value(json_object_get(memory, "value")), 1 << 30);
    assert_string_equal(json_string_value(json_object_get(memory, "default")), "auto");
    assert_int_equal(json_integer_value(json_object_get(memory, "min")), 1 << 20);
    assert_string_equal(json_string_value(json_object_get(memory, "source")), "command line");
    json_t *kv = json_array_get(rows, 3);
    assert_int_equal(json_array_size(json_object_get(kv, "choices")), 3);
    assert_true(json_is_null(json_object_get(kv, "min")));
    assert_true(json_is_true(json_object_get(kv, "lossy")));
    json_t *prompt = json_array_get(rows, (size_t)params_find(&s, "prompt"));
    assert_string_equal(json_string_value(json_object_get(prompt, "value")), "\\xff");
    json_decref(top);
    free(text);
    text = params_json(&s, false);
    assert_null(strstr(text, "\"value\""));
    free(text);
    params_close(&s);
}

/* Mistakes in the tables themselves. */
static void test_bad_tables(void **state)
{
    (void)state;
    static const struct {
        struct param rows[2];
        const char *part;
    } bad[] = {
        {{{.key = "a", .type = PARAM_INT}, {.key = "a", .type = PARAM_INT}},
         "two parameters have the key a"},
        {{{.key = "a", .flag = "--x"}, {.key = "b", .flag = "--x"}}, "share the flag --x"},
        {{{.key = "a", .flag = "--x", .aliases = "-y"}, {.key = "b", .flag = "-y"}},
         "share the flag -y"},
        {{{.key = "a", .flag = "--x", .type = PARAM_BOOL}, {.key = "b", .flag = "--no-x"}},
         "--no-x"},
        {{{.key = "a", .flag = "--no-x"}, {.key = "b", .flag = "--x", .type = PARAM_BOOL}},
         "--no-x"},
        {{{.key = "a", .flag = "x"}, {.key = "b"}}, "is no flag"},
        {{{.key = "a", .type = PARAM_INT, .min = 1, .max = 5, .def = "7"}, {.key = "b"}},
         "the default of parameter a"},
        {{{.key = "a", .type = PARAM_INT, .min = 6, .max = 5}, {.key = "b"}},
         "bounds are reversed"},
        {{{.key = "a", .type = PARAM_CHOICE, .choices = "x y", .def = "z"}, {.key = "b"}},
         "must be x or y"},
        {{{.key = "a", .type = PARAM_CHOICE}, {.key = "b"}}, "choices"},
    };
    for (int32_t i = 0; i < N(bad); i++) {
        const struct param *one[] = {bad[i].rows};
        const int32_t two[] = {2};
        struct param_set s;
        assert_int_equal(params_open(&s, one, two, 1, &err), LEAT_ERR_INTERNAL);
        assert_int_equal(err.code, LEAT_ERR_INTERNAL);
        assert_contains(err.message, bad[i].part);
        assert_null(s.rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_spelling),       cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_refusals), cmocka_unit_test(test_file),
        cmocka_unit_test(test_reproduce),      cmocka_unit_test(test_reproduce_text),
        cmocka_unit_test(test_usage),          cmocka_unit_test(test_json),
        cmocka_unit_test(test_bad_tables),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
