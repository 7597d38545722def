/* SPDX-License-Identifier: MIT
 * reservations.h: what the budgets of this user's processes have promised each other on this host. */
#pragma once

#include "burthen.h"

/* Fills reservations, n_reservations, promised_bytes, untouched_bytes and cgroup[].promised_bytes of a machine whose
 * cgroup chain was read: every other process that lives. Changes nothing on disk. Without a state folder, or with a
 * file that cannot be read, there are none and reservations_reason says why. */
void bt_reservations_probe(bt_machine *machine);

/* Promise bytes to this process, in place of what it had.
 * seen_bytes  promised_bytes of the machine that the plan was made for
 * returns BT_OK and *ret_promised: false when others have promised more by now, and nothing was written: look again.
 *         BT_E_IO, BT_E_NOMEM when nothing can be kept: the run is not seen by others, and no worse off itself;
 *         BT_E_LIMIT, code "reservations_full", beside 1024 others. */
BT_MUST_CHECK bt_status bt_reservation_make(const char *command, uint64_t bytes, uint64_t seen_bytes,
                                            bool *ret_promised, bt_error *err);
/* Take this process's promise back. Silent: an entry that stays is dropped when the process is gone. */
void bt_reservation_drop(void);
