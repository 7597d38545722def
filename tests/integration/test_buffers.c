/* SPDX-License-Identifier: MIT
 * test_buffers.c: the memory device's buffers as ggml uses them: logical lengths, and the same shape again. W, A, T1:
 * cases of the research notes, seed 1.
 *
 * The device has no model here: its buffers are plain accounted memory, and graphs are computed by the CPU backend
 * behind it. ggml itself refuses to go past a tensor; past a buffer goes only a tensor that was tampered with, as
 * below, or a bug of whoever placed it. */
#include "device/device.h"

#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define N_MAX 32 /* tensors of a test's graph */

typedef struct rig {
    bt_facts facts; /* of no model */
    bt_account *account;
    bt_device *device;
    ggml_backend_t backend;
    ggml_backend_buffer_type_t type;
    struct ggml_context *ctx;
} rig;

static struct ggml_context *new_context(void) {
    struct ggml_init_params params = {ggml_tensor_overhead() * N_MAX + ggml_graph_overhead(), NULL, true};
    struct ggml_context *ctx = ggml_init(params);
    assert_non_null(ctx);
    return ctx;
}

static void open_rig(rig *r, uint64_t budget_bytes) {
    uint64_t caps[BT_LINE_COUNT];
    for (int i = 0; i < BT_LINE_COUNT; i++)
        caps[i] = UINT64_MAX;
    memset(r, 0, sizeof *r);
    assert_int_equal(bt_account_open(caps, budget_bytes, &r->account, NULL), BT_OK);
    bt_device_params params = {
        .account = r->account, .facts = &r->facts, .n_threads = 1, .n_ubatch = 1, .budget_bytes = budget_bytes};
    bt_error err = {0};
    if (bt_device_open(&params, &r->device, &err) != BT_OK) fail_msg("%s", err.text);
    bt_device_set_phase(r->device, BT_PHASE_CONTEXT);
    r->backend = ggml_backend_dev_init(bt_device_ggml(r->device), NULL);
    r->type = bt_device_buffer_type(r->device);
    r->ctx = new_context();
}

static void close_rig(rig *r) {
    ggml_free(r->ctx);
    bt_device_close(r->device);
    assert_true(bt_account_close(r->account));
}

static bt_pool_report report(const rig *r) {
    bt_pool_report ret;
    bt_device_pool_report(r->device, &ret);
    return ret;
}

/* The bytes themselves, past the interface: our memory is the host's. */
static const uint8_t *bytes_of(ggml_backend_buffer_t buffer) {
    return ggml_backend_buffer_get_base(buffer);
}

static struct ggml_tensor *place(const rig *r, ggml_backend_buffer_t buffer, enum ggml_type type, int64_t n) {
    struct ggml_tensor *t = ggml_new_tensor_1d(r->ctx, type, n);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, t, ggml_backend_buffer_get_base(buffer)), GGML_STATUS_SUCCESS);
    return t;
}

static void make_longer(struct ggml_tensor *t, int64_t n) {
    t->ne[0] = n;
    t->nb[1] = t->nb[2] = t->nb[3] = t->nb[0] * (size_t)n;
}

/* One graph that asks for nothing of the buffer under test. */
static enum ggml_status compute_something(rig *r) {
    struct ggml_context *ctx = new_context();
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *y = ggml_scale(ctx, x, 2);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, N_MAX, false);
    ggml_build_forward_expand(graph, y);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, r->type);
    assert_non_null(buffer);
    static const float values[] = {1, 2, 3, 4}, wanted[] = {2, 4, 6, 8};
    ggml_backend_tensor_set(x, values, 0, sizeof values);
    enum ggml_status status = ggml_backend_graph_compute(r->backend, graph);
    if (status == GGML_STATUS_SUCCESS) {
        float got[4];
        ggml_backend_tensor_get(y, got, 0, sizeof got);
        assert_memory_equal(got, wanted, sizeof got);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return status;
}

