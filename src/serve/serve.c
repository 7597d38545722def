/* SPDX-License-Identifier: MIT
 *
 * serve.c: the program burthen-serve: from argv to a configuration, and the router.
 *
 *   CONFIG.yaml, files and folders of models, options -> bt_config -> bt_router_run
 *
 * Options win over the file, which stands in place of the user's settings; both are read again for a reload. What is
 * said goes to standard error, a line each, and the address to standard output once it listens, so that a script that
 * asked for port 0 can read it. Variables that are twins of options are taken out of the environment, and the user's
 * settings with them: children are started through `burthen exec`, which would take them for its own. */
#include "base/arena.h"
#include "base/beside.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/library_path.h"
#include "base/log.h"
#include "base/size.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/logs.h"
#include "cli/settings.h"
#include "cli/variables.h"
#include "report/report.h"
#include "router/pools.h"
#include "router/router.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_BAD_FILE  4          /* docs/interfaces.md */
#define TEXT_MAX_BYTES (4u << 20) /* of what --check-config prints */

typedef struct serving {
    bt_cli_options options;
    bt_option_result args;
    bt_settings *settings; /* that options point into; NULL: none */
    char *const *more;     /* after "--": more words for llama-server; NULL at the end */
    const char *file;      /* the configuration's; NULL: none */
    bt_config_notes notes; /* of the last reading */
    const char *bad_model; /* the argument that cannot be found; NULL: none */
    char burthen[PATH_MAX], llama_server[PATH_MAX];
} serving;

/* A program by its path, or by its name in PATH. */
static bool is_there(const char *program) {
    const char *folders = getenv("PATH");
    char path[PATH_MAX];
    if (strchr(program, '/')) return access(program, X_OK) == 0;
    while (folders && *folders) {
        size_t n = strcspn(folders, ":");
        int length = snprintf(path, sizeof path, "%.*s/%s", (int)n, folders, program);
        if (length > 0 && (size_t)length < sizeof path && access(path, X_OK) == 0) return true;
        folders += n;
        folders += *folders == ':' ? 1 : 0;
    }
    return false;
}

/* ---- the configuration ---- */

static bool is_yaml(const char *path) {
    return bt_ends_with(path, ".yaml") || bt_ends_with(path, ".yml");
}

static bt_status add_argument(serving *s, bt_config *config, const char *path, bt_error *err) {
    struct stat found;
    bool added = false;
    if (is_yaml(path)) return BT_OK;
    if (stat(path, &found) != 0) {
        s->bad_model = path;
        return bt_fail_sys(err, errno, "model", "cannot find %s", path);
    }
    if (!S_ISDIR(found.st_mode)) return bt_config_add_file(config, path, s->more, &added, err);
    if (config->models_dir && strcmp(config->models_dir, path) != 0)
        return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0, "one folder of models, not both %s and %s",
                       config->models_dir, path);
    config->models_dir = path;
    return BT_OK;
}

static void apply_options(const serving *s, bt_config *config) {
    const bt_cli_options *options = &s->options;
    if (options->serve_listen) config->listen = options->serve_listen;
    if (options->tls_cert_file) config->tls_cert = options->tls_cert_file;
    if (options->tls_key_file) config->tls_key = options->tls_key_file;
    if (options->models_dir) config->models_dir = options->models_dir;
    if (options->llama_server) config->llama_server = options->llama_server;
    if (options->insecure) config->insecure = true;
    if (options->verbose) config->log_children = true;
    if (options->min_gpu_fraction != 0.0) config->min_gpu_fraction = options->min_gpu_fraction;
    if (options->api_key) {
        config->api_keys = &options->api_key;
        config->n_api_keys = 1;
    }
    if (options->budget_given) {
        config->ram_budget_given = options->wishes.budget_kind == BT_BUDGET_BYTES;
        config->ram_budget_bytes = options->wishes.budget_bytes;
    }
    if (!config->llama_server && s->llama_server[0]) config->llama_server = s->llama_server;
}

