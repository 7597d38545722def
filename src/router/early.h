/* SPDX-License-Identifier: MIT
 * early.h: an answer that begins before there is one: comments of an event stream, so that nobody in between takes a
 * request that waits for a model for dead. */
#pragma once

#include "router/server.h"

typedef struct bt_early bt_early;

/* Answers the request with 200 and an event stream of at most max_bytes that are not sent yet. BT_E_NOMEM: nothing was
 * answered. */
BT_MUST_CHECK bt_status bt_early_open(bt_request *request, size_t max_bytes, bt_early **ret, bt_error *err);
void bt_early_comment(bt_early *early); /* ": loading"; nothing where the last ones are not sent yet */
/* From here on what comes out of a flow, an event stream too, is the answer; its consumer is this. */
void bt_early_pipe(bt_early *early, bt_flow *flow);
/* The answer ends as an error event, with what the body of bt_reply_error would have been. */
void bt_early_error(bt_early *early, uint32_t status, const char *code, const char *detail_json, const char *text);
void bt_early_close(bt_early *early); /* breaks off what is not ended. NULL is fine. */
