/* SPDX-License-Identifier: MIT
 *
 * model_launch.c: the command line of a model's process.
 *
 *   burthen exec [--device NAME=SIZE]... [--ram-budget SIZE | --hold SIZE] [--min-gpu-fraction F] -- COMMAND
 *
 * Everything is started through the guard, which looks at the machine once more and then becomes the command: the same
 * process, so that its signals, its exit status and its memory are the command's. What the books leave of each device
 * is its ceiling; what is reserved of the host is what it is held to, where the host has a budget.
 *
 * Ports are taken in turn and asked of the system first: one that was just left is the last to come again. Left out:
 * what follows (model_life.c). */
#include "router/models.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/size.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ARENA_MAX_BYTES (1u << 20)
#define WORDS_MAX       64u   /* of ours, before the command's */
#define PORTS_TRIED_MAX 1000u /* one after the other from the first */
#define WORD_BYTES      96u

/* ---- a port ---- */

/* 0: it is taken. port 0: the system's choice. */
static uint32_t port_is_free(uint32_t port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
    socklen_t n = sizeof address;
    uint32_t got = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    int on = 1; /* a port that a former child's connections linger on is free */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &n) == 0)
        got = ntohs(address.sin_port);
    (void)close(fd);
    return got;
}

static bool port_is_ours(const bt_models *models, uint32_t port) {
    for (uint32_t i = 0; i < models->n; i++)
        if (models->items[i]->child && models->items[i]->port == port) return true;
    return false;
}

static bt_status choose_port(bt_models *models, uint32_t *ret_port, bt_error *err) {
    uint32_t first = models->source->config->start_port;
    if (first == 0) {
        *ret_port = port_is_free(0);
        if (*ret_port > 0) return BT_OK;
    }
    if (models->next_port < first || models->next_port >= first + PORTS_TRIED_MAX || models->next_port > UINT16_MAX)
        models->next_port = first;
    for (uint32_t i = 0; first > 0 && i < PORTS_TRIED_MAX; i++) {
        uint32_t port = models->next_port++;
        if (models->next_port >= first + PORTS_TRIED_MAX || models->next_port > UINT16_MAX) models->next_port = first;
        if (port_is_ours(models, port) || port_is_free(port) == 0) continue;
        *ret_port = port;
        return BT_OK;
    }
    return bt_fail(err, BT_E_IO, "port", BT_MEASURE_NONE, 0, 0, "no free port from %u on", first);
}

/* ---- the words ---- */

typedef struct words {
    bt_arena *arena;
    char **items;
    uint32_t n;
    bool failed;
} words;

static void add(words *w, const char *text) {
    char *copy = w->n < WORDS_MAX ? bt_arena_strdup(w->arena, text) : NULL;
    if (!copy) w->failed = true;
    if (copy) w->items[w->n++] = copy;
}

/* What other models do not hold of a pool: the most that this one may take. */
static uint64_t left_for(const bt_model *model, uint32_t pool, uint64_t limit_bytes) {
    uint64_t others = 0;
    const bt_models *models = model->all;
    for (uint32_t i = 0; i < models->n; i++) {
        const bt_model *one = models->items[i];
        if (one == model || one->state == BT_MODEL_STOPPED || one->state == BT_MODEL_FAILED) continue;
        bt_known measured = one->measured_bytes[pool];
        others = bt_sat_add_u64(others, bt_max_u64(one->reserved_bytes[pool], measured.known ? measured.value : 0));
    }
    return bt_sat_sub_u64(limit_bytes, others);
}

static void add_devices(words *w, const bt_model *model, const bt_pools *pools) {
    for (uint32_t i = 1; i < pools->n; i++) {
        const bt_pools_one *pool = &pools->items[i];
        char word[WORD_BYTES];
        bt_known limit = bt_models_limit(model->all, i);
        if (!limit.known) continue;
        uint64_t bytes = left_for(model, i, limit.value);
        if (pool->target_bytes.known) bytes = bt_min_u64(bytes, pool->target_bytes.value);
        bytes = bt_mul_div_u64(bytes, 100 - model->cut_percent, 100);
        (void)snprintf(word, sizeof word, "%s=%llu", pool->name, (unsigned long long)bytes);
        add(w, "--device");
        add(w, word);
    }
}

