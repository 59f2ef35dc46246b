/* Shared by the files of the budget only. */
#ifndef PLAN_BUDGET_INTERNAL_H
#define PLAN_BUDGET_INTERNAL_H

#include "budget.h"

/* Fills e with the refusal: the sum of out, row by row, and what to do. Returns LEAT_ERR_MEMORY. */
int budget_refuse(const char *name, const struct budget_ask *ask, const struct budget *out,
                  struct leat_error *e);

#endif
