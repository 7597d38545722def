/* SPDX-License-Identifier: MIT
 *
 * cmd_run.c: `burthen run MODEL`: text from a prompt, inside the plan.
 *
 * Generated text goes to stdout as it comes, everything else to stderr. The text and tokens are also kept for --stats,
 * up to a bound; what is longer is generated all the same, and the statistics hold its beginning. */
#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/size.h"
#include "cli/chat.h"
#include "cli/running.h"
#include "engine/generate.h"
#include "engine/session_file.h"
#include "engine/tokenize.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX_BYTES (1u << 20) /* of the text kept for --stats */
#define TOKENS_MAX     65536u     /* of the tokens kept for --stats */

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
    int failed_sys; /* its errno */
    /* for --session: what the context holds, and what was generated last and is not in it yet */
    int32_t *all;
    uint32_t n_all, n_all_max;
} output;

static bool on_token(int32_t token, const char *bytes, size_t n_bytes, void *user) {
    output *out = user;
    bt_terminal_write(&out->terminal, bytes, n_bytes);
    /* not bt_terminal_flush: a character may go on in the next token */
    if (fflush(out->terminal.stream) != 0) {
        out->failed_sys = errno;
        out->failed = true;
        return false;
    }
    if (out->n_all < out->n_all_max) out->all[out->n_all++] = token;
    if (out->keeps) {
        bt_text_add_n(&out->text, bytes, n_bytes);
        if (out->n_tokens < TOKENS_MAX) out->tokens[out->n_tokens++] = token;
    }
    return bt_running_signal() == 0;
}

static bt_status read_prompt(const bt_cli_options *options, bt_text *prompt, bt_error *err) {
    bt_text_init(prompt, BT_TOKENIZE_TEXT_MAX);
    if (options->prompt) {
        bt_text_add(prompt, options->prompt);
    } else {
        /* a session goes on by itself */
        if (!options->prompt_file && options->session_file && access(options->session_file, F_OK) == 0) return BT_OK;
        if (!options->prompt_file && isatty(STDIN_FILENO))
            return bt_fail(err, BT_E_ARG, "prompt_missing", BT_MEASURE_NONE, 0, 0,
                           "no prompt: give -p TEXT, -f FILE, or pipe it in");
        BT_TRY(bt_cli_read_file(options->prompt_file ? options->prompt_file : "-", prompt, err));
    }
    BT_TRY(bt_text_memory(prompt, err));
    if (prompt->failed)
        return bt_fail(err, BT_E_ARG, "prompt_bytes", BT_MEASURE_BYTES, 0, BT_TOKENIZE_TEXT_MAX,
                       "the prompt is too long");
    return BT_OK;
}

/* A prompt that does not fit is refused with both numbers, never cut: before weights are read, where it is known. */
static bt_status check_prompt(bt_engine *engine, const bt_plan *plan, const void *user, bt_error *err) {
    const bt_text *prompt = user;
    uint32_t n_prompt = 0;
    bt_tokenize_ask ask = bt_tokenize_ask_of(engine, bt_text_str(prompt), prompt->n_bytes, true, true);
    BT_TRY(bt_tokenize_count(&ask, &n_prompt, err));
    uint32_t n_ctx = plan->n_ctx / (plan->n_parallel > 0 ? plan->n_parallel : 1);
    if (n_prompt <= n_ctx) return BT_OK;
    return bt_fail(err, BT_E_ARG, "prompt_tokens", BT_MEASURE_TOKENS, n_prompt, n_ctx,
                   "the prompt has %u tokens, the context holds %u%s", n_prompt, n_ctx,
                   plan->n_parallel > 1 ? " for each sequence" : "");
}

