/* Vocabulary and merge rules: spellings in one run of bytes, two open-addressed hashes.
 * Knows no file format and no algorithm. Built by one thread, then read by any. */
#include "vocab.h"

#include <assert.h>
#include <string.h>

#include "../base/checked.h"

#define ID_BITS 21
#define ID_MASK ((UINT64_C(1) << ID_BITS) - 1)

static uint64_t mix(uint64_t h)
{
    /* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

static uint64_t text_hash(const char *s, size_t n)
{
    uint64_t h = n, w;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    w = 0;
    memcpy(&w, s, n);
    return mix(h ^ w);
}

/* A power of two with at most two thirds in use. */
static uint32_t slots_for(uint64_t n)
{
    uint64_t slots = 16;
    while (slots * 2 < n * 3)
        slots *= 2;
    return (uint32_t)slots;
}

int vocab_open(struct vocab *v, struct arena *a, int32_t n, int32_t count, uint64_t text_bytes,
               bool scores, struct leat_error *e)
{
    assert(n >= 0 && n <= VOCAB_MAX_IDS && count <= n);
    *v = (struct vocab){.n = n};
    uint64_t room;
    if (!checked_add(text_bytes, (uint64_t)count * 3 + 1, &room) || room > UINT32_MAX)
        return error_set(e, LEAT_ERR_UNSUPPORTED, "the vocabulary's text is over 4 GiB");
    uint32_t slots = slots_for((uint64_t)count);
    v->text_cap = room;
    v->text_n = 1; /* offset 0 means "no such id" */
    v->slot_mask = slots - 1;
    /* One block: the ledger rounds large memory to 2 MiB, once is enough. */
    uint64_t at = align_up((uint64_t)n * sizeof *v->at, 8);
    uint64_t score = scores ? align_up((uint64_t)n * sizeof *v->score, 8) : 0;
    uint64_t slot = (uint64_t)slots * sizeof *v->slot;
    char *block = arena_alloc(a, at + score + slot + (uint64_t)n + room, 8, e);
    if (!block)
        return LEAT_ERR_MEMORY;
    v->at = (uint32_t *)block;
    v->score = scores ? (float *)(block + at) : NULL;
    v->slot = (uint32_t *)(block + at + score);
    v->flags = (uint8_t *)(block + at + score + slot);
    v->text = block + at + score + slot + n;
    return 0;
}

/* The slot that holds text, or the free one where it belongs. */
static uint32_t *vocab_slot(const struct vocab *v, const char *text, size_t len, uint64_t h,
                            uint32_t *tag)
{
    *tag = (uint32_t)(h >> 53) << ID_BITS;
    for (uint32_t i = (uint32_t)h & v->slot_mask;; i = (i + 1) & v->slot_mask) {
        uint32_t s = v->slot[i];
        if (s == 0)
            return &v->slot[i];
        if ((s & ~(uint32_t)ID_MASK) != *tag)
            continue;
        size_t n;
        const char *t = vocab_text(v, (int32_t)(s & ID_MASK) - 1, &n);
        if (n == len && memcmp(t, text, len) == 0)
            return &v->slot[i];
    }
}

void vocab_store(struct vocab *v, int32_t id, const char *text, size_t len)
{
    assert(id >= 0 && id < v->n && v->at[id] == 0 && len <= VOCAB_MAX_TOKEN);
    assert(v->text_n + len + 3 <= v->text_cap);
    v->at[id] = (uint32_t)v->text_n;
    char *p = v->text + v->text_n;
    p[0] = (char)(len & 0xff);
    p[1] = (char)(len >> 8);
    memcpy(p + 2, text, len);
    p[2 + len] = '\0';
    v->text_n += len + 3;
    if (len > v->longest)
        v->longest = len;
}

void vocab_index(struct vocab *v)
{
    enum { AHEAD = 16 };
    uint64_t hash[AHEAD];
    for (int32_t i = 0; i < v->n + AHEAD; i++) {
        size_t len;
        const char *text;
        const int32_t id = i - AHEAD;
        if (id >= 0 && v->at[id] != 0 && (text = vocab_text(v, id, &len), len > 0)) {
            uint32_t tag, *s = vocab_slot(v, text, len, hash[i % AHEAD], &tag);
            *s = tag | (uint32_t)(id + 1);
        }
        if (i < v->n && v->at[i] != 0) {
            text = vocab_text(v, i, &len);
            hash[i % AHEAD] = text_hash(text, len);
            __builtin_prefetch(&v->slot[(uint32_t)hash[i % AHEAD] & v->slot_mask], 1);
        }
    }
}

int32_t vocab_add(struct vocab *v, int32_t id, const char *text, size_t len)
{
    vocab_store(v, id, text, len);
    if (len == 0)
        return 0;
    uint32_t tag;
    uint32_t *s = vocab_slot(v, text, len, text_hash(text, len), &tag);
    int32_t before = (int32_t)(*s & ID_MASK);
    *s = tag | (uint32_t)(id + 1);
    return before;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t len)
{
    if (len == 0 || len > v->longest)
        return -1;
    uint32_t tag;
    return (int32_t)(*vocab_slot(v, text, len, text_hash(text, len), &tag) & ID_MASK) - 1;
}

void vocab_find_pair(const struct vocab *v, const char *joined, size_t left_n, size_t right_n,
                     int32_t *left, int32_t *right, int32_t *both)
{
    const char *text[3] = {joined, joined + left_n, joined};
    const size_t len[3] = {left_n, right_n, left_n + right_n};
    int32_t *const id[3] = {left, right, both};
    uint64_t h[3];
    for (int i = 0; i < 3; i++) {
        h[i] = text_hash(text[i], len[i]);
        __builtin_prefetch(&v->slot[(uint32_t)h[i] & v->slot_mask]);
    }
    for (int i = 0; i < 3; i++) {
        uint32_t s = v->slot[(uint32_t)h[i] & v->slot_mask] & (uint32_t)ID_MASK;
        if (s)
            __builtin_prefetch(&v->at[s - 1]);
    }
    for (int i = 0; i < 3; i++) {
        uint32_t tag;
        *id[i] = -1;
        if (len[i] > 0 && len[i] <= v->longest)
            *id[i] = (int32_t)(*vocab_slot(v, text[i], len[i], h[i], &tag) & ID_MASK) - 1;
    }
}

int merges_open(struct merges *m, struct arena *a, uint64_t n, struct leat_error *e)
{
    *m = (struct merges){0};
    if (n > UINT64_C(1) << 26)
        return error_set(e, LEAT_ERR_UNSUPPORTED, "%llu merge rules are more than this build holds",
                         (unsigned long long)n);
    uint32_t slots = slots_for(n);
    m->cap = (uint32_t)n;
    m->slot_mask = slots - 1;
    /* One block, as above. */
    char *block = arena_alloc(a, n * sizeof *m->rule + (uint64_t)slots * sizeof *m->slot, 8, e);
    if (!block)
        return LEAT_ERR_MEMORY;
    m->rule = (uint64_t *)block;
    m->slot = (uint32_t *)(block + n * sizeof *m->rule);
    return 0;
}

static uint32_t *merges_slot(const struct merges *m, uint64_t pair)
{
    for (uint32_t i = (uint32_t)mix(pair) & m->slot_mask;; i = (i + 1) & m->slot_mask) {
        uint32_t s = m->slot[i];
        if (s == 0 || (m->rule[s - 1] & (ID_MASK | ID_MASK << ID_BITS)) == pair)
            return &m->slot[i];
    }
}

void merges_add(struct merges *m, int32_t left, int32_t right, int32_t result, bool later_wins)
{
    assert(m->n < m->cap);
    uint64_t pair = (uint64_t)left | (uint64_t)right << ID_BITS;
    m->rule[m->n++] = pair | (uint64_t)result << 2 * ID_BITS;
    uint32_t *s = merges_slot(m, pair);
    if (*s == 0 || later_wins)
        *s = m->n;
}

bool merges_find(const struct merges *m, int32_t left, int32_t right, uint32_t *rank,
                 int32_t *result)
{
    if ((left | right) < 0 || m->n == 0)
        return false;
    uint32_t s = *merges_slot(m, (uint64_t)left | (uint64_t)right << ID_BITS);
    if (s == 0)
        return false;
    *rank = s - 1;
    *result = (int32_t)(m->rule[s - 1] >> 2 * ID_BITS);
    return true;
}