/* Beside those of the file: a proxy's name is added, not put in the place of others. */
static bt_status apply_hosts(const serving *s, bt_config *config, bt_error *err) {
    uint32_t n = s->options.n_allowed_hosts;
    if (n == 0) return BT_OK;
    const char **hosts = bt_arena_array(config->arena, (uint64_t)config->n_allowed_hosts + n, sizeof *hosts);
    if (!hosts) return bt_fail_sys(err, ENOMEM, "config", "no memory for the allowed hosts");
    for (uint32_t i = 0; i < config->n_allowed_hosts; i++)
        hosts[i] = config->allowed_hosts[i];
    for (uint32_t i = 0; i < n; i++)
        hosts[config->n_allowed_hosts + i] = s->options.allowed_hosts[i];
    config->allowed_hosts = hosts;
    config->n_allowed_hosts += n;
    return BT_OK;
}

static bt_status apply_devices(const serving *s, bt_config *config, bt_error *err) {
    const bt_wishes *wishes = &s->options.wishes;
    if (wishes->n_devices == 0) return BT_OK;
    bt_config_device *devices = bt_arena_array(config->arena, wishes->n_devices, sizeof *devices);
    if (!devices) return bt_fail_sys(err, ENOMEM, "config", "no memory for the devices");
    for (uint32_t i = 0; i < wishes->n_devices; i++)
        devices[i] =
            (bt_config_device){.name = wishes->devices[i].name, .budget_bytes = wishes->devices[i].budget_bytes};
    config->devices = devices;
    config->n_devices = wishes->n_devices;
    return BT_OK;
}

/* Words behind -- that would undo the router's own, or that nobody would be given. */
static bt_status check_more(const serving *s, const bt_config *config, bt_error *err) {
    const char *taken = s->more ? bt_config_taken_word(s->more) : NULL;
    bool takes = config->models_dir != NULL;
    if (taken)
        return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0,
                       "%.40s behind -- is what the router itself says to each llama-server%s", taken,
                       strcmp(taken, "--port") == 0 || strcmp(taken, "--host") == 0 ? "; its own address is --listen"
                                                                                    : "");
    for (uint32_t i = 0; i < s->args.n_args; i++)
        takes = takes || !is_yaml(s->args.args[i]);
    if (!s->more || takes) return BT_OK;
    return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0,
                   "what follows -- goes to files and folders of models that are named here, and none is: models of a "
                   "configuration have args");
}

/* A budget that has nothing for models is a slip of the pen: it would refuse them all. */
static bt_status check_budget(const bt_config *config, bt_error *err) {
    uint64_t own_bytes = bt_pools_own_bytes(config);
    if (!config->ram_budget_given || config->ram_budget_bytes > own_bytes) return BT_OK;
    return bt_fail(
        err, BT_E_BUDGET, "ram_budget", BT_MEASURE_BYTES, own_bytes, config->ram_budget_bytes,
        "a RAM budget of %s leaves nothing for models: the router and the bodies of requests (limits.bodies) "
        "take %s of it",
        BT_SIZE(config->ram_budget_bytes), BT_SIZE(own_bytes));
}

static bt_status check_models(const serving *s, const bt_config *config, bt_error *err) {
    if (config->n_models > 0 || config->n_peers > 0) return BT_OK;
    if (config->models_dir)
        return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0,
                       "there is no model: no GGUF file is in %s or in the folders below it", config->models_dir);
    if (s->file)
        return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0,
                       "there is no model: %s has no models, models_dir or peers", s->file);
    return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0,
                   "there is no model: name GGUF files, a folder of them, or a configuration");
}

static bt_status compose(serving *s, bt_config *config, bt_error *err) {
    apply_options(s, config);
    BT_TRY(check_budget(config, err));
    BT_TRY(check_more(s, config, err));
    BT_TRY(apply_devices(s, config, err));
    BT_TRY(apply_hosts(s, config, err));
    for (uint32_t i = 0; i < s->args.n_args; i++)
        BT_TRY(add_argument(s, config, s->args.args[i], err));
    if (config->models_dir) BT_TRY(bt_config_discover(config, s->more, &s->notes, err));
    return check_models(s, config, err);
}

