/* SPDX-License-Identifier: MIT
 * config.h: llama.cpp's config.ini: sections of keys, as its common/preset.cpp reads them. */
#pragma once

#include "base/arena.h"

#define BT_CONFIG_ENTRY_MAX 1024

typedef struct bt_config_entry {
    const char *key, *value; /* in the arena */
} bt_config_entry;

typedef struct bt_config {
    const bt_config_entry *entries;
    uint32_t n;
    uint64_t bad_line; /* counted from 1: llama.cpp refuses the file for it; 0: none */
} bt_config;

/* The keys of one section, sorted, each once: the order in which llama.cpp meets them. section "default" is also what
 * stands before the first header. E_ARG (code "arguments"): over BT_CONFIG_ENTRY_MAX keys. */
BT_MUST_CHECK bt_status bt_config_section(bt_arena *arena, const char *text, size_t n, const char *section,
                                          bt_config *ret, bt_error *err);
