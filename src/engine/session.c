/* SPDX-License-Identifier: MIT
 *
 * session.c: a libllama context on the memory device.
 *
 * libllama answers with small numbers; behind most of them is a reason the device kept. A session turns the pair into
 * one bt_error. What it leaves out: sampling (generate.c), several contexts on one engine at a time. */

#include "engine/session.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include "llama.h"

#include <errno.h>
#include <string.h>

struct bt_session {
    bt_engine *engine;
    bt_session_params params;
    struct llama_context *context;
    uint32_t n_ctx, n_used;
    uint64_t n_passes;
    struct llama_batch batch;
};

bt_session_params bt_session_params_of(const bt_plan *plan, uint32_t n_outputs_max) {
    return (bt_session_params){
        .n_ctx = plan->n_ctx,
        .n_batch = plan->n_batch,
        .n_ubatch = plan->n_ubatch,
        .n_parallel = plan->n_parallel,
        .n_threads = plan->n_threads,
        .n_outputs_max = n_outputs_max,
        .type_k = plan->type_k,
        .type_v = plan->type_v,
        .flash_attn = plan->wishes.flash_attn,
        .kv_unified = plan->wishes.kv_unified,
        .swa_full = plan->wishes.swa_full,
        .rope_scaling = plan->wishes.rope_scaling,
        .rope_scale_micro = plan->wishes.rope_scale_micro,
        .yarn_orig_ctx = plan->wishes.yarn_orig_ctx,
    };
}

static enum llama_flash_attn_type flash_attn_of(bt_choice choice) {
    switch (choice) {
    case BT_ON:
        return LLAMA_FLASH_ATTN_TYPE_ENABLED;
    case BT_OFF:
        return LLAMA_FLASH_ATTN_TYPE_DISABLED;
    case BT_AUTO:
        break;
    }
    return LLAMA_FLASH_ATTN_TYPE_AUTO;
}

static void set_rope(const bt_session_params *p, struct llama_context_params *params) {
    static const enum llama_rope_scaling_type types[] = {
        [BT_ROPE_OF_MODEL] = LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED,
        [BT_ROPE_NONE] = LLAMA_ROPE_SCALING_TYPE_NONE,
        [BT_ROPE_LINEAR] = LLAMA_ROPE_SCALING_TYPE_LINEAR,
        [BT_ROPE_YARN] = LLAMA_ROPE_SCALING_TYPE_YARN,
    };
    params->rope_scaling_type = types[p->rope_scaling];
    if (p->rope_scale_micro > 0) params->rope_freq_scale = 1.0f / ((float)p->rope_scale_micro / 1e6f);
    params->yarn_orig_ctx = p->yarn_orig_ctx;
}

static bool has_devices(const bt_session *session) {
    return bt_engine_facts(session->engine)->split.n_devices > 0;
}

