/* SPDX-License-Identifier: MIT
 *
 * planned.c: what commands that plan and load nothing have in common.
 *
 *   base measured, where exact -> facts -> an arena -> the command's own work -> all of it given back
 *
 * An exact plan is of what `run` would hold before it opens the model: this is the same program, started the same way.
 * Left out: which machine it is (the command fills it in), and what is said of the plan. */
#include "cli/planned.h"

#include "base/error.h"
#include "base/os.h"
#include "cli/commands.h"

#define ARENA_BLOCK (64u << 10)

static bt_status measure_base(uint64_t *ret_bytes, bt_error *err) {
    bt_os_memory memory;
    BT_TRY(bt_cli_engine_init(err));
    bt_os_memory_read(&memory);
    *ret_bytes = memory.rss_bytes.value;
    return BT_OK;
}

int bt_planned_run(const bt_cli_options *options, const char *path, bool exact, bt_planned_fn work) {
    bt_error err = {0};
    uint64_t base_bytes = 0;
    bt_facts *facts = NULL;
    int code = 0;
    if (exact && measure_base(&base_bytes, &err) != BT_OK) return bt_cli_fail(&err);
    if (bt_facts_open(path, &facts, &err) != BT_OK) return bt_cli_fail_model(&err, path);
    bt_arena *arena = bt_arena_open(BT_PLANNING_ARENA_BYTES, ARENA_BLOCK);
    bt_planned *planned = arena ? bt_arena_alloc(arena, sizeof *planned) : NULL;
    if (planned) {
        code = work(options, facts, base_bytes, arena, planned);
    } else {
        (void)bt_fail(&err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
        code = bt_cli_fail(&err);
    }
    bt_arena_close(arena);
    bt_facts_close(facts);
    return code;
}

bt_status bt_planned_make(const bt_cli_options *options, const bt_facts *facts, bool exact, uint64_t base_bytes,
                          bt_arena *arena, bt_planned *planned, bt_error *err) {
    bt_planned *p = planned;
    if (exact)
        return bt_planning_exact(options, facts, &p->machine, base_bytes, bt_planning_one_row, arena, &p->placed,
                                 &p->plan, err);
    return bt_planning_make(options, facts, &p->machine, arena, &p->placed, &p->plan, err);
}
