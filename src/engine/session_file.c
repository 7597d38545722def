/* SPDX-License-Identifier: MIT
 *
 * session_file.c: one file in three parts:
 *
 *   libllama's own sequence state (its magic, the tokens, the cache, tensor by tensor)
 *   trailer: schema, fingerprints, counts, tokens not decoded, messages
 *   footer:  bytes of the trailer, SHA-256 of everything before it, magic
 *
 * libllama's part comes first because it writes and reads by path, from the start, and stops where its part ends. Its
 * reader asserts what it should check, so nothing is handed to it before the hash over the whole file is right.
 * Numbers are in the machine's order: the build is part of the fingerprint. */
#include "engine/session_file.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/os.h"
#include "base/output.h"
#include "base/size.h"
#include "base/text.h"
#include "engine/counted.h"
#include "model/sha256.h"
#include "model/types.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEMA            1u
#define MAGIC_BYTES       8u
#define HEX_BYTES         64u
#define FOOTER_BYTES      (sizeof(uint64_t) + HEX_BYTES + MAGIC_BYTES)
#define TRAILER_BYTES_MAX (64u << 20) /* texts of a context of millions of tokens */
#define CHUNK_BYTES       (64u << 10)
#define MESSAGES_MAX      65536u /* as in a conversation */

/* the last of the file */
static const char magic[MAGIC_BYTES] = {'B', 'T', 'S', 'E', 'S', 'S', '0', '1'};

/* ---- writing ---- */

static void put_trailer(const bt_facts *facts, const bt_plan *plan, const bt_saved *saved, bt_text *out) {
    bt_counted_put_u32(out, SCHEMA);
    bt_counted_put_string(out, facts->header_sha256, strlen(facts->header_sha256));
    bt_counted_put_string(out, bt_engine_build_version(), strlen(bt_engine_build_version()));
    bt_counted_put_u32(out, plan->type_k);
    bt_counted_put_u32(out, plan->type_v);
    bt_counted_put_u32(out, (uint32_t)plan->wishes.flash_attn);
    bt_counted_put_u32(out, saved->n_decoded);
    bt_counted_put_u32(out, saved->n_tokens - saved->n_decoded);
    for (uint32_t i = saved->n_decoded; i < saved->n_tokens; i++)
        bt_counted_put_u32(out, (uint32_t)saved->tokens[i]);
    bt_counted_put_u32(out, saved->n_messages);
    for (uint32_t i = 0; i < saved->n_messages; i++) {
        bt_counted_put_string(out, saved->messages[i].role, strlen(saved->messages[i].role));
        bt_counted_put_string(out, saved->messages[i].content, saved->messages[i].n_bytes);
    }
}

