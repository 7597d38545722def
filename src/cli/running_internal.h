/* SPDX-License-Identifier: MIT
 * running_internal.h: what running.c and running_measure.c share. */
#pragma once

#include "cli/running.h"

bool bt_running_wants_lock(const bt_running *running);
void bt_running_measure_lock(const bt_running *running, bt_locked *ret);
/* Once: that not all is locked, and what would help. */
void bt_running_warn_of_lock(bt_running *running, const bt_locked *locked);
