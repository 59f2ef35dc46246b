/* Control groups: finds this process's group of each hierarchy from /proc/self/cgroup and
 * /proc/self/mountinfo and walks from it up to the mount point. Formats: cgroups(7), proc(5), and
 * the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2. Any thread. */
#include "os_cgroup.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "os.h"

/* v1 writes "no limit" as the largest count of pages in bytes, 2^63 less a page; nothing real comes
 * near this bound. */
#define NO_LIMIT (UINT64_C(1) << 60)
#define PATH_CAP 4096

/* One hierarchy as this process sees it. */
struct hierarchy {
    bool found;
    char dir[PATH_CAP]; /* our group's folder, root not included */
    size_t top;         /* length of the part of dir that is the mount point */
};

static FILE *file_open(const char *root, const char *dir, const char *name)
{
    char path[2 * PATH_CAP];
    if ((size_t)snprintf(path, sizeof path, "%s%s/%s", root, dir, name) >= sizeof path)
        return NULL;
    return fopen(path, "re");
}

/* Whether word is one of the comma-separated words of list. */
static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    }
    return false;
}

/* This process's path in the hierarchy of a v1 controller, or of v2 when controller is NULL. */
static bool group_path(const char *root, const char *controller, char *path, size_t cap)
{
    FILE *f = file_open(root, "/proc/self", "cgroup");
    if (!f)
        return false;
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    while (!found && getline(&line, &size, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':');
        char *where = list ? strchr(list + 1, ':') : NULL;
        if (!where)
            continue;
        *where++ = '\0';
        list++;
        found = controller ? list_has(list, controller) : *list == '\0';
        if (found)
            found = (size_t)snprintf(path, cap, "%s", where) < cap;
    }
    free(line);
    fclose(f);
    return found;
}

/* Undoes the \ooo of mountinfo in place. */
static void octal_decode(char *s)
{
    char *out = s;
    while (*s) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 4;
        } else {
            *out++ = *s++;
        }
    }
    *out = '\0';
}

/* Places `path` under a mount of `mount_root` at `point`. A path outside of the mount (a group name
 * from outside of our namespace) leaves the mount point itself, the best that can be seen. *match
 * is the length of the mount root when it holds the path, -1 when not. */
static bool group_place(struct hierarchy *h, const char *path, const char *mount_root,
                        const char *point, int64_t *match)
{
    size_t n = strlen(mount_root);
    if (n == 1 && mount_root[0] == '/')
        n = 0;
    const char *rest = "";
    *match = -1;
    if (strncmp(path, mount_root, n) == 0 && (path[n] == '/' || path[n] == '\0') &&
        !strstr(path, "/..")) {
        rest = path + n;
        *match = (int64_t)n;
    }
    if (strcmp(rest, "/") == 0)
        rest = "";
    h->top = strlen(point);
    return (size_t)snprintf(h->dir, sizeof h->dir, "%s%s", point, rest) < sizeof h->dir;
}

