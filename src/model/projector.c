/* SPDX-License-Identifier: MIT
 *
 * projector.c: the facts of a multimodal projector, from its header alone.
 *
 *   picture -> tiles or one resized picture -> patches -> blocks (a vision transformer) -> projection -> tokens
 *
 * Such a file is no language model: it has no vocabulary and no KV cache, its keys stand under "clip.vision." and
 * "clip.audio.", and what it costs depends on how large a picture llama.cpp lets through. That is decided by the
 * projector's type, in llama.cpp's source and not in the file, so it is a table here (tools/mtmd/clip.cpp,
 * load_hparams; mtmd.cpp, init_vision). A type is in the table when its compute buffer was measured against the price
 * (docs/decisions/007-companions.md); of the others the weights are known and nothing is guessed.
 * Bounds: those of gguf.c; the facts are one fixed struct.
 */
#include "model/projector.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/size.h"
#include "model/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ARENA_MAX_BYTES   (UINT64_C(32) << 20) /* 65,536 tensors of 200 bytes, twice over */
#define ARENA_BLOCK_BYTES 65536u
#define IMAGE_PX_MAX      8192u /* clip.cpp refuses a larger image_size */
#define QUERIES_MAX       96u   /* clip.cpp: minicpmv_query_num is 64 or 96 */
#define WIDTH_MAX         (1u << 20)
#define PIXELS_MAX        (UINT64_C(1) << 31) /* clip.cpp counts pixels in an int */

#define REUSES  1u /* a gate's product goes where queries, keys and values were, when it fits */
#define WINDOWS 2u /* windowed attention where n_wa_pattern is set */
#define AUDIO   4u
#define BATCHES 8u /* clip-graph.h: support_batch */

typedef struct type_row {
    const char *name;
    bt_image_rule rule;
    uint32_t n_tokens_max; /* BT_IMAGE_TOKENS: llama.cpp's limit */
    uint32_t merge;        /* when the key is absent */
    const char *merge_key; /* below "clip.vision." or "clip.audio."; NULL: merge is fixed */
    uint32_t flags;
    uint32_t n_attention_embd, n_forward_embd, n_hidden_live; /* as in bt_encoder */
} type_row;

static const type_row type_rows[] = {
    {"mlp", BT_IMAGE_TILE, 0, 1, NULL, 0, 6, 4, 2},
    {"resampler", BT_IMAGE_TILE, 0, 1, NULL, 0, 6, 4, 4},
    {"gemma3", BT_IMAGE_TILE, 0, 4, "projector.scale_factor", 0, 5, 3, 2},
    {"idefics3", BT_IMAGE_TILE, 0, 1, "projector.scale_factor", 0, 5, 3, 2},
    {"janus_pro", BT_IMAGE_TILE, 0, 1, NULL, 0, 5, 3, 2},
    {"internvl", BT_IMAGE_TILE, 0, 1, "projector.scale_factor", BATCHES, 5, 3, 2},
    {"lfm2", BT_IMAGE_TOKENS, 256, 1, "projector.scale_factor", 0, 5, 3, 2},
    {"kimivl", BT_IMAGE_TOKENS, 1024, 1, "projector.scale_factor", 0, 6, 4, 2},
    {"pixtral", BT_IMAGE_TOKENS, 1024, 1, "spatial_merge_size", REUSES, 6, 4, 2},
    {"gemma4v", BT_IMAGE_TOKENS, 1120, 3, "projector.scale_factor", BATCHES, 5, 4, 2},
    {"qwen2vl_merger", BT_IMAGE_TOKENS, 4096, 2, "spatial_merge_size", 0, 5, 2, 2},
    {"qwen2.5vl_merger", BT_IMAGE_TOKENS, 4096, 2, "spatial_merge_size", REUSES | WINDOWS, 5, 4, 2},
    {"qwen3vl_merger", BT_IMAGE_TOKENS, 4096, 2, "spatial_merge_size", 0, 6, 4, 2},
    {"phi4", BT_IMAGE_PIXELS, 0, 1, NULL, 0, 5, 3, 2},
    {"lightonocr", BT_IMAGE_EDGE, 0, 1, "spatial_merge_size", REUSES, 6, 4, 2},
    {"ultravox", BT_SOUND, 0, 1, "projector.stack_factor", AUDIO, 5, 3, 2},
    {"voxtral", BT_SOUND, 0, 1, "projector.stack_factor", AUDIO, 5, 3, 2},
    {"qwen2a", BT_SOUND, 0, 2, NULL, AUDIO, 5, 3, 2},
};

