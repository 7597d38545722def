/* SPDX-License-Identifier: MIT
 *
 * plugin.c: libggml-burthen.so, a ggml backend for programs of llama.cpp's own.
 *
 *     GGML_BACKEND_PATH=libggml-burthen.so BURTHEN_PLAN=plan.json llama-server -dev Burthen0 -ngl 999 ...
 *
 * ggml loads it, asks for a registry, and finds one device in it: Burthen0. `burthen exec --ram-budget` writes the
 * whole line (docs/interfaces.md). Where the library cannot work it offers no device and says why, once, in the
 * program's own log; the program then ends at "-dev Burthen0", or without that option runs as it would without us.
 *
 * BURTHEN_PLAN_PID, where it is set, is the one process that may have the budget: what that starts in turn, with its
 * environment, must not have it a second time. */

#include "plugin/holder.h"
#include "plugin/program.h"
#include "plugin/watch.h"

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "report/report.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the program's log ---- */

static void on_log(const bt_log_entry *entry, void *user) {
    const char *message = entry->message;
    (void)user;
    switch (entry->level) {
    case BT_LOG_ERROR:
        GGML_LOG_ERROR("burthen: %s\n", message);
        break;
    case BT_LOG_WARN:
        GGML_LOG_WARN("burthen: %s\n", message);
        break;
    case BT_LOG_INFO:
        GGML_LOG_INFO("burthen: %s\n", message);
        break;
    case BT_LOG_DEBUG:
        GGML_LOG_DEBUG("burthen: %s\n", message);
        break;
    }
}

static void on_failure(const bt_error *err, void *user) {
    (void)user;
    bt_log(BT_LOG_ERROR, "%s", err->text);
}

/* ---- a registry with nothing in it ---- */

static const char *no_name(ggml_backend_reg_t reg) {
    (void)reg;
    return "Burthen";
}

static size_t no_devices(ggml_backend_reg_t reg) {
    (void)reg;
    return 0;
}

static ggml_backend_dev_t no_device(ggml_backend_reg_t reg, size_t index) {
    (void)reg;
    (void)index;
    return NULL;
}

static struct ggml_backend_reg nothing = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = {.get_name = no_name, .get_device_count = no_devices, .get_device = no_device},
};

/* ---- the device ---- */

static bt_holder *holder; /* of this process, for good */
static bt_watch watch;

/* Contexts may compute at the same time: one of them looks. */
static void on_graph(void *user) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (pthread_mutex_trylock(&lock) != 0) return;
    bt_watch_look(user);
    pthread_mutex_unlock(&lock);
}

static bt_status check_process(bt_error *err) {
    const char *text = getenv("BURTHEN_PLAN_PID");
    char *end = NULL;
    long pid = text ? strtol(text, &end, 10) : 0;
    if (!text || (end != text && *end == '\0' && pid == (long)getpid())) return BT_OK;
    return bt_fail(err, BT_E_UNSUPPORTED, "plan_process", BT_MEASURE_NONE, 0, 0,
                   "the budget belongs to process %s, this is %ld: nothing is held here", text, (long)getpid());
}

static bt_status open_holder(bt_error *err) {
    const char *path = getenv("BURTHEN_PLAN");
    if (!path || !path[0])
        return bt_fail(err, BT_E_UNSUPPORTED, "no_plan", BT_MEASURE_NONE, 0, 0,
                       "BURTHEN_PLAN is not set: nothing is held; burthen exec --ram-budget SIZE -- sets it");
    BT_TRY(bt_program_check(err));
    BT_TRY(check_process(err));
    /* As in our own engine (engine/engine.c): what was freed goes back to the system, from one heap for all threads. */
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 64 * 1024);
    static char version[64];
    (void)snprintf(version, sizeof version, "ggml %s", ggml_version());
    bt_report_init(version);
    const bt_holder_calls calls = {.heard = on_failure, .ran = on_graph, .user = &watch};
    BT_TRY(bt_holder_open(path, &calls, &holder, err));
    watch =
        (bt_watch){.holder = holder, .stats_path = getenv("BURTHEN_GUEST_STATS"), .learned = getenv("BURTHEN_LEARN")};
    return BT_OK;
}

static void say_plan(void) {
    const bt_plan *plan = bt_holder_plan(holder);
    bt_log(BT_LOG_INFO,
           "budget %s, planned %s for a context of %u: %u of %u units in memory, the others are read for "
           "each pass",
           BT_SIZE(plan->budget_bytes), BT_SIZE(plan->planned_bytes), plan->n_ctx, plan->n_pinned, plan->n_units);
}

static ggml_backend_reg_t registry = &nothing;

static void init(void) {
    bt_error err = {0};
    bt_log_set(on_log, NULL, BT_LOG_INFO);
    if (open_holder(&err) != BT_OK) {
        bt_log(BT_LOG_ERROR, "%s", err.text);
        return;
    }
    registry = ggml_backend_dev_backend_reg(bt_device_ggml(bt_holder_device(holder)));
    say_plan();
}

/* llama.cpp's programs load all backends more than once (-dev, -ot); a registry that is known is not added again. */
GGML_BACKEND_API ggml_backend_reg_t ggml_backend_init(void);

ggml_backend_reg_t ggml_backend_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, init);
    return registry;
}
