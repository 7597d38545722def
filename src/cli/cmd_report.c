/* SPDX-License-Identifier: MIT
 * cmd_report.c: `burthen report MODEL`: one JSON to attach to a bug report: versions, machine, facts, plan, last run.
 *
 * The plan is made as `plan` makes it, from a machine without names (report/share.c); its verdict is part of the
 * answer, not of the exit code, which is 0 for every report that could be written. */
#include "base/error.h"
#include "base/heap.h"
#include "cli/commands.h"
#include "cli/kept.h"
#include "cli/planned.h"
#include "report/report.h"

#include <string.h>

static bt_status make_plan(const bt_cli_options *options, const bt_facts *facts, uint64_t base_bytes, bt_arena *arena,
                           bt_planned *p, bt_error *err) {
    BT_TRY(bt_planning_all_pools(options, &p->machine, err));
    bt_report_machine_anonymize(&p->machine);
    return bt_planned_make(options, facts, options->exact, base_bytes, arena, p, err);
}

static int report_with(const bt_cli_options *options, const bt_facts *facts, uint64_t base_bytes, bt_arena *arena,
                       bt_planned *p) {
    bt_error err = {0};
    char *json = NULL;
    bt_text kept;
    bt_text_init(&kept, BT_KEPT_MAX_BYTES);
    bt_status status = make_plan(options, facts, base_bytes, arena, p, &err);
    if (status == BT_OK) {
        bt_kept_read(facts, &kept);
        const char *text = kept.n_bytes > 0 && !kept.failed ? bt_text_str(&kept) : NULL;
        status = bt_report_share_json(&p->plan, p->placed.facts, &p->machine, text, &json, &err);
    }
    bt_placed_close(&p->placed);
    int code = status == BT_OK ? bt_cli_print_bytes(json, strlen(json)) : bt_cli_fail(&err);
    bt_heap_free(json);
    bt_text_done(&kept);
    return code;
}

int bt_cmd_report(const bt_cli_options *options, bt_option_result *args) {
    return bt_planned_run(options, args->args[0], options->exact, report_with);
}
