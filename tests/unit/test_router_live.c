/* SPDX-License-Identifier: MIT
 * test_router_live.c: what samples come to for a router's models: whose memory counts, who is told to end. Samples are
 * made here, models have no processes. Sizes in MiB; a card of 24 GiB and a host of 16. */
#include "router/live.h"

#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define GIB 1024u

static bt_pools pools;
static uint64_t now_ms;
static char stopped[256]; /* "a: reason; " of each that was told to */
static bt_models models;
static bt_held_config held;
static bt_config_model configs[4];
static bt_config_group groups[1];

const bt_pools *__wrap_bt_sampler_pools(const bt_sampler *sampler);
const bt_pools *__wrap_bt_sampler_pools(const bt_sampler *sampler) {
    (void)sampler;
    return &pools;
}

uint64_t __wrap_bt_loop_now_ms(const bt_loop *loop);
uint64_t __wrap_bt_loop_now_ms(const bt_loop *loop) {
    (void)loop;
    return now_ms;
}

void __wrap_bt_model_stop(bt_model *model, const char *reason);
void __wrap_bt_model_stop(bt_model *model, const char *reason) {
    size_t n = strlen(stopped);
    (void)snprintf(stopped + n, sizeof stopped - n, "%s: %s; ", model->id, reason);
    model->state = BT_MODEL_STOPPING;
}

static bt_known mib(uint64_t n) {
    return (bt_known){true, n * MIB};
}

static void put_pool(uint32_t at, const char *name, uint64_t total, uint64_t left) {
    pools.items[at] = (bt_pools_one){.state = BT_READING_REPORTED,
                                     .total_bytes = mib(total),
                                     .free_bytes = mib(left),
                                     .whole_bytes = mib(total),
                                     .available_bytes = mib(left),
                                     .limit_bytes = mib(total)};
    (void)snprintf(pools.items[at].name, sizeof pools.items[at].name, "%s", name);
}

/* Ready, idle, on the card, seen there. */
static bt_model *add(const char *id, uint64_t gib) {
    bt_model *model = bt_heap_alloc(sizeof *model);
    assert_non_null(model);
    (void)snprintf(model->id, sizeof model->id, "%s", id);
    model->all = &models;
    model->source = &held;
    model->config = &configs[models.n];
    configs[models.n].group = UINT32_MAX;
    model->state = BT_MODEL_READY;
    model->child = (bt_child *)(uintptr_t)&models; /* that it has one */
    model->reserved_bytes[1] = model->measured_bytes[1].value = gib * GIB * MIB;
    model->measured_bytes[1].known = true;
    model->memory.anon_bytes = mib(100);
    model->need.how = BT_NEED_DECLARED;
    model->used = models.n + 1;
    models.items[models.n++] = model;
    return model;
}

static int set_up(void **state) {
    (void)state;
    memset(&pools, 0, sizeof pools);
    memset(&models, 0, sizeof models);
    memset(configs, 0, sizeof configs);
    now_ms = 1000000;
    stopped[0] = '\0';
    assert_int_equal(bt_config_new(&held.config, NULL), BT_OK);
    held.config->oom_grace_ms = 2000;
    held.config->oom_reserve_bytes = GIB * MIB;
    models.source = &held;
    assert_int_equal(bt_live_open(&models, &models.live, NULL), BT_OK);
    assert_int_equal(bt_events_open(&models.ask.events, NULL), BT_OK);
    assert_int_equal(bt_log_ring_open(&models.ask.log, NULL), BT_OK);
    pools.n = 2;
    put_pool(0, "host", 16 * GIB, 12 * GIB);
    put_pool(1, "CUDA0", 24 * GIB, 24 * GIB - 500);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (uint32_t i = 0; i < models.n; i++)
        bt_heap_free(models.items[i]);
    bt_events_close(models.ask.events);
    bt_log_ring_close(models.ask.log);
    bt_live_close(models.live);
    bt_config_close(held.config);
    return 0;
}

/* A second later, with so much free. */
static void look(uint64_t host_left, uint64_t card_left) {
    now_ms += 1000;
    pools.items[0].available_bytes = pools.items[0].free_bytes = mib(host_left);
    pools.items[1].available_bytes = pools.items[1].free_bytes = mib(card_left);
    bt_models_watch(&models);
}

static uint64_t limit(uint32_t pool) {
    bt_known bytes = bt_models_limit(&models, pool);
    return bytes.known ? bytes.value / MIB : UINT64_MAX;
}

