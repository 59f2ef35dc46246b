/* Opens whatever it is given as a model, an inspection and a tokenizer, and says what came of
 * it. A driver for files (tests/e2e/test_malformed.py) and, built with -DFUZZ_LIBFUZZER and
 * clang's -fsanitize=fuzzer, a libFuzzer target.
 *
 * fuzz_model PATH...     per path: "path<TAB>PATH", then "inspect<TAB>CODE<TAB>MESSAGE", and
 * "model" and "tokenizer" likewise; CODE 0 = accepted. "-" reads paths from standard input, a
 * line each.
 *
 * It aborts when a message is not one printable line, whatever the bytes of the file were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../src/base/utf8.h"
#include "../../src/model/inspect.h"
#include "../../src/text/tokenizer.h"

/* A broken promise of the library: not an error of the file. */
static void require(bool held, const char *what, const char *path)
{
    if (held)
        return;
    fprintf(stderr, "fuzz_model: %s (%s)\n", what, path);
    abort();
}

static void check_text(const char *text, const char *path)
{
    size_t n = strlen(text);
    uint32_t c;

    while (n > 0) {
        int len = utf8_next(text, n, &c);

        require(len > 0 && c >= 0x20 && c != 0x7f && !(c >= 0x80 && c < 0xa0),
                "text that is not one printable line", path);
        text += len;
        n -= (size_t)len;
    }
}

/* Prints and checks one outcome. */
static void say(const char *what, int rc, const struct leat_error *e, const char *path)
{
    require(rc <= 0 && rc >= LEAT_ERR_INTERNAL, "a code that is none", path);
    require(rc == 0 || (e->code == rc && e->message[0]), "a failure without its message", path);
    require(rc != LEAT_ERR_INTERNAL, "a defect of our own", path);
    if (rc)
        check_text(e->message, path);
    printf("%s\t%d\t%s\n", what, rc, rc ? e->message : "");
}

static void try_inspect(const char *path)
{
    struct leat_error e = {0};
    struct inspect *i;
    int rc = inspect_open(path, NULL, &i, &e);
    uint64_t bytes = 0;

    if (rc == 0) {
        for (int32_t k = 0; k < i->n_lacks; k++)
            check_text(i->lacks[k], path);
        for (int32_t k = 0; k < i->n_warnings; k++)
            check_text(i->warnings[k], path);
        for (int64_t k = 0; k < i->n_meta; k++) {
            check_text(i->meta[k].key, path);
            check_text(i->meta[k].value, path);
        }
        for (int64_t k = 0; k < i->n_tensors; k++) {
            check_text(i->tensors[k].name, path);
            bytes += i->tensors[k].bytes;
        }
        require(bytes == i->total_bytes, "tensor bytes that do not add up", path);
    }
    say("inspect", rc, &e, path);
    if (rc == 0 && i->n_lacks > 0)
        printf("lacks\t0\t%s\n", i->lacks[0]);
    inspect_close(rc == 0 ? i : NULL);
}

/* Every unit must lie inside its file. */
static void check_model(const struct model *m, const char *path)
{
    for (int32_t u = 0; u < m->n_units; u++)
        for (int32_t p = 0; p < m->units[u].n_parts; p++) {
            const struct part *x = &m->units[u].part[p];
            uint64_t size = file_size(m->files[x->file].file);

            require(x->rows > 0 && x->cols > 0 && x->bytes == (uint64_t)x->rows * x->row_bytes,
                    "a part without rows", path);
            require(x->offset <= size && x->bytes <= size - x->offset, "a part outside its file",
                    path);
        }
    for (int32_t v = 0; v < m->n_vectors; v++) {
        const struct part *x = &m->vectors[v].part;
        uint64_t size = file_size(m->files[x->file].file);

        require(x->offset <= size && x->bytes <= size - x->offset, "a vector outside its file",
                path);
    }
    require(m->n_schedule > 0 && m->schedule[m->n_schedule - 1] == m->head,
            "a schedule that ends in no head", path);
}

static void try_encode(const struct tokenizer *t, const char *path)
{
    static const char text[] = "a b ab  c\n\xc3\xa9\xff\xf0\x9f\x98\x80<s> 123";
    struct token_list ids = {0};
    struct leat_error e = {0};
    char piece[256];

    if (tokenizer_encode(t, text, sizeof text - 1, ENCODE_SPECIAL | ENCODE_ADD_SPECIAL, &ids, &e) ==
        0)
        for (size_t i = 0; i < ids.n; i++) {
            require(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_size(t), "an id past the vocabulary",
                    path);
            tokenizer_piece(t, ids.ids[i], true, piece, sizeof piece);
        }
    token_list_free(&ids);
}

static void try_tokenizer(const char *path)
{
    struct leat_error e = {0};
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    struct arena a;
    struct stat st;
    char json[4096];
    int rc;

    snprintf(json, sizeof json, "%s/tokenizer.json", path);
    arena_init(&a, NULL, ROW_TOKENIZER);
    if (stat(json, &st) == 0) {
        rc = tokenizer_open_json(path, NULL, &t, &e);
        say("tokenizer", rc, &e, path);
    } else if (stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
               gguf_open(path, true, &a, &g, &e) == 0 && gguf_find(g, "tokenizer.ggml.model")) {
        rc = tokenizer_open_gguf(g, NULL, &t, &e);
        say("tokenizer", rc, &e, path);
    }
    if (t)
        try_encode(t, path);
    tokenizer_close(t);
    gguf_close(g);
    arena_close(&a);
}

static void try_path(const char *path)
{
    struct leat_error e = {0};
    struct model *m;
    int rc;

    try_inspect(path);
    rc = model_open(path, NULL, &m, &e);
    say("model", rc, &e, path);
    if (rc == 0)
        check_model(m, path);
    model_close(rc == 0 ? m : NULL);
    try_tokenizer(path);
    fflush(stdout);
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("fuzz", 0);

    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!freopen("/dev/null", "w", stdout))
        abort();
    try_path(path);
    close(fd);
    return 0;
}

#else

int main(int argc, char **argv)
{
    char line[4096];

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-") != 0) {
            printf("path\t%s\n", argv[i]);
            try_path(argv[i]);
            continue;
        }
        while (fgets(line, sizeof line, stdin)) {
            line[strcspn(line, "\n")] = 0;
            printf("path\t%s\n", line);
            fflush(stdout);
            try_path(line);
        }
    }
    return 0;
}

#endif
