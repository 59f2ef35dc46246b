/* See text_unit.h. */
#include "text_unit.h"

#include <sys/stat.h>

const char *data_path(const char *env, const char *name)
{
    static char path[4][4096];
    static int turn;
    const char *root = getenv(env);
    char *p = path[turn++ % 4];
    struct stat st;
    if (!root)
        return NULL;
    snprintf(p, sizeof path[0], "%s/%s", root, name);
    return stat(p, &st) == 0 ? p : NULL;
}

static char scratch[256];

static void scratch_remove(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    if (system(command) != 0)
        fprintf(stderr, "%s could not be removed\n", scratch);
}

static const char *scratch_path(const char *name)
{
    static char path[4][600];
    static int turn;
    if (!scratch[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(scratch, sizeof scratch, "%s/leat-text-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(scratch));
        atexit(scratch_remove);
    }
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", scratch, name);
    return p;
}

const char *scratch_file(const char *name)
{
    const char *path = scratch_path(name);
    write_file(path, "", 0);
    return path;
}

const char *scratch_folder(const char *name)
{
    const char *path = scratch_path(name);
    mkdir(path, 0700);
    return path;
}

void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

int open_any(struct opened *o, const char *path, struct leat_error *e)
{
    size_t n = strlen(path);
    *o = (struct opened){0};
    *e = (struct leat_error){0};
    assert_int_equal(ledger_open(UINT64_MAX, &o->l, NULL), 0);
    arena_init(&o->a, o->l, ROW_MODEL);
    int rc = 0;
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0) {
        rc = gguf_open(path, true, &o->a, &o->g, e);
        if (rc == 0)
            rc = tokenizer_open_gguf(o->g, o->l, &o->t, e);
    } else {
        rc = tokenizer_open_json(path, o->l, &o->t, e);
    }
    assert_true((rc == 0) == (o->t != NULL));
    if (rc < 0) {
        assert_int_equal(e->code, rc);
        assert_true(e->message[0] != '\0');
        assert_int_equal(ledger_held(o->l, DOMAIN_HELD, ROW_TOKENIZER), 0);
    }
    return rc;
}

void close_any(struct opened *o)
{
    tokenizer_close(o->t);
    assert_int_equal(ledger_held(o->l, DOMAIN_HELD, ROW_TOKENIZER), 0);
    gguf_close(o->g);
    arena_close(&o->a);
    ledger_close(o->l);
}

int32_t *ids_of(const json_t *array, size_t *n)
{
    *n = json_array_size(array);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

bool encodes_to(const struct tokenizer *t, const char *text, size_t n, uint32_t flags,
                const json_t *ids, const char *what)
{
    struct token_list got = {0};
    struct leat_error e = {0};
    size_t want_n;
    int32_t *want = ids_of(ids, &want_n);
    char q[200];
    assert_int_equal(tokenizer_encode(t, text, n, flags, &got, &e), 0);
    bool same =
        got.n == want_n && (want_n == 0 || memcmp(got.ids, want, want_n * sizeof *want) == 0);
    if (!same) {
        fprintf(stderr, "%s: \"%s\" (flags %u)\n  wanted", what, error_quote(q, sizeof q, text, n),
                flags);
        for (size_t i = 0; i < want_n; i++)
            fprintf(stderr, " %d", want[i]);
        fprintf(stderr, "\n  got   ");
        for (size_t i = 0; i < got.n; i++)
            fprintf(stderr, " %d", got.ids[i]);
        fprintf(stderr, "\n");
    }
    free(want);
    token_list_free(&got);
    return same;
}

char *decode_all(const struct tokenizer *t, const int32_t *ids, size_t n, size_t *len)
{
    struct detokenizer d;
    size_t cap = 8 + tokenizer_longest(t), room = 64;
    char *one = malloc(cap), *text = malloc(room);
    assert_non_null(one);
    assert_non_null(text);
    *len = 0;
    detokenizer_init(&d, t, true, true);
    for (size_t i = 0; i <= n; i++) {
        size_t m = i < n ? detokenizer_feed(&d, ids[i], one, cap) : detokenizer_flush(&d, one, cap);
        while (*len + m + 1 > room)
            assert_non_null(text = realloc(text, room *= 2));
        memcpy(text + *len, one, m);
        *len += m;
    }
    text[*len] = '\0';
    free(one);
    return text;
}
