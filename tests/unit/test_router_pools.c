/* SPDX-License-Identifier: MIT
 * test_router_pools.c: the memories that models share, from recorded machines and from what a copy might answer:
 * limits, readings that fail, cards that come and go, and whose places stay.
 *
 * Copies are not made: the linker puts __wrap_bt_aside_start in the place of bt_aside_start (tests/CMakeLists.txt),
 * which answers what the test wants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/heap.h"
#include "router/pools.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MIB UINT64_C(1048576)
#define GIB UINT64_C(1073741824)
#define KIB UINT64_C(1024)

#define AT_ONCE_MS 4000 /* well below the 5 s of one that is idle, and enough for a machine that makes a pause */

#define GPU(name)  BT_TEST_DATA "/gpus/" name
#define ROOT(name) BT_TEST_DATA "/roots/" name

static bt_loop *loop;
static bt_sampler *sampler;
static bt_config config;
static bt_config_device devices[8];
static uint32_t n_samples;

/* ---- in the place of a copy ---- */

typedef enum how {
    WORKS,    /* what the sampler's own work says, of the recorded tree */
    ANSWERS,  /* the text */
    HANGS,    /* the same, and it was killed for taking too long */
    FAILS,    /* the error: it died, or took too long */
    NOT_MADE, /* no copy can be made */
    NOT_YET,  /* it is on its way, until answer_late */
} how;

static struct {
    how how;
    const char *text;
    bt_timer timer;
    bt_aside_work *work;
    void *arg;
    bt_aside_done *on_done;
    void *user;
    uint32_t n_started, n_cancelled;
    uint64_t max_ms;
    bool on_its_way;
} aside;

static void answer(void *user) {
    bt_text text;
    bt_error err = {0};
    bt_status status = BT_OK;
    (void)user;
    bt_text_init(&text, BT_ASIDE_ANSWER_MAX);
    if (aside.how == WORKS) status = aside.work(aside.arg, &text, &err);
    if (aside.how == ANSWERS) bt_text_add(&text, aside.text);
    if (aside.how == FAILS || aside.how == HANGS)
        status = bt_fail(&err, BT_E_IO, "aside", BT_MEASURE_NONE, 0, 0, "%s", aside.text);
    if (aside.how == HANGS) err.sys = ETIMEDOUT;
    aside.on_its_way = false;
    aside.on_done(aside.user, &text, status == BT_OK ? NULL : &err);
    bt_text_done(&text);
}

bt_status __wrap_bt_aside_start(bt_loop *its_loop, bt_aside_work *work, void *arg, uint64_t max_ms,
                                bt_aside_done *on_done, void *user, bt_aside **ret, bt_error *err);
bt_status __wrap_bt_aside_start(bt_loop *its_loop, bt_aside_work *work, void *arg, uint64_t max_ms,
                                bt_aside_done *on_done, void *user, bt_aside **ret, bt_error *err) {
    assert_false(aside.on_its_way); /* one at a time */
    aside.n_started++;
    if (aside.how == NOT_MADE)
        return bt_fail(err, BT_E_IO, "aside", BT_MEASURE_NONE, 0, 0, "the router cannot be copied");
    aside.work = work;
    aside.arg = arg;
    aside.on_done = on_done;
    aside.user = user;
    aside.max_ms = max_ms;
    aside.on_its_way = true;
    aside.timer = (bt_timer){.on_time = answer};
    if (aside.how != NOT_YET) bt_loop_timer_set(its_loop, &aside.timer, 0);
    *ret = (bt_aside *)(void *)&aside;
    return BT_OK;
}

void __wrap_bt_aside_cancel(bt_aside *its);
void __wrap_bt_aside_cancel(bt_aside *its) {
    if (!its) return;
    aside.n_cancelled++;
    bt_loop_timer_stop(loop, &aside.timer);
    aside.on_its_way = false;
}

/* ---- a sampler ---- */

static void on_sample(void *user) {
    (void)user;
    n_samples++;
    bt_loop_stop(loop);
}

