/* SPDX-License-Identifier: MIT
 *
 * draft.c: a small model that runs ahead of a large one.
 *
 *     tokens of the text   t0 t1 t2 t3 t4 | ?
 *     draft's context      t0 t1 t2 g3 g4       its own guesses of last time: those that were right stay,
 *                                   '--'---     the rest is taken back, t3 t4 are decoded, and it runs ahead again
 *
 * What it says is never believed, only tried (generate.c), so nothing in it has to be exact, and no failure of it is
 * one of the request: it is logged, and no more is guessed. It is asked for the likeliest tokens, whatever the sampler
 * does: what the large model is surest of is what both agree on.
 *
 * It is an engine and a session like the model's, charged to the lines draft.* of the same account: all its weights are
 * pinned, nothing of it lends or streams, and its graphs run on the model's threads. A token is read through it at
 * once, to touch what every token touches while the plan is still empty, and to know that it works.
 *
 * A draft that does not pay is given up: what it held is lent, and the elastic pins of the model take it.
 *
 * Bounds: the context of the plan. Left out: a draft with state that cannot go back; loading one again. */
#include "engine/draft.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/session.h"

#include "llama.h"

#include <malloc.h>

#define TYPE_F16 1u /* as the draft is priced (plan/companions.c) */

struct bt_draft {
    const bt_facts *facts;
    bt_plan plan; /* all pinned */
    bt_account *account;
    bt_engine *beside;
    bt_engine *engine;
    bt_session *session;
    int32_t *tokens;  /* [n_ctx] that the context holds: the session's first n_used */
    uint32_t n_vocab; /* that both know */
    uint32_t reads_256;
    uint64_t heap_bytes;  /* beside the vocabulary's */
    uint64_t freed_bytes; /* by giving up */
    bool failed;
    bt_mapping *lent[2]; /* in the place of what was given up */
};

/* What the account calls the lines of a draft. A loader's buffers are gone before the other's come. */
static const bt_line lines[BT_LINE_COUNT] = {
    [BT_LINE_VOCAB] = BT_LINE_DRAFT_VOCAB,
    [BT_LINE_METADATA] = BT_LINE_DRAFT_VOCAB,
    [BT_LINE_KV] = BT_LINE_DRAFT_KV,
    [BT_LINE_COMPUTE] = BT_LINE_DRAFT_COMPUTE,
    [BT_LINE_LOGITS] = BT_LINE_DRAFT_COMPUTE,
    [BT_LINE_OUTPUT_NORM] = BT_LINE_DRAFT_WEIGHTS,
    [BT_LINE_EMBEDDINGS] = BT_LINE_DRAFT_WEIGHTS,
    [BT_LINE_HEAD] = BT_LINE_DRAFT_WEIGHTS,
    [BT_LINE_PINNED] = BT_LINE_DRAFT_WEIGHTS,
    [BT_LINE_STAGING] = BT_LINE_STAGING,
};

static bt_status plan_all_pinned(bt_draft *draft, const bt_plan *plan, bt_error *err) {
    uint32_t n_units = draft->facts->n_units;
    draft->plan = (bt_plan){.n_ctx = plan->n_ctx,
                            .n_batch = plan->n_batch,
                            .n_ubatch = plan->n_ubatch,
                            .n_parallel = 1,
                            .n_threads = plan->n_threads,
                            .type_k = TYPE_F16,
                            .type_v = TYPE_F16,
                            .place = bt_heap_array((uint64_t)n_units + 1, sizeof *draft->plan.place),
                            .n_units = n_units,
                            .n_pinned = n_units,
                            .budget_bytes = plan->budget_bytes};
    draft->plan.wishes.flash_attn = plan->wishes.flash_attn;
    draft->plan.wishes.io = plan->wishes.io;
    draft->plan.wishes.elastic = BT_OFF;
    if (!draft->plan.place)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, n_units, 0, "no memory to place %u units", n_units);
    for (uint32_t u = 0; u < n_units; u++)
        draft->plan.place[u] = BT_PLACE_PINNED;
    return BT_OK;
}

/* One token, and what it left behind on the heap is the draft's. */
static bt_status try_token(bt_draft *draft, uint64_t heap_before, bt_error *err) {
    const int32_t any = 0;
    BT_TRY(bt_session_decode(draft->session, &any, 1, NULL, err));
    bt_session_clear(draft->session);
    draft->heap_bytes = bt_sat_sub_u64(bt_engine_heap_bytes(draft->engine), heap_before);
    bt_account_note(draft->account, BT_LINE_DRAFT_COMPUTE, draft->heap_bytes);
    return BT_OK;
}

