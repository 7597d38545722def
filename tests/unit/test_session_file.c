/* SPDX-License-Identifier: MIT
 * test_session_file.c: the part of a session file that is ours, with a right hash around whatever it says: what is
 * whole is read as it was written, what is not is refused, byte by byte. */
#include "base/heap.h"
#include "session_kit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRAILER_MAX 512

typedef struct trailer {
    char data[TRAILER_MAX];
    size_t n;
} trailer;

static void put_u32(trailer *t, uint32_t value) {
    memcpy(t->data + t->n, &value, sizeof value);
    t->n += sizeof value;
}

static void put_text(trailer *t, const char *text) {
    put_u32(t, (uint32_t)strlen(text));
    memcpy(t->data + t->n, text, strlen(text));
    t->n += strlen(text);
}

/* Up to the number of messages: 3 tokens decoded, one not. */
static trailer begin(uint32_t n_messages) {
    trailer t = {.n = 0};
    put_u32(&t, 1);
    put_text(&t, "abc");
    put_text(&t, "b1");
    const uint32_t numbers[] = {1, 1, 0, 3, 1, 77, n_messages};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_u32(&t, numbers[i]);
    return t;
}

static void refused(const trailer *t, bt_status status, const char *code) {
    bt_saved saved = {0};
    bt_error err = {0};
    uint64_t live = bt_heap_live_blocks();
    session_put(t->data, t->n, false);
    assert_int_equal(session_load(&saved, &err), status);
    assert_string_equal(err.code, code);
    assert_int_equal(bt_heap_live_blocks(), live);
}

static void whole(void **state) {
    (void)state;
    trailer t = begin(2);
    put_text(&t, "user");
    put_text(&t, "hello");
    put_text(&t, "assistant");
    put_text(&t, "");
    bt_saved saved = {0};
    session_put(t.data, t.n, false);
    assert_int_equal(session_load(&saved, NULL), BT_OK);
    assert_int_equal(saved.n_decoded, 3);
    assert_int_equal(saved.n_tokens, 4);
    assert_int_equal(saved.tokens[3], 77);
    assert_int_equal(saved.n_messages, 2);
    assert_string_equal(saved.messages[0].role, "user");
    assert_string_equal(saved.messages[0].content, "hello");
    assert_string_equal(saved.messages[1].role, "assistant");
    assert_int_equal(saved.messages[1].n_bytes, 0);
    assert_string_equal(saved.messages[1].content, "");
    bt_saved_done(&saved);
    for (size_t n = 0; n < t.n; n++) { /* its beginning is none */
        trailer cut = t;
        cut.n = n;
        bt_error err = {0};
        session_put(cut.data, cut.n, false);
        assert_int_not_equal(session_load(&saved, &err), BT_OK);
        assert_int_equal(strncmp(err.code, "session_", 8), 0);
    }
    t.data[t.n++] = 'x';
    refused(&t, BT_E_FORMAT, "session_format");
}

/* A text that takes the byte behind the trailer, where its end's NUL goes, and one message more: that one's failure
 * came after a NUL was written behind the block. */
static void one_over(void **state) {
    (void)state;
    trailer t = begin(2);
    put_text(&t, "user");
    put_u32(&t, 4);
    memcpy(t.data + t.n, "abc", 3);
    t.n += 3;
    refused(&t, BT_E_FORMAT, "session_format");
}

static void counts(void **state) {
    (void)state;
    trailer t = begin(65537);
    refused(&t, BT_E_FORMAT, "session_format");
    t = begin(UINT32_MAX);
    refused(&t, BT_E_FORMAT, "session_format");
    t = begin(0);
    uint32_t decoded = SESSION_N_CTX + 1;
    memcpy(t.data + 4 + 7 + 6 + 12, &decoded, sizeof decoded);
    refused(&t, BT_E_ARG, "session_ctx");
}

static int set_up(void **state) {
    (void)state;
    session_start();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole), cmocka_unit_test(one_over), cmocka_unit_test(counts)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
