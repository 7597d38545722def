/* SPDX-License-Identifier: MIT
 *
 * decide.c: from what is to what follows: the one place that carries decisions out.
 *
 *   requests, samples, ends of processes, timers -> kick -> view -> bt_policy_next -> step -> carried out -> view ...
 *
 * Whatever happens is noted where it happens and decided here, after the callbacks that run: so a decision sees all of
 * a moment, and no callback changes a model under another one. A step is carried out at once in the books (memory is
 * reserved, a turn is given), so that the next view shows it; processes follow.
 *
 * Left out: what is decided (policy.c), what is said of it (decide_tell.c), processes (model_life.c). */
#include "router/models.h"

#include "base/size.h"

#include <stdio.h>
#include <string.h>

_Static_assert(BT_CONFIG_MODELS_MAX <= BT_CHILDREN_MAX, "all children are looked at in one go");

#define STEPS_MAX 4096u /* of one decision: each changes a model or a request; more is a fault of the policy */

void bt_models_kick(bt_models *models) {
    bt_loop_timer_set(models->ask.loop, &models->kick, 0);
}

static void carry_out(bt_models *models, const bt_policy_step *step) {
    bt_model *model = models->items[step->model];
    switch (step->kind) {
    case BT_POLICY_RUN:
        bt_model_run_next(model);
        break;
    case BT_POLICY_ADMIT:
        bt_models_tell_step(models, step);
        bt_model_admit(model, step);
        for (uint32_t i = 0; i < step->n_victims; i++) {
            char reason[BT_CONFIG_ID_MAX + 32];
            (void)snprintf(reason, sizeof reason, "evicted for %s", model->id);
            models->items[step->victims[i]]->counts.n_evictions++;
            bt_model_stop(models->items[step->victims[i]], reason);
            models->items[step->victims[i]]->evicted_for = model;
        }
        bt_model_try_launch(model);
        break;
    case BT_POLICY_DRAIN:
        bt_models_tell_step(models, step);
        for (uint32_t i = 0; i < step->n_victims; i++)
            models->items[step->victims[i]]->draining = true;
        break;
    case BT_POLICY_RESUME:
        bt_models_tell_step(models, step);
        model->draining = false;
        break;
    case BT_POLICY_REFUSE:
        bt_models_tell_step(models, step);
        bt_models_refusal_of(models, step, &model->refusal);
        bt_model_refuse_waiting(model);
        break;
    case BT_POLICY_WAIT:
        break;
    }
}

static void fill_view(bt_models *models, const bt_pools *pools, bt_policy_pool *view_pools, bt_policy_view *view) {
    const bt_config *config = models->source->config;
    uint64_t now_ms = bt_loop_now_ms(models->ask.loop);
    for (uint32_t i = 0; i < models->n; i++)
        bt_model_fill_view(models->items[i], now_ms, &models->view[i]);
    for (uint32_t i = 0; i < pools->n; i++) {
        memcpy(view_pools[i].name, pools->items[i].name, sizeof view_pools[i].name);
        view_pools[i].limit_bytes = bt_models_limit(models, i);
        view_pools[i].free_bytes = pools->items[i].free_bytes;
    }
    *view = (bt_policy_view){.models = models->view,
                             .n_models = models->n,
                             .pools = view_pools,
                             .n_pools = pools->n,
                             .groups = config->groups,
                             .n_groups = config->n_groups,
                             .hold_ms = config->hold_ms,
                             .patience_ms = config->patience_ms};
}

static bool has_moving(const bt_models *models) {
    for (uint32_t i = 0; i < models->n; i++) {
        const bt_model *model = models->items[i];
        if (model->n_running > 0 || model->n_waiting > 0) return true;
        if (model->state != BT_MODEL_STOPPED && model->state != BT_MODEL_READY && model->state != BT_MODEL_FAILED)
            return true;
    }
    return false;
}

static bool all_stopped(const bt_models *models) {
    for (uint32_t i = 0; i < models->n; i++)
        if (models->items[i]->child) return false; /* for its memory nobody waits any more */
    return true;
}

/* Nobody is ended or refused for what was read before he asked: with nothing to do that is seconds old, and what
 * another program had then it may have given back. */
static bool is_stale(const bt_models *models, const bt_policy_step *step) {
    const bt_job *first = models->items[step->model]->waiting_first;
    bool counts = step->kind == BT_POLICY_REFUSE || (step->kind == BT_POLICY_ADMIT && step->n_victims > 0);
    return counts && first && bt_sampler_pools(models->ask.sampler)->began_ms < first->since_ms;
}

void bt_models_decide(void *user) {
    bt_models *models = user;
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    bt_policy_pool view_pools[BT_POOL_MAX];
    bt_policy_view view;
    bt_loop_timer_stop(models->ask.loop, &models->wake);
    bt_sampler_pace(models->ask.sampler, has_moving(models) || bt_models_pressed(models));
    if (models->closing) {
        if (all_stopped(models) && models->on_empty) {
            void (*on_empty)(void *) = models->on_empty;
            models->on_empty = NULL;
            on_empty(models->empty_user);
        }
        return;
    }
    if (!pools->ready) return; /* the first sample kicks */
    for (uint32_t i = 0; i < models->n; i++)
        bt_model_settle(models->items[i]);
    bt_models_sweep(models);
    for (uint32_t i = 0; i < models->n; i++)
        if (models->items[i]->state == BT_MODEL_FAILED && !models->items[i]->crashed)
            bt_model_refuse_waiting(models->items[i]);
    bt_models_ask_needs(models);
    for (uint32_t i = 0; i < STEPS_MAX; i++) {
        fill_view(models, pools, view_pools, &view);
        bt_policy_next(&view, models->step);
        if (models->step->kind == BT_POLICY_WAIT) {
            if (models->step->wake_ms != UINT64_MAX)
                bt_loop_timer_set(models->ask.loop, &models->wake, models->step->wake_ms + 1);
            return;
        }
        if (is_stale(models, models->step)) {
            bt_sampler_ask(models->ask.sampler); /* which decides again */
            return;
        }
        carry_out(models, models->step);
    }
    bt_models_tell(models, BT_LOG_ERROR, "%u decisions and no end: looked at again in a second", STEPS_MAX);
    bt_loop_timer_set(models->ask.loop, &models->wake, 1000);
}

/* ---- samples ---- */

static void read_children(bt_models *models) {
    const bt_child *children[BT_CONFIG_MODELS_MAX];
    bt_child_memory *of[BT_CONFIG_MODELS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < models->n; i++) {
        if (!models->items[i]->child) continue;
        children[n] = models->items[i]->child;
        of[n++] = &models->items[i]->memory;
    }
    bt_children_memory_read(children, of, n);
}

void bt_models_sampled(bt_models *models) {
    uint64_t anon_bytes = 0;
    read_children(models);
    for (uint32_t i = 0; i < models->n; i++) {
        bt_model_sampled(models->items[i], bt_sampler_pools(models->ask.sampler));
        bt_known anon = models->items[i]->memory.anon_bytes;
        if (models->items[i]->child && anon.known) anon_bytes = bt_sat_add_u64(anon_bytes, anon.value);
    }
    bt_sampler_ours(models->ask.sampler, anon_bytes);
    bt_models_watch(models);
    for (uint32_t i = 0; i < models->n; i++)
        if (models->items[i]->state == BT_MODEL_ADMITTED) bt_model_try_launch(models->items[i]);
    bt_models_kick(models);
}
