/* Files: tokenizers from GGUF keys and from folders, their rules and defaults, and everything that
 * must be refused (G40 and J5 of ../shared/MALFORMED.md). The GGUF files are written here, byte by
 * byte, by the format's specification. */
#include "text_unit.h"

/* --- a small GGUF writer --- */

struct writer {
    unsigned char bytes[1 << 16];
    size_t n;
    uint64_t keys;
};

static void put(struct writer *w, const void *p, size_t n)
{
    assert_true(w->n + n <= sizeof w->bytes);
    memcpy(w->bytes + w->n, p, n);
    w->n += n;
}

static void put32(struct writer *w, uint32_t v)
{
    unsigned char b[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
                          (unsigned char)(v >> 24)};
    put(w, b, 4);
}

static void put64(struct writer *w, uint64_t v)
{
    put32(w, (uint32_t)v);
    put32(w, (uint32_t)(v >> 32));
}

static void put_string(struct writer *w, const char *s)
{
    put64(w, strlen(s));
    put(w, s, strlen(s));
}

static void key(struct writer *w, const char *name, uint32_t type)
{
    put_string(w, name);
    put32(w, type);
    w->keys++;
}

static void key_string(struct writer *w, const char *name, const char *value)
{
    key(w, name, 8);
    put_string(w, value);
}

static void key_u32(struct writer *w, const char *name, uint32_t value)
{
    key(w, name, 4);
    put32(w, value);
}

static void key_bool(struct writer *w, const char *name, bool value)
{
    unsigned char b = value;
    key(w, name, 7);
    put(w, &b, 1);
}

static void key_strings(struct writer *w, const char *name, const char *const *values, size_t n)
{
    key(w, name, 9);
    put32(w, 8);
    put64(w, n);
    for (size_t i = 0; i < n; i++)
        put_string(w, values[i]);
}

static void key_floats(struct writer *w, const char *name, const float *values, size_t n)
{
    key(w, name, 9);
    put32(w, 6);
    put64(w, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &values[i], 4);
        put32(w, u);
    }
}

static void key_ints(struct writer *w, const char *name, const int *values, size_t n)
{
    key(w, name, 9);
    put32(w, 5);
    put64(w, n);
    for (size_t i = 0; i < n; i++)
        put32(w, (uint32_t)values[i]);
}

static void gguf_begin(struct writer *w)
{
    memset(w, 0, sizeof *w);
    put(w, "GGUF", 4);
    put32(w, 3);
    put64(w, 0);
    put64(w, 0); /* keys, later */
    key_string(w, "general.architecture", "llama");
}

static const char *gguf_end(struct writer *w)
{
    const char *path = scratch_file("vocab.gguf");
    for (int i = 0; i < 8; i++)
        w->bytes[16 + i] = (unsigned char)(w->keys >> 8 * i);
    write_file(path, w->bytes, w->n);
    return path;
}

static int gguf_open_end(struct writer *w, struct opened *o, struct leat_error *e)
{
    return open_any(o, gguf_end(w), e);
}

/* --- the two small vocabularies --- */

#define MARK "\u2581"

static const char *const spm_tokens[] = {"<unk>", "<s>", "</s>", "<0x0A>",       "<0x41>", MARK,
                                         "a",     "b",   "ab",   MARK "a",       "<t>",    "<u>",
                                         "ba",    "c",   "abc",  "<end_of_turn>"};
static const float spm_scores[] = {0, 0, 0, 0, 0, -5, -6, -7, -1, -2, 0, 0, -3, -8, -4, 0};
static const int spm_types[] = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 4, 5, 1, 1, 1, 1};
#define SPM_N 16

struct spm {
    const char *model;
    size_t tokens, scores, types; /* entries written */
    const char *token7;
    float score7;
    int type7;
};

static void spm_write(struct writer *w, const struct spm *s)
{
    const char *tokens[SPM_N];
    float scores[SPM_N];
    int types[SPM_N];
    memcpy(tokens, spm_tokens, sizeof tokens);
    memcpy(scores, spm_scores, sizeof scores);
    memcpy(types, spm_types, sizeof types);
    if (s->token7)
        tokens[7] = s->token7;
    if (s->score7 != 0)
        scores[7] = s->score7;
    if (s->type7)
        types[7] = s->type7;
    gguf_begin(w);
    if (s->model)
        key_string(w, "tokenizer.ggml.model", s->model);
    if (s->tokens)
        key_strings(w, "tokenizer.ggml.tokens", tokens, s->tokens);
    if (s->scores)
        key_floats(w, "tokenizer.ggml.scores", scores, s->scores);
    if (s->types)
        key_ints(w, "tokenizer.ggml.token_type", types, s->types);
}

static const struct spm spm_good = {
    .model = "llama", .tokens = SPM_N, .scores = SPM_N, .types = SPM_N};

static void expect(const struct tokenizer *t, const char *text, uint32_t flags, const char *want)
{
    struct token_list l = {0};
    struct leat_error e = {0};
    char got[200] = "";
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &l, &e), 0);
    for (size_t i = 0; i < l.n; i++) {
        size_t n = strlen(got);
        snprintf(got + n, sizeof got - n, "%s%d", i ? " " : "", l.ids[i]);
    }
    assert_string_equal(got, want);
    token_list_free(&l);
}

