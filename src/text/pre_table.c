/* The pre-tokenizer table. The patterns are the models' own (their tokenizer.json), the names are
 * those of llama.cpp's converter; both are listed in docs/tokenizers.md. EX is written with
 * possessive groups, which match the same text without a stack frame for each letter. Data only. */
#include "pre_table.h"

/* clang-format off */
#define G2      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define L3      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define Q2      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define Q35     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}" \
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O4      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p" \
    "{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?" \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}" \
    "\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" \
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TK      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p" \
    "{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{" \
    "Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define N3      "\\p{N}{1,3}"
#define HAN     "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define DS3     \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" \
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define DSL2    \
    "\\s?[A-Za-z\\x{00B5}\\x{00C0}-\\x{00D6}\\x{00D8}-\\x{00F6}\\x{00F8}-\\x{01BA}" \
    "\\x{01BC}-\\x{01BF}\\x{01C4}-\\x{0293}\\x{0295}-\\x{02AF}\\x{0370}-\\x{0373}" \
    "\\x{0376}\\x{0377}\\x{037B}-\\x{037D}\\x{037F}\\x{0386}\\x{0388}-\\x{038A}" \
    "\\x{038C}\\x{038E}-\\x{03A1}\\x{03A3}-\\x{03F5}\\x{03F7}-\\x{0481}\\x{048A}-" \
    "\\x{052F}\\x{0531}-\\x{0556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-" \
    "\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-" \
    "\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-" \
    "\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}" \
    "\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-" \
    "\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-" \
    "\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-" \
    "\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-" \
    "\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}" \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-" \
    "\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-" \
    "\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-" \
    "\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-" \
    "\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}" \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+"
#define DSL3    \
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-" \
    "\\x{3002}]+"
#define CJK     "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define FA1     "[\\p{P}\\$\\+<=>\\^~\\|`]+"
#define DEF1    "[\\p{P}\\$\\+<=>\\^~\\|]+"
#define BL      \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}" \
    "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define KM      \
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*" \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?" \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+[\\p{Ll}\\p" \
    "{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SEED    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}" \
    "| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BM      " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{0964}\\x{06D4}\\x{060C})]+"
#define JA      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)" \
    "|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)" \
    "|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
#define YT1     \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+" \
    "|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}" \
    "\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+" \
    "|[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define YT2     \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p" \
    "{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?" \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}" \
    "\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" \
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define AF2     \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{8C48}-\\x{FAFF}\\x{3040}-\\x{309F}" \
    "\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{0E40}-\\x{0E7F}" \
    "\\x{0E80}-\\x{0EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}" \
    "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+"
#define EX      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)" \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}[\\p{L}\\p{M}]*+(?: \\p{L}[\\p{L}\\p{M}]*+)*+|\\p{N}" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define M5      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+" \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SP3     \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)" \
    "|\\s+"
#define UF      \
    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+" \
    "|\\s+(?!\\S)|\\s+"

