/* SPDX-License-Identifier: MIT
 * planning.c: the steps from options to a plan.
 *
 *   options -> machine (probe, or a file) ---.
 *   model   -> facts                          +-> budget, units, prices -> bt_plan_make -> plan
 *   options -> wishes (threads filled in) ---'
 *
 * All the deciding is in src/plan; here is only who is asked in which order, and what a file from outside is allowed to
 * be. Bounds: files at most BT_JSON_IN_MAX_BYTES, memory the caller's arena. */
#include "cli/planning.h"
#include "base/error.h"
#include "base/os.h"
#include "base/output.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/drafting.h"
#include "engine/devices.h"
#include "engine/exact.h"
#include "engine/rpc.h"
#include "engine/speculate.h"
#include "engine/speed.h"
#include "guard/base_costs.h"
#include "guard/problem.h"
#include "model/projector.h"
#include "model/types.h"
#include "plan/choices.h"
#include "plan/companions.h"
#include "plan/costs.h"
#include "plan/offload.h"
#include "plan/plan.h"
#include "probe/disk.h"
#include "probe/probe.h"
#include "report/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bt_status bt_cli_read_file(const char *path, bt_text *text, bt_error *err) {
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file) return bt_fail_sys(err, errno, "file", "cannot open %s", path);
    char buffer[4096]; /* a page */
    size_t n = 0;
    int sys = 0;
    errno = 0;
    do {
        n = fread(buffer, 1, sizeof buffer, file);
        bt_text_add_n(text, buffer, n);
    } while (!text->failed && n == sizeof buffer); /* less only at the end, or after an error */
    if (ferror(file)) sys = errno ? errno : EIO;
    if (!standard) (void)fclose(file); /* only read */
    if (sys) return bt_fail_sys(err, sys, "file", "cannot read %s", path);
    BT_TRY(bt_text_memory(text, err));
    if (text->failed) {
        return bt_fail(err, BT_E_ARG, "file", BT_MEASURE_BYTES, 0, text->max_bytes, "%s is larger than %s", path,
                       BT_SIZE(text->max_bytes));
    }
    return BT_OK;
}

/* What is written when a run ends. A session and a plot are written aside and renamed. */
bt_status bt_cli_check_outputs(const bt_cli_options *options, bt_error *err) {
    const struct {
        const char *path, *code, *what;
        bool replaces;
    } outputs[] = {{options->session_file, "session_write", "session", true},
                   {options->plot_file, "plot_file", "plot", true},
                   {options->stats_file, "stats_file", "statistics", false}};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        int rc = outputs[i].path ? bt_output_check(outputs[i].path, outputs[i].replaces) : 0;
        if (rc != 0)
            return bt_fail_sys(err, -rc, outputs[i].code, "cannot write the %s to %s", outputs[i].what,
                               outputs[i].path);
    }
    return BT_OK;
}

/* This machine, with the devices that llama.cpp can use on it; a recorded one has those that its files tell of. */
static bt_status probe(const bt_cli_options *options, bt_machine *ret_machine, bt_error *err) {
    BT_TRY(bt_machine_probe(options->root, ret_machine, err));
    if (options->root[0]) return BT_OK;
    BT_TRY(bt_devices_init(err));
    if (options->n_rpc > 0) bt_cli_catch_aborts(); /* where a worker dies while it is asked */
    for (uint32_t i = 0; i < options->n_rpc; i++)
        BT_TRY(bt_rpc_add(options->rpc[i], err));
    bt_devices_read(ret_machine);
    return BT_OK;
}

bt_status bt_planning_machine(const bt_cli_options *options, bt_machine *ret_machine, bt_error *err) {
    if (!options->machine_file) return probe(options, ret_machine, err);
    bt_text text;
    bt_text_init(&text, BT_JSON_IN_MAX_BYTES);
    bt_error why = {0};
    bt_status status = bt_cli_read_file(options->machine_file, &text, &why);
    if (status == BT_OK) status = bt_machine_from_json(bt_text_str(&text), text.n_bytes, ret_machine, &why);
    bt_text_done(&text);
    if (status == BT_OK || status == BT_E_NOMEM) {
        if (err && status != BT_OK) *err = why;
        return status;
    }
    return bt_fail(err, BT_E_ARG, "machine", BT_MEASURE_NONE, 0, 0, "--machine %s: %s", options->machine_file,
                   why.text);
}

bt_status bt_planning_all_pools(const bt_cli_options *options, bt_machine *ret_machine, bt_error *err) {
    BT_TRY(bt_planning_machine(options, ret_machine, err));
    return options->machine_file ? BT_OK : bt_machine_devices_probe(options->root, ret_machine, err);
}