static void on_time(void *user) {
    bool *late = user;
    *late = true;
    bt_loop_stop(loop);
}

/* Whether there is a sample in so many ms. */
static bool wait_for(uint64_t ms) {
    bool late = false;
    bt_timer timer = {.on_time = on_time, .user = &late};
    bt_loop_timer_set(loop, &timer, ms);
    assert_int_equal(bt_loop_run(loop, NULL), BT_OK);
    bt_loop_timer_stop(loop, &timer);
    return !late;
}

static const bt_pools *look(const char *root) {
    if (!sampler) {
        assert_int_equal(bt_sampler_open(loop, root, &config, on_sample, NULL, &sampler, NULL), BT_OK);
        assert_false(bt_sampler_pools(sampler)->ready);
    } else {
        bt_sampler_ask(sampler);
    }
    assert_true(wait_for(5000));
    assert_true(bt_sampler_pools(sampler)->ready);
    return bt_sampler_pools(sampler);
}

static const bt_pools *look_at(const char *text) {
    aside.how = ANSWERS;
    aside.text = text;
    return look(ROOT("swap"));
}

static void has(uint32_t i, const char *name, bt_pool_state state) {
    const bt_pools *pools = bt_sampler_pools(sampler);
    assert_true(i < pools->n);
    assert_string_equal(pools->items[i].name, name);
    assert_int_equal(pools->items[i].state, state);
    assert_int_equal(bt_pools_find(pools, name), i);
}

static void is_bytes(bt_known known, uint64_t bytes) {
    assert_true(known.known);
    assert_int_equal(known.value, bytes);
}

static int start(void **state) {
    (void)state;
    config = (bt_config){.devices = devices, .limits = {.bodies_bytes = 64 * MIB}};
    memset(devices, 0, sizeof devices);
    memset(&aside, 0, sizeof aside);
    n_samples = 0;
    return bt_loop_open(&loop, NULL);
}

static int stop(void **state) {
    (void)state;
    bt_sampler_close(sampler);
    sampler = NULL;
    bt_loop_close(loop);
    return bt_heap_live_blocks() == 0 ? 0 : -1;
}

static void name_device(const char *name, uint64_t budget_bytes, uint64_t target_bytes) {
    devices[config.n_devices++] = (bt_config_device){.name = name,
                                                     .budget_bytes = {budget_bytes > 0, budget_bytes},
                                                     .target_bytes = {target_bytes > 0, target_bytes}};
}

/* ---- the host ---- */

static void a_host_without_a_budget(void **state) {
    (void)state;
    const bt_pools *pools = look(ROOT("swap"));
    has(0, "host", BT_READING_REPORTED);
    assert_int_equal(pools->n, 1);
    assert_false(pools->items[0].limit_bytes.known); /* what is free bounds it, less what `auto` leaves to others */
    is_bytes(pools->items[0].total_bytes, 4028340 * KIB);
    is_bytes(pools->items[0].free_bytes, GIB - 512 * MIB);
    assert_int_equal(pools->own_bytes, (48 + 64) * MIB);
    assert_true(pools->items[0].users_complete);
    assert_int_equal(bt_pools_find(pools, "CUDA0"), UINT32_MAX);
}

static void a_host_with_one(void **state) {
    (void)state;
    config.ram_budget_given = true;
    config.ram_budget_bytes = 2 * GIB;
    const bt_pools *pools = look(ROOT("swap"));
    is_bytes(pools->items[0].limit_bytes, 2 * GIB - (48 + 64) * MIB); /* the router's own line */
    is_bytes(pools->items[0].free_bytes, GIB);                        /* nothing is left to others of what was asked */
    config.ram_budget_bytes = 50 * MIB;                               /* not even the router's */
    pools = look(ROOT("swap"));
    is_bytes(pools->items[0].limit_bytes, 0);
}

