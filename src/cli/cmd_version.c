/* SPDX-License-Identifier: MIT
 * cmd_version.c: `burthen version`: what this program was made of, for a report that somebody else reads. */
#include "cli/commands.h"
#include "cli/json.h"

#include <string.h>
#include <sys/utsname.h>

#define VERSION_MAX_BYTES 4096u

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* What a build may have or not. */
static const char *const features[] = {
#if defined(BT_HAVE_LIBEDIT)
    "line editing",
#endif
#if defined(BT_FAULT)
    "fault injection",
#endif
#if defined(__SANITIZE_ADDRESS__)
    "address sanitizer",
#endif
#if defined(__SANITIZE_THREAD__)
    "thread sanitizer",
#endif
#if !defined(NDEBUG)
    "assertions",
#endif
    NULL};

static int print_json(const char *engine, const char *system) {
    bt_json_out out;
    json_t *root = bt_cli_json_begin(&out);
    bt_json_put_text(&out, root, "llama_cpp", engine);
    bt_json_put_text(&out, root, "compiler", COMPILER);
    bt_json_put_text(&out, root, "system", system);
    json_t *list = bt_json_put_array(&out, root, "features");
    for (size_t i = 0; features[i]; i++)
        bt_json_add_text(&out, list, features[i], strlen(features[i]));
    return bt_cli_json_end(&out, root);
}

int bt_cmd_version(const bt_cli_options *options, bt_option_result *args) {
    (void)args;
    const char *engine = bt_cmd_engine_version();
    struct utsname host;
    char system[2 * sizeof host.sysname] = "unknown";
    if (uname(&host) == 0) (void)snprintf(system, sizeof system, "%s %s", host.sysname, host.machine);
    if (options->json) return print_json(engine, system);
    bt_text text;
    bt_text_init(&text, VERSION_MAX_BYTES);
    bt_text_addf(&text, "burthen %s\nllama.cpp %s\ncompiler %s\nsystem %s\nfeatures ", BT_VERSION,
                 engine ? engine : "none", COMPILER, system);
    for (size_t i = 0; features[i]; i++)
        bt_text_addf(&text, "%s%s", i ? ", " : "", features[i]);
    bt_text_add(&text, features[0] ? "\n" : "none\n");
    int code = bt_cli_print(&text);
    bt_text_done(&text);
    return code;
}
