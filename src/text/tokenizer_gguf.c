/* A tokenizer from the keys of a GGUF file: tokenizer.ggml.model llama (SentencePiece BPE by
 * scores), gpt2 (byte-level BPE with a named pre-tokenizer) and gemma4 (BPE on characters); the
 * others are refused by name. Keys and defaults: docs/tokenizers.md. Reads arrays through one
 * window each; one thread. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "../base/utf8.h"
#include "pre_table.h"
#include "tokenizer_internal.h"

#define KEY  "tokenizer.ggml."
#define MARK "\xe2\x96\x81" /* U+2581 */

struct load {
    const struct gguf *g;
    struct tokenizer *t;
    const struct pre_row *pre;
    char path[400]; /* quoted */
    struct leat_error *e;
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

/* The array at key with n elements (n < 0: any number): 1, 0 absent, negative. */
static int array_find(struct load *l, const char *key, int64_t n, const struct gguf_kv **out)
{
    const struct gguf_kv *kv = gguf_find(l->g, key);
    if (!kv)
        return 0;
    if (kv->type != GGUF_ARRAY)
        return fail(l, LEAT_ERR_FORMAT, "key '%s' is not an array", key);
    if (n >= 0 && kv->count != (uint64_t)n)
        return fail(l, LEAT_ERR_FORMAT, "key '%s' has %" PRIu64 " entries for %" PRId64 " tokens",
                    key, kv->count, n);
    *out = kv;
    return 1;
}

/* --- vocabulary --- */

static int token_read(struct load *l, int32_t id, const char *text, size_t len)
{
    char q[120];
    if (len > VOCAB_MAX_TOKEN)
        return fail(l, LEAT_ERR_FORMAT, "token %d is %zu bytes long; at most %d are accepted", id,
                    len, VOCAB_MAX_TOKEN);
    uint32_t c;
    for (size_t i = 0; i < len;) {
        int k = utf8_next(text + i, len - i, &c);
        if (k == 0)
            return fail(l, LEAT_ERR_FORMAT, "token %d \"%s\" is not UTF-8", id,
                        error_quote(q, sizeof q, text, len));
        i += (size_t)k;
    }
    vocab_store(&l->t->vocab, id, text, len);
    return 0;
}

static int tokens_read(struct load *l, bool scores)
{
    const struct gguf_kv *kv = NULL;
    struct gguf_array r;
    int rc = array_find(l, KEY "tokens", -1, &kv);
    if (rc < 0)
        return rc;
    if (rc == 0 || kv->count == 0)
        return fail(l, LEAT_ERR_FORMAT,
                    "the file has a tokenizer but no tokens: key '" KEY "tokens' is %s",
                    rc ? "empty" : "missing");
    if (kv->elem != GGUF_STRING)
        return fail(l, LEAT_ERR_FORMAT, "key '" KEY "tokens' is not an array of strings");
    if (kv->count > VOCAB_MAX_IDS)
        return fail(l, LEAT_ERR_UNSUPPORTED,
                    "a vocabulary of %" PRIu64 " tokens; at most %d are supported", kv->count,
                    VOCAB_MAX_IDS);
    int32_t n = (int32_t)kv->count;
    rc = vocab_open(&l->t->vocab, &l->t->arena, n, n, kv->end - kv->offset - 8 * kv->count, scores,
                    l->e);
    rc = rc < 0 ? rc : gguf_array_open(l->g, kv, &r, l->e);
    if (rc < 0)
        return rc;
    const char *text;
    size_t len;
    for (int32_t id = 0; id < n && rc >= 0; id++) {
        rc = gguf_array_string(&r, &text, &len, l->e);
        if (rc > 0)
            rc = token_read(l, id, text, len);
    }
    gguf_array_close(&r);
    if (rc >= 0)
        vocab_index(&l->t->vocab);
    return rc < 0 ? rc : 0;
}

static int scores_read(struct load *l)
{
    struct vocab *v = &l->t->vocab;
    const struct gguf_kv *kv = NULL;
    struct gguf_array r;
    int rc = array_find(l, KEY "scores", v->n, &kv);
    if (rc <= 0)
        return rc < 0 ? rc
                      : fail(l, LEAT_ERR_FORMAT,
                             "a llama-type tokenizer needs scores: key '" KEY "scores' is missing");
    rc = gguf_array_open(l->g, kv, &r, l->e);
    if (rc < 0)
        return rc;
    for (int32_t id = 0; id < v->n && rc >= 0; id++) {
        double score = 0;
        rc = gguf_array_float(&r, &score, l->e);
        v->score[id] = (float)score;
        if (rc >= 0 && isnan(score))
            rc = fail(l, LEAT_ERR_FORMAT, "the score of token %d is not a number", id);
    }
    gguf_array_close(&r);
    return rc < 0 ? rc : 0;
}

/* Types by number: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte (0: not said).
 */
static int types_read(struct load *l)
{
    static const uint8_t flags[] = {
        0, 0, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE};
    struct vocab *v = &l->t->vocab;
    const struct gguf_kv *kv = NULL;
    struct gguf_array r;
    int rc = array_find(l, KEY "token_type", v->n, &kv);
    if (rc <= 0)
        return rc;
    rc = gguf_array_open(l->g, kv, &r, l->e);
    if (rc < 0)
        return rc;
    for (int32_t id = 0; id < v->n && rc >= 0; id++) {
        int64_t type = 0;
        rc = gguf_array_int(&r, &type, l->e);
        if (rc < 0)
            break;
        if (type < 0 || type > 6)
            rc = fail(l, LEAT_ERR_FORMAT, "token %d is of type %" PRId64 "; types are 1 to 6", id,
                      type);
        else
            v->flags[id] = flags[type];
    }
    gguf_array_close(&r);
    return rc < 0 ? rc : 0;
}

/* "left right", cut at the first space behind the first byte. */
static int merge_read(struct load *l, uint64_t rank, const char *text, size_t len,
                      struct text_buf *joined)
{
    const struct vocab *v = &l->t->vocab;
    char q[120];
    const char *space = len > 1 ? memchr(text + 1, ' ', len - 1) : NULL;
    if (!space)
        return fail(l, LEAT_ERR_FORMAT,
                    "merge %" PRIu64 " \"%s\" is not two parts with a space between", rank,
                    error_quote(q, sizeof q, text, len));
    size_t left_n = (size_t)(space - text), right_n = len - left_n - 1;
    joined->n = 0;
    int rc = text_buf_add(joined, text, left_n, l->e);
    rc = rc < 0 ? rc : text_buf_add(joined, space + 1, right_n, l->e);
    if (rc < 0)
        return rc;
    int32_t left, right, result;
    vocab_find_pair(v, joined->p, left_n, right_n, &left, &right, &result);
    if (left < 0 || right < 0 || result < 0)
        return fail(l, LEAT_ERR_FORMAT,
                    "merge %" PRIu64 " \"%s\" names a token that is not in the vocabulary: %s",
                    rank, error_quote(q, sizeof q, text, len),
                    left < 0    ? "its left part"
                    : right < 0 ? "its right part"
                                : "the joined one");
    merges_add(&l->t->merges, left, right, result, false);
    return 0;
}

static int merges_read(struct load *l)
{
    const struct gguf_kv *kv = NULL;
    struct gguf_array r;
    struct text_buf joined = {0};
    int rc = array_find(l, KEY "merges", -1, &kv);
    if (rc <= 0)
        return rc < 0 ? rc
                      : fail(l, LEAT_ERR_FORMAT,
                             "a BPE tokenizer needs merges: key '" KEY "merges' is missing");
    if (kv->count > l->t->vocab.text_n) /* a token of n bytes can be joined in n - 1 ways */
        return fail(l, LEAT_ERR_FORMAT, "%" PRIu64 " merges are more than %d tokens can have",
                    kv->count, l->t->vocab.n);
    rc = merges_open(&l->t->merges, &l->t->arena, kv->count, l->e);
    rc = rc < 0 ? rc : gguf_array_open(l->g, kv, &r, l->e);
    if (rc < 0)
        return rc;
    const char *text;
    size_t len;
    for (uint64_t i = 0; i < kv->count && rc >= 0; i++) {
        rc = gguf_array_string(&r, &text, &len, l->e);
        if (rc > 0)
            rc = merge_read(l, i, text, len, &joined);
    }
    gguf_array_close(&r);
    text_buf_free(&joined);
    l->t->bpe.merges = &l->t->merges;
    return rc < 0 ? rc : 0;
}

/* --- ids and rules --- */

/* Key absent: *id keeps its default, or -1 when that is past the vocabulary. */
static int id_read(struct load *l, const char *name, int32_t *id)
{
    char key[64];
    uint64_t u = 0;
    snprintf(key, sizeof key, KEY "%s_token_id", name);
    int rc = gguf_get_u64(l->g, key, UINT64_MAX, &u, l->e);
    if (rc < 0)
        return rc;
    if (rc > 0 && u >= (uint64_t)l->t->vocab.n)
        return fail(l, LEAT_ERR_FORMAT, "key '%s' is %" PRIu64 ", past the vocabulary of %d tokens",
                    key, u, l->t->vocab.n);
    if (rc > 0)
        *id = (int32_t)u;
    else if (*id >= l->t->vocab.n)
        *id = -1;
    return 0;
}

static int suppressed_read(struct load *l)
{
    const struct gguf_kv *kv = NULL;
    struct gguf_array r;
    int rc = array_find(l, KEY "suppress_tokens", -1, &kv);
    if (rc <= 0)
        return rc;
    rc = gguf_array_open(l->g, kv, &r, l->e);
    if (rc < 0)
        return rc;
    for (uint64_t i = 0; i < kv->count && rc >= 0; i++) {
        int64_t id = -1;
        rc = gguf_array_int(&r, &id, l->e);
        if (rc < 0)
            break;
        if (!vocab_has(&l->t->vocab, id < 0 || id > INT32_MAX ? -1 : (int32_t)id))
            rc = fail(l, LEAT_ERR_FORMAT,
                      "key '" KEY "suppress_tokens' names token %" PRId64 " of %d", id,
                      l->t->vocab.n);
        else
            l->t->vocab.flags[id] |= TOKEN_NEVER;
    }
    gguf_array_close(&r);
    return rc < 0 ? rc : 0;
}

static int ids_read(struct load *l)
{
    struct tokenizer *t = l->t;
    bool spm = !t->bpe.merges;
    bool add_bos = spm || (l->pre && l->pre->add_bos), add_eos = false;
    int32_t ignored = -1, eot = -1, eom = -1, fim[3] = {-1, -1, -1};
    static const char *const others[] = {"seperator", "padding", "cls",    "mask",   "fim_pre",
                                         "fim_suf",   "fim_mid", "prefix", "suffix", "middle"};
    t->bos = spm ? 1 : l->pre && l->pre->no_bos_default ? -1 : 11;
    t->eos = spm ? 2 : 11;
    t->bpe.unknown = spm ? 0 : -1;
    int rc = id_read(l, "bos", &t->bos);
    rc = rc < 0 ? rc : id_read(l, "eos", &t->eos);
    rc = rc < 0 ? rc : id_read(l, "unknown", &t->bpe.unknown);
    rc = rc < 0 ? rc : id_read(l, "eot", &eot);
    rc = rc < 0 ? rc : id_read(l, "eom", &eom);
    rc = rc < 0 ? rc : id_read(l, "fim_pad", &fim[0]);
    rc = rc < 0 ? rc : id_read(l, "fim_rep", &fim[1]);
    rc = rc < 0 ? rc : id_read(l, "fim_sep", &fim[2]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        rc = rc < 0 ? rc : id_read(l, others[i], &ignored);
    rc = rc < 0 ? rc : gguf_get_bool(l->g, KEY "add_bos_token", &add_bos, l->e);
    rc = rc < 0 ? rc : gguf_get_bool(l->g, KEY "add_eos_token", &add_eos, l->e);
    rc = rc < 0 ? rc : suppressed_read(l);
    if (rc < 0)
        return rc;
    if (strcmp(t->pre, "gemma4") == 0)
        add_bos = true;
    if (!spm)
        t->bpe.unknown = -1; /* a byte-level BPE leaves out what it does not know */
    if (add_bos && t->bos >= 0)
        t->prefix[t->n_prefix++] = t->bos;
    if (add_eos && t->eos >= 0)
        t->suffix[t->n_suffix++] = t->eos;
    stop_set_by_spelling(t, false);
    stop_set_add(t, t->eos);
    stop_set_add(t, eot);
    stop_set_add(t, eom);
    for (int i = 0; i < 3; i++)
        stop_set_add(t, fim[i]);
    stop_set_finish(t);
    return 0;
}

static bool contains(const char *s, size_t n, const char *part)
{
    return memmem(s, n, part, strlen(part)) != NULL;
}

/* White space around tokens is not in the file: the reference knows two families by name. */
static uint32_t strip_flags(const struct load *l, bool phi3, const char *s, size_t n)
{
    if (l->pre && l->pre->mask_lstrip && n == 6 && memcmp(s, "<mask>", 6) == 0)
        return ADDED_LSTRIP;
    bool plain = (n == 5 && memcmp(s, "<unk>", 5) == 0) || (n == 3 && memcmp(s, "<s>", 3) == 0) ||
                 (n == 13 && memcmp(s, "<|endoftext|>", 13) == 0);
    return phi3 && !plain ? ADDED_RSTRIP : 0;
}

static bool is_phi3(const struct load *l)
{
    const struct gguf_kv *kv = gguf_find(l->g, "general.name");
    char name[4097];
    if (!kv || kv->type != GGUF_STRING || !kv->str || kv->count >= sizeof name)
        return false;
    for (uint64_t i = 0; i < kv->count; i++)
        name[i] = (char)tolower((unsigned char)kv->str[i]);
    return contains(name, (size_t)kv->count, "phi-3") || contains(name, (size_t)kv->count, "phi3");
}

static int added_collect(struct load *l)
{
    struct tokenizer *t = l->t;
    const uint8_t wanted = TOKEN_CONTROL | TOKEN_USER_DEFINED | TOKEN_UNKNOWN;
    uint32_t count = 0;
    size_t n;
    for (int32_t id = 0; id < t->vocab.n; id++)
        count += (t->vocab.flags[id] & wanted) != 0;
    int rc = added_open(&t->added, &t->arena, count, l->e);
    bool phi3 = is_phi3(l);
    for (int32_t id = 0; rc == 0 && id < t->vocab.n; id++) {
        uint8_t f = t->vocab.flags[id];
        const char *s = vocab_text(&t->vocab, id, &n);
        if (!(f & wanted) || n == 0)
            continue;
        if ((f & TOKEN_CONTROL) && contains(s, n, "unused"))
            t->vocab.flags[id] |= TOKEN_NEVER;
        added_add(&t->added, s, n, id,
                  strip_flags(l, phi3, s, n) |
                      (f & (TOKEN_CONTROL | TOKEN_UNKNOWN) ? ADDED_SPECIAL : 0u));
    }
    return rc;
}

/* --- the three kinds --- */

static int step_add(struct load *l, enum normalize_kind kind, const char *pattern,
                    const char *content)
{
    struct normalize_step s = {.kind = kind,
                               .pattern = pattern,
                               .pattern_n = strlen(pattern),
                               .content = content,
                               .content_n = strlen(content)};
    return normalizer_add(&l->t->normalizer, &s, l->path, l->e);
}

static void decode_marks(struct tokenizer *t)
{
    t->decode = DECODE_TEXT;
    t->mark = MARK;
    t->mark_n = strlen(MARK);
    t->mark_text = " ";
    t->mark_text_n = 1;
    t->decode_byte_tokens = true;
}

static int open_spm(struct load *l)
{
    struct tokenizer *t = l->t;
    bool prefix = true;
    int rc = tokens_read(l, true);
    rc = rc < 0 ? rc : scores_read(l);
    rc = rc < 0 ? rc : types_read(l);
    rc = rc < 0 ? rc : gguf_get_bool(l->g, KEY "add_space_prefix", &prefix, l->e);
    if (rc >= 0 && prefix)
        rc = step_add(l, NORMALIZE_PREPEND, "", MARK);
    rc = rc < 0 ? rc : step_add(l, NORMALIZE_REPLACE, " ", MARK);
    if (rc < 0)
        return rc;
    t->kind = "spm";
    t->strip = prefix ? STRIP_ONE_SPACE : STRIP_NONE;
    t->bpe.byte_fallback = true;
    tokenizer_find_bytes(t);
    decode_marks(t);
    return 0;
}

static int pre_find_key(struct load *l, const char *default_name)
{
    const char *name = NULL;
    size_t n = 0;
    char q[120];
    int rc = gguf_get_str(l->g, KEY "pre", &l->t->arena, &name, &n, l->e);
    if (rc < 0)
        return rc;
    if (rc == 0 && !default_name) {
        l->pre = pre_default();
        l->t->pre = "default";
        l->t->note = "the file names no pre-tokenizer (tokenizer.ggml.pre): the default one splits "
                     "the text, and tokens "
                     "may differ from the model's own";
        return 0;
    }
    if (rc == 0) {
        name = default_name;
        n = strlen(name);
    }
    l->pre = pre_find(name, n);
    if (!l->pre)
        return fail(l, LEAT_ERR_UNSUPPORTED,
                    "pre-tokenizer '%s' (key '" KEY "pre') is not known to this build",
                    error_quote(q, sizeof q, name, n));
    l->t->pre = name;
    return 0;
}

static int open_bpe(struct load *l, bool gemma4)
{
    struct tokenizer *t = l->t;
    int rc = pre_find_key(l, gemma4 ? "gemma4" : NULL);
    rc = rc < 0 ? rc : tokens_read(l, false);
    rc = rc < 0 ? rc : types_read(l);
    rc = rc < 0 ? rc : merges_read(l);
    if (rc < 0)
        return rc;
    const struct pre_pattern *p = pre_pattern_find(l->pre->pattern);
    bool text = p->marks_space || p->plain;
    if (p->marks_space)
        rc = step_add(l, NORMALIZE_REPLACE, " ", MARK);
    rc = rc < 0 ? rc : pre_pattern_open(p, l->path, &t->splitter, l->e);
    struct split_step letters = {.kind = SPLIT_BYTE_LEVEL};
    if (rc == 0 && !text)
        rc = splitter_add(&t->splitter, &letters, l->path, l->e);
    if (rc < 0)
        return rc;
    t->kind = "bpe";
    t->bpe.ignore_merges = l->pre->ignore_merges;
    t->bpe.whole_newlines = strcmp(t->pre, "gemma4") == 0;
    t->decode = DECODE_BYTES;
    if (text) {
        decode_marks(t);
        if (p->plain)
            t->mark = NULL;
        t->bpe.byte_fallback = true;
        tokenizer_find_bytes(t);
    }
    return 0;
}

static int kind_refuse(struct load *l, const char *model, size_t n)
{
    static const struct {
        const char *model, *what;
    } known[] = {
        {"bert", "WordPiece tokenizers (BERT) are not supported yet"},
        {"t5", "Unigram tokenizers (T5) are not supported yet"},
        {"rwkv", "RWKV tokenizers are not supported yet"},
        {"plamo2", "PLaMo tokenizers are not supported yet"},
        {"none", "the file holds no tokenizer (its kind is 'none')"},
        {"no_vocab", "the file holds no tokenizer (its kind is 'no_vocab')"},
    };
    char q[120];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].model) == n && memcmp(known[i].model, model, n) == 0)
            return fail(l, LEAT_ERR_UNSUPPORTED, "%s", known[i].what);
    return fail(l, LEAT_ERR_UNSUPPORTED,
                "tokenizer kind '%s' (key '" KEY "model') is not known to this build",
                error_quote(q, sizeof q, model, n));
}

