/* SPDX-License-Identifier: MIT
 *
 * model_memory.c: what a model takes of each pool: asked before it starts, watched while it runs, learned when it ends.
 *
 *   need      asked aside for a model that somebody waits for; good for NEED_KEPT_MS, and while it runs
 *   reserved  at the moment of admission
 *   measured  with each sample: resident memory of all its processes; of devices what their drivers say of its pids
 *   held      the more of both: what others cannot have
 *
 * A child that takes more than was reserved is said once, and charged with it from then on. Left out: what is decided
 * from this (policy.c). */
#include "router/models.h"

#include "base/size.h"
#include "guard/place.h"
#include "probe/proc.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* As long as a refusal is remembered (research notes, seed 4, G28): a file or a card may have changed by then. */
#define NEED_KEPT_MS 30000u

uint32_t bt_model_group(const bt_model *model) {
    const bt_config *now = model->all->source->config, *own = model->source->config;
    uint32_t group = model->config->group;
    if (now == own || group >= own->n_groups) return group;
    for (uint32_t i = 0; i < now->n_groups; i++)
        if (strcmp(now->groups[i].name, own->groups[group].name) == 0) return i;
    return UINT32_MAX;
}

static bool is_charged(const bt_model *model) {
    return model->state != BT_MODEL_STOPPED && model->state != BT_MODEL_FAILED;
}

static uint64_t held_of(const bt_model *model, uint32_t pool) {
    bt_known measured = model->measured_bytes[pool];
    return bt_max_u64(model->reserved_bytes[pool], measured.known ? measured.value : 0);
}

/* What of it the system's free bytes show. Where a device's driver does not say who has what (WSL; a container, whose
 * processes it counts as the host does), a model that is ready has allocated what it was promised: servers do while
 * they load. */
static uint64_t shown_of(const bt_model *model, uint32_t pool) {
    bt_known measured = model->measured_bytes[pool];
    if (measured.known) return measured.value;
    bool loaded = pool > 0 && (model->state == BT_MODEL_READY || model->state == BT_MODEL_STOPPING);
    return loaded ? model->reserved_bytes[pool] : 0;
}

static uint64_t untouched_of(const bt_model *model, uint32_t pool) {
    return bt_sat_sub_u64(held_of(model, pool), shown_of(model, pool));
}

/* ---- the view that decisions are made from ---- */

static void fill_bytes(const bt_model *model, uint32_t n_pools, bt_policy_model *ret) {
    for (uint32_t i = 0; i < n_pools; i++) {
        ret->need_bytes[i] = model->need.bytes[i];
        ret->least_bytes[i] = model->need.least_bytes[i];
        if (!is_charged(model)) continue;
        ret->held_bytes[i] = held_of(model, i);
        ret->untouched_bytes[i] = untouched_of(model, i);
    }
}

void bt_model_fill_view(const bt_model *model, uint64_t now_ms, bt_policy_model *ret) {
    const bt_pools *pools = bt_sampler_pools(model->all->ask.sampler);
    bool goes = model->outdated || model->unload_asked; /* ends as soon as it is idle: as good as told to */
    *ret = (bt_policy_model){
        .id = model->id,
        .state = model->state == BT_MODEL_READY && goes ? BT_MODEL_STOPPING : model->state,
        .need_known = model->need_there && model->need.how != BT_NEED_UNKNOWN,
        .can_shrink = model->need.can_shrink,
        .held_known = model->need.how != BT_NEED_UNKNOWN || model->measured_bytes[0].known,
        .persistent = model->config->persistent,
        .draining = model->draining,
        .n_running = model->n_running,
        .n_waiting = model->n_waiting,
        .concurrency = model->config->concurrency,
        .waiting_ms = model->waiting_first ? now_ms - model->waiting_first->since_ms : 0,
        .priority = model->config->priority,
        .used = model->used,
        .ready_ms = model->state == BT_MODEL_READY ? bt_sat_sub_u64(now_ms, model->ready_ms) : 0,
        .idle_ms = bt_sat_sub_u64(now_ms, model->idle_since_ms),
        .retry_ms = bt_sat_sub_u64(model->retry_at_ms, now_ms),
        .group = bt_model_group(model),
    };
    if (ret->concurrency == 0) ret->concurrency = model->need.n_slots > 0 ? model->need.n_slots : 10;
    /* Nobody wants it before it is known what it takes. */
    if (!model->need_there && model->state == BT_MODEL_STOPPED) ret->n_waiting = 0;
    fill_bytes(model, pools->n, ret);
}

