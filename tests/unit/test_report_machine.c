/* SPDX-License-Identifier: MIT
 * test_report_machine.c: machine -> JSON -> machine is the identity; what a person may leave out is unknown; readings
 * that contradict themselves are settled; wrong members are named; the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "heap_check.h"
#include "report/report.h"
#include "report_fixture.h"

#include <stdlib.h>

static report_fixture fixture;
static bt_machine back;

static int start(void **state) {
    (void)state;
    fixture_make(&fixture);
    memset(&back, 0xA5, sizeof back);
    return 0;
}

static void same_known(bt_known a, bt_known b) {
    assert_int_equal(a.known, b.known);
    assert_int_equal(a.value, b.value);
}

static void same_pool(const bt_pool *a, const bt_pool *b) {
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->state, b->state);
    assert_string_equal(a->reason, b->reason);
    assert_int_equal(a->free_bytes, b->free_bytes);
    assert_int_equal(a->total_bytes, b->total_bytes);
    assert_int_equal(a->clamped, b->clamped);
    assert_int_equal(a->shares_host, b->shares_host);
    same_known(a->limit, b->limit);
    assert_string_equal(a->limit_source, b->limit_source);
    assert_string_equal(a->pci, b->pci);
    assert_string_equal(a->device, b->device);
    assert_string_equal(a->source, b->source);
}

static void test_identity(void **state) {
    (void)state;
    const bt_machine *m = &fixture.machine;
    char *json = NULL;
    char *again = NULL;
    bt_error err = {0};
    assert_int_equal(bt_report_machine_json(m, &json, &err), BT_OK);
    if (bt_machine_from_json(json, strlen(json), &back, &err) != BT_OK) fail_msg("%s", err.text);
    assert_int_equal(back.n_pools, m->n_pools);
    for (uint32_t i = 0; i < m->n_pools; i++) {
        same_pool(&m->pools[i], &back.pools[i]);
    }
    assert_int_equal(back.cgroup_version, m->cgroup_version);
    assert_string_equal(back.cgroup_reason, m->cgroup_reason);
    assert_int_equal(back.n_cgroup_levels, m->n_cgroup_levels);
    for (uint32_t i = 0; i < m->n_cgroup_levels; i++) {
        assert_string_equal(back.cgroup[i].path, m->cgroup[i].path);
        same_known(back.cgroup[i].limit, m->cgroup[i].limit);
        assert_string_equal(back.cgroup[i].limit_file, m->cgroup[i].limit_file);
        assert_int_equal(back.cgroup[i].usage_bytes, m->cgroup[i].usage_bytes);
        assert_int_equal(back.cgroup[i].reclaimable_bytes, m->cgroup[i].reclaimable_bytes);
        assert_int_equal(back.cgroup[i].promised_bytes, m->cgroup[i].promised_bytes);
    }
    assert_int_equal(back.n_reservations, m->n_reservations);
    for (uint32_t i = 0; i < m->n_reservations; i++) {
        assert_int_equal(back.reservations[i].pid, m->reservations[i].pid);
        assert_string_equal(back.reservations[i].command, m->reservations[i].command);
        assert_int_equal(back.reservations[i].promised_bytes, m->reservations[i].promised_bytes);
        assert_int_equal(back.reservations[i].resident_bytes, m->reservations[i].resident_bytes);
    }
    assert_int_equal(back.promised_bytes, m->promised_bytes);
    assert_int_equal(back.untouched_bytes, m->untouched_bytes);
    assert_string_equal(back.reservations_reason, m->reservations_reason);
    same_known(back.swap_free_bytes, m->swap_free_bytes);
    same_known(back.memlock_bytes, m->memlock_bytes);
    same_known(back.disk_bytes_per_s, m->disk_bytes_per_s);
    assert_int_equal(back.disk_measured, m->disk_measured);
    same_known(back.memory_bytes_per_s, m->memory_bytes_per_s);
    assert_int_equal(back.n_threads, m->n_threads);
    assert_int_equal(bt_report_machine_json(&back, &again, &err), BT_OK);
    assert_string_equal(json, again);
    bt_heap_free(json);
    bt_heap_free(again);
}

static void read_good(const char *json) {
    bt_error err = {0};
    if (bt_machine_from_json(json, strlen(json), &back, &err) != BT_OK) fail_msg("%s: %s", json, err.text);
}

static void test_missing_is_unknown(void **state) {
    (void)state;
    read_good("{\"schema\": 1}");
    assert_int_equal(back.n_pools, 1); /* pools[0] is the host */
    assert_string_equal(back.pools[0].name, "host");
    assert_int_equal(back.pools[0].kind, BT_POOL_HOST);
    assert_int_equal(back.pools[0].state, BT_READING_ABSENT);
    assert_false(back.disk_bytes_per_s.known);
    assert_false(back.memory_bytes_per_s.known);
    assert_false(back.swap_free_bytes.known);
    assert_int_equal(back.n_threads, 0);
    assert_int_equal(back.cgroup_version, 0);

    read_good("{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"free_bytes\": 5, "
              "\"total_bytes\": 7}], \"disk\": null, \"cpu\": {\"threads\": null}}");
    assert_int_equal(back.pools[0].state, BT_READING_REPORTED); /* numbers are a report */
    assert_int_equal(back.pools[0].free_bytes, 5);
    assert_int_equal(back.pools[0].total_bytes, 7);
    assert_false(back.pools[0].clamped);

    read_good("{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"state\": \"reported\", "
              "\"total_bytes\": 7}]}");
    assert_int_equal(back.pools[0].state, BT_READING_FAILED); /* never 0 bytes free */
    assert_string_equal(back.pools[0].reason, "free_bytes is not known");
}

