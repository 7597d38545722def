/* SPDX-License-Identifier: MIT
 * child.h: this program started anew, what it prints caught. */
#pragma once

#include "base/text.h"
#include "burthen.h"

/* Run argv (which ends in NULL) to its end. Its standard output is appended to out, its standard error is ours, its
 * standard input is empty. ret_code: its exit code. BT_E_CANCELLED when a signal came (bt_running_signal): it was told
 * to stop and has ended. BT_E_IO, code "bench_child", when it cannot be started, was killed or says too much. */
BT_MUST_CHECK bt_status bt_child_run(char *const *argv, bt_text *out, int *ret_code, bt_error *err);
