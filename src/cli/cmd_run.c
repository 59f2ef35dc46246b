/* leat run: continues a text. Owns the order of what is said where: text on standard output, all
 * else on standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "../base/clock.h"
#include "../base/error.h"

struct run {
    struct options *o;
    const char *model;
    char *text; /* -p or -f; NULL with --tokens */
    size_t text_len;
    int32_t *ids, n_ids; /* --tokens */
    struct leat_params *params;
    struct leat_plan plan;
    struct leat_engine *engine;
    struct leat_session *session;
    struct leat_result result;
    struct leat_stats after;
    struct account_csv csv;
    double start_s, elapsed_s;
    bool ends_in_newline;
};

/* ---- the prompt ---- */

static int read_prompt(struct run *r, struct leat_error *e)
{
    const char *tokens = option(r->o, "tokens")->s;
    char quoted[80];
    int code = input_text(r->o, &r->text, &r->text_len, e);
    if (code < 0)
        return code;
    if (r->o->n_words > 0)
        return error_set(
            e, LEAT_ERR_USAGE,
            "'%s' would be one turn of a chat, and chat templates are not there yet; to continue a "
            "text as it "
            "is, give it with -p",
            error_quote(quoted, sizeof quoted, r->o->words[0], strlen(r->o->words[0])));
    if (tokens && r->text)
        return error_set(e, LEAT_ERR_USAGE,
                         "--tokens and -p or -f both give the prompt; give one of them");
    if (tokens)
        return input_ids(tokens, strlen(tokens), &r->ids, &r->n_ids, e);
    if (!r->text)
        return error_set(e, LEAT_ERR_USAGE,
                         "no prompt: give a text with -p or -f (a chat without one needs chat "
                         "templates, which are not there "
                         "yet)");
    return 0;
}

/* ---- while it runs ---- */

static int on_text(void *arg, const char *text, size_t n)
{
    struct run *r = arg;
    if (n == 0)
        return 0;
    progress_end();
    output_bytes(text, n);
    r->ends_in_newline = text[n - 1] == '\n';
    return output_broken();
}

static int on_token(void *arg, int32_t id)
{
    struct run *r = arg;
    return !account_csv_token(&r->csv, id);
}

static int on_progress(void *arg, const struct leat_progress *p)
{
    (void)arg;
    progress_show(p);
    return 0;
}

static int generate(struct run *r, struct leat_error *e)
{
    struct options *o = r->o;
    int code = account_csv_open(&r->csv, option(o, "csv")->s, e);
    if (code < 0 || (code = leat_open(r->model, r->params, &r->plan, &r->engine, e)) < 0)
        return code;
    interrupt_watch(r->engine);
    if (!r->ids && !leat_engine_tokenizer(r->engine, e))
        return e->code;
    if (say_how(o) && !o->json) {
        char warning[128];
        fprintf(stderr, "leat: %s\n", r->plan.summary);
        if (warning_of(r->engine, warning, sizeof warning))
            fprintf(stderr, "leat: %s\n", warning);
    }
    if ((code = leat_session_open(r->engine, &r->session, e)) < 0 ||
        (code = record_begin(o, r->engine, e)) < 0)
        return code;
    struct leat_request q = {
        .session = r->session,
        .params = r->params,
        .ids = r->ids,
        .n_ids = r->n_ids,
        .text = r->text,
        .text_len = r->text_len,
        .text_flags = (option(o, "bos")->b ? LEAT_ENCODE_ADD_SPECIAL : 0u) |
                      (option(o, "special")->b ? LEAT_ENCODE_SPECIAL : 0u),
        .special = option(o, "special")->b,
        .on_token = on_token,
        .on_text = o->json ? NULL : on_text,
        .on_progress = on_progress,
        .arg = r,
    };
    account_csv_begin(&r->csv, r->engine, 0, 1);
    r->start_s = clock_now();
    progress_begin();
    code = leat_generate(r->engine, &q, 1, &r->result, e);
    progress_end();
    r->elapsed_s = clock_now() - r->start_s;
    leat_engine_stats(r->engine, option(o, "stats")->b, &r->after);
    return record_end(r->engine, code, e);
}

