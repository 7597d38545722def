/* SPDX-License-Identifier: MIT
 * test_router_need.c: what a model's server will take: declared, held, priced, learned, or not known; and the way of
 * the answer from a copy of the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/beside.h"
#include "judge_kit.h"
#include "router/need_find.h"

#include <unistd.h>

static char model_path[512];
static const char *const pools[] = {"host", "Vulkan0"};
static bt_config config;
static bt_config_model model;
static bt_need_ask ask;
static bt_need need;
static line words;

static int start(void **state) {
    (void)state;
    judge_model("need.gguf", model_path);
    config = (bt_config){0};
    model = (bt_config_model){.id = "m", .ram = BT_CONFIG_RAM_OFF, .group = UINT32_MAX};
    ask = (bt_need_ask){.config = &config,
                        .model = &model,
                        .pools = pools,
                        .n_pools = 1,
                        .free_bytes = {{true, 8 * KIT_GIB}, {true, 4 * KIT_GIB}},
                        .root = ""};
    need = (bt_need){0};
    assert_int_equal(system("rm -rf '" BT_TEST_OUT "/need'"), 0); /* NOLINT(bugprone-command-processor) */
    return setenv("BURTHEN_STATE_DIR", BT_TEST_OUT "/need", 1);
}

static void find(const char *format) {
    bt_error err = {0};
    if (bt_need_find(&ask, judge_words(&words, format, model_path), &need, &err) != BT_OK) fail_msg("%s", err.text);
}

#define LINE "llama-server -m %s -c 131072 -np 2 --cache-ram 0"

/* What the guard prices of a line, straight. */
static void price_of(const char *format, uint32_t n_ctx, bt_guard_price *ret) {
    bt_judge *judge = calloc(1, sizeof *judge);
    const bt_judge_input input = {.argv = judge_words(&words, format, model_path), .env = argv_no_variable};
    const bt_guard_prices *prices = NULL;
    const char *reason = NULL;
    bt_placement at;
    assert_int_equal(bt_judge_open(judge, &input, NULL), BT_OK);
    bt_judge_read(judge, NULL);
    bt_judge_look(judge, judge_machine(8 * KIT_GIB, ask.n_pools > 1 ? 4 * KIT_GIB : 0));
    const bt_guard_ask its = bt_judge_ask(judge, judge->arena);
    assert_int_equal(bt_guard_prices_make(&its.price, &prices, &reason, NULL), BT_OK);
    bt_guard_placement(prices, &at);
    if (n_ctx > 0) at.n_ctx = n_ctx;
    bt_guard_prices_at(prices, &at, ret);
    bt_judge_close(judge);
    free(judge);
}

static uint64_t file_bytes(void) {
    struct stat found;
    assert_int_equal(stat(model_path, &found), 0);
    return (uint64_t)found.st_size;
}

/* With all of the file, not only its tensors. */
static uint64_t host_bytes(const bt_guard_price *price) {
    return price->host.total_bytes - price->host.bytes[BT_GUARD_MAPPED] + file_bytes();
}

/* ---- what it is known from ---- */

static void declared(void **state) {
    (void)state;
    bt_config_bytes bytes[] = {{"Vulkan0", 7}, {"host", 5}, {"CUDA9", 9}};
    model.memory = bytes;
    model.n_memory = 3;
    ask.n_pools = 2;
    find("make -j");
    assert_int_equal(need.how, BT_NEED_DECLARED);
    assert_int_equal(need.bytes[0], 5);
    assert_int_equal(need.bytes[1], 7);
    assert_int_equal(need.n_slots, 0);
    assert_false(need.can_shrink);
    assert_string_equal(need.reason, "CUDA9, of which it declares memory, is not here");
    find(LINE); /* the user's word counts, and the file is described all the same */
    assert_int_equal(need.how, BT_NEED_DECLARED);
    assert_int_equal(need.bytes[0], 5);
    assert_string_equal(need.arch, "llama");
    assert_int_equal(need.n_slots, 2);
}

