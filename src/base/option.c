/* SPDX-License-Identifier: MIT
 * option.c: parsing arguments and environment by one table.
 *
 *   argv, left to right -> row by spelling -> value -> target struct at the row's offset
 *   then BURTHEN_<NAME> of each row that argv did not give
 *   then what a settings file says of each row that neither gave
 *
 * What is overridden is not read, so that a bad variable cannot spoil a run whose flag wins. Numbers are parsed
 * strictly and without the locale: whole numbers by hand, reals by a check of their form and then strtod in the "C"
 * locale. The longest spelling is bounded (NAME_MAX_BYTES); the number of options and arguments is the caller's. Left
 * out: bundled letters ("-xvf") and values glued to letters ("-j4"), since here "-np" is one option, and "--no-NAME".
 */
#include "base/option.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/size.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

#define NAME_MAX_BYTES 64 /* twice the longest option name of llama.cpp */

/* ---- the nearest name ------------------------------------------------------------------------------------------- */

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static char plain(char c) {
    return c == '_' ? '-' : c;
}

/* Edits from a to b: insert, delete, replace, swap neighbours (optimal string alignment). */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    size_t rows[3][NAME_MAX_BYTES + 1];
    if (n_a > NAME_MAX_BYTES || n_b > NAME_MAX_BYTES) return SIZE_MAX;
    size_t *before = rows[0];
    size_t *last = rows[1];
    size_t *now = rows[2];
    for (size_t j = 0; j <= n_b; j++) {
        before[j] = last[j] = j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t replace = last[j - 1] + (plain(a[i - 1]) != plain(b[j - 1]));
            now[j] = min_size(replace, min_size(last[j], now[j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) && plain(a[i - 2]) == plain(b[j - 1]);
            if (swapped) now[j] = min_size(now[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[n_b];
}

/* How far name is from what was written, or SIZE_MAX if it is not near: one edit in three letters, and at least one
 * letter right; or a name that goes on where the word stops. */
static size_t nearness(const char *word, size_t n_word, const char *name, size_t n_name) {
    size_t edits = distance(word, n_word, name, n_name);
    if (edits <= (n_word + 2) / 3 && edits < n_word) return edits;
    bool goes_on = n_word >= 2 && n_name > n_word && distance(word, n_word, name, n_word) == 0;
    return goes_on ? NAME_MAX_BYTES + n_name : SIZE_MAX;
}

const char *bt_nearest(const char *word, const char *const *names, size_t n) {
    const char *best = NULL;
    size_t best_nearness = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t this_one = nearness(word, strlen(word), names[i], strlen(names[i]));
        if (this_one < best_nearness) {
            best_nearness = this_one;
            best = names[i];
        }
    }
    return best;
}

/* ---- spellings -------------------------------------------------------------------------------------------------- */

typedef struct spelling {
    const char *name; /* without dashes; not terminated */
    size_t n;
    bool is_short;
} spelling;

/* The k-th spelling of a row: its name, its alias, its shorts. */
static bool spelling_get(const bt_option *row, size_t k, spelling *ret) {
    const char *longs[2] = {row->name, row->alias};
    size_t n_longs = row->alias ? 2 : 1;
    if (k < n_longs) {
        *ret = (spelling){longs[k], strlen(longs[k]), false};
        return true;
    }
    const char *p = row->shorts ? row->shorts : "";
    for (k -= n_longs;; k--) {
        p += strspn(p, " ");
        size_t n = strcspn(p, " ");
        if (n == 0) return false;
        if (k == 0) {
            *ret = (spelling){p, n, true};
            return true;
        }
        p += n;
    }
}

static bool is_same(const spelling *a, const spelling *b) {
    if (a->is_short != b->is_short || a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        bool same = a->is_short ? a->name[i] == b->name[i] : plain(a->name[i]) == plain(b->name[i]);
        if (!same) return false;
    }
    return true;
}

typedef struct parse {
    const bt_option *table;
    size_t n_options;
    uint32_t command;
    void *target;
    bool *given; /* [n_options], by argv */
    bt_error *err;
} parse;

/* n_options if there is none. any_command: rows of other commands too. */
static size_t find(const parse *in, const spelling *wanted, bool any_command) {
    for (size_t i = 0; i < in->n_options; i++) {
        if (!any_command && !(in->table[i].commands & in->command)) continue;
        spelling s;
        for (size_t k = 0; spelling_get(&in->table[i], k, &s); k++) {
            if (is_same(&s, wanted)) return i;
        }
    }
    return in->n_options;
}

const bt_option *bt_option_find(const bt_option *table, size_t n_options, uint32_t command, const char *word,
                                size_t n) {
    if (n < 2 || word[0] != '-') return NULL;
    size_t n_dashes = word[1] == '-' ? 2 : 1;
    const spelling wanted = {word + n_dashes, n - n_dashes, n_dashes == 1};
    const parse in = {.table = table, .n_options = n_options, .command = command};
    size_t at = find(&in, &wanted, false);
    return at < n_options ? &table[at] : NULL;
}

/* "--ctx" means --ctx-size more than -ctk. */
static bool begins(const spelling *wanted, const spelling *s) {
    return !wanted->is_short && !s->is_short && wanted->n >= 3 && s->n > wanted->n &&
           strncmp(wanted->name, s->name, wanted->n) == 0;
}

static bt_status fail_unknown(const parse *in, const spelling *wanted) {
    const char *dashes = wanted->is_short ? "-" : "--";
    int n = (int)min_size(wanted->n, NAME_MAX_BYTES);
    if (find(in, wanted, true) < in->n_options) {
        return bt_fail(in->err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "%s%.*s is not an option of this command",
                       dashes, n, wanted->name);
    }
    spelling best = {0};
    size_t best_nearness = SIZE_MAX;
    for (size_t i = 0; i < in->n_options; i++) {
        if (in->table[i].hidden || !(in->table[i].commands & in->command)) continue;
        spelling s;
        for (size_t k = 0; spelling_get(&in->table[i], k, &s); k++) {
            size_t this_one = nearness(wanted->name, wanted->n, s.name, s.n);
            if (begins(wanted, &s)) this_one = 0;
            if (this_one < best_nearness) {
                best_nearness = this_one;
                best = s;
            }
        }
    }
    if (!best.name) {
        return bt_fail(in->err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "unknown option %s%.*s", dashes, n,
                       wanted->name);
    }
    return bt_fail(in->err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "unknown option %s%.*s; the nearest is %s%.*s",
                   dashes, n, wanted->name, best.is_short ? "-" : "--", (int)best.n, best.name);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

/* A row's value on its way: what was written, and where (for errors): "--ctx-size", "-c", "BURTHEN_CTX_SIZE". */
typedef struct value {
    const bt_option *row;
    const char *text;
    const char *where;
} value;

static bt_status fail_value(const value *v, bt_error *err, const char *wanted) {
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "%s wants %s, not \"%s\"", v->where, wanted,
                   v->text);
}

/* A bound as text, with '.' whatever the locale. */
static void bound_text(double bound, char *text, size_t capacity) {
    (void)snprintf(text, capacity, "%.10g", bound); /* ten digits: every 32-bit number */
    for (char *p = text; *p; p++) {
        if (*p == ',') *p = '.';
    }
}

static bt_status check_range(const value *v, double number, double low, double high, const char *kind, bt_error *err) {
    const bt_option *row = v->row;
    bool bounded = row->min < 0 || row->min > 0 || row->max < 0 || row->max > 0;
    if (bounded) {
        low = row->min > low ? row->min : low;
        high = row->max < high ? row->max : high;
    }
    if (number >= low && number <= high) return BT_OK;
    char wanted[96];
    char texts[2][32];
    bound_text(low, texts[0], sizeof texts[0]);
    bound_text(high, texts[1], sizeof texts[1]);
    (void)snprintf(wanted, sizeof wanted, "%s from %s to %s", kind, texts[0], texts[1]);
    return fail_value(v, err, wanted);
}

static size_t span_digits(const char *p) {
    return strspn(p, "0123456789");
}

static bt_status set_whole(const value *v, void *target, bt_error *err) {
    bool is_signed = v->row->kind == BT_OPTION_I32;
    const char *kind = "a whole number";
    const char *p = v->text + (is_signed && v->text[0] == '-');
    size_t n = span_digits(p);
    if (n == 0 || p[n] != '\0') return fail_value(v, err, kind);
    uint64_t magnitude = 0;
    for (size_t i = 0; i < n; i++) {
        magnitude = bt_sat_add_u64(bt_sat_mul_u64(magnitude, 10), (uint64_t)(p[i] - '0'));
    }
    /* Over 2^53 the double is not exact, but then it is far outside of both ranges. */
    double number = p > v->text ? -(double)magnitude : (double)magnitude;
    if (is_signed) {
        BT_TRY(check_range(v, number, INT32_MIN, INT32_MAX, kind, err));
        int32_t whole = (int32_t)number;
        memcpy(target, &whole, sizeof whole);
    } else {
        BT_TRY(check_range(v, number, 0, UINT32_MAX, kind, err));
        uint32_t whole = (uint32_t)magnitude;
        memcpy(target, &whole, sizeof whole);
    }
    return BT_OK;
}

/* [-]digits[.digits][e[+-]digits], and nothing else that strtod takes: no hexadecimal, inf, nan, leading space. */
static bool is_real(const char *p) {
    if (*p == '-') p++;
    size_t n = span_digits(p);
    if (n == 0) return false;
    p += n;
    if (*p == '.') {
        n = span_digits(++p);
        if (n == 0) return false;
        p += n;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        if (*p == '-' || *p == '+') p++;
        n = span_digits(p);
        if (n == 0) return false;
        p += n;
    }
    return *p == '\0';
}

static bt_status set_real(const value *v, void *target, bt_error *err) {
    if (!is_real(v->text)) return fail_value(v, err, "a number");
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) return bt_fail(err, BT_E_NOMEM, "option", BT_MEASURE_NONE, 0, 0, "no memory to read %s", v->where);
    double number = strtod_l(v->text, NULL, c_locale);
    freelocale(c_locale);
    if (!isfinite(number)) return fail_value(v, err, "a number that is not so large");
    /* -DBL_MAX and DBL_MAX: any finite number, unless the row has bounds */
    BT_TRY(check_range(v, number, -__DBL_MAX__, __DBL_MAX__, "a number", err));
    memcpy(target, &number, sizeof number);
    return BT_OK;
}

static bt_status set_choice(const value *v, void *target, bt_error *err) {
    const char *p = v->row->choices;
    size_t n_text = strlen(v->text);
    for (int i = 0;; i++) {
        size_t n = strcspn(p, "|");
        if (n == n_text && memcmp(p, v->text, n) == 0) {
            memcpy(target, &i, sizeof i);
            return BT_OK;
        }
        if (p[n] == '\0') break;
        p += n + 1;
    }
    char wanted[160];
    (void)snprintf(wanted, sizeof wanted, "one of %s", v->row->choices);
    return fail_value(v, err, wanted);
}

static bt_status set_size(const value *v, void *target, bt_error *err) {
    uint64_t bytes = 0;
    bt_error why = {0};
    bt_status status = bt_size_parse(v->text, v->where, &bytes, &why);
    if (status != BT_OK) return bt_fail(err, status, "option", BT_MEASURE_NONE, 0, 0, "%s", why.text);
    memcpy(target, &bytes, sizeof bytes);
    return BT_OK;
}

static bt_status set_flag(const value *v, void *target, bt_error *err) {
    static const char *const words[2][4] = {{"0", "off", "false", "no"}, {"1", "on", "true", "yes"}};
    for (size_t i = 0; i < 8; i++) {
        if (strcmp(v->text, words[i / 4][i % 4]) == 0) {
            memcpy(target, &(bool){i >= 4}, sizeof(bool));
            return BT_OK;
        }
    }
    return fail_value(v, err, "1, on, true, yes, 0, off, false or no");
}

static bt_status set_value(const parse *in, const value *v) {
    const bt_option *row = v->row;
    if (v->text[0] == '\0') {
        return bt_fail(in->err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "%s is given an empty value", v->where);
    }
    void *target = (unsigned char *)in->target + row->offset;
    bt_status status = BT_OK;
    switch (row->kind) {
    case BT_OPTION_FLAG:
        status = set_flag(v, target, in->err);
        break;
    case BT_OPTION_TEXT:
        memcpy(target, &v->text, sizeof v->text);
        break;
    case BT_OPTION_SIZE:
        status = set_size(v, target, in->err);
        break;
    case BT_OPTION_U32:
    case BT_OPTION_I32:
        status = set_whole(v, target, in->err);
        break;
    case BT_OPTION_REAL:
        status = set_real(v, target, in->err);
        break;
    case BT_OPTION_CHOICE:
        status = set_choice(v, target, in->err);
        break;
    case BT_OPTION_CUSTOM:
        status = row->parse(v->text, in->target, in->err);
        break;
    }
    if (status == BT_OK && row->set_offset != SIZE_MAX) {
        memcpy((unsigned char *)in->target + row->set_offset, &(bool){true}, sizeof(bool));
    }
    return status;
}

/* ---- arguments and environment ---------------------------------------------------------------------------------- */

/* argv[*i] is an option; *i is moved to the last argument that belongs to it. */
static bt_status take_option(const parse *in, int argc, char *const *argv, int *i) {
    const char *arg = argv[*i];
    bool is_short = arg[1] != '-';
    const char *name = arg + (is_short ? 1 : 2);
    const spelling wanted = {name, strcspn(name, "="), is_short};
    const char *attached = name[wanted.n] == '=' ? name + wanted.n + 1 : NULL;
    size_t at = find(in, &wanted, false);
    if (at == in->n_options) return fail_unknown(in, &wanted);

    char where[NAME_MAX_BYTES + 3];
    (void)snprintf(where, sizeof where, "%s%.*s", is_short ? "-" : "--", (int)min_size(wanted.n, NAME_MAX_BYTES), name);
    bool wants_value = in->table[at].kind != BT_OPTION_FLAG;
    if (!wants_value && attached) {
        return bt_fail(in->err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "%s takes no value: %s", where, arg);
    }
    if (wants_value && !attached && *i + 1 >= argc) {
        return bt_fail(in->err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "%s needs a value", where);
    }
    if (!attached) attached = wants_value ? argv[++*i] : "on";
    const value v = {.row = &in->table[at], .text = attached, .where = where};
    in->given[at] = true;
    return set_value(in, &v);
}

static bt_status take_arguments(const parse *in, int argc, char *const *argv, bt_option_result *result) {
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "--") == 0) {
            if (result) result->rest = i + 1;
            if (result || i + 1 == argc) return BT_OK;
            arg = argv[i + 1];                        /* nowhere to put it */
        } else if (arg[0] == '-' && arg[1] != '\0') { /* "-" alone is standard input, by custom */
            BT_TRY(take_option(in, argc, argv, &i));
            continue;
        }
        if (!result || result->n_args >= result->max_args) {
            return bt_fail(in->err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "one argument too many: \"%s\"", arg);
        }
        result->args[result->n_args++] = arg;
    }
    return BT_OK;
}

