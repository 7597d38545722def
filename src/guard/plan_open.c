/* SPDX-License-Identifier: MIT
 *
 * plan_open.c: a plan for programs of others (burthen.h), which know no arena: by formula, and for the host alone.
 *
 * A plan and the arena that it lies in are one object, of which the caller sees the plan. Bound: ARENA_MAX_BYTES. Left
 * out: devices, a draft, a projector and dry runs, which are the program's (src/cli/planning.c). */
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "guard/problem.h"

#include <inttypes.h>

#define ARENA_MAX_BYTES (256u << 20) /* units of a large model, and the search's tables */
#define ARENA_BLOCK     (64u << 10)
#define TYPE_F16        1u /* ggml's number */

typedef struct opened {
    bt_plan plan; /* first: what the caller holds is this */
    bt_arena *arena;
} opened;

bt_wishes bt_wishes_default(void) {
    return (bt_wishes){.type_k = TYPE_F16, .type_v = TYPE_F16};
}

/* What the command line's own bounds keep out there: counts that a search would go through, indices of tables. */
static bt_status check_wishes(const bt_wishes *w, const bt_machine *machine, bt_error *err) {
    const struct {
        const char *name;
        uint64_t value, max;
    } rows[] = {
        {"budget_kind", (uint64_t)w->budget_kind, BT_BUDGET_OFF},
        {"n_ctx", w->n_ctx, BT_WISH_CTX_MAX},
        {"n_parallel", w->n_parallel, BT_WISH_PARALLEL_MAX},
        {"n_batch", w->n_batch, BT_WISH_CTX_MAX},
        {"n_ubatch", w->n_ubatch, BT_WISH_CTX_MAX},
        {"n_outputs", w->n_outputs, BT_WISH_CTX_MAX},
        {"n_draft", w->n_draft, BT_WISH_CTX_MAX},
        {"yarn_orig_ctx", w->yarn_orig_ctx, BT_WISH_CTX_MAX},
        {"n_threads", w->n_threads, BT_WISH_THREADS_MAX},
        {"n_buffers", w->n_buffers, BT_WISH_BUFFERS_MAX},
        {"flash_attn", (uint64_t)w->flash_attn, BT_OFF},
        {"stream_head", (uint64_t)w->stream_head, BT_OFF},
        {"elastic", (uint64_t)w->elastic, BT_OFF},
        {"repack", (uint64_t)w->repack, BT_OFF},
        {"speculate", (uint64_t)w->speculate, BT_SPECULATE_DRAFT},
        {"policy", (uint64_t)w->policy, BT_POLICY_SPEED},
        {"io", (uint64_t)w->io, BT_IO_BUFFERED},
        {"rope_scaling", (uint64_t)w->rope_scaling, BT_ROPE_YARN},
        {"gpu_layers", (uint64_t)w->gpu_layers, BT_LAYERS_COUNT},
        {"cpu_moe", (uint64_t)w->cpu_moe, BT_LAYERS_COUNT},
        {"n_devices", w->n_devices, BT_DEVICE_MAX},
        {"n_tensor_splits", w->n_tensor_splits, BT_DEVICE_MAX},
        {"a machine's n_pools", machine->n_pools, BT_POOL_MAX},
        {"a machine's n_threads", machine->n_threads, BT_WISH_THREADS_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value > rows[i].max)
            return bt_fail(err, BT_E_ARG, "wishes", BT_MEASURE_ITEMS, rows[i].value, rows[i].max,
                           "%s is %" PRIu64 ", and at most %" PRIu64, rows[i].name, rows[i].value, rows[i].max);
    return BT_OK;
}

static bt_status plan_into(opened *o, const bt_facts *facts, const bt_machine *machine, const bt_wishes *wishes,
                           bt_error *err) {
    BT_TRY(check_wishes(wishes, machine, err));
    const bt_wishes all = bt_problem_wishes(wishes, machine);
    bt_problem problem;
    bt_choices choices;
    bt_budget *budget = NULL;
    BT_TRY(bt_problem_make(facts, machine, &all, bt_os_cpu_has_avx2(), o->arena, &problem, &choices, &budget, err));
    BT_TRY(bt_plan_make(&problem, o->arena, &o->plan, err));
    o->plan.disk = machine->disk;
    o->plan.disk_bytes_per_s = machine->disk_bytes_per_s;
    o->plan.wishes = *wishes; /* as asked; plan.n_threads is what was made of it */
    o->plan.page_cache = bt_plan_has_page_cache(&o->plan, machine);
    return BT_OK;
}

bt_status bt_plan_open(const bt_facts *facts, const bt_machine *machine, const bt_wishes *wishes, bt_plan **ret_plan,
                       bt_error *err) {
    opened *o = bt_heap_alloc(sizeof *o);
    if (o) o->arena = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK);
    bt_status status = o && o->arena
                           ? plan_into(o, facts, machine, wishes, err)
                           : bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    if (status == BT_OK)
        *ret_plan = &o->plan;
    else if (o)
        bt_plan_close(&o->plan);
    return status;
}

void bt_plan_close(bt_plan *plan) {
    if (!plan) return;
    opened *o = (opened *)plan; /* its first member */
    bt_arena_close(o->arena);
    bt_heap_free(o);
}