static bt_status make_context(bt_session *session, bt_error *err) {
    const bt_session_params *p = &session->params;
    struct llama_context_params params = llama_context_default_params();
    /* llama_context::graph_reserve rounds tokens up to sequences, not rows of vectors, and then asserts */
    if (p->embeddings && p->n_ubatch < p->n_parallel)
        return bt_fail(err, BT_E_UNSUPPORTED, "llama_context", BT_MEASURE_TOKENS, p->n_parallel, p->n_ubatch,
                       "vectors of %u sequences need a micro-batch of as many tokens, not of %u", p->n_parallel,
                       p->n_ubatch);
    params.n_ctx = p->n_ctx;
    params.n_batch = p->n_batch;
    params.n_ubatch = p->n_ubatch;
    params.n_seq_max = p->n_parallel;
    /* libllama asserts a row for each sequence, also where fewer are asked for; pooling wants every token's. */
    params.n_outputs_max = (uint32_t)bt_max_u64(p->n_outputs_max, p->embeddings ? p->n_ubatch : p->n_parallel);
    params.embeddings = p->embeddings;
    if (p->pooling > 0) params.pooling_type = (enum llama_pooling_type)(p->pooling - 1);
    params.n_threads = params.n_threads_batch = (int32_t)p->n_threads;
    params.flash_attn_type = flash_attn_of(p->flash_attn);
    params.type_k = (enum ggml_type)p->type_k;
    params.type_v = (enum ggml_type)p->type_v;
    set_rope(p, &params);
    params.op_offload = false;
    params.swa_full = p->swa_full;
    params.kv_unified = p->kv_unified;
    bt_device *device = bt_engine_device(session->engine);
    bt_device_set_phase(device, BT_PHASE_CONTEXT);
    bt_engine_forget_errors();
    session->context = llama_init_from_model(bt_engine_model(session->engine), params);
    bt_error found;
    bool has_reason = bt_device_take_error(device, &found);
    if (has_reason && err) *err = found;
    if (has_reason) return found.status;
    if (!session->context && has_devices(session)) return bt_engine_device_failure("cannot hold a context", err);
    if (!session->context)
        return bt_fail(err, BT_E_UNSUPPORTED, "llama_context", BT_MEASURE_TOKENS, p->n_ctx, 0,
                       "llama.cpp cannot make a context of %u tokens for this model; --log-level debug shows why",
                       p->n_ctx);
    BT_TRY(bt_device_classify(device, err));
    bt_device_set_phase(device, BT_PHASE_COMPUTE);
    return BT_OK;
}

bt_status bt_session_open(bt_engine *engine, const bt_session_params *params, bt_session **ret_session, bt_error *err) {
    bt_session *session = bt_heap_alloc(sizeof *session);
    if (!session)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, sizeof *session, 0, "no memory for a session");
    session->engine = engine;
    session->params = *params;
    bt_status status = make_context(session, err);
    if (status != BT_OK) {
        bt_session_close(session);
        return status;
    }
    session->n_ctx = llama_n_ctx_seq(session->context);
    /* libllama cuts a batch to the context that was asked for, before it rounds that up; a larger one it aborts on. */
    session->params.n_batch = llama_n_batch(session->context);
    session->batch = llama_batch_init((int32_t)session->params.n_batch, 0, 1);
    *ret_session = session;
    return BT_OK;
}

void bt_session_close(bt_session *session) {
    if (!session) return;
    llama_batch_free(session->batch);
    if (session->context) llama_free(session->context);
    bt_heap_free(session);
}

struct llama_context *bt_session_context(bt_session *session) {
    return session->context;
}

uint32_t bt_session_n_ctx(const bt_session *session) {
    return session->n_ctx;
}

uint32_t bt_session_n_used(const bt_session *session) {
    return session->n_used;
}

uint64_t bt_session_passes(const bt_session *session) {
    return session->n_passes;
}

uint64_t bt_session_wait_ns(bt_session *session) {
    bt_device_stats stats;
    bt_device_stats_read(bt_engine_device(session->engine), &stats);
    return stats.wait_ns;
}

void bt_session_clear(bt_session *session) {
    llama_memory_clear(llama_get_memory(session->context), true);
    session->n_used = 0;
}

/* A window's cells are taken again by later tokens: what lies before it is gone for good (llama.cpp's server asks the
 * same before it reuses a prefix). */
static bool window_holds(bt_session *session, llama_memory_t memory, uint32_t n) {
    int32_t window = llama_model_n_swa(bt_engine_model(session->engine));
    llama_pos first = llama_memory_seq_pos_min(memory, 0);
    return window <= 0 || first <= 0 || (int64_t)first < (int64_t)n - window;
}

uint32_t bt_session_keep(bt_session *session, uint32_t n) {
    llama_memory_t memory = llama_get_memory(session->context);
    uint32_t n_kept = (uint32_t)bt_min_u64(n, session->n_used);
    bool goes_back = n_kept < session->n_used;
    if (n_kept > 0 && (!goes_back || window_holds(session, memory, n_kept)) &&
        llama_memory_seq_rm(memory, 0, (llama_pos)n_kept, -1)) {
        session->n_used = n_kept;
        return n_kept;
    }
    bt_session_clear(session);
    return 0;
}

