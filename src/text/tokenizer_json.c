/* A tokenizer from tokenizer.json (Hugging Face tokenizers), alone or in a model's folder. The file
 * is read twice by the pull reader, once to count and once to fill, so that memory is what the
 * vocabulary needs. Only BPE models; the others are refused by name. One thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "tokenizer_internal.h"

#define FILE_BYTES (UINT64_C(1) << 30)

struct load {
    struct tokenizer *t;
    struct leat_error *e;
    const char *file;    /* path as opened */
    char path[400];      /* quoted */
    struct arena small;  /* what is not kept */
    struct json_pull *p; /* of the reading in progress */
    /* found by the first reading */
    struct json_node *normalizer, *pre_tokenizer, *post_processor, *decoder, *unk;
    struct token_extra *added, **added_tail;
    uint64_t added_n, added_bytes;
    uint64_t vocab_n, vocab_bytes, merges_n;
    int64_t max_id;
    bool has_model, has_vocab, has_merges, merges_first;
    bool fuse_unk, byte_fallback, ignore_merges;
    struct folder_config config;
    struct text_buf left, joined;
};

static int fail(struct load *l, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct load *l, int code, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(l->e, code, "%s: %s", l->path, text);
}

/* --- first reading: the rules, and how much there is --- */

/* One entry of the vocabulary: the key was read, its id comes. */
static int vocab_entry(struct load *l, int64_t *id)
{
    int ev = json_pull_next(l->p, l->e);
    if (ev < 0)
        return ev;
    if (ev != JSON_NUMBER || !l->p->is_integer || l->p->integer < 0)
        return json_fail(l->p, l->e, LEAT_ERR_FORMAT,
                         "the vocabulary gives a token something that is not an id");
    if (l->p->integer >= VOCAB_MAX_IDS)
        return json_fail(l->p, l->e, LEAT_ERR_UNSUPPORTED,
                         "the vocabulary has an id of %" PRId64 "; ids below %d are supported",
                         l->p->integer, VOCAB_MAX_IDS);
    *id = l->p->integer;
    return 0;
}

static int count_vocab(struct load *l)
{
    int ev = json_pull_next(l->p, l->e);
    if (ev < 0)
        return ev;
    if (ev == JSON_ARRAY)
        return json_fail(l->p, l->e, LEAT_ERR_UNSUPPORTED,
                         "Unigram tokenizers are not supported yet");
    if (ev != JSON_OBJECT)
        return json_fail(l->p, l->e, LEAT_ERR_FORMAT, "the vocabulary is not an object");
    while ((ev = json_pull_next(l->p, l->e)) == JSON_KEY) {
        if (l->p->text_len > VOCAB_MAX_TOKEN)
            return json_fail(l->p, l->e, LEAT_ERR_FORMAT,
                             "a token is %zu bytes long; at most %d are accepted", l->p->text_len,
                             VOCAB_MAX_TOKEN);
        l->vocab_bytes += l->p->text_len;
        l->vocab_n++;
        int64_t id = -1;
        int rc = vocab_entry(l, &id);
        if (rc < 0)
            return rc;
        if (id > l->max_id)
            l->max_id = id;
    }
    l->has_vocab = true;
    return ev < 0 ? ev : 0;
}

static int count_merges(struct load *l)
{
    int ev = json_pull_next(l->p, l->e), depth = 1;
    if (ev < 0)
        return ev;
    if (ev != JSON_ARRAY)
        return json_fail(l->p, l->e, LEAT_ERR_FORMAT, "the merges are not a list");
    while (depth > 0) {
        ev = json_pull_next(l->p, l->e);
        if (ev < 0)
            return ev;
        if (ev == JSON_ARRAY)
            depth++;
        else if (ev == JSON_ARRAY_END)
            depth--;
        else if (ev != JSON_STRING)
            return json_fail(l->p, l->e, LEAT_ERR_FORMAT,
                             "a merge is not a text or a pair of texts");
        if (depth > 2)
            return json_fail(l->p, l->e, LEAT_ERR_FORMAT,
                             "a merge is not a text or a pair of texts");
        l->merges_n += (depth == 1 && ev == JSON_STRING) || (depth == 2 && ev == JSON_ARRAY);
    }
    l->has_merges = true;
    l->merges_first = !l->has_vocab;
    return 0;
}

