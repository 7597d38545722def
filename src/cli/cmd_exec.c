/* SPDX-License-Identifier: MIT
 *
 * cmd_exec.c: `burthen exec -- llama-server ...`: a llama.cpp command that cannot run out of memory.
 *
 *   command, its files                      -> judge (guard/judge.h) -> decision -> argv' -> execve
 *   devices and host now (NVML, the kernel) /
 *
 * What is decided is src/guard's; here is how long it is waited for, what is said, and what is started. A device is
 * never opened: the program that is started owns it alone. A start that would be changed or refused is decided again
 * while memory of a program that has just ended comes back (guard/reclaim.h). The command takes this process's place:
 * same pid, its signals and exit status are the command's own. What cannot be read or known leaves it as it was typed,
 * and is said.
 */
#include "base/beside.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/exec_budget.h"
#include "cli/exec_memo.h"
#include "cli/logs.h"
#include "cli/planning.h"
#include "guard/judge.h"
#include "guard/reclaim.h"
#include "guard/said.h"
#include "plan/offload.h"
#include "probe/probe.h"
#include "report/report.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_REFUSED     3   /* docs/interfaces.md */
#define EXIT_CANNOT      126 /* POSIX: found, and cannot be started */
#define EXIT_NOT_FOUND   127
#define REPORT_MAX_BYTES (1u << 20)

typedef struct executing {
    const bt_cli_options *options;
    char *const *argv; /* the command, NULL at the end */
    bt_judge judge;
    bt_drop_in_bench bench; /* with --ram-budget, of llama-bench */
    bt_machine machine;
    bt_exec_memo memo;
    bt_guard_decision decision;
    bt_exec_budget *budget; /* --ram-budget; NULL: none */
    bt_exec_hold hold;      /* --hold */
} executing;

/* ---- the decision ---- */

static const char *of_environment(void *context, const char *name) {
    (void)context;
    return getenv(name);
}

static bt_judge_settings settings_of(const bt_cli_options *options) {
    return (bt_judge_settings){
        .devices = options->wishes.devices,
        .n_devices = options->wishes.n_devices,
        .target_bytes = {options->target_vram_given, options->target_vram_bytes},
        .host_bytes = {options->hold_given, options->hold_bytes},
        .min_gpu_fraction = options->min_gpu_fraction,
        .degrade = options->degrade,
        .vision_overhead_bytes = {options->vision_overhead_given, options->vision_overhead_bytes},
    };
}

static bt_status read_machine(executing *x, bt_error *err) {
    const bt_cli_options *options = x->options;
    if (options->machine_file) {
        BT_TRY(bt_planning_machine(options, &x->machine, err));
    } else {
        BT_TRY(bt_machine_probe(options->root, &x->machine, err));
        BT_TRY(bt_machine_devices_probe(options->root, &x->machine, err));
    }
    return BT_OK;
}

static bt_reclaim_outcome outcome_of(const executing *x) {
    if (!bt_judge_free_bytes(&x->judge).known) return BT_RECLAIM_BLIND;
    if (!x->decision.priced) return BT_RECLAIM_KEEPS; /* what has nothing to do with memory does not change with it */
    switch (x->decision.kind) {
    case BT_GUARD_REFUSED:
        return BT_RECLAIM_REFUSES;
    case BT_GUARD_TRIMMED:
    case BT_GUARD_OFFLOADED:
        return BT_RECLAIM_DEGRADES;
    case BT_GUARD_UNCHANGED:
    case BT_GUARD_PASSED:
    case BT_GUARD_BUDGETED:
        break;
    }
    return BT_RECLAIM_KEEPS;
}

