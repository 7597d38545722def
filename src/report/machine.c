/* SPDX-License-Identifier: MIT
 * machine.c: a machine as machine.json, and back.
 *
 * The file is for people too: "plan for a machine you are not on" may be written by hand, so nearly every member may be
 * missing, and then is unknown, never zero. What is there must have its type and range. A reading that contradicts
 * itself is treated as the probe treats a device's: free over total is cut down and flagged, a total of 0 beside free
 * memory is a failed query. Beside the members of docs/interfaces.md stand the cgroup chain, swap, the memlock
 * limit and other budgets, so that a machine given back plans as the machine itself. */
#include "base/error.h"
#include "base/heap.h"
#include "report/json.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

#define THREAD_MAX 4096u /* as in plan_read.c */

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static void put_pool(bt_json_out *out, json_t *pools, const bt_pool *pool) {
    bool reported = pool->state == BT_READING_REPORTED;
    json_t *p = bt_json_add_object(out, pools);
    bt_json_put_text(out, p, "name", pool->name);
    bt_json_put_text(out, p, "kind", bt_pool_kind_names[pool->kind]);
    bt_json_put_text(out, p, "state", bt_pool_state_names[pool->state]);
    bt_json_put_text_or_null(out, p, "reason", pool->reason);
    bt_json_put_known(out, p, "free_bytes", (bt_known){reported, pool->free_bytes});
    bt_json_put_known(out, p, "total_bytes", (bt_known){reported, pool->total_bytes});
    bt_json_put_bool(out, p, "clamped", pool->clamped);
    bt_json_put_bool(out, p, "shares_host", pool->shares_host);
    json_t *limit = bt_json_put_object(out, p, "limit");
    bt_json_put_known(out, limit, "bytes", pool->limit);
    bt_json_put_text_or_null(out, limit, "source", pool->limit_source);
    bt_json_put_text_or_null(out, p, "pci", pool->pci);
    bt_json_put_text_or_null(out, p, "device", pool->device);
    bt_json_put_text_or_null(out, p, "source", pool->source);
}

static void put_cgroup(bt_json_out *out, json_t *root, const bt_machine *machine) {
    json_t *cgroup = bt_json_put_object(out, root, "cgroup");
    bt_json_put_u64(out, cgroup, "version", machine->cgroup_version);
    bt_json_put_text_or_null(out, cgroup, "reason", machine->cgroup_reason);
    json_t *levels = bt_json_put_array(out, cgroup, "levels");
    for (uint32_t i = 0; i < machine->n_cgroup_levels && i < BT_CGROUP_LEVEL_MAX; i++) {
        const bt_cgroup_level *level = &machine->cgroup[i];
        json_t *item = bt_json_add_object(out, levels);
        bt_json_put_text(out, item, "path", level->path);
        bt_json_put_known(out, item, "limit_bytes", level->limit);
        bt_json_put_text_or_null(out, item, "limit_file", level->limit_file);
        bt_json_put_u64(out, item, "usage_bytes", level->usage_bytes);
        bt_json_put_u64(out, item, "reclaimable_bytes", level->reclaimable_bytes);
        bt_json_put_u64(out, item, "promised_bytes", level->promised_bytes);
    }
}

static void put_reservations(bt_json_out *out, json_t *root, const bt_machine *machine) {
    bt_json_put_u64(out, root, "promised_bytes", machine->promised_bytes);
    bt_json_put_u64(out, root, "untouched_bytes", machine->untouched_bytes);
    bt_json_put_text_or_null(out, root, "reservations_reason", machine->reservations_reason);
    json_t *list = bt_json_put_array(out, root, "reservations");
    for (uint32_t i = 0; i < machine->n_reservations && i < BT_RESERVATION_MAX; i++) {
        const bt_reservation *other = &machine->reservations[i];
        json_t *item = bt_json_add_object(out, list);
        bt_json_put_u64(out, item, "pid", other->pid);
        bt_json_put_text(out, item, "command", other->command);
        bt_json_put_u64(out, item, "promised_bytes", other->promised_bytes);
        bt_json_put_u64(out, item, "resident_bytes", other->resident_bytes);
    }
}

