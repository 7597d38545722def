/* SPDX-License-Identifier: MIT
 *
 * cmd_exec.c: `burthen exec -- llama-server ...`: a llama.cpp command that cannot run out of memory.
 *
 *   command -> where the program starts (wrappers) -> its options, environment, files -> settings
 *   model, draft, projector: headers               -> exact prices      -> decision -> argv' -> execve
 *   devices and host now (NVML, the kernel)        -> what is free      /
 *
 * The decision is src/guard's; here is who is asked, in which order, and what is said. A device is never opened: the
 * program that is started owns it alone. A start that would be changed or refused is decided again while memory of a
 * program that has just ended comes back (guard/reclaim.h). The command takes this process's place: same pid, its
 * signals and exit status are the command's own. What cannot be read or known leaves it as it was typed, and is said.
 */
#include "base/arena.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/exec_budget.h"
#include "cli/exec_memo.h"
#include "cli/planning.h"
#include "guard/engines.h"
#include "guard/reclaim.h"
#include "guard/said.h"
#include "plan/plan.h"
#include "probe/probe.h"
#include "report/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXIT_REFUSED     3   /* docs/interfaces.md */
#define EXIT_CANNOT      126 /* POSIX: found, and cannot be started */
#define EXIT_NOT_FOUND   127
#define ARENA_MAX_BYTES  (64u << 20)
#define ARENA_BLOCK      (64u << 10)
#define CONFIG_MAX_BYTES (1u << 20) /* of a config.ini, which is a page long */
#define CONFIG_FILES_MAX 8u
#define REPORT_MAX_BYTES (1u << 20)

typedef struct executing {
    const bt_cli_options *options;
    char *const *argv; /* the command, NULL at the end */
    bt_arena *arena;
    bt_command command;
    const bt_argv *parsed;
    bt_effective effective;
    bt_drop_in_bench bench; /* with --ram-budget, in the place of effective */
    bt_text files[CONFIG_FILES_MAX];
    uint32_t n_files;
    bt_facts *facts, *draft;
    bt_projector *projector;
    char facts_reason[200]; /* why the model cannot be read; empty: it can */
    bt_machine machine;
    bt_guard_device devices[BT_POOL_MAX];
    uint32_t n_devices;
    uint32_t n_read; /* of these, whose memory is read and can change */
    bt_exec_memo memo;
    bt_rewrite rewrite;
    bt_guard_decision decision;
    bt_exec_budget *budget; /* --ram-budget; NULL: none */
} executing;

/* ---- what the command says ---- */

static const char *of_environment(void *context, const char *name) {
    (void)context;
    return getenv(name);
}

static bt_config_state read_config(void *context, const char *path, const char **ret_text, size_t *ret_n) {
    executing *x = context;
    if (access(path, F_OK) != 0) return BT_CONFIG_ABSENT;
    if (x->n_files == CONFIG_FILES_MAX) return BT_CONFIG_FAILED;
    bt_text *text = &x->files[x->n_files++];
    bt_text_init(text, CONFIG_MAX_BYTES);
    if (bt_cli_read_file(path, text, NULL) != BT_OK) return BT_CONFIG_FAILED;
    *ret_text = bt_text_str(text);
    *ret_n = text->n_bytes;
    return BT_CONFIG_READ;
}

static void pass(executing *x, const char *reason) {
    x->decision = (bt_guard_decision){.kind = BT_GUARD_PASSED};
    (void)snprintf(x->decision.reason, sizeof x->decision.reason, "%s", reason);
}

static bt_status read_command(executing *x, bt_error *err) {
    bt_command_find(x->argv, &x->command);
    BT_TRY(bt_argv_parse(x->arena, x->argv, x->command.first, x->command.program, &x->parsed, err));
    BT_TRY(bt_rewrite_open(&x->rewrite, x->arena, x->parsed, err));
    if (x->command.program == BT_PROGRAM_NONE) return BT_OK;
    const bt_effective_input input = {.command = &x->command,
                                      .argv = x->parsed,
                                      .env = of_environment,
                                      .read = x->command.container ? NULL : read_config,
                                      .read_context = x};
    return bt_effective_resolve(x->arena, &input, &x->effective, err);
}

/* ---- files ---- */

static void read_model(executing *x) {
    const char *path = x->bench.model ? x->bench.model : x->effective.model.text;
    bt_error why = {0};
    const char *reason = NULL;
    if (x->command.container) reason = "its files are inside a container";
    if (!reason && !path) reason = "it names no local model file";
    if (!reason && !bt_guard_names_gguf(path)) reason = "its model is no .gguf file";
    if (!reason && bt_facts_open(path, &x->facts, &why) != BT_OK) reason = why.text;
    if (reason) (void)snprintf(x->facts_reason, sizeof x->facts_reason, "%.199s", reason);
}

