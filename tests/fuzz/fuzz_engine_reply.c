/* SPDX-License-Identifier: MIT
 * fuzz_engine_reply.c: what a template worker has answered (engine/template_wire.h). What is taken points into the
 * reply, all of it. */
#include "fuzz.h"

#include "base/heap.h"
#include "engine/template_reply.h"
#include "plain_check.h"

static void check_inside(const char *text, size_t n, const char *at, size_t n_bytes) {
    FUZZ_CHECK(at >= text && at <= text + n && n_bytes <= n - (size_t)(at - text));
}

static bool one(char *text, size_t n) {
    bt_rendered rendered = {0};
    bt_error err = {0};
    bt_status status = bt_template_reply_read(text, n, 1u << 20, &rendered, &err);
    if (status != BT_OK) {
        FUZZ_CHECK(status == BT_E_IO || status == BT_E_FORMAT || status == BT_E_NOMEM || status == BT_E_LIMIT);
        FUZZ_CHECK(err.status == status && err.text[0] != '\0');
        plain_check(err.text);
        return false;
    }
    for (uint32_t i = 0; i < rendered.n_parts; i++)
        check_inside(text, n, rendered.parts[i].text, rendered.parts[i].n_bytes);
    FUZZ_CHECK(rendered.n_stops <= BT_TEMPLATE_STOPS_MAX);
    for (uint32_t i = 0; i < rendered.n_stops; i++)
        check_inside(text, n, rendered.stops[i], rendered.stop_bytes[i]);
    bt_heap_free(rendered.parts);
    return true;
}

static const char *word(size_t i) {
    static const char *const words[] = {"BTR1", "BTQ1", "\x01", "\x02", "\xff\xff\xff\xff", "<|im_end|>", "\x1b[31m"};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

const fuzz_target fuzz_here = {.name = "engine_reply", .one = one, .bare = true, .word = word, .n_rounds = 20000};
