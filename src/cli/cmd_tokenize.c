/* leat tokenize: text to ids and back. Needs a vocabulary only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "../base/error.h"

struct tokens {
    char *text; /* given, or what the ids spell */
    size_t text_len;
    int32_t *ids;
    size_t n;
};

static int encode(const struct options *o, const struct leat_tokenizer *t, struct tokens *k,
                  struct leat_error *e)
{
    uint32_t flags = (option(o, "bos")->b ? LEAT_ENCODE_ADD_SPECIAL : 0u) |
                     (option(o, "special")->b ? LEAT_ENCODE_SPECIAL : 0u);
    return leat_encode(t, k->text, k->text_len, flags, &k->ids, &k->n, e);
}

static int decode(const struct options *o, const struct leat_tokenizer *t, struct tokens *k,
                  struct leat_error *e)
{
    int32_t n;
    int code = input_ids(k->text, k->text_len, &k->ids, &n, e);
    if (code < 0)
        return code;
    k->n = (size_t)n;
    free(k->text);
    k->text = NULL;
    return leat_decode(t, k->ids, k->n, option(o, "special")->b, &k->text, &k->text_len, e);
}

static void print_json(const struct options *o, const struct leat_tokenizer *t,
                       const struct tokens *k)
{
    json_t *top = json_object(), *ids = json_array(), *pieces = json_array();
    for (size_t i = 0; i < k->n; i++) {
        size_t len = 0;
        const char *piece = leat_piece(t, k->ids[i], &len);
        json_t *p = piece ? json_stringn(piece, len) : NULL;
        json_array_append_new(ids, json_integer(k->ids[i]));
        json_array_append_new(pieces, p ? p : json_null());
    }
    json_object_set_new(top, "ids", ids);
    json_object_set_new(top, "pieces", pieces);
    if (option(o, "decode")->b)
        json_object_set_new(top, "text", json_stringn(k->text, k->text_len));
    output_json(top);
}

static void print_ids(const struct leat_tokenizer *t, const struct tokens *k)
{
    char line[512], quoted[256];
    for (size_t i = 0; i < k->n; i++) {
        size_t len = 0;
        const char *piece = leat_piece(t, k->ids[i], &len);
        int n =
            snprintf(line, sizeof line, "%8d  %s\n", (int)k->ids[i],
                     piece ? error_quote(quoted, sizeof quoted, piece, len) : "(no such token)");
        output_bytes(line, (size_t)n);
    }
}

int tokenize_command(struct options *o)
{
    struct leat_error e = {0};
    struct leat_tokenizer *t = NULL;
    struct tokens k = {0};
    const char *source;
    int status = EXIT_OK;
    int code = options_model(o, &source, &e);
    if (code == 0)
        code = input_text(o, &k.text, &k.text_len, &e);
    if (code == 0)
        code = error_set(&e, LEAT_ERR_USAGE,
                         "no text: give it with -p or -f (-f - is standard input)");
    if (code > 0)
        code = leat_tokenizer_open(source, &t, &e);
    if (code == 0)
        code = option(o, "decode")->b ? decode(o, t, &k, &e) : encode(o, t, &k, &e);
    if (code < 0)
        status = report_error(o, &e, NULL);
    else if (o->json)
        print_json(o, t, &k);
    else if (option(o, "decode")->b)
        output_bytes(k.text, k.text_len);
    else
        print_ids(t, &k);
    leat_tokenizer_close(t);
    free(k.text);
    free(k.ids);
    return status;
}
