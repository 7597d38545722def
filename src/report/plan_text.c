/* SPDX-License-Identifier: MIT
 * plan_text.c: a plan for a person: the two layouts of the seed, and ours below them.
 *
 *   Execution Plan            or   RAM budget impossible
 *     requested, mandatory,          requested, minimum required,
 *     peak, context, KV,             base, scratch, logits, KV, ...
 *     head, ring, pinned
 *   Ledger: every line with its bytes and where they come from, zeros too; total; budget
 *   Verdict: a sentence
 *   Ladder: what each step of memory buys, and how far the next ones are
 *   What would fit (refusals)
 *
 * The rows of the seed keep their order (research notes, seed 2, R20, R21); its "resid+attn" is part of our scratch and
 * shown so. Nothing is left out because it is 0, and every difference between what was asked and what is done has a
 * row. One screen: its length does not depend on the model. */
#include "base/size.h"
#include "model/types.h"
#include "plan/companions.h"
#include "plan/plan.h"
#include "report/json.h"
#include "report/report.h"
#include "report/text.h"

#include <inttypes.h>
#include <string.h>

#define MEGA           UINT64_C(1000000)
#define LINE_COLUMNS   13   /* a longer name takes from the column beside it */
#define DEFAULT_UBATCH 512u /* docs/interfaces.md */
#define TYPE_F16       1u
#define CHANGE_COLUMNS 24 /* "-ctk q8_0 -ctv q8_0", and the longest budgets */

static uint64_t sum_of(const bt_plan *plan, const bt_line *lines, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum = bt_sat_add_u64(sum, plan->ledger.bytes[lines[i]]);
    }
    return sum;
}

static void add_requested(bt_text *out, const bt_plan *plan, const char *label) {
    if (plan->wishes.budget_kind == BT_BUDGET_BYTES) {
        bt_row(out, label, "%s", BT_SIZE(plan->wishes.budget_bytes));
    } else {
        bt_row(out, label, "%s", plan->wishes.budget_kind == BT_BUDGET_OFF ? "no budget" : "auto");
    }
}

static void add_seed_rows(bt_text *out, const bt_plan *plan) {
    static const bt_line mandatory[] = {
        BT_LINE_BASE,           BT_LINE_VOCAB,         BT_LINE_METADATA, BT_LINE_COMPUTE,       BT_LINE_PAGETABLES,
        BT_LINE_THREADS,        BT_LINE_LOGITS,        BT_LINE_STAGING,  BT_LINE_OUTPUT_NORM,   BT_LINE_EMBEDDINGS,
        BT_LINE_DERIVED,        BT_LINE_DRAFT_WEIGHTS, BT_LINE_DRAFT_KV, BT_LINE_DRAFT_COMPUTE, BT_LINE_DRAFT_VOCAB,
        BT_LINE_MMPROJ_WEIGHTS, BT_LINE_MMPROJ_ENCODE, BT_LINE_ADAPTERS, BT_LINE_PROMPT_CACHE,  BT_LINE_CHECKPOINTS};
    bool capped = plan->n_ctx_requested > plan->n_ctx || (plan->n_ctx_requested == 0 && plan->ctx_reason[0]);
    add_requested(out, plan, "Requested RAM");
    bt_row(out, "Mandatory memory", "%s", BT_SIZE(sum_of(plan, mandatory, sizeof mandatory / sizeof *mandatory)));
    bt_row(out, "Estimated Peak", "%s", BT_SIZE(plan->planned_bytes));
    bt_row(out, "Context Window", "%u%s", plan->n_ctx, capped ? " (capped)" : "");
    if (plan->verdict == BT_VERDICT_UNKNOWN) {
        bt_row(out, "Estimated KV", "unknown");
    } else {
        bt_row(out, "Estimated KV", "%s", BT_SIZE(plan->ledger.bytes[BT_LINE_KV]));
    }
    bool away = plan->offload && plan->offload->split.head;
    bt_row(out, "LM Head Mode", "%s (%s)",
           away                  ? "on a device"
           : plan->head_resident ? "resident"
                                 : "streamed",
           BT_SIZE(plan->ledger.bytes[BT_LINE_HEAD]));
    bool ring_lowered = plan->n_slots == 1 && plan->wishes.n_buffers == 0;
    bt_row(out, "Streaming ring", "%u buffer%s (%s)%s", plan->n_slots, plan->n_slots == 1 ? "" : "s",
           BT_SIZE(plan->ledger.bytes[BT_LINE_RING]), ring_lowered ? ", a second does not fit" : "");
    bt_row(out, "Pinned units", "%u / %u (%s)", plan->n_pinned, plan->n_units, BT_SIZE(plan->pinned_bytes));
    const bt_layouts *layouts = &plan->layouts;
    if (layouts->n_replaced > 0)
        bt_row(out, "Repacked in place", "%u weights (%s), at no byte more: last digits may differ",
               layouts->n_replaced, BT_SIZE(layouts->replaced_bytes));
    if (layouts->n_second > 0)
        bt_row(out, "Second layout", "%u weights (%s) beside them, for single tokens: last digits may differ",
               layouts->n_second, BT_SIZE(layouts->second_bytes));
}

