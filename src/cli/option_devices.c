/* SPDX-License-Identifier: MIT
 *
 * option_devices.c: the parsers of the options that name devices and say what goes to them.
 *
 * Words may stand in any case and between blanks, since they come from the environment too; a number is digits and
 * nothing else. What is no such value is refused with the way it was set (the option's name and its twin in the
 * environment): a typing error must not become a model on the wrong device. */
#include "cli/option_values.h"

#include "base/error.h"
#include "base/size.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LAYERS_MAX  1000000u /* far above every model: whoever types 999 means all */
#define SHARES_MAX  1000000u
#define MEM_MIB_MAX (UINT64_C(1) << 40) /* no overflow when it becomes bytes */

/* The word without the blanks around it; false when it does not fit. */
static bool trim(const char *value, char *word, size_t n_word) {
    while (isspace((unsigned char)*value))
        value++;
    size_t n = strlen(value);
    while (n > 0 && isspace((unsigned char)value[n - 1]))
        n--;
    if (n >= n_word) return false;
    memcpy(word, value, n);
    word[n] = '\0';
    return true;
}

static bool is_digits(const char *word) {
    return word[0] && strspn(word, "0123456789") == strlen(word);
}

static bt_status wrong(const char *value, const char *option, const char *twin, const char *wants, bt_error *err) {
    return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "%s (%s) wants %s, not \"%.60s\"", option, twin,
                   wants, value);
}

static bool parse_layers(const char *value, bool all, bt_layers_kind *ret_kind, uint32_t *ret_n) {
    char word[32];
    if (!trim(value, word, sizeof word)) return false;
    if (strcasecmp(word, "auto") == 0) {
        *ret_kind = BT_LAYERS_AUTO;
        return true;
    }
    if (all && strcasecmp(word, "all") == 0) {
        *ret_kind = BT_LAYERS_ALL;
        return true;
    }
    if (!is_digits(word) || strlen(word) > 9) return false;
    *ret_kind = BT_LAYERS_COUNT;
    *ret_n = (uint32_t)bt_min_u64(strtoul(word, NULL, 10), LAYERS_MAX);
    return true;
}

bt_status bt_cli_parse_gpu_layers(const char *value, void *target, bt_error *err) {
    bt_wishes *wishes = &((bt_cli_options *)target)->wishes;
    if (parse_layers(value, true, &wishes->gpu_layers, &wishes->n_gpu_layers)) return BT_OK;
    return wrong(value, "--gpu-layers", "BURTHEN_GPU_LAYERS", "a number of blocks, auto or all", err);
}

bt_status bt_cli_parse_cpu_moe(const char *value, void *target, bt_error *err) {
    bt_wishes *wishes = &((bt_cli_options *)target)->wishes;
    if (parse_layers(value, true, &wishes->cpu_moe, &wishes->n_cpu_moe)) return BT_OK;
    return wrong(value, "--n-cpu-moe", "BURTHEN_N_CPU_MOE", "a number of blocks, auto or all", err);
}

bt_status bt_cli_parse_gpu_mem(const char *value, void *target, bt_error *err) {
    bt_wishes *wishes = &((bt_cli_options *)target)->wishes;
    char word[32];
    if (!trim(value, word, sizeof word) || !is_digits(word) || strlen(word) > 12 ||
        strtoull(word, NULL, 10) > MEM_MIB_MAX)
        return wrong(value, "--gpu-mem", "BURTHEN_GPU_MEM", "a number of MiB", err);
    wishes->gpu_mem_bytes = (bt_known){true, (uint64_t)strtoull(word, NULL, 10) << 20};
    return BT_OK;
}

/* NAME, NAME=SIZE, several with commas between them, or none. */
static bt_status add_device(const char *word, bt_wishes *wishes, bt_error *err) {
    const char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    bt_device_wish *wish = &wishes->devices[wishes->n_devices];
    if (n == 0 || n >= sizeof wish->name)
        return wrong(word, "--device", "BURTHEN_DEVICE", "names as burthen devices prints them, or NAME=SIZE", err);
    if (wishes->n_devices == BT_DEVICE_MAX)
        return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_ITEMS, BT_DEVICE_MAX + 1, BT_DEVICE_MAX,
                       "--device was given more than %u times", BT_DEVICE_MAX);
    *wish = (bt_device_wish){0};
    memcpy(wish->name, word, n);
    for (uint32_t i = 0; i < wishes->n_devices; i++)
        if (strcmp(wishes->devices[i].name, wish->name) == 0)
            return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_NONE, 0, 0, "--device names %s twice", wish->name);
    if (equals) BT_TRY(bt_size_parse(equals + 1, "--device", &wish->budget_bytes.value, err));
    wish->budget_bytes.known = equals != NULL;
    wishes->n_devices++;
    return BT_OK;
}

