/* SPDX-License-Identifier: MIT
 * fuzz_engine_prices.c: the state file with what dry runs measured: read whole or taken as none; and what is added on
 * top of it is there when it is read again. */
#include "fuzz.h"

#include "engine/price_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[512];
static const bt_facts facts = {.header_sha256 = "abc", .split = {.n_devices = 1}};
static const bt_wishes wishes = {0};
static const bt_price_point point = {.n_ctx = 4096, .n_ubatch = 512, .n_parallel = 1, .type_k = 1, .type_v = 1};

static bt_price_cache *open_cache(bt_arena **ret_arena) {
    *ret_arena = bt_arena_open(1u << 20, 1u << 16);
    bt_price_cache *cache = *ret_arena ? bt_price_cache_open(&facts, &wishes, 4, *ret_arena) : NULL;
    FUZZ_CHECK(cache != NULL);
    return cache;
}

/* The name of the file is what one that is saved has. */
static void start(void) {
    if (setenv("BURTHEN_STATE_DIR", fuzz_folder(), 1) != 0) abort();
    bt_arena *arena = NULL;
    bt_price_cache *cache = open_cache(&arena);
    bt_price price = {.vocab_bytes = 1};
    bt_price_cache_add(cache, &point, &price);
    bt_price_cache_save(cache);
    bt_arena_close(arena);
    DIR *dir = opendir(fuzz_folder());
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (strncmp(entry->d_name, "prices-", 7) == 0)
            (void)snprintf(path, sizeof path, "%s/%s", fuzz_folder(), entry->d_name);
    if (!dir || !path[0]) abort();
    (void)closedir(dir);
}

static bool one(char *text, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n) abort();
    (void)close(fd);
    bt_arena *arena = NULL;
    bt_price_cache *cache = open_cache(&arena);
    uint32_t n_read = bt_price_cache_count(cache);
    FUZZ_CHECK(n_read <= BT_PRICE_CACHE_MAX);
    static const bt_price_point other = {.n_ctx = 77, .n_ubatch = 1, .n_parallel = 1, .type_k = 99, .type_v = 99};
    bt_price price = {.kv_bytes = 5, .device_kv_bytes = {6}};
    bool known = bt_price_cache_find(cache, &other) != NULL;
    bt_price_cache_add(cache, &other, &price);
    bt_price_cache_save(cache);
    bt_arena_close(arena);
    cache = open_cache(&arena);
    const bt_price *again = bt_price_cache_find(cache, &other);
    FUZZ_CHECK(bt_price_cache_count(cache) == (n_read < BT_PRICE_CACHE_MAX ? n_read + 1 : BT_PRICE_CACHE_MAX));
    FUZZ_CHECK(again && (known || (again->kv_bytes == 5 && again->device_kv_bytes[0] == 6)));
    bt_arena_close(arena);
    return n_read > 0;
}

static const char *word(size_t i) {
    static const char *const words[] = {
        "burthen-prices 1\n",   "base 1000\n",          "4096 512 1 1 1 1 ", " 5 6\n", "\n", " ",
        "18446744073709551615", "18446744073709551616", "4294967296",        "0",      "-1", "+1"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {
    .name = "engine_prices", .one = one, .start = start, .stop = fuzz_folder_remove, .word = word, .n_rounds = 2000};
