/* SPDX-License-Identifier: MIT
 * log_ring.h: the last lines that a source has said, and those that listen. */
#pragma once

#include "base/text.h"
#include "router/flow.h"

#define BT_LOG_RING_BYTES 102400u /* 100 KiB a source, as llama-swap keeps */
#define BT_LOG_LINE_MAX   4096u   /* longer lines are cut, and say so */

typedef struct bt_log_ring bt_log_ring;

BT_MUST_CHECK bt_status bt_log_ring_open(bt_log_ring **ret, bt_error *err); /* BT_E_NOMEM, code "log_ring" */
void bt_log_ring_dismiss(bt_log_ring *ring);                                /* ends every listener's flow, whole */
void bt_log_ring_close(bt_log_ring *ring);                                  /* the same, and all else. NULL is fine. */
/* Bytes as they come: split into lines here, at \n, \r or both. Control characters but tabs, bytes that are no UTF-8,
 * and what reorders or breaks lines (U+202E, U+2028) are escaped: a child's words must not drive a terminal. Empty
 * lines are left out. */
void bt_log_ring_add(bt_log_ring *ring, const char *data, size_t n_bytes);
void bt_log_ring_end_line(bt_log_ring *ring); /* what has come of the last line is all of it; none: nothing */
/* Everything that is held, oldest first, whole lines, each with its \n. */
void bt_log_ring_text(const bt_log_ring *ring, bt_text *out);
/* The ring becomes the producer of a flow: what is held first (history), then each line. A listener that is too slow
 * loses lines, and is told how many in a line of its own. At most BT_LOG_LISTENERS_MAX: else BT_E_LIMIT, code
 * "log_listeners", and the producer's end stays the caller's. */
#define BT_LOG_LISTENERS_MAX 16u
BT_MUST_CHECK bt_status bt_log_ring_listen(bt_log_ring *ring, bool history, bt_flow *flow, bt_error *err);
/* Also hand every line to somebody (the router's own output), without its \n; NULL: nobody. */
void bt_log_ring_on_line(bt_log_ring *ring, void (*on_line)(void *user, const char *line, size_t n), void *user);
