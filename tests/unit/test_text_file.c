/* SPDX-License-Identifier: MIT
 * test_text_file.c: a file as a text: all of it, from its beginning, up to the text's maximum, and why not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/text_file.h"
#include "heap_check.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_BYTES 10000u /* more than two pages are read in one go */

static int fd;
static bt_text text;

static int start(void **state) {
    (void)state;
    char bytes[FILE_BYTES];
    for (uint32_t i = 0; i < FILE_BYTES; i++)
        bytes[i] = (char)('a' + i % 23);
    fd = memfd_create("text", MFD_CLOEXEC);
    bt_text_init(&text, FILE_BYTES);
    return fd >= 0 && write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes ? 0 : -1;
}

static int stop(void **state) {
    bt_text_done(&text);
    (void)close(fd);
    return heap_is_empty(state);
}

static void all_of_it(void **state) {
    (void)state;
    assert_int_equal(bt_text_read(&text, fd), 0); /* which stands at its end */
    assert_int_equal(text.n_bytes, FILE_BYTES);
    for (uint32_t i = 0; i < FILE_BYTES; i++)
        assert_int_equal(text.data[i], 'a' + i % 23);
    bt_text two;
    bt_text_init(&two, FILE_BYTES + 2);
    bt_text_add(&two, "x:");
    assert_int_equal(bt_text_read(&two, fd), 0); /* behind what is there */
    assert_memory_equal(bt_text_str(&two), "x:abcdef", 8);
    assert_int_equal(two.n_bytes, FILE_BYTES + 2);
    bt_text_done(&two);
}

static void over_the_maximum(void **state) {
    (void)state;
    bt_text small;
    bt_text_init(&small, FILE_BYTES - 1);
    assert_int_equal(bt_text_read(&small, fd), -EFBIG);
    assert_false(small.refused);
    assert_int_equal(bt_text_memory(&small, NULL), BT_OK);
    bt_text_done(&small);
    bt_text_init(&small, FILE_BYTES);
    assert_int_equal(bt_text_read_path(&small, "/dev/zero"), -EFBIG); /* it has no end */
    bt_text_done(&small);
}

static void paths(void **state) {
    (void)state;
    assert_int_equal(bt_text_read_path(&text, "/dev/null"), 0);
    assert_string_equal(bt_text_str(&text), "");
    assert_int_equal(bt_text_read_path(&text, "/proc/self/comm"), 0); /* said to have no bytes */
    assert_non_null(strstr(bt_text_str(&text), "test_unit"));
    assert_int_equal(bt_text_read_path(&text, "/nonexistent"), -ENOENT);
    assert_int_equal(bt_text_read_path(&text, "/"), -EISDIR);
}

#ifdef BT_FAULT
/* The heap, and the calls on the file: each is told as what it is. */
static void faults(void **state) {
    (void)state;
    bool refused = false;
    bool hit = true;
    for (uint64_t k = 0; hit; k++) {
        bt_text_done(&text);
        bt_text_clear(&text);
        bt_fault_arm(k, false);
        int rc = bt_text_read(&text, fd);
        hit = bt_fault_disarm();
        bt_error err = {0};
        assert_true(hit ? rc == -ENOMEM || rc == -EIO : rc == 0);
        assert_int_equal(text.refused, rc == -ENOMEM);
        assert_int_equal(bt_text_memory(&text, &err), rc == -ENOMEM ? BT_E_NOMEM : BT_OK);
        if (rc == -ENOMEM) assert_string_equal(err.code, "heap");
        refused = refused || rc == -ENOMEM;
    }
    assert_true(refused);
}
#endif

#define T(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(all_of_it),
        T(over_the_maximum),
        T(paths),
#ifdef BT_FAULT
        T(faults),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
