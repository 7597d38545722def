/* SPDX-License-Identifier: MIT
 * argv.c: from elements to options, in one pass from left to right, as llama.cpp makes it.
 *
 *   llama-server  -m  a.gguf  -ngl  -1  --flash_attn  on  --new  7  stray
 *                 `---one---' `--one--' `-----one-----'   `unknown' `stray'
 *
 * An option consumes its values whatever they look like, so that "-1" is a number here and not an option. Three options
 * of earlier builds took fewer or more elements than today's; the shape of what follows decides between the two:
 * "-fa" alone, and "--lora-scaled file scale". What is attached with '=' is read, because people write it and other
 * tools accept it, but llama.cpp does not. Nothing is copied but the list of occurrences, which the arena holds: as
 * many as there are elements, and those are at most BT_ARGV_MAX. */
#include "guard/argv.h"
#include "base/error.h"

#include <string.h>

typedef struct reader {
    bt_argv *view;
    bt_occurrence *occurrences;
    uint32_t at; /* the next element */
} reader;

static const char *peek(const reader *r, uint32_t ahead) {
    return r->at + ahead < r->view->n_argv ? r->view->argv[r->at + ahead] : NULL;
}

static const char *take(reader *r, bt_occurrence *o) {
    const char *value = peek(r, 0);
    if (!value) {
        r->view->open = true;
        return NULL;
    }
    r->at++;
    o->n++;
    return value;
}

static bool is_number(const char *text) {
    double number;
    return text[0] && strspn(text, "+-.0123456789eE") == strlen(text) && bt_value_real(text, &number);
}

/* "file:0.5", today's form of a scaled file, whole in one element? */
static bool has_scale(const char *text) {
    const char *colon = strrchr(text, ':');
    return colon && is_number(colon + 1);
}

/* As many as the table says, but for two kinds: a word that may follow or not, and a number that today stands in the
 * first element. */
static void take_values(reader *r, bt_occurrence *o) {
    const char *next = peek(r, 0);
    const char *second = peek(r, 1);
    const bt_flag_kind kind = bt_flag_get(o->flag)->kind;
    const uint32_t n = bt_flag_arity(o->flag);
    bool two = n == 2;
    bt_flash flash;
    if (kind == BT_TAKES_SCALED) two = next && second && !has_scale(next) && is_number(second);
    if (n > 0 || (kind == BT_TAKES_FLASH && next && bt_value_flash(next, &flash))) o->value = take(r, o);
    if (o->value && two) o->value_2 = take(r, o);
}

static void take_unknown(reader *r, bt_occurrence *o) {
    r->view->n_unknown++;
    const char *next = peek(r, 0);
    if (o->attached) return;
    if (!next) {
        r->view->open = true; /* nobody knows whether it wants one */
    } else if (next[0] != '-') {
        o->value = take(r, o);
    }
}

/* What the element spells, up to its '=' if that makes an option of it. */
static void recognise(const reader *r, const char *text, bt_occurrence *o) {
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : strlen(text);
    o->flag = bt_flag_find(r->view->program, text, n, &o->negative);
    if (equals) {
        o->attached = true;
        o->value = equals + 1;
    }
}

static void read_one(reader *r, bt_occurrence *o) {
    const char *text = r->view->argv[r->at];
    *o = (bt_occurrence){.flag = BT_FLAG_STRAY, .at = r->at++, .n = 1};
    if (text[0] != '-') {
        r->view->n_stray++;
        return;
    }
    recognise(r, text, o);
    if (o->attached) r->view->n_attached++;
    if (o->flag == BT_FLAG_UNKNOWN) {
        take_unknown(r, o);
        return;
    }
    if (!bt_flag_is_of(o->flag, r->view->program)) r->view->n_foreign++;
    if (!o->attached) take_values(r, o);
}

static bt_status count(char *const *argv, uint32_t *ret, bt_error *err) {
    uint32_t n = 0;
    while (argv[n]) {
        if (++n > BT_ARGV_MAX)
            return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_ITEMS, n, BT_ARGV_MAX,
                           "the command has more than %u arguments", (unsigned)BT_ARGV_MAX);
    }
    *ret = n;
    return BT_OK;
}

bt_status bt_argv_parse(bt_arena *arena, char *const *argv, uint32_t first, bt_program program, const bt_argv **ret,
                        bt_error *err) {
    uint32_t n = 0;
    BT_TRY(count(argv, &n, err));
    bt_argv *view = bt_arena_alloc(arena, sizeof *view);
    bt_occurrence *occurrences = bt_arena_array(arena, (uint64_t)n + 1, sizeof *occurrences);
    if (!view || !occurrences)
        return bt_fail(err, BT_E_NOMEM, "arguments", BT_MEASURE_ITEMS, n, 0, "no memory for the command's arguments");
    *view = (bt_argv){.argv = argv, .n_argv = n, .first = first < n ? first : n, .program = program};
    reader r = {.view = view, .occurrences = occurrences, .at = view->first};
    while (r.at < n)
        read_one(&r, &occurrences[view->n_occurrences++]);
    view->occurrences = occurrences;
    *ret = view;
    return BT_OK;
}

/* ---- asking ----------------------------------------------------------------------------------------------------- */

const bt_occurrence *bt_argv_last(const bt_argv *argv, bt_flag_id flag) {
    for (uint32_t i = argv->n_occurrences; i-- > 0;) {
        if (argv->occurrences[i].flag == flag) return &argv->occurrences[i];
    }
    return NULL;
}

bt_reading bt_argv_text(const bt_argv *argv, bt_flag_id flag, const char **ret) {
    const bt_occurrence *o = bt_argv_last(argv, flag);
    if (!o) return BT_VALUE_ABSENT;
    if (!o->value) return BT_VALUE_BAD;
    *ret = o->value;
    return BT_VALUE_GIVEN;
}

bt_reading bt_argv_real(const bt_argv *argv, bt_flag_id flag, double *ret) {
    const char *text = NULL;
    bt_reading reading = bt_argv_text(argv, flag, &text);
    if (reading != BT_VALUE_GIVEN) return reading;
    return bt_value_real(text, ret) ? BT_VALUE_GIVEN : BT_VALUE_BAD;
}
