/* SPDX-License-Identifier: MIT
 * models.h: all models of a router, and the one place that changes their states. Private to the router. */
#pragma once

#include "base/log.h"
#include "router/ceiling.h"
#include "router/events.h"
#include "router/model.h"
#include "router/pools.h"
#include "router/watchdog.h"

typedef struct bt_models_ask {
    bt_loop *loop;
    bt_client *client;
    bt_sampler *sampler;
    bt_events *events;
    bt_log_ring *log; /* the router's own */
    const char *mark, *root;
    const char *burthen; /* the program whose `exec` starts llama.cpp programs */
} bt_models_ask;

BT_MUST_CHECK bt_status bt_models_open(const bt_models_ask *ask, bt_models **ret, bt_error *err);
/* Kills what runs. */
void bt_models_close(bt_models *models);
/* Take a configuration, and own it: models whose child would be started in the same way go on undisturbed; others end
 * when they are idle and go on as they are now; new ones appear. BT_E_NOMEM: everything is as before, and config is the
 * caller's. */
BT_MUST_CHECK bt_status bt_models_configure(bt_models *models, bt_config *config, bt_error *err);
const bt_config *bt_models_config(const bt_models *models);

uint32_t bt_models_count(const bt_models *models);
bt_model *bt_models_at(const bt_models *models, uint32_t i);
bt_model *bt_models_find(const bt_models *models, const char *name); /* id or alias, of the current configuration */

/* Wait for a turn; on_turn is called later, never from within. BT_E_LIMIT, code "queue_full" (all) or
 * "model_queue_full": nothing was queued. */
BT_MUST_CHECK bt_status bt_models_enqueue(bt_models *models, bt_model *model, bt_job *job, bt_error *err);
/* It waits no more (its client has left), or its turn is over. Neither waiting nor running: nothing. */
void bt_models_leave(bt_models *models, bt_job *job);
/* The operator's: end it when it is idle (all: every model). */
void bt_models_unload(bt_models *models, bt_model *model, const char *reason);
/* A sample of memory is there. */
void bt_models_sampled(bt_models *models);
/* Take no new work, answer what waits, end everything; on_empty when nothing lives any more. */
void bt_models_shutdown(bt_models *models, void (*on_empty)(void *user), void *user);

/* ---- between its parts ---- */

struct bt_models {
    bt_models_ask ask;
    bt_held_config *source;
    bt_model *items[BT_CONFIG_MODELS_MAX];
    uint32_t n;
    uint64_t n_used; /* stamps */
    bt_timer kick;   /* decide, soon */
    bt_timer wake;   /* decide, when a hold or patience is over */
    bt_needing *needing;
    bt_model *needing_model;
    uint32_t next_port;
    struct bt_live *live;
    bool closing;
    void (*on_empty)(void *user);
    void *empty_user;
    /* for bt_policy_next, too large for the stack */
    struct bt_policy_model *view;
    struct bt_policy_step *step;
};

/* models.c */
void bt_models_sweep(bt_models *models); /* those that the configuration has dropped, and that nothing of is left */
/* A line for /logs, and for the log where that wants the level. */
void bt_models_say(bt_models *models, const char *fmt, ...) BT_PRINTF(2, 3); /* of level info */
void bt_models_tell(bt_models *models, bt_log_level level, const char *fmt, ...) BT_PRINTF(3, 4);
void bt_models_log(bt_models *models, const bt_log_entry *entry);
/* model.c */
bt_held_config *bt_models_hold(bt_held_config *held);
void bt_models_release(bt_held_config *held); /* NULL is fine */
bt_model *bt_model_open(bt_models *models, const bt_config_model *config, bt_held_config *source, bt_error *err);
void bt_model_close(bt_model *model);
bool bt_model_is_empty(const bt_model *model); /* nothing of it is left: once its configuration drops it, it is gone */
/* "a, b, c": the ids of some of the models, as far as there is room. */
void bt_model_names(bt_model *const *models, const uint32_t *which, uint32_t n_which, char *ret, size_t capacity);
/* It is another model now: what it takes is asked anew, also where it is being asked. */
void bt_model_forget_need(bt_model *model);
/* queue.c */
void bt_model_run_next(bt_model *model); /* whoever waits first has its turn */
/* Answer everybody who waits with model->refusal. */
void bt_model_refuse_waiting(bt_model *model);
void bt_model_refuse(bt_model *model, uint32_t status, const char *code, uint32_t retry_after_s, const char *fmt, ...)
    BT_PRINTF(5, 6);
