/* SPDX-License-Identifier: MIT
 * test_judge.c: a command judged: read once, decided as often as a machine is looked at, each time from the beginning.
 * What is decided is tests/unit/test_guard_place.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "judge_kit.h"

static char model[512];
static line words;
static bt_judge *judge;
static bt_guard_decision decision;

static int start(void **state) {
    (void)state;
    judge_model("judge.gguf", model);
    judge = calloc(1, sizeof *judge);
    return judge ? 0 : -1;
}

static int stop(void **state) {
    (void)state;
    bt_judge_close(judge);
    free(judge);
    return 0;
}

static void open_with(bt_judge_input input, const char *format) {
    bt_error err = {0};
    input.argv = judge_words(&words, format, model);
    if (bt_judge_open(judge, &input, &err) != BT_OK) fail_msg("%s", err.text);
}

static void open_words(const char *format) {
    open_with((bt_judge_input){.env = argv_no_variable}, format);
}

static void decide(uint64_t host_bytes, uint64_t device_bytes, bt_guard_kind kind) {
    bt_error err = {0};
    if (bt_judge_decide(judge, judge_machine(host_bytes, device_bytes), &decision, &err) != BT_OK)
        fail_msg("%s", err.text);
    if (decision.kind != kind)
        fail_msg("%s (%s), expected %s", bt_guard_kind_name(decision.kind), decision.reason, bt_guard_kind_name(kind));
    assert_int_equal(bt_judge_apply(judge, &decision, NULL), BT_OK);
}

#define LINE "llama-server -m %s -ngl 99 -c 131072 -np 1"

static void every_look_decides_anew(void **state) {
    (void)state;
    open_words(LINE);
    decide(64 * KIT_GIB, KIT_GIB, BT_GUARD_UNCHANGED);
    uint64_t need = decision.price_before.device_bytes;
    assert_true(need > 128 * KIT_MIB && need < KIT_GIB); /* the cache alone is 128 MiB */
    assert_int_equal(judge->rewrite.n_edits, 0);
    decide(64 * KIT_GIB, need, BT_GUARD_UNCHANGED);
    decide(64 * KIT_GIB, need - 1, BT_GUARD_TRIMMED);
    assert_int_equal(judge->rewrite.n_edits, 1);
    assert_string_equal(judge->rewrite.argv[6], "126976"); /* a step of 4096 less */
    decide(64 * KIT_GIB, need / 4, BT_GUARD_REFUSED);
    assert_string_equal(decision.code, "insufficient_vram");
    assert_int_equal(judge->rewrite.n_edits, 0);
    assert_string_equal(judge->rewrite.argv[6], "131072");
    decide(64 * KIT_GIB, need, BT_GUARD_UNCHANGED); /* nothing of the last one is left */
    assert_int_equal(judge->rewrite.n_edits, 0);
    for (uint32_t i = 0; words.argv[i]; i++)
        assert_ptr_equal(judge->rewrite.argv[i], words.argv[i]);
}

static void devices_by_name(void **state) {
    (void)state;
    static const bt_device_wish wishes[] = {{"Vulkan0", {true, 40 * KIT_MIB}}, {"Vulkan1", {true, 2 * KIT_GIB}}};
    open_with((bt_judge_input){.env = argv_no_variable, .settings = {.devices = wishes, .n_devices = 2}}, LINE);
    bt_judge_look(judge, judge_machine(8 * KIT_GIB, KIT_GIB));
    assert_int_equal(judge->n_devices, 2);
    assert_int_equal(judge->n_seen, 1); /* the other's memory is not read */
    assert_string_equal(judge->devices[1].pool.name, "Vulkan1");
    assert_int_equal(judge->devices[0].target_bytes.value, 40 * KIT_MIB);
    assert_int_equal(bt_judge_free_bytes(judge).value, 3 * KIT_GIB);
    bt_machine *silent = judge_machine(8 * KIT_GIB, KIT_GIB);
    silent->pools[1].state = BT_READING_FAILED;
    bt_judge_look(judge, silent);
    assert_false(bt_judge_free_bytes(judge).known);
    bt_judge_look(judge, judge_machine(8 * KIT_GIB, 0));
    assert_int_equal(judge->n_devices, 2); /* both are as they were named */
    assert_int_equal(judge->n_seen, 0);
}

