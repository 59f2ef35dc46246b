/* A tokenizer behind a pipe, for the scripts that compare it with others: not a test by itself.
 * encode_driver SOURCE < requests > answers Request: u32 flags (enum encode_flags), u32 length,
 * text. Answer: i32 count (or a negative code), ids (i32), u32 length, text decoded from the ids
 * with special tokens shown. Little-endian. Standard error gets one line of load time and memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../src/base/clock.h"
#include "../../../src/text/tokenizer.h"

static int open_any(const char *path, struct ledger *l, struct arena *a, struct gguf **g,
                    struct tokenizer **t, struct leat_error *e)
{
    size_t n = strlen(path);
    if (n < 5 || strcmp(path + n - 5, ".gguf") != 0)
        return tokenizer_open_json(path, l, t, e);
    int rc = gguf_open(path, true, a, g, e);
    return rc < 0 ? rc : tokenizer_open_gguf(*g, l, t, e);
}

static int answer(const struct tokenizer *t, const struct token_list *l)
{
    struct detokenizer d;
    size_t cap = 8 + tokenizer_longest(t), n = 0, room = 4096;
    char *one = malloc(cap), *text = malloc(room);
    int32_t count = (int32_t)l->n;
    if (!one || !text)
        return 1;
    detokenizer_init(&d, t, true, true);
    for (size_t i = 0; i <= l->n; i++) {
        size_t m =
            i < l->n ? detokenizer_feed(&d, l->ids[i], one, cap) : detokenizer_flush(&d, one, cap);
        while (n + m > room)
            if (!(text = realloc(text, room *= 2)))
                return 1;
        memcpy(text + n, one, m);
        n += m;
    }
    uint32_t length = (uint32_t)n;
    fwrite(&count, 4, 1, stdout);
    if (count)
        fwrite(l->ids, 4, l->n, stdout);
    fwrite(&length, 4, 1, stdout);
    fwrite(text, 1, n, stdout);
    fflush(stdout);
    free(one);
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    struct leat_error e = {0};
    struct ledger *l = NULL;
    struct arena a;
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    if (argc != 2 || ledger_open(UINT64_MAX, &l, &e) < 0)
        return 2;
    arena_init(&a, l, ROW_MODEL);
    double start = clock_now();
    if (open_any(argv[1], l, &a, &g, &t, &e) < 0) {
        fprintf(stderr, "error %d: %s\n", e.code, e.message);
        gguf_close(g);
        arena_close(&a);
        ledger_close(l);
        return 1;
    }
    fprintf(stderr,
            "kind %s pre \"%s\" size %d bos %d eos %d adds %d %d load %.3f s held %.2f MiB peak "
            "%.2f MiB note %s\n",
            tokenizer_kind(t), tokenizer_pre(t), tokenizer_size(t), tokenizer_bos(t),
            tokenizer_eos(t), tokenizer_adds_bos(t), tokenizer_adds_eos(t), clock_now() - start,
            (double)ledger_held(l, DOMAIN_HELD, ROW_TOKENIZER) / 1048576,
            (double)ledger_peak(l, DOMAIN_HELD, ROW_TOKENIZER) / 1048576, tokenizer_note(t));
    uint32_t head[2];
    char *text = NULL;
    struct token_list list = {0};
    int status = 0;
    while (status == 0 && fread(head, 4, 2, stdin) == 2) {
        free(text);
        text = malloc(head[1] + 1u);
        if (!text || fread(text, 1, head[1], stdin) != head[1])
            break;
        list.n = 0;
        int rc = tokenizer_encode(t, text, head[1], head[0], &list, &e);
        if (rc < 0) {
            int32_t code = rc;
            fprintf(stderr, "error %d: %s\n", rc, e.message);
            fwrite(&code, 4, 1, stdout);
            fflush(stdout);
        } else {
            status = answer(t, &list);
        }
    }
    free(text);
    token_list_free(&list);
    tokenizer_close(t);
    gguf_close(g);
    arena_close(&a);
    ledger_close(l);
    return status;
}