/* Hash of the first n bytes. false: errno, or EIO where the file is shorter. */
static bool hash_file(int fd, uint64_t n, bt_sha256 *hash) {
    char chunk[4096];
    for (uint64_t at = 0; at < n;) {
        ssize_t got = pread(fd, chunk, (size_t)bt_min_u64(sizeof chunk, n - at), (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO;
        if (got <= 0) return false;
        bt_sha256_add(hash, chunk, (size_t)got);
        at += (uint64_t)got;
    }
    return true;
}

/* fd: open on the file that holds libllama's part. */
static bool append_ours(int fd, const bt_text *trailer) {
    struct stat status;
    bt_sha256 hash;
    bt_sha256_init(&hash);
    if (fstat(fd, &status) != 0 || !hash_file(fd, (uint64_t)status.st_size, &hash)) return false;
    bt_sha256_add(&hash, trailer->data, trailer->n_bytes);
    char footer[FOOTER_BYTES];
    char hex[HEX_BYTES + 1];
    uint64_t n_trailer = trailer->n_bytes;
    bt_sha256_hex(&hash, hex);
    memcpy(footer, &n_trailer, sizeof n_trailer);
    memcpy(footer + sizeof n_trailer, hex, HEX_BYTES);
    memcpy(footer + sizeof n_trailer + HEX_BYTES, magic, MAGIC_BYTES);
    if (lseek(fd, 0, SEEK_END) < 0) return false;
    int rc = bt_os_write(fd, trailer->data, trailer->n_bytes);
    if (rc == 0) rc = bt_os_write(fd, footer, sizeof footer);
    if (rc != 0) errno = -rc;
    return rc == 0 && fsync(fd) == 0;
}

bt_status bt_session_file_save(const char *path, bt_session *session, const bt_facts *facts, const bt_plan *plan,
                               const bt_saved *saved, bt_error *err) {
    char aside[PATH_MAX];
    int rc = bt_output_check(path, true);
    if (rc != 0) return bt_fail_sys(err, -rc, "session_write", "cannot write the session to %s", path);
    if (snprintf(aside, sizeof aside, "%s.XXXXXX", path) >= (int)sizeof aside)
        return bt_fail_sys(err, ENAMETOOLONG, "session_write", "cannot write the session to %s", path);
    bt_text trailer;
    bt_text_init(&trailer, TRAILER_BYTES_MAX);
    put_trailer(facts, plan, saved, &trailer);
    if (trailer.failed) {
        bt_status status = bt_text_memory(&trailer, err);
        bt_text_done(&trailer);
        if (status != BT_OK) return status;
        return bt_fail(err, BT_E_LIMIT, "session_write", BT_MEASURE_BYTES, 0, TRAILER_BYTES_MAX,
                       "the session has more text than can be written to %s", path);
    }
    int fd = mkostemp(aside, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) {
        int sys = errno;
        bt_text_done(&trailer);
        return bt_fail_sys(err, sys, "session_write", "cannot write the session to %s", path);
    }
    bt_status status = bt_session_state_save(session, aside, saved->tokens, saved->n_decoded, err);
    if (status == BT_OK && (!append_ours(fd, &trailer) || rename(aside, path) != 0))
        status = bt_fail_sys(err, errno, "session_write", "cannot write the session to %s", path);
    if (status != BT_OK) (void)unlink(aside);
    (void)close(fd); /* synced already */
    bt_text_done(&trailer);
    return status;
}

/* ---- reading ---- */

static bool is_string(bt_counted *r, const char *wanted) {
    size_t n = 0;
    const char *at = bt_counted_take_string(r, &n);
    return at && n == strlen(wanted) && memcmp(at, wanted, n) == 0;
}

static bt_status malformed(const char *path, bt_error *err) {
    return bt_fail(err, BT_E_FORMAT, "session_format", BT_MEASURE_NONE, 0, 0,
                   "%s is no session of this program, or is not whole", path);
}

static bt_status stale(const char *path, const char *what, bt_error *err) {
    return bt_fail(err, BT_E_STALE, "session_stale", BT_MEASURE_NONE, 0, 0,
                   "the session in %s was made with another %s", path, what);
}

static bt_message take_message(bt_counted *r) {
    bt_message message = {0};
    size_t n_role = 0; /* found again by end_strings */
    message.role = bt_counted_take_string(r, &n_role);
    message.content = bt_counted_take_string(r, &message.n_bytes);
    return message;
}

static void end_at(char *text, const char *at) {
    text[at - text] = '\0';
}

/* Role and content become strings where they stand in the trailer. Behind a role stands the length of its content, and
 * behind a content that of the next role: both are read by now, and their first byte gives way. */
static void end_strings(bt_saved *saved) {
    for (uint32_t i = 0; i < saved->n_messages; i++) {
        end_at(saved->text, saved->messages[i].content - sizeof(uint32_t));
        end_at(saved->text, saved->messages[i].content + saved->messages[i].n_bytes);
    }
}

static bt_status read_lists(const char *path, bt_counted *r, bt_saved *ret, bt_error *err) {
    uint32_t n_pending = ret->n_tokens - ret->n_decoded;
    for (uint32_t i = 0; i < n_pending; i++)
        ret->tokens[ret->n_decoded + i] = (int32_t)bt_counted_take_u32(r);
    uint32_t n_messages = bt_counted_take_u32(r);
    if (r->failed || n_messages > MESSAGES_MAX) return malformed(path, err);
    ret->messages = bt_heap_array((size_t)n_messages + 1, sizeof *ret->messages);
    if (!ret->messages)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, n_messages, 0, "no memory to load a session");
    for (; ret->n_messages < n_messages && !r->failed; ret->n_messages++)
        ret->messages[ret->n_messages] = take_message(r);
    if (r->failed || r->n_left != 0) return malformed(path, err);
    end_strings(ret);
    return BT_OK;
}

static bt_status read_fields(const char *path, bt_counted *r, const bt_facts *facts, const bt_plan *plan,
                             uint32_t n_ctx, bt_saved *ret, bt_error *err) {
    if (bt_counted_take_u32(r) != SCHEMA) return stale(path, "version of this program", err);
    if (!is_string(r, facts->header_sha256)) return stale(path, "model", err);
    if (!is_string(r, bt_engine_build_version())) return stale(path, "version of llama.cpp", err);
    if (bt_counted_take_u32(r) != plan->type_k || bt_counted_take_u32(r) != plan->type_v)
        return stale(path, "type of KV cache", err);
    if (bt_counted_take_u32(r) != (uint32_t)plan->wishes.flash_attn)
        return stale(path, "setting of flash attention", err);
    ret->n_decoded = bt_counted_take_u32(r);
    uint32_t n_pending = bt_counted_take_u32(r);
    if (r->failed || n_pending > r->n_left / sizeof(uint32_t)) return malformed(path, err);
    if (ret->n_decoded > n_ctx)
        return bt_fail(err, BT_E_ARG, "session_ctx", BT_MEASURE_TOKENS, ret->n_decoded, n_ctx,
                       "the session in %s has %u tokens, the context holds %u", path, ret->n_decoded, n_ctx);
    ret->n_tokens = ret->n_decoded + n_pending;
    ret->tokens = bt_heap_array((size_t)ret->n_tokens + 1, sizeof *ret->tokens);
    if (!ret->tokens)
        return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_TOKENS, ret->n_tokens, 0, "no memory to load a session");
    return read_lists(path, r, ret, err);
}

