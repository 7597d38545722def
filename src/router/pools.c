/* SPDX-License-Identifier: MIT
 *
 * pools.c: the memories that models share, sampled.
 *
 *   host      read here (pools_host.c), some files of /proc and the cgroup chain: under a millisecond
 *   devices   read aside (a copy of the router): a driver may take long, or hang, and its library is no guest of a
 *             process that runs for months
 *
 * A sample is one moment: it is published whole, when the slower half is there. Without devices in the first sample
 * none are looked for again until the configuration is read anew. What a pool has for models is its budget: of the host
 * that of the configuration less what the router takes itself; of a device what the configuration says, else all it
 * has, and never more than that. A host without a budget has no limit here: what is free, as `auto` reckons it, bounds
 * each start.
 *
 * A pool stays where it is in the list as long as the router runs: models keep their bytes by its index. A device that
 * its driver shows no more, or that cannot be read now, is FAILED with the reason, and keeps its size and its limit.
 * What it has free is then unknown, which is neither nothing nor all: the limit alone bounds a start, where there is
 * none nothing does, and the guard before each start has the last word (decision 027).
 *
 * A driver that hangs holds the copy that asked it, maybe for ever and past any signal: after that it is asked a minute
 * later, then two, four, at last every hour, so that such copies do not pile up; the host is sampled on meanwhile.
 *
 * Bound: BT_POOL_MAX pools, BT_POOLS_USERS_MAX users. Left out: whose the users are (models.c), what follows
 * (policy.c). */
#include "router/pools.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "probe/gpu.h"
#include "probe/proc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BUSY_MS      1000u
#define IDLE_MS      5000u
#define ASIDE_MAX_MS 10000u
#define HANG_MIN_MS  60000u /* so long after a driver hung it is not asked; doubled each time */
#define HANG_MAX_MS  3600000u

struct bt_sampler {
    bt_loop *loop;
    char root[256];
    const bt_config *config;
    bt_pools pools;
    bt_aside *aside;
    bt_timer timer;
    uint64_t began_ms;
    uint64_t hang_ms, ask_at_ms; /* the pause after a driver hung, and when it is over; 0: none */
    bool busy, no_devices;
    bool asked; /* while a sample was on its way: what it shows may be older than the question */
    /* By a driver: in this sample, and ever. The others are there because the configuration names them. */
    bool shown[BT_POOL_MAX], was_shown[BT_POOL_MAX];
    char pci[BT_POOL_MAX][24]; /* as bt_gpu has it */
    void (*on_sample)(void *user);
    void *user;
};

uint32_t bt_pools_find(const bt_pools *pools, const char *name) {
    for (uint32_t i = 0; i < pools->n; i++)
        if (strcmp(pools->items[i].name, name) == 0) return i;
    return UINT32_MAX;
}

bt_known bt_pools_used(const bt_pools_one *pool) {
    bool known = pool->whole_bytes.known && pool->available_bytes.known;
    return (bt_known){known, known ? bt_sat_sub_u64(pool->whole_bytes.value, pool->available_bytes.value) : 0};
}

/* Pages of a mapped model count as free to the system, which may take them back, and reads them again for every token:
 * a machine of 16 GiB would show room for a second model of 9 beside the first. What models hold is counted with them,
 * so what they may hold is the room that there would be without any: not only what is free now. */
void bt_sampler_ours(bt_sampler *s, uint64_t anon_bytes) {
    bt_pools_one *host = &s->pools.items[0];
    if (s->config->ram_budget_given) return;
    host->limit_bytes = (bt_known){host->free_bytes.known, bt_sat_add_u64(host->free_bytes.value, anon_bytes)};
}

const bt_pools *bt_sampler_pools(const bt_sampler *sampler) {
    return &sampler->pools;
}

/* ---- devices, aside: one line each, then one for each user ---- */

static void add_known(bt_text *answer, bt_known bytes) {
    if (bytes.known)
        bt_text_addf(answer, " %llu", (unsigned long long)bytes.value);
    else
        bt_text_add(answer, " -");
}