static void test_spm_rules(void **state)
{
    (void)state;
    struct writer w;
    struct opened o;
    struct leat_error e;
    spm_write(&w, &spm_good);
    assert_int_equal(gguf_open_end(&w, &o, &e), 0);
    /* defaults of the llama kind: BOS 1, EOS 2, unknown 0, BOS added, a space in front */
    assert_string_equal(tokenizer_kind(o.t), "spm");
    assert_int_equal(tokenizer_size(o.t), SPM_N);
    assert_int_equal(tokenizer_bos(o.t), 1);
    assert_int_equal(tokenizer_eos(o.t), 2);
    assert_true(tokenizer_adds_bos(o.t) && !tokenizer_adds_eos(o.t));
    expect(o.t, "", ENCODE_ADD_SPECIAL, "1");
    expect(o.t, "", 0, "");
    expect(o.t, "a", 0, "9");
    expect(o.t, "ab", 0, "5 8");     /* ab (-1) before _a (-2) */
    expect(o.t, "abc", 0, "5 14");   /* ab and c make abc, which _ cannot join */
    expect(o.t, "aba", 0, "5 8 6");  /* ab on the left first, then nothing joins a */
    expect(o.t, "A\n", 0, "5 4 3");  /* byte tokens */
    expect(o.t, "\u00e9", 0, "5 0"); /* no byte tokens for it: unknown */
    expect(o.t, "<t>a", 0, "10 9");  /* user defined: always found, and a space after it */
    expect(o.t, "a<s>a", ENCODE_SPECIAL, "9 1 9");
    expect(o.t, "<s>a", ENCODE_SPECIAL | ENCODE_ADD_SPECIAL, "1 9"); /* BOS once */
    expect(o.t, "<u>", 0, "5 0 0 0"); /* unused tokens never come out of text */
    /* ends: EOS, and by its spelling a token whose type says nothing */
    assert_true(tokenizer_is_end(o.t, 2) && tokenizer_is_end(o.t, 15));
    assert_false(tokenizer_is_end(o.t, 1) || tokenizer_is_end(o.t, 14) ||
                 tokenizer_is_end(o.t, -1) || tokenizer_is_end(o.t, 1000));
    assert_int_equal(tokenizer_flags(o.t, 15), TOKEN_END | TOKEN_CONTROL);
    assert_int_equal(tokenizer_flags(o.t, 0), TOKEN_UNKNOWN);
    assert_int_equal(tokenizer_flags(o.t, 11), TOKEN_UNUSED);
    assert_int_equal(tokenizer_find(o.t, "ab", 2), 8);
    assert_int_equal(tokenizer_find(o.t, "zz", 2), -1);
    assert_null(tokenizer_spelling(o.t, SPM_N, NULL));
    close_any(&o);
}

static void test_spm_keys(void **state)
{
    (void)state;
    struct writer w;
    struct opened o;
    struct leat_error e;
    spm_write(&w, &spm_good);
    key_bool(&w, "tokenizer.ggml.add_space_prefix", false);
    key_bool(&w, "tokenizer.ggml.add_bos_token", false);
    key_bool(&w, "tokenizer.ggml.add_eos_token", true);
    key_u32(&w, "tokenizer.ggml.eos_token_id", 13);
    key_u32(&w, "tokenizer.ggml.eot_token_id", 12);
    int suppressed[] = {7};
    key_ints(&w, "tokenizer.ggml.suppress_tokens", suppressed, 1);
    assert_int_equal(gguf_open_end(&w, &o, &e), 0);
    expect(o.t, "a", ENCODE_ADD_SPECIAL, "6 13");
    assert_true(tokenizer_is_end(o.t, 13) && tokenizer_is_end(o.t, 12) && tokenizer_is_end(o.t, 2));
    assert_int_equal(tokenizer_flags(o.t, 7), TOKEN_NEVER);
    close_any(&o);
}

/* --- a byte-level one --- */

static const char *const bpe_tokens[] = {"a",     "b",          "\u0120", "ab", "\u0120ab",
                                         "<|x|>", "<|im_end|>", "1",      "12"};
static const char *const bpe_merges[] = {"a b", "\u0120 ab", "1 2"};

static void bpe_write(struct writer *w, const char *pre, const char *const *merges, size_t n_merges)
{
    static const int types[] = {1, 1, 1, 1, 1, 4, 1, 1, 1};
    const char *tokens[10];
    memcpy(tokens, bpe_tokens, sizeof bpe_tokens);
    tokens[9] = "2";
    int ten[10];
    memcpy(ten, types, sizeof types);
    ten[9] = 1;
    gguf_begin(w);
    key_string(w, "tokenizer.ggml.model", "gpt2");
    if (pre)
        key_string(w, "tokenizer.ggml.pre", pre);
    key_strings(w, "tokenizer.ggml.tokens", tokens, 10);
    key_ints(w, "tokenizer.ggml.token_type", ten, 10);
    if (merges)
        key_strings(w, "tokenizer.ggml.merges", merges, n_merges);
    key_u32(w, "tokenizer.ggml.eos_token_id", 5);
}