static bt_status open_parts(bt_draft *draft, bt_engine *beside, const bt_plan *plan, bt_reader_kind reader,
                            bt_error *err) {
    BT_TRY(plan_all_pinned(draft, plan, err));
    const bt_engine_params params = {.facts = draft->facts,
                                     .plan = &draft->plan,
                                     .reader = reader,
                                     .n_threads = plan->n_threads,
                                     .beside = beside,
                                     .lines = lines};
    BT_TRY(bt_engine_open(&params, &draft->engine, err));
    uint64_t heap_before = bt_engine_heap_bytes(draft->engine);
    bt_session_params session = bt_session_params_of(&draft->plan, 1);
    BT_TRY(bt_session_open(draft->engine, &session, &draft->session, err));
    if (!bt_session_goes_back(draft->session))
        return bt_fail(err, BT_E_UNSUPPORTED, "draft_state", BT_MEASURE_NONE, 0, 0,
                       "%.200s cannot be a draft: a %.40s model does not take tokens back", draft->facts->path,
                       draft->facts->arch);
    uint32_t n_ctx = bt_session_n_ctx(draft->session);
    draft->tokens = bt_heap_array((uint64_t)n_ctx + 1, sizeof *draft->tokens);
    if (!draft->tokens)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, n_ctx, 0, "no memory for %u tokens", n_ctx);
    return try_token(draft, heap_before, err);
}

bt_status bt_draft_open(const bt_facts *facts, bt_engine *beside, const bt_plan *plan, bt_reader_kind reader,
                        bt_draft **ret_draft, bt_error *err) {
    bt_draft *draft = bt_heap_alloc(sizeof *draft);
    if (!draft) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *draft, 0, "no memory for a draft");
    draft->facts = facts;
    draft->account = bt_engine_account(beside);
    draft->beside = beside;
    uint64_t held = plan->ledger.bytes[BT_LINE_DRAFT_WEIGHTS] + plan->ledger.bytes[BT_LINE_DRAFT_KV];
    uint64_t read = plan->read_bytes_per_pass;
    draft->reads_256 = read > 0 ? (uint32_t)bt_mul_div_u64(256, bt_min_u64(held, read), read) : 0;
    draft->n_vocab = (uint32_t)bt_min_u64(facts->n_vocab, bt_engine_facts(beside)->n_vocab);
    bt_status status = open_parts(draft, beside, plan, reader, err);
    if (status != BT_OK) {
        bt_draft_close(draft);
        return status;
    }
    *ret_draft = draft;
    return BT_OK;
}

static void unload(bt_draft *draft) {
    bt_session_close(draft->session);
    bt_engine_close(draft->engine);
    draft->session = NULL;
    draft->engine = NULL;
}

/* Bytes of a line, charged and never touched, may be held by others. */
static bt_mapping *lend(bt_account *account, bt_line line, uint64_t bytes) {
    bt_mapping *mapping = NULL;
    if (bytes == 0 || bt_account_map(account, line, bytes, &mapping, NULL) != BT_OK) return NULL;
    if (bt_account_commit(account, mapping, bytes, NULL) == BT_OK) bt_account_lend(account, mapping);
    bt_account_unlock(account, mapping);
    return mapping;
}

/* Its part of the heap stays charged: the system need not get it back. What it had grown by shows when it goes. */
void bt_draft_give_up(bt_draft *draft) {
    static const bt_line held[] = {BT_LINE_DRAFT_WEIGHTS, BT_LINE_DRAFT_KV};
    bt_line_use use[2];
    if (!draft->engine) return;
    bt_account_measure(draft->account); /* the peak, before it is gone */
    for (int i = 0; i < 2; i++)
        bt_account_use(draft->account, held[i], &use[i]);
    uint64_t heap_before = bt_engine_heap_bytes(draft->beside);
    uint64_t vocab_bytes = bt_engine_load_read(draft->engine)->vocab_bytes;
    unload(draft);
    (void)malloc_trim(0);
    draft->freed_bytes = bt_sat_sub_u64(heap_before, bt_engine_heap_bytes(draft->beside));
    draft->heap_bytes = bt_max_u64(draft->heap_bytes, bt_sat_sub_u64(draft->freed_bytes, vocab_bytes));
    bt_account_note(draft->account, BT_LINE_DRAFT_COMPUTE, draft->heap_bytes);
    for (int i = 0; i < 2; i++)
        draft->lent[i] = lend(draft->account, held[i], use[i].committed_bytes);
    draft->failed = true;
    bt_log(BT_LOG_INFO, "the draft model %.200s does not pay: its memory is for weights", draft->facts->path);
}

