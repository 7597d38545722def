/* SPDX-License-Identifier: MIT
 * effective.c: one assignment after the other, as the handlers of llama.cpp's common/arg.cpp take them.
 *
 *   defaults -> files -> environment -> argv -> what the program makes of it
 *   `-- effective_sources.c puts each of these through bt_effective_assign, in order --'
 *
 * Precedence needs no rule of its own this way: a later assignment overwrites a scalar and adds to a list, just as
 * there. Most settings are a row: which option, which member, how its text is read. What is left is code: options that
 * set two things ("-c 0" also forbids fitting to shrink the context), two options for one thing (--rope-scale is
 * 1 / --rope-freq-scale), and lists (effective_lists.c). A text that llama.cpp refuses changes nothing, is counted,
 * and noted: the program will not start, and what would have been is of no interest. */
#include "base/error.h"
#include "guard/effective_internal.h"
#include "model/types.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef enum how {
    TEXT,
    INT, /* LAYERS and SWITCH, PAIR too: by the option's kind */
    REAL,
    FLASH,
    ON_OFF,
    TYPE, /* of a KV cache */
    WORD, /* one of words */
} how;

typedef struct row {
    bt_flag_id flag;
    size_t offset;
    how how;
    const char *words;
    int32_t start, least; /* value by default; the smallest that is taken */
} row;

#define NGRAM_MOD_N_MAX                 64
#define SETTING(member)                 offsetof(bt_effective, member)
#define ANY                             INT32_MIN
#define TEXT_ROW(flag, m)               {BT_FLAG_##flag, SETTING(m), TEXT, NULL, 0, 0}
#define INT_ROW(flag, m, start, least)  {BT_FLAG_##flag, SETTING(m), INT, NULL, start, least}
#define WORD_ROW(flag, m, start, words) {BT_FLAG_##flag, SETTING(m), WORD, words, start, 0}
#define ROW(flag, m, how, start)        {BT_FLAG_##flag, SETTING(m), how, NULL, start, 0}

