/* SPDX-License-Identifier: MIT
 * test_library_path.c: empty entries go, all others stay, in their order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/library_path.h"

#include <stdlib.h>

static void test_clean(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"/a:/b", "/a:/b"}, {":/a", "/a"},      {"/a:", "/a"},   {"/a::/b", "/a:/b"}, {":::/a:::/b:::", "/a:/b"},
        {".:/a", ".:/a"},   {"/a;/b", "/a;/b"}, {";/a;;", "/a"}, {"/a:;/b", "/a;/b"}, {"rel", "rel"},
    };
    bt_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(setenv("LD_LIBRARY_PATH", cases[i][0], 1), 0);
        assert_int_equal(bt_library_path_clean(&err), BT_OK);
        assert_string_equal(getenv("LD_LIBRARY_PATH"), cases[i][1]);
    }
    static const char *const nothing[] = {"", ":", ";:;"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        assert_int_equal(setenv("LD_LIBRARY_PATH", nothing[i], 1), 0);
        assert_int_equal(bt_library_path_clean(&err), BT_OK);
        const char *left = getenv("LD_LIBRARY_PATH");
        assert_true(!left || (i == 0 && left[0] == '\0')); /* a variable of nothing names nothing */
    }
    assert_int_equal(unsetenv("LD_LIBRARY_PATH"), 0);
    assert_int_equal(bt_library_path_clean(&err), BT_OK);
    assert_null(getenv("LD_LIBRARY_PATH"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clean)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
