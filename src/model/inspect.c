/* See inspect.h. Opens the directory as model_open does, tries to build the model, and describes
 * both. */
#include "inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inspect_meta.h"
#include "model_internal.h"

struct inspect_box {
    struct inspect inspect; /* first member */
    struct arena arena;
    struct directory directory;
    struct model model;
};

static const struct {
    const char *name, *key;
} group_names[GROUP_COUNT] = {
    [GROUP_EMBEDDING] = {"embedding", "embedding"}, [GROUP_ATTENTION] = {"attention", "attention"},
    [GROUP_FFN] = {"dense feed forward", "ffn"},    [GROUP_EXPERTS] = {"experts", "experts"},
    [GROUP_ROUTER] = {"router", "router"},          [GROUP_NORMS] = {"norms", "norms"},
    [GROUP_OUTPUT] = {"output", "output"},          [GROUP_OTHER] = {"other", "other"},
};

static bool any_of(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (strstr(name, *words))
            return true;
    return false;
}

/* blk.3.ffn_gate.7.weight: a feed-forward tensor of one expert. */
static bool is_single_expert(const char *name)
{
    static const char *const stems[] = {"ffn_gate.", "ffn_up.", "ffn_down.", NULL};

    for (int i = 0; stems[i]; i++) {
        const char *p = strstr(name, stems[i]);

        if (p && p[strlen(stems[i])] >= '0' && p[strlen(stems[i])] <= '9')
            return true;
    }
    return false;
}

/* By the words that both naming schemes use, so that unknown architectures are sorted too. First
 * match wins. */
static enum inspect_group_id group_of(const char *name)
{
    static const char *const experts[] = {"_exps.", ".experts.", NULL};
    static const char *const router[] = {"ffn_gate_inp", "exp_probs_b", "block_sparse_moe.gate.",
                                         ".mlp.gate.",   ".router.",    NULL};
    static const char *const norms[] = {"norm", ".ln_", NULL};
    static const char *const attention[] = {"attn", "attention", NULL};
    static const char *const ffn[] = {"ffn", ".mlp.", "feed_forward", "shared_expert", NULL};
    static const char *const embedding[] = {"token_embd", "embed_tokens", "wte.", "word_embeddings",
                                            NULL};

    if (is_single_expert(name) || any_of(name, experts))
        return GROUP_EXPERTS;
    if (any_of(name, router))
        return GROUP_ROUTER;
    if (any_of(name, norms))
        return GROUP_NORMS;
    if (any_of(name, embedding))
        return GROUP_EMBEDDING;
    if (any_of(name, attention))
        return GROUP_ATTENTION;
    if (any_of(name, ffn))
        return GROUP_FFN;
    if (strncmp(name, "output.", 7) == 0 || strstr(name, "lm_head"))
        return GROUP_OUTPUT;
    return GROUP_OTHER;
}

static const char *printable(struct inspect_box *b, const char *text, struct leat_error *e)
{
    char q[1100];

    error_quote(q, sizeof q, text, strlen(text));
    return arena_copy(&b->arena, q, strlen(q), e);
}

/* ---- tensors ---- */

static void count_type(struct inspect *i, const struct tensor *t)
{
    const struct format_info *f = t->format == FORMAT_FOREIGN ? NULL : format_info(t->format);
    int32_t k = 0;

    while (k < i->n_types && strcmp(i->types[k].name, t->type_name) != 0)
        k++;
    if (k == INSPECT_TYPES)
        return; /* there are not as many types */
    if (k == i->n_types) {
        i->types[k] = (struct inspect_type){.name = t->type_name, .runs = f && f->runs};
        i->n_types++;
    }
    i->types[k].tensors++;
    i->types[k].bytes += t->bytes;
}

