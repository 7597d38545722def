/* SPDX-License-Identifier: MIT
 * offload.c: which blocks stand on devices, in plan.json and for a person.
 *
 *   "offload": null | {"source","head","n_cpu_moe","devices":[{"name","kind","blocks","lines"...}]}
 *
 * The member offload is what a plan is read back from; the pools behind the host's say the same bytes by lines, as
 * scripts want them. A device whose reading failed has no budget: null, never 0. */
#include "base/error.h"
#include "base/size.h"
#include "plan/plan.h"
#include "report/json.h"
#include "report/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- wishes: only what was asked for ---- */

static void put_layers(bt_json_out *out, json_t *w, const char *key, bt_layers_kind kind, uint32_t n) {
    if (kind == BT_LAYERS_ALL) bt_json_put_text(out, w, key, "all");
    if (kind == BT_LAYERS_AUTO) bt_json_put_text(out, w, key, "auto");
    if (kind == BT_LAYERS_COUNT) bt_json_put_u64(out, w, key, n);
}

void bt_device_wishes_to_json(bt_json_out *out, json_t *w, const bt_wishes *wishes) {
    put_layers(out, w, "gpu_layers", wishes->gpu_layers, wishes->n_gpu_layers);
    put_layers(out, w, "n_cpu_moe", wishes->cpu_moe, wishes->n_cpu_moe);
    if (wishes->no_devices || wishes->n_devices > 0) {
        json_t *devices = bt_json_put_array(out, w, "devices");
        for (uint32_t i = 0; i < wishes->n_devices; i++) {
            json_t *device = bt_json_add_object(out, devices);
            bt_json_put_text(out, device, "name", wishes->devices[i].name);
            bt_json_put_known(out, device, "budget_bytes", wishes->devices[i].budget_bytes);
        }
    }
    if (wishes->n_tensor_splits > 0) {
        json_t *shares = bt_json_put_array(out, w, "tensor_split");
        for (uint32_t i = 0; i < wishes->n_tensor_splits; i++)
            bt_json_put_u64(out, bt_json_add_object(out, shares), "share_milli", wishes->tensor_split_milli[i]);
    }
    if (wishes->main_gpu > 0) bt_json_put_u64(out, w, "main_gpu", wishes->main_gpu);
    if (wishes->require_device) bt_json_put_bool(out, w, "require_device", true);
    if (wishes->gpu_mem_bytes.known) bt_json_put_known(out, w, "gpu_mem_bytes", wishes->gpu_mem_bytes);
}

static void read_layers(bt_json_in *in, const json_t *w, const char *key, bt_layers_kind *ret_kind, uint32_t *ret_n) {
    const json_t *value = json_object_get(w, key);
    if (!value) return;
    const char *word = json_string_value(value);
    bool all = word && strcmp(word, "all") == 0;
    bool is_auto = word && strcmp(word, "auto") == 0;
    *ret_kind = all ? BT_LAYERS_ALL : is_auto ? BT_LAYERS_AUTO : BT_LAYERS_COUNT;
    if (*ret_kind == BT_LAYERS_COUNT) (void)bt_json_u32(in, w, key, UINT32_MAX, ret_n);
}

static void read_devices(bt_json_in *in, const json_t *w, bt_wishes *wishes) {
    if (!json_object_get(w, "devices")) return;
    const json_t *devices = bt_json_array(in, w, "devices", BT_DEVICE_MAX);
    wishes->no_devices = json_array_size(devices) == 0;
    for (size_t i = 0; i < json_array_size(devices) && in->status == BT_OK; i++) {
        bt_device_wish *wish = &wishes->devices[wishes->n_devices++];
        bt_json_at(in, "wishes.devices[%zu].", i);
        const json_t *item = bt_json_item(in, devices, i);
        (void)bt_json_text(in, item, "name", wish->name, sizeof wish->name);
        (void)bt_json_known(in, item, "budget_bytes", &wish->budget_bytes);
    }
    bt_json_at(in, "wishes.");
}

static void read_shares(bt_json_in *in, const json_t *w, bt_wishes *wishes) {
    if (!json_object_get(w, "tensor_split")) return;
    const json_t *shares = bt_json_array(in, w, "tensor_split", BT_DEVICE_MAX);
    for (size_t i = 0; i < json_array_size(shares) && in->status == BT_OK; i++) {
        bt_json_at(in, "wishes.tensor_split[%zu].", i);
        (void)bt_json_u32(in, bt_json_item(in, shares, i), "share_milli", UINT32_MAX,
                          &wishes->tensor_split_milli[wishes->n_tensor_splits++]);
    }
    bt_json_at(in, "wishes.");
}

