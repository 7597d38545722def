/* SPDX-License-Identifier: MIT
 * argv_kit.h: command lines for tests, from one string, and what must hold of every one of them whatever it says. The
 * including file defines ARGV_CHECK(condition): an assertion in a test, abort() in a fuzz program. */
#pragma once

#include "base/arena.h"
#include "guard/drop_in_bench.h"
#include "guard/effective.h"
#include "guard/rewrite.h"

#include <string.h>

#define LINE_TEXT_MAX  16384
#define LINE_WORDS_MAX 6000

/* A test whose state is an arena, for those that include cmocka.h. */
static inline int argv_open_arena(void **state) {
    *state = bt_arena_open(UINT64_C(32) << 20, 65536);
    return *state ? 0 : -1;
}

static inline int argv_close_arena(void **state) {
    bt_arena_close(*state);
    return 0;
}

/* Each in turn, of an option that adds up: NULL gives the first, and comes back after the last. */
static inline const bt_occurrence *argv_next(const bt_argv *argv, bt_flag_id flag, const bt_occurrence *after) {
    uint32_t i = after ? (uint32_t)(after - argv->occurrences) + 1 : 0;
    for (; i < argv->n_occurrences; i++)
        if (argv->occurrences[i].flag == flag) return &argv->occurrences[i];
    return NULL;
}

/* A number as the option means it. */
static inline bt_reading argv_int(const bt_argv *argv, bt_flag_id flag, int32_t *ret) {
    const char *text = NULL;
    bt_reading reading = bt_argv_text(argv, flag, &text);
    if (reading != BT_VALUE_GIVEN) return reading;
    bool layers = bt_flag_get(flag)->kind == BT_TAKES_LAYERS;
    return (layers ? bt_value_layers(text, ret) : bt_value_int(text, ret)) ? BT_VALUE_GIVEN : BT_VALUE_BAD;
}

/* A switch, or one of a pair. */
static inline bt_reading argv_on(const bt_argv *argv, bt_flag_id flag, bool *ret) {
    const bt_occurrence *o = bt_argv_last(argv, flag);
    bool on = true;
    if (!o) return BT_VALUE_ABSENT;
    if (o->value && !bt_value_on(o->value, &on)) return BT_VALUE_BAD;
    *ret = on != o->negative;
    return BT_VALUE_GIVEN;
}

static inline const char *origin_name(bt_origin origin) {
    static const char *const names[] = {"default", "file", "environment", "argv", "program"};
    return names[origin];
}

#define WITH_ARENA(test) cmocka_unit_test_setup_teardown(test, argv_open_arena, argv_close_arena)

typedef struct line {
    char text[LINE_TEXT_MAX];
    char *argv[LINE_WORDS_MAX + 1];
    uint32_t n;
} line;

/* Words between single spaces; 'a b' is one word, '' an empty one. */
static inline char *const *line_split(line *l, const char *text) {
    char *to = l->text;
    l->n = 0;
    while (*text) {
        ARGV_CHECK(l->n < LINE_WORDS_MAX && strlen(text) + 2 < (size_t)(l->text + sizeof l->text - to));
        l->argv[l->n++] = to;
        bool quoted = false;
        for (; *text && (quoted || *text != ' '); text++) {
            if (*text == '\'')
                quoted = !quoted;
            else
                *to++ = *text;
        }
        *to++ = '\0';
        if (*text) text++;
    }
    l->argv[l->n] = NULL;
    return l->argv;
}

/* Every element from first on belongs to exactly one occurrence, in order, and each says what stands there. */
static inline void argv_check_cover(const bt_argv *view) {
    uint32_t at = view->first;
    for (uint32_t i = 0; i < view->n_occurrences; i++) {
        const bt_occurrence *o = &view->occurrences[i];
        ARGV_CHECK(o->at == at && o->n >= 1 && o->n <= 3);
        if (o->value && !o->attached) ARGV_CHECK(o->value == view->argv[at + 1]);
        if (o->value_2) ARGV_CHECK(o->value_2 == view->argv[at + 2]);
        if (o->attached) ARGV_CHECK(o->n == 1 && o->value == strchr(view->argv[at], '=') + 1);
        if (o->flag == BT_FLAG_STRAY) ARGV_CHECK(view->argv[at][0] != '-' && !o->value);
        at += o->n;
    }
    ARGV_CHECK(at == view->n_argv);
    ARGV_CHECK(view->argv[view->n_argv] == NULL);
}