/* The trailer, after the hash of everything before the footer was found right; behind its bytes the place of a NUL, for
 * the last text of it. */
static bt_status read_trailer(const char *path, int fd, char **ret_text, size_t *ret_n, bt_error *err) {
    struct stat status;
    if (fstat(fd, &status) != 0) return bt_fail_sys(err, errno, "session_read", "cannot read the session %s", path);
    if (!S_ISREG(status.st_mode))
        return bt_fail_sys(err, S_ISDIR(status.st_mode) ? EISDIR : ESPIPE, "session_read", "cannot read the session %s",
                           path);
    if (status.st_size < (off_t)FOOTER_BYTES) return malformed(path, err);
    uint64_t n_before = (uint64_t)status.st_size - FOOTER_BYTES;
    char footer[FOOTER_BYTES];
    if (pread(fd, footer, sizeof footer, (off_t)n_before) != (ssize_t)sizeof footer) return malformed(path, err);
    uint64_t n_trailer = 0;
    memcpy(&n_trailer, footer, sizeof n_trailer);
    bool is_ours = memcmp(footer + sizeof n_trailer + HEX_BYTES, magic, MAGIC_BYTES) == 0;
    if (!is_ours || n_trailer > n_before || n_trailer > TRAILER_BYTES_MAX) return malformed(path, err);
    bt_sha256 hash;
    char hex[HEX_BYTES + 1];
    bt_sha256_init(&hash);
    if (!hash_file(fd, n_before, &hash))
        return bt_fail_sys(err, errno, "session_read", "cannot read the session %s", path);
    bt_sha256_hex(&hash, hex);
    if (memcmp(hex, footer + sizeof n_trailer, HEX_BYTES) != 0) return malformed(path, err);
    char *text = bt_heap_alloc((size_t)n_trailer + 1);
    if (!text) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_BYTES, n_trailer, 0, "no memory to load a session");
    if (pread(fd, text, (size_t)n_trailer, (off_t)(n_before - n_trailer)) != (ssize_t)n_trailer) {
        bt_heap_free(text);
        return malformed(path, err);
    }
    *ret_text = text;
    *ret_n = (size_t)n_trailer;
    return BT_OK;
}

