/* SPDX-License-Identifier: MIT
 * json_tree.h: values that many answers have, as values of a JSON library. Private to the router. */
#pragma once

#include "router/pools.h"

#include <jansson.h>

json_t *bt_json_tree_known(bt_known value); /* null: not known, or more than its integers hold */
json_t *bt_json_tree_number(uint64_t value);
/* {"host": 1, ...}: of the pools of which there is something, or something is known. */
json_t *bt_json_tree_pool_bytes(const bt_pools *pools, const uint64_t *bytes);
json_t *bt_json_tree_pool_known(const bt_pools *pools, const bt_known *bytes);