/* What the host has, less a reserve; and no more than what the command is held to. The prompt cache gives way first, to
 * mapped weights too; then the context. */
static void the_host_is_held(void **state) {
    (void)state;
    open_words("llama-server -m %s -ngl 0 -c 131072 -np 1 --cache-ram 64 -ctxcp 0");
    decide(16 * KIT_GIB, 0, BT_GUARD_UNCHANGED);
    assert_int_equal(judge->host_free_bytes.value, 16 * KIT_GIB - 16 * KIT_GIB / 20);
    uint64_t all = decision.price_before.host.total_bytes, firm = decision.price_before.host_firm_bytes;
    judge->settings.host_bytes = (bt_known){true, all};
    decide(16 * KIT_GIB, 0, BT_GUARD_UNCHANGED);
    judge->settings.host_bytes.value = all - 1;
    decide(16 * KIT_GIB, 0, BT_GUARD_TRIMMED);
    assert_int_equal(judge->host_free_bytes.value, all - 1);
    assert_int_equal(decision.after.cache_ram_mib, 63);
    assert_false(decision.changes_ctx);
    judge->settings.host_bytes.value = firm - 64 * KIT_MIB - 1;
    decide(16 * KIT_GIB, 0, BT_GUARD_TRIMMED);
    assert_true(decision.changes_ctx);
    judge->settings.host_bytes.value = 32 * KIT_GIB; /* more than there is */
    decide(16 * KIT_GIB, 0, BT_GUARD_UNCHANGED);
    assert_true(judge->host_free_bytes.value < 16 * KIT_GIB);
    bt_machine *silent = judge_machine(0, 0);
    silent->pools[0].state = BT_READING_FAILED;
    bt_judge_look(judge, silent);
    assert_int_equal(judge->host_free_bytes.value, 32 * KIT_GIB);
}

static void what_is_not_read_is_passed_on(void **state) {
    (void)state;
    open_words("make -j %s");
    assert_int_equal(bt_judge_decide(judge, NULL, &decision, NULL), BT_OK);
    assert_int_equal(decision.kind, BT_GUARD_PASSED);
    assert_non_null(strstr(decision.reason, "make"));
    bt_judge_close(judge);
    open_words("llama-bench -m %s -ngl 99");
    decide(8 * KIT_GIB, KIT_GIB, BT_GUARD_PASSED);
    assert_false(judge->has_read); /* its options are of another table */
    bt_judge_close(judge);
    open_words("llama-server -m %s-not-there.gguf -ngl 99");
    decide(8 * KIT_GIB, KIT_GIB, BT_GUARD_PASSED);
    assert_non_null(strstr(judge->facts_reason, "-not-there.gguf"));
    bt_judge_close(judge);
    open_words("llama-server -hf some/repo --log-file %s");
    decide(8 * KIT_GIB, KIT_GIB, BT_GUARD_PASSED);
    assert_string_equal(judge->facts_reason, "it names no local model file");
    bt_judge_close(judge);
    open_words("docker run ghcr.io/ggml-org/llama.cpp:server -m %s -ngl 99");
    bt_judge_read(judge, NULL);
    assert_null(judge->facts);
    assert_string_equal(judge->facts_reason, "its files are inside a container");
}

