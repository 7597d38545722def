/* SPDX-License-Identifier: MIT
 * test_router_policy.c: steps of the policy, one by one. T19 and T20 are of the research notes (seed 4); user cases
 * 12, 24, 50, 51, 52 and 53 bear their numbers. Sizes are in units. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "policy_kit.h"

#include <stdio.h>

static policy_kit kit;

static const char *const kinds[] = {"wait", "run", "admit", "drain", "resume", "refuse"};

/* "admit c -a -b", "wait 100", "refuse c 0 8/6": the next step in words. */
static const char *next(void) {
    static char text[512];
    bt_policy_step *s = &kit.step;
    bt_policy_next(&kit.view, s);
    int n = snprintf(text, sizeof text, "%s", kinds[s->kind]);
    if (s->kind == BT_POLICY_WAIT) {
        if (s->wake_ms != UINT64_MAX)
            (void)snprintf(text + n, sizeof text - (size_t)n, " %llu", (unsigned long long)s->wake_ms);
        return text;
    }
    n += snprintf(text + n, sizeof text - (size_t)n, " %s", kit.models[s->model].id);
    if (s->shrunk) n += snprintf(text + n, sizeof text - (size_t)n, " %llu", (unsigned long long)s->bytes[0]);
    if (s->kind == BT_POLICY_REFUSE)
        (void)snprintf(text + n, sizeof text - (size_t)n, " %u %llu/%llu", s->pool, (unsigned long long)s->need_bytes,
                       (unsigned long long)s->have_bytes);
    for (uint32_t k = 0; k < s->n_victims; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, " -%s", kit.models[s->victims[k]].id);
    return text;
}
static void then(const char *expected) {
    assert_string_equal(next(), expected);
    uint64_t used = 1000;
    kit_apply(&kit, &kit.step, &used);
}

/* ---- requests ---- */

static void runs_what_is_ready(void **state) {
    (void)state;
    kit_start(&kit, 10);
    then("wait");
    bt_policy_model *a = kit_resident(&kit, "a", 4), *b = kit_resident(&kit, "b", 4);
    then("wait");
    a->n_waiting = 3, a->waiting_ms = 50, a->concurrency = 2;
    b->n_waiting = 1, b->waiting_ms = 60;
    bt_policy_model *c = kit_waiter(&kit, "c", 4); /* wants to start: later */
    c->waiting_ms = 10 * MIN_MS;
    then("run b"); /* waits longest */
    a->waiting_ms = 40;
    then("run a");
    then("run a");
    c->n_waiting = 0;
    then("wait"); /* a has no slot for its third */
    a->n_running = 1, b->n_running = 0, b->n_waiting = 1, b->priority = 1, b->waiting_ms = 1;
    then("run b"); /* higher */
    a->draining = true;
    then("resume a"); /* nobody needs its place */
    then("run a");
    b->n_running = 0, b->n_waiting = 1, b->concurrency = 0;
    then("run b"); /* nobody has no slot at all */
    b->n_waiting = 1;
    then("wait");
}

static void states_have_names(void **state) {
    (void)state;
    assert_string_equal(bt_model_state_name(BT_MODEL_STOPPED), "stopped");
    assert_string_equal(bt_model_state_name(BT_MODEL_FAILED), "failed");
    assert_null(bt_model_state_name((bt_model_state)17));
}

/* ---- T19, T20 ---- */

static bt_policy_model *three(uint64_t limit, uint64_t a, uint64_t b, uint64_t c) {
    kit_start(&kit, limit);
    (void)kit_resident(&kit, "a", a);
    (void)kit_resident(&kit, "b", b);
    return kit_waiter(&kit, "c", c);
}

