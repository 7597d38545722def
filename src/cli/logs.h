/* SPDX-License-Identifier: MIT
 * logs.h: the log of a command, and of the router: options, place, errors. */
#pragma once

#include "base/log_out.h"
#include "cli/options.h"

typedef struct bt_cli_log_ask {
    const char *component;       /* of JSON: the command */
    bt_log_level usual, verbose; /* without --log-level; with -v */
    bool waits;                  /* for who reads standard error slowly */
} bt_cli_log_ask;

/* From here on bt_log is heard. BT_E_IO, code "log_file". */
BT_MUST_CHECK bt_status bt_cli_log_open(const bt_cli_options *options, const bt_cli_log_ask *ask, bt_error *err);
BT_MUST_CHECK bt_status bt_cli_log_reopen(bt_error *err); /* a file that was moved away */
/* BT_E_IO, code "log_file": lines are missing in the file. */
bt_status bt_cli_log_close(bt_error *err);
/* "burthen: sentence" on standard error, or what stands there in its place, and in the log's file. */
void bt_cli_log_failure(const bt_error *err);
/* A text of many lines, as a table, on standard error; with --log-json each of its lines is one of the log: of level
 * error where it belongs to a refusal. */
void bt_cli_log_table(const bt_text *text, bool is_error);
