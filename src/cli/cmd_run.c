/* SPDX-License-Identifier: MIT
 *
 * cmd_run.c: `burthen run MODEL`: text from a prompt, inside the plan.
 *
 * Generated text goes to stdout as it comes, everything else to stderr. The text and tokens are also kept for --stats,
 * up to a bound; what is longer is generated all the same, and the statistics hold its beginning. */
#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "cli/running.h"
#include "engine/generate.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PROMPT_MAX_BYTES (64u << 20) /* what one tokenization takes (engine/session.c) */
#define TEXT_MAX_BYTES   (1u << 20)  /* of the text kept for --stats */
#define TOKENS_MAX       65536u      /* of the tokens kept for --stats */

const char *bt_cmd_engine_version(void) {
    return bt_engine_build_version();
}

typedef struct output {
    bt_terminal terminal; /* stdout */
    bt_text text;
    int32_t *tokens;
    uint32_t n_tokens;
    bool keeps; /* for --stats */
    bool failed;
} output;

static bool on_token(int32_t token, const char *bytes, size_t n_bytes, void *user) {
    output *out = user;
    bt_terminal_write(&out->terminal, bytes, n_bytes);
    if (!bt_terminal_flush(&out->terminal)) {
        out->failed = true;
        return false;
    }
    if (out->keeps) {
        bt_text_add_n(&out->text, bytes, n_bytes);
        if (out->n_tokens < TOKENS_MAX) out->tokens[out->n_tokens++] = token;
    }
    return bt_running_signal() == 0;
}

static bt_status read_prompt(const bt_cli_options *options, bt_text *prompt, bt_error *err) {
    bt_text_init(prompt, PROMPT_MAX_BYTES);
    if (options->prompt) {
        bt_text_add(prompt, options->prompt);
    } else {
        if (!options->prompt_file && isatty(STDIN_FILENO))
            return bt_fail(err, BT_E_ARG, "prompt_missing", BT_MEASURE_NONE, 0, 0,
                           "no prompt: give -p TEXT, -f FILE, or pipe it in");
        BT_TRY(bt_cli_read_file(options->prompt_file ? options->prompt_file : "-", prompt, err));
    }
    if (prompt->failed)
        return bt_fail(err, BT_E_LIMIT, "prompt_bytes", BT_MEASURE_BYTES, 0, PROMPT_MAX_BYTES,
                       "the prompt is too long");
    return BT_OK;
}

/* A prompt that fills the context leaves no room for an answer: refuse, with both numbers, never cut. */
static bt_status check_prompt(const bt_running *running, uint32_t n_prompt, bt_error *err) {
    uint32_t n_ctx = bt_session_n_ctx(running->session);
    if (n_prompt <= n_ctx) return BT_OK;
    return bt_fail(err, BT_E_ARG, "prompt_tokens", BT_MEASURE_TOKENS, n_prompt, n_ctx,
                   "the prompt has %u tokens, the context holds %u", n_prompt, n_ctx);
}

static bt_status generate(bt_running *running, const bt_text *prompt, const char *grammar, output *out,
                          bt_generated *ret, bt_error *err) {
    const bt_cli_options *options = running->options;
    int32_t *tokens = NULL;
    uint32_t n = 0;
    BT_TRY(bt_session_tokenize(running->engine, bt_text_str(prompt), prompt->n_bytes, true, true, &tokens, &n, err));
    bt_generate_params params = {
        .sampling = {.temperature = options->greedy ? 0.0 : options->temperature,
                     .top_k = options->top_k,
                     .top_p = options->top_p,
                     .min_p = options->min_p,
                     .repeat_penalty = options->repeat_penalty,
                     .seed = options->seed,
                     .has_seed = options->seed_given,
                     .grammar = grammar},
        .n_predict = options->n_predict,
        .ignore_eos = options->ignore_eos,
        .on_token = on_token,
        .user = out,
    };
    bt_status status = check_prompt(running, n, err);
    if (status == BT_OK) status = bt_generate(running->session, tokens, n, &params, ret, err);
    bt_heap_free(tokens);
    return status;
}

static void count(const bt_generated *generated, bt_measured *measured) {
    measured->prompt_tokens = generated->n_prompt;
    measured->generated_tokens = generated->n_generated;
    measured->loop_heap_allocations = generated->loop_heap_allocations;
    measured->loop_heap_growth_bytes = generated->loop_heap_growth_bytes;
    measured->ttft_s = (double)generated->first_token_ns / 1e9;
    if (generated->prompt_ns > 0)
        measured->prefill_tokens_per_s = (double)generated->n_prompt * 1e9 / (double)generated->prompt_ns;
    /* the first token comes from the prompt's own pass */
    if (generated->n_generated > 1 && generated->decode_ns > 0)
        measured->decode_tokens_per_s = (double)(generated->n_generated - 1) * 1e9 / (double)generated->decode_ns;
}