/* Two looks, and one option is added. */
static void another_engine(void **state) {
    (void)state;
    open_words("sam3_server -m %s.ggml");
    assert_int_equal(judge->command.program, BT_PROGRAM_SAM);
    for (int i = 0; i < 2; i++) {
        decide(8 * KIT_GIB, KIT_GIB, BT_GUARD_OFFLOADED);
        assert_false(decision.priced);
        assert_int_equal(judge->rewrite.n_edits, 1);
        assert_int_equal(judge->rewrite.n_argv, 4);
    }
}

static void companions_are_noted(void **state) {
    (void)state;
    open_words("llama-server -m %s -ngl 0 -md /no/draft.gguf --mmproj /no/mmproj.gguf");
    bt_judge_read(judge, NULL);
    assert_non_null(judge->facts);
    assert_int_equal(judge->n_notes, 2);
    assert_non_null(strstr(judge->notes[0], "the draft model is not priced: "));
    assert_non_null(strstr(judge->notes[0], "/no/draft.gguf"));
    assert_non_null(strstr(judge->notes[1], "the projector is not priced: "));
}

/* ---- where settings come from ---- */

static const char *home_alone(void *context, const char *name) {
    (void)context;
    if (strcmp(name, "XDG_CONFIG_HOME") == 0) return "/conf";
    return strcmp(name, "LLAMA_ARG_N_GPU_LAYERS") == 0 ? "7" : NULL;
}

typedef struct reads {
    uint32_t n;
    bt_config_state state;
    char path[64];
} reads;

static bt_config_state read_one(void *context, const char *path, bt_text *text) {
    reads *r = context;
    r->n++;
    (void)snprintf(r->path, sizeof r->path, "%s", path);
    if (r->state == BT_CONFIG_READ) bt_text_add(text, "ctx-size = 777\n");
    return r->state;
}

static void files_and_variables(void **state) {
    (void)state;
    reads r = {.state = BT_CONFIG_READ};
    open_with((bt_judge_input){.env = home_alone, .read = read_one, .read_context = &r}, "llama-server -m %s");
    assert_true(r.n > 0);
    assert_int_equal(strncmp(r.path, "/conf/", 6), 0);
    assert_int_equal(judge->n_files, r.n);
    assert_string_equal(bt_text_str(&judge->files[0]), "ctx-size = 777\n");
    assert_int_equal(judge->effective.ctx.value, 777);
    assert_int_equal(judge->effective.ctx.by.origin, BT_FROM_FILE);
    assert_int_equal(judge->effective.gpu_layers.value, 7);
    bt_judge_close(judge);
    r = (reads){.state = BT_CONFIG_ABSENT};
    open_with((bt_judge_input){.env = home_alone, .read = read_one, .read_context = &r}, "llama-server -m %s");
    assert_int_equal(judge->n_files, 0);
    assert_int_equal(judge->effective.n_notes, 0);
    bt_judge_close(judge);
    r = (reads){.state = BT_CONFIG_FAILED};
    open_with((bt_judge_input){.env = home_alone, .read = read_one, .read_context = &r}, "llama-server -m %s");
    assert_int_equal(judge->n_files, 0);
    assert_true(judge->effective.n_notes > 0);
}

static void files_of_this_system(void **state) {
    (void)state;
    bt_text text;
    char path[512];
    bt_text_init(&text, 5000);
    kit_path("judge.ini", path);
    gw_write_bytes(path, "a = b\n", 6);
    assert_int_equal(bt_judge_read_file(NULL, path, &text), BT_CONFIG_READ);
    assert_string_equal(bt_text_str(&text), "a = b\n");
    assert_int_equal(bt_judge_read_file(NULL, BT_TEST_OUT "/no-such-file", &text), BT_CONFIG_ABSENT);
    assert_int_equal(bt_judge_read_file(NULL, BT_TEST_OUT, &text), BT_CONFIG_FAILED); /* a folder */
    gw_cut(path, 4999);
    bt_text_done(&text);
    bt_text_init(&text, 5000);
    assert_int_equal(bt_judge_read_file(NULL, path, &text), BT_CONFIG_READ);
    assert_int_equal(text.n_bytes, 4999);
    gw_cut(path, 6000);
    assert_int_equal(bt_judge_read_file(NULL, path, &text), BT_CONFIG_FAILED);
    bt_text_done(&text);
}

