/* SPDX-License-Identifier: MIT
 *
 * pools.c: the memories that models share, sampled.
 *
 *   host      read here, some files of /proc and the cgroup chain: under a millisecond
 *   devices   read aside (a copy of the router): a driver may take long, or hang, and its library is no guest of a
 *             process that runs for months
 *
 * A sample is one moment: it is published whole, when the slower half is there. Without devices in the first sample
 * none are looked for again until the configuration is read anew. What a pool has for models is its budget: of the host
 * that of the configuration less what the router takes itself; of a device what the configuration says, else all it
 * has. A host without a budget has no limit here: what is free, as `auto` reckons it, bounds each start.
 *
 * Bound: BT_POOL_MAX pools, BT_POOLS_USERS_MAX users. Left out: whose the users are (models.c), what follows
 * (policy.c). */
#include "router/pools.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "plan/plan.h"
#include "probe/gpu.h"
#include "probe/probe.h"
#include "probe/proc.h"

#include <stdio.h>
#include <string.h>

#define BUSY_MS      1000u
#define IDLE_MS      5000u
#define ASIDE_MAX_MS 10000u
/* The router's own line of the host. Measured: 9 to 14 MiB resident with 10 models (bench/serve.py), a copy of it that
 * reads a header with 262,000 tokens 20 MiB more; the rest is for what is on its way between servers and clients. */
#define OWN_BYTES (UINT64_C(48) << 20)

struct bt_sampler {
    bt_loop *loop;
    char root[256];
    const bt_config *config;
    bt_pools pools;
    bt_aside *aside;
    bt_timer timer;
    bool busy, no_devices;
    void (*on_sample)(void *user);
    void *user;
};

uint32_t bt_pools_find(const bt_pools *pools, const char *name) {
    for (uint32_t i = 0; i < pools->n; i++)
        if (strcmp(pools->items[i].name, name) == 0) return i;
    return UINT32_MAX;
}

const bt_pools *bt_sampler_pools(const bt_sampler *sampler) {
    return &sampler->pools;
}

/* ---- the host ---- */

/* Without a budget `auto` leaves the system a reserve; one that was asked for is cut by what there is, and no more. */
static bt_known host_left(const bt_config *config, const bt_machine *machine) {
    bt_wishes wishes = {.budget_kind = BT_BUDGET_AUTO};
    if (config->ram_budget_given) wishes = (bt_wishes){.budget_kind = BT_BUDGET_BYTES, .budget_bytes = UINT64_MAX - 1};
    bt_budget left = bt_budget_resolve(machine, &wishes);
    if (left.state != BT_READING_REPORTED) return (bt_known){0};
    const bt_pool *pool = &machine->pools[0];
    if (pool->state == BT_READING_REPORTED) left.bytes = bt_min_u64(left.bytes, pool->free_bytes);
    return (bt_known){left.bytes < UINT64_MAX - 1, left.bytes};
}

static void read_host(bt_sampler *s) {
    bt_pools_one *host = &s->pools.items[0];
    bt_machine *machine = bt_heap_alloc(sizeof *machine); /* 40 KiB */
    bt_error why = {0};
    *host = (bt_pools_one){.name = "host", .state = BT_READING_FAILED, .users_complete = true};
    s->pools.own_bytes = bt_sat_add_u64(OWN_BYTES, bt_config_bodies_bytes(s->config));
    if (s->config->ram_budget_given)
        host->limit_bytes = (bt_known){true, bt_sat_sub_u64(s->config->ram_budget_bytes, s->pools.own_bytes)};
    if (!machine || bt_machine_probe(s->root, machine, &why) != BT_OK) {
        (void)snprintf(host->reason, sizeof host->reason, "%.159s", machine ? why.text : "no memory to read it");
        bt_heap_free(machine);
        return;
    }
    const bt_pool *pool = &machine->pools[0];
    bt_known left = host_left(s->config, machine);
    host->state = pool->state;
    (void)snprintf(host->reason, sizeof host->reason, "%s", pool->reason);
    host->total_bytes = (bt_known){pool->state == BT_READING_REPORTED, pool->total_bytes};
    host->free_bytes = left;
    bt_heap_free(machine);
}

