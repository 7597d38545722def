/* SPDX-License-Identifier: MIT
 *
 * chat.c: a conversation on a terminal or from a pipe.
 *
 *   -p or -f, then the input, a message at a time:  /command -> chat_commands    anything else -> a turn
 *
 * The model's text goes to stdout and nothing else does, so that a script reads answers only. A turn that fails says so
 * and leaves the conversation as it was. Ctrl-C stops an answer, clears a line, and pressed twice at the prompt leaves
 * with 130; without a terminal it ends the program, as in `run`. */
#include "cli/chat.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "cli/chat_internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_BYTES_MAX (16u << 20) /* far over a context's text */
#define FILE_BYTES_MAX    (64u << 20)
#define TEXT_BYTES_MAX    (1u << 20) /* of the text kept for --stats, as in run */
#define TOKENS_MAX        65536u

/* ---- an answer ---- */

static bool on_token(int32_t token, const char *bytes, size_t n_bytes, void *user) {
    bt_chat *chat = user;
    bt_terminal_write(&chat->out, bytes, n_bytes);
    if (fflush(chat->out.stream) != 0) { /* a character may go on in the next token: what waits is not flushed */
        chat->out_failed_sys = errno;
        chat->out_failed = true;
        return false;
    }
    if (chat->keeps) {
        bt_text_add_n(&chat->text, bytes, n_bytes);
        if (token >= 0 && chat->n_tokens < TOKENS_MAX) chat->tokens[chat->n_tokens++] = token;
    }
    return bt_running_signal() == 0;
}

static void count(bt_chat *chat, const bt_turn *turn) {
    const bt_generated *g = &turn->generated;
    if (chat->n_turns++ == 0) chat->first_token_ns = g->first_token_ns;
    chat->sum.n_prompt += g->n_prompt;
    chat->sum.n_generated += g->n_generated;
    chat->sum.prompt_ns += g->prompt_ns;
    chat->sum.decode_ns += g->decode_ns;
    chat->sum.n_drafted += g->n_drafted;
    chat->sum.n_accepted += g->n_accepted;
    if (!g->loop_major_faults.known) return; /* a short answer */
    chat->sum.loop_major_faults.known = true;
    chat->sum.loop_major_faults.value += g->loop_major_faults.value;
    chat->sum.loop_tokens += g->loop_tokens;
}

/* What a user must know of how an answer ended. */
static void tell(const bt_chat *chat, const bt_turn *turn) {
    if (turn->generated.stop == BT_STOP_CONTEXT)
        bt_chat_say(chat, "the context of %u tokens is full and the answer ends here: /undo or /clear makes room",
                    bt_session_n_ctx(chat->running.session));
    if (chat->running.options->verbose)
        bt_chat_say(chat, "%u tokens, %u of them reused; answer of %u", turn->n_rendered, turn->n_reused,
                    turn->generated.n_generated);
}

/* After a signal: go on where it only meant the answer. */
static void after_signal(bt_chat *chat) {
    int number = bt_running_signal();
    if (number == 0) return;
    if (number == SIGINT && chat->is_terminal)
        bt_running_signal_clear();
    else
        chat->leave_code = 128 + number;
}

static void take_turn(bt_chat *chat, const char *text, size_t n_bytes) {
    bt_generate_params params = bt_running_generate_params(&chat->running, chat->grammar);
    params.on_token = on_token;
    params.user = chat;
    bt_turn turn = {0};
    bt_error err = {0};
    bt_status status = bt_conversation_say(chat->conversation, text, n_bytes, &params, &turn, &err);
    if (status == BT_OK || turn.generated.n_generated > 0) bt_terminal_write(&chat->out, "\n", 1);
    if (!bt_terminal_flush(&chat->out) && !chat->out_failed) {
        chat->out_failed_sys = errno;
        chat->out_failed = true;
    }
    if (status == BT_OK) {
        count(chat, &turn);
        tell(chat, &turn);
    } else if (status != BT_E_CANCELLED) {
        chat->fail_code = bt_cli_fail(&err);
    } else if (chat->is_terminal) {
        bt_chat_say(chat, "stopped before the answer began: the message is taken back");
    }
    after_signal(chat);
}

/* ---- the input ---- */

/* The input was interrupted. */
static void interrupted(bt_chat *chat, bool again) {
    int number = bt_running_signal();
    if (number == SIGINT && chat->is_terminal && !again) {
        (void)fputs("\n", stderr);
        bt_chat_say(chat, "Ctrl-C again leaves");
        bt_running_signal_clear();
        return;
    }
    if (number != 0) chat->leave_code = 128 + number;
}

