/* SPDX-License-Identifier: MIT
 *
 * companions.c: prices of what stands beside the model in the same pool, as lines of its own.
 *
 *   draft    weights   all of them, in whole pages    mmproj   weights   all of them, resident
 *            kv        its blocks x the context that            encode    the most that encoding the largest
 *                      the search chooses                                 picture takes
 *            compute   graph and logits, and the rows
 *                      of logits that checking drafts
 *                      costs the model
 *            vocab     vocabulary, header, tables
 *
 * A draft is another language model, so the formulas of costs.c price it; only its KV and compute depend on the
 * context, and they depend on the model's, never on what the draft was trained for (user case 6). Its KV types are
 * f16 whatever the model's are, as llama.cpp's are by default.
 *
 * Encoding is a vision transformer over N patches of width E and hidden width F. What lives at once is the largest of
 * three stages, counted in floats for each patch; the counts were read off llama.cpp's compute buffers
 * (docs/decisions/007-companions.md) and err upwards:
 *
 *   attention       5 or 6 E; without flash attention 8 E, and heads x N scores
 *   feed-forward    2 to 4 E + F; with a gate + 3 F
 *   projection      E + the rows of its widest matrix for each token, and twice what deepstack keeps
 *
 * and beside them the picture itself, as bytes and as floats, the masks of windows, ggml's work area, the tokens that
 * come out. The largest picture is taken as square. Left out: the picture as it was decoded from the user's file,
 * whose size nothing bounds but the program that reads it. */
#include "plan/companions.h"

#include "base/error.h"
#include "base/size.h"
#include "base/text.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* A clip context beside its buffers: the graph's 8192 tensor structs (3 MiB, cleared), the scheduler's tables and the
 * file's header: 5.4 MiB measured at 27 blocks, and 1.2 MiB while it encodes. */
#define CONTEXT_BYTES (8 * MIB)
/* Work area of ggml's tiled matrix product, each thread (research notes, llama.cpp 3.4). */
#define TILE_BYTES (MIB / 2)
/* mtmd.cpp: batch_max_tokens, what pictures encoded together make at most. */
#define BATCH_TOKENS 1024u
/* mtmd-audio.cpp: 30 s of 10 ms each; the encoder's second convolution halves them. A mel spectrogram has up to 128
 * bins. */
#define SOUND_PATCHES 1500u
#define SOUND_FLOATS  256u
#define RGB           3u
/* Rows of n_embd that live at once without flash attention, beside the scores: the most of all measured types. */
#define WITHOUT_FLASH_EMBD 8u
#define TYPE_F16           1u

/* ---- lines ---- */

static bool is_draft(bt_line line) {
    return line == BT_LINE_DRAFT_WEIGHTS || line == BT_LINE_DRAFT_KV || line == BT_LINE_DRAFT_COMPUTE ||
           line == BT_LINE_DRAFT_VOCAB;
}

static bool is_mmproj(bt_line line) {
    return line == BT_LINE_MMPROJ_WEIGHTS || line == BT_LINE_MMPROJ_ENCODE;
}

bool bt_plan_has_line(const bt_plan *plan, bt_line line) {
    if (is_draft(line)) return plan->draft.file[0] != '\0';
    if (is_mmproj(line)) return plan->mmproj.file[0] != '\0';
    bool is_guests = line == BT_LINE_ADAPTERS || line == BT_LINE_PROMPT_CACHE || line == BT_LINE_CHECKPOINTS;
    return !is_guests || plan->wishes.guest;
}

uint64_t bt_companions_held_bytes(const bt_costs *costs) {
    return costs->line[BT_LINE_MMPROJ_WEIGHTS].fixed_bytes;
}

static void fix(bt_costs *costs, bt_line line, uint64_t bytes, bt_source source) {
    costs->line[line] = (bt_cost){.fixed_bytes = bytes, .source = source};
}

static bt_status too_large(bt_error *err) {
    return bt_fail(err, BT_E_LIMIT, "plan_size", BT_MEASURE_NONE, 0, 0,
                   "a price of a file beside the model does not fit in 64 bits");
}

