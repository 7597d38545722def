/* SPDX-License-Identifier: MIT
 *
 * drop_in.c: a command line of a llama.cpp program under a RAM budget: what a plan needs to know of it, and the line
 * that keeps to the plan.
 *
 *   settings -> may it hold a budget? (drop_in_rules.c) -> wishes -> plan (elsewhere) -> the line
 *
 * What the user set is a wish, and is honoured or refused; what he left open the plan decides. Two programs leave less
 * open than they seem to. llama-perplexity makes its context of -c and -b, and its result is one of that context: -c
 * is never changed, and -b is one chunk where nobody set it, because a batch keeps a row of logits for each token (a
 * chunk at a time is the same sum). llama-embedding makes its micro-batch of its batch, and that of -c.
 *
 * Every option that the plan stands on is made explicit: the device, all layers and every tensor on it, the context,
 * the slots. An option at the end wins over the environment and the files; only rules for tensors are tried in order,
 * the first that matches decides, and the user's own were found to name no other place. What says already what it
 * should is not touched. */
#include "guard/drop_in.h"

#include "base/error.h"
#include "base/size.h"
#include "base/text.h"
#include "guard/drop_in_internal.h"
#include "guard/place.h"
#include "guard/price.h"
#include "model/types.h"
#include "plan/price.h"

#include <string.h>

#define MICRO             1e6
#define MIB               (UINT64_C(1) << 20)
#define LAYERS_ALL        "999"
#define EVERY_TENSOR      ".*"
#define NGRAM_CACHE_DRAFT 8                    /* common_speculative_n_max of common/speculative.cpp */
#define NGRAM_MOD_BYTES   (UINT64_C(16) * MIB) /* 4 Mi entries of 4 bytes (common_speculative_impl_ngram_mod there) */
#define NGRAM_MAP_BYTES   (UINT64_C(1) * MIB)  /* of each slot: COMMON_NGRAM_HASH_MAP_SIZE of common/ngram-map.h, x 4 */
#define CTX_UNKNOWN       4096                 /* where the file does not say (guard/price.c) */

static bool is_written(const bt_setting *s) {
    return s->text != NULL;
}

static uint32_t count(int32_t value) {
    return value > 0 ? (uint32_t)value : 0;
}

static uint32_t slots_of(const bt_effective *e) {
    return e->slots.value > 0 ? (uint32_t)e->slots.value : 1;
}

/* llama-cli starts the server's own code in a thread. */
static bool is_server(const bt_effective *e) {
    return e->program == BT_PROGRAM_SERVER || e->program == BT_PROGRAM_CLI;
}

static bool has_pooling(const bt_effective *e) {
    return e->pooling.value > BT_POOLING_NONE;
}

/* The context that libllama makes of this one (its llama_context constructor). */
static uint32_t ctx_as_loaded(uint32_t n_ctx, uint32_t n_parallel, bool unified) {
    uint64_t n_streams = unified ? 1 : n_parallel;
    uint64_t all = ((uint64_t)n_ctx + BT_CTX_ALIGN - 1) / BT_CTX_ALIGN * BT_CTX_ALIGN;
    uint64_t each = (all / n_streams + BT_CTX_ALIGN - 1) / BT_CTX_ALIGN * BT_CTX_ALIGN;
    return (uint32_t)bt_min_u64(each * n_streams, UINT32_MAX);
}

/* ---- llama-perplexity: contexts and batches are counted in chunks ---- */

/* -c, of which the program has made a context for all that one batch holds (derive_perplexity of effective.c). */
static uint32_t chunk_of(const bt_effective *e) {
    int32_t all = e->ctx.value - (e->ppl_stride.value > 0 ? e->ppl_stride.value / 2 : 0);
    return count(all) / slots_of(e);
}

/* May -b be set to one chunk? Not where the context of the only sequence is made of it (--ppl-stride), nor where it
 * decides nothing (answers to choose from). */
static bool takes_chunks(const bt_effective *e) {
    return e->program == BT_PROGRAM_PERPLEXITY && !is_written(&e->batch) && !e->scores_choices &&
           e->ppl_stride.value <= 0;
}

