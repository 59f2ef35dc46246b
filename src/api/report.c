/* Inspection for callers: what model/inspect.h found, as JSON and as text for people. Decides
 * nothing. A report is immutable: any thread. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../include/leat.h"
#include "../base/error.h"
#include "../model/inspect.h"

struct leat_report {
    struct inspect *i;
};

int leat_inspect(const char *path, struct leat_report **out, struct leat_error *e)
{
    struct leat_report *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return error_set(e, LEAT_ERR_MEMORY, "the system refused memory for a report");
    int code = inspect_open(path, NULL, &r->i, e);
    if (code < 0) {
        free(r);
        return code;
    }
    *out = r;
    return 0;
}

void leat_report_close(struct leat_report *r)
{
    if (!r)
        return;
    inspect_close(r->i);
    free(r);
}

/* ---- JSON ---- */

static void set_text(json_t *o, const char *key, const char *text)
{
    json_t *j = text ? json_string(text) : NULL;
    json_object_set_new(o, key, j ? j : json_null());
}

static void set_int(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, n <= INT64_MAX ? json_integer((json_int_t)n) : json_null());
}

static json_t *texts(const char *const *list, int32_t n)
{
    json_t *a = json_array();
    for (int32_t k = 0; k < n; k++)
        json_array_append_new(a, json_string(list[k]));
    return a;
}

