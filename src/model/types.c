/* SPDX-License-Identifier: MIT
 *
 * types.c: ggml's tensor types as a table of numbers.
 *
 * The planner must price tensors without ggml (docs/design.md section 4: only the device and the engine include it),
 * and every byte of a plan comes from these rows: elements of a block, bytes of a block. Source: ggml 0.25.3, ggml.h
 * (the numbers) and ggml-common.h (the block structs, each with a static assertion on its size). integration/types
 * compares the table with ggml's own for every number. Types that ggml removed (4, 5, 31 to 33, 36 to 38) have no row:
 * ggml gives them a block of 0 elements, by which its loader would divide. q8_1 and q8_K are ggml's scratch formats; a
 * file may name them, and ggml accepts that.
 */
#include "model/types.h"

#include "base/size.h"
#include "base/text.h"

#include <string.h>

typedef struct type_row {
    const char *name;
    uint16_t block_elements, block_bytes;
} type_row;

static const type_row type_rows[] = {
    [0] = {"f32", 1, 4},         [1] = {"f16", 1, 2},         [2] = {"q4_0", 32, 18},      [3] = {"q4_1", 32, 20},
    [6] = {"q5_0", 32, 22},      [7] = {"q5_1", 32, 24},      [8] = {"q8_0", 32, 34},      [9] = {"q8_1", 32, 36},
    [10] = {"q2_K", 256, 84},    [11] = {"q3_K", 256, 110},   [12] = {"q4_K", 256, 144},   [13] = {"q5_K", 256, 176},
    [14] = {"q6_K", 256, 210},   [15] = {"q8_K", 256, 292},   [16] = {"iq2_xxs", 256, 66}, [17] = {"iq2_xs", 256, 74},
    [18] = {"iq3_xxs", 256, 98}, [19] = {"iq1_s", 256, 50},   [20] = {"iq4_nl", 32, 18},   [21] = {"iq3_s", 256, 110},
    [22] = {"iq2_s", 256, 82},   [23] = {"iq4_xs", 256, 136}, [24] = {"i8", 1, 1},         [25] = {"i16", 1, 2},
    [26] = {"i32", 1, 4},        [27] = {"i64", 1, 8},        [28] = {"f64", 1, 8},        [29] = {"iq1_m", 256, 56},
    [30] = {"bf16", 1, 2},       [34] = {"tq1_0", 256, 54},   [35] = {"tq2_0", 256, 66},   [39] = {"mxfp4", 32, 17},
    [40] = {"nvfp4", 64, 36},    [41] = {"q1_0", 128, 18},    [42] = {"q2_0", 64, 18},
};
#define N_TYPE_ROWS (sizeof type_rows / sizeof type_rows[0])

bool bt_type_is_known(uint32_t type) {
    return type < N_TYPE_ROWS && type_rows[type].name;
}

const char *bt_type_name(uint32_t type) {
    return bt_type_is_known(type) ? type_rows[type].name : "?";
}

uint32_t bt_type_block_elements(uint32_t type) {
    return bt_type_is_known(type) ? type_rows[type].block_elements : 0;
}

uint32_t bt_type_block_bytes(uint32_t type) {
    return bt_type_is_known(type) ? type_rows[type].block_bytes : 0;
}

bool bt_type_row_bytes(uint32_t type, uint64_t n_elements, uint64_t *ret_bytes) {
    if (!bt_type_is_known(type)) return false;
    const type_row *row = &type_rows[type];
    if (n_elements % row->block_elements != 0) return false;
    return bt_mul_u64(n_elements / row->block_elements, row->block_bytes, ret_bytes);
}

bool bt_type_is_cache(uint32_t type) {
    /* llama.cpp common/arg.cpp, kv_cache_types; writing rows of another (i8, q8_1) calls a kernel that is not there */
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"};
    return bt_is_among(bt_type_name(type), names, sizeof names / sizeof *names);
}

bool bt_type_by_name(const char *name, uint32_t *ret_type) {
    for (uint32_t i = 0; i < N_TYPE_ROWS; i++) {
        if (!type_rows[i].name || strcmp(type_rows[i].name, name) != 0) continue;
        *ret_type = i;
        return true;
    }
    return false;
}