static void test_bpe_rules(void **state)
{
    (void)state;
    struct writer w;
    struct opened o;
    struct leat_error e;
    bpe_write(&w, "gpt-2", bpe_merges, 3);
    assert_int_equal(gguf_open_end(&w, &o, &e), 0);
    assert_string_equal(tokenizer_kind(o.t), "bpe");
    assert_string_equal(tokenizer_pre(o.t), "gpt-2");
    assert_string_equal(tokenizer_note(o.t), "");
    assert_int_equal(tokenizer_bos(o.t), -1); /* the default, 11, is past this vocabulary */
    assert_false(tokenizer_adds_bos(o.t));
    expect(o.t, "ab ab", 0, "3 4");
    expect(o.t, "ab<|x|> ab", 0, "3 5 4");
    expect(o.t, "ab<|im_end|>", ENCODE_SPECIAL, "3 6");
    expect(o.t, "12", 0, "8");
    expect(o.t, "azb", 0,
           "0 1"); /* what no token covers is left out, and keeps its neighbours apart */
    assert_true(tokenizer_is_end(o.t, 6) && tokenizer_is_end(o.t, 5));
    close_any(&o);

    bpe_write(&w, "qwen2", bpe_merges, 3);
    assert_int_equal(gguf_open_end(&w, &o, &e), 0);
    expect(o.t, "12", 0, "7 9"); /* single digits */
    close_any(&o);

    bpe_write(&w, NULL, bpe_merges, 3);
    assert_int_equal(gguf_open_end(&w, &o, &e), 0);
    assert_string_equal(tokenizer_pre(o.t), "default");
    assert_non_null(strstr(tokenizer_note(o.t), "pre-tokenizer"));
    close_any(&o);
}

/* Gemma 4: BPE on characters, a mark for a space, pieces cut at newlines, runs of newlines whole.
 */
static void test_gemma4_rules(void **state)
{
    static const char *const tokens[] = {"<pad>",  "<eos>",  "<bos>",  "a",    "b",
                                         MARK,     MARK "a", "\n",     "\n\n", "ab",
                                         "<0xC3>", "<0xA9>", MARK MARK};
    static const char *const merges[] = {MARK " a", "a b", MARK " " MARK};
    static const int types[] = {3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 6, 6, 1};
    (void)state;
    struct writer w;
    struct opened o;
    struct leat_error e;
    gguf_begin(&w);
    key_string(&w, "tokenizer.ggml.model", "gemma4");
    key_strings(&w, "tokenizer.ggml.tokens", tokens, 13);
    key_ints(&w, "tokenizer.ggml.token_type", types, 13);
    key_strings(&w, "tokenizer.ggml.merges", merges, 3);
    key_u32(&w, "tokenizer.ggml.bos_token_id", 2);
    key_u32(&w, "tokenizer.ggml.eos_token_id", 1);
    key_bool(&w, "tokenizer.ggml.add_bos_token", false);
    assert_int_equal(gguf_open_end(&w, &o, &e), 0);
    assert_string_equal(tokenizer_pre(o.t), "gemma4");
    expect(o.t, "a ab", ENCODE_ADD_SPECIAL, "2 3 6 4"); /* BOS in any case */
    expect(o.t, "a\n\nb", 0, "3 8 4");
    expect(o.t, "\n\n\n", 0, "7 7 7"); /* the run is no token, and no merge joins newlines */
    expect(o.t, "\u00e9  ", 0, "10 11 12");
    expect(o.t, "\u00ea", 0, ""); /* a byte of it has no token */
    struct detokenizer d;
    char text[200];
    assert_true(8 + tokenizer_longest(o.t) <= sizeof text);
    detokenizer_init(&d, o.t, false, true);
    assert_int_equal(detokenizer_feed(&d, 6, text, sizeof text), 2);
    assert_memory_equal(text, " a", 2);
    assert_int_equal(detokenizer_feed(&d, 10, text, sizeof text), 0);
    assert_int_equal(detokenizer_feed(&d, 11, text, sizeof text), 2);
    assert_memory_equal(text, "\u00e9", 2);
    close_any(&o);
}

/* --- refusals --- */

static void refuses(struct writer *w, int code, const char *says)
{
    struct opened o;
    struct leat_error e;
    int rc = gguf_open_end(w, &o, &e);
    if (rc != code || !strstr(e.message, says) || !strstr(e.message, "vocab.gguf"))
        fprintf(stderr, "wanted %d \"%s\", got %d \"%s\"\n", code, says, rc, e.message);
    assert_int_equal(rc, code);
    assert_non_null(strstr(e.message, says));
    close_any(&o);
}

