/* SPDX-License-Identifier: MIT
 * effective_lists.c: settings that hold more than one thing, and the small grammars in which they are written.
 *
 *   -ot  "exps=CPU,blk\.1\.=CUDA1"   pattern=buffer, at each comma (a pattern cannot hold one), the first '=' splits
 *   --lora  "a.gguf,\"b,c.gguf\""    a row of CSV: quotes, doubled inside quotes
 *   -ts  "3,1" or "3/1"              numbers
 *
 * Rules keep the order in which llama.cpp collects them, because of those that match a tensor the first one decides:
 * the environment comes before argv there. Lists grow in the arena by doubling, and each has its maximum. */
#include "base/error.h"
#include "guard/effective_internal.h"

#include <stdlib.h>
#include <string.h>

static bt_status no_memory(bt_error *err) {
    return bt_fail(err, BT_E_NOMEM, "arguments", BT_MEASURE_NONE, 0, 0, "no memory for the settings of the command");
}

static bt_status too_many(bt_error *err, const char *what, uint32_t most) {
    return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_ITEMS, (uint64_t)most + 1, most,
                   "the command has too many %s", what);
}

/* Room for one more of n items, which double in number when they are full: 0, 1, 2, 4, 8... */
static bt_status grow(bt_arena *arena, void **items, uint32_t n, size_t item_bytes, bt_error *err) {
    if ((n & (n - 1)) != 0) return BT_OK;
    void *more = bt_arena_array(arena, n == 0 ? 1 : 2 * (uint64_t)n, item_bytes);
    if (!more) return no_memory(err);
    if (n > 0) memcpy(more, *items, n * item_bytes);
    *items = more;
    return BT_OK;
}

/* ---- rules ------------------------------------------------------------------------------------------------------ */

static bt_status add_rule(settling *s, bt_rules *rules, bt_tensor_rule rule) {
    if (rules->n == BT_RULE_MAX) return too_many(s->err, "rules for tensors", BT_RULE_MAX);
    void *items = rules->items;
    BT_TRY(grow(s->arena, &items, rules->n, sizeof rule, s->err));
    rules->items = items;
    rules->items[rules->n++] = rule;
    return BT_OK;
}

static bt_status add_patterns(settling *s, bt_rules *rules, const assignment *a, bool *ret_good) {
    for (const char *p = a->value; p;) {
        size_t n = strcspn(p, ",");
        const char *equals = memchr(p, '=', n);
        *ret_good = equals != NULL;
        if (!equals) return BT_OK;
        bt_tensor_rule rule = {.kind = BT_RULE_PATTERN, .by = a->by};
        rule.pattern = bt_arena_strndup(s->arena, p, (size_t)(equals - p));
        rule.buffer = bt_arena_strndup(s->arena, equals + 1, n - (size_t)(equals - p) - 1);
        if (!rule.pattern || !rule.buffer) return no_memory(s->err);
        BT_TRY(add_rule(s, rules, rule));
        rules->n_pattern++;
        p = p[n] ? p + n + 1 : NULL;
    }
    return BT_OK;
}

static bt_status add_first_n(settling *s, bt_rules *rules, const assignment *a, bt_rule_kind kind, bool *ret_good) {
    bt_tensor_rule rule = {.kind = kind, .by = a->by};
    *ret_good = a->value && bt_value_int(a->value, &rule.n) && rule.n >= 0;
    if (!*ret_good || rule.n == 0) return BT_OK;
    if (kind == BT_RULE_N_EXPERTS && rule.n > rules->n_experts) rules->n_experts = rule.n;
    return add_rule(s, rules, rule);
}

bt_status bt_effective_rules_add(settling *s, bt_rules *rules, const assignment *a, bool *ret_good) {
    bool on = true;
    *ret_good = true;
    switch ((int)a->flag) {
    case BT_FLAG_OVERRIDE_TENSOR:
    case BT_FLAG_DRAFT_OVERRIDE_TENSOR:
        *ret_good = a->value != NULL;
        return add_patterns(s, rules, a, ret_good);
    case BT_FLAG_N_CPU_FFN:
        return add_first_n(s, rules, a, BT_RULE_N_FFN, ret_good);
    case BT_FLAG_N_CPU_MOE:
    case BT_FLAG_DRAFT_N_CPU_MOE:
        return add_first_n(s, rules, a, BT_RULE_N_EXPERTS, ret_good);
    default:
        break;
    }
    *ret_good = !a->value || bt_value_on(a->value, &on);
    if (!*ret_good || !on) return BT_OK;
    rules->every_expert = true;
    return add_rule(s, rules, (bt_tensor_rule){.kind = BT_RULE_EXPERTS, .by = a->by});
}

/* ---- adapters --------------------------------------------------------------------------------------------------- */

