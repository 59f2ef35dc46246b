/* What the unit tests of model share: cmocka, a scratch folder, and a writer of small GGUF files
 * that shares no code with the reader. One thread. */
#ifndef UNIT_MODEL_H
#define UNIT_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (!strstr((text), (part)))                                                               \
            fail_msg("'%s' does not contain '%s'", (text), (part));                                \
    } while (0)

static char scratch_folder[64];

static inline const char *scratch(const char *name)
{
    static char path[4][256];
    static int turn;

    if (!scratch_folder[0]) {
        strcpy(scratch_folder, "model-XXXXXX");
        assert_non_null(mkdtemp(scratch_folder));
    }
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", scratch_folder, name);
    return path[turn];
}

static inline int scratch_remove(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", scratch_folder);
    return scratch_folder[0] ? system(command) : 0;
}

/* A path in the shared test data; skips the test where that is absent. */
static inline const char *data_file(const char *name)
{
    static char path[4][512];
    static int turn;
    const char *folder = getenv("LEAT_TEST_DATA");

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder ? folder : "../shared/data", name);
    if (access(path[turn], R_OK) != 0) {
        print_message("no test data at ../shared/data (%s)\n", name);
        skip();
    }
    return path[turn];
}

struct writer { /* a GGUF file in the making; all little endian */
    uint8_t *keys, *infos;
    size_t n_keys, n_infos; /* bytes */
    uint64_t keys_count, tensors;
    uint64_t data; /* bytes of tensor data, a multiple of 32 */
};

static inline size_t room_for(size_t n)
{
    size_t cap = 256;

    while (cap < n)
        cap *= 2;
    return cap;
}

static inline void put(uint8_t **p, size_t *n, const void *bytes, size_t k)
{
    if (!*p || room_for(*n + k) != room_for(*n))
        *p = realloc(*p, room_for(*n + k));
    assert_non_null(*p);
    memcpy(*p + *n, bytes, k);
    *n += k;
}

static inline void put_number(uint8_t **p, size_t *n, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        uint8_t b = (uint8_t)(v >> (8 * i));

        put(p, n, &b, 1);
    }
}

static inline void put_text(uint8_t **p, size_t *n, const char *text, size_t len)
{
    put_number(p, n, len, 8);
    put(p, n, text, len);
}

/* A key of type number t whose value is the low `bytes` bytes of v. */
static inline void key_bits(struct writer *w, const char *key, uint32_t t, uint64_t v, int bytes)
{
    put_text(&w->keys, &w->n_keys, key, strlen(key));
    put_number(&w->keys, &w->n_keys, t, 4);
    put_number(&w->keys, &w->n_keys, v, bytes);
    w->keys_count++;
}

static inline void key_u32(struct writer *w, const char *key, uint32_t v)
{
    key_bits(w, key, 4, v, 4);
}

static inline void key_f32(struct writer *w, const char *key, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, 4);
    key_bits(w, key, 6, bits, 4);
}

static inline void key_text(struct writer *w, const char *key, const char *text, size_t len)
{
    put_text(&w->keys, &w->n_keys, key, strlen(key));
    put_number(&w->keys, &w->n_keys, 8, 4);
    put_text(&w->keys, &w->n_keys, text, len);
    w->keys_count++;
}

/* The head of an array; its elements follow through put_number or put_text on w->keys. */
static inline void key_array(struct writer *w, const char *key, uint32_t elem, uint64_t count)
{
    put_text(&w->keys, &w->n_keys, key, strlen(key));
    put_number(&w->keys, &w->n_keys, 9, 4);
    put_number(&w->keys, &w->n_keys, elem, 4);
    put_number(&w->keys, &w->n_keys, count, 8);
    w->keys_count++;
}

/* A tensor behind the one before it. bytes: its size as the test reckons it. */
static inline void add_tensor(struct writer *w, const char *name, uint32_t type, int n_dims,
                              const uint64_t *dims, uint64_t bytes)
{
    put_text(&w->infos, &w->n_infos, name, strlen(name));
    put_number(&w->infos, &w->n_infos, (uint64_t)n_dims, 4);
    for (int i = 0; i < n_dims; i++)
        put_number(&w->infos, &w->n_infos, dims[i], 8);
    put_number(&w->infos, &w->n_infos, type, 4);
    put_number(&w->infos, &w->n_infos, w->data, 8);
    w->data += (bytes + 31) / 32 * 32;
    w->tensors++;
}

/* Writes header and a hole of the data's size; frees w. Returns where data start. */
static inline uint64_t save_gguf(struct writer *w, const char *path, uint32_t version)
{
    uint8_t *head = NULL;
    size_t n = 0, start;
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    put(&head, &n, "GGUF", 4);
    put_number(&head, &n, version, 4);
    put_number(&head, &n, w->tensors, 8);
    put_number(&head, &n, w->keys_count, 8);
    if (w->n_keys)
        put(&head, &n, w->keys, w->n_keys);
    if (w->n_infos)
        put(&head, &n, w->infos, w->n_infos);
    start = (n + 31) / 32 * 32;
    assert_int_equal(fwrite(head, 1, n, f), n);
    fclose(f);
    assert_int_equal(truncate(path, (off_t)(start + w->data)), 0);
    free(head);
    free(w->keys);
    free(w->infos);
    memset(w, 0, sizeof *w);
    return start;
}

static inline void save_text(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

#endif
