/* SPDX-License-Identifier: MIT
 * experts.h: the expert tensors of each block, cut by expert. */
#pragma once

#include "base/arena.h"
#include "burthen.h"

/* Whether each expert of this tensor can be read on its own: one of llama.cpp's names, three dimensions, the last of
 * which counts the experts. */
bool bt_experts_can_split(const bt_facts *facts, const bt_tensor *tensor);
/* Group the tensors of role BT_ROLE_EXPERTS by block, in facts->expert_blocks. After the roles. */
BT_MUST_CHECK bt_status bt_experts_fill(bt_facts *facts, bt_arena *arena, const char *name, bt_error *err);