static void add_companion(bt_text *out, const char *label, const bt_companion *companion) {
    if (companion->file[0] == '\0') return;
    bt_row_escaped(out, label, companion->file);
    bt_row(out, "  its weights", "%s", BT_SIZE(companion->weight_bytes));
}

/* How many experts of a block are in memory, and whether that is less than a token uses. */
static void add_slots(bt_text *out, const bt_plan *plan, const bt_facts *facts) {
    if (plan->n_expert_slots == 0) return;
    if (plan->experts_shared) {
        bt_row(out, "Experts in memory", "%u at once, of all blocks: each is read whenever it is used",
               plan->n_expert_slots);
    } else if (plan->n_expert_slots >= facts->n_expert) {
        bt_row(out, "Experts in memory", "all");
    } else {
        bt_row(out, "Experts in memory", "%u of %u of each block, those used last; others are read when they are used",
               plan->n_expert_slots, facts->n_expert);
    }
}

/* What the seed's layout does not have: requested against effective, and what the results depend on. */
static void add_our_rows(bt_text *out, const bt_plan *plan, const bt_facts *facts) {
    bt_row_escaped(out, "Model", bt_path_file(facts->path));
    bt_row(out, "Weights", "%s in %u file%s", BT_SIZE(facts->weight_bytes), facts->n_shards,
           facts->n_shards == 1 ? "" : "s");
    if (facts->encoder) bt_row(out, "Kind", "encoder: vectors, no generation; no KV cache");
    if (facts->n_expert > 0) {
        bt_row(out, "Experts", "%u of %u used for a token: %s of the weights", facts->n_expert_used, facts->n_expert,
               BT_SIZE(bt_working_bytes(facts)));
        add_slots(out, plan, facts);
    }
    bt_offload_rows(out, plan, facts);
    add_companion(out, "Draft model", &plan->draft);
    add_companion(out, "Projector", &plan->mmproj);
    if (plan->n_ctx_requested > 0) bt_row(out, "Context asked", "%u", plan->n_ctx_requested);
    if (plan->ctx_reason[0]) bt_row_escaped(out, "Context because", plan->ctx_reason);
    if (plan->n_ctx_train > 0) bt_row(out, "Context trained", "%u", plan->n_ctx_train);
    bool type_open = plan->wishes.type_k == BT_TYPE_AUTO || plan->wishes.type_v == BT_TYPE_AUTO;
    bool type_lowered = (plan->wishes.type_k == BT_TYPE_AUTO && plan->type_k != TYPE_F16) ||
                        (plan->wishes.type_v == BT_TYPE_AUTO && plan->type_v != TYPE_F16);
    const char *why = plan->wishes.policy == BT_POLICY_SPEED && plan->verdict != BT_REFUSED ? "for speed" : "to fit";
    bt_row(out, "KV types", "%s, %s%s%s%s", bt_type_name(plan->type_k), bt_type_name(plan->type_v),
           type_lowered ? " (auto, lowered "
           : type_open  ? " (auto"
                        : "",
           type_lowered ? why : "", type_open ? ")" : "");
    bool lowered = !plan->exact && plan->wishes.n_ubatch == 0 && plan->n_ubatch < DEFAULT_UBATCH;
    bt_row(out, "Batch, micro-batch", "%u, %u%s%s%s", plan->n_batch, plan->n_ubatch, lowered ? " (lowered " : "",
           lowered ? why : "", lowered ? ": last digits may differ from llama.cpp's)" : "");
    bool drafts = plan->draft.file[0] != '\0';
    const char *from = !drafts                                        ? "from what repeats"
                       : plan->wishes.speculate == BT_SPECULATE_DRAFT ? "by the draft model"
                                                                      : "from what repeats, or by the draft model";
    if (plan->n_draft > 0) bt_row(out, "Guessed tokens", "up to %u at once, %s", plan->n_draft, from);
    bt_row(out, "Sequences, threads", "%u, %u", plan->n_parallel, plan->n_threads);
    if (plan->n_parallel > 1) {
        bt_row(out, "Context of each", "%u guaranteed, of %u in all", plan->n_ctx / plan->n_parallel, plan->n_ctx);
    }
    if (plan->wishes.rope_scaling != BT_ROPE_OF_MODEL)
        bt_row(out, "RoPE scaling", "%s, x %s", bt_rope_scaling_names[plan->wishes.rope_scaling],
               plan->wishes.rope_scale_micro > 0 ? BT_RATE(plan->wishes.rope_scale_micro) : "as the model says");
    bt_report_disk_row(plan, out);
    bt_row(out, "Priced by", "%s", plan->priced_by_dry_run ? "dry run" : "formula");
}