/* The group's limit is lower than what the host has. */
static void a_host_in_a_group(void **state) {
    (void)state;
    const bt_pools *pools = look(ROOT("v2-cache-4g-before"));
    uint64_t automatic = pools->items[0].free_bytes.value;
    config.ram_budget_given = true;
    config.ram_budget_bytes = 64 * GIB;
    pools = look(NULL);
    is_bytes(pools->items[0].free_bytes, bt_sampler_pools(sampler)->items[0].free_bytes.value);
    assert_true(pools->items[0].free_bytes.value >= automatic + 512 * MIB);
    assert_true(pools->items[0].free_bytes.value < 4 * GIB);
    is_bytes(pools->items[0].limit_bytes, 64 * GIB - (48 + 64) * MIB);
}

static void a_host_that_cannot_be_read(void **state) {
    (void)state;
    config.ram_budget_given = true;
    config.ram_budget_bytes = GIB;
    const bt_pools *pools = look(BT_TEST_DATA "/nothing-here");
    has(0, "host", BT_READING_FAILED);
    assert_false(pools->items[0].free_bytes.known);
    assert_true(pools->items[0].reason[0] != '\0');
    is_bytes(pools->items[0].limit_bytes, GIB - (48 + 64) * MIB); /* the budget stands */
}

/* ---- devices, of recorded machines ---- */

static void a_card_and_its_users(void **state) {
    (void)state;
    aside.how = WORKS;
    const bt_pools *pools = look(GPU("amdgpu-card"));
    assert_int_equal(pools->n, 2);
    has(1, "card0", BT_READING_REPORTED);
    is_bytes(pools->items[1].total_bytes, UINT64_C(25753026560));
    is_bytes(pools->items[1].free_bytes, UINT64_C(25753026560) - 6 * GIB);
    is_bytes(pools->items[1].limit_bytes, UINT64_C(25753026560));
    assert_false(pools->items[1].target_bytes.known);
    assert_true(pools->items[1].users_complete);
    assert_string_equal(pools->items[1].reason, "");
    uint64_t of_1400 = 0, of_1600 = 0;
    assert_int_equal(pools->n_users, 4);
    for (uint32_t i = 0; i < pools->n_users; i++) {
        assert_int_equal(pools->users[i].pool, 1);
        assert_true(pools->users[i].bytes.known);
        if (pools->users[i].pid == 1400) of_1400 = pools->users[i].bytes.value;
        if (pools->users[i].pid == 1600) of_1600 = pools->users[i].bytes.value;
    }
    assert_int_equal(of_1400, 1200 * MIB);
    assert_int_equal(of_1600, 64 * MIB);
    assert_int_equal(aside.max_ms, 10000);
}

/* The memory of a processor's own graphics is the host's, and counted there. */
static void graphics_of_the_processor(void **state) {
    (void)state;
    aside.how = WORKS;
    const bt_pools *pools = look(GPU("amdgpu-apu"));
    assert_int_equal(pools->n, 1);
    assert_int_equal(pools->n_users, 0);
}

static void cards_that_cannot_be_read(void **state) {
    (void)state;
    aside.how = WORKS;
    name_device("card0", 8 * GIB, 0);
    const bt_pools *pools = look(GPU("unreadable"));
    has(1, "card0", BT_READING_FAILED);
    assert_false(pools->items[1].free_bytes.known);
    assert_false(pools->items[1].total_bytes.known);
    assert_string_equal(pools->items[1].reason, "cannot read mem_info_vram_used: Is a directory");
    is_bytes(pools->items[1].limit_bytes, 8 * GIB); /* named with a size */
    assert_true(pools->n > 2);
    assert_int_equal(pools->items[2].state, BT_READING_FAILED);
    assert_false(pools->items[2].limit_bytes.known); /* neither a size nor a reading: nothing bounds it */
    assert_true(pools->items[2].reason[0] != '\0' && pools->items[2].reason[0] != ' ');
}

/* ---- devices, as a copy says ---- */

