/* SPDX-License-Identifier: MIT
 *
 * live.c: after each sample: what others leave of each pool, and who goes for it.
 *
 *     sample -> ceiling (ceiling.c) of each device, of all devices together, of the host -> watchdog (watchdog.c)
 *            -> trend (trend.c) of each model on each device
 *
 * All are pure; here they are given what is known, and what they say is done. Nothing is asked of the system here, and
 * nothing happens while a request is answered: admission reads what the last sample came to.
 *
 * Ours on a device is what its driver says of a child's processes, or what attribution.c made of it. Ours on the host
 * is anonymous memory: pages of a mapped file count as available, for the kernel takes them back; counted as ours they
 * would hide what others take. The host's ceiling counts where it has a budget; without one what is free bounds each
 * start anyway. Its reading trembles (kernel, page tables, daemons): what others take of it is nothing up to the
 * quarter of a GiB by which two readings of the guard may differ and be the same. */
#include "router/live.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "guard/memo.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bt_status bt_live_open(bt_models *models, struct bt_live **ret, bt_error *err) {
    (void)models;
    *ret = bt_heap_alloc(sizeof **ret);
    return *ret ? BT_OK : bt_fail_sys(err, ENOMEM, "models", "no memory to watch memory");
}

void bt_live_close(struct bt_live *live) {
    bt_heap_free(live);
}

/* ---- what it came to ---- */

const bt_ceiling *bt_models_ceiling(const bt_models *models, uint32_t pool) {
    return &models->live->ceilings[pool];
}

const bt_ceiling *bt_models_ceiling_of_devices(const bt_models *models) {
    return &models->live->devices;
}

bt_watchdog_state bt_models_watchdog(const bt_models *models, uint32_t pool) {
    return models->live->watchdogs[pool].state;
}

bool bt_models_pressed(const bt_models *models) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    for (uint32_t i = 0; i < pools->n; i++)
        if (models->live->watchdogs[i].state == BT_WATCHDOG_PRESSED) return true;
    return false;
}

bt_known bt_models_limit(const bt_models *models, uint32_t pool) {
    bt_known budget = bt_sampler_pools(models->ask.sampler)->items[pool].limit_bytes;
    return bt_ceiling_limit(&models->live->ceilings[pool], budget);
}

/* ---- ceilings ---- */

static bt_known reserve_of(const bt_models *models) {
    const bt_config *config = models->source->config;
    return (bt_known){!config->oom_reserve_off, config->oom_reserve_bytes};
}

static bt_known measured_of(const bt_model *model, uint32_t pool) {
    return pool == 0 ? model->memory.anon_bytes : model->measured_bytes[pool];
}

static bt_ceiling_phase phase_of(const bt_model *model, uint32_t pool) {
    if (model->state == BT_MODEL_STARTING) return BT_CEILING_STARTING;
    if (model->state == BT_MODEL_STOPPING) return BT_CEILING_GOING;
    bool waits = pool > 0 && !model->measured_bytes[pool].known && !model->attribution[pool].done;
    return waits ? BT_CEILING_STARTING : BT_CEILING_RUNNING;
}

static uint32_t children_of(bt_models *models, uint32_t pool, bt_ceiling_child *ret) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < models->n; i++) {
        const bt_model *model = models->items[i];
        bool runs = model->child || model->state == BT_MODEL_STOPPING;
        if (pool == 0 ? !runs : !bt_model_may_hold(model, pool)) continue;
        ret[n++] = (bt_ceiling_child){.id = model->id,
                                      .phase = phase_of(model, pool),
                                      .reserved_bytes = model->reserved_bytes[pool],
                                      .measured_bytes = measured_of(model, pool)};
    }
    return n;
}

static void forget_other(struct bt_live *live, uint32_t pool, const char *name) {
    if (strcmp(live->names[pool], name) == 0) return;
    memset(&live->ceilings[pool], 0, sizeof live->ceilings[pool]);
    memset(&live->watchdogs[pool], 0, sizeof live->watchdogs[pool]);
    memset(&live->said[pool], 0, sizeof live->said[pool]);
    (void)snprintf(live->names[pool], sizeof live->names[pool], "%s", name);
}

