/* What a path names: a GGUF file (any part of a split one), a safetensors folder (itself, its
 * config.json, index or a shard), a lone .safetensors, a folder with exactly one model, or a
 * repository folder of the Hugging Face cache. An ambiguous folder is refused with the choices,
 * a pickle with the reason. Looks at names and first bytes only. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory.h"

#define CHOICES_MOST 12
#define ENTRIES_MOST 100000

static bool ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);

    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static const char *quote(char *q, size_t cap, const char *s)
{
    return error_quote(q, cap, s, strlen(s));
}

static bool is_pickle_name(const char *name)
{
    return ends(name, ".bin") || ends(name, ".pt") || ends(name, ".pth") || ends(name, ".ckpt") ||
           ends(name, ".pkl");
}

static int refuse_pickle(const char *path, struct leat_error *e)
{
    char q[500];

    return error_set(e, LEAT_ERR_UNSUPPORTED,
                     "%s: the weights are Python pickles (.bin, .pt, .pth). One layer out of a "
                     "pickle means reading the whole file and running what it says, so they are "
                     "not read; take the "
                     "safetensors files of the model, or convert it",
                     quote(q, sizeof q, path));
}

static bool exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

/* ---- folders ---- */

struct listing {                  /* what a folder holds, names sorted */
    char *gguf[CHOICES_MOST + 1]; /* first file of each model; owned */
    int32_t n_gguf;               /* models; may exceed CHOICES_MOST */
    int64_t n_safetensors, n_pickle;
    bool config, snapshots;
};

/* A split model counts once, by its smallest part name; vision projectors are no models of their
 * own. */
static int note_gguf(struct listing *l, const char *name, struct leat_error *e)
{
    size_t n = strlen(name), stem = n;
    char *copy;

    if (n > 20 && name[n - 20] == '-' && memcmp(name + n - 14, "-of-", 4) == 0)
        stem = n - 20;
    for (int32_t i = 0; i < l->n_gguf && i < CHOICES_MOST; i++) {
        char *have = l->gguf[i];

        if (stem == n || strlen(have) != n || memcmp(have, name, stem + 1) != 0 ||
            strcmp(have + n - 9, name + n - 9) != 0)
            continue;
        if (strcmp(name, have) < 0)
            memcpy(have, name, n);
        return 0;
    }
    if (l->n_gguf < CHOICES_MOST) {
        copy = strdup(name);
        if (!copy)
            return error_set(e, LEAT_ERR_MEMORY, "no memory to list a folder");
        l->gguf[l->n_gguf] = copy;
    }
    l->n_gguf++;
    return 0;
}

