/* SPDX-License-Identifier: MIT
 * roles.h: what each tensor is for, told by its name, shape and size. */
#pragma once

#include "model/gguf.h"

#define BT_ALWAYS_SMALL_BYTES                                                                                          \
    (UINT64_C(1) << 20) /* a norm, bias, router or rope table up to this is always in memory */

/* N of "blk.N.", -1 for a tensor outside the blocks. BT_E_FORMAT when it is not below n_block_all. */
BT_MUST_CHECK bt_status bt_role_block(const bt_tensor *tensor, uint32_t n_block_all, const char *file, int32_t *ret,
                                      bt_error *err);
/* Sets the role of every tensor; their blocks are set. Also facts->tied_head. */
void bt_roles_fill(bt_facts *facts);

/* Tensors of experts, as llama.cpp's --n-cpu-moe names them; tensors outside the blocks that are where the head is. */
bool bt_tensor_is_of_experts(const bt_tensor *tensor);
bool bt_tensor_goes_with_head(const bt_tensor *tensor);
/* Roles and devices under facts->split; the roles are those of the whole. */
void bt_roles_split(bt_facts *facts);

/* Of a BT_ROLE_UNIT tensor: its group, and its place in the order in which a group's tensors are used. */
bt_unit_kind bt_role_kind(const bt_tensor *tensor);
uint32_t bt_role_rank(const bt_tensor *tensor);
