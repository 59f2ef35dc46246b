/* Prints what model_open makes of PATH as one JSON object, for check_models.py; on failure the
 * message, exit status 1. With --inspect: a few figures of inspect_open, with its time and
 * memory. */
#include <stdio.h>
#include <string.h>

#include "../../../src/base/clock.h"
#include "../../../src/base/os.h"
#include "../../../src/model/inspect.h"

static const char *const mat_names[MAT_COUNT] = {
    [MAT_Q] = "q",
    [MAT_K] = "k",
    [MAT_V] = "v",
    [MAT_QKV] = "qkv",
    [MAT_O] = "o",
    [MAT_GATE] = "gate",
    [MAT_UP] = "up",
    [MAT_GATE_UP] = "gate_up",
    [MAT_DOWN] = "down",
    [MAT_ROUTER] = "router",
    [MAT_SHARED_GATE] = "shared_gate",
    [MAT_SHARED_UP] = "shared_up",
    [MAT_SHARED_DOWN] = "shared_down",
};
static const char *const vec_names[VEC_COUNT] = {
    [VEC_ATTN_NORM] = "attn_norm",
    [VEC_Q_B] = "q_b",
    [VEC_K_B] = "k_b",
    [VEC_V_B] = "v_b",
    [VEC_O_B] = "o_b",
    [VEC_Q_NORM] = "q_norm",
    [VEC_K_NORM] = "k_norm",
    [VEC_POST_ATTN_NORM] = "post_attn_norm",
    [VEC_FFN_NORM] = "ffn_norm",
    [VEC_POST_FFN_NORM] = "post_ffn_norm",
    [VEC_GATE_B] = "gate_b",
    [VEC_UP_B] = "up_b",
    [VEC_DOWN_B] = "down_b",
};

static void print_text(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            putchar('\\');
        putchar(*s);
    }
    putchar('"');
}

static void print_part(const struct part *p)
{
    printf("{\"file\":%d,\"format\":%d,\"rows\":%d,\"cols\":%d,\"offset\":%llu,\"bytes\":%llu,"
           "\"row_bytes\":%llu}",
           p->file, (int)p->format, p->rows, p->cols, (unsigned long long)p->offset,
           (unsigned long long)p->bytes, (unsigned long long)p->row_bytes);
}

static void print_layer(const struct model *m, const struct layer *l)
{
    const char *comma = "";

    printf("{\"n_head\":%d,\"n_head_kv\":%d,\"dk\":%d,\"dv\":%d,\"window\":%d,\"scale\":%.9g,"
           "\"softcap\":%g,\"rope\":%d,"
           "\"qk_norm\":%d,\"ffn\":%d,\"n_ff\":%d,\"expert0\":%d,\"mat\":{",
           l->n_head, l->n_head_kv, l->head_dim_k, l->head_dim_v, l->window, (double)l->attn_scale,
           (double)l->attn_softcap, l->rope, (int)l->qk_norm, (int)l->ffn, l->n_ff, l->expert0);
    for (int r = 0; r < MAT_COUNT; r++)
        if (l->mat[r] >= 0) {
            printf("%s\"%s\":%d", comma, mat_names[r], l->mat[r]);
            comma = ",";
        }
    printf("},\"vec\":{");
    comma = "";
    for (int r = 0; r < VEC_COUNT; r++)
        if (l->vec[r] >= 0) {
            printf("%s\"%s\":%d", comma, vec_names[r] ? vec_names[r] : "?", l->vec[r]);
            comma = ",";
        }
    printf("}}%s", l == &m->layers[m->n_layer - 1] ? "" : ",");
}

static void print_units(const struct model *m)
{
    printf("\"units\":[");
    for (int32_t i = 0; i < m->n_units; i++) {
        const struct unit *u = &m->units[i];

        printf("%s{\"kind\":%d,\"layer\":%d,\"expert\":%d,\"scheduled\":%s,\"name\":", i ? "," : "",
               (int)u->kind, u->layer, u->expert, u->scheduled ? "true" : "false");
        print_text(u->name);
        printf(",\"parts\":[");
        for (int32_t p = 0; p < u->n_parts; p++) {
            printf("%s", p ? "," : "");
            print_part(&u->part[p]);
        }
        printf("]}");
    }
    printf("],\"vectors\":[");
    for (int32_t i = 0; i < m->n_vectors; i++) {
        printf("%s{\"add\":%g,\"name\":", i ? "," : "", (double)m->vectors[i].add);
        print_text(m->vectors[i].name);
        printf(",\"part\":");
        print_part(&m->vectors[i].part);
        printf("}");
    }
    printf("],\"schedule\":[");
    for (int32_t i = 0; i < m->n_schedule; i++)
        printf("%s%d", i ? "," : "", m->schedule[i]);
    printf("],\"ropes\":[");
    for (int32_t i = 0; i < m->n_rope; i++) {
        printf("%s{\"dims\":%d,\"half_split\":%s,\"magnitude\":%.9g,\"factors\":%d,\"inv_freq\":[",
               i ? "," : "", m->ropes[i].dims, m->ropes[i].half_split ? "true" : "false",
               (double)m->ropes[i].magnitude, m->ropes[i].factors);
        for (int32_t k = 0; k < m->ropes[i].dims / 2; k++)
            printf("%s%.12g", k ? "," : "", m->ropes[i].inv_freq[k]);
        printf("]}");
    }
    printf("],");
}

