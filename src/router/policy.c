/* SPDX-License-Identifier: MIT
 *
 * policy.c: which request runs, which model starts, which one goes. */
#include "router/policy.h"

const char *bt_model_state_name(bt_model_state state) {
    static const char *const names[] = {"stopped", "admitted", "starting", "ready", "stopping", "failed"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : NULL;
}
