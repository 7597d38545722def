/* SPDX-License-Identifier: MIT
 * fingerprint.c: what a plan was made for, and whether that still is so.
 *
 * Three parts: the model file (size, time, hash of its header), the build, and the machine (a hash of what the plan's
 * numbers stand on: total memory, cores). The first two are compared as they are. A machine that differs is for the
 * caller to judge: a plan made elsewhere is good where its bytes fit. Free memory and measured speeds are not part of
 * it: they change with every look, and the budget is held against the machine when the plan is carried out. The hash
 * is FNV-1a: it tells machines apart, it proves nothing. */
#include "base/error.h"
#include "report/json.h"
#include "report/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv) */
#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static void add(uint64_t *hash, uint64_t value) {
    for (int i = 0; i < 8; i++) {
        *hash = (*hash ^ ((value >> (8 * i)) & 0xFF)) * FNV_PRIME;
    }
}

static void add_known(uint64_t *hash, bt_known value) {
    add(hash, value.known ? 1 : 0);
    add(hash, value.known ? value.value : 0);
}

void bt_fingerprint_make(const bt_facts *facts, const bt_machine *machine, bt_fingerprint *ret) {
    *ret = (bt_fingerprint){.model_bytes = facts->file_bytes};
    for (uint32_t i = 0; i < facts->n_shards; i++) {
        if (i == 0 || facts->shards[i].mtime_ns > ret->model_mtime_ns) ret->model_mtime_ns = facts->shards[i].mtime_ns;
    }
    memcpy(ret->header_sha256, facts->header_sha256, sizeof ret->header_sha256);
    if (machine) {
        const bt_pool *host = &machine->pools[0];
        bool reported = machine->n_pools > 0 && host->state == BT_READING_REPORTED;
        uint64_t hash = FNV_BASIS;
        add_known(&hash, (bt_known){reported, host->total_bytes});
        add(&hash, machine->n_threads);
        (void)snprintf(ret->machine, sizeof ret->machine, "%016" PRIx64, hash);
    }
    const char *engine = bt_engine_version();
    (void)snprintf(ret->build, sizeof ret->build, "%s%s%s", BT_VERSION, engine ? " llama.cpp " : "",
                   engine ? engine : "");
}

bt_status bt_fingerprint_from_json(const char *json, size_t n_bytes, bt_fingerprint *ret, bt_error *err) {
    bt_json_in in = {.err = err, .all_required = true};
    json_t *root = bt_json_parse(&in, json, n_bytes);
    if (!root) return in.status;
    bt_fingerprint print = {0};
    const json_t *all = bt_json_object(&in, root, "fingerprint");
    bt_json_at(&in, "fingerprint.");
    if (!all) bt_json_wrong(&in, "", "an object is wanted");
    (void)bt_json_text(&in, all, "machine", print.machine, sizeof print.machine);
    (void)bt_json_text(&in, all, "build", print.build, sizeof print.build);
    const json_t *model = bt_json_object(&in, all, "model");
    bt_json_at(&in, "fingerprint.model.");
    if (!model) bt_json_wrong(&in, "", "an object is wanted");
    uint64_t mtime_ns = 0;
    (void)bt_json_u64(&in, model, "size", &print.model_bytes);
    (void)bt_json_text(&in, model, "header_sha256", print.header_sha256, sizeof print.header_sha256);
    /* Files from before 1970 have negative times; they are signed like everything else in JSON. */
    const json_t *mtime = json_object_get(model, "mtime_ns");
    if (json_is_integer(mtime)) {
        print.model_mtime_ns = json_integer_value(mtime);
    } else {
        (void)bt_json_u64(&in, model, "mtime_ns", &mtime_ns); /* says what is wrong with it */
    }
    json_decref(root);
    if (in.status == BT_OK) *ret = print;
    return in.status;
}

bt_status bt_plan_model_from_json(const char *json, size_t n_bytes, char *ret_path, size_t capacity, bt_error *err) {
    bt_json_in in = {.err = err, .all_required = true};
    json_t *root = bt_json_parse(&in, json, n_bytes);
    if (!root) return in.status;
    const json_t *model = bt_json_object(&in, root, "model");
    bt_json_at(&in, "model.");
    if (!model) bt_json_wrong(&in, "", "an object is wanted");
    (void)bt_json_text(&in, model, "path", ret_path, capacity);
    json_decref(root);
    return in.status;
}

bt_status bt_fingerprint_check(const bt_fingerprint *of_plan, const bt_fingerprint *now, bt_error *err) {
    if (strcmp(of_plan->header_sha256, now->header_sha256) != 0) {
        return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_NONE, 0, 0,
                       "the plan is for another model: header %.16s..., this file has %.16s...", of_plan->header_sha256,
                       now->header_sha256);
    }
    if (of_plan->model_bytes != now->model_bytes || of_plan->model_mtime_ns != now->model_mtime_ns) {
        return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_BYTES, of_plan->model_bytes, now->model_bytes,
                       "the model file changed since the plan: %" PRIu64 " bytes of time %" PRId64 ", now %" PRIu64
                       " of %" PRId64,
                       of_plan->model_bytes, of_plan->model_mtime_ns, now->model_bytes, now->model_mtime_ns);
    }
    if (strcmp(of_plan->build, now->build) != 0) {
        return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_NONE, 0, 0, "the plan is of burthen %s, this is %s",
                       of_plan->build, now->build);
    }
    return BT_OK;
}
