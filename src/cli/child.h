/* SPDX-License-Identifier: MIT
 * child.h: a program started for what it prints. */
#pragma once

#include "base/text.h"
#include "burthen.h"

typedef struct bt_child {
    const char *program; /* as execvp finds it; NULL: this one, started anew */
    char *const *argv;   /* NULL at the end */
    bool errors_too;     /* its standard error is caught as well; else it is ours */
    uint32_t limit_ms;   /* then it is stopped; 0: never */
    const char *what;    /* "the measurement", in what is said when it fails */
} bt_child;

/* Run it to its end. What it prints is appended to out, its standard input is empty. ret_code: its exit code.
 * BT_E_CANCELLED when a signal came (bt_running_signal): it was told to stop and has ended. BT_E_IO, code "child", when
 * it cannot be started, was killed, says too much or takes too long. */
BT_MUST_CHECK bt_status bt_child_run(const bt_child *child, bt_text *out, int *ret_code, bt_error *err);