static int model_type(struct load *l, const struct json_node *n)
{
    char q[120];
    if (n->kind == JSON_NULL || json_tree_is(n, "BPE"))
        return 0;
    if (n->kind != JSON_STRING)
        return fail(l, LEAT_ERR_FORMAT, "the model's type is not a text");
    if (json_tree_is(n, "WordPiece"))
        return fail(l, LEAT_ERR_UNSUPPORTED, "WordPiece tokenizers (BERT) are not supported yet");
    return fail(l, LEAT_ERR_UNSUPPORTED, "%s tokenizers are not supported yet",
                error_quote(q, sizeof q, n->text, n->text_n));
}

static int model_flag(struct load *l, const char *key, const struct json_node *n, bool *flag)
{
    if (n->kind == JSON_NULL)
        return 0;
    if (n->kind != JSON_TRUE && n->kind != JSON_FALSE)
        return fail(l, LEAT_ERR_FORMAT, "\"%s\" of the model is not true or false", key);
    *flag = n->kind == JSON_TRUE;
    return 0;
}

static int model_member(struct load *l, const char *key, const struct json_node *n)
{
    if (strcmp(key, "type") == 0)
        return model_type(l, n);
    if (strcmp(key, "fuse_unk") == 0)
        return model_flag(l, key, n, &l->fuse_unk);
    if (strcmp(key, "byte_fallback") == 0)
        return model_flag(l, key, n, &l->byte_fallback);
    if (strcmp(key, "ignore_merges") == 0)
        return model_flag(l, key, n, &l->ignore_merges);
    if (strcmp(key, "dropout") == 0 && n->kind != JSON_NULL &&
        !(n->kind == JSON_NUMBER && n->number == 0))
        return fail(l, LEAT_ERR_UNSUPPORTED,
                    "the model has a dropout, which makes encoding random: not supported");
    if (strcmp(key, "unk_token") == 0 && n->kind != JSON_NULL) {
        if (n->kind != JSON_STRING)
            return fail(l, LEAT_ERR_FORMAT, "\"unk_token\" of the model is not a text");
        l->unk = (struct json_node *)n;
    }
    if ((strcmp(key, "continuing_subword_prefix") == 0 || strcmp(key, "end_of_word_suffix") == 0) &&
        n->kind != JSON_NULL && !json_tree_is(n, ""))
        return fail(l, LEAT_ERR_UNSUPPORTED, "\"%s\" of the model is not empty: not supported",
                    key);
    return 0;
}

/* The model's object: vocabulary and merges by the given functions, the rest kept when first is
 * set. */
static int read_model(struct load *l, bool first, int (*vocab)(struct load *),
                      int (*merges)(struct load *))
{
    static const char *const kept =
        " type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
        "byte_fallback ignore_merges ";
    int ev = json_pull_next(l->p, l->e);
    if (ev < 0)
        return ev;
    if (ev != JSON_OBJECT)
        return json_fail(l->p, l->e, LEAT_ERR_FORMAT, "\"model\" is not an object");
    bool had_vocab = false, had_merges = false;
    while ((ev = json_pull_next(l->p, l->e)) == JSON_KEY) {
        char key[40], word[48];
        struct json_node *n;
        int rc;
        snprintf(key, sizeof key, "%s", l->p->text);
        snprintf(word, sizeof word, " %s ", key);
        const char *at = strchr(key, ' ') ? NULL : strstr(kept, word);
        bool is_vocab = strcmp(key, "vocab") == 0, is_merges = strcmp(key, "merges") == 0;
        if ((is_vocab && had_vocab) || (is_merges && had_merges))
            return json_fail(l->p, l->e, LEAT_ERR_FORMAT, "\"%s\" stands twice", key);
        had_vocab = had_vocab || is_vocab;
        had_merges = had_merges || is_merges;
        if (is_vocab) {
            rc = vocab(l);
        } else if (is_merges) {
            rc = merges(l);
        } else if (at && first) {
            rc = json_tree_read(l->p, &l->small, &n, l->e);
            rc = rc < 0 ? rc : model_member(l, key, n);
        } else {
            rc = json_skip(l->p, l->e);
        }
        if (rc < 0)
            return rc;
    }
    return ev < 0 ? ev : 0;
}