static void t19_admission(void **state) {
    (void)state;
    (void)three(24, 6, 5, 4);
    then("admit c");
    assert_int_equal(kit.step.bytes[0], 4);
    (void)three(12, 5, 5, 5);
    then("admit c -a");
    /* More than there is: what can be made smaller is given all, */
    bt_policy_model *c = three(8, 4, 4, 10);
    c->can_shrink = true, c->least_bytes[0] = 3;
    then("admit c 8 -a -b");
    /* and what cannot is refused: nobody is ended for it (decision 027). */
    (void)three(8, 4, 4, 10);
    then("refuse c 0 10/8");
    assert_int_equal(kit.models[0].state, BT_MODEL_READY);

    kit_start(&kit, 12);
    kit_resident(&kit, "pinned", 4)->persistent = true;
    (void)kit_resident(&kit, "a", 5);
    (void)kit_waiter(&kit, "c", 5);
    then("admit c -a");

    /* a resident that nobody knows the size of, though the limit seems to have room */
    kit_start(&kit, 24);
    (void)kit_resident(&kit, "known", 4);
    kit_resident(&kit, "unknown", 0)->held_known = false;
    (void)kit_waiter(&kit, "c", 4);
    then("admit c -unknown");

    /* a target that nobody knows the size of: all go */
    three(24, 4, 4, 0)->need_known = false;
    then("admit c -a -b");
    assert_int_equal(kit.step.bytes[0], 0);
    /* no limit and no reading: nothing bounds it (decision 027; the reference goes by its groups) */
    (void)three(0, 4, 4, 4);
    kit.pools[0].limit_bytes.known = false;
    then("admit c");
}

/* The limit is the live ceiling where that is lower and can be trusted: the executor's, min(budget, ceiling). */
static void t20_live_ceiling(void **state) {
    (void)state;
    (void)three(10, 6, 5, 4);
    then("admit c -a");
    (void)three(12, 5, 5, 5); /* a ceiling of 48 loosens nothing */
    then("admit c -a");
    (void)three(24, 6, 5, 4); /* one of 2 that cannot be trusted does not count */
    then("admit c");
    bt_policy_model *c = three(1, 6, 5, 4);
    then("refuse c 0 4/1");
    c->n_waiting = 1, c->can_shrink = true, c->least_bytes[0] = 1;
    then("admit c 1 -a -b");
}

/* ---- user cases ---- */

static void case_12_what_is_evicted_counts_as_free(void **state) {
    (void)state;
    kit_start(&kit, 24);
    kit.pools[0].free_bytes = known(4); /* 24 less 19.2 of A and what is not ours */
    (void)kit_resident(&kit, "A", 19);
    (void)kit_waiter(&kit, "B", 12);
    then("admit B -A");
    kit.models[1] = (bt_policy_model){.id = "B", .need_known = true, .need_bytes = {24}, .n_waiting = 1};
    kit.models[0].state = BT_MODEL_READY;
    then("refuse B 0 24/23");
}

static void case_24_a_small_one_that_fits_evicts_nobody(void **state) {
    (void)state;
    kit_start(&kit, 100);
    kit.view.n_pools = 3;
    kit.pools[1] = (bt_policy_pool){.name = "CUDA0", .limit_bytes = known(16000), .free_bytes = known(300)};
    kit.pools[2] = (bt_policy_pool){.name = "CUDA1", .limit_bytes = known(16000), .free_bytes = known(16000)};
    kit_resident(&kit, "llm", 10)->held_bytes[1] = 15700;
    kit_waiter(&kit, "embedder", 10)->need_bytes[2] = 6500;
    then("admit embedder");
    assert_int_equal(kit.step.bytes[2], 6500);
    assert_int_equal(kit.step.bytes[1], 0);
}

static void case_50_bytes_not_models(void **state) {
    (void)state;
    kit_start(&kit, 120);
    bt_policy_model *a = kit_resident(&kit, "A", 100), *b = kit_waiter(&kit, "B", 29);
    then("admit B -A");
    a->state = BT_MODEL_STOPPED;
    b->state = BT_MODEL_READY, b->n_waiting = 0;
    a->n_waiting = 1;
    then("admit A -B");
    kit_start(&kit, 120);
    (void)kit_resident(&kit, "A", 10);
    (void)kit_waiter(&kit, "B", 29);
    then("admit B");
}

static void case_51_memory_that_is_coming_back(void **state) {
    (void)state;
    kit_start(&kit, 100);
    kit.pools[0].free_bytes = known(20);
    bt_policy_model *a = kit_resident(&kit, "A", 80);
    a->state = BT_MODEL_STOPPING;
    bt_policy_model *other = kit_resident(&kit, "other", 5);
    (void)kit_waiter(&kit, "B", 90);
    then("admit B"); /* reserved; started when the bytes are there */
    (void)kit_waiter(&kit, "C", 8);
    then("admit C -other"); /* what B is to have is not given away */
    assert_int_equal(other->state, BT_MODEL_STOPPING);
}

