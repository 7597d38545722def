/* SPDX-License-Identifier: MIT
 * json.h: writing and reading JSON without a check at every step. For src/report, and for what other
 * folders print of their own.
 *
 * Both directions remember their first failure and do nothing after it, so that the code that names members reads like
 * the table in docs/interfaces.md, and one check at the end is enough. */
#pragma once

#include "burthen.h"
#include "report/report.h"

#include <jansson.h>

/* ---- writing ---------------------------------------------------------------------------------------------------- */

typedef struct bt_json_out {
    bool failed; /* memory was refused */
} bt_json_out;

/* A parent that is NULL is a failure from before. What is put belongs to its parent. */
void bt_json_put(bt_json_out *out, json_t *parent, const char *key, json_t *value);
void bt_json_put_u64(bt_json_out *out, json_t *parent, const char *key, uint64_t value); /* null over INT64_MAX */
void bt_json_put_known(bt_json_out *out, json_t *parent, const char *key, bt_known value);
void bt_json_put_bool(bt_json_out *out, json_t *parent, const char *key, bool value);
void bt_json_put_real(bt_json_out *out, json_t *parent, const char *key, double value); /* null when not finite */
void bt_json_put_null(bt_json_out *out, json_t *parent, const char *key);
void bt_json_put_text(bt_json_out *out, json_t *parent, const char *key, const char *text);         /* null for NULL */
void bt_json_put_text_or_null(bt_json_out *out, json_t *parent, const char *key, const char *text); /* null for "" */
void bt_json_put_bytes(bt_json_out *out, json_t *parent, const char *key, const char *text, size_t n);
json_t *bt_json_put_object(bt_json_out *out, json_t *parent, const char *key);
json_t *bt_json_put_array(bt_json_out *out, json_t *parent, const char *key);
json_t *bt_json_add_object(bt_json_out *out, json_t *array);
void bt_json_add_text(bt_json_out *out, json_t *array, const char *text, size_t n);
/* The text of root, which is released in any case. */
BT_MUST_CHECK bt_status bt_json_finish(bt_json_out *out, json_t *root, char **ret_json, bt_error *err);

/* ---- reading ---------------------------------------------------------------------------------------------------- */

typedef struct bt_json_in {
    bt_error *err;
    bt_status status;  /* of the first failure */
    bool all_required; /* a missing member is a failure; else it leaves *ret as it was */
    char path[96];     /* of the object now read, with its dot: "pools[0]." */
} bt_json_in;

/* NULL after a failure; else to release with json_decref. Sets status. */
json_t *bt_json_parse(bt_json_in *in, const char *json, size_t n_bytes);
/* From now on members are named "path.key"; an empty format: the root. */
void bt_json_at(bt_json_in *in, const char *fmt, ...) BT_PRINTF(2, 3);
/* Fail: member key is not what is wanted ("a number from 0 to 3"). */
void bt_json_wrong(bt_json_in *in, const char *key, const char *wanted);
bool bt_json_is_null(const json_t *object, const char *key); /* there, and null */

const json_t *bt_json_object(bt_json_in *in, const json_t *parent, const char *key); /* NULL if missing or null */
const json_t *bt_json_array(bt_json_in *in, const json_t *parent, const char *key, size_t n_max);
const json_t *bt_json_item(bt_json_in *in, const json_t *array, size_t i); /* an object */
/* The value of a member was read into *ret (false: it was missing, null where that is allowed, or wrong). */
bool bt_json_u64(bt_json_in *in, const json_t *object, const char *key, uint64_t *ret);
bool bt_json_limit(bt_json_in *in, const json_t *object, const char *key, uint64_t *ret); /* null: UINT64_MAX */
bool bt_json_known(bt_json_in *in, const json_t *object, const char *key, bt_known *ret); /* null: unknown */
bool bt_json_u32(bt_json_in *in, const json_t *object, const char *key, uint32_t max, uint32_t *ret);
bool bt_json_u32_or_0(bt_json_in *in, const json_t *object, const char *key, uint32_t max, uint32_t *ret); /* null: 0 */
bool bt_json_bool(bt_json_in *in, const json_t *object, const char *key, bool *ret);
bool bt_json_micro(bt_json_in *in, const json_t *object, const char *key, bt_known *ret); /* number x 1e6 */
/* null: "". Longer than the buffer is a failure. */
bool bt_json_text(bt_json_in *in, const json_t *object, const char *key, char *ret, size_t capacity);
/* Index in names; NULL names have no text and are skipped. */
bool bt_json_choice(bt_json_in *in, const json_t *object, const char *key, const char *const *names, size_t n,
                    uint32_t *ret);

/* ---- words shared by writers and readers ------------------------------------------------------------------------ */

#define BT_JSON_SCHEMA 1 /* docs/interfaces.md */

extern const char *const bt_pool_kind_names[5];
extern const char *const bt_pool_state_names[4];
extern const char *const bt_choice_names[3];
extern const char *const bt_speculate_names[4];
extern const char *const bt_io_names[3];
extern const char *const bt_policy_names[2];
extern const char *const bt_rope_scaling_names[4];
extern const char *const bt_budget_kind_names[3];
extern const char *const bt_place_names[3];
extern const char *const bt_disk_kind_names[5];
extern const char *const bt_bound_names[3];
extern const char *const bt_rung_names[BT_RUNG_COUNT];
const char *bt_engine_version(void); /* of bt_report_init; NULL if none */
/* Of a wished KV type: "auto" too. */
const char *bt_wish_type_name(uint32_t type);
/* KV bytes of one token over all blocks; false when the architecture's KV is not known. */
bool bt_kv_token_bytes(const bt_facts *facts, uint32_t type_k, uint32_t type_v, uint64_t *ret);
/* Weight bytes that computing one token reads: all but tables, and of the experts those used. */
uint64_t bt_working_bytes(const bt_facts *facts);
/* machine.json and facts.json, also as members of report.json. */
/* kind, name, depth, request_bytes: of machine.json's disk and of plan.json's stream.disk. */
void bt_json_put_disk(bt_json_out *out, json_t *object, const bt_disk *disk);
json_t *bt_machine_to_json(bt_json_out *out, const bt_machine *machine);
json_t *bt_facts_to_json(bt_json_out *out, const bt_facts *facts);
/* The measured member of --stats. */
void bt_measured_to_json(bt_json_out *out, json_t *root, const bt_plan *plan, const bt_measured *measured);
/* The layouts member of a plan, and of what was measured. */
void bt_layouts_to_json(bt_json_out *out, json_t *root, const bt_layouts *layouts);
/* What a plan says of devices (offload.c): wishes, the member offload, a pool; and back. */
void bt_device_wishes_to_json(bt_json_out *out, json_t *w, const bt_wishes *wishes);
void bt_device_wishes_from_json(bt_json_in *in, const json_t *w, bt_wishes *wishes);
void bt_offload_to_json(bt_json_out *out, json_t *root, const bt_offload *offload);
void bt_offload_from_json(bt_json_in *in, const json_t *root, struct bt_arena *arena, const bt_offload **ret);
void bt_device_pool_to_json(bt_json_out *out, json_t *pools, const bt_device_plan *device);
/* The fingerprint member of plan.json and bench.json. */
void bt_fingerprint_to_json(bt_json_out *out, json_t *root, const bt_facts *facts, const bt_machine *machine);
/* The plan member, for plan.json and --stats alike; NULL when memory was refused. */
json_t *bt_plan_to_json(bt_json_out *out, const bt_plan *plan, const bt_facts *facts, const bt_machine *machine);
