/* SPDX-License-Identifier: MIT
 *
 * live_tell.c: what others' memory came to, as events and lines of the log.
 *
 *     decision "ceiling"   others take a quarter of a GiB or more above the floor, or no more; the ceiling has moved by
 *                          so much; its trust has changed. At most every 10 s a pool; what stands then is said later. A
 *                          reading that trembles at the floor is not said
 *     decision "shed"      who goes, or with nobody in it that nobody may
 *     decision "growth"    what a model holds of a device grows with what it serves (trend.c)
 *     memory               each sample: passed on, not kept (events.c) */
#include "router/live.h"

#include "base/size.h"
#include "guard/memo.h"
#include "router/json_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TELL_MS         10000u
#define EVENT_MAX_BYTES 8192u

static void add_event(bt_models *models, bt_text *json) {
    if (!json->failed) bt_events_add(models->ask.events, "decision", bt_text_str(json));
    bt_text_done(json);
}

static void put_numbers(bt_text *json, const bt_models *models, uint32_t pool) {
    const bt_pools_one *one = &bt_sampler_pools(models->ask.sampler)->items[pool];
    const bt_config *config = models->source->config;
    const bt_ceiling *c = bt_models_ceiling(models, pool);
    bt_json_text_or_null(json, "pool", one->name);
    bt_json_text_known(json, "limit_bytes", one->limit_bytes);
    bt_json_text_known(json, "ceiling_bytes", c->ceiling_bytes);
    bt_json_text_known(json, "foreign_bytes", c->foreign_bytes);
    bt_json_text_known(json, "floor_bytes", c->floor_bytes);
    bt_json_text_known(json, "excess_bytes", c->excess_bytes);
    bt_json_text_known(json, "reserve_bytes", (bt_known){!config->oom_reserve_off, config->oom_reserve_bytes});
    bt_json_text_known(json, "free_bytes", one->available_bytes);
}

/* ---- ceilings ---- */

static bool has_moved(const bt_live_said *said, const bt_live_said *now) {
    if (!said->once) return !now->trusted || now->lowered;
    if (said->trusted != now->trusted || said->lowered != now->lowered) return true;
    uint64_t a = said->ceiling_bytes.value, b = now->ceiling_bytes.value;
    return now->lowered && bt_max_u64(a, b) - bt_min_u64(a, b) >= BT_GUARD_EPSILON_BYTES;
}

/* Of the host without a budget it bounds nothing; of a device that nobody reads there is nothing to trust. */
static bool counts(const bt_models *models, const bt_pools *pools, uint32_t pool) {
    if (pool == 0) return models->source->config->ram_budget_given;
    return pools->items[pool].state != BT_READING_ABSENT;
}

void bt_live_tell_ceiling(bt_models *models, uint32_t pool) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    const bt_pools_one *one = &pools->items[pool];
    const bt_ceiling *c = bt_models_ceiling(models, pool);
    bt_live_said *said = &models->live->said[pool];
    bt_known limit = bt_models_limit(models, pool);
    bool lowered = c->excess_bytes.known && c->excess_bytes.value > BT_GUARD_EPSILON_BYTES && limit.known &&
                   (!one->limit_bytes.known || limit.value < one->limit_bytes.value);
    const bt_live_said now = {c->trusted, lowered, limit, bt_loop_now_ms(models->ask.loop), true};
    if (!counts(models, pools, pool) || !has_moved(said, &now)) return;
    if (said->once && now.at_ms - said->at_ms < TELL_MS) return;
    *said = now;
    if (!c->trusted)
        bt_models_say(models, "%s: what others take is not known: the budget stands: %s", one->name, c->reason);
    else if (lowered)
        bt_models_say(models, "%s: others take %s more than at rest: models may have %s now", one->name,
                      BT_SIZE(c->excess_bytes.value), BT_SIZE(limit.value));
    else
        bt_models_say(models, "%s: models may have their budget again", one->name);
    bt_text json;
    bt_text_init(&json, EVENT_MAX_BYTES);
    bt_text_add(&json, "{");
    bt_json_text_or_null(&json, "decision", "ceiling");
    put_numbers(&json, models, pool);
    bt_json_text_key(&json, "trusted");
    bt_text_add(&json, c->trusted ? "true" : "false");
    bt_json_text_or_null(&json, "reason", c->reason);
    bt_text_add(&json, "}");
    add_event(models, &json);
}

/* ---- the watchdog ---- */

