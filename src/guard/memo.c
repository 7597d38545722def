/* SPDX-License-Identifier: MIT
 *
 * memo.c: a refusal remembered for half a minute. A client that is refused asks again at once, and each answer costs a
 * row of probes. It holds while nothing has become better: as long as no more is free than was then (readings wobble,
 * so by more than an epsilon), and no longer than its time (research notes, seed 4, G28). */
#include "guard/memo.h"

#include "base/size.h"

#include <stdio.h>
#include <string.h>

void bt_memo_store(bt_memo *memo, const bt_error *error, uint64_t free_bytes, int64_t now_ms) {
    *memo = (bt_memo){.held = true, .error = *error, .free_bytes = free_bytes, .at_ms = now_ms};
}

void bt_memo_clear(bt_memo *memo) {
    memo->held = false;
}

bool bt_memo_hit(bt_memo *memo, bt_known free_bytes, int64_t now_ms, bt_error *ret_error) {
    if (!memo->held) return false;
    bool old = now_ms - memo->at_ms > BT_MEMO_TTL_MS;
    bool better = free_bytes.known && free_bytes.value > bt_sat_add_u64(memo->free_bytes, BT_GUARD_EPSILON_BYTES);
    if (old || better) {
        memo->held = false;
        return false;
    }
    if (ret_error) {
        *ret_error = memo->error;
        size_t n = strlen(ret_error->text);
        (void)snprintf(ret_error->text + n, sizeof ret_error->text - n, " (as %lld s ago)",
                       (long long)((now_ms - memo->at_ms) / 1000));
    }
    return true;
}
