/* The rules of a tokenizer.json: normalizer, pre_tokenizer, post_processor and decoder, each an
 * object with a type or a Sequence of them. What is not known is refused by name. Names and
 * meanings: Hugging Face tokenizers 0.23. One thread. */
#include <stdio.h>

#include "../base/utf8.h"
#include "pre_table.h"
#include "tokenizer_internal.h"

struct part { /* one object under parsing */
    struct tokenizer *t;
    char owner[440]; /* "FILE: normalizer" */
    bool fused;      /* a Fuse was met */
    struct leat_error *e;
};

static int unsupported(struct part *p, const char *type)
{
    char q[120];
    return error_set(p->e, LEAT_ERR_UNSUPPORTED, "%s: type \"%s\" is not supported", p->owner,
                     error_quote(q, sizeof q, type, strlen(type)));
}

static int not_right(struct part *p, const char *what)
{
    return error_set(p->e, LEAT_ERR_FORMAT, "%s: %s", p->owner, what);
}

static void part_open(struct part *p, struct tokenizer *t, const char *path, const char *name,
                      struct leat_error *e)
{
    *p = (struct part){.t = t, .e = e};
    snprintf(p->owner, sizeof p->owner, "%s: %s", path, name);
}

/* Calls one for n, or for each element of the array member of a Sequence, without recursion deeper
 * than JSON allows. */
static int each(struct part *p, const struct json_node *n, const char *member,
                int (*one)(struct part *p, const struct json_node *n, const char *type))
{
    const char *type = NULL;
    if (!n || n->kind == JSON_NULL)
        return 0;
    if (n->kind != JSON_OBJECT)
        return not_right(p, "is not an object");
    int rc = json_tree_word(n, "type", p->owner, &type, p->e);
    if (rc < 0 || strcmp(type, "Sequence") != 0)
        return rc < 0 ? rc : one(p, n, type);
    const struct json_node *list = json_tree_get(n, member);
    if (!list || list->kind != JSON_ARRAY)
        return not_right(p, "a Sequence without a list");
    for (const struct json_node *m = list->child; m && rc == 0; m = m->next)
        rc = each(p, m, member, one);
    return rc;
}

/* A copy of a string member that must be there. */
static int text_copy(struct part *p, const struct json_node *o, const char *key, const char **text,
                     size_t *n)
{
    const struct json_node *s = NULL;
    int rc = json_tree_string(o, key, p->owner, &s, p->e);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return error_set(p->e, LEAT_ERR_FORMAT, "%s: \"%s\" is missing", p->owner, key);
    *n = s->text_n;
    *text = arena_copy(&p->t->arena, s->text, s->text_n, p->e);
    return *text ? 0 : LEAT_ERR_MEMORY;
}

/* "pattern": {"String": ...} or {"Regex": ...}. Exactly one of *text and *regex is set. */
static int pattern_read(struct part *p, const struct json_node *o, const char **text, size_t *n,
                        struct regex **regex)
{
    const struct json_node *pattern = json_tree_get(o, "pattern"), *r;
    if (!pattern || pattern->kind != JSON_OBJECT || !pattern->child || pattern->child->next)
        return not_right(p, "\"pattern\" is not {\"String\": ...} or {\"Regex\": ...}");
    if (json_tree_get(pattern, "String"))
        return text_copy(p, pattern, "String", text, n);
    r = json_tree_get(pattern, "Regex");
    if (!r || r->kind != JSON_STRING)
        return not_right(p, "\"pattern\" is not {\"String\": ...} or {\"Regex\": ...}");
    return regex_open(r->text, r->text_n, p->owner, regex, p->e);
}

/* --- normalizer --- */