/* Rows of a batch, and where a chunk needs several or answers are compared, copies of those of all. */
static uint64_t perplexity_rows(const bt_effective *e, const bt_wishes *w) {
    uint64_t chunk = chunk_of(e);
    uint64_t half = chunk - chunk / 2; /* the first half of a chunk is context alone */
    uint64_t rows = half * w->n_parallel;
    if (e->scores_choices || e->ppl_stride.value > 0)
        rows = (uint64_t)w->n_batch + ctx_as_loaded(w->n_ctx, w->n_parallel, w->kv_unified);
    else if (w->n_batch < chunk)
        rows = bt_min_u64(w->n_batch, half) + half;
    return is_written(&e->logits_file) ? rows + (chunk + 1) / 2 : rows; /* 16 bits of each, of a whole chunk */
}

/* ---- wishes ---- */

static bt_rope_scaling rope_of(int32_t value) {
    static const bt_rope_scaling kinds[] = {BT_ROPE_NONE, BT_ROPE_LINEAR, BT_ROPE_YARN};
    return value >= 0 && value < 3 ? kinds[value] : BT_ROPE_OF_MODEL;
}

static uint64_t rope_scale_micro(double freq_scale) {
    double scale = freq_scale > 0 ? MICRO / freq_scale : 0;
    return scale < 1e15 ? (uint64_t)(scale + 0.5) : 0;
}

/* Both kinds of graphs have a pool; not given, it is one of the cores (0), and the other cannot be less. */
static uint32_t threads_of(const bt_effective *e) {
    uint32_t n = count(e->threads.value);
    uint32_t n_batch = count(e->threads_batch.value);
    return n == 0 ? 0 : (uint32_t)bt_max_u64(n, n_batch);
}

static bt_choice flash_of(int32_t value) {
    return value == BT_FLASH_OFF ? BT_OFF : value == BT_FLASH_ON ? BT_ON : BT_AUTO;
}

/* An open context is the plan's to choose; that of the model, -c 0, is taken as far as the budget holds it. */
static void wish_context(const bt_effective *e, const bt_facts *facts, bt_wishes *w) {
    uint32_t trained = facts->n_ctx_train > 0 ? facts->n_ctx_train : CTX_UNKNOWN;
    w->n_ctx = count(e->ctx.value);
    if (w->n_ctx > 0) return;
    if (e->program == BT_PROGRAM_EMBEDDING) { /* a text is one batch: no more of it fits in any case */
        w->n_ctx = (uint32_t)bt_min_u64(trained, count(e->batch.value));
    } else if (is_written(&e->ctx)) {
        w->n_ctx = trained;
        w->allow_ctx_reduction = true;
    }
}

/* A text to be turned into vectors is one micro-batch, and is refused if it is longer: that length is the user's. */
static void wish_batches(const bt_effective *e, bool embeddings, bt_wishes *w) {
    w->n_batch = count(e->batch.value);
    if (takes_chunks(e)) {
        w->n_batch = w->n_ctx = chunk_of(e);
        w->n_parallel = 1;
    }
    if (embeddings || is_written(&e->ubatch)) w->n_ubatch = (uint32_t)bt_min_u64(count(e->ubatch.value), w->n_batch);
}

static bool keeps_state(const bt_effective *e) {
    return is_written(&e->slot_save) || is_written(&e->prompt_cache);
}

static bool converses(const bt_effective *e) {
    return is_server(e) || e->program == BT_PROGRAM_COMPLETION;
}

static bt_wishes wishes_of(const bt_effective *e, const bt_facts *facts, bool embeddings) {
    bt_wishes w = {.n_parallel = slots_of(e),
                   .type_k = (uint32_t)e->cache_k.value,
                   .type_v = (uint32_t)e->cache_v.value,
                   .flash_attn = flash_of(e->flash.value),
                   .n_threads = threads_of(e),
                   .speculate = BT_SPECULATE_OFF,
                   .repack = e->repack.value != 0 && !e->draft_model.text ? BT_AUTO : BT_OFF, /* put_draft */
                   .kv_unified = e->kv_unified.value != 0,
                   .rope_scaling = rope_of(e->rope_scaling.value),
                   .rope_scale_micro = rope_scale_micro(e->rope_freq_scale.real),
                   .yarn_orig_ctx = count(e->yarn_orig_ctx.value),
                   .chat = converses(e) && !embeddings && facts->has_chat_template,
                   .session = keeps_state(e),
                   .no_devices = true};
    wish_context(e, facts, &w);
    wish_batches(e, embeddings, &w);
    return w;
}

