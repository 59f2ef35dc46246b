/* A file that a command writes on demand (--logits, --csv), whole or not at all. One thread. */
#ifndef CLI_RESULT_FILE_H
#define CLI_RESULT_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "../../include/leat.h"

struct result_file {
    FILE *file; /* NULL: none was asked for */
    const char *path, *what;
    char temporary[4096]; /* empty: written in place */
    int write_errno;      /* of the first write that failed */
};

/* path NULL: no file; the calls below then do nothing. what: "logits file", in messages. Both
 * strings stay the caller's and live until the close. */
int result_file_open(struct result_file *r, const char *path, const char *flag, const char *what,
                     struct leat_error *e);
bool result_file_write(struct result_file *r, const void *bytes, size_t n); /* false: it failed */
/* whole: what was written counts and takes the name; else the old file stays. Returns code, or the
 * code of a write that failed, with e filled. */
int result_file_close(struct result_file *r, bool whole, int code, struct leat_error *e);

#endif