/* The bytes that its start was promised are really there: in the books, and in what the system says. */
bool bt_models_room_is_there(const bt_models *models, const bt_model *model) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    for (uint32_t i = 0; i < pools->n; i++) {
        const bt_pools_one *pool = &pools->items[i];
        uint64_t held = 0, untouched = 0;
        if (model->reserved_bytes[i] == 0) continue;
        for (uint32_t k = 0; k < models->n; k++) {
            const bt_model *one = models->items[k];
            if (!is_charged(one)) continue;
            held = bt_sat_add_u64(held, held_of(one, i));
            if (one->state != BT_MODEL_STOPPING) untouched = bt_sat_add_u64(untouched, untouched_of(one, i));
        }
        bt_known limit = bt_models_limit(models, i);
        if (limit.known && held > limit.value) return false;
        if (pool->free_bytes.known && untouched > pool->free_bytes.value) return false;
    }
    return true;
}

bool bt_model_may_hold(const bt_model *model, uint32_t pool) {
    bt_known measured = model->measured_bytes[pool];
    if (model->state != BT_MODEL_STARTING && model->state != BT_MODEL_READY && model->state != BT_MODEL_STOPPING)
        return false;
    return model->reserved_bytes[pool] > 0 || (measured.known && measured.value > 0) ||
           model->need.how == BT_NEED_UNKNOWN;
}

/* ---- samples ---- */

/* Whether its memory is still on the way, to the device or back. */
static bool is_moving(const bt_model *model, uint32_t pool) {
    return bt_model_may_hold(model, pool) && (model->state != BT_MODEL_READY || !model->attribution[pool].done);
}

void bt_model_attribute(bt_model *model, bt_model_state state) {
    const bt_models *models = model->all;
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    bool starts = model->state == BT_MODEL_ADMITTED && state == BT_MODEL_STARTING;
    if (!starts && state != BT_MODEL_STOPPING) return;
    for (uint32_t i = 1; i < pools->n; i++) {
        bool alone = true;
        if (starts ? model->reserved_bytes[i] == 0 && model->need.how != BT_NEED_UNKNOWN : !bt_model_may_hold(model, i))
            continue;
        for (uint32_t k = 0; k < models->n; k++) {
            bt_model *one = models->items[k];
            if (one == model || !bt_model_may_hold(one, i)) continue;
            alone = alone && !is_moving(one, i);
            bt_attribution_disturb(&one->attribution[i]);
        }
        if (starts) bt_attribution_begin(&model->attribution[i], bt_pools_used(&pools->items[i]), alone);
    }
}

/* A process of the list, of which it may not be known how much it has, or whose it is: of another namespace, or gone
 * just now. What it hides is unknown, unless others of the group say something. */
static void add_user(bt_model *model, const bt_pools_user *user, pid_t group) {
    bt_known *measured = &model->measured_bytes[user->pool], *mapped = &model->mapped_bytes[user->pool];
    pid_t its = getpgid((pid_t)user->pid);
    if (its == group && user->host_bytes.known)
        *mapped = (bt_known){true, bt_sat_add_u64(mapped->value, user->host_bytes.value)};
    if (its == group && user->bytes.known)
        *measured = (bt_known){true, bt_sat_add_u64(measured->value, user->bytes.value)};
    else if ((its == group || its < 0) && measured->value == 0)
        measured->known = false;
}

/* Of a device whose driver does not say: what more of it is used since it was started (attribution.c). */
static void attribute_device(bt_model *model, const bt_pools *pools, uint32_t pool) {
    bt_known *measured = &model->measured_bytes[pool];
    bool is_ready = model->state == BT_MODEL_READY && pools->began_ms >= model->ready_ms;
    if (is_ready) {
        bt_attribution_ready(&model->attribution[pool], bt_pools_used(&pools->items[pool]));
        bt_known mapped = model->mapped_bytes[pool];
        if (mapped.known && !model->mapped_first_bytes[pool].known) model->mapped_first_bytes[pool] = mapped;
    }
    if (!measured->known) *measured = model->attribution[pool].bytes;
}