typedef struct reader {
    const bt_gguf *gguf;
    const char *prefix; /* "clip.vision" or "clip.audio" */
} reader;

static const type_row *row_of(const char *type, bool audio) {
    for (size_t i = 0; i < sizeof type_rows / sizeof type_rows[0]; i++)
        if (strcmp(type_rows[i].name, type) == 0 && ((type_rows[i].flags & AUDIO) != 0) == audio) return &type_rows[i];
    return NULL;
}

static uint32_t u32_or(const reader *r, const char *suffix, uint32_t absent) {
    return bt_gguf_u32_or(bt_gguf_find_arch(r->gguf, r->prefix, suffix), absent);
}

static bt_status need_u32(const reader *r, const char *suffix, uint32_t max, uint32_t *ret, bt_error *err) {
    if (!bt_gguf_u32_at(bt_gguf_find_arch(r->gguf, r->prefix, suffix), 0, ret))
        return bt_fail(err, BT_E_FORMAT, "gguf_key_missing", BT_MEASURE_NONE, 0, 0, "%s: key '%s.%s' is missing",
                       r->gguf->name, r->prefix, suffix);
    if (*ret == 0 || *ret > max)
        return bt_fail(err, BT_E_FORMAT, "mmproj_shape", BT_MEASURE_ITEMS, *ret, max,
                       "%s: %s.%s is %" PRIu32 ", not 1 to %" PRIu32, r->gguf->name, r->prefix, suffix, *ret, max);
    return BT_OK;
}

static bool flag_of(const bt_gguf *gguf, const char *name) {
    uint32_t v = 0;
    return bt_gguf_u32_at(bt_gguf_find(gguf, name), 0, &v) && v != 0;
}

static const char *text_of(const bt_gguf *gguf, const char *name) {
    const bt_gguf_key *key = bt_gguf_find(gguf, name);
    return key && !key->is_array && key->type == BT_GGUF_STRING ? key->text : NULL;
}

/* A file with both encoders may name a type for each. One name for both is llama.cpp's old way for qwen2.5-omni. */
static const char *type_of(const reader *r, bool audio) {
    char name[64];
    const char *type = text_of(r->gguf, "clip.projector_type");
    (void)snprintf(name, sizeof name, "%s.projector_type", r->prefix);
    if (!type || type[0] == '\0') type = text_of(r->gguf, name);
    if (!type) return "";
    if (strcmp(type, "qwen2.5o") == 0) return audio ? "qwen2a" : "qwen2.5vl_merger";
    return type;
}

/* ---- the largest picture ---------------------------------------------------------------------------------------- */

/* Tiles of one picture: the pairs of a list of resolutions, or what a limit on tiles or on the longest edge gives. */
static uint32_t tiles_of(const reader *r, const bt_encoder *e) {
    uint64_t most = 1;
    uint64_t edge_px = bt_max_u64(e->image_px, 1);
    const bt_gguf_key *pairs = bt_gguf_find_arch(r->gguf, r->prefix, "image_grid_pinpoints");
    for (uint32_t i = 0; pairs && pairs->is_array && i + 1 < pairs->n; i += 2) {
        uint32_t w = 0;
        uint32_t h = 0;
        if (!bt_gguf_u32_at(pairs, i, &w) || !bt_gguf_u32_at(pairs, i + 1, &h)) break;
        most = bt_max_u64(most, bt_sat_add_u64((uint64_t)w * h, edge_px * edge_px - 1) / (edge_px * edge_px));
    }
    if (strcmp(e->type, "internvl") == 0) most = bt_max_u64(most, u32_or(r, "preproc_max_tiles", 12)); /* clip.cpp */
    uint64_t edge = bt_min_u64((u32_or(r, "preproc_image_size", 0) + edge_px - 1) / edge_px, 1024);
    most = bt_max_u64(most, edge * edge);
    if (strcmp(e->type, "resampler") == 0) most = bt_max_u64(most, 9); /* mtmd-image.cpp: max_slice_nums */
    return (uint32_t)bt_min_u64(most + 1, 1024);                       /* and the overview */
}