static bt_status read_devices(void *arg, bt_text *answer, bt_error *err) {
    const bt_sampler *s = arg;
    bt_gpus *gpus = bt_heap_alloc(sizeof *gpus);
    if (!gpus) return bt_fail_sys(err, ENOMEM, "probe", "cannot read the devices");
    bt_status status = bt_gpu_probe(s->root, NULL, true, gpus, err);
    for (uint32_t i = 0; status == BT_OK && i < gpus->n_devices; i++) {
        const bt_gpu *gpu = &gpus->devices[i];
        if (gpu->shares_host) continue; /* its memory is the host's, and counted there */
        bt_text_addf(answer, "D %s %s %d %d %llu %llu %s\n", gpu->name, gpu->pci[0] ? gpu->pci : "-", (int)gpu->state,
                     gpu->users_complete ? 1 : 0, (unsigned long long)gpu->total_bytes,
                     (unsigned long long)gpu->free_bytes, gpu->reason);
        for (uint32_t k = 0; k < gpu->n_users; k++) {
            const bt_gpu_user *user = &gpu->users[k];
            bt_text_addf(answer, "U %u", user->pid);
            add_known(answer, user->bytes);
            add_known(answer, user->host_bytes);
            bt_text_add(answer, "\n");
        }
    }
    bt_heap_free(gpus);
    return status;
}

/* What models may have of it. A budget counts only as far as there is that much. */
static void apply_config(const bt_sampler *s, bt_pools_one *pool) {
    pool->limit_bytes = pool->total_bytes;
    pool->target_bytes = (bt_known){0};
    for (uint32_t i = 0; i < s->config->n_devices; i++) {
        const bt_config_device *device = &s->config->devices[i];
        if (strcmp(device->name, pool->name) != 0) continue;
        bt_known budget = device->budget_bytes;
        if (budget.known && (!pool->total_bytes.known || budget.value < pool->total_bytes.value))
            pool->limit_bytes = budget;
        pool->target_bytes = device->target_bytes.known ? device->target_bytes : budget;
    }
}

/* A number or "-"; false: neither. Nothing left is "-". */
static bool read_known(bt_span *line, bt_known *ret) {
    bt_span word;
    *ret = (bt_known){0};
    if (!bt_span_word(line, &word) || bt_span_is(word, "-")) return true;
    ret->known = bt_span_number(word, &ret->value);
    return ret->known;
}

static void add_user(bt_pools *pools, uint32_t pool, bt_span line) {
    bt_span pid;
    uint64_t n_pid = 0;
    bt_known bytes, host_bytes;
    if (!bt_span_word(&line, &pid) || !bt_span_number(pid, &n_pid) || n_pid > UINT32_MAX) return;
    if (!read_known(&line, &bytes) || !read_known(&line, &host_bytes)) return;
    if (pools->n_users == BT_POOLS_USERS_MAX) {
        pools->items[pool].users_complete = false;
        return;
    }
    pools->users[pools->n_users++] = (bt_pools_user){pool, (uint32_t)n_pid, bytes, host_bytes};
}

static bool read_numbers(bt_span *line, uint64_t *ret, uint32_t n) {
    bt_span word;
    for (uint32_t i = 0; i < n; i++)
        if (!bt_span_word(line, &word) || !bt_span_number(word, &ret[i])) return false;
    return true;
}

static bool is_configured(const bt_sampler *s, const char *name) {
    for (uint32_t i = 0; i < s->config->n_devices; i++)
        if (s->config->devices[i].budget_bytes.known && strcmp(s->config->devices[i].name, name) == 0) return true;
    return false;
}

/* A name under which there was only ever a failure (NVML that fails has cards of no number): nothing is kept there. */
static bool is_dead(const bt_sampler *s, uint32_t i) {
    const bt_pools_one *pool = &s->pools.items[i];
    return s->was_shown[i] && !s->shown[i] && !pool->total_bytes.known && !is_configured(s, pool->name);
}

/* At the end of the list; 0, the host's place: there is no room. */
static uint32_t add_pool(bt_sampler *s, const char *name) {
    uint32_t at = s->pools.n;
    if (at == BT_POOL_MAX) return 0;
    s->pools.items[at] = (bt_pools_one){.state = BT_READING_ABSENT};
    (void)snprintf(s->pools.items[at].name, sizeof s->pools.items[at].name, "%.31s", name);
    s->pci[at][0] = '\0';
    s->shown[at] = s->was_shown[at] = false;
    s->pools.n++;
    return at;
}

