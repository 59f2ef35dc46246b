/* What hparams_hf.c and hparams_hf_rope.c share: typed access to fields of config.json. */
#ifndef MODEL_HPARAMS_HF_H
#define MODEL_HPARAMS_HF_H

#include "hparams.h"

struct config { /* the reading in progress */
    struct directory *d;
    struct hparams *h;
    struct json_doc doc;
    bool nested;     /* there is a text_config */
    char field[200]; /* full name of the field last found */
    struct leat_error *e;
};

/* The value of a field, looked for in text_config first; NULL when absent or null. */
const struct json_value *config_find(struct config *c, const char *name);
/* Each: 1 read, 0 absent, negative with an error that names the field. */
int config_int(struct config *c, const char *name, int64_t min, int64_t max, int32_t *out);
int config_number(struct config *c, const char *name, double *out);
int config_string(struct config *c, const char *name, const char **out);
int config_bad(struct config *c, const struct json_value *v, const char *wanted);
int config_unsupported(struct config *c, const char *field, const char *value, const char *known);

/* Bases and scalings of both kinds of layers. */
int config_rope(struct config *c);

#endif