static void case_52_one_start_for_twenty_requests(void **state) {
    (void)state;
    kit_start(&kit, 100);
    bt_policy_model *m = kit_waiter(&kit, "m", 10);
    m->n_waiting = 20, m->concurrency = 4;
    then("admit m");
    then("wait");
    m->state = BT_MODEL_STARTING;
    then("wait");
    m->state = BT_MODEL_READY;
    for (int i = 0; i < 4; i++)
        then("run m");
    then("wait");
}

static void case_53_full_and_nobody_asks(void **state) {
    (void)state;
    kit_start(&kit, 100);
    kit.pools[0].free_bytes = known(0);
    for (int i = 0; i < 4; i++)
        kit_resident(&kit, "abcd" + i, 23)->persistent = i % 2;
    for (uint32_t s = 0; s < 60; s++) {
        for (uint32_t i = 0; i < 4; i++)
            kit.models[i].idle_ms += 1000;
        then("wait");
    }
    kit.pools[0].limit_bytes = known(10); /* a ceiling that fell: the watchdog's matter, not admission's */
    then("wait");
    /* and those that are pinned never go */
    (void)kit_waiter(&kit, "e", 60);
    kit.pools[0].limit_bytes = known(100);
    kit.pools[0].free_bytes = known(8);
    then("refuse e 0 60/54");
}

/* ---- victims ---- */

static void least_recently_used_and_no_more_than_needed(void **state) {
    (void)state;
    kit_start(&kit, 30);
    bt_policy_model *a = kit_resident(&kit, "a", 1), *b = kit_resident(&kit, "b", 9);
    bt_policy_model *c = kit_resident(&kit, "c", 10), *d = kit_resident(&kit, "d", 10);
    (void)kit_waiter(&kit, "t", 9);
    then("admit t -b"); /* a is older and no help */
    a->state = b->state = BT_MODEL_READY;
    kit.models[4].state = BT_MODEL_STOPPED;
    kit.models[4].need_bytes[0] = 10;
    then("admit t -a -b");
    a->state = b->state = BT_MODEL_READY;
    kit.models[4].state = BT_MODEL_STOPPED;
    d->used = 0; /* never served: first */
    then("admit t -d");
    d->state = BT_MODEL_READY;
    kit.models[4].state = BT_MODEL_STOPPED;
    c->used = 0; /* ties by id */
    then("admit t -c");
}

static void only_from_a_pool_that_is_short(void **state) {
    (void)state;
    kit_start(&kit, 100);
    kit.view.n_pools = 2;
    kit.pools[1] = (bt_policy_pool){.name = "CUDA0", .limit_bytes = known(10)};
    bt_policy_model *host = kit_resident(&kit, "host", 50), *card = kit_resident(&kit, "card", 5);
    card->held_bytes[1] = 8;
    bt_policy_model *t = kit_waiter(&kit, "t", 5);
    t->need_bytes[1] = 8;
    then("admit t -card");
    assert_int_equal(host->state, BT_MODEL_READY);
    /* a pool that it takes nothing of is no matter, however short */
    card->state = BT_MODEL_READY, t->state = BT_MODEL_STOPPED, t->need_bytes[1] = 0;
    kit.pools[1].limit_bytes = known(1);
    kit.pools[1].free_bytes = known(0);
    then("admit t");
}

static void reserved_and_not_in_memory_yet(void **state) {
    (void)state;
    kit_start(&kit, 100);
    kit.pools[0].free_bytes = known(60);
    bt_policy_model *a = kit_resident(&kit, "a", 40);
    a->untouched_bytes[0] = 30; /* so that 30 of the 60 are its own */
    bt_policy_model *t = kit_waiter(&kit, "t", 30);
    then("admit t");
    t->state = BT_MODEL_STOPPED, t->need_bytes[0] = 31;
    then("admit t -a");
    a->state = BT_MODEL_READY, t->state = BT_MODEL_STOPPED, t->need_bytes[0] = 71;
    then("refuse t 0 71/70"); /* 60, and the 10 that it has */
}

