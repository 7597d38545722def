/* SPDX-License-Identifier: MIT
 * test_router_log_ring.c: the last lines, whole and harmless, and what those who listen get of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "router/log_ring.h"

#include <stdio.h>
#include <string.h>

static bt_log_ring *ring;

static int open_ring(void **state) {
    (void)state;
    return bt_log_ring_open(&ring, NULL);
}

static int close_ring(void **state) {
    (void)state;
    bt_log_ring_close(ring);
    return bt_heap_live_blocks() == 0 && bt_flow_total_bytes() == 0 ? 0 : -1;
}

static void say(const char *text) {
    bt_log_ring_add(ring, text, strlen(text));
}

static void assert_holds(const char *want) {
    bt_text text;
    bt_text_init(&text, BT_LOG_RING_BYTES);
    bt_log_ring_text(ring, &text);
    assert_false(text.failed);
    assert_string_equal(bt_text_str(&text), want);
    bt_text_done(&text);
}

static void lines_are_put_together(void **state) {
    (void)state;
    say("on");
    assert_holds("");
    say("e\ntwo\r\nthr");
    assert_holds("one\ntwo\n");
    say("ee\rfour\n\n\n");
    assert_holds("one\ntwo\nthree\nfour\n");
    say("last words");
    assert_holds("one\ntwo\nthree\nfour\n");
    bt_log_ring_end_line(ring);
    bt_log_ring_end_line(ring);
    assert_holds("one\ntwo\nthree\nfour\nlast words\n");
}

static void words_cannot_drive_a_terminal(void **state) {
    (void)state;
    say("\x1b[2J\tgr\xc3\xbc\xc3");
    say("\x9f \xff\xc2\x9b \x7f\n"); /* a character in two pieces; no UTF-8; a C1 control; DEL */
    bt_log_ring_add(ring, "a\0b\n", 4);
    assert_holds("\\x1b[2J\tgr\xc3\xbc\xc3\x9f \\xff\\xc2\\x9b \\x7f\na\\x00b\n");
}

static void long_lines_are_cut_and_say_so(void **state) {
    (void)state;
    static char text[BT_LOG_RING_BYTES];
    memset(text, 'x', 10000);
    memcpy(text + 10000, "\nshort\n", 8);
    say(text);
    bt_text out;
    bt_text_init(&out, BT_LOG_RING_BYTES);
    bt_log_ring_text(ring, &out);
    assert_true(out.n_bytes <= BT_LOG_LINE_MAX + 1 + 6);
    assert_true(out.n_bytes >= BT_LOG_LINE_MAX - 8);
    assert_string_equal(out.data + out.n_bytes - 14, "x [cut]\nshort\n");
    bt_text_done(&out);
    /* Escaped it is too long, though it was not as it came. */
    memset(text, 1, 2000);
    text[2000] = '\n';
    text[2001] = '\0';
    say(text);
    bt_text_init(&out, BT_LOG_RING_BYTES);
    bt_log_ring_text(ring, &out);
    const char *last = strstr(bt_text_str(&out), "short\n") + 6;
    size_t n = strlen(last) - 1; /* without its newline */
    assert_true(n <= BT_LOG_LINE_MAX && n > BT_LOG_LINE_MAX - 10);
    assert_string_equal(last + n - 10, "\\x01 [cut]\n");
    bt_text_done(&out);
}

static void only_the_last_lines_are_held(void **state) {
    (void)state;
    char line[64];
    for (int i = 0; i < 20000; i++) {
        (void)snprintf(line, sizeof line, "line number %05d\n", i); /* 18 bytes */
        say(line);
        assert_true(bt_heap_live_bytes() < BT_LOG_RING_BYTES + 8192);
    }
    bt_text text;
    bt_text_init(&text, BT_LOG_RING_BYTES);
    bt_log_ring_text(ring, &text);
    assert_int_equal(text.n_bytes, BT_LOG_RING_BYTES / 18 * 18);
    (void)snprintf(line, sizeof line, "line number %05d\n", 20000 - (int)(BT_LOG_RING_BYTES / 18));
    assert_memory_equal(text.data, line, 18);
    assert_string_equal(text.data + text.n_bytes - 18, "line number 19999\n");
    bt_text_done(&text);
}

/* ---- listeners ---- */

static bt_flow *listen(bool history, size_t max_bytes) {
    bt_flow *flow = NULL;
    assert_int_equal(bt_flow_open(max_bytes, &flow, NULL), BT_OK);
    assert_int_equal(bt_log_ring_listen(ring, history, flow, NULL), BT_OK);
    return flow;
}