static bt_status add_adapter(settling *s, bt_adapters *adapters, bt_adapter adapter) {
    if (adapters->n == BT_ADAPTER_MAX) return too_many(s->err, "adapters", BT_ADAPTER_MAX);
    void *items = adapters->items;
    BT_TRY(grow(s->arena, &items, adapters->n, sizeof adapter, s->err));
    adapters->items = items;
    adapters->items[adapters->n++] = adapter;
    return BT_OK;
}

/* The next field of a row of CSV, unquoted into field, which has room for it. The rest of the row; NULL: it was the
 * last. A quote only opens at the start of a field. */
static const char *take_field(const char *row, char *field) {
    bool quoted = false;
    size_t n = 0;
    for (; *row && (quoted || *row != ','); row++) {
        if (*row != '"')
            field[n++] = *row;
        else if (!quoted && n > 0)
            field[n++] = '"';
        else if (!quoted)
            quoted = true;
        else if (row[1] == '"')
            field[n++] = *++row;
        else
            quoted = false;
    }
    field[n] = '\0';
    return *row ? row + 1 : NULL;
}

/* "file:scale" apart; false: not of that form. */
static bool split_scale(char *field, double *ret) {
    char *colon = strchr(field, ':');
    if (!colon || strchr(colon + 1, ':') || !bt_value_real(colon + 1, ret)) return false;
    *colon = '\0';
    return true;
}

bt_status bt_effective_adapters_add(settling *s, bt_adapters *adapters, const assignment *a, bool scaled,
                                    bool *ret_good) {
    *ret_good = a->value != NULL;
    if (a->value_2) { /* of earlier builds: two arguments */
        bt_adapter adapter = {.path = a->value, .by = a->by};
        *ret_good = bt_value_real(a->value_2, &adapter.scale);
        return *ret_good ? add_adapter(s, adapters, adapter) : BT_OK;
    }
    for (const char *row = a->value; row;) {
        char *field = bt_arena_alloc(s->arena, strlen(row) + 1);
        if (!field) return no_memory(s->err);
        row = take_field(row, field);
        bt_adapter adapter = {.path = field, .scale = 1, .by = a->by};
        *ret_good = !scaled || split_scale(field, &adapter.scale);
        if (!*ret_good) return BT_OK;
        BT_TRY(add_adapter(s, adapters, adapter));
    }
    return BT_OK;
}

/* ---- numbers, words --------------------------------------------------------------------------------------------- */

/* The items between any of the separators, as many as there are; 0: too many, or one is too long for a number. */
static uint32_t split_items(const char *text, const char *separators, char items[BT_SHARE_MAX][32]) {
    uint32_t n = 0;
    for (const char *p = text;;) {
        size_t length = strcspn(p, separators);
        if (n == BT_SHARE_MAX || length >= sizeof items[0]) return 0;
        memcpy(items[n], p, length);
        items[n++][length] = '\0';
        p += length;
        if (!*p) return n;
        p += strspn(p, separators);
        if (!*p) return n; /* nothing after the last separator is no item */
    }
}

bool bt_effective_shares(bt_effective *out, const char *text) {
    char items[BT_SHARE_MAX][32];
    double shares[BT_SHARE_MAX] = {0};
    uint32_t n = split_items(text, ",/", items);
    for (uint32_t i = 0; i < n; i++) {
        if (!bt_value_real(items[i], &shares[i])) return false;
    }
    if (n == 0) return false;
    memcpy(out->shares, shares, sizeof shares);
    out->n_shares = n;
    return true;
}

/* std::stoull takes a sign, and wraps: of -1 MiB llama.cpp makes all but one of the bytes that can be counted. */
#define TARGET_MIB_MAX (UINT64_MAX >> 20)

bool bt_effective_fit_targets(bt_effective *out, const char *text) {
    char items[BT_SHARE_MAX][32];
    uint64_t targets[BT_SHARE_MAX] = {0};
    uint32_t n = split_items(text, ",/", items);
    for (uint32_t i = 0; i < n; i++) {
        int32_t mib;
        if (!bt_value_int(items[i], &mib)) return false;
        targets[i] = (uint64_t)mib & TARGET_MIB_MAX;
    }
    if (n == 0) return false;
    memcpy(out->fit_target_mib, targets, sizeof targets);
    out->n_fit_targets = n;
    return true;
}

bool bt_effective_drafters(bt_effective *out, const char *text) {
    uint32_t drafters = 0;
    for (const char *p = text;;) {
        char word[24];
        size_t n = strcspn(p, ",+"); /* '+' chained them in earlier builds */
        int32_t index;
        if (n >= sizeof word) return false;
        memcpy(word, p, n);
        word[n] = '\0';
        if (strcmp(word, "none") == 0) return true; /* none of this list, but of those before it */
        if (!bt_value_choice(word,
                             "draft-simple|draft-eagle3|draft-mtp|draft-dflash|draft-dspark|ngram-simple|ngram-map-k|"
                             "ngram-map-k4v|ngram-mod|ngram-cache",
                             &index))
            return false;
        drafters |= 1u << index;
        if (!p[n]) break;
        p += n + 1;
    }
    out->drafters |= drafters;
    return true;
}
