/* SPDX-License-Identifier: MIT
 *
 * exec_budget.c: `burthen exec --ram-budget SIZE -- llama-server ...` (docs/design.md M9).
 *
 *   settings of the command -> wishes -> plan by dry run, as for `run` -> argv' -> plan.json in a file without a name
 *   -> GGML_BACKEND_PATH, BURTHEN_PLAN -> does the program list Burthen0? -> cmd_exec.c starts it in our place
 *
 * The command cannot run without the device once it is started: its line names it (-dev Burthen0), and llama.cpp ends
 * at a device that is not there. Whether it will be there is asked before, since the program's own words about it stand
 * among many others. What the program holds beside the model is its base: measured of each program, and learned when
 * more was seen. */
#include "cli/exec_budget.h"

#include "base/beside.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "cli/child.h"
#include "cli/commands.h"
#include "cli/planning.h"
#include "cli/promise.h"
#include "engine/engine.h"
#include "guard/base_costs.h"
#include "probe/probe.h"
#include "report/report.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PRELOAD_NAME "libburthen-grammar.so"
#define PLUGIN_NAME  "libggml-burthen.so"
#define ARENA_BLOCK  (64u << 10)
/* What a cgroup is charged for beside the process: its page tables, the kernel's own, files in passing (C1). */
#define LEAF_MARGIN_BYTES (UINT64_C(16) << 20)
#define PROBE_LIMIT_MS    30000u /* llama-server --list-devices takes some 100 ms */
#define PROBE_MAX_BYTES   (256u << 10)
#define SAID_BYTES        200 /* of what the program said */

/* ---- the plan ---- */

static bt_cli_options options_of(const bt_exec_budget_ask *ask, const bt_drop_in *drop_in) {
    bt_cli_options options = *ask->options;
    bt_wishes wishes = bt_drop_in_wishes(drop_in, ask->effective, ask->facts, ask->adapter_bytes);
    wishes.budget_kind = ask->options->wishes.budget_kind;
    wishes.budget_bytes = ask->options->wishes.budget_bytes;
    options.wishes = wishes;
    options.draft_file = ask->effective->draft_model.text;
    options.mmproj_file = ask->effective->mmproj.text;
    options.n_image_tokens =
        ask->effective->image_max_tokens.value > 0 ? (uint32_t)ask->effective->image_max_tokens.value : 0;
    options.plan_file = NULL;
    return options;
}

/* What is learned of a program holds for this very file of it, this model, these slots. */
static void name_learned(bt_exec_budget *budget, const bt_exec_budget_ask *ask, char *const *argv) {
    char path[PATH_MAX];
    const bt_wishes *wishes = &budget->options.wishes;
    char settings[64];
    (void)snprintf(settings, sizeof settings, "burthen %s, %s%s", BT_VERSION, bt_engine_build_version(),
                   wishes->embeddings ? ", embeddings" : "");
    bool found = bt_beside_program(argv[ask->command->program_at], path, sizeof path) &&
                 bt_learned_name(path, ask->facts->header_sha256, wishes->n_parallel, settings, budget->learned);
    if (!found) budget->learned[0] = '\0';
}

static bt_status make_plan(bt_exec_budget *budget, const bt_exec_budget_ask *ask, bt_error *err) {
    const bt_cli_options *options = &budget->options;
    if (options->machine_file)
        BT_TRY(bt_planning_machine(options, &budget->machine, err));
    else
        BT_TRY(bt_machine_probe(options->root, &budget->machine, err));
    budget->arena = bt_arena_open(BT_PLANNING_ARENA_BYTES, ARENA_BLOCK);
    if (!budget->arena) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    bt_known learned = {0};
    if (budget->learned[0]) bt_learned_read(budget->learned, &learned);
    uint64_t base_bytes = bt_guest_base_bytes(ask->command->program);
    if (learned.known) base_bytes = bt_max_u64(base_bytes, learned.value);
    return bt_planning_exact(options, ask->facts, &budget->machine, base_bytes, bt_planning_one_row, budget->arena,
                             &budget->placed, &budget->plan, err);
}

