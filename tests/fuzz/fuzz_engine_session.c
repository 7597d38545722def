/* SPDX-License-Identifier: MIT
 * fuzz_engine_session.c: a session file. The input is the trailer of one that claims no tokens in a cache (libllama's
 * part is not ours to read). The footer with the right hash is put behind it, unless it begins with the byte 0xFE.
 *
 * The file's own reader runs here without an engine: what it would ask of one is answered below. */
#include "fuzz.h"

#include "engine/session_file.h"
#include "json_check.h"
#include "model/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_CTX 64u

static int fd = -1;
static char path[64];

static void start(void) {
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
}

/* ---- in the place of an engine ---- */

const char *bt_engine_build_version(void) {
    return "b1";
}

uint32_t bt_session_n_ctx(const bt_session *session) {
    (void)session;
    return N_CTX;
}

bt_status bt_session_state_load(bt_session *session, const char *file, int32_t *tokens, uint32_t n_max, uint32_t *ret_n,
                                bt_error *err) {
    (void)session, (void)file, (void)err;
    FUZZ_CHECK(n_max <= N_CTX);
    for (uint32_t i = 0; i < n_max; i++)
        tokens[i] = (int32_t)i; /* room for all of them */
    *ret_n = n_max;
    return BT_OK;
}

bt_status bt_session_state_save(bt_session *session, const char *file, const int32_t *tokens, uint32_t n,
                                bt_error *err) {
    (void)session, (void)file, (void)tokens, (void)n, (void)err;
    return BT_E_IO;
}

void bt_session_clear(bt_session *session) {
    (void)session;
}

/* ---- the file ---- */

static void put_file(const char *text, size_t n) {
    bool cut = n > 0 && text[0] == '\xfe';
    char footer[8 + 64 + 8];
    char hex[65];
    uint64_t n_trailer = n;
    bt_sha256 hash;
    bt_sha256_init(&hash);
    bt_sha256_add(&hash, text, n);
    bt_sha256_hex(&hash, hex);
    memcpy(footer, &n_trailer, 8);
    memcpy(footer + 8, hex, 64);
    memcpy(footer + 72, "BTSESS01", 8);
    bool written = ftruncate(fd, 0) == 0 && pwrite(fd, text, n, 0) == (ssize_t)n;
    if (written && !cut) written = pwrite(fd, footer, sizeof footer, (off_t)n) == (ssize_t)sizeof footer;
    if (!written) abort();
}

static bool one(char *text, size_t n) {
    static const bt_facts facts = {.header_sha256 = "abc"};
    static const bt_plan plan = {.type_k = 1, .type_v = 1};
    bt_saved saved = {0};
    bt_error err = {0};
    put_file(text, n);
    bt_status status = bt_session_file_load(path, NULL, &facts, &plan, &saved, &err);
    if (status != BT_OK) {
        FUZZ_CHECK(status == BT_E_FORMAT || status == BT_E_STALE || status == BT_E_ARG);
        FUZZ_CHECK(err.status == status && strncmp(err.code, "session_", 8) == 0);
        json_check_plain(err.text);
        return false;
    }
    FUZZ_CHECK(saved.n_decoded <= N_CTX && saved.n_decoded <= saved.n_tokens);
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
    .name = "engine_session", .one = one, .bare = true, .start = start, .word = word, .n_rounds = 8000};
