/* SPDX-License-Identifier: MIT
 * reaper_note.h: the note that a router leaves to the next one, in case that nobody is left to clear up. */
#pragma once

#include "router/reaper.h"

#define BT_REAPER_NOTE_BYTES 256u

typedef struct bt_reaper_note {
    char boot[64]; /* process numbers and start times are of that boot of the machine */
    uint64_t pid, start_ticks, pid_ns;
    char mark[BT_MARK_BYTES];
} bt_reaper_note;

void bt_reaper_note_remove(pid_t router);
bool bt_reaper_note_parse(const char *text, bt_reaper_note *ret); /* pure; false: none of ours */