static int read_added(struct load *l)
{
    int ev = json_pull_next(l->p, l->e);
    if (ev < 0 || ev == JSON_NULL)
        return ev < 0 ? ev : 0;
    if (ev != JSON_ARRAY)
        return json_fail(l->p, l->e, LEAT_ERR_FORMAT, "\"added_tokens\" is not a list");
    while ((ev = json_pull_next(l->p, l->e)) == JSON_OBJECT) {
        struct token_extra *x =
            arena_alloc(&l->small, sizeof *x, _Alignof(struct token_extra), l->e);
        int rc = x ? token_extra_read(l->p, -1, &l->small, x, l->e) : LEAT_ERR_MEMORY;
        if (rc < 0)
            return rc;
        if (l->added_n == TOKENIZER_EXTRA)
            return json_fail(l->p, l->e, LEAT_ERR_UNSUPPORTED,
                             "more than %d added tokens are not supported", TOKENIZER_EXTRA);
        *l->added_tail = x;
        l->added_tail = &x->next;
        l->added_n++;
        l->added_bytes += x->content_n;
        if (x->id > l->max_id)
            l->max_id = x->id;
    }
    if (ev < 0)
        return ev;
    return ev == JSON_ARRAY_END
               ? 0
               : json_fail(l->p, l->e, LEAT_ERR_FORMAT, "an added token is not an object");
}

static int read_version(struct load *l)
{
    struct json_node *n;
    int rc = json_tree_read(l->p, &l->small, &n, l->e);
    if (rc < 0)
        return rc;
    return json_tree_is(n, "1.0") ? 0 : fail(l, LEAT_ERR_UNSUPPORTED, "\"version\" is not \"1.0\"");
}

static int survey_member(struct load *l, const char *key)
{
    const struct {
        const char *key;
        struct json_node **to;
    } trees[] = {{"normalizer", &l->normalizer},
                 {"pre_tokenizer", &l->pre_tokenizer},
                 {"post_processor", &l->post_processor},
                 {"decoder", &l->decoder}};
    for (size_t i = 0; i < 4; i++)
        if (strcmp(key, trees[i].key) == 0)
            return *trees[i].to ? json_fail(l->p, l->e, LEAT_ERR_FORMAT, "\"%s\" stands twice", key)
                                : json_tree_read(l->p, &l->small, trees[i].to, l->e);
    if (strcmp(key, "version") == 0)
        return read_version(l);
    if (strcmp(key, "added_tokens") == 0)
        return l->added ? json_fail(l->p, l->e, LEAT_ERR_FORMAT, "\"added_tokens\" stands twice")
                        : read_added(l);
    if (strcmp(key, "model") == 0) {
        if (l->has_model)
            return json_fail(l->p, l->e, LEAT_ERR_FORMAT, "\"model\" stands twice");
        l->has_model = true;
        return read_model(l, true, count_vocab, count_merges);
    }
    return json_skip(l->p, l->e);
}

/* Opens the file anew and hands each top-level member to one. */
static int read_top(struct load *l, int (*one)(struct load *, const char *key))
{
    struct json_file f;
    int rc = json_file_open(&f, l->file, FILE_BYTES, l->e);
    if (rc < 0)
        return rc;
    l->p = &f.pull;
    int ev = json_pull_next(l->p, l->e);
    if (ev >= 0 && ev != JSON_OBJECT)
        rc = json_fail(l->p, l->e, LEAT_ERR_FORMAT, "the file does not hold an object");
    while (ev >= 0 && rc == 0 && (ev = json_pull_next(l->p, l->e)) == JSON_KEY) {
        char key[40];
        snprintf(key, sizeof key, "%s", l->p->text);
        rc = one(l, key);
    }
    if (ev >= 0 && rc == 0)
        ev = json_pull_next(l->p, l->e); /* nothing may follow */
    json_file_close(&f);
    return rc < 0 ? rc : ev < 0 ? ev : 0;
}

/* --- second reading: vocabulary and merges --- */