static int list_tensors(struct inspect_box *b, struct leat_error *e)
{
    struct inspect *i = &b->inspect;
    const struct directory *d = &b->directory;

    i->n_tensors = d->n_tensors;
    i->tensors = arena_array(&b->arena, (uint64_t)d->n_tensors, sizeof *i->tensors,
                             _Alignof(struct inspect_tensor), e);
    if (!i->tensors)
        return LEAT_ERR_MEMORY;
    for (int64_t k = 0; k < d->n_tensors; k++) {
        const struct tensor *t = &d->tensors[k];
        struct inspect_tensor *o = &i->tensors[k];
        uint64_t values = 1;

        o->name = printable(b, t->name, e);
        if (!o->name)
            return LEAT_ERR_MEMORY;
        o->type = t->type_name;
        o->n_dims = t->n_dims;
        memcpy(o->dims, t->dims, sizeof o->dims);
        o->bytes = t->bytes;
        o->offset = t->offset;
        o->file = t->file;
        o->group = group_of(t->name);
        for (int x = 0; x < TENSOR_DIMS; x++)
            values *= t->dims[x];
        i->n_values += (int64_t)values;
        i->groups[o->group].tensors++;
        i->groups[o->group].bytes += t->bytes;
        count_type(i, t);
    }
    i->total_bytes = d->total_bytes;
    return 0;
}

/* Experts used and all, from the model, else from the keys alone; 1 of 1 when not known. */
static void expert_share(const struct inspect_box *b, uint64_t *used, uint64_t *all)
{
    const struct gguf *g = b->directory.gguf;
    char key[200];
    uint64_t n = 0, k = 0;

    *used = *all = 1;
    if (b->inspect.model) {
        n = (uint64_t)b->model.n_expert;
        k = (uint64_t)b->model.n_expert_used;
    } else if (g) {
        const struct gguf_kv *arch = gguf_find(g, "general.architecture");

        if (!arch || !arch->str || arch->count > 100)
            return;
        snprintf(key, sizeof key, "%s.expert_count", arch->str);
        gguf_get_u64(g, key, UINT32_MAX, &n, NULL);
        snprintf(key, sizeof key, "%s.expert_used_count", arch->str);
        gguf_get_u64(g, key, UINT32_MAX, &k, NULL);
    }
    if (n > 0 && k > 0 && k <= n) {
        *used = k;
        *all = n;
    }
}

static void sum_groups(struct inspect_box *b)
{
    struct inspect *i = &b->inspect;
    uint64_t used, all, rows = 0;
    bool tied = i->groups[GROUP_OUTPUT].tensors == 0;

    expert_share(b, &used, &all);
    if (i->model)
        tied = i->model->head == i->model->token_embd;
    for (int64_t k = 0; k < b->directory.n_tensors; k++)
        if (i->tensors[k].group == GROUP_EMBEDDING)
            rows += b->directory.tensors[k].row_bytes;
    for (int g = 0; g < GROUP_COUNT; g++) {
        struct inspect_group *x = &i->groups[g];

        x->name = group_names[g].name;
        x->key = group_names[g].key;
        x->token_bytes = x->bytes;
        if (g == GROUP_EXPERTS)
            x->token_bytes = (uint64_t)((__uint128_t)x->bytes * used / all);
        if (g == GROUP_EMBEDDING)
            x->token_bytes = rows + (tied ? x->bytes : 0);
        i->token_bytes += x->token_bytes;
    }
}

static void sum_units(struct inspect_box *b)
{
    struct inspect *i = &b->inspect;
    const struct model *m = i->model;

    if (!m)
        return;
    i->n_units = m->n_units;
    i->token_cycle_bytes = m->token_cycle_bytes;
    i->expert_bytes = m->largest_expert_bytes;
    for (int32_t k = 0; k < m->n_units; k++) {
        const struct unit *u = &m->units[k];
        uint64_t bytes = 0;

        for (int32_t p = 0; p < u->n_parts; p++)
            bytes += u->part[p].bytes;
        i->n_expert_units += u->kind == UNIT_EXPERT;
        if (k == 0 || bytes < i->unit_min_bytes)
            i->unit_min_bytes = bytes;
        if (k == 0 || bytes > i->unit_max_bytes) {
            i->unit_max_bytes = bytes;
            i->largest_unit = u->name;
        }
    }
}

/* ---- what it is and what it lacks ---- */

static int add_lack(struct inspect_box *b, const char *text, struct leat_error *e)
{
    struct inspect *i = &b->inspect;
    const char *copy = arena_copy(&b->arena, text, strlen(text), e);

    if (!copy)
        return LEAT_ERR_MEMORY;
    if (i->n_lacks < (int32_t)(sizeof i->lacks / sizeof i->lacks[0]))
        i->lacks[i->n_lacks++] = copy;
    return 0;
}

