/* SPDX-License-Identifier: MIT
 * fault.c: the counter behind bt_fault_hit, in builds that test failures.
 *
 * A test arms the counter with k, runs a body, and disarms; for k = 0, 1, ... until nothing was hit any more, every
 * fallible call of the body has failed once. Calls of all threads are counted together, each gets its own number, and
 * in the one-shot mode exactly one of them fails. Nothing is counted while disarmed, so that what a test does around
 * its body (its own set-up, checks) does not move the numbers. */
#include "base/fault.h"

#ifdef BT_FAULT

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_bool is_armed;
static atomic_bool is_persistent;
static atomic_bool was_hit;
static _Atomic uint64_t fail_at;
static _Atomic uint64_t n_calls;

/* For a test of a whole program, which may be another by the time that it ends (exec). */
static void say_hit(void) {
    const char *path = getenv("BURTHEN_FAULT_SAID");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR) : -1;
    if (fd < 0) return;
    ssize_t n = write(fd, "hit\n", 4);
    (void)n; /* the test sees that nothing was said */
    (void)close(fd);
}

bool bt_fault_hit(void) {
    if (!atomic_load(&is_armed)) return false;
    uint64_t call = atomic_fetch_add(&n_calls, 1);
    uint64_t k = atomic_load(&fail_at);
    bool hit = call == k || (call > k && atomic_load(&is_persistent));
    if (hit && !atomic_exchange(&was_hit, true)) say_hit();
    return hit;
}

void bt_fault_arm(uint64_t k, bool persistent) {
    atomic_store(&is_armed, false);
    atomic_store(&fail_at, k);
    atomic_store(&is_persistent, persistent);
    atomic_store(&was_hit, false);
    atomic_store(&n_calls, 0);
    atomic_store(&is_armed, true);
}

bool bt_fault_disarm(void) {
    atomic_store(&is_armed, false);
    return atomic_load(&was_hit);
}

/* Before main: no call of the program comes before it. */
__attribute__((constructor)) static void arm_by_environment(void) {
    const char *asked = getenv("BURTHEN_FAULT");
    if (asked) bt_fault_arm(strtoull(asked, NULL, 10), strchr(asked, '+') != NULL);
}

uint64_t bt_fault_count(void) {
    return atomic_load(&n_calls);
}

#endif