void bt_device_wishes_from_json(bt_json_in *in, const json_t *w, bt_wishes *wishes) {
    if (!w) return;
    read_layers(in, w, "gpu_layers", &wishes->gpu_layers, &wishes->n_gpu_layers);
    read_layers(in, w, "n_cpu_moe", &wishes->cpu_moe, &wishes->n_cpu_moe);
    read_devices(in, w, wishes);
    read_shares(in, w, wishes);
    if (json_object_get(w, "main_gpu")) (void)bt_json_u32(in, w, "main_gpu", BT_DEVICE_MAX - 1, &wishes->main_gpu);
    if (json_object_get(w, "require_device")) (void)bt_json_bool(in, w, "require_device", &wishes->require_device);
    if (json_object_get(w, "gpu_mem_bytes")) (void)bt_json_known(in, w, "gpu_mem_bytes", &wishes->gpu_mem_bytes);
}

/* ---- the offload ---- */

void bt_offload_to_json(bt_json_out *out, json_t *root, const bt_offload *offload) {
    if (!offload) {
        bt_json_put_null(out, root, "offload");
        return;
    }
    json_t *o = bt_json_put_object(out, root, "offload");
    bt_json_put_text(out, o, "source", offload->source);
    bt_json_put_bool(out, o, "head", offload->split.head);
    bt_json_put_u64(out, o, "n_cpu_moe", offload->split.n_cpu_moe);
    json_t *devices = bt_json_put_array(out, o, "devices");
    for (uint32_t i = 0; i < offload->split.n_devices; i++) {
        const bt_device_plan *device = &offload->devices[i];
        json_t *item = bt_json_add_object(out, devices);
        bt_json_put_text(out, item, "name", device->name);
        bt_json_put_text(out, item, "kind", bt_pool_kind_names[device->kind]);
        bt_json_put_text(out, item, "state", bt_pool_state_names[device->state]);
        bt_json_put_text_or_null(out, item, "reason", device->reason);
        bt_json_put_bool(out, item, "shares_host", device->shares_host);
        bt_json_put_u64(out, item, "blocks", device->n_blocks);
        bt_json_put_known(out, item, "budget_bytes", device->budget_bytes);
        bt_json_put_text_or_null(out, item, "budget_source", device->budget_source);
        bt_json_put_u64(out, item, "weights_bytes", device->weights_bytes);
        bt_json_put_u64(out, item, "kv_bytes", device->kv_bytes);
        bt_json_put_u64(out, item, "compute_bytes", device->compute_bytes);
        bt_json_put_u64(out, item, "context_bytes", device->context_bytes);
        bt_json_put_text(out, item, "priced_by", bt_source_name(device->source));
    }
}

static void put_line(bt_json_out *out, json_t *lines, const bt_device_plan *device, const char *what, uint64_t bytes,
                     bt_source source) {
    char name[48];
    (void)snprintf(name, sizeof name, "%.31s/%s", device->name, what);
    json_t *line = bt_json_add_object(out, lines);
    bt_json_put_text(out, line, "name", name);
    bt_json_put_u64(out, line, "planned_bytes", bytes);
    bt_json_put_text(out, line, "source", bt_source_name(source));
}

void bt_device_pool_to_json(bt_json_out *out, json_t *pools, const bt_device_plan *device) {
    json_t *pool = bt_json_add_object(out, pools);
    uint64_t planned = bt_device_plan_bytes(device);
    bool bound = device->budget_bytes.known;
    bt_json_put_text(out, pool, "name", device->name);
    bt_json_put_text(out, pool, "state", bt_pool_state_names[device->state]);
    bt_json_put_text_or_null(out, pool, "reason", device->reason);
    bt_json_put_text_or_null(out, pool, "source", device->budget_source);
    bt_json_put_known(out, pool, "budget_bytes", device->budget_bytes);
    bt_json_put_u64(out, pool, "planned_bytes", planned);
    bt_json_put_known(out, pool, "headroom_bytes",
                      (bt_known){bound, bt_sat_sub_u64(device->budget_bytes.value, planned)});
    bt_json_put_null(out, pool, "ceiling_bytes");
    json_t *lines = bt_json_put_array(out, pool, "lines");
    put_line(out, lines, device, "weights", device->weights_bytes, BT_SOURCE_TENSOR);
    put_line(out, lines, device, "kv", device->kv_bytes, device->source);
    put_line(out, lines, device, "compute", device->compute_bytes, device->source);
    put_line(out, lines, device, "context", device->context_bytes, BT_SOURCE_FORMULA);
}

static void read_device(bt_json_in *in, const json_t *item, bt_device_plan *ret) {
    uint32_t value = 0;
    (void)bt_json_text(in, item, "name", ret->name, sizeof ret->name);
    if (bt_json_choice(in, item, "kind", bt_pool_kind_names, 5, &value)) ret->kind = (bt_pool_kind)value;
    if (bt_json_choice(in, item, "state", bt_pool_state_names, 4, &value)) ret->state = (bt_pool_state)value;
    (void)bt_json_text(in, item, "reason", ret->reason, sizeof ret->reason);
    (void)bt_json_bool(in, item, "shares_host", &ret->shares_host);
    (void)bt_json_u32(in, item, "blocks", BT_BLOCK_MAX, &ret->n_blocks);
    (void)bt_json_known(in, item, "budget_bytes", &ret->budget_bytes);
    (void)bt_json_text(in, item, "budget_source", ret->budget_source, sizeof ret->budget_source);
    (void)bt_json_limit(in, item, "weights_bytes", &ret->weights_bytes);
    (void)bt_json_limit(in, item, "kv_bytes", &ret->kv_bytes);
    (void)bt_json_limit(in, item, "compute_bytes", &ret->compute_bytes);
    (void)bt_json_limit(in, item, "context_bytes", &ret->context_bytes);
    static const char *const priced[] = {"formula", "tensor", "dry-run", "measured"};
    if (bt_json_choice(in, item, "priced_by", priced, 4, &value)) ret->source = (bt_source)value;
}