static void held_to_a_budget(void **state) {
    (void)state;
    model.ram = BT_CONFIG_RAM_SIZE;
    model.ram_bytes = 123 * KIT_MIB;
    ask.n_pools = 2;
    find(LINE);
    assert_int_equal(need.how, BT_NEED_BUDGET);
    assert_int_equal(need.bytes[0], 123 * KIT_MIB);
    assert_int_equal(need.bytes[1], 0);
    assert_int_equal(need.n_slots, 2);
}

static void priced(void **state) {
    (void)state;
    bt_guard_price price;
    find(LINE);
    assert_int_equal(need.how, BT_NEED_PRICED);
    price_of(LINE, 0, &price);
    assert_int_equal(need.bytes[0], host_bytes(&price));
    assert_true(need.bytes[0] > price.host.total_bytes);
    assert_int_equal(need.host_firm_bytes, price.host_firm_bytes);
    assert_string_equal(need.decision, "passed"); /* no -ngl: the program fits itself */
    assert_string_equal(need.reason, "");
    find(LINE " --ctx-checkpoints 0"); /* and nothing that grows */
    assert_false(need.can_shrink);
    assert_memory_equal(need.least_bytes, need.bytes, sizeof need.bytes);
    find("llama-server -m %s -c 131072 -np 2 --cache-ram 0 -lm none"); /* nothing is mapped */
    price_of("llama-server -m %s -c 131072 -np 2 --cache-ram 0 -lm none", 0, &price);
    assert_int_equal(need.bytes[0], price.host.total_bytes);
}

/* Of an open context the trained one: 2048, of each slot that has its own. */
static void an_open_context(void **state) {
    (void)state;
    bt_guard_price price;
    find("llama-server -m %s -np 1 --cache-ram 0");
    price_of("llama-server -m %s -np 1 --cache-ram 0", 2048, &price);
    assert_int_equal(need.bytes[0], host_bytes(&price));
    assert_int_equal(need.n_ctx, 2048);
    find("llama-server -m %s -np 3 --cache-ram 0");
    price_of("llama-server -m %s -np 3 --cache-ram 0", 3 * 2048, &price);
    assert_int_equal(need.bytes[0], host_bytes(&price));
    assert_int_equal(need.n_ctx, 2048);
    assert_int_equal(need.n_slots, 3);
    find("llama-server -m %s --cache-ram 0"); /* four slots that share it */
    price_of("llama-server -m %s --cache-ram 0", 2048, &price);
    assert_int_equal(need.bytes[0], host_bytes(&price));
    assert_int_equal(need.n_slots, 4);
}

/* llama-server's own default: 8 GiB of former prompts, which count, and are said. */
static void the_prompt_cache(void **state) {
    (void)state;
    find("llama-server -m %s -c 4096 -np 1 --cache-ram 0");
    uint64_t without = need.bytes[0];
    find("llama-server -m %s -c 4096 -np 1");
    assert_int_equal(need.bytes[0], without + 8192 * KIT_MIB);
    assert_string_equal(need.reason, "8.00 GiB of it is what the server may keep of former prompts (--cache-ram "
                                     "8.00 GiB, --ctx-checkpoints 0 B)");
    assert_true(need.can_shrink); /* `exec` lowers it to what is left */
    assert_int_equal(need.least_bytes[0], without);
    assert_string_equal(need.decision, "trimmed");
    find("llama-server -m %s -c 4096 -np 1 -ngl 0");
    assert_true(need.can_shrink);
    assert_int_equal(need.least_bytes[0], without);
    assert_string_equal(need.decision, "trimmed");
    assert_non_null(strstr(need.words, "a prompt cache of "));
}

/* Its variables, then ours. */
static void its_environment(void **state) {
    (void)state;
    static const char *const env[] = {"LLAMA_ARG_CTX_SIZE=8192", NULL};
    find("llama-server -m %s -c 8192 -np 1 --cache-ram 0");
    uint64_t expected = need.bytes[0];
    model.env = env;
    find("llama-server -m %s -np 1 --cache-ram 0");
    assert_int_equal(need.bytes[0], expected);
    model.env = NULL;
    assert_int_equal(setenv("LLAMA_ARG_CTX_SIZE", "8192", 1), 0);
    find("llama-server -m %s -np 1 --cache-ram 0");
    assert_int_equal(unsetenv("LLAMA_ARG_CTX_SIZE"), 0);
    assert_int_equal(need.bytes[0], expected);
}

