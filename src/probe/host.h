/* SPDX-License-Identifier: MIT
 * host.h: what the system says of its memory, this process's rlimits and its cores. */
#pragma once

#include "probe/proc.h"

/* Fills the host pool's name, kind, state, reason, free, total and clamped, and swap_free_bytes. */
void bt_host_pool_probe(const char *root, bt_proc_text *scratch, bt_machine *machine);
/* The same from the text of meminfo. */
void bt_host_pool_parse(const char *meminfo, bt_pool *ret_pool);

/* Soft limits; unknown = unlimited, or not said. */
typedef struct bt_host_limits {
    bt_known address_space_bytes; /* RLIMIT_AS */
    bt_known data_bytes;          /* RLIMIT_DATA */
    bt_known locked_bytes;        /* RLIMIT_MEMLOCK */
} bt_host_limits;
void bt_host_limits_probe(const char *root, bt_proc_text *scratch, bt_host_limits *ret_limits);
/* One row of /proc/PID/limits, by its name: "Max address space". */
bt_known bt_host_limit_parse(const char *limits, const char *name);

/* Cores the scheduler may give this process; 0 = unknown (only in a recorded tree). */
uint32_t bt_host_cores_probe(const char *root, bt_proc_text *scratch);
/* "0-3,8,10-11" of Cpus_allowed_list in /proc/PID/status: 7. 0 when missing or malformed. */
uint32_t bt_host_cores_parse(const char *status);
