/* SPDX-License-Identifier: MIT
 *
 * rules.c: the rules of a command line, asked about a tensor.
 *
 * llama.cpp turns all of them into one list of expressions, in the order in which they were given, and the first that
 * is found anywhere in a tensor's name decides (llama_model_loader::create_tensor). -cmoe is one expression, -ncmoe N
 * is N of them. One -ncmoe is the guard's to raise: the last one of the argv, for that is where a larger number will be
 * written, or the end of the list where there is none. Experts that no rule before it takes are movable.
 *
 * Expressions are ECMAScript's. What people write of it (dots, classes, groups, alternatives, counts) POSIX extended
 * has too, some under other names; whatever else there is (looking ahead, lazy counts, back references, word bounds)
 * makes the whole set unreadable, and the guard stays out: a tensor on the wrong device is worse than no answer. */
#include "guard/rules.h"

#include "base/error.h"
#include "model/roles.h"

#include <regex.h>
#include <string.h>

#define PATTERN_MAX 512 /* bytes of one expression; those of published recipes are under 100 */
/* Of {n,m} in one expression, each of two digits: nested ones multiply, and take memory without end. */
#define COUNTS_MAX   2
#define COUNT_DIGITS 2u

#define NOWHERE UINT32_MAX

typedef struct rule {
    bt_rule_kind kind;
    int32_t n;
    bool to_host, has_regex;
    const char *device;
    regex_t regex;
} rule;

struct bt_rule_set {
    rule *items;
    uint32_t n;
    uint32_t movable_at; /* the -ncmoe that may be raised, n: it will stand at the end; NOWHERE: none may be */
};

/* ---- expressions ---- */

typedef struct writer {
    char *to, *end;
    bool full;
} writer;

static void put(writer *w, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(w->end - w->to) <= n) {
        w->full = true;
        return;
    }
    memcpy(w->to, text, n + 1);
    w->to += n;
}

/* What a class of one letter has in it, to stand between brackets. */
static const char *class_of(char letter) {
    switch (letter) {
    case 'd':
        return "0-9";
    case 'w':
        return "A-Za-z0-9_";
    case 's':
        return "[:space:]";
    default:
        return NULL;
    }
}

static bool put_escape(writer *w, char c, bool in_brackets) {
    const char *class = class_of(c);
    char literal[3] = {'\\', c, '\0'};
    if (class) {
        put(w, in_brackets ? "" : "[");
        put(w, class);
        put(w, in_brackets ? "" : "]");
        return true;
    }
    if (c == '\0' || strchr(in_brackets ? "./_" : ".[](){}*+?^$|\\/-_", c) == NULL) return false;
    bool special = !in_brackets && strchr("/-_", c) == NULL;
    put(w, special ? literal : literal + 1);
    return true;
}

static bool is_count(char c) {
    return c == '*' || c == '+' || c == '?' || c == '}';
}

/* "3}", "3,}", "3,12}" */
static bool is_short(const char *count) {
    size_t n = strspn(count, "0123456789");
    if (n == 0 || n > COUNT_DIGITS) return false;
    if (count[n] == ',') {
        size_t n_to = strspn(count + n + 1, "0123456789");
        if (n_to > COUNT_DIGITS) return false;
        n += n_to + 1;
    }
    return count[n] == '}';
}

static bool put_group(writer *w, const char **at) {
    if ((*at)[1] != '?') {
        put(w, "(");
        return true;
    }
    if ((*at)[2] != ':') return false; /* looks ahead, or not */
    *at += 2;
    put(w, "(");
    return true;
}

/* One character between brackets; false: POSIX reads it otherwise. */
static bool put_in_brackets(writer *w, char c, bool *in_brackets) {
    char one[2] = {c, '\0'};
    *in_brackets = c != ']';
    if (c == '[') return false; /* a class by name, or a bracket that POSIX takes for one */
    put(w, one);
    return true;
}

static bool put_open_bracket(writer *w, const char **at) {
    put(w, "[");
    if ((*at)[1] == '^') {
        put(w, "^");
        ++*at;
    }
    return (*at)[1] != ']'; /* nothing to ECMAScript, a bracket to POSIX */
}

/* A count of another: lazy, or an error. */
static bool is_count_twice(char before, char c) {
    return is_count(before) && is_count(c);
}

bool bt_rule_translate(const char *pattern, char *ret, size_t n_ret) {
    writer w = {ret, ret + n_ret, n_ret == 0};
    bool in_brackets = false, good = true;
    int n_counts = 0;
    char before = '\0';
    if (!w.full) *ret = '\0';
    for (const char *at = pattern; *at && good && !w.full; at++) {
        char one[2] = {*at, '\0'};
        bool counts = !in_brackets && is_count_twice(before, *at);
        before = in_brackets || *at == '\\' ? '\0' : *at;
        if (counts) return false;
        if (*at == '\\') {
            if (*++at == '\0') return false;
            good = put_escape(&w, *at, in_brackets);
        } else if (in_brackets) {
            good = put_in_brackets(&w, *at, &in_brackets);
        } else if (*at == '(') {
            good = put_group(&w, &at);
        } else if (*at == '[') {
            good = put_open_bracket(&w, &at);
            in_brackets = true;
        } else {
            good = *at != '{' || (++n_counts <= COUNTS_MAX && is_short(at + 1));
            put(&w, one);
        }
    }
    return good && !w.full && !in_brackets;
}

