/* SPDX-License-Identifier: MIT
 * test_reserve.c: what ggml asks a card for when graphs are reserved, rebuilt and measured, held to the linked ggml. A,
 * T8: cases of the research notes, seed 1.
 *
 * A graph no larger than the one reserved, with the same nodes, lands at the same addresses and asks for nothing.
 * Asking how much a graph would need is the dry run that prices are made of, and hides traps: a living allocator that
 * is asked about a larger graph frees its memory, so measuring is done with one that is thrown away; and a scheduler
 * rewrites the graph it splits, so that one is thrown away as well. */
#include "graph_rig.h"

/* ---- A: the same shape again ---- */

/* 896 x rows: x + w, silu. */
static struct ggml_tensor *build_rows(rig *r, int64_t n_columns, int64_t n_rows) {
    ggml_free(r->ctx);
    build_begin(r);
    struct ggml_tensor *x = ggml_new_tensor_2d(r->ctx, GGML_TYPE_F32, n_columns, n_rows);
    struct ggml_tensor *w = ggml_new_tensor_2d(r->ctx, GGML_TYPE_F32, n_columns, n_rows);
    ggml_set_input(x);
    ggml_set_input(w);
    struct ggml_tensor *s = ggml_silu(r->ctx, ggml_cont(r->ctx, ggml_add(r->ctx, x, w)));
    output(r, s);
    return s;
}

static uint32_t addresses_of(const rig *r, uintptr_t *ret) {
    uint32_t n = 0;
    for (int i = 0; i < ggml_graph_n_nodes(r->graph); i++)
        ret[n++] = at(ggml_graph_node(r->graph, i));
    for (int i = 0; i < r->graph->n_leafs; i++)
        ret[n++] = at(r->graph->leafs[i]);
    return n;
}

/* Reserved for the largest, graphs of that shape and smaller ones of the same nodes land where it did. */
static void check_rebuilds(int64_t n_columns, int64_t n_reserved, const int64_t *n_rows, uint32_t n) {
    rig r;
    uintptr_t first[N_MAX], again[N_MAX];
    open_rig(&r, ON_CARD);
    (void)build_rows(&r, n_columns, n_reserved);
    assert_true(ggml_gallocr_reserve(r.memory, r.graph));
    fake_counts before = counts_of(ON_CARD);
    assert_int_equal(before.n_buffers, 1);
    allocate(&r);
    uint32_t n_addresses = addresses_of(&r, first);
    assert_int_equal(n_addresses, 5);
    for (uint32_t i = 0; i < n; i++) {
        (void)build_rows(&r, n_columns, n_rows[i]);
        allocate(&r);
        assert_int_equal(addresses_of(&r, again), n_addresses);
        assert_memory_equal(again, first, n_addresses * sizeof *first);
        compute(&r);
    }
    fake_counts after = counts_of(ON_CARD);
    assert_int_equal(after.calls[FAKE_ALLOC], before.calls[FAKE_ALLOC]);
    assert_int_equal(after.frees, before.frees);
    assert_int_equal(after.live_bytes, before.live_bytes);
    close_rig(&r);
}

static void test_Aa_Ac_Ad_rebuilding_allocates_nothing(void **state) {
    (void)state;
    check_rebuilds(896, 17, (const int64_t[]){16, 17, 16, 1}, 4);
    check_rebuilds(512, 4, (const int64_t[]){4, 3}, 2);
    check_rebuilds(256, 1, (const int64_t[]){1, 1}, 2);
}

/* Without a reserve for the largest each larger graph is a new buffer: there are no classes in ggml, and the old one is
 * freed before the new one is asked for. */
static void test_Aa_larger_graphs_grow(void **state) {
    (void)state;
    rig r;
    open_rig(&r, ON_CARD);
    uint64_t n_calls = counts_of(ON_CARD).calls[FAKE_ALLOC], bytes = 0;
    static const int64_t n_rows[] = {16, 17, 64};
    for (uint32_t i = 0; i < 3; i++) {
        (void)build_rows(&r, 896, n_rows[i]);
        allocate(&r);
        fake_counts counts = counts_of(ON_CARD);
        assert_int_equal(counts.calls[FAKE_ALLOC], n_calls + i + 1);
        assert_int_equal(counts.n_buffers, 1);
        assert_true(counts.live_bytes > bytes);
        assert_int_equal(counts.live_bytes, ggml_gallocr_get_buffer_size(r.memory, 0));
        bytes = counts.live_bytes;
    }
    close_rig(&r);
    assert_int_equal(counts_of(ON_CARD).live_bytes, 0);
}

