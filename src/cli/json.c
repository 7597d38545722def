/* SPDX-License-Identifier: MIT
 * json.c: JSON on standard output, indented as src/report prints it. */
#include "cli/json.h"

#include "base/error.h"
#include "base/heap.h"

#include <string.h>

int bt_cli_print_json(json_t *root) {
    char *json = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    bt_text text;
    json_decref(root);
    bt_text_init(&text, SIZE_MAX / 2); /* of what is made from our own tables */
    if (json) {
        bt_text_add(&text, json);
        bt_text_add(&text, "\n");
    } else {
        text.failed = true;
    }
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    bt_heap_free(json); /* the library's memory is ours (bt_report_init) */
    return code;
}