static json_t *meta_json(const struct inspect *i)
{
    json_t *a = json_array();
    for (int64_t k = 0; k < i->n_meta; k++) {
        json_t *o = json_object();
        set_text(o, "key", i->meta[k].key);
        set_text(o, "type", i->meta[k].type);
        set_text(o, "value", i->meta[k].value);
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *files_json(const struct inspect *i)
{
    json_t *a = json_array();
    for (int32_t k = 0; k < i->n_files; k++) {
        json_t *o = json_object();
        set_text(o, "path", i->files[k].path);
        set_int(o, "bytes", i->files[k].bytes);
        set_int(o, "trailing_bytes", i->files[k].trailing_bytes);
        set_int(o, "tensors", (uint64_t)i->files[k].tensors);
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *groups_json(const struct inspect *i)
{
    json_t *a = json_array();
    for (int k = 0; k < GROUP_COUNT; k++) {
        const struct inspect_group *g = &i->groups[k];
        if (g->tensors == 0)
            continue;
        json_t *o = json_object();
        set_text(o, "group", g->key);
        set_int(o, "tensors", (uint64_t)g->tensors);
        set_int(o, "bytes", g->bytes);
        set_int(o, "token_bytes", g->token_bytes);
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *types_json(const struct inspect *i)
{
    json_t *a = json_array();
    for (int32_t k = 0; k < i->n_types; k++) {
        json_t *o = json_object();
        set_text(o, "type", i->types[k].name);
        json_object_set_new(o, "runs", json_boolean(i->types[k].runs));
        set_int(o, "tensors", (uint64_t)i->types[k].tensors);
        set_int(o, "bytes", i->types[k].bytes);
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *tensors_json(const struct inspect *i)
{
    json_t *a = json_array();
    for (int64_t k = 0; k < i->n_tensors; k++) {
        const struct inspect_tensor *t = &i->tensors[k];
        json_t *o = json_object(), *dims = json_array();
        for (int32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(dims, json_integer((json_int_t)t->dims[d]));
        set_text(o, "name", t->name);
        set_text(o, "type", t->type);
        json_object_set_new(o, "dims", dims); /* row length first */
        set_int(o, "bytes", t->bytes);
        set_int(o, "file", (uint64_t)t->file);
        set_int(o, "offset_bytes", t->offset);
        set_text(o, "group", i->groups[t->group].key);
        json_array_append_new(a, o);
    }
    return a;
}

static json_t *hparams_json(const struct model *m)
{
    json_t *o = json_object();
    set_int(o, "layers", (uint64_t)m->n_layer);
    set_int(o, "embedding", (uint64_t)m->n_embd);
    set_int(o, "vocabulary", (uint64_t)m->n_vocab);
    set_int(o, "context_trained", (uint64_t)m->n_ctx_train);
    set_int(o, "experts", (uint64_t)m->n_expert);
    set_int(o, "experts_used", (uint64_t)m->n_expert_used);
    return o;
}

static json_t *units_json(const struct inspect *i)
{
    json_t *o = json_object();
    set_int(o, "units", (uint64_t)i->n_units);
    set_int(o, "expert_units", (uint64_t)i->n_expert_units);
    set_int(o, "smallest_bytes", i->unit_min_bytes);
    set_int(o, "largest_bytes", i->unit_max_bytes);
    set_text(o, "largest", i->largest_unit);
    set_int(o, "expert_bytes", i->expert_bytes);
    set_int(o, "token_cycle_bytes", i->token_cycle_bytes);
    return o;
}

char *leat_report_json(const struct leat_report *r)
{
    const struct inspect *i = r->i;
    json_t *o = json_object();
    set_text(o, "path", i->path);
    set_text(o, "container", i->container);
    json_object_set_new(o, "container_version",
                        i->container_version ? json_integer(i->container_version) : json_null());
    set_text(o, "arch", i->arch);
    set_text(o, "name", i->name);
    json_object_set_new(o, "runs", json_boolean(i->runs));
    json_object_set_new(o, "lacks", texts(i->lacks, i->n_lacks));
    json_object_set_new(o, "has_tokenizer", json_boolean(i->has_tokenizer));
    json_object_set_new(o, "warnings", texts(i->warnings, i->n_warnings));
    set_int(o, "total_bytes", i->total_bytes);
    set_int(o, "token_bytes", i->token_bytes);
    set_int(o, "values", (uint64_t)i->n_values);
    json_object_set_new(o, "model", i->model ? hparams_json(i->model) : json_null());
    json_object_set_new(o, "units", i->runs ? units_json(i) : json_null());
    json_object_set_new(o, "groups", groups_json(i));
    json_object_set_new(o, "types", types_json(i));
    json_object_set_new(o, "files", files_json(i));
    json_object_set_new(o, "metadata", meta_json(i));
    json_object_set_new(o, "tensors", tensors_json(i));
    char *text = json_dumps(o, JSON_PRESERVE_ORDER);
    json_decref(o);
    return text;
}

/* ---- text ---- */

static void print_head(FILE *f, const struct inspect *i)
{
    char size[24];
    fprintf(f, "%s\n", i->path);
    fprintf(f, "  container    %s", i->container);
    if (i->container_version)
        fprintf(f, " version %d", (int)i->container_version);
    fprintf(f, ", %d file%s\n", (int)i->n_files, i->n_files == 1 ? "" : "s");
    fprintf(f, "  architecture %s\n", *i->arch ? i->arch : "(not said)");
    if (i->name && *i->name)
        fprintf(f, "  name         %s\n", i->name);
    fprintf(f, "  tensors      %" PRId64 ", %s, %.2f billion values\n", i->n_tensors,
            format_bytes(size, sizeof size, i->total_bytes), (double)i->n_values / 1e9);
    fprintf(f, "  tokenizer    %s\n", i->has_tokenizer ? "yes" : "none");
    fprintf(f, "  runs         %s\n", i->runs ? "yes" : "no");
    for (int32_t k = 0; k < i->n_lacks; k++)
        fprintf(f, "    %s\n", i->lacks[k]);
    for (int32_t k = 0; k < i->n_warnings; k++)
        fprintf(f, "  note: %s\n", i->warnings[k]);
}

static void print_model(FILE *f, const struct inspect *i)
{
    const struct model *m = i->model;
    char a[24], b[24];
    if (!m)
        return;
    fprintf(f, "\nmodel\n  %d layers, %d wide, vocabulary %d, trained for %d tokens of context\n",
            (int)m->n_layer, (int)m->n_embd, (int)m->n_vocab, (int)m->n_ctx_train);
    if (m->n_expert > 0)
        fprintf(f, "  %d experts a layer, %d used for a token\n", (int)m->n_expert,
                (int)m->n_expert_used);
    fprintf(f, "\nunits\n  %d dense, %d experts\n", (int)(i->n_units - i->n_expert_units),
            (int)i->n_expert_units);
    fprintf(f, "  smallest %s, largest %s (%s)\n", format_bytes(a, sizeof a, i->unit_min_bytes),
            format_bytes(b, sizeof b, i->unit_max_bytes), i->largest_unit ? i->largest_unit : "");
    if (i->n_expert_units > 0)
        fprintf(f, "  one expert %s, token cycle %s\n", format_bytes(a, sizeof a, i->expert_bytes),
                format_bytes(b, sizeof b, i->token_cycle_bytes));
}

static void print_groups(FILE *f, const struct inspect *i)
{
    char a[24], b[24];
    fprintf(f, "\n  %-24s %10s %16s %20s\n", "group", "tensors", "bytes", "bytes per token");
    for (int k = 0; k < GROUP_COUNT; k++)
        if (i->groups[k].tensors > 0)
            fprintf(f, "  %-24s %10" PRId64 " %16s %20s\n", i->groups[k].name, i->groups[k].tensors,
                    format_bytes(a, sizeof a, i->groups[k].bytes),
                    format_bytes(b, sizeof b, i->groups[k].token_bytes));
    fprintf(f, "  %-24s %10" PRId64 " %16s %20s\n", "sum", i->n_tensors,
            format_bytes(a, sizeof a, i->total_bytes), format_bytes(b, sizeof b, i->token_bytes));
    fprintf(f, "\n  %-24s %10s %16s\n", "type", "tensors", "bytes");
    for (int32_t k = 0; k < i->n_types; k++)
        fprintf(f, "  %-24s %10" PRId64 " %16s%s\n", i->types[k].name, i->types[k].tensors,
                format_bytes(a, sizeof a, i->types[k].bytes),
                i->types[k].runs ? "" : "  (does not run)");
}

static void print_lists(FILE *f, const struct inspect *i, bool tensors)
{
    char a[24];
    fprintf(f, "\nfiles\n");
    for (int32_t k = 0; k < i->n_files; k++)
        fprintf(f, "  %s: %s, %" PRId64 " tensors\n", i->files[k].path,
                format_bytes(a, sizeof a, i->files[k].bytes), i->files[k].tensors);
    fprintf(f, "\nmetadata\n");
    for (int64_t k = 0; k < i->n_meta; k++)
        fprintf(f, "  %s (%s): %s\n", i->meta[k].key, i->meta[k].type, i->meta[k].value);
    if (!tensors)
        return;
    fprintf(f, "\ntensors\n");
    for (int64_t k = 0; k < i->n_tensors; k++) {
        const struct inspect_tensor *t = &i->tensors[k];
        char shape[24 * TENSOR_DIMS] = "";
        for (int32_t d = 0; d < t->n_dims; d++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%" PRIu64,
                     d ? " x " : "", t->dims[d]);
        fprintf(f, "  %-38s %-6s %20s %10s\n", t->name, t->type, shape,
                format_bytes(a, sizeof a, t->bytes));
    }
}

char *leat_report_text(const struct leat_report *r, int tensors)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return NULL;
    print_head(f, r->i);
    print_model(f, r->i);
    print_groups(f, r->i);
    print_lists(f, r->i, tensors != 0);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
