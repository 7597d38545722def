/* SPDX-License-Identifier: MIT
 *
 * model_life.c: a model's states, from its reservation to the last byte that it gave back.
 *
 *   STOPPED -> ADMITTED   its memory is reserved; those in its way are told to end
 *           -> STARTING   they are gone and what they held is free: `burthen exec ... -- COMMAND` (model_launch.c)
 *           -> READY      its /health answers 200 (model_health.c)
 *           -> STOPPING   told to end, or ended; then until devices show its memory free again (model_end.c)
 *           -> STOPPED, or FAILED for a while when it did not start
 *
 * bt_model_settle looks at one model and does what follows from what it is: a start that nobody waits for is given up,
 * an idle model that should go is told to. It may be called at any time, as often as wanted.
 *
 * A start that fails is tried again by the next request, after a pause that doubles from 1 s to the configuration's
 * cooldown; the failure is what requests are told meanwhile. The count of failures begins anew when one ran for long
 * before it ended, or ended because it was told to. */
#include "router/json_text.h"
#include "router/models.h"

#include "base/size.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BACKOFF_FIRST_MS 1000u
/* As long as the guard's own reclaim loop, 6 x 0.7 s (research notes, seed 4, G16), for memory that the books say is
 * free and the system does not. */
#define ROOM_PATIENCE_MS 4200u
#define EVENT_MAX_BYTES  4096u

static void tell_state(bt_model *model, const char *why) {
    bt_text json;
    bt_text_init(&json, EVENT_MAX_BYTES);
    bt_text_add(&json, "{");
    bt_json_text_or_null(&json, "model", model->id);
    bt_json_text_or_null(&json, "state", bt_model_phase(model));
    bt_json_text_or_null(&json, "reason", why);
    bt_text_add(&json, "}");
    if (!json.failed) bt_events_add(model->all->ask.events, "model", bt_text_str(&json));
    bt_text_done(&json);
}

void bt_model_set(bt_model *model, bt_model_state state, const char *fmt, ...) {
    char why[400];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    bt_model_attribute(model, state);
    model->state = state;
    bt_models_tell(model->all, state == BT_MODEL_FAILED ? BT_LOG_WARN : BT_LOG_INFO, "%s: %s: %s", model->id,
                   bt_model_phase(model), why);
    tell_state(model, why);
    bt_models_kick(model->all);
}

uint64_t bt_model_now_ms(const bt_model *model) {
    return bt_loop_now_ms(model->all->ask.loop);
}

void bt_model_look_again(bt_model *model, uint64_t delay_ms) {
    bt_loop_timer_set(model->all->ask.loop, &model->timer, delay_ms);
}

static uint64_t backoff_of(const bt_model *model) {
    uint32_t doublings = model->n_failures > 0 ? model->n_failures - 1 : 0;
    uint64_t ms = (uint64_t)BACKOFF_FIRST_MS << bt_min_u64(doublings, 20); /* 12 days: more than any cooldown */
    return bt_min_u64(ms, model->all->source->config->cooldown_ms);
}

uint32_t bt_model_retry_after_s(const bt_model *model) {
    return (uint32_t)bt_max_u64((backoff_of(model) + 999) / 1000, 1);
}

void bt_model_count_failure(bt_model *model) {
    model->n_failures++;
    model->retry_at_ms = bt_model_now_ms(model) + backoff_of(model);
}

/* ---- being admitted ---- */

void bt_model_admit(bt_model *model, const bt_policy_step *step) {
    memcpy(model->reserved_bytes, step->bytes, sizeof model->reserved_bytes);
    memset(&model->memory, 0, sizeof model->memory);
    memset(model->measured_bytes, 0, sizeof model->measured_bytes);
    memset(model->peak_bytes, 0, sizeof model->peak_bytes);
    memset(model->free_last, 0, sizeof model->free_last);
    memset(model->free_after, 0, sizeof model->free_after);
    memset(model->attribution, 0, sizeof model->attribution);
    memset(model->mapped_bytes, 0, sizeof model->mapped_bytes);
    memset(model->mapped_first_bytes, 0, sizeof model->mapped_first_bytes);
    memset(model->trends, 0, sizeof model->trends);
    model->changed = false;
    model->shrunk = step->shrunk;
    model->draining = false;
    model->crashed = false;
    model->admitted_ms = bt_model_now_ms(model);
    bool is_unknown = model->need.how == BT_NEED_UNKNOWN && step->bytes[0] == 0;
    bt_model_set(model, BT_MODEL_ADMITTED, "%s%s%s%s",
                 is_unknown ? "nothing is reserved, as it is not known what it takes" : BT_SIZE(step->bytes[0]),
                 is_unknown ? "" : " of the host reserved", step->n_victims > 0 ? ", others go first" : "",
                 step->shrunk ? ", less than it asks for" : "");
}

void bt_model_give_back(bt_model *model, bt_model_state state, const char *why) {
    memset(model->reserved_bytes, 0, sizeof model->reserved_bytes);
    memset(model->measured_bytes, 0, sizeof model->measured_bytes);
    model->streamed = false;
    model->unload_asked = false;
    model->draining = false;
    model->evicted_for = NULL;
    bt_model_set(model, state, "%s", why);
}