/* After an edit every element is where it was, but the one that the edit names; what was added is at the end. */
static inline void argv_check_same(const bt_rewrite *r) {
    ARGV_CHECK(r->n_argv >= r->before->n_argv && r->argv[r->n_argv] == NULL);
    for (uint32_t i = 0; i < r->before->n_argv; i++) {
        bool named = false;
        for (uint32_t e = 0; e < r->n_edits; e++)
            named = named || (!r->edits[e].appended && r->edits[e].at == i);
        if (!named) ARGV_CHECK(r->argv[i] == r->before->argv[i]);
    }
}

/* Write a value, read the result: the value is there, and no other option or word has changed, come or gone. */
static inline void argv_check_rewrite(bt_arena *arena, const bt_argv *view, bt_flag_id flag, const char *value) {
    bt_rewrite r;
    const bt_argv *after;
    ARGV_CHECK(bt_rewrite_open(&r, arena, view, NULL) == BT_OK);
    ARGV_CHECK(r.n_argv == view->n_argv);
    argv_check_same(&r);
    if (bt_rewrite_set(&r, flag, value, NULL) != BT_OK) {
        ARGV_CHECK(r.n_edits == 0 && r.n_argv == view->n_argv);
        argv_check_same(&r);
        return;
    }
    ARGV_CHECK(r.n_edits == 1);
    argv_check_same(&r);
    if (bt_argv_parse(arena, r.argv, view->first, view->program, &after, NULL) != BT_OK) {
        ARGV_CHECK(r.n_argv > BT_ARGV_MAX);
        return;
    }
    const char *text = NULL;
    ARGV_CHECK(bt_argv_text(after, flag, &text) == BT_VALUE_GIVEN && strcmp(text, value) == 0);
    ARGV_CHECK(after->n_occurrences == view->n_occurrences + (r.edits[0].appended ? 1 : 0));
    for (uint32_t i = 0; i < view->n_occurrences; i++) {
        ARGV_CHECK(after->occurrences[i].flag == view->occurrences[i].flag);
        ARGV_CHECK(after->occurrences[i].at == view->occurrences[i].at);
    }
}

/* Write a plan into the line, even one that would be refused: nothing of it is lost, and every option that stood there
 * still does, at its place. */
static inline void argv_check_drop_in(bt_arena *arena, const bt_argv *view, const bt_effective *effective) {
    static const bt_plan plan = {.n_ctx = 2048, .n_batch = 512, .n_ubatch = 64, .type_k = 8, .type_v = 8};
    bt_rewrite r;
    const bt_argv *after;
    ARGV_CHECK(bt_rewrite_open(&r, arena, view, NULL) == BT_OK);
    bt_status status = bt_drop_in_apply(effective, &plan, &r, NULL);
    ARGV_CHECK(status == BT_OK || status == BT_E_ARG || status == BT_E_NOMEM);
    argv_check_same(&r);
    if (bt_argv_parse(arena, r.argv, view->first, view->program, &after, NULL) != BT_OK) return;
    uint32_t n_added = 0;
    for (uint32_t i = 0; i < r.n_edits; i++)
        n_added += r.edits[i].appended ? 1 : 0;
    ARGV_CHECK(after->n_occurrences == view->n_occurrences + n_added);
    for (uint32_t i = 0; i < view->n_occurrences; i++) {
        ARGV_CHECK(after->occurrences[i].flag == view->occurrences[i].flag);
        ARGV_CHECK(after->occurrences[i].at == view->occurrences[i].at);
    }
}

/* The same line as llama-bench would read it: what is taken is taken again once a plan is written into it, and says the
 * same. */
