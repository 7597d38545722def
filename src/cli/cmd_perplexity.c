/* SPDX-License-Identifier: MIT
 *
 * cmd_perplexity.c: `burthen perplexity MODEL -f FILE`: the correctness check under any budget, printed as
 * llama-perplexity prints it. */
#include "base/error.h"
#include "base/heap.h"
#include "cli/running.h"
#include "engine/perplexity.h"
#include "engine/tokenize.h"

#include <errno.h>
#include <string.h>

static bool on_chunk(uint32_t chunk, double value, void *user) {
    int *failed_sys = user;
    (void)printf("[%u]%.4lf,", chunk + 1, value);
    if (fflush(stdout) != 0) *failed_sys = errno;
    return *failed_sys == 0 && bt_running_signal() == 0;
}

static int fail_output(int sys) {
    bt_error err = {0};
    (void)bt_fail_sys(&err, sys, "stdout", "cannot write to standard output");
    return bt_cli_fail(&err);
}

static int score(bt_running *running, const bt_text *text) {
    bt_error err = {0};
    bt_token_stream *tokens = NULL;
    bt_perplexity result;
    int failed_sys = 0;
    uint32_t n_chunk = running->options->wishes.n_ctx;
    if (n_chunk == 0) n_chunk = running->plan.n_ctx;
    bt_tokenize_ask ask = bt_tokenize_ask_of(running->engine, bt_text_str(text), text->n_bytes, true, false);
    bt_status status = bt_token_stream_open(&ask, &tokens, &err);
    uint32_t max_chunks = running->options->n_chunks < 0 ? UINT32_MAX : (uint32_t)running->options->n_chunks;
    if (status == BT_OK)
        status = bt_perplexity_compute(running->session, tokens, n_chunk, running->plan.n_ubatch, max_chunks, on_chunk,
                                       &failed_sys, &result, &err);
    bt_token_stream_close(tokens);
    if (failed_sys != 0) return fail_output(failed_sys);
    if (status != BT_OK) return bt_running_fail(&err);
    (void)printf("\nFinal estimate: PPL = %.4lf +/- %.5lf\n", result.value, result.error);
    bt_measured measured;
    memset(&measured, 0, sizeof measured);
    bt_running_measure(running, &measured);
    bt_running_print_lines(running, &measured);
    bt_running_warn(running, &measured);
    bt_running_keep(running, &measured);
    return fflush(stdout) == 0 ? 0 : fail_output(errno);
}

/* Load, score, close. */
static int open_and_score(const bt_cli_options *options, const char *model, const bt_text *text) {
    bt_running *running = bt_heap_alloc(sizeof *running);
    if (!running) {
        bt_error err = {0};
        (void)bt_fail(&err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory to run");
        return bt_cli_fail(&err);
    }
    int code = bt_running_open(options, model, bt_perplexity_outputs, running);
    if (code == 0) {
        code = score(running, text);
        bt_running_close(running);
    }
    bt_heap_free(running);
    return code;
}

static bt_status read_text(const bt_cli_options *options, bt_text *text, bt_error *err) {
    if (options->n_chunks == 0)
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "--chunks wants -1 or at least 1, not \"0\"");
    if (!options->prompt_file)
        return bt_fail(err, BT_E_ARG, "file_missing", BT_MEASURE_NONE, 0, 0, "perplexity needs a text: -f FILE");
    return bt_cli_read_file(options->prompt_file, text, err);
}

int bt_cmd_perplexity(const bt_cli_options *options, bt_option_result *args) {
    bt_error err = {0};
    bt_text text;
    bt_text_init(&text, BT_TOKENIZE_TEXT_MAX);
    bt_status status = read_text(options, &text, &err);
    int code = status == BT_OK ? open_and_score(options, args->args[0], &text) : bt_cli_fail(&err);
    bt_text_done(&text);
    return code;
}
