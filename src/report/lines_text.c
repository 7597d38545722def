/* SPDX-License-Identifier: MIT
 * lines_text.c: planned | reserved | committed | peak, after a run.
 *
 * The peak of a line is its largest measured resident size. Lines peak at different times, so their sum may pass the
 * peak of the process; the residual is what the process held at its peak that no line explains, and is then 0. Elastic
 * pins stand on no line: their memory is planned on those that lend it. */
#include "base/size.h"
#include "plan/plan.h"
#include "report/report.h"

static void add_line(bt_text *out, const char *name, const uint64_t bytes[4]) {
    bt_text_addf(out, "  %-18s", name);
    for (int i = 0; i < 4; i++) {
        bt_text_addf(out, " %12s", BT_SIZE(bytes[i]));
    }
    bt_text_add(out, "\n");
}

static void add_peak(bt_text *out, const char *name, uint64_t bytes) {
    bt_text_addf(out, "  %-18s %12s %12s %12s %12s\n", name, "", "", "", BT_SIZE(bytes));
}

void bt_report_lines_text(const bt_measured *measured, bt_text *out) {
    const bt_line_use *use = measured->lines;
    uint64_t total[4] = {0};
    bt_text_addf(out, "  %-18s %12s %12s %12s %12s\n", "line", "planned", "reserved", "committed", "peak");
    for (uint32_t i = 0; i < BT_LINE_COUNT; i++) {
        const uint64_t row[4] = {use[i].planned_bytes, use[i].reserved_bytes, use[i].committed_bytes,
                                 use[i].peak_resident_bytes};
        if ((row[0] | row[1] | row[2] | row[3]) == 0) continue;
        add_line(out, bt_line_name((bt_line)i), row);
        for (int k = 0; k < 4; k++) {
            total[k] = bt_sat_add_u64(total[k], row[k]);
        }
    }
    add_line(out, "total", total);
    if (measured->elastic_peak_bytes > 0) add_peak(out, "elastic pins", measured->elastic_peak_bytes);
    add_peak(out, "process peak", measured->peak_rss_bytes);
    add_peak(out, "residual", measured->residual_bytes);
    const bt_locked *locked = &measured->locked;
    if (!locked->wanted) return;
    bt_text_addf(out, "  %-18s %12s of %s asked%s%s%s\n", "locked", BT_SIZE(locked->locked_bytes),
                 BT_SIZE(locked->asked_bytes), locked->reason[0] ? ": " : "", locked->reason,
                 measured->elastic_peak_bytes > 0 ? "; elastic pins are never locked" : "");
}

void bt_report_devices_text(const bt_plan *plan, const bt_measured *measured, bt_text *out) {
    for (uint32_t i = 0; plan->offload && i < plan->offload->split.n_devices; i++) {
        const bt_device_plan *device = &plan->offload->devices[i];
        bt_known held = measured->device_bytes[i];
        bt_text_addf(out, "  %-18s %12s %12s %12s %12s\n", device->name, BT_SIZE(bt_device_plan_bytes(device)), "", "",
                     held.known ? BT_SIZE(held.value) : "unknown");
    }
}
