/* SPDX-License-Identifier: MIT
 *
 * visible.c: CUDA_VISIBLE_DEVICES, as CUDA reads it (CUDA C++ Programming Guide, "CUDA Environment Variables").
 *
 *     "2,0"     two devices: what was the third comes first
 *     "0,-1,1"  one: a number that no device has ends the list
 *     ""        none
 *     "1,1"     none: a device that is named twice makes the whole list wrong
 *     "GPU-..." by UUID, which is not followed here
 *
 * CUDA counts by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID, NVML by place: with cards of one kind both are the same. */
#include "guard/visible.h"

#include "base/text.h"
#include "probe/proc.h"

#include <string.h>

uint32_t bt_visible_number(const char *name) {
    uint64_t number = 0;
    bt_span span = bt_span_of(name);
    if (!bt_span_starts(span, "CUDA")) return UINT32_MAX;
    span.at += 4;
    span.n_bytes -= 4;
    return bt_span_number(span, &number) && number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

static bool is_uuid(bt_span part) {
    return bt_span_starts(part, "GPU-") || bt_span_starts(part, "MIG-");
}

static bool is_twice(const bt_visible *seen, uint64_t number) {
    for (uint32_t i = 0; i < seen->n; i++)
        if (seen->index[i] == number) return true;
    return false;
}

bool bt_visible_read(const char *text, uint32_t n_devices, bt_visible *ret) {
    *ret = (bt_visible){.all = text == NULL};
    if (!text) return true;
    bt_span rest = bt_span_of(text), part, word;
    while (bt_span_part(&rest, ',', &part)) {
        uint64_t number = 0;
        if (is_uuid(part)) {
            *ret = (bt_visible){.all = true};
            return false;
        }
        bool is_number = bt_span_word(&part, &word) && bt_span_number(word, &number);
        if (!is_number || number >= n_devices || ret->n == BT_POOL_MAX) break;
        if (is_twice(ret, number)) {
            ret->n = 0;
            break;
        }
        ret->index[ret->n++] = (uint32_t)number;
    }
    return true;
}
