/* SPDX-License-Identifier: MIT
 *
 * drafting.c: what the options mean for guesses.
 *
 *   --speculate      draft model named                     none named
 *   off              left out, said                        no guesses
 *   ngram            left out, said                        looked up
 *   draft            loaded                                (a usage error: options.c)
 *   auto             loaded where weights stream, and      looked up where weights stream
 *                    fewer would with it
 *
 * A draft that is left out is not priced either; which it is, is always said. */
#include "cli/drafting.h"

#include "base/error.h"
#include "engine/speculate.h"
#include "plan/companions.h"
#include "plan/costs.h"

#include <string.h>

const char *bt_drafting_obstacle(const bt_wishes *wishes, const bt_facts *facts) {
    if (wishes->guest) return NULL; /* it checks its guesses itself, in its own way */
    if (wishes->n_parallel > 1) return "guesses are for one sequence (-np 1)";
    if (wishes->flash_attn == BT_OFF) return "guesses need flash attention (-fa)";
    if (wishes->n_ubatch > 0 && wishes->n_ubatch <= BT_DRAFT_MAX)
        return "the micro-batch is too small for guesses (-ub)";
    if (wishes->n_batch > 0 && wishes->n_batch <= BT_DRAFT_MAX) return "the batch is too small for guesses (-b)";
    if (wishes->repack == BT_ON) return "guesses are not made beside a second layout (--repack on)";
    if (facts->split.n_devices > 0) return "what a device computes depends on how many tokens it is given at once";
    if (facts->n_expert > 0) return "guesses are not made for a mixture of experts";
    if (bt_kv_state_bytes(facts, 1) > 0) return "the model's state cannot go back";
    return NULL;
}

bool bt_drafting_is_wanted(const bt_cli_options *options) {
    bt_speculate how = options->wishes.speculate;
    return options->draft_file && (how == BT_SPECULATE_AUTO || how == BT_SPECULATE_DRAFT);
}

static bt_status check(const bt_facts *facts, const bt_facts *draft, bt_error *err) {
    BT_TRY(bt_companion_draft_check(facts, draft, err));
    if (draft->n_expert_blocks > 0)
        return bt_fail(err, BT_E_UNSUPPORTED, "draft_experts", BT_MEASURE_NONE, 0, 0,
                       "%.200s cannot be a draft: a mixture of experts is not held as a whole", draft->path);
    if (!draft->encoder && bt_kv_state_bytes(draft, 1) == 0) return BT_OK;
    return bt_fail(err, BT_E_UNSUPPORTED, "draft_state", BT_MEASURE_NONE, 0, 0,
                   "%.200s cannot be a draft: a %.40s model does not take tokens back", draft->path, draft->arch);
}

bt_status bt_drafting_open(const char *path, const bt_facts *facts, bt_facts **ret_draft, bt_error *err) {
    bt_facts *draft = NULL;
    BT_TRY(bt_facts_open(path, &draft, err));
    bt_status status = check(facts, draft, err);
    if (status == BT_OK)
        *ret_draft = draft;
    else
        bt_facts_close(draft);
    return status;
}

static const char *why_left_out(const bt_cli_options *options, const bt_facts *facts, const bt_plan *plan) {
    if (!bt_drafting_is_wanted(options))
        return options->wishes.speculate == BT_SPECULATE_OFF ? "--speculate off" : "--speculate ngram";
    const char *obstacle = bt_drafting_obstacle(&options->wishes, facts);
    if (obstacle) return obstacle;
    if (plan->draft.file[0] == '\0' && options->plan_file) return "the plan has none";
    if (plan->draft.file[0] == '\0' && plan->verdict == BT_STREAMS)
        return "its memory is worth more to weights (--speculate draft loads it all the same)";
    if (plan->draft.file[0] == '\0') return "nothing streams (--speculate draft loads it all the same)";
    return plan->priced_by_dry_run ? "the plan has no room for guesses" : "the plan was made without --exact";
}

void bt_drafting_text(const bt_cli_options *options, const bt_facts *facts, const bt_plan *plan, bt_text *out) {
    bool is_planned = plan->draft.file[0] != '\0';
    bool is_priced_only = is_planned && !plan->priced_by_dry_run && !options->plan_file;
    if (!options->draft_file || (plan->verdict == BT_REFUSED && !plan->forced)) return;
    if ((is_planned && plan->n_draft > 0) || is_priced_only) return;
    bt_text_add(out, "The draft model ");
    bt_text_add_escaped(out, options->draft_file, strlen(options->draft_file));
    bt_text_addf(out, " is left out: %s.\n", why_left_out(options, facts, plan));
}

bt_status bt_drafting_facts(const bt_cli_options *options, const bt_facts *facts, const bt_plan *plan,
                            bt_facts **ret_facts, bt_error *err) {
    *ret_facts = NULL;
    if (plan->n_draft == 0 || plan->draft.file[0] == '\0') return BT_OK;
    if (!options->draft_file)
        return bt_fail(err, BT_E_ARG, "draft_missing", BT_MEASURE_NONE, 0, 0,
                       "the plan has the draft model %.200s: say where it is, with --draft", plan->draft.file);
    bt_facts *draft = NULL;
    BT_TRY(bt_drafting_open(options->draft_file, facts, &draft, err));
    if (strcmp(draft->header_sha256, plan->draft.header_sha256) != 0) {
        bt_facts_close(draft);
        return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_NONE, 0, 0,
                       "the draft model %.200s is not the one that was planned for", options->draft_file);
    }
    *ret_facts = draft;
    return BT_OK;
}
