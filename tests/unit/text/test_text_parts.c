/* The parts of the text room one by one: repair of UTF-8, the byte alphabet, regular expressions,
 * normalizers, splitting, added tokens, vocabulary, merging. Expected values are from the Unicode
 * Standard, from the papers' own examples, or follow from the definitions. */
#include "text_unit.h"

#include "../../../src/base/clock.h"
#include "../../../src/text/added.h"
#include "../../../src/text/bpe.h"
#include "../../../src/text/normalize.h"
#include "../../../src/text/split.h"
#include "../../../src/text/unicode.h"

#define BAD "\xef\xbf\xbd"

static void repairs_to(const char *text, size_t n, const char *want)
{
    struct text_buf b = {0};
    int rc = unicode_repair(text, n, &b, NULL);
    if (!want) {
        assert_int_equal(rc, 0);
    } else {
        assert_int_equal(rc, 1);
        assert_int_equal(b.n, strlen(want));
        assert_memory_equal(b.p, want, b.n);
    }
    text_buf_free(&b);
}

/* Unicode 15, section 3.9, tables 3-8 to 3-11: U+FFFD for each maximal subpart. */
static void test_repair(void **state)
{
    (void)state;
    repairs_to("", 0, NULL);
    repairs_to("a\0\xc3\xa9\xf4\x8f\xbf\xbf", 8, NULL);
    repairs_to("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", 9, BAD BAD BAD BAD BAD BAD BAD BAD "A");
    repairs_to("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", 9, BAD BAD BAD BAD BAD BAD BAD BAD "A");
    repairs_to("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", 9, BAD BAD BAD BAD BAD "A" BAD BAD "B");
    repairs_to("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", 9, BAD BAD BAD BAD "A");
    repairs_to("\xf0\x9f\x98", 3, BAD);
    repairs_to("ok\xf0\x9f\x98\x80\xe4\xbd", 8, "ok\xf0\x9f\x98\x80" BAD);
}

/* GPT-2: printable Latin-1 stands for itself, the other 68 bytes follow from U+0100. */
static void test_byte_alphabet(void **state)
{
    (void)state;
    int next = 0;
    for (int b = 0; b < 256; b++) {
        bool own = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        uint32_t want = own ? (uint32_t)b : 0x100u + (uint32_t)next++;
        assert_int_equal(byte_alphabet_char((uint8_t)b), want);
        assert_int_equal(byte_alphabet_byte(want), b);
    }
    assert_int_equal(next, 68);
    assert_int_equal(byte_alphabet_byte(' '), -1);
    assert_int_equal(byte_alphabet_byte(0xad), -1);
    assert_int_equal(byte_alphabet_byte(0x144), -1);
    assert_int_equal(byte_alphabet_byte(0x2581), -1);
}

/* --- regular expressions --- */

/* matches: "start-end" of each, separated by blanks. */
static void finds(const char *pattern, const char *text, const char *matches)
{
    struct regex *r;
    struct regex_work w = {0};
    struct leat_error e = {0};
    char got[200] = "";
    size_t from = 0, start, end, n = strlen(text);
    if (regex_open(pattern, strlen(pattern), "test", &r, &e) < 0) {
        fprintf(stderr, "%s\n", e.message);
        fail();
    }
    int rc;
    while ((rc = regex_find(r, &w, text, n, from, &start, &end, &e)) > 0 && end > start) {
        size_t len = strlen(got);
        snprintf(got + len, sizeof got - len, "%s%zu-%zu", len ? " " : "", start, end);
        from = end;
    }
    assert_true(rc >= 0);
    assert_string_equal(got, matches);
    regex_close(r);
    regex_work_free(&w);
}