uint64_t bt_draft_heap_bytes(const bt_draft *draft) {
    return draft->heap_bytes;
}

uint64_t bt_draft_freed_bytes(const bt_draft *draft) {
    return draft->freed_bytes;
}

uint32_t bt_draft_reads_256(const bt_draft *draft) {
    return draft->reads_256;
}

void bt_draft_close(bt_draft *draft) {
    if (!draft) return;
    unload(draft);
    bt_account_note(draft->account, BT_LINE_DRAFT_VOCAB, 0);
    bt_account_note(draft->account, BT_LINE_DRAFT_COMPUTE, 0);
    for (int i = 0; i < 2; i++)
        bt_account_unmap(draft->account, draft->lent[i]);
    bt_heap_free(draft->plan.place);
    bt_heap_free(draft->tokens);
    bt_heap_free(draft);
}

void bt_draft_set_abort(bt_draft *draft, bool (*should_abort)(void *), void *user) {
    if (draft->engine) bt_device_set_abort(bt_engine_device(draft->engine), should_abort, user);
}

/* ---- guessing ---- */

static bt_status decode(bt_draft *draft, const int32_t *tokens, uint32_t n, bt_error *err) {
    uint32_t n_used = bt_session_n_used(draft->session);
    BT_TRY(bt_session_decode(draft->session, tokens, n, NULL, err));
    for (uint32_t i = 0; i < n; i++)
        draft->tokens[n_used + i] = tokens[i];
    return BT_OK;
}

/* Hold these tokens and no others; the last n_again of them are decoded in any case. */
static bt_status follow(bt_draft *draft, const int32_t *tokens, uint32_t n_tokens, uint32_t n_again, bt_error *err) {
    uint32_t n_most = (uint32_t)bt_min_u64(bt_session_n_used(draft->session), n_tokens - n_again);
    uint32_t n_same = 0;
    while (n_same < n_most && draft->tokens[n_same] == tokens[n_same])
        n_same++;
    n_same = bt_session_keep(draft->session, n_same);
    return n_same < n_tokens ? decode(draft, tokens + n_same, n_tokens - n_same, err) : BT_OK;
}

static int32_t likeliest(const bt_draft *draft) {
    const float *logits = llama_get_logits_ith(bt_session_context(draft->session), -1);
    uint32_t best = 0;
    for (uint32_t i = 1; logits && i < draft->n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

static bt_status guess(bt_draft *draft, const int32_t *tokens, uint32_t n_tokens, int32_t *ret_guesses, uint32_t n,
                       bt_error *err) {
    BT_TRY(follow(draft, tokens, n_tokens, 1, err));
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) BT_TRY(decode(draft, ret_guesses + i - 1, 1, err));
        ret_guesses[i] = likeliest(draft);
    }
    return BT_OK;
}

/* A stop is no failure: what stops the draft stops the model too. */
static bool went_well(bt_draft *draft, bt_status status, const bt_error *err) {
    if (status == BT_OK || status == BT_E_CANCELLED) return status == BT_OK;
    bt_log(BT_LOG_WARN, "the draft model %.200s guesses no more: %s", draft->facts->path, err->text);
    draft->failed = true;
    return false;
}

bool bt_draft_follow(bt_draft *draft, const int32_t *tokens, uint32_t n_tokens) {
    bt_error err = {0};
    if (draft->failed || n_tokens > bt_session_n_ctx(draft->session)) return false;
    return went_well(draft, follow(draft, tokens, n_tokens, 0, &err), &err);
}

bool bt_draft_guess(bt_draft *draft, const int32_t *tokens, uint32_t n_tokens, int32_t *ret_guesses, uint32_t n) {
    bt_error err = {0};
    uint32_t n_ctx = draft->failed ? 0 : bt_session_n_ctx(draft->session);
    if (draft->failed || n_tokens == 0 || n > n_ctx || n_tokens > n_ctx - n) return false;
    return went_well(draft, guess(draft, tokens, n_tokens, ret_guesses, n, &err), &err);
}
