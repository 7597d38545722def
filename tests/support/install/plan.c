/* SPDX-License-Identifier: MIT
 * plan.c: a program of somebody else's: it knows <burthen.h> and what pkg-config says. Plans a model within a RAM
 * budget, and prints what was decided. */
#include <burthen.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const bt_error *err) {
    (void)fprintf(stderr, "%s: %s\n", err->code, err->text);
    return 1;
}

static int plan_model(const bt_facts *facts, uint64_t budget_bytes) {
    static bt_machine machine; /* of some 100 KiB */
    bt_error err = {0};
    bt_plan *plan = NULL;
    bt_wishes wishes = bt_wishes_default();
    wishes.n_ctx = 512;
    wishes.budget_kind = BT_BUDGET_BYTES;
    wishes.budget_bytes = budget_bytes;
    if (bt_machine_probe("", &machine, &err) != BT_OK) return fail(&err);
    if (bt_plan_open(facts, &machine, &wishes, &plan, &err) != BT_OK) return fail(&err);
    (void)printf("%s %s %s %u %" PRIu64 " %u %u\n", BT_VERSION, facts->arch,
                 plan->verdict == BT_FITS      ? "fits"
                 : plan->verdict == BT_STREAMS ? "streams"
                                               : "refused",
                 plan->n_ctx, plan->planned_bytes, plan->n_pinned, plan->n_streamed);
    bt_plan_close(plan);
    return 0;
}

int main(int argc, char **argv) {
    bt_error err = {0};
    bt_facts *facts = NULL;
    if (argc != 3) return 2;
    if (bt_facts_open(argv[1], &facts, &err) != BT_OK) return fail(&err);
    int code = plan_model(facts, strtoull(argv[2], NULL, 10));
    bt_facts_close(facts);
    return code;
}
