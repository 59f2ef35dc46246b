/* The vocabulary: ids, spellings, kinds and scores, with a hash from spelling to id; and the merge
 * rules of a BPE, with a hash from a pair of ids to its rank. Compact, because the memory budget
 * counts it. Built by one thread, then immutable and free for all. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/arena.h"

#define VOCAB_MAX_IDS   ((INT32_C(1) << 21) - 1) /* three ids share one word in a merge rule */
#define VOCAB_MAX_TOKEN 65535                    /* bytes of one spelling */

struct vocab {
    int32_t n;      /* ids 0 .. n-1 */
    uint32_t *at;   /* of an id in text: two bytes of length, the bytes, NUL; 0 = no such id */
    uint8_t *flags; /* enum token_flags */
    float *score;   /* NULL = ranked by merge rules */
    char *text;
    uint64_t text_n, text_cap;
    uint32_t *slot; /* id + 1 and 11 bits of the hash */
    uint32_t slot_mask;
    size_t longest; /* bytes of the longest spelling */
};

/* n ids (at most VOCAB_MAX_IDS), of which count will be added with text_bytes bytes in all. */
int vocab_open(struct vocab *v, struct arena *a, int32_t n, int32_t count, uint64_t text_bytes,
               bool scores, struct leat_error *e);
/* id must be new and less than n. A spelling met twice finds the later id. An empty spelling is
 * kept but never found. Returns 0, or the earlier id + 1 when the spelling was there already;
 * asserts that the sums given to vocab_open hold. */
int32_t vocab_add(struct vocab *v, int32_t id, const char *text, size_t len);

/* The same in two steps, for many: vocab_store for every id, then vocab_index once, which fetches the
 * hash's memory ahead. */
void vocab_store(struct vocab *v, int32_t id, const char *text, size_t len);
void vocab_index(struct vocab *v);

static inline const char *vocab_text(const struct vocab *v, int32_t id, size_t *len)
{
    const unsigned char *p = (const unsigned char *)v->text + v->at[id];
    *len = (size_t)p[0] | (size_t)p[1] << 8;
    return (const char *)p + 2;
}
static inline bool vocab_has(const struct vocab *v, int32_t id)
{
    return id >= 0 && id < v->n && v->at[id] != 0;
}
int32_t vocab_find(const struct vocab *v, const char *text, size_t len); /* -1 = none */
/* left, right and both joined (joined holds left_n bytes of the one and right_n of the other):
 * three lookups whose memory is fetched side by side. */
void vocab_find_pair(const struct vocab *v, const char *joined, size_t left_n, size_t right_n,
                     int32_t *left, int32_t *right, int32_t *both);

struct merges {
    uint64_t *rule; /* by rank: left | right << 21 | result << 42 */
    uint32_t n, cap;
    uint32_t *slot; /* rank + 1 */
    uint32_t slot_mask;
};

int merges_open(struct merges *m, struct arena *a, uint64_t n, struct leat_error *e);
/* The next rank. When the pair is there already, the first rank stays unless later_wins. */
void merges_add(struct merges *m, int32_t left, int32_t right, int32_t result, bool later_wins);
/* True and *rank, *result when the pair merges. */
bool merges_find(const struct merges *m, int32_t left, int32_t right, uint32_t *rank,
                 int32_t *result);

#endif