static void test_regex(void **state)
{
    (void)state;
    finds("\\s", "a b\xe1\xa0\x8e\xc2\x85\xe3\x80\x80",
          "1-2 6-8 8-11"); /* U+180E is no white space, U+0085 is */
    finds("\\S+", "a \xe1\xa0\x8e", "0-1 2-5");
    finds("[^\\s\\d]+", "ab 1\xe1\xa0\x8e", "0-2 4-7");
    finds("[\\s\\S]", "a", "0-1");
    finds("\\w+", "a_1\xcc\x81-\xe2\x92\xb6",
          "0-5 6-9"); /* marks and circled letters are word characters */
    finds("\\ba", "a _a -a", "0-1 6-7");
    finds("\\h+", "fg09", "0-1 2-4");
    finds("\\v", "\n\x0b", "1-2");
    finds("\\p{Han}", "\xe3\x80\x81\xe4\xb8\xad",
          "3-6"); /* Script, not Script_Extensions: no U+3001 */
    finds("\\p{^L}", "a1", "1-2");
    finds("[\\p{L}&&[^\\p{Han}]]+",
          "a\xe4\xb8\xad"
          "b",
          "0-1 4-5");
    finds("[a-z&&[aeiou]]", "xay", "1-2");
    finds("[\\w-]+", "a-b c", "0-3 4-5");
    finds("a{,2}b", "aab", "0-3");
    finds("{a}", "{a}", "0-3");
    finds("(?i:'s|'t)", "'S't", "0-2 2-4");
    finds("^b$", "a\nb\nc", "2-3"); /* Ruby: ends of lines */
    finds("a.c", "a\nc a\rc", "4-7");
    finds("\\x41\\u0042\\x{43}", "ABC", "0-3");
    finds("[]a]+", "]a", "0-2");
    finds("a++b|\\Ac", "aab", "0-3");
}

static void test_regex_refused(void **state)
{
    static const char *const bad[] = {
        "(",    "[a",    "[a-\\s]", "[[:alpha:]]", "[a[b]]", "[^a&&b]", "\\p{Klingon}",
        "\\pL", "\\1",   "(?m)a",   "(?<n>a)",     "a{2}+",  "\\xff",   "a(?i)b",
        "\\",   "(?#c)", "\\Xa",    "[\\W]",       "\\y",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct regex *r;
        struct leat_error e = {0};
        assert_int_equal(regex_open(bad[i], strlen(bad[i]), "OWNER", &r, &e), LEAT_ERR_UNSUPPORTED);
        assert_non_null(strstr(e.message, "OWNER"));
        assert_non_null(strstr(e.message, "regular expression"));
    }
    struct regex *r;
    struct leat_error e = {0};
    assert_int_equal(regex_open("a\0b", 3, "OWNER", &r, &e), LEAT_ERR_UNSUPPORTED);
}

/* A pattern that runs away gives up with an error instead of hanging or answering wrong. */
static void test_regex_gives_up(void **state)
{
    static const char pattern[] = "(?:(?:a|aa)+)+$";
    (void)state;
    struct regex *r;
    struct regex_work w = {0};
    struct leat_error e = {0};
    char text[64];
    size_t start, end;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '!';
    assert_int_equal(regex_open(pattern, strlen(pattern), "OWNER", &r, &e), 0);
    assert_int_equal(regex_find(r, &w, text, sizeof text, 0, &start, &end, &e),
                     LEAT_ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "gave up"));
    regex_close(r);
    regex_work_free(&w);
}

/* --- normalizers --- */

static void normalizes(struct normalize_step s, const char *text, const char *want)
{
    struct normalizer z = {0};
    struct normalize_work w = {0};
    struct regex_work rw = {0};
    const char *out;
    size_t n;
    assert_int_equal(normalizer_add(&z, &s, "test", NULL), 0);
    assert_int_equal(normalizer_run(&z, &w, &rw, text, strlen(text), &out, &n, NULL), 0);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(out, want, n);
    normalizer_close(&z);
    normalize_work_free(&w);
    regex_work_free(&rw);
}

