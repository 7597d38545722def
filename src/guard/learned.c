/* SPDX-License-Identifier: MIT
 *
 * learned.c: what a program takes beside the lines of its plan, remembered.
 *
 *     learned-HASH:  burthen-learned 1
 *                    BASE_BYTES RUNS UNIX_S
 *
 * The process itself, its libraries, threads, vocabulary and server are not ours to price: a program that was started
 * once under a budget tells what they took, and the next plan has a number where the first had a guess. BASE_BYTES is
 * the most of all runs, so that a plan is never made smaller than what was once seen; RUNS counts them, UNIX_S is when
 * the last one was kept. HASH is of the program's file, the model's header, the slots and the settings: another of any
 * of them is another footprint, and is learned anew.
 *
 * Read, compared and written under a lock, since servers start side by side. A file that is not exactly so is taken as
 * none, to the digit: it decides what a budget is checked against. Bound: N_FILES_MAX files of two lines; the oldest
 * go. Left out: forgetting; who wants less than was seen removes the file. */
#include "guard/learned.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "base/state.h"
#include "model/sha256.h"
#include "probe/proc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FIRST_LINE  "burthen-learned 1"
#define PREFIX      "learned-"
#define LOCK_NAME   "learned.lock" /* not under the prefix: it is not trimmed */
#define N_FILES_MAX 64u
#define FILE_BYTES  128u /* two lines, three numbers of 20 digits */

_Static_assert(sizeof PREFIX + 64 <= BT_LEARNED_NAME_BYTES, "the name of a file");

typedef struct learned {
    uint64_t base_bytes, n_runs, unix_s;
} learned;

/* ---- the name ---- */

bool bt_learned_name(const char *program, const char *header_sha256, uint32_t n_slots, const char *settings,
                     char ret_name[BT_LEARNED_NAME_BYTES]) {
    bt_sha256 hash;
    char hex[65];
    ret_name[0] = '\0';
    bt_sha256_init(&hash);
    if (!bt_sha256_add_file(&hash, program)) return false;
    bt_sha256_add_text(&hash, header_sha256);
    bt_sha256_add_u64(&hash, n_slots);
    bt_sha256_add_text(&hash, settings);
    bt_sha256_hex(&hash, hex);
    (void)snprintf(ret_name, BT_LEARNED_NAME_BYTES, PREFIX "%s", hex);
    return true;
}

/* It may come from an environment: no other file of the folder, and none outside of it. */
static bool is_name(const char *name) {
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0 && bt_sha256_is_hex(name + strlen(PREFIX));
}

/* ---- the file ---- */

static int put(char text[FILE_BYTES], const learned *what) {
    return snprintf(text, FILE_BYTES, FIRST_LINE "\n%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", what->base_bytes,
                    what->n_runs, what->unix_s);
}

static bool parse(const bt_text *text, learned *ret) {
    bt_span rest = bt_span_of(bt_text_str(text));
    bt_span line;
    bt_span word;
    learned what = {0};
    uint64_t *const numbers[] = {&what.base_bytes, &what.n_runs, &what.unix_s};
    char again[FILE_BYTES];
    if (!bt_span_line(&rest, &line) || !bt_span_line(&rest, &line)) return false;
    for (uint32_t i = 0; i < 3; i++) {
        if (!bt_span_word(&line, &word) || !bt_span_number(word, numbers[i]) || *numbers[i] == 0) return false;
    }
    /* What is written from those numbers is this file, byte for byte. */
    size_t n_bytes = (size_t)put(again, &what);
    if (n_bytes != text->n_bytes || memcmp(again, bt_text_str(text), n_bytes) != 0) return false;
    *ret = what;
    return true;
}

/* *ret_good false: there is none, or none that is exactly so. An error when what is there could not be read. */
static bt_status recall(int dir, const char *name, learned *ret, bool *ret_good, bt_error *err) {
    bt_error why = {0};
    bt_text text;
    bt_text_init(&text, FILE_BYTES);
    bt_status status = bt_state_read(dir, name, &text, &why);
    *ret_good = status == BT_OK && parse(&text, ret);
    bt_text_done(&text);
    if (status == BT_OK || status == BT_E_LIMIT || why.sys == ENOENT) return BT_OK;
    *err = why;
    return status;
}

void bt_learned_read(const char *name, bt_known *ret_base_bytes) {
    int dir = -1;
    bool good = false;
    bt_error err = {0};
    learned what = {0};
    *ret_base_bytes = (bt_known){0};
    if (!is_name(name) || bt_state_open(false, &dir, NULL) != BT_OK) return;
    bt_status status = recall(dir, name, &what, &good, &err);
    if (status != BT_OK) bt_log(BT_LOG_INFO, "what was learned of the program is not used: %s", err.text);
    if (status == BT_OK && good) *ret_base_bytes = (bt_known){true, what.base_bytes};
    (void)bt_os_close(dir);
}

/* Under the lock. What cannot be read now is not replaced: it may be the more. */
static bt_status update(int dir, const char *name, uint64_t base_bytes, bt_error *err) {
    char text[FILE_BYTES];
    bool good = false;
    learned what = {0};
    BT_TRY(recall(dir, name, &what, &good, err));
    time_t now = time(NULL);
    what.base_bytes = bt_max_u64(what.base_bytes, base_bytes);
    what.n_runs = bt_sat_add_u64(what.n_runs, 1);
    what.unix_s = now > 0 ? (uint64_t)now : 1;
    return bt_state_write(dir, name, text, (size_t)put(text, &what), err);
}

static bt_status keep(const char *name, uint64_t base_bytes, bt_error *err) {
    int dir = -1;
    int lock = -1;
    BT_TRY(bt_state_open(true, &dir, err));
    bt_status status = bt_state_lock(dir, LOCK_NAME, &lock, err);
    if (status == BT_OK) {
        status = update(dir, name, base_bytes, err);
        bt_state_trim(dir, PREFIX, N_FILES_MAX);
        (void)bt_os_close(lock);
    }
    (void)bt_os_close(dir);
    return status;
}

void bt_learned_keep(const char *name, uint64_t base_bytes) {
    bt_error err = {0};
    if (base_bytes == 0 || !is_name(name)) return;
    if (keep(name, base_bytes, &err) != BT_OK) bt_log(BT_LOG_INFO, "what the program took is not kept: %s", err.text);
}
