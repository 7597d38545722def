/* SPDX-License-Identifier: MIT
 * test_said.c: a decision about a command line, as it is said: to a person, line by line, and to scripts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"

#include "base/heap.h"
#include "guard/said.h"

#include <jansson.h>
#include <stdio.h>

#define MIB UINT64_C(1048576)

static line words;
static bt_rewrite rewrite;
static bt_guard_decision decision;

/* A server whose context was trimmed and of which layers were moved; with a variable's name in it that no terminal may
 * take for a command. */
static void decide(void **state) {
    static bt_command command;
    static const char *const notes[] = {"the draft was priced as a model of its own"};
    const bt_argv *view = NULL;
    bt_error err = {0};
    bt_command_find(line_split(&words, "llama-server -m x.gguf -c 32768 -a e\x1b[2J"), &command);
    assert_int_equal(bt_argv_parse(*state, words.argv, command.first, BT_PROGRAM_SERVER, &view, &err), BT_OK);
    assert_int_equal(bt_rewrite_open(&rewrite, *state, view, &err), BT_OK);
    assert_int_equal(bt_rewrite_set_int(&rewrite, BT_FLAG_CTX_SIZE, 8192, &err), BT_OK);
    assert_int_equal(bt_rewrite_append(&rewrite, BT_FLAG_GPU_LAYERS, NULL, "20", &err), BT_OK);
    decision = (bt_guard_decision){.kind = BT_GUARD_OFFLOADED, .reason = "CUDA0 has 4 GiB free", .priced = true};
    decision.notes = notes;
    decision.n_notes = 1;
    decision.after = (bt_placement){.n_ctx = 8192, .n_gpu_layers = 20, .n_cpu_moe = 3};
    decision.fraction_after = 0.625;
    decision.budget_bytes = (bt_known){true, 4096 * MIB};
    decision.price_before.device_bytes = 6000 * MIB;
    bt_guard_price *price = &decision.price_after;
    *price = (bt_guard_price){.n_devices = 1, .device_bytes = 3500 * MIB};
    price->devices[0] = (bt_guard_pool_price){.name = "CUDA0", .total_bytes = 3500 * MIB};
    price->devices[0].bytes[BT_GUARD_WEIGHTS] = 3000 * MIB;
    price->devices[0].bytes[BT_GUARD_KV] = 500 * MIB;
    price->host = (bt_guard_pool_price){.name = "host", .total_bytes = 40 * MIB};
    price->host.bytes[BT_GUARD_BASE] = 40 * MIB;
}

static void is_text(bt_text *text, const char *expected) {
    assert_false(text->failed);
    assert_string_equal(bt_text_str(text), expected);
    bt_text_done(text);
}

static void to_a_person(void **state) {
    bt_text text;
    decide(state);
    bt_text_init(&text, 4096);
    bt_guard_said_text(&decision, &rewrite, &text);
    is_text(&text, "burthen: offloaded: --ctx-size 32768 -> 8192\n"
                   "burthen: offloaded: added --n-gpu-layers 20\n"
                   "burthen: offloaded: CUDA0 has 4 GiB free\n"
                   "burthen: note: the draft was priced as a model of its own\n");
    decision.pins_much = true; /* user case 29 */
    decision.price_after.pinned_bytes = 15360 * MIB;
    bt_text_init(&text, 4096);
    bt_guard_said_text(&decision, &rewrite, &text);
    assert_non_null(strstr(bt_text_str(&text), "burthen: note: a device's driver is to pin 15.00 GiB, over half"));
    bt_text_done(&text);
}

static void its_ledger(void **state) {
    bt_text text;
    decide(state);
    bt_text_init(&text, 4096);
    bt_guard_ledger_text(&decision, &text);
    is_text(&text, "  CUDA0/weights                    2.93 GiB\n"
                   "  CUDA0/kv                        500.0 MiB\n"
                   "  total                            3.42 GiB\n"
                   "  host/base                        40.0 MiB\n"
                   "  total                            40.0 MiB\n");
    (void)snprintf(decision.changes[0].flag, sizeof decision.changes[0].flag, "-c");
    (void)snprintf(decision.changes[0].value, sizeof decision.changes[0].value, "4096");
    decision.changes[0].need_bytes = 3000 * MIB;
    decision.n_changes = 1;
    bt_text_init(&text, 4096);
    bt_guard_ledger_text(&decision, &text);
    assert_non_null(strstr(bt_text_str(&text), "total                            40.0 MiB\n"
                                               "What would fit (one of)\n"
                                               "  -c 4096             needs     2.93 GiB\n"));
    bt_text_done(&text);
    decision.price_after.pinned_bytes = 15 * MIB;
    bt_text_init(&text, 4096);
    bt_guard_ledger_text(&decision, &text);
    assert_non_null(strstr(bt_text_str(&text), "total                            40.0 MiB\n"
                                               "  of it pinned                     15.0 MiB\n"));
    bt_text_done(&text);
    decision.priced = false;
    bt_text_init(&text, 4096);
    bt_guard_ledger_text(&decision, &text);
    is_text(&text, "");
}

static json_t *read_back(char *json) {
    json_error_t why;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &why);
    if (!root) fail_msg("%s: %s", why.text, json);
    bt_heap_free(json);
    return root;
}