static void not_known(void **state) {
    (void)state;
    find("python3 -m some.server");
    assert_int_equal(need.how, BT_NEED_UNKNOWN);
    assert_non_null(strstr(need.reason, "python3"));
    find("llama-server -m /no/such.gguf");
    assert_int_equal(need.how, BT_NEED_UNKNOWN);
    assert_non_null(strstr(need.reason, "/no/such.gguf"));
    find("llama-bench -m %s");
    assert_int_equal(need.how, BT_NEED_UNKNOWN);
    find("llama-server -m %s --override-kv llama.context_length=int:7");
    assert_int_equal(need.how, BT_NEED_UNKNOWN);
    assert_string_equal(need.reason, "--override-kv may change any fact of the model");
    assert_int_equal(need.bytes[0], 0);
}

static void seen_before(void **state) {
    (void)state;
    ask.n_pools = 2;
    find("python3 -m some.server --port 1");
    assert_int_equal(need.how, BT_NEED_UNKNOWN);
    bt_need_learn(need.learned_name, pools, 2, (const bt_known[]){{true, 500}, {true, 70}});
    bt_need_learn(need.learned_name, pools, 2, (const bt_known[]){{true, 400}, {false, 0}});
    find("python3 -m some.server --port 2");
    assert_int_equal(need.how, BT_NEED_LEARNED);
    assert_int_equal(need.bytes[0], 500);
    assert_int_equal(need.bytes[1], 70);
    find("python3 -m another.server");
    assert_int_equal(need.how, BT_NEED_UNKNOWN);
    find(LINE);
    uint64_t typed = need.bytes[0];
    const bt_known device = {true, need.bytes[1] - 7};
    bt_need_learn(need.learned_name, pools, 2, (const bt_known[]){{true, typed - 1}, device});
    find(LINE);
    assert_int_equal(need.bytes[0], typed);
    bt_need_learn(need.learned_name, pools, 2, (const bt_known[]){{true, typed + 7}, device});
    find(LINE); /* of no pinned layers: the 7 bytes may be some that it moved */
    assert_int_equal(need.bytes[0], typed);
    bt_need_learn(need.learned_name, pools, 2, (const bt_known[]){{true, typed + 8}, device});
    find(LINE);
    assert_int_equal(need.how, BT_NEED_PRICED);
    assert_int_equal(need.bytes[0], typed + 1);
    assert_int_equal(need.bytes[1], device.value + 7);
    find(LINE " -ngl 0");
    typed = need.bytes[0];
    bt_need_learn(need.learned_name, pools, 1, (const bt_known[]){{true, typed + 1}});
    find(LINE " -ngl 0");
    assert_int_equal(need.bytes[0], typed + 1);
}

/* ---- devices ---- */

#define ON_DEVICE "llama-server -m %s -ngl 99 -c 131072 -np 1 --cache-ram 0"

static void on_a_device(void **state) {
    (void)state;
    bt_guard_price price;
    ask.n_pools = 2;
    find(ON_DEVICE);
    price_of(ON_DEVICE, 0, &price);
    assert_int_equal(need.bytes[1], price.device_bytes);
    /* while it is loaded all of the file is mapped, whatever goes on to the device */
    assert_int_equal(need.bytes[0], price.host_firm_bytes + file_bytes());
    assert_string_equal(need.decision, "unchanged");
    assert_true(need.can_shrink);
    assert_false(need.by_budget);
    assert_true(need.least_bytes[1] < need.bytes[1] && need.least_bytes[1] > need.bytes[1] / 4);
    assert_true(need.least_bytes[0] > need.bytes[0]); /* the cache of what was moved */
    ask.free_bytes[1] = (bt_known){true, need.bytes[1] - 1};
    uint64_t bytes = need.bytes[1];
    find(ON_DEVICE);
    assert_string_equal(need.decision, "trimmed");
    assert_int_equal(need.bytes[1], bytes); /* what it takes as it is typed does not depend on what is free */
    ask.free_bytes[1].value = need.least_bytes[1];
    find(ON_DEVICE);
    assert_string_equal(need.decision, "offloaded");
    ask.free_bytes[1].value = need.least_bytes[1] - 1;
    find(ON_DEVICE);
    assert_string_equal(need.decision, "refused");
    assert_string_equal(need.code, "gpu_floor");
    model.min_gpu_fraction = -1; /* no floor: all of it may go */
    find(ON_DEVICE);
    assert_string_equal(need.decision, "offloaded");
    ask.free_bytes[1] = (bt_known){0}; /* not said: no limit is known */
    find(ON_DEVICE);
    assert_string_equal(need.decision, "unchanged");
}