/* An answer that was asked for and cannot be whole is said before it begins. */
static void say_room(const bt_running *running, uint32_t n_prompt) {
    /* the last token needs no cell: it is not decoded */
    uint64_t n_room = (uint64_t)bt_session_n_ctx(running->session) - bt_session_n_used(running->session) - n_prompt + 1;
    int32_t n_wanted = running->options->n_predict;
    if (n_wanted < 0 || (uint64_t)n_wanted <= n_room) return;
    bt_log_say("the context of %u tokens has room for %u of the %d tokens asked for: generation will stop there",
               bt_session_n_ctx(running->session), (unsigned)n_room, n_wanted);
}

/* The same beside what a session has used already. */
static bt_status check_room(const bt_running *running, uint32_t n_prompt, bt_error *err) {
    uint32_t n_left = bt_session_n_ctx(running->session) - bt_session_n_used(running->session);
    if (n_prompt <= n_left) return BT_OK;
    return bt_fail(err, BT_E_ARG, "prompt_tokens", BT_MEASURE_TOKENS, n_prompt, n_left,
                   "the prompt has %u tokens, %u of the context are left", n_prompt, n_left);
}

/* The tokens before the prompt: those of --session, if its file is there. Its state is taken up. */
static bt_status resume(bt_running *running, output *out, uint32_t *ret_n_decoded, bt_error *err) {
    const char *path = running->options->session_file;
    *ret_n_decoded = 0;
    if (!path) return BT_OK;
    out->n_all_max = bt_session_n_ctx(running->session) + 1;
    out->all = bt_heap_array(out->n_all_max, sizeof *out->all);
    if (!out->all) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for a session");
    bt_saved saved;
    bt_status status = bt_session_file_load(path, running->session, running->facts, &running->plan, &saved, err);
    if (status == BT_E_IO && err->sys == ENOENT) return BT_OK;
    if (status != BT_OK) return status;
    out->n_all = (uint32_t)bt_min_u64(saved.n_tokens, out->n_all_max);
    memcpy(out->all, saved.tokens, out->n_all * sizeof *out->all);
    *ret_n_decoded = saved.n_decoded;
    bt_saved_done(&saved);
    return BT_OK;
}

/* What is to be decoded: what the session left undone, then the prompt. The array is the caller's. */
static bt_status join(bt_running *running, output *out, const bt_text *prompt, int32_t **ret_tokens, uint32_t *ret_n,
                      bt_error *err) {
    uint32_t n_decoded = 0;
    int32_t *tokens = NULL;
    uint32_t n = 0;
    BT_TRY(resume(running, out, &n_decoded, err));
    bool is_new = out->n_all == 0;
    bt_tokenize_ask ask = bt_tokenize_ask_of(running->engine, bt_text_str(prompt), prompt->n_bytes, is_new, true);
    BT_TRY(bt_tokenize(&ask, &tokens, &n, err));
    uint32_t n_left = out->n_all - n_decoded;
    if (!is_new && n_left + n == 0) { /* its last token once more: its logits are wanted */
        n_decoded = bt_session_keep(running->session, n_decoded - 1);
        n_left = out->n_all - n_decoded;
    }
    int32_t *joined = bt_heap_array((size_t)n_left + n + 1, sizeof *joined);
    if (joined) {
        if (n_left > 0) memcpy(joined, out->all + n_decoded, n_left * sizeof *joined);
        memcpy(joined + n_left, tokens, n * sizeof *joined);
    }
    for (uint32_t i = 0; i < n && out->n_all < out->n_all_max; i++)
        out->all[out->n_all++] = tokens[i];
    bt_heap_free(tokens);
    if (!joined) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, n, 0, "no memory for the prompt's tokens");
    *ret_tokens = joined;
    *ret_n = n_left + n;
    return BT_OK;
}

static bt_status save_session(const bt_running *running, const output *out, bt_error *err) {
    const char *path = running->options->session_file;
    if (!path) return BT_OK;
    uint32_t n_decoded = (uint32_t)bt_min_u64(bt_session_n_used(running->session), out->n_all);
    bt_saved saved = {.tokens = out->all, .n_decoded = n_decoded, .n_tokens = out->n_all};
    return bt_session_file_save(path, running->session, running->facts, &running->plan, &saved, err);
}

