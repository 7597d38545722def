/* SPDX-License-Identifier: MIT
 * test_old_kernel.c: what os.h does where Linux is older than its calls: no MADV_POPULATE_* (before 5.14), no
 * MADV_DONTNEED_LOCKED (before 5.18), no mlock2 (before 4.4). A filter on this process's system calls plays that
 * kernel; it cannot be taken back, so this is a program of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/os.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define LOW_HALF 4u
#else
#define LOW_HALF 0u
#endif
#define FIRST_NEW_ADVICE 22u /* MADV_POPULATE_READ; 23 is _WRITE, 24 MADV_DONTNEED_LOCKED: linux/mman.h */
#define LAST_NEW_ADVICE  24u

static int play_old_kernel(void **state) {
    (void)state;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mlock2, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]) + LOW_HALF),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_NEW_ADVICE, 0, 1),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_NEW_ADVICE, 0, 2),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        print_message("skipped: no filter on system calls can be set here\n");
        _Exit(77);
    }
    return 0;
}

static unsigned char *reserved(uint64_t bytes) {
    unsigned char *base = bt_os_reserve(bytes);
    assert_non_null(base);
    assert_int_equal(bt_os_no_huge_pages(base, bytes), 0);
    return base;
}

static void the_filter_works(void **state) {
    (void)state;
    unsigned char *base = reserved(bt_os_page_bytes());
    for (unsigned advice = FIRST_NEW_ADVICE; advice <= LAST_NEW_ADVICE; advice++) {
        errno = 0;
        assert_int_equal(madvise(base, bt_os_page_bytes(), (int)advice), -1);
        assert_int_equal(errno, EINVAL);
    }
    assert_int_equal(syscall(SYS_mlock2, base, bt_os_page_bytes(), 0), -1);
    assert_int_equal(errno, ENOSYS);
    assert_int_equal(bt_os_unreserve(base, bt_os_page_bytes()), 0);
}

/* Page by page, and what the pages hold stays. */
static void filling_is_touching(void **state) {
    (void)state;
    uint64_t page = bt_os_page_bytes();
    unsigned char *base = reserved(8 * page);
    base[2 * page + 7] = 'x';
    assert_int_equal(bt_os_resident_bytes(base, 8 * page), page);
    assert_int_equal(bt_os_populate(base + page + 1, 2 * page), 0); /* touches three */
    assert_int_equal(bt_os_resident_bytes(base, 8 * page), 3 * page);
    assert_int_equal(bt_os_resident_bytes(base, page), 0);
    assert_int_equal(base[2 * page + 7], 'x');
    assert_int_equal(base[page], 0);
    assert_int_equal(bt_os_unreserve(base, 8 * page), 0);
    assert_int_equal(bt_os_populate(base, 8 * page), -ENOMEM); /* nothing is mapped there: no SIGSEGV */
}

/* Without mlock2 a lock fills what it locks: only where that may be. */
static void locking_fills(void **state) {
    (void)state;
    uint64_t page = bt_os_page_bytes();
    unsigned char *base = reserved(4 * page);
    assert_int_equal(bt_os_lock(base, 4 * page, false), -ENOSYS);
    assert_int_equal(bt_os_may_lock(4 * page), -ENOSYS); /* not known */
    int rc = bt_os_lock(base, 4 * page, true);
    if (rc < 0) {
        print_message("skipped: this process may lock nothing\n");
        assert_true(rc == -ENOMEM || rc == -EPERM || rc == -EAGAIN);
        assert_int_equal(bt_os_unreserve(base, 4 * page), 0);
        skip();
    }
    memset(base, 1, 4 * page);
    assert_int_equal(bt_os_resident_bytes(base, 4 * page), 4 * page);
    /* locked pages are dropped by unlocking them first */
    assert_int_equal(bt_os_drop(base + page, 2 * page), 0);
    assert_int_equal(bt_os_resident_bytes(base, 4 * page), 2 * page);
    assert_int_equal(base[page], 0);
    assert_int_equal(base[0], 1);
    assert_int_equal(bt_os_unlock(base, 4 * page), 0);
    assert_int_equal(bt_os_unreserve(base, 4 * page), 0);
}

static void text_is_read_in(void **state) {
    (void)state;
    assert_int_equal(bt_os_freeze_text(), 0);
    const void *here = (const void *)(uintptr_t)text_is_read_in; /* NOLINT(performance-no-int-to-ptr) */
    assert_int_equal(bt_os_resident_bytes(here, 1), bt_os_page_bytes());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_filter_works),
        cmocka_unit_test(filling_is_touching),
        cmocka_unit_test(locking_fills),
        cmocka_unit_test(text_is_read_in),
    };
    return cmocka_run_group_tests(tests, play_old_kernel, NULL);
}