/* Something not known or not there is a lack; anything else is an error of the file. */
static int try_model(struct inspect_box *b, struct leat_error *e)
{
    struct leat_error why = {0};
    int rc = model_build(&b->directory, &b->model, &why);

    if (rc == 0) {
        b->inspect.runs = true;
        b->inspect.model = &b->model;
        b->inspect.largest_unit = "";
        return 0;
    }
    if (rc == LEAT_ERR_UNSUPPORTED)
        return add_lack(b, why.message, e);
    if (e)
        *e = why;
    return rc;
}

static int find_tokenizer(struct inspect_box *b, struct leat_error *e)
{
    const struct directory *d = &b->directory;
    struct stat st;

    if (d->gguf) {
        b->inspect.has_tokenizer = gguf_find(d->gguf, "tokenizer.ggml.tokens") != NULL;
    } else if (d->folder) {
        char *p = path_join(&b->arena, d->folder, "tokenizer.json", e);

        if (!p)
            return LEAT_ERR_MEMORY;
        b->inspect.has_tokenizer = stat(p, &st) == 0;
    }
    if (b->inspect.has_tokenizer)
        return 0;
    return add_lack(b,
                    d->gguf ? "no tokenizer: the key tokenizer.ggml.tokens is missing, so text "
                              "cannot be read or written "
                              "(token ids can)"
                            : "no tokenizer: tokenizer.json is missing, so text cannot be read or "
                              "written (token ids can)",
                    e);
}

static int describe(struct inspect_box *b, const char *path, struct leat_error *e)
{
    struct inspect *i = &b->inspect;
    const struct directory *d = &b->directory;
    const struct gguf_kv *arch = d->gguf ? gguf_find(d->gguf, "general.architecture") : NULL;

    i->path = printable(b, path, e);
    i->container = d->gguf_container ? "gguf" : "safetensors";
    i->container_version = d->gguf ? (int32_t)d->gguf->version : 0;
    i->arch = i->model ? i->model->arch : arch && arch->str ? printable(b, arch->str, e) : "";
    i->name = i->model ? i->model->name : printable(b, path_base(path), e);
    i->n_files = d->n_files;
    i->files = arena_array(&b->arena, (uint64_t)d->n_files, sizeof *i->files,
                           _Alignof(struct inspect_file), e);
    if (!i->path || !i->arch || !i->name || !i->files)
        return LEAT_ERR_MEMORY;
    for (int32_t k = 0; k < d->n_files; k++) {
        i->files[k].path = printable(b, d->files[k].path, e);
        if (!i->files[k].path)
            return LEAT_ERR_MEMORY;
        i->files[k].bytes = file_size(d->files[k].file);
        i->files[k].trailing_bytes = d->files[k].trailing_bytes;
        i->files[k].tensors = d->files[k].n_tensors;
    }
    i->n_warnings = d->n_warnings;
    i->warnings = d->warnings;
    return 0;
}

int inspect_open(const char *path, struct ledger *ledger, struct inspect **out,
                 struct leat_error *e)
{
    struct inspect_box *b = calloc(1, sizeof *b);
    int rc;

    *out = NULL;
    if (!b)
        return error_set(e, LEAT_ERR_MEMORY, "no memory to inspect a model");
    arena_init(&b->arena, ledger, ROW_MODEL);
    rc = directory_open(path, &b->arena, &b->directory, e);
    if (!rc)
        rc = try_model(b, e);
    if (!rc)
        rc = find_tokenizer(b, e);
    if (!rc)
        rc = describe(b, path, e);
    if (!rc)
        rc = list_tensors(b, e);
    if (!rc) {
        sum_groups(b);
        sum_units(b);
        rc = inspect_list_meta(&b->inspect, &b->directory, e);
    }
    if (rc) {
        inspect_close(&b->inspect);
        return rc;
    }
    *out = &b->inspect;
    return 0;
}

void inspect_close(struct inspect *i)
{
    struct inspect_box *b = (struct inspect_box *)i; /* the first member */

    if (!i)
        return;
    directory_close(&b->directory);
    arena_close(&b->arena);
    free(b);
}
