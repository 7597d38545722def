/* SPDX-License-Identifier: MIT
 * effective_sources.c: what files, the environment and argv say, in the order in which llama.cpp hears it.
 *
 *   /etc/llama.cpp/config.ini, ~/.config/llama.cpp/config.ini     section "*", then "default"; options by their names
 *   LLAMA_ARG_*                                                   options in the order of the table
 *   argv                                                          from left to right
 *
 * The files are read by every llama.cpp program without being named, so a server may have settings that no command line
 * shows. Inside a container they are others, which cannot be seen from here: that is noted, and nothing is assumed. A
 * pair of options has a second variable, LLAMA_ARG_NO_X, which says no whatever its value. */
#include "base/error.h"
#include "guard/config.h"
#include "guard/effective_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* By the option's first spelling, the key of llama.cpp's map of settings. */
static int compare_flags(bt_flag_id a, bt_flag_id b) {
    const char *x = bt_flag_get(a)->spellings;
    const char *y = bt_flag_get(b)->spellings;
    size_t n_x = strcspn(x, " ");
    size_t n_y = strcspn(y, " ");
    int order = memcmp(x, y, n_x < n_y ? n_x : n_y);
    return order != 0 ? order : (n_x > n_y) - (n_x < n_y);
}

static assignment assignment_of(const bt_config_entry *entry, bt_flag_id flag, bool negative, const char *path) {
    assignment a = {.flag = flag, .value = entry->value, .by = {.origin = BT_FROM_FILE, .where = path}};
    bt_flag_kind kind = bt_flag_get(flag)->kind;
    bool on = false;
    if (kind == BT_TAKES_SWITCH) a.value = NULL; /* its handler is called, whatever the value says */
    if (kind != BT_TAKES_PAIR) return a;
    bool truthy = bt_value_on(entry->value, &on) && on; /* anything else is a no */
    a.value = truthy != negative ? "1" : "0";
    return a;
}

/* The keys of a section as assignments, sorted by option, each option once: of two names for it the later key holds. */
static uint32_t gather(settling *s, const bt_config *config, const char *path, assignment *ret) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < config->n; i++) {
        const bt_config_entry *entry = &config->entries[i];
        bool negative;
        bt_flag_id flag = bt_flag_find_key(s->out->program, entry->key, strlen(entry->key), &negative);
        if (flag >= BT_FLAG_COUNT || !bt_flag_is_of(flag, s->out->program)) continue; /* one file for all programs */
        uint32_t at = 0;
        while (at < n && compare_flags(ret[at].flag, flag) < 0)
            at++;
        if (at == n || ret[at].flag != flag) {
            memmove(&ret[at + 1], &ret[at], (n - at) * sizeof *ret);
            n++;
        }
        ret[at] = assignment_of(entry, flag, negative, path);
    }
    return n;
}

static bt_status apply_section(settling *s, const char *text, size_t n_text, const char *section, const char *path) {
    bt_config config;
    BT_TRY(bt_config_section(s->arena, text, n_text, section, &config, s->err));
    if (config.bad_line > 0) {
        s->out->n_bad++;
        bt_effective_note(s, "llama.cpp refuses line %llu of %.120s and does not start",
                          (unsigned long long)config.bad_line, path);
        return BT_OK;
    }
    assignment *list = bt_arena_array(s->arena, (uint64_t)config.n + 1, sizeof *list);
    if (!list) return bt_fail(s->err, BT_E_NOMEM, "arguments", BT_MEASURE_NONE, 0, 0, "no memory for config.ini");
    uint32_t n = gather(s, &config, path, list);
    for (uint32_t i = 0; i < n; i++) {
        if (bt_flag_arity(list[i].flag) > 1)
            bt_effective_bad(s, &list[i]); /* a file cannot hold two values */
        else
            BT_TRY(bt_effective_assign(s, &list[i]));
    }
    return BT_OK;
}

static bt_status apply_file(settling *s, const bt_effective_input *input, const char *path) {
    const char *text = NULL;
    size_t n = 0;
    bt_config_state state = input->read(input->read_context, path, &text, &n);
    if (state == BT_CONFIG_FAILED) bt_effective_note(s, "%.120s is there and cannot be read", path);
    if (state != BT_CONFIG_READ) return BT_OK;
    bt_effective_note(s, "llama.cpp also reads %.120s", path);
    uint32_t n_bad = s->out->n_bad;
    BT_TRY(apply_section(s, text, n, "*", path));
    return s->out->n_bad > n_bad ? BT_OK : apply_section(s, text, n, "default", path);
}

static const char *env_of(const bt_effective_input *input, const char *name) {
    return bt_command_env(input->command, name, input->env, input->env_context);
}

/* fs_get_config_directory() of common/common.cpp; NULL: not known */
static const char *user_file(settling *s, const bt_effective_input *input) {
    static const char name[] = "/llama.cpp/config.ini";
    const char *folder = env_of(input, "XDG_CONFIG_HOME");
    const char *below = "";
    if (!folder || !folder[0]) {
        folder = env_of(input, "HOME");
        below = "/.config";
    }
    if (!folder || !folder[0]) return NULL;
    size_t n = strlen(folder) + strlen(below) + sizeof name;
    char *path = bt_arena_alloc(s->arena, n);
    if (path) (void)snprintf(path, n, "%s%s%s", folder, below, name);
    return path;
}