/* ---- what stands beside the model ---- */

static void name_companion(const char *path, bt_companion *ret) {
    (void)snprintf(ret->file, sizeof ret->file, "%s", bt_path_file(path));
}

static bt_status add_draft(const bt_facts *facts, const bt_facts *draft, const bt_problem *problem, bt_choices *choices,
                           bt_companion *ret, bt_error *err) {
    const bt_base_costs base = bt_base_costs_of(draft);
    BT_TRY(bt_companion_draft_check(facts, draft, err));
    for (uint32_t i = 0; i < choices->n_all; i++)
        BT_TRY(bt_companion_draft_add(facts, draft, &problem->wishes, &base, &choices->costs[i], err));
    name_companion(draft->path, ret);
    ret->weight_bytes = draft->weight_bytes;
    ret->file_bytes = draft->file_bytes;
    memcpy(ret->header_sha256, draft->header_sha256, sizeof ret->header_sha256);
    return BT_OK;
}

static bt_status add_mmproj(const bt_facts *facts, const bt_projector *projector, uint32_t n_tokens,
                            const bt_problem *problem, bt_choices *choices, bt_companion *ret, bt_error *err) {
    const bt_encode_ask ask = {.n_embd = facts->n_embd,
                               .n_tokens_max = n_tokens,
                               .n_threads = problem->wishes.n_threads,
                               .flash_off = problem->wishes.flash_attn == BT_OFF};
    for (uint32_t i = 0; i < choices->n_all; i++)
        BT_TRY(bt_companion_mmproj_add(projector, &ask, &choices->costs[i], err));
    name_companion(projector->path, ret);
    ret->weight_bytes = projector->weight_bytes;
    ret->file_bytes = projector->file_bytes;
    memcpy(ret->header_sha256, projector->header_sha256, sizeof ret->header_sha256);
    return BT_OK;
}

/* Prices of the draft model, if any, and of the projector that was named, added to the model's. */
static bt_status add_companions(const bt_cli_options *options, const bt_facts *facts, const bt_facts *draft,
                                bt_arena *arena, bt_choices *choices, bt_problem *problem, bt_error *err) {
    bt_companion *companions = bt_arena_array(arena, 2, sizeof *companions);
    if (!companions) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    if (draft) {
        BT_TRY(add_draft(facts, draft, problem, choices, &companions[0], err));
        problem->draft = &companions[0];
    }
    if (options->mmproj_file) {
        bt_projector *projector = NULL;
        BT_TRY(bt_projector_open(options->mmproj_file, &projector, err));
        bt_status status = add_mmproj(facts, projector, options->n_image_tokens, problem, choices, &companions[1], err);
        bt_projector_close(projector);
        if (status != BT_OK) return status;
        problem->mmproj = &companions[1];
    }
    return BT_OK;
}

/* A device in the host's own memory: one pool, two lists of lines. */
void bt_planning_share_budget(const bt_offload *offload, bt_budget *budget) {
    uint64_t shared_bytes = bt_offload_shared_bytes(offload);
    if (shared_bytes == 0 || budget->bytes == UINT64_MAX) return;
    budget->bytes = bt_sat_sub_u64(budget->bytes, shared_bytes);
    size_t n = strlen(budget->source);
    (void)snprintf(budget->source + n, sizeof budget->source - n, ", less %s of devices that share it",
                   BT_SIZE(shared_bytes));
}

/* What there is to decide, priced by formula. Guesses by a draft model are not made beside a second layout. */
static bt_status make_problem(const bt_cli_options *options, const bt_placed *placed, const bt_facts *draft,
                              const bt_machine *machine, bt_arena *arena, bt_problem *ret_problem, bt_error *err) {
    const bt_facts *facts = placed->facts;
    bt_wishes wishes = bt_problem_wishes(&options->wishes, machine);
    if (draft && options->wishes.repack == BT_AUTO) wishes.repack = BT_OFF;
    bt_choices choices;
    bt_budget *budget = NULL;
    /* What the processor of another machine knows, its file does not say. */
    bool repacks = !options->machine_file && bt_os_cpu_has_avx2();
    BT_TRY(bt_problem_make(facts, machine, &wishes, repacks, arena, ret_problem, &choices, &budget, err));
    bt_planning_share_budget(placed->offload, budget);
    ret_problem->budget_bytes = budget->bytes;
    return add_companions(options, facts, draft, arena, &choices, ret_problem, err);
}

