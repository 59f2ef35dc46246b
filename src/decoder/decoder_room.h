/* What the files of the decoder share: its memory, the input of a product, the steps of a layer.
 * Nothing outside src/decoder includes this. Thread rule: thread 0, but for what the steps
 * themselves spread over the team. */
#ifndef DECODER_DECODER_ROOM_H
#define DECODER_DECODER_ROOM_H

#include "decoder.h"

#define ACT_KINDS    3
#define ATTN_QUERIES 64 /* most queries that share one unpacking of a tile */
/* Up to this width the experts are taken as they arrive, and each token's parts are kept until
 * all are there; wider, they are taken in ascending order and added at once. The sums are the
 * same. */
#define MOE_NARROW   16
#define MOE_TOGETHER 16 /* most experts that are multiplied together */

/* Rows that products read: as floats, and prepared in the kinds that their formats want. */
struct input {
    float *x;
    size_t stride; /* floats; a multiple of 16 */
    int32_t cols;
    uint8_t *prepared[ACT_KINDS]; /* NULL where no unit wants the kind; ACT_F32: x itself */
    size_t prepared_stride[ACT_KINDS];
};

/* Where everything lies. Made by layout_make, from the model and the widths alone; pointers are
 * NULL when only the sum is wanted. Rows of floats are padded to 64 bytes. */
struct layout {
    size_t embd_stride, qkv_stride, ff_stride, router_stride; /* floats */
    uint64_t table_row_bytes;
    float *x;           /* [width][n_embd] the residual stream */
    float *out;         /* [width][n_embd] what a step adds to it */
    struct input in;    /* the normed stream; or heads put together: in.x changes, see `heads` */
    struct input heads; /* [width][n_head * head_dim_v], shares in's prepared rows */
    struct input hid;   /* hidden rows of a feed forward: gate rows, activated in place */
    int32_t hid_rows;   /* width; with experts no fewer than a token has of them */
    float *qkv;         /* [width] q, k, v behind each other */
    uint8_t *rows;      /* [width] table rows as stored */
    float *shared;      /* [width][n_embd] of the shared expert; NULL = none */
    float *parts;       /* rows of n_embd: experts' outputs */
    uint8_t
        *gather[ACT_KINDS]; /* [hid_rows] prepared rows of the tokens of experts taken together */
    size_t gather_stride[ACT_KINDS];
    float *router;      /* [width][n_expert] */
    int32_t *route_ids; /* [width][n_expert_used] ascending */
    float *route_w;
    int32_t *expert_first; /* [n_expert + 1] first slot of each expert's tokens */
    int32_t *slot_token;   /* [width * n_expert_used] */
    float *slot_w;
    int32_t *token_slot;             /* [width][n_expert_used] slot of each choice */
    uint16_t *wanted_ids;            /* [n_expert] */
    float **rope_cos, **rope_sin;    /* [n_rope] -> [width][dims / 2] */
    double **rope_freq;              /* [n_rope] -> [dims / 2] radians per position */
    uint8_t *attn_kinds, *ffn_kinds; /* [n_layer] what the products that read l.in want */
    int32_t *pos;                    /* [width] of the rows at hand */
    struct seq_state **seq;
    uint8_t *wanted;
    int32_t *block_first, *block_n; /* [width] runs of tokens that attend together */
    uint8_t *scratch;               /* [threads] */
    size_t scratch_bytes;
    uint64_t bytes; /* of all */
};

struct decoder {
    const struct model *m;
    struct weights *weights;
    struct team *team;
    const struct kernels *k;
    struct ledger *ledger;
    int32_t max_width, max_logits, threads;
    void *memory;
    uint64_t memory_bytes;
    struct layout l;
    enum kv_type kv;

    /* the pass at hand */
    struct weights_pass *pass;
    int32_t n; /* rows at hand */
    int32_t n_wanted;
    bool only_wanted; /* rows nobody wants logits of have been left behind */
    /* what the last step left in l.out, still to be added to the stream */
    bool pending;
    const float *pending_bias, *pending_norm;

