/* SPDX-License-Identifier: MIT
 *
 * layouts.c: which weights ggml's CPU kernels know in a second layout, and how large it is.
 *
 *     plain      row 0: [block block block ...]   row 1: [block block block ...]   ... as it stands in the file
 *     repacked   rows 0 to 7: [block of each row] [next block of each row] ...     as many bytes
 *
 * One row of activations against repacked weights fills a vector register with eight outputs, which is faster than
 * eight dot products; many rows against plain weights go through a tiled kernel, which is faster again for K-quants
 * (docs/decisions/016). The types are those that ggml repacks on x86 with AVX2, the only processors on which both were
 * measured; the device asks ggml itself before it repacks. Heads and tables are left out: their types are not among
 * them in any model looked at, and they are cut into panels. */
#include "model/layouts.h"

#include "base/size.h"
#include "model/types.h"

#include <string.h>

static bool type_has_second(uint32_t type) {
    static const char *const names[] = {"q4_0", "q4_K", "iq4_nl", "mxfp4"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(bt_type_name(type), names[i]) == 0) return true;
    return false;
}

bool bt_layout_has_second(const bt_tensor *tensor) {
    return tensor->role == BT_ROLE_UNIT && tensor->block >= 0 && tensor->n_dims == 2 &&
           tensor->ne[1] % BT_LAYOUT_ROWS == 0 && type_has_second(tensor->type);
}

uint64_t bt_facts_second_bytes(const bt_facts *facts, const bt_unit_facts *unit) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < unit->n_tensors; i++) {
        const bt_tensor *tensor = &facts->tensors[facts->unit_tensors[unit->first_tensor + i]];
        if (tensor->has_second) sum = bt_sat_add_u64(sum, tensor->bytes);
    }
    return sum;
}
