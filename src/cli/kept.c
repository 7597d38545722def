/* SPDX-License-Identifier: MIT
 *
 * kept.c: the last run of each model on this machine, kept for `burthen report`.
 *
 * One small file a model in the state folder, named by the hash of the model's header, without text, tokens or paths
 * (report/share.c). Bounds: N_KEPT_MAX files of BT_KEPT_MAX_BYTES, 4 MiB; the oldest go. */
#include "cli/kept.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PREFIX     "stats-"
#define N_KEPT_MAX 64u
#define NAME_BYTES 80u /* the prefix, 64 letters of a hash, ".json" */

static void name_of(const bt_facts *facts, char name[NAME_BYTES]) {
    (void)snprintf(name, NAME_BYTES, PREFIX "%.64s.json", facts->header_sha256);
}

static bt_status write_json(const bt_facts *facts, const char *json, bt_error *err) {
    char name[NAME_BYTES];
    name_of(facts, name);
    return bt_state_keep(name, json, strlen(json), PREFIX, N_KEPT_MAX, err);
}

void bt_kept_write(const bt_plan *plan, const bt_facts *facts, const bt_machine *machine, const bt_measured *measured) {
    bt_error err = {0};
    char *json = NULL;
    uint64_t now_s = (uint64_t)time(NULL);
    bt_status status = bt_report_kept_json(plan, facts, machine, measured, now_s, &json, &err);
    if (status == BT_OK) status = write_json(facts, json, &err);
    if (status != BT_OK) bt_log(BT_LOG_INFO, "what was measured is not kept for a report: %s", err.text);
    bt_heap_free(json);
}

void bt_kept_read(const bt_facts *facts, bt_text *text) {
    char name[NAME_BYTES];
    bt_error err = {0};
    name_of(facts, name);
    if (bt_state_recall(name, text, &err) != BT_OK && err.sys != ENOENT)
        bt_log(BT_LOG_INFO, "no last run is known: %s", err.text);
}
