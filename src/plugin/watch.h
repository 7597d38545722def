/* SPDX-License-Identifier: MIT
 * watch.h: what the process holds against what was planned for it, looked at while it works. */
#pragma once

#include "plugin/holder.h"

typedef struct bt_watch {
    bt_holder *holder;
    const char *stats_path; /* BURTHEN_GUEST_STATS; NULL: nothing is written */
    const char *learned;    /* BURTHEN_LEARN, the name of what is learned (guard/learned.h); NULL: nothing is */
    uint64_t looked_ns;
    uint64_t said_bytes; /* the peak that was said last */
    bool stats_failed;   /* said */
} bt_watch;

/* After a graph, at most once a second: a peak over the plan is a warning and is learned for the next plan; the file of
 * statistics is written anew. */
void bt_watch_look(bt_watch *watch);