static void look_at_pool(bt_models *models, const bt_pools *pools, uint32_t pool) {
    struct bt_live *live = models->live;
    const bt_pools_one *one = &pools->items[pool];
    forget_other(live, pool, one->name);
    bt_known used = bt_pools_used(one);
    if (pool == 0) used.value = bt_sat_sub_u64(used.value, pools->own_anon_bytes);
    const bt_ceiling_sample sample = {.now_ms = bt_loop_now_ms(models->ask.loop),
                                      .total_bytes = one->whole_bytes,
                                      .used_bytes = used,
                                      .budget_bytes = one->limit_bytes,
                                      .reserve_bytes = reserve_of(models),
                                      .apart = pool == 0,
                                      .noise_bytes = pool == 0 ? BT_GUARD_EPSILON_BYTES : 0,
                                      .children = live->children,
                                      .n_children = children_of(models, pool, live->children)};
    bt_ceiling_look(&live->ceilings[pool], &sample);
    bool bounds = pool > 0 || models->source->config->ram_budget_given;
    if (!bounds) live->ceilings[pool].ceiling_bytes = (bt_known){0};
}

static void add_known(bt_known *sum, bt_known bytes, bool first) {
    bool known = bytes.known && (first || sum->known);
    *sum = (bt_known){known, bt_sat_add_u64(first ? 0 : sum->value, bytes.value)};
}

/* A child on all devices: seen where it is seen on each that it may be on. */
static bt_ceiling_child child_of_devices(const bt_model *model, const bt_pools *pools) {
    bt_ceiling_child child = {.id = model->id, .phase = BT_CEILING_RUNNING, .measured_bytes = {true, 0}};
    for (uint32_t i = 1; i < pools->n; i++) {
        if (!bt_model_may_hold(model, i)) continue;
        if (phase_of(model, i) != BT_CEILING_RUNNING) child.phase = phase_of(model, i);
        child.reserved_bytes = bt_sat_add_u64(child.reserved_bytes, model->reserved_bytes[i]);
        add_known(&child.measured_bytes, model->measured_bytes[i], false);
    }
    return child;
}

/* As the document reckons it (V2): one sum over all. Shown; admission goes by each device. */
static void look_at_devices(bt_models *models, const bt_pools *pools) {
    struct bt_live *live = models->live;
    bt_ceiling_sample sample = {
        .now_ms = bt_loop_now_ms(models->ask.loop), .reserve_bytes = reserve_of(models), .children = live->children};
    for (uint32_t i = 1; i < pools->n; i++) {
        add_known(&sample.total_bytes, pools->items[i].whole_bytes, i == 1);
        add_known(&sample.used_bytes, bt_pools_used(&pools->items[i]), i == 1);
        add_known(&sample.budget_bytes, pools->items[i].limit_bytes, i == 1);
    }
    for (uint32_t i = 0; i < models->n; i++)
        if (models->items[i]->child || models->items[i]->state == BT_MODEL_STOPPING)
            live->children[sample.n_children++] = child_of_devices(models->items[i], pools);
    bt_ceiling_look(&live->devices, &sample);
}

/* ---- who goes ---- */

static bool may_go(const bt_model *model) {
    const bt_config *config = model->source->config;
    uint32_t group = model->config->group;
    if (model->config->persistent || (group < config->n_groups && config->groups[group].persistent)) return false;
    return model->state == BT_MODEL_READY && model->n_running == 0 && model->n_waiting == 0;
}

/* What it holds: measured; of one that starts what it was promised, where that is more. */
static bt_known footprint(const bt_model *model, uint32_t pool) {
    bt_known measured = measured_of(model, pool);
    bool starts = phase_of(model, pool) == BT_CEILING_STARTING;
    uint64_t reserved = pool == 0 ? 0 : model->reserved_bytes[pool];
    if (starts) return (bt_known){true, bt_max_u64(reserved, measured.known ? measured.value : 0)};
    return measured;
}

static uint32_t rows_of(bt_models *models, uint32_t pool) {
    struct bt_live *live = models->live;
    uint32_t n = 0;
    for (uint32_t i = 0; i < models->n; i++) {
        bt_model *model = models->items[i];
        bool runs = model->state == BT_MODEL_STARTING || model->state == BT_MODEL_READY;
        if (!runs || (pool > 0 && !bt_model_may_hold(model, pool))) continue;
        live->holders[n] = model;
        live->rows[n++] = (bt_watchdog_model){
            .id = model->id, .bytes = footprint(model, pool), .may_go = may_go(model), .used = model->used};
    }
    return n;
}