/* A reserve that the card refuses has freed what there was: the context is dead, and the old graph must be reserved
 * again. */
static void test_a_refused_reserve_leaves_nothing(void **state) {
    (void)state;
    rig r;
    open_rig(&r, ON_CARD);
    (void)build_rows(&r, 896, 16);
    allocate(&r);
    fake_device_fail(ggml_backend_get_device(backends[ON_CARD]), FAKE_ALLOC, 1, false);
    (void)build_rows(&r, 896, 64);
    assert_false(ggml_gallocr_reserve(r.memory, r.graph));
    assert_int_equal(counts_of(ON_CARD).live_bytes, 0);
    assert_int_equal(ggml_gallocr_get_buffer_size(r.memory, 0), 0);
    (void)build_rows(&r, 896, 16);
    assert_true(ggml_gallocr_reserve(r.memory, r.graph));
    allocate(&r);
    compute(&r);
    close_rig(&r);
}

/* ---- T8: measuring ---- */

static void measure(ggml_gallocr_t memory, rig *r, int64_t n_rows, size_t *ret_bytes) {
    rig other = {.place = r->place};
    build_begin(&other);
    (void)build_rows(&other, 896, n_rows);
    ggml_gallocr_reserve_n_size(memory, other.graph, NULL, NULL, ret_bytes);
    ggml_free(other.ctx);
}

/* The trap: a living allocator that is asked for more than it has gives up what it has; for as much it keeps it. */
static void test_T8_measuring_with_a_living_allocator_frees_it(void **state) {
    (void)state;
    rig r;
    size_t bytes = 0;
    open_rig(&r, ON_CARD);
    (void)build_rows(&r, 896, 16);
    allocate(&r);
    fake_counts before = counts_of(ON_CARD);
    measure(r.memory, &r, 16, &bytes);
    assert_int_equal(bytes, before.live_bytes);
    assert_int_equal(counts_of(ON_CARD).frees, before.frees);
    measure(r.memory, &r, 64, &bytes);
    fake_counts after = counts_of(ON_CARD);
    assert_true(bytes > before.live_bytes);
    assert_int_equal(after.frees, before.frees + 1);
    assert_int_equal(after.n_buffers, 0);
    assert_int_equal(after.calls[FAKE_ALLOC], before.calls[FAKE_ALLOC]);
    assert_int_equal(ggml_gallocr_get_buffer_size(r.memory, 0), 0);
    close_rig(&r);
}

/* With an allocator that is thrown away nothing is allocated, nothing that lives changes, and the number is what is
 * allocated later, padding included. */
static void test_T8_measuring_changes_nothing_that_lives(void **state) {
    (void)state;
    static float once[896 * 16], again[896 * 16], values[896 * 16];
    for (int place = ON_CARD; place < N_PLACES; place++) {
        rig r;
        size_t bytes = 0;
        open_rig(&r, place);
        struct ggml_tensor *o = build_rows(&r, 896, 16);
        allocate(&r);
        uintptr_t first[N_MAX], later[N_MAX];
        uint32_t n = addresses_of(&r, first);
        fake_counts before = counts_of(place);
        for (int i = 0; i < 2; i++) {
            for (size_t k = 0; k < 896 * 16; k++)
                values[k] = sinf((float)k);
            set(r.graph->leafs[0], values);
            set(r.graph->leafs[1], values);
            compute(&r);
            ggml_backend_tensor_get(o, i ? again : once, 0, ggml_nbytes(o));
            if (i == 1) break;
            ggml_gallocr_t other = ggml_gallocr_new(type_of(place));
            measure(other, &r, 64, &bytes);
            ggml_gallocr_free(other);
        }
        assert_memory_equal(once, again, sizeof once);
        assert_int_equal(addresses_of(&r, later), n);
        assert_memory_equal(first, later, n * sizeof *first);
        fake_counts after = counts_of(place);
        assert_int_equal(after.calls[FAKE_ALLOC], before.calls[FAKE_ALLOC]);
        assert_int_equal(after.frees, before.frees);
        assert_int_equal(after.peak_bytes, before.peak_bytes);
        close_rig(&r);
        open_rig(&r, place);
        (void)build_rows(&r, 896, 64);
        allocate(&r);
        assert_int_equal(counts_of(place).live_bytes, bytes);
        close_rig(&r);
    }
}

static ggml_backend_sched_t new_sched(void) {
    ggml_backend_t pair[] = {backends[ON_CARD], backends[ON_CPU]};
    ggml_backend_sched_t sched = ggml_backend_sched_new(pair, NULL, 2, N_MAX, false, false);
    assert_non_null(sched);
    return sched;
}