bt_status bt_exec_budget_plan(bt_exec_budget *budget, const bt_exec_budget_ask *ask, bt_error *err) {
    bt_drop_in drop_in;
    if (ask->command->container)
        return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0,
                       "a program in a container cannot be given the memory device from outside: run burthen in it");
    if (ask->command->forks)
        return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0,
                       "%s starts the program as a process of its own, and the budget is one process's: put it before "
                       "burthen (%s ... burthen exec ...)",
                       ask->command->forks, ask->command->forks);
    BT_TRY(ask->bench ? bt_drop_in_bench_wish(ask->bench, ask->facts, &drop_in, err)
                      : bt_drop_in_read(ask->effective, ask->facts, &drop_in, err));
    if (!bt_beside_find(PLUGIN_NAME, R_OK, budget->plugin, sizeof budget->plugin) ||
        !bt_beside_find(PRELOAD_NAME, R_OK, budget->preload, sizeof budget->preload))
        return bt_fail(err, BT_E_IO, "drop_in", BT_MEASURE_NONE, 0, 0, "%s and %s are not beside this program",
                       PLUGIN_NAME, PRELOAD_NAME);
    bt_error why = {0};
    bt_status status = bt_cli_engine_init(&why);
    if (status == BT_E_UNSUPPORTED)
        return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "%s", why.text);
    if (status != BT_OK) {
        if (err) *err = why;
        return status;
    }
    budget->options = options_of(ask, &drop_in);
    name_learned(budget, ask, ask->argv);
    for (uint32_t i = 0; i < BT_PROMISE_TRIES_MAX; i++) {
        bool again = false;
        bt_placed_close(&budget->placed);
        bt_arena_close(budget->arena);
        budget->arena = NULL;
        BT_TRY(make_plan(budget, ask, err));
        bool starts = budget->plan.verdict != BT_REFUSED && !ask->options->dry_run;
        if (starts) BT_TRY(bt_promise_make(&budget->options, &budget->plan, &budget->machine, &again, err));
        if (!again) return BT_OK;
        bt_log(BT_LOG_INFO, "another run promised memory meanwhile: planning again");
    }
    return bt_promise_crowded(&budget->plan, err);
}

bt_status bt_exec_budget_apply(bt_exec_budget *budget, const bt_exec_budget_ask *ask, bt_rewrite *rewrite,
                               bt_error *err) {
    budget->env[0] = (bt_guard_env){"GGML_BACKEND_PATH", budget->plugin};
    budget->env[1] = (bt_guard_env){"BURTHEN_PLAN", NULL};
    budget->env[2] = (bt_guard_env){"LD_PRELOAD", budget->preload};
    budget->n_env = 3;
    if (ask->bench) return bt_drop_in_bench_apply(ask->bench, &budget->plan, rewrite, err);
    return bt_drop_in_apply(ask->effective, &budget->plan, rewrite, err);
}

/* ---- what the command finds ---- */

/* A file that is gone with the last process that has it open. */
static bt_status keep_plan(bt_exec_budget *budget, const bt_exec_budget_ask *ask, bt_error *err) {
    char *json = NULL;
    BT_TRY(bt_report_plan_json(&budget->plan, ask->facts, &budget->machine, &json, err));
    int fd = memfd_create("burthen-plan", 0); /* stays open in the command */
    int sys = fd < 0 ? errno : 0;
    if (fd >= 0) sys = -bt_os_write(fd, json, strlen(json));
    bt_heap_free(json);
    if (fd >= 0) budget->plan_fd = fd;
    if (sys != 0) return bt_fail_sys(err, sys, "drop_in", "cannot hand over the plan");
    (void)snprintf(budget->plan_path, sizeof budget->plan_path, "/proc/self/fd/%d", fd);
    budget->env[1].value = budget->plan_path;
    return BT_OK;
}

static bt_status set(const char *name, const char *value, bt_error *err) {
    if (setenv(name, value, 1) == 0) return BT_OK;
    return bt_fail_sys(err, errno, "drop_in", "cannot set %s", name);
}

/* Before what the user preloads, if anything: both are loaded. */
static bt_status set_preload(const bt_exec_budget *budget, bt_error *err) {
    const char *others = getenv("LD_PRELOAD");
    bt_text value;
    bt_text_init(&value, PROBE_MAX_BYTES);
    bt_text_add(&value, budget->preload);
    if (others && others[0]) bt_text_addf(&value, ":%s", others);
    bt_status status = bt_text_memory(&value, err);
    if (status == BT_OK && value.failed)
        status = bt_fail(err, BT_E_LIMIT, "drop_in", BT_MEASURE_BYTES, 0, PROBE_MAX_BYTES, "LD_PRELOAD is too long");
    if (status == BT_OK) status = set("LD_PRELOAD", bt_text_str(&value), err);
    bt_text_done(&value);
    return status;
}

