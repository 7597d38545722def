/* SPDX-License-Identifier: MIT
 * json_escape.h: somebody's words as the inside of a JSON string, where a whole JSON value would be too much. */
#pragma once

#include <stddef.h>

/* Quotes, backslashes and control bytes escaped, bytes that are no UTF-8 as U+FFFD; cut between characters. Returns
 * ret. */
char *bt_json_escape(const char *text, char *ret, size_t capacity);
