/* The parameter rows of the budget, and their way into what is asked of it. One thread per set. */
#ifndef PLAN_BUDGET_PARAMS_H
#define PLAN_BUDGET_PARAMS_H

#include "../base/params.h"
#include "budget.h"

#define BUDGET_PARAM_USE 1u /* bit in `commands`: read when an engine opens (LEAT_PARAM_ENGINE) */

extern const struct param budget_params[];
extern const int32_t budget_params_count;

/* Fills context, width, max_logits, n_seq, resident and expert cache; ceiling only when it was
 * given (true is returned). */
bool budget_ask_read(const struct param_set *s, struct budget_ask *ask);

#endif
