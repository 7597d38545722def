/* SPDX-License-Identifier: MIT
 * json.h: JSON that a command prints and no other reads: small, made in one go. What is exchanged is src/report's. */
#pragma once

#include "cli/commands.h"

#include <jansson.h>

/* Print it, indented, and release it. NULL: memory was refused while it was made. The exit code. */
int bt_cli_print_json(json_t *root);
