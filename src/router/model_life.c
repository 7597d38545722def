/* SPDX-License-Identifier: MIT
 *
 * model_life.c: a model's process, from its reservation to the last byte that it gave back.
 *
 *   STOPPED -> ADMITTED   its memory is reserved; those in its way are told to end
 *           -> STARTING   they are gone and what they held is free: `burthen exec ... -- COMMAND` (model_launch.c)
 *           -> READY      its /health answers 200
 *           -> STOPPING   told to end, or ended; then until devices show its memory free again
 *           -> STOPPED, or FAILED for a while when it did not start
 *
 * bt_model_settle looks at one model and does what follows from what it is: a start that nobody waits for is given up,
 * an idle model that should go is told to. It may be called at any time, as often as wanted.
 *
 * A start that fails is tried again by the next request, after a pause that doubles from 1 s to the configuration's
 * cooldown; the failure is what requests are told meanwhile. So is one that dies soon after it was ready; the first
 * time who waits for it waits on. The count of failures begins anew when one ran for STABLE_MS, or ended because it was
 * told to. One that found no memory on a device, though the books had it, is tried once more at once with a tenth less
 * of each device: the books were wrong, and waiting does not mend them. So is one that found its port taken, with
 * another: somebody was quicker between our look and its own. */
#include "router/json_text.h"
#include "router/models.h"

#include "base/size.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BACKOFF_FIRST_MS 1000u
#define STABLE_MS        60000u /* a model that ran for so long before it died did not fail to start */
/* As long as the guard's own reclaim loop: 6 x 0.7 s (research notes, seed 4, G16). The same for memory that the books
 * say is free and the system does not. */
#define RELEASE_MAX_MS     4200u
#define ROOM_PATIENCE_MS   4200u
#define RELEASE_LOOK_MS    200u                 /* between two looks */
#define RELEASE_SAME_BYTES (UINT64_C(16) << 20) /* less than this more free is no more coming */
#define CUT_PERCENT        10u
#define EVENT_MAX_BYTES    4096u

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
    bt_models_say(model->all, "%s: %s: %s", model->id, bt_model_phase(model), why);
    tell_state(model, why);
    bt_models_kick(model->all);
}

static uint64_t now_of(const bt_model *model) {
    return bt_loop_now_ms(model->all->ask.loop);
}

static void look_again(bt_model *model, uint64_t delay_ms) {
    bt_loop_timer_set(model->all->ask.loop, &model->timer, delay_ms);
}

static uint64_t backoff_of(const bt_model *model) {
    uint32_t doublings = model->n_failures > 0 ? model->n_failures - 1 : 0;
    uint64_t ms = (uint64_t)BACKOFF_FIRST_MS << bt_min_u64(doublings, 20); /* 12 days: more than any cooldown */
    return bt_min_u64(ms, model->all->source->config->cooldown_ms);
}

static uint32_t retry_after_of(const bt_model *model) {
    return (uint32_t)bt_max_u64((backoff_of(model) + 999) / 1000, 1);
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
    model->changed = false;
    model->shrunk = step->shrunk;
    model->draining = false;
    model->crashed = false;
    model->admitted_ms = now_of(model);
    bool is_unknown = model->need.how == BT_NEED_UNKNOWN && step->bytes[0] == 0;
    bt_model_set(model, BT_MODEL_ADMITTED, "%s%s%s%s",
                 is_unknown ? "nothing is reserved, as it is not known what it takes" : BT_SIZE(step->bytes[0]),
                 is_unknown ? "" : " of the host reserved", step->n_victims > 0 ? ", others go first" : "",
                 step->shrunk ? ", less than it asks for" : "");
}

static void give_back(bt_model *model, bt_model_state state, const char *why) {
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
        bool hopes = somebody_stops(model->all) || now_of(model) - model->admitted_ms < ROOM_PATIENCE_MS;
        if (hopes) {
            look_again(model, 200);
            return;
        } /* the guard looks once more itself, and refuses with the ledger */
    }
    bt_error why = {0};
    model->started_ms = now_of(model);
    model->deadline_ms = model->started_ms + model->config->health_timeout_ms;
    model->counts.n_starts++;
    if (bt_model_launch(model, &why) != BT_OK) {
        model->counts.n_start_failures++;
        model->n_failures++;
        model->retry_at_ms = now_of(model) + backoff_of(model);
        bt_model_refuse(model, 503, "not_started", retry_after_of(model), "%s was not started: %s", model->id,
                        why.text);
        give_back(model, BT_MODEL_FAILED, why.text);
        return;
    }
    bt_model_set(model, BT_MODEL_STARTING, "process %d, %s", (int)bt_child_pid(model->child), model->url);
    look_again(model, 50);
}

