/* SPDX-License-Identifier: MIT
 * chat.h: `burthen run MODEL --chat`. */
#pragma once

#include "cli/options.h"

/* A conversation until the user leaves or the input ends. Returns the exit code. */
int bt_chat_run(const bt_cli_options *options, const char *model);
