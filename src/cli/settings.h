/* SPDX-License-Identifier: MIT
 * settings.h: the user's own defaults of options, kept in a file (docs/interfaces.md "Command line"). */
#pragma once

#include "base/option.h"
#include "cli/options.h"

#define BT_SETTINGS_MAX       512u       /* values in one file: three times the rows of the table */
#define BT_SETTINGS_MAX_BYTES (1u << 20) /* of the file, as of the router's */

typedef struct bt_settings bt_settings;

/* The file that counts, into path. false: there is none to look for, or path begins as one that does not fit.
 * environ_get: NULL is getenv. ret_named: it was named by BURTHEN_CONFIG, so that it must be there. */
bool bt_settings_path(const char *(*environ_get)(const char *), char *ret_path, size_t capacity, bool *ret_named);
/* Read and checked as a whole: every key is an option that may be kept, or a command with such.
 * returns BT_OK, *ret NULL where no file is there; BT_E_ARG, code "settings", with FILE:LINE; BT_E_IO, the same code,
 *         when it cannot be read; BT_E_NOMEM. What it gives out lives until it is closed. */
BT_MUST_CHECK bt_status bt_settings_open(const char *(*environ_get)(const char *), bt_settings **ret, bt_error *err);
/* The same from text; file: for messages. */
BT_MUST_CHECK bt_status bt_settings_parse(const char *text, size_t n, const char *file, bt_settings **ret,
                                          bt_error *err);
void bt_settings_close(bt_settings *settings); /* NULL is fine */
/* For bt_options_parse: what the file says for a command; what stands under its name before what stands for all. */
bt_option_file bt_settings_layer(bt_settings *settings, bt_cli_command command); /* of NULL: one that says nothing */