static void holds_and_patience(void **state) {
    (void)state;
    bt_policy_model *c = three(10, 5, 5, 5);
    bt_policy_model *a = &kit.models[0], *b = &kit.models[1];
    a->idle_ms = 4000, b->idle_ms = 2500;
    then("wait 6000");
    a->idle_ms = 10000;
    then("admit c -a");
    c->state = BT_MODEL_STOPPED, a->state = BT_MODEL_READY;
    a->idle_ms = b->idle_ms = 100;
    c->waiting_ms = 5 * MIN_MS - 1;
    then("wait 1");
    c->waiting_ms++;
    then("admit c -a"); /* holds are not kept for longer than patience */
}

static void busy_ones_drain_when_patience_is_over(void **state) {
    (void)state;
    bt_policy_model *c = three(10, 5, 5, 5);
    bt_policy_model *a = &kit.models[0], *b = &kit.models[1];
    a->n_running = b->n_running = 1;
    a->n_waiting = 2, a->waiting_ms = 2000;
    char wake[32];
    (void)snprintf(wake, sizeof wake, "wait %u", 5 * MIN_MS - 100);
    then(wake);
    c->waiting_ms = 5 * MIN_MS;
    a->ready_ms = 7000;
    then("wait 3000"); /* it has just come, and its turn is worth its start */
    a->ready_ms = 10000;
    then("drain c -a");
    then("wait");
    a->n_running = 0; /* its two go on waiting: it is not given them */
    then("admit c -a");
    assert_int_equal(a->n_waiting, 2);
    /* who left makes draining needless */
    c->state = BT_MODEL_STOPPED, a->state = BT_MODEL_READY, a->draining = true;
    c->n_waiting = 0;
    then("resume a");
    then("run a");
    /* and so does another that has become idle */
    c->n_waiting = 1, a->draining = true;
    b->n_running = 0, b->idle_ms = 0;
    then("admit c -b");
    then("resume a");
}

static void what_is_idle_of_it_is_kept_so(void **state) {
    (void)state;
    bt_policy_model *c = three(10, 5, 5, 10);
    bt_policy_model *a = &kit.models[0], *b = &kit.models[1];
    a->n_running = 1;
    c->waiting_ms = 5 * MIN_MS;
    then("drain c -b -a");
    b->n_waiting = 1, b->waiting_ms = 1;
    then("wait");
    a->n_running = 0;
    then("admit c -a -b");
    assert_int_equal(b->n_waiting, 1);
}

static void a_place_is_kept(void **state) {
    (void)state;
    kit_start(&kit, 10);
    bt_policy_model *busy = kit_resident(&kit, "busy", 6);
    busy->n_running = 1;
    bt_policy_model *first = kit_waiter(&kit, "first", 8);
    first->waiting_ms = 1000;
    bt_policy_model *later = kit_waiter(&kit, "later", 3);
    then("admit later"); /* it fits, and first may get what it wants in time */
    later->state = BT_MODEL_STOPPED;
    first->waiting_ms = 5 * MIN_MS;
    then("drain first -busy");
    then("wait 299900"); /* now 8 of the 10 are kept, and later waits, with patience */
    later->need_bytes[0] = 2;
    then("admit later");
    /* to end others for itself it needs room beside an earlier one that is still patient, too */
    kit_start(&kit, 10);
    kit_resident(&kit, "busy", 6)->n_running = 1;
    (void)kit_resident(&kit, "idle", 4);
    kit_waiter(&kit, "first", 8)->waiting_ms = 1000;
    later = kit_waiter(&kit, "later", 4);
    later->waiting_ms = 1;
    (void)next();
    assert_int_equal(kit.step.kind, BT_POLICY_WAIT);
    later->need_bytes[0] = 2;
    then("admit later -idle");
}

/* ---- order ---- */

static void higher_first_until_patience_is_over(void **state) {
    (void)state;
    kit_start(&kit, 10);
    bt_policy_model *low = kit_waiter(&kit, "low", 8), *high = kit_waiter(&kit, "high", 8);
    high->priority = 5;
    low->waiting_ms = 1000;
    then("admit high");
    high->state = BT_MODEL_STOPPED;
    low->waiting_ms = 5 * MIN_MS;
    then("admit low");
    high->waiting_ms = 6 * MIN_MS, high->used = 8, low->used = 7;
    low->state = BT_MODEL_STOPPED;
    then("admit low"); /* of two whose patience is over: who was served longest ago */
    low->state = BT_MODEL_STOPPED, low->waiting_ms = 100;
    high->waiting_ms = 100, high->priority = 0;
    then("admit high"); /* ties by id */
}