#define HOST "{\"name\": \"host\", \"kind\": \"host\"}"

static const bt_pool *read_gpu(const char *members) {
    char json[512];
    (void)snprintf(json, sizeof json,
                   "{\"schema\": 1, \"pools\": [" HOST ", {\"name\": \"CUDA0\", \"kind\": \"gpu\", %s}]}", members);
    read_good(json);
    assert_int_equal(back.n_pools, 2);
    return &back.pools[1];
}

static void test_contradictions_are_settled(void **state) {
    (void)state;
    const bt_pool *gpu = read_gpu("\"free_bytes\": 9, \"total_bytes\": 8");
    assert_int_equal(gpu->state, BT_READING_REPORTED);
    assert_int_equal(gpu->free_bytes, 8);
    assert_true(gpu->clamped);

    gpu = read_gpu("\"free_bytes\": 9, \"total_bytes\": 0");
    assert_int_equal(gpu->state, BT_READING_FAILED);
    assert_string_equal(gpu->reason, "total_bytes is not known");
    assert_int_equal(gpu->free_bytes, 0);

    gpu = read_gpu("\"free_bytes\": 0, \"total_bytes\": 0");
    assert_int_equal(gpu->state, BT_READING_FAILED);
    gpu = read_gpu("\"free_bytes\": 0, \"total_bytes\": 8"); /* full is not unknown */
    assert_int_equal(gpu->state, BT_READING_REPORTED);
    assert_int_equal(gpu->free_bytes, 0);
    gpu = read_gpu("\"state\": \"failed\", \"reason\": \"no driver\", \"free_bytes\": 4, \"total_bytes\": 8");
    assert_int_equal(gpu->state, BT_READING_FAILED);
    assert_string_equal(gpu->reason, "no driver");
    assert_int_equal(gpu->free_bytes, 0);
    gpu = read_gpu("\"state\": \"absent\"");
    assert_int_equal(gpu->state, BT_READING_ABSENT);
}

