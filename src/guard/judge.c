/* SPDX-License-Identifier: MIT
 *
 * judge.c: what is asked, and in which order, between a command line and a decision about its memory.
 *
 *   argv -> where the program starts (wrappers) -> its options, environment, config files -> settings
 *   model, draft, projector: their headers                                                -> prices    -> decision
 *   a machine: devices and host now                                                       -> what is free /
 *
 * The command and its files are read once; a machine is looked at as often as somebody wants, and each look makes the
 * decision anew from the beginning: nothing of an earlier one is left in the rewrite. Who asks the machine, how long
 * he waits for memory to come back, what is said and what is started is the caller's.
 *
 * Bounds: an arena of ARENA_MAX_BYTES for the command, another for a decision; config files of BT_JUDGE_FILE_MAX. Left
 * out: a RAM budget (drop_in.h), which is a plan and no decision about a line that stays as it is. */
#include "guard/judge.h"

#include "base/beside.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "base/text_file.h"
#include "guard/engines.h"
#include "guard/visible.h"
#include "plan/plan.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_MAX_BYTES (64u << 20)
#define ARENA_BLOCK     (64u << 10)

/* ---- the command ---- */

bt_config_state bt_judge_read_file(void *context, const char *path, bt_text *text) {
    (void)context;
    if (access(path, F_OK) != 0) return BT_CONFIG_ABSENT;
    return bt_text_read_path(text, path) == 0 ? BT_CONFIG_READ : BT_CONFIG_FAILED;
}

static bt_config_state read_config(void *context, const char *path, const char **ret_text, size_t *ret_n) {
    bt_judge *judge = context;
    if (judge->n_files == BT_JUDGE_FILES_MAX) return BT_CONFIG_FAILED;
    bt_text *text = &judge->files[judge->n_files];
    bt_text_init(text, BT_JUDGE_FILE_MAX);
    bt_judge_file_read *read = judge->input.read ? judge->input.read : bt_judge_read_file;
    bt_config_state state = read(judge->input.read_context, path, text);
    if (state != BT_CONFIG_READ) {
        bt_text_done(text);
        return state;
    }
    judge->n_files++;
    *ret_text = bt_text_str(text);
    *ret_n = text->n_bytes;
    return BT_CONFIG_READ;
}

static bt_status read_command(bt_judge *judge, bt_error *err) {
    bt_command *command = &judge->command;
    bt_command_find(judge->input.argv, command);
    BT_TRY(bt_argv_parse(judge->arena, judge->input.argv, command->first, command->program, &judge->parsed, err));
    BT_TRY(bt_rewrite_open(&judge->rewrite, judge->arena, judge->parsed, err));
    if (command->program == BT_PROGRAM_NONE) return BT_OK;
    const bt_effective_input input = {.command = command,
                                      .argv = judge->parsed,
                                      .env = judge->input.env,
                                      .env_context = judge->input.env_context,
                                      .read = command->container ? NULL : read_config,
                                      .read_context = judge};
    return bt_effective_resolve(judge->arena, &input, &judge->effective, err);
}

bt_status bt_judge_open(bt_judge *judge, const bt_judge_input *input, bt_error *err) {
    judge->input = *input;
    judge->settings = input->settings;
    judge->arena = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK);
    bt_status status = judge->arena
                           ? read_command(judge, err)
                           : bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to read a command");
    if (status != BT_OK) bt_judge_close(judge);
    return status;
}

void bt_judge_close(bt_judge *judge) {
    for (uint32_t i = 0; i < judge->n_files; i++)
        bt_text_done(&judge->files[i]);
    bt_facts_close(judge->facts);
    bt_facts_close(judge->draft);
    bt_projector_close(judge->projector);
    bt_arena_close(judge->last);
    bt_arena_close(judge->arena);
    memset(judge, 0, sizeof *judge);
}

/* ---- its files ---- */