static void pause_before_probe(void) {
    struct timespec left = {.tv_nsec = (long)BT_RECLAIM_INTERVAL_MS * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

/* What a refusal depends on, but for what is free: the command, what it reads, and what is asked of it. */
static void recall(executing *x, int64_t now_ms) {
    const bt_cli_options *options = x->options;
    bt_exec_memo *memo = &x->memo;
    const uint64_t asked[] = {
        options->target_vram_given,     options->target_vram_bytes, options->degrade,   options->vision_overhead_given,
        options->vision_overhead_bytes, options->hold_given,        options->hold_bytes};
    bt_exec_memo_begin(memo);
    for (uint32_t i = 0; x->argv[i]; i++)
        bt_exec_memo_add(memo, x->argv[i], strlen(x->argv[i]));
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "LLAMA_", 6) == 0) bt_exec_memo_add(memo, *variable, strlen(*variable));
    const bt_judge *judge = &x->judge;
    for (uint32_t i = 0; i < judge->n_files; i++)
        bt_exec_memo_add(memo, bt_text_str(&judge->files[i]), judge->files[i].n_bytes);
    if (judge->facts) bt_exec_memo_add(memo, judge->facts->header_sha256, strlen(judge->facts->header_sha256));
    bt_exec_memo_add(memo, asked, sizeof asked);
    bt_exec_memo_add(memo, &options->min_gpu_fraction, sizeof options->min_gpu_fraction);
    for (uint32_t i = 0; i < options->wishes.n_devices; i++) {
        const bt_device_wish *wish = &options->wishes.devices[i];
        bt_exec_memo_add(memo, wish->name, strlen(wish->name));
        bt_exec_memo_add(memo, &wish->budget_bytes.value, sizeof wish->budget_bytes.value);
    }
    bt_exec_memo_read(memo, now_ms);
}

static void say_remembered(executing *x, int64_t now_ms) {
    size_t n = strlen(x->decision.reason);
    (void)snprintf(x->decision.reason + n, sizeof x->decision.reason - n, " (refused %lld s ago too: not waited again)",
                   (long long)((now_ms - x->memo.memo.at_ms) / 1000));
}

/* Again and again while what is free still rises; not for what was refused a moment ago and has no more now. A machine
 * that was written down does not change, nor do sizes that were given. */
static bt_status decide_with_patience(executing *x, bt_error *err) {
    const bt_cli_options *options = x->options;
    bt_reclaim reclaim = {0};
    bool remembered = false;
    for (;;) {
        BT_TRY(read_machine(x, err));
        BT_TRY(bt_judge_decide(&x->judge, &x->machine, &x->decision, err));
        bool waits = !options->no_wait && !options->machine_file && !options->root[0] && x->judge.n_seen > 0;
        bool keeps = waits && !options->dry_run;
        bt_reclaim_outcome outcome = outcome_of(x);
        bt_known have = bt_judge_free_bytes(&x->judge);
        if (keeps && reclaim.n_readings == 0) {
            recall(x, bt_os_unix_ms());
            remembered = outcome == BT_RECLAIM_REFUSES && bt_memo_hit(&x->memo.memo, have, bt_os_unix_ms(), NULL);
        }
        bt_reclaim_step step = bt_reclaim_next(&reclaim, outcome, have.value, waits && !remembered);
        if (step == BT_RECLAIM_PROBE) {
            pause_before_probe();
            continue;
        }
        if (remembered)
            say_remembered(x, bt_os_unix_ms());
        else if (keeps && step == BT_RECLAIM_REFUSE)
            bt_exec_memo_keep(&x->memo, have.value, bt_os_unix_ms());
        else if (keeps)
            bt_exec_memo_forget(&x->memo);
        return BT_OK;
    }
}

/* ---- under a RAM budget ---- */

static bool wants_budget(const bt_cli_options *options) {
    return options->budget_given && options->wishes.budget_kind != BT_BUDGET_OFF;
}

static bt_exec_budget_ask budget_ask(const executing *x) {
    const bt_judge *judge = &x->judge;
    bool benches = judge->command.program == BT_PROGRAM_BENCH;
    return (bt_exec_budget_ask){.options = x->options,
                                .argv = x->argv,
                                .command = &judge->command,
                                .effective = &judge->effective,
                                .bench = benches ? &x->bench : NULL,
                                .facts = judge->facts,
                                .adapter_bytes = bt_judge_adapter_bytes(judge)};
}