/* Facts of the draft model that is wanted; NULL: none is. */
static bt_status open_draft(const bt_cli_options *options, const bt_facts *facts, bt_facts **ret_draft, bt_error *err) {
    *ret_draft = NULL;
    if (!bt_drafting_is_wanted(options)) return BT_OK;
    return bt_drafting_open(options->draft_file, facts, ret_draft, err);
}

/* Where a plan is refused with a draft model and not without, that is a change like any other. */
static void suggest_no_draft(const bt_plan *without, bt_plan *plan) {
    bt_refusal *refusal = &plan->refusal;
    if (plan->verdict != BT_REFUSED || without->verdict == BT_REFUSED || refusal->n_changes == BT_CHANGE_MAX) return;
    refusal->changes[refusal->n_changes++] =
        (bt_change){"--speculate", "off", without->ladder[BT_RUNG_MINIMUM].budget_bytes};
}

/* The disk of the model's file, and what is remembered of it. */
void bt_planning_look_at_disk(const bt_cli_options *options, const bt_facts *facts, bt_machine *machine) {
    if (options->machine_file || options->root[0]) return;
    bt_disk_find("", facts->shards[0].path, &machine->disk);
    (void)bt_disk_recall(&machine->disk);
    bt_disk_apply(machine);
}

/* What the machine adds to a plan that was found. */
static void add_machine(const bt_cli_options *options, const bt_machine *machine, bt_plan *plan) {
    plan->disk = machine->disk;
    plan->disk_bytes_per_s = machine->disk_bytes_per_s;
    plan->wishes = options->wishes; /* as asked; plan.n_threads is what was made of it */
    plan->page_cache = bt_plan_has_page_cache(plan, machine);
}

static bt_status make_by_formula(const bt_cli_options *options, const bt_placed *placed, const bt_facts *draft,
                                 const bt_machine *machine, bt_arena *arena, bt_plan *ret_plan, bt_error *err) {
    bt_problem problem = {0};
    BT_TRY(make_problem(options, placed, draft, machine, arena, &problem, err));
    return bt_plan_make(&problem, arena, ret_plan, err);
}

bt_status bt_planning_make(const bt_cli_options *options, const bt_facts *facts, bt_machine *machine, bt_arena *arena,
                           bt_placed *ret_placed, bt_plan *ret_plan, bt_error *err) {
    bt_plan plan = {0};
    bt_plan without = {0};
    bt_placed placed = {0};
    bt_facts *draft = NULL;
    bt_planning_look_at_disk(options, facts, machine);
    BT_TRY(open_draft(options, facts, &draft, err));
    bt_status status = bt_placing_make(options, facts, machine, arena, &placed, err);
    if (status == BT_OK) status = make_by_formula(options, &placed, draft, machine, arena, &plan, err);
    if (status == BT_OK && draft && plan.verdict == BT_REFUSED)
        status = make_by_formula(options, &placed, NULL, machine, arena, &without, err);
    if (status == BT_OK && draft) suggest_no_draft(&without, &plan);
    bt_facts_close(draft);
    if (status != BT_OK) {
        bt_placed_close(&placed);
        return status;
    }
    add_machine(options, machine, &plan);
    bt_placing_add(&placed, &plan);
    *ret_placed = placed;
    *ret_plan = plan;
    return BT_OK;
}

uint32_t bt_planning_one_row(uint32_t n_ctx, uint32_t n_ubatch) {
    (void)n_ctx;
    (void)n_ubatch;
    return 1;
}

/* ---- guesses ---- */

static uint32_t draft_rows(uint32_t n_ctx, uint32_t n_ubatch) {
    (void)n_ctx;
    (void)n_ubatch;
    return BT_DRAFT_MAX + 1;
}

static uint32_t n_guesses(const bt_wishes *wishes) {
    return wishes->n_draft > 0 ? wishes->n_draft : BT_DRAFT_MAX;
}

/* Guesses can be verified to the bit under a plan that runs. */
static bool can_verify(const bt_wishes *wishes, const bt_facts *facts, const bt_plan *plan) {
    bool runs = plan->verdict == BT_STREAMS || plan->verdict == BT_FITS || plan->forced;
    return runs && !bt_drafting_obstacle(wishes, facts) && plan->n_parallel == 1 && plan->n_ubatch > BT_DRAFT_MAX &&
           plan->layouts.n_second == 0 && plan->layouts.n_replaced == 0;
}