static void by_the_ceiling(void **state) {
    (void)state;
    look(12 * GIB, 24 * GIB - 500);
    add("a", 10), add("b", 6)->measured_bytes[1] = mib(6 * GIB);
    for (int i = 0; i < 5; i++)
        look(12 * GIB, 8 * GIB - 500);
    assert_int_equal(limit(1), 24 * GIB);
    for (int i = 0; i < 3; i++)
        look(12 * GIB, 100); /* others: 8092 - 400 MiB more */
    assert_int_equal(limit(1), 24 * GIB - (8 * GIB - 600) - GIB);
    assert_string_equal(stopped, "a: memory is needed by others (CUDA0); ");
    assert_int_equal(models.items[0]->counts.n_evictions, 1);
    assert_true(bt_models_watchdog(&models, 1) == BT_WATCHDOG_COOLING && !bt_models_pressed(&models));
}

/* V11: settings of a configuration that was read anew count at the next look. */
static void v11_settings(void **state) {
    (void)state;
    pools.items[1].limit_bytes = mib(20 * GIB);
    look(12 * GIB, 24 * GIB - 500);
    add("a", 16);
    look(12 * GIB, 8 * GIB - 500);
    held.config->oom_evict = false;
    for (int i = 0; i < 10; i++)
        look(12 * GIB, 100);
    assert_string_equal(stopped, "");
    assert_int_equal(limit(1), 20 * GIB - (8 * GIB - 600) - GIB); /* admission goes by it all the same (V10) */
    held.config->oom_reserve_off = true;
    look(12 * GIB, 100);
    assert_int_equal(limit(1), 20 * GIB - (8 * GIB - 600));
    held.config->oom_evict = true;
    look(12 * GIB, 100);
    assert_true(bt_models_pressed(&models));
    look(12 * GIB, 100);
    look(12 * GIB, 100);
    assert_string_equal(stopped, "a: memory is needed by others (CUDA0); ");
}

static void who_stays(void **state) {
    (void)state;
    look(12 * GIB, 24 * GIB - 500);
    bt_model *a = add("a", 4), *b = add("b", 4), *c = add("c", 4), *d = add("d", 4);
    held.config->groups = groups;
    held.config->n_groups = 1;
    groups[0].persistent = true;
    configs[1].persistent = true; /* b */
    configs[2].group = 0;         /* c */
    a->n_running = 1;
    d->n_waiting = 1;
    look(12 * GIB, 8 * GIB - 500);
    for (int i = 0; i < 10; i++)
        look(12 * GIB, 100);
    assert_string_equal(stopped, "");
    a->n_running = 0;
    for (int i = 0; i < 4; i++)
        look(12 * GIB, 100);
    assert_string_equal(stopped, "a: memory is needed by others (CUDA0); ");
    (void)b, (void)c;
}

/* User case 53, V6: a card that is full of ours, with nobody who asks for more: nobody goes, whatever is free. */
static void case_53_full(void **state) {
    (void)state;
    look(12 * GIB, 24 * GIB - 500);
    add("a", 20)->measured_bytes[1] = mib(24 * GIB - 500 - 40);
    for (int i = 0; i < 120; i++)
        look(12 * GIB, 40);
    assert_string_equal(stopped, "");
    assert_int_equal(limit(1), 24 * GIB);
}

/* Ours have been driven out of the card: it shows room, for what it had is on the host now. */
static void a_spill(void **state) {
    (void)state;
    pools.items[1].limit_bytes = mib(22 * GIB);
    look(12 * GIB, 24 * GIB - 500);
    bt_model *a = add("a", 12);
    a->mapped_bytes[1] = a->mapped_first_bytes[1] = mib(300);
    look(12 * GIB, 12 * GIB - 500);
    a->measured_bytes[1] = mib(9 * GIB);
    for (int i = 0; i < 5; i++)
        look(12 * GIB, 2 * GIB); /* others: 13 GiB; over the ceiling of 22 - 12.5 - 1, with 2 GiB free */
    assert_false(bt_models_pressed(&models));
    a->measured_bytes[1] = mib(11 * GIB);
    for (int i = 0; i < 5; i++)
        look(12 * GIB, 1100);
    assert_false(bt_models_pressed(&models));
    a->mapped_bytes[1] = mib(300 + 256);
    look(12 * GIB, 1100);
    assert_false(bt_models_pressed(&models)); /* not more than readings differ by */
    a->mapped_bytes[1] = mib(300 + 1024);
    look(12 * GIB, 1100);
    assert_true(bt_models_pressed(&models));
    look(12 * GIB, 1100);
    look(12 * GIB, 1100);
    assert_string_equal(stopped, "a: memory is needed by others (CUDA0); ");
}

