/* SPDX-License-Identifier: MIT
 *
 * reaper_note.c: which routers there are, and their marks, in the folder of what is kept between runs.
 *
 *   serve-PID                       a router's note, written when it starts and removed when nothing of it is left
 *   burthen-serve 1 BOOT
 *   PID START PIDNS MARK            START: clock ticks after boot (/proc/PID/stat); PIDNS: the namespace of PID
 *
 * A router that starts reads all of them. One of this boot whose process does not live, a number that is another's by
 * now included (another start), was left by a router whose reaper was killed too: what carries its mark is ended. Notes
 * of another boot have nothing left to end. Notes of another namespace of processes (a container that has the same
 * home) are left alone: whether that router lives cannot be seen from here. Bound: N_NOTES_MAX notes, the newest.
 * Nothing here is needed: where the folder cannot be written the router does without. */
#include "router/reaper_note.h"

#include "base/os.h"
#include "base/state.h"
#include "probe/proc.h"
#include "router/marked.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX      "serve-"
#define HEADER      "burthen-serve 1 "
#define N_NOTES_MAX 64u /* routers of one user at a time */
#define NAME_BYTES  32u

static bool know_self(bt_reaper_note *ret) {
    bt_process_stat stat;
    *ret = (bt_reaper_note){.pid = (uint64_t)getpid()};
    if (!bt_process_home_read(&ret->home) || bt_process_stat_read(0, &stat) != 0) return false;
    ret->start_ticks = stat.start_ticks;
    return true;
}

static bool lives(const bt_reaper_note *note) {
    bt_process_stat stat;
    return bt_process_stat_read(note->pid, &stat) == 0 && !bt_process_is_dead(&stat) &&
           stat.start_ticks == note->start_ticks;
}

static void put_name(char name[NAME_BYTES], uint64_t pid) {
    (void)snprintf(name, NAME_BYTES, PREFIX "%" PRIu64, pid);
}

bool bt_reaper_note_parse(const char *text, bt_reaper_note *ret) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    bt_span word;
    *ret = (bt_reaper_note){.pid = 0};
    if (!bt_span_line(&rest, &line) || !bt_span_starts(line, HEADER)) return false;
    line = (bt_span){line.at + strlen(HEADER), line.n_bytes - strlen(HEADER)};
    if (line.n_bytes == 0 || line.n_bytes >= sizeof ret->home.boot) return false;
    memcpy(ret->home.boot, line.at, line.n_bytes);
    if (!bt_span_line(&rest, &line)) return false;
    uint64_t *const numbers[] = {&ret->pid, &ret->start_ticks, &ret->home.pid_ns};
    for (size_t i = 0; i < 3; i++)
        if (!bt_span_word(&line, &word) || !bt_span_number(word, numbers[i])) return false;
    if (!bt_span_word(&line, &word) || word.n_bytes >= sizeof ret->mark) return false;
    memcpy(ret->mark, word.at, word.n_bytes);
    return bt_mark_is_valid(ret->mark) && !bt_span_word(&line, &word);
}

void bt_reaper_remember(const char *mark) {
    bt_reaper_note self;
    char name[NAME_BYTES];
    char text[BT_REAPER_NOTE_BYTES];
    if (!know_self(&self)) return;
    put_name(name, self.pid);
    int n = snprintf(text, sizeof text, HEADER "%s\n%" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", self.home.boot, self.pid,
                     self.start_ticks, self.home.pid_ns, mark);
    if (n <= 0 || (size_t)n >= sizeof text) return;
    bt_status kept = bt_state_keep(name, text, (size_t)n, PREFIX, N_NOTES_MAX, NULL);
    (void)kept; /* the reaper does not need it */
}

void bt_reaper_note_remove(pid_t router) {
    char name[NAME_BYTES];
    int dir = -1;
    put_name(name, (uint64_t)router);
    if (bt_state_open(false, &dir, NULL) != BT_OK) return;
    bt_state_remove(dir, name);
    (void)bt_os_close(dir);
}

void bt_reaper_forget(void) {
    bt_reaper_note_remove(getpid());
}

/* ---- the next start ---- */

static bool read_note(int dir, const char *name, bt_reaper_note *ret) {
    bt_text text;
    bt_text_init(&text, BT_REAPER_NOTE_BYTES);
    bool good = bt_state_read(dir, name, &text, NULL) == BT_OK && bt_reaper_note_parse(bt_text_str(&text), ret);
    bt_text_done(&text);
    return good;
}

/* Ends what is left of one, and removes its note, if its router has gone. */
static uint32_t recover_one(int dir, const char *name, const bt_reaper_note *self, uint64_t grace_ms) {
    bt_reaper_note note;
    uint32_t n = 0;
    if (!read_note(dir, name, &note)) return 0;
    if (strcmp(note.home.boot, self->home.boot) == 0) {
        if (note.home.pid_ns != self->home.pid_ns) return 0;
        if (lives(&note)) return 0;
        n = bt_reaper_sweep(note.mark, grace_ms);
    }
    bt_state_remove(dir, name);
    return n;
}

/* The names first, since notes are removed on the way. */
static uint32_t list(int dir, char names[N_NOTES_MAX][NAME_BYTES]) {
    char path[64];
    uint32_t n = 0;
    const char *name = NULL;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", dir);
    bt_os_folder *folder = bt_os_folder_open(path);
    if (!folder) return 0;
    while (n < N_NOTES_MAX && (name = bt_os_folder_next(folder)) != NULL)
        if (strncmp(name, PREFIX, strlen(PREFIX)) == 0 && strlen(name) < NAME_BYTES)
            (void)snprintf(names[n++], NAME_BYTES, "%s", name);
    bt_os_folder_close(folder);
    return n;
}

uint32_t bt_reaper_recover(uint64_t grace_ms) {
    bt_reaper_note self;
    char names[N_NOTES_MAX][NAME_BYTES];
    int dir = -1;
    uint32_t n_ended = 0;
    if (!know_self(&self) || bt_state_open(false, &dir, NULL) != BT_OK) return 0;
    uint32_t n = list(dir, names);
    for (uint32_t i = 0; i < n; i++)
        n_ended += recover_one(dir, names[i], &self, grace_ms);
    (void)bt_os_close(dir);
    return n_ended;
}
