/* leat inspect: what a container holds, from its headers alone. */
#include <string.h>

#include "cli.h"
#include "../base/error.h"

int inspect_command(struct options *o)
{
    struct leat_error e = {0};
    struct leat_report *r = NULL;
    const char *model;
    int code = options_model(o, &model, &e);
    if (code == 0)
        code = leat_inspect(model, &r, &e);
    if (code < 0)
        return report_error(o, &e, NULL);
    char *text = o->json ? leat_report_json(r) : leat_report_text(r, option(o, "tensors")->b);
    if (text) {
        output_bytes(text, strlen(text));
        if (o->json)
            output_bytes("\n", 1);
    } else {
        code = error_set(&e, LEAT_ERR_MEMORY, "no memory for the report");
    }
    leat_free(text);
    leat_report_close(r);
    return code < 0 ? report_error(o, &e, NULL) : EXIT_OK;
}