/* ---- draft ---- */

static bt_status other_vocab(const bt_facts *model, const bt_facts *draft, const char *what, const char *theirs,
                             const char *ours, bt_error *err) {
    return bt_fail(err, BT_E_ARG, "draft_vocab", BT_MEASURE_NONE, 0, 0,
                   "the draft %.100s does not speak the tokens of %.100s: its %s is %.40s, not %.40s",
                   bt_path_file(draft->path), bt_path_file(model->path), what, theirs[0] ? theirs : "not given",
                   ours[0] ? ours : "not given");
}

bt_status bt_companion_draft_check(const bt_facts *model, const bt_facts *draft, bt_error *err) {
    if (strcmp(model->tokenizer, draft->tokenizer) != 0)
        return other_vocab(model, draft, "tokenizer", draft->tokenizer, model->tokenizer, err);
    /* older files do not say how they split text into words */
    if (model->tokenizer_pre[0] && draft->tokenizer_pre[0] && strcmp(model->tokenizer_pre, draft->tokenizer_pre) != 0)
        return other_vocab(model, draft, "pre-tokenizer", draft->tokenizer_pre, model->tokenizer_pre, err);
    uint32_t most = (uint32_t)bt_max_u64(model->n_vocab, draft->n_vocab);
    uint32_t least = (uint32_t)bt_min_u64(model->n_vocab, draft->n_vocab);
    if (most - least > BT_DRAFT_VOCAB_SLACK)
        return bt_fail(err, BT_E_ARG, "draft_vocab", BT_MEASURE_TOKENS, draft->n_vocab, model->n_vocab,
                       "the draft %.100s does not speak the tokens of %.100s: it has %" PRIu32 " of them, not %" PRIu32,
                       bt_path_file(draft->path), bt_path_file(model->path), draft->n_vocab, model->n_vocab);
    /* of a padded vocabulary, the runs that both have in full */
    uint32_t n = least <= BT_VOCAB_MARK_FIRST ? 0 : (least - BT_VOCAB_MARK_FIRST) / BT_VOCAB_MARK;
    if (most == least) n = (uint32_t)bt_max_u64(model->n_vocab_marks, draft->n_vocab_marks);
    for (uint32_t i = 0; i < n; i++) {
        if (i < model->n_vocab_marks && i < draft->n_vocab_marks && model->vocab_marks[i] == draft->vocab_marks[i])
            continue;
        return bt_fail(err, BT_E_ARG, "draft_vocab", BT_MEASURE_NONE, 0, 0,
                       "the draft %.100s does not speak the tokens of %.100s: they differ between %" PRIu32
                       " and %" PRIu32,
                       bt_path_file(draft->path), bt_path_file(model->path), BT_VOCAB_MARK_FIRST + i * BT_VOCAB_MARK,
                       BT_VOCAB_MARK_FIRST + (i + 1) * BT_VOCAB_MARK - 1);
    }
    return BT_OK;
}

/* A cost model has one window. Where the draft's is the larger one its blocks are priced as if they had none. */
static void keep_window(const bt_costs *draft, bt_costs *costs, bt_cost *cost) {
    if (cost->per_window_bytes == 0 || draft->window_cells <= costs->window_cells) return;
    if (costs->window_cells == 0) {
        costs->window_cells = draft->window_cells;
        return;
    }
    cost->per_ctx_bytes = bt_sat_add_u64(cost->per_ctx_bytes, cost->per_window_bytes);
    cost->per_window_bytes = 0;
}

/* A line with bytes more at every context. */
static bt_cost cost_with(const bt_cost *cost, uint64_t fixed_bytes) {
    bt_cost sum = *cost;
    sum.fixed_bytes = bt_sat_add_u64(sum.fixed_bytes, fixed_bytes);
    sum.floor_bytes = bt_sat_add_u64(sum.floor_bytes, fixed_bytes);
    return sum;
}

