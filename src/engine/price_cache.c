/* SPDX-License-Identifier: MIT
 *
 * price_cache.c: prices of dry runs, kept between runs.
 *
 * A dry run measures heaps, by pages and by a peak that the kernel counts in batches: two of them differ by up to some
 * hundred KiB, and a budget that was printed as the minimum was refused by the next run (docs/decisions/013). So what
 * was measured once stands, for as long as all that it depends on is the same:
 *
 *     name of the file = hash of (header, size of the files, this program and libllama by size and time, threads,
 *                                 the wishes that change a graph, the split over devices)
 *     burthen-prices 1
 *     base BYTES
 *     n_ctx n_ubatch n_parallel n_outputs_max type_k type_v | vocab metadata kv compute logits small staging load n_ctx
 *         | kv compute of each device of a split
 *
 * A file that is not exactly so is taken as none. Nothing in it can break a budget: caps are the plan's, and what is
 * not planned is refused when it is asked for. Bounds: 64 points a file, N_FILES_MAX files of some 12 KiB; the oldest
 * go. */
#include "engine/price_cache.h"

#include "base/log.h"
#include "base/os.h"
#include "base/state.h"
#include "engine/backends.h"
#include "engine/engine.h"
#include "model/sha256.h"

#include "llama.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LINE  "burthen-prices 1\n"
#define PREFIX      "prices-"
#define N_FILES_MAX 256u
#define FILE_BYTES  (64u << 10) /* 64 lines of 15 numbers, and of two for each device */
#define NUMBERS     15u
#define NUMBERS_MAX (NUMBERS + 2u * BT_DEVICE_MAX)
/* Two measurements of one base differ by some pages; plans have a quarter of 256 KiB in hand (exact.c). */
#define BASE_NEAR_BYTES (64u << 10)

typedef struct entry {
    bt_price_point point;
    bt_price price;
} entry;

struct bt_price_cache {
    char name[sizeof PREFIX + 64];
    entry entries[BT_PRICE_CACHE_MAX];
    uint32_t n, n_devices;
    uint64_t base_bytes; /* 0: not known */
    bool changed;
};

/* ---- the name ---- */

static void add_program(bt_sha256 *hash) {
    (void)bt_sha256_add_file(hash, "/proc/self/exe");
    void (*call)(void) = llama_backend_init;
    void *address = NULL;
    memcpy(&address, &call, sizeof address); /* ISO C cannot convert a function pointer */
    Dl_info info;
    if (dladdr(address, &info) != 0) (void)bt_sha256_add_file(hash, info.dli_fname);
    (void)bt_sha256_add_file(hash, bt_backends_cpu_file()); /* its kernels say how much work area they want */
    bt_sha256_add_text(hash, bt_engine_build_version());
    bt_sha256_add_u64(hash, bt_os_page_bytes());
}

/* Wishes that a point does not carry and that change what is measured. */
static void add_wishes(bt_sha256 *hash, const bt_wishes *wishes, uint32_t n_threads) {
    const uint64_t numbers[] = {n_threads,
                                wishes->n_batch,
                                (uint64_t)wishes->flash_attn,
                                wishes->kv_unified,
                                wishes->swa_full,
                                wishes->guest,
                                wishes->embeddings,
                                wishes->pooling,
                                wishes->adapter_bytes > 0,
                                (uint64_t)wishes->rope_scaling,
                                wishes->rope_scale_micro,
                                wishes->yarn_orig_ctx,
                                wishes->chat,
                                wishes->session};
    bt_sha256_add(hash, numbers, sizeof numbers);
    bt_sha256_add_text(hash, wishes->chat_template ? wishes->chat_template : "");
}

static void add_split(bt_sha256 *hash, const bt_split *split) {
    bt_sha256_add_u64(hash, split->n_devices);
    for (uint32_t i = 0; i < split->n_devices; i++)
        bt_sha256_add_u64(hash, split->n_blocks[i]);
    bt_sha256_add_u64(hash, split->head);
    bt_sha256_add_u64(hash, split->n_cpu_moe);
}

static void make_name(bt_price_cache *cache, const bt_facts *facts, const bt_wishes *wishes, uint32_t n_threads) {
    bt_sha256 hash;
    char hex[65];
    bt_sha256_init(&hash);
    bt_sha256_add_text(&hash, facts->header_sha256);
    bt_sha256_add_u64(&hash, facts->file_bytes);
    bt_sha256_add_u64(&hash, facts->n_shards);
    add_program(&hash);
    add_wishes(&hash, wishes, n_threads);
    if (facts->split.n_devices > 0) add_split(&hash, &facts->split);
    bt_sha256_hex(&hash, hex);
    (void)snprintf(cache->name, sizeof cache->name, PREFIX "%s", hex);
}

/* ---- reading ---- */

/* A decimal number and the character behind it; false: something else stands there. */
static bool take_number(const char **at, char end, uint64_t *ret) {
    char *behind = NULL;
    if (**at < '0' || **at > '9') return false;
    errno = 0;
    *ret = strtoull(*at, &behind, 10);
    if (errno != 0 || *behind != end) return false;
    *at = behind + 1;
    return true;
}

