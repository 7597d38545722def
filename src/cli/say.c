/* SPDX-License-Identifier: MIT
 * say.c: what the commands say: answers on stdout, errors on stderr, and the exit code that goes with it.
 *
 * An error's sentence is safe to print as it is (base/error.c); an answer is escaped where a terminal would obey it
 * (terminal.c). What could not be written is an error too: a full disk must not look like an answer. Bound: of prose
 * that is folded, FOLDED_MAX_BYTES; more is shown as it is. Left out: lines of the log (logs.c). */
#include "base/error.h"
#include "cli/commands.h"
#include "cli/logs.h"
#include "cli/nearby.h"

#include <errno.h>

#define FOLDED_MAX_BYTES (4u << 20)
#define EXIT_BAD_MODEL   4 /* docs/interfaces.md */

int bt_cli_fail(const bt_error *err) {
    bt_cli_log_failure(err);
    return bt_status_exit_code(err->status);
}

size_t bt_cli_help_columns(void) {
    bt_terminal terminal;
    bt_terminal_open(&terminal, stdout, NULL);
    return terminal.is_terminal ? terminal.n_columns : BT_HELP_COLUMNS;
}

int bt_cli_print_bytes(const char *s, size_t n) {
    bt_terminal terminal;
    bt_terminal_open(&terminal, stdout, NULL);
    errno = 0;
    bt_terminal_write(&terminal, s, n);
    if (bt_terminal_flush(&terminal)) return 0;
    bt_error err = {0};
    (void)bt_fail_sys(&err, errno ? errno : EIO, "stdout", "cannot write to standard output");
    return bt_cli_fail(&err);
}

int bt_cli_print_prose(const bt_text *text) {
    bt_terminal terminal;
    bt_text folded;
    bt_terminal_open(&terminal, stdout, NULL);
    bt_text_init(&folded, FOLDED_MAX_BYTES);
    bt_terminal_fold(&terminal, bt_text_str(text), &folded);
    int code = bt_cli_print(text->failed || folded.failed ? text : &folded);
    bt_text_done(&folded);
    return code;
}

int bt_cli_print(const bt_text *text) {
    if (text->failed) {
        bt_error err = {0};
        (void)bt_fail(&err, BT_E_NOMEM, "stdout", BT_MEASURE_NONE, 0, 0, "no memory for the answer");
        return bt_cli_fail(&err);
    }
    return bt_cli_print_bytes(bt_text_str(text), text->n_bytes);
}

int bt_cli_fail_model(const bt_error *err, const char *path) {
    int code = bt_cli_fail(err);
    if (err->status == BT_E_IO && err->sys == ENOENT) bt_cli_say_nearby(path);
    bool of_file = err->status == BT_E_IO || err->status == BT_E_FORMAT || err->status == BT_E_LIMIT;
    return of_file ? EXIT_BAD_MODEL : code;
}