static void add_ledger(bt_text *out, const bt_plan *plan) {
    bt_text_addf(out, "\n%-20s %12s %16s  %s\n", "Ledger", "size", "bytes", "source");
    for (uint32_t i = 0; i < BT_LINE_COUNT; i++) {
        if (!bt_plan_has_line(plan, (bt_line)i)) continue;
        const char *name = bt_line_name((bt_line)i);
        int n_over = strlen(name) > LINE_COLUMNS ? (int)(strlen(name) - LINE_COLUMNS) : 0;
        bt_text_addf(out, "  host/%-*s %*s %16" PRIu64 "  %s\n", LINE_COLUMNS, name, 12 - n_over,
                     BT_SIZE(plan->ledger.bytes[i]), plan->ledger.bytes[i], bt_source_name(plan->ledger.source[i]));
    }
    bt_text_addf(out, "  %-18s %12s %16" PRIu64 "\n", "total", BT_SIZE(plan->planned_bytes), plan->planned_bytes);
    if (plan->budget_bytes == UINT64_MAX) {
        bt_text_addf(out, "  %-18s %12s %16s", "budget", "none", "");
    } else {
        bt_text_addf(out, "  %-18s %12s %16" PRIu64, "budget", BT_SIZE(plan->budget_bytes), plan->budget_bytes);
    }
    bt_text_add(out, plan->budget_source[0] ? "  " : "");
    bt_text_add_escaped(out, plan->budget_source, strnlen(plan->budget_source, sizeof plan->budget_source));
    bt_text_add(out, "\n");
    /* What is left is the margin for what no file says: the user's own number, not a constant (user case 5). */
    bool beside = plan->draft.file[0] || plan->mmproj.file[0];
    if (beside && plan->budget_bytes != UINT64_MAX && plan->planned_bytes <= plan->budget_bytes) {
        uint64_t left = plan->budget_bytes - plan->planned_bytes;
        bt_text_addf(out, "  %-18s %12s %16" PRIu64 "\n", "left", BT_SIZE(left), left);
    }
    bt_offload_ledger(out, plan);
}

static void add_forecast(bt_text *out, const bt_plan *plan) {
    const bt_known rate = plan->forecast.micro_tokens_per_s;
    if (!rate.known) return;
    bt_text_addf(out, ", about %s tokens/s, bound by %s", BT_RATE(rate.value),
                 plan->forecast.bound == BT_BOUND_DISK      ? "the disk"
                 : plan->forecast.bound == BT_BOUND_COMPUTE ? "computing"
                                                            : "memory bandwidth");
}

static void add_streams(bt_text *out, const bt_plan *plan) {
    const bt_known rate = plan->forecast.micro_tokens_per_s;
    bt_text_add(out, "streams: runs from disk");
    const bt_known reuse = plan->reuse_micro_tokens_per_s;
    if (rate.known) bt_text_addf(out, ", about %s tokens/s", BT_RATE(rate.value));
    if (rate.known && reuse.known && reuse.value > rate.value)
        bt_text_addf(out, " (to %s where tokens share experts)", BT_RATE(reuse.value));
    bt_text_addf(out, ", because a token reads %s", BT_SIZE(plan->read_bytes_per_pass));
    if (plan->disk_bytes_per_s.known) {
        bt_text_addf(out, " at %" PRIu64 " MB/s", plan->disk_bytes_per_s.value / MEGA);
    } else {
        bt_text_add(out, " from a disk whose speed is not known (--exact measures it)");
    }
    if (rate.known && plan->forecast.bound != BT_BOUND_DISK && plan->n_slots != 1)
        bt_text_addf(out, "; reading keeps up, %s bounds it",
                     plan->forecast.bound == BT_BOUND_COMPUTE ? "computing" : "memory bandwidth");
    if (plan->n_slots == 1) bt_text_add(out, "; with one buffer the largest units are read while nothing computes");
}