static bool cost_fits(const bt_cost *cost) {
    return cost->fixed_bytes != UINT64_MAX && cost->per_ctx_bytes != UINT64_MAX &&
           cost->per_window_bytes != UINT64_MAX && cost->floor_bytes != UINT64_MAX;
}

/* As they are pinned: each unit with the margins of its pages, small tensors each at a multiple of 64. */
static uint64_t pinned_bytes(const bt_facts *draft) {
    uint64_t sum = draft->weight_bytes;
    for (uint32_t u = 0; u < draft->n_units; u++)
        sum = bt_sat_add_u64(sum, bt_sat_sub_u64(draft->units[u].image_bytes, draft->units[u].bytes));
    uint64_t margins = UINT64_C(64) * draft->n_tensors + BT_PAGE_BYTES;
    return draft->small_bytes > 0 ? bt_sat_add_u64(sum, margins) : sum;
}

/* While the draft's vocabulary is built, the model's is there. own: the draft alone, with the process. */
static uint64_t load_peak(const bt_costs *costs, const bt_costs *own) {
    static const bt_line held[] = {BT_LINE_VOCAB, BT_LINE_METADATA, BT_LINE_OUTPUT_NORM};
    uint64_t sum = own->load_peak_bytes;
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        sum = bt_sat_add_u64(sum, costs->line[held[i]].fixed_bytes);
    return bt_max_u64(costs->load_peak_bytes, sum);
}

bt_status bt_companion_draft_add(const bt_facts *model, const bt_facts *draft, const bt_wishes *wishes,
                                 const bt_base_costs *base, bt_costs *costs, bt_error *err) {
    if (!draft->kv_known)
        return bt_fail(err, BT_E_UNSUPPORTED, "draft_kv", BT_MEASURE_NONE, 0, 0,
                       "the KV cache of the draft %.100s cannot be priced: %.96s", bt_path_file(draft->path),
                       draft->kv_reason);
    bt_wishes its = *wishes;
    its.type_k = its.type_v = TYPE_F16;
    bt_costs own;
    BT_TRY(bt_costs_formula(draft, &its, base, costs->n_ubatch, &own, err));
    uint64_t n_parallel = wishes->n_parallel > 0 ? wishes->n_parallel : 1;
    uint64_t checked = bt_sat_mul_u64(UINT64_C(4) * model->n_vocab, BT_DRAFT_TOKENS_MAX * n_parallel);
    bt_cost kv = own.line[BT_LINE_KV];
    bt_cost compute =
        cost_with(&own.line[BT_LINE_COMPUTE], bt_sat_add_u64(own.line[BT_LINE_LOGITS].fixed_bytes, checked));
    keep_window(&own, costs, &kv);
    keep_window(&own, costs, &compute);
    uint64_t vocab = bt_sat_add_u64(own.line[BT_LINE_VOCAB].fixed_bytes, own.line[BT_LINE_METADATA].fixed_bytes);
    uint64_t weights = pinned_bytes(draft);
    fix(costs, BT_LINE_DRAFT_WEIGHTS, weights, BT_SOURCE_TENSOR);
    fix(costs, BT_LINE_DRAFT_VOCAB, vocab, BT_SOURCE_FORMULA);
    costs->line[BT_LINE_DRAFT_KV] = kv;
    costs->line[BT_LINE_DRAFT_COMPUTE] = compute;
    uint64_t held = bt_sat_add_u64(weights, vocab);
    costs->load_peak_bytes = load_peak(costs, &own);
    bool fits = cost_fits(&kv) && cost_fits(&compute) && held != UINT64_MAX && costs->load_peak_bytes != UINT64_MAX;
    return fits ? BT_OK : too_large(err);
}

/* ---- projector ---- */