/* Of a device that could not be read what was seen last stands. */
static void measure_devices(bt_model *model, const bt_pools *pools) {
    pid_t group = bt_child_pid(model->child);
    for (uint32_t i = 1; i < pools->n; i++)
        if (pools->items[i].state != BT_READING_FAILED) {
            model->measured_bytes[i] = (bt_known){pools->items[i].users_complete, 0};
            model->mapped_bytes[i] = (bt_known){0};
        }
    for (uint32_t i = 0; i < pools->n_users; i++)
        if (pools->items[pools->users[i].pool].state != BT_READING_FAILED) add_user(model, &pools->users[i], group);
    for (uint32_t i = 1; i < pools->n; i++)
        attribute_device(model, pools, i);
}

/* What a device has when its bytes are back: that does not change while they come back, also where the driver forgets
 * whose they are before they are free. */
static void note_release(bt_model *model, const bt_pools *pools) {
    bool stopping = model->state == BT_MODEL_STOPPING;
    for (uint32_t i = 1; i < pools->n; i++) {
        bt_known free_bytes = pools->items[i].free_bytes, measured = model->measured_bytes[i];
        bt_known *after = &model->free_after[i];
        bool says = free_bytes.known && measured.known && measured.value > 0;
        uint64_t bytes = says ? bt_sat_add_u64(free_bytes.value, measured.value) : 0;
        if (!stopping)
            *after = (bt_known){says, bytes};
        else if (says)
            *after = (bt_known){true, bt_max_u64(bytes, after->known ? after->value : 0)};
    }
}

static void note_peaks(bt_model *model, const bt_pools *pools) {
    for (uint32_t i = 0; i < pools->n; i++) {
        bt_known now =
            i == 0 && model->memory.peak_rss_bytes.known ? model->memory.peak_rss_bytes : model->measured_bytes[i];
        bt_known *peak = &model->peak_bytes[i];
        if (!now.known || (peak->known && peak->value >= now.value)) continue;
        bool over = now.value > model->reserved_bytes[i] && model->reserved_bytes[i] > 0;
        bool was_over = peak->known && peak->value > model->reserved_bytes[i];
        *peak = now;
        if (over && !was_over)
            bt_models_say(model->all, "%s: takes %s of %s, %s were reserved: charged with it from now on", model->id,
                          BT_SIZE(now.value), pools->items[i].name, BT_SIZE(model->reserved_bytes[i]));
    }
}

void bt_model_sampled(bt_model *model, const bt_pools *pools) {
    if (!model->child) {
        if (model->state == BT_MODEL_STOPPING) bt_model_look_at_release(model);
        return;
    }
    measure_devices(model, pools);
    model->measured_bytes[0] = model->memory.rss_bytes;
    note_release(model, pools);
    note_peaks(model, pools);
}

/* What the guard says before it becomes the command (guard/said.c): another command than the one that was typed. */
static bool is_change(const char *line, size_t n) {
    static const bt_guard_kind kinds[] = {BT_GUARD_TRIMMED, BT_GUARD_OFFLOADED, BT_GUARD_BUDGETED};
    const bt_span span = {.at = line, .n_bytes = n};
    char start[40];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        (void)snprintf(start, sizeof start, "burthen: %s: ", bt_guard_kind_name(kinds[i]));
        if (bt_span_starts(span, start)) return true;
    }
    return false;
}

void bt_model_heard(bt_model *model, const char *line, size_t n) {
    if (is_change(line, n)) model->changed = true;
}

void bt_model_learn(bt_model *model) {
    const bt_pools *pools = bt_sampler_pools(model->all->ask.sampler);
    const char *names[BT_POOL_MAX];
    if (!model->need.learned_name[0] || !model->peak_bytes[0].known || model->ready_ms < model->started_ms) return;
    /* Of another command than the one that was typed: layers that were moved to the host are no reason to keep room for
     * them there once they are on a device again. */
    if (model->changed) return;
    for (uint32_t i = 0; i < pools->n; i++)
        names[i] = pools->items[i].name;
    bt_need_learn(model->need.learned_name, names, pools->n, model->peak_bytes);
    model->need_there = false; /* asked again: it may be more now */
}