/* ---- the least ---- */

static void find_least(bt_guard_price *ret_price) {
    bt_guard_ask ask = bt_judge_ask(judge, judge->last);
    const bt_guard_prices *prices = NULL;
    const char *reason = NULL;
    bt_placement least;
    assert_int_equal(bt_guard_prices_make(&ask.price, &prices, &reason, NULL), BT_OK);
    assert_null(reason);
    assert_true(bt_guard_least(&ask, prices, &least));
    assert_int_equal(least.cache_ram_mib, 0);
    assert_int_equal(least.checkpoints, 0);
    bt_guard_prices_at(prices, &least, ret_price);
    assert_int_equal(ret_price->host.bytes[BT_GUARD_PROMPT_CACHE], 0);
}

/* What a remedy leaves, against what decisions come to when less and less is free. */
static void the_least(void **state) {
    (void)state;
    static const struct {
        const char *line;
        bt_guard_kind kind; /* at the least */
    } cases[] = {{LINE, BT_GUARD_OFFLOADED},
                 {"llama-server -m %s -ngl 99 -c 4097 -np 1", BT_GUARD_OFFLOADED}, /* too short to be trimmed */
                 {"llama-server -m %s -ngl 1 -c 131072 -np 1", BT_GUARD_TRIMMED}}; /* half of it: the floor */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_guard_price price;
        open_words(cases[i].line);
        decide(64 * KIT_GIB, 8 * KIT_GIB, BT_GUARD_UNCHANGED);
        find_least(&price);
        decide(64 * KIT_GIB, price.device_bytes, cases[i].kind);
        assert_int_equal(decision.price_after.device_bytes, price.device_bytes);
        decide(64 * KIT_GIB, price.device_bytes - 1, BT_GUARD_REFUSED);
        bt_judge_close(judge);
    }
}

/* The context is trimmed, and the prompt cache given up. */
static void the_least_of_the_host(void **state) {
    (void)state;
    bt_guard_price price;
    open_words("llama-server -m %s -ngl 0 -c 131072 -np 1");
    decide(64 * KIT_GIB, 8 * KIT_GIB, BT_GUARD_UNCHANGED);
    find_least(&price);
    judge->settings.host_bytes = (bt_known){true, price.host_firm_bytes};
    decide(64 * KIT_GIB, 8 * KIT_GIB, BT_GUARD_TRIMMED);
    assert_int_equal(decision.after.n_ctx, 81920); /* over 0.6 of it, by whole steps */
    assert_int_equal(decision.after.cache_ram_mib, 0);
    judge->settings.host_bytes.value--;
    decide(64 * KIT_GIB, 8 * KIT_GIB, BT_GUARD_REFUSED);
}

static void the_least_of_what_fits_itself(void **state) {
    (void)state;
    open_words("llama-server -m %s -c 131072 -np 1");
    bt_judge_read(judge, NULL);
    bt_judge_look(judge, judge_machine(8 * KIT_GIB, KIT_GIB));
    bt_arena *arena = bt_arena_open(UINT64_C(64) << 20, 65536);
    bt_guard_ask ask = bt_judge_ask(judge, arena);
    const bt_guard_prices *prices = NULL;
    const char *reason = NULL;
    bt_placement least;
    assert_int_equal(bt_guard_prices_make(&ask.price, &prices, &reason, NULL), BT_OK);
    assert_true(bt_guard_least(&ask, prices, &least));
    assert_int_equal(least.n_gpu_layers, 0);
    assert_int_equal(least.n_ctx, 131072);
    assert_int_equal(least.cache_ram_mib, 0); /* that is ours to lower, under a budget of the host */
    judge->effective.fit.value = 0;
    assert_true(bt_guard_least(&ask, prices, &least));
    assert_int_equal(least.n_gpu_layers, 3);
    judge->effective.cache_ram.value = judge->effective.checkpoints.value = 0;
    assert_int_equal(bt_guard_prices_make(&ask.price, &prices, &reason, NULL), BT_OK);
    assert_false(bt_guard_least(&ask, prices, &least));
    bt_arena_close(arena);
}