/* What went past the end fails the next graph, with its numbers; then all is well again. */
static void check_sticky(rig *r, uint64_t need, uint64_t have) {
    bt_error err = {0};
    assert_int_equal(compute_something(r), GGML_STATUS_FAILED);
    assert_true(bt_device_take_error(r->device, &err));
    assert_int_equal(err.status, BT_E_LIMIT);
    assert_string_equal(err.code, "buffer_bounds");
    assert_int_equal(err.need, need);
    assert_int_equal(err.have, have);
    assert_false(bt_device_take_error(r->device, &err));
    assert_int_equal(compute_something(r), GGML_STATUS_SUCCESS);
}

static void check_clean(rig *r) {
    bt_error err = {0};
    if (bt_device_take_error(r->device, &err)) fail_msg("%s: %s", err.code, err.text);
}

static const float three[] = {1.5f, -2, 3.25f}, four[] = {7, 8, 9, 10};

static void test_Wa_a_write_past_the_end_writes_nothing(void **state) {
    (void)state;
    rig r;
    open_rig(&r, UINT64_MAX / 2);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(r.type, sizeof three);
    assert_non_null(buffer);
    assert_int_equal(report(&r).pool_bytes, 1024);
    struct ggml_tensor *t = place(&r, buffer, GGML_TYPE_F32, 3);
    ggml_backend_tensor_set(t, three, 0, sizeof three);
    ggml_backend_tensor_set(t, three, 0, 0); /* nothing at all */
    check_clean(&r);
    make_longer(t, 4);
    ggml_backend_tensor_set(t, four, 0, sizeof four);
    assert_memory_equal(bytes_of(buffer), three, sizeof three);
    check_sticky(&r, 16, 12);
    ggml_backend_tensor_set(t, four + 3, 12, 4); /* only the part beyond */
    check_sticky(&r, 16, 12);
    ggml_backend_tensor_memset(t, 0xee, 0, sizeof four);
    check_sticky(&r, 16, 12);
    assert_memory_equal(bytes_of(buffer), three, sizeof three);
    float got[3];
    make_longer(t, 3);
    ggml_backend_tensor_get(t, got, 0, sizeof got);
    assert_memory_equal(got, three, sizeof three);
    ggml_backend_tensor_set(t, four, 0, 8); /* a part of it is written as a part */
    check_clean(&r);
    ggml_backend_tensor_get(t, got, 0, sizeof got);
    assert_true(got[0] == 7 && got[1] == 8 && got[2] == 3.25f);
    ggml_backend_buffer_free(buffer);
    close_rig(&r);
}

static void test_Wa_a_read_past_the_end_reads_nothing(void **state) {
    (void)state;
    rig r;
    open_rig(&r, UINT64_MAX / 2);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(r.type, sizeof three);
    struct ggml_tensor *t = place(&r, buffer, GGML_TYPE_F32, 3);
    ggml_backend_tensor_set(t, three, 0, sizeof three);
    float got[4] = {-1, -1, -1, -1};
    make_longer(t, 4);
    ggml_backend_tensor_get(t, got, 0, sizeof got);
    for (int i = 0; i < 4; i++)
        assert_true(got[i] == -1);
    check_sticky(&r, 16, 12);
    ggml_backend_buffer_free(buffer);
    close_rig(&r);
}

static void test_Wa_a_copy_past_the_end_copies_nothing(void **state) {
    (void)state;
    rig r;
    open_rig(&r, UINT64_MAX / 2);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(r.type, sizeof three);
    ggml_backend_buffer_t host = ggml_backend_buft_alloc_buffer(
        ggml_backend_dev_buffer_type(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)), 256);
    struct ggml_tensor *t = place(&r, buffer, GGML_TYPE_F32, 3), *from = place(&r, host, GGML_TYPE_F32, 4);
    ggml_backend_tensor_set(t, three, 0, sizeof three);
    ggml_backend_tensor_set(from, four, 0, sizeof four);
    make_longer(t, 4);
    assert_true(ggml_backend_buffer_copy_tensor(from, t));
    assert_memory_equal(bytes_of(buffer), three, sizeof three);
    check_sticky(&r, 16, 12);
    make_longer(t, 3);
    make_longer(from, 3);
    ggml_backend_tensor_copy(from, t);
    check_clean(&r);
    assert_memory_equal(bytes_of(buffer), four, sizeof three);
    ggml_backend_buffer_free(host);
    ggml_backend_buffer_free(buffer);
    close_rig(&r);
}

