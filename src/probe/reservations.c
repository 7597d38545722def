/* SPDX-License-Identifier: MIT
 *
 * reservations.c: two budgets on one host do not promise the same memory twice.
 *
 * MemAvailable counts what a process has touched, not what it was promised: a run that is still loading looks small,
 * and a second one would be given the same gigabytes. So each says in a file what it will need at most:
 *
 *   burthen-reservations 1 BOOT          schema; the boot that process ids and start times are of
 *   PID START PIDNS BYTES COMMAND    START: clock ticks after boot (/proc/PID/stat); PIDNS: namespace of the pid
 *
 * What others still may take is the sum of promised - resident over those that live, with their resident size read
 * now. A process lives when its number does and was started at that tick: one that crashed leaves no claim, and one
 * that got its number has another start. Lines of another pid namespace cannot be looked up from here; they stay as
 * they are and count for nothing (docs/decisions/008). What is no such line is dropped, what is no such file is
 * begun anew.
 *
 * In a cgroup only promises of processes inside it count. Bounds: N_LINE_MAX lines; one small file of /proc, or two,
 * for each that lives. Left out: other users' budgets, and programs that promise nothing. */
#include "probe/reservations.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "base/state.h"
#include "probe/cgroup.h"
#include "probe/process.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME  "reservations"
#define LOCK_NAME  "reservations.lock"
#define HEADER     "burthen-reservations 1 "
#define N_LINE_MAX 1024u
#define LINE_BYTES 128u /* five words: three numbers of 20 digits, two of 10, a command of 15 */

typedef struct claim {
    uint64_t pid, start_ticks, pid_ns, promised_bytes;
    char command[sizeof((bt_reservation *)NULL)->command];
} claim;

/* All of the file, and who we are. Some 130 KiB: on the heap. */
typedef struct book {
    bt_process_home home;
    uint64_t own_pid, own_start_ticks;
    claim claims[N_LINE_MAX];
    uint32_t n_claims;
    bt_proc_text scratch;
} book;

/* ---- processes -------------------------------------------------------------------------------------------------- */

/* pid 0 is this process. */
static int read_of(uint64_t pid, const char *file, bt_proc_text *text) {
    char path[64];
    if (pid == 0)
        (void)snprintf(path, sizeof path, "/proc/self/%s", file);
    else
        (void)snprintf(path, sizeof path, "/proc/%" PRIu64 "/%s", pid, file);
    return bt_proc_read("", path, 0, text);
}

/* The second number of statm: pages in memory. */
static uint64_t resident_of(uint64_t pid, bt_proc_text *text) {
    uint64_t pages = 0;
    bt_span word;
    if (read_of(pid, "statm", text) < 0) return 0;
    bt_span rest = bt_span_of(text->data);
    if (!bt_span_word(&rest, &word) || !bt_span_word(&rest, &word) || !bt_span_number(word, &pages)) return 0;
    return bt_sat_mul_u64(pages, bt_os_page_bytes());
}

static bool lives(const claim *c) {
    bt_process_stat stat;
    return bt_process_stat_read(c->pid, &stat) == 0 && stat.start_ticks == c->start_ticks;
}

static bool is_own(const book *b, const claim *c) {
    return c->pid_ns == b->home.pid_ns && c->pid == b->own_pid;
}