    decoder_watch watch;
    void *watch_arg;
    decoder_routing_fn routing_watch, routing_replace; /* NULL = none */
    void *routing_watch_arg, *routing_replace_arg;
    struct decoder_stats stats;
};

/* base NULL: sizes only. */
void layout_make(const struct model *m, int32_t width, int32_t max_logits, int32_t threads,
                 void *base, struct layout *l);
/* Every matrix and vector has the shape that the layers say; tensor and figures in e otherwise. */
int shapes_check(const struct model *m, struct leat_error *e);

static inline int32_t pad16(int32_t n)
{
    return (n + 15) / 16 * 16;
}

static inline uint8_t *decoder_scratch(const struct decoder *d, int32_t thread)
{
    return d->l.scratch + (size_t)thread * d->l.scratch_bytes;
}

static inline const float *layer_vector(const struct decoder *d, const struct layer *l,
                                        enum vec_role r)
{
    return weights_vector(d->weights, l->vec[r]);
}

static inline enum act_kind part_kind(const struct part *p)
{
    return format_info((uint32_t)p->format)->act;
}

/* Bit set of the kinds that these units (-1 = none) want of their input. */
unsigned kinds_of(const struct model *m, const unit_id *u, int32_t n);

/* ---- product.c ---- */

/* Splits n tokens over the team; work: floats touched per token, for the choice of chunks. */
void tokens_run(struct decoder *d, int32_t n, int64_t work,
                void (*fn)(void *arg, int32_t thread, int64_t begin, int64_t end), void *arg);
/* Makes row t of an input ready for products of these kinds. */
void input_row_prepare(const struct decoder *d, const struct input *in, unsigned kinds, int64_t t);
void input_prepare(struct decoder *d, const struct input *in, unsigned kinds, int32_t n);
const void *input_rows(const struct input *in, enum act_kind kind, size_t *stride);

/* Rows of one product and, optionally, what is done to each result: y = softcap(scale * (y +
 * bias)). */
struct product_post {
    const float *bias;
    float scale;   /* 1 = none */
    float softcap; /* 0 = off */
};
/* y[token][row] for every row of a dense unit, as its rows come. n 0: the unit is only walked
 * over. */
int product(struct decoder *d, unit_id u, const struct input *in, int32_t n, float *y,
            size_t y_stride, const struct product_post *post, struct leat_error *e);
/* Up to three such products over one input, in schedule order; those whose units are resident share one
 * region of the team. */
struct product_out {
    unit_id unit; /* -1 = none */
    float *y;
    size_t y_stride;
    const struct product_post *post; /* NULL = nothing */
};
int products(struct decoder *d, const struct product_out *outs, int32_t count,
             const struct input *in, int32_t n, struct leat_error *e);
/* How many rows a thread takes at least at a time (team_guided). */
int64_t product_chunk(int64_t rows, uint64_t row_bytes, int32_t n);

/* ---- steps ---- */

/* y = norm(x) of the model's kind; w NULL: y = x. */
void norm_apply(const struct decoder *d, const float *x, const float *w, const float *b, float *y,
                int32_t n);
/* Adds what is pending to the stream and puts norm(stream) into l.in, prepared. */
void stream_join(struct decoder *d, const float *w, const float *b, unsigned kinds);
/* Leaves only the rows whose logits are wanted. */
void keep_wanted(struct decoder *d, bool qkv);

/* Each reads l.in and leaves its result in l.out, all rows at hand. */
int attention_run(struct decoder *d, int32_t layer, struct leat_error *e);
int ffn_run(struct decoder *d, int32_t layer, struct leat_error *e);
int moe_run(struct decoder *d, int32_t layer, struct leat_error *e);
/* A gated feed forward over dense units; result into out. */
int ffn_gated(struct decoder *d, const unit_id mat[4] /* gate, up, fused, down */, int32_t n_ff,
              const float *gate_b, const float *up_b, float *out, struct leat_error *e);

#endif
