/* SPDX-License-Identifier: MIT
 *
 * running.c: from options to a loaded model with a context. What it held in the end: running_measure.c.
 *
 *   ggml and llama.cpp started, code brought in -> base measured -> facts -> plan by dry run -> printed
 *   -> refused: exit 3           -> promised (probe/reservations.h) -> loaded -> context -> the command's own work
 *
 * The base is measured before the model is opened, so that nothing of the model hides in it (docs/design.md C2). */
#include "cli/running.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "base/size.h"
#include "cli/drafting.h"
#include "cli/logs.h"
#include "cli/promise.h"
#include "cli/running_internal.h"
#include "device/measured.h"
#include "engine/devices.h"
#include "plan/plan.h"
#include "probe/probe.h"
#include "probe/reservations.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define EXIT_REFUSED     3 /* docs/interfaces.md */
#define ARENA_BLOCK      (64u << 10)
#define REPORT_MAX_BYTES (1u << 20)           /* a plan's text is some kilobytes; its JSON grows with the units */
#define SENTENCE_BYTES   4096                 /* what the log takes */
#define BAR_AFTER_NS     UINT64_C(2000000000) /* docs/interfaces.md: progress on loading over 2 s */

/* ---- signals ---- */

static volatile sig_atomic_t signal_came;

static void on_signal(int number) {
    signal_came = number;
    (void)signal(number, SIG_DFL); /* the second one kills */
}

static void catch_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that goes away is a failed write, reported as such */
}

int bt_running_signal(void) {
    return signal_came;
}

/* Without it ggml starts a debugger on us, prints a trace and raises SIGABRT. Nothing is left to save: the text so far
 * is out, and a promise ends with the process. */
static void on_ggml_abort(const char *message) {
    const char *why =
        bt_engine_was_refused_memory() ? "the system refused it memory; look at ulimit -v and ulimit -d: " : "";
    bt_error err = {0};
    (void)bt_fail(&err, BT_E_DEVICE, "llama_abort", BT_MEASURE_NONE, 0, 0, "llama.cpp cannot go on: %s%.250s", why,
                  message);
    _exit(bt_cli_fail(&err));
}

void bt_cli_catch_aborts(void) {
    static bool caught; /* others may have put themselves before it since */
    if (!caught) bt_engine_on_abort(on_ggml_abort);
    caught = true;
}

bt_status bt_cli_engine_init(bt_error *err) {
    bt_cli_catch_aborts();
    return bt_engine_init(err);
}

void bt_running_signal_clear(void) {
    signal_came = 0;
    catch_signals();
}

static bool should_abort(void *user) {
    (void)user;
    return signal_came != 0;
}

int bt_running_fail(const bt_error *err) {
    if (err->status == BT_E_CANCELLED && signal_came != 0) return 128 + signal_came;
    return bt_cli_fail(err);
}

/* ---- planning ---- */

static int print_plan(const bt_running *running) {
    const bt_cli_options *options = running->options;
    bool refused = running->plan.verdict == BT_REFUSED && !running->plan.forced;
    bt_error err = {0};
    if (options->json && refused) {
        char *json = NULL;
        if (bt_report_plan_json(&running->plan, running->facts, &running->machine, &json, &err) != BT_OK)
            return bt_cli_fail(&err);
        int code = bt_cli_print_bytes(json, strlen(json));
        bt_heap_free(json);
        return code;
    }
    if (options->quiet && !refused) return 0;
    bt_text text;
    bt_text_init(&text, REPORT_MAX_BYTES);
    bt_report_plan_text(&running->plan, running->facts, &text);
    bt_planning_lock_text(options, &running->plan, &running->machine, &text);
    bt_drafting_text(options, running->facts, &running->plan, &text);
    bt_cli_log_table(&text, refused);
    bt_text_done(&text);
    return 0;
}

static bt_status make_plan(bt_running *running, bt_outputs_fn outputs, bt_error *err) {
    const bt_cli_options *options = running->options;
    BT_TRY(bt_planning_machine(options, &running->machine, err));
    running->arena = bt_arena_open(BT_PLANNING_ARENA_BYTES, ARENA_BLOCK);
    if (!running->arena) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to make a plan");
    bt_placed_close(&running->placed);
    running->facts = running->whole;
    if (options->plan_file)
        BT_TRY(bt_planning_load(options, running->whole, &running->machine, running->arena, &running->placed,
                                &running->plan, err));
    else
        BT_TRY(bt_planning_exact(options, running->whole, &running->machine, running->base_bytes, outputs,
                                 running->arena, &running->placed, &running->plan, err));
    running->facts = running->placed.facts;
    return BT_OK;
}

