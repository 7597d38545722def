/* SPDX-License-Identifier: MIT
 * template_reply.h: what the template worker has answered (template_wire.h). Private to template.c. */
#pragma once

#include "engine/template.h"

#define BT_TEMPLATE_WORKER "burthen-template"

/* The parts of a reply, which point into it; ret->reply is left to the caller. BT_E_IO, code "chat_worker": it is no
 * reply of this version, or not whole; else the failures of bt_template_render. After a failure nothing is held. */
BT_MUST_CHECK bt_status bt_template_reply_read(const char *reply, size_t n_bytes, uint64_t limit_bytes,
                                               bt_rendered *ret, bt_error *err);