/* ---- what is kept beside ---- */

static bool drafts_with(const bt_effective *e, bt_drafter drafter) {
    return (e->drafters & 1u << drafter) != 0;
}

/* Tokens guessed at once (common_speculative_n_max of common/speculative.cpp). */
static uint32_t drafted(const bt_effective *e) {
    const struct {
        bt_drafter drafter;
        int32_t n;
    } most[] = {{BT_DRAFTER_NGRAM_SIMPLE, e->ngram_simple_m.value},
                {BT_DRAFTER_NGRAM_MAP_K, e->ngram_map_k_m.value},
                {BT_DRAFTER_NGRAM_MAP_K4V, e->ngram_map_k4v_m.value},
                {BT_DRAFTER_NGRAM_MOD, e->ngram_mod_n_max.value},
                {BT_DRAFTER_NGRAM_CACHE, NGRAM_CACHE_DRAFT}};
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof most / sizeof *most; i++)
        if (drafts_with(e, most[i].drafter)) n = (uint32_t)bt_max_u64(n, count(most[i].n));
    return e->draft_model.text ? (uint32_t)bt_max_u64(n, count(e->draft_n_max.value)) : n;
}

static uint64_t drafter_bytes(const bt_effective *e) {
    uint64_t bytes = drafts_with(e, BT_DRAFTER_NGRAM_MOD) ? NGRAM_MOD_BYTES : 0;
    if (drafts_with(e, BT_DRAFTER_NGRAM_MAP_K)) bytes += NGRAM_MAP_BYTES * slots_of(e);
    if (drafts_with(e, BT_DRAFTER_NGRAM_MAP_K4V)) bytes += NGRAM_MAP_BYTES * slots_of(e);
    return bytes;
}

/* server_output_limits() of tools/server/server-context.cpp; llama_context::output_reserve has a row for each slot. */
static uint64_t server_rows(const bt_effective *e, const bt_wishes *w, bool embeddings) {
    if (embeddings || has_pooling(e)) return bt_max_u64(count(e->ubatch.value), w->n_parallel);
    uint64_t rows = (uint64_t)w->n_parallel * (1 + (uint64_t)drafted(e));
    return bt_max_u64(bt_min_u64(rows, w->n_batch), w->n_parallel);
}

static uint64_t rows_of(const bt_effective *e, const bt_wishes *w, bool embeddings) {
    if (is_server(e)) return server_rows(e, w, embeddings);
    if (e->program == BT_PROGRAM_PERPLEXITY) return bt_max_u64(perplexity_rows(e, w), w->n_parallel);
    if (e->program == BT_PROGRAM_EMBEDDING) return bt_max_u64(w->n_batch, w->n_parallel);
    return w->n_parallel; /* llama-completion: the last token's, and a row for each sequence */
}

/* Of each slot, and one more for each of those whose guesses are taken back. */
static uint32_t checkpoints_of(const bt_effective *e) {
    uint64_t n = is_written(&e->checkpoints) ? count(e->checkpoints.value) : 0;
    if (e->drafters != 0) n++;
    return (uint32_t)bt_min_u64(n * slots_of(e), UINT32_MAX);
}

static void read_server(const bt_effective *e, const bt_facts *facts, bt_drop_in *ret) {
    if (is_written(&e->cache_ram)) ret->cache_ram_bytes = count(e->cache_ram.value) * MIB;
    if (!facts->encoder) ret->n_checkpoints = checkpoints_of(e);
    ret->drafter_bytes = drafter_bytes(e);
}

bt_status bt_drop_in_read(const bt_effective *effective, const bt_facts *facts, bt_drop_in *ret, bt_error *err) {
    BT_TRY(bt_drop_in_check(effective, facts, err));
    const bt_effective *e = effective;
    *ret = (bt_drop_in){.swa_full = e->swa_full.value != 0,
                        .embeddings = e->embedding.value != 0 || e->rerank.value != 0 || facts->encoder};
    ret->wishes = wishes_of(e, facts, ret->embeddings);
    ret->wishes.pooling = (uint32_t)(e->pooling.value + 1);
    ret->n_outputs_max = (uint32_t)bt_min_u64(rows_of(e, &ret->wishes, ret->embeddings), UINT32_MAX);
    if (is_server(e)) read_server(e, facts, ret);
    return BT_OK;
}

