/* SPDX-License-Identifier: MIT
 * need_find.h: what need.c does in a process of its own: a command read, its files opened, and priced. */
#pragma once

#include "guard/judge.h"
#include "router/need.h"

/* Pure but for what it reads: the files that the command names, what was learned of it. argv: the words that would be
 * started, NULL at the end. What cannot be said is UNKNOWN, and no failure; E_NOMEM. */
BT_MUST_CHECK bt_status bt_need_find(const bt_need_ask *ask, char *const *argv, bt_need *ret, bt_error *err);

/* Its parts (need_price.c): the price as it is typed, what is decided against the ask's free bytes, and the least.
 * judge: opened and read, of a llama.cpp program whose facts are there. ret->how is set to PRICED, or reason. */
BT_MUST_CHECK bt_status bt_need_price(const bt_need_ask *ask, bt_judge *judge, bt_need *ret, bt_error *err);
