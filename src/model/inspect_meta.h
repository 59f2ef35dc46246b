/* The metadata part of inspect.c. */
#ifndef MODEL_INSPECT_META_H
#define MODEL_INSPECT_META_H

#include "inspect.h"

/* Fills meta and n_meta: GGUF keys; __metadata__ and the fields of config.json. Memory of d's
 * arena. */
int inspect_list_meta(struct inspect *i, const struct directory *d, struct leat_error *e);

#endif
