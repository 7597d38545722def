/* SPDX-License-Identifier: MIT
 * cmd_report.c: `burthen report MODEL`: one JSON to attach to a bug report: versions, machine, facts, plan, last run.
 *
 * The plan is made as `plan` makes it, from a machine without names (report/share.c); its verdict is part of the
 * answer, not of the exit code, which is 0 for every report that could be written. */
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "cli/commands.h"
#include "cli/kept.h"
#include "cli/planning.h"
#include "report/report.h"

#include <string.h>

#define ARENA_BLOCK (64u << 10)

/* Too large for the stack. */
typedef struct work {
    bt_machine machine;
    bt_placed placed;
    bt_plan plan;
} work;

static bt_status make_plan(const bt_cli_options *options, const bt_facts *facts, uint64_t base_bytes, bt_arena *arena,
                           work *w, bt_error *err) {
    BT_TRY(bt_planning_all_pools(options, &w->machine, err));
    bt_report_machine_anonymize(&w->machine);
    if (options->exact)
        return bt_planning_exact(options, facts, &w->machine, base_bytes, bt_planning_one_row, arena, &w->placed,
                                 &w->plan, err);
    return bt_planning_make(options, facts, &w->machine, arena, &w->placed, &w->plan, err);
}

static int report_with(const bt_cli_options *options, const bt_facts *facts, uint64_t base_bytes, bt_arena *arena,
                       work *w) {
    bt_error err = {0};
    char *json = NULL;
    bt_text kept;
    bt_text_init(&kept, BT_KEPT_MAX_BYTES);
    bt_status status = make_plan(options, facts, base_bytes, arena, w, &err);
    if (status == BT_OK) {
        bt_kept_read(facts, &kept);
        const char *text = kept.n_bytes > 0 && !kept.failed ? bt_text_str(&kept) : NULL;
        status = bt_report_share_json(&w->plan, w->placed.facts, &w->machine, text, &json, &err);
    }
    bt_placed_close(&w->placed);
    int code = status == BT_OK ? bt_cli_print_bytes(json, strlen(json)) : bt_cli_fail(&err);
    bt_heap_free(json);
    bt_text_done(&kept);
    return code;
}

int bt_cmd_report(const bt_cli_options *options, bt_option_result *args) {
    bt_error err = {0};
    uint64_t base_bytes = 0;
    if (options->exact) {
        if (bt_cli_engine_init(&err) != BT_OK) return bt_cli_fail(&err);
        bt_os_memory memory;
        bt_os_memory_read(&memory);
        base_bytes = memory.rss_bytes.value;
    }
    bt_facts *facts = NULL;
    if (bt_facts_open(args->args[0], &facts, &err) != BT_OK) return bt_cli_fail_model(&err, args->args[0]);
    int code = 0;
    bt_arena *arena = bt_arena_open(BT_PLANNING_ARENA_BYTES, ARENA_BLOCK);
    work *w = arena ? bt_arena_alloc(arena, sizeof *w) : NULL;
    if (w) {
        code = report_with(options, facts, base_bytes, arena, w);
    } else {
        (void)bt_fail(&err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
        code = bt_cli_fail(&err);
    }
    bt_arena_close(arena);
    bt_facts_close(facts);
    return code;
}