static void take_message(bt_chat *chat, const bt_text *message) {
    const char *text = bt_text_str(message);
    bool has_words = text[strspn(text, " \t\r\n")] != '\0';
    if (!has_words && message->n_bytes == strlen(text)) return;
    bool is_command = text[0] == '/' && !memchr(text, '\n', message->n_bytes);
    if (is_command && text[1] != '/')
        bt_chat_command(chat, text + 1);
    else if (is_command)
        take_turn(chat, text + 1, message->n_bytes - 1); /* "//" is a text that begins with "/" */
    else
        take_turn(chat, text, message->n_bytes);
}

static bool goes_on(const bt_chat *chat) {
    return !chat->leaves && chat->leave_code == 0 && !chat->out_failed;
}

static void converse(bt_chat *chat, bt_input *input) {
    bt_text message;
    bt_text_init(&message, MESSAGE_BYTES_MAX);
    bool again = false;
    while (goes_on(chat)) {
        bt_input_result result = bt_input_read(input, &message);
        if (result == BT_INPUT_INTERRUPTED) {
            interrupted(chat, again);
            again = true;
            continue;
        }
        again = false;
        if (result == BT_INPUT_TEXT) {
            take_message(chat, &message);
            continue;
        }
        if (result == BT_INPUT_FAILED) {
            bt_error err = {0};
            (void)bt_fail_sys(&err, errno, "chat_input", "cannot read the next message");
            chat->fail_code = bt_cli_fail(&err);
        } else if (chat->is_terminal) {
            (void)fputs("\n", stderr);
        }
        break;
    }
    bt_text_done(&message);
}

/* ---- around the conversation ---- */

static void greet(const bt_chat *chat) {
    if (bt_conversation_is_fallback(chat->conversation))
        bt_chat_say(chat, "the model has no chat template: ChatML is used (--chat-template names another)");
    if (chat->is_terminal) bt_chat_say(chat, "/help lists the commands, Ctrl-D leaves");
}

static bt_status open_conversation(bt_chat *chat, bt_error *err) {
    bt_running *running = &chat->running;
    bt_conversation_params params = {
        .engine = running->engine,
        .session = running->session,
        .template_text = running->options->wishes.chat_template,
        .system = running->options->system_prompt,
        .limit_bytes = running->plan.ledger.bytes[BT_LINE_STAGING],
    };
    BT_TRY(bt_conversation_open(&params, &chat->conversation, err));
    const char *path = running->options->session_file;
    if (!path) return BT_OK;
    bt_status status = bt_chat_load(chat, path, err);
    bool is_new = status == BT_E_IO && err->sys == ENOENT;
    return is_new ? BT_OK : status;
}

static void measure(bt_chat *chat, bt_measured *measured) {
    const bt_generated *sum = &chat->sum;
    memset(measured, 0, sizeof *measured);
    measured->prompt_tokens = sum->n_prompt;
    measured->generated_tokens = sum->n_generated;
    measured->drafted_tokens = sum->n_drafted;
    measured->accepted_tokens = sum->n_accepted;
    measured->ttft_s = (double)chat->first_token_ns / 1e9;
    measured->loop_major_faults = sum->loop_major_faults;
    measured->loop_tokens = sum->loop_tokens;
    if (sum->prompt_ns > 0) measured->prefill_tokens_per_s = (double)sum->n_prompt * 1e9 / (double)sum->prompt_ns;
    /* the first token of each answer comes from the prompt's own pass */
    if (sum->n_generated > chat->n_turns && sum->decode_ns > 0)
        measured->decode_tokens_per_s = (double)(sum->n_generated - chat->n_turns) * 1e9 / (double)sum->decode_ns;
    bt_running_measure(&chat->running, measured);
}

void bt_chat_print_stats(bt_chat *chat) {
    bt_measured measured;
    measure(chat, &measured);
    uint32_t n_tokens = 0;
    (void)bt_conversation_tokens(chat->conversation, &n_tokens);
    bt_chat_say(chat, "%u of %u tokens of the context are used", n_tokens, bt_session_n_ctx(chat->running.session));
    bt_running_print_summary(&chat->running, &measured);
    bt_running_print_lines(&chat->running, &measured);
}

