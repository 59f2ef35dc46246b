/* Echo: what the present token has routed so far is compared with the tokens before it, and those
 * that were most alike vote for what comes: for the layers still ahead they say what they
 * themselves used there, for the layers that have passed what the token after them used. Tokens
 * that stand in the same place of a text, or are the same word, choose much the same experts.
 *
 *   vote     share of the votes, over a long decayed use count for all that is not alike
 *   frequent a short decayed use count
 *   worth    ((1 - FREQUENT) * vote + FREQUENT * frequent) / distance^PLACE
 *
 * distance is the part of a pass until the layer's next turn: of two equal experts the one whose
 * turn is further off goes. Likeness is a sum over the layers before, fading, of the experts in
 * common, a rare one counting more; it is handed on from one token to the next.
 *
 * In a pass of many tokens (prefill) an expert is used once, whatever the number of tokens; its last
 * tokens are remembered to compare with, where it is known what each chose. Memory: about 40 bytes an
 * expert. Work: a call with a miss looks once at every expert that may go; the constants and what else
 * was tried are in docs/replay.md. */
#include <math.h>
#include <string.h>

#include "evict_policies.h"

#define TOKENS         128 /* that are remembered; a bit each */
#define WORDS          (TOKENS / 64)
#define TOKENS_OF_PASS (TOKENS - 1) /* the last of a prefill */
#define VOTERS         16
#define SHORT          8.0 /* half-lives, in passes */
#define LONG           64.0
#define FADE           0.9f /* of likeness, from layer to layer */
#define HANDED         0.7f /* of it, to the next token */
#define SHARP          10.0f
#define ITSELF         0.3f /* likeness of the present token to itself, when it votes for the next */
#define FREQUENT       0.3f
#define PLACE          0.25f
#define SETTLE         64 /* passes after which counts are written anew, before they grow out of a float */

struct vote {
    float scale; /* of a sum of votes, the long count's included */
    uint64_t voters[WORDS];
    float weight[TOKENS];
};

struct unit {
    uint64_t used[WORDS]; /* by token of the ring */
    float frequent,
        lasting; /* decayed counts, times 2^(passes since the last settling / half-life) */
    uint32_t stamp;
    float worth; /* at that stamp */
};

struct echo {
    uint64_t pass;
    bool compares;      /* the present pass is one token */
    int32_t at, n;      /* place in the ring of the present pass's tokens, and how many have one */
    int32_t settled;    /* passes since */
    uint32_t stamp;     /* of the call */
    bool ready;         /* votes are counted for this call */
    float passes;       /* a decayed count of passes, as unit.lasting */
    float fast, slow;   /* of unit.frequent and unit.lasting to the present; fast times FREQUENT */
    float like[TOKENS]; /* of each token to the present one */
    struct vote ahead, next;
    struct unit unit[]; /* and behind them, by layers to go, 1 / distance^PLACE */
};

static uint64_t room(const struct evict_shape *s)
{
    return sizeof(struct echo) +
           (uint64_t)s->n_layers * (uint64_t)s->n_experts * sizeof(struct unit) +
           ((uint64_t)s->n_layers + 1) * sizeof(float);
}

static int32_t units_of(const struct evict *e)
{
    return e->shape.n_layers * e->shape.n_experts;
}

static void places(struct evict *e)
{
    struct echo *o = e->own;
    float *place = (float *)(o->unit + units_of(e));

    for (int32_t i = 1; i <= e->shape.n_layers; i++)
        place[i] = powf((float)i / (float)e->shape.n_layers, -PLACE);
}

static void settle(struct evict *e)
{
    struct echo *o = e->own;
    const float fast = exp2f(-(float)o->settled / (float)SHORT),
                slow = exp2f(-(float)o->settled / (float)LONG);

    for (int32_t i = 0; i < units_of(e); i++) {
        o->unit[i].frequent *= fast;
        o->unit[i].lasting *= slow;
    }
    o->passes *= slow;
    o->settled = 0;
}

/* Makes way for n tokens, behind those that are remembered. */
static void take_places(struct evict *e, int32_t n)
{
    struct echo *o = e->own;
    uint64_t stay[WORDS];

    memset(stay, 0xff, sizeof stay);
    for (int32_t i = 0; i < n; i++)
        stay[(o->at + i) % TOKENS / 64] &= ~(UINT64_C(1) << (o->at + i) % TOKENS % 64);
    for (int32_t i = 0; i < units_of(e); i++)
        for (int32_t w = 0; w < WORDS; w++)
            o->unit[i].used[w] &= stay[w];
    o->n = n;
}

/* The next pass: its places in the ring, and what likeness it inherits. A token behind s was followed
 * by s + 1, as the present one is followed by the new one. */
static void next_pass(struct evict *e, const struct evict_call *c)
{
    struct echo *o = e->own;
    const uint64_t gone = c->pass - o->pass;
    const bool one = c->tokens == 1 || (c->chosen == NULL && c->n <= 2 * e->shape.n_used);

    o->settled += gone < SETTLE ? (int32_t)gone : SETTLE;
    if (o->settled >= SETTLE)
        settle(e);
    o->passes += exp2f((float)o->settled / (float)LONG);
    o->at = (o->at + o->n) % TOKENS;
    if (o->compares && one) {
        const float last = o->like[TOKENS - 1];
        memmove(o->like + 1, o->like, (TOKENS - 1) * sizeof *o->like);
        o->like[0] = last;
        for (int32_t i = 0; i < TOKENS; i++)
            o->like[i] *= HANDED;
    } else {
        memset(o->like, 0, sizeof o->like);
    }
    o->pass = c->pass;
    o->compares = one;
    take_places(e, one                          ? 1
                   : c->chosen == NULL          ? 0
                   : c->tokens < TOKENS_OF_PASS ? c->tokens
                                                : TOKENS_OF_PASS);
}

