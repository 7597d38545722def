/* SPDX-License-Identifier: MIT
 * cmd_devices.c: `burthen devices`: the machine as it is now, or as a machine.json says; --json prints what --machine
 * reads. --disk measures one. */
#include "base/error.h"
#include "base/heap.h"
#include "cli/commands.h"
#include "cli/disk_measure.h"
#include "cli/planning.h"
#include "report/report.h"

#include <string.h>

#define REPORT_MAX_BYTES (1u << 20) /* 16 pools and 32 cgroup levels, with room */

static int print_machine(const bt_cli_options *options, const bt_machine *machine) {
    bt_error err = {0};
    int code = 0;
    if (options->json) {
        char *json = NULL;
        bt_status status = bt_report_machine_json(machine, &json, &err);
        code = status == BT_OK ? bt_cli_print_bytes(json, strlen(json)) : bt_cli_fail(&err);
        bt_heap_free(json);
    } else {
        bt_text text;
        bt_text_init(&text, REPORT_MAX_BYTES);
        bt_report_machine_text(machine, &text);
        code = bt_cli_print(&text);
        bt_text_done(&text);
    }
    return code;
}

int bt_cmd_devices(const bt_cli_options *options, bt_option_result *args) {
    (void)args;
    bt_error err = {0};
    bt_machine *machine = bt_heap_alloc(sizeof *machine); /* too large for the stack */
    if (!machine) {
        (void)bt_fail(&err, BT_E_NOMEM, "devices", BT_MEASURE_NONE, 0, 0, "no memory to look at the machine");
        return bt_cli_fail(&err);
    }
    int code = 0;
    bt_status status = bt_planning_all_pools(options, machine, &err);
    if (status == BT_OK && options->disk_path) status = bt_cli_disk_measure(options->disk_path, machine, &err);
    if (status == BT_OK) {
        code = print_machine(options, machine);
    } else {
        code = bt_cli_fail(&err);
    }
    bt_heap_free(machine);
    return code;
}
