/* SPDX-License-Identifier: MIT
 * test_memory_device.c: what ggml and libllama are told of the memory device (docs/design.md M1, M2), and how many
 * graphs it knows again (M4).
 *
 * The device has no model here: what it says of itself, and what it keeps of a graph, does not depend on one. */
#include "device/device.h"

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define BUDGET_BYTES (UINT64_C(64) << 20)
#define N_MAX        32 /* tensors of a test's graph */

typedef struct rig {
    bt_facts facts; /* of no model */
    bt_account *account;
    bt_device *device;
    ggml_backend_dev_t dev;
    ggml_backend_t backend;
} rig;

static void open_rig(rig *r) {
    uint64_t caps[BT_LINE_COUNT];
    for (int i = 0; i < BT_LINE_COUNT; i++)
        caps[i] = UINT64_MAX;
    memset(r, 0, sizeof *r);
    assert_int_equal(bt_account_open(caps, BUDGET_BYTES, &r->account, NULL), BT_OK);
    bt_device_params params = {
        .account = r->account, .facts = &r->facts, .n_threads = 1, .n_ubatch = 1, .budget_bytes = BUDGET_BYTES};
    bt_error err = {0};
    if (bt_device_open(&params, &r->device, &err) != BT_OK) fail_msg("%s", err.text);
    bt_device_set_phase(r->device, BT_PHASE_CONTEXT);
    r->dev = bt_device_ggml(r->device);
    r->backend = ggml_backend_dev_init(r->dev, NULL);
}

static void close_rig(rig *r) {
    ggml_backend_free(r->backend);
    bt_device_close(r->device);
    assert_true(bt_account_close(r->account));
}

/* ---- a graph of n steps of x = 2 x, known by a uid ---- */

typedef struct work {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *x, *y;
} work;

static void make_work(const rig *r, work *w, uint64_t uid, uint32_t n) {
    struct ggml_init_params params = {ggml_tensor_overhead() * N_MAX + ggml_graph_overhead(), NULL, true};
    w->ctx = ggml_init(params);
    assert_non_null(w->ctx);
    w->y = w->x = ggml_new_tensor_1d(w->ctx, GGML_TYPE_F32, 4);
    for (uint32_t i = 0; i < n; i++)
        w->y = ggml_scale(w->ctx, w->y, 2);
    w->graph = ggml_new_graph_custom(w->ctx, N_MAX, false);
    ggml_build_forward_expand(w->graph, w->y);
    w->graph->uid = uid;
    w->buffer = ggml_backend_alloc_ctx_tensors_from_buft(w->ctx, bt_device_buffer_type(r->device));
    assert_non_null(w->buffer);
}

static enum ggml_status run_work(const rig *r, work *w) {
    static const float ones[4] = {1, 1, 1, 1};
    ggml_backend_tensor_set(w->x, ones, 0, sizeof ones);
    return ggml_backend_graph_compute(r->backend, w->graph);
}

static float result_of(const work *w) {
    float got[4];
    ggml_backend_tensor_get(w->y, got, 0, sizeof got);
    return got[3];
}

static void free_work(work *w) {
    ggml_backend_buffer_free(w->buffer);
    ggml_free(w->ctx);
}

static bt_device_stats stats_of(const rig *r) {
    bt_device_stats stats;
    bt_device_stats_read(r->device, &stats);
    return stats;
}

/* ---- M1: what it is ---- */

static void what_it_says(void **state) {
    (void)state;
    rig r;
    open_rig(&r);
    assert_string_equal(ggml_backend_dev_name(r.dev), "Burthen0");
    assert_int_equal(ggml_backend_dev_type(r.dev), GGML_BACKEND_DEVICE_TYPE_GPU);
    size_t free_bytes = 0, total_bytes = 0;
    ggml_backend_dev_memory(r.dev, &free_bytes, &total_bytes);
    assert_int_equal(total_bytes, BUDGET_BYTES);
    assert_int_equal(free_bytes, BUDGET_BYTES - bt_account_committed_bytes(r.account));
    work w;
    make_work(&r, &w, 1, 1);
    ggml_backend_buffer_clear(w.buffer, 0); /* touched and charged, or neither */
    ggml_backend_dev_memory(r.dev, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, BUDGET_BYTES - bt_account_committed_bytes(r.account));
    assert_false(ggml_backend_dev_offload_op(r.dev, w.y)); /* large batches are not taken from others */
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    assert_int_equal(ggml_backend_dev_supports_op(r.dev, w.y), ggml_backend_dev_supports_op(cpu, w.y));
    free_work(&w);
    close_rig(&r);
}

/* M2: capabilities with which the loader stages through 4 x 1 MiB; no mapping of the file, no pointer of others. */
static void what_it_can(void **state) {
    (void)state;
    rig r;
    open_rig(&r);
    struct ggml_backend_dev_props props;
    ggml_backend_dev_get_props(r.dev, &props);
    assert_true(props.caps.async && props.caps.events && props.caps.host_buffer);
    assert_false(props.caps.buffer_from_host_ptr || props.caps.mmap_support);
    assert_false(ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(r.dev)));
    assert_non_null(ggml_backend_dev_host_buffer_type(r.dev));
    assert_true(ggml_backend_buft_is_host(ggml_backend_dev_host_buffer_type(r.dev)));
    close_rig(&r);
}

