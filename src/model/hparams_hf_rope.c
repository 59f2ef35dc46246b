/* Rope fields of config.json, in the spellings of every generation: rope_theta beside
 * rope_scaling; rope_parameters with rope_theta inside; rope_parameters with one object per
 * layer type. An unknown kind or field is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hparams_hf.h"

/* Fields of a rope object that are read, or that say nothing of the result. */
static const char known_fields[] =
    " rope_type type factor original_max_position_embeddings attention_factor beta_fast beta_slow "
    "low_freq_factor high_freq_factor rope_theta mscale mscale_all_dim truncate "
    "partial_rotary_factor finetuned ";

static int check_fields(struct config *c, const struct json_value *object)
{
    size_t n = strlen(object->path);
    char word[120], f[200];

    for (int64_t i = 0; i < c->doc.n; i++) {
        const char *p = c->doc.values[i].path;

        if (strncmp(p, object->path, n) != 0 || p[n] != '.')
            continue;
        if (snprintf(word, sizeof word, " %s ", p + n + 1) < (int)sizeof word &&
            !strchr(p + n, ' ') && strstr(known_fields, word))
            continue;
        return error_set(c->e, LEAT_ERR_UNSUPPORTED,
                         "%s: the rope field '%s' is not known to this build", c->doc.name,
                         error_quote(f, sizeof f, p, strlen(p)));
    }
    return 0;
}

/* Number `name` of the object; 1, 0 absent, negative. */
static int member(struct config *c, const char *object, const char *name, double *out)
{
    char field[200];

    snprintf(field, sizeof field, "%s.%s", object, name);
    return config_number(c, field, out);
}

static int need_member(struct config *c, const char *object, const char *name, double *out)
{
    int rc = member(c, object, name, out);

    return rc ? rc
              : error_set(c->e, LEAT_ERR_FORMAT, "%s: the field '%s.%s' is missing", c->doc.name,
                          object, name);
}

static double yarn_scale(double factor, double m)
{
    return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

static int read_yarn(struct config *c, const char *object, struct rope_params *r)
{
    double mscale = 0, all = 0;
    char field[200];
    const struct json_value *v;
    int rc = need_member(c, object, "factor", &r->factor);

    r->scaling = ROPE_SCALING_YARN;
    r->original_context = c->h->n_ctx_train;
    r->truncate = true;
    if (rc >= 0)
        rc = member(c, object, "original_max_position_embeddings", &r->original_context);
    if (rc >= 0)
        rc = member(c, object, "attention_factor", &r->magnitude);
    if (rc >= 0)
        rc = member(c, object, "beta_fast", &r->beta_fast);
    if (rc >= 0)
        rc = member(c, object, "beta_slow", &r->beta_slow);
    if (rc >= 0)
        rc = member(c, object, "mscale", &mscale);
    if (rc >= 0)
        rc = member(c, object, "mscale_all_dim", &all);
    if (rc < 0)
        return rc;
    if (r->magnitude == 0 && mscale != 0 && all != 0)
        r->magnitude = yarn_scale(r->factor, mscale) / yarn_scale(r->factor, all);
    snprintf(field, sizeof field, "%s.truncate", object);
    v = config_find(c, field);
    if (v && v->kind != JSON_IS_BOOL)
        return config_bad(c, v, "true or false");
    if (v)
        r->truncate = v->truth;
    return 0;
}

/* One rope object by its name below the configuration; absent leaves r alone. */
static int read_object(struct config *c, const char *object, struct rope_params *r)
{
    const struct json_value *v = config_find(c, object);
    const char *type = NULL;
    char field[200];
    double part = 1;
    int rc;

    if (!v)
        return 0;
    if (v->kind != JSON_IS_OBJECT)
        return config_bad(c, v, "an object");
    rc = check_fields(c, v);
    if (rc)
        return rc;
    rc = member(c, object, "rope_theta", &r->base);
    if (rc >= 0)
        rc = member(c, object, "partial_rotary_factor", &part);
    if (rc < 0)
        return rc;
    if (part != 1) {
        snprintf(field, sizeof field, "%s.partial_rotary_factor", object);
        return config_unsupported(c, field, "not 1", "1 only");
    }
    snprintf(field, sizeof field, "%s.rope_type", object);
    rc = config_string(c, field, &type);
    if (rc == 0) {
        snprintf(field, sizeof field, "%s.type", object);
        rc = config_string(c, field, &type);
    }
    if (rc < 0)
        return rc;
    if (rc == 0) { /* nothing, or nothing but a base */
        snprintf(field, sizeof field, "%s.rope_theta", object);
        if (v->count == (config_find(c, field) ? 1 : 0))
            return 0;
        return error_set(c->e, LEAT_ERR_FORMAT, "%s: the field '%s.rope_type' is missing",
                         c->doc.name, object);
    }
    if (strcmp(type, "default") == 0)
        return 0;
    if (strcmp(type, "linear") == 0) {
        r->scaling = ROPE_SCALING_LINEAR;
        rc = need_member(c, object, "factor", &r->factor);
        return rc < 0 ? rc : 0;
    }
    if (strcmp(type, "yarn") == 0)
        return read_yarn(c, object, r);
    if (strcmp(type, "llama3") != 0)
        return config_unsupported(c, field, type, "default, linear, llama3 and yarn");
    r->scaling = ROPE_SCALING_LLAMA3;
    rc = need_member(c, object, "factor", &r->factor);
    if (rc >= 0)
        rc = need_member(c, object, "low_freq_factor", &r->low);
    if (rc >= 0)
        rc = need_member(c, object, "high_freq_factor", &r->high);
    if (rc >= 0)
        rc = need_member(c, object, "original_max_position_embeddings", &r->original_context);
    return rc < 0 ? rc : 0;
}

int config_rope(struct config *c)
{
    struct hparams *h = c->h;
    const char *object = config_find(c, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    int rc;

    h->rope = (struct rope_params){.base = h->arch->rope_base,
                                   .factor = 1,
                                   .ext_factor = 1,
                                   .attn_factor = 1,
                                   .beta_fast = 32,
                                   .beta_slow = 1};
    h->rope_window = h->rope;
    rc = config_number(c, "rope_theta", &h->rope.base);
    if (rc < 0)
        return rc;
    if (h->arch->rope_base_window > 0) {
        h->rope_window.base = h->arch->rope_base_window;
        rc = config_number(c, "rope_local_base_freq", &h->rope_window.base);
        if (rc < 0)
            return rc;
    }
    if (config_find(c, "rope_parameters.full_attention") ||
        config_find(c, "rope_parameters.sliding_attention")) {
        rc = read_object(c, "rope_parameters.full_attention", &h->rope);
        return rc ? rc : read_object(c, "rope_parameters.sliding_attention", &h->rope_window);
    }
    rc = read_object(c, object, &h->rope);
    if (!rc && h->arch->rope_base_window == 0)
        h->rope_window = h->rope;
    return rc;
}