static void test_gguf_refused(void **state)
{
    (void)state;
    struct writer w;
    struct spm s;
#define SPM(...) (s = spm_good, __VA_ARGS__, spm_write(&w, &s))
    SPM(s.model = NULL);
    refuses(&w, LEAT_ERR_UNSUPPORTED, "holds no tokenizer");
    static const char *const kinds[][2] = {{"bert", "WordPiece"},    {"t5", "Unigram"},
                                           {"rwkv", "RWKV"},         {"plamo2", "PLaMo"},
                                           {"none", "no tokenizer"}, {"no_vocab", "no tokenizer"},
                                           {"new\x1b", "new\\x1b"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        SPM(s.model = kinds[i][0]);
        refuses(&w, LEAT_ERR_UNSUPPORTED, kinds[i][1]);
    }
    SPM(s.tokens = 0);
    refuses(&w, LEAT_ERR_FORMAT, "tokenizer.ggml.tokens' is missing");
    SPM(s.scores = 0);
    refuses(&w, LEAT_ERR_FORMAT, "tokenizer.ggml.scores' is missing");
    SPM(s.scores = SPM_N - 1);
    refuses(&w, LEAT_ERR_FORMAT, "has 15 entries for 16 tokens");
    SPM(s.types = SPM_N - 2);
    refuses(&w, LEAT_ERR_FORMAT, "has 14 entries for 16 tokens");
    SPM(s.tokens = SPM_N - 1);
    refuses(&w, LEAT_ERR_FORMAT, "has 16 entries for 15 tokens");
    SPM(s.token7 = "\xc3(");
    refuses(&w, LEAT_ERR_FORMAT, "token 7 \"\\xc3(\" is not UTF-8");
    SPM(s.score7 = (float)(0.0 / 0.0));
    refuses(&w, LEAT_ERR_FORMAT, "score of token 7");
    SPM(s.type7 = 7);
    refuses(&w, LEAT_ERR_FORMAT, "token 7 is of type 7");
    SPM(s.type7 = -1);
    refuses(&w, LEAT_ERR_FORMAT, "token 7 is of type -1");

    static const char *const ids[] = {"bos",       "eos", "unknown", "padding", "eot",    "eom",
                                      "seperator", "cls", "mask",    "fim_pre", "fim_pad"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char name[80];
        snprintf(name, sizeof name, "tokenizer.ggml.%s_token_id", ids[i]);
        SPM(s.model = "llama");
        key_u32(&w, name, SPM_N);
        refuses(&w, LEAT_ERR_FORMAT, "is 16, past the vocabulary of 16 tokens");
        SPM(s.model = "llama");
        key_u32(&w, name, UINT32_MAX);
        refuses(&w, LEAT_ERR_FORMAT, "past the vocabulary");
        SPM(s.model = "llama");
        key_string(&w, name, "1");
        refuses(&w, LEAT_ERR_FORMAT, name);
    }
    int bad_id[] = {3, SPM_N};
    SPM(s.model = "llama");
    key_ints(&w, "tokenizer.ggml.suppress_tokens", bad_id, 2);
    refuses(&w, LEAT_ERR_FORMAT, "suppress_tokens' names token 16 of 16");
    SPM(s.model = "llama");
    key_u32(&w, "tokenizer.ggml.add_bos_token", 1);
    refuses(&w, LEAT_ERR_FORMAT, "add_bos_token");

    /* arrays of the wrong kind */
    gguf_begin(&w);
    key_string(&w, "tokenizer.ggml.model", "llama");
    key_ints(&w, "tokenizer.ggml.tokens", spm_types, SPM_N);
    refuses(&w, LEAT_ERR_FORMAT, "not an array of strings");
    gguf_begin(&w);
    key_string(&w, "tokenizer.ggml.model", "llama");
    key_u32(&w, "tokenizer.ggml.tokens", 3);
    refuses(&w, LEAT_ERR_FORMAT, "is not an array");
    spm_write(&w, &(struct spm){.model = "llama", .tokens = SPM_N});
    key_strings(&w, "tokenizer.ggml.scores", spm_tokens, SPM_N);
    refuses(&w, LEAT_ERR_FORMAT, "tokenizer.ggml.scores");

    /* merges */
    bpe_write(&w, "gpt-2", NULL, 0);
    refuses(&w, LEAT_ERR_FORMAT, "tokenizer.ggml.merges' is missing");
    static const char *const bad_merges[][2] = {{"ab", "not two parts"}, {"", "not two parts"},
                                                {" a", "not two parts"}, {"a zz", "right part"},
                                                {"zz a", "left part"},   {"b a", "the joined one"},
                                                {"a ", "right part"}};
    for (size_t i = 0; i < sizeof bad_merges / sizeof *bad_merges; i++) {
        bpe_write(&w, "gpt-2", &bad_merges[i][0], 1);
        refuses(&w, LEAT_ERR_FORMAT, bad_merges[i][1]);
    }
    static const char *many[100];
    for (size_t i = 0; i < 100; i++)
        many[i] = "a b";
    bpe_write(&w, "gpt-2", many, 100);
    refuses(&w, LEAT_ERR_FORMAT, "100 merges are more than 10 tokens can have");
    bpe_write(&w, "no-such\n", bpe_merges, 3);
    refuses(&w, LEAT_ERR_UNSUPPORTED, "pre-tokenizer 'no-such\\x0a'");
    bpe_write(&w, "", bpe_merges, 3);
    refuses(&w, LEAT_ERR_UNSUPPORTED, "pre-tokenizer ''");
}

/* --- tokenizer.json --- */

/* A whole file around the parts that a test changes; %s: added tokens, rules, the model's options,
 * vocabulary, merges. */
static const char *json_file(const char *added, const char *rules, const char *options,
                             const char *vocab, const char *merges)
{
    const char *path = scratch_file("tokenizer.json");
    char text[8192];
    int n = snprintf(text, sizeof text,
                     "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[%"
                     "s],%s\"model\":{\"type\":\"BPE\",%s"
                     "\"vocab\":{%s},\"merges\":[%s]}}",
                     added, rules, options, vocab, merges);
    assert_true(n > 0 && (size_t)n < sizeof text);
    write_file(path, text, (size_t)n);
    return path;
}

#define VOCAB                    "\"a\":0,\"b\":1,\"ab\":2,\"c\":3"
#define MERGES                   "[\"a\",\"b\"]"
#define ADDED(id, content, more) "{\"id\":" #id ",\"content\":\"" content "\"" more "}"

static void json_refuses(const char *path, int code, const char *says)
{
    struct opened o;
    struct leat_error e;
    int rc = open_any(&o, path, &e);
    if (rc != code || !strstr(e.message, says))
        fprintf(stderr, "wanted %d \"%s\", got %d \"%s\"\n", code, says, rc, rc ? e.message : "");
    assert_int_equal(rc, code);
    assert_non_null(strstr(e.message, says));
    for (const char *p = e.message; *p; p++)
        assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
    close_any(&o);
}

static void json_text_refuses(const char *text, int code, const char *says)
{
    const char *path = scratch_file("tokenizer.json");
    write_file(path, text, strlen(text));
    json_refuses(path, code, says);
}

static void test_json_rules(void **state)
{
    (void)state;
    struct opened o;
    struct leat_error e;
    /* ids with a hole: 4 and 5 do not exist */
    assert_int_equal(
        open_any(&o, json_file(ADDED(6, "<x>", ",\"special\":true"), "", "", VOCAB, MERGES), &e),
        0);
    assert_int_equal(tokenizer_size(o.t), 7);
    assert_null(tokenizer_spelling(o.t, 4, NULL));
    assert_int_equal(tokenizer_piece(o.t, 4, true, NULL, 0), 0);
    assert_int_equal(tokenizer_flags(o.t, 6), TOKEN_CONTROL);
    expect(o.t, "ab<x>", ENCODE_SPECIAL, "2 6");
    expect(o.t, "ab<x>", 0, "2");
    assert_non_null(strstr(tokenizer_note(o.t), "decoder"));
    close_any(&o);
    /* merges before the vocabulary, keys sorted as some writers do */
    const char *path = scratch_file("tokenizer.json");
    const char *sorted = "{\"model\":{\"merges\":[\"a b\"],\"type\":\"BPE\",\"vocab\":{" VOCAB
                         "}},\"version\":\"1.0\"}";
    write_file(path, sorted, strlen(sorted));
    assert_int_equal(open_any(&o, path, &e), 0);
    expect(o.t, "abc", 0, "2 3");
    close_any(&o);
    /* a comment line of merges.txt is no merge; later rules for one pair win */
    assert_int_equal(open_any(&o, json_file("", "", "", VOCAB, "\"#version: 0.2\",\"a b\""), &e),
                     0);
    expect(o.t, "ab", 0, "2");
    close_any(&o);
}

static void test_json_refused(void **state)
{
    (void)state;
    struct opened o;
    struct leat_error e;
    /* not JSON, not a tokenizer */
    json_text_refuses("", LEAT_ERR_FORMAT, "tokenizer.json");
    json_text_refuses("[]", LEAT_ERR_FORMAT, "does not hold an object");
    json_text_refuses("{\"model\":", LEAT_ERR_FORMAT, "tokenizer.json");
    json_text_refuses("{} x", LEAT_ERR_FORMAT, "tokenizer.json");
    json_text_refuses("{}", LEAT_ERR_FORMAT, "no \"model\"");
    json_text_refuses("{\"model\":{}}", LEAT_ERR_FORMAT, "no vocabulary");
    json_text_refuses("{\"model\":{\"vocab\":{\"a\":0}}}", LEAT_ERR_FORMAT, "no merges");
    json_text_refuses("{\"model\":{\"vocab\":{},\"merges\":[]}}", LEAT_ERR_FORMAT, "empty");
    json_text_refuses("{\"model\":3}", LEAT_ERR_FORMAT, "not an object");
    json_text_refuses("{\"version\":\"2.0\"}", LEAT_ERR_UNSUPPORTED, "version");
    json_text_refuses("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", LEAT_ERR_UNSUPPORTED,
                      "WordPiece tokenizers (BERT) are not");
    json_text_refuses("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", LEAT_ERR_UNSUPPORTED,
                      "Unigram");
    json_text_refuses("{\"model\":{\"vocab\":[[\"a\",-1.5]]}}", LEAT_ERR_UNSUPPORTED, "Unigram");
    json_text_refuses("{\"model\":{\"type\":\"Wor\\u0000d\",\"vocab\":{}}}", LEAT_ERR_UNSUPPORTED,
                      "Wor\\x00d");
    json_text_refuses("{\"model\":{\"vocab\":{},\"vocab\":{}}}", LEAT_ERR_FORMAT, "stands twice");
    json_text_refuses("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"model\":{}}",
                      LEAT_ERR_FORMAT, "stands twice");
    json_text_refuses("{\"normalizer\":null,\"normalizer\":null}", LEAT_ERR_FORMAT, "stands twice");

    /* vocabulary */
    static const char *const vocabs[][2] = {{"\"a\":0,\"b\":0", "both have id 0"},
                                            {"\"a\":0,\"a\":1", "stands twice"},
                                            {"\"a\":-1", "not an id"},
                                            {"\"a\":1.5", "not an id"},
                                            {"\"a\":1e0", "not an id"},
                                            {"\"a\":\"0\"", "not an id"},
                                            {"\"a\":null", "not an id"},
                                            {"\"a\":{}", "not an id"},
                                            {"\"a\":99999999999999999999", "not an id"}};
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++)
        json_refuses(json_file("", "", "", vocabs[i][0], ""), LEAT_ERR_FORMAT, vocabs[i][1]);
    json_refuses(json_file("", "", "", "\"a\":2147483647", ""), LEAT_ERR_UNSUPPORTED, "ids below");
    json_refuses(json_file("", "", "", "\"a\":2097151", ""), LEAT_ERR_UNSUPPORTED, "ids below");
    assert_int_equal(open_any(&o, json_file("", "", "", "\"a\":2097150", ""), &e),
                     0); /* the largest */
    expect(o.t, "a", 0, "2097150");
    close_any(&o);

    /* merges */
    static const char *const merges[][2] = {{"[\"a\",\"z\"]", "its right part"},
                                            {"[\"z\",\"a\"]", "its left part"},
                                            {"[\"b\",\"a\"]", "the joined one"},
                                            {"\"ab\"", "not two parts"},
                                            {"\"a b c\"", "not two parts"},
                                            {"\" b\"", "not two parts"},
                                            {"\"a \"", "not two parts"},
                                            {"[\"a\"]", "not a pair"},
                                            {"[\"a\",\"b\",\"c\"]", "not a pair"},
                                            {"[\"a\",1]", "a merge is not"},
                                            {"3", "a merge is not"},
                                            {"[[\"a\",\"b\"]]", "a merge is not"},
                                            {"\"a b\",[\"a\",\"b\"]", "mix"},
                                            {"{}", "a merge is not"}};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        json_refuses(json_file("", "", "", VOCAB, merges[i][0]), LEAT_ERR_FORMAT, merges[i][1]);

    char many[600] = "\"a b\"";
    for (int i = 0; i < 40; i++)
        strcat(many, ",\"a b\"");
    json_refuses(json_file("", "", "", VOCAB, many), LEAT_ERR_FORMAT, "41 merges are more than");

    /* added tokens */
    static const char *const added[][2] = {
        {ADDED(1, "<x>", ""), "has id 1, which is \"b\""},
        {ADDED(5, "a", ""), "has id 5 here and 0"},
        {ADDED(5, "<x>", "") "," ADDED(6, "<x>", ""), "has id 6 here and 5"},
        {ADDED(5, "<x>", "") "," ADDED(5, "<y>", ""), "has id 5, which is \"<x>\""},
        {ADDED(5, "<x>", "") "," ADDED(5, "<x>", ""), "stands twice"},
        {ADDED(5, "", ""), "not a text"},
        {ADDED(-1, "<x>", ""), "not an id"},
        {ADDED("5", "<x>", ""), "not an id"},
        {"{\"content\":\"<x>\"}", "without \"id\""},
        {"{\"id\":5}", "without \"content\""},
        {ADDED(5, "<x>", ",\"special\":1"), "not true or false"},
        {ADDED(5, "<x>", ",\"content\":\"<y>\""), "twice"},
        {"7", "not an object"},
    };
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        json_refuses(json_file(added[i][0], "", "", VOCAB, MERGES), LEAT_ERR_FORMAT, added[i][1]);
    json_refuses(json_file(ADDED(2097151, "<x>", ""), "", "", VOCAB, MERGES), LEAT_ERR_UNSUPPORTED,
                 "ids below");

    /* the model's options */
    json_refuses(json_file("", "", "\"dropout\":0.1,", VOCAB, MERGES), LEAT_ERR_UNSUPPORTED,
                 "dropout");
    json_refuses(json_file("", "", "\"unk_token\":\"<unk>\",", VOCAB, MERGES), LEAT_ERR_FORMAT,
                 "unk_token \"<unk>\"");
    json_refuses(json_file("", "", "\"unk_token\":3,", VOCAB, MERGES), LEAT_ERR_FORMAT,
                 "unk_token");
    json_refuses(json_file("", "", "\"fuse_unk\":3,", VOCAB, MERGES), LEAT_ERR_FORMAT, "fuse_unk");
    json_refuses(json_file("", "", "\"end_of_word_suffix\":\"</w>\",", VOCAB, MERGES),
                 LEAT_ERR_UNSUPPORTED, "end_of_word");
    json_refuses(json_file("", "", "\"continuing_subword_prefix\":\"##\",", VOCAB, MERGES),
                 LEAT_ERR_UNSUPPORTED, "continuing");
}