/* Guesses that cost rows of logits and nothing else are wanted. */
static bool may_look_up(const bt_wishes *wishes, const bt_facts *facts, const bt_plan *plan) {
    bool streams = plan->verdict == BT_STREAMS;
    bool wanted = wishes->speculate == BT_SPECULATE_NGRAM || (wishes->speculate == BT_SPECULATE_AUTO && streams);
    return wanted && plan->verdict != BT_REFUSED && can_verify(wishes, facts, plan);
}

static bool same_shape(const bt_plan *a, const bt_plan *b) {
    return a->verdict == b->verdict && a->n_ctx == b->n_ctx && a->n_ubatch == b->n_ubatch && a->type_k == b->type_k &&
           a->type_v == b->type_v && a->n_slots == b->n_slots && a->head_resident == b->head_resident &&
           a->layouts.n_replaced == b->layouts.n_replaced && a->layouts.second_bytes == b->layouts.second_bytes;
}

/* Logits for guesses are bought with pins, never with context, overlap or anything else of the plan's shape. What is
 * printed as the minimum has no room for them. */
static void add_guesses(const bt_wishes *wishes, const bt_plan *with, bt_plan *plan) {
    if (!same_shape(with, plan)) return;
    bt_rung ladder[BT_RUNG_COUNT];
    memcpy(ladder, plan->ladder, sizeof ladder);
    *plan = *with;
    memcpy(plan->ladder, ladder, sizeof ladder);
    plan->n_draft = n_guesses(wishes);
}

/* A draft takes the place of pins. It is worth it where, with half of its guesses right, fewer bytes are read for a
 * token; small models of a family do about that (Leviathan, Kalman, Matias 2023, table 3: acceptance of 0.5 to 0.9, so
 * 2 to 5 of 6). How it is, the loop finds out. */
static bool reads_less(const bt_plan *with, const bt_plan *without) {
    if (with->verdict != BT_STREAMS || without->verdict != BT_STREAMS) return true;
    uint64_t tokens = 1 + with->n_draft / 2;
    return with->read_bytes_per_pass / tokens < without->read_bytes_per_pass;
}

/* What results depend on to the last digit (docs/interfaces.md, "Identity"). */
static bool same_results(const bt_plan *a, const bt_plan *b) {
    return a->n_ctx == b->n_ctx && a->n_ubatch == b->n_ubatch && a->type_k == b->type_k && a->type_v == b->type_v;
}

static bt_status plan_with_draft(const bt_cli_options *options, const bt_placed *placed, const bt_machine *machine,
                                 const bt_exact_ask *ask, bt_arena *arena, bt_plan *ret_plan, bt_error *err) {
    bt_problem problem = {0};
    BT_TRY(make_problem(options, placed, ask->draft, machine, arena, &problem, err));
    BT_TRY(bt_exact_plan(ask, &problem, arena, ret_plan, err));
    if (can_verify(&problem.wishes, ask->facts, ret_plan)) ret_plan->n_draft = n_guesses(&problem.wishes);
    return BT_OK;
}

/* The same, but with what was left open as the plan without a draft has it: then the text is that one's, too. Where
 * that does not run, nothing changes. */
static bt_status keep_results(const bt_cli_options *options, const bt_placed *placed, const bt_machine *machine,
                              const bt_exact_ask *ask, const bt_plan *without, bt_arena *arena, bt_plan *plan,
                              bt_error *err) {
    if (without->verdict == BT_REFUSED || plan->verdict == BT_REFUSED || same_results(plan, without)) return BT_OK;
    bt_cli_options fixed = *options;
    fixed.wishes.n_ctx = without->n_ctx;
    fixed.wishes.allow_ctx_reduction = false;
    fixed.wishes.n_ubatch = without->n_ubatch;
    fixed.wishes.type_k = without->type_k;
    fixed.wishes.type_v = without->type_v;
    bt_plan found = {0};
    BT_TRY(plan_with_draft(&fixed, placed, machine, ask, arena, &found, err));
    if (found.verdict == BT_REFUSED) return BT_OK;
    found.exact = without->exact;
    found.n_ctx_requested = without->n_ctx_requested;
    memcpy(found.ctx_reason, without->ctx_reason, sizeof found.ctx_reason);
    memcpy(found.ladder, plan->ladder, sizeof found.ladder);
    *plan = found;
    return BT_OK;
}

/* The plan with a draft model, in place of the one without. Who names a draft pays for it with whatever the plan has:
 * its minimum holds the draft, and the rows of logits. */