/* A draft or a projector that cannot be read is left to the program, which says so itself. */
static void read_companions(executing *x) {
    const bt_effective *e = &x->effective;
    bt_error why = {0};
    if (!x->facts) return;
    if (e->draft_model.text && bt_facts_open(e->draft_model.text, &x->draft, &why) != BT_OK)
        (void)fprintf(stderr, "burthen: note: the draft model is not priced: %s\n", why.text);
    if (e->mmproj.text && bt_projector_open(e->mmproj.text, &x->projector, &why) != BT_OK)
        (void)fprintf(stderr, "burthen: note: the projector is not priced: %s\n", why.text);
}

static uint64_t file_bytes(const bt_adapters *adapters) {
    uint64_t sum = 0;
    struct stat found;
    for (uint32_t i = 0; i < adapters->n; i++)
        if (stat(adapters->items[i].path, &found) == 0) sum = bt_sat_add_u64(sum, (uint64_t)found.st_size);
    return sum;
}

/* ---- devices ---- */

static const bt_device_wish *wish_of(const executing *x, const char *name) {
    const bt_wishes *wishes = &x->options->wishes;
    for (uint32_t i = 0; i < wishes->n_devices; i++)
        if (strcmp(wishes->devices[i].name, name) == 0) return &wishes->devices[i];
    return NULL;
}

static void add_device(executing *x, const bt_pool *pool, bt_known target_bytes) {
    if (x->n_devices < BT_POOL_MAX) x->devices[x->n_devices++] = (bt_guard_device){*pool, target_bytes};
}

/* All that the machine shows, and what was named with a size and cannot be seen from here (Vulkan0=2G). */
static void list_devices(executing *x) {
    x->n_devices = 0;
    x->n_read = 0;
    for (uint32_t i = 1; i < x->machine.n_pools; i++) {
        const bt_device_wish *wish = wish_of(x, x->machine.pools[i].name);
        add_device(x, &x->machine.pools[i], wish ? wish->budget_bytes : (bt_known){0});
        x->n_read = x->n_devices;
    }
    for (uint32_t i = 0; i < x->options->wishes.n_devices; i++) {
        const bt_device_wish *wish = &x->options->wishes.devices[i];
        bool seen = false;
        for (uint32_t k = 1; k < x->machine.n_pools; k++)
            seen = seen || strcmp(x->machine.pools[k].name, wish->name) == 0;
        if (seen || !wish->budget_bytes.known) continue;
        bt_pool pool = {.kind = BT_POOL_GPU,
                        .state = BT_READING_REPORTED,
                        .free_bytes = wish->budget_bytes.value,
                        .total_bytes = wish->budget_bytes.value};
        memcpy(pool.name, wish->name, sizeof pool.name);
        add_device(x, &pool, wish->budget_bytes);
    }
}

static bt_status read_machine(executing *x, bt_error *err) {
    const bt_cli_options *options = x->options;
    if (options->machine_file) {
        BT_TRY(bt_planning_machine(options, &x->machine, err));
    } else {
        BT_TRY(bt_machine_probe(options->root, &x->machine, err));
        BT_TRY(bt_machine_devices_probe(options->root, &x->machine, err));
    }
    list_devices(x);
    return BT_OK;
}

/* Raw, of all devices; unknown where one does not say. */
static bt_known free_bytes(const executing *x) {
    bt_known sum = {x->n_devices > 0, 0};
    for (uint32_t i = 0; i < x->n_devices; i++) {
        if (x->devices[i].pool.state != BT_READING_REPORTED) return (bt_known){0};
        sum.value = bt_sat_add_u64(sum.value, x->devices[i].pool.free_bytes);
    }
    return sum;
}

/* ---- the decision ---- */

static bt_guard_settings settings_of(const executing *x) {
    const bt_cli_options *options = x->options;
    bt_wishes wishes = {.budget_kind = BT_BUDGET_AUTO};
    bt_budget host = bt_budget_resolve(&x->machine, &wishes);
    return (bt_guard_settings){
        .target_bytes = {options->target_vram_given, options->target_vram_bytes},
        .min_gpu_fraction = options->min_gpu_fraction,
        .degrade = options->degrade,
        .host_free_bytes = {host.bytes != UINT64_MAX && host.state == BT_READING_REPORTED, host.bytes},
        .fit_target = options->target_vram_given || options->wishes.n_devices > 0,
    };
}

static bt_status decide(executing *x, bt_error *err) {
    const bt_guard_ask ask = {
        .price = {.effective = &x->effective,
                  .facts = x->facts,
                  .draft = x->draft,
                  .projector = x->projector,
                  .lora_bytes = file_bytes(&x->effective.loras),
                  .control_vector_bytes = file_bytes(&x->effective.control_vectors),
                  .vision_overhead_bytes = {x->options->vision_overhead_given, x->options->vision_overhead_bytes},
                  .devices = x->devices,
                  .n_devices = x->n_devices,
                  .arena = x->arena},
        .facts_reason = x->facts ? NULL : x->facts_reason,
        .settings = settings_of(x),
    };
    return bt_guard_place(&ask, &x->decision, err);
}

