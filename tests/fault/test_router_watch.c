/* SPDX-License-Identifier: MIT
 * test_router_watch.c: the k-th allocation of watching fails, for every k: what can be said without it is said, nothing
 * leaks, and the same object works afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "exposition_check.h"
#include "router/activity.h"
#include "router/events.h"
#include "router/metrics.h"
#include "router_json.h"
#include "usage_check.h"

#define N_FAULT_MAX 3000

static size_t n_in_array(char *text) {
    json_t *json = json_of(text);
    const json_t *rows = json_is_array(json) ? json : json_at(json, "rows");
    size_t n = json_array_size(rows);
    json_decref(json);
    return n;
}

static void usage(void **state) {
    (void)state;
    static const char text[] = "{\"usage\":{\"prompt_tokens\":7}}";
    bt_fault_arm(0, false);
    bt_usage none = usage_of(false, text, sizeof text - 1, 3);
    assert_true(bt_fault_disarm());
    assert_false(none.prompt_tokens.known);
    bt_fault_arm(1, false); /* there is only one */
    bt_usage u = usage_of(false, text, sizeof text - 1, 3);
    assert_false(bt_fault_disarm());
    assert_int_equal(u.prompt_tokens.value, 7);
}

/* One life of a list of requests. */
static void live_with_activity(uint32_t *ret_n_added, uint32_t *ret_n_failed) {
    bt_activity *activity = NULL;
    bt_error err = {0};
    if (bt_activity_open(&activity, &err) != BT_OK) {
        assert_string_equal(err.code, "heap");
        (*ret_n_failed)++;
        return;
    }
    for (uint64_t id = 1; id <= 120; id++) {
        bt_activity_row row = {.id = id, .model = "m"};
        bt_activity_add(activity, &row);
    }
    char *text = NULL;
    err = (bt_error){0};
    if (bt_activity_json(activity, &(bt_activity_filter){.limit = 1000}, &text, &err) == BT_OK) {
        *ret_n_added = (uint32_t)n_in_array(text);
    } else {
        assert_string_equal(err.code, "heap");
        (*ret_n_failed)++;
    }
    bool hit = bt_fault_disarm();
    if (hit) bt_fault_arm(UINT64_MAX, false);
    /* Afterwards it works. */
    bt_activity_row row = {.id = 500, .model = "m"};
    bt_activity_add(activity, &row);
    assert_int_equal(bt_activity_json(activity, &(bt_activity_filter){.after_id = 499}, &text, NULL), BT_OK);
    assert_int_equal(n_in_array(text), 1);
    assert_int_equal(bt_activity_row_json(&row, &text, NULL), BT_OK);
    bt_heap_free(text);
    bt_activity_close(activity);
    if (hit) return;
    bt_fault_arm(UINT64_MAX, false);
}

static void activity(void **state) {
    (void)state;
    uint32_t n_failed = 0;
    bool lost_one = false;
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        uint64_t live = bt_heap_live_blocks();
        uint32_t n_added = 0;
        uint32_t before = n_failed;
        bt_fault_arm(k, false);
        live_with_activity(&n_added, &n_failed);
        (void)bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        if (n_failed > before) continue;
        if (n_added == 120) break;
        assert_int_equal(n_added, 119); /* the row that asked for a block */
        lost_one = true;
    }
    assert_true(lost_one);
    assert_true(n_failed > 3);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

typedef struct listener {
    bt_flow *flow;
    uint64_t n_events, n_lost, n_ended;
    char text[8192];
    size_t n;
} listener;

static void take(listener *l) {
    for (size_t n = 1; n > 0; l->n += n)
        n = bt_flow_take(l->flow, l->text + l->n, sizeof l->text - 1 - l->n);
    l->text[l->n] = '\0';
    for (char *frame = strstr(l->text, "event: "); frame; frame = strstr(frame + 1, "event: ")) {
        bool lost = strncmp(frame, "event: dropped", 14) == 0;
        if (!lost) l->n_events++;
        if (lost) l->n_lost += strtoull(strstr(frame, "\"n\":") + 4, NULL, 10);
    }
    l->n = 0;
    if (bt_flow_ended(l->flow)) l->n_ended++;
}

