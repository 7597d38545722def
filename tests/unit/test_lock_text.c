/* SPDX-License-Identifier: MIT
 * test_lock_text.c: what is said of locked memory and of major faults, to the letter. User-cases 33 and 37. */
#include "base/heap.h"
#include "report/report.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static bt_locked made(uint64_t asked, uint64_t locked, int sys, bt_known counted, bt_known limit) {
    bt_lock_use use = {.asked_bytes = asked, .locked_bytes = locked, .sys = sys};
    bt_locked ret;
    bt_locked_make(&use, counted, limit, &ret);
    return ret;
}

static bt_known is(uint64_t value) {
    return (bt_known){true, value};
}

static const bt_known unknown = {0};

static uint64_t most_bytes; /* that may be asked for */

static void assert_warning(const bt_locked *locked, const char *wanted) {
    bt_text text;
    bt_text_init(&text, 4096);
    assert_int_equal(bt_report_lock_warning(locked, most_bytes, &text), wanted != NULL);
    assert_string_equal(bt_text_str(&text), wanted ? wanted : "");
    bt_text_done(&text);
}

static void test_all_is_locked(void **state) {
    (void)state;
    bt_locked l = made(80 * MIB, 80 * MIB, 0, is(80 * MIB), is(1));
    assert_true(l.wanted && !l.by_limit);
    assert_int_equal(l.locked_bytes, 80 * MIB);
    assert_string_equal(l.reason, "");
    assert_warning(&l, NULL);
    l = made(80 * MIB, 80 * MIB, 0, is(90 * MIB), unknown); /* others of this process lock too */
    assert_int_equal(l.locked_bytes, 80 * MIB);
    assert_warning(&l, NULL);
    l = made(0, 0, 0, is(0), is(0));
    assert_warning(&l, NULL);
}

static void test_the_limit(void **state) {
    (void)state;
    bt_locked l = made(80 * MIB + 1, MIB, ENOMEM, is(MIB), is(8 * MIB));
    assert_true(l.by_limit);
    assert_int_equal(l.asked_bytes, 80 * MIB + 1);
    assert_int_equal(l.locked_bytes, MIB);
    assert_string_equal(l.reason, "RLIMIT_MEMLOCK is 8388608 bytes");
    assert_warning(&l, "locked 1.0 MiB of 80.0 MiB (--mlock): RLIMIT_MEMLOCK is 8388608 bytes, the rest may be paged "
                       "out; ulimit -l 81921 in the shell, or LimitMEMLOCK=83886081 in a systemd unit, allows it");
    most_bytes = 90 * MIB; /* graphs to come need more */
    assert_warning(&l, "locked 1.0 MiB of 80.0 MiB (--mlock): RLIMIT_MEMLOCK is 8388608 bytes, the rest may be paged "
                       "out; ulimit -l 92160 in the shell, or LimitMEMLOCK=94371840 in a systemd unit, allows it");
    most_bytes = 0;
    l = made(MIB, 0, EPERM, is(0), is(0)); /* a limit of 0 is refused in another way (mlock(2)) */
    assert_warning(&l, "locked 0 B of 1.0 MiB (--mlock): RLIMIT_MEMLOCK is 0 bytes, the rest may be paged out; "
                       "ulimit -l 1024 in the shell, or LimitMEMLOCK=1048576 in a systemd unit, allows it");
}

/* Other reasons than the limit have no remedy of the limit. */
static void test_other_reasons(void **state) {
    (void)state;
    bt_locked l = made(80 * MIB, MIB, ENOMEM, is(MIB), unknown);
    assert_false(l.by_limit);
    assert_warning(&l, "locked 1.0 MiB of 80.0 MiB (--mlock): the system refused it: Cannot allocate memory, the rest "
                       "may be paged out");
    l = made(80 * MIB, MIB, ENOMEM, is(MIB), is(100 * MIB));
    assert_false(l.by_limit);
    l = made(80 * MIB, MIB, ENOSYS, is(MIB), is(MIB));
    assert_false(l.by_limit);
    assert_string_equal(l.reason, "this kernel locks only what is touched already (mlock2 is of Linux 4.4)");
}

/* "locked" is what the kernel counts, whatever the calls said. */
static void test_what_the_kernel_counts(void **state) {
    (void)state;
    bt_locked l = made(80 * MIB, 80 * MIB, 0, is(79 * MIB), unknown);
    assert_int_equal(l.locked_bytes, 79 * MIB);
    assert_warning(&l,
                   "locked 79.0 MiB of 80.0 MiB (--mlock): the kernel counts no more as locked (VmLck), the rest may "
                   "be paged out");
    l = made(80 * MIB, 80 * MIB, 0, unknown, unknown);
    assert_string_equal(l.reason, "not confirmed: the system does not say VmLck");
}

static bt_plan plan;
static bt_facts facts;
static bt_machine machine;
static bt_measured m;