/* Defaults: struct common_params of common/common.h. */
static const row rows[] = {
    TEXT_ROW(MODEL, model),
    TEXT_ROW(MODEL_URL, model_url),
    TEXT_ROW(HF_REPO, hf_repo),
    TEXT_ROW(HF_FILE, hf_file),
    TEXT_ROW(DOCKER_REPO, docker_repo),
    TEXT_ROW(MODELS_DIR, models_dir),
    TEXT_ROW(MODELS_PRESET, models_preset),
    INT_ROW(GPU_LAYERS, gpu_layers, BT_LAYERS_AUTO, ANY),
    WORD_ROW(SPLIT_MODE, split_mode, BT_SPLIT_LAYER, "none|layer|row|tensor"),
    INT_ROW(MAIN_GPU, main_gpu, 0, ANY),
    TEXT_ROW(TENSOR_SPLIT, tensor_split),
    TEXT_ROW(DEVICE, device),
    TEXT_ROW(RPC, rpc),
    ROW(FIT, fit, ON_OFF, 1),
    TEXT_ROW(FIT_TARGET, fit_target),
    INT_ROW(FIT_CTX, fit_ctx, 4096, ANY),
    INT_ROW(CTX_SIZE, ctx, 0, ANY),
    INT_ROW(SLOTS, slots, 1, ANY),
    INT_ROW(KV_UNIFIED, kv_unified, 0, 0),
    INT_ROW(KV_UNIFIED_PER_SLOT, kv_per_slot, 0, ANY),
    ROW(CACHE_TYPE_K, cache_k, TYPE, 1 /* f16 */),
    ROW(CACHE_TYPE_V, cache_v, TYPE, 1),
    INT_ROW(KV_OFFLOAD, kv_offload, 1, 0),
    INT_ROW(SWA_FULL, swa_full, 0, 0),
    ROW(FLASH_ATTN, flash, FLASH, BT_FLASH_AUTO),
    INT_ROW(BATCH, batch, 2048, ANY),
    INT_ROW(UBATCH, ubatch, 512, ANY),
    WORD_ROW(ROPE_SCALING, rope_scaling, -1, "none|linear|yarn"),
    ROW(ROPE_FREQ_SCALE, rope_freq_scale, REAL, 0),
    ROW(ROPE_SCALE, rope_freq_scale, REAL, 0),
    ROW(ROPE_FREQ_BASE, rope_freq_base, REAL, 0),
    INT_ROW(YARN_ORIG_CTX, yarn_orig_ctx, 0, ANY),
    INT_ROW(CONTEXT_SHIFT, context_shift, 0, 0),
    INT_ROW(CACHE_REUSE, cache_reuse, 0, ANY),
    INT_ROW(CHECKPOINTS, checkpoints, 32, ANY),
    INT_ROW(CHECKPOINT_STEP, checkpoint_step, 8192, 0),
    INT_ROW(CACHE_RAM, cache_ram, 8192, ANY),
    INT_ROW(CACHE_IDLE_SLOTS, cache_idle_slots, 1, 0),
    TEXT_ROW(OVERRIDE_KV, override_kv),
    WORD_ROW(LOAD_MODE, load_mode, BT_LOAD_AUTO, "auto|none|mmap|mlock|mmap+mlock|dio"),
    WORD_ROW(LAZY_MODE, lazy_mode, BT_LAZY_AUTO, "auto|on|off"),
    INT_ROW(REPACK, repack, 1, 0),
    INT_ROW(NO_HOST, no_host, 0, 0),
    INT_ROW(OP_OFFLOAD, op_offload, 1, 0),
    INT_ROW(WARMUP, warmup, 1, 0),
    INT_ROW(CHECK_TENSORS, check_tensors, 0, 0),
    INT_ROW(BACKEND_SAMPLING, backend_sampling, 0, 0),
    TEXT_ROW(DRAFT_MODEL, draft_model),
    TEXT_ROW(DRAFT_HF_REPO, draft_hf_repo),
    INT_ROW(DRAFT_GPU_LAYERS, draft_gpu_layers, BT_LAYERS_AUTO, ANY),
    ROW(DRAFT_CACHE_TYPE_K, draft_cache_k, TYPE, 1),
    ROW(DRAFT_CACHE_TYPE_V, draft_cache_v, TYPE, 1),
    TEXT_ROW(DRAFT_DEVICE, draft_device),
    INT_ROW(DRAFT_N_MAX, draft_n_max, 3, 0),
    INT_ROW(OLD_DRAFT_CTX_SIZE, draft_ctx, 0, ANY),
    INT_ROW(SPEC_NGRAM_MOD_N_MAX, ngram_mod_n_max, NGRAM_MOD_N_MAX, 0),
    INT_ROW(SPEC_NGRAM_SIMPLE_SIZE_M, ngram_simple_m, 48, 1),
    INT_ROW(SPEC_NGRAM_MAP_K_SIZE_M, ngram_map_k_m, 48, 1),
    INT_ROW(SPEC_NGRAM_MAP_K4V_SIZE_M, ngram_map_k4v_m, 48, 1),
    TEXT_ROW(LOOKUP_CACHE_STATIC, lookup_static),
    TEXT_ROW(LOOKUP_CACHE_DYNAMIC, lookup_dynamic),
    TEXT_ROW(MMPROJ, mmproj),
    TEXT_ROW(MMPROJ_URL, mmproj_url),
    INT_ROW(MMPROJ_AUTO, mmproj_auto, 1, 0),
    INT_ROW(MMPROJ_OFFLOAD, mmproj_offload, 1, 0),
    TEXT_ROW(MMPROJ_DEVICE, mmproj_device),
    INT_ROW(IMAGE_MIN_TOKENS, image_min_tokens, -1, ANY),
    INT_ROW(IMAGE_MAX_TOKENS, image_max_tokens, -1, ANY),
    INT_ROW(MTMD_BATCH_MAX_TOKENS, mtmd_batch, 1024, ANY),
    INT_ROW(EMBEDDING, embedding, 0, 0),
    INT_ROW(RERANK, rerank, 0, 0),
    WORD_ROW(POOLING, pooling, -1, "none|mean|cls|last|rank"),
    WORD_ROW(ATTENTION, attention, -1, "causal|non-causal"),
    INT_ROW(PPL_STRIDE, ppl_stride, 0, ANY),
    TEXT_ROW(KL_DIVERGENCE_BASE, logits_file),
    TEXT_ROW(ALIAS, alias),
    TEXT_ROW(SLOT_SAVE_PATH, slot_save),
    TEXT_ROW(SERVER_BASE, server_base),
    TEXT_ROW(PROMPT_CACHE, prompt_cache),
    INT_ROW(SLEEP_IDLE_SECONDS, sleep_idle_s, -1, -1),
    INT_ROW(THREADS, threads, -1, ANY),
    INT_ROW(THREADS_BATCH, threads_batch, -1, ANY),
};
#define N_ROWS (sizeof rows / sizeof *rows)