/* Unicode's NormalizationTest.txt, the lines named. */
static void test_normal_forms(void **state)
{
    static const struct {
        const char *in, *nfc, *nfd, *nfkc, *nfkd;
    } rows[] = {
        {"\u1e0a", "\u1e0a", "D\u0307", "\u1e0a", "D\u0307"},
        {"D\u0323\u0307", "\u1e0c\u0307", "D\u0323\u0307", "\u1e0c\u0307", "D\u0323\u0307"},
        {"\u1e0a\u0323", "\u1e0c\u0307", "D\u0323\u0307", "\u1e0c\u0307", "D\u0323\u0307"},
        {"\u05b8\u05b9\u05b1\u0591\u05c3\u05b0\u05ac\u059f",
         "\u05b1\u05b8\u05b9\u0591\u05c3\u05b0\u05ac\u059f",
         "\u05b1\u05b8\u05b9\u0591\u05c3\u05b0\u05ac\u059f",
         "\u05b1\u05b8\u05b9\u0591\u05c3\u05b0\u05ac\u059f",
         "\u05b1\u05b8\u05b9\u0591\u05c3\u05b0\u05ac\u059f"},
        {"\u1100\uac00\u11a8", "\u1100\uac01", "\u1100\u1100\u1161\u11a8", "\u1100\uac01",
         "\u1100\u1100\u1161\u11a8"},
        {"\ufb01\u00bd", "\ufb01\u00bd", "\ufb01\u00bd", "fi1\u20442", "fi1\u20442"},
        {"\u212b \u2126", "\u00c5 \u03a9", "A\u030a \u03a9", "\u00c5 \u03a9", "A\u030a \u03a9"},
        {"\u0958", "\u0915\u093c", "\u0915\u093c", "\u0915\u093c",
         "\u0915\u093c"}, /* composition exclusion */
        {"plain ASCII", "plain ASCII", "plain ASCII", "plain ASCII", "plain ASCII"},
        {"xe\u0301x", "x\u00e9x", "xe\u0301x", "x\u00e9x",
         "xe\u0301x"}, /* joins with the ASCII before it */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        normalizes((struct normalize_step){.kind = NORMALIZE_NFC}, rows[i].in, rows[i].nfc);
        normalizes((struct normalize_step){.kind = NORMALIZE_NFD}, rows[i].in, rows[i].nfd);
        normalizes((struct normalize_step){.kind = NORMALIZE_NFKC}, rows[i].in, rows[i].nfkc);
        normalizes((struct normalize_step){.kind = NORMALIZE_NFKD}, rows[i].in, rows[i].nfkd);
    }
}

static void test_normalizers(void **state)
{
    (void)state;
    normalizes((struct normalize_step){.kind = NORMALIZE_LOWERCASE}, "ÀB\u0130\u03a3\u1e9e",
               "àbi\u0307\u03c3ß");
    normalizes((struct normalize_step){.kind = NORMALIZE_PREPEND, .content = "__", .content_n = 2},
               "a", "__a");
    normalizes((struct normalize_step){.kind = NORMALIZE_PREPEND, .content = "__", .content_n = 2},
               "", "");
    normalizes((struct normalize_step){.kind = NORMALIZE_REPLACE,
                                       .pattern = "aa",
                                       .pattern_n = 2,
                                       .content = "b",
                                       .content_n = 1},
               "aaaaax", "bbax");
    normalizes((struct normalize_step){.kind = NORMALIZE_STRIP, .left = true}, " \u3000a ", "a ");
    normalizes((struct normalize_step){.kind = NORMALIZE_STRIP, .right = true}, " a \n", " a");
    normalizes((struct normalize_step){.kind = NORMALIZE_STRIP, .left = true, .right = true},
               " \t ", "");
    normalizes((struct normalize_step){.kind = NORMALIZE_STRIP_ACCENTS}, "e\u0301", "e");
    struct normalize_step s = {.kind = NORMALIZE_REPLACE_REGEX, .content = "-", .content_n = 1};
    assert_int_equal(regex_open("x*", 2, "test", &s.regex, NULL), 0);
    normalizes(s, "axxb", "-a-b-"); /* empty matches count, but not right behind another */
}