/* Adds an expert that the present token uses to the likeness of all that used it too. */
static void compare(struct echo *o, const struct unit *u, int32_t n)
{
    const float share =
        u->frequent * exp2f(-(float)o->settled / (float)SHORT) * (1 - exp2f(-1 / (float)SHORT));
    const float rare = -logf(0.9f * fminf(share, 1) + 0.05f) / 1.5f;

    for (int32_t w = 0; w < WORDS; w++)
        for (uint64_t bits = u->used[w]; bits; bits &= bits - 1)
            o->like[w * 64 + __builtin_ctzll(bits)] += (1 - FADE) * rare / (float)n;
}

/* What the last tokens of a wide pass chose: its very last has the last place. A layer may see fewer
 * of them than the layers before, the last ones. */
static void remember(const struct echo *o, struct unit *u, const struct evict_call *c)
{
    const int32_t before = o->n - c->tokens;

    for (int32_t t = before < 0 ? -before : 0; c->chosen && t < c->tokens; t++)
        for (int32_t i = 0; i < c->per_token; i++) {
            const int32_t at = (o->at + before + t) % TOKENS;
            u[c->chosen[t * c->per_token + i]].used[at / 64] |= UINT64_C(1) << at % 64;
        }
}

static void call(struct evict *e, const struct evict_call *c)
{
    struct echo *o = e->own;
    struct unit *u = o->unit + (int64_t)c->layer * e->shape.n_experts;
    float fast, slow;

    if (o->stamp == 0)
        places(e);
    if (c->pass != o->pass)
        next_pass(e, c);
    fast = exp2f((float)o->settled / (float)SHORT);
    slow = exp2f((float)o->settled / (float)LONG);
    for (int32_t i = 0; i < TOKENS; i++)
        o->like[i] *= FADE;
    for (int32_t i = 0; i < c->n; i++) {
        struct unit *v = &u[c->ids[i]];
        if (o->compares) {
            compare(o, v, c->n);
            v->used[o->at / 64] |= UINT64_C(1) << o->at % 64;
        }
        v->frequent += fast;
        v->lasting += slow;
    }
    if (!o->compares)
        remember(o, u, c);
    o->like[o->at] = 0;
    o->stamp++;
    o->ready = false;
}

/* ---- votes ---- */

/* The best VOTERS of like[], each with a weight beyond the one that the long count gives it. */
static void elect(struct echo *o, struct vote *v, const float *like)
{
    int32_t best[VOTERS];
    int32_t n = 0;
    float all = o->passes * o->slow;

    memset(v, 0, sizeof *v);
    for (int32_t s = 0; s < TOKENS; s++) {
        int32_t i;
        if (like[s] <= 0 || (n == VOTERS && like[s] <= like[best[n - 1]]))
            continue;
        i = n < VOTERS ? n++ : n - 1;
        for (; i > 0 && like[best[i - 1]] < like[s]; i--)
            best[i] = best[i - 1];
        best[i] = s;
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t s = best[i], age = (o->at - s + TOKENS) % TOKENS;
        const float w = exp2f(-(float)age / (float)LONG) * (expf(SHARP * like[s]) - 1);
        v->weight[s] = w;
        v->voters[s / 64] |= UINT64_C(1) << s % 64;
        all += w;
    }
    v->scale = (1 - FREQUENT) / all;
}

static void count(const struct evict *e)
{
    struct echo *o = e->own;
    float after[TOKENS]; /* likeness of the token before each */

    o->ready = true;
    o->slow = exp2f(-(float)o->settled / (float)LONG);
    o->fast = exp2f(-(float)o->settled / (float)SHORT) * (1 - exp2f(-1 / (float)SHORT)) * FREQUENT;
    for (int32_t s = 0; s < TOKENS; s++)
        after[s] = o->like[(s + TOKENS - 1) % TOKENS];
    after[(o->at + 1) % TOKENS] = 0; /* the oldest: what came before it is forgotten */
    if (o->compares)
        after[o->at] = ITSELF;
    else
        memset(after, 0, sizeof after);
    elect(o, &o->ahead, o->like);
    elect(o, &o->next, after);
}

static float worth(const struct evict *e, int32_t number)
{
    const struct echo *o = e->own;
    const struct unit *u = &o->unit[number];
    const float *place = (const float *)(o->unit + units_of(e));
    const int32_t ahead = number / e->shape.n_experts - e->layer;
    const struct vote *v = ahead > 0 ? &o->ahead : &o->next;
    float vote = u->lasting * o->slow;

    for (int32_t w = 0; w < WORDS; w++)
        for (uint64_t bits = u->used[w] & v->voters[w]; bits; bits &= bits - 1)
            vote += v->weight[w * 64 + __builtin_ctzll(bits)];
    return (vote * v->scale + u->frequent * o->fast) *
           place[ahead > 0 ? ahead : ahead + e->shape.n_layers];
}

static int32_t victim(const struct evict *e, const int32_t *unit, int32_t n)
{
    struct echo *o = e->own;
    int32_t best = 0;
    float least = INFINITY;

    if (!o->ready)
        count(e);
    for (int32_t i = 0; i < n; i++) {
        struct unit *u = &o->unit[unit[i]];
        if (u->stamp != o->stamp) {
            u->stamp = o->stamp;
            u->worth = worth(e, unit[i]);
        }
        if (u->worth < least) {
            least = u->worth;
            best = i;
        }
    }
    return best;
}

const struct evict_policy evict_echo = {
    .name = "echo", .room = room, .call = call, .victim = victim};