#define TWO                                                                                                            \
    "D CUDA0 0000:01:00.0 1 1 25769803776 25000000000 \nU 77 1000\nU 78 2000\nD CUDA1 0000:02:00.0 1 0 8589934592 "    \
    "8000000000 \nU 77 5\n"

static void budgets(void **state) {
    (void)state;
    name_device("CUDA0", 22 * GIB, 21 * GIB);
    name_device("CUDA1", 9 * GIB, 0);
    name_device("CUDA2", 0, 0); /* without a size it is no pool before it is seen */
    name_device("Vulkan0", 2 * GIB, GIB);
    const bt_pools *pools = look_at(TWO);
    assert_int_equal(pools->n, 4);
    has(1, "CUDA0", BT_READING_REPORTED);
    is_bytes(pools->items[1].limit_bytes, 22 * GIB);
    is_bytes(pools->items[1].target_bytes, 21 * GIB);
    is_bytes(pools->items[2].limit_bytes, 8 * GIB); /* no more than there is */
    is_bytes(pools->items[2].target_bytes, 9 * GIB);
    assert_true(pools->items[1].users_complete);
    assert_false(pools->items[2].users_complete);
    has(3, "Vulkan0", BT_READING_ABSENT);
    is_bytes(pools->items[3].limit_bytes, 2 * GIB);
    is_bytes(pools->items[3].target_bytes, GIB);
    assert_false(pools->items[3].free_bytes.known);
    assert_false(pools->items[3].users_complete);
    assert_int_equal(pools->n_users, 3);
    assert_int_equal(pools->users[1].pid, 78);
    is_bytes(pools->users[1].bytes, 2000);
    assert_int_equal(pools->users[2].pool, 2);
}

/* Who keeps bytes by an index finds them there, whatever drivers show. */
static void places_stay(void **state) {
    (void)state;
    name_device("Vulkan0", 2 * GIB, 0);
    (void)look_at(TWO);
    const bt_pools *pools =
        look_at("D CUDA0 0000:02:00.0 1 1 8589934592 7000000000 \nU 5 6\n"); /* the first dropped out */
    assert_int_equal(pools->n, 4);
    has(1, "CUDA0", BT_READING_FAILED);
    assert_string_equal(pools->items[1].reason, "its driver does not show it any more");
    assert_false(pools->items[1].free_bytes.known);
    is_bytes(pools->items[1].limit_bytes, 24 * GIB);
    has(2, "CUDA1", BT_READING_REPORTED); /* by its place on the bus */
    is_bytes(pools->items[2].free_bytes, 7000000000);
    assert_int_equal(pools->n_users, 1);
    assert_int_equal(pools->users[0].pool, 2);
    has(3, "Vulkan0", BT_READING_ABSENT);
    /* NVML fails, and the kernel's names are all there is */
    pools = look_at("D card0 0000:01:00.0 2 0 0 0 NVML has failed\nD card1 0000:02:00.0 2 0 0 0 NVML has failed\n");
    assert_int_equal(pools->n, 4);
    has(1, "CUDA0", BT_READING_FAILED);
    assert_string_equal(pools->items[1].reason, "NVML has failed");
    has(2, "CUDA1", BT_READING_FAILED);
    is_bytes(pools->items[2].limit_bytes, 8 * GIB);
    assert_int_equal(pools->n_users, 0);
    /* or there is one failure for all */
    pools = look_at("D CUDA - 2 0 0 0 NVML has failed\n");
    assert_int_equal(pools->n, 5);
    has(4, "CUDA", BT_READING_FAILED);
    has(1, "CUDA0", BT_READING_FAILED);
    pools = look_at(TWO);
    assert_int_equal(pools->n, 4); /* of which nothing is left */
    has(1, "CUDA0", BT_READING_REPORTED);
    has(2, "CUDA1", BT_READING_REPORTED);
    is_bytes(pools->items[1].free_bytes, 25000000000);
}