/* A draft or a projector that cannot be read is left to the program, which says so itself. */
static void note(bt_judge *judge, const char *what, const bt_error *why) {
    if (judge->n_notes == BT_JUDGE_NOTES_MAX) return;
    char *text = judge->notes[judge->n_notes++];
    (void)snprintf(text, sizeof judge->notes[0], "the %s is not priced: %s", what, why->text);
}

static void read_companions(bt_judge *judge) {
    const bt_effective *e = &judge->effective;
    bt_error why = {0};
    if (e->draft_model.text && bt_facts_open(e->draft_model.text, &judge->draft, &why) != BT_OK)
        note(judge, "draft model", &why);
    if (e->mmproj.text && bt_projector_open(e->mmproj.text, &judge->projector, &why) != BT_OK)
        note(judge, "projector", &why);
}

void bt_judge_read(bt_judge *judge, const char *model) {
    const char *path = model ? model : judge->effective.model.text;
    bt_error *why = &judge->facts_error;
    const char *reason = NULL;
    if (judge->has_read) return;
    judge->has_read = true;
    if (judge->command.container) reason = "its files are inside a container";
    if (!reason && !path) reason = "it names no local model file";
    if (!reason && !bt_guard_names_gguf(path)) reason = "its model is no .gguf file";
    if (!reason && bt_facts_open(path, &judge->facts, why) != BT_OK) reason = why->text;
    if (reason) (void)snprintf(judge->facts_reason, sizeof judge->facts_reason, "%.199s", reason);
    if (judge->facts && !model) read_companions(judge);
}

static uint64_t file_bytes(const bt_adapters *adapters) {
    uint64_t sum = 0;
    struct stat found;
    for (uint32_t i = 0; i < adapters->n; i++)
        if (stat(adapters->items[i].path, &found) == 0) sum = bt_sat_add_u64(sum, (uint64_t)found.st_size);
    return sum;
}

uint64_t bt_judge_adapter_bytes(const bt_judge *judge) {
    return bt_sat_add_u64(file_bytes(&judge->effective.loras), file_bytes(&judge->effective.control_vectors));
}

/* ---- former runs ---- */

/* Twins of its options, and what hides devices from it. */
static void add_variable(const bt_judge *judge, const char *name, bt_text *out) {
    const bt_judge_input *input = &judge->input;
    const char *value = bt_command_env(&judge->command, name, input->env, input->env_context);
    if (value && strcmp(name, "LLAMA_ARG_PORT") != 0 && strcmp(name, "LLAMA_ARG_ALIAS") != 0)
        bt_text_addf(out, "%s=%s\n", name, value);
}

static void add_variables(const bt_judge *judge, bt_text *out) {
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                        "GGML_VK_VISIBLE_DEVICES"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_variable(judge, names[i], out);
    for (uint32_t i = 0; i < BT_FLAG_COUNT; i++) {
        const bt_flag *row = bt_flag_get((bt_flag_id)i);
        if (row->variable && bt_flag_is_of((bt_flag_id)i, judge->command.program))
            add_variable(judge, row->variable, out);
    }
}

void bt_judge_recall(bt_judge *judge) {
    bt_text variables;
    char path[PATH_MAX];
    char *const *argv = judge->input.argv;
    bool has_program = judge->command.program != BT_PROGRAM_NONE;
    const char *program = argv[has_program ? judge->command.program_at : 0];
    bool found = program && bt_beside_program(program, path, sizeof path);
    bt_text_init(&variables, BT_JUDGE_FILE_MAX);
    add_variables(judge, &variables);
    bool whole = !variables.failed;
    if (whole)
        bt_footprint_name(found ? path : NULL, judge->facts ? judge->facts->header_sha256 : NULL,
                          judge->facts ? judge->facts->file_bytes : 0, argv, bt_text_str(&variables),
                          judge->footprint_name);
    bt_text_done(&variables);
    judge->seen = (bt_footprint){0};
    if (whole) bt_footprint_read(judge->footprint_name, &judge->seen);
}

/* ---- a machine ---- */