static bt_setting load(const bt_effective *out, const row *r) {
    bt_setting setting;
    memcpy(&setting, (const char *)out + r->offset, sizeof setting);
    return setting;
}

static void store(bt_effective *out, const row *r, bt_setting setting) {
    memcpy((char *)out + r->offset, &setting, sizeof setting);
}

void bt_effective_note(settling *s, const char *fmt, ...) {
    char text[256];
    if (s->out->n_notes == BT_NOTE_MAX) return;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *kept = bt_arena_strdup(s->arena, text);
    if (kept) s->out->notes[s->out->n_notes++] = kept;
}

void bt_effective_bad(settling *s, const assignment *a) {
    size_t n;
    const char *spelling = bt_flag_canonical(a->flag, &n);
    s->out->n_bad++;
    bt_effective_note(s, "llama.cpp refuses %.*s %.80s and does not start", (int)n, spelling,
                      a->value ? a->value : "without its value");
}

void bt_effective_defaults(bt_effective *ret, bt_program program) {
    memset(ret, 0, sizeof *ret);
    ret->program = program;
    for (size_t i = 0; i < N_ROWS; i++)
        store(ret, &rows[i], (bt_setting){.value = rows[i].start});
    if (program == BT_PROGRAM_SERVER) ret->slots.value = -1;    /* automatic */
    if (program == BT_PROGRAM_PERPLEXITY) ret->ctx.value = 512; /* tools/perplexity/perplexity.cpp */
}

/* ---- a scalar --------------------------------------------------------------------------------------------------- */

/* Off or on: of a switch that it is there, of a pair how it is spelled, and of both what a value says. */
static bool read_on(const assignment *a, int32_t *ret) {
    bool on = true;
    if (a->value && !bt_value_on(a->value, &on)) return false;
    *ret = on != a->negative;
    return true;
}

static bool read_number(const row *r, const assignment *a, int32_t *ret) {
    bt_flag_kind kind = bt_flag_get(a->flag)->kind;
    if (kind == BT_TAKES_SWITCH || kind == BT_TAKES_PAIR) return read_on(a, ret);
    if (!a->value) return false;
    if (kind == BT_TAKES_LAYERS) return bt_value_layers(a->value, ret);
    int32_t number;
    if (!bt_value_int(a->value, &number) || number < r->least) return false;
    *ret = number;
    return true;
}

static bool read_flash(const assignment *a, int32_t *ret) {
    bt_flash flash = BT_FLASH_ON; /* of earlier builds: the bare option */
    if (a->value && !bt_value_flash(a->value, &flash)) return false;
    *ret = (int32_t)flash;
    return true;
}