/* ---- cards that are hidden ---- */

static const char *visible_text;

static const char *visible(void *context, const char *name) {
    (void)context;
    return strcmp(name, "CUDA_VISIBLE_DEVICES") == 0 ? visible_text : NULL;
}

/* Three cards of 1, 2 and 3 GiB, and one of another kind. names: the machine's, in the program's order. */
static void shows(const char *text, const char *format, const char *names) {
    char got[128] = "";
    bt_machine *machine = judge_machine(64 * KIT_GIB, 4 * KIT_GIB);
    machine->pools[4] = machine->pools[1];
    machine->n_pools = 5;
    for (uint32_t i = 0; i < 3; i++) {
        machine->pools[i + 1] = machine->pools[4];
        machine->pools[i + 1].free_bytes = machine->pools[i + 1].total_bytes = (i + 1) * KIT_GIB;
        (void)snprintf(machine->pools[i + 1].name, sizeof machine->pools[0].name, "CUDA%u", i);
    }
    visible_text = text;
    open_with((bt_judge_input){.env = visible}, format);
    bt_judge_look(judge, machine);
    for (uint32_t i = 0; i < judge->n_devices; i++)
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i > 0 ? " " : "",
                       judge->devices[i].pool.name);
    assert_string_equal(got, names);
    if (judge->n_devices > 1) {
        bt_error err = {0};
        assert_int_equal(bt_judge_decide(judge, machine, &decision, &err), BT_OK);
    }
    bt_judge_close(judge);
}

/* What was seen with one card is nothing that was seen with another. */
static void other_variables(void **state) {
    (void)state;
    char name[BT_FOOTPRINT_NAME_BYTES];
    visible_text = "1";
    open_with((bt_judge_input){.env = visible}, LINE);
    bt_judge_recall(judge);
    memcpy(name, judge->footprint_name, sizeof name);
    assert_true(name[0] != '\0');
    bt_judge_close(judge);
    open_with((bt_judge_input){.env = visible}, LINE);
    bt_judge_recall(judge);
    assert_string_equal(name, judge->footprint_name);
    bt_judge_close(judge);
    visible_text = "0";
    open_with((bt_judge_input){.env = visible}, LINE);
    bt_judge_recall(judge);
    assert_string_not_equal(name, judge->footprint_name);
}

static void hidden_cards(void **state) {
    (void)state;
    shows(NULL, LINE, "CUDA0 CUDA1 CUDA2 Vulkan0");
    shows("2,0", LINE, "CUDA2 CUDA0 Vulkan0");
    shows("1", LINE, "CUDA1 Vulkan0");
    shows(" 1 , 2", LINE, "CUDA1 CUDA2 Vulkan0");
    shows("", LINE, "Vulkan0");
    shows("-1", LINE, "Vulkan0");
    shows("0,-1,1", LINE, "CUDA0 Vulkan0"); /* what is none ends the list */
    shows("0,3,1", LINE, "CUDA0 Vulkan0");
    shows("1,1", LINE, "Vulkan0");                            /* twice the same: CUDA takes none */
    shows("GPU-8932f937", LINE, "CUDA0 CUDA1 CUDA2 Vulkan0"); /* not followed */
    shows(NULL, "env CUDA_VISIBLE_DEVICES=1 " LINE, "CUDA1 Vulkan0");
    shows("1", "env -u CUDA_VISIBLE_DEVICES " LINE, "CUDA0 CUDA1 CUDA2 Vulkan0");
    /* The program's names are its own: its CUDA1 is the machine's CUDA0. */
    shows("2,0", LINE " -dev CUDA1", "CUDA2 CUDA0 Vulkan0");
    assert_int_equal(decision.price_before.n_devices, 1);
    assert_string_equal(decision.price_before.devices[0].name, "CUDA0");
    shows("2", LINE " -dev CUDA2", "CUDA2 Vulkan0"); /* it has none of that name */
    assert_int_equal(decision.kind, BT_GUARD_PASSED);
}

