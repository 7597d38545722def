/* SPDX-License-Identifier: MIT
 * json_text.h: members of JSON objects straight into a growing text, without a tree of values in between. Private to
 * the router. */
#pragma once

#include "base/text.h"

/* What is written: {"a":1,"b":"x"}. A member puts its comma before it, unless it is the first. */
void bt_json_text_string(bt_text *out, const char *text, size_t n_bytes); /* quoted; U+FFFD for what is no UTF-8 */
void bt_json_text_key(bt_text *out, const char *key);                     /* key: plain letters */
void bt_json_text_u64(bt_text *out, const char *key, uint64_t value);
void bt_json_text_i64(bt_text *out, const char *key, int64_t value);
void bt_json_text_known(bt_text *out, const char *key, bt_known value);     /* null: not known */
void bt_json_text_rate(bt_text *out, const char *key, double value);        /* two decimals; null: 0 or not finite */
void bt_json_text_or_null(bt_text *out, const char *key, const char *text); /* null: "" */
/* The text as a result of bt_heap_free, or its failure. The text is done in any case. */
BT_MUST_CHECK bt_status bt_json_text_finish(bt_text *out, char **ret_json, bt_error *err);