bt_status bt_session_state_save(bt_session *session, const char *path, const int32_t *tokens, uint32_t n,
                                bt_error *err) {
    errno = 0;
    if (llama_state_seq_save_file(session->context, path, 0, tokens, n) > 0) return BT_OK;
    return bt_fail_sys(err, errno ? errno : EIO, "session_write", "cannot write the session to %s", path);
}

bt_status bt_session_state_load(bt_session *session, const char *path, int32_t *tokens, uint32_t n_max, uint32_t *ret_n,
                                bt_error *err) {
    size_t n = 0;
    bt_session_clear(session);
    size_t n_read = llama_state_seq_load_file(session->context, path, 0, tokens, n_max, &n);
    bt_error found;
    bool has_reason = bt_device_take_error(bt_engine_device(session->engine), &found);
    if (n_read > 0 && !has_reason) {
        session->n_used = (uint32_t)n;
        *ret_n = (uint32_t)n;
        return BT_OK;
    }
    bt_session_clear(session);
    if (has_reason) {
        if (err) *err = found;
        return found.status;
    }
    return bt_fail(err, BT_E_STALE, "session_stale", BT_MEASURE_NONE, 0, 0,
                   "the session in %s was made with another kind of KV cache", path);
}

static bt_status decode_failure(bt_session *session, int32_t result, bt_error *err) {
    bt_error found;
    if (bt_device_take_error(bt_engine_device(session->engine), &found)) {
        if (err) *err = found;
        return found.status;
    }
    if (result == 2) return bt_fail(err, BT_E_CANCELLED, "cancelled", BT_MEASURE_NONE, 0, 0, "generation was stopped");
    if (result == 1)
        return bt_fail(err, BT_E_LIMIT, "context_full", BT_MEASURE_TOKENS, session->n_used + 1u, session->n_ctx,
                       "the context of %u tokens is full", session->n_ctx);
    if (has_devices(session)) return bt_engine_device_failure("failed while it computed", err);
    return bt_fail(err, BT_E_DEVICE, "llama_decode", BT_MEASURE_NONE, 0, 0, "llama.cpp failed to decode (%d)", result);
}

static void batch_add(struct llama_batch *batch, int32_t token, uint32_t pos, uint32_t sequence, bool wants_logits) {
    int32_t i = batch->n_tokens++;
    batch->token[i] = token;
    batch->pos[i] = (llama_pos)pos;
    batch->n_seq_id[i] = 1;
    batch->seq_id[i][0] = (llama_seq_id)sequence;
    batch->logits[i] = (int8_t)wants_logits;
}

/* One call of llama_decode: at most n_batch tokens. */
static bt_status decode_some(bt_session *session, const int32_t *tokens, uint32_t n, const uint8_t *wants_logits,
                             bool is_last, bt_error *err) {
    struct llama_batch *batch = &session->batch;
    batch->n_tokens = 0;
    for (uint32_t i = 0; i < n; i++)
        batch_add(batch, tokens[i], session->n_used + i, 0,
                  wants_logits ? wants_logits[i] != 0 : is_last && i + 1 == n);
    bt_engine_forget_errors();
    int32_t result = llama_decode(session->context, *batch);
    if (result != 0) return decode_failure(session, result, err);
    session->n_used += n;
    session->n_passes += (n + session->params.n_ubatch - 1) / session->params.n_ubatch;
    return BT_OK;
}

static bt_status check_room(const bt_session *session, uint32_t n, bt_error *err) {
    if (n <= session->n_ctx - session->n_used) return BT_OK;
    return bt_fail(err, BT_E_LIMIT, "context_full", BT_MEASURE_TOKENS, (uint64_t)session->n_used + n, session->n_ctx,
                   "%u tokens do not fit: %u of the context's %u are used", n, session->n_used, session->n_ctx);
}

bt_status bt_session_decode(bt_session *session, const int32_t *tokens, uint32_t n, const uint8_t *wants_logits,
                            bt_error *err) {
    BT_TRY(check_room(session, n, err));
    BT_TRY(bt_engine_check(session->engine, err));
    for (uint32_t done = 0; done < n;) {
        uint32_t some = (uint32_t)bt_min_u64(n - done, session->params.n_batch);
        const uint8_t *wants = wants_logits ? wants_logits + done : NULL;
        BT_TRY(decode_some(session, tokens + done, some, wants, done + some == n, err));
        done += some;
    }
    return BT_OK;
}