static int normalizer_one(struct part *p, const struct json_node *n, const char *type)
{
    static const struct {
        const char *type;
        enum normalize_kind kind;
    } plain[] = {
        {"NFC", NORMALIZE_NFC},
        {"NFD", NORMALIZE_NFD},
        {"NFKC", NORMALIZE_NFKC},
        {"NFKD", NORMALIZE_NFKD},
        {"Lowercase", NORMALIZE_LOWERCASE},
        {"StripAccents", NORMALIZE_STRIP_ACCENTS},
        {"Nmt", NORMALIZE_NMT},
        {"ByteLevel", NORMALIZE_BYTE_LEVEL},
    };
    struct normalize_step s = {0};
    int rc = 0;
    if (strcmp(type, "Prepend") == 0) {
        s.kind = NORMALIZE_PREPEND;
        rc = text_copy(p, n, "prepend", &s.content, &s.content_n);
    } else if (strcmp(type, "Replace") == 0) {
        rc = text_copy(p, n, "content", &s.content, &s.content_n);
        rc = rc < 0 ? rc : pattern_read(p, n, &s.pattern, &s.pattern_n, &s.regex);
        s.kind = s.regex ? NORMALIZE_REPLACE_REGEX : NORMALIZE_REPLACE;
        if (rc == 0 && !s.regex && s.pattern_n == 0)
            rc = not_right(p, "Replace of an empty string");
    } else if (strcmp(type, "Strip") == 0) {
        s.kind = NORMALIZE_STRIP;
        rc = json_tree_bool(n, "strip_left", p->owner, &s.left, p->e);
        rc = rc < 0 ? rc : json_tree_bool(n, "strip_right", p->owner, &s.right, p->e);
    } else {
        size_t i = 0;
        while (i < sizeof plain / sizeof *plain && strcmp(plain[i].type, type) != 0)
            i++;
        if (i == sizeof plain / sizeof *plain)
            return unsupported(p, type);
        s.kind = plain[i].kind;
    }
    rc = rc < 0 ? rc : normalizer_add(&p->t->normalizer, &s, p->owner, p->e);
    if (rc < 0)
        regex_close(s.regex);
    return rc < 0 ? rc : 0;
}

int tokenizer_parse_normalizer(struct tokenizer *t, const struct json_node *n, const char *path,
                               struct leat_error *e)
{
    struct part p;
    part_open(&p, t, path, "normalizer", e);
    return each(&p, n, "normalizers", normalizer_one);
}

/* --- pre_tokenizer --- */

static int splitter_push(struct part *p, struct split_step s)
{
    int rc = splitter_add(&p->t->splitter, &s, p->owner, p->e);
    if (rc < 0)
        regex_close(s.regex);
    return rc;
}

static int splitter_push_regex(struct part *p, const char *pattern, enum split_behaviour behaviour,
                               bool invert)
{
    struct split_step s = {.kind = SPLIT_REGEX, .behaviour = behaviour, .invert = invert};
    int rc = regex_open(pattern, strlen(pattern), p->owner, &s.regex, p->e);
    return rc < 0 ? rc : splitter_push(p, s);
}

