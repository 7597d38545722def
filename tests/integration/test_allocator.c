/* SPDX-License-Identifier: MIT
 * test_allocator.c: how long a value lives in ggml's graph allocator, held to the linked ggml. L: cases of the research
 * notes, seed 1.
 *
 * Where a value lives is ggml's decision; Burthen relies on it, and prices it. So these tests read addresses and
 * results: on the CPU, on a card, and on a card that wants other alignment and padding.
 *
 * One thing that ggml does is a trap, and stands here so that nobody falls in: an input whose only reader may work in
 * place is overwritten. Inputs are set before every compute. */
#include "graph_rig.h"

static float silu(float x) {
    return x / (1.0f + expf(-x));
}

/* ---- L: how long a value lives ---- */

/* Inputs have their memory before any node has, also one that is read last and made last: no node that is done with is
 * under it. */
static void test_La_inputs_first(void **state) {
    (void)state;
    static const float wanted[] = {20, 60, 120, 200, 300, 420, 560, 720};
    for (int place = 0; place < N_PLACES; place++) {
        rig r;
        open_rig(&r, place);
        struct ggml_tensor *x = input(&r, 8), *w = input(&r, 8);
        struct ggml_tensor *t = ggml_add(r.ctx, x, w), *c = ggml_mul(r.ctx, t, w);
        struct ggml_tensor *y = input(&r, 8);
        struct ggml_tensor *o = ggml_mul(r.ctx, c, y);
        output(&r, o);
        allocate(&r);
        assert_false(meet(x, w) || meet(x, y) || meet(w, y));
        assert_false(meet(y, t) || meet(y, c));
        set_all(x, 1, 1);
        set_all(w, 1, 0);
        set_all(y, 10, 10);
        compute(&r);
        check_values(o, wanted, 0);
        close_rig(&r);
    }
}

/* The trap: an input with one reader, which can work in place, is gone after computing. An output as well is kept. */
static void test_La_an_input_is_overwritten(void **state) {
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        rig r;
        open_rig(&r, ON_CARD);
        struct ggml_tensor *x = input(&r, 4);
        if (kept) ggml_set_output(x);
        struct ggml_tensor *y = ggml_scale(r.ctx, x, 2);
        output(&r, y);
        allocate(&r);
        assert_int_equal(at(x) == at(y), !kept);
        set_all(x, 1, 1);
        compute(&r);
        check_values(y, (const float[]){2, 4, 6, 8}, 0);
        check_values(x, kept ? (const float[]){1, 2, 3, 4} : (const float[]){2, 4, 6, 8}, 0);
        close_rig(&r);
    }
}

/* A view keeps what it is a view of, as a whole. */
static void test_Lb_views_keep_their_parent(void **state) {
    (void)state;
    for (int place = 0; place < N_PLACES; place++) {
        rig r;
        open_rig(&r, place);
        struct ggml_tensor *x = input(&r, 8), *w = input(&r, 8), *a = input(&r, 4), *a4 = input(&r, 4);
        struct ggml_tensor *t = ggml_add(r.ctx, x, w);
        struct ggml_tensor *p0 = ggml_view_1d(r.ctx, t, 4, 0);
        ggml_build_forward_expand(r.graph, p0); /* t's last reader but for the view comes before s */
        struct ggml_tensor *s = ggml_mul(r.ctx, a, a4);
        struct ggml_tensor *o = ggml_mul(r.ctx, p0, s);
        output(&r, o);
        allocate(&r);
        assert_int_equal(at(p0), at(t));
        assert_false(meet(s, t));
        set_all(x, 1, 1);
        set_all(w, 1, 0);
        set_all(a, 1, 1);
        set_all(a4, 1, 1);
        compute(&r);
        check_values(o, (const float[]){2, 12, 36, 80}, 0);
        close_rig(&r);
    }
}

/* One source listed twice is read twice and is no in-place candidate. */
static void test_Lc_a_source_twice(void **state) {
    (void)state;
    static const float values[] = {1.5f, -2, 3.25f, 0};
    for (int place = 0; place < N_PLACES; place++) {
        rig r;
        open_rig(&r, place);
        struct ggml_tensor *x = input(&r, 4);
        struct ggml_tensor *sum = ggml_add(r.ctx, x, x), *square = ggml_mul(r.ctx, x, x);
        output(&r, sum);
        output(&r, square);
        allocate(&r);
        assert_false(meet(sum, x) || meet(sum, square));
        set(x, values);
        compute(&r);
        check_values(sum, (const float[]){3, -4, 6.5f, 0}, 0);
        check_values(square, (const float[]){2.25f, 4, 10.5625f, 0}, 0);
        close_rig(&r);
    }
}

static struct ggml_tensor *chain(rig *r, struct ggml_tensor *t, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        t = ggml_cont(r->ctx, t); /* never in place */
    return t;
}

static uint32_t n_places_used(const rig *r) {
    uint32_t n = 0;
    for (int i = 0; i < ggml_graph_n_nodes(r->graph); i++) {
        bool first = true;
        for (int j = 0; j < i; j++)
            first = first && at(ggml_graph_node(r->graph, i)) != at(ggml_graph_node(r->graph, j));
        n += first;
    }
    return n;
}