/* One engine, however often it is asked for: the loader's, and each context's. */
static void one_backend(void **state) {
    (void)state;
    rig r;
    open_rig(&r);
    ggml_backend_t second = ggml_backend_dev_init(r.dev, NULL);
    assert_ptr_equal(second, r.backend);
    ggml_backend_free(second);
    work w;
    make_work(&r, &w, 1, 3);
    assert_int_equal(run_work(&r, &w), GGML_STATUS_SUCCESS); /* the other's end is not its end */
    assert_true(result_of(&w) == 8);
    free_work(&w);
    close_rig(&r);
}

static bool stop_at_once(void *user) {
    (*(int *)user)++;
    return true;
}

/* -t and Ctrl-C reach a backend through these two names of its registry, and through no other. */
static void threads_and_interrupts(void **state) {
    (void)state;
    rig r;
    open_rig(&r);
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(r.dev);
    void *threads = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    void *abort = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_abort_callback");
    assert_true(threads && abort && !ggml_backend_reg_get_proc_address(reg, "ggml_backend_something_else"));
    ggml_backend_set_n_threads_t set_n_threads;
    ggml_backend_set_abort_callback_t set_abort;
    memcpy(&set_n_threads, &threads, sizeof threads);
    memcpy(&set_abort, &abort, sizeof abort);

    work w;
    make_work(&r, &w, 9, 3);
    assert_int_equal(run_work(&r, &w), GGML_STATUS_SUCCESS);
    assert_int_equal(stats_of(&r).schedules_built, 1);
    set_n_threads(r.backend, 2); /* what was planned for one thread is out of date */
    assert_int_equal(run_work(&r, &w), GGML_STATUS_SUCCESS);
    assert_int_equal(stats_of(&r).schedules_built, 2);
    set_n_threads(r.backend, 0); /* no number of threads */
    assert_int_equal(run_work(&r, &w), GGML_STATUS_SUCCESS);
    assert_int_equal(stats_of(&r).schedules_built, 2);

    int n_asked = 0;
    set_abort(r.backend, stop_at_once, &n_asked);
    assert_int_not_equal(run_work(&r, &w), GGML_STATUS_SUCCESS);
    assert_true(n_asked > 0);
    bt_error err = {0};
    (void)bt_device_take_error(r.device, &err);
    set_abort(r.backend, NULL, NULL);
    assert_int_equal(run_work(&r, &w), GGML_STATUS_SUCCESS);
    assert_true(result_of(&w) == 8);
    free_work(&w);
    close_rig(&r);
}

/* ---- M4: graphs that are known again ---- */

/* As many as there are schedules are known; the one longest unused goes for another; a graph without a uid never is. */
static void known_graphs(void **state) {
    (void)state;
    rig r;
    work w[BT_SCHEDULE_MAX + 1];
    open_rig(&r);
    for (uint32_t i = 0; i <= BT_SCHEDULE_MAX; i++)
        make_work(&r, &w[i], 10 + i, i + 1);
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < BT_SCHEDULE_MAX; i++) {
            assert_int_equal(run_work(&r, &w[i]), GGML_STATUS_SUCCESS);
            assert_true(result_of(&w[i]) == (float)(2u << i));
        }
    assert_int_equal(stats_of(&r).schedules_built, BT_SCHEDULE_MAX);
    assert_int_equal(stats_of(&r).schedules_reused, 2 * BT_SCHEDULE_MAX);

    assert_int_equal(run_work(&r, &w[BT_SCHEDULE_MAX]), GGML_STATUS_SUCCESS); /* takes the first one's place */
    assert_int_equal(run_work(&r, &w[1]), GGML_STATUS_SUCCESS);
    assert_int_equal(stats_of(&r).schedules_built, BT_SCHEDULE_MAX + 1);
    assert_int_equal(run_work(&r, &w[0]), GGML_STATUS_SUCCESS);
    assert_int_equal(stats_of(&r).schedules_built, BT_SCHEDULE_MAX + 2);
    assert_true(result_of(&w[0]) == 2);

    w[0].graph->uid = 0;
    assert_int_equal(run_work(&r, &w[0]), GGML_STATUS_SUCCESS);
    assert_int_equal(run_work(&r, &w[0]), GGML_STATUS_SUCCESS);
    assert_int_equal(stats_of(&r).schedules_built, BT_SCHEDULE_MAX + 4);
    for (uint32_t i = 0; i <= BT_SCHEDULE_MAX; i++)
        free_work(&w[i]);
    close_rig(&r);
}

/* Several contexts share the tensors of a model: a schedule binds clones, and those are as they were. */
static void tensors_are_not_written(void **state) {
    (void)state;
    rig r;
    work w;
    open_rig(&r);
    make_work(&r, &w, 5, 2);
    struct ggml_tensor before[3] = {*w.x, *ggml_graph_node(w.graph, 0), *w.y};
    assert_int_equal(run_work(&r, &w), GGML_STATUS_SUCCESS);
    assert_memory_equal(&before[0], w.x, sizeof *w.x);
    assert_memory_equal(&before[1], ggml_graph_node(w.graph, 0), sizeof *w.x);
    assert_memory_equal(&before[2], w.y, sizeof *w.y);
    free_work(&w);
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_says), cmocka_unit_test(what_it_can),
        cmocka_unit_test(one_backend),  cmocka_unit_test(threads_and_interrupts),
        cmocka_unit_test(known_graphs), cmocka_unit_test(tensors_are_not_written),
    };
    return cmocka_run_group_tests_name("memory_device", tests, NULL, NULL);
}