/* More of the host is mapped for the device than when it was ready: it has been driven out. */
static bool has_spilled(const bt_models *models, uint32_t pool) {
    for (uint32_t i = 0; i < models->n; i++) {
        const bt_model *model = models->items[i];
        bt_known first = model->mapped_first_bytes[pool], now = model->mapped_bytes[pool];
        if (model->state != BT_MODEL_READY || !first.known || !now.known) continue;
        if (now.value > bt_sat_add_u64(first.value, BT_GUARD_EPSILON_BYTES)) return true;
    }
    return false;
}

static void shed(bt_models *models, const char *pool) {
    const struct bt_live *live = models->live;
    for (uint32_t i = 0; i < live->step.n_victims; i++) {
        bt_model *model = live->holders[live->step.victims[i]];
        char reason[96];
        (void)snprintf(reason, sizeof reason, "memory is needed by others (%s)", pool);
        model->counts.n_evictions++;
        bt_model_stop(model, reason);
    }
}

static void guard_pool(bt_models *models, const bt_pools *pools, uint32_t pool) {
    struct bt_live *live = models->live;
    const bt_config *config = models->source->config;
    const bt_ceiling *ceiling = &live->ceilings[pool];
    bool real = ceiling->excess_bytes.known && ceiling->excess_bytes.value > BT_GUARD_EPSILON_BYTES;
    const bt_watchdog_sample sample = {.now_ms = bt_loop_now_ms(models->ask.loop),
                                       .evict = config->oom_evict,
                                       .grace_ms = config->oom_grace_ms,
                                       .reserve_bytes = reserve_of(models),
                                       .gated = true,
                                       .is_host = pool == 0,
                                       .ceiling_bytes = ceiling->ceiling_bytes,
                                       .free_bytes = pools->items[pool].available_bytes,
                                       .excess_bytes = real ? ceiling->excess_bytes : (bt_known){0},
                                       .spilled = pool > 0 && has_spilled(models, pool),
                                       .stall = pool == 0 ? pools->stall : (bt_known){0},
                                       .models = live->rows,
                                       .n_models = rows_of(models, pool)};
    bt_watchdog_state was = live->watchdogs[pool].state;
    bt_watchdog_look(&live->watchdogs[pool], &sample, &live->step);
    if (live->step.kind != BT_WATCHDOG_NOTHING)
        bt_live_tell_watchdog(models, pool, &live->step, live->holders);
    else if (live->watchdogs[pool].state == BT_WATCHDOG_PRESSED && was != BT_WATCHDOG_PRESSED)
        bt_models_say(models, "%s: others press: %s too much is held; idle models go in %.0f s",
                      pools->items[pool].name, BT_SIZE(live->step.over_bytes), (double)config->oom_grace_ms / 1000.0);
    if (live->step.kind == BT_WATCHDOG_SHED) shed(models, pools->items[pool].name);
}

/* ---- who grows ---- */

/* What it holds of a device; of one that could not be read now what was seen last is no answer. */
static bt_known held_now(const bt_model *model, const bt_pools *pools, uint32_t pool) {
    return pools->items[pool].state == BT_READING_FAILED ? (bt_known){0} : model->measured_bytes[pool];
}

static void look_at_trends(bt_models *models, bt_model *model, const bt_pools *pools) {
    if (model->state != BT_MODEL_READY) return;
    for (uint32_t i = 1; i < pools->n; i++) {
        const bt_trend_sample sample = {.n_tokens = model->n_served,
                                        .held_bytes = held_now(model, pools, i),
                                        .free_bytes = pools->items[i].available_bytes};
        if (bt_trend_look(&model->trends[i], &sample)) bt_live_tell_trend(models, model, i);
    }
}

void bt_models_watch(bt_models *models) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    if (models->closing) return;
    for (uint32_t i = 0; i < pools->n; i++) {
        look_at_pool(models, pools, i);
        bt_live_tell_ceiling(models, i);
    }
    if (pools->n > 1) look_at_devices(models, pools);
    for (uint32_t i = 0; i < pools->n; i++)
        guard_pool(models, pools, i);
    for (uint32_t i = 0; i < models->n; i++)
        look_at_trends(models, models->items[i], pools);
    bt_live_tell_sample(models);
}
