/* SPDX-License-Identifier: MIT
 * disk_measure.h: a disk measured on request. */
#pragma once

#include "burthen.h"

/* Measure the disk of a file, or of the largest file in a folder, into machine, and remember it. About a second.
 * returns BT_OK; BT_E_IO, code "open_failed" or "disk_speed" with the reason. */
BT_MUST_CHECK bt_status bt_cli_disk_measure(const char *asked, bt_machine *machine, bt_error *err);