static bool read_type(const char *text, int32_t *ret) {
    uint32_t type;
    if (!text || !bt_type_by_name(text, &type) || !bt_type_is_cache(type)) return false;
    *ret = (int32_t)type;
    return true;
}

/* Read the text into the setting. false: refused, and nothing is changed. */
static bool read_value(const row *r, const assignment *a, bt_setting *setting) {
    bool on;
    switch (r->how) {
    case TEXT:
        return a->value != NULL;
    case INT:
        return read_number(r, a, &setting->value);
    case REAL:
        return a->value && bt_value_real(a->value, &setting->real);
    case FLASH:
        return read_flash(a, &setting->value);
    case ON_OFF:
        if (!a->value || !bt_value_on(a->value, &on)) return false;
        setting->value = on;
        return true;
    case TYPE:
        return read_type(a->value, &setting->value);
    case WORD:
        return a->value && bt_value_choice(a->value, r->words, &setting->value);
    }
    return false;
}

/* What llama.cpp refuses although it can be read; a list of numbers is taken over here. */
static bool is_taken(bt_effective *out, const assignment *a, int32_t value) {
    switch ((int)a->flag) {
    case BT_FLAG_SLOTS:
        return value != 0 || out->program != BT_PROGRAM_SERVER;
    case BT_FLAG_SLEEP_IDLE_SECONDS:
        return value != 0;
    case BT_FLAG_TENSOR_SPLIT:
        return bt_effective_shares(out, a->value);
    case BT_FLAG_FIT_TARGET:
        return bt_effective_fit_targets(out, a->value);
    default:
        return true;
    }
}

static bool assign_scalar(settling *s, const assignment *a) {
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].flag != a->flag) continue;
        bt_setting before = load(s->out, &rows[i]);
        bt_setting next = {.by = a->by, .value = before.value, .text = a->value};
        bool good = read_value(&rows[i], a, &next) && is_taken(s->out, a, next.value);
        before.bad = !good;
        store(s->out, &rows[i], good ? next : before);
        if (!good) bt_effective_bad(s, a);
        return good;
    }
    return true;
}

/* ---- options that do more ---------------------------------------------------------------------------------------- */

static void set(bt_setting *setting, const assignment *a, int32_t value) {
    setting->value = value;
    setting->text = a->value;
    setting->by = a->by;
}

/* Earlier builds had three options for what is one now. */
static void assign_old_loading(settling *s, const assignment *a) {
    int32_t on = 1;
    if (!read_on(a, &on)) {
        bt_effective_bad(s, a);
        return;
    }
    bt_setting *mode = &s->out->load_mode;
    if (a->by.origin == BT_FROM_ENV) {
        if (mode->by.origin == BT_FROM_ENV && mode->text) return; /* today's variable stands beside it */
        bt_effective_note(s, "%s is a variable of earlier builds; it is taken as if this were one", a->by.where);
    }
    bool locked = mode->value == BT_LOAD_MLOCK || mode->value == BT_LOAD_MMAP_MLOCK;
    if (a->flag == BT_FLAG_OLD_MLOCK) {
        if (on) set(mode, a, mode->value == BT_LOAD_NONE ? BT_LOAD_MLOCK : BT_LOAD_MMAP_MLOCK);
    } else if (a->flag == BT_FLAG_OLD_DIRECT_IO) {
        if (on) set(mode, a, BT_LOAD_DIRECT);
    } else if (on) {
        set(mode, a, locked ? BT_LOAD_MMAP_MLOCK : BT_LOAD_MMAP);
    } else {
        set(mode, a, locked ? BT_LOAD_MLOCK : BT_LOAD_NONE);
    }
}

static void assign_mmproj_device(settling *s, const assignment *a) {
    set(&s->out->mmproj_offload, a, strcmp(a->value, "none") != 0);
}

static void assign_rank(settling *s, const assignment *a) {
    if (!s->out->rerank.value) return;
    set(&s->out->embedding, a, 1);
    set(&s->out->pooling, a, BT_POOLING_RANK);
}

