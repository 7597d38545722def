/* SPDX-License-Identifier: MIT
 * logs.c: the log of a command: its options, its place, and errors, which are seen on standard error wherever it goes.
 *
 *   -q  errors alone, where the log goes to standard error     -v  more     --log-level  exactly that
 *
 * Shared by burthen and burthen-serve. One log a process: what is said before its options are understood goes to
 * standard error as text. */
#include "cli/logs.h"
#include "base/error.h"
#include "cli/terminal.h"

#include <string.h>
#include <unistd.h>

#define FOLDED_MAX_BYTES (4u << 20)

static bt_log_out out;
static bool is_open;

static bt_log_level level_of(const bt_cli_options *options, bt_log_level usual, bt_log_level verbose) {
    if (options->log_level_given) return (bt_log_level)options->log_level;
    if (options->verbose) return verbose;
    return options->quiet && !options->log_file ? BT_LOG_ERROR : usual;
}

bt_status bt_cli_log_open(const bt_cli_options *options, const bt_cli_log_ask *ask, bt_error *err) {
    bt_terminal terminal;
    bt_terminal_open(&terminal, stderr, NULL);
    const bt_log_out_ask to = {.file = options->log_file,
                               .component = ask->component,
                               .json = options->log_json,
                               .colour = terminal.has_colour,
                               .waits = ask->waits};
    BT_TRY(bt_log_out_open(&to, &out, err));
    is_open = true;
    bt_log_set(bt_log_out_write, &out, level_of(options, ask->usual, ask->verbose));
    return BT_OK;
}

bt_status bt_cli_log_reopen(bt_error *err) {
    return is_open ? bt_log_out_reopen(&out, err) : BT_OK;
}

bt_status bt_cli_log_close(bt_error *err) {
    if (!is_open) return BT_OK;
    is_open = false;
    bt_log_set(NULL, NULL, BT_LOG_ERROR);
    return bt_log_out_close(&out, err);
}

/* ---- errors ---- */

/* As people have it: no level, which every sentence of this kind has, and the name in red. */
static void print(const bt_log_entry *entry) {
    char message[BT_LOG_LINE_BYTES];
    bt_terminal terminal;
    bt_terminal_open(&terminal, stderr, NULL);
    (void)bt_log_escape(entry->message, strlen(entry->message), message, sizeof message);
    (void)fprintf(stderr, "%sburthen:%s %s\n", bt_terminal_colour(&terminal, BT_COLOUR_RED),
                  bt_terminal_colour(&terminal, BT_COLOUR_NONE), message);
    (void)fflush(stderr);
}

/* Text on standard error is print's; the journal and readers of JSON have it as every line. */
static bool has_form(const bt_log_out *log) {
    return log->stderr_form.json || log->stderr_form.journal;
}

void bt_cli_log_failure(const bt_error *err) {
    bt_log_field fields[4];
    const bt_log_entry entry = {.level = BT_LOG_ERROR,
                                .plain = true,
                                .message = err->text[0] ? err->text : bt_status_text(err->status),
                                .fields = fields,
                                .n_fields = bt_log_error_fields(err, fields)};
    bt_error why;
    bt_log_out plain;
    const bt_log_out_ask ask = {.component = "burthen", .waits = true};
    if (is_open && has_form(&out)) {
        bt_log_out_write_both(&out, &entry);
    } else if (is_open) {
        if (out.fd != STDERR_FILENO) bt_log_out_write(&entry, &out);
        print(&entry);
    } else if (bt_log_out_open(&ask, &plain, &why) == BT_OK && has_form(&plain)) {
        bt_log_out_write(&entry, &plain);
    } else {
        print(&entry);
    }
}

/* Memory was refused, perhaps for all of it: a refusal must not be without a word. */
static void say_cut(const bt_text *text) {
    static const char words[] = "no memory to say all of it";
    const bt_log_entry entry = {.level = BT_LOG_ERROR, .plain = true, .message = words};
    bool in_line = text->n_bytes > 0 && text->data[text->n_bytes - 1] != '\n';
    if (is_open && out.form.json)
        bt_log_send(&entry, sizeof words - 1);
    else
        (void)fprintf(stderr, "%sburthen: %s\n", in_line ? "\n" : "", words);
}

/* As wide as the terminal. */
static void print_folded(const bt_text *text) {
    bt_terminal terminal;
    bt_text folded;
    bt_terminal_open(&terminal, stderr, NULL);
    bt_text_init(&folded, FOLDED_MAX_BYTES);
    bt_terminal_fold(&terminal, bt_text_str(text), &folded);
    (void)fputs(folded.failed ? bt_text_str(text) : bt_text_str(&folded),
                stderr); /* where else to say that it failed */
    bt_text_done(&folded);
}

void bt_cli_log_table(const bt_text *text, bool is_error) {
    const char *at = bt_text_str(text), *end = at + text->n_bytes;
    static const char name[] = "burthen: ";
    if (!is_open || !out.form.json) {
        print_folded(text);
        if (text->failed) say_cut(text);
        return;
    }
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        if (strncmp(at, name, sizeof name - 1) == 0) at += sizeof name - 1;
        const bt_log_entry entry = {.level = is_error ? BT_LOG_ERROR : BT_LOG_INFO, .plain = true, .message = at};
        if (stop > at && (is_error || bt_log_wanted(BT_LOG_WARN))) bt_log_send(&entry, (size_t)(stop - at));
        at = newline ? newline + 1 : end;
    }
    if (text->failed) say_cut(text);
}
