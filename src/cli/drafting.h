/* SPDX-License-Identifier: MIT
 * drafting.h: what the options mean for guesses: whether they can be verified, and whether a draft model makes them. */
#pragma once

#include "base/text.h"
#include "cli/options.h"

/* Why guesses cannot be verified to the bit (engine/session.h, bt_session_verify) under these wishes; NULL: they can.
 */
const char *bt_drafting_obstacle(const bt_wishes *wishes, const bt_facts *facts);
/* A draft model is named, and nothing that was asked for speaks against it. */
bool bt_drafting_is_wanted(const bt_cli_options *options);
/* Facts of a draft model that can guess for this one: BT_E_ARG, code "draft_vocab"; BT_E_UNSUPPORTED, codes
 * "draft_state" and "draft_experts"; and as bt_facts_open. */
BT_MUST_CHECK bt_status bt_drafting_open(const char *path, const bt_facts *facts, bt_facts **ret_draft, bt_error *err);
/* A draft model is named and the plan has none that would run: a line that says why. Else nothing. */
void bt_drafting_text(const bt_cli_options *options, const bt_facts *facts, const bt_plan *plan, bt_text *out);
/* Facts of the draft that the plan has, if it is to run; NULL: it has none. BT_E_ARG, code "draft_missing", when the
 * options do not name its file; BT_E_STALE, code "plan_stale", when that is another one; as bt_facts_open and
 * bt_drafting_open fail. */
BT_MUST_CHECK bt_status bt_drafting_facts(const bt_cli_options *options, const bt_facts *facts, const bt_plan *plan,
                                          bt_facts **ret_facts, bt_error *err);
