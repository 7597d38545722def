/* SPDX-License-Identifier: MIT
 * rewrite.c: edits on a copy of an argv.
 *
 * The copy is of pointers: an element that no edit touches stays the caller's own string, so "unchanged" can be seen by
 * comparing pointers. A value is replaced where the user wrote it, in his spelling and his form; only the last
 * occurrence, which is the one that counts. Where he did not write it the option goes to the end in its longest
 * spelling: llama.cpp reads from left to right and argv beats the environment and the files, so there it wins. The end
 * of the program's arguments is the end of the whole command for every wrapper that is known (guard/wrapper.c), a
 * container's included.
 *
 * One trap: an option at the end that lacks its value would swallow what is put behind it. Then nothing is appended. */
#include "guard/rewrite.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ADDED_MAX (UINT64_C(2) * BT_EDIT_MAX)

static bt_status no_memory(bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "arguments", BT_MEASURE_NONE, 0, 0, "no memory for the rewritten arguments");
}

bt_status bt_rewrite_open(bt_rewrite *rewrite, bt_arena *arena, const bt_argv *before, bt_error *err) {
    char **copy = bt_arena_array(arena, (uint64_t)before->n_argv + ADDED_MAX + 1, sizeof *copy);
    if (!copy) return no_memory(err);
    memcpy(copy, before->argv, before->n_argv * sizeof *copy);
    *rewrite = (bt_rewrite){.arena = arena, .before = before, .argv = copy, .n_argv = before->n_argv};
    return BT_OK;
}

static bt_edit *edit_of(bt_rewrite *rewrite, bt_flag_id flag) {
    for (uint32_t i = 0; i < rewrite->n_edits; i++) {
        if (rewrite->edits[i].flag == flag && rewrite->edits[i].new_text) return &rewrite->edits[i];
    }
    return NULL;
}

static bt_status room(const bt_rewrite *rewrite, bt_error *err) {
    if (rewrite->n_edits < BT_EDIT_MAX) return BT_OK;
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_ITEMS, BT_EDIT_MAX + 1, BT_EDIT_MAX,
                   "more than %u edits of one command line", (unsigned)BT_EDIT_MAX);
}

/* "--name=old" -> "--name=value" */
static char *attach(bt_rewrite *rewrite, const char *element, const char *value) {
    size_t n_name = strcspn(element, "=") + 1;
    size_t n_value = strlen(value);
    char *text = bt_arena_alloc(rewrite->arena, (uint64_t)n_name + n_value + 1);
    if (!text) return NULL;
    (void)snprintf(text, n_name + n_value + 1, "%.*s%s", (int)n_name, element, value);
    return text;
}

/* Put value into the element of an edit that stands already, or of an occurrence. */
static bt_status replace(bt_rewrite *rewrite, uint32_t at, bool attached, const char *value, const char **ret_text,
                         bt_error *err) {
    char *text = attached ? attach(rewrite, rewrite->argv[at], value) : bt_arena_strdup(rewrite->arena, value);
    if (!text) return no_memory(err);
    rewrite->argv[at] = text;
    *ret_text = attached ? strchr(text, '=') + 1 : text;
    return BT_OK;
}

/* Does it have one value, and does that stand there if the option does? */
static bool has_one_value(bt_flag_id flag, const bt_occurrence *o) {
    bt_flag_kind kind = bt_flag_get(flag)->kind;
    bool one = kind == BT_TAKES_FLASH || (bt_flag_arity(flag) == 1 && kind != BT_TAKES_SCALED);
    return one && (!o || (o->value && !o->value_2));
}

bt_status bt_rewrite_set(bt_rewrite *rewrite, bt_flag_id flag, const char *value, bt_error *err) {
    const bt_occurrence *o = bt_argv_last(rewrite->before, flag);
    if (!has_one_value(flag, o))
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "the option %s has no single value to change",
                       bt_flag_get(flag)->name);
    bt_edit *edit = edit_of(rewrite, flag);
    if (edit) {
        uint32_t at = edit->at + (edit->appended ? 1 : 0);
        return replace(rewrite, at, !edit->appended && o && o->attached, value, &edit->new_text, err);
    }
    if (!o) return bt_rewrite_append(rewrite, flag, NULL, value, err);
    BT_TRY(room(rewrite, err));
    const uint32_t at = o->attached ? o->at : o->at + 1;
    const char *text = NULL;
    BT_TRY(replace(rewrite, at, o->attached, value, &text, err));
    rewrite->edits[rewrite->n_edits++] = (bt_edit){.flag = flag, .at = at, .old_text = o->value, .new_text = text};
    return BT_OK;
}

bt_status bt_rewrite_set_int(bt_rewrite *rewrite, bt_flag_id flag, int64_t value, bt_error *err) {
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    return bt_rewrite_set(rewrite, flag, text, err);
}

static bt_status append(bt_rewrite *rewrite, bt_flag_id flag, char *option, const char *value, bt_error *err) {
    char *text = value ? bt_arena_strdup(rewrite->arena, value) : NULL;
    if (!option || (value && !text)) return no_memory(err);
    rewrite->edits[rewrite->n_edits++] =
        (bt_edit){.flag = flag, .appended = true, .at = rewrite->n_argv, .new_text = text};
    rewrite->argv[rewrite->n_argv++] = option;
    if (text) rewrite->argv[rewrite->n_argv++] = text;
    return BT_OK;
}

bt_status bt_rewrite_append(bt_rewrite *rewrite, bt_flag_id flag, const char *spelling, const char *value,
                            bt_error *err) {
    BT_TRY(room(rewrite, err));
    if (!bt_flag_is_of(flag, rewrite->before->program))
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "%s has no option %s",
                       bt_program_name(rewrite->before->program), bt_flag_get(flag)->name);
    if (rewrite->before->open)
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                       "nothing can be put after %.100s, which may take it for its value",
                       rewrite->before->argv[rewrite->before->n_argv - 1]);
    size_t n_canonical;
    const char *canonical = bt_flag_canonical(flag, &n_canonical);
    char *option =
        spelling ? bt_arena_strdup(rewrite->arena, spelling) : bt_arena_strndup(rewrite->arena, canonical, n_canonical);
    return append(rewrite, flag, option, value, err);
}

bt_status bt_rewrite_append_word(bt_rewrite *rewrite, const char *option, const char *value, bt_error *err) {
    BT_TRY(room(rewrite, err));
    return append(rewrite, BT_FLAG_UNKNOWN, bt_arena_strdup(rewrite->arena, option), value, err);
}