/* A card that failed first under the kernel's name has the driver's when that can be asked. */
static void a_name_that_comes_later(void **state) {
    (void)state;
    (void)look_at("D card0 0000:01:00.0 2 0 0 0 NVML has failed\n");
    has(1, "card0", BT_READING_FAILED);
    const bt_pools *pools = look_at(TWO);
    assert_int_equal(pools->n, 3);
    has(1, "CUDA0", BT_READING_REPORTED);
    has(2, "CUDA1", BT_READING_REPORTED);
}

static void a_copy_that_fails(void **state) {
    (void)state;
    name_device("CUDA0", 22 * GIB, 0);
    aside.how = FAILS;
    aside.text = "the copy of the router took longer than 10000 ms";
    const bt_pools *pools = look(ROOT("swap")); /* at the first look too what is named bounds what is given away */
    assert_int_equal(pools->n, 2);
    has(0, "host", BT_READING_REPORTED); /* the host has its own reading */
    has(1, "CUDA0", BT_READING_FAILED);
    assert_string_equal(pools->items[1].reason, aside.text);
    is_bytes(pools->items[1].limit_bytes, 22 * GIB);
    (void)look_at(TWO);
    has(1, "CUDA0", BT_READING_REPORTED);
    assert_string_equal(bt_sampler_pools(sampler)->items[1].reason, "");
    static const how hows[] = {FAILS, NOT_MADE};
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        aside.how = hows[i];
        aside.text = "the copy of the router gave no answer";
        pools = look(NULL);
        assert_int_equal(pools->n, 3);
        has(1, "CUDA0", BT_READING_FAILED);
        has(2, "CUDA1", BT_READING_FAILED);
        is_bytes(pools->items[2].total_bytes, 8 * GIB);
        is_bytes(pools->items[2].limit_bytes, 8 * GIB);
        assert_false(pools->items[2].free_bytes.known);
        assert_false(pools->items[1].users_complete);
        assert_int_equal(pools->n_users, 0); /* of an old list nothing is said of now */
        has(0, "host", BT_READING_REPORTED);
    }
    uint32_t n = aside.n_started;
    (void)look_at(TWO); /* and it is tried again */
    assert_int_equal(aside.n_started, n + 1);
    has(2, "CUDA1", BT_READING_REPORTED);
}

/* Bytes of a device, and of the host's memory mapped for it: either may not be said. */
static void what_users_have(void **state) {
    (void)state;
    const bt_pools *pools = look_at("D CUDA0 - 1 1 100 40 \nU 1 7 8\nU 2 - 9\nU 3 7 -\nU 4 - -\nU 5 7 x\nU 6 7\n");
    assert_int_equal(pools->n_users, 5);
    is_bytes(pools->users[0].bytes, 7);
    is_bytes(pools->users[0].host_bytes, 8);
    assert_false(pools->users[1].bytes.known);
    is_bytes(pools->users[1].host_bytes, 9);
    assert_false(pools->users[2].host_bytes.known);
    assert_false(pools->users[3].bytes.known || pools->users[3].host_bytes.known);
    assert_int_equal(pools->users[4].pid, 6);
    is_bytes(bt_pools_used(&pools->items[1]), 60);
    is_bytes(pools->items[1].available_bytes, 40);
}

static void an_answer_that_does_not_read(void **state) {
    (void)state;
    const bt_pools *pools =
        look_at("D CUDA0 - 1 1 5\nD\nD x\nU 1 1\nU\nX y\n\nD CUDA1 - 1 1 100 50 \nU a 1\nU 4294967296 1\nU 3 x\nU 4\n");
    assert_int_equal(pools->n, 2);
    has(1, "CUDA1", BT_READING_REPORTED);
    assert_int_equal(pools->n_users, 1);
    assert_int_equal(pools->users[0].pid, 4);
    assert_false(pools->users[0].bytes.known); /* it has some, and nobody says how much */
}

