/* SPDX-License-Identifier: MIT
 *
 * option_values.c: the parsers behind the option table, but for those of devices.
 *
 * Each takes the value as it was typed, and says in one sentence what it wants instead. */
#include "cli/option_values.h"
#include "base/error.h"
#include "base/size.h"
#include "model/types.h"

#include <string.h>

bt_status bt_cli_parse_budget(const char *value, void *target, bt_error *err) {
    bt_cli_options *options = target;
    if (strcmp(value, "auto") == 0) {
        options->wishes.budget_kind = BT_BUDGET_AUTO;
        return BT_OK;
    }
    BT_TRY(bt_size_parse(value, "--ram-budget", &options->wishes.budget_bytes, err));
    options->wishes.budget_kind = options->wishes.budget_bytes == 0 ? BT_BUDGET_OFF : BT_BUDGET_BYTES;
    return BT_OK;
}

static bt_status parse_type(const char *value, const char *flag, uint32_t *ret, bt_error *err) {
    if (strcmp(value, "auto") == 0) {
        *ret = BT_TYPE_AUTO;
        return BT_OK;
    }
    if (bt_type_by_name(value, ret)) return BT_OK;
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                   "%s wants auto, or a tensor type such as f16, q8_0 or q4_0, not \"%s\"", flag, value);
}

bt_status bt_cli_parse_type_k(const char *value, void *target, bt_error *err) {
    return parse_type(value, "--cache-type-k", &((bt_cli_options *)target)->wishes.type_k, err);
}

bt_status bt_cli_parse_type_v(const char *value, void *target, bt_error *err) {
    return parse_type(value, "--cache-type-v", &((bt_cli_options *)target)->wishes.type_v, err);
}

bt_status bt_cli_parse_rope_scaling(const char *value, void *target, bt_error *err) {
    static const char *const names[] = {"none", "linear", "yarn"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(value, names[i]) != 0) continue;
        ((bt_cli_options *)target)->wishes.rope_scaling = (bt_rope_scaling)(BT_ROPE_NONE + i);
        return BT_OK;
    }
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                   "--rope-scaling wants none, linear or yarn, not \"%s\"", value);
}

/* ---- what this version cannot do -------------------------------------------------------------------------------- */

/* instead: what this version can do about it; "" is nothing. */
static bt_status later_but(const char *what, const char *instead, bt_error *err) {
    return bt_fail(err, BT_E_UNSUPPORTED, "unsupported", BT_MEASURE_NONE, 0, 0, "%s not in this version%s%s", what,
                   instead[0] ? "; " : "", instead);
}

bt_status bt_cli_parse_speculate(const char *value, void *target, bt_error *err) {
    bt_wishes *wishes = &((bt_cli_options *)target)->wishes;
    static const char lookup[] = "ngram";
    static const char model[] = "draft"; /* as long */
    if (strcmp(value, "off") == 0 || strcmp(value, "auto") == 0) {
        wishes->speculate = strcmp(value, "off") == 0 ? BT_SPECULATE_OFF : BT_SPECULATE_AUTO;
        wishes->n_draft = 0;
        return BT_OK;
    }
    bool by_model = strncmp(value, model, sizeof model - 1) == 0;
    bool good = by_model || strncmp(value, lookup, sizeof lookup - 1) == 0;
    const char *rest = good ? value + sizeof lookup - 1 : "";
    bool counted = good && rest[0] == ':';
    good = good && (rest[0] == '\0' || (counted && rest[1] >= '1' && rest[1] <= '6' && rest[2] == '\0'));
    if (!good)
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                       "--speculate wants off, auto, ngram, draft, ngram:K or draft:K with K from 1 to 6, not \"%s\"",
                       value);
    wishes->speculate = by_model ? BT_SPECULATE_DRAFT : BT_SPECULATE_NGRAM;
    wishes->n_draft = counted ? (uint32_t)(rest[1] - '0') : 0;
    return BT_OK;
}

/* Those who only feed tokens have nothing to guess. */
bt_status bt_cli_parse_draft(const char *value, void *target, bt_error *err) {
    (void)target;
    return strcmp(value, "off") == 0 ? BT_OK : later_but("draft models here are", "run and plan take one", err);
}

bt_status bt_cli_parse_projector(const char *value, void *target, bt_error *err) {
    (void)value;
    (void)target;
    return later_but("pictures and sound are", "plan --mmproj prices a projector", err);
}

/* What users of llama.cpp type first. */
bt_status bt_cli_parse_model_word(const char *value, void *target, bt_error *err) {
    (void)target;
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                   "the model's file stands for itself, without an option: %.200s", value);
}

bt_status bt_cli_parse_fetched(const char *value, void *target, bt_error *err) {
    (void)value;
    (void)target;
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                   "models are not fetched: download the GGUF file, and name it");
}

bt_status bt_cli_parse_address(const char *value, void *target, bt_error *err) {
    (void)value;
    (void)target;
    return bt_fail(err, BT_E_ARG, "arguments", BT_MEASURE_NONE, 0, 0,
                   "the router's address is one option: --listen HOST:PORT, as --listen 127.0.0.1:8080");
}

bt_status bt_cli_parse_fraction(const char *value, void *target, bt_error *err) {
    bt_cli_options *options = target;
    uint64_t milli = 0;
    if (strcmp(value, "off") == 0) {
        options->min_gpu_fraction = -1;
        return BT_OK;
    }
    const char *point = value[0] == '0' || value[0] == '1' ? value + 1 : value;
    size_t n = point[0] == '.' ? strspn(point + 1, "0123456789") : 0;
    for (uint64_t i = 0, unit = 100; i < n && i < 3; i++, unit /= 10)
        milli += (uint64_t)(point[1 + i] - '0') * unit;
    milli += value[0] == '1' ? 1000 : 0;
    bool good = value[0] && (point[0] == '\0' || (n > 0 && point[1 + n] == '\0')) && milli > 0 && milli <= 1000;
    if (!good)
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                       "--min-gpu-fraction wants a share over 0 and up to 1, as 0.5, or off, not \"%.40s\"", value);
    options->min_gpu_fraction = (double)milli / 1000.0;
    return BT_OK;
}

/* One name an option; what its letters may be, the router's own check of Host says. */
bt_status bt_cli_parse_allowed_host(const char *value, void *target, bt_error *err) {
    bt_cli_options *options = target;
    if (!*value || strpbrk(value, " \t,/"))
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0,
                       "--allowed-host wants one name, as box.lan, not \"%.80s\"", value);
    if (options->n_allowed_hosts == BT_CLI_HOSTS_MAX)
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_ITEMS, BT_CLI_HOSTS_MAX + 1, BT_CLI_HOSTS_MAX,
                       "--allowed-host was given more than %u times", BT_CLI_HOSTS_MAX);
    options->allowed_hosts[options->n_allowed_hosts++] = value;
    return BT_OK;
}