/* A product with a weight of the card, which draws the nodes after it there. */
static void build_product(rig *r, struct ggml_tensor *weight, int64_t n_rows) {
    build_begin(r);
    struct ggml_tensor *x = ggml_new_tensor_2d(r->ctx, GGML_TYPE_F32, weight->ne[0], n_rows);
    ggml_set_input(x);
    output(r, ggml_silu(r->ctx, ggml_cont(r->ctx, ggml_mul_mat(r->ctx, weight, x))));
}

/* The same of a scheduler, which is what a context has. */
static void test_T8_schedulers(void **state) {
    (void)state;
    rig weights = {0}, small = {0}, large = {0};
    build_begin(&weights);
    struct ggml_tensor *weight = ggml_new_tensor_2d(weights.ctx, GGML_TYPE_F32, 64, 896);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(weights.ctx, type_of(ON_CARD));
    assert_non_null(buffer);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    uint64_t weight_bytes = counts_of(ON_CARD).live_bytes;
    build_product(&small, weight, 16);
    ggml_backend_sched_t sched = new_sched(), other = new_sched();
    assert_true(ggml_backend_sched_reserve(sched, small.graph));
    size_t held = ggml_backend_sched_get_buffer_size(sched, backends[ON_CARD]), bytes[2] = {0};
    fake_counts before = counts_of(ON_CARD);
    assert_true(held >= sizeof(float) * 896 * 16);
    assert_int_equal(before.live_bytes, weight_bytes + held);
    build_product(&large, weight, 64);
    ggml_backend_sched_reserve_size(other, large.graph, bytes);
    ggml_backend_sched_free(other);
    ggml_free(large.ctx); /* its nodes read copies that were the scheduler's */
    fake_counts after = counts_of(ON_CARD);
    assert_int_equal(after.calls[FAKE_ALLOC], before.calls[FAKE_ALLOC]);
    assert_int_equal(after.frees, before.frees);
    assert_int_equal(ggml_backend_sched_get_buffer_size(sched, backends[ON_CARD]), held);
    assert_true(bytes[0] >= sizeof(float) * 896 * 64);
    build_product(&large, weight, 64);
    ggml_backend_sched_reserve_size(sched, large.graph, bytes); /* the trap */
    assert_int_equal(counts_of(ON_CARD).live_bytes, weight_bytes);
    ggml_free(large.ctx);
    build_product(&large, weight, 64);
    assert_true(ggml_backend_sched_reserve(sched, large.graph));
    assert_int_equal(counts_of(ON_CARD).live_bytes, weight_bytes + bytes[0]);
    ggml_backend_sched_free(sched);
    ggml_backend_buffer_free(buffer);
    ggml_free(weights.ctx);
    ggml_free(small.ctx);
    ggml_free(large.ctx);
}

/* ---- what a buffer holds is more than its tensors ---- */

static void test_buffers_are_larger_than_their_tensors(void **state) {
    (void)state;
    rig r = {.place = ON_PADDED};
    build_begin(&r);
    uint64_t tensors = 0, padded = 0;
    for (int64_t n = 1; n < 1000; n += 111) {
        const struct ggml_tensor *t = ggml_new_tensor_1d(r.ctx, GGML_TYPE_F32, n);
        tensors += ggml_nbytes(t);
        padded += (ggml_nbytes(t) + 500 + 1023) / 1024 * 1024;
    }
    assert_int_equal(ggml_backend_alloc_ctx_tensors_from_buft_size(r.ctx, type_of(ON_PADDED)), padded);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(r.ctx, type_of(ON_PADDED));
    assert_non_null(buffer);
    assert_int_equal(ggml_backend_buffer_get_size(buffer), padded);
    assert_int_equal(counts_of(ON_PADDED).live_bytes, padded);
    assert_true(padded > tensors + 9 * 500);
    ggml_backend_buffer_free(buffer);
    assert_int_equal(counts_of(ON_PADDED).live_bytes, 0);
    ggml_free(r.ctx);
}

int main(void) {
    ggml_log_set(no_log, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_Aa_Ac_Ad_rebuilding_allocates_nothing),
        cmocka_unit_test(test_Aa_larger_graphs_grow),
        cmocka_unit_test(test_a_refused_reserve_leaves_nothing),
        cmocka_unit_test(test_T8_measuring_with_a_living_allocator_frees_it),
        cmocka_unit_test(test_T8_measuring_changes_nothing_that_lives),
        cmocka_unit_test(test_T8_schedulers),
        cmocka_unit_test(test_buffers_are_larger_than_their_tensors),
    };
    return cmocka_run_group_tests_name("reserve", tests, open_places, close_places);
}