static bt_reclaim_outcome outcome_of(const executing *x) {
    if (!free_bytes(x).known) return BT_RECLAIM_BLIND;
    switch (x->decision.kind) {
    case BT_GUARD_REFUSED: /* what has nothing to do with memory does not change with it */
        return x->decision.priced ? BT_RECLAIM_REFUSES : BT_RECLAIM_KEEPS;
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
    const uint64_t asked[] = {options->target_vram_given, options->target_vram_bytes, options->degrade,
                              options->vision_overhead_given, options->vision_overhead_bytes};
    bt_exec_memo_begin(memo);
    for (uint32_t i = 0; x->argv[i]; i++)
        bt_exec_memo_add(memo, x->argv[i], strlen(x->argv[i]));
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "LLAMA_", 6) == 0) bt_exec_memo_add(memo, *variable, strlen(*variable));
    for (uint32_t i = 0; i < x->n_files; i++)
        bt_exec_memo_add(memo, bt_text_str(&x->files[i]), x->files[i].n_bytes);
    if (x->facts) bt_exec_memo_add(memo, x->facts->header_sha256, strlen(x->facts->header_sha256));
    bt_exec_memo_add(memo, asked, sizeof asked);
    bt_exec_memo_add(memo, &options->min_gpu_fraction, sizeof options->min_gpu_fraction);
    for (uint32_t i = 0; i < options->wishes.n_devices; i++) {
        const bt_device_wish *wish = &options->wishes.devices[i];
        bt_exec_memo_add(memo, wish->name, strlen(wish->name));
        bt_exec_memo_add(memo, &wish->budget_bytes.value, sizeof wish->budget_bytes.value);
    }
    bt_exec_memo_read(memo, now_ms);
}

static int64_t unix_ms(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
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
    bool waits = !options->no_wait && !options->machine_file && !options->root[0] && x->n_read > 0;
    bool keeps = waits && !options->dry_run;
    bool remembered = false;
    if (keeps) recall(x, unix_ms());
    for (;;) {
        BT_TRY(read_machine(x, err));
        BT_TRY(decide(x, err));
        bt_reclaim_outcome outcome = outcome_of(x);
        bt_known have = free_bytes(x);
        if (keeps && reclaim.n_readings == 0)
            remembered = outcome == BT_RECLAIM_REFUSES && bt_memo_hit(&x->memo.memo, have, unix_ms(), NULL);
        bt_reclaim_step step = bt_reclaim_next(&reclaim, outcome, have.value, waits && !remembered);
        if (step == BT_RECLAIM_PROBE) {
            pause_before_probe();
            continue;
        }
        if (remembered)
            say_remembered(x, unix_ms());
        else if (keeps && step == BT_RECLAIM_REFUSE)
            bt_exec_memo_keep(&x->memo, have.value, unix_ms());
        else if (keeps)
            bt_exec_memo_forget(&x->memo);
        return BT_OK;
    }
}

/* ---- under a RAM budget ---- */

static bool wants_budget(const executing *x) {
    return x->options->budget_given && x->options->wishes.budget_kind != BT_BUDGET_OFF;
}

static bt_exec_budget_ask budget_ask(const executing *x) {
    uint64_t adapter_bytes = bt_sat_add_u64(file_bytes(&x->effective.loras), file_bytes(&x->effective.control_vectors));
    bool benches = x->command.program == BT_PROGRAM_BENCH;
    return (bt_exec_budget_ask){.options = x->options,
                                .argv = x->argv,
                                .command = &x->command,
                                .effective = &x->effective,
                                .bench = benches ? &x->bench : NULL,
                                .facts = x->facts,
                                .adapter_bytes = adapter_bytes};
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
    if (x->command.program == BT_PROGRAM_NONE)
        return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "no budget can be held: %s",
                       x->command.reason);
    if (x->command.program == BT_PROGRAM_BENCH)
        BT_TRY(bt_drop_in_bench_read(x->argv + x->command.first, &x->bench, err));
    read_model(x);
    if (!x->facts)
        return bt_fail(err, BT_E_UNSUPPORTED, "drop_in", BT_MEASURE_NONE, 0, 0, "no budget can be held: %s",
                       x->facts_reason);
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
    return bt_exec_budget_apply(x->budget, &ask, &x->rewrite, err);
}

