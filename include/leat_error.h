/* The one error object of Leat, used by the library inside and out.
 *
 * A function that can fail returns 0 (or a count >= 0) and on failure a negative enum leat_code, with
 * the same code and one line of text in the caller's struct leat_error. The text names the file, the
 * place, the figure and the remedy, holds no control bytes and no trailing newline. A NULL error
 * pointer is allowed everywhere: the code alone is returned then. */
#ifndef LEAT_ERROR_H
#define LEAT_ERROR_H

#include <stdint.h>

enum leat_code {
    LEAT_OK = 0,
    LEAT_ERR_USAGE = -1,       /* wrong usage: unknown option, value out of bounds (exit status 2) */
    LEAT_ERR_FILE = -2,        /* cannot open, read or write; the storage failed */
    LEAT_ERR_FORMAT = -3,      /* the file breaks its own format's rules */
    LEAT_ERR_UNSUPPORTED = -4, /* well formed, but of a kind this build does not know */
    LEAT_ERR_MEMORY = -5,      /* over the budget, or the system refused; needed_bytes may be set */
    LEAT_ERR_CONTEXT = -6,     /* the sequence does not fit its context */
    LEAT_ERR_CANCELLED = -7,   /* leat_cancel was called */
    LEAT_ERR_STATE = -8,       /* the call does not fit the object's state */
    LEAT_ERR_INTERNAL = -9,    /* a defect of Leat's own */
};

#define LEAT_ERROR_TEXT 2048

struct leat_error {
    int code;                   /* enum leat_code; 0 = none */
    uint64_t needed_bytes;      /* LEAT_ERR_MEMORY: the smallest budget that works; 0 = not known */
    char message[LEAT_ERROR_TEXT];
};

#endif
