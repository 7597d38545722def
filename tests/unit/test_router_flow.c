/* SPDX-License-Identifier: MIT
 * test_router_flow.c: bytes come out as they went in, never more than allowed are held, and both ends are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "random.h"
#include "router/flow.h"

#include <stdlib.h>
#include <string.h>

static uint32_t n_data, n_room;

static void count(void *user) {
    ++*(uint32_t *)user;
}

static bt_flow *open_flow(size_t max_bytes) {
    bt_flow *flow = NULL;
    assert_int_equal(bt_flow_open(max_bytes, &flow, NULL), BT_OK);
    n_data = n_room = 0;
    bt_flow_on_data(flow, count, &n_data);
    bt_flow_on_room(flow, count, &n_room);
    return flow;
}

static int all_is_free(void **state) {
    (void)state;
    return bt_heap_live_blocks() == 0 && bt_flow_total_bytes() == 0 ? 0 : -1;
}

static char piece[1 << 16];

static void bytes_come_out_as_they_went_in(void **state) {
    (void)state;
    bt_flow *flow = open_flow(100);
    char out[64];
    assert_int_equal(bt_flow_take(flow, out, sizeof out), 0);
    assert_true(bt_flow_put(flow, "one", 3));
    assert_true(bt_flow_put(flow, "two", 3));
    assert_true(bt_flow_put(flow, "", 0)); /* nothing: nobody is told */
    assert_int_equal(n_data, 2);
    assert_int_equal(bt_flow_held(flow), 6);
    assert_int_equal(bt_flow_take(flow, out, 4), 4);
    assert_memory_equal(out, "onet", 4);
    assert_int_equal(bt_flow_take(flow, out, sizeof out), 2);
    assert_memory_equal(out, "wo", 2);
    assert_false(bt_flow_ended(flow));
    assert_true(bt_flow_put(flow, "end", 3));
    bt_flow_end(flow, true);
    bt_flow_end(flow, false); /* the first counts */
    assert_int_equal(n_data, 4);
    assert_false(bt_flow_ended(flow)); /* something is left */
    assert_int_equal(bt_flow_take(flow, out, sizeof out), 3);
    assert_true(bt_flow_ended(flow) && bt_flow_whole(flow));
    assert_true(bt_flow_put(flow, "late", 4));
    assert_int_equal(bt_flow_held(flow), 0);
    assert_int_equal(n_room, 0);
    bt_flow_drop_producer(flow);
    bt_flow_drop_consumer(flow);
}

static void no_more_is_held_than_allowed(void **state) {
    (void)state;
    bt_flow *flow = open_flow(10000);
    assert_true(bt_flow_put(flow, piece, 1));
    assert_int_equal(bt_flow_total_bytes(), 4096);
    assert_true(bt_flow_put(flow, piece, 5999));
    assert_int_equal(bt_flow_total_bytes(), 8192);
    assert_false(bt_flow_put(flow, piece, 4001)); /* nothing of it */
    assert_int_equal(bt_flow_held(flow), 6000);
    assert_true(bt_flow_put(flow, piece, 4000));
    assert_int_equal(bt_flow_total_bytes(), 10000);
    assert_false(bt_flow_put(flow, piece, 1));
    assert_int_equal(bt_flow_take(flow, piece, 4999), 4999);
    assert_int_equal(n_room, 0);
    assert_int_equal(bt_flow_take(flow, piece, 1), 1);
    assert_int_equal(n_room, 1); /* half is free */
    assert_int_equal(bt_flow_take(flow, piece, 1000), 1000);
    assert_int_equal(n_room, 1);
    assert_int_equal(bt_flow_take(flow, piece, sizeof piece), 4000);
    assert_int_equal(bt_flow_total_bytes(), 0); /* given back */
    bt_flow_drop_consumer(flow);
    bt_flow_drop_producer(flow);
}

/* A piece that is larger than all goes in alone. */
static void a_piece_over_the_maximum_waits_for_an_empty_flow(void **state) {
    (void)state;
    bt_flow *flow = open_flow(100);
    assert_true(bt_flow_put(flow, piece, 10));
    assert_false(bt_flow_put(flow, piece, 101));
    assert_int_equal(bt_flow_take(flow, piece, 5), 5);
    assert_int_equal(n_room, 1);
    assert_false(bt_flow_put(flow, piece, 101));
    assert_int_equal(bt_flow_take(flow, piece, 5), 5);
    assert_int_equal(n_room, 2);
    assert_true(bt_flow_put(flow, piece, 20000));
    assert_int_equal(bt_flow_held(flow), 20000);
    assert_false(bt_flow_put(flow, piece, 1));
    assert_int_equal(bt_flow_take(flow, piece, sizeof piece), 20000);
    assert_int_equal(n_room, 3);
    bt_flow_drop_producer(flow);
    assert_true(bt_flow_ended(flow));
    assert_false(bt_flow_whole(flow)); /* broken off */
    bt_flow_drop_consumer(flow);
}

