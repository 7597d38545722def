/* SPDX-License-Identifier: MIT
 * session_file.h: a conversation or a run on disk: its tokens, what they left in the KV cache, its messages. */
#pragma once

#include "engine/session.h"
#include "engine/template.h"

typedef struct bt_saved {
    int32_t *tokens; /* n_decoded in the KV cache, then those that were generated and not decoded yet */
    uint32_t n_decoded, n_tokens;
    bt_message *messages; /* of a conversation; none of a plain run */
    uint32_t n_messages;
    char *text; /* what messages point into, when loaded */
} bt_saved;

/* Write to path: aside, then renamed into place, mode 0600. What stood there is kept until then.
 * BT_E_IO, code "session_write". */
BT_MUST_CHECK bt_status bt_session_file_save(const char *path, bt_session *session, const bt_facts *facts,
                                             const bt_plan *plan, const bt_saved *saved, bt_error *err);

/* Take up a saved session. All of the file is checked (a hash over every byte, the model, the build, the KV types, the
 * room) before the session is touched.
 * BT_E_IO, code "session_read": it cannot be read (sys ENOENT: there is none); BT_E_FORMAT, code "session_format": no
 * session, or not whole; BT_E_STALE, code "session_stale": of another model, build or kind of cache; BT_E_ARG, code
 * "session_ctx": it has more tokens than the context. ret: to be given back with bt_saved_done. */
BT_MUST_CHECK bt_status bt_session_file_load(const char *path, bt_session *session, const bt_facts *facts,
                                             const bt_plan *plan, bt_saved *ret, bt_error *err);
void bt_saved_done(bt_saved *saved);

/* Heap that saving or loading takes for a moment: libllama copies one tensor's rows at a time. */
uint64_t bt_session_file_heap_bytes(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ctx);
