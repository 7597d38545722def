/* SPDX-License-Identifier: MIT
 * psi.h: how long work has stood still for memory: the kernel's pressure stall information. */
#pragma once

#include "burthen.h"
#include "probe/proc.h"

/* Hundredths of a percent of time: "some avg10=1.53" is 153. */
typedef struct bt_psi {
    bt_known some_avg10; /* in the last 10 s at least one task waited for memory */
    bt_known full_avg10; /* all of them did; a kernel before 5.13 says it of groups only */
} bt_psi;

/* Of /proc/pressure/memory, or memory.pressure of a group. What is not exactly so is unknown. */
bt_psi bt_psi_parse(const char *text);
/* The higher of the machine's and of the own group's (v2). Unknown: the kernel does not count it (CONFIG_PSI,
 * psi=0), or it cannot be read. root: as in bt_machine_probe. */
void bt_psi_probe(const char *root, bt_psi *ret);
