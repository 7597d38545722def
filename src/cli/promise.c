/* SPDX-License-Identifier: MIT
 *
 * promise.c: budgets beside each other (docs/decisions/008). A plan is made for what others have promised by then; when
 * more is promised by the time that it is promised itself, it is held against what is left now. */
#include "cli/promise.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "plan/plan.h"
#include "probe/probe.h"
#include "probe/reservations.h"

bt_status bt_promise_make(const bt_cli_options *options, const bt_plan *plan, const bt_machine *machine,
                          bool *ret_again, bt_error *err) {
    bool is_settled = options->machine_file || options->root[0] || plan->verdict == BT_REFUSED; /* forced */
    uint64_t seen_bytes = is_settled ? UINT64_MAX : machine->promised_bytes;
    *ret_again = false;
    for (;;) {
        bool promised = false;
        bt_error why = {0};
        if (bt_reservation_make(options->command, plan->planned_bytes, seen_bytes, &promised, &why) != BT_OK) {
            bt_log(BT_LOG_INFO, "other runs on this host cannot see this one: %s", why.text);
            return BT_OK;
        }
        if (promised) return BT_OK;
        bt_machine *now = bt_heap_alloc(sizeof *now);
        if (!now) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
        bt_status status = bt_machine_probe(options->root, now, err);
        seen_bytes = now->promised_bytes;
        *ret_again = plan->planned_bytes > bt_budget_resolve(now, &options->wishes).bytes;
        bt_heap_free(now);
        if (status != BT_OK || *ret_again) return status;
    }
}

bt_status bt_promise_crowded(const bt_plan *plan, bt_error *err) {
    return bt_fail(err, BT_E_BUDGET, "reservations", BT_MEASURE_BYTES, plan->planned_bytes, 0,
                   "other runs that start now take the memory each time before this one; try again");
}