/* Sequences [first, end) of a batch, and the tokens [from, from + n) of each. */
typedef struct group {
    const int32_t *tokens;
    uint32_t stride, first, end, from, n;
    bool is_last;
} group;

/* One call of llama_decode. Its micro-batches hold as many tokens of one sequence as of another. */
static bt_status decode_group(bt_session *session, const group *g, bt_error *err) {
    struct llama_batch *batch = &session->batch;
    uint32_t n_each = session->params.n_ubatch / (g->end - g->first); /* in a micro-batch */
    batch->n_tokens = 0;
    for (uint32_t s = g->first; s < g->end; s++)
        for (uint32_t i = 0; i < g->n; i++)
            batch_add(batch, g->tokens[(size_t)s * g->stride + g->from + i], session->n_used + g->from + i, s,
                      g->is_last && i + 1 == g->n);
    bt_engine_forget_errors();
    int32_t result = llama_decode(session->context, *batch);
    if (result != 0) return decode_failure(session, result, err);
    session->n_passes += (g->n + n_each - 1) / n_each;
    return BT_OK;
}

/* libllama would put one sequence more than there are rows into a micro-batch: so many are not handed over at once. */
bt_status bt_session_decode_each(bt_session *session, const int32_t *tokens, uint32_t stride, uint32_t n,
                                 bt_error *err) {
    const bt_session_params *p = &session->params;
    uint32_t n_group = (uint32_t)bt_min_u64(p->n_parallel, bt_min_u64(p->n_ubatch, p->n_batch));
    BT_TRY(check_room(session, n, err));
    BT_TRY(bt_engine_check(session->engine, err));
    for (uint32_t first = 0; first < p->n_parallel; first += n_group) {
        group g = {tokens, stride, first, (uint32_t)bt_min_u64(first + n_group, p->n_parallel), 0, 0, false};
        for (; g.from < n; g.from += g.n) {
            g.n = (uint32_t)bt_min_u64(n - g.from, p->n_batch / n_group);
            g.is_last = g.from + g.n == n;
            BT_TRY(decode_group(session, &g, err));
        }
    }
    session->n_used += n;
    return BT_OK;
}

bt_status bt_session_verify(bt_session *session, const int32_t *tokens, uint32_t n, bt_error *err) {
    uint8_t wants_logits[BT_TOKEN_BY_TOKEN_MAX];
    if (n > BT_TOKEN_BY_TOKEN_MAX || n > session->params.n_batch || n > session->params.n_outputs_max)
        return bt_fail(err, BT_E_ARG, "verify", BT_MEASURE_TOKENS, n, BT_TOKEN_BY_TOKEN_MAX,
                       "%u tokens are more than can be verified at once", n);
    memset(wants_logits, 1, sizeof wants_logits);
    bt_device *device = bt_engine_device(session->engine);
    bt_device_set_token_by_token(device, true);
    bt_status status = bt_session_decode(session, tokens, n, wants_logits, err);
    bt_device_set_token_by_token(device, false);
    return status;
}

bool bt_session_goes_back(const bt_session *session) {
    const struct llama_model *model = bt_engine_model(session->engine);
    return !llama_model_is_recurrent(model) && !llama_model_is_hybrid(model);
}

/* A sliding window still holds what the tokens before need: its cells are taken again only when they are out of the
 * window of the first token of the call that takes them. */
bt_status bt_session_take_back(bt_session *session, uint32_t n, bt_error *err) {
    if (n >= session->n_used) return BT_OK;
    if (!llama_memory_seq_rm(llama_get_memory(session->context), 0, (llama_pos)n, -1))
        return bt_fail(err, BT_E_DEVICE, "take_back", BT_MEASURE_TOKENS, session->n_used, n,
                       "llama.cpp does not take back tokens of this model");
    session->n_used = n;
    return BT_OK;
}