/* Those that were told to end for it, and those that its group lets run only in turn. */
static bool is_blocked(const bt_model *model) {
    const bt_models *models = model->all;
    const bt_config *config = models->source->config;
    uint32_t group = bt_model_group(model);
    bool in_turn = group < config->n_groups && config->groups[group].swap;
    for (uint32_t i = 0; i < models->n; i++) {
        const bt_model *one = models->items[i];
        if (one->state != BT_MODEL_STOPPING) continue;
        if (one->evicted_for == model || (in_turn && bt_model_group(one) == group)) return true;
    }
    return false;
}

static bool somebody_stops(const bt_models *models) {
    for (uint32_t i = 0; i < models->n; i++)
        if (models->items[i]->state == BT_MODEL_STOPPING) return true;
    return false;
}

void bt_model_try_launch(bt_model *model) {
    if (model->state != BT_MODEL_ADMITTED) return;
    if (is_blocked(model)) return; /* its end is looked at, and kicks */
    if (!bt_models_room_is_there(model->all, model)) {
        bool hopes = somebody_stops(model->all) || bt_model_now_ms(model) - model->admitted_ms < ROOM_PATIENCE_MS;
        if (hopes) {
            bt_model_look_again(model, 200);
            return;
        } /* the guard looks once more itself, and refuses with the ledger */
    }
    bt_error why = {0};
    model->started_ms = bt_model_now_ms(model);
    model->deadline_ms = model->started_ms + model->config->health_timeout_ms;
    model->counts.n_starts++;
    if (bt_model_launch(model, &why) != BT_OK) {
        model->counts.n_start_failures++;
        bt_model_count_failure(model);
        bt_model_refuse(model, 503, "not_started", bt_model_retry_after_s(model), "%s was not started: %s", model->id,
                        why.text);
        bt_model_give_back(model, BT_MODEL_FAILED, why.text);
        return;
    }
    bt_model_set(model, BT_MODEL_STARTING, "process %d, %s", (int)bt_child_pid(model->child), model->url);
    bt_model_look_again(model, 50);
}

/* ---- what follows ---- */

static void settle_starting(bt_model *model) {
    if (model->n_waiting == 0) {
        bt_model_stop(model, "nobody waits for it any more");
    } else if (model->unload_asked) {
        bt_model_stop(model, "told to end");
    } else if (model->outdated) { /* who waits is served as it is now */
        bt_model_stop(model, "its configuration has changed");
    } else if (bt_model_now_ms(model) >= model->deadline_ms) {
        model->counts.n_start_failures++;
        bt_model_count_failure(model);
        bt_model_refuse(model, 503, "start_timeout", bt_model_retry_after_s(model),
                        "%s did not answer %s within %llu s", model->id,
                        model->config->check_endpoint ? model->config->check_endpoint : "",
                        (unsigned long long)(model->config->health_timeout_ms / 1000));
        bt_model_stop(model, "it did not become ready in time");
        model->after_stop = BT_MODEL_FAILED;
        bt_model_kill(model);
    }
}

static void settle_ready(bt_model *model) {
    if (model->n_running > 0) return;
    if (model->unload_asked) {
        bt_model_stop(model, model->stop_reason);
    } else if (model->outdated) {
        bt_model_stop(model, model->next_config ? "its configuration has changed" : "it is configured no more");
    } else if (model->config->ttl_ms > 0 && model->n_waiting == 0) {
        uint64_t idle_ms = bt_model_now_ms(model) - model->idle_since_ms;
        if (idle_ms >= model->config->ttl_ms)
            bt_model_stop(model, "idle for its ttl");
        else
            bt_model_look_again(model, model->config->ttl_ms - idle_ms);
    }
}

static void settle_stopped(bt_model *model) {
    if (model->next_config) {
        bt_held_config *old = model->source;
        model->source = model->next_source;
        model->config = model->next_config;
        model->next_source = NULL;
        model->next_config = NULL;
        model->outdated = false;
        model->n_failures = 0; /* what was wrong with it may be what was changed */
        model->retry_at_ms = 0;
        model->refusal = (bt_model_refusal){0};
        bt_model_forget_need(model);
        bt_models_release(old);
        bt_models_kick(model->all);
    }
    if (model->state == BT_MODEL_FAILED) {
        uint64_t now_ms = bt_model_now_ms(model);
        if (now_ms >= model->retry_at_ms)
            bt_model_set(model, BT_MODEL_STOPPED, "may be tried again");
        else
            bt_model_look_again(model, model->retry_at_ms - now_ms);
    }
}

void bt_model_settle(bt_model *model) {
    if (model->outdated && !model->next_config && model->n_waiting > 0)
        bt_model_refuse(model, 404, "model_not_found", 0, "%s is configured no more", model->id);
    switch (model->state) {
    case BT_MODEL_STOPPED:
    case BT_MODEL_FAILED:
        settle_stopped(model);
        break;
    case BT_MODEL_ADMITTED:
        if (model->n_waiting == 0 || model->unload_asked || model->outdated)
            bt_model_stop(model, "nobody waits for it any more");
        else
            bt_model_try_launch(model);
        break;
    case BT_MODEL_STARTING:
        settle_starting(model);
        break;
    case BT_MODEL_READY:
        settle_ready(model);
        break;
    case BT_MODEL_STOPPING: /* ends by itself, and with a sample (bt_model_look_at_release) */
        break;
    }
}

void bt_model_look(bt_model *model) {
    if (model->state == BT_MODEL_STARTING) bt_model_look_at_health(model);
    if (model->state == BT_MODEL_STOPPING && !model->child) bt_sampler_ask(model->all->ask.sampler);
    bt_models_kick(model->all);
}
