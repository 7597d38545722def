/* SPDX-License-Identifier: MIT
 * test_argv_goldens.c: forty command lines as people write them, and what each comes to. argv_goldens.txt holds a line
 * with the command, and one below it: program and index of its first argument, every setting that is not the default
 * with the index of its option, or who else set it, and what is odd. UPDATE=1 writes the file anew; look at the change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define ARGV_CHECK(condition) assert_true(condition)
#include "argv_kit.h"

#include <stdio.h>

#define GOLDENS BT_TEST_DATA "/../unit/argv_goldens.txt"

static const struct {
    const char *name;
    size_t offset;
    bool text;
} members[] = {
#define N(member) {#member, offsetof(bt_effective, member), false}
#define T(member) {#member, offsetof(bt_effective, member), true}
    T(model),
    T(model_url),
    T(hf_repo),
    T(hf_file),
    T(docker_repo),
    T(bundle),
    T(models_dir),
    T(models_preset),
    N(gpu_layers),
    N(split_mode),
    N(main_gpu),
    T(tensor_split),
    T(device),
    T(rpc),
    N(fit),
    T(fit_target),
    N(fit_ctx),
    N(ctx),
    N(slots),
    N(kv_unified),
    N(kv_per_slot),
    N(cache_k),
    N(cache_v),
    N(kv_offload),
    N(swa_full),
    N(flash),
    N(batch),
    N(ubatch),
    N(rope_scaling),
    N(yarn_orig_ctx),
    N(context_shift),
    N(cache_reuse),
    N(checkpoints),
    N(checkpoint_step),
    N(cache_ram),
    N(load_mode),
    N(lazy_mode),
    N(repack),
    N(no_host),
    N(op_offload),
    N(warmup),
    T(draft_model),
    T(draft_hf_repo),
    N(draft_gpu_layers),
    N(draft_cache_k),
    N(draft_cache_v),
    T(draft_device),
    N(draft_n_max),
    T(mmproj),
    N(mmproj_auto),
    N(mmproj_offload),
    N(image_max_tokens),
    N(embedding),
    N(rerank),
    N(pooling),
    N(sleep_idle_s),
    T(override_kv),
    N(threads),
#undef N
#undef T
};

typedef struct text {
    char data[4000];
    size_t n;
} text;

static void add(text *t, const char *fmt, ...) BT_PRINTF(2, 3);
static void add(text *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->data + t->n, sizeof t->data - t->n, fmt, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof t->data - t->n);
    t->n += (size_t)n;
}

static void add_who(text *t, bt_set_by by) {
    if (by.origin == BT_FROM_ARGV)
        add(t, "@%u", (unsigned)by.at);
    else
        add(t, "@%s", origin_name(by.origin));
}

static void add_settings(text *t, const bt_effective *e) {
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        bt_setting s;
        memcpy(&s, (const char *)e + members[i].offset, sizeof s);
        if (s.by.origin == BT_FROM_DEFAULT && !s.bad) continue;
        if (members[i].text)
            add(t, " %s=%s", members[i].name, s.text);
        else
            add(t, " %s=%d", members[i].name, (int)s.value);
        add_who(t, s.by);
        if (s.bad) add(t, "!");
    }
}

static void add_lists(text *t, const bt_effective *e) {
    static const char *const kinds[] = {"pattern", "experts", "n_experts", "n_ffn"};
    for (uint32_t i = 0; i < e->rules.n; i++) {
        const bt_tensor_rule *rule = &e->rules.items[i];
        add(t, " %s:%s=%s/%d", kinds[rule->kind], rule->pattern ? rule->pattern : "", rule->buffer ? rule->buffer : "",
            (int)rule->n);
        add_who(t, rule->by);
    }
    for (uint32_t i = 0; i < e->loras.n; i++)
        add(t, " lora:%s*%.2f", e->loras.items[i].path, e->loras.items[i].scale);
    if (e->drafters) add(t, " drafters=%x", (unsigned)e->drafters);
}

static void describe(bt_arena *arena, const char *command_line, text *t) {
    static line words;
    static bt_command command;
    static bt_effective e;
    const bt_argv *view = NULL;
    t->n = 0;
    bt_command_find(line_split(&words, command_line), &command);
    if (command.program == BT_PROGRAM_NONE) {
        add(t, "not read: %s", command.reason);
        return;
    }
    assert_int_equal(bt_argv_parse(arena, words.argv, command.first, command.program, &view, NULL), BT_OK);
    argv_check_cover(view);
    bt_effective_input input = {.command = &command, .argv = view};
    assert_int_equal(bt_effective_resolve(arena, &input, &e, NULL), BT_OK);
    add(t, "%s@%u%s%s", bt_program_name(command.program), (unsigned)command.first,
        command.container ? " container" : "", e.router ? " router" : "");
    add_settings(t, &e);
    add_lists(t, &e);
    if (view->n_unknown) add(t, " unknown=%u", (unsigned)view->n_unknown);
    if (view->n_stray) add(t, " stray=%u", (unsigned)view->n_stray);
    if (view->n_attached) add(t, " attached=%u", (unsigned)view->n_attached);
    if (view->open) add(t, " open");
    if (e.earlier_build) add(t, " earlier");
    if (e.n_bad) add(t, " bad=%u", (unsigned)e.n_bad);
}

static void goldens(void **state) {
    (void)state;
    static char kept[65536];
    FILE *file = fopen(GOLDENS, "r");
    assert_non_null(file);
    size_t n = fread(kept, 1, sizeof kept - 1, file);
    assert_int_equal(fclose(file), 0);
    kept[n] = '\0';
    FILE *update = getenv("UPDATE") ? fopen(GOLDENS, "w") : NULL;
    uint32_t n_lines = 0, n_wrong = 0;
    for (char *command = strtok(kept, "\n"); command; n_lines++) {
        char *expected = strtok(NULL, "\n");
        bool has_golden = expected && expected[0] == ' ';
        text t;
        bt_arena *arena = bt_arena_open(UINT64_C(16) << 20, 65536);
        assert_non_null(arena);
        describe(arena, command, &t);
        bt_arena_close(arena);
        if (update) (void)fprintf(update, "%s\n    %s\n", command, t.data);
        if (!has_golden || strcmp(expected + 4, t.data) != 0) {
            print_error("%s\n  is       %s\n  golden  %s\n", command, t.data, has_golden ? expected + 3 : " none");
            n_wrong++;
        }
        command = has_golden ? strtok(NULL, "\n") : expected;
    }
    if (update)
        assert_int_equal(fclose(update), 0);
    else
        assert_int_equal(n_wrong, 0);
    assert_true(n_lines >= 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(goldens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
