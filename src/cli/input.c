/* What a command reads: the text of -p or -f, and lists of ids. Owns no option. One thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "../base/error.h"

#define READ_STEP (64u << 10)
#define TEXT_MOST (256u << 20) /* bytes; no context holds as much, and a device may never end */

static int read_all(int fd, const char *name, char **text, size_t *len, struct leat_error *e)
{
    size_t cap = READ_STEP, n = 0;
    char *buf = malloc(cap + 1);
    ssize_t got = 1;
    while (buf && got != 0) {
        if (n == cap && cap >= TEXT_MOST) {
            free(buf);
            return error_set(e, LEAT_ERR_FILE,
                             "%s holds more than %u MiB, which is more text than any context takes",
                             name, TEXT_MOST >> 20);
        }
        if (n == cap) {
            char *grown = realloc(buf, 2 * cap + 1);
            if (!grown)
                free(buf);
            buf = grown;
            cap *= 2;
            continue;
        }
        if (!interrupt_wait(fd)) {
            free(buf);
            return error_set(e, LEAT_ERR_CANCELLED, "cancelled while waiting for %s", name);
        }
        got = read(fd, buf + n, cap - n);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0) {
            int why = errno;
            free(buf);
            return error_set_errno(e, LEAT_ERR_FILE, why, "cannot read %s", name);
        }
        n += (size_t)got;
    }
    if (!buf)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for the text of %s", name);
    buf[n] = 0;
    *text = buf;
    *len = n;
    return 0;
}

static int read_file(const char *path, char **text, size_t *len, struct leat_error *e)
{
    char name[256];
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "standard input", text, len, e);
    error_quote(name, sizeof name, path, strlen(path));
    /* Not blocking: a pipe that nobody writes yet is waited for in interrupt_wait(). */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return error_set_errno(e, LEAT_ERR_FILE, errno, "cannot open %s", name);
    int code = read_all(fd, name, text, len, e);
    close(fd);
    return code;
}

int input_text(const struct options *o, char **text, size_t *len, struct leat_error *e)
{
    const char *prompt = option(o, "prompt")->s, *file = option(o, "file")->s;
    *text = NULL;
    *len = 0;
    if (prompt && file)
        return error_set(e, LEAT_ERR_USAGE, "-p and -f both give the text; give one of them");
    if (file) {
        int code = read_file(file, text, len, e);
        return code < 0 ? code : 1;
    }
    if (!prompt)
        return 0;
    *text = strdup(prompt);
    *len = strlen(prompt);
    return *text ? 1 : error_set(e, LEAT_ERR_MEMORY, "no memory for the text");
}

static bool is_gap(char c)
{
    return c == ' ' || c == ',' || c == '\t' || c == '\n' || c == '\r';
}

int input_ids(const char *text, size_t len, int32_t **ids, int32_t *n, struct leat_error *e)
{
    const char *c = text, *end = text + len;
    while (c < end && is_gap(*c))
        c++;
    while (end > c && is_gap(end[-1]))
        end--;
    if (end - c >= 2 && *c == '[' && end[-1] == ']') { /* as --json prints them */
        c++;
        end--;
    }
    size_t most = len / 2 + 1;
    int32_t *out = malloc(most * sizeof *out);
    *n = 0;
    *ids = NULL;
    if (!out)
        return error_set(e, LEAT_ERR_MEMORY, "no memory for %zu ids", most);
    for (;;) {
        while (c < end && is_gap(*c))
            c++;
        if (c == end)
            break;
        const char *word = c;
        int64_t id = 0;
        while (c < end && *c >= '0' && *c <= '9' && id <= INT32_MAX)
            id = 10 * id + (*c++ - '0');
        if (c == word || (c < end && !is_gap(*c)) || id > INT32_MAX) {
            char quoted[64];
            size_t k = 0;
            while (word + k < end && !is_gap(word[k]))
                k++;
            free(out);
            return error_set(e, LEAT_ERR_USAGE,
                             "'%s' is no token id: numbers between blanks or commas were expected",
                             error_quote(quoted, sizeof quoted, word, k));
        }
        out[(*n)++] = (int32_t)id;
    }
    *ids = out;
    return 0;
}