static void no_more_than_there_is_room_for(void **state) {
    (void)state;
    bt_text text;
    bt_text_init(&text, 1 << 20);
    for (uint32_t i = 0; i < BT_POOL_MAX + 2; i++)
        bt_text_addf(&text, "D CUDA%u 0000:%02x:00.0 1 1 100 50 \nU %u 7\n", i, i + 1, i + 1);
    const bt_pools *pools = look_at(bt_text_str(&text));
    assert_int_equal(pools->n, BT_POOL_MAX);
    assert_int_equal(pools->n_users, BT_POOL_MAX - 1); /* those of cards that are left out are nobody's */
    bt_text_done(&text);
    bt_text_init(&text, 1 << 20);
    bt_text_add(&text, "D CUDA0 0000:01:00.0 1 1 100 50 \n");
    for (uint32_t i = 0; i < BT_POOLS_USERS_MAX + 1; i++)
        bt_text_addf(&text, "U %u 7\n", i + 1);
    pools = look_at(bt_text_str(&text));
    assert_int_equal(pools->n_users, BT_POOLS_USERS_MAX);
    assert_false(pools->items[1].users_complete); /* somebody is not in the list */
    bt_text_done(&text);
}

/* A driver that hangs keeps the copy that asks it: it is not asked again and again. */
static void a_driver_that_hangs(void **state) {
    (void)state;
    (void)look_at(TWO);
    aside.how = HANGS;
    aside.text = "the copy of the router took longer than 10000 ms";
    (void)look(NULL);
    has(1, "CUDA0", BT_READING_FAILED);
    uint32_t n = aside.n_started;
    aside.how = ANSWERS;
    aside.text = TWO;
    for (uint32_t i = 0; i < 5; i++) {
        const bt_pools *pools = look(NULL); /* the host is looked at all the same */
        has(0, "host", BT_READING_REPORTED);
        has(1, "CUDA0", BT_READING_FAILED);
        assert_string_equal(pools->items[1].reason, "the copy of the router took longer than 10000 ms");
        is_bytes(pools->items[1].limit_bytes, 24 * GIB);
    }
    assert_int_equal(aside.n_started, n);
    bt_sampler_reconfigure(sampler, &config); /* the operator's word */
    assert_true(wait_for(AT_ONCE_MS));
    assert_int_equal(aside.n_started, n + 1);
    has(1, "CUDA0", BT_READING_REPORTED);
    (void)look(NULL);
    assert_int_equal(aside.n_started, n + 2);
}

/* ---- when ---- */

static void without_devices_none_are_looked_for(void **state) {
    (void)state;
    name_device("Vulkan0", GIB, 0);
    (void)look_at("");
    (void)look(NULL);
    assert_int_equal(aside.n_started, 1);
    assert_int_equal(n_samples, 2);
    has(1, "Vulkan0", BT_READING_ABSENT);
    bt_sampler_reconfigure(sampler, &config); /* but when a configuration is read */
    assert_true(wait_for(AT_ONCE_MS));
    assert_int_equal(aside.n_started, 2);
    (void)look(NULL);
    assert_int_equal(aside.n_started, 2); /* which is once */
}

static void another_configuration(void **state) {
    (void)state;
    name_device("CUDA0", 22 * GIB, 21 * GIB);
    name_device("Vulkan0", GIB, 0);
    (void)look_at(TWO);
    has(3, "Vulkan0", BT_READING_ABSENT);
    config.n_devices = 0;
    name_device("CUDA1", 3 * GIB, 0);
    name_device("Vulkan1", 5 * GIB, 0);
    bt_sampler_reconfigure(sampler, &config);
    assert_true(wait_for(AT_ONCE_MS));
    const bt_pools *pools = bt_sampler_pools(sampler);
    assert_int_equal(pools->n, 5);
    is_bytes(pools->items[1].limit_bytes, 24 * GIB);
    assert_false(pools->items[1].target_bytes.known);
    is_bytes(pools->items[2].limit_bytes, 3 * GIB);
    has(3, "Vulkan0", BT_READING_ABSENT); /* in its place, and of no size that is known */
    assert_false(pools->items[3].limit_bytes.known);
    has(4, "Vulkan1", BT_READING_ABSENT);
    is_bytes(pools->items[4].limit_bytes, 5 * GIB);
}

