/* SPDX-License-Identifier: MIT
 * words.c: the words of docs/interfaces.md for the enumerations of burthen.h, in the order of their values, and the
 * small questions that several reports ask of the facts. */
#include "base/size.h"
#include "model/types.h"
#include "report/json.h"

#include <string.h>

const char *const bt_pool_kind_names[5] = {"host", "gpu", "igpu", "rpc", "accel"};
const char *const bt_pool_state_names[4] = {"absent", "reported", "failed", "unlimited"};
const char *const bt_choice_names[3] = {"auto", "on", "off"};
const char *const bt_speculate_names[4] = {"auto", "off", "ngram", "draft"};
const char *const bt_io_names[3] = {"auto", "direct", "buffered"};
const char *const bt_policy_names[2] = {"ctx", "speed"};
const char *const bt_rope_scaling_names[4] = {"model", "none", "linear", "yarn"};
const char *const bt_budget_kind_names[3] = {"auto", "bytes", "off"};
const char *const bt_place_names[3] = {"pinned", "streamed", "rows"};
const char *const bt_disk_kind_names[5] = {"unknown", "solid", "rotating", "network", "memory"};
const char *const bt_bound_names[3] = {"disk", "compute", "memory"};
const char *const bt_rung_names[BT_RUNG_COUNT] = {"minimum", "overlap", "head", "all-pinned"};

bool bt_kv_token_bytes(const bt_facts *facts, uint32_t type_k, uint32_t type_v, uint64_t *ret) {
    if (!facts->kv_known || !facts->kv) return false;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < facts->n_block; i++) {
        uint64_t k = 0;
        uint64_t v = 0;
        if (!bt_type_row_bytes(type_k, facts->kv[i].k_width, &k)) return false;
        if (!bt_type_row_bytes(type_v, facts->kv[i].v_width, &v)) return false;
        if (!bt_add_u64(sum, k, &sum) || !bt_add_u64(sum, v, &sum)) return false;
    }
    *ret = sum;
    return true;
}

uint64_t bt_working_bytes(const bt_facts *facts) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < facts->n_tensors; i++) {
        const bt_tensor *t = &facts->tensors[i];
        if (t->role == BT_ROLE_UNUSED || t->role == BT_ROLE_TABLE) continue;
        bool experts = facts->n_expert > 0 && t->n_dims == 3 && strstr(t->name, "_exps");
        uint64_t used = experts ? bt_mul_div_u64(t->bytes, facts->n_expert_used, facts->n_expert) : t->bytes;
        sum = bt_sat_add_u64(sum, used);
    }
    return sum;
}

const char *bt_wish_type_name(uint32_t type) {
    return type == BT_TYPE_AUTO ? "auto" : bt_type_name(type);
}