static void test_strict(void **state) {
    (void)state;
    static const struct {
        const char *json, *member;
    } cases[] = {
        {"{}", "\"schema\""},
        {"{\"schema\": 2}", "\"schema\""},
        {"{\"schema\": 1, \"pools\": {}}", "\"pools\""},
        {"{\"schema\": 1, \"pools\": [1]}", "\"pools[0]\""},
        {"{\"schema\": 1, \"pools\": [{}]}", "\"pools[0].name\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"\", \"kind\": \"host\"}]}", "\"pools[0].name\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"host\"}]}", "\"pools[0].kind\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"ghost\"}]}", "\"pools[0].kind\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"CUDA0\", \"kind\": \"gpu\"}]}", "\"pools[0].kind\""},
        {"{\"schema\": 1, \"pools\": [" HOST ", " HOST "]}", "\"pools[1].kind\""},
        {"{\"schema\": 1, \"pools\": [" HOST ", {\"name\": \"host\", \"kind\": \"gpu\"}]}", "\"pools[1].name\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"state\": \"unlimited\"}]}",
         "\"pools[0].state\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"free_bytes\": -1}]}",
         "\"pools[0].free_bytes\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"free_bytes\": \"8G\"}]}",
         "\"pools[0].free_bytes\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"free_bytes\": 1.5}]}",
         "\"pools[0].free_bytes\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"shares_host\": 1}]}",
         "\"pools[0].shares_host\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"limit\": 7}]}", "\"pools[0].limit\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"limit\": {\"bytes\": true}}]}",
         "\"pools[0].limit.bytes\""},
        {"{\"schema\": 1, \"pools\": [{\"name\": \"a name of more than thirty-one bytes\", \"kind\": \"host\"}]}",
         "\"pools[0].name\""},
        {"{\"schema\": 1, \"disk\": 5}", "\"disk\""},
        {"{\"schema\": 1, \"disk\": {\"bandwidth_bytes_per_s\": \"fast\"}}", "\"disk.bandwidth_bytes_per_s\""},
        {"{\"schema\": 1, \"disk\": {\"source\": \"guessed\"}}", "\"disk.source\""},
        {"{\"schema\": 1, \"memory\": {\"bandwidth_bytes_per_s\": []}}", "\"memory.bandwidth_bytes_per_s\""},
        {"{\"schema\": 1, \"cpu\": {\"threads\": 5000}}", "\"cpu.threads\""},
        {"{\"schema\": 1, \"cgroup\": {\"version\": 3}}", "\"cgroup.version\""},
        {"{\"schema\": 1, \"cgroup\": {\"levels\": [{\"usage_bytes\": null}]}}", "\"cgroup.levels[0].usage_bytes\""},
        {"{\"schema\": 1, \"cgroup\": {\"levels\": [7]}}", "\"cgroup.levels[0]\""},
        {"{\"schema\": 1, \"pools\": [" HOST "]", "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_error err = {0};
        static bt_machine untouched; /* too large for the stack */
        untouched = back;
        bt_status status = bt_machine_from_json(cases[i].json, strlen(cases[i].json), &back, &err);
        if (status != BT_E_FORMAT || strcmp(err.code, "json") != 0 || !strstr(err.text, cases[i].member)) {
            fail_msg("%s: %s", cases[i].json, err.text);
        }
        assert_memory_equal(&untouched, &back, sizeof back); /* set only on success */
    }
}

static void test_too_many_pools(void **state) {
    (void)state;
    char json[2048];
    size_t n = (size_t)snprintf(json, sizeof json, "{\"schema\": 1, \"pools\": [" HOST);
    for (int i = 1; i <= BT_POOL_MAX; i++) {
        n += (size_t)snprintf(json + n, sizeof json - n, ", {\"name\": \"CUDA%d\", \"kind\": \"gpu\"}", i);
    }
    (void)snprintf(json + n, sizeof json - n, "]}");
    bt_error err = {0};
    assert_int_equal(bt_machine_from_json(json, strlen(json), &back, &err), BT_E_FORMAT);
    assert_non_null(strstr(err.text, "at most 16"));
}

static void check_text(const char *expected) {
    bt_text text;
    bt_text_init(&text, 1u << 16);
    bt_report_machine_text(&fixture.machine, &text);
    assert_string_equal(bt_text_str(&text), expected);
    bt_text_done(&text);
}

static void test_text(void **state) {
    (void)state;
    check_text(
        "Machine\n"
        "  pool       kind   state              free        total\n"
        "  host       host   reported       5.59 GiB    14.90 GiB  limit 4.00 GiB (cgroup v2 /a/b memory.max)\n"
        "  CUDA0      gpu    failed          unknown      unknown  A card at 0000:01:00.0 (NVML)  driver says 999\n"
        "  Vulkan0    igpu   reported       1.86 GiB     1.86 GiB  shares the host's memory  free was over "
        "total: cut down\n"
        "\n"
        "Memory cgroup (v2), leaf to root\n"
        "         limit         used  reclaimable  path, limit from\n"
        "      4.00 GiB      1.2 MiB    337.6 KiB  /a/b  memory.high  5.0 MiB promised to other budgets\n"
        "          none      7.3 MiB     44.6 KiB  /a\n"
        "\n"
        "Other budgets: promised 700.0 MiB, not touched yet 600.0 MiB\n"
        "      promised     resident        pid  command\n"
        "     700.0 MiB    100.0 MiB       4711  run\n"
        "\n"
        "Other\n"
        "  Cores allowed        6\n"
        "  Swap free            1.00 GiB (never part of a budget)\n"
        "  Lockable memory      8.0 MiB (RLIMIT_MEMLOCK; used by --mlock)\n"
        "  Disk read            2000 MB/s (measured)\n"
        "  Memory read          20000 MB/s\n");
}

static void test_text_of_nothing(void **state) {
    (void)state;
    read_good("{\"schema\": 1, \"pools\": [{\"name\": \"host\", \"kind\": \"host\", \"state\": \"failed\", \"reason\": "
              "\"\\u001b[2J\"}]}");
    fixture.machine = back;
    (void)snprintf(fixture.machine.cgroup_reason, sizeof fixture.machine.cgroup_reason, "33 levels");
    check_text("Machine\n"
               "  pool       kind   state              free        total\n"
               "  host       host   failed          unknown      unknown  \\x1b[2J\n"
               "\n"
               "Memory cgroup\n"
               "  not readable: 33 levels\n"
               "\n"
               "Other\n"
               "  Cores allowed        unknown\n"
               "  Swap free            unknown (never part of a budget)\n"
               "  Lockable memory      unlimited (RLIMIT_MEMLOCK; used by --mlock)\n"
               "  Disk read            unknown (devices --disk PATH measures it)\n"
               "  Memory read          unknown (plan --exact and run measure it)\n");
}

int main(void) {
    bt_report_init(NULL);
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, heap_is_empty)
    const struct CMUnitTest tests[] = {
        TEST(test_identity),        TEST(test_missing_is_unknown), TEST(test_contradictions_are_settled),
        TEST(test_strict),          TEST(test_too_many_pools),     TEST(test_text),
        TEST(test_text_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