/* A budget is held or the command is not started: nothing is passed on here. What cannot be held is refused like what
 * does not fit. */
static bt_status refuse_drop_in(executing *x, const bt_error *why, bt_status status, bt_error *err) {
    if (status == BT_OK || strcmp(why->code, "drop_in") != 0) {
        if (err) *err = *why;
        return status;
    }
    x->decision = (bt_guard_decision){.kind = BT_GUARD_REFUSED};
    (void)snprintf(x->decision.code, sizeof x->decision.code, "drop_in");
    (void)snprintf(x->decision.reason, sizeof x->decision.reason, "%s", why->text);
    return BT_OK;
}

static bt_status plan_budget(executing *x, bt_error *err) {
    x->budget = bt_heap_alloc(sizeof *x->budget);
    if (!x->budget) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    bt_judge *judge = &x->judge;
    const bt_command *command = &judge->command;
    if (command->program == BT_PROGRAM_NONE)
        return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "no budget can be held: %s",
                       command->reason);
    if (command->program == BT_PROGRAM_BENCH) BT_TRY(bt_drop_in_bench_read(x->argv + command->first, &x->bench, err));
    bt_judge_read(judge, x->bench.model);
    if (!judge->facts && judge->facts_error.status != BT_OK) {
        *err = judge->facts_error;
        return err->status;
    }
    if (!judge->facts)
        return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "no budget can be held: %s",
                       judge->facts_reason);
    const bt_exec_budget_ask ask = budget_ask(x);
    const bt_plan *plan = &x->budget->plan;
    BT_TRY(bt_exec_budget_plan(x->budget, &ask, err));
    bool refused = plan->verdict == BT_REFUSED;
    x->decision = (bt_guard_decision){.kind = refused ? BT_GUARD_REFUSED : BT_GUARD_BUDGETED};
    (void)snprintf(x->decision.code, sizeof x->decision.code, "%.23s", refused ? plan->refusal.code : "");
    if (refused) {
        (void)snprintf(x->decision.reason, sizeof x->decision.reason, "%s", plan->refusal.message);
        return BT_OK;
    }
    (void)snprintf(x->decision.reason, sizeof x->decision.reason,
                   "%s of %s planned, context %u, %u of %u units in memory%s", BT_SIZE(plan->planned_bytes),
                   BT_SIZE(plan->budget_bytes), plan->n_ctx, plan->n_pinned, plan->n_units,
                   plan->verdict == BT_STREAMS ? ", the others are read for each pass" : "");
    return bt_exec_budget_apply(x->budget, &ask, &judge->rewrite, err);
}

/* A device that is named without a size must be one that is seen from here: nothing would be held to it. */
static bt_status check_devices(executing *x, bt_error *err) {
    const bt_wishes *wishes = &x->options->wishes;
    bool has_read = false;
    for (uint32_t i = 0; i < wishes->n_devices; i++) {
        if (wishes->devices[i].budget_bytes.known) continue;
        if (!has_read) BT_TRY(read_machine(x, err));
        has_read = true;
        BT_TRY(bt_offers_know(&x->machine, wishes->devices[i].name, err));
    }
    return BT_OK;
}

/* Of this machine: one that was written down has not seen any. */
static void recall_runs(executing *x) {
    if (x->options->machine_file || x->options->root[0] || !bt_guard_is_llama(x->judge.command.program)) return;
    bt_judge_read(&x->judge, NULL);
    bt_judge_recall(&x->judge);
}

/* A program of llama.cpp's that no folder of PATH has, and that came with this one (an installation's llama-server,
 * which is not in PATH since it is of one version alone): its folder becomes the last of PATH, for wrappers too. */
