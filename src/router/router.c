/* SPDX-License-Identifier: MIT
 *
 * router.c: the router as a whole: put together, told to read its configuration anew, and taken down in order.
 *
 *   reaper (before anything else) -> loop -> client, events, sampler, models -> server -> until a signal
 *   SIGHUP, or a file that changed: read anew; what cannot be read leaves everything as it is, and is said
 *   SIGTERM, SIGINT: nothing new; what runs may end for DRAIN_MS; then the children end; a second one: at once
 *
 * One thread: the loop's. Whatever may block is a process of its own (aside.h). Left out: what is answered (routes.c).
 */
#include "router/router.h"

#include "router/notify.h"
#include "router/reaper.h"
#include "router/routing.h"

#include "base/error.h"
#include "base/heap.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRAIN_MS      10000u /* as llama-swap lets requests end */
#define GRACE_MS      3000u  /* of children that a dead router left */
#define WATCH_MS      2000u  /* llama-swap's own poll of its configuration */
#define KEEP_ALIVE_MS 15000u /* proxies close what is silent for 30 s and more */

typedef struct running {
    bt_router router;
    bt_notify notify;
    bt_watch signals;
    sigset_t old_mask;
    int signal_fd, reaper_fd;
    bt_timer drain, watch, keep_alive;
    struct timespec seen; /* the file's last change that was looked at */
    bool changed;         /* it changed at the last look: wait until it rests */
    bool drained, ended;
} running;

/* ---- the configuration, anew ---- */

/* By a signal or by a look at the file: what is read here is not read again at the next look. */
static void reload(running *r) {
    bt_router *router = &r->router;
    struct stat found;
    if (router->closing) return;
    bool there = router->ask->watch_file && stat(router->ask->watch_file, &found) == 0; /* before it is read */
    if (there) r->seen = found.st_mtim;
    r->changed = false;
    bt_config *config = NULL;
    bt_error why = {0};
    if (router->ask->reload(router->ask->user, &config, &why) != BT_OK) {
        bt_models_tell(router->models, BT_LOG_WARN, "configuration not read anew: %s", why.text);
        return;
    }
    if (bt_models_configure(router->models, config, &why) != BT_OK) {
        bt_models_tell(router->models, BT_LOG_WARN, "configuration not read anew: %s", why.text);
        bt_config_close(config);
        return;
    }
    bt_server_reconfigure(router->server, config);
    bt_sampler_reconfigure(router->sampler, config);
    bt_models_say(router->models, "configuration read anew: %u model%s", config->n_models,
                  config->n_models == 1 ? "" : "s");
    bt_events_add(router->events, "config", "{\"reloaded\":true}");
    bt_router_preload(router);
}

/* A file that is being written is looked at once more when it has rested for a tick. */
static void look_at_file(void *user) {
    running *r = user;
    struct stat found;
    bt_loop_timer_set(r->router.loop, &r->watch, WATCH_MS);
    if (stat(r->router.ask->watch_file, &found) != 0) return; /* between its removal and its new version */
    bool moved = found.st_mtim.tv_sec != r->seen.tv_sec || found.st_mtim.tv_nsec != r->seen.tv_nsec;
    bool first = r->seen.tv_sec == 0;
    r->seen = found.st_mtim;
    if (r->changed && !moved) reload(r);
    r->changed = moved && !first;
}

static void keep_alive(void *user) {
    running *r = user;
    bt_events_tick(r->router.events);
    bt_loop_timer_set(r->router.loop, &r->keep_alive, KEEP_ALIVE_MS);
}

/* ---- the end ---- */

static void on_empty(void *user) {
    running *r = user;
    r->ended = true;
    bt_loop_stop(r->router.loop);
}

static void end_models(void *user) {
    running *r = user;
    if (r->drained) return;
    r->drained = true;
    bt_loop_timer_stop(r->router.loop, &r->drain);
    bt_models_shutdown(r->router.models, on_empty, r);
}

