/* SPDX-License-Identifier: MIT
 * commands.h: the commands, and what they share. Each returns the exit code of the program (docs/interfaces.md). */
#pragma once

#include "cli/options.h"
#include "cli/terminal.h"

typedef int bt_cmd(const bt_cli_options *options, bt_option_result *args);

bt_cmd bt_cmd_plan;
bt_cmd bt_cmd_run;
bt_cmd bt_cmd_bench;
bt_cmd bt_cmd_perplexity;
bt_cmd bt_cmd_inspect;
bt_cmd bt_cmd_devices;
bt_cmd bt_cmd_report;
bt_cmd bt_cmd_worker;
bt_cmd bt_cmd_exec;
bt_cmd bt_cmd_serve;
bt_cmd bt_cmd_cache;
bt_cmd bt_cmd_completion;
bt_cmd bt_cmd_help;
bt_cmd bt_cmd_version;

/* What llama.cpp says of its version ("b1234"), for fingerprints and `version`. Stands beside bt_cmd_run, where
 * llama.cpp is known. */
const char *bt_cmd_engine_version(void);

/* bt_engine_init, and an end with a sentence where ggml aborts. Stands beside bt_running_open. */
BT_MUST_CHECK bt_status bt_cli_engine_init(bt_error *err);
/* That end alone, for who asks ggml's devices before that. */
void bt_cli_catch_aborts(void);

/* "burthen: sentence" on stderr; returns the exit code of the error's status. */
int bt_cli_fail(const bt_error *err);
/* The same for what went wrong with a model file: exit code 4 (unreadable or malformed), and GGUF files nearby when
 * there is none of that name. */
int bt_cli_fail_model(const bt_error *err, const char *path);
/* Write to stdout, escaped on a terminal, and flush; the exit code: 0, or 1 with the reason on stderr. */
int bt_cli_print(const bt_text *text);
/* The same; sentences are broken where a terminal is narrower (bt_terminal_fold). */
int bt_cli_print_prose(const bt_text *text);
int bt_cli_print_bytes(const char *s, size_t n);
/* How wide help may be on standard output: the terminal's columns; elsewhere BT_HELP_COLUMNS. */
size_t bt_cli_help_columns(void);