/* Asked while a copy looks: what it has seen may be older than the question, so there is another look at once. */
static void asked_while_it_looks(void **state) {
    (void)state;
    (void)look_at(TWO);
    aside.how = NOT_YET;
    bt_sampler_ask(sampler);
    assert_false(wait_for(50));
    assert_true(aside.on_its_way);
    bt_sampler_ask(sampler);
    assert_int_equal(aside.n_started, 2);
    uint64_t asked_ms = bt_loop_now_ms(loop);
    aside.how = ANSWERS;
    bt_loop_timer_set(loop, &aside.timer, 0);
    assert_true(wait_for(AT_ONCE_MS));
    assert_true(bt_sampler_pools(sampler)->began_ms < asked_ms); /* though it came after the question */
    assert_true(wait_for(900));                                  /* not a second later */
    assert_true(bt_sampler_pools(sampler)->began_ms >= asked_ms);
    assert_int_equal(aside.n_started, 3);
    uint64_t since_ms = bt_loop_now_ms(loop);
    assert_true(!wait_for(300) || bt_loop_now_ms(loop) - since_ms > 3000);
    aside.how = NOT_YET;
    bt_sampler_ask(sampler);
    assert_false(wait_for(50));
    bt_sampler_close(sampler); /* while it is on its way */
    sampler = NULL;
    assert_int_equal(aside.n_cancelled, 1);
}

static void its_pace(void **state) {
    (void)state;
    (void)look_at(TWO);
    uint64_t began_ms = bt_loop_now_ms(loop);
    assert_true(!wait_for(1500) || bt_loop_now_ms(loop) - began_ms > 3000); /* idle: every 5 s */
    bt_sampler_pace(sampler, true);
    assert_true(wait_for(3000)); /* every second, and not when the one was due 5 s after the last */
    assert_true(wait_for(AT_ONCE_MS));
    bt_sampler_pace(sampler, false);
    assert_true(wait_for(AT_ONCE_MS)); /* the one that was due */
    bool at_once = false;
    for (uint32_t i = 0; i < 5 && !at_once; i++) {
        bt_sampler_ask(sampler);
        bt_sampler_pace(sampler, true); /* does not put off what was asked for */
        at_once = wait_for(900);
    }
    assert_true(at_once);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_host_without_a_budget, start, stop),
        cmocka_unit_test_setup_teardown(a_host_with_one, start, stop),
        cmocka_unit_test_setup_teardown(a_host_in_a_group, start, stop),
        cmocka_unit_test_setup_teardown(a_host_that_cannot_be_read, start, stop),
        cmocka_unit_test_setup_teardown(a_card_and_its_users, start, stop),
        cmocka_unit_test_setup_teardown(graphics_of_the_processor, start, stop),
        cmocka_unit_test_setup_teardown(cards_that_cannot_be_read, start, stop),
        cmocka_unit_test_setup_teardown(budgets, start, stop),
        cmocka_unit_test_setup_teardown(places_stay, start, stop),
        cmocka_unit_test_setup_teardown(a_name_that_comes_later, start, stop),
        cmocka_unit_test_setup_teardown(a_copy_that_fails, start, stop),
        cmocka_unit_test_setup_teardown(an_answer_that_does_not_read, start, stop),
        cmocka_unit_test_setup_teardown(what_users_have, start, stop),
        cmocka_unit_test_setup_teardown(no_more_than_there_is_room_for, start, stop),
        cmocka_unit_test_setup_teardown(a_driver_that_hangs, start, stop),
        cmocka_unit_test_setup_teardown(without_devices_none_are_looked_for, start, stop),
        cmocka_unit_test_setup_teardown(another_configuration, start, stop),
        cmocka_unit_test_setup_teardown(asked_while_it_looks, start, stop),
        cmocka_unit_test_setup_teardown(its_pace, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