static bool take_entry(const char **at, uint32_t n_devices, entry *ret) {
    uint64_t v[NUMBERS_MAX] = {0};
    uint32_t n = NUMBERS + 2 * n_devices;
    for (uint32_t i = 0; i < n; i++)
        if (!take_number(at, i + 1 < n ? ' ' : '\n', &v[i])) return false;
    for (uint32_t i = 0; i < 6; i++)
        if (v[i] > UINT32_MAX) return false;
    if (v[14] > UINT32_MAX) return false;
    *ret = (entry){
        .point = {(uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2], (uint32_t)v[3], (uint32_t)v[4], (uint32_t)v[5]},
        .price = {.vocab_bytes = v[6],
                  .metadata_bytes = v[7],
                  .kv_bytes = v[8],
                  .compute_bytes = v[9],
                  .logits_bytes = v[10],
                  .small_bytes = v[11],
                  .staging_bytes = v[12],
                  .load_peak_bytes = v[13],
                  .n_ctx = (uint32_t)v[14]}};
    for (uint32_t i = 0; i < n_devices; i++) {
        ret->price.device_kv_bytes[i] = v[NUMBERS + 2 * i];
        ret->price.device_compute_bytes[i] = v[NUMBERS + 2 * i + 1];
    }
    return true;
}

static bool take_all(bt_price_cache *cache, const char *at) {
    static const char base[] = "base ";
    if (strncmp(at, FIRST_LINE, sizeof FIRST_LINE - 1) != 0) return false;
    at += sizeof FIRST_LINE - 1;
    if (strncmp(at, base, sizeof base - 1) != 0) return false;
    at += sizeof base - 1;
    if (!take_number(&at, '\n', &cache->base_bytes)) return false;
    while (*at != '\0' && cache->n < BT_PRICE_CACHE_MAX)
        if (!take_entry(&at, cache->n_devices, &cache->entries[cache->n++])) return false;
    return *at == '\0';
}

static void read_file(bt_price_cache *cache) {
    bt_text text;
    bt_text_init(&text, FILE_BYTES);
    if (bt_state_recall(cache->name, &text, NULL) != BT_OK || !take_all(cache, bt_text_str(&text))) {
        cache->n = 0;
        cache->base_bytes = 0;
    }
    bt_text_done(&text);
}

bt_price_cache *bt_price_cache_open(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_threads,
                                    bt_arena *arena) {
    bt_price_cache *cache = bt_arena_alloc(arena, sizeof *cache);
    if (!cache) return NULL;
    *cache = (bt_price_cache){.n_devices = facts->split.n_devices};
    make_name(cache, facts, wishes, n_threads);
    read_file(cache);
    return cache;
}

/* ---- using ---- */

uint32_t bt_price_cache_count(const bt_price_cache *cache) {
    return cache ? cache->n : 0;
}

const bt_price *bt_price_cache_find(const bt_price_cache *cache, const bt_price_point *point) {
    for (uint32_t i = 0; cache && i < cache->n; i++)
        if (bt_price_point_equal(&cache->entries[i].point, point)) return &cache->entries[i].price;
    return NULL;
}

void bt_price_cache_add(bt_price_cache *cache, const bt_price_point *point, bt_price *price) {
    if (!cache || price->error.status != BT_OK) return;
    if (cache->n > 0) {
        price->vocab_bytes = cache->entries[0].price.vocab_bytes;
        price->load_peak_bytes = cache->entries[0].price.load_peak_bytes;
    }
    if (cache->n == BT_PRICE_CACHE_MAX) {
        cache->n--;
        memmove(cache->entries, cache->entries + 1, cache->n * sizeof *cache->entries);
    }
    cache->entries[cache->n++] = (entry){*point, *price};
    cache->changed = true;
}

uint64_t bt_price_cache_base(bt_price_cache *cache, uint64_t measured_bytes) {
    if (!cache) return measured_bytes;
    uint64_t low = measured_bytes < cache->base_bytes ? measured_bytes : cache->base_bytes;
    uint64_t high = measured_bytes < cache->base_bytes ? cache->base_bytes : measured_bytes;
    if (high - low <= BASE_NEAR_BYTES) return cache->base_bytes;
    cache->base_bytes = measured_bytes;
    cache->changed = true;
    return measured_bytes;
}

/* ---- writing ---- */

static void put_all(const bt_price_cache *cache, bt_text *text) {
    bt_text_add(text, FIRST_LINE);
    bt_text_addf(text, "base %" PRIu64 "\n", cache->base_bytes);
    for (uint32_t i = 0; i < cache->n; i++) {
        const bt_price_point *at = &cache->entries[i].point;
        const bt_price *p = &cache->entries[i].price;
        bt_text_addf(text, "%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32, at->n_ctx,
                     at->n_ubatch, at->n_parallel, at->n_outputs_max, at->type_k, at->type_v);
        bt_text_addf(text,
                     " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                     " %" PRIu32,
                     p->vocab_bytes, p->metadata_bytes, p->kv_bytes, p->compute_bytes, p->logits_bytes, p->small_bytes,
                     p->staging_bytes, p->load_peak_bytes, p->n_ctx);
        for (uint32_t d = 0; d < cache->n_devices; d++)
            bt_text_addf(text, " %" PRIu64 " %" PRIu64, p->device_kv_bytes[d], p->device_compute_bytes[d]);
        bt_text_add(text, "\n");
    }
}

void bt_price_cache_save(bt_price_cache *cache) {
    if (!cache || !cache->changed) return;
    bt_text text;
    bt_error err = {0};
    bt_text_init(&text, FILE_BYTES);
    put_all(cache, &text);
    bt_status status = BT_E_NOMEM;
    if (!text.failed) status = bt_state_keep(cache->name, bt_text_str(&text), text.n_bytes, PREFIX, N_FILES_MAX, &err);
    if (status != BT_OK) bt_log(BT_LOG_INFO, "the prices of this model are not kept: %s", err.text);
    cache->changed = false;
    bt_text_done(&text);
}
