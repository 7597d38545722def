/* SPDX-License-Identifier: MIT
 *
 * need_find.c: what is known of a model's server before it is started (need.h), found from its command.
 *
 *     memory: of the configuration     DECLARED    the user's word, whatever the command is
 *     ram_budget: of the model         BUDGET      that is what it is held to
 *     a llama.cpp program and its file PRICED      need_price.c; more that was seen in former runs is part of it
 *     seen in former runs              LEARNED
 *     else                             UNKNOWN     with the reason
 *
 * Of the file there is more to say than its price: what /v1/models shows, how many requests its server takes at once,
 * and of how long a context each is sure. That is read whatever the price comes from; a file that cannot be read leaves
 * it out. */
#include "router/need_find.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command ---- */

/* What the server will find: its own variables before those of the router. */
static const char *of_environment(void *context, const char *name) {
    const bt_config_model *model = context;
    size_t n = strlen(name);
    for (const char *const *variable = model->env; variable && *variable; variable++)
        if (strncmp(*variable, name, n) == 0 && (*variable)[n] == '=') return *variable + n + 1;
    return getenv(name);
}

/* Ceilings of devices: of a plan, else the budget. */
static uint32_t wish_devices(const bt_config *config, bt_device_wish *ret) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < config->n_devices && n < BT_DEVICE_MAX; i++) {
        const bt_config_device *device = &config->devices[i];
        bt_known bytes = device->target_bytes.known ? device->target_bytes : device->budget_bytes;
        if (!bytes.known) continue;
        ret[n].budget_bytes = bytes;
        (void)snprintf(ret[n++].name, sizeof ret[0].name, "%s", device->name);
    }
    return n;
}

/* ---- its file ---- */

static uint64_t params_of(const bt_facts *facts) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < facts->n_file_tensors; i++) {
        const bt_tensor *t = &facts->tensors[i];
        uint64_t n = 1;
        for (uint32_t d = 0; d < t->n_dims; d++)
            n = bt_sat_mul_u64(n, t->ne[d]);
        sum = bt_sat_add_u64(sum, n);
    }
    return sum;
}

static void describe_file(const bt_facts *facts, bt_need *ret) {
    (void)snprintf(ret->arch, sizeof ret->arch, "%s", facts->arch);
    ret->file_bytes = facts->file_bytes;
    ret->n_params = params_of(facts);
    ret->n_ctx_train = facts->n_ctx_train;
    ret->has_template = facts->has_chat_template;
    ret->embeds = facts->encoder;
}

/* A slot has its part of the context, or, where they share it, all of it; never more than the model was trained for
 * (server_context of tools/server). */
static uint32_t slot_ctx(const bt_effective *e, const bt_facts *facts) {
    uint32_t trained = facts->n_ctx_train;
    uint32_t n_slots = e->slots.value > 0 ? (uint32_t)e->slots.value : 1;
    if (e->ctx.value <= 0) return trained;
    uint32_t n = e->kv_unified.value != 0 ? (uint32_t)e->ctx.value : (uint32_t)e->ctx.value / n_slots;
    if (e->kv_per_slot.value > 0) n = (uint32_t)bt_min_u64(n, (uint64_t)e->kv_per_slot.value);
    return trained > 0 ? (uint32_t)bt_min_u64(n, trained) : n;
}

static void describe(const bt_judge *judge, bt_need *ret) {
    const bt_effective *e = &judge->effective;
    if (judge->facts) describe_file(judge->facts, ret);
    if (e->program != BT_PROGRAM_SERVER || e->router) return;
    ret->n_slots = e->slots.value > 0 ? (uint32_t)e->slots.value : 1;
    if (judge->facts) ret->n_ctx = slot_ctx(e, judge->facts);
    ret->embeds = ret->embeds || e->embedding.value != 0;
}

/* ---- what was seen ---- */

/* Of what is priced it is in the price. */
static void add_learned(const bt_need_ask *ask, const bt_footprint *seen, bt_need *ret) {
    if (seen->n == 0 || ret->how != BT_NEED_UNKNOWN) return;
    ret->how = BT_NEED_LEARNED;
    (void)snprintf(ret->reason, sizeof ret->reason, "as it was seen before (%s in the state folder)",
                   ret->learned_name);
    for (uint32_t i = 0; i < ask->n_pools && i < BT_POOL_MAX; i++)
        ret->bytes[i] = bt_footprint_find(seen, ask->pools[i]);
}

/* ---- the answer ---- */

static void declare(const bt_need_ask *ask, bt_need *ret) {
    const bt_config_model *model = ask->model;
    ret->how = BT_NEED_DECLARED;
    for (uint32_t k = 0; k < model->n_memory; k++) {
        uint32_t i = 0;
        while (i < ask->n_pools && i < BT_POOL_MAX && strcmp(model->memory[k].pool, ask->pools[i]) != 0)
            i++;
        if (i < ask->n_pools && i < BT_POOL_MAX)
            ret->bytes[i] = model->memory[k].bytes;
        else
            (void)snprintf(ret->reason, sizeof ret->reason, "%.31s, of which it declares memory, is not here",
                           model->memory[k].pool);
    }
}

static bt_status find(const bt_need_ask *ask, bt_judge *judge, bt_need *ret, bt_error *err) {
    if (ask->model->n_memory > 0) {
        declare(ask, ret);
        return BT_OK;
    }
    if (ask->model->ram == BT_CONFIG_RAM_SIZE) {
        ret->how = BT_NEED_BUDGET;
        ret->bytes[0] = ask->model->ram_bytes;
        return BT_OK;
    }
    const char *reason = NULL;
    if (judge->command.program == BT_PROGRAM_NONE)
        reason = judge->command.reason;
    else if (!bt_guard_is_llama(judge->command.program))
        reason = "it is no program whose memory can be read from its arguments";
    else if (!judge->facts)
        reason = judge->facts_reason;
    if (reason)
        (void)snprintf(ret->reason, sizeof ret->reason, "%.199s", reason);
    else
        BT_TRY(bt_need_price(ask, judge, ret, err));
    add_learned(ask, &judge->seen, ret);
    return BT_OK;
}

static bt_status judge_and_find(const bt_need_ask *ask, char *const *argv, bt_judge *judge, bt_need *ret,
                                bt_error *err) {
    bt_device_wish devices[BT_DEVICE_MAX];
    double fraction = ask->model->min_gpu_fraction;
    memset(devices, 0, sizeof devices);
    const bt_judge_input input = {
        .argv = argv,
        .settings = {.devices = devices,
                     .n_devices = wish_devices(ask->config, devices),
                     .min_gpu_fraction = fraction != 0 ? fraction : ask->config->min_gpu_fraction},
        .env = of_environment,
        .env_context = (void *)(uintptr_t)ask->model, /* only read */
    };
    BT_TRY(bt_judge_open(judge, &input, err));
    if (judge->command.program != BT_PROGRAM_NONE) bt_judge_read(judge, NULL);
    describe(judge, ret);
    bt_judge_recall(judge);
    (void)snprintf(ret->learned_name, sizeof ret->learned_name, "%s", judge->footprint_name);
    bt_status status = find(ask, judge, ret, err);
    bt_judge_close(judge);
    return status;
}

bt_status bt_need_find(const bt_need_ask *ask, char *const *argv, bt_need *ret, bt_error *err) {
    bt_judge *judge = bt_heap_alloc(sizeof *judge);
    *ret = (bt_need){0};
    if (!judge) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to price a command");
    bt_status status = judge_and_find(ask, argv, judge, ret, err);
    bt_heap_free(judge);
    return status;
}
