/* SPDX-License-Identifier: MIT
 * cmd_serve.c: `burthen serve` becomes burthen-serve (src/serve), a program without llama.cpp: a router lives for
 * months beside the servers it starts, and none of their libraries is mapped into it. Same process, same arguments;
 * what they mean was checked here, so that a typing error reads as any other. */
#include "base/beside.h"
#include "base/error.h"
#include "base/heap.h"
#include "cli/commands.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

int bt_cmd_serve(const bt_cli_options *options, bt_option_result *args) {
    char path[PATH_MAX];
    bt_error err = {0};
    (void)args;
    char **argv = bt_heap_array((size_t)options->argc + 2, sizeof *argv);
    if (!argv) {
        (void)bt_fail_sys(&err, ENOMEM, "serve", "cannot start");
        return bt_cli_fail(&err);
    }
    if (!bt_beside_find("burthen-serve", X_OK, path, sizeof path)) {
        (void)bt_fail(&err, BT_E_UNSUPPORTED, "serve", BT_MEASURE_NONE, 0, 0,
                      "burthen-serve, which comes with this program, is not there");
        bt_heap_free(argv);
        return bt_cli_fail(&err);
    }
    argv[0] = path;
    for (int i = 0; i < options->argc; i++)
        argv[i + 1] = options->argv[i];
    (void)execv(path, argv);
    (void)bt_fail_sys(&err, errno, "serve", "cannot start %s", path);
    bt_heap_free(argv);
    return bt_cli_fail(&err);
}