static void test_Wa_before_the_start(void **state) {
    (void)state;
    rig r;
    open_rig(&r, UINT64_MAX / 2);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(r.type, sizeof three);
    struct ggml_tensor *t = place(&r, buffer, GGML_TYPE_F32, 3);
    t->data = (uint8_t *)t->data - 4;
    ggml_backend_tensor_set(t, three, 0, sizeof three);
    bt_error err = {0};
    assert_int_equal(compute_something(&r), GGML_STATUS_FAILED);
    assert_true(bt_device_take_error(r.device, &err));
    assert_string_equal(err.code, "buffer_bounds");
    assert_non_null(strstr(err.text, "outside its buffer"));
    ggml_backend_buffer_free(buffer);
    close_rig(&r);
}

/* The first failure is the one that is told. */
static void test_Wa_the_first_is_kept(void **state) {
    (void)state;
    rig r;
    open_rig(&r, UINT64_MAX / 2);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(r.type, sizeof three);
    struct ggml_tensor *t = place(&r, buffer, GGML_TYPE_F32, 3);
    static const float zeros[64] = {0};
    make_longer(t, 20);
    ggml_backend_tensor_set(t, zeros, 0, 80);
    make_longer(t, 64);
    ggml_backend_tensor_set(t, zeros, 0, 256);
    check_sticky(&r, 80, 12);
    ggml_backend_buffer_free(buffer);
    close_rig(&r);
}

/* A class of 256 elements holds 30 tokens: 30 come back, and clearing ends with the thirtieth. */
static void test_Wb_as_long_as_asked(void **state) {
    (void)state;
    rig r;
    int32_t tokens[30], got[31];
    open_rig(&r, UINT64_MAX / 2);
    for (int32_t i = 0; i < 30; i++)
        tokens[i] = i + 1;
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(r.type, sizeof tokens);
    struct ggml_tensor *t = place(&r, buffer, GGML_TYPE_I32, 30);
    assert_int_equal(ggml_backend_buffer_get_size(buffer), 120);
    assert_int_equal(report(&r).live_bytes, 1024);
    ggml_backend_tensor_set(t, tokens, 0, sizeof tokens);
    got[30] = -7;
    ggml_backend_tensor_get(t, got, 0, ggml_nbytes(t));
    assert_memory_equal(got, tokens, sizeof tokens);
    assert_int_equal(got[30], -7);
    ggml_backend_buffer_clear(buffer, 0xab);
    for (uint32_t i = 0; i < 1024; i++)
        assert_int_equal(bytes_of(buffer)[i], i < 120 ? 0xab : 0);
    check_clean(&r);
    ggml_backend_buffer_free(buffer);
    close_rig(&r);
}

static void test_Wc_windows(void **state) {
    (void)state;
    static const float eight[] = {0, 1, 2, 3, 4, 5, 6, 7}, wanted[] = {0, 1, 7, 8, 9, 10, 6, 7};
    rig r;
    float got[8];
    open_rig(&r, UINT64_MAX / 2);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(r.type, sizeof eight);
    struct ggml_tensor *t = place(&r, buffer, GGML_TYPE_F32, 8);
    ggml_backend_tensor_set(t, eight, 0, sizeof eight);
    struct ggml_tensor *window = ggml_view_1d(r.ctx, t, 4, 8);
    assert_int_equal(ggml_backend_view_init(window), GGML_STATUS_SUCCESS);
    assert_ptr_equal(window->buffer, buffer);
    ggml_backend_tensor_get(window, got, 0, 16);
    assert_memory_equal(got, eight + 2, 16);
    ggml_backend_tensor_set(window, four, 0, 16);
    ggml_backend_tensor_get(t, got, 0, sizeof got);
    assert_memory_equal(got, wanted, sizeof wanted);
    check_clean(&r);
    ggml_backend_buffer_free(buffer);
    close_rig(&r);
}