static uint32_t find_pci(const bt_sampler *s, const char *pci, bool was_read) {
    for (uint32_t i = 1; i < s->pools.n; i++)
        if (pci[0] && strcmp(s->pci[i], pci) == 0 && s->pools.items[i].total_bytes.known == was_read) return i;
    return UINT32_MAX;
}

/* A card is its place on the bus: where another drops out, or its own driver fails and the kernel's name for it is all
 * there is, it has another name for a while, and is the same. 0: there is no room. */
static uint32_t pool_of(bt_sampler *s, const char *name, const char *pci) {
    uint32_t at = find_pci(s, pci, true);
    if (at == UINT32_MAX) at = bt_pools_find(&s->pools, name);
    if (at == UINT32_MAX) {
        at = find_pci(s, pci, false); /* known by a failure alone: what it is called now is its name */
        if (at == UINT32_MAX) at = add_pool(s, name);
        if (at > 0) (void)snprintf(s->pools.items[at].name, sizeof s->pools.items[at].name, "%s", name);
    }
    if (at > 0) (void)snprintf(s->pci[at], sizeof s->pci[at], "%s", pci);
    return at;
}

static void copy_span(char *ret, size_t capacity, bt_span span) {
    while (span.n_bytes > 0 && *span.at == ' ') {
        span.at++;
        span.n_bytes--;
    }
    (void)snprintf(ret, capacity, "%.*s", (int)bt_min_u64(span.n_bytes, capacity - 1), span.at);
}

/* What is left of the line is the reason. Returns its index; 0: there is no such device. */
static uint32_t add_device(bt_sampler *s, bt_span line) {
    bt_span name_word, pci_word;
    char name[32], pci[sizeof s->pci[0]];
    uint64_t values[4]; /* state, whether all users are there, total, free */
    if (!bt_span_word(&line, &name_word) || !bt_span_word(&line, &pci_word) || !read_numbers(&line, values, 4))
        return 0;
    copy_span(name, sizeof name, name_word);
    copy_span(pci, sizeof pci, bt_span_is(pci_word, "-") ? bt_span_of("") : pci_word);
    uint32_t at = pool_of(s, name, pci);
    if (at == 0) return 0;
    bt_pools_one *pool = &s->pools.items[at];
    bool reported = values[0] == BT_READING_REPORTED;
    s->shown[at] = s->was_shown[at] = true;
    pool->state = (bt_pool_state)values[0];
    pool->users_complete = values[1] == 1;
    copy_span(pool->reason, sizeof pool->reason, line);
    if (reported) pool->total_bytes = (bt_known){true, values[2]};
    pool->free_bytes = (bt_known){reported, values[3]};
    return at;
}

/* The copy's answer is our own text: what does not read as such is left out. */
static void take_devices(bt_sampler *s, const char *text) {
    bt_span rest = bt_span_of(text), line, kind;
    uint32_t at = 0;
    s->pools.n_users = 0;
    while (bt_span_line(&rest, &line)) {
        if (!bt_span_word(&line, &kind)) continue;
        if (bt_span_is(kind, "D")) at = add_device(s, line);
        if (bt_span_is(kind, "U") && at > 0) add_user(&s->pools, at, line);
    }
    while (s->pools.n > 1 && is_dead(s, s->pools.n - 1))
        s->pools.n--;
}

/* A reading that failed is not "nothing there": what was known keeps its size, and what is free is not known. */
static void lose(bt_pools_one *pool, const char *reason) {
    pool->state = BT_READING_FAILED;
    pool->free_bytes = (bt_known){0};
    pool->users_complete = false;
    (void)snprintf(pool->reason, sizeof pool->reason, "%.159s", reason);
}

/* Named in the configuration with a size (a card that only Vulkan knows): where nobody shows it, its word is all there
 * is. */
