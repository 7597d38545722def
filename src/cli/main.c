/* SPDX-License-Identifier: MIT
 * main.c: from argv to a command.
 *
 *   argv -> command (table) -> options (table) -> arguments counted -> log opened -> call -> exit code
 *
 * Here, once, the JSON library's memory is led through base/heap.h (bt_report_init). Nothing else is set up for all
 * commands: what a command needs, it opens. No locale is set (but what a
 * character is, where lines are edited), so that numbers look the same everywhere. */
#include "base/error.h"
#include "base/heap.h"
#include "base/library_path.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/logs.h"
#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

const bt_verb bt_verbs[] = {
    {"plan", bt_cmd_plan, BT_CLI_PLAN, "MODEL", 1, 1, "what a model needs, what fits, what streams; loads nothing"},
    {"run", bt_cmd_run, BT_CLI_RUN, "MODEL", 1, 1, "generate text within the budget"},
    {"bench", bt_cmd_bench, BT_CLI_BENCH, "MODEL", 1, 1, "tokens a second, what is read and what bounds it"},
    {"perplexity", bt_cmd_perplexity, BT_CLI_PERPLEXITY, "MODEL", 1, 1, "perplexity of a text, as llama-perplexity"},
    {"inspect", bt_cmd_inspect, BT_CLI_INSPECT, "MODEL", 1, 1, "what stands in a model file"},
    {"devices", bt_cmd_devices, BT_CLI_DEVICES, "", 0, 0, "the memory of this machine"},
    {"report", bt_cmd_report, BT_CLI_REPORT, "MODEL", 1, 1, "one JSON for a bug report; says nothing of who and where"},
    {"exec", bt_cmd_exec, BT_CLI_EXEC, "-- COMMAND ARGS...", 1, UINT32_MAX,
     "start a llama.cpp program so that it fits what devices have free"},
    {"serve", bt_cmd_serve, BT_CLI_SERVE, "[CONFIG.yaml | MODEL...]", 0, UINT32_MAX,
     "many models behind one address, within the memory of one machine"},
    {"worker", bt_cmd_worker, BT_CLI_WORKER, "", 0, 0, "offer this machine's memory and cores to other machines"},
    {"version", bt_cmd_version, BT_CLI_VERSION, "", 0, 0, "versions of burthen and llama.cpp"},
    {"help", bt_cmd_help, BT_CLI_HELP, "[COMMAND]", 0, 1, "this, or the options of a command"},
};
const size_t bt_verb_count = sizeof bt_verbs / sizeof *bt_verbs;

const bt_verb *bt_verb_find(const char *name) {
    for (size_t i = 0; i < bt_verb_count; i++) {
        if (strcmp(bt_verbs[i].name, name) == 0) return &bt_verbs[i];
    }
    return NULL;
}

/* Of docs/interfaces.md, and not in this version: no typing errors. */
static const char *const later_commands[] = {"cache", "completion"};

bt_status bt_verb_unknown(const char *name, bt_error *err) {
    for (size_t i = 0; i < sizeof later_commands / sizeof *later_commands; i++) {
        if (strcmp(name, later_commands[i]) == 0) {
            return bt_fail(err, BT_E_UNSUPPORTED, "unsupported", BT_MEASURE_NONE, 0, 0,
                           "burthen %s is not in this version; burthen help lists what is", name);
        }
    }
    const char *names[sizeof bt_verbs / sizeof *bt_verbs];
    for (size_t i = 0; i < bt_verb_count; i++) {
        names[i] = bt_verbs[i].name;
    }
    const char *nearest = bt_nearest(name, names, bt_verb_count);
    if (nearest) {
        return bt_fail(err, BT_E_ARG, "command", BT_MEASURE_NONE, 0, 0, "unknown command %s; the nearest is %s", name,
                       nearest);
    }
    return bt_fail(err, BT_E_ARG, "command", BT_MEASURE_NONE, 0, 0, "unknown command %s; burthen help lists them",
                   name);
}

/* ---- a command -------------------------------------------------------------------------------------------------- */