/* ---- health ---- */

static void drop_probe(bt_model *model) {
    if (model->probe) bt_exchange_cancel(model->probe);
    if (model->probe_flow) bt_flow_drop_consumer(model->probe_flow);
    model->probe = NULL;
    model->probe_flow = NULL;
}

static void become_ready(bt_model *model) {
    uint64_t now_ms = now_of(model);
    model->ready_ms = now_ms;
    model->idle_since_ms = now_ms;
    model->retry_at_ms = 0;
    model->cut_percent = 0;
    model->port_lost = false;
    model->refusal.status = 0;
    bt_metrics_observe(&model->counts.start, (double)(now_ms - model->started_ms) / 1000.0);
    bt_sampler_ask(model->all->ask.sampler);
    bt_model_set(model, BT_MODEL_READY, "after %.1f s", (double)(now_ms - model->started_ms) / 1000.0);
}

static void judge(bt_model *model, uint32_t status) {
    if (model->state != BT_MODEL_STARTING) return;
    if (status == 200) {
        become_ready(model);
        return;
    }
    uint64_t age_ms = now_of(model) - model->started_ms;
    look_again(model, age_ms < 2000 ? 50 : age_ms < 30000 ? 250 : 1000);
}

/* The head says it all: what may follow is a page of any length, or of none that ends. */
static void on_probe_head(void *user, const bt_exchange_head *head) {
    bt_model *model = user;
    uint32_t status = head->status;
    drop_probe(model);
    judge(model, status);
}

static void on_probe_end(void *user, bt_exchange_failure failure, const char *words) {
    bt_model *model = user;
    (void)words, (void)failure;
    model->probe = NULL;
    drop_probe(model);
    judge(model, 0);
}

static void look_at_health(bt_model *model) {
    char url[512];
    bt_error why = {0};
    look_again(model, 1000); /* its time may be over meanwhile (settle_starting) */
    if (model->probe) return;
    if (!model->config->check_endpoint) {
        become_ready(model);
        return;
    }
    (void)snprintf(url, sizeof url, "%s%s", model->url, model->config->check_endpoint);
    const bt_exchange_ask ask = {.client = model->all->ask.client,
                                 .method = "GET",
                                 .url = url,
                                 .connect_timeout_ms = 1000,
                                 .header_timeout_ms = 5000,
                                 .on_head = on_probe_head,
                                 .on_end = on_probe_end,
                                 .user = model};
    bt_exchange_ask with_flow = ask;
    if (bt_flow_open(4096, &model->probe_flow, &why) == BT_OK) {
        with_flow.flow = model->probe_flow;
        if (bt_exchange_start(&with_flow, &model->probe, &why) == BT_OK) return;
        bt_flow_drop_producer(model->probe_flow);
        drop_probe(model);
    }
}

/* ---- ending ---- */

