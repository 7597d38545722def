/* SPDX-License-Identifier: MIT
 * activity.h: the last requests: which model, how long, how many tokens. Never what was said. */
#pragma once

#include "router/usage.h"

#define BT_ACTIVITY_KEPT 1000u

typedef struct bt_activity_row {
    uint64_t id;      /* of the request */
    int64_t began_ms; /* Unix time */
    char model[64];   /* cut; empty: none */
    char path[64];
    char outcome[16];                 /* "ok", "error", "cancelled", "refused" */
    uint32_t status;                  /* 0: the client left before an answer */
    uint64_t waited_ms;               /* before it was given to the model */
    uint64_t first_byte_ms, total_ms; /* since it began; 0 of the first: none */
    uint64_t request_bytes, response_bytes;
    bt_usage usage;
    char code[32]; /* of an error; empty */
} bt_activity_row;

typedef struct bt_activity bt_activity;
BT_MUST_CHECK bt_status bt_activity_open(bt_activity **ret, bt_error *err);
void bt_activity_close(bt_activity *activity);
void bt_activity_add(bt_activity *activity, const bt_activity_row *row);
typedef struct bt_activity_filter {
    const char *model;      /* NULL: all; a trailing '*' stands for the rest */
    int64_t from_ms, to_ms; /* 0: open */
    uint64_t after_id;
    uint32_t limit; /* at most; 0: 100 */
} bt_activity_filter;
/* {"rows":[...]}, newest first. */
BT_MUST_CHECK bt_status bt_activity_json(const bt_activity *activity, const bt_activity_filter *filter, char **ret_json,
                                         bt_error *err);
BT_MUST_CHECK bt_status bt_activity_row_json(const bt_activity_row *row, char **ret_json, bt_error *err);
