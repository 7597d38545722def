/* SPDX-License-Identifier: MIT
 * probe.h: the parsers behind bt_machine_probe (burthen.h). */
#pragma once

#include "burthen.h"

/* Pure parsers. */
bt_known bt_meminfo_available(const char *text);                /* MemAvailable, bytes */
bt_known bt_meminfo_field(const char *text, const char *field); /* "MemTotal" ... bytes */