/* The session is saved, the statistics are written; the exit code. */
static int finish(bt_chat *chat) {
    const bt_cli_options *options = chat->running.options;
    int code = chat->is_terminal ? 0 : chat->fail_code; /* on a terminal the user has seen it and gone on */
    bt_error err = {0};
    if (options->session_file && bt_chat_save(chat, options->session_file, &err) != BT_OK) code = bt_cli_fail(&err);
    bt_measured measured;
    measure(chat, &measured);
    bt_running_print_summary(&chat->running, &measured);
    bt_running_print_lines(&chat->running, &measured);
    bt_running_warn(&chat->running, &measured);
    if (options->stats_file &&
        bt_running_write_stats(&chat->running, &measured, &chat->text, chat->tokens, chat->n_tokens, &err) != BT_OK)
        code = bt_cli_fail(&err);
    if (chat->out_failed && chat->leave_code == 0) {
        (void)bt_fail_sys(&err, chat->out_failed_sys, "stdout", "cannot write to standard output");
        code = bt_cli_fail(&err);
    }
    return chat->leave_code ? chat->leave_code : code;
}

static int talk(bt_chat *chat, const bt_text *first) {
    bt_error err = {0};
    chat->keeps = chat->running.options->stats_file != NULL;
    chat->tokens = bt_heap_array(chat->keeps ? TOKENS_MAX : 1, sizeof *chat->tokens);
    bt_text_init(&chat->text, TEXT_BYTES_MAX);
    chat->is_terminal = isatty(STDIN_FILENO) == 1;
    bt_terminal_open(&chat->out, stdout, NULL);
    bt_input *input = bt_input_open("> ");
    bt_status status = chat->tokens && input
                           ? open_conversation(chat, &err)
                           : bt_fail(&err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for a conversation");
    int code = 0;
    if (status == BT_OK) {
        greet(chat);
        if (first->n_bytes > 0) take_turn(chat, bt_text_str(first), first->n_bytes);
        converse(chat, input);
        code = finish(chat);
    } else {
        code = bt_running_fail(&err);
    }
    bt_input_close(input);
    bt_conversation_close(chat->conversation);
    bt_text_done(&chat->text);
    bt_heap_free(chat->tokens);
    return code;
}

/* ---- what is asked for, read before the model is ---- */

typedef struct asked {
    bt_text first, grammar, template;
} asked;

static bt_status read_asked(const bt_cli_options *options, asked *a, bt_error *err) {
    BT_TRY(bt_cli_check_outputs(options, err));
    if (options->prompt) bt_text_add(&a->first, options->prompt);
    if (!options->prompt && options->prompt_file) BT_TRY(bt_cli_read_file(options->prompt_file, &a->first, err));
    if (options->grammar_file) BT_TRY(bt_cli_read_file(options->grammar_file, &a->grammar, err));
    if (options->chat_template_file) BT_TRY(bt_cli_read_file(options->chat_template_file, &a->template, err));
    BT_TRY(bt_text_memory(&a->first, err));
    return a->first.failed
               ? bt_fail(err, BT_E_ARG, "prompt_bytes", BT_MEASURE_BYTES, 0, FILE_BYTES_MAX, "the prompt is too long")
               : BT_OK;
}

static int open_and_talk(bt_chat *chat, const asked *a, const bt_cli_options *given, const char *model) {
    bt_cli_options options = *given;
    options.wishes.chat = options.wishes.session = true;
    if (options.chat_template_file) options.wishes.chat_template = bt_text_str(&a->template);
    chat->grammar = options.grammar_file ? bt_text_str(&a->grammar) : NULL;
    int code = bt_running_open(&options, model, bt_planning_one_row, &chat->running);
    if (code != 0) return code;
    code = talk(chat, &a->first);
    bt_running_close(&chat->running);
    return code;
}

int bt_chat_run(const bt_cli_options *options, const char *model) {
    bt_error err = {0};
    bt_chat *chat = bt_heap_alloc(sizeof *chat);
    if (!chat) {
        (void)bt_fail(&err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for a conversation");
        return bt_cli_fail(&err);
    }
    asked a;
    bt_text_init(&a.first, FILE_BYTES_MAX);
    bt_text_init(&a.grammar, FILE_BYTES_MAX);
    bt_text_init(&a.template, FILE_BYTES_MAX);
    int code = 0;
    if (read_asked(options, &a, &err) == BT_OK)
        code = open_and_talk(chat, &a, options, model);
    else
        code = bt_cli_fail(&err);
    bt_heap_free(chat);
    bt_text_done(&a.first);
    bt_text_done(&a.grammar);
    bt_text_done(&a.template);
    return code;
}