static bt_status add_draft_model(const bt_cli_options *options, const bt_placed *placed, const bt_facts *draft,
                                 const bt_machine *machine, const bt_exact_ask *ask, bt_arena *arena, bt_plan *plan,
                                 bt_error *err) {
    const bt_wishes its = bt_exact_draft_wishes(&options->wishes);
    bt_exact_ask with = *ask;
    with.outputs = draft_rows;
    with.draft = draft;
    with.draft_cache = bt_price_cache_open(draft, &its, ask->n_threads, arena);
    bt_plan found = {0};
    BT_TRY(plan_with_draft(options, placed, machine, &with, arena, &found, err));
    BT_TRY(keep_results(options, placed, machine, &with, plan, arena, &found, err));
    suggest_no_draft(plan, &found);
    if (options->wishes.speculate == BT_SPECULATE_DRAFT || reads_less(&found, plan)) *plan = found;
    return BT_OK;
}

/* A draft model is worth its memory where weights stream, or where it was asked for by name. */
static bool wants_draft_model(const bt_wishes *wishes, const bt_facts *facts, const bt_plan *plan) {
    if (bt_drafting_obstacle(wishes, facts)) return false;
    return wishes->speculate == BT_SPECULATE_DRAFT || plan->verdict != BT_FITS;
}

static bt_status make_exact(const bt_cli_options *options, const bt_placed *placed, const bt_facts *draft,
                            const bt_machine *machine, uint64_t base_bytes, bt_outputs_fn outputs, bt_arena *arena,
                            bt_price *ret_price, bt_plan *ret_plan, bt_error *err) {
    bt_problem problem = {0};
    const bt_facts *facts = placed->facts;
    BT_TRY(make_problem(options, placed, NULL, machine, arena, &problem, err));
    const bt_wishes *wishes = &problem.wishes;
    bt_exact_ask ask = {.facts = facts,
                        .base_bytes = base_bytes,
                        .n_threads = wishes->n_threads,
                        .outputs = outputs,
                        .cache = bt_price_cache_open(facts, wishes, wishes->n_threads, arena),
                        .ret_price = ret_price};
    BT_TRY(bt_exact_plan(&ask, &problem, arena, ret_plan, err));
    if (outputs != bt_planning_one_row) return BT_OK;
    if (draft && wants_draft_model(wishes, facts, ret_plan))
        BT_TRY(add_draft_model(options, placed, draft, machine, &ask, arena, ret_plan, err));
    if (ret_plan->draft.file[0] || !may_look_up(wishes, facts, ret_plan)) return BT_OK;
    bt_plan with = {0};
    ask.outputs = draft_rows;
    BT_TRY(bt_exact_plan(&ask, &problem, arena, &with, err));
    add_guesses(wishes, &with, ret_plan);
    return BT_OK;
}

/* Devices are placed by formula, then by what the dry run says. What is held in the end was measured: blocks that came
 * to a device by its first word go again where the next one says that they do not fit. */
static bt_status place_exact(const bt_cli_options *options, const bt_facts *draft, const bt_machine *machine,
                             uint64_t base_bytes, bt_outputs_fn outputs, bt_arena *arena, bt_placed *placed,
                             bt_plan *ret_plan, bt_error *err) {
    bt_price price = {0};
    bool again = true;
    for (uint32_t i = 0; again; i++) {
        BT_TRY(make_exact(options, placed, draft, machine, base_bytes, outputs, arena, &price, ret_plan, err));
        BT_TRY(bt_placing_check(options, machine, &price, i == 0, arena, placed, &again, err));
    }
    return BT_OK;
}

bt_status bt_planning_exact(const bt_cli_options *options, const bt_facts *facts, bt_machine *machine,
                            uint64_t base_bytes, bt_outputs_fn outputs, bt_arena *arena, bt_placed *ret_placed,
                            bt_plan *ret_plan, bt_error *err) {
    bt_placed placed = {0};
    bt_facts *draft = NULL;
    bt_plan *plan = bt_arena_alloc(arena, sizeof *plan); /* large for a stack that holds others */
    if (!plan) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    BT_TRY(open_draft(options, facts, &draft, err));
    bt_planning_look_at_disk(options, facts, machine);
    if (!options->machine_file)
        bt_speed_measure(facts, bt_problem_wishes(&options->wishes, machine).n_threads, machine);
    bt_status status = bt_placing_make(options, facts, machine, arena, &placed, err);
    if (status == BT_OK) status = place_exact(options, draft, machine, base_bytes, outputs, arena, &placed, plan, err);
    bt_facts_close(draft);
    if (status != BT_OK) {
        bt_placed_close(&placed);
        return status;
    }
    add_machine(options, machine, plan);
    bt_placing_add(&placed, plan);
    *ret_placed = placed;
    *ret_plan = *plan;
    return BT_OK;
}
