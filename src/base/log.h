/* SPDX-License-Identifier: MIT
 * log.h: one sink for what happens. The library writes nothing unless the program sets a sink. */
#pragma once

#include "burthen.h"

typedef enum bt_log_level { BT_LOG_ERROR, BT_LOG_WARN, BT_LOG_INFO, BT_LOG_DEBUG } bt_log_level;
/* message has no newline at its end. Called under a lock: it must not log. */
typedef void (*bt_log_sink)(bt_log_level level, const char *message, void *user);
void bt_log_set(bt_log_sink sink, void *user, bt_log_level max_level);
bool bt_log_wanted(bt_log_level level);
void bt_log(bt_log_level level, const char *fmt, ...) BT_PRINTF(2, 3);