static bt_status know_self(book *b, bt_error *err) {
    bt_process_stat stat;
    if (bt_process_home_read(&b->home) && bt_process_stat_read(0, &stat) == 0) {
        b->own_pid = (uint64_t)getpid();
        b->own_start_ticks = stat.start_ticks;
        return BT_OK;
    }
    return bt_fail(err, BT_E_IO, "reservations", BT_MEASURE_NONE, 0, 0,
                   "/proc does not say which process this is, so other budgets cannot be told from it");
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static bool parse_claim(bt_span line, claim *ret) {
    uint64_t *const numbers[] = {&ret->pid, &ret->start_ticks, &ret->pid_ns, &ret->promised_bytes};
    bt_span word;
    for (size_t i = 0; i < 4; i++) {
        if (!bt_span_word(&line, &word) || !bt_span_number(word, numbers[i])) return false;
    }
    if (!bt_span_word(&line, &word) || word.n_bytes >= sizeof ret->command || bt_span_word(&line, &(bt_span){0}))
        return false;
    for (size_t i = 0; i < word.n_bytes; i++) {
        if (word.at[i] < 'a' || word.at[i] > 'z') return false;
    }
    memset(ret->command, 0, sizeof ret->command);
    memcpy(ret->command, word.at, word.n_bytes);
    return ret->pid > 0 && ret->pid <= INT32_MAX; /* pid_t */
}

/* Those of this boot that live, or cannot be looked up; without our own. */
static void parse(book *b, const char *text) {
    bt_span rest = bt_span_of(text);
    bt_span line;
    if (!bt_span_line(&rest, &line) || !bt_span_starts(line, HEADER)) return;
    line = (bt_span){line.at + strlen(HEADER), line.n_bytes - strlen(HEADER)};
    if (!bt_span_is(line, b->home.boot)) return;
    while (b->n_claims < N_LINE_MAX && bt_span_line(&rest, &line)) {
        claim *c = &b->claims[b->n_claims];
        if (!parse_claim(line, c) || is_own(b, c)) continue;
        if (c->pid_ns == b->home.pid_ns && !lives(c)) continue;
        b->n_claims++;
    }
}

/* No file is an empty one; one that is too large is none of ours. */
static bt_status read_book(int dir, book *b, bt_error *err) {
    BT_TRY(know_self(b, err));
    bt_error why = {0};
    bt_text text;
    bt_text_init(&text, (size_t)N_LINE_MAX * LINE_BYTES);
    bt_status status = bt_state_read(dir, FILE_NAME, &text, &why);
    if (status == BT_OK) parse(b, bt_text_str(&text));
    bool is_none = status == BT_E_LIMIT || why.sys == ENOENT;
    bt_text_done(&text);
    if (status == BT_OK || is_none) return BT_OK;
    if (err) *err = why;
    return status;
}

static bt_status write_book(int dir, const book *b, bt_error *err) {
    bt_text text;
    bt_text_init(&text, (size_t)(N_LINE_MAX + 1) * LINE_BYTES);
    bt_text_addf(&text, HEADER "%s\n", b->home.boot);
    for (uint32_t i = 0; i < b->n_claims; i++) {
        const claim *c = &b->claims[i];
        bt_text_addf(&text, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", c->pid, c->start_ticks, c->pid_ns,
                     c->promised_bytes, c->command);
    }
    bt_status status = text.failed ? bt_fail_sys(err, ENOMEM, "reservations", "cannot write down what was promised")
                                   : bt_state_write(dir, FILE_NAME, bt_text_str(&text), text.n_bytes, err);
    bt_text_done(&text);
    return status;
}

/* ---- what others have promised ---------------------------------------------------------------------------------- */

/* Names that two group paths have in common from the root on. */
static uint32_t common_depth(const char *a, const char *b) {
    uint32_t depth = 0;
    bt_span rest_a = bt_span_of(a);
    bt_span rest_b = bt_span_of(b);
    for (;;) {
        bt_span name_a = {"", 0};
        bt_span name_b = {"", 0};
        while (name_a.n_bytes == 0 && bt_span_part(&rest_a, '/', &name_a)) {
        }
        while (name_b.n_bytes == 0 && bt_span_part(&rest_b, '/', &name_b)) {
        }
        if (name_a.n_bytes == 0 || name_a.n_bytes != name_b.n_bytes) return depth;
        if (memcmp(name_a.at, name_b.at, name_a.n_bytes) != 0) return depth;
        depth++;
    }
}

static bool group_of(uint64_t pid, uint32_t version, bt_proc_text *text, char ret_path[BT_PROC_PATH_MAX]) {
    return read_of(pid, "cgroup", text) == 0 &&
           bt_cgroup_path_parse(text->data, version == 1 ? "memory" : NULL, ret_path);
}

/* A group that cannot be read is taken to be ours: memory that may be taken is not free. */
static void promise_levels(bt_machine *machine, uint64_t pid, uint64_t untouched_bytes, bt_proc_text *text) {
    char own[BT_PROC_PATH_MAX];
    char other[BT_PROC_PATH_MAX];
    bool known = machine->cgroup_version > 0 && group_of(0, machine->cgroup_version, text, own) &&
                 group_of(pid, machine->cgroup_version, text, other);
    uint32_t depth = known ? common_depth(own, other) : UINT32_MAX;
    for (uint32_t i = 0; i < machine->n_cgroup_levels; i++) {
        bt_cgroup_level *level = &machine->cgroup[i];
        if (level->depth <= depth) level->promised_bytes = bt_sat_add_u64(level->promised_bytes, untouched_bytes);
    }
}

static void add_other(bt_machine *machine, const claim *c, bt_proc_text *text) {
    bt_reservation found = {.pid = (uint32_t)c->pid, .promised_bytes = c->promised_bytes};
    memcpy(found.command, c->command, sizeof found.command);
    found.resident_bytes = resident_of(c->pid, text);
    uint64_t untouched = bt_sat_sub_u64(found.promised_bytes, found.resident_bytes);
    machine->promised_bytes = bt_sat_add_u64(machine->promised_bytes, found.promised_bytes);
    machine->untouched_bytes = bt_sat_add_u64(machine->untouched_bytes, untouched);
    if (machine->n_reservations < BT_RESERVATION_MAX) machine->reservations[machine->n_reservations++] = found;
    promise_levels(machine, c->pid, untouched, text);
}

static bt_status open_book(bool create, book **ret_book, int *ret_dir, bt_error *err) {
    BT_TRY(bt_state_open(create, ret_dir, err));
    *ret_book = bt_heap_alloc(sizeof **ret_book);
    if (*ret_book) return BT_OK;
    (void)bt_os_close(*ret_dir);
    (void)bt_fail_sys(err, ENOMEM, "reservations", "cannot read what was promised");
    return BT_E_NOMEM;
}

static void close_book(book *b, int dir) {
    bt_heap_free(b);
    (void)bt_os_close(dir);
}

void bt_reservations_probe(bt_machine *machine) {
    book *b = NULL;
    int dir = -1;
    bt_error why = {0};
    bt_status status = open_book(false, &b, &dir, &why);
    if (status == BT_OK) {
        status = read_book(dir, b, &why);
        for (uint32_t i = 0; status == BT_OK && i < b->n_claims; i++) {
            if (b->claims[i].pid_ns == b->home.pid_ns) add_other(machine, &b->claims[i], &b->scratch);
        }
        close_book(b, dir);
    }
    if (status == BT_OK || why.sys == ENOENT) return; /* no folder: nobody has promised anything */
    (void)snprintf(machine->reservations_reason, sizeof machine->reservations_reason, "%.*s",
                   (int)sizeof machine->reservations_reason - 1, why.text);
}

/* ---- our own promise -------------------------------------------------------------------------------------------- */

static bt_status add_own(book *b, const char *command, uint64_t bytes, bt_error *err) {
    /* Lines that nobody here can check make room first. */
    for (uint32_t i = 0; b->n_claims == N_LINE_MAX && i < b->n_claims; i++) {
        if (b->claims[i].pid_ns != b->home.pid_ns) b->claims[i] = b->claims[--b->n_claims];
    }
    if (b->n_claims == N_LINE_MAX)
        return bt_fail(err, BT_E_LIMIT, "reservations_full", BT_MEASURE_ITEMS, N_LINE_MAX + 1, N_LINE_MAX,
                       "%u other budgets are kept on this host already", N_LINE_MAX);
    claim *own = &b->claims[b->n_claims++];
    *own = (claim){
        .pid = b->own_pid, .start_ticks = b->own_start_ticks, .pid_ns = b->home.pid_ns, .promised_bytes = bytes};
    (void)snprintf(own->command, sizeof own->command, "%s", command);
    return BT_OK;
}

/* Under the lock. command NULL: only take back. */
static bt_status change(int dir, book *b, const char *command, uint64_t bytes, uint64_t seen_bytes, bool *ret_promised,
                        bt_error *err) {
    BT_TRY(read_book(dir, b, err));
    uint64_t promised_bytes = 0;
    for (uint32_t i = 0; i < b->n_claims; i++) {
        if (b->claims[i].pid_ns == b->home.pid_ns)
            promised_bytes = bt_sat_add_u64(promised_bytes, b->claims[i].promised_bytes);
    }
    *ret_promised = promised_bytes <= seen_bytes;
    if (!*ret_promised) return BT_OK;
    if (command) BT_TRY(add_own(b, command, bytes, err));
    return write_book(dir, b, err);
}

static bt_status update(const char *command, uint64_t bytes, uint64_t seen_bytes, bool *ret_promised, bt_error *err) {
    book *b = NULL;
    int dir = -1;
    int lock = -1;
    BT_TRY(open_book(command != NULL, &b, &dir, err));
    bt_status status = bt_state_lock(dir, LOCK_NAME, &lock, err);
    if (status == BT_OK) {
        status = change(dir, b, command, bytes, seen_bytes, ret_promised, err);
        (void)bt_os_close(lock);
    }
    close_book(b, dir);
    return status;
}

bt_status bt_reservation_make(const char *command, uint64_t bytes, uint64_t seen_bytes, bool *ret_promised,
                              bt_error *err) {
    return update(command, bytes, seen_bytes, ret_promised, err);
}

void bt_reservation_drop(void) {
    bool done = false;
    (void)update(NULL, 0, UINT64_MAX, &done, NULL);
}