/* ---- afterwards ---- */

static json_t *ids_json(const int32_t *ids, int32_t n)
{
    json_t *a = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer(ids[i]));
    return a;
}

static void print_json(const struct run *r)
{
    const struct leat_result *q = &r->result;
    char warning[128];
    json_t *top = json_object();
    json_t *s =
        stats_json(r->engine, &r->after, NULL, r->elapsed_s, (double)(q->n_prompt + q->n_tokens));
    json_object_set_new(top, "text", json_stringn(q->text ? q->text : "", q->text_len));
    json_object_set_new(top, "tokens", ids_json(q->tokens, q->n_tokens));
    json_object_set_new(top, "prompt_tokens", ids_json(q->prompt_tokens, q->n_prompt));
    json_object_set_new(top, "finish_reason", json_string(leat_finish_word(q->finish)));
    if (q->stopped_by)
        json_object_set_new(top, "stop_string", json_text_of(q->stopped_by));
    json_object_set_new(top, "seed", json_integer((json_int_t)q->seed));
    if (warning_of(r->engine, warning, sizeof warning))
        json_object_set_new(top, "warning", json_string(warning));
    json_object_set_new(s, "prompt_tokens", json_integer(q->n_prompt));
    json_object_set_new(s, "prompt_s", json_real(q->prompt_s));
    json_object_set_new(s, "prompt_per_s", json_rate(q->n_prompt, q->prompt_s));
    json_object_set_new(s, "generated_tokens", json_integer(q->n_tokens));
    json_object_set_new(s, "decode_s", json_real(q->decode_s));
    json_object_set_new(s, "decode_per_s", json_rate(q->n_tokens - 1, q->decode_s));
    json_object_set_new(top, "stats", s);
    output_json(top);
}

static void print_stats(const struct run *r)
{
    const struct leat_result *q = &r->result;
    fprintf(stderr, "\nfinished: %s, seed %llu\n", leat_finish_word(q->finish),
            (unsigned long long)q->seed);
    rate_print("prompt", q->n_prompt, q->prompt_s);
    rate_print("decode", q->n_tokens > 1 ? q->n_tokens - 1 : 0, q->decode_s);
    stats_print(r->engine, &r->after, NULL, r->elapsed_s, (double)(q->n_prompt + q->n_tokens));
}

static int finish(struct run *r, int code, const struct leat_error *e)
{
    const struct options *o = r->o;
    const bool ran = r->result.finish != LEAT_FINISH_NONE && r->result.prompt_tokens;
    int status = code < 0 ? EXIT_FAILED : EXIT_OK;
    if (ran && o->json)
        print_json(r);
    else if (ran && r->result.n_tokens > 0 && !r->ends_in_newline && isatty(STDOUT_FILENO) == 1)
        output_bytes("\n", 1);
    if (ran && !o->json && option(o, "stats")->b)
        print_stats(r);
    if (code == LEAT_ERR_CANCELLED && ran) {
        if (!o->json && !output_broken())
            fprintf(stderr,
                    "leat: cancelled after %d of the prompt's tokens were evaluated and %d were "
                    "generated\n",
                    (int)(r->after.pass_tokens < (uint64_t)r->result.n_prompt
                              ? r->after.pass_tokens
                              : (uint64_t)r->result.n_prompt),
                    (int)r->result.n_tokens);
    } else if (code < 0) {
        status = report_error(o, e, &r->plan);
    }
    return status;
}

int run_command(struct options *o)
{
    struct run r = {.o = o};
    struct leat_error e = {0};
    interrupt_watch(NULL);
    int code = options_model(o, &r.model, &e);
    if (code == 0)
        code = read_prompt(&r, &e);
    if (code == 0)
        code = options_params(o, &r.params, &e);
    if (code == 0)
        code = account_csv_close(&r.csv, generate(&r, &e), &e);
    const int status = finish(&r, code, &e);
    leat_result_free(&r.result);
    leat_session_close(r.session);
    interrupt_watch(NULL);
    leat_close(r.engine);
    leat_params_close(r.params);
    free(r.text);
    free(r.ids);
    return status;
}