static void add_host(words *w, bt_model *model) {
    const bt_config_model *config = model->config;
    char word[WORD_BYTES];
    uint64_t bytes = model->reserved_bytes[0];
    bool streams = config->ram == BT_CONFIG_RAM_SIZE || (model->shrunk && model->need.by_budget);
    if (config->ram == BT_CONFIG_RAM_SIZE) bytes = config->ram_bytes;
    bool holds = model->all->source->config->ram_budget_given && model->need.how == BT_NEED_PRICED && bytes > 0;
    if (!streams && !holds) return;
    model->streamed = streams;
    (void)snprintf(word, sizeof word, "%llu", (unsigned long long)bytes);
    add(w, streams ? "--ram-budget" : "--hold");
    add(w, word);
}

static void add_floor(words *w, const bt_model *model) {
    double fraction = model->config->min_gpu_fraction;
    char word[WORD_BYTES];
    if (fraction == 0.0) fraction = model->all->source->config->min_gpu_fraction;
    if (fraction == 0.0) return;
    (void)snprintf(word, sizeof word, "%.6f", fraction);
    add(w, "--min-gpu-fraction");
    add(w, fraction < 0.0 ? "off" : word);
}

static bt_status make_argv(bt_model *model, bt_arena *arena, char ***ret_argv, bt_error *err) {
    const bt_pools *pools = bt_sampler_pools(model->all->ask.sampler);
    char **command = NULL;
    BT_TRY(bt_config_argv(model->source->config, model->config, model->port, arena, &command, err));
    uint32_t n_command = 0;
    while (command[n_command])
        n_command++;
    words w = {.arena = arena};
    w.items = bt_arena_alloc(arena, (WORDS_MAX + n_command + 1ull) * sizeof *w.items);
    if (!w.items) return bt_fail_sys(err, ENOMEM, "child", "no memory for a command");
    add(&w, model->all->ask.burthen);
    add(&w, "exec");
    add_devices(&w, model, pools);
    add_host(&w, model);
    add_floor(&w, model);
    add(&w, "--");
    if (w.failed) return bt_fail_sys(err, ENOMEM, "child", "no memory for a command");
    memcpy(w.items + w.n, command, (n_command + 1ull) * sizeof *command);
    *ret_argv = w.items;
    return BT_OK;
}

static bt_status start(bt_model *model, bt_arena *arena, bt_error *err) {
    char *url = NULL;
    char **argv = NULL, **env = NULL, **stop_argv = NULL;
    bt_models *models = model->all;
    if (model->config->uses_port) BT_TRY(choose_port(models, &model->port, err));
    BT_TRY(bt_config_url(model->config, model->port, arena, &url, err));
    if (strlen(url) >= sizeof model->url)
        return bt_fail(err, BT_E_ARG, "config", BT_MEASURE_NONE, 0, 0, "the address of %s is too long", model->id);
    (void)snprintf(model->url, sizeof model->url, "%s", url);
    BT_TRY(make_argv(model, arena, &argv, err));
    BT_TRY(bt_config_words(model->config->env, model->port, arena, &env, err));
    BT_TRY(bt_config_words((const char *const *)model->config->cmd_stop, model->port, arena, &stop_argv, err));
    const bt_child_ask ask = {.loop = models->ask.loop,
                              .argv = argv,
                              .env = (const char *const *)env,
                              .mark = models->ask.mark,
                              .log = model->log,
                              .stop_argv = stop_argv,
                              .on_end = bt_model_ended,
                              .user = model};
    return bt_child_start(&ask, &model->child, err);
}

bt_status bt_model_launch(bt_model *model, bt_error *err) {
    bt_arena *arena = bt_arena_open(ARENA_MAX_BYTES, 4096);
    if (!arena) return bt_fail_sys(err, ENOMEM, "child", "no memory for a command");
    bt_status status = start(model, arena, err);
    bt_arena_close(arena);
    return status;
}