static const bt_device_wish *wish_of(const bt_judge_settings *settings, const char *name) {
    for (uint32_t i = 0; i < settings->n_devices; i++)
        if (strcmp(settings->devices[i].name, name) == 0) return &settings->devices[i];
    return NULL;
}

static bt_guard_device *add_device(bt_judge *judge, const bt_pool *pool, bt_known target_bytes) {
    if (judge->n_devices == BT_POOL_MAX) return NULL;
    bt_guard_device *device = &judge->devices[judge->n_devices++];
    *device = (bt_guard_device){.pool = *pool, .target_bytes = target_bytes};
    return device;
}

static bt_guard_device *add_pool(bt_judge *judge, const bt_pool *pool) {
    const bt_device_wish *wish = wish_of(&judge->settings, pool->name);
    return add_device(judge, pool, wish ? wish->budget_bytes : (bt_known){0});
}

static const bt_pool *find_cuda(const bt_machine *machine, uint32_t number) {
    for (uint32_t i = 1; i < machine->n_pools; i++)
        if (bt_visible_number(machine->pools[i].name) == number) return &machine->pools[i];
    return NULL;
}

static void read_visible(const bt_judge *judge, const bt_machine *machine, bt_visible *ret) {
    uint32_t n = 0;
    for (uint32_t i = 1; i < machine->n_pools; i++)
        if (bt_visible_number(machine->pools[i].name) != UINT32_MAX) n++;
    const bt_judge_input *input = &judge->input;
    const char *text = judge->command.container
                           ? NULL
                           : bt_command_env(&judge->command, "CUDA_VISIBLE_DEVICES", input->env, input->env_context);
    (void)bt_visible_read(text, n, ret);
}

/* Of those that CUDA counts only what the program is shown, as it counts them. */
static void look_at_pools(bt_judge *judge, const bt_machine *machine) {
    bt_visible visible;
    bool done = false;
    read_visible(judge, machine, &visible);
    for (uint32_t i = 1; i < machine->n_pools; i++) {
        if (visible.all || bt_visible_number(machine->pools[i].name) == UINT32_MAX) {
            (void)add_pool(judge, &machine->pools[i]);
            continue;
        }
        for (uint32_t k = 0; !done && k < visible.n; k++) {
            const bt_pool *pool = find_cuda(machine, visible.index[k]);
            bt_guard_device *device = pool ? add_pool(judge, pool) : NULL;
            if (device) (void)snprintf(device->seen_as, sizeof device->seen_as, "CUDA%u", k);
        }
        done = true;
    }
}

/* All that the machine shows, and what was named with a size and cannot be seen from here (Vulkan0=2G). */
static void look_at_devices(bt_judge *judge, const bt_machine *machine) {
    const bt_judge_settings *settings = &judge->settings;
    judge->n_devices = 0;
    look_at_pools(judge, machine);
    judge->n_seen = judge->n_devices;
    for (uint32_t i = 0; i < settings->n_devices; i++) {
        const bt_device_wish *wish = &settings->devices[i];
        bool seen = false;
        for (uint32_t k = 1; k < machine->n_pools; k++)
            seen = seen || strcmp(machine->pools[k].name, wish->name) == 0;
        if (seen || !wish->budget_bytes.known) continue;
        bt_pool pool = {.kind = BT_POOL_GPU,
                        .state = BT_READING_REPORTED,
                        .free_bytes = wish->budget_bytes.value,
                        .total_bytes = wish->budget_bytes.value};
        memcpy(pool.name, wish->name, sizeof pool.name);
        (void)add_device(judge, &pool, wish->budget_bytes);
    }
}

void bt_judge_look(bt_judge *judge, const bt_machine *machine) {
    const bt_wishes wishes = {.budget_kind = BT_BUDGET_AUTO};
    const bt_budget host = bt_budget_resolve(machine, &wishes);
    bt_known held = judge->settings.host_bytes;
    look_at_devices(judge, machine);
    judge->host_free_bytes = (bt_known){host.bytes != UINT64_MAX && host.state == BT_READING_REPORTED, host.bytes};
    judge->host_total_bytes = (bt_known){machine->pools[0].state == BT_READING_REPORTED, machine->pools[0].total_bytes};
    if (held.known && (!judge->host_free_bytes.known || held.value < judge->host_free_bytes.value))
        judge->host_free_bytes = held;
}