static bt_status picture_fill(const reader *r, bt_encoder *e, bt_error *err) {
    if (e->rule == BT_SOUND) {
        e->n_tiles_max = 1;
        return BT_OK;
    }
    BT_TRY(need_u32(r, "patch_size", IMAGE_PX_MAX, &e->patch_px, err));
    BT_TRY(need_u32(r, "image_size", IMAGE_PX_MAX, &e->image_px, err));
    e->n_tiles_max = 1;
    if (e->rule == BT_IMAGE_TILE) e->n_tiles_max = tiles_of(r, e);
    if (e->rule == BT_IMAGE_PIXELS) {
        uint32_t pixels = 0;
        BT_TRY(need_u32(r, "image_max_pixels", (uint32_t)(PIXELS_MAX - 1), &pixels, err));
        e->pixels_max = pixels;
    }
    if (e->rule == BT_IMAGE_EDGE) {
        uint64_t edge = u32_or(r, "preproc_image_size", e->image_px);
        e->pixels_max = bt_min_u64(edge * edge, PIXELS_MAX);
    }
    return BT_OK;
}

/* ---- one encoder ------------------------------------------------------------------------------------------------ */

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static void side_add(bt_encoder *e, uint64_t side) {
    uint32_t n = (uint32_t)bt_min_u64(side, WIDTH_MAX);
    if (n > e->n_hidden) e->n_hidden = n;
    for (uint32_t i = 0; i < e->n_sides; i++)
        if (e->sides[i] == n) return;
    if (e->n_sides < BT_PROJECTOR_SIDE_MAX) e->sides[e->n_sides++] = n;
}

/* What the tensors tell: gates, deepstack, the widest side of the projection. */
static void tensors_fill(const bt_gguf *gguf, bool audio, bt_encoder *e) {
    for (uint32_t i = 0; i < gguf->n_tensors; i++) {
        const bt_tensor *t = &gguf->tensors[i];
        e->gated |= starts(t->name, audio ? "a.blk." : "v.blk.") && strstr(t->name, ".ffn_gate.") != NULL;
        e->n_deepstack += !audio && starts(t->name, "v.deepstack.") && strstr(t->name, ".fc1.weight") != NULL;
        bool sound = starts(t->name, "mm.a.");
        bool projects = audio ? sound
                              : (starts(t->name, "mm.") && !sound) || starts(t->name, "resampler.") ||
                                    starts(t->name, "v.deepstack.");
        if (!projects || t->n_dims < 2) continue;
        side_add(e, t->ne[0]);
        side_add(e, t->ne[1]);
    }
}

