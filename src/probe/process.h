/* SPDX-License-Identifier: MIT
 * process.h: which process a process is, for notes that outlive it. */
#pragma once

#include "burthen.h"

/* What numbers of processes and start times are of. */
typedef struct bt_process_home {
    char boot[64];   /* of the machine */
    uint64_t pid_ns; /* the namespace */
} bt_process_home;
/* Of this process. false: /proc does not say. */
bool bt_process_home_read(bt_process_home *ret);

typedef struct bt_process_stat {
    char state;           /* 'R', 'S' ...; 'Z' and 'X': dead */
    uint64_t start_ticks; /* clock ticks after boot */
} bt_process_stat;
/* Of what such a file holds. false: it is none. */
bool bt_process_stat_parse(const char *text, bt_process_stat *ret);
/* pid 0: this one. 0, or minus an errno value: -ENOENT and -ESRCH, it has gone; -EBADMSG, what is said is none of it.
 */
int bt_process_stat_read(uint64_t pid, bt_process_stat *ret);
bool bt_process_is_dead(const bt_process_stat *stat);
