/* SPDX-License-Identifier: MIT
 * kept.h: the last run of each model on this machine, kept for `burthen report`. */
#pragma once

#include "base/text.h"
#include "report/report.h"

/* Keep what was measured, in place of what was kept of this model. A note in the log where nothing can be kept. */
void bt_kept_write(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine, const bt_measured *measured);
/* What is kept of this model, appended to text; nothing when there is none. */
void bt_kept_read(const bt_facts *facts, bt_text *text);
#define BT_KEPT_MAX_BYTES (64u << 10) /* 16 ledger lines and some thirty numbers: 5 KiB */
