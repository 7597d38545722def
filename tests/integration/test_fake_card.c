/* SPDX-License-Identifier: MIT
 * test_fake_card.c: the fake card itself, on which other tests rely: its memory ends, is nobody else's, and is counted;
 * what is told to fail fails, and nothing else; threads may share it. */
#include "graph_rig.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static ggml_backend_dev_t card(uint32_t index) {
    return fake_device_get(cards, index);
}

static fake_counts counts_of_device(ggml_backend_dev_t dev) {
    fake_counts counts;
    fake_device_counts(dev, &counts);
    return counts;
}

/* A card that is not the group's. */
static ggml_backend_dev_t new_card(const fake_spec *spec, struct ggml_backend_reg **ret_reg) {
    *ret_reg = fake_registry_open("OTHER", spec, 1);
    assert_non_null(*ret_reg);
    return fake_device_get(*ret_reg, 0);
}

static void test_memory_ends(void **state) {
    (void)state;
    struct ggml_backend_reg *reg;
    ggml_backend_dev_t dev = new_card(&(fake_spec){.total_bytes = 1000, .max_buffer_bytes = 900}, &reg);
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(dev);
    assert_null(ggml_backend_buft_alloc_buffer(type, 901));
    ggml_backend_buffer_t a = ggml_backend_buft_alloc_buffer(type, 900);
    assert_non_null(a);
    assert_null(ggml_backend_buft_alloc_buffer(type, 101));
    ggml_backend_buffer_t b = ggml_backend_buft_alloc_buffer(type, 100); /* equality fits */
    assert_non_null(b);
    assert_null(ggml_backend_buft_alloc_buffer(type, 1));
    assert_false(fake_registry_close(reg)); /* not while something is held */
    fake_counts counts = counts_of_device(dev);
    assert_int_equal(counts.calls[FAKE_ALLOC], 5);
    assert_int_equal(counts.n_buffers, 2);
    assert_int_equal(counts.live_bytes, 1000);
    ggml_backend_buffer_free(a);
    ggml_backend_buffer_free(b);
    counts = counts_of_device(dev);
    assert_int_equal(counts.frees, 2);
    assert_int_equal(counts.live_bytes, 0);
    assert_int_equal(counts.peak_bytes, 1000);
    assert_true(fake_registry_close(reg));
}

/* The first backend takes it, and it stays. */
static void test_overhead(void **state) {
    (void)state;
    struct ggml_backend_reg *reg;
    ggml_backend_dev_t dev = new_card(&(fake_spec){.total_bytes = 1000, .overhead_bytes = 400}, &reg);
    ggml_backend_buffer_t a = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(dev), 601);
    assert_null(ggml_backend_dev_init(dev, NULL)); /* no room left for it */
    ggml_backend_buffer_free(a);
    ggml_backend_t first = ggml_backend_dev_init(dev, NULL), second = ggml_backend_dev_init(dev, NULL);
    assert_true(first && second);
    assert_int_equal(counts_of_device(dev).overhead_bytes, 400);
    assert_int_equal(counts_of_device(dev).n_backends, 2);
    ggml_backend_free(first);
    ggml_backend_free(second);
    assert_int_equal(counts_of_device(dev).n_backends, 0);
    size_t free_bytes, total_bytes;
    ggml_backend_dev_memory(dev, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, 600);
    assert_int_equal(total_bytes, 1000);
    assert_true(fake_registry_close(reg));
}

static void test_what_is_told_to_fail_fails(void **state) {
    (void)state;
    struct ggml_backend_reg *reg;
    ggml_backend_dev_t dev = new_card(&(fake_spec){.total_bytes = MIB}, &reg);
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(dev);
    fake_device_fail(dev, FAKE_ALLOC, 2, false);
    fake_device_fail(dev, FAKE_INIT, 1, true);
    for (int i = 1; i <= 4; i++) {
        ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, 10);
        assert_int_equal(buffer == NULL, i == 2);
        ggml_backend_buffer_free(buffer);
        assert_null(ggml_backend_dev_init(dev, NULL));
    }
    fake_device_fail(dev, FAKE_INIT, 0, false);
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    assert_non_null(backend);
    ggml_backend_free(backend);
    assert_int_equal(counts_of_device(dev).calls[FAKE_INIT], 5);
    assert_true(fake_registry_close(reg));
}

static void test_a_graph_fails_and_computes_nothing(void **state) {
    (void)state;
    rig r;
    open_rig(&r, ON_CARD);
    struct ggml_tensor *x = input(&r, 4);
    ggml_set_output(x);
    struct ggml_tensor *y = ggml_scale(r.ctx, x, 2);
    output(&r, y);
    allocate(&r);
    set_all(x, 1, 1);
    set_all(y, 9, 0);
    fake_device_fail(card(0), FAKE_COMPUTE, 1, false);
    assert_int_equal(ggml_backend_graph_compute(backends[ON_CARD], r.graph), GGML_STATUS_FAILED);
    check_values(y, (const float[]){9, 9, 9, 9}, 0);
    compute(&r);
    check_values(y, (const float[]){2, 4, 6, 8}, 0);
    close_rig(&r);
}

/* Past the interface there is nothing: a read of the address is the end of the process. */
static void test_memory_is_not_the_hosts(void **state) {
    (void)state;
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type_of(ON_CARD), 64);
    assert_false(ggml_backend_buffer_is_host(buffer));
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer's and cmocka's handlers would tell of it */
        volatile const uint8_t *base = ggml_backend_buffer_get_base(buffer);
        _exit(*base == 0 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    ggml_backend_buffer_free(buffer);
}