static void is_word(const json_t *root, const char *name, const char *expected) {
    assert_string_equal(json_string_value(json_object_get(root, name)), expected);
}

static uint64_t number(const json_t *o, const char *name) {
    const json_t *value = json_object_get(o, name);
    assert_true(json_is_integer(value));
    return (uint64_t)json_integer_value(value);
}

static void argv_is_there(const json_t *root) {
    static const char *const expected[] = {"llama-server", "-m",       "x.gguf",         "-c", "8192",
                                           "-a",           "e\x1b[2J", "--n-gpu-layers", "20"};
    const json_t *argv = json_object_get(root, "argv");
    assert_int_equal(json_array_size(argv), 9);
    for (size_t i = 0; i < 9; i++)
        assert_string_equal(json_string_value(json_array_get(argv, i)), expected[i]);
}

static void to_scripts(void **state) {
    char *json = NULL;
    decide(state);
    assert_int_equal(bt_guard_said_json(&decision, &rewrite, &json, NULL), BT_OK);
    json_t *root = read_back(json);
    is_word(root, "decision", "offloaded");
    is_word(root, "reason", "CUDA0 has 4 GiB free");
    assert_true(json_is_null(json_object_get(root, "code")));
    argv_is_there(root);
    assert_int_equal(json_object_size(json_object_get(root, "env")), 0);
    const json_t *plan = json_object_get(root, "plan");
    assert_int_equal(number(plan, "budget_bytes"), 4096 * MIB);
    assert_true(json_is_null(json_object_get(plan, "free_bytes"))); /* not known */
    assert_int_equal(number(plan, "pinned_bytes"), 0);
    assert_int_equal(number(plan, "need_bytes_before"), 6000 * MIB);
    assert_int_equal(number(plan, "need_bytes"), 3500 * MIB);
    assert_int_equal(number(plan, "ctx"), 8192);
    assert_int_equal(number(plan, "gpu_layers"), 20);
    assert_int_equal(number(plan, "n_cpu_moe"), 3);
    assert_true(json_real_value(json_object_get(plan, "gpu_fraction")) == 0.625);
    assert_int_equal(json_array_size(json_object_get(plan, "changes")), 0);
    const json_t *pools = json_object_get(plan, "pools");
    assert_int_equal(json_array_size(pools), 2);
    const json_t *device = json_array_get(pools, 1);
    is_word(device, "name", "CUDA0");
    assert_int_equal(number(device, "planned_bytes"), 3500 * MIB);
    const json_t *lines = json_object_get(device, "lines");
    assert_int_equal(json_array_size(lines), 2); /* those that hold something */
    is_word(json_array_get(lines, 1), "name", "CUDA0/kv");
    assert_int_equal(number(json_array_get(lines, 1), "planned_bytes"), 500 * MIB);
    json_decref(root);
}

static void a_refusal_to_scripts(void **state) {
    char *json = NULL;
    decide(state);
    decision.kind = BT_GUARD_REFUSED;
    (void)snprintf(decision.code, sizeof decision.code, "insufficient_vram");
    (void)snprintf(decision.changes[0].flag, sizeof decision.changes[0].flag, "-ngl");
    (void)snprintf(decision.changes[0].value, sizeof decision.changes[0].value, "10");
    decision.changes[0].need_bytes = 2000 * MIB;
    decision.n_changes = 1;
    assert_int_equal(bt_guard_said_json(&decision, &rewrite, &json, NULL), BT_OK);
    json_t *root = read_back(json);
    is_word(root, "decision", "refused");
    is_word(root, "code", "insufficient_vram");
    const json_t *change = json_array_get(json_object_get(json_object_get(root, "plan"), "changes"), 0);
    is_word(change, "flag", "-ngl");
    is_word(change, "value", "10");
    assert_int_equal(number(change, "need_bytes"), 2000 * MIB);
    json_decref(root);
    decision.priced = false;
    assert_int_equal(bt_guard_said_json(&decision, &rewrite, &json, NULL), BT_OK);
    root = read_back(json);
    assert_true(json_is_null(json_object_get(root, "plan")));
    json_decref(root);
}

static void under_a_budget(void **state) {
    static const bt_guard_env env[] = {{"GGML_BACKEND_PATH", "/lib/x.so"}, {"BURTHEN_PLAN", NULL}};
    char *json = NULL;
    decide(state);
    decision.kind = BT_GUARD_BUDGETED;
    assert_int_equal(bt_guard_budget_json(&decision, &rewrite, env, 2, "{\"verdict\": \"fits\"}", &json, NULL), BT_OK);
    json_t *root = read_back(json);
    is_word(root, "decision", "budgeted");
    is_word(json_object_get(root, "env"), "GGML_BACKEND_PATH", "/lib/x.so");
    is_word(json_object_get(root, "env"), "BURTHEN_PLAN", ""); /* a file that is not there yet */
    is_word(json_object_get(root, "plan"), "verdict", "fits");
    json_decref(root);
    assert_int_equal(bt_guard_budget_json(&decision, &rewrite, NULL, 0, NULL, &json, NULL), BT_OK);
    root = read_back(json);
    assert_true(json_is_null(json_object_get(root, "plan")));
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_ARENA(to_a_person),          WITH_ARENA(its_ledger),     WITH_ARENA(to_scripts),
        WITH_ARENA(a_refusal_to_scripts), WITH_ARENA(under_a_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
