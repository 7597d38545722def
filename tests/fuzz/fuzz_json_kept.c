/* SPDX-License-Identifier: MIT
 * fuzz_json_kept.c: what is kept of the last run (state file last-run), put into a report for others: whatever it says,
 * the report is JSON, and of the file no more than what a run of this model has. */
#include "fuzz.h"

#include "base/heap.h"
#include "json_check.h"
#include "report_fixture.h"

#include <jansson.h>
#include <stdlib.h>

static report_fixture fixture;

static void start(void) {
    json_start();
    fixture_make(&fixture);
}

static bool one(char *text, size_t n) {
    char *json = NULL;
    (void)n;
    bt_status status = bt_report_share_json(&fixture.plan, &fixture.facts, &fixture.machine, text, &json, NULL);
    FUZZ_CHECK(status == BT_OK);
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    FUZZ_CHECK(root != NULL);
    bool taken = json_is_object(json_object_get(root, "last_run"));
    FUZZ_CHECK(taken || json_is_null(json_object_get(root, "last_run")));
    json_decref(root);
    bt_heap_free(json);
    return taken;
}

const fuzz_target fuzz_here = {.name = "json_kept", .one = one, .start = start, .word = json_word, .n_rounds = 300};