/* One that is priced without the card may be on none; one that nobody priced may be on any. */
static void who_may_be_there(void **state) {
    (void)state;
    look(12 * GIB, 24 * GIB - 500);
    bt_model *a = add("a", 0);
    a->measured_bytes[1].known = false;
    look(12 * GIB, 24 * GIB - 500);
    assert_true(bt_models_ceiling(&models, 1)->trusted);
    a->need.how = BT_NEED_UNKNOWN;
    a->attribution[1].done = true;
    look(12 * GIB, 24 * GIB - 500);
    assert_false(bt_models_ceiling(&models, 1)->trusted);
    assert_string_equal(bt_models_ceiling(&models, 1)->reason, "a: nobody says what it holds");
    assert_false(bt_models_ceiling_of_devices(&models)->trusted);
    a->measured_bytes[1] = mib(0);
    look(12 * GIB, 24 * GIB - 500);
    assert_true(bt_models_ceiling(&models, 1)->trusted && bt_models_ceiling_of_devices(&models)->trusted);
    /* ready, and not looked at since: on its way */
    a->measured_bytes[1].known = false;
    a->attribution[1].done = false;
    look(12 * GIB, 24 * GIB - 500);
    assert_true(bt_models_ceiling(&models, 1)->trusted);
}

/* By difference, and who disturbs it. */
static void by_difference(void **state) {
    (void)state;
    look(12 * GIB, 24 * GIB - 500);
    bt_model *a = add("a", 8), *b = add("b", 8), *none = add("none", 0);
    a->state = b->state = none->state = BT_MODEL_ADMITTED;
    bt_model_attribute(a, BT_MODEL_STARTING);
    a->state = BT_MODEL_STARTING;
    assert_true(a->attribution[1].began && !a->attribution[1].spoiled);
    assert_int_equal(a->attribution[1].used_before_bytes.value, 500 * MIB);
    bt_model_attribute(none, BT_MODEL_STARTING); /* takes nothing there */
    none->state = BT_MODEL_STARTING;
    assert_true(!none->attribution[1].began && !a->attribution[1].spoiled);
    bt_model_attribute(b, BT_MODEL_STARTING);
    b->state = BT_MODEL_STARTING;
    assert_true(a->attribution[1].spoiled && b->attribution[1].spoiled); /* both are on the way at once */
    bt_attribution_ready(&a->attribution[1], mib(9000));
    bt_attribution_ready(&b->attribution[1], mib(9000));
    a->state = b->state = BT_MODEL_READY;
    b->state = BT_MODEL_ADMITTED; /* again, while a rests */
    bt_model_attribute(b, BT_MODEL_STARTING);
    b->state = BT_MODEL_STARTING;
    assert_false(b->attribution[1].spoiled);
    bt_model_attribute(a, BT_MODEL_STOPPING); /* what a gives back is not b's */
    assert_true(b->attribution[1].spoiled);
    a->state = BT_MODEL_STOPPING;
    b->state = BT_MODEL_ADMITTED;
    bt_model_attribute(b, BT_MODEL_STARTING); /* and is still on the way */
    assert_true(b->attribution[1].spoiled);
    bt_model_attribute(b, BT_MODEL_READY); /* neither a start nor an end */
}

/* The host: its own anonymous memory, a budget that is apart, and a stall. */
static void the_host(void **state) {
    (void)state;
    pools.own_anon_bytes = 10 * MIB;
    pools.items[0].limit_bytes = (bt_known){0};
    look(12 * GIB, 24 * GIB - 500);
    assert_int_equal(limit(0), UINT64_MAX);
    bt_model *a = add("a", 0), *b = add("b", 0);
    a->memory.anon_bytes = mib(3 * GIB), a->measured_bytes[0] = mib(6 * GIB);
    b->memory.anon_bytes = mib(2 * GIB), b->measured_bytes[0] = mib(7 * GIB);
    look(7 * GIB, 24 * GIB - 500);
    assert_int_equal(bt_models_ceiling(&models, 0)->foreign_bytes.value, (4 * GIB - 10) * MIB);
    for (int i = 0; i < 5; i++)
        look(500, 24 * GIB - 500);
    assert_string_equal(stopped, "a: memory is needed by others (host); ");
    assert_int_equal(limit(0), UINT64_MAX);
    models.live->watchdogs[0] = (bt_watchdog){0};
    stopped[0] = '\0';
    memset(&models.live->ceilings[0], 0, sizeof models.live->ceilings[0]);
    a->state = BT_MODEL_READY; /* full, of whom nobody knows, and nothing moves */
    for (int i = 0; i < 5; i++)
        look(500, 24 * GIB - 500);
    assert_string_equal(stopped, "");
    pools.stall = (bt_known){true, 2000};
    look(500, 24 * GIB - 500);
    look(500, 24 * GIB - 500);
    assert_string_equal(stopped, "a: memory is needed by others (host); ");
}

