/* SPDX-License-Identifier: MIT
 *
 * models.c: all models, and the one writer of their states.
 *
 *   requests, samples, ends of processes, timers -> kick -> view -> bt_policy_next -> step -> carried out -> view ...
 *
 * Whatever happens is noted where it happens and decided here, after the callbacks that run: so a decision sees all of
 * a moment, and no callback changes a model under another one. A step is carried out at once in the books (memory is
 * reserved, a turn is given), so that the next view shows it; processes follow.
 *
 * Bound: BT_CONFIG_MODELS_MAX models, queues as the configuration's limits say. Left out: what is decided (policy.c),
 * processes (model_life.c), memory (model_memory.c), requests (job.c). */
#include "router/models.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(BT_CONFIG_MODELS_MAX <= BT_CHILDREN_MAX, "all children are looked at in one go");

#define STEPS_MAX 4096u /* of one decision: each changes a model or a request; more is a fault of the policy */

static void decide(void *user);

/* ---- what is said ---- */

void bt_models_say(bt_models *models, const char *fmt, ...) {
    char line[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[length++] = '\n';
    bt_log_ring_add(models->ask.log, line, length);
}

const char *bt_model_phase(const bt_model *model) {
    bool drains = model->draining || model->outdated || model->unload_asked;
    if (model->state == BT_MODEL_READY && drains) return "draining";
    return bt_model_state_name(model->state);
}

/* ---- holding configurations ---- */

void bt_models_release(bt_held_config *held) {
    if (!held || --held->n_holders > 0) return;
    bt_config_close(held->config);
    bt_heap_free(held);
}

static bt_held_config *hold(bt_held_config *held) {
    held->n_holders++;
    return held;
}

/* ---- models ---- */

static void on_model_timer(void *user);

static void on_child_line(void *user, const char *line, size_t n) {
    bt_model *model = user;
    bt_model_heard(model, line, n);
    const bt_models_ask *ask = &model->all->ask;
    bool wanted = model->all->source && model->all->source->config->log_children;
    if (wanted && ask->on_child_line) ask->on_child_line(ask->line_user, model->id, line, n);
}

static bt_model *new_model(bt_models *models, const bt_config_model *config, bt_held_config *source, bt_error *err) {
    bt_model *model = bt_heap_alloc(sizeof *model);
    if (!model || bt_log_ring_open(&model->log, err) != BT_OK) {
        bt_heap_free(model);
        (void)bt_fail_sys(err, 12, "models", "no memory for another model");
        return NULL;
    }
    model->all = models;
    (void)snprintf(model->id, sizeof model->id, "%s", config->id);
    model->config = config;
    model->source = hold(source);
    model->timer = (bt_timer){.on_time = on_model_timer, .user = model};
    bt_log_ring_on_line(model->log, on_child_line, model);
    return model;
}

/* What it takes is not known any more, nor what is being found out of it. */
void bt_model_forget_need(bt_model *model) {
    bt_models *models = model->all;
    model->need_there = false;
    if (models->needing_model != model) return;
    bt_need_cancel(models->needing);
    models->needing = NULL;
    models->needing_model = NULL;
}

static void free_model(bt_model *model) {
    bt_models *models = model->all;
    for (uint32_t i = 0; i < models->n; i++)
        if (models->items[i]->evicted_for == model) models->items[i]->evicted_for = NULL;
    bt_model_forget_need(model);
    bt_loop_timer_stop(models->ask.loop, &model->timer);
    if (model->probe) bt_exchange_cancel(model->probe);
    if (model->probe_flow) bt_flow_drop_consumer(model->probe_flow);
    bt_child_close(model->child);
    bt_log_ring_close(model->log);
    bt_models_release(model->source);
    bt_models_release(model->next_source);
    bt_heap_free(model);
}

uint32_t bt_models_count(const bt_models *models) {
    return models->n;
}

bt_model *bt_models_at(const bt_models *models, uint32_t i) {
    return models->items[i];
}

const bt_config *bt_models_config(const bt_models *models) {
    return models->source->config;
}

static bt_model *find_id(const bt_models *models, const char *id) {
    for (uint32_t i = 0; i < models->n; i++)
        if (strcmp(models->items[i]->id, id) == 0) return models->items[i];
    return NULL;
}

bt_model *bt_models_find(const bt_models *models, const char *name) {
    const bt_config_model *config = bt_config_find(models->source->config, name);
    return config ? find_id(models, config->id) : NULL;
}

uint32_t bt_models_waiting(const bt_models *models) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < models->n; i++)
        n += models->items[i]->n_waiting;
    return n;
}

bt_status bt_models_open(const bt_models_ask *ask, bt_models **ret, bt_error *err) {
    bt_models *models = bt_heap_alloc(sizeof *models);
    if (models) models->view = bt_heap_array(BT_CONFIG_MODELS_MAX, sizeof *models->view);
    if (models) models->step = bt_heap_alloc(sizeof *models->step);
    bool whole = models && models->view && models->step;
    if (whole) models->ask = *ask;
    if (!whole || bt_live_open(models, &models->live, err) != BT_OK) {
        if (models) bt_heap_free(models->view);
        if (models) bt_heap_free(models->step);
        bt_heap_free(models);
        return bt_fail_sys(err, 12, "models", "no memory for the list of models");
    }
    models->kick = (bt_timer){.on_time = decide, .user = models};
    models->wake = (bt_timer){.on_time = decide, .user = models};
    *ret = models;
    return BT_OK;
}