static int fill_vocab(struct load *l)
{
    struct vocab *v = &l->t->vocab;
    char q[120], q2[120];
    int ev = json_pull_next(l->p, l->e);
    if (ev != JSON_OBJECT)
        return ev < 0 ? ev
                      : json_fail(l->p, l->e, LEAT_ERR_FILE, "the file changed while it was read");
    uint64_t count = 0;
    while ((ev = json_pull_next(l->p, l->e)) == JSON_KEY) {
        int64_t id = -1;
        l->left.n = 0;
        size_t n = l->p->text_len;
        int rc = text_buf_add(&l->left, l->p->text, n, l->e);
        rc = rc < 0 ? rc : vocab_entry(l, &id);
        if (rc < 0)
            return rc;
        if (++count > l->vocab_n || id >= v->n)
            return json_fail(l->p, l->e, LEAT_ERR_FILE, "the file changed while it was read");
        if (vocab_has(v, (int32_t)id)) {
            size_t m;
            const char *before = vocab_text(v, (int32_t)id, &m);
            return json_fail(
                l->p, l->e, LEAT_ERR_FORMAT, "tokens \"%s\" and \"%s\" both have id %" PRId64,
                error_quote(q, sizeof q, before, m), error_quote(q2, sizeof q2, l->left.p, n), id);
        }
        if (v->text_n + n + 3 > v->text_cap)
            return json_fail(l->p, l->e, LEAT_ERR_FILE, "the file changed while it was read");
        if (vocab_add(v, (int32_t)id, l->left.p, n))
            return json_fail(l->p, l->e, LEAT_ERR_FORMAT,
                             "token \"%s\" stands twice in the vocabulary",
                             error_quote(q, sizeof q, l->left.p, n));
    }
    return ev < 0 ? ev : 0;
}

static int merge_add(struct load *l, const char *left, size_t left_n, const char *right,
                     size_t right_n)
{
    const struct vocab *v = &l->t->vocab;
    char q[120], q2[120];
    l->joined.n = 0;
    int rc = text_buf_add(&l->joined, left, left_n, l->e);
    rc = rc < 0 ? rc : text_buf_add(&l->joined, right, right_n, l->e);
    if (rc < 0)
        return rc;
    int32_t a, b, result;
    vocab_find_pair(v, l->joined.p, left_n, right_n, &a, &b, &result);
    if (a < 0 || b < 0 || result < 0)
        return json_fail(l->p, l->e, LEAT_ERR_FORMAT,
                         "merge %u of \"%s\" and \"%s\" names a token that is not in the "
                         "vocabulary: %s",
                         l->t->merges.n, error_quote(q, sizeof q, left, left_n),
                         error_quote(q2, sizeof q2, right, right_n),
                         a < 0   ? "its left part"
                         : b < 0 ? "its right part"
                                 : "the joined one");
    if (l->t->merges.n == l->t->merges.cap)
        return json_fail(l->p, l->e, LEAT_ERR_FILE, "the file changed while it was read");
    merges_add(&l->t->merges, a, b, result, true);
    return 0;
}

/* "left right": exactly one space. */
static int merge_line(struct load *l)
{
    const char *s = l->p->text, *space = memchr(s, ' ', l->p->text_len);
    char q[120];
    size_t left_n = space ? (size_t)(space - s) : 0,
           right_n = space ? l->p->text_len - left_n - 1 : 0;
    if (l->p->text_len >= 8 && memcmp(s, "#version", 8) == 0)
        return 0;
    if (!left_n || !right_n || memchr(space + 1, ' ', right_n))
        return json_fail(l->p, l->e, LEAT_ERR_FORMAT,
                         "merge %u \"%s\" is not two parts with one space between", l->t->merges.n,
                         error_quote(q, sizeof q, s, l->p->text_len));
    return merge_add(l, s, left_n, space + 1, right_n);
}

/* ["left", "right"]; the opening was taken. */
static int merge_pair(struct load *l)
{
    for (int i = 0; i < 2; i++) {
        int ev = json_pull_next(l->p, l->e);
        if (ev < 0)
            return ev;
        if (ev != JSON_STRING)
            return json_fail(l->p, l->e, LEAT_ERR_FORMAT, "merge %u is not a pair of texts",
                             l->t->merges.n);
        l->left.n = i ? l->left.n : 0;
        int rc = i ? merge_add(l, l->left.p, l->left.n, l->p->text, l->p->text_len)
                   : text_buf_add(&l->left, l->p->text, l->p->text_len, l->e);
        if (rc < 0)
            return rc;
    }
    int ev = json_pull_next(l->p, l->e);
    if (ev < 0)
        return ev;
    return ev == JSON_ARRAY_END ? 0
                                : json_fail(l->p, l->e, LEAT_ERR_FORMAT,
                                            "merge %u is not a pair of texts", l->t->merges.n - 1);
}

