/* SPDX-License-Identifier: MIT
 * lookup.h: what may come next, from what came before: prompt lookup, a draft without a model. */
#pragma once

#include "burthen.h"

typedef struct bt_lookup bt_lookup;

/* Room for n_max tokens, 4 bytes each. NULL: no memory. */
bt_lookup *bt_lookup_open(uint32_t n_max);
void bt_lookup_close(bt_lookup *lookup); /* NULL is fine */
/* Tokens follow each other; what is beyond the room is forgotten silently: nothing is found in it. */
void bt_lookup_add(bt_lookup *lookup, const int32_t *tokens, uint32_t n);
/* All of them, in order. */
const int32_t *bt_lookup_tokens(const bt_lookup *lookup, uint32_t *ret_n);
/* Exactly n tokens that followed the last tokens when they came before, or false: they did not. */
bool bt_lookup_draft(const bt_lookup *lookup, int32_t *ret_tokens, uint32_t n);