static void add_verdict(bt_text *out, const bt_plan *plan, const bt_facts *facts) {
    bt_text_add(out, "\nVerdict: ");
    switch (plan->verdict) {
    case BT_FITS:
        bt_text_addf(out, "fits: all weights stay in memory, %s", BT_SIZE(plan->planned_bytes));
        if (plan->budget_bytes != UINT64_MAX) bt_text_addf(out, " of %s", BT_SIZE(plan->budget_bytes));
        if (plan->budget_bytes == UINT64_MAX && plan->wishes.budget_kind == BT_BUDGET_AUTO)
            bt_text_add(out, "; no budget is kept, because what is available is not known");
        add_forecast(out, plan);
        break;
    case BT_STREAMS:
        add_streams(out, plan);
        break;
    case BT_REFUSED:
        bt_text_add(out, "refused: ");
        bt_text_add_escaped(out, plan->refusal.message, strnlen(plan->refusal.message, sizeof plan->refusal.message));
        if (plan->forced) bt_text_add(out, "; runs all the same, because it is forced");
        break;
    case BT_VERDICT_UNKNOWN:
        bt_text_add(out, "unknown: the KV cache of architecture \"");
        bt_text_add_escaped(out, facts->arch, strlen(facts->arch));
        bt_text_add(out, "\" cannot be priced by formula");
        if (facts->kv_reason[0]) {
            bt_text_add(out, " (");
            bt_text_add_escaped(out, facts->kv_reason, strnlen(facts->kv_reason, sizeof facts->kv_reason));
            bt_text_add(out, ")");
        }
        bt_text_addf(out, "; the weights are exact, %s", BT_SIZE(facts->weight_bytes));
        break;
    }
    bt_text_add(out, "\n");
}

static void add_ladder(bt_text *out, const bt_plan *plan) {
    static const char *const names[BT_RUNG_COUNT] = {"minimum", "with overlap", "head resident", "all pinned"};
    bool any = false;
    for (uint32_t i = 0; i < BT_RUNG_COUNT; i++) {
        const bt_rung *rung = &plan->ladder[i];
        if (!rung->exists) continue;
        if (!any) bt_text_addf(out, "\n%-20s %12s %10s %12s\n", "Ladder", "budget", "context", "tokens/s");
        any = true;
        const bt_known rate = rung->forecast.micro_tokens_per_s;
        bt_text_addf(out, "  %-18s %12s %10u %12s\n", names[i], BT_SIZE(rung->budget_bytes), rung->n_ctx,
                     rate.known ? BT_RATE(rate.value) : "unknown");
    }
}

/* How far the rungs around the budget are. */
static void add_steps(bt_text *out, const bt_plan *plan) {
    static const char *const up[BT_RUNG_COUNT] = {"it runs", "reading and computing overlap",
                                                  "the head stays in memory too", "all weights stay in memory"};
    static const char *const down[BT_RUNG_COUNT] = {"it still runs", "reading and computing still overlap",
                                                    "the head still stays in memory",
                                                    "all weights still stay in memory"};
    const bt_rung *above = NULL;
    const bt_rung *below = NULL;
    for (uint32_t i = 0; i < BT_RUNG_COUNT && plan->budget_bytes != UINT64_MAX; i++) {
        const bt_rung *rung = &plan->ladder[i];
        if (!rung->exists) continue;
        if (rung->budget_bytes <= plan->budget_bytes) below = rung;
        if (rung->budget_bytes > plan->budget_bytes && (!above || rung->budget_bytes < above->budget_bytes))
            above = rung;
    }
    if (above)
        bt_text_addf(out, "  With %s more %s at context %u.\n",
                     BT_SIZE(bt_sat_sub_u64(above->budget_bytes, plan->budget_bytes)), up[above - plan->ladder],
                     above->n_ctx);
    if (below)
        bt_text_addf(out, "  With %s less %s at context %u.\n",
                     BT_SIZE(bt_sat_sub_u64(plan->budget_bytes, below->budget_bytes)), down[below - plan->ladder],
                     below->n_ctx);
}