/* ---- devices, aside: one line each, then one for each user ---- */

static bt_status read_devices(void *arg, bt_text *answer, bt_error *err) {
    const bt_sampler *s = arg;
    bt_gpus *gpus = bt_heap_alloc(sizeof *gpus);
    if (!gpus) return bt_fail_sys(err, 12, "probe", "cannot read the devices");
    BT_TRY(bt_gpu_probe(s->root, NULL, true, gpus, err));
    for (uint32_t i = 0; i < gpus->n_devices; i++) {
        const bt_gpu *gpu = &gpus->devices[i];
        if (gpu->shares_host) continue; /* its memory is the host's, and counted there */
        bt_text_addf(answer, "D %s %d %d %llu %llu %s\n", gpu->name, (int)gpu->state, gpu->users_complete ? 1 : 0,
                     (unsigned long long)gpu->total_bytes, (unsigned long long)gpu->free_bytes, gpu->reason);
        for (uint32_t k = 0; k < gpu->n_users; k++) {
            if (!gpu->users[k].bytes.known) continue;
            bt_text_addf(answer, "U %u %llu\n", gpu->users[k].pid, (unsigned long long)gpu->users[k].bytes.value);
        }
    }
    return BT_OK; /* the copy ends: what it holds ends with it */
}

static void apply_config(const bt_sampler *s, bt_pools_one *pool) {
    pool->limit_bytes = pool->total_bytes;
    for (uint32_t i = 0; i < s->config->n_devices; i++) {
        const bt_config_device *device = &s->config->devices[i];
        if (strcmp(device->name, pool->name) != 0) continue;
        if (device->budget_bytes.known) pool->limit_bytes = device->budget_bytes;
        pool->target_bytes = device->target_bytes.known ? device->target_bytes : device->budget_bytes;
    }
}

static void add_user(bt_pools *pools, bt_span line) {
    bt_span pid, bytes;
    uint64_t n_pid = 0, n_bytes = 0;
    if (pools->n_users == BT_POOLS_USERS_MAX || !bt_span_word(&line, &pid) || !bt_span_word(&line, &bytes)) return;
    if (!bt_span_number(pid, &n_pid) || !bt_span_number(bytes, &n_bytes) || n_pid > UINT32_MAX) return;
    pools->users[pools->n_users++] = (bt_pools_user){.pool = pools->n - 1, .pid = (uint32_t)n_pid, .bytes = n_bytes};
}

static bool read_numbers(bt_span *line, uint64_t *ret, uint32_t n) {
    bt_span word;
    for (uint32_t i = 0; i < n; i++)
        if (!bt_span_word(line, &word) || !bt_span_number(word, &ret[i])) return false;
    return true;
}

/* What is left of the line is the reason. */
static void add_device(bt_sampler *s, bt_span line) {
    bt_span name;
    uint64_t values[4]; /* state, whether all users are there, total, free */
    if (s->pools.n == BT_POOL_MAX || !bt_span_word(&line, &name) || !read_numbers(&line, values, 4)) return;
    bt_pools_one *pool = &s->pools.items[s->pools.n++];
    bool reported = values[0] == BT_READING_REPORTED;
    *pool = (bt_pools_one){.state = (bt_pool_state)values[0], .users_complete = values[1] == 1};
    (void)snprintf(pool->name, sizeof pool->name, "%.*s", (int)name.n_bytes, name.at);
    (void)snprintf(pool->reason, sizeof pool->reason, "%.*s", (int)line.n_bytes, line.at);
    pool->total_bytes = (bt_known){reported, values[2]};
    pool->free_bytes = (bt_known){reported, values[3]};
    apply_config(s, pool);
}

/* The copy's answer is our own text: what does not read as such is left out. */
static void take_devices(bt_sampler *s, const char *text) {
    bt_span rest = bt_span_of(text), line, kind;
    s->pools.n_users = 0;
    while (bt_span_line(&rest, &line)) {
        if (!bt_span_word(&line, &kind)) continue;
        if (bt_span_is(kind, "D")) add_device(s, line);
        if (bt_span_is(kind, "U") && s->pools.n > 1) add_user(&s->pools, line);
    }
}

