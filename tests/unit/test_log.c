/* SPDX-License-Identifier: MIT
 * test_log.c: nothing without a sink; levels; cuts; one message at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct seen {
    unsigned n;
    bt_log_level level;
    char last[8192];
    bool nested;
    int inside, most_inside;
} seen;

static void keep(const bt_log_entry *entry, void *user) {
    seen *s = user;
    s->inside++; /* no lock of its own: the log's is enough */
    if (s->inside > s->most_inside) s->most_inside = s->inside;
    s->n++;
    s->level = entry->level;
    (void)snprintf(s->last, sizeof s->last, "%s", entry->message);
    if (s->nested) bt_log(BT_LOG_ERROR, "from the sink");
    s->inside--;
}

static int unset(void **state) {
    (void)state;
    bt_log_set(NULL, NULL, BT_LOG_ERROR);
    return 0;
}

static void test_levels(void **state) {
    (void)state;
    seen s = {0};
    assert_false(bt_log_wanted(BT_LOG_ERROR));
    bt_log(BT_LOG_ERROR, "nobody listens");
    bt_log_set(keep, &s, BT_LOG_WARN);
    assert_true(bt_log_wanted(BT_LOG_ERROR));
    assert_true(bt_log_wanted(BT_LOG_WARN));
    assert_false(bt_log_wanted(BT_LOG_INFO));
    bt_log(BT_LOG_INFO, "not wanted");
    assert_int_equal(s.n, 0);
    bt_log(BT_LOG_WARN, "%s is %d", "it", 5);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.level, BT_LOG_WARN);
    assert_string_equal(s.last, "it is 5");
    bt_log_set(keep, &s, BT_LOG_DEBUG);
    bt_log(BT_LOG_DEBUG, "ends in newlines\n\n");
    assert_string_equal(s.last, "ends in newlines");
    bt_log_set(NULL, &s, BT_LOG_DEBUG);
    assert_false(bt_log_wanted(BT_LOG_ERROR));
    bt_log(BT_LOG_ERROR, "gone");
    assert_int_equal(s.n, 2);
}

static void test_long(void **state) {
    (void)state;
    seen s = {0};
    bt_log_set(keep, &s, BT_LOG_INFO);
    char text[5001];
    memset(text, 'x', 5000);
    text[5000] = '\0';
    bt_log(BT_LOG_INFO, "%s", text);
    assert_int_equal(strlen(s.last), 4095);
    assert_string_equal(s.last + 4090, "xx...");
    for (int i = 0; i < 5000; i++) {
        text[i] = i % 2 ? '\xA9' : '\xC3';
    }
    bt_log(BT_LOG_INFO, "x%s", text); /* one byte further, a character lies over the cut */
    assert_string_equal(s.last + strlen(s.last) - 5, "\xC3\xA9...");
}

static void test_sink_that_logs(void **state) {
    (void)state;
    seen s = {.nested = true};
    bt_log_set(keep, &s, BT_LOG_INFO);
    bt_log(BT_LOG_INFO, "outer");
    assert_int_equal(s.n, 1);
    assert_string_equal(s.last, "outer");
}

static void *log_often(void *user) {
    (void)user;
    for (int i = 0; i < 2000; i++) {
        bt_log(BT_LOG_INFO, "message %d", i);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    static seen s;
    bt_log_set(keep, &s, BT_LOG_INFO);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, log_often, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(s.n, 8000);
    assert_int_equal(s.most_inside, 1);
}

int main(void) {
#define CASE(f) cmocka_unit_test_teardown(f, unset)
    const struct CMUnitTest tests[] = {
        CASE(test_levels),
        CASE(test_long),
        CASE(test_sink_that_logs),
        CASE(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