void bt_json_put_disk(bt_json_out *out, json_t *object, const bt_disk *disk) {
    bt_json_put_text(out, object, "kind", bt_disk_kind_names[disk->kind]);
    bt_json_put_text_or_null(out, object, "name", disk->name);
    bt_json_put_known(out, object, "depth", (bt_known){disk->depth > 0, disk->depth});
    bt_json_put_known(out, object, "request_bytes", (bt_known){disk->depth > 0, disk->request_bytes});
}

json_t *bt_machine_to_json(bt_json_out *out, const bt_machine *machine) {
    json_t *root = json_object();
    bt_json_put_text(out, root, "burthen", BT_VERSION);
    bt_json_put_u64(out, root, "schema", BT_JSON_SCHEMA);
    json_t *pools = bt_json_put_array(out, root, "pools");
    for (uint32_t i = 0; i < machine->n_pools && i < BT_POOL_MAX; i++) {
        put_pool(out, pools, &machine->pools[i]);
    }
    json_t *disk = bt_json_put_object(out, root, "disk");
    bt_json_put_known(out, disk, "bandwidth_bytes_per_s", machine->disk_bytes_per_s);
    bt_json_put_text(out, disk, "source",
                     machine->disk_bytes_per_s.known ? (machine->disk_measured ? "measured" : "given") : NULL);
    bt_json_put_disk(out, disk, &machine->disk);
    json_t *memory = bt_json_put_object(out, root, "memory");
    bt_json_put_known(out, memory, "bandwidth_bytes_per_s", machine->memory_bytes_per_s);
    bt_json_put_known(out, memory, "swap_free_bytes", machine->swap_free_bytes);
    bt_json_put_known(out, memory, "memlock_bytes", machine->memlock_bytes);
    json_t *cpu = bt_json_put_object(out, root, "cpu");
    bt_json_put_known(out, cpu, "threads", (bt_known){machine->n_threads != 0, machine->n_threads});
    put_cgroup(out, root, machine);
    put_reservations(out, root, machine);
    return root;
}