static void the_host_with_a_budget(void **state) {
    (void)state;
    held.config->ram_budget_given = true;
    pools.items[0].limit_bytes = mib(4 * GIB);
    look(12 * GIB, 24 * GIB - 500);
    look(5 * GIB, 24 * GIB - 500);
    assert_int_equal(limit(0), 4 * GIB); /* 8 GiB are beside it, others took 7 of them: the reserve is just there */
    look(5 * GIB - 200, 24 * GIB - 500);
    assert_int_equal(limit(0), 4 * GIB - 200);
    look(1 * GIB, 24 * GIB - 500);
    assert_int_equal(limit(0), 0);
    look(12 * GIB, 24 * GIB - 500);
    assert_int_equal(limit(0), 4 * GIB);
}

/* A place that another device has taken begins anew. */
static void another_device(void **state) {
    (void)state;
    look(12 * GIB, 24 * GIB - 500);
    look(12 * GIB, 20 * GIB - 500);
    assert_int_equal(limit(1), 19 * GIB);
    put_pool(1, "CUDA1", 24 * GIB, 20 * GIB);
    look(12 * GIB, 20 * GIB);
    assert_int_equal(limit(1), 24 * GIB);
}

/* User case 47: what a model holds grows with each token. A look that failed in between is no step without growth. */
static void case_47(void **state) {
    (void)state;
    char *json = NULL;
    look(12 * GIB, 24 * GIB - 500);
    bt_model *a = add("a", 10);
    for (uint64_t i = 0; i < 12; i++) {
        a->n_served += 300;
        a->measured_bytes[1].value += 20 * MIB;
        look(12 * GIB, 14 * GIB - 500 - 20 * i);
        pools.items[1].state = BT_READING_FAILED;
        a->n_served += 300;
        look(12 * GIB, 14 * GIB - 500 - 20 * i);
        pools.items[1].state = BT_READING_REPORTED;
    }
    assert_int_equal(bt_events_json(models.ask.events, "decision", &json, NULL), BT_OK);
    const char *first = strstr(json, "\"decision\":\"growth\",\"model\":\"a\",\"pool\":\"CUDA0\"");
    assert_non_null(first);
    assert_null(strstr(first + 1, "\"decision\":\"growth\""));
    assert_non_null(strstr(first, "\"grown_bytes\":167772160,\"tokens\":4800,\"left_tokens\":"));
    bt_heap_free(json);
    assert_string_equal(stopped, "");
}

/* What is said: a change of a quarter of a GiB, not each second. */
static void what_is_said(void **state) {
    (void)state;
    char *json = NULL;
    look(12 * GIB, 24 * GIB - 500);
    for (int i = 0; i < 100; i++)
        look(12 * GIB, 24 * GIB - 500 - (uint64_t)(i % 2) * 200); /* it trembles */
    assert_int_equal(bt_events_json(models.ask.events, "decision", &json, NULL), BT_OK);
    assert_string_equal(json, "[]");
    bt_heap_free(json);
    for (int i = 0; i < 100; i++)
        look(12 * GIB, 16 * GIB);
    assert_int_equal(bt_events_json(models.ask.events, "decision", &json, NULL), BT_OK);
    const char *first = strstr(json, "\"decision\":\"ceiling\",\"pool\":\"CUDA0\"");
    assert_non_null(first);
    assert_null(strstr(first + 1, "\"decision\":\"ceiling\""));
    bt_heap_free(json);
    assert_int_equal(bt_events_json(models.ask.events, "memory", &json, NULL), BT_OK);
    assert_non_null(strstr(json, "{\"name\":\"CUDA0\",\"total_bytes\":25769803776,\"limit_bytes\":25769803776,"));
    assert_true(strlen(json) < 2048);
    bt_heap_free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(by_the_ceiling, set_up, tear_down),
        cmocka_unit_test_setup_teardown(v11_settings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(case_53_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_spill, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_may_be_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(by_difference, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_host, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_host_with_a_budget, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_device, set_up, tear_down),
        cmocka_unit_test_setup_teardown(case_47, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_said, set_up, tear_down),
    };
    uint64_t live = bt_heap_live_blocks();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed || bt_heap_live_blocks() != live;
}