/* null: all of it is on the host. Plans of before there were devices do not have the member. */
void bt_offload_from_json(bt_json_in *in, const json_t *root, bt_arena *arena, const bt_offload **ret) {
    bt_json_at(in, "%s", "");
    *ret = NULL;
    if (!json_object_get(root, "offload")) return;
    const json_t *o = bt_json_object(in, root, "offload");
    if (!o || in->status != BT_OK) return;
    bt_offload *offload = bt_arena_alloc(arena, sizeof *offload);
    if (!offload) {
        in->status = bt_fail(in->err, BT_E_NOMEM, "json", BT_MEASURE_NONE, 0, 0, "no memory for a plan's devices");
        return;
    }
    bt_json_at(in, "offload.");
    (void)bt_json_text(in, o, "source", offload->source, sizeof offload->source);
    (void)bt_json_bool(in, o, "head", &offload->split.head);
    (void)bt_json_u32(in, o, "n_cpu_moe", BT_BLOCK_MAX, &offload->split.n_cpu_moe);
    const json_t *devices = bt_json_array(in, o, "devices", BT_DEVICE_MAX);
    for (size_t i = 0; i < json_array_size(devices) && in->status == BT_OK; i++) {
        bt_device_plan *device = &offload->devices[i];
        bt_json_at(in, "offload.devices[%zu].", i);
        read_device(in, bt_json_item(in, devices, i), device);
        offload->split.n_blocks[i] = device->n_blocks;
        offload->split.n_devices = (uint32_t)i + 1;
        if (in->status == BT_OK && device->n_blocks == 0) bt_json_wrong(in, "blocks", "one at least is wanted");
    }
    bt_json_at(in, "offload.");
    if (in->status == BT_OK && offload->split.n_devices == 0) bt_json_wrong(in, "devices", "one at least is wanted");
    *ret = offload;
}

/* ---- for a person ---- */

void bt_offload_rows(bt_text *out, const bt_plan *plan, const bt_facts *facts) {
    const bt_offload *offload = plan->offload;
    if (!offload) return;
    bt_text where;
    bt_text_init(&where, 512);
    uint32_t n_away = bt_split_blocks(&offload->split);
    for (uint32_t i = 0; i < offload->split.n_devices; i++)
        bt_text_addf(&where, "%u on %.31s, ", offload->devices[i].n_blocks, offload->devices[i].name);
    bt_text_addf(&where, "%u on the host; head on %.31s", facts->n_block - n_away,
                 offload->split.head ? offload->devices[offload->split.n_devices - 1].name : "the host");
    bt_row_escaped(out, "Blocks", bt_text_str(&where));
    bt_text_done(&where);
    if (offload->split.n_cpu_moe > 0)
        bt_row(out, "Experts on host", "of the first %u blocks", offload->split.n_cpu_moe);
    bt_row_escaped(out, "Blocks because", offload->source);
}

static void add_line(bt_text *out, const bt_device_plan *device, const char *what, uint64_t bytes, bt_source source) {
    char name[64];
    (void)snprintf(name, sizeof name, "%.31s/%s", device->name, what);
    bt_text_addf(out, "  %-18s %12s %16" PRIu64 "  %s\n", name, BT_SIZE(bytes), bytes, bt_source_name(source));
}

void bt_offload_ledger(bt_text *out, const bt_plan *plan) {
    for (uint32_t i = 0; plan->offload && i < plan->offload->split.n_devices; i++) {
        const bt_device_plan *device = &plan->offload->devices[i];
        uint64_t total = bt_device_plan_bytes(device);
        bt_text_add(out, "\n");
        add_line(out, device, "weights", device->weights_bytes, BT_SOURCE_TENSOR);
        add_line(out, device, "kv", device->kv_bytes, device->source);
        add_line(out, device, "compute", device->compute_bytes, device->source);
        add_line(out, device, "context", device->context_bytes, BT_SOURCE_FORMULA);
        bt_text_addf(out, "  %-18s %12s %16" PRIu64 "\n", "total", BT_SIZE(total), total);
        if (device->budget_bytes.known)
            bt_text_addf(out, "  %-18s %12s %16" PRIu64 "  ", "budget", BT_SIZE(device->budget_bytes.value),
                         device->budget_bytes.value);
        else
            bt_text_addf(out, "  %-18s %12s %16s  ", "budget", "unknown", "");
        const char *why = device->budget_bytes.known ? device->budget_source : device->reason;
        bt_text_add_escaped(out, why, strlen(why));
        bt_text_add(out, "\n");
    }
}