/* A file may come yet, as from a download: no error, but seen before a client finds out. */
static void note_missing(serving *s, const bt_config *config) {
    bt_config_notes *notes = &s->notes;
    for (uint32_t i = 0; i < config->n_models; i++) {
        const bt_config_model *model = &config->models[i];
        if (!model->model || access(model->model, F_OK) == 0) continue;
        if (notes->n == BT_CONFIG_NOTES_MAX) {
            notes->n_left_out++;
            continue;
        }
        bt_config_note *note = &notes->items[notes->n++];
        note->line = model->line;
        (void)snprintf(note->text, sizeof note->text, "model: %.150s is not there", model->model);
    }
}

static bt_status load(void *user, bt_config **ret, bt_error *err) {
    serving *s = user;
    bt_config *config = NULL;
    s->notes = (bt_config_notes){0};
    if (s->file)
        BT_TRY(bt_config_load(s->file, &config, &s->notes, err));
    else
        BT_TRY(bt_config_new(&config, err));
    bt_status status = compose(s, config, err);
    if (status != BT_OK) {
        bt_config_close(config);
        return status;
    }
    note_missing(s, config);
    *ret = config;
    return BT_OK;
}

/* Said before the first request finds out. */
static void warn_of_program(const bt_config *config) {
    bool needed = false;
    for (uint32_t i = 0; i < config->n_models; i++)
        needed = needed || config->models[i].model;
    const char *program = config->llama_server ? config->llama_server : "llama-server";
    if (needed && !is_there(program))
        bt_log_say("note: %s is not there, and no model file can be served without it: make llama-server builds one, "
                   "--llama-server names another",
                   program);
}

/* The exit code of a configuration that cannot be had: of a file that is not there as of one that is no model, or no
 * configuration. */
static int fail(const serving *s, const bt_error *err) {
    if (s->bad_model) return bt_cli_fail_model(err, s->bad_model);
    int code = bt_cli_fail(err);
    return s->file && err->status == BT_E_IO ? EXIT_BAD_FILE : code;
}

static int check_config(serving *s) {
    bt_error err = {0};
    bt_config *config = NULL;
    bt_text text;
    if (load(s, &config, &err) != BT_OK) return fail(s, &err);
    bt_text_init(&text, TEXT_MAX_BYTES);
    bt_config_text(config, &s->notes, &text);
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    bt_config_close(config);
    return code;
}

/* ---- the programs ---- */

/* llama-server as it comes with this program, or as this project's build made it; else the name, for PATH. */
static void find_programs(serving *s) {
    static const char *const places[] = {"llama-server", "../llama.cpp/build/bin/llama-server"};
    if (!bt_beside_find("burthen", X_OK, s->burthen, sizeof s->burthen))
        (void)snprintf(s->burthen, sizeof s->burthen, "burthen");
    for (size_t i = 0; i < sizeof places / sizeof *places && !s->llama_server[0]; i++)
        if (!bt_beside_find(places[i], X_OK, s->llama_server, sizeof s->llama_server)) s->llama_server[0] = '\0';
}

/* BURTHEN_RAM_BUDGET and the like; the state folder's and the log's variables are no options, and stay. */
static void clear_twins(void) {
    char name[96];
    for (size_t i = 0; i < bt_cli_option_count; i++) {
        bt_option_twin(&bt_cli_option_table[i], name, sizeof name);
        (void)unsetenv(name);
    }
    (void)setenv("BURTHEN_CONFIG", "", 1); /* none */
}

/* ---- what is said ---- */