static int fill_merges(struct load *l)
{
    int ev = json_pull_next(l->p, l->e);
    if (ev != JSON_ARRAY)
        return ev < 0 ? ev
                      : json_fail(l->p, l->e, LEAT_ERR_FILE, "the file changed while it was read");
    bool pairs = false, lines = false;
    while ((ev = json_pull_next(l->p, l->e)) == JSON_STRING || ev == JSON_ARRAY) {
        pairs = pairs || ev == JSON_ARRAY;
        lines = lines || ev == JSON_STRING;
        if (pairs && lines)
            return json_fail(l->p, l->e, LEAT_ERR_FORMAT, "the merges mix lines and pairs");
        int rc = pairs ? merge_pair(l) : merge_line(l);
        if (rc < 0)
            return rc;
    }
    return ev < 0 ? ev : 0;
}

static int skip_value(struct load *l)
{
    return json_skip(l->p, l->e);
}

static int fill_both(struct load *l, const char *key)
{
    if (strcmp(key, "model") != 0)
        return json_skip(l->p, l->e);
    return read_model(l, false, fill_vocab, l->merges_first ? skip_value : fill_merges);
}

static int fill_merges_only(struct load *l, const char *key)
{
    if (strcmp(key, "model") != 0)
        return json_skip(l->p, l->e);
    return read_model(l, false, skip_value, fill_merges);
}

/* --- added tokens --- */

static int added_place(struct load *l, const struct token_extra *x)
{
    struct vocab *v = &l->t->vocab;
    char q[120], q2[120];
    size_t n;
    int32_t id = vocab_find(v, x->content, x->content_n);
    error_quote(q, sizeof q, x->content, x->content_n);
    if (id >= 0 && id != x->id)
        return fail(l, LEAT_ERR_FORMAT,
                    "added token \"%s\" has id %d here and %d in the vocabulary", q, x->id, id);
    if (id < 0 && vocab_has(v, x->id)) {
        const char *s = vocab_text(v, x->id, &n);
        return fail(l, LEAT_ERR_FORMAT,
                    "added token \"%s\" has id %d, which is \"%s\" in the vocabulary", q, x->id,
                    error_quote(q2, sizeof q2, s, n));
    }
    if (id < 0)
        vocab_add(v, x->id, x->content, x->content_n);
    if (v->flags[x->id] & (TOKEN_CONTROL | TOKEN_USER_DEFINED))
        return fail(l, LEAT_ERR_FORMAT, "added token \"%s\" stands twice", q);
    v->flags[x->id] |= x->special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    return 0;
}

/* Entries of tokenizer_config.json that tokenizer.json does not have are added, as transformers
 * does. */
static int added_place_config(struct load *l)
{
    struct token_extra **tail = l->added_tail;
    for (struct token_extra *x = l->config.extra, *next; x; x = next) {
        next = x->next;
        x->next = NULL;
        if (vocab_has(&l->t->vocab, x->id) ||
            vocab_find(&l->t->vocab, x->content, x->content_n) >= 0)
            continue;
        int rc = added_place(l, x);
        if (rc < 0)
            return rc;
        *tail = x;
        tail = &x->next;
        l->added_n++;
    }
    return 0;
}

/* One token that is found in normalised text. */
static int added_normalized(struct load *l, const char *s, size_t n, int32_t id, uint32_t flags,
                            struct normalize_work *work, struct regex_work *regex)
{
    struct tokenizer *t = l->t;
    const char *changed = NULL;
    size_t m = 0;
    int rc = normalizer_run(&t->normalizer, work, regex, s, n, &changed, &m, l->e);
    if (rc < 0 || m == 0) /* normalised away: it never matches */
        return rc;
    if (m == n && memcmp(s, changed, n) == 0) {
        added_add(&t->added_normalized, s, n, id, flags);
        return 0;
    }
    changed = arena_copy(&t->arena, changed, m, l->e);
    if (!changed)
        return LEAT_ERR_MEMORY;
    added_add(&t->added_normalized, changed, m, id, flags);
    t->renamed[t->n_renamed++] = t->added_normalized.token[t->added_normalized.n - 1];
    if (m > t->vocab.longest)
        t->vocab.longest = m;
    return 0;
}

