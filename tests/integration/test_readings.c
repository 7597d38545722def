/* SPDX-License-Identifier: MIT
 * test_readings.c: what devices say of their memory, asked of fake ones. B and T7: cases of the research notes, seed 1.
 */
#include "device/readings.h"
#include "fake_device.h"
#include "plan/plan.h"

#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static const bt_known nothing = {0};

/* ---- a log of our own, which must miss nothing ---- */

typedef struct log_book {
    uint32_t n_lines, n_bad;
    char last[256];
    void (*on_line)(void); /* called once, from inside the log */
} log_book;

static log_book book;

static void write_book(enum ggml_log_level level, const char *text, void *user) {
    log_book *b = user;
    b->n_lines++;
    b->n_bad += level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR;
    (void)snprintf(b->last, sizeof b->last, "%s", text);
    void (*call)(void) = b->on_line;
    b->on_line = NULL;
    if (call) call();
}

static int open_book(void **state) {
    (void)state;
    book = (log_book){0};
    ggml_log_set(write_book, &book);
    return 0;
}

static void check_log_is_ours(void) {
    ggml_log_callback call = NULL;
    void *user = NULL;
    ggml_log_get(&call, &user);
    assert_true(call == write_book);
    assert_ptr_equal(user, &book);
}

/* ---- one device ---- */

static bt_pool read_one(const fake_spec *spec) {
    struct ggml_backend_reg *reg = fake_registry_open(NULL, spec, 1);
    assert_non_null(reg);
    bt_pool pool;
    memset(&pool, 0xff, sizeof pool);
    bt_device_reading(fake_device_get(reg, 0), &pool);
    fake_counts counts;
    fake_device_counts(fake_device_get(reg, 0), &counts);
    assert_int_equal(counts.calls[FAKE_QUERY], 1);
    assert_int_equal(counts.calls[FAKE_ALLOC] + counts.calls[FAKE_INIT], 0);
    assert_true(fake_registry_close(reg));
    check_log_is_ours();
    assert_false(pool.limit.known);
    return pool;
}

static void check_reported(const bt_pool *pool, uint64_t free_bytes, uint64_t total_bytes, bool clamped) {
    assert_int_equal(pool->state, BT_READING_REPORTED);
    assert_int_equal(pool->free_bytes, free_bytes);
    assert_int_equal(pool->total_bytes, total_bytes);
    assert_int_equal(pool->clamped, clamped);
    assert_string_equal(pool->reason, "");
}

static void check_failed(const bt_pool *pool, const char *reason) {
    assert_int_equal(pool->state, BT_READING_FAILED);
    assert_int_equal(pool->free_bytes, 0);
    assert_int_equal(pool->total_bytes, 0);
    assert_false(pool->clamped);
    assert_string_equal(pool->reason, reason);
}

static void test_B1_reported(void **state) {
    (void)state;
    bt_pool pool = read_one(&(fake_spec){.total_bytes = 4 * MIB});
    check_reported(&pool, 4 * MIB, 4 * MIB, false);
    assert_string_equal(pool.name, "FAKE0");
    assert_int_equal(pool.kind, BT_POOL_GPU);
    assert_false(pool.shares_host);
    assert_int_equal(bt_device_budget_resolve(nothing, &pool).bytes, 3145728);
    assert_int_equal(book.n_lines, 0);
}

static void test_B3_T7_a_measured_zero(void **state) {
    (void)state;
    bt_pool pool = read_one(&(fake_spec){.total_bytes = 8 * MIB, .memory = FAKE_MEMORY_FULL});
    check_reported(&pool, 0, 8 * MIB, false);
    bt_device_budget budget = bt_device_budget_resolve(nothing, &pool);
    assert_int_equal(budget.state, BT_READING_REPORTED);
    assert_int_equal(budget.bytes, 0);
}

static void test_B4_T7_the_error_is_kept_and_still_logged(void **state) {
    (void)state;
    bt_pool pool = read_one(&(fake_spec){.total_bytes = 8 * MIB, .memory = FAKE_MEMORY_ERROR});
    check_failed(&pool, "no memory reported: log_error: memory query failed (cudaErrorIllegalAddress, 700), 0 of 0 "
                        "reported");
    bt_device_budget budget = bt_device_budget_resolve(nothing, &pool);
    assert_int_equal(budget.bytes, UINT64_MAX);
    assert_non_null(strstr(budget.note, "cudaErrorIllegalAddress"));
    assert_non_null(strstr(budget.note, "700"));
    assert_null(strstr(budget.note, "0 MiB"));
    assert_int_equal(book.n_lines, 2); /* with the line for debugging */
    assert_int_equal(book.n_bad, 1);
    assert_string_equal(book.last, "log_error: memory query failed (cudaErrorIllegalAddress, 700), 0 of 0 reported\n");
}

/* What an earlier device logged is not this one's reason. */
static void test_T7_silence(void **state) {
    (void)state;
    (void)read_one(&(fake_spec){.total_bytes = 8 * MIB, .memory = FAKE_MEMORY_ERROR});
    bt_pool pool = read_one(&(fake_spec){.total_bytes = 8 * MIB, .memory = FAKE_MEMORY_SILENT});
    check_failed(&pool, "no memory reported, and no error logged");
}

