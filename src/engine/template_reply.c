/* SPDX-License-Identifier: MIT
 *
 * template_reply.c: what the template worker has answered. Pure.
 *
 * The worker is ours, but what runs in it is a template of a stranger's model: its answer is read as a stranger's.
 * Nothing is copied: parts and stops point into the reply. Bound: PARTS_MAX parts, BT_TEMPLATE_STOPS_MAX stops. */
#include "engine/template_reply.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"
#include "engine/counted.h"
#include "engine/template_wire.h"

#define PARTS_MAX      (1u << 20)              /* of one rendering: two a message */
#define PART_BYTES_MIN (2u * sizeof(uint32_t)) /* on the wire: no room is made for more than can be there */

static bt_status refusal(bt_counted *r, uint32_t state, uint64_t limit_bytes, bt_error *err) {
    size_t n = 0;
    const char *why = bt_counted_take_string(r, &n);
    if (state == BT_TEMPLATE_MEMORY)
        return bt_fail(err, BT_E_NOMEM, "chat_memory", BT_MEASURE_BYTES, 0, limit_bytes,
                       "the chat template needs more than the %s it may have", BT_SIZE(limit_bytes));
    return bt_fail(err, BT_E_FORMAT, "chat_template", BT_MEASURE_NONE, 0, 0, "the chat template says: %.*s",
                   why ? (int)bt_min_u64(n, 300) : 0, why ? why : "");
}

static bt_status cut_short(bt_error *err) {
    return bt_fail(err, BT_E_IO, "chat_worker", BT_MEASURE_NONE, 0, 0, "%s gave an answer cut short",
                   BT_TEMPLATE_WORKER);
}

static bt_status read_parts(bt_counted *r, bt_rendered *ret, bt_error *err) {
    uint32_t n = bt_counted_take_u32(r);
    if (n > PARTS_MAX)
        return bt_fail(err, BT_E_LIMIT, "chat_bytes", BT_MEASURE_ITEMS, n, PARTS_MAX,
                       "the chat template makes too many pieces of text");
    if (n > r->n_left / PART_BYTES_MIN) return cut_short(err);
    ret->parts = bt_heap_array((size_t)n + 1, sizeof *ret->parts);
    if (!ret->parts) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_ITEMS, n, 0, "no memory for a conversation");
    for (; ret->n_parts < n && !r->failed; ret->n_parts++) {
        bt_rendered_part *part = &ret->parts[ret->n_parts];
        part->of_message = bt_counted_take_u32(r) != 0;
        part->text = bt_counted_take_string(r, &part->n_bytes);
    }
    uint32_t n_stops = bt_counted_take_u32(r);
    for (; ret->n_stops < n_stops && ret->n_stops < BT_TEMPLATE_STOPS_MAX && !r->failed; ret->n_stops++)
        ret->stops[ret->n_stops] = bt_counted_take_string(r, &ret->stop_bytes[ret->n_stops]);
    return r->failed ? cut_short(err) : BT_OK;
}

bt_status bt_template_reply_read(const char *reply, size_t n_bytes, uint64_t limit_bytes, bt_rendered *ret,
                                 bt_error *err) {
    bt_counted r = {.at = reply, .n_left = n_bytes};
    uint32_t magic = bt_counted_take_u32(&r);
    uint32_t state = bt_counted_take_u32(&r);
    uint64_t peak_bytes = bt_counted_take_u64(&r);
    if (r.failed || magic != BT_TEMPLATE_REPLY)
        return bt_fail(err, BT_E_IO, "chat_worker", BT_MEASURE_NONE, 0, 0, "%s does not answer as this version's does",
                       BT_TEMPLATE_WORKER);
    if (state != BT_TEMPLATE_OK) return refusal(&r, state, limit_bytes, err);
    bt_rendered rendered = {.peak_bytes = bt_sat_add_u64(peak_bytes, BT_TEMPLATE_CODE_BYTES)};
    bt_status status = read_parts(&r, &rendered, err);
    if (status != BT_OK) {
        bt_heap_free(rendered.parts);
        return status;
    }
    *ret = rendered;
    return BT_OK;
}