/* ---- what a start will take ---- */

static bool wants_need(const bt_model *model, uint64_t now_ms) {
    if (model->state != BT_MODEL_STOPPED || model->outdated) return false;
    return !model->need_there || (model->n_waiting > 0 && now_ms - model->need_at_ms > NEED_KEPT_MS);
}

/* Those that somebody waits for first, the longest first; then the others, in the order of the list. */
static bool is_before(const bt_model *a, const bt_model *b) {
    if (!b || !a->waiting_first || !b->waiting_first) return !b || (a->waiting_first && !b->waiting_first);
    return a->waiting_first->since_ms < b->waiting_first->since_ms;
}

/* What it could have at most: all but what stays whatever is evicted. */
static void fill_most(const bt_models *models, const bt_model *model, const bt_pools *pools, bt_known *ret) {
    for (uint32_t i = 0; i < pools->n; i++) {
        const bt_pools_one *pool = &pools->items[i];
        uint64_t stays = 0, comes_back = 0;
        for (uint32_t k = 0; k < models->n; k++) {
            const bt_model *one = models->items[k];
            if (one == model || !is_charged(one)) continue;
            if (one->config->persistent)
                stays = bt_sat_add_u64(stays, held_of(one, i));
            else
                comes_back = bt_sat_add_u64(comes_back, shown_of(one, i));
        }
        bt_known limit = bt_models_limit(models, i);
        ret[i] = (bt_known){limit.known, bt_sat_sub_u64(limit.value, stays)};
        if (!pool->free_bytes.known) continue;
        uint64_t live = bt_sat_add_u64(pool->free_bytes.value, comes_back);
        if (!ret[i].known || live < ret[i].value) ret[i] = (bt_known){true, live};
    }
}

static void on_need(void *user, const bt_need *need) {
    bt_models *models = user;
    bt_model *model = models->needing_model;
    models->needing = NULL;
    models->needing_model = NULL;
    model->need = *need;
    model->need_there = true;
    model->need_at_ms = bt_loop_now_ms(models->ask.loop);
    const char *more = need->reason[0] ? ": " : "";
    if (need->how == BT_NEED_UNKNOWN)
        bt_models_say(models, "%s: it is not known what it takes%s%s", model->id, more, need->reason);
    else
        bt_models_say(models, "%s: %s of the host (%s)%s%s", model->id, BT_SIZE(need->bytes[0]),
                      bt_need_how_name(need->how), more, need->reason);
    bt_models_kick(models);
}

static bt_status ask_need(bt_models *models, bt_model *model, bt_error *err) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    const char *names[BT_POOL_MAX];
    bt_need_ask ask = {.loop = models->ask.loop,
                       .config = model->source->config,
                       .model = model->config,
                       .pools = names,
                       .n_pools = pools->n,
                       .root = models->ask.root};
    for (uint32_t i = 0; i < pools->n; i++)
        names[i] = pools->items[i].name;
    fill_most(models, model, pools, ask.free_bytes);
    return bt_need_start(&ask, on_need, models, &models->needing, err);
}

/* One at a time: each takes memory of its own, for which the router's line has room once. */
void bt_models_ask_needs(bt_models *models) {
    uint64_t now_ms = bt_loop_now_ms(models->ask.loop);
    bt_model *first = NULL;
    if (models->needing) return;
    for (uint32_t i = 0; i < models->n; i++) {
        bt_model *model = models->items[i];
        if (!wants_need(model, now_ms)) continue;
        if (is_before(model, first)) first = model;
    }
    if (!first) return;
    bt_error why = {0};
    models->needing_model = first;
    if (ask_need(models, first, &why) == BT_OK) return;
    models->needing_model = NULL;
    first->need = (bt_need){.how = BT_NEED_UNKNOWN};
    first->need_there = true;
    first->need_at_ms = now_ms;
    bt_models_tell(models, BT_LOG_WARN, "%s: what it takes cannot be found out: %s", first->id, why.text);
}