/* decide.c */
/* Something has changed: decide again, after the callbacks that run now. */
void bt_models_kick(bt_models *models);
void bt_models_decide(void *user); /* the models; of timers */

/* model_launch.c: the command line and the process */
BT_MUST_CHECK bt_status bt_model_launch(bt_model *model, bt_error *err);
/* model_life.c: processes */
/* The only way a state changes: said to listeners, in the log. */
void bt_model_set(bt_model *model, bt_model_state state, const char *fmt, ...) BT_PRINTF(3, 4);
void bt_model_admit(bt_model *model, const bt_policy_step *step);
void bt_model_try_launch(bt_model *model); /* ADMITTED: start it if what was in its way is gone */
void bt_model_give_back(bt_model *model, bt_model_state state,
                        const char *why); /* what was reserved; it is state now */
/* Idle, outdated, asked to go...: what follows from that. */
void bt_model_settle(bt_model *model);
void bt_model_look(bt_model *model); /* its timer */
void bt_model_look_again(bt_model *model, uint64_t delay_ms);
uint64_t bt_model_now_ms(const bt_model *model);
/* A start has failed: the next one waits, longer each time. */
void bt_model_count_failure(bt_model *model);
uint32_t bt_model_retry_after_s(const bt_model *model);
/* model_health.c: is it ready? */
void bt_model_look_at_health(bt_model *model);
void bt_model_drop_probe(bt_model *model);
/* model_end.c */
void bt_model_stop(bt_model *model, const char *reason);
void bt_model_kill(bt_model *model);
void bt_model_ended(void *user, const bt_child_end *end);
void bt_model_look_at_release(bt_model *model); /* its process has gone, and there is a new sample */
/* model_memory.c: what it takes */
/* Its group in the configuration of now, also where it is still of an earlier one; UINT32_MAX: none. */
uint32_t bt_model_group(const bt_model *model);
void bt_model_fill_view(const bt_model *model, uint64_t now_ms, bt_policy_model *ret);
void bt_model_sampled(bt_model *model, const bt_pools *pools); /* its memory has been read */
bool bt_models_room_is_there(const bt_models *models, const bt_model *model);
void bt_model_heard(bt_model *model, const char *line, size_t n); /* a line of its process */
void bt_model_learn(bt_model *model);
void bt_models_ask_needs(bt_models *models);
/* It starts, or begins to end: what others are seen to take by the difference is disturbed. */
void bt_model_attribute(bt_model *model, bt_model_state state);
bool bt_model_may_hold(const bt_model *model, uint32_t pool); /* it runs, and may have something of it */
/* live.c: what others leave of each pool, and who goes for it */
BT_MUST_CHECK bt_status bt_live_open(bt_models *models, struct bt_live **ret, bt_error *err);
void bt_live_close(struct bt_live *live);
void bt_models_watch(bt_models *models); /* after each sample */
bool bt_models_pressed(const bt_models *models);
const bt_ceiling *bt_models_ceiling(const bt_models *models, uint32_t pool); /* never NULL */
const bt_ceiling *bt_models_ceiling_of_devices(const bt_models *models);     /* of all together */
bt_watchdog_state bt_models_watchdog(const bt_models *models, uint32_t pool);
/* What admission goes by: the pool's limit, or its ceiling when lower. */
bt_known bt_models_limit(const bt_models *models, uint32_t pool);
/* live_tell.c: what came of it, for listeners and the log */
void bt_live_tell_ceiling(bt_models *models, uint32_t pool);
void bt_live_tell_watchdog(bt_models *models, uint32_t pool, const bt_watchdog_step *step, bt_model *const *held);
void bt_live_tell_trend(bt_models *models, const bt_model *model, uint32_t pool);
void bt_live_tell_sample(bt_models *models);
/* decide_tell.c: what was decided, with its numbers, for listeners and refusals */
void bt_models_tell_step(bt_models *models, const bt_policy_step *step);
void bt_models_refusal_of(const bt_models *models, const bt_policy_step *step, bt_model_refusal *ret);
