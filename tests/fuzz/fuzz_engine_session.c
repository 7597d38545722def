/* SPDX-License-Identifier: MIT
 * fuzz_engine_session.c: a session file. The input is the trailer of one that claims no tokens in a cache (libllama's
 * part is not ours to read). The footer with the right hash is put behind it, unless it begins with the byte 0xFE.
 *
 * The file's own reader runs here without an engine (session_kit.h). */
#include "fuzz.h"

#include "plain_check.h"
#include "session_kit.h"

static bool one(char *text, size_t n) {
    bt_saved saved = {0};
    bt_error err = {0};
    session_put(text, n, n > 0 && text[0] == '\xfe');
    bt_status status = session_load(&saved, &err);
    if (status != BT_OK) {
        FUZZ_CHECK(status == BT_E_FORMAT || status == BT_E_STALE || status == BT_E_ARG);
        FUZZ_CHECK(err.status == status && strncmp(err.code, "session_", 8) == 0);
        plain_check(err.text);
        return false;
    }
    FUZZ_CHECK(saved.n_decoded <= SESSION_N_CTX && saved.n_decoded <= saved.n_tokens);
    for (uint32_t i = 0; i < saved.n_messages; i++) {
        const bt_message *m = &saved.messages[i];
        FUZZ_CHECK(strlen(m->role) <= n && m->n_bytes <= n && m->content[m->n_bytes] == '\0');
    }
    bt_saved_done(&saved);
    return true;
}

static const char *word(size_t i) {
    static const char *const words[] = {"abc", "b1", "user", "assistant", "BTSESS01", "\x01", "\xff\xff\xff\xff"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {
    .name = "engine_session", .one = one, .bare = true, .start = session_start, .word = word, .n_rounds = 8000};