bt_status bt_session_file_load(const char *path, bt_session *session, const bt_facts *facts, const bt_plan *plan,
                               bt_saved *ret, bt_error *err) {
    bt_saved saved = {0};
    int fd = bt_os_open(path, false);
    if (fd < 0) return bt_fail_sys(err, -fd, "session_read", "cannot read the session %s", path);
    size_t n = 0;
    bt_status status = read_trailer(path, fd, &saved.text, &n, err);
    (void)close(fd); /* only read */
    bt_counted r = {.at = saved.text, .n_left = n};
    if (status == BT_OK) status = read_fields(path, &r, facts, plan, bt_session_n_ctx(session), &saved, err);
    uint32_t n_decoded = 0;
    if (status == BT_OK && saved.n_decoded > 0)
        status = bt_session_state_load(session, path, saved.tokens, saved.n_decoded, &n_decoded, err);
    if (status == BT_OK && n_decoded != saved.n_decoded) {
        bt_session_clear(session);
        status = malformed(path, err);
    }
    if (status != BT_OK) {
        bt_saved_done(&saved);
        return status;
    }
    *ret = saved;
    return BT_OK;
}

void bt_saved_done(bt_saved *saved) {
    bt_heap_free(saved->tokens);
    bt_heap_free(saved->messages);
    bt_heap_free(saved->text);
    memset(saved, 0, sizeof *saved);
}

/* ---- memory ---- */

static uint64_t rows_bytes(uint32_t width, uint32_t type, uint32_t n_rows) {
    uint64_t row_bytes = 0;
    if (!bt_type_row_bytes(type, width, &row_bytes)) row_bytes = (uint64_t)width * sizeof(float);
    return bt_sat_mul_u64(row_bytes, n_rows);
}

uint64_t bt_session_file_heap_bytes(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_ctx) {
    uint64_t largest = 0;
    uint64_t smallest = UINT64_MAX;
    for (uint32_t i = 0; facts->kv_known && i < facts->n_block; i++) {
        uint64_t k = rows_bytes(facts->kv[i].k_width, wishes->type_k, n_ctx);
        uint64_t v = rows_bytes(facts->kv[i].v_width, wishes->type_v, n_ctx);
        /* of recurrent blocks, the state of the one sequence: F32, the same at any context */
        uint64_t conv = (uint64_t)facts->kv[i].conv_width * sizeof(float);
        uint64_t ssm = (uint64_t)facts->kv[i].ssm_width * sizeof(float);
        largest = bt_max_u64(largest, bt_max_u64(bt_max_u64(k, v), bt_max_u64(conv, ssm)));
        if (k > 0) smallest = bt_min_u64(smallest, bt_min_u64(k, v));
        if (conv > 0 || ssm > 0) smallest = bt_min_u64(smallest, bt_min_u64(conv, ssm));
    }
    /* An architecture without a formula: twice the width of its residual stream, in full precision. */
    if (!facts->kv_known) return bt_sat_mul_u64((uint64_t)facts->n_embd * 2 * sizeof(float), n_ctx);
    /* The copy grows with the tensors: while it does, the old one is still there. */
    return smallest < largest ? bt_sat_add_u64(largest, largest) : largest;
}
