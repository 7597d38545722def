/* SPDX-License-Identifier: MIT
 * nearby.h: GGUF files nearby, as a hint. */
#pragma once

/* One line on stderr that belongs to the error before it: up to five GGUF files where path should be, else in the
 * current folder; nothing where there are none. */
void bt_cli_say_nearby(const char *path);
