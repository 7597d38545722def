/* SPDX-License-Identifier: MIT
 *
 * layouts.c: which weights ggml's CPU kernels know in another layout, and how large it is.
 *
 *     plain      row 0: [block block block ...]   row 1: [block block block ...]   ... as it stands in the file
 *     repacked   rows 0 to 7: [block of each row] [next block of each row] ...     as many bytes
 *
 * One row of activations against repacked weights fills a vector register with eight outputs, which is faster than
 * eight dot products. Many rows against plain K-quants go through a tiled kernel, which is faster again: those hold
 * both layouts where there is room (docs/decisions/016). The others have no such kernel: repacked is faster for one
 * row and for many, and nothing is left to do for the plain one (docs/decisions/019). The types are those that ggml
 * repacks on x86 with AVX2, the only processors on which both were measured; the device asks ggml itself before it
 * repacks. Small matrices, which are always in memory, are replaced too: llama.cpp's digits are those of all. Heads and
 * tables are left out: they are cut into panels and read by rows. */
#include "model/layouts.h"

#include "base/size.h"
#include "model/types.h"

#include <string.h>

static bt_layout layout_of_type(uint32_t type) {
    static const struct {
        const char *type;
        bt_layout layout;
    } known[] = {{"q4_0", BT_LAYOUT_REPLACED},
                 {"iq4_nl", BT_LAYOUT_REPLACED},
                 {"mxfp4", BT_LAYOUT_REPLACED},
                 {"q4_K", BT_LAYOUT_SECOND}};
    for (uint32_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(bt_type_name(type), known[i].type) == 0) return known[i].layout;
    return BT_LAYOUT_PLAIN;
}

bt_layout bt_layout_of(const bt_tensor *tensor) {
    bool is_matrix = (tensor->role == BT_ROLE_UNIT || tensor->role == BT_ROLE_SMALL) && tensor->block >= 0 &&
                     tensor->n_dims == 2 && tensor->ne[1] % BT_LAYOUT_ROWS == 0;
    bt_layout layout = is_matrix ? layout_of_type(tensor->type) : BT_LAYOUT_PLAIN;
    bool can_replace = tensor->row_bytes <= BT_LAYOUT_COPY_MAX_BYTES / BT_LAYOUT_ROWS;
    bool can_add = tensor->role == BT_ROLE_UNIT;
    if ((layout == BT_LAYOUT_REPLACED && !can_replace) || (layout == BT_LAYOUT_SECOND && !can_add))
        return BT_LAYOUT_PLAIN;
    return layout;
}

static void add(const bt_tensor *tensor, bt_layouts *sum) {
    if (tensor->layout == BT_LAYOUT_REPLACED) {
        sum->n_replaced++;
        sum->replaced_bytes = bt_sat_add_u64(sum->replaced_bytes, tensor->bytes);
    } else if (tensor->layout == BT_LAYOUT_SECOND) {
        sum->n_second++;
        sum->second_bytes = bt_sat_add_u64(sum->second_bytes, tensor->bytes);
    }
}

bt_layouts bt_facts_layouts(const bt_facts *facts, const bt_unit_facts *unit) {
    bt_layouts sum = {0};
    for (uint32_t i = 0; i < unit->n_tensors; i++)
        add(&facts->tensors[facts->unit_tensors[unit->first_tensor + i]], &sum);
    return sum;
}

bt_layouts bt_facts_small_layouts(const bt_facts *facts) {
    bt_layouts sum = {0};
    for (uint32_t i = 0; i < facts->n_tensors; i++)
        if (facts->tensors[i].role == BT_ROLE_SMALL) add(&facts->tensors[i], &sum);
    return sum;
}