void bt_models_close(bt_models *models) {
    if (!models) return;
    for (uint32_t i = 0; i < models->n; i++)
        bt_model_refuse_waiting(models->items[i]); /* what nobody asked for: wishes that a model be loaded */
    bt_loop_timer_stop(models->ask.loop, &models->kick);
    bt_loop_timer_stop(models->ask.loop, &models->wake);
    while (models->n > 0)
        free_model(models->items[--models->n]);
    bt_models_release(models->source);
    bt_live_close(models->live);
    bt_heap_free(models->view);
    bt_heap_free(models->step);
    bt_heap_free(models);
}

/* ---- another configuration ---- */

/* Nothing of it is left: once its configuration drops it, it is gone. */
static bool is_empty(const bt_model *model) {
    return model->state == BT_MODEL_STOPPED && model->n_running == 0 && model->n_waiting == 0 && model->n_calls == 0;
}

/* By its id: an alias of that name is another model's. NULL: it is dropped. */
static const bt_config_model *in_config(const bt_config *config, const bt_model *model) {
    const bt_config_model *found = bt_config_find(config, model->id);
    return found && strcmp(found->id, model->id) == 0 ? found : NULL;
}

/* Everything that can fail, before anything is changed. */
static bt_status make_new_models(bt_models *models, bt_held_config *source, bt_model **fresh, uint32_t *ret_n,
                                 bt_error *err) {
    const bt_config *config = source->config;
    uint32_t n_leaving = 0, n_stay = 0;
    for (uint32_t i = 0; i < models->n; i++) {
        bool leaves = !in_config(config, models->items[i]);
        n_leaving += leaves && !is_empty(models->items[i]);
        n_stay += !leaves || !is_empty(models->items[i]);
    }
    for (uint32_t i = 0; i < config->n_models; i++) {
        if (find_id(models, config->models[i].id)) continue;
        bt_model *model = NULL;
        bool fits = n_stay + *ret_n < BT_CONFIG_MODELS_MAX;
        if (fits) model = new_model(models, &config->models[i], source, err);
        if (!fits)
            (void)bt_fail(err, BT_E_LIMIT, "models", BT_MEASURE_ITEMS, config->n_models, BT_CONFIG_MODELS_MAX,
                          "%u models are leaving and still here: load the configuration again in a moment", n_leaving);
        if (!model) return err ? err->status : BT_E_NOMEM;
        fresh[(*ret_n)++] = model;
    }
    return BT_OK;
}

/* A model as it is now, and the configuration's word for it; NULL: it is in none any more. */
static void follow(bt_model *model, const bt_config_model *next, bt_held_config *source) {
    bt_models_release(model->next_source);
    model->next_source = NULL;
    model->next_config = NULL;
    if (next && (model->state == BT_MODEL_STOPPED || bt_config_same_child(model->config, next))) {
        bt_held_config *old = model->source;
        model->source = hold(source);
        model->config = next;
        model->outdated = false;
        if (model->state == BT_MODEL_STOPPED) bt_model_forget_need(model);
        bt_models_release(old);
    } else {
        model->outdated = true;
        model->next_config = next;
        if (next) model->next_source = hold(source);
    }
}

/* A model that the configuration has dropped, and that nothing of is left. */
static void sweep(bt_models *models) {
    for (uint32_t i = 0; i < models->n; i++) {
        bt_model *model = models->items[i];
        if (!model->outdated || model->next_config || !is_empty(model)) continue;
        free_model(model);
        models->items[i--] = models->items[--models->n];
        models->items[models->n] = NULL;
    }
}

bt_status bt_models_configure(bt_models *models, bt_config *config, bt_error *err) {
    bt_model *fresh[BT_CONFIG_MODELS_MAX];
    uint32_t n_fresh = 0;
    bt_held_config *source = bt_heap_alloc(sizeof *source);
    if (!source) return bt_fail_sys(err, 12, "models", "no memory for another configuration");
    *source = (bt_held_config){.config = config, .n_holders = 1};
    if (make_new_models(models, source, fresh, &n_fresh, err) != BT_OK) {
        bt_status status = err ? err->status : BT_E_NOMEM;
        source->n_holders += 1; /* the configuration stays the caller's */
        for (uint32_t i = 0; i < n_fresh; i++)
            free_model(fresh[i]);
        bt_heap_free(source);
        return status;
    }
    bt_held_config *old = models->source;
    models->source = source;
    for (uint32_t i = 0; i < models->n; i++)
        follow(models->items[i], in_config(config, models->items[i]), source);
    sweep(models);
    for (uint32_t i = 0; i < n_fresh; i++)
        models->items[models->n++] = fresh[i];
    bt_models_release(old);
    bt_models_kick(models);
    return BT_OK;
}