static void test_T7_free_of_none(void **state) {
    (void)state;
    bt_pool pool = read_one(&(fake_spec){.total_bytes = 8 * MIB, .memory = FAKE_MEMORY_NO_TOTAL});
    check_failed(&pool, "8388608 bytes reported free, of a device of none");
}

static void test_T7_more_free_than_there_is(void **state) {
    (void)state;
    bt_pool pool = read_one(&(fake_spec){.total_bytes = 8 * MIB, .memory = FAKE_MEMORY_OVER});
    check_reported(&pool, 8 * MIB, 8 * MIB, true);
    assert_int_equal(bt_device_budget_resolve(nothing, &pool).bytes, 6 * MIB);
}

static void test_kinds(void **state) {
    (void)state;
    bt_pool pool = read_one(&(fake_spec){.total_bytes = MIB, .type = FAKE_IGPU});
    assert_int_equal(pool.kind, BT_POOL_IGPU);
    assert_true(pool.shares_host);
    pool = read_one(&(fake_spec){.total_bytes = MIB, .type = FAKE_ACCEL});
    assert_int_equal(pool.kind, BT_POOL_ACCEL);
    check_reported(&pool, MIB, MIB, false);
}

static void test_B5_absent(void **state) {
    (void)state;
    bt_pool pool;
    bt_device_reading(NULL, &pool);
    assert_int_equal(pool.state, BT_READING_ABSENT);
    bt_device_reading(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), &pool);
    assert_int_equal(pool.state, BT_READING_ABSENT); /* it would say that all of the machine is free */
    assert_int_equal(pool.kind, BT_POOL_HOST);
    assert_string_equal(pool.name, "CPU");
    assert_int_equal(pool.total_bytes, 0);
}

/* What a device logs and what it is called cannot drive a terminal, nor run over. */
static void test_texts_are_made_safe(void **state) {
    (void)state;
    char error[128], name[64];
    memset(error, 'e', sizeof error);
    error[sizeof error - 1] = '\0';
    memcpy(error, "\x1b[2Jbad\xff", 8);
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    memcpy(name, "A\x07", 2);
    bt_pool pool = read_one(&(fake_spec){.name = name, .memory = FAKE_MEMORY_ERROR, .error = error});
    assert_string_equal(pool.name, "A?nnnnnnnnnnnnnnnnnnnnnnnnnnnnn");
    assert_non_null(strstr(pool.reason, "memory query failed (?[2Jbad?eee"));
    assert_in_range(strlen(pool.reason), 100, sizeof pool.reason - 1);
}

/* ---- the log belongs to others too ---- */

static void *log_elsewhere(void *user) {
    GGML_LOG_ERROR("%s: of another device\n", (const char *)user);
    return NULL;
}

static char elsewhere[] = "elsewhere";

static void log_from_another_thread(void) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, log_elsewhere, elsewhere), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_lines_of_other_threads_pass(void **state) {
    (void)state;
    book.on_line = log_from_another_thread;
    bt_pool pool = read_one(&(fake_spec){.total_bytes = MIB, .memory = FAKE_MEMORY_ERROR});
    assert_non_null(strstr(pool.reason, "cudaErrorIllegalAddress"));
    assert_null(strstr(pool.reason, "another"));
    assert_int_equal(book.n_lines, 3);
    assert_int_equal(book.n_bad, 2);
}

static void no_log(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}

static void set_another_log(void) {
    ggml_log_set(no_log, NULL);
}

static void test_a_log_set_meanwhile_stays(void **state) {
    (void)state;
    struct ggml_backend_reg *reg =
        fake_registry_open(NULL, &(fake_spec){.total_bytes = MIB, .memory = FAKE_MEMORY_ERROR}, 1);
    book.on_line = set_another_log;
    bt_pool pool;
    bt_device_reading(fake_device_get(reg, 0), &pool);
    assert_int_equal(pool.state, BT_READING_FAILED);
    ggml_log_callback call = NULL;
    void *user = NULL;
    ggml_log_get(&call, &user);
    assert_true(call == no_log);
    assert_true(fake_registry_close(reg));
}

/* ---- all devices ---- */

static const fake_spec cards[] = {
    {.name = "CARD0", .total_bytes = 8 * MIB},
    {.name = "CARD1", .total_bytes = 8 * MIB, .memory = FAKE_MEMORY_ERROR},
    {.name = "BLAS", .total_bytes = 8 * MIB, .type = FAKE_ACCEL},
    {.name = "CARD2", .total_bytes = 4 * MIB, .type = FAKE_IGPU},
};
static const fake_spec far_card = {.name = "RPC0", .total_bytes = 2 * MIB};
static const fake_spec own_card = {.name = "Burthen0", .total_bytes = MIB};

typedef struct registries {
    struct ggml_backend_reg *near, *far, *own;
} registries;

static registries open_all(void) {
    registries r = {fake_registry_open(NULL, cards, 4), fake_registry_open("RPC", &far_card, 1),
                    fake_registry_open("Burthen", &own_card, 1)};
    ggml_backend_register(r.own);
    ggml_backend_register(r.near);
    ggml_backend_register(r.far);
    return r;
}

