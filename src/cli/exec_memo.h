/* SPDX-License-Identifier: MIT
 * exec_memo.h: the last refusal of a command, kept between runs of `burthen exec` (guard/memo.h). */
#pragma once

#include "guard/memo.h"
#include "model/sha256.h"

/* Which command, and what is remembered of it. */
typedef struct bt_exec_memo {
    bt_sha256 hash;
    char name[80]; /* of its file; empty until bt_exec_memo_read */
    bt_memo memo;
} bt_exec_memo;

/* What the command is, piece by piece; then its file, of which only what can be believed is taken. now_ms: Unix time.
 */
void bt_exec_memo_begin(bt_exec_memo *memo);
void bt_exec_memo_add(bt_exec_memo *memo, const void *data, size_t n_bytes);
void bt_exec_memo_read(bt_exec_memo *memo, int64_t now_ms);
/* Keep a refusal against free_bytes. Silent but for the log: a refusal that is not kept is only slower next time. */
void bt_exec_memo_keep(bt_exec_memo *memo, uint64_t free_bytes, int64_t now_ms);
void bt_exec_memo_forget(bt_exec_memo *memo);