/* Elements 4 to 7 of 6: ggml would not make such a view. */
static void test_Wc_a_window_past_its_parent(void **state) {
    (void)state;
    static const float six[] = {0, 1, 2, 3, 4, 5};
    rig r;
    float got[4] = {-1, -1, -1, -1};
    open_rig(&r, UINT64_MAX / 2);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(r.type, sizeof six);
    struct ggml_tensor *t = place(&r, buffer, GGML_TYPE_F32, 6);
    ggml_backend_tensor_set(t, six, 0, sizeof six);
    struct ggml_tensor *window = ggml_view_1d(r.ctx, t, 2, 16);
    assert_int_equal(ggml_backend_view_init(window), GGML_STATUS_SUCCESS);
    make_longer(window, 4);
    ggml_backend_tensor_set(window, four, 0, sizeof four);
    check_sticky(&r, 32, 24);
    ggml_backend_tensor_get(window, got, 0, sizeof got);
    check_sticky(&r, 32, 24);
    for (int i = 0; i < 4; i++)
        assert_true(got[i] == -1);
    assert_memory_equal(bytes_of(buffer), six, sizeof six);
    ggml_backend_buffer_free(buffer);
    close_rig(&r);
}

/* ---- the same shape again ---- */

typedef struct built {
    struct ggml_context *ctx;
    ggml_gallocr_t memory;
    uintptr_t x, w, y;
} built;

/* silu of the copy of x + w, in a context and memory of its own, as a rebuilt graph has them. */
static bool build(rig *r, int64_t n_columns, int64_t n_rows, built *b) {
    *b = (built){.ctx = new_context(), .memory = ggml_gallocr_new(r->type)};
    struct ggml_tensor *x = ggml_new_tensor_2d(b->ctx, GGML_TYPE_F32, n_columns, n_rows);
    struct ggml_tensor *w = ggml_new_tensor_2d(b->ctx, GGML_TYPE_F32, n_columns, n_rows);
    ggml_set_input(x);
    ggml_set_input(w);
    struct ggml_tensor *y = ggml_silu(b->ctx, ggml_cont(b->ctx, ggml_add(b->ctx, x, w)));
    struct ggml_cgraph *graph = ggml_new_graph_custom(b->ctx, N_MAX, false);
    ggml_build_forward_expand(graph, y);
    if (!ggml_gallocr_alloc_graph(b->memory, graph)) return false;
    b->x = (uintptr_t)x->data;
    b->w = (uintptr_t)w->data;
    b->y = (uintptr_t)y->data;
    float value = 0;
    for (size_t i = 0; i < ggml_nbytes(x); i += sizeof value) {
        ggml_backend_tensor_set(x, &value, i, sizeof value);
        ggml_backend_tensor_set(w, &value, i, sizeof value);
    }
    if (ggml_backend_graph_compute(r->backend, graph) != GGML_STATUS_SUCCESS) return false;
    ggml_backend_tensor_get(y, &value, ggml_nbytes(y) - sizeof value, sizeof value);
    return value == 0;
}

static void unbuild(built *b) {
    ggml_gallocr_free(b->memory);
    ggml_free(b->ctx);
}

/* What a graph of each number of rows adds to the pool, and whether it lands where the one before it did. */
static void check_rebuilds(rig *r, int64_t n_columns, const int64_t *n_rows, const bool *as_before, uint32_t n) {
    built before = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint64_t pool_bytes = report(r).pool_bytes;
        built b;
        if (!build(r, n_columns, n_rows[i], &b)) fail_msg("%d rows", (int)n_rows[i]);
        assert_int_equal(report(r).pool_bytes == pool_bytes, as_before[i]);
        assert_int_equal(b.x == before.x, as_before[i]);
        bool same_rows = i > 0 && n_rows[i] == n_rows[i - 1];
        if (same_rows) assert_true(b.w == before.w && b.y == before.y);
        unbuild(&b);
        assert_int_equal(report(r).live_bytes, 0);
        before = b;
    }
}