static const struct pre_pattern patterns[] = {
    {"G2",   {G2}, false, false},
    {"L3",   {L3}, false, false},
    {"Q2",   {Q2}, false, false},
    {"Q35",  {Q35}, false, false},
    {"O4",   {O4}, false, false},
    {"TK",   {TK}, false, false},
    {"DS3",  {N3, HAN, DS3}, false, false},
    {"DSL",  {"[\\r\\n]", DSL2, DSL3, "@trailing-space", CJK, "\\p{N}+"}, false, false},
    {"DSC",  {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}, false, false},
    {"SC",   {"\\p{N}", G2}, false, false},
    {"FA",   {FA1, G2, "[0-9][0-9][0-9]"}, false, false},
    {"DEF",  {DEF1, G2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
    {"BL",   {BL}, false, false},
    {"KM",   {KM}, false, false},
    {"SEED", {SEED}, false, false},
    {"BM",   {BM}, false, false},
    {"VI",   {BM, "\\p{N}"}, false, false},
    {"JA",   {JA}, false, false},
    {"YT",   {YT1, YT2}, false, false},
    {"AYA",  {"@threes-word-end", O4}, false, false},
    {"SUP",  {"\\p{N}+", "@threes-zero"}, false, false},
    {"AF",   {"@threes", AF2, DS3}, false, false},
    {"EX",   {EX}, false, false},
    {"M5",   {N3, M5}, false, false},
    {"SP",   {N3, HAN, SP3, "\\p{N}"}, false, false},
    {"LG",   {"[^\\n]+|[\\n]+", Q2}, false, false},
    {"GEM",  {"[^\\n]+|[\\n]+"}, true, false},
    {"UF",   {UF}, false, false},
    {"CHAM", {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )",
              "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", G2}, false, false},
    {"WS",   {"\\S+"}, false, true},
};

/* names, pattern, ignore_merges, add_bos, clean_spaces, no_bos_default, mask_lstrip */
static const struct pre_row rows[] = {
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     "L3", true, true, true, false, false},
    {"dbrx smaug-bpe", "L3", false, false, true, false, false},
    {"glm4 chatglm-bpe", "L3", false, false, true, true, false},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2", "Q2", false, false, false, false, false},
    {"stablelm2 megrez", "Q2", false, false, true, false, false},
    {"hunyuan solar-open grok-2", "Q2", false, false, false, false, false},
    {"qwen35", "Q35", false, false, false, false, false},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", "O4", false, false, false, false, false},
    {"granite-embed-multi-97m", "O4", true, false, false, false, false},
    {"tekken", "TK", true, true, false, false, false},
    {"deepseek-v3 hunyuan-dense hy_v4 joyai-llm", "DS3", false, false, false, false, false},
    {"deepseek-llm", "DSL", false, false, false, false, false},
    {"deepseek-coder", "DSC", false, false, false, false, false},
    {"spark2_5", "SP", false, false, false, false, false},
    {"starcoder refact codeshell exaone minerva-7b mellum2",
     "SC", false, false, true, false, false},
    {"command-r smollm", "SC", false, false, false, false, false},
    {"gpt-2 phi-2 jina-es jina-de gigachat a.x-4.0 mellum modern-bert mpt olmo jais "
     "exaone4",
     "G2", false, false, true, false, false},
    {"jina-v2-es jina-v2-de", "G2", false, false, true, false, true},
    {"trillion granite-docling", "G2", false, false, false, false, false},
    {"jina-v1-en roberta-bpe", "G2", false, false, true, false, false},
    {"jina-v2-code", "G2", false, false, true, false, true},
    {"falcon", "FA", false, false, true, false, false},
    {"default", "DEF", false, false, true, false, false},
    {"bailingmoe bailingmoe2 llada-moe", "BL", false, false, false, false, false},
    {"kimi-k2", "KM", false, false, false, false, false},
    {"seed-coder", "SEED", false, false, false, false, false},
    {"poro-chat", "BM", false, false, false, false, false},
    {"bloom gpt3-finnish", "BM", false, false, true, false, false},
    {"viking", "VI", false, false, false, false, false},
    {"jais-2", "JA", false, false, true, false, false},
    {"youtu", "YT", true, false, false, false, false},
    {"tiny_aya cohere2moe", "AYA", false, false, false, false, false},
    {"superbpe", "SUP", false, false, false, false, false},
    {"afmoe", "AF", false, false, false, false, false},
    {"exaone-moe", "EX", false, false, true, false, false},
    {"minicpm5", "M5", true, false, true, false, false},
    {"laguna", "LG", false, false, false, false, false},
    {"gemma4", "GEM", false, true, true, false, false},
    {"granite-embed-multi-311m", "GEM", false, false, true, false, false},
    {"sarvam-moe", "GEM", false, false, false, false, false},
    {"ufakzeka", "UF", false, false, false, false, false},
    {"chameleon", "CHAM", false, true, false, false, false},
    {"whitespace", "WS", false, false, true, false, false},
};
/* clang-format on */

#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool names_have(const char *names, const char *name, size_t n)
{
    while (*names) {
        size_t len = strcspn(names, " ");
        if (len == n && memcmp(names, name, n) == 0)
            return true;
        names += len + (names[len] == ' ');
    }
    return false;
}

const struct pre_row *pre_find(const char *name, size_t n)
{
    for (size_t i = 0; n && i < COUNT(rows); i++)
        if (names_have(rows[i].names, name, n))
            return &rows[i];
    return NULL;
}

const struct pre_row *pre_default(void)
{
    return pre_find("default", 7);
}

const struct pre_row *pre_at(size_t i)
{
    return i < COUNT(rows) ? &rows[i] : NULL;
}

const struct pre_pattern *pre_pattern_find(const char *key)
{
    for (size_t i = 0; i < COUNT(patterns); i++)
        if (strcmp(patterns[i].key, key) == 0)
            return &patterns[i];
    return NULL;
}

int pre_pattern_open(const struct pre_pattern *p, const char *owner, struct splitter *s,
                     struct leat_error *e)
{
    static const struct {
        const char *word;
        enum split_kind kind;
    } rules[] = {
        {"@threes", SPLIT_THREES},
        {"@threes-word-end", SPLIT_THREES_WORD_END},
        {"@threes-zero", SPLIT_THREES_ZERO},
        {"@trailing-space", SPLIT_TRAILING_SPACE},
    };
    for (int i = 0; i < PRE_STEPS && p->step[i]; i++) {
        struct split_step step = {.kind = SPLIT_REGEX, .behaviour = SPLIT_ISOLATED};
        int rc = 0;
        if (p->step[i][0] != '@')
            rc = regex_open(p->step[i], strlen(p->step[i]), owner, &step.regex, e);
        for (size_t j = 0; j < COUNT(rules); j++)
            if (strcmp(p->step[i], rules[j].word) == 0)
                step.kind = rules[j].kind;
        rc = rc < 0 ? rc : splitter_add(s, &step, owner, e);
        if (rc < 0) {
            regex_close(step.regex);
            return rc;
        }
    }
    return 0;
}
