/* SPDX-License-Identifier: MIT
 * test_template_reply.c: answers of a template worker: what is whole is read, and no count is believed that the bytes
 * behind it cannot hold. */
#include "base/heap.h"
#include "engine/template_reply.h"
#include "engine/template_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define REPLY_MAX 256

typedef struct reply {
    char data[REPLY_MAX];
    size_t n;
} reply;

static void put(reply *r, const void *bytes, size_t n) {
    memcpy(r->data + r->n, bytes, n);
    r->n += n;
}

static void put_u32(reply *r, uint32_t value) {
    put(r, &value, sizeof value);
}

static void put_text(reply *r, const char *text) {
    put_u32(r, (uint32_t)strlen(text));
    put(r, text, strlen(text));
}

static reply begin(uint32_t state, uint64_t peak_bytes) {
    reply r = {.n = 0};
    put_u32(&r, BT_TEMPLATE_REPLY);
    put_u32(&r, state);
    put(&r, &peak_bytes, sizeof peak_bytes);
    return r;
}

static void refused(const reply *r, bt_status status, const char *code, const char *words) {
    bt_rendered rendered = {0};
    bt_error err = {0};
    assert_int_equal(bt_template_reply_read(r->data, r->n, 1000, &rendered, &err), status);
    assert_string_equal(err.code, code);
    assert_non_null(strstr(err.text, words));
    assert_null(rendered.parts);
    assert_int_equal(bt_heap_live_blocks(), 0);
}

static void whole(void **state) {
    (void)state;
    bt_rendered rendered = {0};
    reply r = begin(BT_TEMPLATE_OK, 5000);
    put_u32(&r, 2);
    put_u32(&r, 0);
    put_text(&r, "<|user|>");
    put_u32(&r, 1);
    put_text(&r, "hi");
    put_u32(&r, 1);
    put_text(&r, "</s>");
    assert_int_equal(bt_template_reply_read(r.data, r.n, 1000, &rendered, NULL), BT_OK);
    assert_int_equal(rendered.n_parts, 2);
    assert_false(rendered.parts[0].of_message);
    assert_true(rendered.parts[1].of_message);
    assert_int_equal(rendered.parts[1].n_bytes, 2);
    assert_memory_equal(rendered.parts[1].text, "hi", 2);
    assert_int_equal(rendered.n_stops, 1);
    assert_memory_equal(rendered.stops[0], "</s>", 4);
    assert_int_equal(rendered.peak_bytes, 5000 + BT_TEMPLATE_CODE_BYTES);
    bt_heap_free(rendered.parts);
    for (size_t n = 0; n < r.n; n++) {
        reply cut = r;
        cut.n = n;
        refused(&cut, BT_E_IO, "chat_worker", "burthen-template");
    }
}

static void wrong(void **state) {
    (void)state;
    reply r = begin(BT_TEMPLATE_BAD, 0);
    put_text(&r, "roles must alternate");
    refused(&r, BT_E_FORMAT, "chat_template", "says: roles must alternate");
    r = begin(BT_TEMPLATE_MEMORY, 0);
    refused(&r, BT_E_NOMEM, "chat_memory", "needs more than the 1000 B");
    r = begin(BT_TEMPLATE_OK, 0);
    put_u32(&r, UINT32_MAX);
    refused(&r, BT_E_LIMIT, "chat_bytes", "too many pieces");
    r = begin(BT_TEMPLATE_OK, 0);
    put_u32(&r, 1u << 20); /* allowed, but not there: no room is made for them */
    uint64_t before = bt_heap_allocations();
    refused(&r, BT_E_IO, "chat_worker", "cut short");
    assert_int_equal(bt_heap_allocations(), before);
}

static void peak_saturates(void **state) {
    (void)state;
    bt_rendered rendered = {0};
    reply r = begin(BT_TEMPLATE_OK, UINT64_MAX);
    put_u32(&r, 0);
    put_u32(&r, 0);
    assert_int_equal(bt_template_reply_read(r.data, r.n, 1000, &rendered, NULL), BT_OK);
    assert_true(rendered.peak_bytes == UINT64_MAX);
    bt_heap_free(rendered.parts);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole), cmocka_unit_test(wrong),
                                       cmocka_unit_test(peak_saturates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
