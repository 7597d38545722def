/* SPDX-License-Identifier: MIT
 * test_process.c: which process a process is, whatever it calls itself, and when it has gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "probe/process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void this_one(void **state) {
    (void)state;
    bt_process_stat self, same;
    assert_int_equal(bt_process_stat_read(0, &self), 0);
    assert_int_equal(bt_process_stat_read((uint64_t)getpid(), &same), 0);
    assert_int_equal(self.start_ticks, same.start_ticks);
    assert_true(self.start_ticks > 0);
    assert_int_equal(self.state, 'R');
    assert_false(bt_process_is_dead(&self));
}

/* A name is whatever its process likes: it must not move the fields behind it. */
static void names(void **state) {
    (void)state;
    static const char *const odd[] = {") Z 1 (", "a b c", "(((", ")))", ""};
    bt_process_stat plain, odder;
    assert_int_equal(bt_process_stat_read(0, &plain), 0);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(prctl(PR_SET_NAME, odd[i], 0, 0, 0), 0);
        assert_int_equal(bt_process_stat_read(0, &odder), 0);
        assert_int_equal(odder.start_ticks, plain.start_ticks);
        assert_int_equal(odder.state, 'R');
    }
    assert_int_equal(prctl(PR_SET_NAME, "test", 0, 0, 0), 0);
}

static void the_dead(void **state) {
    (void)state;
    bt_process_stat stat;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(bt_process_stat_read((uint64_t)pid, &stat), 0);
    assert_true(bt_process_is_dead(&stat));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(bt_process_stat_read((uint64_t)pid, &stat), -ENOENT);
    assert_int_equal(bt_process_stat_read(UINT64_MAX, &stat), -ENOENT);
}

static void home(void **state) {
    (void)state;
    bt_process_home here;
    struct stat ns;
    memset(&here, 0xA5, sizeof here);
    assert_true(bt_process_home_read(&here));
    assert_int_equal(strlen(here.boot), 36);
    assert_int_equal(strspn(here.boot, "0123456789abcdef-"), 36);
    assert_int_equal(stat("/proc/self/ns/pid", &ns), 0);
    assert_int_equal(here.pid_ns, ns.st_ino); /* namespaces(7) */
}

#ifdef BT_FAULT
static void faults(void **state) {
    (void)state;
    for (uint64_t k = 0; k < 2; k++) {
        bt_process_home here;
        bt_process_stat stat;
        bt_fault_arm(k, false);
        assert_false(bt_process_home_read(&here));
        assert_true(bt_fault_disarm());
        bt_fault_arm(k, false);
        int rc = bt_process_stat_read(0, &stat);
        assert_true(bt_fault_disarm());
        assert_true(rc < 0 && rc != -ENOENT && rc != -ESRCH); /* that it cannot be read does not say that it has gone */
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_one), cmocka_unit_test(names), cmocka_unit_test(the_dead), cmocka_unit_test(home),
#ifdef BT_FAULT
        cmocka_unit_test(faults),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