/* ---- beside other budgets ---- */

/* Plan, then promise what the plan takes; planned anew while others are faster. */
static bt_status plan_beside_others(bt_running *running, bt_outputs_fn outputs, bt_error *err) {
    for (uint32_t i = 0; i < BT_PROMISE_TRIES_MAX; i++) {
        bt_arena_close(running->arena);
        running->arena = NULL;
        BT_TRY(make_plan(running, outputs, err));
        bool again = false;
        if (running->plan.verdict == BT_REFUSED && !running->plan.forced) return BT_OK;
        BT_TRY(bt_promise_make(running->options, &running->plan, &running->machine, &again, err));
        if (!again) return BT_OK;
        bt_log(BT_LOG_INFO, "another run promised memory meanwhile: planning again");
    }
    return bt_promise_crowded(&running->plan, err);
}

/* A plan from a file may have been made for less than is asked of it now. */
static bt_status check_plan(const bt_running *running, bt_error *err) {
    const bt_wishes *asked = &running->options->wishes;
    const bt_wishes *planned = &running->plan.wishes;
    if ((!asked->chat || planned->chat) && (!asked->session || planned->session || planned->chat)) return BT_OK;
    return bt_fail(err, BT_E_STALE, "plan_stale", BT_MEASURE_NONE, 0, 0,
                   "the plan has no room for a %s: make it with --chat", asked->chat ? "conversation" : "session file");
}

/* ---- loading ---- */

typedef struct load_progress {
    bt_terminal *terminal;
    uint64_t start_ns;
} load_progress;

static bool show_progress(uint64_t done, uint64_t total, void *user) {
    load_progress *progress = user;
    if (bt_os_now_ns() - progress->start_ns > BAR_AFTER_NS) bt_terminal_bar(progress->terminal, "loading", done, total);
    return signal_came == 0;
}

static bt_reader_kind reader_of(const bt_cli_options *options) {
    static const bt_reader_kind readers[] = {BT_READER_AUTO, BT_READER_URING, BT_READER_PREAD};
    return readers[options->reader];
}

typedef struct load_check {
    const bt_running_asks *asks;
    bt_running *running;
} load_check;

/* A run without its draft model is slower, and no worse. */
static void open_draft(bt_running *running, bt_engine *engine) {
    bt_error err = {0};
    const bt_facts *facts = running->draft_facts;
    if (!facts) return;
    bt_status status = bt_draft_open(facts, engine, &running->plan, reader_of(running->options), &running->draft, &err);
    if (status != BT_OK) bt_log(BT_LOG_WARN, "the draft model %.200s guesses nothing: %s", facts->path, err.text);
}

/* The model's vocabulary is there, and none of its weights. */
static bt_status on_vocab(bt_engine *engine, void *user, bt_error *err) {
    const load_check *c = user;
    if (c->asks->check) BT_TRY(c->asks->check(engine, &c->running->plan, c->asks->check_user, err));
    open_draft(c->running, engine);
    return BT_OK;
}

static void close_draft(bt_running *running) {
    bt_draft_close(running->draft);
    running->draft = NULL;
}

static void on_failure(void *user) {
    const load_check *c = user;
    close_draft(c->running);
}

/* ---- locking ---- */

/* Pins, ring and caches are there; what graphs add later is locked as it is charged. A run that may not lock goes on:
 * it was promised memory, not that the system keeps it there. */
static void lock(bt_running *running) {
    if (!bt_running_wants_lock(running)) return;
    bt_account_lock(bt_engine_account(running->engine));
    bt_locked locked;
    bt_running_measure_lock(running, &locked);
    bt_log(BT_LOG_INFO, "locked %s of %s", BT_SIZE(locked.locked_bytes), BT_SIZE(locked.asked_bytes));
    bt_running_warn_of_lock(running, &locked);
}

/* ggml decides for itself what it repacks on this processor; a plan may come from another. */
static void say_layouts(const bt_running *running) {
    const bt_layouts *planned = &running->plan.layouts;
    bt_layouts held;
    if (planned->n_replaced == 0 && planned->n_second == 0) return;
    bt_device_layouts_read(bt_engine_device(running->engine), &held);
    bool is_less = held.n_replaced < planned->n_replaced || held.n_second < planned->n_second;
    bt_log(is_less ? BT_LOG_WARN : BT_LOG_INFO,
           "repacked %u weights in place (%s) and %u beside the plain layout (%s)%s", held.n_replaced,
           BT_SIZE(held.replaced_bytes), held.n_second, BT_SIZE(held.second_bytes),
           is_less ? ": fewer than planned, because ggml does not repack the others on this processor" : "");
}