static bt_status generate(bt_running *running, const bt_text *prompt, const char *grammar, output *out,
                          bt_generated *ret, bt_error *err) {
    int32_t *tokens = NULL;
    uint32_t n = 0;
    BT_TRY(join(running, out, prompt, &tokens, &n, err));
    bt_generate_params params = bt_running_generate_params(running, grammar);
    params.on_token = on_token;
    params.user = out;
    params.before = out->all;
    params.n_before = (uint32_t)bt_sat_sub_u64(out->n_all, n);
    bt_status status = check_room(running, n, err);
    if (status == BT_OK) say_room(running, n);
    if (status == BT_OK) status = bt_generate(running->session, tokens, n, &params, ret, err);
    if (status == BT_OK) status = save_session(running, out, err);
    bt_heap_free(tokens);
    return status;
}

static void count(const bt_generated *generated, bt_measured *measured) {
    measured->prompt_tokens = generated->n_prompt;
    measured->generated_tokens = generated->n_generated;
    measured->drafted_tokens = generated->n_drafted;
    measured->accepted_tokens = generated->n_accepted;
    measured->loop_heap_allocations = generated->loop_heap_allocations;
    measured->loop_heap_growth_bytes = generated->loop_heap_growth_bytes;
    measured->loop_major_faults = generated->loop_major_faults;
    measured->loop_tokens = generated->loop_tokens;
    measured->ttft_s = (double)generated->first_token_ns / 1e9;
    if (generated->prompt_ns > 0)
        measured->prefill_tokens_per_s = (double)generated->n_prompt * 1e9 / (double)generated->prompt_ns;
    /* the first token comes from the prompt's own pass */
    if (generated->n_generated > 1 && generated->decode_ns > 0)
        measured->decode_tokens_per_s = (double)(generated->n_generated - 1) * 1e9 / (double)generated->decode_ns;
}

/* After the text: what was measured, also of a run that was stopped or failed. */
static int finish(bt_running *running, const bt_generated *generated, output *out, bt_status status, bt_error *err) {
    bt_measured measured;
    memset(&measured, 0, sizeof measured);
    count(generated, &measured);
    bt_running_measure(running, &measured);
    if (generated->n_generated > 0) bt_terminal_write(&out->terminal, "\n", 1);
    if (!bt_terminal_flush(&out->terminal) && !out->failed) {
        out->failed_sys = errno;
        out->failed = true;
    }
    bt_running_print_summary(running, &measured);
    bt_running_print_lines(running, &measured);
    bt_running_warn(running, &measured);
    bt_running_keep(running, &measured);
    int code = status == BT_OK ? 0 : bt_running_fail(err);
    bt_error stats_err = {0};
    if (running->options->stats_file &&
        bt_running_write_stats(running, &measured, &out->text, out->tokens, out->n_tokens, &stats_err) != BT_OK &&
        code == 0)
        code = bt_cli_fail(&stats_err);
    if (out->failed && code == 0) {
        (void)bt_fail_sys(err, out->failed_sys, "stdout", "cannot write to standard output");
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
    bt_heap_free(out.all);
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
    int code = bt_running_open_checked(options, model, bt_planning_one_row, check_prompt, prompt, running);
    if (code == 0) {
        code = run_with(running, prompt, grammar);
        bt_running_close(running);
    }
    bt_heap_free(running);
    return code;
}

int bt_cmd_run(const bt_cli_options *options, bt_option_result *args) {
    bool has_prompt = options->prompt || options->prompt_file;
    if (options->wishes.chat || (!has_prompt && isatty(STDIN_FILENO) == 1)) return bt_chat_run(options, args->args[0]);
    bt_error err = {0};
    bt_text prompt;
    bt_text grammar;
    bt_text_init(&grammar, BT_TOKENIZE_TEXT_MAX);
    bt_status status = read_prompt(options, &prompt, &err);
    if (status == BT_OK) status = bt_cli_check_outputs(options, &err);
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