static void add_named(bt_sampler *s) {
    for (uint32_t i = 0; i < s->config->n_devices; i++)
        if (s->config->devices[i].budget_bytes.known &&
            bt_pools_find(&s->pools, s->config->devices[i].name) == UINT32_MAX)
            (void)add_pool(s, s->config->devices[i].name);
}

static bool has_shown(const bt_sampler *s) {
    for (uint32_t i = 1; i < s->pools.n; i++)
        if (s->was_shown[i]) return true;
    return false;
}

/* err: the devices could not be asked. */
static void settle_devices(bt_sampler *s, const bt_error *err) {
    add_named(s);
    for (uint32_t i = 1; i < s->pools.n; i++) {
        bt_pools_one *pool = &s->pools.items[i];
        if (err) {
            lose(pool, err->text);
        } else if (!s->shown[i] && s->was_shown[i]) {
            lose(pool, "its driver does not show it any more");
        } else if (!s->shown[i]) {
            pool->state = BT_READING_ABSENT;
            pool->reason[0] = '\0';
        }
        apply_config(s, pool);
    }
}

static void publish(bt_sampler *s) {
    uint64_t delay_ms = s->busy ? BUSY_MS : IDLE_MS;
    s->pools.ready = true;
    s->pools.began_ms = s->began_ms;
    for (uint32_t i = 1; i < s->pools.n; i++) {
        bt_pools_one *pool = &s->pools.items[i];
        pool->whole_bytes = pool->total_bytes;
        pool->available_bytes = pool->free_bytes;
    }
    bt_loop_timer_set(s->loop, &s->timer, s->asked ? 0 : delay_ms);
    s->asked = false;
    s->on_sample(s->user);
}

static void note_hang(bt_sampler *s, bool hung) {
    s->hang_ms = hung ? bt_min_u64(bt_max_u64(2 * s->hang_ms, HANG_MIN_MS), HANG_MAX_MS) : 0;
    s->ask_at_ms = hung ? bt_loop_now_ms(s->loop) + s->hang_ms : 0;
}

static void on_devices(void *user, const bt_text *answer, const bt_error *err) {
    bt_sampler *s = user;
    s->aside = NULL;
    bt_pools_read_host(&s->pools, s->root, s->config);
    memset(s->shown, 0, sizeof s->shown);
    note_hang(s, err && err->sys == ETIMEDOUT);
    if (err) {
        s->pools.n_users = 0;
    } else {
        take_devices(s, bt_text_str(answer));
        s->no_devices = !has_shown(s);
    }
    settle_devices(s, err);
    publish(s);
}

static void sample(void *user) {
    bt_sampler *s = user;
    if (s->aside) return; /* its end is a sample too */
    bt_error why = {0};
    s->began_ms = bt_loop_now_ms(s->loop);
    bool blind = s->no_devices || bt_loop_now_ms(s->loop) < s->ask_at_ms;
    if (!blind && bt_aside_start(s->loop, read_devices, s, ASIDE_MAX_MS, on_devices, s, &s->aside, &why) == BT_OK)
        return;
    if (!blind) {
        on_devices(s, NULL, &why);
        return;
    }
    bt_pools_read_host(&s->pools, s->root, s->config);
    publish(s);
}

bt_status bt_sampler_open(bt_loop *loop, const char *root, const bt_config *config, void (*on_sample)(void *user),
                          void *user, bt_sampler **ret, bt_error *err) {
    bt_sampler *s = bt_heap_alloc(sizeof *s);
    if (!s) return bt_fail_sys(err, ENOMEM, "probe", "no memory to watch the machine");
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
    s->ask_at_ms = 0;
    bt_sampler_ask(s);
}

void bt_sampler_pace(bt_sampler *s, bool busy) {
    /* Only brought forward: requests that follow each other would put it off for ever. */
    bool late = s->timer.set && s->timer.at_ms > bt_loop_now_ms(s->loop) + BUSY_MS;
    if (busy && !s->busy && !s->aside && late) bt_loop_timer_set(s->loop, &s->timer, BUSY_MS);
    s->busy = busy;
}

void bt_sampler_ask(bt_sampler *s) {
    s->asked = s->aside != NULL;
    if (!s->aside) bt_loop_timer_set(s->loop, &s->timer, 0);
}