static void print_model(const struct model *m)
{
    printf("{\"arch\":\"%s\",\"container\":\"%s\",\"name\":", m->arch,
           m->container == MODEL_GGUF ? "gguf" : "safetensors");
    print_text(m->name);
    printf(",\"n_layer\":%d,\"n_embd\":%d,\"n_vocab\":%d,\"n_ctx\":%d,\"n_head_out\":%d,\"eps\":%."
           "9g,\"act\":%d,"
           "\"embd_scale\":%.9g,\"final_softcap\":%g,\"n_expert\":%d,\"n_expert_used\":%d,"
           "\"gating\":%d,\"norm_topk\":%s,"
           "\"token_embd\":%d,\"head\":%d,\"output_norm\":%d,\"largest\":%llu,\"largest_expert\":%"
           "llu,\"cycle\":%llu,"
           "\"total\":%llu,",
           m->n_layer, m->n_embd, m->n_vocab, m->n_ctx_train, m->n_head_out, (double)m->norm_eps,
           (int)m->act, (double)m->embd_scale, (double)m->final_softcap, m->n_expert,
           m->n_expert_used, (int)m->gating, m->expert_weights_norm ? "true" : "false",
           m->token_embd, m->head, m->output_norm, (unsigned long long)m->largest_unit_bytes,
           (unsigned long long)m->largest_expert_bytes, (unsigned long long)m->token_cycle_bytes,
           (unsigned long long)m->total_bytes);
    printf("\"files\":[");
    for (int32_t i = 0; i < m->n_files; i++) {
        printf("%s", i ? "," : "");
        print_text(m->files[i].path);
    }
    printf("],\"warnings\":[");
    for (int32_t i = 0; i < m->n_warnings; i++) {
        printf("%s", i ? "," : "");
        print_text(m->warnings[i]);
    }
    printf("],");
    print_units(m);
    printf("\"layers\":[");
    for (int32_t i = 0; i < m->n_layer; i++)
        print_layer(m, &m->layers[i]);
    printf("]}\n");
}

static int inspect(const char *path)
{
    struct leat_error e = {0};
    struct inspect *i;
    double began = clock_now();

    if (inspect_open(path, NULL, &i, &e)) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    printf("{\"seconds\":%.6f,\"peak_bytes\":%llu,\"runs\":%s,\"total\":%llu,\"token\":%llu,"
           "\"largest\":%llu,\"lacks\":[",
           clock_now() - began, (unsigned long long)os_rss_peak(), i->runs ? "true" : "false",
           (unsigned long long)i->total_bytes, (unsigned long long)i->token_bytes,
           (unsigned long long)i->unit_max_bytes);
    for (int32_t k = 0; k < i->n_lacks; k++) {
        printf("%s", k ? "," : "");
        print_text(i->lacks[k]);
    }
    printf("],\"groups\":{");
    for (int g = 0; g < GROUP_COUNT; g++)
        printf("%s\"%s\":[%lld,%llu,%llu]", g ? "," : "", i->groups[g].key,
               (long long)i->groups[g].tensors, (unsigned long long)i->groups[g].bytes,
               (unsigned long long)i->groups[g].token_bytes);
    printf("},\"cycle\":%llu,\"values\":%lld}\n", (unsigned long long)i->token_cycle_bytes,
           (long long)i->n_values);
    inspect_close(i);
    return 0;
}

int main(int argc, char **argv)
{
    struct leat_error e = {0};
    struct model *m;

    if (argc == 3 && strcmp(argv[1], "--inspect") == 0)
        return inspect(argv[2]);
    if (argc != 2)
        return 2;
    if (model_open(argv[1], NULL, &m, &e)) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    print_model(m);
    model_close(m);
    return 0;
}