static bt_status judge(executing *x, bt_error *err) {
    BT_TRY(read_command(x, err));
    if (wants_budget(x)) {
        bt_error why = {0};
        return refuse_drop_in(x, &why, plan_budget(x, &why), err);
    }
    if (x->command.program == BT_PROGRAM_NONE) {
        pass(x, x->command.reason);
        return BT_OK;
    }
    BT_TRY(read_machine(x, err));
    const bt_engine_ask engine = {.argv = x->parsed, .free_bytes = free_bytes(x), .sam_on_cpu = true};
    bt_engine_decision other;
    BT_TRY(bt_guard_engine(&engine, &x->rewrite, &other, err));
    if (other.known) {
        pass(x, other.reason);
        x->decision.kind = other.changed ? BT_GUARD_OFFLOADED : BT_GUARD_UNCHANGED;
        return BT_OK;
    }
    if (x->command.program == BT_PROGRAM_BENCH) {
        pass(x, "llama-bench runs many settings, one after another");
        return BT_OK;
    }
    read_model(x);
    read_companions(x);
    BT_TRY(decide_with_patience(x, err));
    return bt_guard_apply(&x->decision, &x->rewrite, err);
}

/* ---- the end ---- */

static int print_argv(const executing *x) {
    bt_text text;
    bt_text_init(&text, REPORT_MAX_BYTES);
    for (uint32_t i = 0; i < x->rewrite.n_argv; i++) {
        bt_text_add(&text, x->rewrite.argv[i]);
        bt_text_add(&text, "\n");
    }
    int code = bt_cli_print_bytes(bt_text_str(&text), text.n_bytes);
    bt_text_done(&text);
    return code;
}

static bt_status say_json(const executing *x, char **ret_json, bt_error *err) {
    const bt_exec_budget *budget = x->budget;
    if (!budget) return bt_guard_said_json(&x->decision, &x->rewrite, ret_json, err);
    char *plan = NULL;
    if (budget->plan.n_ctx > 0) BT_TRY(bt_report_plan_json(&budget->plan, x->facts, &budget->machine, &plan, err));
    bt_status status = bt_guard_budget_json(&x->decision, &x->rewrite, budget->env, budget->n_env, plan, ret_json, err);
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
    bt_guard_said_text(&x->decision, &x->rewrite, &text);
    if (x->budget && x->budget->plan.n_ctx > 0 && (x->decision.kind == BT_GUARD_REFUSED || x->options->verbose))
        bt_report_plan_text(&x->budget->plan, x->facts, &text);
    else if (x->decision.kind == BT_GUARD_REFUSED)
        bt_guard_ledger_text(&x->decision, &text);
    (void)fputs(bt_text_str(&text), stderr);
    bt_text_done(&text);
}

static void enter_leaf(executing *x) {
    bt_text note;
    bt_text_init(&note, REPORT_MAX_BYTES);
    bt_exec_budget_enter(x->budget, &note);
    if (note.n_bytes > 0 && !x->options->quiet) (void)fprintf(stderr, "burthen: budgeted: %s\n", bt_text_str(&note));
    bt_text_done(&note);
}

static int start(executing *x) {
    char *const *argv = x->rewrite.argv;
    (void)fflush(NULL);
    if (x->budget) {
        const bt_exec_budget_ask ask = budget_ask(x);
        bt_error why = {0};
        if (bt_exec_budget_prepare(x->budget, &ask, &x->rewrite, &why) != BT_OK) {
            int code = bt_cli_fail(&why);
            return strcmp(why.code, "drop_in") == 0 ? EXIT_REFUSED : code;
        }
        enter_leaf(x);
    }
    (void)execvp(argv[0], argv);
    int sys = errno;
    if (x->budget) bt_exec_budget_leave(x->budget);
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
    for (uint32_t i = 0; i < x->n_files; i++)
        bt_text_done(&x->files[i]);
    bt_facts_close(x->facts);
    bt_facts_close(x->draft);
    bt_projector_close(x->projector);
    if (x->budget) bt_exec_budget_close(x->budget);
    bt_heap_free(x->budget);
    bt_arena_close(x->arena);
    bt_heap_free(x);
}

int bt_cmd_exec(const bt_cli_options *options, bt_option_result *args) {
    bt_error err = {0};
    executing *x = bt_heap_alloc(sizeof *x); /* too large for the stack */
    char **argv = bt_heap_array((size_t)args->n_args + 1, sizeof *argv);
    if (x) x->arena = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK);
    if (!x || !argv || !x->arena) {
        (void)bt_fail(&err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to read a command");
        if (x) close_all(x);
        bt_heap_free(argv);
        return bt_cli_fail(&err);
    }
    for (uint32_t i = 0; i < args->n_args; i++)
        argv[i] = (char *)(uintptr_t)args->args[i]; /* execve takes what argv was */
    x->options = options;
    x->argv = argv;
    int code = judge(x, &err) == BT_OK ? conclude(x) : bt_cli_fail(&err);
    close_all(x);
    bt_heap_free(argv);
    return code;
}
