/* SPDX-License-Identifier: MIT
 * planning.h: from options to a plan: what `plan`, `run`, `bench` and `perplexity` share. */
#pragma once

#include "base/arena.h"
#include "cli/options.h"
#include "cli/placing.h"
#include "engine/exact.h"
#include "plan/plan.h"

/* Largest arena that planning needs: 65,536 units of some tens of bytes, and the search's tables. */
#define BT_PLANNING_ARENA_BYTES (256u << 20)

/* The machine to plan for: this one, or that of --machine. BT_E_ARG for a file that is none. */
BT_MUST_CHECK bt_status bt_planning_machine(const bt_cli_options *options, bt_machine *ret_machine, bt_error *err);
/* The same, with the devices beside the host. */
BT_MUST_CHECK bt_status bt_planning_all_pools(const bt_cli_options *options, bt_machine *ret_machine, bt_error *err);
/* All three say which of the model stands on devices: what is left are the facts to load with, which the caller closes.
 * Price by formula, then decide. A refusal is BT_OK and a verdict in the plan. A draft model that is wanted is priced
 * whether it would be loaded or not. */
BT_MUST_CHECK bt_status bt_planning_make(const bt_cli_options *options, const bt_facts *facts, bt_machine *machine,
                                         bt_arena *arena, bt_placed *ret_placed, bt_plan *ret_plan, bt_error *err);
/* Rows of logits that generation needs: one of each sequence, which libllama keeps in any case; where tokens are
 * guessed, the plan has more (n_draft). */
uint32_t bt_planning_one_row(uint32_t n_ctx, uint32_t n_ubatch);
/* Price by dry run, then decide. base_bytes: what this process holds before a model is opened; outputs: rows of logits
 * the command needs. Speeds that the machine does not know are measured and put there, unless it came from a file. A
 * draft model is in the plan where it will be loaded: where weights stream without it, or it was asked for by name. */
BT_MUST_CHECK bt_status bt_planning_exact(const bt_cli_options *options, const bt_facts *facts, bt_machine *machine,
                                          uint64_t base_bytes, bt_outputs_fn outputs, bt_arena *arena,
                                          bt_placed *ret_placed, bt_plan *ret_plan, bt_error *err);
/* The plan of --plan: BT_E_STALE when it was made for another model or version, or for another machine and does not fit
 * this one; BT_E_BUDGET, code "plan_room", when this one leaves less than it needs now, or a budget that was
 * asked for beside it does. */
BT_MUST_CHECK bt_status bt_planning_load(const bt_cli_options *options, const bt_facts *facts, bt_machine *machine,
                                         bt_arena *arena, bt_placed *ret_placed, bt_plan *ret_plan, bt_error *err);
/* The disk of the model's file, and what is remembered of it, into the machine. */
void bt_planning_look_at_disk(const bt_cli_options *options, const bt_facts *facts, bt_machine *machine);
/* For a plan that wishes --mlock, whether the system will allow it: tried, where the plan is for this machine. */
void bt_planning_lock_text(const bt_cli_options *options, const bt_plan *plan, const bt_machine *machine, bt_text *out);
/* A device in the host's own memory is one pool with two lists of lines: what it takes comes off the host's budget. */
void bt_planning_share_budget(const bt_offload *offload, bt_budget *budget);
/* Whether --session, --stats and --plot can be written at the end, asked before the work is done. Nothing is created.
 * BT_E_IO. */
BT_MUST_CHECK bt_status bt_cli_check_outputs(const bt_cli_options *options, bt_error *err);
/* A whole file, or standard input for "-", appended to text, whose maximum is the bound. */
BT_MUST_CHECK bt_status bt_cli_read_file(const char *path, bt_text *text, bt_error *err);
