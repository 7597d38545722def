/* SPDX-License-Identifier: MIT
 * found.h: models that no file of configuration names: a GGUF file becomes a model. Private to add_file.c, discover.c.
 */
#pragma once

#include "router/config.h"

#include <sys/stat.h>

/* Whether path is a regular GGUF file, by its first 8 bytes: the reason why not, or NULL. ret: what it is on disk. */
const char *bt_found_why_not(const char *path, struct stat *ret);
/* A part of a set other than the first is an error here; whether all parts are there, the caller knows. */
BT_MUST_CHECK bt_status bt_found_add(bt_config *config, const char *path, const struct stat *file, char *const *args,
                                     bool *ret_added, bt_error *err);
/* The first part that is missing of the set that path is the first of, "" if none is; false: memory was refused. */
bool bt_found_missing(const char *path, char *ret, size_t capacity);