static void a_producer_hears_that_the_consumer_has_gone(void **state) {
    (void)state;
    bt_flow *flow = open_flow(100);
    assert_true(bt_flow_put(flow, piece, 100));
    assert_true(bt_flow_is_read(flow));
    bt_flow_drop_consumer(flow);
    assert_false(bt_flow_is_read(flow));
    assert_int_equal(n_room, 1);
    assert_int_equal(bt_flow_total_bytes(), 0);
    assert_true(bt_flow_put(flow, piece, 200)); /* dropped */
    assert_int_equal(bt_flow_total_bytes(), 0);
    assert_int_equal(n_data, 1);
    bt_flow_drop_producer(flow);
}

/* Any mixture of sizes: what is taken is what was put, and the bound holds. */
static void any_order_of_puts_and_takes_keeps_the_bytes(void **state) {
    (void)state;
    uint64_t seed = 20260801;
    bt_flow *flow = open_flow(9000);
    uint64_t n_put = 0;
    uint64_t n_taken = 0;
    for (int round = 0; round < 20000; round++) {
        size_t n = random_next(&seed) % 3000;
        unsigned char bytes[3000];
        if (random_next(&seed) % 2 == 0) {
            for (size_t i = 0; i < n; i++)
                bytes[i] = (unsigned char)((n_put + i) * 7 / 3);
            if (bt_flow_put(flow, bytes, n)) n_put += n;
        } else {
            size_t got = bt_flow_take(flow, bytes, n);
            for (size_t i = 0; i < got; i++)
                assert_int_equal(bytes[i], (unsigned char)((n_taken + i) * 7 / 3));
            n_taken += got;
        }
        assert_int_equal(bt_flow_held(flow), n_put - n_taken);
        assert_true(bt_flow_held(flow) <= 9000 && bt_flow_total_bytes() <= 9000);
    }
    assert_true(n_taken > 1000000);
    bt_flow_drop_producer(flow);
    bt_flow_drop_consumer(flow);
}

/* ---- ends that answer each other ---- */

typedef struct pump {
    bt_flow *flow;
    uint64_t n_left, n_taken;
    uint32_t depth, deepest;
} pump;

static void produce(pump *p) {
    while (p->n_left > 0 && bt_flow_put(p->flow, piece, 60))
        p->n_left--;
}

static void on_room(void *user) {
    pump *p = user;
    if (++p->depth > p->deepest) p->deepest = p->depth;
    produce(p);
    p->depth--;
}

static void on_data(void *user) {
    pump *p = user;
    if (++p->depth > p->deepest) p->deepest = p->depth;
    p->n_taken += bt_flow_take(p->flow, piece, 60);
    p->depth--;
}

/* Each put is taken in the consumer's function, each take makes the producer put: a million times on the same stack. */
static void ends_that_answer_each_other_need_no_stack(void **state) {
    (void)state;
    pump p = {.n_left = 1000000};
    p.flow = open_flow(100);
    bt_flow_on_data(p.flow, on_data, &p);
    bt_flow_on_room(p.flow, on_room, &p);
    produce(&p);
    assert_int_equal(p.n_left, 0);
    assert_int_equal(p.n_taken, 60000000);
    assert_true(p.deepest <= 2);
    bt_flow_drop_producer(p.flow);
    bt_flow_drop_consumer(p.flow);
}

static void on_data_that_goes(void *user) {
    bt_flow **flow = user;
    bt_flow_drop_consumer(*flow);
}

static void on_room_that_goes(void *user) {
    bt_flow **flow = user;
    bt_flow_drop_producer(*flow);
    *flow = NULL;
}

/* The consumer goes when it is told, the producer when it hears of that: all within one put. */
static void both_ends_may_go_while_they_are_told(void **state) {
    (void)state;
    bt_flow *flow = open_flow(100);
    bt_flow *both = flow;
    bt_flow_on_data(flow, on_data_that_goes, &both);
    bt_flow_on_room(flow, on_room_that_goes, &both);
    assert_true(bt_flow_put(flow, "x", 1));
    assert_null(both);
}

static void nobody_need_be_told(void **state) {
    (void)state;
    bt_flow *flow = open_flow(100);
    bt_flow_on_data(flow, NULL, NULL);
    bt_flow_on_room(flow, NULL, NULL);
    assert_true(bt_flow_put(flow, piece, 100));
    assert_false(bt_flow_put(flow, piece, 100));
    assert_int_equal(bt_flow_take(flow, piece, 100), 100);
    bt_flow_end(flow, true);
    bt_flow_drop_consumer(flow);
    bt_flow_drop_producer(flow);
    assert_int_equal(n_data + n_room, 0);
}

#define CHECKED(test) cmocka_unit_test_teardown(test, all_is_free)

int main(void) {
    const struct CMUnitTest tests[] = {
        CHECKED(bytes_come_out_as_they_went_in),
        CHECKED(no_more_is_held_than_allowed),
        CHECKED(a_piece_over_the_maximum_waits_for_an_empty_flow),
        CHECKED(a_producer_hears_that_the_consumer_has_gone),
        CHECKED(any_order_of_puts_and_takes_keeps_the_bytes),
        CHECKED(ends_that_answer_each_other_need_no_stack),
        CHECKED(both_ends_may_go_while_they_are_told),
        CHECKED(nobody_need_be_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