static void test_plan(void **state) {
    (void)state;
    bt_text text;
    bt_text_init(&text, 4096);
    memset(&plan, 0, sizeof plan);
    plan.ledger.bytes[BT_LINE_BASE] = 13 * MIB; /* what is no mapping is not locked */
    plan.ledger.bytes[BT_LINE_VOCAB] = 15 * MIB;
    plan.ledger.bytes[BT_LINE_KV] = 30 * MIB;
    plan.ledger.bytes[BT_LINE_PINNED] = 20 * MIB;
    plan.ledger.bytes[BT_LINE_RING] = 4 * MIB;
    assert_int_equal(bt_report_lockable_bytes(&plan), 54 * MIB);
    bt_report_lock_text(&plan, false, is(0), &text);
    assert_string_equal(bt_text_str(&text), ""); /* not wished for */
    plan.wishes.mlock = true;
    bt_report_lock_text(&plan, true, is(MIB), &text);
    bt_report_lock_text(&plan, false, is(8 * MIB), &text);
    bt_report_lock_text(&plan, false, unknown, &text);
    assert_string_equal(
        bt_text_str(&text),
        "\nMemory lock: up to 54.0 MiB are asked for; the system allows it\n"
        "\nMemory lock: up to 54.0 MiB are asked for; RLIMIT_MEMLOCK allows 8388608 bytes, the rest may "
        "be paged out; ulimit -l 55296 in the shell, or LimitMEMLOCK=56623104 in a systemd unit, allows "
        "it\n"
        "\nMemory lock: up to 54.0 MiB are asked for; the system does not allow it; ulimit -l 55296 in "
        "the shell, or LimitMEMLOCK=56623104 in a systemd unit, allows it\n");
    bt_text_done(&text);
}

/* The last row of the table after a run. */
static void assert_row(const char *wanted) {
    bt_text text;
    bt_text_init(&text, 4096);
    bt_report_lines_text(&m, &text);
    const char *row = strstr(bt_text_str(&text), "  locked ");
    assert_int_equal(row != NULL, wanted != NULL);
    if (row) assert_string_equal(row, wanted);
    bt_text_done(&text);
}

static void test_row(void **state) {
    (void)state;
    memset(&m, 0, sizeof m);
    assert_row(NULL);
    m.locked = made(80 * MIB, 80 * MIB, 0, is(80 * MIB), unknown);
    assert_row("  locked                 80.0 MiB of 80.0 MiB asked\n");
    m.locked = made(80 * MIB, MIB, ENOMEM, is(MIB), is(MIB));
    assert_row("  locked                  1.0 MiB of 80.0 MiB asked: RLIMIT_MEMLOCK is 1048576 bytes\n");
    m.elastic_peak_bytes = 1;
    m.locked = made(80 * MIB, 80 * MIB, 0, is(80 * MIB), unknown);
    assert_row("  locked                 80.0 MiB of 80.0 MiB asked; elastic pins are never locked\n");
}

/* The measured member of the statistics, to release. */
static json_t *stats(json_t **ret_measured) {
    char *json = NULL;
    bt_error err = {0};
    assert_int_equal(bt_report_stats_json(&plan, &facts, &machine, &m, "", 0, NULL, 0, &json, &err), BT_OK);
    json_t *root = json_loads(json, 0, NULL);
    assert_non_null(root);
    bt_heap_free(json);
    *ret_measured = json_object_get(root, "measured");
    return root;
}

static void test_stats(void **state) {
    (void)state;
    memset(&m, 0, sizeof m);
    memset(&plan, 0, sizeof plan);
    facts = (bt_facts){.path = "", .arch = "", .name = ""};
    json_t *measured = NULL;
    json_t *root = stats(&measured);
    assert_true(json_is_null(json_object_get(measured, "locked")));
    assert_true(json_is_null(json_object_get(measured, "major_faults_per_token")));
    json_decref(root);
    m.locked = made(80 * MIB, MIB, ENOMEM, is(MIB), is(MIB));
    m.loop_major_faults = is(3);
    m.loop_tokens = 12;
    root = stats(&measured);
    const json_t *locked = json_object_get(measured, "locked");
    assert_int_equal(json_integer_value(json_object_get(locked, "asked_bytes")), 80 * MIB);
    assert_int_equal(json_integer_value(json_object_get(locked, "locked_bytes")), MIB);
    assert_string_equal(json_string_value(json_object_get(locked, "reason")), "RLIMIT_MEMLOCK is 1048576 bytes");
    double faults = json_real_value(json_object_get(measured, "major_faults_per_token"));
    assert_true(faults > 0.2499 && faults < 0.2501);
    json_decref(root);
}

static void test_faults(void **state) {
    (void)state;
    bt_text text;
    bt_text_init(&text, 4096);
    double faults = -1;
    memset(&m, 0, sizeof m);
    memset(&plan, 0, sizeof plan);
    plan.read_bytes_per_pass = MIB;
    assert_false(bt_report_faults_per_token(&m, &faults)); /* no loop */
    assert_false(bt_report_faults_warning(&plan, &m, &text));
    m.loop_major_faults = is(500);
    assert_false(bt_report_faults_per_token(&m, &faults)); /* no token */
    m.loop_tokens = 10;
    assert_true(bt_report_faults_per_token(&m, &faults));
    assert_true(faults > 49.9 && faults < 50.1);
    assert_false(bt_report_faults_warning(&plan, &m, &text)); /* 50 is the bound, not over it */
    m.loop_major_faults = is(501);
    plan.read_bytes_per_pass = 0; /* all in memory: it is not what this is about */
    assert_false(bt_report_faults_warning(&plan, &m, &text));
    assert_string_equal(bt_text_str(&text), "");
    plan.read_bytes_per_pass = MIB;
    m.loop_major_faults = is(8300);
    assert_true(bt_report_faults_warning(&plan, &m, &text));
    assert_string_equal(
        bt_text_str(&text),
        "830 major faults a token (50 are many): the machine or the cgroup is short of memory, and pages "
        "of this process or its libraries are evicted and read again; a lower --ram-budget, or fewer "
        "other programs, is faster");
    bt_text_done(&text);
}

int main(void) {
    bt_report_init("b9");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_locked), cmocka_unit_test(test_the_limit),
        cmocka_unit_test(test_other_reasons), cmocka_unit_test(test_what_the_kernel_counts),
        cmocka_unit_test(test_plan),          cmocka_unit_test(test_row),
        cmocka_unit_test(test_stats),         cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests_name("lock_text", tests, NULL, NULL);
}
