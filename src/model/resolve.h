/* From a directory of tensors and hyperparameters to units, vectors and layers. */
#ifndef MODEL_RESOLVE_H
#define MODEL_RESOLVE_H

#include "hparams.h"

/* A tensor that is not there is LEAT_ERR_UNSUPPORTED (naming what was looked for), one of a
 * wrong shape LEAT_ERR_FORMAT. Marks the tensors that were used and warns of the others. */
int resolve_model(struct directory *d, const struct hparams *h, struct model *m,
                  struct leat_error *e);

/* The order in which a pass uses the dense units: layer by layer in the order of enum mat_role,
 * the head last. */
int schedule_build(struct model *m, struct arena *a, struct leat_error *e);

#endif