static void offer_own_program(const executing *x) {
    char path[PATH_MAX];
    const bt_command *command = &x->judge.command;
    const char *name = x->argv[command->program_at];
    const char *folders = getenv("PATH");
    if (command->program == BT_PROGRAM_NONE || command->container || strchr(name, '/')) return;
    if (bt_beside_program(name, path, sizeof path) || !bt_beside_find(name, X_OK, path, sizeof path)) return;
    *strrchr(path, '/') = '\0';
    bt_text value;
    bt_text_init(&value, REPORT_MAX_BYTES);
    bt_text_addf(&value, "%s%s%s", folders ? folders : "", folders && folders[0] ? ":" : "", path);
    if (!value.failed && setenv("PATH", bt_text_str(&value), 1) == 0 && !x->options->quiet)
        (void)fprintf(stderr, "burthen: note: %s is not in PATH: the one in %s is taken\n", name, path);
    bt_text_done(&value);
}

static bt_status decide(executing *x, bt_error *err) {
    const bt_judge_input input = {.argv = x->argv, .settings = settings_of(x->options), .env = of_environment};
    bt_judge *judge = &x->judge;
    BT_TRY(check_devices(x, err));
    BT_TRY(bt_judge_open(judge, &input, err));
    offer_own_program(x);
    if (wants_budget(x->options)) {
        bt_error why = {0};
        return refuse_drop_in(x, &why, plan_budget(x, &why), err);
    }
    if (judge->command.program == BT_PROGRAM_NONE) return bt_judge_decide(judge, &x->machine, &x->decision, err);
    recall_runs(x);
    BT_TRY(decide_with_patience(x, err));
    for (uint32_t i = 0; i < judge->n_notes; i++)
        bt_log_say("note: %s", judge->notes[i]);
    return bt_judge_apply(judge, &x->decision, err);
}

/* ---- the end ---- */

static int print_argv(const executing *x) {
    bt_text text;
    bt_text_init(&text, REPORT_MAX_BYTES);
    for (uint32_t i = 0; i < x->judge.rewrite.n_argv; i++) {
        bt_text_add(&text, x->judge.rewrite.argv[i]);
        bt_text_add(&text, "\n");
    }
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    return code;
}

static bt_status say_json(const executing *x, char **ret_json, bt_error *err) {
    const bt_exec_budget *budget = x->budget;
    if (!budget) return bt_guard_said_json(&x->decision, &x->judge.rewrite, ret_json, err);
    char *plan = NULL;
    if (budget->plan.n_ctx > 0)
        BT_TRY(bt_report_plan_json(&budget->plan, x->judge.facts, &budget->machine, &plan, err));
    bt_status status =
        bt_guard_budget_json(&x->decision, &x->judge.rewrite, budget->env, budget->n_env, plan, ret_json, err);
    bt_heap_free(plan);
    return status;
}

static int print_json(const executing *x) {
    bt_error err = {0};
    char *json = NULL;
    if (say_json(x, &json, &err) != BT_OK) return bt_cli_fail(&err);
    int code = bt_cli_print_bytes(json, strlen(json));
    bt_heap_free(json);
    return code;
}

static void say(const executing *x) {
    bt_text text;
    if (x->options->quiet && x->decision.kind != BT_GUARD_REFUSED) return;
    bt_text_init(&text, REPORT_MAX_BYTES);
    bt_guard_said_text(&x->decision, &x->judge.rewrite, &text);
    if (x->budget && x->budget->plan.n_ctx > 0 && (x->decision.kind == BT_GUARD_REFUSED || x->options->verbose))
        bt_report_plan_text(&x->budget->plan, x->judge.facts, &text);
    else if (x->decision.kind == BT_GUARD_REFUSED)
        bt_guard_ledger_text(&x->decision, &text);
    bt_cli_log_table(&text, x->decision.kind == BT_GUARD_REFUSED);
    bt_text_done(&text);
}

static void enter_leaf(executing *x) {
    bt_text note;
    bt_text_init(&note, REPORT_MAX_BYTES);
    bt_exec_budget_enter(x->budget, &note);
    if (note.n_bytes > 0) bt_log_say("budgeted: %s", bt_text_str(&note));
    bt_text_done(&note);
}