static void test_Ld_a_chain_takes_turns(void **state) {
    (void)state;
    for (int place = 0; place < N_PLACES; place++) {
        uint32_t n_used[2];
        size_t bytes[2];
        for (int both = 0; both < 2; both++) {
            rig r;
            open_rig(&r, place);
            struct ggml_tensor *x = input(&r, 4), *y = input(&r, 4);
            struct ggml_tensor *end = chain(&r, x, 6);
            if (both) end = ggml_add(r.ctx, end, chain(&r, y, 6));
            output(&r, end);
            allocate(&r);
            n_used[both] = n_places_used(&r);
            bytes[both] = ggml_gallocr_get_buffer_size(r.memory, 0);
            set_all(x, 1, 1);
            if (both) set_all(y, 10, 0);
            compute(&r);
            check_values(end, both ? (const float[]){11, 12, 13, 14} : (const float[]){1, 2, 3, 4}, 0);
            close_rig(&r);
        }
        assert_in_range(n_used[0], 2, 5);
        assert_true(n_used[1] > n_used[0] && bytes[1] > bytes[0]);
    }
}

/* Two windows of one value; what reads both is no in-place candidate, and the fused one never is. */
static void test_Le_windows(void **state) {
    (void)state;
    static const float gate[] = {1, 2, 3}, up[] = {10, 20, 30};
    assert_false(ggml_op_can_inplace(GGML_OP_GLU));
    for (int place = 0; place < N_PLACES; place++) {
        rig r;
        open_rig(&r, place);
        struct ggml_tensor *g = input(&r, 3), *u = input(&r, 3);
        struct ggml_tensor *both = ggml_concat(r.ctx, g, u, 0);
        struct ggml_tensor *left = ggml_view_1d(r.ctx, both, 3, 0), *right = ggml_view_1d(r.ctx, both, 3, 12);
        struct ggml_tensor *fused = ggml_swiglu_split(r.ctx, left, right);
        struct ggml_tensor *s = ggml_silu(r.ctx, left);
        struct ggml_tensor *o = ggml_mul(r.ctx, s, right);
        output(&r, fused);
        output(&r, o);
        allocate(&r);
        assert_int_equal(at(left), at(both));
        assert_int_equal(at(right), at(both) + 12);
        assert_false(meet(fused, both) || meet(s, right));
        set(g, gate);
        set(u, up);
        compute(&r);
        float wanted[3];
        for (int i = 0; i < 3; i++)
            wanted[i] = silu(gate[i]) * up[i];
        check_values(fused, wanted, 1e-4f);
        check_values(o, wanted, 1e-4f);
        close_rig(&r);
    }
}

static void test_Lf_an_owner_split_in_two(void **state) {
    (void)state;
    static const int32_t values[] = {1, 2, 3, 4, 5, 6, 7, 8, 3, 0}, wanted[] = {7, 8, 1, 2};
    for (int place = 0; place < N_PLACES; place++) {
        rig r;
        open_rig(&r, place);
        struct ggml_tensor *owner = ggml_new_tensor_1d(r.ctx, GGML_TYPE_I32, 10);
        ggml_set_input(owner);
        struct ggml_tensor *rows = ggml_view_2d(r.ctx, owner, 2, 4, 8, 0);
        struct ggml_tensor *o = ggml_get_rows(r.ctx, rows, ggml_view_1d(r.ctx, owner, 2, 32));
        output(&r, o);
        allocate(&r);
        ggml_backend_tensor_set(owner, values, 0, sizeof values);
        compute(&r);
        int32_t got[4];
        ggml_backend_tensor_get(o, got, 0, sizeof got);
        assert_memory_equal(got, wanted, sizeof wanted);
        close_rig(&r);
    }
}

/* What reads a view of the whole never works in place: this ggml takes a view for somebody else's memory. It might,
 * while nobody else reads the parent, and compute buffers would be smaller; the parent must live either way. */
static void test_Lg_not_in_place_through_a_view(void **state) {
    (void)state;
    for (int place = 0; place < N_PLACES; place++)
        for (int read_later = 0; read_later < 2; read_later++) {
            rig r;
            open_rig(&r, place);
            struct ggml_tensor *x = input(&r, 4), *w = input(&r, 4);
            struct ggml_tensor *t = ggml_add(r.ctx, x, w);
            struct ggml_tensor *s = ggml_silu(r.ctx, ggml_view_1d(r.ctx, t, 4, 0));
            struct ggml_tensor *o = read_later ? ggml_add(r.ctx, s, t) : s;
            output(&r, o);
            allocate(&r);
            assert_false(meet(s, t));
            set_all(x, 1, 1);
            set_all(w, 1, 0);
            compute(&r);
            float wanted[4];
            for (int i = 0; i < 4; i++)
                wanted[i] = silu((float)(i + 2)) + (read_later ? (float)(i + 2) : 0);
            check_values(o, wanted, 1e-5f);
            close_rig(&r);
        }
}

int main(void) {
    ggml_log_set(no_log, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_La_inputs_first),
        cmocka_unit_test(test_La_an_input_is_overwritten),
        cmocka_unit_test(test_Lb_views_keep_their_parent),
        cmocka_unit_test(test_Lc_a_source_twice),
        cmocka_unit_test(test_Ld_a_chain_takes_turns),
        cmocka_unit_test(test_Le_windows),
        cmocka_unit_test(test_Lf_an_owner_split_in_two),
        cmocka_unit_test(test_Lg_not_in_place_through_a_view),
    };
    return cmocka_run_group_tests_name("allocator", tests, open_places, close_places);
}
