/* SPDX-License-Identifier: MIT
 * activity.c: the last requests, in a ring.
 *
 * A row is a struct of fixed size: strings are cut where it is made, and nothing in it was said by a person or a model.
 * The ring's memory is taken in blocks as it fills, so that a router that answers nobody stays small, and is never
 * given back: a ring that was full once is full for good. A row that finds no memory for its block is dropped, and the
 * next one asks again.
 *
 * Rows are looked at from the newest back, so what is asked most, the last few, costs the least. `after_id` is for
 * those who come again for what is new.
 *
 * Bound: BT_ACTIVITY_KEPT rows in N_BLOCKS blocks. A text of all of them is under ROW_TEXT_MAX each. Left out: anything
 * that survives the process; who wants history reads /metrics. */
#include "router/activity.h"
#include "base/error.h"
#include "base/heap.h"
#include "router/json_text.h"

#include <string.h>

#define BLOCK_ROWS 50u /* some 16 KiB: what a router that is tried out needs */
#define N_BLOCKS   (BT_ACTIVITY_KEPT / BLOCK_ROWS)
_Static_assert(N_BLOCKS *BLOCK_ROWS == BT_ACTIVITY_KEPT, "whole blocks");
#define LIMIT_DEFAULT 100u
/* Its strings of at most 176 bytes, six bytes for each at worst, 16 numbers of at most 20, and the members' names. */
#define ROW_TEXT_MAX 2048u

struct bt_activity {
    bt_activity_row *blocks[N_BLOCKS]; /* NULL: not needed yet */
    uint64_t n_added;
};

bt_status bt_activity_open(bt_activity **ret, bt_error *err) {
    bt_activity *activity = bt_heap_alloc(sizeof *activity);
    if (!activity) return bt_fail(err, BT_E_NOMEM, "heap", BT_MEASURE_NONE, 0, 0, "no memory for the list of requests");
    *ret = activity;
    return BT_OK;
}

void bt_activity_close(bt_activity *activity) {
    if (!activity) return;
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        bt_heap_free(activity->blocks[i]);
    bt_heap_free(activity);
}

/* A string of a row ends, and not inside a character. */
static void trim(char *text, size_t capacity) {
    size_t n = strnlen(text, capacity - 1);
    if (n == capacity - 1) n = bt_utf8_fit(text, n);
    text[n] = '\0';
}

static void trim_all(bt_activity_row *row) {
    trim(row->model, sizeof row->model);
    trim(row->path, sizeof row->path);
    trim(row->outcome, sizeof row->outcome);
    trim(row->code, sizeof row->code);
}

void bt_activity_add(bt_activity *activity, const bt_activity_row *row) {
    uint32_t slot = (uint32_t)(activity->n_added % BT_ACTIVITY_KEPT);
    bt_activity_row **block = &activity->blocks[slot / BLOCK_ROWS];
    if (!*block) *block = bt_heap_array(BLOCK_ROWS, sizeof **block);
    if (!*block) return;
    bt_activity_row *place = &(*block)[slot % BLOCK_ROWS];
    *place = *row;
    trim_all(place);
    activity->n_added++;
}

/* ---- as JSON ---- */

static void write_row(bt_text *out, const bt_activity_row *row) {
    bt_text_add(out, "{");
    bt_json_text_u64(out, "id", row->id);
    bt_json_text_i64(out, "began_ms", row->began_ms);
    bt_json_text_or_null(out, "model", row->model);
    bt_json_text_or_null(out, "path", row->path);
    bt_json_text_or_null(out, "outcome", row->outcome);
    bt_json_text_known(out, "status", (bt_known){row->status != 0, row->status});
    bt_json_text_or_null(out, "code", row->code);
    bt_json_text_u64(out, "waited_ms", row->waited_ms);
    bt_json_text_known(out, "first_byte_ms", (bt_known){row->first_byte_ms != 0, row->first_byte_ms});
    bt_json_text_u64(out, "total_ms", row->total_ms);
    bt_json_text_u64(out, "request_bytes", row->request_bytes);
    bt_json_text_u64(out, "response_bytes", row->response_bytes);
    bt_json_text_known(out, "prompt_tokens", row->usage.prompt_tokens);
    bt_json_text_known(out, "cached_tokens", row->usage.cached_tokens);
    bt_json_text_known(out, "output_tokens", row->usage.output_tokens);
    bt_json_text_known(out, "draft_tokens", row->usage.draft_tokens);
    bt_json_text_known(out, "accepted_tokens", row->usage.accepted_tokens);
    bt_json_text_rate(out, "prompt_tokens_per_s", row->usage.prompt_per_s);
    bt_json_text_rate(out, "output_tokens_per_s", row->usage.output_per_s);
    bt_text_add(out, "}");
}

/* Names were cut to fit a row, so a longer one is held to what would be left of it. */
static bool name_matches(const char *name, const char *pattern) {
    size_t n = strlen(pattern);
    bool star = n > 0 && pattern[n - 1] == '*';
    if (star) n--;
    size_t most = sizeof((bt_activity_row *)NULL)->model - 1;
    size_t n_cut = n >= most ? bt_utf8_fit(pattern, most) : n;
    return strncmp(name, pattern, n_cut) == 0 && (name[n_cut] == '\0' || star);
}

static bool matches(const bt_activity_row *row, const bt_activity_filter *filter) {
    return row->id > filter->after_id && (filter->from_ms == 0 || row->began_ms >= filter->from_ms) &&
           (filter->to_ms == 0 || row->began_ms <= filter->to_ms) &&
           (!filter->model || name_matches(row->model, filter->model));
}

bt_status bt_activity_json(const bt_activity *activity, const bt_activity_filter *filter, char **ret_json,
                           bt_error *err) {
    static const bt_activity_filter all = {0};
    if (!filter) filter = &all;
    uint32_t left = filter->limit == 0 ? LIMIT_DEFAULT : filter->limit;
    uint64_t kept = activity->n_added < BT_ACTIVITY_KEPT ? activity->n_added : BT_ACTIVITY_KEPT;
    bt_text out;
    bt_text_init(&out, (size_t)BT_ACTIVITY_KEPT * ROW_TEXT_MAX);
    bt_text_add(&out, "{\"rows\":[");
    for (uint64_t i = 1; i <= kept && left > 0 && !out.failed; i++) {
        uint32_t slot = (uint32_t)((activity->n_added - i) % BT_ACTIVITY_KEPT);
        const bt_activity_row *row = &activity->blocks[slot / BLOCK_ROWS][slot % BLOCK_ROWS];
        if (!matches(row, filter)) continue;
        if (out.data && out.data[out.n_bytes - 1] == '}') bt_text_add(&out, ",");
        write_row(&out, row);
        left--;
    }
    bt_text_add(&out, "]}");
    return bt_json_text_finish(&out, ret_json, err);
}

bt_status bt_activity_row_json(const bt_activity_row *row, char **ret_json, bt_error *err) {
    bt_activity_row copy = *row;
    trim_all(&copy);
    bt_text out;
    bt_text_init(&out, ROW_TEXT_MAX);
    write_row(&out, &copy);
    return bt_json_text_finish(&out, ret_json, err);
}
