/* SPDX-License-Identifier: MIT
 *
 * models.c: all models: the list of them, and how it follows a configuration.
 *
 * A new configuration changes nothing that runs: a model whose child would be started in the same way goes on as it is;
 * another ends when it is idle, and goes on as what the configuration says now; one that it drops goes when nothing is
 * left of it. So each model holds the configuration that it came from.
 *
 * Bound: BT_CONFIG_MODELS_MAX models. Left out: one model (model.c), who waits (queue.c), what is decided (decide.c).
 */
#include "router/models.h"

#include "base/error.h"
#include "base/heap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- what is said ---- */

#define LINE_BYTES 1024u

/* /logs has all of them, whatever is logged; who reads it must see a warning as one. */
void bt_models_log(bt_models *models, const bt_log_entry *entry) {
    static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
    const char *word = entry->plain ? "" : words[entry->level];
    bt_log_ring_add(models->ask.log, word, strlen(word));
    bt_log_ring_add(models->ask.log, entry->message, strlen(entry->message));
    bt_log_ring_end_line(models->ask.log);
    bt_log_send(entry, strlen(entry->message));
}

static void tell(bt_models *models, bt_log_level level, const char *fmt, va_list args) BT_PRINTF(3, 0);
static void tell(bt_models *models, bt_log_level level, const char *fmt, va_list args) {
    char line[LINE_BYTES];
    if (vsnprintf(line, sizeof line, fmt, args) < 0) return;
    bt_models_log(models, &(bt_log_entry){.level = level, .plain = level == BT_LOG_INFO, .message = line});
}

void bt_models_say(bt_models *models, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    tell(models, BT_LOG_INFO, fmt, args);
    va_end(args);
}

void bt_models_tell(bt_models *models, bt_log_level level, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    tell(models, level, fmt, args);
    va_end(args);
}

/* ---- models ---- */

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
        return bt_fail_sys(err, ENOMEM, "models", "no memory for the list of models");
    }
    models->kick = (bt_timer){.on_time = bt_models_decide, .user = models};
    models->wake = (bt_timer){.on_time = bt_models_decide, .user = models};
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
        bt_model_close(models->items[--models->n]);
    bt_models_release(models->source);
    bt_live_close(models->live);
    bt_heap_free(models->view);
    bt_heap_free(models->step);
    bt_heap_free(models);
}

/* ---- another configuration ---- */

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
        n_leaving += leaves && !bt_model_is_empty(models->items[i]);
        n_stay += !leaves || !bt_model_is_empty(models->items[i]);
    }
    for (uint32_t i = 0; i < config->n_models; i++) {
        if (find_id(models, config->models[i].id)) continue;
        bt_model *model = NULL;
        bool fits = n_stay + *ret_n < BT_CONFIG_MODELS_MAX;
        if (fits) model = bt_model_open(models, &config->models[i], source, err);
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
        model->source = bt_models_hold(source);
        model->config = next;
        model->outdated = false;
        if (model->state == BT_MODEL_STOPPED) bt_model_forget_need(model);
        bt_models_release(old);
    } else {
        model->outdated = true;
        model->next_config = next;
        if (next) model->next_source = bt_models_hold(source);
    }
}

/* A model that the configuration has dropped, and that nothing of is left. */
void bt_models_sweep(bt_models *models) {
    for (uint32_t i = 0; i < models->n; i++) {
        bt_model *model = models->items[i];
        if (!model->outdated || model->next_config || !bt_model_is_empty(model)) continue;
        bt_model_close(model);
        models->items[i--] = models->items[--models->n];
        models->items[models->n] = NULL;
    }
}

bt_status bt_models_configure(bt_models *models, bt_config *config, bt_error *err) {
    bt_model *fresh[BT_CONFIG_MODELS_MAX];
    uint32_t n_fresh = 0;
    bt_held_config *source = bt_heap_alloc(sizeof *source);
    if (!source) return bt_fail_sys(err, ENOMEM, "models", "no memory for another configuration");
    *source = (bt_held_config){.config = config, .n_holders = 1};
    if (make_new_models(models, source, fresh, &n_fresh, err) != BT_OK) {
        bt_status status = err ? err->status : BT_E_NOMEM;
        source->n_holders += 1; /* the configuration stays the caller's */
        for (uint32_t i = 0; i < n_fresh; i++)
            bt_model_close(fresh[i]);
        bt_heap_free(source);
        return status;
    }
    bt_held_config *old = models->source;
    models->source = source;
    for (uint32_t i = 0; i < models->n; i++)
        follow(models->items[i], in_config(config, models->items[i]), source);
    bt_models_sweep(models);
    for (uint32_t i = 0; i < n_fresh; i++)
        models->items[models->n++] = fresh[i];
    bt_models_release(old);
    bt_models_kick(models);
    return BT_OK;
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