/* The line of the log says it too: whoever sees that on the same terminal need not be told twice. */
static bool sees_log(const serving *s) {
    bool wants = bt_log_wanted(BT_LOG_INFO) && !s->options.log_file && !s->options.log_json;
    return wants && isatty(STDOUT_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
}

static void on_ready(void *user, const char *address) {
    if (sees_log(user)) return;
    (void)printf("%s\n", address);
    (void)fflush(stdout);
}

/* Where there is no file or line, as of a folder's files, none is named. */
static void say_notes(const serving *s) {
    for (uint32_t i = 0; i < s->notes.n; i++) {
        const bt_config_note *note = &s->notes.items[i];
        if (s->file && note->line > 0)
            bt_log_say("note: %s:%u: %s", s->file, note->line, note->text);
        else
            bt_log_say("note: %s", note->text);
    }
}

static void on_hangup(void *user) {
    bt_error why = {0};
    (void)user;
    if (bt_cli_log_reopen(&why) != BT_OK) bt_log_error(BT_LOG_WARN, &why);
}

/* Who reads standard error slowly, or has stopped, loses lines: all requests would wait for him. */
static bt_status open_log(const serving *s, bt_error *err) {
    const bt_cli_log_ask ask = {.component = "serve", .usual = BT_LOG_INFO, .verbose = BT_LOG_DEBUG};
    return bt_cli_log_open(&s->options, &ask, err);
}

static int serve(serving *s) {
    bt_error err = {0};
    bt_config *config = NULL;
    if (open_log(s, &err) != BT_OK) return bt_cli_fail(&err);
    bt_variables_warn();
    bt_variables_remove_misspelt(); /* else each child would say it again */
    if (load(s, &config, &err) != BT_OK) return fail(s, &err);
    if (bt_pools_check_named(config, s->options.root, &err) != BT_OK) {
        bt_config_close(config);
        return bt_cli_fail(&err);
    }
    say_notes(s);
    warn_of_program(config);
    const bt_router_ask ask = {.config = config,
                               .reload = load,
                               .watch_file = s->file,
                               .burthen = s->burthen,
                               .root = s->options.root,
                               .on_ready = on_ready,
                               .on_hangup = on_hangup,
                               .user = s};
    if (bt_router_run(&ask, &err) != BT_OK) return bt_cli_fail(&err);
    (void)bt_cli_log_close(&err); /* lines that were lost were counted in the log; the router's work is done */
    return 0;
}

/* Options, and the configuration among the arguments. A configuration says all that there is to say: it stands in place
 * of the user's settings, which were not made for it. */
static bt_status take_arguments(serving *s, int argc, char **argv, bt_error *err) {
    BT_TRY(bt_settings_open(NULL, &s->settings, err));
    const bt_option_file file = bt_settings_layer(s->settings, BT_CLI_SERVE);
    BT_TRY(bt_cli_options_parse(BT_CLI_SERVE, argc - 1, argv + 1, NULL, &file, &s->options, &s->args, err));
    for (uint32_t i = 0; i < s->args.n_args; i++) {
        if (!is_yaml(s->args.args[i])) continue;
        if (s->file)
            return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0, "one configuration, not both %s and %s",
                           s->file, s->args.args[i]);
        s->file = s->args.args[i];
    }
    if (!s->file) return BT_OK;
    return bt_cli_options_parse(BT_CLI_SERVE, argc - 1, argv + 1, NULL, NULL, &s->options, &s->args, err);
}

static int run(serving *s, int argc, char **argv) {
    bt_error err = {0};
    if (take_arguments(s, argc, argv, &err) != BT_OK) return bt_cli_fail(&err);
    if (s->args.rest > 0) s->more = argv + 1 + s->args.rest;
    clear_twins();
    find_programs(s);
    return s->options.check_config ? check_config(s) : serve(s);
}

int main(int argc, char **argv) {
    serving *s = bt_heap_alloc(sizeof *s);
    const char **args = bt_heap_array((size_t)argc + 1, sizeof *args);
    (void)signal(SIGXFSZ, SIG_IGN);
    bt_report_init(NULL);
    int code = 1;
    bt_error err = {0};
    if (bt_library_path_clean(&err) != BT_OK) {
        code = bt_cli_fail(&err);
    } else if (s && args) {
        s->args = (bt_option_result){.args = args, .max_args = (uint32_t)argc};
        code = run(s, argc, argv);
    }
    if (s) bt_settings_close(s->settings);
    bt_heap_free(args);
    bt_heap_free(s);
    return code;
}
