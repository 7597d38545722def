/* SPDX-License-Identifier: MIT
 *
 * model_end.c: how a model ends: told to, by itself, or before it was ready; and when its memory is free again.
 *
 * A start that found no memory on a device, though the books had it, is tried once more at once with a tenth less of
 * each device: the books were wrong, and waiting does not mend them. So is one that found its port taken, with another:
 * somebody was quicker between our look and its own. One that dies soon after it was ready counts as a start that
 * failed; the first time who waits for it waits on.
 *
 * A device's driver may hold what a process had for a while after that is gone: until it shows free again, or
 * RELEASE_MAX_MS are over, the model is STOPPING, and charged. */
#include "router/json_text.h"
#include "router/models.h"

#include "base/size.h"

#include <stdio.h>

#define STABLE_MS 60000u /* a model that ran for so long before it died did not fail to start */
/* As long as the guard's own reclaim loop: 6 x 0.7 s (research notes, seed 4, G16). */
#define RELEASE_MAX_MS     4200u
#define RELEASE_LOOK_MS    200u                 /* between two looks */
#define RELEASE_SAME_BYTES (UINT64_C(16) << 20) /* less than this more free is no more coming */
#define CUT_PERCENT        10u

void bt_model_stop(bt_model *model, const char *reason) {
    if (model->state == BT_MODEL_ADMITTED) {
        bt_model_give_back(model, BT_MODEL_STOPPED, reason);
        return;
    }
    if (model->state != BT_MODEL_STARTING && model->state != BT_MODEL_READY) return;
    bt_model_drop_probe(model);
    bt_loop_timer_stop(model->all->ask.loop, &model->timer);
    model->after_stop = BT_MODEL_STOPPED;
    bt_model_set(model, BT_MODEL_STOPPING, "%s", reason);
    bt_child_stop(model->child, model->config->stop_timeout_ms);
}

void bt_model_kill(bt_model *model) {
    if (model->child) bt_child_stop(model->child, 0);
}

static void finish_stop(bt_model *model, bool is_back) {
    bool failed = model->after_stop == BT_MODEL_FAILED;
    const char *why = is_back ? "its memory is free again" : "its memory is not all free again, and is not waited for";
    bt_model_give_back(model, failed ? BT_MODEL_FAILED : BT_MODEL_STOPPED, failed ? model->refusal.text : why);
}

/* Where its driver said what it held, that must be there again; else what still grows is still coming. */
static bool is_coming(bt_model *model, uint32_t pool, bt_known free_bytes) {
    bt_known last = model->free_last[pool], after = model->free_after[pool];
    model->free_last[pool] = free_bytes;
    if (!free_bytes.known) return false;
    if (after.known) return bt_sat_add_u64(free_bytes.value, RELEASE_SAME_BYTES) < after.value;
    if (model->measured_bytes[pool].known || model->reserved_bytes[pool] == 0) return false; /* it held nothing */
    return !last.known || free_bytes.value > bt_sat_add_u64(last.value, RELEASE_SAME_BYTES);
}

/* Called with each sample after the process has gone. The host's memory was there before the kernel said so. */
void bt_model_look_at_release(bt_model *model) {
    const bt_pools *pools = bt_sampler_pools(model->all->ask.sampler);
    bool back = true;
    for (uint32_t i = 1; i < pools->n; i++)
        if (is_coming(model, i, pools->items[i].free_bytes)) back = false;
    if (back || bt_model_now_ms(model) >= model->release_until_ms)
        finish_stop(model, back);
    else
        bt_model_look_again(model, RELEASE_LOOK_MS);
}

static void tell_memory(bt_model *model, const bt_child_end *end) {
    bt_text json;
    bt_text_init(&json, sizeof model->refusal.detail_json - 1);
    bt_text_add(&json, "{");
    bt_json_text_known(&json, "need_bytes", end->need_bytes);
    bt_json_text_known(&json, "have_bytes", end->have_bytes);
    bt_json_text_or_null(&json, "device", end->device);
    bt_text_add(&json, "}");
    (void)snprintf(model->refusal.detail_json, sizeof model->refusal.detail_json, "%s",
                   json.failed ? "" : bt_text_str(&json));
    bt_text_done(&json);
}

/* What requests are told of its end, until it is tried again. */
static void tell_end(bt_model *model, const char *what, const bt_child_end *end) {
    const char *code = bt_child_failure_name(end->failure);
    bt_model_refusal *refusal = &model->refusal;
    *refusal = (bt_model_refusal){.status = 503, .retry_after_s = bt_model_retry_after_s(model)};
    (void)snprintf(refusal->code, sizeof refusal->code, "%s", code ? code : "crashed");
    (void)snprintf(refusal->text, sizeof refusal->text, "%s %s: %s", model->id, what, end->words);
    tell_memory(model, end);
}

/* It ended before it was ready, and nobody had told it to. */
static void fail_start(bt_model *model, const bt_child_end *end) {
    model->counts.n_start_failures++;
    if (end->failure == BT_CHILD_DEVICE_MEMORY && model->cut_percent == 0) {
        model->cut_percent = CUT_PERCENT;
        bt_models_tell(model->all, BT_LOG_WARN,
                       "%s: no memory on the device though it was reserved: once more with %u %% less: %s", model->id,
                       CUT_PERCENT, end->words);
        return; /* who waits goes on waiting */
    }
    if (end->failure == BT_CHILD_PORT && model->config->uses_port && !model->port_lost) {
        model->port_lost = true;
        bt_models_tell(model->all, BT_LOG_WARN, "%s: port %u was taken: once more with another", model->id,
                       model->port);
        return;
    }
    model->cut_percent = 0;
    model->port_lost = false;
    bt_model_count_failure(model);
    model->after_stop = BT_MODEL_FAILED;
    tell_end(model, "did not start", end);
    bt_model_refuse_waiting(model);
}

static void die(bt_model *model, const bt_child_end *end) {
    if (bt_model_now_ms(model) - model->ready_ms < STABLE_MS) {
        bt_model_count_failure(model);
        model->after_stop = BT_MODEL_FAILED;
        model->crashed = model->n_failures == 1;
    }
    tell_end(model, "ended", end);
}

void bt_model_ended(void *user, const bt_child_end *end) {
    bt_model *model = user;
    bt_model_state was = model->state;
    bt_child_close(model->child);
    model->child = NULL;
    bt_model_drop_probe(model);
    bt_loop_timer_stop(model->all->ask.loop, &model->timer);
    bt_client_forget(model->all->ask.client, model->url);
    bt_model_learn(model);
    bool worked = model->ready_ms >= model->started_ms;
    if (worked && (was == BT_MODEL_STOPPING || bt_model_now_ms(model) - model->ready_ms >= STABLE_MS))
        model->n_failures = 0;
    model->release_until_ms = bt_model_now_ms(model) + RELEASE_MAX_MS;
    if (was != BT_MODEL_STOPPING) {
        model->after_stop = BT_MODEL_STOPPED;
        if (was == BT_MODEL_STARTING) fail_start(model, end);
        if (was == BT_MODEL_READY) die(model, end);
        bt_model_set(model, BT_MODEL_STOPPING, "its process has ended: %s", end->words);
    }
    /* bt_model_look_at_release, with what comes: what is free is looked at before anything is decided from it. */
    bt_sampler_ask(model->all->ask.sampler);
    bt_models_kick(model->all);
}