/* A long run of marks in reverse order is sorted in linear time. */
static void test_marks_are_fast(void **state)
{
    (void)state;
    struct normalizer z = {.step = {{.kind = NORMALIZE_NFC}}, .n = 1};
    struct normalize_work w = {0};
    struct regex_work rw = {0};
    size_t n = 400000;
    char *text = malloc(n * 2);
    const char *out;
    for (size_t i = 0; i < n; i++) /* class 230 first, then class 220 */
        memcpy(text + 2 * i, i < n / 2 ? "\u0301" : "\u0316", 2);
    double start = clock_now();
    assert_int_equal(normalizer_run(&z, &w, &rw, text, n * 2, &out, &n, NULL), 0);
    assert_true(clock_now() - start < 10);
    assert_int_equal(n, 800000);
    assert_memory_equal(out, "\u0316\u0316", 4);
    assert_memory_equal(out + n - 4, "\u0301\u0301", 4);
    free(text);
    normalize_work_free(&w);
    regex_work_free(&rw);
}

/* --- splitting --- */

static void splits(struct split_step s, const char *text, const char *want)
{
    struct splitter sp = {0};
    struct split_work w = {0};
    struct regex_work rw = {0};
    const char *out;
    const struct split_pieces *p;
    char got[300] = "";
    assert_int_equal(splitter_add(&sp, &s, "test", NULL), 0);
    assert_int_equal(splitter_run(&sp, &w, &rw, text, strlen(text), true, &out, &p, NULL), 0);
    for (size_t i = 0; i < p->n; i++) {
        size_t n = strlen(got);
        snprintf(got + n, sizeof got - n, "%s%.*s", i ? "|" : "", (int)p->p[i].len,
                 out + p->p[i].at);
    }
    assert_string_equal(got, want);
    splitter_close(&sp);
    split_work_free(&w);
    regex_work_free(&rw);
}

/* The examples of the Hugging Face documentation for SplitDelimiterBehavior
 * ("the-final--countdown", "-"). */
static void test_behaviours(void **state)
{
    (void)state;
    struct split_step s = {.kind = SPLIT_STRING, .pattern = "-", .pattern_n = 1};
    const char *text = "the-final--countdown";
    s.behaviour = SPLIT_REMOVED;
    splits(s, text, "the|final|countdown");
    s.behaviour = SPLIT_ISOLATED;
    splits(s, text, "the|-|final|-|-|countdown");
    s.behaviour = SPLIT_WITH_PREVIOUS;
    splits(s, text, "the-|final-|-|countdown");
    s.behaviour = SPLIT_WITH_NEXT;
    splits(s, text, "the|-final|-|-countdown");
    s.behaviour = SPLIT_CONTIGUOUS;
    splits(s, text, "the|-|final|--|countdown");
    s.behaviour = SPLIT_REMOVED;
    s.invert = true;
    splits(s, text, "-|-|-");
    splits((struct split_step){.kind = SPLIT_REGEX}, "", "");
}

static void test_code_splits(void **state)
{
    (void)state;
    splits((struct split_step){.kind = SPLIT_THREES}, "a1234567b12c", "a|1|234|567|b|12|c");
    splits((struct split_step){.kind = SPLIT_THREES_WORD_END}, "1234567 12345x",
           "1|234|567| 12345x");
    splits((struct split_step){.kind = SPLIT_THREES_ZERO}, "a123456x1", "a|123|456x1");
    splits((struct split_step){.kind = SPLIT_TRAILING_SPACE}, " a  b \n", " a  b| \n");
    splits((struct split_step){.kind = SPLIT_DIGITS}, "a12\u2167", "a|1|2|\u2167");
    splits((struct split_step){.kind = SPLIT_PUNCT}, "a+b\u3002c", "a|+|b|\u3002|c");
    splits((struct split_step){.kind = SPLIT_PREFIX_SPACE}, "a", " a");
    splits((struct split_step){.kind = SPLIT_PREFIX_SPACE}, " a", " a");
    splits((struct split_step){.kind = SPLIT_BYTE_LEVEL}, " \u00e9", "\u0120\u00c3\u00a9");
    struct split_step m = {.kind = SPLIT_METASPACE, .pattern = "_", .pattern_n = 1, .cut = true};
    splits(m, "a b", "_a|_b");
    splits(m, " a  b", "_a|_|_b");
    m.scheme = SCHEME_NEVER;
    m.cut = false;
    splits(m, "a b", "a_b");
}