/* ---- the line ---- */

/* What is being written: the settings that stand, and the line. */
typedef struct writer {
    const bt_effective *e;
    const bt_plan *plan;
    bt_rewrite *rewrite;
    bt_error *err;
} writer;

static bool has(const writer *w, bt_flag_id flag) {
    return bt_flag_is_of(flag, w->e->program);
}

/* A word, unless the setting says it already. */
static bt_status put_word(const writer *w, bt_flag_id flag, const bt_setting *setting, const char *word) {
    if (!has(w, flag) || (setting->text && strcmp(setting->text, word) == 0)) return BT_OK;
    return bt_rewrite_set(w->rewrite, flag, word, w->err);
}

static bt_status put_number(const writer *w, bt_flag_id flag, const bt_setting *setting, uint32_t number) {
    if (setting->value >= 0 && (uint32_t)setting->value == number) return BT_OK;
    return bt_rewrite_set_int(w->rewrite, flag, number, w->err);
}

static bt_status put_tensors(const writer *w) {
    const bt_rules *rules = &w->e->rules;
    for (uint32_t i = 0; i < rules->n; i++)
        if (rules->items[i].kind == BT_RULE_PATTERN && strcmp(rules->items[i].pattern, EVERY_TENSOR) == 0) return BT_OK;
    return bt_rewrite_append(w->rewrite, BT_FLAG_OVERRIDE_TENSOR, NULL, EVERY_TENSOR "=" BT_DROP_IN_BUFFER, w->err);
}

static bt_status put_device(const writer *w) {
    const bt_effective *e = w->e;
    BT_TRY(put_word(w, BT_FLAG_DEVICE, &e->device, BT_DROP_IN_DEVICE));
    BT_TRY(put_word(w, BT_FLAG_GPU_LAYERS, &e->gpu_layers, LAYERS_ALL));
    BT_TRY(put_tensors(w));
    BT_TRY(put_word(w, BT_FLAG_LOAD_MODE, &e->load_mode, "none"));
    BT_TRY(put_word(w, BT_FLAG_LAZY_MODE, &e->lazy_mode, "off"));
    if (e->fit.value != 0) BT_TRY(put_word(w, BT_FLAG_FIT, &e->fit, "off"));
    return BT_OK;
}

/* As it was asked for where that is what the plan has, rounded up: of llama-embedding a batch is made of it. */
static bt_status put_context(const writer *w) {
    const bt_effective *e = w->e;
    const bool unified = e->kv_unified.value != 0;
    const uint32_t asked = count(e->ctx.value);
    const uint32_t wished = w->plan->n_ctx_requested;
    if (e->program == BT_PROGRAM_PERPLEXITY) return BT_OK;
    if (asked > 0 && ctx_as_loaded(asked, slots_of(e), unified) == w->plan->n_ctx) return BT_OK;
    bool same = wished > 0 && ctx_as_loaded(wished, slots_of(e), unified) == w->plan->n_ctx;
    return bt_rewrite_set_int(w->rewrite, BT_FLAG_CTX_SIZE, same ? wished : w->plan->n_ctx, w->err);
}

/* Of the server all of it, so that what is priced is what stands there, whatever its defaults will be. */
static bt_status put_slots(const writer *w) {
    const bt_effective *e = w->e;
    if (e->program != BT_PROGRAM_SERVER) return BT_OK;
    const bt_occurrence *np = bt_argv_last(w->rewrite->before, BT_FLAG_SLOTS);
    int32_t written = 0;
    if (!np || !np->value || !bt_value_int(np->value, &written) || written != e->slots.value)
        BT_TRY(bt_rewrite_set_int(w->rewrite, BT_FLAG_SLOTS, e->slots.value, w->err));
    bool unified = e->kv_unified.value != 0;
    const bt_occurrence *kvu = bt_argv_last(w->rewrite->before, BT_FLAG_KV_UNIFIED);
    if (kvu && kvu->negative != unified) return BT_OK;
    return bt_rewrite_append(w->rewrite, BT_FLAG_KV_UNIFIED, unified ? "--kv-unified" : "--no-kv-unified", NULL,
                             w->err);
}