/* ---- former runs ---- */

static void forget(void) {
    assert_int_equal(system("rm -rf '" BT_TEST_OUT "/judge'"), 0); /* NOLINT(bugprone-command-processor) */
    assert_int_equal(setenv("BURTHEN_STATE_DIR", BT_TEST_OUT "/judge", 1), 0);
}

/* What was seen of the very command is the least that it takes. */
static void what_was_seen_counts(void **state) {
    (void)state;
    static const char *const pools[] = {"host", "Vulkan0"};
    forget();
    open_words(LINE " --cache-ram 0 --port 1");
    decide(64 * KIT_GIB, 2 * KIT_GIB, BT_GUARD_UNCHANGED);
    uint64_t need = decision.price_before.device_bytes;
    bt_judge_recall(judge);
    assert_int_equal(judge->seen.n, 0);
    bt_footprint_keep(judge->footprint_name, pools, 2, (const bt_known[]){{true, 1}, {true, need - 1}}); /* less */
    bt_judge_recall(judge);
    decide(64 * KIT_GIB, need, BT_GUARD_UNCHANGED);
    assert_int_equal(decision.n_notes, 0);
    bt_footprint_keep(judge->footprint_name, pools, 2, (const bt_known[]){{false, 0}, {true, need + 100}});
    bt_judge_close(judge);
    open_words(LINE " --cache-ram 0 --port 22"); /* at another port it is the same */
    bt_judge_read(judge, NULL);
    bt_judge_recall(judge);
    decide(64 * KIT_GIB, need + 100, BT_GUARD_UNCHANGED);
    assert_int_equal(decision.price_before.device_bytes, need + 100);
    assert_int_equal(decision.price_before.devices[0].bytes[BT_GUARD_LEARNED], 100);
    assert_int_equal(decision.n_notes, 1);
    decide(64 * KIT_GIB, need + 99, BT_GUARD_TRIMMED);
    assert_int_equal(decision.price_after.devices[0].bytes[BT_GUARD_LEARNED], 100); /* wherever the blocks are */
    bt_judge_close(judge);
    open_words(LINE " --cache-ram 0 -b 512"); /* another command */
    bt_judge_read(judge, NULL);
    bt_judge_recall(judge);
    assert_int_equal(judge->seen.n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_look_decides_anew, start, stop),
        cmocka_unit_test_setup_teardown(devices_by_name, start, stop),
        cmocka_unit_test_setup_teardown(the_host_is_held, start, stop),
        cmocka_unit_test_setup_teardown(what_is_not_read_is_passed_on, start, stop),
        cmocka_unit_test_setup_teardown(another_engine, start, stop),
        cmocka_unit_test_setup_teardown(companions_are_noted, start, stop),
        cmocka_unit_test_setup_teardown(files_and_variables, start, stop),
        cmocka_unit_test_setup_teardown(files_of_this_system, start, stop),
        cmocka_unit_test_setup_teardown(the_least, start, stop),
        cmocka_unit_test_setup_teardown(the_least_of_the_host, start, stop),
        cmocka_unit_test_setup_teardown(the_least_of_what_fits_itself, start, stop),
        cmocka_unit_test_setup_teardown(hidden_cards, start, stop),
        cmocka_unit_test_setup_teardown(other_variables, start, stop),
        cmocka_unit_test_setup_teardown(what_was_seen_counts, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
