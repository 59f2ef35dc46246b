/* Reports the tensors for which no role was found: a silent extra tensor is how a wrong model
 * passes. Towers of other senses and blocks for speculation are one line each; buffers that old
 * programs saved by mistake are none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resolve_internal.h"

/* Whole families that text generation does not need. */
static const struct {
    const char *prefix, *what;
} families[] = {
    {"vision_tower.", "the vision tower"},
    {"model.vision_tower.", "the vision tower"},
    {"visual.", "the vision tower"},
    {"model.visual.", "the vision tower"},
    {"audio_tower.", "the audio tower"},
    {"model.audio_tower.", "the audio tower"},
    {"multi_modal_projector.", "the multi-modal projector"},
    {"model.multi_modal_projector.", "the multi-modal projector"},
    {"v.", "the vision tower"},
    {"mm.", "the multi-modal projector"},
};
#define N_FAMILIES (sizeof families / sizeof families[0])

static bool starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);

    return n >= k && strcmp(s + n - k, suffix) == 0;
}

/* Saved buffers that hold nothing the model needs: the rotation frequencies are computed. */
static bool is_buffer(const char *name)
{
    return ends(name, ".rotary_emb.inv_freq") || ends(name, ".attn_rot_embd") ||
           ends(name, ".self_attn.rotary_emb.cos_cached") ||
           ends(name, ".self_attn.rotary_emb.sin_cached");
}

/* Blocks past the last layer: for speculation, they change no result. */
static bool is_past_layers(const struct build *b, const char *name)
{
    char prefix[64];
    char *end;
    unsigned long layer;

    snprintf(prefix, sizeof prefix, "%s", b->d->gguf_container ? "blk." : "");
    if (!b->d->gguf_container)
        snprintf(prefix, sizeof prefix, "%slayers.", b->prefix);
    if (!starts(name, prefix))
        return false;
    layer = strtoul(name + strlen(prefix), &end, 10);
    return end != name + strlen(prefix) && *end == '.' && layer >= (unsigned long)b->h->n_layer;
}

int resolve_report_unused(struct build *b)
{
    int64_t counts[N_FAMILIES] = {0}, past = 0;
    char q[300];
    int rc = 0;

    for (int64_t i = 0; i < b->d->n_tensors && !rc; i++) {
        const struct tensor *t = &b->d->tensors[i];
        size_t f = 0;

        if (t->used || is_buffer(t->name))
            continue;
        while (f < N_FAMILIES && !starts(t->name, families[f].prefix))
            f++;
        if (f < N_FAMILIES)
            counts[f]++;
        else if (is_past_layers(b, t->name))
            past++;
        else
            rc = directory_warn(
                b->d, b->e, "tensor '%s' is not known to architecture %s and not used",
                error_quote(q, sizeof q, t->name, strlen(t->name)), b->h->arch->name);
    }
    for (size_t f = 0; f < N_FAMILIES && !rc; f++)
        if (counts[f])
            rc = directory_warn(b->d, b->e,
                                "%lld tensors of %s are not used: only text is read and written",
                                (long long)counts[f], families[f].what);
    if (past && !rc)
        rc = directory_warn(b->d, b->e,
                            "%lld tensors of blocks past the last layer (%d) are not used",
                            (long long)past, b->h->n_layer);
    return rc;
}