#define REGEX(r)                                                                                   \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" r                                              \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"

static void test_json_parts_refused(void **state)
{
    static const struct {
        const char *rules;
        int code;
        const char *says;
    } rows[] = {
        {"\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA==\"},",
         LEAT_ERR_UNSUPPORTED, "\"Precompiled\" is not"},
        {"\"normalizer\":{\"type\":\"BertNormalizer\"},", LEAT_ERR_UNSUPPORTED, "BertNormalizer"},
        {"\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"New\"}]},",
         LEAT_ERR_UNSUPPORTED, "\"New\""},
        {"\"normalizer\":{\"type\":\"Sequence\"},", LEAT_ERR_FORMAT, "Sequence"},
        {"\"normalizer\":[],", LEAT_ERR_FORMAT, "not an object"},
        {"\"normalizer\":{},", LEAT_ERR_FORMAT, "\"type\" is missing"},
        {"\"normalizer\":{\"type\":\"Prepend\"},", LEAT_ERR_FORMAT, "prepend"},
        {"\"normalizer\":{\"type\":\"Replace\",\"content\":\"x\",\"pattern\":{\"String\":\"\"}},",
         LEAT_ERR_FORMAT, "empty"},
        {"\"normalizer\":{\"type\":\"Replace\",\"content\":\"x\",\"pattern\":\"y\"},",
         LEAT_ERR_FORMAT, "pattern"},
        {"\"normalizer\":{\"type\":\"Replace\",\"content\":\"x\",\"pattern\":{\"Regex\":\"(\"}},",
         LEAT_ERR_UNSUPPORTED, "regular"},
        {"\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"},", LEAT_ERR_UNSUPPORTED,
         "UnicodeScripts"},
        {"\"pre_tokenizer\":" REGEX("\\\\p{Nope}") ",", LEAT_ERR_UNSUPPORTED, "regular expression"},
        {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":"
         "\"Eaten\"},",
         LEAT_ERR_FORMAT, "behavior"},
        {"\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}},", LEAT_ERR_FORMAT,
         "behavior"},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"},", LEAT_ERR_FORMAT,
         "one character"},
        {"\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
         "\"often\"},",
         LEAT_ERR_FORMAT, "prepend_scheme"},
        {"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":\"yes\"},", LEAT_ERR_FORMAT,
         "use_regex"},
        {"\"post_processor\":{\"type\":\"Other\"},", LEAT_ERR_UNSUPPORTED, "\"Other\""},
        {"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]},", LEAT_ERR_FORMAT,
         "no place for the text"},
        {"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
         "\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],"
         "\"special_tokens\":{\"x\":{\"ids\":[77]}}},",
         LEAT_ERR_FORMAT, "token 77"},
        {"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
         "\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}]},",
         LEAT_ERR_FORMAT, "no ids"},
        {"\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"a\"]},", LEAT_ERR_FORMAT,
         "cls"},
        {"\"decoder\":{\"type\":\"WordPiece\"},", LEAT_ERR_UNSUPPORTED, "WordPiece"},
        {"\"decoder\":{\"type\":\"CTC\"},", LEAT_ERR_UNSUPPORTED, "CTC"},
        {"\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0},",
         LEAT_ERR_FORMAT, "Strip"},
        {"\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":"
         "\"Replace\",\"pattern\":{\"String\":\"_\"},"
         "\"content\":\" \"}]},",
         LEAT_ERR_FORMAT, "Replace"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        json_refuses(json_file("", rows[i].rules, "", VOCAB, MERGES), rows[i].code, rows[i].says);
    char deep[4096] = "{\"normalizer\":";
    for (int i = 0; i < 200; i++)
        strcat(deep, "{\"a\":");
    json_text_refuses(deep, LEAT_ERR_FORMAT, "tokenizer.json");
}

