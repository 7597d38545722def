/* SPDX-License-Identifier: MIT
 * error.h: how a failure travels. One sentence, a stable code, and the two numbers that disagreed. */
#pragma once

#include "burthen.h"

#include <stdarg.h>

/* Fill *err (if not NULL) and return status. code: stable key of docs/errors.md. measure NONE: need and have are 0. */
bt_status bt_fail(bt_error *err, bt_status status, const char *code, bt_measure measure, uint64_t need, uint64_t have,
                  const char *fmt, ...) BT_PRINTF(7, 8);
/* The same for a failed system call: sys is its errno, whose text is appended to the sentence. Status BT_E_IO, or
 * BT_E_NOMEM for ENOMEM. */
bt_status bt_fail_sys(bt_error *err, int sys, const char *code, const char *fmt, ...) BT_PRINTF(4, 5);

const char *bt_status_text(bt_status status); /* "over the memory budget" */
int bt_status_exit_code(bt_status status);

/* Forward a failure: adds nothing, logs nothing. */
#define BT_TRY(call)                                                                                                   \
    do {                                                                                                               \
        bt_status bt_try_status_ = (call);                                                                             \
        if (bt_try_status_ != BT_OK) return bt_try_status_;                                                            \
    } while (0)
