/* SPDX-License-Identifier: MIT
 * test_worker_device.c: the device that `burthen worker` offers: its cap, to the byte; what it gives back; what it
 * computes.
 *
 * In the build with fault injection also: every fallible call fails once, and nothing is left. */
#include "base/fault.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/os.h"
#include "device/worker.h"

#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
/* Of what was given back, what may still be there. */
#ifdef __SANITIZE_THREAD__
#define SLACK (UINT64_C(1) << 30) /* its shadow is four times what was touched, and stays */
#else
#define SLACK MIB
#endif
#define PAGE bt_os_page_bytes()

static uint32_t n_warnings;
static char last_warning[400];

static void on_log(const bt_log_entry *entry, void *user) {
    (void)user;
    if (entry->level > BT_LOG_WARN) return;
    n_warnings++;
    (void)snprintf(last_warning, sizeof last_warning, "%s", entry->message);
}

static bt_worker *worker;
static ggml_backend_dev_t dev;
static ggml_backend_buffer_type_t type;

static void open_worker(uint64_t memory_bytes) {
    bt_error err = {0};
    n_warnings = 0;
    bt_log_set(on_log, NULL, BT_LOG_WARN);
    if (bt_worker_open(memory_bytes, 1, &worker, &err) != BT_OK) fail_msg("%s", err.text);
    dev = bt_worker_device(worker);
    type = ggml_backend_dev_buffer_type(dev);
}

static void close_worker(void) {
    assert_true(bt_worker_close(worker));
    bt_log_set(NULL, NULL, BT_LOG_ERROR);
}

static uint64_t free_now(void) {
    size_t free_bytes = 0, total_bytes = 0;
    ggml_backend_dev_memory(dev, &free_bytes, &total_bytes);
    return free_bytes;
}

static ggml_backend_buffer_t take(uint64_t bytes) {
    return ggml_backend_buft_alloc_buffer(type, bytes);
}

static bt_worker_use use_now(void) {
    bt_worker_use use;
    bt_worker_use_read(worker, &use);
    return use;
}

/* ---- the cap ---- */

static void test_what_it_says(void **state) {
    (void)state;
    size_t free_bytes = 0, total_bytes = 0;
    open_worker(64 * MIB);
    ggml_backend_dev_memory(dev, &free_bytes, &total_bytes);
    assert_int_equal(total_bytes, 64 * MIB);
    assert_int_equal(free_bytes, 62 * MIB); /* a 32nd is held for computing */
    assert_string_equal(ggml_backend_dev_name(dev), "Worker");
    assert_non_null(strstr(ggml_backend_dev_description(dev), "64.0 MiB of its memory"));
    assert_int_equal(ggml_backend_dev_type(dev), GGML_BACKEND_DEVICE_TYPE_GPU);
    assert_true(ggml_backend_buft_is_host(type));
    assert_null(ggml_backend_dev_by_name("Worker")); /* in no registry */
    close_worker();
}

static void test_too_little(void **state) {
    (void)state;
    bt_error err = {0};
    bt_worker *none = NULL;
    assert_int_equal(bt_worker_open(32 * PAGE - 1, 1, &none, &err), BT_E_ARG);
    assert_string_equal(err.code, "worker_memory");
    assert_null(none);
    open_worker(32 * PAGE);
    assert_int_equal(free_now(), 31 * PAGE);
    close_worker();
    open_worker(UINT64_C(64) << 30); /* no more is held than any graph needs; nothing of it is touched */
    assert_int_equal(free_now(), (UINT64_C(64) << 30) - 32 * MIB);
    close_worker();
}

static void test_the_cap_to_the_byte(void **state) {
    (void)state;
    open_worker(64 * MIB);
    assert_null(take(62 * MIB + 1));
    assert_int_equal(n_warnings, 1);
    assert_string_equal(last_warning, "a client is refused a buffer of 62.0 MiB: 62.0 MiB of 64.0 MiB are left");
    ggml_backend_buffer_t all = take(62 * MIB);
    assert_non_null(all);
    assert_int_equal(free_now(), 0);
    assert_null(take(1));
    assert_null(take(UINT64_MAX / 2));
    assert_null(take(UINT64_MAX));
    assert_int_equal(use_now().n_refused, 4);
    assert_int_equal(use_now().n_given, 1);
    assert_int_equal(use_now().peak_bytes, 64 * MIB);
    ggml_backend_buffer_free(all);
    assert_int_equal(free_now(), 62 * MIB);
    close_worker();
}

