/* SPDX-License-Identifier: MIT
 * lock_text.c: what --mlock asked for, what it got, and what a person can do about the difference.
 *
 * Programs that lock memory mostly say that they could not, and go on as if it did not matter; the model is then paged
 * out all the same (research notes, user-case 37). Here the two numbers always stand beside each other, and "locked" is
 * what the kernel counts (VmLck), not what was wished. RLIMIT_MEMLOCK is named in bytes, the remedy in the unit of the
 * tool that takes it. What counts for the limit is address space of locked mappings, so a cache counts as a whole
 * before it is touched. */
#include "base/error.h"
#include "base/size.h"
#include "plan/plan.h"
#include "report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Refused for what the process may lock, as opposed to what the system can do (mlock(2)). */
static bool is_limit(int sys, bt_known limit_bytes, uint64_t asked_bytes) {
    return (sys == ENOMEM || sys == EPERM || sys == EAGAIN) && limit_bytes.known && limit_bytes.value < asked_bytes;
}

static void add_sys(int sys, char *reason, size_t n) {
    bt_error err;
    (void)bt_fail_sys(&err, sys, "mlock", "the system refused it");
    (void)snprintf(reason, n, "%.*s", (int)n - 1, err.text);
}

void bt_locked_make(const bt_lock_use *use, bt_known counted_bytes, bt_known limit_bytes, bt_locked *ret) {
    *ret = (bt_locked){.wanted = true, .asked_bytes = use->asked_bytes, .locked_bytes = use->locked_bytes};
    if (counted_bytes.known) ret->locked_bytes = bt_min_u64(use->locked_bytes, counted_bytes.value);
    char *reason = ret->reason;
    size_t n = sizeof ret->reason;
    if (use->locked_bytes < use->asked_bytes) {
        ret->by_limit = is_limit(use->sys, limit_bytes, use->asked_bytes);
        if (ret->by_limit)
            (void)snprintf(reason, n, "RLIMIT_MEMLOCK is %" PRIu64 " bytes", limit_bytes.value);
        else if (use->sys == ENOSYS)
            (void)snprintf(reason, n, "this kernel locks only what is touched already (mlock2 is of Linux 4.4)");
        else
            add_sys(use->sys, reason, n);
    } else if (!counted_bytes.known) {
        (void)snprintf(reason, n, "not confirmed: the system does not say VmLck");
    } else if (counted_bytes.value < use->locked_bytes) {
        (void)snprintf(reason, n, "the kernel counts no more as locked (VmLck)");
    }
}

static void add_remedy(bt_text *out, uint64_t need_bytes) {
    uint64_t kib = need_bytes / 1024 + (need_bytes % 1024 != 0);
    bt_text_addf(out, "ulimit -l %" PRIu64 " in the shell, or LimitMEMLOCK=%" PRIu64 " in a systemd unit, allows it",
                 kib, need_bytes);
}

bool bt_report_lock_warning(const bt_locked *locked, uint64_t most_bytes, bt_text *out) {
    if (!locked->wanted || locked->locked_bytes >= locked->asked_bytes) return false;
    bt_text_addf(out, "locked %s of %s (--mlock): %s, the rest may be paged out", BT_SIZE(locked->locked_bytes),
                 BT_SIZE(locked->asked_bytes), locked->reason);
    if (!locked->by_limit) return true;
    bt_text_add(out, "; ");
    add_remedy(out, bt_max_u64(locked->asked_bytes, most_bytes));
    return true;
}

uint64_t bt_report_lockable_bytes(const bt_plan *plan) {
    static const bt_line lines[] = {BT_LINE_METADATA,    BT_LINE_KV,         BT_LINE_COMPUTE, BT_LINE_LOGITS,
                                    BT_LINE_OUTPUT_NORM, BT_LINE_EMBEDDINGS, BT_LINE_HEAD,    BT_LINE_RING,
                                    BT_LINE_PINNED,      BT_LINE_EXPERTS,    BT_LINE_DERIVED};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        sum = bt_sat_add_u64(sum, plan->ledger.bytes[lines[i]]);
    return sum;
}

void bt_report_lock_text(const bt_plan *plan, bool allowed, bt_known limit_bytes, bt_text *out) {
    if (!plan->wishes.mlock) return;
    uint64_t need = bt_report_lockable_bytes(plan);
    bt_text_addf(out, "\nMemory lock: up to %s are asked for; ", BT_SIZE(need));
    if (allowed) {
        bt_text_add(out, "the system allows it\n");
        return;
    }
    if (limit_bytes.known)
        bt_text_addf(out, "RLIMIT_MEMLOCK allows %" PRIu64 " bytes, the rest may be paged out; ", limit_bytes.value);
    else
        bt_text_add(out, "the system does not allow it; ");
    add_remedy(out, need);
    bt_text_add(out, "\n");
}