/* --- added tokens --- */

static void cuts(const struct added_set *s, const char *text, bool special, const char *want)
{
    struct added_hit h;
    char got[200] = "";
    size_t from = 0, n = strlen(text);
    while (added_next(s, text, n, from, special, &h)) {
        size_t m = strlen(got);
        snprintf(got + m, sizeof got - m, "%s%d@%zu-%zu", m ? " " : "", h.id, h.start, h.end);
        assert_true(h.start >= from && h.end > h.start && h.end <= n);
        from = h.end;
    }
    assert_string_equal(got, want);
}

static void test_added(void **state)
{
    (void)state;
    struct arena a;
    struct added_set s;
    arena_init(&a, NULL, ROW_TOKENIZER);
    assert_int_equal(added_open(&s, &a, 16, NULL), 0);
    static const struct {
        const char *text;
        uint32_t flags;
    } tokens[] = {
        {"<a>", 0},
        {"<ab>", 0},
        {"<a><b>", 0},
        {"\n", 0},
        {"\n\n\n", 0},
        {"<s>", ADDED_SPECIAL},
        {"<l>", ADDED_LSTRIP},
        {"<r>", ADDED_RSTRIP},
        {"word", ADDED_SINGLE_WORD},
        {"<s>x", 0},
        {"<a>", 0},
    };
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        added_add(&s, tokens[i].text, strlen(tokens[i].text), (int32_t)i, tokens[i].flags);
    added_sort(&s);
    assert_int_equal(s.n, 10); /* of two with one spelling the later stays */
    cuts(&s, "", true, "");
    cuts(&s, "<a><b", true, "10@0-3");
    cuts(&s, "x<a><b>y", true, "2@1-7");
    cuts(&s, "\n\n\n\n\n", true, "4@0-3 3@3-4 3@4-5");
    cuts(&s, "<s><s>x", true, "5@0-3 9@3-7");
    cuts(&s, "<s><s>x", false, "9@3-7");
    cuts(&s, "a \u3000<l> b", true, "6@1-8");
    cuts(&s, "a<r> \u2003b", true, "7@1-8");
    cuts(&s, "<r>  <l>", true, "7@0-5 6@5-8"); /* the spaces are taken once */
    cuts(&s, "word sword words \u00e9word word\u00e9 (word)", true, "8@0-4 8@32-36");
    arena_close(&a);
}

/* --- vocabulary and merging --- */

static void test_vocab(void **state)
{
    (void)state;
    struct arena a;
    struct vocab v;
    char text[32];
    size_t n;
    arena_init(&a, NULL, ROW_TOKENIZER);
    assert_int_equal(vocab_open(&v, &a, 5001, 5000, 60000, false, NULL), 0);
    for (int i = 0; i < 4999; i++) {
        int len = snprintf(text, sizeof text, "token %d%s", i, i % 3 ? "" : "\xc3\xa9");
        assert_int_equal(vocab_add(&v, i, text, (size_t)len), 0);
    }
    assert_int_equal(vocab_add(&v, 5000, "token 1", 7), 2); /* there already, as id 1 */
    assert_false(vocab_has(&v, 4999) || vocab_has(&v, -1) || vocab_has(&v, 5001));
    assert_int_equal(vocab_find(&v, "token 1", 7), 5000);
    assert_int_equal(vocab_find(&v, "token", 5), -1);
    assert_int_equal(vocab_find(&v, "", 0), -1);
    for (int i = 2; i < 4999; i++) {
        int len = snprintf(text, sizeof text, "token %d%s", i, i % 3 ? "" : "\xc3\xa9");
        assert_int_equal(vocab_find(&v, text, (size_t)len), i);
        assert_string_equal(vocab_text(&v, i, &n), text);
        assert_int_equal(n, len);
    }
    arena_close(&a);
}

/* A vocabulary of single letters and of what the rules join: "LEFT RIGHT" each, in rank order. */
struct small {
    struct arena a;
    struct vocab v;
    struct merges m;
    struct bpe b;
};