static void assert_gives(bt_flow *flow, const char *want) {
    static char got[BT_LOG_RING_BYTES + 1];
    got[bt_flow_take(flow, got, sizeof got - 1)] = '\0';
    assert_string_equal(got, want);
}

static void who_listens_gets_history_and_each_line(void **state) {
    (void)state;
    say("old\n");
    bt_flow *all = listen(true, 100);
    bt_flow *fresh = listen(false, 100);
    assert_gives(all, "old\n");
    assert_gives(fresh, "");
    say("new\nnot ended");
    assert_gives(all, "new\n");
    assert_gives(fresh, "new\n");
    bt_log_ring_close(ring);
    assert_true(bt_flow_ended(all) && bt_flow_whole(all));
    bt_flow_drop_consumer(all);
    bt_flow_drop_consumer(fresh);
    assert_int_equal(bt_log_ring_open(&ring, NULL), BT_OK);
}

static void who_is_slow_hears_how_much_is_lost(void **state) {
    (void)state;
    bt_flow *flow = listen(false, 32);
    say("0123456789abcdef\n0123456789abcdef\nlost\nlost\n");
    assert_gives(flow, "0123456789abcdef\n");
    assert_gives(flow, "[3 lines lost]\n"); /* as soon as there was room */
    say("next\n");
    assert_gives(flow, "next\n");
    bt_flow_drop_consumer(flow);
}

static void history_is_larger_than_the_flow(void **state) {
    (void)state;
    say("0123456789\n0123456789\n");
    bt_flow *flow = listen(true, 8);
    assert_gives(flow, "0123456789\n0123456789\n");
    bt_flow_drop_consumer(flow);
}

static void places_are_free_again(void **state) {
    (void)state;
    bt_flow *flows[BT_LOG_LISTENERS_MAX];
    for (uint32_t i = 0; i < BT_LOG_LISTENERS_MAX; i++)
        flows[i] = listen(false, 100);
    bt_flow *more = NULL;
    bt_error err = {0};
    assert_int_equal(bt_flow_open(100, &more, NULL), BT_OK);
    assert_int_equal(bt_log_ring_listen(ring, true, more, &err), BT_E_LIMIT);
    assert_string_equal(err.code, "log_listeners");
    bt_flow_drop_consumer(flows[3]); /* at once, without a line */
    assert_int_equal(bt_log_ring_listen(ring, true, more, &err), BT_OK);
    flows[3] = more;
    say("x\n");
    for (uint32_t i = 0; i < BT_LOG_LISTENERS_MAX; i++) {
        assert_gives(flows[i], "x\n");
        bt_flow_drop_consumer(flows[i]);
    }
}

static void on_data_that_goes(void *user) {
    bt_flow_drop_consumer(user);
}

static void who_listens_may_go_when_told(void **state) {
    (void)state;
    bt_flow *flow = listen(false, 100);
    bt_flow *stays = listen(false, 100);
    bt_flow_on_data(flow, on_data_that_goes, flow);
    say("x\ny\n");
    assert_gives(stays, "x\ny\n");
    bt_flow_on_data(stays, on_data_that_goes, stays);
    bt_log_ring_close(ring); /* goes when it is ended */
    assert_int_equal(bt_log_ring_open(&ring, NULL), BT_OK);
}

static char heard[64];

static void on_line(void *user, const char *line, size_t n) {
    assert_ptr_equal(user, heard);
    assert_int_equal(strlen(line), n);
    (void)snprintf(heard + strlen(heard), sizeof heard - strlen(heard), "<%s>", line);
}

static void every_line_is_handed_on(void **state) {
    (void)state;
    heard[0] = '\0';
    bt_log_ring_on_line(ring, on_line, heard);
    say("one\ntwo\n");
    bt_log_ring_on_line(ring, NULL, NULL);
    say("three\n");
    assert_string_equal(heard, "<one><two>");
}

#define WITH_RING(test) cmocka_unit_test_setup_teardown(test, open_ring, close_ring)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_RING(lines_are_put_together),
        WITH_RING(words_cannot_drive_a_terminal),
        WITH_RING(long_lines_are_cut_and_say_so),
        WITH_RING(only_the_last_lines_are_held),
        WITH_RING(who_listens_gets_history_and_each_line),
        WITH_RING(who_is_slow_hears_how_much_is_lost),
        WITH_RING(history_is_larger_than_the_flow),
        WITH_RING(places_are_free_again),
        WITH_RING(who_listens_may_go_when_told),
        WITH_RING(every_line_is_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