/* ---- devices ---- */

/* What a device really gave, against what may be used of it. Others may have taken some meanwhile: that is no less
 * gone. */
static bt_status check_devices(const bt_running *running, bt_error *err) {
    const bt_offload *offload = running->plan.offload;
    for (uint32_t i = 0; offload && i < offload->split.n_devices; i++) {
        const bt_device_plan *device = &offload->devices[i];
        bt_known held = bt_engine_device_held_bytes(running->engine, i);
        if (!held.known) continue;
        bt_log(BT_LOG_INFO, "%s: %s of planned %s for %u blocks", device->name, BT_SIZE(held.value),
               BT_SIZE(bt_device_plan_bytes(device)), device->n_blocks);
        if (!device->budget_bytes.known || held.value <= device->budget_bytes.value) continue;
        return bt_fail(err, BT_E_DEVICE, "device_memory", BT_MEASURE_BYTES, held.value, device->budget_bytes.value,
                       "%u blocks on %s took %s, its budget is %s (%s)", device->n_blocks, device->name,
                       BT_SIZE(held.value), BT_SIZE(device->budget_bytes.value), device->budget_source);
    }
    return BT_OK;
}

/* What was learned only by trying. A device that cannot do it is no reason not to run, unless that was asked for. */
static bool may_do_without(const bt_running *running, const bt_error *err) {
    bool by_device = strcmp(err->code, "device_failed") == 0 || strcmp(err->code, "device_memory") == 0;
    return running->plan.offload && by_device && !running->options->wishes.require_device &&
           !running->options->plan_file;
}

static bt_status load(bt_running *running, bt_outputs_fn outputs, load_check *check, bt_error *err) {
    const bt_plan *plan = &running->plan;
    load_progress progress = {&running->terminal, bt_os_now_ns()};
    struct ggml_backend_device *devices[BT_DEVICE_MAX] = {NULL};
    if (plan->offload) BT_TRY(bt_devices_find(plan->offload, devices, err));
    bt_engine_params params = {
        .facts = running->facts,
        .devices = plan->offload ? devices : NULL,
        .plan = plan,
        .reader = reader_of(running->options),
        .reader_depth = running->machine.disk.depth,
        .reader_request_bytes = running->machine.disk.request_bytes,
        .n_threads = plan->n_threads,
        .progress = show_progress,
        .progress_user = &progress,
        .check = on_vocab,
        .uncheck = on_failure,
        .check_user = check,
    };
    bt_status status = bt_engine_open(&params, &running->engine, err);
    bt_terminal_bar_end(&running->terminal);
    if (status != BT_OK) return status;
    running->loaded_heap_bytes = bt_engine_heap_bytes(running->engine);
    say_layouts(running);
    const bt_reader *reader = bt_engine_reader(running->engine);
    const char *reason = bt_reader_reason(reader);
    bt_log(BT_LOG_INFO, "reading with %s%s%s", bt_device_reader_name(reader), reason[0] ? ": " : "", reason);
    bt_account_note(bt_engine_account(running->engine), BT_LINE_BASE, running->base_bytes);
    uint32_t n_outputs = (uint32_t)bt_max_u64(outputs(plan->n_ctx, plan->n_ubatch), plan->n_draft + UINT64_C(1));
    bt_session_params session = bt_session_params_of(plan, n_outputs);
    BT_TRY(bt_session_open(running->engine, &session, &running->session, err));
    BT_TRY(check_devices(running, err));
    bt_device_set_abort(bt_engine_device(running->engine), should_abort, NULL);
    if (running->draft) bt_draft_set_abort(running->draft, should_abort, NULL);
    running->loaded_own_bytes = bt_heap_live_bytes();
    if (plan->n_draft > 0) BT_TRY(bt_device_learn_same_rows(bt_engine_device(running->engine), err));
    lock(running);
    return BT_OK;
}

/* ggml's workers spin at each step until all are there: more of them than cores is slow by orders of magnitude. */
static void warn_of_threads(const bt_running *running) {
    uint32_t n_cores = running->machine.n_threads;
    if (n_cores > 0 && running->plan.n_threads > n_cores)
        bt_log(BT_LOG_WARN, "%u threads on %u cores wait for each other at every step; -t %u is faster",
               running->plan.n_threads, n_cores, n_cores);
}

static void warn_of_disk(const bt_running *running) {
    bt_text text;
    bt_text_init(&text, SENTENCE_BYTES);
    if (bt_report_disk_warning(&running->plan, &text)) bt_log(BT_LOG_WARN, "%s", bt_text_str(&text));
    bt_text_done(&text);
}