static void test_between_cards(void **state) {
    (void)state;
    static const float values[] = {1, 2, 3, 4};
    rig from, to;
    open_rig(&from, ON_CARD);
    open_rig(&to, ON_PADDED);
    struct ggml_tensor *a = input(&from, 4), *b = input(&to, 4);
    output(&from, ggml_scale(from.ctx, a, 2));
    output(&to, ggml_scale(to.ctx, b, 3));
    ggml_set_output(b);
    allocate(&from);
    allocate(&to);
    set(a, values);
    uint64_t n_copies = counts_of(ON_PADDED).copies, n_gets = counts_of(ON_CARD).gets;
    ggml_backend_tensor_copy(a, b);
    assert_int_equal(counts_of(ON_PADDED).copies, n_copies + 1);
    assert_int_equal(counts_of(ON_CARD).gets, n_gets); /* not by way of the host */
    compute(&to);
    check_values(b, values, 0);
    ggml_backend_buffer_clear(b->buffer, 0);
    check_values(b, (const float[]){0, 0, 0, 0}, 0);
    ggml_backend_tensor_memset(b, 0x40, 0, 4);
    check_values(b, (const float[]){3.00392151f, 0, 0, 0}, 1e-6f);
    close_rig(&from);
    close_rig(&to);
}

static void test_properties(void **state) {
    (void)state;
    struct ggml_backend_reg *reg;
    fake_spec spec = {.name = "GTX", .description = "a card", .device_id = "0000:01:00.0", .total_bytes = MIB};
    ggml_backend_dev_t dev = new_card(&spec, &reg);
    struct ggml_backend_dev_props props;
    ggml_backend_dev_get_props(dev, &props);
    assert_string_equal(props.name, "GTX");
    assert_string_equal(props.description, "a card");
    assert_string_equal(props.device_id, "0000:01:00.0");
    assert_int_equal(props.memory_total, MIB);
    assert_int_equal(props.type, GGML_BACKEND_DEVICE_TYPE_GPU);
    assert_false(props.caps.async || props.caps.host_buffer || props.caps.events || props.caps.buffer_from_host_ptr);
    assert_int_equal(counts_of_device(dev).calls[FAKE_QUERY], 1);
    assert_true(fake_registry_close(reg));
}

/* ---- threads ---- */

#define N_THREADS 4
#define N_ROUNDS  50

/* Each computes with a backend and buffers of its own; the weight is shared. */
typedef struct worker {
    struct ggml_tensor *weight;
    bool wrong;
} worker;

static void *work(void *user) {
    worker *w = user;
    ggml_backend_t backend = ggml_backend_dev_init(card(0), NULL);
    for (int i = 0; backend && i < N_ROUNDS; i++) {
        struct ggml_init_params params = {ggml_tensor_overhead() * 8 + ggml_graph_overhead(), NULL, true};
        struct ggml_context *ctx = ggml_init(params);
        struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
        struct ggml_tensor *y = ggml_mul(ctx, x, w->weight);
        struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
        ggml_build_forward_expand(graph, y);
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, type_of(ON_CARD));
        float values[4] = {(float)i, 1, 2, 3}, got[4] = {0};
        ggml_backend_tensor_set(x, values, 0, sizeof values);
        w->wrong |= ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS;
        ggml_backend_tensor_get(y, got, 0, sizeof got);
        for (int k = 0; k < 4; k++)
            w->wrong |= got[k] != values[k] * (float)(k + 1);
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
    w->wrong |= !backend;
    ggml_backend_free(backend);
    return NULL;
}

static void test_threads_share_it(void **state) {
    (void)state;
    rig r = {.place = ON_CARD};
    build_begin(&r);
    struct ggml_tensor *weight = ggml_new_tensor_1d(r.ctx, GGML_TYPE_F32, 4);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(r.ctx, type_of(ON_CARD));
    set_all(weight, 1, 1);
    fake_counts before = counts_of(ON_CARD);
    pthread_t threads[N_THREADS];
    worker workers[N_THREADS] = {0};
    for (int i = 0; i < N_THREADS; i++) {
        workers[i].weight = weight;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(workers[i].wrong);
    }
    fake_counts after = counts_of(ON_CARD);
    assert_int_equal(after.calls[FAKE_ALLOC] - before.calls[FAKE_ALLOC], N_THREADS * N_ROUNDS);
    assert_int_equal(after.calls[FAKE_COMPUTE] - before.calls[FAKE_COMPUTE], N_THREADS * N_ROUNDS);
    assert_int_equal(after.frees - before.frees, N_THREADS * N_ROUNDS);
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_int_equal(after.n_backends, before.n_backends);
    ggml_backend_buffer_free(buffer);
    ggml_free(r.ctx);
}

int main(void) {
    ggml_log_set(no_log, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_ends),
        cmocka_unit_test(test_overhead),
        cmocka_unit_test(test_what_is_told_to_fail_fails),
        cmocka_unit_test(test_a_graph_fails_and_computes_nothing),
        cmocka_unit_test(test_memory_is_not_the_hosts),
        cmocka_unit_test(test_between_cards),
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_threads_share_it),
    };
    return cmocka_run_group_tests_name("fake card", tests, open_places, close_places);
}
