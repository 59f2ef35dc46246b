/* Which tokens end generation (docs/tokenizers.md, end of generation). Facts: the spellings that
 * public models use, collected by llama.cpp's llama-vocab.cpp. Runs while a tokenizer is built; one
 * thread. */
#include "tokenizer_internal.h"

static const char *const end_spellings[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "[e~[",
};

/* Of each of these families only the first that is there ends: padding, repository and file marks
 * of fill-in-the-middle. */
static const char *const fim_spellings[][6] = {
    {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"},
    {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
    {"<|file_sep|>"},
};

static int32_t find(const struct tokenizer *t, const char *spelling, bool added_only)
{
    int32_t id = vocab_find(&t->vocab, spelling, strlen(spelling));
    if (id >= 0 && added_only && !(t->vocab.flags[id] & (TOKEN_CONTROL | TOKEN_USER_DEFINED)))
        return -1;
    return id;
}

/* A token found by its spelling is a control token, whatever the file calls it: it must not come
 * out of plain text. */
static void end_mark(struct tokenizer *t, int32_t id)
{
    if (id >= 0)
        t->vocab.flags[id] =
            (uint8_t)((t->vocab.flags[id] & ~TOKEN_USER_DEFINED) | TOKEN_END | TOKEN_CONTROL);
}

void stop_set_by_spelling(struct tokenizer *t, bool added_only)
{
    for (size_t i = 0; i < sizeof end_spellings / sizeof *end_spellings; i++)
        end_mark(t, find(t, end_spellings[i], added_only));
    for (size_t i = 0; i < sizeof fim_spellings / sizeof *fim_spellings; i++)
        for (int j = 0; j < 6 && fim_spellings[i][j]; j++) {
            int32_t id = find(t, fim_spellings[i][j], added_only);
            if (id >= 0) {
                end_mark(t, id);
                break;
            }
        }
}

void stop_set_add(struct tokenizer *t, int64_t id)
{
    if (id < 0 || id > INT32_MAX)
        return;
    if (vocab_has(&t->vocab, (int32_t)id)) {
        t->vocab.flags[id] |= TOKEN_END;
        return;
    }
    for (int32_t i = 0; i < t->n_end; i++)
        if (t->end[i] == id)
            return;
    if (t->n_end < TOKENIZER_ENDS)
        t->end[t->n_end++] = (int32_t)id;
}

static bool ends(const struct tokenizer *t, const char *spelling)
{
    int32_t id = vocab_find(&t->vocab, spelling, strlen(spelling));
    return id >= 0 && (t->vocab.flags[id] & TOKEN_END);
}

static void spare(struct tokenizer *t, const char *spelling)
{
    int32_t id = vocab_find(&t->vocab, spelling, strlen(spelling));
    if (id >= 0)
        t->vocab.flags[id] &= (uint8_t)~TOKEN_END;
}

void stop_set_finish(struct tokenizer *t)
{
    bool call = ends(t, "<|call|>") || ends(t, "<|calls|>");
    /* Harmony and its like: <|end|> ends a message, not the turn. */
    if (call && (ends(t, "<|return|>") || ends(t, "<|flush|>")))
        spare(t, "<|end|>");
    /* Gemma 4: </s> is a tag of HTML in its vocabulary. */
    if (ends(t, "<|tool_response>"))
        spare(t, "</s>");
}