/* controller NULL: v2. Of several mounts the one that shows most of our path is taken. */
static void hierarchy_find(const char *root, const char *controller, struct hierarchy *h)
{
    char path[PATH_CAP];
    h->found = false;
    if (!group_path(root, controller, path, sizeof path))
        return;
    FILE *f = file_open(root, "/proc/self", "mountinfo");
    if (!f)
        return;
    char *line = NULL;
    size_t size = 0;
    int64_t best = -2;
    struct hierarchy *try = malloc(sizeof *try);
    while (try && getline(&line, &size, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        /* id parent major:minor root point options [optional]* - type source superoptions */
        char *tail = strstr(line, " - ");
        if (!tail)
            continue;
        *tail = '\0';
        char *save = NULL, *field[5] = {0};
        for (int i = 0; i < 5; i++)
            field[i] = strtok_r(i ? NULL : line, " ", &save);
        char *tail_save = NULL;
        char *type = strtok_r(tail + 3, " ", &tail_save);
        char *device = strtok_r(NULL, " ", &tail_save);
        char *options = strtok_r(NULL, " ", &tail_save);
        (void)device;
        if (!field[4] || !type || !options)
            continue;
        if (controller ? strcmp(type, "cgroup") != 0 || !list_has(options, controller)
                       : strcmp(type, "cgroup2") != 0)
            continue;
        octal_decode(field[3]);
        octal_decode(field[4]);
        int64_t match;
        if (group_place(try, path, field[3], field[4], &match) && match > best) {
            best = match;
            *h = *try;
            h->found = true;
        }
    }
    free(try);
    free(line);
    fclose(f);
}

/* One group up; false when the mount point was the last. */
static bool hierarchy_up(struct hierarchy *h)
{
    size_t n = strlen(h->dir);
    if (n <= h->top)
        return false;
    while (n > h->top && h->dir[n - 1] != '/')
        n--;
    if (n > h->top)
        n--;
    h->dir[n] = '\0';
    return true;
}

/* A file of one number; OS_UNKNOWN when absent, "max" or something else. */
static uint64_t number_read(const char *root, const char *dir, const char *name)
{
    FILE *f = file_open(root, dir, name);
    if (!f)
        return OS_UNKNOWN;
    char text[64];
    uint64_t v = OS_UNKNOWN;
    if (fgets(text, sizeof text, f) && text[0] >= '0' && text[0] <= '9') {
        errno = 0;
        v = strtoull(text, NULL, 10);
        if (errno != 0)
            v = OS_UNKNOWN;
    }
    fclose(f);
    return v;
}

/* Page cache on the two file lists of memory.stat: the kernel frees it before a group meets its
 * limit. */
static uint64_t reclaimable_read(const char *root, const char *dir, bool v1)
{
    FILE *f = file_open(root, dir, "memory.stat");
    if (!f)
        return 0;
    char line[256];
    uint64_t sum = 0;
    while (fgets(line, sizeof line, f)) {
        char key[128];
        unsigned long long v;
        if (sscanf(line, "%127s %llu", key, &v) != 2)
            continue;
        const char *k = key;
        if (v1) { /* "total_" includes the groups below, as the use does */
            if (strncmp(k, "total_", 6) != 0)
                continue;
            k += 6;
        }
        if (strcmp(k, "inactive_file") == 0 || strcmp(k, "active_file") == 0)
            if (!checked_add(sum, v, &sum))
                sum = UINT64_MAX;
    }
    fclose(f);
    return sum;
}

static uint64_t group_room(const char *root, const char *dir, const char *limit_name, bool v1)
{
    uint64_t limit = number_read(root, dir, limit_name);
    if (limit >= NO_LIMIT)
        return OS_UNKNOWN;
    uint64_t use = number_read(root, dir, v1 ? "memory.usage_in_bytes" : "memory.current");
    if (use == OS_UNKNOWN)
        return limit;
    uint64_t cache = reclaimable_read(root, dir, v1);
    use -= cache < use ? cache : use;
    return limit > use ? limit - use : 0;
}

/* Keeps one copy of a text for ever: as many as there are limit files that ever were tightest. */
static const char *text_keep(const char *dir, const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char *kept[32];
    char text[2 * PATH_CAP];
    snprintf(text, sizeof text, "%s/%s", dir, name);
    const char *found = name; /* better than nothing when the table is full */
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (!kept[i])
            kept[i] = strdup(text);
        if (kept[i] && strcmp(kept[i], text) == 0) {
            found = kept[i];
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

uint64_t cgroup_memory_room(const char *root, const char **file)
{
    static const struct {
        const char *controller;
        const char *limits[2];
    } kinds[] = {
        {NULL, {"memory.max", "memory.high"}}, /* over "high" every allocation is held up */
        {"memory", {"memory.limit_in_bytes", NULL}},
    };
    uint64_t least = OS_UNKNOWN;
    struct hierarchy *h = malloc(sizeof *h);
    for (size_t k = 0; h && k < sizeof kinds / sizeof *kinds; k++) {
        hierarchy_find(root, kinds[k].controller, h);
        if (!h->found)
            continue;
        do {
            for (int i = 0; i < 2 && kinds[k].limits[i]; i++) {
                bool v1 = kinds[k].controller != NULL;
                uint64_t room = group_room(root, h->dir, kinds[k].limits[i], v1);
                if (room < least) {
                    least = room;
                    *file = text_keep(h->dir, kinds[k].limits[i]);
                }
            }
        } while (hierarchy_up(h));
    }
    free(h);
    return least;
}

static double group_quota(const char *root, const char *dir, bool v1)
{
    uint64_t quota = OS_UNKNOWN, period = OS_UNKNOWN;
    if (v1) { /* -1 = no quota: not a number to number_read */
        quota = number_read(root, dir, "cpu.cfs_quota_us");
        period = number_read(root, dir, "cpu.cfs_period_us");
    } else {
        FILE *f = file_open(root, dir, "cpu.max");
        unsigned long long q, p;
        if (f && fscanf(f, "%llu %llu", &q, &p) == 2) { /* "max 100000" does not match */
            quota = q;
            period = p;
        }
        if (f)
            fclose(f);
    }
    if (quota == OS_UNKNOWN || period == OS_UNKNOWN || quota == 0 || period == 0)
        return 0;
    return (double)quota / (double)period;
}

double cgroup_cpu_quota(const char *root)
{
    double least = 0;
    struct hierarchy *h = malloc(sizeof *h);
    for (int v1 = 0; h && v1 < 2; v1++) {
        hierarchy_find(root, v1 ? "cpu" : NULL, h);
        if (!h->found)
            continue;
        do {
            double q = group_quota(root, h->dir, v1);
            if (q > 0 && (least == 0 || q < least))
                least = q;
        } while (hierarchy_up(h));
    }
    free(h);
    return least;
}

uint64_t cgroup_stall_read(const char *root, const char *dir, const char *name)
{
    FILE *f = file_open(root, dir, name);
    char line[256];
    uint64_t us = OS_UNKNOWN;

    if (!f)
        return OS_UNKNOWN;
    while (us == OS_UNKNOWN && fgets(line, sizeof line, f)) {
        const char *total = strncmp(line, "full ", 5) == 0 ? strstr(line, " total=") : NULL;
        if (!total || total[7] < '0' || total[7] > '9')
            continue;
        errno = 0;
        us = strtoull(total + 7, NULL, 10);
        if (errno != 0)
            us = OS_UNKNOWN;
    }
    fclose(f);
    return us;
}

uint64_t cgroup_memory_stall_us(const char *root)
{
    struct hierarchy *h = malloc(sizeof *h);
    uint64_t us = OS_UNKNOWN;

    if (!h)
        return OS_UNKNOWN;
    hierarchy_find(root, NULL, h);
    if (h->found)
        us = cgroup_stall_read(root, h->dir, "memory.pressure");
    free(h);
    return us;
}
