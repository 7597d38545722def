/* SPDX-License-Identifier: MIT
 * cmd_cache.c: `burthen cache [--clear] [KIND...]`: what is kept between runs, as a table or as JSON. */
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "cli/cache.h"
#include "cli/commands.h"
#include "cli/json.h"

#include <inttypes.h>
#include <string.h>

#define TABLE_MAX_BYTES 16384u /* ten lines, and a path */

/* "3 days ago": the largest unit that there is one of. */
static void age_text(int64_t written_s, int64_t now_s, char *ret, size_t capacity) {
    static const struct {
        int64_t seconds;
        const char *one, *many;
    } units[] = {{86400, "day", "days"}, {3600, "hour", "hours"}, {60, "minute", "minutes"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        int64_t n = (now_s - written_s) / units[i].seconds;
        if (n < 1) continue;
        (void)snprintf(ret, capacity, "%" PRId64 " %s ago", n, n == 1 ? units[i].one : units[i].many);
        return;
    }
    (void)snprintf(ret, capacity, "now");
}

static void add_row(const bt_cache_kind *kind, bool clear, int64_t now_s, bt_text *text) {
    char age[48] = "-";
    if (kind->n_files > 0) age_text(kind->newest_s, now_s, age, sizeof age);
    bt_text_addf(text, "  %-12s %6" PRIu32 " %11s  %-14s", kind->name, kind->n_files, BT_SIZE(kind->bytes), age);
    if (clear) bt_text_addf(text, " %8" PRIu32, kind->n_removed);
    bt_text_addf(text, "  %s\n", kind->what);
}

static int print_table(const bt_cache *cache, uint32_t chosen, bool clear) {
    int64_t now_s = bt_os_unix_ms() / 1000;
    uint64_t bytes = 0;
    uint32_t n_files = 0;
    uint32_t n_removed = 0;
    bt_text text;
    bt_text_init(&text, TABLE_MAX_BYTES);
    bt_text_add_escaped(&text, cache->folder, strlen(cache->folder));
    bt_text_addf(&text, "\n  %-12s %6s %11s  %-14s%s  %s\n", "kind", "files", "size", "newest",
                 clear ? "  removed" : "", "what");
    for (uint32_t i = 0; i < BT_CACHE_KINDS; i++) {
        if (((chosen >> i) & 1) == 0) continue;
        add_row(&cache->kinds[i], clear, now_s, &text);
        bytes += cache->kinds[i].bytes;
        n_files += cache->kinds[i].n_files;
        n_removed += cache->kinds[i].n_removed;
    }
    bt_text_addf(&text, "  %-12s %6" PRIu32 " %11s", "total", n_files, BT_SIZE(bytes));
    if (clear) bt_text_addf(&text, "  %-14s %8" PRIu32, "", n_removed);
    bt_text_addf(&text, "\n%s", cache->cut ? "there are more files than were looked at\n" : "");
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    return code;
}

/* Unix time; null: there is no file. */
static bt_known seconds_of(const bt_cache_kind *kind, int64_t seconds) {
    return (bt_known){.known = kind->n_files > 0, .value = (uint64_t)seconds};
}

static int print_json(const bt_cache *cache, uint32_t chosen) {
    bt_json_out out;
    json_t *root = bt_cli_json_begin(&out);
    bt_json_put_text_or_null(&out, root, "folder", cache->folder);
    bt_json_put_bool(&out, root, "cut", cache->cut);
    json_t *list = bt_json_put_array(&out, root, "kinds");
    for (uint32_t i = 0; i < BT_CACHE_KINDS; i++) {
        const bt_cache_kind *k = &cache->kinds[i];
        if (((chosen >> i) & 1) == 0) continue;
        json_t *one = bt_json_add_object(&out, list);
        bt_json_put_text(&out, one, "kind", k->name);
        bt_json_put_u64(&out, one, "files", k->n_files);
        bt_json_put_u64(&out, one, "bytes", k->bytes);
        bt_json_put_known(&out, one, "oldest_s", seconds_of(k, k->oldest_s));
        bt_json_put_known(&out, one, "newest_s", seconds_of(k, k->newest_s));
        bt_json_put_bool(&out, one, "clearable", k->clearable);
        bt_json_put_u64(&out, one, "removed", k->n_removed);
    }
    return bt_cli_json_end(&out, root);
}

static bt_status choose(const bt_cli_options *options, const bt_option_result *args, uint32_t *ret, bt_error *err) {
    *ret = args->n_args > 0 ? 0 : (1u << BT_CACHE_KINDS) - 1;
    for (uint32_t i = 0; i < args->n_args; i++) {
        uint32_t k = bt_cache_kind_find(args->args[i]);
        if (k == BT_CACHE_KINDS)
            return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0,
                           "there is no kind %.40s of kept files; burthen cache lists them", args->args[i]);
        *ret |= 1u << k;
    }
    for (uint32_t k = 0; options->clear && args->n_args > 0 && k < BT_CACHE_KINDS; k++) {
        bt_cache_kind kind = bt_cache_kind_at(k);
        if (((*ret >> k) & 1) != 0 && !kind.clearable)
            return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0, "kind %s is never removed: %s", kind.name,
                           kind.what);
    }
    return BT_OK;
}

int bt_cmd_cache(const bt_cli_options *options, bt_option_result *args) {
    uint32_t chosen = 0;
    bt_error err = {0};
    bt_cache cache;
    if (choose(options, args, &chosen, &err) != BT_OK || bt_cache_look(chosen, options->clear, &cache, &err) != BT_OK)
        return bt_cli_fail(&err);
    static const char none[] = "nothing is kept yet\n";
    if (!options->json && !cache.folder[0]) return bt_cli_print_bytes(none, sizeof none - 1);
    int code = options->json ? print_json(&cache, chosen) : print_table(&cache, chosen, options->clear);
    if (cache.n_failed == 0 || code != 0) return code;
    (void)bt_fail_sys(&err, cache.sys, "state_file", "%" PRIu32 " file%s in %.200s cannot be removed", cache.n_failed,
                      cache.n_failed == 1 ? "" : "s", cache.folder);
    return bt_cli_fail(&err);
}
