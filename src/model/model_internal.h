/* What model.c and inspect.c share. */
#ifndef MODEL_MODEL_INTERNAL_H
#define MODEL_MODEL_INTERNAL_H

#include "directory.h"
#include "model.h"

/* Fills m (files and path apart) from a directory; memory of the directory's arena. */
int model_build(struct directory *d, struct model *m, struct leat_error *e);

#endif