static void live_with_events(uint32_t *ret_n_failed) {
    bt_events *events = NULL;
    bt_error err = {0};
    if (bt_events_open(&events, &err) != BT_OK) {
        assert_string_equal(err.code, "heap");
        (*ret_n_failed)++;
        return;
    }
    listener l = {0};
    if (bt_flow_open(1024, &l.flow, NULL) != BT_OK) {
        bt_events_close(events);
        (*ret_n_failed)++;
        return;
    }
    assert_int_equal(bt_events_listen(events, 0, l.flow, NULL), BT_OK);
    for (uint32_t i = 0; i < 20; i++) {
        bt_events_add(events, "model", "{\"x\":1}");
        if (i % 7 == 6) take(&l);
    }
    take(&l);
    bool ended = bt_flow_ended(l.flow);
    char *text = NULL;
    if (bt_events_json(events, NULL, &text, NULL) == BT_OK)
        assert_int_equal(n_in_array(text), 20 - bt_events_dropped(events));
    else
        (*ret_n_failed)++;
    if (bt_fault_disarm()) (*ret_n_failed)++;
    /* A listener whose flow has failed is let go, and comes back; any other has had everything, or been told. */
    assert_int_equal(bt_events_listeners(events), ended ? 0 : 1);
    if (!ended) assert_int_equal(l.n_events + l.n_lost, 20);
    if (!ended) assert_int_equal(l.n_lost, bt_events_dropped(events));
    bt_flow_drop_consumer(l.flow);
    l = (listener){0};
    assert_int_equal(bt_flow_open(4096, &l.flow, NULL), BT_OK);
    assert_int_equal(bt_events_listen(events, 20, l.flow, NULL), BT_OK);
    bt_events_add(events, "model", "{\"x\":2}");
    take(&l);
    assert_int_equal(l.n_events, 1);
    bt_events_close(events);
    assert_true(bt_flow_whole(l.flow));
    bt_flow_drop_consumer(l.flow);
}

static void events(void **state) {
    (void)state;
    uint32_t n_failed = 0;
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        uint64_t live = bt_heap_live_blocks();
        uint32_t before = n_failed;
        bt_fault_arm(k, false);
        live_with_events(&n_failed);
        (void)bt_fault_disarm();
        assert_int_equal(bt_heap_live_blocks(), live);
        assert_int_equal(bt_flow_total_bytes(), 0);
        if (n_failed == before) break;
    }
    assert_true(n_failed > 20);
}

/* ---- metrics ----------------------------------------------------------------------------------------------------- */

static void metrics(void **state) {
    (void)state;
    bt_text said;
    bt_text_init(&said, 1u << 20);
    for (uint32_t i = 0; i < 300; i++)
        bt_text_addf(&said, "# TYPE f%u gauge\nf%u 1\nf%u{a=\"b\"} 2\n", i, i, i);
    bt_metrics_model models[2] = {{.id = "a", .state = "ready", .child_text = said.data, .n_child_text = said.n_bytes},
                                  {.id = "b"}};
    bt_metrics_view view = {.models = models, .n_models = 2};
    uint32_t n_failed = 0;
    uint32_t n_partly = 0;
    for (uint64_t k = 0;; k++) {
        assert_true(k < N_FAULT_MAX);
        uint64_t live = bt_heap_live_blocks();
        bt_text out;
        bt_text_init(&out, 1u << 20);
        bt_fault_arm(k, false);
        bt_metrics_text(&view, &out);
        bool hit = bt_fault_disarm();
        if (out.failed) n_failed++;
        if (!out.failed) { /* what is there is whole */
            expo *e = expo_read(bt_text_str(&out), out.n_bytes, true);
            if (e->wrong[0]) fail_msg("k %llu: %s", (unsigned long long)k, e->wrong);
            const double *left_out = expo_value(e, "burthen_metrics_left_out{model=\"a\"}");
            uint64_t n_there = 0;
            for (size_t i = 0; i < e->n_samples; i++)
                n_there += e->samples[i].series[0] == 'f';
            n_partly += hit;
            if (!hit) assert_int_equal(n_there, 600);
            if (!hit) assert_true(*left_out == 0);
            if (hit && left_out) assert_true(*left_out >= 1 && (double)n_there + *left_out >= 600);
            expo_close(e);
        }
        bt_text_done(&out);
        assert_int_equal(bt_heap_live_blocks(), live);
        if (!hit) break;
    }
    assert_true(n_failed > 5 && n_partly > 5);
    bt_text_done(&said);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage),
        cmocka_unit_test(activity),
        cmocka_unit_test(events),
        cmocka_unit_test(metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
