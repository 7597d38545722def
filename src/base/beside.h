/* SPDX-License-Identifier: MIT
 * beside.h: files that come with this program, and where programs are found. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The path of such a file: beside this program (a build), in ../lib/burthen and, from there, ../../bin (an
 * installation), or above (the tests of a build). access_mode: as of access(2). false: there is none. */
bool bt_beside_find(const char *name, int access_mode, char *ret_path, size_t capacity);
/* The file that execvp would start: NAME as it is where it has a slash, else the first in PATH that may be executed.
 * false: it is not found, or longer than the capacity. */
bool bt_beside_program(const char *name, char *ret_path, size_t capacity);