static void enter_hold(executing *x) {
    bt_error why = {0};
    const bt_leaf *leaf = &x->hold.leaf;
    bool held = bt_exec_hold_enter(&x->hold, x->options->hold_bytes, &why);
    if (held)
        bt_log_say("held: the kernel holds it to %s as a whole, in %s", BT_SIZE(leaf->limit_bytes), leaf->folder);
    else
        bt_log_say("not held: %s", why.text);
}

/* With a word in front, as all that is said here: what follows is the command's own, and a router that starts it tells
 * the two apart. A model that cannot be read has an exit code of its own, and names of those nearby. */
static int fail(const executing *x, const bt_error *err) {
    const bt_judge *judge = &x->judge;
    const char *model = x->bench.model ? x->bench.model : judge->effective.model.text;
    bt_error said = *err;
    (void)snprintf(said.text, sizeof said.text, "error: %.380s", err->text);
    return model && judge->facts_error.status != BT_OK ? bt_cli_fail_model(&said, model) : bt_cli_fail(&said);
}

static int start(executing *x) {
    char *const *argv = x->judge.rewrite.argv;
    (void)fflush(NULL);
    if (x->budget) {
        const bt_exec_budget_ask ask = budget_ask(x);
        bt_error why = {0};
        if (bt_exec_budget_prepare(x->budget, &ask, &x->judge.rewrite, &why) != BT_OK) {
            int code = fail(x, &why);
            return strcmp(why.code, "drop_in") == 0 ? EXIT_REFUSED : code;
        }
        enter_leaf(x);
    } else if (x->options->hold_given) {
        enter_hold(x);
    }
    (void)execvp(argv[0], argv);
    int sys = errno;
    if (x->budget) bt_exec_budget_leave(x->budget);
    bt_exec_hold_leave(&x->hold);
    bt_error err = {0};
    (void)bt_fail_sys(&err, sys, "exec", "cannot start %s", argv[0]);
    (void)bt_cli_fail(&err);
    return sys == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT;
}

static int conclude(executing *x) {
    const bt_cli_options *options = x->options;
    bool refused = x->decision.kind == BT_GUARD_REFUSED;
    say(x);
    if (options->dry_run || (options->json && refused)) {
        int code = options->json ? print_json(x) : refused ? 0 : print_argv(x);
        if (code != 0) return code;
    }
    if (refused) return EXIT_REFUSED;
    return options->dry_run ? 0 : start(x);
}

static void close_all(executing *x) {
    bt_judge_close(&x->judge);
    if (x->budget) bt_exec_budget_close(x->budget);
    bt_heap_free(x->budget);
    bt_heap_free(x);
}

/* --ram-budget has a limit of its own, of which the plan says how large it must be. */
static bt_status check_options(const bt_cli_options *options, bt_error *err) {
    if (!options->hold_given || !wants_budget(options)) return BT_OK;
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                   "--hold and --ram-budget: a RAM budget has a limit of its own; give one of them");
}

int bt_cmd_exec(const bt_cli_options *options, bt_option_result *args) {
    bt_error err = {0};
    if (check_options(options, &err) != BT_OK) return bt_cli_fail(&err);
    executing *x = bt_heap_alloc(sizeof *x); /* too large for the stack */
    char **argv = bt_heap_array((size_t)args->n_args + 1, sizeof *argv);
    if (!x || !argv) {
        (void)bt_fail(&err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to read a command");
        bt_heap_free(x);
        bt_heap_free(argv);
        return bt_cli_fail(&err);
    }
    for (uint32_t i = 0; i < args->n_args; i++)
        argv[i] = (char *)(uintptr_t)args->args[i]; /* execve takes what argv was */
    x->options = options;
    x->argv = argv;
    int code = decide(x, &err) == BT_OK ? conclude(x) : fail(x, &err);
    close_all(x);
    bt_heap_free(argv);
    return code;
}