static void a_ceiling_of_the_configuration(void **state) {
    (void)state;
    ask.n_pools = 2;
    find(ON_DEVICE);
    bt_config_device device = {.name = "Vulkan0", .budget_bytes = {true, need.bytes[1]}};
    config.devices = &device;
    config.n_devices = 1;
    find(ON_DEVICE);
    assert_string_equal(need.decision, "unchanged");
    device.target_bytes = (bt_known){true, need.bytes[1] - 1};
    find(ON_DEVICE);
    assert_string_equal(need.decision, "trimmed");
}

/* ---- with the memory device ---- */

static void its_weights_may_stream(void **state) {
    (void)state;
    char path[4096];
    if (!bt_beside_find("libggml-burthen.so", R_OK, path, sizeof path)) skip();
    model.model = model_path;
    model.ram = BT_CONFIG_RAM_AUTO;
    find("llama-server -m %s -c 1024 -np 1");
    assert_true(need.can_shrink && need.by_budget);
    /* the program, its cache and its graph are there; of its prompt cache nothing, since nobody asked for one */
    assert_true(need.least_bytes[0] > 40 * KIT_MIB && need.least_bytes[0] < 128 * KIT_MIB);
    uint64_t least = need.least_bytes[0];
    find("llama-server -m %s -c 2048 -np 1");
    assert_true(need.least_bytes[0] >= least + KIT_MIB); /* a KiB of cache a token */
    find("llama-server -m %s -c 1024 -np 1 --cache-ram 64");
    assert_int_equal(need.least_bytes[0] / KIT_MIB, least / KIT_MIB + 64);
    find("llama-server -m %s -c 1024 -np 1 -nkvo"); /* no budget holds that */
    assert_false(need.by_budget);
    find("llama-server -m %s -c 4096 -np 1"); /* nor a context that the model was not trained for */
    assert_false(need.by_budget);
    model.ram = BT_CONFIG_RAM_OFF;
    find("llama-server -m %s -c 1024 -np 1");
    assert_true(need.can_shrink && !need.by_budget); /* its prompt cache alone */
    assert_int_equal(need.least_bytes[0], need.bytes[0] - 8192 * KIT_MIB);
    model.ram = BT_CONFIG_RAM_AUTO;
    model.model = NULL; /* a command of the user's own does not stream */
    find("llama-server -m %s -c 1024 -np 1");
    assert_true(need.can_shrink && !need.by_budget);
}

/* ---- what it is ---- */

static void described(void **state) {
    (void)state;
    find("llama-server -m %s -c 4096 -np 4");
    assert_string_equal(need.arch, "llama");
    assert_int_equal(need.file_bytes, file_bytes());
    /* 2 x 1024 x 256; of 2 blocks 2 x 256 norms, 3 x 512 x 256, queries and output 2 x 256 x 256, keys and values 2 x
     * 128 x 256; the output norm */
    assert_int_equal(need.n_params, 2 * 1024 * 256 + 2 * (512 + 3 * 131072 + 2 * 65536 + 2 * 32768) + 256);
    assert_int_equal(need.n_ctx_train, 2048);
    assert_false(need.has_template);
    assert_false(need.embeds);
    assert_int_equal(need.n_slots, 4);
    assert_int_equal(need.n_ctx, 1024); /* of each */
    find("llama-server -m %s -c 4096 -np 4 -kvu --embedding");
    assert_int_equal(need.n_ctx, 2048); /* of all, but no more than was trained */
    assert_true(need.embeds);
    find("llama-completion -m %s -c 4096");
    assert_int_equal(need.n_slots, 0);
}

/* ---- through a copy ---- */

