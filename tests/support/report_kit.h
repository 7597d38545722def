/* SPDX-License-Identifier: MIT
 * report_kit.h: the fixture, made anew for each test of src/report, which leaves nothing on the heap. Part of one test
 * program each. */
#pragma once

#include "heap_check.h"
#include "report/report.h"
#include "report_fixture.h"

static report_fixture fixture;

static inline int kit_make_fixture(void **state) {
    (void)state;
    fixture_make(&fixture);
    return 0;
}

#define REPORT_TEST(test) cmocka_unit_test_setup_teardown(test, kit_make_fixture, heap_is_empty)
