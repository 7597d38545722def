/* SPDX-License-Identifier: MIT
 * test_report_share.c: what is handed on: a machine without the names of its groups; and the model that a plan's file
 * says it is for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/heap.h"
#include "report_kit.h"

static void names_of_groups_are_left_out(void **state) {
    (void)state;
    bt_machine *m = &fixture.machine;
    (void)snprintf(m->cgroup_reason, sizeof m->cgroup_reason, "/user.slice/secret.service: permission denied");
    (void)snprintf(m->reservations_reason, sizeof m->reservations_reason, "/home/somebody/.local: permission denied");
    (void)snprintf(m->cgroup[0].path, sizeof m->cgroup[0].path, "/user.slice/secret.service");
    bt_report_machine_anonymize(m);
    char *json = NULL;
    assert_int_equal(bt_report_share_json(&fixture.plan, &fixture.facts, m, NULL, &json, NULL), BT_OK);
    assert_null(strstr(json, "secret"));
    assert_null(strstr(json, "somebody"));
    bt_heap_free(json);
    assert_string_equal(m->cgroup[0].path, "level 0");
    assert_string_equal(m->cgroup[1].path, "level 1");
    assert_string_equal(m->cgroup_reason, "cannot be read");
    assert_string_equal(m->reservations_reason, "cannot be read");
    assert_non_null(strstr(m->pools[0].limit_source, "level 0"));
    assert_int_equal(m->pools[0].limit.value, 4294967296); /* the numbers stay */
    assert_int_equal(m->cgroup[0].usage_bytes, 1234567);
}

/* A limit that is none of a group's keeps its source; where all could be read nothing is said of why not. */
static void what_names_nothing_stays(void **state) {
    (void)state;
    bt_machine *m = &fixture.machine;
    m->cgroup_reason[0] = m->reservations_reason[0] = '\0';
    (void)snprintf(m->pools[0].limit_source, sizeof m->pools[0].limit_source, "RLIMIT_AS");
    bt_report_machine_anonymize(m);
    assert_string_equal(m->pools[0].limit_source, "RLIMIT_AS");
    assert_string_equal(m->cgroup_reason, "");
    assert_string_equal(m->reservations_reason, "");
}

static bt_error err;

static bt_status read_model(const char *json, char path[64]) {
    err = (bt_error){0};
    path[0] = '\0';
    return bt_plan_model_from_json(json, strlen(json), path, 64, &err);
}

static void the_model_of_a_plan(void **state) {
    (void)state;
    char path[64], long_path[400], *json = NULL;
    assert_int_equal(bt_report_plan_json(&fixture.plan, &fixture.facts, &fixture.machine, &json, NULL), BT_OK);
    assert_int_equal(read_model(json, path), BT_OK);
    assert_string_equal(path, fixture.facts.path);
    bt_heap_free(json);
    assert_int_equal(read_model("{\"model\": {\"path\": \"m.gguf\"}}", path), BT_OK); /* whatever else there is */
    assert_string_equal(path, "m.gguf");
    assert_int_equal(read_model("{}", path), BT_E_FORMAT);
    assert_non_null(strstr(err.text, "model"));
    assert_int_equal(read_model("{\"model\": {}}", path), BT_E_FORMAT);
    assert_non_null(strstr(err.text, "model.path"));
    assert_int_equal(read_model("{\"model\": 7}", path), BT_E_FORMAT);
    assert_int_equal(read_model("{\"model\"", path), BT_E_FORMAT);
    (void)snprintf(long_path, sizeof long_path, "{\"model\": {\"path\": \"%0300d\"}}", 1);
    assert_int_equal(read_model(long_path, path), BT_E_FORMAT); /* it is not cut */
}

static bool machine_says(const char *words) {
    bt_text text;
    bt_text_init(&text, 1 << 16);
    bt_report_machine_text(&fixture.machine, &text);
    assert_false(text.failed);
    bool there = strstr(bt_text_str(&text), words) != NULL;
    if (!there) print_message("%s", bt_text_str(&text));
    bt_text_done(&text);
    return there;
}

static void a_disk_is_said(void **state) {
    (void)state;
    bt_disk *disk = &fixture.machine.disk;
    *disk = (bt_disk){.kind = BT_DISK_SOLID, .name = "nvme0n1p2", .depth = 16, .request_bytes = 256u << 10};
    assert_true(machine_says("nvme0n1p2, solid, read best with 16 requests of 256.0 KiB\n"));
    /* of one that is said to rotate and reads faster than any that does, the kind is left out */
    *disk = (bt_disk){.kind = BT_DISK_ROTATING, .name = "vda", .bytes_per_s = UINT64_C(2000000000)};
    assert_true(machine_says("vda\n"));
    disk->bytes_per_s = 200000000;
    assert_true(machine_says("vda, rotating\n"));
}

static void what_is_not_known_is_said(void **state) {
    (void)state;
    bt_machine *m = &fixture.machine;
    (void)snprintf(m->reservations_reason, sizeof m->reservations_reason, "the folder is somebody else's");
    assert_true(machine_says("Other budgets\n  not known: the folder is somebody else's\n"));
    m->cgroup_version = 0;
    assert_true(machine_says("Memory cgroup\n  not readable: not all of it\n"));
    m->cgroup_reason[0] = '\0';
    assert_true(machine_says("Memory cgroup\n  none\n"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        REPORT_TEST(names_of_groups_are_left_out), REPORT_TEST(what_names_nothing_stays),
        REPORT_TEST(the_model_of_a_plan),          REPORT_TEST(a_disk_is_said),
        REPORT_TEST(what_is_not_known_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