typedef struct waiting {
    bt_loop *loop;
    uint32_t n;
    bt_need got;
} waiting;

static void on_need(void *user, const bt_need *got) {
    waiting *w = user;
    w->n++;
    w->got = *got;
    bt_loop_stop(w->loop);
}

static void on_time(void *user) {
    bt_loop_stop(user);
}

static void start_and_wait(waiting *w) {
    bt_needing *needing = NULL;
    assert_int_equal(bt_loop_open(&w->loop, NULL), BT_OK);
    ask.loop = w->loop;
    assert_int_equal(bt_need_start(&ask, on_need, w, &needing, NULL), BT_OK);
    assert_int_equal(w->n, 0); /* never at once */
    assert_int_equal(bt_loop_run(w->loop, NULL), BT_OK);
    assert_int_equal(w->n, 1);
    bt_loop_close(w->loop);
}

static void through_a_copy(void **state) {
    (void)state;
    waiting w = {0};
    find(LINE);
    model.cmd = (char **)(uintptr_t)words.argv;
    start_and_wait(&w);
    assert_memory_equal(&w.got, &need, sizeof need);
    w = (waiting){0};
    model.cmd = NULL; /* the router's own line */
    model.model = model_path;
    start_and_wait(&w);
    assert_int_equal(w.got.how, BT_NEED_PRICED);
    assert_string_equal(w.got.arch, "llama");
}

static void nothing_to_start(void **state) {
    (void)state;
    waiting w = {0};
    char *none[] = {NULL};
    model.cmd = none;
    start_and_wait(&w);
    assert_int_equal(w.got.how, BT_NEED_UNKNOWN);
    assert_true(w.got.reason[0] != '\0');
}

static void cancelled(void **state) {
    (void)state;
    waiting w = {0};
    bt_needing *needing = NULL;
    model.model = model_path;
    assert_int_equal(bt_loop_open(&w.loop, NULL), BT_OK);
    ask.loop = w.loop;
    assert_int_equal(bt_need_start(&ask, on_need, &w, &needing, NULL), BT_OK);
    bt_need_cancel(needing);
    bt_need_cancel(NULL);
    bt_timer timer = {.on_time = on_time, .user = w.loop};
    bt_loop_timer_set(w.loop, &timer, 300);
    assert_int_equal(bt_loop_run(w.loop, NULL), BT_OK);
    assert_int_equal(w.n, 0);
    bt_loop_close(w.loop);
}

static void their_names(void **state) {
    (void)state;
    assert_string_equal(bt_need_how_name(BT_NEED_UNKNOWN), "unknown");
    assert_string_equal(bt_need_how_name(BT_NEED_DECLARED), "declared");
    assert_string_equal(bt_need_how_name(BT_NEED_BUDGET), "budget");
    assert_string_equal(bt_need_how_name(BT_NEED_PRICED), "priced");
    assert_string_equal(bt_need_how_name(BT_NEED_LEARNED), "learned");
}

/* What whoever runs the tests has set for llama.cpp is no part of them. */
static void forget_settings(void) {
    char name[128];
    for (char **at = environ; *at;) {
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(*at, "="), *at);
        if (strncmp(name, "LLAMA_", 6) == 0 && unsetenv(name) == 0)
            at = environ; /* the list has changed */
        else
            at++;
    }
}

int main(void) {
    forget_settings();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(declared, start),
        cmocka_unit_test_setup(held_to_a_budget, start),
        cmocka_unit_test_setup(priced, start),
        cmocka_unit_test_setup(an_open_context, start),
        cmocka_unit_test_setup(the_prompt_cache, start),
        cmocka_unit_test_setup(its_environment, start),
        cmocka_unit_test_setup(not_known, start),
        cmocka_unit_test_setup(seen_before, start),
        cmocka_unit_test_setup(on_a_device, start),
        cmocka_unit_test_setup(a_ceiling_of_the_configuration, start),
        cmocka_unit_test_setup(its_weights_may_stream, start),
        cmocka_unit_test_setup(described, start),
        cmocka_unit_test_setup(through_a_copy, start),
        cmocka_unit_test_setup(nothing_to_start, start),
        cmocka_unit_test_setup(cancelled, start),
        cmocka_unit_test(their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
