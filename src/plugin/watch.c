/* SPDX-License-Identifier: MIT
 *
 * watch.c: the budget, from inside the process that has it.
 *
 * The device's own lines are hard. What the program holds beside them (its code, its heap, a request's text) is planned
 * by what such programs were seen to hold, and can only be looked at. The kernel keeps the peak, so that nothing is
 * missed between two looks. */

#include "plugin/watch.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/output.h"
#include "base/size.h"
#include "guard/learned.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>

#define LOOK_NS UINT64_C(1000000000)

/* Written aside and renamed: who reads it finds a whole one. */
static bt_status write_file(const char *path, const char *text, bt_error *err) {
    char aside[PATH_MAX];
    int rc = bt_output_check(path, true);
    if (rc != 0) return bt_fail_sys(err, -rc, "stats_file", "cannot write the statistics to %s", path);
    int n = snprintf(aside, sizeof aside, "%s.new", path);
    FILE *file = n > 0 && (size_t)n < sizeof aside ? fopen(aside, "we") : NULL;
    if (!file) return bt_fail_sys(err, errno, "stats_file", "cannot write the statistics to %s", path);
    bool ok = fputs(text, file) >= 0;
    ok = fclose(file) == 0 && ok;
    if (ok && rename(aside, path) == 0) return BT_OK;
    int sys = errno;
    (void)remove(aside);
    return bt_fail_sys(err, sys, "stats_file", "cannot write the statistics to %s", path);
}

static void write_stats(bt_watch *watch) {
    bt_measured *measured = bt_heap_alloc(sizeof *measured); /* large for a stack that is not ours */
    char *json = NULL;
    bt_error err = {0};
    bt_status status = measured ? BT_OK : BT_E_NOMEM;
    if (status == BT_OK) {
        bt_holder_measure(watch->holder, measured);
        status = bt_report_kept_json(bt_holder_plan(watch->holder), bt_holder_facts(watch->holder), NULL, measured,
                                     (uint64_t)time(NULL), &json, &err);
    }
    if (status == BT_OK) status = write_file(watch->stats_path, json, &err);
    bt_heap_free(json);
    bt_heap_free(measured);
    if (status != BT_OK && !watch->stats_failed) bt_log(BT_LOG_WARN, "%s", err.text);
    watch->stats_failed = status != BT_OK;
}

static void check_peak(bt_watch *watch) {
    const bt_plan *plan = bt_holder_plan(watch->holder);
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    uint64_t peak_bytes = memory.peak_rss_bytes.value;
    if (!memory.peak_rss_bytes.known || peak_bytes <= bt_max_u64(plan->planned_bytes, watch->said_bytes)) return;
    watch->said_bytes = peak_bytes;
    if (watch->learned) /* so much more should its base have been */
        bt_learned_keep(watch->learned,
                        bt_sat_add_u64(plan->ledger.bytes[BT_LINE_BASE], peak_bytes - plan->planned_bytes));
    bt_log(BT_LOG_WARN,
           "the program holds more beside the model than was planned: %s at most, planned %s of a budget "
           "of %s; the next plan reckons with it",
           BT_SIZE(peak_bytes), BT_SIZE(plan->planned_bytes), BT_SIZE(plan->budget_bytes));
}

void bt_watch_look(bt_watch *watch) {
    uint64_t now_ns = bt_os_now_ns();
    if (watch->looked_ns > 0 && now_ns - watch->looked_ns < LOOK_NS) return;
    watch->looked_ns = now_ns;
    check_peak(watch);
    if (watch->stats_path) write_stats(watch);
}