/* ---- the set ---- */

static const char *reason_of(bt_arena *arena, const char *pattern) {
    static const char words[] = "the expression of --override-tensor cannot be followed: ";
    size_t n = strnlen(pattern, 80);
    char *text = bt_arena_alloc(arena, sizeof words + n);
    if (!text) return "an expression of --override-tensor cannot be followed";
    memcpy(text, words, sizeof words - 1);
    memcpy(text + sizeof words - 1, pattern, n);
    return text;
}

static bool compile(const char *pattern, rule *r) {
    char posix[PATTERN_MAX];
    if (!bt_rule_translate(pattern, posix, sizeof posix)) return false;
    if (posix[0] == '\0') return true; /* is found everywhere */
    r->has_regex = regcomp(&r->regex, posix, REG_EXTENDED | REG_NOSUB) == 0;
    return r->has_regex;
}

static uint32_t movable_at(const bt_rules *rules) {
    for (uint32_t i = rules->n; i > 0; i--)
        if (rules->items[i - 1].kind == BT_RULE_N_EXPERTS && rules->items[i - 1].by.origin == BT_FROM_ARGV)
            return i - 1;
    return rules->n;
}

bt_status bt_rule_set_open(bt_arena *arena, const bt_rules *rules, bool movable, bt_rule_set **ret,
                           const char **ret_reason, bt_error *err) {
    bt_rule_set *set = bt_arena_alloc(arena, sizeof *set);
    rule *items = bt_arena_array(arena, (uint64_t)rules->n + 1, sizeof *items);
    *ret_reason = NULL;
    if (!set || !items)
        return bt_fail(err, BT_E_NOMEM, "plan_arena", BT_MEASURE_ITEMS, rules->n, 0,
                       "the arena has no room for the rules of a command line");
    *set = (bt_rule_set){.items = items, .movable_at = movable ? movable_at(rules) : NOWHERE};
    for (uint32_t i = 0; i < rules->n; i++) {
        const bt_tensor_rule *of = &rules->items[i];
        rule *r = &items[set->n++];
        *r = (rule){.kind = of->kind, .n = of->n, .to_host = true};
        if (of->kind != BT_RULE_PATTERN) continue;
        r->to_host = strcmp(of->buffer, "CPU") == 0;
        r->device = of->buffer;
        if (compile(of->pattern, r)) continue;
        *ret_reason = reason_of(arena, of->pattern);
        bt_rule_set_close(set);
        return BT_OK;
    }
    *ret = set;
    return BT_OK;
}

void bt_rule_set_close(bt_rule_set *set) {
    for (uint32_t i = 0; set && i < set->n; i++)
        if (set->items[i].has_regex) regfree(&set->items[i].regex);
    if (set) set->n = 0;
}

/* LLM_FFN_DENSE_REGEX of common/common.h */
static bool is_dense_ffn(const bt_tensor *t) {
    static const char *const parts[] = {".ffn_up.", ".ffn_down.", ".ffn_gate."};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(t->name, parts[i])) return true;
    return false;
}

static bool matches(const rule *r, const bt_tensor *t) {
    switch (r->kind) {
    case BT_RULE_PATTERN:
        return !r->has_regex || regexec(&r->regex, t->name, 0, NULL, 0) == 0;
    case BT_RULE_EXPERTS:
        return bt_tensor_is_of_experts(t);
    case BT_RULE_N_EXPERTS:
        return t->block >= 0 && t->block < r->n && bt_tensor_is_of_experts(t);
    case BT_RULE_N_FFN:
        return t->block >= 0 && t->block < r->n && is_dense_ffn(t);
    }
    return false;
}

bt_destination bt_rule_set_find(const bt_rule_set *set, const bt_tensor *tensor) {
    bool movable = set->movable_at != NOWHERE && tensor->block >= 0 && bt_tensor_is_of_experts(tensor);
    for (uint32_t i = 0; i < set->n; i++) {
        const rule *r = &set->items[i];
        if (i == set->movable_at) continue; /* its n is the placement's */
        if (!matches(r, tensor)) continue;
        if (r->to_host) return (bt_destination){BT_TO_HOST, NULL};
        if (movable && i > set->movable_at) return (bt_destination){BT_TO_UNKNOWN, r->device};
        return (bt_destination){BT_TO_DEVICE, r->device};
    }
    return (bt_destination){movable ? BT_TO_MOVABLE : BT_TO_LAYER, NULL};
}
