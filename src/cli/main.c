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
#include "cli/settings.h"
#include "cli/variables.h"
#include "cli/verbs.h"
#include "report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

static const struct {
    bt_cli_command bit;
    bt_cmd *call;
} calls[] = {
    {BT_CLI_PLAN, bt_cmd_plan},       {BT_CLI_RUN, bt_cmd_run},
    {BT_CLI_BENCH, bt_cmd_bench},     {BT_CLI_PERPLEXITY, bt_cmd_perplexity},
    {BT_CLI_INSPECT, bt_cmd_inspect}, {BT_CLI_DEVICES, bt_cmd_devices},
    {BT_CLI_REPORT, bt_cmd_report},   {BT_CLI_EXEC, bt_cmd_exec},
    {BT_CLI_SERVE, bt_cmd_serve},     {BT_CLI_WORKER, bt_cmd_worker},
    {BT_CLI_CACHE, bt_cmd_cache},     {BT_CLI_COMPLETION, bt_cmd_completion},
    {BT_CLI_VERSION, bt_cmd_version}, {BT_CLI_HELP, bt_cmd_help},
};

static bt_cmd *call_of(bt_cli_command bit) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (calls[i].bit == bit) return calls[i].call;
    }
    return bt_cmd_help; /* not reached: a row of bt_verbs has one here (tests/cli/test_docs.py) */
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
    bt_verb_help(command, bt_cli_help_columns(), &text);
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    return code;
}

/* burthen-serve says it for itself; what a shell asks for is for it alone. */
static bool wants_variables(bt_cli_command bit) {
    return (bit & (BT_CLI_HELP | BT_CLI_VERSION | BT_CLI_COMPLETION | BT_CLI_SERVE)) == 0;
}

static int call(const bt_verb *command, bt_cli_options *options, bt_option_result *args) {
    options->command = command->name;
    bt_error err = {0};
    const bt_cli_log_ask log = {
        .component = command->name, .usual = BT_LOG_WARN, .verbose = BT_LOG_INFO, .waits = true};
    if (check_arguments(command, args, &err) != BT_OK) return bt_cli_fail(&err);
    /* burthen-serve opens it anew, and for itself */
    if (command->bit != BT_CLI_SERVE && bt_cli_log_open(options, &log, &err) != BT_OK) return bt_cli_fail(&err);
    if (wants_variables(command->bit) && !options->bench_step) bt_variables_warn();
    int code = call_of(command->bit)(options, args);
    if (bt_cli_log_close(&err) != BT_OK && code == 0) code = bt_cli_fail(&err);
    return code;
}

/* What options do not change needs no settings, and is there to help where they are wrong. */
static bool wants_settings(bt_cli_command bit) {
    return (bit & (BT_CLI_HELP | BT_CLI_VERSION | BT_CLI_COMPLETION | BT_CLI_CACHE)) == 0;
}

/* --help is answered also where the settings are wrong. */
static bt_status parse_all(const bt_verb *command, int argc, char *const *argv, bt_settings **ret_settings,
                           bt_cli_options *options, bt_option_result *args, bt_error *err) {
    bt_error why = {0};
    bt_status opened = wants_settings(command->bit) ? bt_settings_open(NULL, ret_settings, &why) : BT_OK;
    const bt_option_file file = bt_settings_layer(*ret_settings, command->bit);
    BT_TRY(bt_cli_options_parse(command->bit, argc, argv, NULL, &file, options, args, err));
    if (opened != BT_OK && !options->help) {
        *err = why;
        return opened;
    }
    return BT_OK;
}

/* argv after the command's name */
static int run_command(const bt_verb *command, int argc, char *const *argv) {
    bt_error err = {0};
    bt_cli_options options;
    bt_settings *settings = NULL;
    bt_option_result args = {.max_args = (uint32_t)argc};
    args.args = bt_heap_array((size_t)argc + 1, sizeof *args.args);
    if (!args.args) {
        (void)bt_fail(&err, BT_E_NOMEM, "arguments", BT_MEASURE_NONE, 0, 0, "no memory for the arguments");
        return bt_cli_fail(&err);
    }
    int code = 0;
    if (parse_all(command, argc, argv, &settings, &options, &args, &err) != BT_OK) {
        code = bt_cli_fail(&err);
        if (command->bit == BT_CLI_SERVE && strcmp(err.code, "option") == 0)
            (void)fputs("burthen: options of llama-server stand behind --: burthen serve FOLDER -- -c 4096\n", stderr);
        if (command->bit == BT_CLI_EXEC && strcmp(err.code, "option") == 0 && args.n_args > 0 && args.rest == 0)
            (void)fputs("burthen: the command and its options stand behind --: burthen exec -- llama-server -m FILE\n",
                        stderr);
    } else if (options.help) {
        code = print_help(command);
    } else {
        for (int i = args.rest; i > 0 && i < argc && args.n_args < args.max_args; i++) {
            args.args[args.n_args++] = argv[i]; /* after "--" all are arguments */
        }
        code = call(command, &options, &args);
    }
    bt_settings_close(settings);
    bt_heap_free(args.args);
    return code;
}

static int print_invitation(void) {
    static const char text[] = "burthen " BT_VERSION ": local language models within a memory budget\n"
                               "  burthen plan MODEL    what a model needs here, what fits, what streams\n"
                               "  burthen run MODEL     talk with it, within the budget\n"
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