static inline void argv_check_bench(bt_arena *arena, const bt_argv *view) {
    static const bt_plan plan = {.n_ubatch = 32};
    bt_drop_in_bench before, after;
    bt_rewrite r;
    if (bt_drop_in_bench_read(view->argv + view->first, &before, NULL) != BT_OK) return;
    ARGV_CHECK(before.model && before.n_models == 1);
    ARGV_CHECK(bt_rewrite_open(&r, arena, view, NULL) == BT_OK);
    ARGV_CHECK(bt_drop_in_bench_apply(&before, &plan, &r, NULL) == BT_OK);
    argv_check_same(&r);
    ARGV_CHECK(bt_drop_in_bench_read(r.argv + view->first, &after, NULL) == BT_OK);
    ARGV_CHECK(after.model == before.model && after.n_models == 1);
    ARGV_CHECK(after.n_devices > 0 && after.n_tensor_rules > 0 && after.gpu_layers.n > 0);
    ARGV_CHECK(after.load_mode.least == BT_LOAD_NONE && after.load_mode.most == BT_LOAD_NONE);
    ARGV_CHECK(after.lazy_mode.least == BT_LAZY_OFF && after.lazy_mode.n > 0);
    ARGV_CHECK(after.prompt.most == before.prompt.most && after.depth.most == before.depth.most);
}

static inline const char *argv_no_variable(void *context, const char *name) {
    (void)context;
    (void)name;
    return NULL;
}

/* A configuration file for whoever reads one. */
typedef struct argv_file {
    const char *text;
    size_t n;
} argv_file;

static inline bt_config_state argv_read(void *context, const char *path, const char **ret_text, size_t *ret_n) {
    const argv_file *file = context;
    (void)path;
    if (!file->text) return BT_CONFIG_ABSENT;
    *ret_text = file->text;
    *ret_n = file->n;
    return BT_CONFIG_READ;
}

/* All of it on one argv: nothing crashes, and what is said above holds. */
static inline void argv_check_all(bt_arena *arena, char *const *argv, argv_file file) {
    static bt_command command;
    static bt_effective effective;
    bt_command_find(argv, &command);
    ARGV_CHECK((command.program == BT_PROGRAM_NONE) == (command.reason[0] != '\0'));
    bt_program program = command.program == BT_PROGRAM_NONE ? BT_PROGRAM_SERVER : command.program;
    const bt_argv *view;
    if (bt_argv_parse(arena, argv, command.first, program, &view, NULL) != BT_OK) return;
    ARGV_CHECK(command.first <= view->n_argv);
    argv_check_cover(view);
    argv_check_bench(arena, view);
    static const struct {
        bt_flag_id flag;
        const char *value;
    } edits[] = {{BT_FLAG_CTX_SIZE, "-77"},         {BT_FLAG_GPU_LAYERS, "all"}, {BT_FLAG_N_CPU_MOE, "7"},
                 {BT_FLAG_TENSOR_SPLIT, "0.5,0.5"}, {BT_FLAG_FLASH_ATTN, "on"},  {BT_FLAG_LORA_SCALED, "x"}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        argv_check_rewrite(arena, view, edits[i].flag, edits[i].value);
    bt_effective_input input = {&command, view, argv_no_variable, NULL, argv_read, &file};
    command.program = program;
    if (bt_effective_resolve(arena, &input, &effective, NULL) != BT_OK) return;
    ARGV_CHECK(effective.n_notes <= BT_NOTE_MAX && effective.rules.n <= BT_RULE_MAX);
    argv_check_drop_in(arena, view, &effective);
    ARGV_CHECK(effective.router || effective.program != BT_PROGRAM_SERVER || effective.slots.value != -1);
}

/* n bytes as a command line, one element a line, and as the configuration file beside it; text[n] is '\0'. */
static inline void argv_check_text(const char *text, size_t n) {
    static char *argv[LINE_WORDS_MAX + 1];
    bt_arena *arena = bt_arena_open(UINT64_C(64) << 20, 65536);
    if (!arena) return;
    char *copy = bt_arena_strndup(arena, text, n);
    uint32_t count = 0;
    for (char *line_at = copy; line_at && count < LINE_WORDS_MAX;) {
        char *end = strchr(line_at, '\n');
        if (end) *end = '\0';
        argv[count++] = line_at;
        line_at = end ? end + 1 : NULL;
    }
    argv[count] = NULL;
    argv_check_all(arena, argv, (argv_file){text, n});
    bt_arena_close(arena);
}
