/* SPDX-License-Identifier: MIT
 * cmd_plan.c: `burthen plan MODEL`: verdict, ledger, ladder. Reads the model's header and the machine, loads nothing.
 *
 * Exit code 0 for a plan that would run (also a forced one), 3 for a refusal; the report is printed in both cases,
 * since a refusal is an answer. */
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "cli/commands.h"
#include "cli/drafting.h"
#include "cli/planning.h"
#include "report/report.h"

#include <string.h>

#define EXIT_REFUSED     3 /* docs/interfaces.md */
#define ARENA_BLOCK      (64u << 10)
#define REPORT_MAX_BYTES (1u << 20) /* one screen, with room for long names */

static int print_plan(const bt_cli_options *options, const bt_plan *plan, const bt_facts *facts,
                      const bt_machine *machine) {
    if (options->json) {
        bt_error err = {0};
        char *json = NULL;
        if (bt_report_plan_json(plan, facts, machine, &json, &err) != BT_OK) return bt_cli_fail(&err);
        int code = bt_cli_print_bytes(json, strlen(json));
        bt_heap_free(json);
        return code;
    }
    if (options->quiet) return 0; /* the exit code is the answer */
    bt_text text;
    bt_text_init(&text, REPORT_MAX_BYTES);
    bt_report_plan_text(plan, facts, &text);
    bt_planning_lock_text(options, plan, machine, &text);
    bt_drafting_text(options, facts, plan, &text);
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    return code;
}

/* What planning works with: too large for the stack. */
typedef struct work {
    bt_machine machine;
    bt_placed placed;
    bt_plan plan;
} work;

/* What a conversation needs depends on the model's template: there is no formula for it. */
static bool is_exact(const bt_cli_options *options) {
    return options->exact || options->wishes.chat;
}

static bt_status make_plan(const bt_cli_options *options, const bt_facts *facts, uint64_t base_bytes, bt_arena *arena,
                           work *w, bt_error *err) {
    BT_TRY(bt_planning_machine(options, &w->machine, err));
    if (is_exact(options))
        return bt_planning_exact(options, facts, &w->machine, base_bytes, bt_planning_one_row, arena, &w->placed,
                                 &w->plan, err);
    return bt_planning_make(options, facts, &w->machine, arena, &w->placed, &w->plan, err);
}

static int plan_with(const bt_cli_options *options, const bt_facts *facts, uint64_t base_bytes, bt_arena *arena,
                     work *w) {
    bt_error err = {0};
    if (make_plan(options, facts, base_bytes, arena, w, &err) != BT_OK) return bt_cli_fail(&err);
    int code = print_plan(options, &w->plan, w->placed.facts, &w->machine);
    bt_placed_close(&w->placed);
    if (code != 0) return code;
    return w->plan.verdict == BT_REFUSED && !w->plan.forced ? EXIT_REFUSED : 0;
}

/* What `run` would hold before it opens the model: this is the same program, started the same way. */
static bt_status measure_base(uint64_t *ret_bytes, bt_error *err) {
    BT_TRY(bt_cli_engine_init(err));
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    *ret_bytes = memory.rss_bytes.value;
    return BT_OK;
}

int bt_cmd_plan(const bt_cli_options *options, bt_option_result *args) {
    bt_error err = {0};
    uint64_t base_bytes = 0;
    if (is_exact(options) && measure_base(&base_bytes, &err) != BT_OK) return bt_cli_fail(&err);
    bt_facts *facts = NULL;
    if (bt_facts_open(args->args[0], &facts, &err) != BT_OK) return bt_cli_fail_model(&err, args->args[0]);
    int code = 0;
    bt_arena *arena = bt_arena_open(BT_PLANNING_ARENA_BYTES, ARENA_BLOCK);
    work *w = arena ? bt_arena_alloc(arena, sizeof *w) : NULL;
    if (w) {
        code = plan_with(options, facts, base_bytes, arena, w);
    } else {
        (void)bt_fail(&err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
        code = bt_cli_fail(&err);
    }
    bt_arena_close(arena);
    bt_facts_close(facts);
    return code;
}