const char *bt_environ(const char *name) {
    return getenv(name);
}

void bt_option_twin(const bt_option *row, char *ret, size_t capacity) {
    (void)snprintf(ret, capacity, "BURTHEN_%.*s", NAME_MAX_BYTES, row->name);
    for (char *p = ret; *p; p++) {
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
        if (*p == '-') *p = '_';
    }
}

static bt_status take_environ(const parse *in, const char *(*environ_get)(const char *)) {
    for (size_t i = 0; i < in->n_options; i++) {
        const bt_option *row = &in->table[i];
        if (in->given[i] || row->no_env || !(row->commands & in->command)) continue;
        char where[sizeof "BURTHEN_" + NAME_MAX_BYTES];
        bt_option_twin(row, where, sizeof where);
        const value v = {.row = row, .text = environ_get(where), .where = where};
        bool is_set = v.text && !(row->blank_unsets && v.text[strspn(v.text, " \t")] == '\0');
        if (!is_set) continue;
        in->given[i] = true;
        bt_status status = set_value(in, &v);
        if (status == BT_OK) continue;
        /* a row's own parser knows the option alone */
        const bt_error why = in->err ? *in->err : (bt_error){0};
        if (strstr(why.text, where)) return status;
        return bt_fail(in->err, status, "option", BT_MEASURE_NONE, 0, 0, "%s: %s", where, why.text);
    }
    return BT_OK;
}

