/* SPDX-License-Identifier: MIT
 * leave.h: how a process that a test has made by fork ends: by _exit, so that nothing of the test's is flushed or
 * closed a second time; in a build that measures coverage, with its counts. */
#pragma once

#include <unistd.h>

#ifdef BT_COVERAGE
void __gcov_dump(void); /* gcc's; no header of its declares it */
#endif

_Noreturn static inline void leave(int status) {
#ifdef BT_COVERAGE
    __gcov_dump();
#endif
    _exit(status);
}
