/* SPDX-License-Identifier: MIT
 * beside.h: files that come with this program. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The path of such a file: beside this program (a build), in ../lib/burthen (an installation), or above (the tests of a
 * build). access_mode: as of access(2). false: there is none. */
bool bt_beside_find(const char *name, int access_mode, char *ret_path, size_t capacity);