/* Streams without an end would be waited for. */
static void dismiss_listeners(bt_router *router) {
    bt_events_dismiss(router->events);
    bt_log_ring_dismiss(router->log);
    for (uint32_t i = 0; i < bt_models_count(router->models); i++)
        bt_log_ring_dismiss(bt_models_at(router->models, i)->log);
}

static void shut_down(running *r) {
    bt_router *router = &r->router;
    if (router->closing) {
        bt_loop_stop(router->loop); /* a second signal: what lives is killed on the way out */
        return;
    }
    router->closing = true;
    bt_notify_say(&r->notify, "STOPPING=1\nSTATUS=running answers may end");
    bt_models_say(router->models, "shutting down: %llu request%s", (unsigned long long)router->n_calls_running,
                  router->n_calls_running == 1 ? " runs" : "s run");
    for (uint32_t i = 0; i < bt_models_count(router->models); i++)
        bt_model_refuse(bt_models_at(router->models, i), 503, "shutting_down", 0, "the router is shutting down");
    dismiss_listeners(router);
    bt_loop_timer_set(router->loop, &r->drain, DRAIN_MS);
    bt_server_drain(router->server, end_models, r);
}

static void on_signal(void *user, uint32_t events) {
    running *r = user;
    struct signalfd_siginfo info;
    (void)events;
    while (read(r->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGHUP) {
            shut_down(r);
            continue;
        }
        if (r->router.ask->on_hangup) r->router.ask->on_hangup(r->router.ask->user);
        reload(r);
    }
}

/* ---- requests ---- */

static void on_request(void *user, bt_request *request) {
    bt_routes_answer(&((running *)user)->router, request);
}

static bool is_open(void *user, const char *method, const char *path) {
    (void)user;
    return bt_routes_is_open(method, path);
}

static void on_request_end(void *user, const bt_request *request) {
    bt_router *router = &((running *)user)->router;
    bt_request_log_ended(router, request);
    bt_call_request_ended(router, request);
}

static void on_refused(void *user, const bt_request *request) {
    bt_request_log_refused(&((running *)user)->router, request);
}

static void on_sample(void *user) {
    bt_models_sampled(((running *)user)->router.models);
}

/* ---- put together ---- */

static bt_status take_signals(running *r, bt_error *err) {
    sigset_t ours;
    (void)sigemptyset(&ours);
    (void)sigaddset(&ours, SIGHUP);
    (void)sigaddset(&ours, SIGINT);
    (void)sigaddset(&ours, SIGTERM);
    (void)signal(SIGPIPE, SIG_IGN); /* who does not read is seen by the write that fails */
    if (sigprocmask(SIG_BLOCK, &ours, &r->old_mask) != 0) return bt_fail_sys(err, errno, "loop", "cannot take signals");
    r->signal_fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r->signal_fd < 0) return bt_fail_sys(err, errno, "loop", "cannot take signals");
    r->signals = (bt_watch){.on_ready = on_signal, .user = r, .fd = r->signal_fd};
    return bt_loop_add(r->router.loop, &r->signals, EPOLLIN, err);
}

static bt_status open_parts(running *r, bt_config *config, bt_error *err) {
    bt_router *router = &r->router;
    BT_TRY(take_signals(r, err));
    BT_TRY(bt_client_open(router->loop, &router->client, err));
    BT_TRY(bt_events_open(&router->events, err));
    BT_TRY(bt_activity_open(&router->activity, err));
    BT_TRY(bt_log_ring_open(&router->log, err));
    bt_request_log_open(router);
    BT_TRY(bt_sampler_open(router->loop, router->ask->root, config, on_sample, r, &router->sampler, err));
    const bt_models_ask models = {.loop = router->loop,
                                  .client = router->client,
                                  .sampler = router->sampler,
                                  .events = router->events,
                                  .log = router->log,
                                  .mark = router->mark,
                                  .root = router->ask->root,
                                  .burthen = router->ask->burthen};
    return bt_models_open(&models, &router->models, err);
}