/* 17 and 18 rows share a class of 131,072 bytes: two columns of memory of each, 896 x rows x 4. */
static void test_Aa_rebuilding_allocates_nothing(void **state) {
    (void)state;
    rig r;
    open_rig(&r, UINT64_MAX / 2);
    assert_int_equal(bt_pool_class_bytes(2 * 896 * 4 * 17), 131072);
    assert_int_equal(bt_pool_class_bytes(2 * 896 * 4 * 18), 131072);
    check_rebuilds(&r, 896, (const int64_t[]){17, 17, 18, 64, 64}, (const bool[]){false, true, true, false, true}, 5);
    close_rig(&r);
}

static void test_Ac_Ad_small_graphs(void **state) {
    (void)state;
    rig r;
    open_rig(&r, UINT64_MAX / 2);
    check_rebuilds(&r, 512, (const int64_t[]){4, 3, 4}, (const bool[]){false, true, true}, 3);
    bt_pool_report first = report(&r);
    check_rebuilds(&r, 256, (const int64_t[]){1, 1}, (const bool[]){false, true}, 2);
    assert_int_equal(report(&r).idle_slots, first.idle_slots + 1);
    assert_int_equal(report(&r).peak_live_bytes, first.peak_live_bytes);
    close_rig(&r);
}

/* Build n times under a budget; what was committed after the last. wanted: whether each of them works. */
static uint64_t build_under(uint64_t budget_bytes, uint32_t n, bool wanted) {
    rig r;
    uint64_t committed_bytes = 0;
    open_rig(&r, budget_bytes);
    for (uint32_t i = 0; i < n; i++) {
        built b;
        bt_error err = {0};
        bool works = build(&r, 256, 16, &b);
        bool failed = bt_device_take_error(r.device, &err);
        if (works != wanted || failed == wanted)
            fail_msg("build %u under %llu bytes: %d, %s", i, (unsigned long long)budget_bytes, works, err.text);
        if (failed) {
            assert_int_equal(err.status, BT_E_BUDGET);
            assert_string_equal(err.code, "ram_budget");
        }
        committed_bytes = bt_account_committed_bytes(r.account);
        assert_true(committed_bytes <= budget_bytes);
        unbuild(&b);
    }
    close_rig(&r);
    return committed_bytes;
}

/* G-f, T1: a budget of exactly what the graph takes, with the schedules that are kept of it, builds it again and again;
 * one that is a byte short of its first build refuses each time. */
static void test_T1_a_tight_budget(void **state) {
    (void)state;
    uint64_t once = build_under(UINT64_MAX / 2, 1, true);
    uint64_t settled = build_under(UINT64_MAX / 2, BT_SCHEDULE_MAX, true);
    assert_true(once >= 2 * 256 * 16 * sizeof(float) && settled > once);
    assert_int_equal(build_under(settled, 20, true), settled);
    assert_int_equal(build_under(once, 1, true), once);
    (void)build_under(once - 1, 3, false);
}

static void no_log(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}

int main(void) {
    ggml_log_set(no_log, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_Wa_a_write_past_the_end_writes_nothing),
        cmocka_unit_test(test_Wa_a_read_past_the_end_reads_nothing),
        cmocka_unit_test(test_Wa_a_copy_past_the_end_copies_nothing),
        cmocka_unit_test(test_Wa_before_the_start),
        cmocka_unit_test(test_Wa_the_first_is_kept),
        cmocka_unit_test(test_Wb_as_long_as_asked),
        cmocka_unit_test(test_Wc_windows),
        cmocka_unit_test(test_Wc_a_window_past_its_parent),
        cmocka_unit_test(test_Aa_rebuilding_allocates_nothing),
        cmocka_unit_test(test_Ac_Ad_small_graphs),
        cmocka_unit_test(test_T1_a_tight_budget),
    };
    return cmocka_run_group_tests_name("buffers", tests, NULL, NULL);
}