static bt_status put_batches(const writer *w) {
    const bt_effective *e = w->e;
    const bt_plan *plan = w->plan;
    if (e->program == BT_PROGRAM_EMBEDDING) return BT_OK; /* makes one of the other itself */
    BT_TRY(put_number(w, BT_FLAG_BATCH, &e->batch, plan->n_batch));
    if (bt_min_u64(count(e->ubatch.value), plan->n_batch) == plan->n_ubatch) return BT_OK;
    return bt_rewrite_set_int(w->rewrite, BT_FLAG_UBATCH, plan->n_ubatch, w->err);
}

static bt_status put_types(const writer *w) {
    const bt_plan *plan = w->plan;
    if ((uint32_t)w->e->cache_k.value != plan->type_k)
        BT_TRY(bt_rewrite_set(w->rewrite, BT_FLAG_CACHE_TYPE_K, bt_type_name(plan->type_k), w->err));
    if ((uint32_t)w->e->cache_v.value != plan->type_v)
        BT_TRY(bt_rewrite_set(w->rewrite, BT_FLAG_CACHE_TYPE_V, bt_type_name(plan->type_v), w->err));
    return BT_OK;
}

/* A projector is no part of the model: the CPU backend holds it, in memory that the plan has a line for. */
static bt_status put_projector(const writer *w) {
    const bt_effective *e = w->e;
    if (!e->mmproj.text || e->mmproj_offload.value == 0) return BT_OK;
    return bt_rewrite_append(w->rewrite, BT_FLAG_MMPROJ_OFFLOAD, "--no-mmproj-offload", NULL, w->err);
}

/* Nor is a draft model, which has lines of its own; in its file's layout, so that no second copy is made. */
static bt_status put_draft(const writer *w) {
    const bt_effective *e = w->e;
    if (!e->draft_model.text) return BT_OK;
    if (!e->draft_device.text) BT_TRY(bt_rewrite_append(w->rewrite, BT_FLAG_DRAFT_DEVICE, NULL, "none", w->err));
    if (e->repack.value == 0) return BT_OK;
    return bt_rewrite_append(w->rewrite, BT_FLAG_REPACK, "--no-repack", NULL, w->err);
}

/* What grows beside the plan is asked for, or there is none of it. */
static bt_status put_caches(const writer *w) {
    if (has(w, BT_FLAG_CACHE_RAM) && !is_written(&w->e->cache_ram))
        BT_TRY(bt_rewrite_set(w->rewrite, BT_FLAG_CACHE_RAM, "0", w->err));
    if (has(w, BT_FLAG_CHECKPOINTS) && !is_written(&w->e->checkpoints))
        BT_TRY(bt_rewrite_append(w->rewrite, BT_FLAG_CHECKPOINTS, "--ctx-checkpoints", "0", w->err));
    return BT_OK;
}

/* Where nobody names the model, the server names it by the path that was typed. A comma would make two names of one. */
static bt_status put_alias(const writer *w) {
    char name[256];
    if (!has(w, BT_FLAG_ALIAS) || is_written(&w->e->alias) || !w->e->model.text) return BT_OK;
    const char *file = bt_path_file(w->e->model.text);
    size_t n = strlen(file);
    if (bt_guard_names_gguf(file)) n -= strlen(".gguf");
    if (n == 0 || n >= sizeof name || memchr(file, ',', n)) return BT_OK;
    memcpy(name, file, n);
    name[n] = '\0';
    return bt_rewrite_append(w->rewrite, BT_FLAG_ALIAS, NULL, name, w->err);
}

bt_status bt_drop_in_apply(const bt_effective *effective, const bt_plan *plan, bt_rewrite *rewrite, bt_error *err) {
    const writer w = {effective, plan, rewrite, err};
    BT_TRY(put_device(&w));
    BT_TRY(put_context(&w));
    BT_TRY(put_slots(&w));
    BT_TRY(put_batches(&w));
    BT_TRY(put_types(&w));
    BT_TRY(put_draft(&w));
    BT_TRY(put_projector(&w));
    BT_TRY(put_caches(&w));
    return put_alias(&w);
}