/* Named in the configuration with a size, and seen by nobody (a card that only Vulkan knows): its word is all there is.
 */
static void add_named(bt_sampler *s) {
    for (uint32_t i = 0; i < s->config->n_devices && s->pools.n < BT_POOL_MAX; i++) {
        const bt_config_device *device = &s->config->devices[i];
        if (!device->budget_bytes.known || bt_pools_find(&s->pools, device->name) != UINT32_MAX) continue;
        bt_pools_one *pool = &s->pools.items[s->pools.n++];
        *pool = (bt_pools_one){.state = BT_READING_ABSENT, .limit_bytes = device->budget_bytes};
        (void)snprintf(pool->name, sizeof pool->name, "%.31s", device->name);
        pool->total_bytes = device->budget_bytes;
        pool->target_bytes = device->target_bytes.known ? device->target_bytes : device->budget_bytes;
    }
}

static void publish(bt_sampler *s) {
    s->pools.ready = true;
    bt_loop_timer_set(s->loop, &s->timer, s->busy ? BUSY_MS : IDLE_MS);
    s->on_sample(s->user);
}

static void on_devices(void *user, const bt_text *answer, const bt_error *err) {
    bt_sampler *s = user;
    bool first = !s->pools.ready;
    s->aside = NULL;
    read_host(s);
    if (err) { /* a reading that failed is not "nothing there": what was known keeps its size, and has nothing free */
        for (uint32_t i = 1; i < s->pools.n; i++) {
            s->pools.items[i].state = BT_READING_FAILED;
            s->pools.items[i].free_bytes = (bt_known){0};
            (void)snprintf(s->pools.items[i].reason, sizeof s->pools.items[i].reason, "%.159s", err->text);
        }
    } else {
        s->pools.n = 1;
        take_devices(s, bt_text_str(answer));
        s->no_devices = first && s->pools.n == 1;
        add_named(s);
    }
    publish(s);
}

static void sample(void *user) {
    bt_sampler *s = user;
    if (s->aside) return; /* its end is a sample too */
    bt_error why = {0};
    if (!s->no_devices &&
        bt_aside_start(s->loop, read_devices, s, ASIDE_MAX_MS, on_devices, s, &s->aside, &why) == BT_OK)
        return;
    if (!s->no_devices) {
        on_devices(s, NULL, &why);
        return;
    }
    read_host(s);
    publish(s);
}

bt_status bt_sampler_open(bt_loop *loop, const char *root, const bt_config *config, void (*on_sample)(void *user),
                          void *user, bt_sampler **ret, bt_error *err) {
    bt_sampler *s = bt_heap_alloc(sizeof *s);
    if (!s) return bt_fail_sys(err, 12, "probe", "no memory to watch the machine");
    s->loop = loop;
    (void)snprintf(s->root, sizeof s->root, "%s", root ? root : "");
    s->config = config;
    s->on_sample = on_sample;
    s->user = user;
    s->pools.n = 1;
    s->timer = (bt_timer){.on_time = sample, .user = s};
    bt_loop_timer_set(loop, &s->timer, 0);
    *ret = s;
    return BT_OK;
}

void bt_sampler_close(bt_sampler *s) {
    if (!s) return;
    bt_aside_cancel(s->aside);
    bt_loop_timer_stop(s->loop, &s->timer);
    bt_heap_free(s);
}

void bt_sampler_reconfigure(bt_sampler *s, const bt_config *config) {
    s->config = config;
    s->no_devices = false;
    bt_sampler_ask(s);
}

void bt_sampler_pace(bt_sampler *s, bool busy) {
    /* Only brought forward: requests that follow each other would put it off for ever. */
    bool late = s->timer.set && s->timer.at_ms > bt_loop_now_ms(s->loop) + BUSY_MS;
    if (busy && !s->busy && !s->aside && late) bt_loop_timer_set(s->loop, &s->timer, BUSY_MS);
    s->busy = busy;
}

void bt_sampler_ask(bt_sampler *s) {
    if (!s->aside) bt_loop_timer_set(s->loop, &s->timer, 0);
}
