/* SPDX-License-Identifier: MIT
 * reaper.h: no child outlives its router, however the router ends. */
#pragma once

#include "burthen.h"

#include <sys/types.h>

#define BT_MARK_BYTES 33u /* 16 random bytes in hexadecimal, and the end */

BT_MUST_CHECK bt_status bt_mark_make(char ret_mark[BT_MARK_BYTES], bt_error *err); /* BT_E_IO, code "reaper" */
/* A process of its own (fork, before anything else is set up) that does nothing until the router is gone (end of file
 * on a pipe), then ends whatever carries the mark, by pidfd, the mark checked again behind it: SIGTERM, SIGKILL after
 * grace_ms, until nothing is left. It does not carry the mark itself. ret_fd: the router's end of the pipe: keep it
 * open, close-on-exec; the system closes it. Closed by the router, or with nothing left: the reaper ends, a child to be
 * taken. BT_E_IO, BT_E_NOMEM, code "reaper": nothing was started. */
BT_MUST_CHECK bt_status bt_reaper_start(const char *mark, uint64_t grace_ms, pid_t *ret_pid, int *ret_fd,
                                        bt_error *err);
/* End everything that carries a mark now, this process excepted; returns how many were found. Waits for their end, up
 * to grace_ms and some seconds. What another user owns is left. */
uint32_t bt_reaper_sweep(const char *mark, uint64_t grace_ms);
/* Remember the mark in the state folder for the next start (router and reaper both killed): "serve-<pid>" with start
 * time and mark; and end what dead routers of this user left. Silent: a folder that cannot be written is no reason.
 * Recover first: a note of the same number is replaced. Waits as bt_reaper_sweep does, for each. */
uint32_t bt_reaper_recover(uint64_t grace_ms);
void bt_reaper_remember(const char *mark);
void bt_reaper_forget(void); /* nothing is left to end */
