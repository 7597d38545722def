/* SPDX-License-Identifier: MIT
 * spawn.h: another program as a process of its own, with nothing of the router's but an output. */
#pragma once

#include "burthen.h"

#include <sys/types.h>

typedef struct bt_spawn {
    char *const *argv;      /* NULL at the end; argv[0] is looked for in the router's PATH */
    const char *const *env; /* "NAME=VALUE" beside, and instead of, what the router has; NULL at the end, or NULL */
    const char *mark;       /* of BT_CHILD_MARK (child.h) */
} bt_spawn;

/* Start it, the leader of a process group. ret_output: a pipe to read, close-on-exec, not blocking, at whose other end
 * its output and errors are. A program that cannot be started says so there and ends with 126 or 127. BT_E_IO,
 * BT_E_NOMEM, code "child": nothing was started. */
BT_MUST_CHECK bt_status bt_spawn_start(const bt_spawn *what, pid_t *ret_pid, int *ret_output, bt_error *err);

/* A copy of a list of words, NULL at its end, in one block; NULL of NULL, or where memory is refused (*ret_failed).
 * What stands as name in a word is replaced by value. */
char **bt_words_copy(const char *const *words, const char *name, const char *value, bool *ret_failed);