static bt_status encoder_fill(const bt_gguf *gguf, bool audio, bt_encoder *e, bt_error *err) {
    reader r = {gguf, audio ? "clip.audio" : "clip.vision"};
    const type_row *row = row_of(type_of(&r, audio), audio);
    e->exists = true;
    (void)snprintf(e->type, sizeof e->type, "%s", type_of(&r, audio));
    if (!row) return BT_OK;
    e->known = true;
    e->rule = row->rule;
    e->n_tokens_max = row->n_tokens_max;
    e->reuses = (row->flags & REUSES) != 0;
    e->n_attention_embd = row->n_attention_embd;
    e->n_forward_embd = row->n_forward_embd;
    e->batches = (row->flags & BATCHES) != 0;
    e->n_hidden_live = row->n_hidden_live;
    BT_TRY(need_u32(&r, "embedding_length", WIDTH_MAX, &e->n_embd, err));
    BT_TRY(need_u32(&r, "feed_forward_length", WIDTH_MAX, &e->n_ff, err));
    BT_TRY(need_u32(&r, "block_count", BT_BLOCK_MAX, &e->n_block, err));
    BT_TRY(need_u32(&r, "attention.head_count", WIDTH_MAX, &e->n_head, err));
    if (strcmp(e->type, "resampler") == 0) e->n_queries = QUERIES_MAX;
    e->merge = row->merge_key ? u32_or(&r, row->merge_key, row->merge) : row->merge;
    if (e->merge == 0 || e->merge > 64)
        return bt_fail(err, BT_E_FORMAT, "mmproj_shape", BT_MEASURE_ITEMS, e->merge, 64,
                       "%s: %s.%s is %" PRIu32 ", not 1 to 64", gguf->name, r.prefix,
                       row->merge_key ? row->merge_key : "merge", e->merge);
    e->windows = (row->flags & WINDOWS) != 0 && u32_or(&r, "n_wa_pattern", 0) > 0;
    BT_TRY(picture_fill(&r, e, err));
    tensors_fill(gguf, audio, e);
    return BT_OK;
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static bt_status check_kind(const bt_gguf *gguf, bt_error *err) {
    const char *arch = text_of(gguf, "general.architecture");
    if (arch && strcmp(arch, "clip") == 0) return BT_OK;
    return bt_fail(err, BT_E_ARG, "mmproj_kind", BT_MEASURE_NONE, 0, 0,
                   "%s is no multimodal projector: its architecture is \"%.64s\", not \"clip\"", gguf->name,
                   arch ? arch : "");
}

static bt_status build(const char *path, bt_arena *scratch, bt_projector *p, bt_error *err) {
    bt_gguf gguf;
    BT_TRY(bt_gguf_read(path, true, scratch, &gguf, err));
    BT_TRY(check_kind(&gguf, err));
    p->path = bt_arena_strdup(p->arena, path);
    if (!p->path) return bt_model_no_room(gguf.name, err);
    p->n_tensors = gguf.n_tensors;
    p->file_bytes = gguf.file_bytes;
    memcpy(p->header_sha256, gguf.sha256, sizeof p->header_sha256);
    for (uint32_t i = 0; i < gguf.n_tensors; i++) {
        p->weight_bytes = bt_sat_add_u64(p->weight_bytes, gguf.tensors[i].bytes);
        p->tensor_bytes = bt_max_u64(p->tensor_bytes, gguf.tensors[i].bytes);
    }
    bool vision = flag_of(&gguf, "clip.has_vision_encoder");
    bool audio = flag_of(&gguf, "clip.has_audio_encoder");
    if (vision) BT_TRY(encoder_fill(&gguf, false, &p->vision, err));
    if (audio) BT_TRY(encoder_fill(&gguf, true, &p->audio, err));
    if (vision || audio) return BT_OK;
    return bt_fail(err, BT_E_FORMAT, "mmproj_shape", BT_MEASURE_NONE, 0, 0,
                   "%s has neither a vision nor an audio encoder", gguf.name);
}

bt_status bt_projector_open(const char *path, bt_projector **ret_projector, bt_error *err) {
    bt_arena *arena = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK_BYTES);
    bt_arena *scratch = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK_BYTES);
    bt_projector *projector = arena ? bt_arena_alloc(arena, sizeof *projector) : NULL;
    bt_status status = BT_OK;
    if (projector && scratch) {
        projector->arena = arena;
        status = build(path, scratch, projector, err);
    } else {
        status = bt_model_no_room(path, err);
    }
    bt_arena_close(scratch);
    if (status != BT_OK) {
        bt_arena_close(arena);
        return status;
    }
    *ret_projector = projector;
    return BT_OK;
}

void bt_projector_close(bt_projector *projector) {
    if (projector) bt_arena_close(projector->arena);
}