/* What an option does beside its row, after that has taken it. */
static void assign_more(settling *s, const assignment *a) {
    bt_effective *out = s->out;
    switch ((int)a->flag) {
    case BT_FLAG_CTX_SIZE:
        if (out->ctx.value == 0) set(&out->fit_ctx, a, INT32_MAX);
        break;
    case BT_FLAG_ROPE_SCALE:
        out->rope_freq_scale.real = 1 / out->rope_freq_scale.real;
        break;
    case BT_FLAG_SPEC_TYPE:
        set(&out->spec_type, a, 0);
        if (!a->value || !bt_effective_drafters(out, a->value)) bt_effective_bad(s, a);
        break;
    case BT_FLAG_SPEC_DEFAULT:
        out->drafters |= 1u << BT_DRAFTER_NGRAM_MOD;
        set(&out->ngram_mod_n_max, a, NGRAM_MOD_N_MAX);
        break;
    case BT_FLAG_OVERRIDE_KV:
        out->n_override_kv++;
        break;
    case BT_FLAG_MMPROJ_DEVICE:
        assign_mmproj_device(s, a);
        break;
    case BT_FLAG_HELLASWAG:
    case BT_FLAG_WINOGRANDE:
    case BT_FLAG_MULTIPLE_CHOICE:
        out->scores_choices = true;
        break;
    case BT_FLAG_RERANK:
        assign_rank(s, a);
        break;
    case BT_FLAG_OLD_DRAFT_MAX:
    case BT_FLAG_OLD_DRAFT_MIN:
    case BT_FLAG_SPEC_NGRAM_SIZE_N:
    case BT_FLAG_SPEC_NGRAM_SIZE_M:
    case BT_FLAG_SPEC_NGRAM_MIN_HITS:
        out->earlier_build = true; /* today's know them to refuse them */
        break;
    case BT_FLAG_OLD_MMAP:
    case BT_FLAG_OLD_MLOCK:
    case BT_FLAG_OLD_DIRECT_IO:
        assign_old_loading(s, a);
        break;
    default:
        break;
    }
}

static bool is_bundle(bt_flag_id flag) {
    switch ((int)flag) {
#define X(name, kind, repeated, programs, spellings, negatives, variable) case BT_FLAG_##name:
        BT_FLAGS_BUNDLE(X)
#undef X
        return true;
    default:
        return false;
    }
}

/* A list takes it, or it is no list: *ret_taken. */
static bt_status assign_list(settling *s, const assignment *a, bool *ret_taken) {
    bt_effective *out = s->out;
    bool good = true;
    *ret_taken = true;
    switch ((int)a->flag) {
    case BT_FLAG_OVERRIDE_TENSOR:
    case BT_FLAG_CPU_MOE:
    case BT_FLAG_N_CPU_MOE:
    case BT_FLAG_N_CPU_FFN:
        BT_TRY(bt_effective_rules_add(s, &out->rules, a, &good));
        break;
    case BT_FLAG_DRAFT_OVERRIDE_TENSOR:
    case BT_FLAG_DRAFT_CPU_MOE:
    case BT_FLAG_DRAFT_N_CPU_MOE:
        BT_TRY(bt_effective_rules_add(s, &out->draft_rules, a, &good));
        break;
    case BT_FLAG_LORA:
    case BT_FLAG_LORA_SCALED:
        BT_TRY(bt_effective_adapters_add(s, &out->loras, a, a->flag == BT_FLAG_LORA_SCALED, &good));
        break;
    case BT_FLAG_CONTROL_VECTOR:
    case BT_FLAG_CONTROL_VECTOR_SCALED:
        BT_TRY(bt_effective_adapters_add(s, &out->control_vectors, a, a->flag == BT_FLAG_CONTROL_VECTOR_SCALED, &good));
        break;
    default:
        *ret_taken = false;
        break;
    }
    if (!good) bt_effective_bad(s, a);
    return BT_OK;
}

