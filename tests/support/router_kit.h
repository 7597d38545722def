/* SPDX-License-Identifier: MIT
 * router_kit.h: configurations for tests, from a text. */
#pragma once

#include "base/heap.h"
#include "router/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bt_config_notes kit_notes;

static inline const char *kit_env(const char *name) {
    if (strcmp(name, "HOME") == 0) return "/home/ann";
    if (strcmp(name, "KEY") == 0) return "sk-1";
    if (strcmp(name, "MORE") == 0) return "-ngl 99";
    if (strcmp(name, "TTL") == 0) return "7";
    if (strcmp(name, "BAD") == 0) return "\xff";
    if (strcmp(name, "MACRO") == 0) return "${KEY}";
    return NULL;
}

static inline bt_status kit_try(const char *text, bt_config **ret, bt_error *err) {
    char *copy = malloc(strlen(text) + 1); /* of exactly this size, so that a read past it is seen */
    assert_non_null(copy);
    memcpy(copy, text, strlen(text));
    bt_status status = bt_config_parse(copy, strlen(text), "dir/c.yaml", kit_env, ret, &kit_notes, err);
    free(copy);
    return status;
}

static inline bt_config *kit_parse(const char *text) {
    bt_config *config = NULL;
    bt_error err = {0};
    if (kit_try(text, &config, &err) != BT_OK) fail_msg("%s", err.text);
    return config;
}

/* It is refused, with a sentence that holds what. */
static inline void kit_refused(const char *text, const char *what) {
    bt_config *config = NULL;
    bt_error err = {0};
    uint64_t blocks = bt_heap_live_blocks();
    bt_status status = kit_try(text, &config, &err);
    if (status == BT_OK) fail_msg("taken: %s", text);
    assert_true(status == BT_E_FORMAT || status == BT_E_LIMIT);
    assert_string_equal(err.code, "config");
    if (!strstr(err.text, what)) fail_msg("\"%s\" is not in \"%s\"", what, err.text);
    assert_null(config);
    assert_int_equal(bt_heap_live_blocks(), blocks);
}

static inline bool kit_noted(uint32_t line, const char *what) {
    for (uint32_t i = 0; i < kit_notes.n; i++) {
        if (kit_notes.items[i].line == line && strstr(kit_notes.items[i].text, what)) return true;
    }
    return false;
}
