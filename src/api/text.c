/* Tokenizers of the public API: borrowed from an engine or opened alone. Immutable once open; any
 * thread. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <fcntl.h>

#include "engine.h"
#include "../base/error.h"

int model_tokenizer_open(const struct model *m, struct ledger *l, struct tokenizer **out,
                         struct leat_error *e)
{
    return m->container == MODEL_GGUF ? tokenizer_open_gguf(m->gguf, l, out, e)
                                      : tokenizer_open_json(m->folder, l, out, e);
}

/* ---- opening one alone ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static bool starts_as_gguf(const char *path)
{
    struct file *f;
    char magic[4] = {0};
    if (file_open(path, &f, NULL) < 0)
        return false;
    bool is = file_size(f) >= sizeof magic && file_read(f, 0, magic, sizeof magic, NULL) == 0;
    file_close(f);
    return is && memcmp(magic, "GGUF", 4) == 0;
}

/* A GGUF file that holds the vocabulary itself, weights or not. */
static int open_from_gguf(const char *path, struct leat_tokenizer *t, struct leat_error *e)
{
    arena_init(&t->arena, NULL, ROW_TOKENIZER);
    int code = gguf_open(path, true, &t->arena, &t->gguf, e);
    if (code == 0)
        code = tokenizer_open_gguf(t->gguf, NULL, &t->t, e);
    return code;
}

/* A later shard of a split model, or anything else that names one. */
static int open_from_model(const char *path, struct leat_tokenizer *t, struct leat_error *e)
{
    struct model *m;
    int code = model_open(path, NULL, &m, e);
    if (code < 0)
        return code;
    code = model_tokenizer_open(m, NULL, &t->t, e);
    model_close(m);
    return code;
}

static bool holds_vocabulary(const struct leat_tokenizer *t)
{
    return t->gguf && gguf_find(t->gguf, "tokenizer.ggml.tokens");
}

static bool has_file(const char *folder, const char *name)
{
    int d = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    bool is = d >= 0 && fstatat(d, name, &st, 0) == 0;
    if (d >= 0)
        close(d);
    return is;
}

static int open_source(const char *source, struct leat_tokenizer *t, struct leat_error *e)
{
    if (starts_as_gguf(source)) {
        int code = open_from_gguf(source, t, e);
        if (code == 0 || !t->gguf || holds_vocabulary(t))
            return code;
        gguf_close(t->gguf);
        t->gguf = NULL;
        arena_close(&t->arena);
        return open_from_model(source, t, e);
    }
    if (has_file(source, "tokenizer.json"))
        return tokenizer_open_json(source, NULL, &t->t, e);
    if (ends_with(source, ".json") && !ends_with(source, "config.json") &&
        !ends_with(source, ".index.json"))
        return tokenizer_open_json(source, NULL, &t->t, e);
    return open_from_model(source, t, e);
}

int leat_tokenizer_open(const char *source, struct leat_tokenizer **out, struct leat_error *e)
{
    struct leat_tokenizer *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for a tokenizer");
    int code = open_source(source, t, e);
    if (code < 0) {
        leat_tokenizer_close(t);
        return code;
    }
    *out = t;
    return 0;
}

void leat_tokenizer_close(struct leat_tokenizer *t)
{
    if (!t)
        return;
    if (t->t)
        tokenizer_close(t->t);
    if (t->gguf)
        gguf_close(t->gguf);
    arena_close(&t->arena);
    free(t);
}

const struct leat_tokenizer *leat_engine_tokenizer(const struct leat_engine *g,
                                                   struct leat_error *e)
{
    if (g->text.t)
        return &g->text;
    if (e)
        *e = g->tokenizer_error;
    return NULL;
}

/* ---- using one ---- */

void leat_tokenizer_facts(const struct leat_tokenizer *t, struct leat_vocab *out)
{
    *out = (struct leat_vocab){
        .kind = tokenizer_kind(t->t),
        .pre = tokenizer_pre(t->t),
        .size = tokenizer_size(t->t),
        .bos = tokenizer_bos(t->t),
        .eos = tokenizer_eos(t->t),
        .adds_bos = tokenizer_adds_bos(t->t),
        .adds_eos = tokenizer_adds_eos(t->t),
    };
}

_Static_assert(LEAT_ENCODE_SPECIAL == (int)ENCODE_SPECIAL &&
                   LEAT_ENCODE_ADD_SPECIAL == (int)ENCODE_ADD_SPECIAL,
               "same bits");

int leat_encode(const struct leat_tokenizer *t, const char *text, size_t len, uint32_t flags,
                int32_t **ids, size_t *n, struct leat_error *e)
{
    struct token_list list = {0};
    int code = tokenizer_encode(t->t, text, len, flags, &list, e);
    *ids = NULL;
    *n = 0;
    if (code == 0 && !list.ids && !(list.ids = malloc(sizeof *list.ids)))
        code = error_set(e, LEAT_ERR_MEMORY, "the system refused memory for tokens");
    if (code < 0) {
        token_list_free(&list);
        return code;
    }
    *ids = list.ids;
    *n = list.n;
    return 0;
}

int leat_decode(const struct leat_tokenizer *t, const int32_t *ids, size_t n, int special,
                char **text, size_t *len, struct leat_error *e)
{
    struct detokenizer d;
    const size_t step = tokenizer_longest(t->t) + sizeof d.held;
    size_t cap = 4 * n + step + 1, at = 0;
    char *out = malloc(cap);
    *text = NULL;
    detokenizer_init(&d, t->t, special != 0, true);
    for (size_t i = 0; out && i <= n; i++) {
        if (cap - at < step + 1) {
            char *grown = realloc(out, cap = 2 * cap + step);
            if (!grown)
                free(out);
            out = grown;
        }
        if (!out)
            break;
        if (i < n && (ids[i] < 0 || ids[i] >= tokenizer_size(t->t))) {
            free(out);
            return error_set(e, LEAT_ERR_USAGE,
                             "token %zu is %d, and this vocabulary's ids go from 0 to %d", i,
                             (int)ids[i], (int)tokenizer_size(t->t) - 1);
        }
        at += i < n ? detokenizer_feed(&d, ids[i], out + at, cap - at)
                    : detokenizer_flush(&d, out + at, cap - at);
    }
    if (!out)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for a text");
    out[at] = 0;
    *text = out;
    *len = at;
    return 0;
}

const char *leat_piece(const struct leat_tokenizer *t, int32_t id, size_t *len)
{
    return tokenizer_spelling(t->t, id, len);
}

int leat_is_end(const struct leat_tokenizer *t, int32_t id)
{
    return id >= 0 && id < tokenizer_size(t->t) && tokenizer_is_end(t->t, id);
}
