/* SPDX-License-Identifier: MIT
 * reaper_note.h: the note that a router leaves to the next one, in case that nobody is left to clear up. */
#pragma once

#include "probe/process.h"
#include "router/reaper.h"

#define BT_REAPER_NOTE_BYTES 256u

typedef struct bt_reaper_note {
    bt_process_home home;
    uint64_t pid, start_ticks;
    char mark[BT_MARK_BYTES];
} bt_reaper_note;

void bt_reaper_note_remove(pid_t router);
bool bt_reaper_note_parse(const char *text, bt_reaper_note *ret); /* pure; false: none of ours */