static bt_status write_stats(const bt_running *running, const bt_measured *measured, const output *out, bt_error *err) {
    char *json = NULL;
    BT_TRY(bt_report_stats_json(&running->plan, running->facts, &running->machine, measured, bt_text_str(&out->text),
                                out->text.n_bytes, out->tokens, out->n_tokens, &json, err));
    const char *path = running->options->stats_file;
    FILE *file = fopen(path, "we");
    bool ok = file && fputs(json, file) >= 0;
    int sys = errno;
    if (file && fclose(file) != 0) {
        ok = false;
        sys = errno;
    }
    bt_heap_free(json);
    return ok ? BT_OK : bt_fail_sys(err, sys, "stats_file", "cannot write the statistics to %s", path);
}

static void print_summary(const bt_running *running, const bt_measured *measured) {
    if (running->options->quiet) return;
    (void)fprintf(stderr, "prompt %u tokens at %.1f/s, generated %u at %.1f/s; read %s at %s/s, waited %.2f s\n",
                  measured->prompt_tokens, measured->prefill_tokens_per_s, measured->generated_tokens,
                  measured->decode_tokens_per_s, BT_SIZE(measured->streamed_bytes),
                  BT_SIZE((uint64_t)measured->read_bytes_per_s), measured->io_wait_s);
}

/* After the text: what was measured, also of a run that was stopped or failed. */
static int finish(bt_running *running, const bt_generated *generated, output *out, bt_status status, bt_error *err) {
    bt_measured measured;
    memset(&measured, 0, sizeof measured);
    count(generated, &measured);
    bt_running_measure(running, &measured);
    if (generated->n_generated > 0) bt_terminal_write(&out->terminal, "\n", 1);
    if (!bt_terminal_flush(&out->terminal)) out->failed = true;
    print_summary(running, &measured);
    bt_running_print_lines(running, &measured);
    int code = status == BT_OK ? 0 : bt_running_fail(err);
    bt_error stats_err = {0};
    if (running->options->stats_file && write_stats(running, &measured, out, &stats_err) != BT_OK && code == 0)
        code = bt_cli_fail(&stats_err);
    if (out->failed && code == 0) {
        (void)bt_fail_sys(err, EPIPE, "stdout", "cannot write to standard output");
        code = bt_cli_fail(err);
    }
    if (code == 0 && bt_running_signal() != 0) code = 128 + bt_running_signal();
    return code;
}

static int run_with(bt_running *running, const bt_text *prompt, const char *grammar) {
    output out = {.keeps = running->options->stats_file != NULL};
    bt_terminal_open(&out.terminal, stdout, NULL);
    bt_text_init(&out.text, TEXT_MAX_BYTES);
    if (out.keeps) bt_text_reserve(&out.text, TEXT_MAX_BYTES); /* the token loop asks the heap for nothing */
    out.tokens = bt_heap_array(out.keeps ? TOKENS_MAX : 1, sizeof *out.tokens);
    bt_error err = {0};
    bt_generated generated = {0};
    bt_status status = BT_E_NOMEM;
    if (!out.tokens)
        (void)bt_fail(&err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for the generated tokens");
    else
        status = generate(running, prompt, grammar, &out, &generated, &err);
    int code = finish(running, &generated, &out, status, &err);
    bt_heap_free(out.tokens);
    bt_text_done(&out.text);
    return code;
}

/* Load, run, close. */
static int open_and_run(const bt_cli_options *options, const char *model, const bt_text *prompt, const char *grammar) {
    bt_running *running = bt_heap_alloc(sizeof *running);
    if (!running) {
        bt_error err = {0};
        (void)bt_fail(&err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory to run");
        return bt_cli_fail(&err);
    }
    int code = bt_running_open(options, model, bt_planning_one_row, running);
    if (code == 0) {
        code = run_with(running, prompt, grammar);
        bt_running_close(running);
    }
    bt_heap_free(running);
    return code;
}

int bt_cmd_run(const bt_cli_options *options, bt_option_result *args) {
    bt_error err = {0};
    bt_text prompt;
    bt_text grammar;
    bt_text_init(&grammar, PROMPT_MAX_BYTES);
    bt_status status = read_prompt(options, &prompt, &err);
    if (status == BT_OK && options->grammar_file) status = bt_cli_read_file(options->grammar_file, &grammar, &err);
    int code = 0;
    if (status == BT_OK)
        code = open_and_run(options, args->args[0], &prompt, options->grammar_file ? bt_text_str(&grammar) : NULL);
    else
        code = bt_cli_fail(&err);
    bt_text_done(&prompt);
    bt_text_done(&grammar);
    return code;
}