/* Whole pages are charged: what is resident is never more than what is counted. */
static void test_whole_pages(void **state) {
    (void)state;
    open_worker(32 * PAGE);
    ggml_backend_buffer_t small = take(1);
    assert_int_equal(free_now(), 30 * PAGE);
    assert_int_equal(ggml_backend_buffer_get_size(small), 1);
    assert_null(take(30 * PAGE + 1));
    ggml_backend_buffer_t rest = take(29 * PAGE + 1);
    assert_non_null(rest);
    assert_int_equal(free_now(), 0);
    ggml_backend_buffer_free(small);
    ggml_backend_buffer_free(rest);
    assert_int_equal(use_now().n_buffers, 0);
    close_worker();
}

/* A cap that is no number of pages: the part of a page is nobody's. */
static void test_a_part_of_a_page(void **state) {
    (void)state;
    open_worker(32 * PAGE + 100);
    assert_int_equal(free_now(), 31 * PAGE + 100);
    assert_null(take(31 * PAGE + 1));
    ggml_backend_buffer_t all = take(31 * PAGE);
    assert_non_null(all);
    assert_int_equal(free_now(), 100);
    ggml_backend_buffer_free(all);
    close_worker();
}

static uint64_t resident(void) {
    bt_os_memory memory;
    bt_os_memory_read(&memory);
    return memory.rss_bytes.value;
}

static void test_given_back_to_the_system(void **state) {
    (void)state;
    open_worker(64 * MIB);
    uint64_t before = resident();
    for (int i = 0; i < 3; i++) {
        ggml_backend_buffer_t buffer = take(32 * MIB);
        uint8_t *base = ggml_backend_buffer_get_base(buffer);
        assert_true(resident() < before + SLACK); /* not touched yet */
        for (size_t at = 0; at < 32 * MIB; at += PAGE)
            assert_int_equal(base[at], 0); /* nothing of the last one's */
        memset(base, 0xa5, 32 * MIB);
        assert_true(resident() > before + 31 * MIB);
        ggml_backend_buffer_clear(buffer, 0);
        assert_true(resident() < before + SLACK);
        assert_int_equal(base[32 * MIB - 1], 0);
        ggml_backend_buffer_clear(buffer, 7);
        assert_int_equal(base[32 * MIB - 1], 7);
        ggml_backend_buffer_free(buffer);
        assert_true(resident() < before + SLACK);
    }
    close_worker();
}

/* ---- tensors ---- */

static struct ggml_context *new_context(void) {
    struct ggml_init_params params = {ggml_tensor_overhead() * 16 + ggml_graph_overhead(), NULL, true};
    struct ggml_context *ctx = ggml_init(params);
    assert_non_null(ctx);
    return ctx;
}

static void test_tensors(void **state) {
    (void)state;
    open_worker(MIB);
    struct ggml_context *ctx = new_context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 256);
    struct ggml_tensor *b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 256);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, type);
    assert_non_null(buffer);
    float in[256], out[256] = {0};
    for (int i = 0; i < 256; i++)
        in[i] = (float)i;
    ggml_backend_tensor_set(a, in, 0, sizeof in);
    ggml_backend_tensor_set(a, &in[9], 4, 4);
    ggml_backend_tensor_get(a, out, 0, sizeof out);
    assert_true(out[0] == 0 && out[1] == 9 && out[2] == 2 && out[255] == 255);
    ggml_backend_tensor_copy(a, b);
    ggml_backend_tensor_memset(b, 0, 8, 4);
    ggml_backend_tensor_get(b, out, 0, sizeof out);
    assert_true(out[1] == 9 && out[2] == 0 && out[3] == 3 && out[255] == 255);
    assert_int_equal(n_warnings, 0);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    close_worker();
}

/* ggml's server checks most of this before; what it lets through stops here. */
static void test_outside_of_a_buffer(void **state) {
    (void)state;
    open_worker(MIB);
    struct ggml_context *ctx = new_context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1024);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, type);
    uint8_t *base = ggml_backend_buffer_get_base(buffer);
    uint8_t bytes[16] = {1}, got[16] = {5};
    static const int64_t offsets[] = {-1, 4096, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        a->data = (void *)(uintptr_t)((uint64_t)(uintptr_t)base + (uint64_t)offsets[i]);
        buffer->iface.set_tensor(buffer, a, bytes, 0, sizeof bytes);
        buffer->iface.get_tensor(buffer, a, got, 0, sizeof got);
        buffer->iface.memset_tensor(buffer, a, 3, 0, 16);
        assert_int_equal(n_warnings, 3 * (i + 1));
        assert_int_equal(got[0], 5);
    }
    a->data = base;
    buffer->iface.set_tensor(buffer, a, bytes, 4090, sizeof bytes);
    buffer->iface.set_tensor(buffer, a, bytes, UINT64_MAX - 2, sizeof bytes);
    assert_int_equal(n_warnings, 14);
    assert_int_equal(base[0], 0);
    assert_int_equal(base[4095], 0);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    close_worker();
}