static void small_open(struct small *s, const char *letters, const char *const *rules, size_t n)
{
    int32_t id = 0;
    memset(s, 0, sizeof *s);
    arena_init(&s->a, NULL, ROW_TOKENIZER);
    assert_int_equal(vocab_open(&s->v, &s->a, 64, 64, 4096, true, NULL), 0);
    assert_int_equal(merges_open(&s->m, &s->a, n, NULL), 0);
    for (const char *p = letters; *p; p++)
        vocab_add(&s->v, id++, p, 1);
    for (size_t i = 0; i < n; i++) {
        char joined[32];
        size_t left = strcspn(rules[i], " "), len = strlen(rules[i]) - 1;
        snprintf(joined, sizeof joined, "%.*s%s", (int)left, rules[i], rules[i] + left + 1);
        int32_t result = vocab_find(&s->v, joined, len);
        if (result < 0)
            vocab_add(&s->v, result = id++, joined, len);
        s->v.score[result] = -(float)i;
        merges_add(&s->m, vocab_find(&s->v, joined, left),
                   vocab_find(&s->v, joined + left, len - left), result, true);
    }
    s->b = (struct bpe){.vocab = &s->v, .merges = &s->m, .unknown = -1};
    for (int i = 0; i < 256; i++)
        s->b.byte_id[i] = -1;
}

static void merges_to(struct small *s, const char *text, const char *want)
{
    struct bpe_work w = {0};
    struct token_list l = {0};
    char got[300] = "";
    assert_int_equal(bpe_encode(&s->b, &w, text, strlen(text), &l, NULL), 0);
    for (size_t i = 0; i < l.n; i++) {
        size_t n = strlen(got), m;
        const char *t = vocab_text(&s->v, l.ids[i], &m);
        snprintf(got + n, sizeof got - n, "%s%s", i ? " " : "", t);
    }
    assert_string_equal(got, want);
    bpe_work_free(&w);
    token_list_free(&l);
}

static void test_merging(void **state)
{
    static const char *const rules[] = {"h e", "l l", "he ll", "w o", "hell o", "e l", "o w"};
    (void)state;
    for (int by_score = 0; by_score < 2; by_score++) {
        struct small s;
        small_open(&s, "helowrd", rules, 7);
        if (by_score)
            s.b.merges = NULL;
        merges_to(&s, "hello", "hello");
        merges_to(&s, "helloworld", "hello wo r l d");
        merges_to(&s, "how", "h ow");
        merges_to(&s, "lll", "ll l"); /* ties go to the left */
        merges_to(&s, "llll", "ll ll");
        merges_to(&s, "eel", "e el");
        merges_to(&s, "h", "h");
        merges_to(&s, "", "");
        merges_to(&s, "hxe", "h e"); /* an unknown character between keeps them apart */
        s.b.skip_unknown = true;
        merges_to(&s, "hxe",
                  by_score ? "h e" : "he"); /* Hugging Face leaves it out before merging */
        s.b.unknown = vocab_find(&s.v, "d", 1);
        merges_to(&s, "hxxe", "h d d e");
        s.b.fuse_unknown = true;
        merges_to(&s, "hxxe", by_score ? "h d d e" : "h d e");
        s.v.flags[vocab_find(&s.v, "hello", 5)] =
            TOKEN_CONTROL; /* text never becomes a control token */
        merges_to(&s, "hello", "hell o");
        arena_close(&s.a);
    }
}

/* Pieces cut where no token has the two characters side by side give the same tokens. */
static void test_cuts(void **state)
{
    static const char *const rules[] = {"a b", "b c", "ab ab", "c a", "abab c", "d d", "dd dd"};
    (void)state;
    uint32_t seed = 1;
    struct small s;
    small_open(&s, "abcde", rules, 7);
    for (int by_score = 0; by_score < 2; by_score++) {
        s.b.merges = by_score ? NULL : &s.m;
        for (int round = 0; round < 400; round++) {
            char text[65];
            struct bpe_work w = {0};
            struct token_list with = {0}, without = {0};
            size_t n = 1 + (size_t)round % 64;
            for (size_t i = 0; i < n; i++) {
                seed = seed * 1664525u + 1013904223u;
                text[i] = "aabbcddex"[seed >> 16 & 7];
            }
            assert_int_equal(bpe_encode(&s.b, &w, text, n, &without, NULL), 0);
            assert_int_equal(bpe_prepare_cuts(&s.b, &s.a, 20, NULL), 0);
            assert_int_equal(bpe_encode(&s.b, &w, text, n, &with, NULL), 0);
            assert_int_equal(atomic_load(&s.b.cuts->ready), n > 20);
            bpe_close_cuts(&s.b);
            assert_int_equal(with.n, without.n);
            assert_memory_equal(with.ids, without.ids, with.n * sizeof *with.ids);
            bpe_work_free(&w);
            token_list_free(&with);
            token_list_free(&without);
        }
    }
    arena_close(&s.a);
}

