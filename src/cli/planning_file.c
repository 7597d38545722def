/* SPDX-License-Identifier: MIT
 *
 * planning_file.c: a plan that was written down (--plan), and whether it may be carried out here and now.
 *
 * The file is strict JSON (report/plan_read.c); here it is held against the model, this machine and what is asked
 * beside it. A plan is a list of bytes: it runs where they fit, of the host and of each device, and nowhere else. */
#include "cli/planning.h"

#include "base/error.h"
#include "base/os.h"
#include "base/size.h"
#include "model/types.h"
#include "plan/offload.h"
#include "plan/plan.h"
#include "report/report.h"

#include <errno.h>
#include <string.h>

/* A plan is a list of bytes: where they fit it may be carried out, also when it was made for another machine; where
 * they do not, the fingerprints say whether that is because the machine is another or because it has less to give now.
 */
static bt_status check_room(const bt_plan *plan, const bt_fingerprint *of_plan, const bt_fingerprint *now,
                            const bt_machine *machine, const bt_wishes *asked, bt_error *err) {
    bt_budget budget = bt_budget_resolve(machine, &plan->wishes);
    if (asked->budget_kind == BT_BUDGET_BYTES && asked->budget_bytes < budget.bytes)
        budget = bt_budget_resolve(machine, asked);
    bt_planning_share_budget(plan->offload, &budget);
    bool is_same = strcmp(of_plan->machine, now->machine) == 0;
    if (plan->planned_bytes <= budget.bytes || (plan->forced && is_same)) return BT_OK;
    if (is_same) {
        return bt_fail(err, BT_E_BUDGET, "plan_room", BT_MEASURE_BYTES, plan->planned_bytes, budget.bytes,
                       "the plan needs %s, this machine leaves %s now (%s)", BT_SIZE(plan->planned_bytes),
                       BT_SIZE(budget.bytes), budget.source);
    }
    return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_BYTES, plan->planned_bytes, budget.bytes,
                   "the plan is for another machine (%s, this is %s) and needs %s, this one leaves %s (%s)",
                   of_plan->machine[0] ? of_plan->machine : "unknown", now->machine[0] ? now->machine : "unknown",
                   BT_SIZE(plan->planned_bytes), BT_SIZE(budget.bytes), budget.source);
}

static bt_known size_named(const bt_wishes *wishes, const char *name) {
    for (uint32_t i = 0; i < wishes->n_devices; i++)
        if (strcmp(wishes->devices[i].name, name) == 0 && wishes->devices[i].budget_bytes.known)
            return wishes->devices[i].budget_bytes;
    return wishes->gpu_mem_bytes;
}

/* The same of devices: a card may have less to give now. One that is gone is found out when it is looked for. */
static bt_status check_device_room(const bt_plan *plan, const bt_machine *machine, bt_error *err) {
    for (uint32_t i = 0; plan->offload && i < plan->offload->split.n_devices; i++) {
        const bt_device_plan *device = &plan->offload->devices[i];
        for (uint32_t k = 1; k < machine->n_pools; k++) {
            const bt_pool *pool = &machine->pools[k];
            if (strcmp(pool->name, device->name) != 0) continue;
            uint64_t have = bt_device_budget_resolve(size_named(&plan->wishes, device->name), pool).bytes;
            uint64_t need = bt_device_plan_bytes(device);
            if (need <= have) continue;
            return bt_fail(err, BT_E_BUDGET, "plan_room", BT_MEASURE_BYTES, need, have,
                           "the plan needs %s of %s, which leaves %s now", BT_SIZE(need), device->name, BT_SIZE(have));
        }
    }
    return BT_OK;
}

/* What libllama would stop at: numbers and types that no plan of ours has, and that an edited one may. */
static bt_status check_runs(const bt_plan *plan, const char *path, bt_error *err) {
    const char *wrong = NULL;
    if (plan->n_batch == 0) wrong = "batch.n_batch";
    if (plan->n_ubatch == 0) wrong = "batch.n_ubatch";
    if (plan->n_ctx == 0) wrong = "ctx.effective";
    if (!bt_type_is_cache(plan->type_k)) wrong = "kv.type_k";
    if (!bt_type_is_cache(plan->type_v)) wrong = "kv.type_v";
    if (!wrong) return BT_OK;
    return bt_fail(err, BT_E_ARG, "plan", BT_MEASURE_NONE, 0, 0, "--plan %s: %s is nothing that can be run", path,
                   wrong);
}