bt_status bt_effective_assign(settling *s, const assignment *a) {
    bool taken;
    BT_TRY(assign_list(s, a, &taken));
    if (taken) return BT_OK;
    if (is_bundle(a->flag)) {
        s->out->bundle.text = bt_flag_get(a->flag)->spellings;
        s->out->bundle.by = a->by;
    } else if (assign_scalar(s, a)) {
        assign_more(s, a);
    }
    return BT_OK;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void derived(bt_setting *setting, int32_t value) {
    setting->value = value;
    setting->by = (bt_set_by){.origin = BT_FROM_PROGRAM};
}

static int32_t clamp_int(int64_t number) {
    return number > INT32_MAX ? INT32_MAX : (int32_t)number;
}

static void derive_slots(bt_effective *out) {
    if (out->slots.value >= 0) return;
    derived(&out->slots, 4);
    derived(&out->kv_unified, 1);
}

/* llama_server() of tools/server/server.cpp */
static void derive_server(bt_effective *out) {
    out->router =
        !out->model.text && !out->model_url.text && !out->hf_repo.text && !out->docker_repo.text && !out->bundle.text;
    if (out->router) return;
    if (out->embedding.value && out->batch.value > out->ubatch.value) derived(&out->batch, out->ubatch.value);
    derive_slots(out);
    int64_t pool = (int64_t)out->slots.value * out->kv_per_slot.value;
    if (out->kv_per_slot.value > 0 && out->ctx.value == 0 && out->fit_ctx.value != INT32_MAX)
        derived(&out->ctx, clamp_int(pool));
}

/* llama_perplexity() of tools/perplexity/perplexity.cpp: -c is the context of one chunk, and a batch holds several. */
static void derive_perplexity(bt_effective *out) {
    int32_t chunk = out->ctx.value;
    if (chunk <= 0) return; /* it refuses that */
    int32_t n = out->scores_choices ? out->slots.value : out->batch.value / chunk;
    int32_t least = out->scores_choices ? 4 : 1;
    if (n < least) n = least;
    if (out->slots.value != n) derived(&out->slots, n);
    if (out->scores_choices) derived(&out->kv_unified, 1);
    int64_t pool = (int64_t)n * chunk;
    if (out->batch.value > pool) derived(&out->batch, (int32_t)pool);
    if (out->ppl_stride.value > 0) pool += out->ppl_stride.value / 2;
    if (pool != chunk) derived(&out->ctx, clamp_int(pool));
}

/* main() of examples/embedding/embedding.cpp */
static void derive_embedding(bt_effective *out) {
    derived(&out->embedding, 1);
    if (out->slots.value == 1) {
        derived(&out->slots, 256); /* LLAMA_MAX_SEQ of src/llama-cparams.h */
        derived(&out->kv_unified, 1);
    }
    if (out->batch.value < out->ctx.value) derived(&out->batch, out->ctx.value);
    if (out->attention.value != 0 && out->ubatch.value != out->batch.value) derived(&out->ubatch, out->batch.value);
}

/* The constructor of llama_context in src/llama-context.cpp. It also holds the batch of a causal model down to the
 * context, which takes facts of the model. */
static void derive_batches(bt_effective *out) {
    if (out->ubatch.value == 0 || out->ubatch.value > out->batch.value) derived(&out->ubatch, out->batch.value);
}

void bt_effective_derive(bt_effective *ret) {
    if (ret->program == BT_PROGRAM_SERVER) derive_server(ret);
    if (ret->program == BT_PROGRAM_CLI) derive_slots(ret); /* which starts a server */
    if (ret->program == BT_PROGRAM_PERPLEXITY) derive_perplexity(ret);
    if (ret->program == BT_PROGRAM_EMBEDDING) derive_embedding(ret);
    if (!ret->router) derive_batches(ret);
}