static int by_id(const void *a, const void *b)
{
    return (int)((const struct added_token *)a)->id - (int)((const struct added_token *)b)->id;
}

static int added_collect(struct load *l)
{
    struct tokenizer *t = l->t;
    struct normalize_work work = {0};
    struct regex_work regex = {0};
    uint32_t normalized = 0, n = (uint32_t)l->added_n;
    for (const struct token_extra *x = l->added; x && t->normalizer.n > 0; x = x->next)
        normalized += x->normalized;
    int rc = added_open(&t->added, &t->arena, n - normalized, l->e);
    rc = rc < 0 ? rc : added_open(&t->added_normalized, &t->arena, normalized, l->e);
    t->renamed = arena_array(&t->arena, normalized, sizeof *t->renamed, 8, l->e);
    if (rc == 0 && !t->renamed)
        rc = LEAT_ERR_MEMORY;
    for (const struct token_extra *x = l->added; x && rc == 0; x = x->next) {
        size_t len;
        const char *s = vocab_text(&t->vocab, x->id, &len);
        uint32_t flags = (x->lstrip ? ADDED_LSTRIP : 0u) | (x->rstrip ? ADDED_RSTRIP : 0u) |
                         (x->single_word ? ADDED_SINGLE_WORD : 0u) |
                         (t->vocab.flags[x->id] & TOKEN_CONTROL ? ADDED_SPECIAL : 0u);
        if (x->normalized && t->normalizer.n > 0)
            rc = added_normalized(l, s, len, x->id, flags, &work, &regex);
        else
            added_add(&t->added, s, len, x->id, flags);
    }
    if (t->n_renamed)
        qsort(t->renamed, t->n_renamed, sizeof *t->renamed, by_id);
    normalize_work_free(&work);
    regex_work_free(&regex);
    return rc;
}

/* --- all of it --- */

static int rules_read(struct load *l)
{
    struct tokenizer *t = l->t;
    char q[120];
    t->bpe.merges = &t->merges;
    t->bpe.fuse_unknown = l->fuse_unk;
    t->bpe.byte_fallback = l->byte_fallback;
    t->bpe.ignore_merges = l->ignore_merges;
    t->bpe.skip_unknown = true;
    if (l->unk) {
        t->bpe.unknown = vocab_find(&t->vocab, l->unk->text, l->unk->text_n);
        if (t->bpe.unknown < 0)
            return fail(l, LEAT_ERR_FORMAT, "unk_token \"%s\" is not in the vocabulary",
                        error_quote(q, sizeof q, l->unk->text, l->unk->text_n));
        t->vocab.flags[t->bpe.unknown] |= TOKEN_UNKNOWN;
    }
    int rc = tokenizer_parse_normalizer(t, l->normalizer, l->path, l->e);
    rc = rc < 0 ? rc : tokenizer_parse_splitter(t, l->pre_tokenizer, l->path, l->e);
    rc = rc < 0 ? rc : tokenizer_parse_post(t, l->post_processor, l->path, l->e);
    rc = rc < 0 ? rc : tokenizer_parse_decoder(t, l->decoder, l->path, l->e);
    if (rc < 0)
        return rc;
    bool letters = false;
    for (int i = 0; i < t->splitter.n; i++)
        letters = letters || t->splitter.step[i].kind == SPLIT_BYTE_LEVEL;
    for (int i = 0; i < t->normalizer.n; i++)
        letters = letters || t->normalizer.step[i].kind == NORMALIZE_BYTE_LEVEL;
    if (!l->decoder || l->decoder->kind == JSON_NULL) {
        t->decode = letters ? DECODE_BYTES : DECODE_TEXT;
        t->note = letters ? "the file names no decoder: byte-level is assumed"
                          : "the file names no decoder: tokens are joined as they are spelled";
    }
    t->kind = letters || t->decode == DECODE_BYTES ? "bpe" : "spm";
    return 0;
}