static bt_status take_file(const parse *in, const bt_option_file *file) {
    for (size_t i = 0; i < in->n_options; i++) {
        const bt_option *row = &in->table[i];
        if (in->given[i] || row->no_env || !(row->commands & in->command)) continue;
        const char *place = "";
        const char *text = file->get(file->user, row, &place);
        if (!text) continue;
        char where[NAME_MAX_BYTES + 3];
        (void)snprintf(where, sizeof where, "--%.*s", NAME_MAX_BYTES, row->name);
        const value v = {.row = row, .text = text, .where = where};
        bt_status status = set_value(in, &v);
        if (status == BT_OK) continue;
        const bt_error why = in->err ? *in->err : (bt_error){0};
        return bt_fail(in->err, status, "option", BT_MEASURE_NONE, 0, 0, "%s: %s", place, why.text);
    }
    return BT_OK;
}

bt_status bt_options_parse(const bt_option *table, size_t n_options, uint32_t command, int argc, char *const *argv,
                           const char *(*environ_get)(const char *), const bt_option_file *file, void *target,
                           bt_option_result *result, bt_error *err) {
    if (result) {
        result->n_args = 0;
        result->rest = 0;
    }
    parse in = {.table = table, .n_options = n_options, .command = command, .target = target, .err = err};
    in.given = bt_heap_array(n_options, sizeof *in.given);
    if (!in.given) {
        return bt_fail(err, BT_E_NOMEM, "option", BT_MEASURE_BYTES, n_options * sizeof *in.given, 0,
                       "no memory to read the options");
    }
    bt_status status = take_arguments(&in, argc, argv, result);
    if (status == BT_OK) status = take_environ(&in, environ_get ? environ_get : bt_environ);
    if (status == BT_OK && file) status = take_file(&in, file);
    bt_heap_free(in.given);
    return status;
}