bt_known bt_judge_free_bytes(const bt_judge *judge) {
    bt_known sum = {judge->n_devices > 0, 0};
    for (uint32_t i = 0; i < judge->n_devices; i++) {
        if (judge->devices[i].pool.state != BT_READING_REPORTED) return (bt_known){0};
        sum.value = bt_sat_add_u64(sum.value, judge->devices[i].pool.free_bytes);
    }
    return sum;
}

/* ---- the decision ---- */

bt_guard_ask bt_judge_ask(const bt_judge *judge, bt_arena *arena) {
    const bt_judge_settings *settings = &judge->settings;
    return (bt_guard_ask){
        .price = {.effective = &judge->effective,
                  .facts = judge->facts,
                  .draft = judge->draft,
                  .projector = judge->projector,
                  .lora_bytes = file_bytes(&judge->effective.loras),
                  .control_vector_bytes = file_bytes(&judge->effective.control_vectors),
                  .vision_overhead_bytes = settings->vision_overhead_bytes,
                  .seen = judge->seen.n > 0 ? &judge->seen : NULL,
                  .devices = judge->devices,
                  .n_devices = judge->n_devices,
                  .arena = arena},
        .facts_reason = judge->facts ? NULL : judge->facts_reason,
        .settings = {.target_bytes = settings->target_bytes,
                     .min_gpu_fraction = settings->min_gpu_fraction,
                     .degrade = settings->degrade,
                     .host_free_bytes = judge->host_free_bytes,
                     .host_total_bytes = judge->host_total_bytes,
                     .host_is_budget = settings->host_bytes.known,
                     .fit_target = settings->target_bytes.known || settings->n_devices > 0},
    };
}

static void pass(bt_guard_decision *ret, const char *reason) {
    *ret = (bt_guard_decision){.kind = BT_GUARD_PASSED};
    (void)snprintf(ret->reason, sizeof ret->reason, "%s", reason);
}

static bt_status start_anew(bt_judge *judge, bt_error *err) {
    bt_arena_close(judge->last);
    judge->last = bt_arena_open(ARENA_MAX_BYTES, ARENA_BLOCK);
    if (!judge->last) return bt_fail(err, BT_E_NOMEM, "planning", BT_MEASURE_NONE, 0, 0, "no memory to decide");
    return bt_rewrite_open(&judge->rewrite, judge->last, judge->parsed, err);
}

bt_status bt_judge_decide(bt_judge *judge, const bt_machine *machine, bt_guard_decision *ret, bt_error *err) {
    if (judge->command.program == BT_PROGRAM_NONE) {
        pass(ret, judge->command.reason);
        return BT_OK;
    }
    BT_TRY(start_anew(judge, err));
    bt_judge_look(judge, machine);
    const bt_engine_ask engine = {.argv = judge->parsed, .free_bytes = bt_judge_free_bytes(judge), .sam_on_cpu = true};
    bt_engine_decision other;
    BT_TRY(bt_guard_engine(&engine, &judge->rewrite, &other, err));
    if (other.known) {
        pass(ret, other.reason);
        ret->kind = other.changed ? BT_GUARD_OFFLOADED : BT_GUARD_UNCHANGED;
        return BT_OK;
    }
    if (judge->command.program == BT_PROGRAM_BENCH) {
        pass(ret, "llama-bench runs many settings, one after another");
        return BT_OK;
    }
    bt_judge_read(judge, NULL);
    const bt_guard_ask ask = bt_judge_ask(judge, judge->last);
    return bt_guard_place(&ask, ret, err);
}

bt_status bt_judge_apply(bt_judge *judge, const bt_guard_decision *decision, bt_error *err) {
    return bt_guard_apply(decision, &judge->rewrite, err);
}
