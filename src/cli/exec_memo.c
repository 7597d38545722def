/* SPDX-License-Identifier: MIT
 *
 * exec_memo.c: what was refused, in a file of the state folder.
 *
 *     refused-HASH:  burthen-refused 1
 *                    AT_UNIX_MS FREE_BYTES
 *
 * Between a refusal and the next try of a client lies a second; without this file each try would wait for memory to
 * come back (guard/reclaim.h) that has not. The answer itself is made anew each time, from what is free now: a file
 * that is wrong costs a wait, or saves one, and decides nothing. HASH is of the command, so that another model, file or
 * setting is another refusal; no word of it can be read from there. Bound: N_FILES_MAX files of one line. */
#include "cli/exec_memo.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/state.h"
#include "probe/proc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIRST_LINE  "burthen-refused 1"
#define PREFIX      "refused-"
#define N_FILES_MAX 64u
#define FILE_BYTES  128u

void bt_exec_memo_begin(bt_exec_memo *memo) {
    *memo = (bt_exec_memo){0};
    bt_sha256_init(&memo->hash);
}

void bt_exec_memo_add(bt_exec_memo *memo, const void *data, size_t n_bytes) {
    uint64_t n = n_bytes; /* before each piece: "a","b" is not "ab" */
    bt_sha256_add(&memo->hash, &n, sizeof n);
    bt_sha256_add(&memo->hash, data, n_bytes);
}

static bool parse(const char *text, int64_t now_ms, bt_memo *ret) {
    bt_span rest = bt_span_of(text);
    bt_span line, word;
    uint64_t numbers[2];
    if (!bt_span_line(&rest, &line) || !bt_span_is(line, FIRST_LINE) || !bt_span_line(&rest, &line)) return false;
    for (uint32_t i = 0; i < 2; i++)
        if (!bt_span_word(&line, &word) || !bt_span_number(word, &numbers[i])) return false;
    /* A clock that was set back must not make it last longer. */
    if (line.n_bytes > 0 || now_ms < 0 || numbers[0] > (uint64_t)now_ms) return false;
    static const bt_error of_another_run = {0};
    bt_memo_store(ret, &of_another_run, numbers[1], (int64_t)numbers[0]);
    return true;
}

void bt_exec_memo_read(bt_exec_memo *memo, int64_t now_ms) {
    char hex[65];
    bt_error err = {0};
    bt_text text;
    bt_sha256_hex(&memo->hash, hex);
    (void)snprintf(memo->name, sizeof memo->name, PREFIX "%s", hex);
    bt_text_init(&text, FILE_BYTES);
    bool good = bt_state_recall(memo->name, &text, &err) == BT_OK && parse(bt_text_str(&text), now_ms, &memo->memo);
    if (!good && err.sys != ENOENT) bt_log(BT_LOG_INFO, "what is kept of a refusal is not used: %s", err.text);
    bt_text_done(&text);
}

void bt_exec_memo_keep(bt_exec_memo *memo, uint64_t free_bytes, int64_t now_ms) {
    char text[FILE_BYTES];
    bt_error err = {0};
    int n = snprintf(text, sizeof text, FIRST_LINE "\n%" PRId64 " %" PRIu64 "\n", now_ms, free_bytes);
    if (bt_state_keep(memo->name, text, (size_t)n, PREFIX, N_FILES_MAX, &err) != BT_OK)
        bt_log(BT_LOG_INFO, "the refusal is not kept: %s", err.text);
    bt_memo_store(&memo->memo, &err, free_bytes, now_ms);
}

void bt_exec_memo_forget(bt_exec_memo *memo) {
    int dir = -1;
    if (!memo->memo.held || bt_state_open(false, &dir, NULL) != BT_OK) return;
    bt_state_remove(dir, memo->name);
    (void)bt_os_close(dir);
    bt_memo_clear(&memo->memo);
}