static void add_changes(bt_text *out, const bt_plan *plan) {
    const bt_refusal *refusal = &plan->refusal;
    if (plan->verdict != BT_REFUSED) return;
    if (refusal->n_changes == 0) {
        bt_text_add(out, "\nNo single change would fit.\n");
        return;
    }
    bt_text_add(out, "\nWhat would fit (one of)\n");
    for (uint32_t i = 0; i < refusal->n_changes && i < BT_CHANGE_MAX; i++) {
        const bt_change *change = &refusal->changes[i];
        int flag = (int)strnlen(change->flag, sizeof change->flag);
        int rest = flag + 1 < CHANGE_COLUMNS ? CHANGE_COLUMNS - flag - 1 : 0;
        bt_text_addf(out, "  %.*s %-*.*s", flag, change->flag, rest, (int)sizeof change->value, change->value);
        if (change->need_bytes > 0) bt_text_addf(out, " needs %12s", BT_SIZE(change->need_bytes));
        bt_text_add(out, "\n"); /* 0: nothing of what was refused */
    }
}

/* The seed's order; what it has no row for stands in "other", so that the rows sum to the minimum. */
static void add_impossible_rows(bt_text *out, const bt_plan *plan) {
    static const bt_line other[] = {BT_LINE_VOCAB,        BT_LINE_METADATA,   BT_LINE_PAGETABLES, BT_LINE_THREADS,
                                    BT_LINE_EXPERTS,      BT_LINE_DERIVED,    BT_LINE_STAGING,    BT_LINE_ADAPTERS,
                                    BT_LINE_PROMPT_CACHE, BT_LINE_CHECKPOINTS};
    static const bt_line norms[] = {BT_LINE_OUTPUT_NORM, BT_LINE_EMBEDDINGS};
    static const bt_line draft[] = {BT_LINE_DRAFT_WEIGHTS, BT_LINE_DRAFT_KV, BT_LINE_DRAFT_COMPUTE,
                                    BT_LINE_DRAFT_VOCAB};
    static const bt_line mmproj[] = {BT_LINE_MMPROJ_WEIGHTS, BT_LINE_MMPROJ_ENCODE};
    const uint64_t *bytes = plan->ledger.bytes;
    add_requested(out, plan, "Requested");
    bt_row(out, "Minimum required", "%s", BT_SIZE(plan->planned_bytes));
    bt_row(out, "  base", "%s", BT_SIZE(bytes[BT_LINE_BASE]));
    bt_row(out, "  scratch", "%s", BT_SIZE(bytes[BT_LINE_COMPUTE]));
    bt_row(out, "  logits", "%s", BT_SIZE(bytes[BT_LINE_LOGITS]));
    bt_row(out, "  KV", "%s (ctx %u)", BT_SIZE(bytes[BT_LINE_KV]), plan->n_ctx);
    bt_row(out, "  resid+attn", "in scratch");
    bt_row(out, "  norm+embd", "%s", BT_SIZE(sum_of(plan, norms, sizeof norms / sizeof *norms)));
    bt_row(out, "  head", "%s (%s)", BT_SIZE(bytes[BT_LINE_HEAD]), plan->head_resident ? "resident" : "streamed");
    bt_row(out, "  ring", "%s (%u buffer%s)", BT_SIZE(bytes[BT_LINE_RING]), plan->n_slots,
           plan->n_slots == 1 ? "" : "s");
    bt_row(out, "  pinned", "%s", BT_SIZE(bytes[BT_LINE_PINNED]));
    if (plan->draft.file[0]) bt_row(out, "  draft", "%s", BT_SIZE(sum_of(plan, draft, sizeof draft / sizeof *draft)));
    if (plan->mmproj.file[0])
        bt_row(out, "  projector", "%s", BT_SIZE(sum_of(plan, mmproj, sizeof mmproj / sizeof *mmproj)));
    bt_row(out, "  other", "%s", BT_SIZE(sum_of(plan, other, sizeof other / sizeof *other)));
}

void bt_report_plan_text(const bt_plan *plan, const bt_facts *facts, bt_text *out) {
    if (plan->verdict == BT_REFUSED) {
        /* "ctx": the budget is too small for a context that was asked for */
        bool ram = strcmp(plan->refusal.code, "ram_budget") == 0 || strcmp(plan->refusal.code, "ctx") == 0;
        bt_text_add(out, ram ? "RAM budget impossible\n" : "Plan refused\n");
        add_impossible_rows(out, plan);
    } else {
        bt_text_add(out, "Execution Plan\n");
        add_seed_rows(out, plan);
    }
    bt_text_add(out, "\n");
    add_our_rows(out, plan, facts);
    add_ledger(out, plan);
    add_verdict(out, plan, facts);
    add_ladder(out, plan);
    add_steps(out, plan);
    add_changes(out, plan);
}