static const char *long_text;

static void *encode_long(void *arg)
{
    struct small *s = arg;
    struct bpe_work w = {0};
    struct token_list *l = calloc(1, sizeof *l);
    if (bpe_encode(&s->b, &w, long_text, strlen(long_text), l, NULL) < 0)
        l->n = 0;
    bpe_work_free(&w);
    return l;
}

/* The first to need the cuts fills them; threads that come at the same time find the same tokens. */
static void test_cuts_threads(void **state)
{
    enum { N = 20000, THREADS = 4 };
    static const char *const rules[] = {"a b", "b c", "ab ab", "c a", "abab c", "d d", "dd dd"};
    static char text[N + 1];
    (void)state;
    uint32_t seed = 3;
    for (int i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        text[i] = "aabbcdde"[seed >> 16 & 7];
    }
    long_text = text;
    struct small s;
    small_open(&s, "abcde", rules, 7);
    struct token_list *whole = encode_long(&s);
    assert_true(whole->n > N / 8);
    assert_int_equal(bpe_prepare_cuts(&s.b, &s.a, BPE_CUT_OVER, NULL), 0);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, encode_long, &s), 0);
    for (int i = 0; i < THREADS; i++) {
        void *got;
        assert_int_equal(pthread_join(t[i], &got), 0);
        struct token_list *l = got;
        assert_int_equal(l->n, whole->n);
        assert_memory_equal(l->ids, whole->ids, l->n * sizeof *l->ids);
        token_list_free(l);
        free(l);
    }
    assert_true(atomic_load(&s.b.cuts->ready));
    token_list_free(whole);
    free(whole);
    bpe_close_cuts(&s.b);
    arena_close(&s.a);
}

/* A mebibyte without a place to cut: the time of a quadratic way would be hours. */
static void test_long_piece(void **state)
{
    static const char *const rules[] = {"a a", "aa aa", "aaaa aaaa", "aaaaaaaa aaaaaaaa"};
    (void)state;
    struct small s;
    struct bpe_work w = {0};
    struct token_list l = {0};
    size_t n = (1 << 20) + 3;
    char *text = malloc(n);
    memset(text, 'a', n);
    small_open(&s, "a", rules, 4);
    for (int by_score = 0; by_score < 2; by_score++) {
        s.b.merges = by_score ? NULL : &s.m;
        l.n = 0;
        double start = clock_now();
        assert_int_equal(bpe_encode(&s.b, &w, text, n, &l, NULL), 0);
        assert_true(clock_now() - start < 60);
        assert_int_equal(l.n, (1 << 16) + 2);
    }
    free(text);
    bpe_work_free(&w);
    token_list_free(&l);
    arena_close(&s.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repair),         cmocka_unit_test(test_byte_alphabet),
        cmocka_unit_test(test_regex),          cmocka_unit_test(test_regex_refused),
        cmocka_unit_test(test_regex_gives_up), cmocka_unit_test(test_normal_forms),
        cmocka_unit_test(test_normalizers),    cmocka_unit_test(test_marks_are_fast),
        cmocka_unit_test(test_behaviours),     cmocka_unit_test(test_code_splits),
        cmocka_unit_test(test_added),          cmocka_unit_test(test_vocab),
        cmocka_unit_test(test_merging),        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_cuts_threads),   cmocka_unit_test(test_long_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
