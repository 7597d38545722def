/* SPDX-License-Identifier: MIT
 * aside.h: work that may take long, or break, done in a process of its own: a copy of the router (fork) that has no
 * descriptor but one for its answer (the standard ones lead nowhere). The router waits for nobody. */
#pragma once

#include "base/text.h"
#include "router/loop.h"

#define BT_ASIDE_ANSWER_MAX (1u << 20)

typedef struct bt_aside bt_aside;

/* work: runs in the copy; what it writes into answer comes back; a status other than BT_OK comes back as that error.
 * on_done: exactly once, in the router; err NULL: it worked. BT_E_IO, code "aside": the copy died, or took longer than
 * max_ms (it is killed; the error's sys is ETIMEDOUT); BT_E_LIMIT: it had more to say than BT_ASIDE_ANSWER_MAX. text
 * (of no bytes with an error) is good until on_done returns; the aside is closed after that. Work allocates as it
 * likes: what it leaves goes with the copy. */
typedef bt_status bt_aside_work(void *arg, bt_text *answer, bt_error *err);
typedef void bt_aside_done(void *user, const bt_text *answer, const bt_error *err);
/* BT_E_IO, BT_E_NOMEM, code "aside": nothing was started. */
BT_MUST_CHECK bt_status bt_aside_start(bt_loop *loop, bt_aside_work *work, void *arg, uint64_t max_ms,
                                       bt_aside_done *on_done, void *user, bt_aside **ret, bt_error *err);
void bt_aside_cancel(bt_aside *aside); /* on_done is not called any more. NULL is fine; in on_done: nothing. */