/* A large message is never in memory beside its copy: it goes as it is copied, and nothing beside it does. */
static void test_a_large_message_is_taken_over(void **state) {
    (void)state;
    enum { BEFORE = 777, AFTER = 5000 };
    const uint64_t bytes = 24 * MIB + 12345;
    open_worker(64 * MIB);
    struct ggml_context *ctx = new_context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, (int64_t)bytes);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, type);
    uint64_t start = resident();
    uint8_t *message = bt_os_reserve(BEFORE + bytes + AFTER);
    assert_non_null(message);
    for (uint64_t i = 0; i < BEFORE + bytes + AFTER; i++)
        message[i] = (uint8_t)(i * 31 + (i >> 12));
    assert_true(resident() + MIB >= start + bytes); /* counted per core, and added up late */
    ggml_backend_tensor_set(a, message + BEFORE, 0, bytes);
    assert_true(resident() < start + bytes + SLACK);
    const uint8_t *copy = a->data;
    for (uint64_t i = BEFORE; i < BEFORE + bytes; i++)
        if (copy[i - BEFORE] != (uint8_t)(i * 31 + (i >> 12))) fail_msg("byte %llu", (unsigned long long)i);
    for (uint64_t i = 0; i < BEFORE; i++)
        assert_int_equal(message[i], (uint8_t)(i * 31 + (i >> 12)));
    for (uint64_t i = BEFORE + bytes; i < BEFORE + bytes + AFTER; i++)
        assert_int_equal(message[i], (uint8_t)(i * 31 + (i >> 12)));
    assert_int_equal(message[5 * MIB], 0);
    assert_int_equal(bt_os_unreserve(message, BEFORE + bytes + AFTER), 0);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    close_worker();
}

/* ---- computing ---- */

typedef struct product {
    struct ggml_context *ctx;
    struct ggml_tensor *weights, *input, *result;
    struct ggml_cgraph *graph;
    ggml_backend_buffer_t buffer;
} product;

/* n_columns columns of 512, each with 8 rows of f16: of f32 input ggml makes f16, 1 KiB a column, in the work area. */
static void open_product(product *p, ggml_backend_buffer_type_t where, int64_t n_columns) {
    p->ctx = new_context();
    p->weights = ggml_new_tensor_2d(p->ctx, GGML_TYPE_F16, 512, 8);
    p->input = ggml_new_tensor_2d(p->ctx, GGML_TYPE_F32, 512, n_columns);
    p->result = ggml_mul_mat(p->ctx, p->weights, p->input);
    p->graph = ggml_new_graph_custom(p->ctx, 4, false);
    ggml_build_forward_expand(p->graph, p->result);
    p->buffer = ggml_backend_alloc_ctx_tensors_from_buft(p->ctx, where);
    assert_non_null(p->buffer);
    for (int64_t i = 0; i < 512 * 8; i++) {
        ggml_fp16_t value = ggml_fp32_to_fp16((float)(i % 13) - 6.0f);
        ggml_backend_tensor_set(p->weights, &value, (size_t)i * 2, 2);
    }
    for (int64_t i = 0; i < 512 * n_columns; i++) {
        float value = (float)(i % 7) * 0.25f;
        ggml_backend_tensor_set(p->input, &value, (size_t)i * 4, 4);
    }
}

static void close_product(product *p) {
    ggml_backend_buffer_free(p->buffer);
    ggml_free(p->ctx);
}

/* Compute on the worker and on the CPU; the same to the bit. */
static void check_product(int64_t n_columns) {
    product ours, theirs;
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    ggml_backend_t cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    open_product(&ours, type, n_columns);
    open_product(&theirs, ggml_backend_get_default_buffer_type(cpu), n_columns);
    assert_int_equal(ggml_backend_graph_compute(backend, ours.graph), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_graph_compute(cpu, theirs.graph), GGML_STATUS_SUCCESS);
    assert_memory_equal(ours.result->data, theirs.result->data, ggml_nbytes(ours.result));
    assert_true(((float *)ours.result->data)[1] != 0);
    close_product(&ours);
    close_product(&theirs);
    ggml_backend_free(cpu);
    ggml_backend_free(backend);
}

static void test_computes_as_the_cpu(void **state) {
    (void)state;
    open_worker(64 * MIB);
    check_product(8);
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(dev);
    void *symbol = ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    ggml_backend_set_n_threads_t set_n_threads;
    assert_non_null(symbol);
    memcpy(&set_n_threads, &symbol, sizeof symbol);
    set_n_threads(ggml_backend_dev_init(dev, NULL), 2);
    check_product(8);
    assert_null(ggml_backend_reg_get_proc_address(reg, "ggml_backend_something_else"));
    assert_int_equal(use_now().over_peak_bytes, 0);
    close_worker();
}