static int list_folder(const char *folder, struct listing *l, struct leat_error *e)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char q[500];
    int rc = 0, seen = 0;

    if (!dir)
        return error_set_errno(e, LEAT_ERR_FILE, errno, "%s: cannot list the folder",
                               quote(q, sizeof q, folder));
    while (!rc && seen++ < ENTRIES_MOST && (entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;

        if (ends(name, ".gguf") && strncmp(name, "mmproj", 6) != 0)
            rc = note_gguf(l, name, e);
        else if (ends(name, ".safetensors"))
            l->n_safetensors++;
        else if (strcmp(name, "config.json") == 0)
            l->config = true;
        else if (strcmp(name, "snapshots") == 0)
            l->snapshots = true;
        else if (is_pickle_name(name))
            l->n_pickle++;
    }
    closedir(dir);
    return rc;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int refuse_choices(const char *folder, struct listing *l, struct leat_error *e)
{
    char list[1100] = "", q[300];
    int32_t shown = l->n_gguf < CHOICES_MOST ? l->n_gguf : CHOICES_MOST;
    size_t n = 0;

    qsort(l->gguf, (size_t)shown, sizeof l->gguf[0], compare_names);
    for (int32_t i = 0; i < shown && n < sizeof list - 150; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
                              quote(q, sizeof q > 140 ? 140 : sizeof q, l->gguf[i]));
    if (l->n_gguf > shown)
        n += (size_t)snprintf(list + n, sizeof list - n, ", and %d more", l->n_gguf - shown);
    if (l->n_safetensors && n < sizeof list)
        snprintf(list + n, sizeof list - n, ", and %s with %lld .safetensors file%s",
                 l->config ? "config.json" : "no config.json", (long long)l->n_safetensors,
                 l->n_safetensors == 1 ? "" : "s");
    return error_set(e, LEAT_ERR_FILE, "%s: the folder holds more than one model; name one of: %s",
                     quote(q, sizeof q, folder), list);
}

static int open_in_folder(const char *folder, struct arena *a, struct directory *d,
                          bool may_have_snapshots, struct leat_error *e);

/* A repository folder of the Hugging Face cache: refs/main names the snapshot, or there is only
 * one. */
static int open_snapshot(const char *folder, struct arena *a, struct directory *d,
                         struct leat_error *e)
{
    char *snapshots = path_join(a, folder, "snapshots", e),
         *ref = path_join(a, folder, "refs/main", e);
    char name[256] = "", only[256] = "", q[500];
    struct dirent *entry;
    size_t n = 0;
    int count = 0;
    FILE *f;
    DIR *dir;

    if (!snapshots || !ref)
        return LEAT_ERR_MEMORY;
    f = fopen(ref, "rbe");
    if (f) {
        n = fread(name, 1, sizeof name - 1, f);
        fclose(f);
    }
    name[n] = 0;
    name[strcspn(name, "\r\n")] = 0;
    if (name[0] && !strchr(name, '/') && name[0] != '.') {
        char *p = path_join(a, snapshots, name, e);

        if (!p)
            return LEAT_ERR_MEMORY;
        if (exists(p))
            return open_in_folder(p, a, d, false, e);
    }
    dir = opendir(snapshots);
    while (dir && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.') {
            snprintf(only, sizeof only, "%s", entry->d_name);
            count++;
        }
    if (dir)
        closedir(dir);
    if (count == 1) {
        char *p = path_join(a, snapshots, only, e);

        return p ? open_in_folder(p, a, d, false, e) : LEAT_ERR_MEMORY;
    }
    return error_set(
        e, LEAT_ERR_FILE,
        "%s: the cache folder holds %d snapshots and refs/main names none of them; name "
        "one of the folders in snapshots/",
        quote(q, sizeof q, folder), count);
}

static int open_in_folder(const char *folder, struct arena *a, struct directory *d,
                          bool may_have_snapshots, struct leat_error *e)
{
    struct listing l = {0};
    char q[500];
    char *p;
    int rc = list_folder(folder, &l, e);

    if (rc)
        goto done;
    if (l.n_gguf > 1 || (l.n_gguf == 1 && l.n_safetensors > 0)) {
        rc = refuse_choices(folder, &l, e);
    } else if (l.n_gguf == 1) {
        p = path_join(a, folder, l.gguf[0], e);
        rc = p ? directory_open_gguf(p, a, d, e) : LEAT_ERR_MEMORY;
    } else if (l.n_safetensors > 0) {
        rc = directory_open_folder(folder, a, d, e);
    } else if (may_have_snapshots && l.snapshots) {
        rc = open_snapshot(folder, a, d, e);
    } else if (l.n_pickle > 0) {
        rc = refuse_pickle(folder, e);
    } else {
        rc = error_set(e, LEAT_ERR_FILE,
                       "%s: the folder holds no model: no .gguf and no .safetensors file%s",
                       quote(q, sizeof q, folder), l.config ? " beside its config.json" : "");
    }
done:
    for (int32_t i = 0; i < CHOICES_MOST; i++)
        free(l.gguf[i]);
    return rc;
}

/* ---- files ---- */

/* The folder of a file that belongs to a safetensors model; by the link's own name, not its
 * target's. */
static int open_beside(const char *path, struct arena *a, struct directory *d, struct leat_error *e)
{
    char *folder = path_folder(a, path, e);

    return folder ? directory_open_folder(folder, a, d, e) : LEAT_ERR_MEMORY;
}

static int open_shard(const char *path, struct arena *a, struct directory *d, struct leat_error *e)
{
    char *folder = path_folder(a, path, e), *config;

    config = folder ? path_join(a, folder, "config.json", e) : NULL;
    if (!config)
        return LEAT_ERR_MEMORY;
    if (exists(config))
        return directory_open_folder(folder, a, d, e);
    return directory_open_lone(path, a, d, e);
}

static int open_file(const char *path, struct arena *a, struct directory *d, struct leat_error *e)
{
    unsigned char head[9] = {0};
    struct file *f;
    char q[500];
    size_t n;
    int rc = file_open(path, &f, e);

    if (rc)
        return rc;
    n = file_size(f) < sizeof head ? (size_t)file_size(f) : sizeof head;
    rc = file_read(f, 0, head, n, e);
    file_close(f);
    if (rc)
        return rc;
    if (memcmp(head, "GGUF", 4) == 0 || ends(path, ".gguf"))
        return directory_open_gguf(path, a, d, e);
    if (ends(path, ".safetensors"))
        return open_shard(path, a, d, e);
    if (ends(path, ".json"))
        return open_beside(path, a, d, e);
    if (is_pickle_name(path) || memcmp(head, "PK\x03\x04", 4) == 0)
        return refuse_pickle(path, e);
    if (n == sizeof head && head[8] == '{')
        return directory_open_lone(path, a, d, e);
    return error_set(e, LEAT_ERR_FORMAT,
                     "%s: neither a GGUF file (it would start with 'GGUF') nor safetensors",
                     quote(q, sizeof q, path));
}

int directory_open(const char *path, struct arena *a, struct directory *d, struct leat_error *e)
{
    struct stat st;
    char q[500];
    int rc;

    memset(d, 0, sizeof *d);
    d->arena = a;
    if (stat(path, &st) != 0) {
        int err = errno;

        if (err == ENOENT && lstat(path, &st) == 0)
            return error_set(
                e, LEAT_ERR_FILE,
                "%s: this link leads nowhere: the file was not downloaded, or was removed",
                quote(q, sizeof q, path));
        return error_set_errno(e, LEAT_ERR_FILE, err, "%s: cannot open", quote(q, sizeof q, path));
    }
    rc = S_ISDIR(st.st_mode) ? open_in_folder(path, a, d, true, e) : open_file(path, a, d, e);
    if (rc)
        directory_close(d);
    return rc;
}