static int load_all(struct load *l)
{
    const char *model = NULL;
    size_t n = 0;
    int rc = gguf_get_str(l->g, KEY "model", &l->t->arena, &model, &n, l->e);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return fail(l, LEAT_ERR_UNSUPPORTED,
                    "the file holds no tokenizer: key '" KEY "model' is missing");
    bool spm = n == 5 && memcmp(model, "llama", 5) == 0,
         gemma4 = n == 6 && memcmp(model, "gemma4", 6) == 0;
    bool gpt2 = n == 4 && memcmp(model, "gpt2", 4) == 0;
    if (!spm && !gemma4 && !gpt2)
        return kind_refuse(l, model, n);
    rc = spm ? open_spm(l) : open_bpe(l, gemma4);
    rc = rc < 0 ? rc : ids_read(l);
    rc = rc < 0 ? rc : added_collect(l);
    return rc < 0 ? rc
                  : tokenizer_finish(l->t, l->t->decode == DECODE_TEXT && !l->t->bpe.ignore_merges,
                                     l->e);
}

int tokenizer_open_gguf(const struct gguf *g, struct ledger *ledger, struct tokenizer **out,
                        struct leat_error *e)
{
    struct load l = {.g = g, .e = e};
    *out = NULL;
    const char *path = file_path(g->file);
    error_quote(l.path, sizeof l.path, path, strlen(path));
    int rc = tokenizer_new(ledger, &l.t, e);
    rc = rc < 0 ? rc : load_all(&l);
    if (rc < 0) {
        tokenizer_close(l.t);
        return rc;
    }
    *out = l.t;
    return 0;
}