/* The line on which the library says why it offers no device, else the last one. */
static const char *reason_in(char *said) {
    char *found = strstr(said, "burthen: ");
    char *line = found;
    if (!found) {
        for (size_t n = strlen(said); n > 0 && (said[n - 1] == '\n' || said[n - 1] == ' '); n--)
            said[n - 1] = '\0';
        char *last = strrchr(said, '\n');
        line = last ? last + 1 : said;
    }
    line[strcspn(line, "\n")] = '\0';
    return line;
}

/* Ask the program for its devices, behind its own wrappers. One that is not found is not asked: that it cannot be
 * started is said where it is. */
static bt_status ask_program(const bt_exec_budget *budget, const bt_exec_budget_ask *ask, const bt_rewrite *rewrite,
                             bt_error *err) {
    uint32_t n = ask->command->first;
    char path[PATH_MAX];
    if (!bt_beside_program(rewrite->argv[0], path, sizeof path)) return BT_OK;
    char **argv = bt_arena_array(budget->arena, (uint64_t)n + 2, sizeof *argv);
    if (!argv) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to ask the program");
    memcpy(argv, rewrite->argv, n * sizeof *argv);
    argv[n] = (char[]){"--list-devices"};
    bt_text said;
    bt_text_init(&said, PROBE_MAX_BYTES);
    const bt_child child = {.program = argv[0],
                            .argv = argv,
                            .errors_too = true,
                            .limit_ms = PROBE_LIMIT_MS,
                            .what = "asking the program for its devices"};
    int code = 0;
    bt_status status = bt_child_run(&child, &said, &code, err);
    char words[SAID_BYTES] = "";
    bool lists = status == BT_OK && code == 0 && strstr(bt_text_str(&said), "Burthen0:");
    char *copy = status == BT_OK && !lists ? bt_arena_strdup(budget->arena, bt_text_str(&said)) : NULL;
    if (copy) (void)snprintf(words, sizeof words, "%s", reason_in(copy));
    bt_text_done(&said);
    if (status != BT_OK || lists) return status;
    return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0,
                   "%s cannot use the memory device: it says \"%s\"", ask->argv[ask->command->program_at], words);
}

bt_status bt_exec_budget_prepare(bt_exec_budget *budget, const bt_exec_budget_ask *ask, const bt_rewrite *rewrite,
                                 bt_error *err) {
    BT_TRY(keep_plan(budget, ask, err));
    BT_TRY(set("GGML_BACKEND_PATH", budget->plugin, err));
    BT_TRY(set("BURTHEN_PLAN", budget->plan_path, err));
    BT_TRY(set_preload(budget, err));
    if (budget->learned[0]) BT_TRY(set("BURTHEN_LEARN", budget->learned, err));
    if (unsetenv("BURTHEN_PLAN_PID") != 0) return bt_fail_sys(err, errno, "drop_in", "cannot change the environment");
    BT_TRY(ask_program(budget, ask, rewrite, err));
    (void)snprintf(budget->pid, sizeof budget->pid, "%ld", (long)getpid());
    return set("BURTHEN_PLAN_PID", budget->pid, err);
}

void bt_exec_budget_enter(bt_exec_budget *budget, bt_text *note) {
    bt_error err = {0};
    const bt_plan *plan = &budget->plan;
    /* A limit counts the page cache too. Where the system has room to spare and weights may stand there, it must not
     * take that away: the model's pages go first when memory is short. */
    uint64_t cached_bytes = plan->page_cache ? budget->placed.facts->file_bytes : 0;
    uint64_t limit_bytes = bt_sat_add_u64(bt_sat_add_u64(plan->budget_bytes, LEAF_MARGIN_BYTES), cached_bytes);
    if (plan->budget_bytes == UINT64_MAX) return;
    const bt_leaf *leaf = &budget->hold.leaf;
    if (bt_exec_hold_enter(&budget->hold, limit_bytes, &err))
        bt_text_addf(note, "the kernel holds it to %s as a whole%s, in %s", BT_SIZE(leaf->limit_bytes),
                     cached_bytes > 0 ? ", with the model's pages in the page cache" : "", leaf->folder);
    else
        bt_text_addf(note, "the device's lines are held, the program as a whole is not: %s", err.text);
}

void bt_exec_budget_leave(bt_exec_budget *budget) {
    bt_exec_hold_leave(&budget->hold);
}

void bt_exec_budget_close(bt_exec_budget *budget) {
    if (budget->plan_fd > 0) (void)close(budget->plan_fd);
    bt_placed_close(&budget->placed);
    bt_arena_close(budget->arena);
    budget->arena = NULL;
}
