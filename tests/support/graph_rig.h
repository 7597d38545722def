/* SPDX-License-Identifier: MIT
 * graph_rig.h: small graphs on the CPU, on a fake card, and on one that pads. */
#pragma once

#include "fake_device.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MIB   (UINT64_C(1) << 20)
#define N_MAX 64 /* tensors of a test's graph */

/* Places to compute on: the CPU, a card, and a card that pads. */
enum { ON_CPU, ON_CARD, ON_PADDED, N_PLACES };

static struct ggml_backend_reg *cards;
static ggml_backend_t backends[N_PLACES];

static inline int open_places(void **state) {
    (void)state;
    static const fake_spec specs[] = {{.total_bytes = 64 * MIB},
                                      {.total_bytes = 64 * MIB, .align_bytes = 1024, .pad_bytes = 500}};
    cards = fake_registry_open(NULL, specs, 2);
    if (!cards) return -1;
    backends[ON_CPU] = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    backends[ON_CARD] = ggml_backend_dev_init(fake_device_get(cards, 0), NULL);
    backends[ON_PADDED] = ggml_backend_dev_init(fake_device_get(cards, 1), NULL);
    return backends[ON_CPU] && backends[ON_CARD] && backends[ON_PADDED] ? 0 : -1;
}

static inline int close_places(void **state) {
    (void)state;
    for (int i = 0; i < N_PLACES; i++)
        ggml_backend_free(backends[i]);
    return fake_registry_close(cards) ? 0 : -1;
}

static inline ggml_backend_buffer_type_t type_of(int place) {
    return ggml_backend_get_default_buffer_type(backends[place]);
}

static inline fake_counts counts_of(int card) {
    fake_counts counts;
    fake_device_counts(ggml_backend_get_device(backends[card]), &counts);
    return counts;
}

/* ---- a graph and its memory ---- */

typedef struct rig {
    int place;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    ggml_gallocr_t memory;
} rig;

static inline void build_begin(rig *r) {
    struct ggml_init_params params = {ggml_tensor_overhead() * N_MAX + ggml_graph_overhead(), NULL, true};
    r->ctx = ggml_init(params);
    assert_non_null(r->ctx);
    r->graph = ggml_new_graph_custom(r->ctx, N_MAX, false);
}

static inline void open_rig(rig *r, int place) {
    *r = (rig){.place = place, .memory = ggml_gallocr_new(type_of(place))};
    assert_non_null(r->memory);
    build_begin(r);
}

static inline void close_rig(rig *r) {
    ggml_gallocr_free(r->memory);
    ggml_free(r->ctx);
}

static inline struct ggml_tensor *input(rig *r, int64_t n) {
    struct ggml_tensor *t = ggml_new_tensor_1d(r->ctx, GGML_TYPE_F32, n);
    ggml_set_input(t);
    return t;
}

static inline void output(rig *r, struct ggml_tensor *t) {
    ggml_set_output(t);
    ggml_build_forward_expand(r->graph, t);
}

static inline void allocate(rig *r) {
    assert_true(ggml_gallocr_alloc_graph(r->memory, r->graph));
}

static inline void set(struct ggml_tensor *t, const float *values) {
    ggml_backend_tensor_set(t, values, 0, ggml_nbytes(t));
}

static inline void set_all(struct ggml_tensor *t, float first, float step) {
    float values[N_MAX * 4];
    for (int64_t i = 0; i < ggml_nelements(t); i++)
        values[i] = first + step * (float)i;
    set(t, values);
}

static inline void compute(rig *r) {
    assert_int_equal(ggml_backend_graph_compute(backends[r->place], r->graph), GGML_STATUS_SUCCESS);
}

static inline void check_values(const struct ggml_tensor *t, const float *wanted, float off) {
    float values[N_MAX];
    ggml_backend_tensor_get(t, values, 0, ggml_nbytes(t));
    for (int64_t i = 0; i < ggml_nelements(t); i++)
        if (!(fabsf(values[i] - wanted[i]) <= off))
            fail_msg("%s[%d] is %g, not %g", t->name, (int)i, (double)values[i], (double)wanted[i]);
}

static inline uintptr_t at(const struct ggml_tensor *t) {
    assert_non_null(t->data);
    return (uintptr_t)t->data;
}

static inline bool meet(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return at(a) < at(b) + ggml_nbytes(b) && at(b) < at(a) + ggml_nbytes(a);
}

static inline void no_log(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}