static bt_status check_arguments(const bt_verb *command, const bt_option_result *args, bt_error *err) {
    if (args->n_args < command->n_args_min) {
        return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_ITEMS, command->n_args_min, args->n_args,
                       "%s needs %s; burthen help %s says more", command->name, command->args, command->name);
    }
    if (args->n_args > command->n_args_max) {
        return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_ITEMS, command->n_args_max, args->n_args,
                       "%s does not take %s; burthen help %s says more", command->name, args->args[command->n_args_max],
                       command->name);
    }
    return BT_OK;
}

static int print_help(const bt_verb *command) {
    bt_text text;
    bt_text_init(&text, 1u << 20); /* far over the table */
    bt_verb_help(command, &text);
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    return code;
}

static int call(const bt_verb *command, bt_cli_options *options, bt_option_result *args) {
    options->command = command->name;
    bt_error err = {0};
    const bt_cli_log_ask log = {
        .component = command->name, .usual = BT_LOG_WARN, .verbose = BT_LOG_INFO, .waits = true};
    if (check_arguments(command, args, &err) != BT_OK) return bt_cli_fail(&err);
    /* burthen-serve opens it anew, and for itself */
    if (command->bit != BT_CLI_SERVE && bt_cli_log_open(options, &log, &err) != BT_OK) return bt_cli_fail(&err);
    int code = command->call(options, args);
    if (bt_cli_log_close(&err) != BT_OK && code == 0) code = bt_cli_fail(&err);
    return code;
}

/* argv after the command's name */
static int run_command(const bt_verb *command, int argc, char *const *argv) {
    bt_error err = {0};
    bt_cli_options options;
    bt_option_result args = {.max_args = (uint32_t)argc};
    args.args = bt_heap_array((size_t)argc + 1, sizeof *args.args);
    if (!args.args) {
        (void)bt_fail(&err, BT_E_NOMEM, "arguments", BT_MEASURE_NONE, 0, 0, "no memory for the arguments");
        return bt_cli_fail(&err);
    }
    int code = 0;
    if (bt_cli_options_parse(command->bit, argc, argv, NULL, &options, &args, &err) != BT_OK) {
        code = bt_cli_fail(&err);
        if (command->bit == BT_CLI_SERVE && strcmp(err.code, "option") == 0)
            (void)fputs("burthen: options of llama-server stand behind --: burthen serve FOLDER -- -c 4096\n", stderr);
    } else if (options.help) {
        code = print_help(command);
    } else {
        for (int i = args.rest; i > 0 && i < argc && args.n_args < args.max_args; i++) {
            args.args[args.n_args++] = argv[i]; /* after "--" all are arguments */
        }
        code = call(command, &options, &args);
    }
    bt_heap_free(args.args);
    return code;
}

static int print_invitation(void) {
    static const char text[] = "burthen " BT_VERSION ": local language models within a memory budget\n"
                               "  burthen plan MODEL    what a model needs here, what fits, what streams\n"
                               "  burthen devices       the memory of this machine; burthen help lists all commands\n";
    return bt_cli_print_bytes(text, sizeof text - 1);
}

/* The three standard descriptors are open from here on: a file opened later that became number 1 would be written to as
 * standard output. What was closed stays of no use: its stand-in fails every read, or every write, as the missing one
 * would have; only what is said on a closed standard error is lost. */
static void hold_standard_files(void) {
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", modes[fd]); /* the lowest free number: fd */
    }
}

int main(int argc, char **argv) {
    hold_standard_files();
    (void)signal(SIGXFSZ, SIG_IGN); /* over RLIMIT_FSIZE a write fails, as on a full disk */
    bt_report_init(bt_cmd_engine_version());
    bt_error err = {0};
    if (bt_library_path_clean(&err) != BT_OK) return bt_cli_fail(&err);
    if (argc < 2) return print_invitation();
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0) name = "version";
    const bt_verb *command = bt_verb_find(name);
    if (!command) {
        (void)bt_verb_unknown(name, &err);
        return bt_cli_fail(&err);
    }
    return run_command(command, argc - 2, argv + 2);
}