/* ---- requests ---- */

static void unlink_waiting(bt_model *model, bt_job *job) {
    if (job->prev) job->prev->next = job->next;
    if (job->next) job->next->prev = job->prev;
    if (model->waiting_first == job) model->waiting_first = job->next;
    if (model->waiting_last == job) model->waiting_last = job->prev;
    job->prev = job->next = NULL;
    job->waiting = false;
    model->n_waiting--;
}

bt_status bt_models_enqueue(bt_models *models, bt_model *model, bt_job *job, bt_error *err) {
    const bt_config_limits *limits = &models->source->config->limits;
    if (model->n_waiting >= limits->n_queued_model)
        return bt_fail(err, BT_E_LIMIT, "model_queue_full", BT_MEASURE_ITEMS, model->n_waiting + 1ull,
                       limits->n_queued_model, "%u requests wait for %s already", model->n_waiting, model->id);
    if (bt_models_waiting(models) >= limits->n_queued)
        return bt_fail(err, BT_E_LIMIT, "queue_full", BT_MEASURE_ITEMS, limits->n_queued + 1ull, limits->n_queued,
                       "%u requests wait already", limits->n_queued);
    job->model = model;
    job->since_ms = bt_loop_now_ms(models->ask.loop);
    job->waiting = true;
    job->running = false;
    job->next = NULL;
    job->prev = model->waiting_last;
    if (model->waiting_last) model->waiting_last->next = job;
    if (!model->waiting_first) model->waiting_first = job;
    model->waiting_last = job;
    model->n_waiting++;
    bt_models_kick(models);
    return BT_OK;
}

void bt_models_leave(bt_models *models, bt_job *job) {
    bt_model *model = job->model;
    if (job->waiting) {
        unlink_waiting(model, job);
    } else if (job->running) {
        job->running = false;
        model->n_running--;
        model->idle_since_ms = bt_loop_now_ms(models->ask.loop);
    } else {
        return;
    }
    bt_models_kick(models);
}

void bt_model_refuse_waiting(bt_model *model) {
    while (model->waiting_first) {
        bt_job *job = model->waiting_first;
        unlink_waiting(model, job);
        model->counts.n_refused++;
        job->on_turn(job, false);
    }
}

void bt_model_refuse(bt_model *model, uint32_t status, const char *code, uint32_t retry_after_s, const char *fmt, ...) {
    bt_model_refusal *refusal = &model->refusal;
    va_list args;
    *refusal = (bt_model_refusal){.status = status, .retry_after_s = retry_after_s};
    (void)snprintf(refusal->code, sizeof refusal->code, "%s", code);
    va_start(args, fmt);
    (void)vsnprintf(refusal->text, sizeof refusal->text, fmt, args);
    va_end(args);
    bt_model_refuse_waiting(model);
}

static void run_next(bt_models *models, bt_model *model) {
    bt_job *job = model->waiting_first;
    if (!job) return;
    unlink_waiting(model, job);
    job->running = true;
    model->n_running++;
    model->used = ++models->n_used;
    bt_metrics_observe(&model->counts.wait, (double)(bt_loop_now_ms(models->ask.loop) - job->since_ms) / 1000.0);
    job->on_turn(job, true);
}

/* ---- decisions ---- */

void bt_models_kick(bt_models *models) {
    bt_loop_timer_set(models->ask.loop, &models->kick, 0);
}

static void carry_out(bt_models *models, const bt_policy_step *step) {
    bt_model *model = models->items[step->model];
    switch (step->kind) {
    case BT_POLICY_RUN:
        run_next(models, model);
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

static void decide(void *user) {
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
    sweep(models);
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
    bt_models_say(models, "error: %u decisions and no end: looked at again in a second", STEPS_MAX);
    bt_loop_timer_set(models->ask.loop, &models->wake, 1000);
}

/* ---- the operator, samples, the end ---- */

void bt_models_unload(bt_models *models, bt_model *model, const char *reason) {
    for (uint32_t i = 0; i < models->n; i++) {
        bt_model *one = models->items[i];
        if (model && one != model) continue;
        if (one->state != BT_MODEL_READY && one->state != BT_MODEL_STARTING && one->state != BT_MODEL_ADMITTED)
            continue;
        one->unload_asked = true;
        (void)snprintf(one->stop_reason, sizeof one->stop_reason, "%s", reason);
    }
    bt_models_kick(models);
}

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

void bt_models_shutdown(bt_models *models, void (*on_empty)(void *user), void *user) {
    models->closing = true;
    models->on_empty = on_empty;
    models->empty_user = user;
    for (uint32_t i = 0; i < models->n; i++) {
        bt_model_refuse(models->items[i], 503, "shutting_down", 0, "the router is shutting down");
        bt_model_stop(models->items[i], "shutting down");
    }
    bt_models_kick(models);
}

static void on_model_timer(void *user) {
    bt_model_look(user);
}