static void who_may_not_try_is_left_alone(void **state) {
    (void)state;
    kit_start(&kit, 10);
    bt_policy_model *m = kit_waiter(&kit, "m", 100);
    m->state = BT_MODEL_FAILED, m->retry_ms = 700;
    then("wait 700");
    m->retry_ms = 0;
    then("refuse m 0 100/10");
    m->n_waiting = 1, m->need_bytes[0] = 1;
    then("admit m");
}

/* ---- less than it asked for ---- */

static void shrunk(void **state) {
    (void)state;
    kit_start(&kit, 20);
    kit.view.n_pools = 2;
    kit.pools[1] = (bt_policy_pool){.name = "CUDA0", .limit_bytes = known(10), .free_bytes = known(2)};
    kit_resident(&kit, "pinned", 2)->persistent = true;
    kit.models[0].held_bytes[1] = 1;
    bt_policy_model *a = kit_resident(&kit, "a", 3);
    a->held_bytes[1] = 6;
    bt_policy_model *free_of_card = kit_resident(&kit, "b", 3);
    bt_policy_model *t = kit_waiter(&kit, "t", 1);
    t->need_bytes[1] = 12, t->can_shrink = true;
    t->least_bytes[0] = 9, t->least_bytes[1] = 4; /* layers that the card has no room for go to the host */
    then("admit t 9 -a");
    assert_int_equal(kit.step.bytes[1], 8); /* 2 and what a has: less than the limit leaves */
    assert_int_equal(free_of_card->state, BT_MODEL_READY);
    a->state = BT_MODEL_READY, t->state = BT_MODEL_STOPPED, t->least_bytes[1] = 9;
    then("refuse t 1 9/8");
    t->n_waiting = 1, t->can_shrink = false;
    then("refuse t 1 12/8");
    /* one that fits as typed later waits for it rather than starting small */
    kit_start(&kit, 10);
    kit_resident(&kit, "busy", 6)->n_running = 1;
    t = kit_waiter(&kit, "t", 10);
    t->can_shrink = true, t->least_bytes[0] = 2;
    (void)next();
    assert_int_equal(kit.step.kind, BT_POLICY_WAIT);
}

/* ---- groups ---- */

static void groups(void **state) {
    (void)state;
    kit_start(&kit, 100);
    kit.groups[0] = (bt_config_group){.name = "turns", .swap = true};
    kit.groups[1] = (bt_config_group){.name = "alone", .exclusive = true};
    kit.groups[2] = (bt_config_group){.name = "always", .persistent = true};
    kit.groups[3] = (bt_config_group){.name = "pinned turns", .swap = true, .persistent = true};
    kit.view.n_groups = 4;
    bt_policy_model *a = kit_resident(&kit, "a", 5), *b = kit_resident(&kit, "b", 5), *c = kit_resident(&kit, "c", 5);
    (void)kit_resident(&kit, "d", 5); /* in none */
    a->group = 0, b->group = 2, c->group = 3;
    bt_policy_model *t = kit_waiter(&kit, "t", 5);
    t->group = 0;
    then("admit t -a"); /* in turns */
    a->state = BT_MODEL_READY, t->state = BT_MODEL_STOPPED, t->group = 1;
    then("admit t -a"); /* others but persistent ones, and but what is in no group */
    a->state = BT_MODEL_READY, t->state = BT_MODEL_STOPPED, t->group = 3;
    then("admit t -c"); /* a persistent group's own turns */
    c->state = BT_MODEL_READY, t->state = BT_MODEL_STOPPED, t->group = 2;
    then("admit t");
    t->state = BT_MODEL_STOPPED, t->group = 0, a->n_running = 1;
    (void)next();
    assert_int_equal(kit.step.kind, BT_POLICY_WAIT); /* however much memory there is */
    t->waiting_ms = 5 * MIN_MS;
    then("drain t -a");
    a->n_running = 0;
    then("admit t -a");
    /* of unknown size, with a group: that decides alone */
    a->state = BT_MODEL_READY, t->state = BT_MODEL_STOPPED, t->need_known = false;
    then("admit t -a");
    /* by bytes a persistent group's model does not go */
    t->state = BT_MODEL_STOPPED, t->need_known = true, t->group = UINT32_MAX, t->need_bytes[0] = 90;
    a->state = BT_MODEL_READY, a->draining = false;
    then("admit t -a -d");
    t->state = BT_MODEL_STOPPED, t->need_bytes[0] = 91;
    then("refuse t 0 91/90");
}

