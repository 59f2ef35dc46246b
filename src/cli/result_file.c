/* A file that a command writes: a new or regular one is written beside its place and renamed when
 * whole; what else has the name (a link, a pipe, a device) stays what it is and is written into.
 * Owns the open file. One thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "result_file.h"
#include "../base/error.h"

/* The name is of the folder, not of the file: a name as long as the file system allows has room. */
static int temporary_name(struct result_file *r, struct leat_error *e)
{
    const char *slash = strrchr(r->path, '/');
    const int folder = slash ? (int)(slash - r->path) + 1 : 0;
    int n = snprintf(r->temporary, sizeof r->temporary, "%.*s.leat-%ld.part", folder, r->path,
                     (long)getpid());
    if (n < 0 || (size_t)n >= sizeof r->temporary)
        return error_set(e, LEAT_ERR_USAGE, "the path of the %s is too long", r->what);
    return 0;
}

int result_file_open(struct result_file *r, const char *path, const char *flag, const char *what,
                     struct leat_error *e)
{
    char quoted[256];
    struct stat st;
    int code;
    *r = (struct result_file){.path = path, .what = what};
    if (!path)
        return 0;
    if (!*path || path[strlen(path) - 1] == '/')
        return error_set(e, LEAT_ERR_USAGE, "%s wants the name of a file", flag);
    error_quote(quoted, sizeof quoted, path, strlen(path));
    const bool there = lstat(path, &st) == 0;
    if (!there && errno != ENOENT)
        return error_set_errno(e, LEAT_ERR_FILE, errno, "cannot write %s", quoted);
    if (there && !S_ISREG(st.st_mode)) {
        r->file = fopen(path, "wb");
        if (!r->file)
            return error_set_errno(e, LEAT_ERR_FILE, errno, "cannot write %s", quoted);
        return 0;
    }
    if ((code = temporary_name(r, e)) < 0)
        return code;
    r->file = fopen(r->temporary, "wbx");
    if (!r->file)
        return error_set_errno(e, LEAT_ERR_FILE, errno, "cannot write beside %s", quoted);
    return 0;
}

bool result_file_write(struct result_file *r, const void *bytes, size_t n)
{
    errno = 0;
    if (r->file && !r->write_errno && fwrite(bytes, 1, n, r->file) != n)
        r->write_errno = errno ? errno : EIO;
    return r->write_errno == 0;
}

int result_file_close(struct result_file *r, bool whole, int code, struct leat_error *e)
{
    char quoted[256];
    if (!r->file)
        return code;
    error_quote(quoted, sizeof quoted, r->path, strlen(r->path));
    /* Half a file reads like a whole one: in place, a regular file is emptied. */
    if (!*r->temporary && (!whole || r->write_errno)) {
        (void)fflush(r->file);
        (void)!ftruncate(fileno(r->file), 0);
    }
    errno = 0;
    if (fclose(r->file) != 0 && !r->write_errno)
        r->write_errno = errno ? errno : EIO;
    r->file = NULL;
    const bool keep = whole && r->write_errno == 0;
    if (r->write_errno)
        code = error_set_errno(e, LEAT_ERR_FILE, r->write_errno, "cannot write the %s %s", r->what,
                               quoted);
    else if (keep && *r->temporary && rename(r->temporary, r->path) != 0)
        code = error_set_errno(e, LEAT_ERR_FILE, errno, "cannot name the %s %s", r->what, quoted);
    if (*r->temporary && (!keep || code == LEAT_ERR_FILE))
        unlink(r->temporary); /* gone already where it was renamed */
    return code;
}