bt_status bt_report_machine_json(const bt_machine *machine, char **ret_json, bt_error *err) {
    bt_json_out out = {0};
    json_t *root = bt_machine_to_json(&out, machine);
    return bt_json_finish(&out, root, ret_json, err);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* What was said of a pool's memory, made consistent. */
static void settle(bt_pool *pool, bt_known free_bytes, bt_known total_bytes) {
    if (pool->state != BT_READING_REPORTED) return;
    const char *reason = NULL;
    if (!free_bytes.known) {
        reason = "free_bytes is not known";
    } else if (!total_bytes.known || (total_bytes.value == 0 && free_bytes.value > 0)) {
        reason = "total_bytes is not known";
    } else if (total_bytes.value == 0) {
        reason = "the device reports no memory at all"; /* 0 and 0: how a failed query looks (design.md 11) */
    }
    if (reason) {
        pool->state = BT_READING_FAILED;
        (void)snprintf(pool->reason, sizeof pool->reason, "%s", reason);
        return;
    }
    pool->clamped = pool->clamped || free_bytes.value > total_bytes.value;
    pool->total_bytes = total_bytes.value;
    pool->free_bytes = free_bytes.value > total_bytes.value ? total_bytes.value : free_bytes.value;
}

static void read_pool(bt_json_in *in, const json_t *pools, uint32_t i, bt_machine *machine) {
    bt_json_at(in, "pools[%u].", i);
    const json_t *item = bt_json_item(in, pools, i);
    bt_pool *pool = &machine->pools[i];
    uint32_t kind = 0;
    bool named = bt_json_text(in, item, "name", pool->name, sizeof pool->name) && pool->name[0];
    if (!named) bt_json_wrong(in, "name", "a name is wanted");
    if (!bt_json_choice(in, item, "kind", bt_pool_kind_names, 5, &kind)) {
        bt_json_wrong(in, "kind", "one of host gpu igpu rpc accel is wanted");
    }
    pool->kind = (bt_pool_kind)kind;
    if ((i == 0) != (pool->kind == BT_POOL_HOST))
        bt_json_wrong(in, "kind", "the first pool, and no other, is the host");
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(machine->pools[k].name, pool->name) == 0) bt_json_wrong(in, "name", "another pool has this name");
    }
    bt_known free_bytes = {0};
    bt_known total_bytes = {0};
    (void)bt_json_known(in, item, "free_bytes", &free_bytes);
    (void)bt_json_known(in, item, "total_bytes", &total_bytes);
    /* Without a word on the state: numbers are a report, nothing is nothing. */
    uint32_t state = free_bytes.known || total_bytes.known ? BT_READING_REPORTED : BT_READING_ABSENT;
    (void)bt_json_choice(in, item, "state", bt_pool_state_names, 3, &state);
    pool->state = (bt_pool_state)state;
    (void)bt_json_text(in, item, "reason", pool->reason, sizeof pool->reason);
    (void)bt_json_bool(in, item, "clamped", &pool->clamped);
    (void)bt_json_bool(in, item, "shares_host", &pool->shares_host);
    (void)bt_json_text(in, item, "pci", pool->pci, sizeof pool->pci);
    (void)bt_json_text(in, item, "device", pool->device, sizeof pool->device);
    (void)bt_json_text(in, item, "source", pool->source, sizeof pool->source);
    settle(pool, free_bytes, total_bytes);
    const json_t *limit = bt_json_object(in, item, "limit");
    bt_json_at(in, "pools[%u].limit.", i);
    (void)bt_json_known(in, limit, "bytes", &pool->limit);
    (void)bt_json_text(in, limit, "source", pool->limit_source, sizeof pool->limit_source);
}

static void read_cgroup(bt_json_in *in, const json_t *root, bt_machine *machine) {
    bt_json_at(in, "%s", "");
    const json_t *cgroup = bt_json_object(in, root, "cgroup");
    bt_json_at(in, "cgroup.");
    (void)bt_json_u32(in, cgroup, "version", 2, &machine->cgroup_version);
    (void)bt_json_text(in, cgroup, "reason", machine->cgroup_reason, sizeof machine->cgroup_reason);
    const json_t *levels = bt_json_array(in, cgroup, "levels", BT_CGROUP_LEVEL_MAX);
    machine->n_cgroup_levels = (uint32_t)json_array_size(levels);
    for (uint32_t i = 0; i < machine->n_cgroup_levels; i++) {
        bt_json_at(in, "cgroup.levels[%u].", i);
        const json_t *item = bt_json_item(in, levels, i);
        bt_cgroup_level *level = &machine->cgroup[i];
        (void)bt_json_text(in, item, "path", level->path, sizeof level->path);
        (void)bt_json_known(in, item, "limit_bytes", &level->limit);
        (void)bt_json_text(in, item, "limit_file", level->limit_file, sizeof level->limit_file);
        (void)bt_json_u64(in, item, "usage_bytes", &level->usage_bytes);
        (void)bt_json_u64(in, item, "reclaimable_bytes", &level->reclaimable_bytes);
        (void)bt_json_u64(in, item, "promised_bytes", &level->promised_bytes);
    }
}

static void read_reservations(bt_json_in *in, const json_t *root, bt_machine *machine) {
    bt_json_at(in, "%s", "");
    (void)bt_json_u64(in, root, "promised_bytes", &machine->promised_bytes);
    (void)bt_json_u64(in, root, "untouched_bytes", &machine->untouched_bytes);
    (void)bt_json_text(in, root, "reservations_reason", machine->reservations_reason,
                       sizeof machine->reservations_reason);
    const json_t *list = bt_json_array(in, root, "reservations", BT_RESERVATION_MAX);
    machine->n_reservations = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < machine->n_reservations; i++) {
        bt_json_at(in, "reservations[%u].", i);
        const json_t *item = bt_json_item(in, list, i);
        bt_reservation *other = &machine->reservations[i];
        (void)bt_json_u32(in, item, "pid", INT32_MAX, &other->pid);
        (void)bt_json_text(in, item, "command", other->command, sizeof other->command);
        (void)bt_json_u64(in, item, "promised_bytes", &other->promised_bytes);
        (void)bt_json_u64(in, item, "resident_bytes", &other->resident_bytes);
    }
}

