/* SPDX-License-Identifier: MIT
 * price_cache.h: what dry runs measured, kept between runs: the same model and wishes give the same plan, and a plan
 * that was printed is the one that runs. */
#pragma once

#include "base/arena.h"
#include "engine/price.h"

#define BT_PRICE_CACHE_MAX 64u /* points of one model and its wishes: two plans of the largest search */

typedef struct bt_price_cache bt_price_cache;

/* The prices of this model, these wishes and this program. Never fails: where nothing can be read or kept it is empty.
 * NULL: the arena is full, and so may be a cache in every call below. */
bt_price_cache *bt_price_cache_open(const bt_facts *facts, const bt_wishes *wishes, uint32_t n_threads,
                                    bt_arena *arena);
uint32_t bt_price_cache_count(const bt_price_cache *cache);
/* NULL: not known. */
const bt_price *bt_price_cache_find(const bt_price_cache *cache, const bt_price_point *point);
/* A price without an error. What loading the model takes is no matter of the point: it becomes what was measured for
 * the first. The oldest goes when there are too many. */
void bt_price_cache_add(bt_price_cache *cache, const bt_price_point *point, bt_price *price);
/* What the process holds before a model is opened, as first measured: it stands while a new measurement is near it. */
uint64_t bt_price_cache_base(bt_price_cache *cache, uint64_t measured_bytes);
/* Keep what was added. Silent but for the log: without a cache everything is measured again. */
void bt_price_cache_save(bt_price_cache *cache);