static void say_ready(const running *r, const bt_config *config) {
    char lines[256];
    const char *address = bt_server_address(r->router.server);
    (void)snprintf(lines, sizeof lines, "READY=1\nSTATUS=listening on %.160s, %u model%s", address, config->n_models,
                   config->n_models == 1 ? "" : "s");
    bt_notify_say(&r->notify, lines);
    if (r->router.ask->on_ready) r->router.ask->on_ready(r->router.ask->user, address);
}

static bt_status listen_and_run(running *r, const bt_config *config, bt_error *err) {
    bt_router *router = &r->router;
    const bt_server_ask server = {.loop = router->loop,
                                  .config = config,
                                  .is_open = is_open,
                                  .on_request = on_request,
                                  .on_end = on_request_end,
                                  .on_refused = on_refused,
                                  .user = r};
    BT_TRY(bt_server_open(&server, &router->server, err));
    r->drain = (bt_timer){.on_time = end_models, .user = r};
    r->watch = (bt_timer){.on_time = look_at_file, .user = r};
    r->keep_alive = (bt_timer){.on_time = keep_alive, .user = r};
    if (router->ask->watch_file) bt_loop_timer_set(router->loop, &r->watch, 0);
    keep_alive(r);
    bt_router_preload(router);
    bt_models_say(router->models, "listening on %s, %u model%s", bt_server_address(router->server), config->n_models,
                  config->n_models == 1 ? "" : "s");
    say_ready(r, config);
    return bt_loop_run(router->loop, err);
}

static void close_parts(running *r) {
    bt_router *router = &r->router;
    bt_calls_close(router);
    if (router->loop) bt_loop_timer_stop(router->loop, &router->request_log.told);
    if (router->server) bt_server_close(router->server);
    bt_models_close(router->models);
    bt_sampler_close(router->sampler);
    if (router->events) bt_events_close(router->events);
    if (router->activity) bt_activity_close(router->activity);
    if (router->log) bt_log_ring_close(router->log);
    if (router->client) bt_client_close(router->client);
    if (router->loop) bt_loop_remove(router->loop, &r->signals);
    if (r->signal_fd >= 0) (void)close(r->signal_fd);
    bt_loop_close(router->loop);
    (void)sigprocmask(SIG_SETMASK, &r->old_mask, NULL);
}

static bt_status run(running *r, bt_config *config, bt_error *err) {
    bt_router *router = &r->router;
    bt_status status = bt_loop_open(&router->loop, err);
    if (status == BT_OK) {
        router->began_ms = bt_loop_now_ms(router->loop);
        status = open_parts(r, config, err);
    }
    if (status == BT_OK) status = bt_models_configure(router->models, config, err);
    if (status != BT_OK) {
        bt_config_close(config);
        return status;
    }
    return listen_and_run(r, config, err);
}

bt_status bt_router_run(const bt_router_ask *ask, bt_error *err) {
    pid_t reaper = 0;
    running *r = bt_heap_alloc(sizeof *r);
    if (!r) {
        bt_config_close(ask->config);
        return bt_fail_sys(err, ENOMEM, "router", "no memory to begin");
    }
    *r = (running){.router = {.ask = ask}, .signal_fd = -1, .reaper_fd = -1};
    bt_notify_open(&r->notify); /* before any child is */
    (void)sigprocmask(SIG_SETMASK, NULL, &r->old_mask);
    bt_status status = bt_mark_make(r->router.mark, err);
    if (status == BT_OK) status = bt_reaper_start(r->router.mark, GRACE_MS, &reaper, &r->reaper_fd, err);
    if (status == BT_OK) {
        (void)bt_reaper_recover(GRACE_MS);
        bt_reaper_remember(r->router.mark);
        status = run(r, ask->config, err);
    } else {
        bt_config_close(ask->config);
    }
    close_parts(r);
    (void)bt_reaper_sweep(r->router.mark, GRACE_MS); /* what a child has left: none, as a rule */
    bt_reaper_forget();
    if (r->reaper_fd >= 0) (void)close(r->reaper_fd);
    bt_heap_free(r);
    return status;
}