static void say_shed(bt_models *models, const char *pool, const bt_watchdog_step *step, bt_model *const *held) {
    char names[400];
    bt_model_names(held, step->victims, step->n_victims, names, sizeof names);
    if (step->kind == BT_WATCHDOG_SHED)
        bt_models_say(models, "decision: shed %s: others need %s%s", names, pool,
                      step->stalled ? ", and work stands still for memory" : "");
    else
        bt_models_tell(models, BT_LOG_WARN, "others need %s, and no model may go: %s too much is held", pool,
                       BT_SIZE(step->over_bytes));
}

void bt_live_tell_watchdog(bt_models *models, uint32_t pool, const bt_watchdog_step *step, bt_model *const *held) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    bt_text json;
    bt_text_init(&json, EVENT_MAX_BYTES);
    bt_text_add(&json, "{");
    bt_json_text_or_null(&json, "decision", "shed");
    put_numbers(&json, models, pool);
    bt_json_text_u64(&json, "over_bytes", step->over_bytes);
    bt_json_text_known(&json, "stall_percent", (bt_known){pool == 0 && pools->stall.known, pools->stall.value / 100});
    bt_json_text_or_null(&json, "reason",
                         step->kind == BT_WATCHDOG_SHED ? "memory is needed by others"
                                                        : "memory is needed by others, and no model may go");
    bt_text_add(&json, ",\"victims\":[");
    for (uint32_t i = 0; i < step->n_victims; i++) {
        if (i > 0) bt_text_add(&json, ",");
        const char *id = held[step->victims[i]]->id;
        bt_json_text_string(&json, id, strlen(id));
    }
    bt_text_add(&json, "]}");
    add_event(models, &json);
    say_shed(models, pools->items[pool].name, step, held);
}

/* ---- trends ---- */

void bt_live_tell_trend(bt_models *models, const bt_model *model, uint32_t pool) {
    const bt_trend *t = &model->trends[pool];
    const char *name = bt_sampler_pools(models->ask.sampler)->items[pool].name;
    char until[112] = "";
    if (t->left_tokens.known)
        (void)snprintf(until, sizeof until, "; at this pace %.31s is full after %" PRIu64 " more", name,
                       t->left_tokens.value);
    bt_models_tell(models, BT_LOG_WARN, "%s: holds %s more of %s than %" PRIu64 " tokens ago, and grows with each%s",
                   model->id, BT_SIZE(t->grown_bytes), name, t->n_tokens, until);
    bt_text json;
    bt_text_init(&json, EVENT_MAX_BYTES);
    bt_text_add(&json, "{");
    bt_json_text_or_null(&json, "decision", "growth");
    bt_json_text_or_null(&json, "model", model->id);
    put_numbers(&json, models, pool);
    bt_json_text_u64(&json, "grown_bytes", t->grown_bytes);
    bt_json_text_u64(&json, "tokens", t->n_tokens);
    bt_json_text_known(&json, "left_tokens", t->left_tokens);
    bt_text_add(&json, "}");
    add_event(models, &json);
}

/* ---- each sample ---- */

static void put_sample(bt_text *json, const bt_models *models, const bt_pools *pools, uint32_t pool) {
    const bt_pools_one *one = &pools->items[pool];
    const bt_ceiling *c = bt_models_ceiling(models, pool);
    uint64_t reserved = 0, measured = 0;
    for (uint32_t i = 0; i < models->n; i++) {
        const bt_model *model = models->items[i];
        reserved = bt_sat_add_u64(reserved, model->reserved_bytes[pool]);
        if (model->measured_bytes[pool].known) measured = bt_sat_add_u64(measured, model->measured_bytes[pool].value);
    }
    bt_json_text_or_null(json, "name", one->name);
    bt_json_text_known(json, "total_bytes", one->total_bytes);
    bt_json_text_known(json, "limit_bytes", one->limit_bytes);
    bt_json_text_known(json, "ceiling_bytes", bt_models_limit(models, pool));
    bt_json_text_known(json, "free_bytes", one->available_bytes);
    bt_json_text_u64(json, "reserved_bytes", reserved);
    bt_json_text_u64(json, "measured_bytes", measured);
    bt_json_text_known(json, "foreign_bytes", c->trusted ? c->foreign_bytes : (bt_known){0});
}

void bt_live_tell_sample(bt_models *models) {
    const bt_pools *pools = bt_sampler_pools(models->ask.sampler);
    bt_text json;
    bt_text_init(&json, EVENT_MAX_BYTES);
    bt_text_add(&json, "{\"pools\":[");
    for (uint32_t i = 0; i < pools->n; i++) {
        bt_text_add(&json, i > 0 ? ",{" : "{");
        put_sample(&json, models, pools, i);
        bt_text_add(&json, "}");
    }
    bt_text_add(&json, "]}");
    if (!json.failed) bt_events_pass(models->ask.events, "memory", bt_text_str(&json));
    bt_text_done(&json);
}
