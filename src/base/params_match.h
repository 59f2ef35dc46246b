/* Flags to rows, and the nearest one to a misspelling. Shared by params_*.c only. Pure. */
#ifndef BASE_PARAMS_MATCH_H
#define BASE_PARAMS_MATCH_H

#include "params.h"

/* The row that owns this spelling among those whose commands meet `command` (UINT32_MAX = every
 * row); -1 = none. *no: it was the "--no-" form of a switch. */
int32_t params_match(const struct param_set *s, const char *name, uint32_t command, bool *no);

/* The flag of these commands, or the key, that is likely to be meant; NULL when none is near. */
const char *params_nearest_flag(const struct param_set *s, const char *name, uint32_t command);
const char *params_nearest_key(const struct param_set *s, const char *key);

#endif