/* More than is held, and the cap has room: taken from it, and given back with the client's last buffer. */
static void test_work_area_grows(void **state) {
    (void)state;
    open_worker(64 * MIB);
    product p;
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    open_product(&p, type, 4096);
    uint64_t before = free_now();
    assert_int_equal(ggml_backend_graph_compute(backend, p.graph), GGML_STATUS_SUCCESS);
    assert_true(use_now().work_peak_bytes >= 4 * MIB);
    assert_true(free_now() <= before - 2 * MIB);
    assert_int_equal(use_now().over_peak_bytes, 0);
    close_product(&p);
    assert_int_equal(free_now(), 62 * MIB);
    check_product(4096);
    close_worker();
}

/* More than the cap has left: the graph is computed all the same, and it is said. */
static void test_work_area_over_the_cap(void **state) {
    (void)state;
    open_worker(3 * MIB);
    check_product(1024); /* 2 MiB of input, 1 MiB of work area */
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(last_warning, "goes over the cap"));
    assert_true(use_now().over_peak_bytes >= MIB);
    assert_true(use_now().peak_bytes <= 3 * MIB);
    assert_int_equal(free_now(), 3 * MIB - 3 * MIB / 32 / PAGE * PAGE);
    check_product(16); /* within what is held */
    assert_int_equal(n_warnings, 1);
    close_worker();
}

/* ---- faults ---- */

#ifdef BT_FAULT

/* All of it once; false where something was refused. */
static bool run_once(void) {
    bt_worker *w = NULL;
    bt_error err = {0};
    if (bt_worker_open(3 * MIB, 1, &w, &err) != BT_OK) {
        assert_true(err.code[0] != '\0');
        return false;
    }
    ggml_backend_dev_t d = bt_worker_device(w);
    ggml_backend_t backend = ggml_backend_dev_init(d, NULL);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(d), 2 * MIB + MIB / 2);
    bool good = buffer != NULL;
    if (good) {
        struct ggml_context *ctx = new_context();
        struct ggml_tensor *weights = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 512, 1);
        struct ggml_tensor *input = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 512, 1024);
        struct ggml_tensor *result = ggml_mul_mat(ctx, weights, input);
        struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 4, false);
        ggml_build_forward_expand(graph, result);
        struct ggml_tallocr place = ggml_tallocr_new(buffer);
        assert_int_equal(ggml_tallocr_alloc(&place, weights), GGML_STATUS_SUCCESS);
        assert_int_equal(ggml_tallocr_alloc(&place, input), GGML_STATUS_SUCCESS);
        assert_int_equal(ggml_tallocr_alloc(&place, result), GGML_STATUS_SUCCESS);
        enum ggml_status status = ggml_backend_graph_compute(backend, graph); /* with a work area over the cap */
        assert_true(status == GGML_STATUS_SUCCESS || status == GGML_STATUS_ALLOC_FAILED);
        good = status == GGML_STATUS_SUCCESS;
        ggml_free(ctx);
        ggml_backend_buffer_free(buffer);
    }
    assert_true(bt_worker_close(w));
    return good;
}

static void test_every_call_fails_once(void **state) {
    (void)state;
    bt_log_set(on_log, NULL, BT_LOG_WARN);
    assert_true(run_once());
    uint64_t blocks = bt_heap_live_blocks();
    uint64_t n_failed = 0, k = 0;
    for (bool hit = true; hit; k++) {
        bt_fault_arm(k, false);
        bool good = run_once();
        hit = bt_fault_disarm();
        n_failed += hit && !good;
        assert_int_equal(bt_heap_live_blocks(), blocks);
    }
    assert_true(k > 6);
    assert_true(n_failed >= 4);
    assert_true(run_once());
    bt_log_set(NULL, NULL, BT_LOG_ERROR);
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_says),
        cmocka_unit_test(test_too_little),
        cmocka_unit_test(test_the_cap_to_the_byte),
        cmocka_unit_test(test_whole_pages),
        cmocka_unit_test(test_a_part_of_a_page),
        cmocka_unit_test(test_given_back_to_the_system),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_outside_of_a_buffer),
        cmocka_unit_test(test_a_large_message_is_taken_over),
        cmocka_unit_test(test_computes_as_the_cpu),
        cmocka_unit_test(test_work_area_grows),
        cmocka_unit_test(test_work_area_over_the_cap),
#ifdef BT_FAULT
        cmocka_unit_test(test_every_call_fails_once),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
