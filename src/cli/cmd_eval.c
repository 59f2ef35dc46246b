/* leat eval: logits and perplexity of given tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "result_file.h"
#include "../base/clock.h"
#include "../base/error.h"

struct eval {
    struct options *o;
    const char *model;
    char *text;
    size_t text_len;
    int32_t *ids, n;
    struct leat_params *params;
    struct leat_plan plan;
    struct leat_engine *engine;
    struct leat_session *session;
    struct leat_eval result;
    struct result_file logits;
    double start_s;
};

static int on_logits(void *arg, int32_t position, const float *logits, int32_t width)
{
    struct eval *v = arg;
    struct leat_progress p = {
        .prompt_done = position,
        .prompt_total = v->n,
        .elapsed_s = clock_now() - v->start_s,
    }; /* rows come when their pass is over: no layer to name */
    progress_show(&p);
    return !result_file_write(&v->logits, logits, (size_t)width * sizeof *logits);
}

/* ---- the tokens ---- */

static int read_tokens(struct eval *v, struct leat_error *e)
{
    const char *tokens = option(v->o, "tokens")->s;
    int code = input_text(v->o, &v->text, &v->text_len, e);
    if (code < 0)
        return code;
    if (!tokens && !v->text)
        return error_set(e, LEAT_ERR_USAGE,
                         "nothing to evaluate: give --tokens \"1 5 9\", or a text with -f or -p");
    if (tokens && v->text)
        return error_set(e, LEAT_ERR_USAGE,
                         "--tokens and -f or -p both say what to evaluate; give one of them");
    if (!tokens)
        return 0;
    code = input_ids(tokens, strlen(tokens), &v->ids, &v->n, e);
    if (code == 0 && v->n == 0)
        code = error_set(e, LEAT_ERR_USAGE, "nothing to evaluate: --tokens holds no id");
    return code;
}

static int encode_text(struct eval *v, struct leat_error *e)
{
    const struct leat_tokenizer *t = leat_engine_tokenizer(v->engine, e);
    size_t n;
    if (!t)
        return e->code;
    uint32_t flags = (option(v->o, "bos")->b ? LEAT_ENCODE_ADD_SPECIAL : 0u) |
                     (option(v->o, "special")->b ? LEAT_ENCODE_SPECIAL : 0u);
    int code = leat_encode(t, v->text, v->text_len, flags, &v->ids, &n, e);
    if (code == 0 && (n == 0 || n > INT32_MAX))
        code = error_set(e, LEAT_ERR_USAGE, "the text gives %zu tokens", n);
    v->n = code == 0 ? (int32_t)n : 0;
    return code;
}

/* Evaluation wants many rows of logits and no more context than it has tokens, unless that was
 * said. */
static int set_params(struct eval *v, struct leat_error *e)
{
    char context[16];
    int code = 0;
    if (!option_given(v->o, "logit_rows"))
        code = leat_params_set(v->params, "logit_rows", "auto", e);
    snprintf(context, sizeof context, "%d", (int)v->n);
    if (code == 0 && v->n > 0 && !option_given(v->o, "context"))
        code = leat_params_set(v->params, "context", context, e);
    return code;
}

static int evaluate(struct eval *v, struct leat_error *e)
{
    int code = set_params(v, e);
    if (code < 0 || (code = leat_open(v->model, v->params, &v->plan, &v->engine, e)) < 0)
        return code;
    interrupt_watch(v->engine);
    if (!v->ids && (code = encode_text(v, e)) < 0)
        return code;
    if (say_how(v->o) && !v->o->json) {
        char warning[128];
        fprintf(stderr, "leat: %s\n", v->plan.summary);
        if (warning_of(v->engine, warning, sizeof warning))
            fprintf(stderr, "leat: %s\n", warning);
    }
    if ((code = leat_session_open(v->engine, &v->session, e)) < 0 ||
        (code = record_begin(v->o, v->engine, e)) < 0 ||
        (code = result_file_open(&v->logits, option(v->o, "logits")->s, "--logits", "logits file",
                                 e)) < 0)
        return code;
    v->start_s = clock_now();
    progress_begin();
    code = leat_eval(v->session, v->ids, v->n, on_logits, v, &v->result, e);
    progress_end();
    code = record_end(v->engine, code, e);
    return result_file_close(&v->logits, code >= 0, code, e);
}

/* ---- afterwards ---- */

static void print_json(const struct eval *v)
{
    const struct leat_eval *r = &v->result;
    struct leat_stats s;
    char warning[128];
    json_t *top = json_object();
    leat_engine_stats(v->engine, option(v->o, "stats")->b, &s);
    json_object_set_new(top, "n_tokens", json_integer(r->n));
    json_object_set_new(top, "perplexity",
                        isfinite(r->perplexity) ? json_real(r->perplexity) : json_null());
    json_object_set_new(top, "nll_sum", isfinite(r->nll_sum) ? json_real(r->nll_sum) : json_null());
    json_object_set_new(top, "logits_width", json_integer(leat_engine_facts(v->engine)->n_logits));
    json_object_set_new(top, "logits_file", json_text_of(option(v->o, "logits")->s));
    if (warning_of(v->engine, warning, sizeof warning))
        json_object_set_new(top, "warning", json_string(warning));
    json_t *stats = stats_json(v->engine, &s, NULL, r->eval_s, r->n);
    json_object_set_new(stats, "eval_s", json_real(r->eval_s));
    json_object_set_new(stats, "eval_per_s", json_rate(r->n, r->eval_s));
    json_object_set_new(top, "stats", stats);
    output_json(top);
}

static void print_text(const struct eval *v)
{
    const struct leat_eval *r = &v->result;
    char line[128];
    int n = isfinite(r->perplexity)
                ? snprintf(line, sizeof line, "perplexity %.6g over %d token%s\n", r->perplexity,
                           (int)r->n - 1, r->n == 2 ? "" : "s")
                : snprintf(line, sizeof line, "%d token%s evaluated; a perplexity needs two\n",
                           (int)r->n, r->n == 1 ? "" : "s");
    output_bytes(line, (size_t)n);
    if (!option(v->o, "stats")->b)
        return;
    struct leat_stats s;
    leat_engine_stats(v->engine, 1, &s);
    fputc('\n', stderr);
    rate_print("evaluation", r->n, r->eval_s);
    stats_print(v->engine, &s, NULL, r->eval_s, r->n);
}

int eval_command(struct options *o)
{
    struct eval v = {.o = o};
    struct leat_error e = {0};
    int status = EXIT_OK;
    interrupt_watch(NULL);
    int code = options_model(o, &v.model, &e);
    if (code == 0)
        code = read_tokens(&v, &e);
    if (code == 0)
        code = options_params(o, &v.params, &e);
    if (code == 0)
        code = evaluate(&v, &e);
    if (code < 0)
        status = report_error(o, &e, &v.plan);
    else if (o->json)
        print_json(&v);
    else
        print_text(&v);
    leat_session_close(v.session);
    interrupt_watch(NULL);
    leat_close(v.engine);
    leat_params_close(v.params);
    free(v.text);
    free(v.ids);
    return status;
}
