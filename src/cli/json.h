/* SPDX-License-Identifier: MIT
 * json.h: JSON that a command prints and that nothing of ours reads again. */
#pragma once

#include "report/json.h"

/* Begin an answer: the version and the schema's. NULL is a failure that out remembers. */
json_t *bt_cli_json_begin(bt_json_out *out);
/* Print it and release it; where a part of it was refused memory nothing is printed but that. The exit code. */
int bt_cli_json_end(bt_json_out *out, json_t *root);