bt_status bt_cli_parse_device(const char *value, void *target, bt_error *err) {
    bt_wishes *wishes = &((bt_cli_options *)target)->wishes;
    char words[512];
    if (!trim(value, words, sizeof words)) return wrong(value, "--device", "BURTHEN_DEVICE", "names of devices", err);
    if (strcasecmp(words, "none") == 0 || strcmp(words, "0") == 0) {
        wishes->no_devices = true;
        wishes->n_devices = 0;
        return BT_OK;
    }
    wishes->no_devices = false;
    if (strcasecmp(words, "auto") == 0) return BT_OK;
    char *rest = words;
    for (char *word = strsep(&rest, ","); word; word = strsep(&rest, ","))
        BT_TRY(add_device(word, wishes, err));
    return BT_OK;
}

/* One share, in thousandths: digits, perhaps a point and up to three more. */
static bool parse_share(const char *word, uint32_t *ret_milli) {
    size_t n = strspn(word, "0123456789");
    if (n > 7 || (n == 0 && word[0] != '.')) return false;
    uint64_t milli = n > 0 ? strtoul(word, NULL, 10) * 1000 : 0;
    if (word[n] == '.') {
        const char *digits = word + n + 1;
        size_t n_digits = strspn(digits, "0123456789");
        if (n_digits == 0 || digits[n_digits] != '\0') return false;
        for (uint32_t i = 0, unit = 100; i < n_digits && i < 3; i++, unit /= 10)
            milli += (uint64_t)(digits[i] - '0') * unit;
    } else if (word[n] != '\0') {
        return false;
    }
    if (milli > (uint64_t)SHARES_MAX * 1000) return false;
    *ret_milli = (uint32_t)milli;
    return true;
}

bt_status bt_cli_parse_tensor_split(const char *value, void *target, bt_error *err) {
    bt_wishes *wishes = &((bt_cli_options *)target)->wishes;
    char words[256];
    uint64_t sum = 0;
    bool good = trim(value, words, sizeof words);
    char *rest = words;
    wishes->n_tensor_splits = 0;
    for (char *word = good ? strsep(&rest, ",/") : NULL; word && good; word = strsep(&rest, ",/")) {
        good = wishes->n_tensor_splits < BT_DEVICE_MAX &&
               parse_share(word, &wishes->tensor_split_milli[wishes->n_tensor_splits]);
        if (good) sum += wishes->tensor_split_milli[wishes->n_tensor_splits++];
    }
    if (good && sum > 0) return BT_OK;
    return wrong(value, "--tensor-split", "BURTHEN_TENSOR_SPLIT", "shares of the devices, as 3,1", err);
}

/* HOST:PORT, several with commas between them. */
bt_status bt_cli_parse_rpc(const char *value, void *target, bt_error *err) {
    bt_cli_options *options = target;
    char words[BT_CLI_RPC_MAX * 64];
    if (!trim(value, words, sizeof words)) return wrong(value, "--rpc", "BURTHEN_RPC", "HOST:PORT", err);
    char *rest = words;
    for (char *word = strsep(&rest, ","); word; word = strsep(&rest, ",")) {
        const char *colon = strrchr(word, ':');
        bool good = colon && colon > word && is_digits(colon + 1) && strlen(colon + 1) <= 5 &&
                    strtoul(colon + 1, NULL, 10) > 0 && strtoul(colon + 1, NULL, 10) <= 65535 &&
                    strlen(word) < sizeof options->rpc[0];
        if (!good) return wrong(word, "--rpc", "BURTHEN_RPC", "HOST:PORT", err);
        if (options->n_rpc == BT_CLI_RPC_MAX)
            return bt_fail(err, BT_E_ARG, "option", BT_MEASURE_ITEMS, BT_CLI_RPC_MAX + 1, BT_CLI_RPC_MAX,
                           "--rpc was given more than %u times", BT_CLI_RPC_MAX);
        (void)snprintf(options->rpc[options->n_rpc++], sizeof options->rpc[0], "%s", word);
    }
    return BT_OK;
}