/* Of the kind and the name only: how another machine's disk is read best is no use here. */
static void read_disk(bt_json_in *in, const json_t *object, bt_disk *ret) {
    uint32_t kind = BT_DISK_UNKNOWN;
    if (object && !bt_json_is_null(object, "kind"))
        (void)bt_json_choice(in, object, "kind", bt_disk_kind_names, 5, &kind);
    ret->kind = (bt_disk_kind)kind;
    (void)bt_json_text(in, object, "name", ret->name, sizeof ret->name);
}

static void read_rest(bt_json_in *in, const json_t *root, bt_machine *machine) {
    bt_json_at(in, "%s", "");
    const json_t *disk = bt_json_object(in, root, "disk");
    const json_t *memory = bt_json_object(in, root, "memory");
    const json_t *cpu = bt_json_object(in, root, "cpu");
    bt_json_at(in, "disk.");
    (void)bt_json_known(in, disk, "bandwidth_bytes_per_s", &machine->disk_bytes_per_s);
    static const char *const sources[] = {"given", "measured"};
    uint32_t source = 0;
    if (disk && !bt_json_is_null(disk, "source")) (void)bt_json_choice(in, disk, "source", sources, 2, &source);
    machine->disk_measured = source == 1 && machine->disk_bytes_per_s.known;
    read_disk(in, disk, &machine->disk);
    bt_json_at(in, "memory.");
    (void)bt_json_known(in, memory, "bandwidth_bytes_per_s", &machine->memory_bytes_per_s);
    (void)bt_json_known(in, memory, "swap_free_bytes", &machine->swap_free_bytes);
    (void)bt_json_known(in, memory, "memlock_bytes", &machine->memlock_bytes);
    bt_json_at(in, "cpu.");
    (void)bt_json_u32_or_0(in, cpu, "threads", THREAD_MAX, &machine->n_threads);
}

bt_status bt_machine_from_json(const char *json, size_t n_bytes, bt_machine *ret_machine, bt_error *err) {
    bt_json_in in = {.err = err};
    json_t *root = bt_json_parse(&in, json, n_bytes);
    if (!root) return in.status;
    bt_machine *machine = bt_heap_alloc(sizeof *machine); /* too large for the stack */
    if (!machine) {
        json_decref(root);
        return bt_fail(err, BT_E_NOMEM, "json", BT_MEASURE_NONE, 0, 0, "no memory to read a machine");
    }
    uint32_t schema = 0;
    (void)bt_json_u32(&in, root, "schema", UINT32_MAX, &schema);
    if (schema != BT_JSON_SCHEMA) bt_json_wrong(&in, "schema", "1 is what this version reads");
    const json_t *pools = bt_json_array(&in, root, "pools", BT_POOL_MAX);
    uint32_t n_pools = (uint32_t)json_array_size(pools);
    for (uint32_t i = 0; i < n_pools && in.status == BT_OK; i++) {
        read_pool(&in, pools, i, machine);
        machine->n_pools = i + 1;
    }
    if (n_pools == 0) { /* pools[0] is the host, known or not */
        (void)snprintf(machine->pools[0].name, sizeof machine->pools[0].name, "host");
        machine->n_pools = 1;
    }
    read_rest(&in, root, machine);
    read_cgroup(&in, root, machine);
    read_reservations(&in, root, machine);
    if (in.status == BT_OK) *ret_machine = *machine;
    bt_heap_free(machine);
    json_decref(root);
    return in.status;
}
