/* SPDX-License-Identifier: MIT
 * probe.h: the machine as it is now. Nothing is cached; unknown is a state. */
#pragma once

#include "burthen.h"

/* root: prefix of every /proc and /sys path ("" = this machine); tests give recorded trees. With a root that is not
 * empty, rlimits and cores are read from ROOT/proc/self/limits and ROOT/proc/self/status too.
 * Never fails for a missing file: what cannot be read is unknown. BT_E_ARG for a root that is no directory. */
BT_MUST_CHECK bt_status bt_machine_probe(const char *root, bt_machine *ret_machine, bt_error *err);

/* Add the devices beside the host to a machine that was probed. Apart, since it opens the driver's library, which takes
 * time and memory that only those pay who want to know. BT_E_NOMEM: the machine is as before. */
BT_MUST_CHECK bt_status bt_machine_devices_probe(const char *root, bt_machine *machine, bt_error *err);

/* Pure parsers. */
bt_known bt_meminfo_available(const char *text);                /* MemAvailable, bytes */
bt_known bt_meminfo_field(const char *text, const char *field); /* "MemTotal" ... bytes */
bt_known bt_vm_stat_available(const char *text);                /* macOS vm_stat output: free + inactive (A9) */
