/* SPDX-License-Identifier: MIT
 * cmd_completion.c: `burthen completion SHELL` prints what a shell reads once; `burthen completion words -- WORDS...`
 * is what that asks at each key. */
#include "base/error.h"
#include "cli/commands.h"
#include "cli/completion.h"

#include <string.h>

#define ANSWER_MAX_BYTES (1u << 18) /* far over all options of a command with what is said of them */

int bt_cmd_completion(const bt_cli_options *options, bt_option_result *args) {
    (void)options;
    const char *shell = args->args[0];
    if (strcmp(shell, "words") == 0) {
        bt_text text;
        bt_text_init(&text, ANSWER_MAX_BYTES);
        bt_completion_words(args->args + 1, args->n_args - 1, &text);
        int code = bt_cli_print(&text);
        bt_text_done(&text);
        return code;
    }
    const char *script = bt_completion_script(shell);
    bt_error err = {0};
    if (script && args->n_args == 1) return bt_cli_print_bytes(script, strlen(script));
    (void)bt_fail(&err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0,
                  "completion is for bash, zsh or fish, one of them");
    return bt_cli_fail(&err);
}