static int behaviour_read(struct part *p, const struct json_node *n, enum split_behaviour *b,
                          bool required)
{
    static const char *const names[] = {
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_WITH_NEXT] = "MergedWithNext",
        [SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const struct json_node *s = NULL;
    int rc = json_tree_string(n, "behavior", p->owner, &s, p->e);
    if (rc < 0 || (rc == 0 && !required))
        return rc;
    for (int i = 0; s && i < 5; i++)
        if (json_tree_is(s, names[i])) {
            *b = (enum split_behaviour)i;
            return 0;
        }
    return not_right(p, "\"behavior\" is none that is known");
}

static int splitter_split(struct part *p, const struct json_node *n)
{
    struct split_step s = {0};
    int rc = behaviour_read(p, n, &s.behaviour, true);
    rc = rc < 0 ? rc : json_tree_bool(n, "invert", p->owner, &s.invert, p->e);
    rc = rc < 0 ? rc : pattern_read(p, n, &s.pattern, &s.pattern_n, &s.regex);
    s.kind = s.regex ? SPLIT_REGEX : SPLIT_STRING;
    return rc < 0 ? rc : splitter_push(p, s);
}

static int splitter_byte_level(struct part *p, const struct json_node *n)
{
    bool prefix = true, regex = true;
    int rc = json_tree_bool(n, "add_prefix_space", p->owner, &prefix, p->e);
    rc = rc < 0 ? rc : json_tree_bool(n, "use_regex", p->owner, &regex, p->e);
    if (rc >= 0 && prefix)
        rc = splitter_push(p, (struct split_step){.kind = SPLIT_PREFIX_SPACE});
    if (rc >= 0 && regex)
        rc = splitter_push_regex(p, pre_pattern_find("G2")->step[0], SPLIT_ISOLATED, false);
    return rc < 0 ? rc : splitter_push(p, (struct split_step){.kind = SPLIT_BYTE_LEVEL});
}

/* "replacement" must be one character; prepend_scheme defaults to always, which an older
 * add_prefix_space may turn off. */
static int metaspace_read(struct part *p, const struct json_node *n, struct split_step *s)
{
    const struct json_node *scheme = NULL;
    bool prefix = true;
    uint32_t c;
    s->kind = SPLIT_METASPACE;
    s->cut = true;
    s->scheme = SCHEME_ALWAYS;
    int rc = text_copy(p, n, "replacement", &s->pattern, &s->pattern_n);
    if (rc == 0 &&
        (s->pattern_n == 0 || utf8_next(s->pattern, s->pattern_n, &c) != (int)s->pattern_n))
        rc = not_right(p, "\"replacement\" is not one character");
    rc = rc < 0 ? rc : json_tree_bool(n, "split", p->owner, &s->cut, p->e);
    rc = rc < 0 ? rc : json_tree_bool(n, "add_prefix_space", p->owner, &prefix, p->e);
    rc = rc < 0 ? rc : json_tree_string(n, "prepend_scheme", p->owner, &scheme, p->e);
    if (rc < 0)
        return rc;
    if (scheme && json_tree_is(scheme, "first"))
        s->scheme = SCHEME_FIRST;
    else if (scheme && json_tree_is(scheme, "never"))
        s->scheme = SCHEME_NEVER;
    else if (scheme && !json_tree_is(scheme, "always"))
        return not_right(p, "\"prepend_scheme\" is none of always, first, never");
    if (!prefix && s->scheme != SCHEME_NEVER) {
        if (scheme)
            return not_right(p, "\"add_prefix_space\" and \"prepend_scheme\" disagree");
        s->scheme = SCHEME_NEVER;
    }
    return 0;
}

static int splitter_delimiter(struct part *p, const struct json_node *n)
{
    struct split_step s = {.kind = SPLIT_STRING, .behaviour = SPLIT_REMOVED};
    int rc = text_copy(p, n, "delimiter", &s.pattern, &s.pattern_n);
    return rc < 0 ? rc : splitter_push(p, s);
}

static int splitter_one(struct part *p, const struct json_node *n, const char *type)
{
    struct split_step s = {0};
    int rc;
    if (strcmp(type, "Split") == 0)
        return splitter_split(p, n);
    if (strcmp(type, "ByteLevel") == 0)
        return splitter_byte_level(p, n);
    if (strcmp(type, "CharDelimiterSplit") == 0)
        return splitter_delimiter(p, n);
    if (strcmp(type, "Metaspace") == 0) {
        rc = metaspace_read(p, n, &s);
        return rc < 0 ? rc : splitter_push(p, s);
    }
    if (strcmp(type, "Digits") == 0) {
        bool single = false;
        rc = json_tree_bool(n, "individual_digits", p->owner, &single, p->e);
        s.kind = SPLIT_DIGITS;
        s.behaviour = single ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        return rc < 0 ? rc : splitter_push(p, s);
    }
    if (strcmp(type, "Punctuation") == 0) {
        s.kind = SPLIT_PUNCT;
        rc = behaviour_read(p, n, &s.behaviour, false);
        return rc < 0 ? rc : splitter_push(p, s);
    }
    if (strcmp(type, "WhitespaceSplit") == 0)
        return splitter_push(p,
                             (struct split_step){.kind = SPLIT_SPACE, .behaviour = SPLIT_REMOVED});
    if (strcmp(type, "Whitespace") == 0)
        return splitter_push_regex(p, "[\\w\\x{200c}\\x{200d}]+|[^\\w\\x{200c}\\x{200d}\\s]+",
                                   SPLIT_REMOVED, true);
    if (strcmp(type, "BertPreTokenizer") == 0) {
        rc = splitter_push(p, (struct split_step){.kind = SPLIT_SPACE, .behaviour = SPLIT_REMOVED});
        return rc < 0 ? rc
                      : splitter_push(p, (struct split_step){.kind = SPLIT_PUNCT,
                                                             .behaviour = SPLIT_ISOLATED});
    }
    return unsupported(p, type);
}

int tokenizer_parse_splitter(struct tokenizer *t, const struct json_node *n, const char *path,
                             struct leat_error *e)
{
    struct part p;
    part_open(&p, t, path, "pre_tokenizer", e);
    return each(&p, n, "pretokenizers", splitter_one);
}

/* --- post_processor: what stands before and behind a text --- */

static int around_add(struct part *p, int64_t id, bool behind)
{
    int32_t *list = behind ? p->t->suffix : p->t->prefix,
            *n = behind ? &p->t->n_suffix : &p->t->n_prefix;
    char what[120];
    if (!vocab_has(&p->t->vocab, id < 0 || id > INT32_MAX ? -1 : (int32_t)id)) {
        snprintf(what, sizeof what, "token %lld is not in the vocabulary", (long long)id);
        return not_right(p, what);
    }
    if (*n == TOKENIZER_AROUND)
        return not_right(p, "more special tokens around a text than this build holds");
    list[(*n)++] = (int32_t)id;
    return 0;
}

/* {"SpecialToken": {"id": NAME}}: the ids of NAME in special_tokens. */
static int template_special(struct part *p, const struct json_node *n,
                            const struct json_node *special, bool behind)
{
    const struct json_node *tokens = json_tree_get(n, "special_tokens"), *name = NULL, *ids = NULL;
    int rc = json_tree_string(special, "id", p->owner, &name, p->e);
    if (rc < 0)
        return rc;
    for (const struct json_node *m = tokens && tokens->kind == JSON_OBJECT ? tokens->child : NULL;
         m && name; m = m->next)
        if (m->key_n == name->text_n && memcmp(m->key, name->text, m->key_n) == 0)
            ids = json_tree_get(m, "ids");
    if (!ids || ids->kind != JSON_ARRAY)
        return not_right(p, "a special token of the template has no ids");
    for (const struct json_node *id = ids->child; id; id = id->next) {
        if (id->kind != JSON_NUMBER || !id->is_integer)
            return not_right(p, "an id of the template is not an integer");
        rc = around_add(p, id->integer, behind);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int post_template(struct part *p, const struct json_node *n)
{
    const struct json_node *single = json_tree_get(n, "single");
    bool behind = false;
    if (!single || single->kind != JSON_ARRAY)
        return not_right(p, "\"single\" is not a list");
    for (const struct json_node *m = single->child; m; m = m->next) {
        const struct json_node *special = json_tree_get(m, "SpecialToken");
        if (!special && (!json_tree_get(m, "Sequence") || behind))
            return not_right(
                p, "\"single\" holds something other than special tokens and one sequence");
        int rc = special ? template_special(p, n, special, behind) : 0;
        if (rc < 0)
            return rc;
        behind = behind || !special;
    }
    return behind ? 0 : not_right(p, "\"single\" has no place for the text");
}

/* BertProcessing and RobertaProcessing: "cls" and "sep" are [TEXT, ID]. */
static int post_pair(struct part *p, const struct json_node *n)
{
    static const char *const keys[] = {"cls", "sep"};
    for (int i = 0; i < 2; i++) {
        const struct json_node *pair = json_tree_get(n, keys[i]);
        const struct json_node *id =
            pair && pair->kind == JSON_ARRAY && pair->child ? pair->child->next : NULL;
        if (!id || id->kind != JSON_NUMBER || !id->is_integer)
            return not_right(p, "\"cls\" and \"sep\" are not [text, id]");
        int rc = around_add(p, id->integer, i == 1);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int post_one(struct part *p, const struct json_node *n, const char *type)
{
    if (strcmp(type, "ByteLevel") == 0) /* offsets only */
        return 0;
    if (strcmp(type, "TemplateProcessing") == 0)
        return post_template(p, n);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0)
        return post_pair(p, n);
    return unsupported(p, type);
}

int tokenizer_parse_post(struct tokenizer *t, const struct json_node *n, const char *path,
                         struct leat_error *e)
{
    struct part p;
    part_open(&p, t, path, "post_processor", e);
    return each(&p, n, "processors", post_one);
}

/* --- decoder --- */

/* What one character-for-character replacement, byte tokens and a strip at the start can say. The
 * order that all public files have is Replace, ByteFallback, Fuse, Strip; only it is accepted. */
static int decoder_replace(struct part *p, const struct json_node *n)
{
    struct tokenizer *t = p->t;
    struct regex *regex = NULL;
    if (t->mark || t->decode_byte_tokens)
        return not_right(p, "more than one Replace, or one behind ByteFallback, is not supported");
    int rc = text_copy(p, n, "content", &t->mark_text, &t->mark_text_n);
    rc = rc < 0 ? rc : pattern_read(p, n, &t->mark, &t->mark_n, &regex);
    if (regex) {
        regex_close(regex);
        t->mark = NULL;
        return not_right(p, "Replace by a regular expression is not supported");
    }
    if (rc == 0 && t->mark_n == 0) {
        t->mark = NULL;
        return not_right(p, "Replace of an empty string");
    }
    return rc;
}

static int decoder_strip(struct part *p, const struct json_node *n)
{
    const struct json_node *content = NULL;
    int64_t start = 0, stop = 0;
    int rc = json_tree_string(n, "content", p->owner, &content, p->e);
    rc = rc < 0 ? rc : json_tree_integer(n, "start", p->owner, &start, p->e);
    rc = rc < 0 ? rc : json_tree_integer(n, "stop", p->owner, &stop, p->e);
    if (rc < 0)
        return rc;
    if (!content || !json_tree_is(content, " ") || start < 0 || start > 1 || stop != 0 || !p->fused)
        return not_right(
            p, "Strip of anything but one space at the start, behind Fuse, is not supported");
    p->t->strip = start ? STRIP_ONE_SPACE : STRIP_NONE;
    return 0;
}

static int decoder_one(struct part *p, const struct json_node *n, const char *type)
{
    struct tokenizer *t = p->t;
    if (strcmp(type, "ByteLevel") == 0) {
        t->decode = DECODE_BYTES;
        return 0;
    }
    if (strcmp(type, "Replace") == 0)
        return decoder_replace(p, n);
    if (strcmp(type, "Strip") == 0)
        return decoder_strip(p, n);
    if (strcmp(type, "ByteFallback") == 0) {
        t->decode_byte_tokens = true;
        return 0;
    }
    if (strcmp(type, "Fuse") == 0) {
        p->fused = true;
        return 0;
    }
    if (strcmp(type, "Metaspace") == 0 && !t->mark) {
        struct split_step s = {0};
        int rc = metaspace_read(p, n, &s);
        t->mark = s.pattern;
        t->mark_n = s.pattern_n;
        t->mark_text = " ";
        t->mark_text_n = 1;
        t->strip = s.scheme == SCHEME_NEVER ? STRIP_NONE : STRIP_FIRST_MARKS;
        return rc;
    }
    return unsupported(p, type);
}

int tokenizer_parse_decoder(struct tokenizer *t, const struct json_node *n, const char *path,
                            struct leat_error *e)
{
    struct part p;
    part_open(&p, t, path, "decoder", e);
    t->decode = DECODE_TEXT;
    return each(&p, n, "decoders", decoder_one);
}
