/* What resolve.c, resolve_experts.c and resolve_unused.c share; nobody else includes this. */
#ifndef MODEL_RESOLVE_INTERNAL_H
#define MODEL_RESOLVE_INTERNAL_H

#include "resolve.h"

#define UNITS_MOST 262144

struct build { /* the resolving in progress */
    struct directory *d;
    const struct hparams *h;
    struct model *m;
    const struct arch_names *names;
    const char *prefix; /* of safetensors names */
    float norm_add;
    int32_t window_rope; /* index of the rope of window layers */
    char name[256];      /* of the last name made */
    struct leat_error *e;
};

const char *resolve_layer_name(struct build *b, int32_t layer, const char *rest); /* into b->name */
int resolve_missing(struct build *b, const char *name, const char *or_else);
int resolve_check_shape(struct build *b, const struct tensor *t, uint64_t d0, uint64_t d1,
                        uint64_t d2);
int resolve_check_type(struct build *b, const struct tensor *t);
void resolve_part(struct part *p, const struct tensor *t, int32_t rows, uint64_t first_row);
struct unit *resolve_new_unit(struct build *b, enum unit_kind kind, int32_t layer,
                              const char *name);
int resolve_router(struct build *b, int32_t layer);
int resolve_experts(struct build *b, int32_t layer);
int resolve_report_unused(struct build *b);

#endif