static int load_all(struct load *l)
{
    struct tokenizer *t = l->t;
    int rc = read_top(l, survey_member);
    if (rc < 0)
        return rc;
    if (!l->has_model || !l->has_vocab || !l->has_merges)
        return fail(l, LEAT_ERR_FORMAT, "the file has no %s",
                    !l->has_model   ? "\"model\""
                    : !l->has_vocab ? "vocabulary"
                                    : "merges");
    if (l->vocab_n == 0)
        return fail(l, LEAT_ERR_FORMAT, "the vocabulary is empty");
    /* A token of n bytes can be joined in n - 1 ways; a few lines of comment may stand between. */
    if (l->merges_n > l->vocab_bytes + 16)
        return fail(l, LEAT_ERR_FORMAT,
                    "%" PRIu64 " merges are more than a vocabulary of %" PRIu64 " bytes can have",
                    l->merges_n, l->vocab_bytes);
    for (const struct token_extra *x = l->config.extra; x; x = x->next)
        if (x->id > l->max_id)
            l->max_id = x->id;
    int32_t n = (int32_t)l->max_id + 1;
    uint64_t count = l->vocab_n + l->added_n + l->config.extra_n;
    rc = vocab_open(&t->vocab, &t->arena, n, count < (uint64_t)n ? (int32_t)count : n,
                    l->vocab_bytes + l->added_bytes + l->config.extra_bytes, false, l->e);
    rc = rc < 0 ? rc : merges_open(&t->merges, &t->arena, l->merges_n, l->e);
    rc = rc < 0 ? rc : read_top(l, fill_both);
    if (rc == 0 && l->merges_first)
        rc = read_top(l, fill_merges_only);
    for (const struct token_extra *x = l->added; x && rc == 0; x = x->next)
        rc = added_place(l, x);
    rc = rc < 0 ? rc : added_place_config(l);
    rc = rc < 0 ? rc : rules_read(l);
    rc = rc < 0 ? rc : folder_config_apply(&l->config, t, l->path, l->e);
    if (rc < 0)
        return rc;
    stop_set_by_spelling(t, true);
    stop_set_finish(t);
    int bytes = t->bpe.byte_fallback || t->decode_byte_tokens ? tokenizer_find_bytes(t) : 0;
    rc = added_collect(l);
    return rc < 0 ? rc
                  : tokenizer_finish(
                        t, t->bpe.byte_fallback && bytes == 256 && !t->bpe.ignore_merges, l->e);
}

static bool exists(const char *folder, const char *name)
{
    char path[4200];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && lstat(path, &st) == 0; /* a dead link fails later */
}

/* A folder without tokenizer.json: say what it has instead. */
static int folder_refuse(struct load *l, const char *folder)
{
    static const char *const others[] = {"tokenizer.model", "spiece.model", "tekken.json",
                                         "vocab.json", "vocab.txt"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (exists(folder, others[i]))
            return fail(
                l, LEAT_ERR_UNSUPPORTED,
                "the folder has %s but no tokenizer.json, which is the form that is read; save "
                "the tokenizer with transformers (AutoTokenizer ... save_pretrained) to make one",
                others[i]);
    return fail(l, LEAT_ERR_FILE, "the folder has no tokenizer.json");
}

int tokenizer_open_json(const char *path, struct ledger *ledger, struct tokenizer **out,
                        struct leat_error *e)
{
    struct load l = {.e = e, .file = path, .max_id = -1};
    char file[4200];
    struct stat st;
    *out = NULL;
    l.added_tail = &l.added;
    l.config = (struct folder_config){.add_bos = -1, .add_eos = -1, .bos_id = -1};
    error_quote(l.path, sizeof l.path, path, strlen(path));
    arena_init(&l.small, ledger, ROW_TOKENIZER);
    int rc = tokenizer_new(ledger, &l.t, e);
    if (rc == 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        int n = snprintf(file, sizeof file, "%s/tokenizer.json", path);
        if (n < 0 || (size_t)n >= sizeof file)
            rc = fail(&l, LEAT_ERR_FILE, "the path is too long");
        else if (!exists(path, "tokenizer.json"))
            rc = folder_refuse(&l, path);
        else
            rc = folder_config_read(path, &l.small, &l.config, e);
        l.file = file;
        error_quote(l.path, sizeof l.path, file, strlen(file));
    }
    rc = rc < 0 ? rc : load_all(&l);
    text_buf_free(&l.left);
    text_buf_free(&l.joined);
    arena_close(&l.small);
    if (rc < 0) {
        tokenizer_close(l.t);
        return rc;
    }
    *out = l.t;
    return 0;
}