static bt_status apply_files(settling *s, const bt_effective_input *input) {
    if (input->command->container) {
        bt_effective_note(s, "inside the container: its environment and its config.ini cannot be seen");
        return BT_OK;
    }
    if (!input->read) {
        bt_effective_note(s, "the config.ini of llama.cpp was not read");
        return BT_OK;
    }
    BT_TRY(apply_file(s, input, "/etc/llama.cpp/config.ini"));
    const char *path = user_file(s, input);
    return path ? apply_file(s, input, path) : BT_OK;
}

/* ---- the environment --------------------------------------------------------------------------------------------- */

/* LLAMA_ARG_X -> LLAMA_ARG_NO_X */
static const char *no_variable(settling *s, const char *variable) {
    static const char prefix[] = "LLAMA_ARG_";
    size_t n = strlen(variable) + sizeof "NO_";
    char *name = bt_arena_alloc(s->arena, n);
    if (name) (void)snprintf(name, n, "%sNO_%s", prefix, variable + sizeof prefix - 1);
    return name;
}

static bt_status apply_variable(settling *s, const bt_effective_input *input, bt_flag_id flag) {
    const bt_flag *row = bt_flag_get(flag);
    assignment a = {.flag = flag, .by = {.origin = BT_FROM_ENV, .where = row->variable}};
    if (row->kind == BT_TAKES_PAIR) {
        const char *no = no_variable(s, row->variable);
        if (!no) return bt_fail(s->err, BT_E_NOMEM, "arguments", BT_MEASURE_NONE, 0, 0, "no memory for a variable");
        if (env_of(input, no)) {
            a.value = "0";
            a.by.where = no;
            return bt_effective_assign(s, &a);
        }
    }
    a.value = env_of(input, row->variable);
    if (!a.value) return BT_OK;
    bool on = false;
    if (row->kind == BT_TAKES_SWITCH && !(bt_value_on(a.value, &on) && on)) return BT_OK; /* no error there */
    return bt_effective_assign(s, &a);
}

static bt_status apply_environment(settling *s, const bt_effective_input *input) {
    for (uint32_t i = 0; i < BT_FLAG_COUNT; i++) {
        const bt_flag *row = bt_flag_get((bt_flag_id)i);
        bool earlier = row->programs == 0;
        if (!row->variable || !(earlier || bt_flag_is_of((bt_flag_id)i, s->out->program))) continue;
        BT_TRY(apply_variable(s, input, (bt_flag_id)i));
    }
    return BT_OK;
}

/* ---- argv ------------------------------------------------------------------------------------------------------- */

static void note_argv(settling *s, const bt_argv *argv) {
    if (argv->n_unknown > 0)
        bt_effective_note(s, "options that are not known: %u; each is taken to have one value unless '-' follows",
                          (unsigned)argv->n_unknown);
    if (argv->n_foreign > 0)
        bt_effective_note(s, "options that today's %s does not have: %u", bt_program_name(argv->program),
                          (unsigned)argv->n_foreign);
    if (argv->n_attached > 0)
        bt_effective_note(s, "options written as --name=value: %u; llama.cpp refuses them", (unsigned)argv->n_attached);
    if (argv->n_stray > 0)
        bt_effective_note(s, "words that belong to no option: %u; llama.cpp refuses them", (unsigned)argv->n_stray);
}

/* Is this how only earlier builds take it? Today's refuse it then. */
static bool is_earlier(const bt_occurrence *o) {
    const bt_flag *row = bt_flag_get(o->flag);
    bool bare = row->kind == BT_TAKES_FLASH && !o->value;
    bool two = row->kind == BT_TAKES_SCALED && o->value_2;
    return row->programs == 0 || bare || two;
}

static bt_status apply_argv(settling *s, const bt_argv *argv) {
    note_argv(s, argv);
    for (uint32_t i = 0; i < argv->n_occurrences; i++) {
        const bt_occurrence *o = &argv->occurrences[i];
        if (o->flag >= BT_FLAG_COUNT) continue;
        if (is_earlier(o)) s->out->earlier_build = true;
        assignment a = {.flag = o->flag,
                        .value = o->value,
                        .value_2 = o->value_2,
                        .negative = o->negative,
                        .by = {.origin = BT_FROM_ARGV, .at = o->at}};
        BT_TRY(bt_effective_assign(s, &a));
    }
    return BT_OK;
}

bt_status bt_effective_resolve(bt_arena *arena, const bt_effective_input *input, bt_effective *ret, bt_error *err) {
    settling s = {.arena = arena, .out = ret, .err = err};
    bt_effective_defaults(ret, input->command->program);
    BT_TRY(apply_files(&s, input));
    BT_TRY(apply_environment(&s, input));
    if (input->command->env_unknown) bt_effective_note(&s, "variables may be set that cannot be seen from here");
    BT_TRY(apply_argv(&s, input->argv));
    if (ret->earlier_build) bt_effective_note(&s, "the options are those of an earlier build of llama.cpp");
    bt_effective_derive(ret);
    if (ret->router) bt_effective_note(&s, "a router: each model that it starts has settings of its own");
    return BT_OK;
}