static void unknown_sizes(void **state) {
    (void)state;
    /* without a limit one that nobody knows goes when bytes are short, and not before */
    kit_start(&kit, 0);
    kit.pools[0].limit_bytes.known = false;
    kit.pools[0].free_bytes = known(10);
    bt_policy_model *u = kit_resident(&kit, "u", 0);
    u->held_known = false;
    bt_policy_model *t = kit_waiter(&kit, "t", 10);
    then("admit t");
    t->state = BT_MODEL_STOPPED, t->need_bytes[0] = 11;
    then("admit t -u");
    /* and one that is starting is waited for */
    kit_start(&kit, 100);
    u = kit_resident(&kit, "u", 0);
    u->held_known = false, u->state = BT_MODEL_STARTING;
    t = kit_waiter(&kit, "t", 10);
    t->waiting_ms = 5 * MIN_MS;
    then("wait");
    /* a target that needs all to go keeps others from coming, once its patience is over */
    kit_start(&kit, 100);
    kit_resident(&kit, "busy", 10)->n_running = 1;
    t = kit_waiter(&kit, "t", 0);
    t->need_known = false, t->waiting_ms = 1000;
    bt_policy_model *x = kit_waiter(&kit, "x", 10);
    then("admit x");
    x->state = BT_MODEL_STOPPED;
    t->waiting_ms = 5 * MIN_MS;
    then("drain t -busy");
    then("wait 299900");
    x->persistent = true; /* it would not have to go */
    then("admit x");
}

static void sizes_beyond_reason(void **state) {
    (void)state;
    kit_start(&kit, UINT64_MAX - 1);
    bt_policy_model *a = kit_resident(&kit, "a", UINT64_MAX), *b = kit_resident(&kit, "b", UINT64_MAX);
    (void)kit_resident(&kit, "c", 1);
    bt_policy_model *t = kit_waiter(&kit, "t", UINT64_MAX - 2);
    then("admit t -a -b"); /* c's 1 and t's are exactly the limit */
    a->state = b->state = BT_MODEL_READY, t->state = BT_MODEL_STOPPED, t->need_bytes[0] = UINT64_MAX;
    t->can_shrink = true, t->least_bytes[0] = UINT64_MAX;
    (void)next();
    assert_int_equal(kit.step.kind, BT_POLICY_REFUSE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_what_is_ready),
        cmocka_unit_test(states_have_names),
        cmocka_unit_test(t19_admission),
        cmocka_unit_test(t20_live_ceiling),
        cmocka_unit_test(case_12_what_is_evicted_counts_as_free),
        cmocka_unit_test(case_24_a_small_one_that_fits_evicts_nobody),
        cmocka_unit_test(case_50_bytes_not_models),
        cmocka_unit_test(case_51_memory_that_is_coming_back),
        cmocka_unit_test(case_52_one_start_for_twenty_requests),
        cmocka_unit_test(case_53_full_and_nobody_asks),
        cmocka_unit_test(least_recently_used_and_no_more_than_needed),
        cmocka_unit_test(only_from_a_pool_that_is_short),
        cmocka_unit_test(reserved_and_not_in_memory_yet),
        cmocka_unit_test(holds_and_patience),
        cmocka_unit_test(busy_ones_drain_when_patience_is_over),
        cmocka_unit_test(what_is_idle_of_it_is_kept_so),
        cmocka_unit_test(a_place_is_kept),
        cmocka_unit_test(higher_first_until_patience_is_over),
        cmocka_unit_test(who_may_not_try_is_left_alone),
        cmocka_unit_test(shrunk),
        cmocka_unit_test(groups),
        cmocka_unit_test(unknown_sizes),
        cmocka_unit_test(sizes_beyond_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
