/* SPDX-License-Identifier: MIT
 * memo.h: a refusal remembered, so that a client that asks again at once is not answered by another probe. */
#pragma once

#include "burthen.h"

#define BT_MEMO_TTL_MS         INT64_C(30000)
#define BT_GUARD_EPSILON_BYTES (UINT64_C(256) << 20) /* readings that differ by no more are the same */

/* Zero-initialised: nothing is held. */
typedef struct bt_memo {
    bool held;
    bt_error error;      /* what was refused */
    uint64_t free_bytes; /* the reading that it was refused against */
    int64_t at_ms;
} bt_memo;

void bt_memo_store(bt_memo *memo, const bt_error *error, uint64_t free_bytes, int64_t now_ms);
/* Does it still hold? Where it does not it is dropped. An unknown reading changes nothing. ret_error, if not NULL: what
 * was refused, its text says that it is remembered. */
bool bt_memo_hit(bt_memo *memo, bt_known free_bytes, int64_t now_ms, bt_error *ret_error);
void bt_memo_clear(bt_memo *memo); /* on a start that succeeded, an exit of another program, another file or setting */
