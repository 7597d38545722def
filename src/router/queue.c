/* SPDX-License-Identifier: MIT
 *
 * queue.c: who waits for a model, and whose turn it is.
 *
 * A job waits in its model's queue, in the order of coming; it leaves by its turn (bt_model_run_next), by its client's
 * going (bt_models_leave), or by a refusal of all who wait (bt_model_refuse_waiting). Bound: limits.n_queued of all,
 * limits.n_queued_model of each model. Left out: when a turn comes (policy.c). */
#include "router/models.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

static uint32_t n_waiting(const bt_models *models) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < models->n; i++)
        n += models->items[i]->n_waiting;
    return n;
}

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
    if (n_waiting(models) >= limits->n_queued)
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

void bt_model_run_next(bt_model *model) {
    bt_models *models = model->all;
    bt_job *job = model->waiting_first;
    if (!job) return;
    unlink_waiting(model, job);
    job->running = true;
    model->n_running++;
    model->used = ++models->n_used;
    bt_metrics_observe(&model->counts.wait, (double)(bt_loop_now_ms(models->ask.loop) - job->since_ms) / 1000.0);
    job->on_turn(job, true);
}