static int open_and_plan(bt_running *running, const char *model, bt_outputs_fn outputs, const bt_running_asks *asks) {
    bt_error err = {0};
    if (bt_cli_engine_init(&err) != BT_OK) return bt_cli_fail(&err);
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    running->base_bytes = memory.rss_bytes.value;
    if (bt_facts_open(model, &running->whole, &err) != BT_OK) return bt_cli_fail_model(&err, model);
    running->facts = running->whole;
    if (running->facts->encoder) {
        (void)bt_fail(
            &err, BT_E_UNSUPPORTED, "encoder", BT_MEASURE_NONE, 0, 0,
            "%s is an encoder: it turns text into vectors and generates none; plan and inspect say what it needs",
            running->facts->arch);
        return bt_running_fail(&err);
    }
    if (asks->on_facts && asks->on_facts(running->facts, asks->facts_user, &err) != BT_OK) return bt_running_fail(&err);
    if (plan_beside_others(running, outputs, &err) != BT_OK) return bt_running_fail(&err);
    warn_of_threads(running);
    warn_of_disk(running);
    if (check_plan(running, &err) != BT_OK) return bt_cli_fail(&err);
    int code = print_plan(running);
    if (code != 0) return code;
    if (running->plan.verdict == BT_REFUSED && !running->plan.forced) return EXIT_REFUSED;
    bt_status status = bt_drafting_facts(running->options, running->facts, &running->plan, &running->draft_facts, &err);
    return status == BT_OK ? 0 : bt_running_fail(&err);
}

/* Once more from the start, with nothing on devices. */
static int without_devices(bt_running *running, const char *model, bt_outputs_fn outputs, const bt_running_asks *asks) {
    running->host_options = *running->options;
    running->host_options.wishes.no_devices = true;
    running->host_options.wishes.n_devices = 0;
    bt_running_close(running);
    running->options = &running->host_options;
    return open_and_plan(running, model, outputs, asks);
}

int bt_running_open(const bt_cli_options *options, const char *model, bt_outputs_fn outputs, bt_running *running) {
    return bt_running_open_checked(options, model, outputs, NULL, NULL, running);
}

int bt_running_open_checked(const bt_cli_options *options, const char *model, bt_outputs_fn outputs,
                            bt_running_check check, const void *user, bt_running *running) {
    const bt_running_asks asks = {.check = check, .check_user = user};
    return bt_running_open_asking(options, model, outputs, &asks, running);
}

int bt_running_open_asking(const bt_cli_options *options, const char *model, bt_outputs_fn outputs,
                           const bt_running_asks *asks, bt_running *running) {
    memset(running, 0, sizeof *running);
    running->options = options;
    bt_terminal_open(&running->terminal, stderr, NULL);
    if (options->quiet) running->terminal.has_bar = false;
    catch_signals();
    bt_error err = {0};
    load_check asked = {asks, running};
    int code = open_and_plan(running, model, outputs, asks);
    bt_status status = code == 0 ? load(running, outputs, &asked, &err) : BT_OK;
    if (status != BT_OK && may_do_without(running, &err)) {
        bt_log(BT_LOG_WARN, "%s; going on with the host alone", err.text);
        code = without_devices(running, model, outputs, asks);
        status = code == 0 ? load(running, outputs, &asked, &err) : BT_OK;
    }
    if (status != BT_OK) code = bt_running_fail(&err);
    if (code != 0) bt_running_close(running);
    return code;
}

void bt_running_close(bt_running *running) {
    bt_reservation_drop();
    close_draft(running);
    bt_session_close(running->session);
    bt_engine_close(running->engine);
    bt_arena_close(running->arena);
    bt_facts_close(running->draft_facts);
    bt_placed_close(&running->placed);
    bt_facts_close(running->whole);
    running->draft_facts = NULL;
    running->session = NULL;
    running->engine = NULL;
    running->arena = NULL;
    running->facts = running->whole = NULL;
}

bt_generate_params bt_running_generate_params(const bt_running *running, const char *grammar) {
    const bt_cli_options *options = running->options;
    return (bt_generate_params){
        .sampling = {.temperature = options->greedy ? 0.0 : options->temperature,
                     .top_k = options->top_k,
                     .top_p = options->top_p,
                     .min_p = options->min_p,
                     .repeat_penalty = options->repeat_penalty,
                     .seed = options->seed,
                     .has_seed = options->seed_given,
                     .grammar = grammar},
        .n_predict = options->n_predict,
        .ignore_eos = options->ignore_eos,
        .n_draft = running->plan.n_draft,
        .looks_up = options->wishes.speculate != BT_SPECULATE_DRAFT,
        .draft = running->draft,
        .always = options->guess_always,
    };
}
