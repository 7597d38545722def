/* SPDX-License-Identifier: MIT
 * output.h: whether a file that a user named can be written, found out before the work for it is done. */
#pragma once

#include "burthen.h"

/* 0, or minus an errno value.
 * replaces    it is written aside and renamed: what is there must be a file (-ESPIPE, -EISDIR), or nothing yet; and its
 *             folder must take files
 * else        it is opened and written: a device or a pipe without a name (/dev/stdout, a shell's >(...)) is good too;
 *             a named pipe is -ESPIPE, since opening it waits for whoever reads it
 */
int bt_output_check(const char *path, bool replaces);
