/* SPDX-License-Identifier: MIT
 * json.c: JSON on standard output, as src/report writes it: a member that was refused memory is an answer that failed,
 * never one without that member. */
#include "cli/json.h"

#include "base/heap.h"
#include "cli/commands.h"

#include <string.h>

json_t *bt_cli_json_begin(bt_json_out *out) {
    json_t *root = json_object();
    *out = (bt_json_out){.failed = !root};
    bt_json_put_text(out, root, "burthen", BT_VERSION);
    bt_json_put_u64(out, root, "schema", BT_JSON_SCHEMA);
    return root;
}

int bt_cli_json_end(bt_json_out *out, json_t *root) {
    bt_error err = {0};
    char *json = NULL;
    if (bt_json_finish(out, root, &json, &err) != BT_OK) return bt_cli_fail(&err);
    int code = bt_cli_print_bytes(json, strlen(json));
    bt_heap_free(json);
    return code;
}