static uint64_t root(uint64_t n) {
    uint64_t low = 0;
    uint64_t high = UINT64_C(1) << 32;
    while (low < high) { /* the least whose square is at least n */
        uint64_t middle = low + (high - low) / 2;
        if (bt_sat_mul_u64(middle, middle) >= n)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bt_encode_size bt_encode_size_of(const bt_encoder *e, const bt_encode_ask *ask) {
    if (e->rule == BT_SOUND) return (bt_encode_size){SOUND_PATCHES, SOUND_PATCHES / e->merge + 1, 0};
    uint64_t merged = (uint64_t)e->merge * e->merge;
    uint64_t patch = (uint64_t)e->patch_px * e->patch_px;
    uint64_t asked = bt_sat_mul_u64(ask->n_tokens_max, merged);
    uint64_t n = 0;
    switch (e->rule) {
    case BT_IMAGE_TOKENS:
        n = ask->n_tokens_max > 0 ? asked : e->n_tokens_max * merged;
        break;
    case BT_IMAGE_PIXELS:
        n = e->pixels_max / patch;
        break;
    case BT_IMAGE_EDGE:
        n = e->pixels_max / patch;
        if (ask->n_tokens_max > 0) n = bt_min_u64(n, asked);
        break;
    case BT_IMAGE_TILE:
    case BT_SOUND:
        n = (uint64_t)(e->image_px / e->patch_px) * (e->image_px / e->patch_px);
        break;
    }
    n = bt_max_u64(n, 1);
    uint64_t n_tokens = e->n_queries > 0 ? e->n_queries : (n + merged - 1) / merged;
    return (bt_encode_size){n, n_tokens, bt_sat_mul_u64(root(n), e->patch_px)};
}

/* Patches that become a token (frames, for sound). */
static uint64_t merged_of(const bt_encoder *e) {
    return e->rule == BT_SOUND ? e->merge : (uint64_t)e->merge * e->merge;
}

/* Floats that live at once for each patch: the largest of the three stages. Each factor is below 2^20. */
static uint64_t live_floats(const bt_encoder *e, const bt_encode_ask *ask) {
    uint64_t embd = e->n_embd;
    uint64_t attention = (ask->flash_off ? WITHOUT_FLASH_EMBD : e->n_attention_embd) * embd;
    uint64_t n_forward = !e->gated ? 1 : e->reuses && e->n_ff <= 3 * embd ? 2 : 3;
    uint64_t forward = e->n_forward_embd * embd + n_forward * e->n_ff;
    uint64_t rows = (e->n_hidden_live + 2 * (uint64_t)e->n_deepstack) * e->n_hidden;
    uint64_t projection = embd + (rows + merged_of(e) - 1) / merged_of(e);
    return bt_max_u64(bt_max_u64(attention, forward), projection);
}

/* What ggml and clip hold beside the graph's buffer: the work area (the right side of a matrix product, as f16 at
 * most), or, before it, the mask of windows as a list. */
static uint64_t aside_bytes(const bt_encoder *e, const bt_encode_ask *ask, uint64_t n_rows, uint64_t square) {
    uint64_t widest = bt_max_u64(bt_max_u64(e->n_ff, e->n_embd), e->n_hidden / merged_of(e) + 1);
    uint64_t n_threads = ask->n_threads > 0 ? ask->n_threads : 1;
    uint64_t work = bt_sat_add_u64(bt_sat_mul_u64(2 * widest, n_rows), bt_sat_mul_u64(n_threads, TILE_BYTES));
    return e->windows ? bt_max_u64(work, bt_sat_mul_u64(4, square)) : work;
}

static uint64_t encoder_bytes(const bt_encoder *e, const bt_encode_ask *ask) {
    bt_encode_size size = bt_encode_size_of(e, ask);
    uint64_t n_together = e->batches ? bt_max_u64(BATCH_TOKENS / bt_max_u64(size.n_tokens, 1), 1) : 1;
    uint64_t n_kept = bt_max_u64(e->n_tiles_max, n_together);
    uint64_t image_floats = e->rule == BT_SOUND ? SOUND_FLOATS : RGB * (uint64_t)e->patch_px * e->patch_px;
    /* the class token, and where tokens stand between the rows of the picture, one for each */
    uint64_t one = size.n_patches + 1 + root(size.n_patches);
    uint64_t all = bt_sat_mul_u64(one, n_together);
    uint64_t square = bt_sat_mul_u64(one, one);
    uint64_t bytes = bt_sat_mul_u64(4 * (live_floats(e, ask) + image_floats), all);
    if (ask->flash_off)
        bytes = bt_sat_add_u64(bytes, bt_sat_mul_u64(4 * (uint64_t)e->n_head, bt_sat_mul_u64(square, n_together)));
    /* a mask of f32, and its copy in f16 for flash attention */
    if (e->windows) bytes = bt_sat_add_u64(bytes, bt_sat_mul_u64(ask->flash_off ? 4 : 6, square));
    bytes = bt_sat_add_u64(bytes, aside_bytes(e, ask, all, square));
    /* each piece of the picture as bytes and as floats, and two copies of what is encoded */
    uint64_t floats = bt_sat_mul_u64(image_floats, size.n_patches);
    uint64_t pictures = bt_sat_add_u64(bt_sat_mul_u64(5 * n_kept, floats), bt_sat_mul_u64(8 * n_together, floats));
    uint64_t row = 4 * (uint64_t)ask->n_embd * (1 + e->n_deepstack);
    uint64_t tokens = bt_sat_mul_u64(2 * row, bt_sat_mul_u64(size.n_tokens + root(size.n_tokens), n_kept));
    bytes = bt_sat_add_u64(bytes, bt_sat_add_u64(pictures, tokens));
    return bt_sat_add_u64(bytes, CONTEXT_BYTES);
}

static bt_status encoder_check(const bt_projector *p, const bt_encoder *e, const bt_encode_ask *ask, bt_error *err) {
    if (!e->known)
        return bt_fail(err, BT_E_UNSUPPORTED, "mmproj_unknown", BT_MEASURE_NONE, 0, 0,
                       "what encoding takes with %.100s, of type \"%.32s\", is not known; its weights are %s",
                       bt_path_file(p->path), e->type, BT_SIZE(p->weight_bytes));
    for (uint32_t i = 0; i < e->n_sides; i++)
        if (e->sides[i] == ask->n_embd) return BT_OK;
    return bt_fail(err, BT_E_ARG, "mmproj_width", BT_MEASURE_ITEMS, ask->n_embd, e->n_hidden,
                   "the projector %.100s does not belong to this model: none of its matrices is %" PRIu32 " wide",
                   bt_path_file(p->path), ask->n_embd);
}

bt_status bt_encode_peak_bytes(const bt_projector *projector, const bt_encode_ask *ask, uint64_t *ret_bytes,
                               bt_error *err) {
    const bt_encoder *encoders[] = {&projector->vision, &projector->audio};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof encoders / sizeof encoders[0]; i++) {
        if (!encoders[i]->exists) continue;
        BT_TRY(encoder_check(projector, encoders[i], ask, err));
        sum = bt_sat_add_u64(sum, encoder_bytes(encoders[i], ask)); /* each keeps its buffers */
    }
    sum = bt_max_u64(sum, bt_sat_add_u64(projector->tensor_bytes, CONTEXT_BYTES)); /* loading holds a tensor twice */
    if (sum == UINT64_MAX) return too_large(err);
    *ret_bytes = sum;
    return BT_OK;
}

bt_status bt_companion_mmproj_add(const bt_projector *projector, const bt_encode_ask *ask, bt_costs *costs,
                                  bt_error *err) {
    uint64_t encode = 0;
    BT_TRY(bt_encode_peak_bytes(projector, ask, &encode, err));
    fix(costs, BT_LINE_MMPROJ_WEIGHTS, projector->weight_bytes, BT_SOURCE_TENSOR);
    fix(costs, BT_LINE_MMPROJ_ENCODE, encode, BT_SOURCE_FORMULA);
    costs->load_peak_bytes = bt_sat_add_u64(costs->load_peak_bytes, projector->weight_bytes);
    return costs->load_peak_bytes != UINT64_MAX ? BT_OK : too_large(err);
}
