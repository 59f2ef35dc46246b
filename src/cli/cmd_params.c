/* leat params: the parameter table, for people and for programs that draw forms from it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "../base/error.h"

#define COLUMNS 80

int params_command(struct options *o)
{
    char *text = o->json ? params_json(&o->set, false)
                         : params_usage(&o->set, UINT32_MAX, PARAM_DEBUG, COLUMNS);
    if (!text) {
        struct leat_error e = {0};
        error_set(&e, LEAT_ERR_MEMORY, "no memory for the parameter table");
        return report_error(o, &e, NULL);
    }
    output_bytes(text, strlen(text));
    if (o->json)
        output_bytes("\n", 1);
    free(text);
    return EXIT_OK;
}
