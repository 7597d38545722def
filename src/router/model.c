/* SPDX-License-Identifier: MIT
 *
 * model.c: one model, from the configuration that it came from to its end. What happens to it in between is in
 * model_life.c and its neighbours. */
#include "router/models.h"

#include "base/error.h"
#include "base/heap.h"

#include <errno.h>
#include <stdio.h>

const char *bt_model_phase(const bt_model *model) {
    bool drains = model->draining || model->outdated || model->unload_asked;
    if (model->state == BT_MODEL_READY && drains) return "draining";
    return bt_model_state_name(model->state);
}

void bt_model_names(bt_model *const *models, const uint32_t *which, uint32_t n_which, char *ret, size_t capacity) {
    size_t at = 0;
    ret[0] = '\0';
    for (uint32_t i = 0; i < n_which && at < capacity - 1; i++) {
        int n = snprintf(ret + at, capacity - at, "%s%s", i > 0 ? ", " : "", models[which[i]]->id);
        at += n > 0 ? (size_t)n : 0;
    }
}

/* ---- holding configurations ---- */

void bt_models_release(bt_held_config *held) {
    if (!held || --held->n_holders > 0) return;
    bt_config_close(held->config);
    bt_heap_free(held);
}

bt_held_config *bt_models_hold(bt_held_config *held) {
    held->n_holders++;
    return held;
}

/* ---- a model ---- */

static void on_time(void *user) {
    bt_model_look(user);
}

static void on_child_line(void *user, const char *line, size_t n) {
    bt_model *model = user;
    bt_model_heard(model, line, n);
    bool wanted = model->all->source && model->all->source->config->log_children;
    const bt_log_entry entry = {.level = BT_LOG_INFO, .plain = true, .source = model->id, .message = line};
    if (wanted) bt_log_send(&entry, n);
}

bt_model *bt_model_open(bt_models *models, const bt_config_model *config, bt_held_config *source, bt_error *err) {
    bt_model *model = bt_heap_alloc(sizeof *model);
    if (!model || bt_log_ring_open(&model->log, err) != BT_OK) {
        bt_heap_free(model);
        (void)bt_fail_sys(err, ENOMEM, "models", "no memory for another model");
        return NULL;
    }
    model->all = models;
    (void)snprintf(model->id, sizeof model->id, "%s", config->id);
    model->config = config;
    model->source = bt_models_hold(source);
    model->timer = (bt_timer){.on_time = on_time, .user = model};
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

void bt_model_close(bt_model *model) {
    bt_models *models = model->all;
    for (uint32_t i = 0; i < models->n; i++)
        if (models->items[i]->evicted_for == model) models->items[i]->evicted_for = NULL;
    bt_model_forget_need(model);
    bt_loop_timer_stop(models->ask.loop, &model->timer);
    bt_model_drop_probe(model);
    bt_child_close(model->child);
    bt_log_ring_close(model->log);
    bt_models_release(model->source);
    bt_models_release(model->next_source);
    bt_heap_free(model);
}

/* Nothing of it is left: once its configuration drops it, it is gone. */
bool bt_model_is_empty(const bt_model *model) {
    return model->state == BT_MODEL_STOPPED && model->n_running == 0 && model->n_waiting == 0 && model->n_calls == 0;
}
