/* SPDX-License-Identifier: MIT
 * cmd_inspect.c: `burthen inspect MODEL`: the facts of a model file, from its header alone. */
#include "base/heap.h"
#include "cli/commands.h"
#include "report/report.h"

#include <string.h>

#define REPORT_MAX_BYTES (1u << 20) /* one screen, with room for long names */

int bt_cmd_inspect(const bt_cli_options *options, bt_option_result *args) {
    bt_error err = {0};
    bt_facts *facts = NULL;
    if (bt_facts_open(args->args[0], &facts, &err) != BT_OK) return bt_cli_fail_model(&err, args->args[0]);
    int code = 0;
    if (options->json) {
        char *json = NULL;
        bt_status status = bt_report_facts_json(facts, &json, &err);
        code = status == BT_OK ? bt_cli_print_bytes(json, strlen(json)) : bt_cli_fail(&err);
        bt_heap_free(json);
    } else {
        bt_text text;
        bt_text_init(&text, REPORT_MAX_BYTES);
        bt_report_facts_text(facts, &text);
        code = bt_cli_print(&text);
        bt_text_done(&text);
    }
    bt_facts_close(facts);
    return code;
}
