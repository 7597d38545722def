/* SPDX-License-Identifier: MIT
 * processes.h: all processes that the system shows. Private to the router. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Calls what with each, until it says false. false: the system does not say who there is. */
bool bt_processes_each(bool (*what)(void *user, pid_t pid), void *user);