void bt_model_stop(bt_model *model, const char *reason) {
    if (model->state == BT_MODEL_ADMITTED) {
        give_back(model, BT_MODEL_STOPPED, reason);
        return;
    }
    if (model->state != BT_MODEL_STARTING && model->state != BT_MODEL_READY) return;
    drop_probe(model);
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
    give_back(model, failed ? BT_MODEL_FAILED : BT_MODEL_STOPPED, failed ? model->refusal.text : why);
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
    if (back || now_of(model) >= model->release_until_ms)
        finish_stop(model, back);
    else
        look_again(model, RELEASE_LOOK_MS);
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

/* It ended before it was ready, and nobody had told it to. */
static void fail_start(bt_model *model, const bt_child_end *end) {
    const char *code = bt_child_failure_name(end->failure);
    model->counts.n_start_failures++;
    if (end->failure == BT_CHILD_DEVICE_MEMORY && model->cut_percent == 0) {
        model->cut_percent = CUT_PERCENT;
        bt_models_say(model->all, "%s: no memory on the device though it was reserved: once more with %u %% less: %s",
                      model->id, CUT_PERCENT, end->words);
        return; /* who waits goes on waiting */
    }
    if (end->failure == BT_CHILD_PORT && model->config->uses_port && !model->port_lost) {
        model->port_lost = true;
        bt_models_say(model->all, "%s: port %u was taken: once more with another", model->id, model->port);
        return;
    }
    model->cut_percent = 0;
    model->port_lost = false;
    model->n_failures++;
    model->retry_at_ms = now_of(model) + backoff_of(model);
    model->after_stop = BT_MODEL_FAILED;
    bt_model_refusal *refusal = &model->refusal;
    *refusal = (bt_model_refusal){.status = 503, .retry_after_s = retry_after_of(model)};
    (void)snprintf(refusal->code, sizeof refusal->code, "%s", code ? code : "crashed");
    (void)snprintf(refusal->text, sizeof refusal->text, "%s did not start: %s", model->id, end->words);
    tell_memory(model, end);
    bt_model_refuse_waiting(model);
}

static void die(bt_model *model, const bt_child_end *end) {
    const char *code = bt_child_failure_name(end->failure);
    uint64_t now_ms = now_of(model);
    if (now_ms - model->ready_ms < STABLE_MS) {
        model->n_failures++;
        model->retry_at_ms = now_ms + backoff_of(model);
        model->after_stop = BT_MODEL_FAILED;
        model->crashed = model->n_failures == 1;
    }
    model->refusal = (bt_model_refusal){.status = 503, .retry_after_s = retry_after_of(model)};
    (void)snprintf(model->refusal.code, sizeof model->refusal.code, "%s", code ? code : "crashed");
    (void)snprintf(model->refusal.text, sizeof model->refusal.text, "%s ended: %s", model->id, end->words);
    tell_memory(model, end);
}

void bt_model_ended(void *user, const bt_child_end *end) {
    bt_model *model = user;
    bt_model_state was = model->state;
    bt_child_close(model->child);
    model->child = NULL;
    drop_probe(model);
    bt_loop_timer_stop(model->all->ask.loop, &model->timer);
    bt_client_forget(model->all->ask.client, model->url);
    bt_model_learn(model);
    bool worked = model->ready_ms >= model->started_ms;
    if (worked && (was == BT_MODEL_STOPPING || now_of(model) - model->ready_ms >= STABLE_MS)) model->n_failures = 0;
    model->release_until_ms = now_of(model) + RELEASE_MAX_MS;
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

/* ---- what follows ---- */

static void settle_starting(bt_model *model) {
    if (model->n_waiting == 0) {
        bt_model_stop(model, "nobody waits for it any more");
    } else if (model->unload_asked) {
        bt_model_stop(model, "told to end");
    } else if (model->outdated) { /* who waits is served as it is now */
        bt_model_stop(model, "its configuration has changed");
    } else if (now_of(model) >= model->deadline_ms) {
        model->counts.n_start_failures++;
        model->n_failures++;
        model->retry_at_ms = now_of(model) + backoff_of(model);
        bt_model_refuse(model, 503, "start_timeout", retry_after_of(model), "%s did not answer %s within %llu s",
                        model->id, model->config->check_endpoint ? model->config->check_endpoint : "",
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
        uint64_t idle_ms = now_of(model) - model->idle_since_ms;
        if (idle_ms >= model->config->ttl_ms)
            bt_model_stop(model, "idle for its ttl");
        else
            look_again(model, model->config->ttl_ms - idle_ms);
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
        uint64_t now_ms = now_of(model);
        if (now_ms >= model->retry_at_ms)
            bt_model_set(model, BT_MODEL_STOPPED, "may be tried again");
        else
            look_again(model, model->retry_at_ms - now_ms);
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
    if (model->state == BT_MODEL_STARTING) look_at_health(model);
    if (model->state == BT_MODEL_STOPPING && !model->child) bt_sampler_ask(model->all->ask.sampler);
    bt_models_kick(model->all);
}
