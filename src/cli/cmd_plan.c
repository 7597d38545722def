/* SPDX-License-Identifier: MIT
 * cmd_plan.c: `burthen plan MODEL`: verdict, ledger, ladder. Reads the model's header and the machine, loads nothing.
 *
 * Exit code 0 for a plan that would run (also a forced one), 3 for a refusal; the report is printed in both cases,
 * since a refusal is an answer. */
#include "base/heap.h"
#include "cli/commands.h"
#include "cli/drafting.h"
#include "cli/planned.h"
#include "report/report.h"

#include <string.h>

#define EXIT_REFUSED     3          /* docs/interfaces.md */
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
    int code = bt_cli_print_prose(&text);
    bt_text_done(&text);
    return code;
}

/* What a conversation needs depends on the model's template: there is no formula for it. */
static bool is_exact(const bt_cli_options *options) {
    return options->exact || options->wishes.chat;
}

static int plan_with(const bt_cli_options *options, const bt_facts *facts, uint64_t base_bytes, bt_arena *arena,
                     bt_planned *p) {
    bt_error err = {0};
    bt_status status = bt_planning_machine(options, &p->machine, &err);
    if (status == BT_OK) status = bt_planned_make(options, facts, is_exact(options), base_bytes, arena, p, &err);
    if (status != BT_OK) return bt_cli_fail(&err);
    int code = print_plan(options, &p->plan, p->placed.facts, &p->machine);
    bt_placed_close(&p->placed);
    if (code != 0) return code;
    return p->plan.verdict == BT_REFUSED && !p->plan.forced ? EXIT_REFUSED : 0;
}

int bt_cmd_plan(const bt_cli_options *options, bt_option_result *args) {
    return bt_planned_run(options, args->args[0], is_exact(options), plan_with);
}
