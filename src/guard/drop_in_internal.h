/* SPDX-License-Identifier: MIT
 * drop_in_internal.h: what drop_in.c asks of drop_in_rules.c. */
#pragma once

#include "guard/drop_in.h"

/* May the command hold a budget? BT_E_UNSUPPORTED as bt_drop_in_read. */
BT_MUST_CHECK bt_status bt_drop_in_check(const bt_effective *effective, const bt_facts *facts, bt_error *err);