static void close_all(registries *r) {
    assert_true(fake_registry_close(r->near));
    assert_true(fake_registry_close(r->far));
    assert_true(fake_registry_close(r->own));
}

static uint64_t n_queries(struct ggml_backend_reg *reg, uint32_t index) {
    fake_counts counts;
    fake_device_counts(fake_device_get(reg, index), &counts);
    return counts.calls[FAKE_QUERY];
}

static void test_each_once_and_none_spoils_another(void **state) {
    (void)state;
    bt_pool pools[BT_POOL_MAX];
    uint32_t n = 99;
    registries r = open_all();
    assert_int_equal(bt_device_readings(pools, BT_POOL_MAX, &n), 0);
    assert_int_equal(n, 4);
    static const char *const names[] = {"CARD0", "CARD1", "CARD2", "RPC0"};
    static const bt_pool_kind kinds[] = {BT_POOL_GPU, BT_POOL_GPU, BT_POOL_IGPU, BT_POOL_RPC};
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(pools[i].name, names[i]);
        assert_int_equal(pools[i].kind, kinds[i]);
    }
    check_reported(&pools[0], 8 * MIB, 8 * MIB, false);
    assert_int_equal(pools[1].state, BT_READING_FAILED);
    check_reported(&pools[2], 4 * MIB, 4 * MIB, false);
    check_reported(&pools[3], 2 * MIB, 2 * MIB, false);
    assert_int_equal(n_queries(r.near, 0), 1);
    assert_int_equal(n_queries(r.near, 1), 1);
    assert_int_equal(n_queries(r.near, 2), 0); /* holds no weights: not asked */
    assert_int_equal(n_queries(r.near, 3), 1);
    assert_int_equal(n_queries(r.far, 0), 1);
    assert_int_equal(n_queries(r.own, 0), 0);
    check_log_is_ours();
    close_all(&r);
    assert_int_equal(bt_device_readings(pools, BT_POOL_MAX, &n), 0);
    assert_int_equal(n, 0);
}

static void test_what_has_no_room_is_counted(void **state) {
    (void)state;
    bt_pool pools[2];
    uint32_t n = 99;
    registries r = open_all();
    assert_int_equal(bt_device_readings(pools, 2, &n), 2);
    assert_int_equal(n, 2);
    assert_string_equal(pools[1].name, "CARD1");
    assert_int_equal(n_queries(r.near, 3) + n_queries(r.far, 0), 0);
    assert_int_equal(bt_device_readings(NULL, 0, &n), 4);
    assert_int_equal(n, 0);
    close_all(&r);
}

/* The same device again: what it held and what its driver took is gone from free. */
static void test_free_follows_what_is_held(void **state) {
    (void)state;
    fake_spec spec = {.total_bytes = 8 * MIB, .overhead_bytes = 3 * MIB};
    struct ggml_backend_reg *reg = fake_registry_open(NULL, &spec, 1);
    ggml_backend_dev_t dev = fake_device_get(reg, 0);
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    assert_non_null(backend);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_buffer(backend, MIB);
    assert_non_null(buffer);
    bt_pool pool;
    bt_device_reading(dev, &pool);
    check_reported(&pool, 4 * MIB, 8 * MIB, false);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    bt_device_reading(dev, &pool);
    check_reported(&pool, 5 * MIB, 8 * MIB, false); /* a driver's context stays */
    fake_device_fail(dev, FAKE_QUERY, 2, false);
    bt_device_reading(dev, &pool);
    assert_int_equal(pool.state, BT_READING_REPORTED);
    bt_device_reading(dev, &pool);
    assert_int_equal(pool.state, BT_READING_FAILED);
    bt_device_reading(dev, &pool);
    assert_int_equal(pool.state, BT_READING_REPORTED);
    assert_true(fake_registry_close(reg));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_B1_reported, open_book),
        cmocka_unit_test_setup(test_B3_T7_a_measured_zero, open_book),
        cmocka_unit_test_setup(test_B4_T7_the_error_is_kept_and_still_logged, open_book),
        cmocka_unit_test_setup(test_T7_silence, open_book),
        cmocka_unit_test_setup(test_T7_free_of_none, open_book),
        cmocka_unit_test_setup(test_T7_more_free_than_there_is, open_book),
        cmocka_unit_test_setup(test_kinds, open_book),
        cmocka_unit_test_setup(test_B5_absent, open_book),
        cmocka_unit_test_setup(test_texts_are_made_safe, open_book),
        cmocka_unit_test_setup(test_lines_of_other_threads_pass, open_book),
        cmocka_unit_test_setup(test_a_log_set_meanwhile_stays, open_book),
        cmocka_unit_test_setup(test_each_once_and_none_spoils_another, open_book),
        cmocka_unit_test_setup(test_what_has_no_room_is_counted, open_book),
        cmocka_unit_test_setup(test_free_follows_what_is_held, open_book),
    };
    return cmocka_run_group_tests_name("readings", tests, NULL, NULL);
}