/* --- folders --- */

static void folder_file(const char *folder, const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (text)
        write_file(path, text, strlen(text));
    else
        unlink(path);
}

static void folder_refuses(const char *folder, const char *name, const char *text, int code,
                           const char *says)
{
    folder_file(folder, name, text);
    json_refuses(folder, code, says);
    folder_file(folder, name, NULL);
}

static void test_folder(void **state)
{
    (void)state;
    struct opened o;
    struct leat_error e;
    const char *folder = scratch_folder("model");
    json_refuses(folder, LEAT_ERR_FILE, "the folder has no tokenizer.json");
    folder_refuses(folder, "tokenizer.model", "x", LEAT_ERR_UNSUPPORTED,
                   "has tokenizer.model but no tokenizer.json");
    folder_refuses(folder, "vocab.json", "{}", LEAT_ERR_UNSUPPORTED,
                   "has vocab.json but no tokenizer.json");
    /* clang-format off */
    folder_file(folder, "tokenizer.json",
                "{\"added_tokens\":["
                ADDED(4, "<s>", ",\"special\":true") "," ADDED(5, "</s>", ",\"special\":true") ","
                ADDED(6, "<e>", ",\"special\":true") "," ADDED(7, "<|return|>", "") ","
                ADDED(8, "<|call|>", "") "," ADDED(9, "<|end|>", "") "],"
                "\"decoder\":{\"type\":\"Fuse\"},"
                "\"model\":{\"type\":\"BPE\",\"vocab\":{" VOCAB "},\"merges\":[" MERGES "]}}");
    /* clang-format on */
    /* alone: nothing goes around a text, ends by spelling; <|end|> is none beside <|return|> and
     * <|call|> */
    assert_int_equal(open_any(&o, folder, &e), 0);
    assert_int_equal(tokenizer_bos(o.t), -1);
    expect(o.t, "a", ENCODE_ADD_SPECIAL, "0");
    assert_true(tokenizer_is_end(o.t, 5) && tokenizer_is_end(o.t, 7) && tokenizer_is_end(o.t, 8));
    assert_false(tokenizer_is_end(o.t, 9) || tokenizer_is_end(o.t, 6));
    close_any(&o);
    /* every file has its word: the union of all ends */
    folder_file(folder, "tokenizer_config.json",
                "{\"add_bos_token\":true,\"bos_token\":{\"content\":\"<s>\",\"lstrip\":false},"
                "\"chat_template\":\"{{ x }}\","
                "\"eos_token\":\"</"
                "s>\",\"added_tokens_decoder\":{\"10\":{\"content\":\"<late>\",\"special\":true},"
                "\"4\":{\"content\":\"<s>\",\"special\":true}}}");
    folder_file(folder, "generation_config.json", "{\"eos_token_id\":[6,300]}");
    folder_file(folder, "config.json",
                "{\"text_config\":{\"eos_token_id\":1,\"layers\":[{}]},\"bos_token_id\":2}");
    assert_int_equal(open_any(&o, folder, &e), 0);
    assert_int_equal(tokenizer_bos(o.t), 4);
    assert_int_equal(tokenizer_eos(o.t), 5);
    expect(o.t, "a", ENCODE_ADD_SPECIAL, "4 0");
    expect(o.t, "a<late>", ENCODE_SPECIAL, "0 10");
    assert_true(tokenizer_is_end(o.t, 5) && tokenizer_is_end(o.t, 6) && tokenizer_is_end(o.t, 1) &&
                tokenizer_is_end(o.t, 300));
    assert_false(tokenizer_is_end(o.t, 2) || tokenizer_is_end(o.t, 301));
    close_any(&o);
    /* the file alone, beside the same neighbours */
    char file[700];
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    assert_int_equal(open_any(&o, file, &e), 0);
    assert_false(tokenizer_adds_bos(o.t) || tokenizer_is_end(o.t, 6));
    close_any(&o);
    /* malformed neighbours */
    folder_refuses(folder, "tokenizer_config.json", "{\"add_bos_token\":1}", LEAT_ERR_FORMAT,
                   "tokenizer_config.json");
    folder_refuses(folder, "tokenizer_config.json", "{\"bos_token\":7}", LEAT_ERR_FORMAT,
                   "bos_token");
    folder_refuses(folder, "tokenizer_config.json", "{\"bos_token\":\"<no>\"}", LEAT_ERR_FORMAT,
                   "\"<no>\" is not in the vocabulary");
    folder_file(folder, "config.json", "{}");
    folder_refuses(folder, "tokenizer_config.json", "{\"add_bos_token\":true}", LEAT_ERR_FORMAT,
                   "no bos_token is named");
    folder_refuses(folder, "tokenizer_config.json",
                   "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}", LEAT_ERR_FORMAT,
                   "not an id");
    folder_refuses(folder, "tokenizer_config.json",
                   "{\"added_tokens_decoder\":{\"99999999999999999999\":{\"content\":\"y\"}}}",
                   LEAT_ERR_FORMAT, "not an id");
    folder_refuses(folder, "generation_config.json", "{\"eos_token_id\":\"6\"}", LEAT_ERR_FORMAT,
                   "eos_token_id");
    folder_refuses(folder, "generation_config.json", "{\"eos_token_id\":[6,-1]}", LEAT_ERR_FORMAT,
                   "eos_token_id");
    folder_refuses(folder, "generation_config.json", "{", LEAT_ERR_FORMAT,
                   "generation_config.json");
    folder_refuses(folder, "config.json", "[]", LEAT_ERR_FORMAT, "config.json");
    folder_refuses(folder, "special_tokens_map.json", "{\"eos_token\":[]}", LEAT_ERR_FORMAT,
                   "eos_token");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spm_rules),    cmocka_unit_test(test_spm_keys),
        cmocka_unit_test(test_bpe_rules),    cmocka_unit_test(test_gemma4_rules),
        cmocka_unit_test(test_gguf_refused), cmocka_unit_test(test_json_rules),
        cmocka_unit_test(test_json_refused), cmocka_unit_test(test_json_parts_refused),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