static bt_status load_plan(const bt_cli_options *options, const bt_facts *facts, bt_machine *machine, bt_arena *arena,
                           bt_placed *placed, bt_plan *ret_plan, bt_error *err) {
    bt_text text;
    bt_text_init(&text, BT_JSON_IN_MAX_BYTES);
    bt_error why = {0};
    bt_fingerprint of_plan;
    bt_status status = bt_cli_read_file(options->plan_file, &text, &why);
    if (status == BT_OK) status = bt_fingerprint_from_json(bt_text_str(&text), text.n_bytes, &of_plan, &why);
    if (status == BT_OK) status = bt_plan_from_json(bt_text_str(&text), text.n_bytes, arena, ret_plan, &why);
    bt_text_done(&text);
    if (status == BT_E_NOMEM) {
        if (err) *err = why;
        return status;
    }
    if (status != BT_OK) {
        return bt_fail(err, BT_E_ARG, "plan", BT_MEASURE_NONE, 0, 0, "--plan %s: %s", options->plan_file, why.text);
    }
    bt_fingerprint now;
    bt_fingerprint_make(facts, machine, &now);
    BT_TRY(bt_fingerprint_check(&of_plan, &now, err));
    if (ret_plan->mmproj.file[0]) {
        return bt_fail(err, BT_E_UNSUPPORTED, "unsupported", BT_MEASURE_NONE, 0, 0,
                       "the plan holds a projector, %.200s, which this version can price but not use",
                       ret_plan->mmproj.file);
    }
    BT_TRY(check_runs(ret_plan, options->plan_file, err));
    BT_TRY(check_room(ret_plan, &of_plan, &now, machine, &options->wishes, err));
    BT_TRY(check_device_room(ret_plan, machine, err));
    BT_TRY(bt_placing_of_plan(facts, ret_plan, placed, err));
    facts = placed->facts;
    if (ret_plan->place && ret_plan->n_units != facts->n_units) {
        return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_ITEMS, ret_plan->n_units, facts->n_units,
                       "the plan places %u units, the model has %u", ret_plan->n_units, facts->n_units);
    }
    bool has_slots = ret_plan->n_expert_slots >= BT_EXPERT_SLOTS_MIN && ret_plan->n_expert_slots <= facts->n_expert;
    if (facts->n_expert_blocks > 0 ? !has_slots : ret_plan->n_expert_slots > 0) {
        return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_ITEMS, ret_plan->n_expert_slots, facts->n_expert,
                       "the plan has %u slots for experts of a block, the model has %u of them",
                       ret_plan->n_expert_slots, facts->n_expert_blocks > 0 ? facts->n_expert : 0);
    }
    bt_planning_look_at_disk(options, facts, machine);
    ret_plan->disk = machine->disk;
    ret_plan->page_cache = bt_plan_has_page_cache(ret_plan, machine);
    return BT_OK;
}

bt_status bt_planning_load(const bt_cli_options *options, const bt_facts *facts, bt_machine *machine, bt_arena *arena,
                           bt_placed *ret_placed, bt_plan *ret_plan, bt_error *err) {
    bt_placed placed = {0};
    bt_status status = load_plan(options, facts, machine, arena, &placed, ret_plan, err);
    if (status == BT_OK)
        *ret_placed = placed;
    else
        bt_placed_close(&placed);
    return status;
}

void bt_planning_lock_text(const bt_cli_options *options, const bt_plan *plan, const bt_machine *machine,
                           bt_text *out) {
    if (!plan->wishes.mlock || (plan->verdict == BT_REFUSED && !plan->forced)) return;
    uint64_t need_bytes = bt_report_lockable_bytes(plan);
    bool is_here = !options->machine_file && !options->root[0];
    /* A process with CAP_IPC_LOCK may pass the limit, but not in every container: only trying says it. */
    int may = is_here ? bt_os_may_lock(need_bytes) : -ENOSYS;
    bool fits = !machine->memlock_bytes.known || need_bytes <= machine->memlock_bytes.value;
    bt_report_lock_text(plan, may < 0 ? fits : may == 1, machine->memlock_bytes, out);
}
