/* SPDX-License-Identifier: MIT
 * fuzz_json_plan.c: a plan.json: the plan, the fingerprint, the path of its model. */
#include "fuzz.h"

#include "base/arena.h"
#include "json_check.h"
#include "plan/plan.h"

#define ARENA_BYTES (1u << 20) /* places of a million units: more than a sample says */

static void check(const bt_plan *p) {
    FUZZ_CHECK(p->n_pinned <= p->n_units && p->n_streamed <= p->n_units && p->n_slots <= 1024);
    FUZZ_CHECK(bt_ledger_sum(&p->ledger) == p->planned_bytes);
    FUZZ_CHECK(p->refusal.n_changes <= BT_CHANGE_MAX);
    for (uint32_t i = 0; p->place && i < p->n_units; i++)
        FUZZ_CHECK(p->place[i] >= BT_PLACE_PINNED && p->place[i] <= BT_PLACE_ROWS);
}

static bool one(char *text, size_t n) {
    bt_arena *arena = bt_arena_open(ARENA_BYTES, 1u << 12);
    FUZZ_CHECK(arena != NULL);
    bt_plan plan;
    bt_fingerprint print;
    char path[512];
    bt_error err = {0};
    bt_status status = bt_plan_from_json(text, n, arena, &plan, &err);
    if (status == BT_OK)
        check(&plan);
    else
        json_check_refusal(status, &err);
    bt_status of_print = bt_fingerprint_from_json(text, n, &print, &err);
    if (of_print != BT_OK) json_check_refusal(of_print, &err);
    bt_status of_path = bt_plan_model_from_json(text, n, path, sizeof path, &err);
    if (of_path != BT_OK)
        json_check_refusal(of_path, &err);
    else
        FUZZ_CHECK(memchr(path, '\0', sizeof path) != NULL);
    bt_arena_close(arena);
    return status == BT_OK;
}

const fuzz_target fuzz_here = {
    .name = "json_plan", .one = one, .bare = true, .start = json_start, .word = json_word, .n_rounds = 400};
