/* SPDX-License-Identifier: MIT
 * cache.h: what lies in the folder of kept files, by kind (docs/interfaces.md "Files we keep"). */
#pragma once

#include "burthen.h"

#define BT_CACHE_KINDS     9u    /* the last one: files of no kind */
#define BT_CACHE_FILES_MAX 4096u /* looked at: ten times what all kinds keep together */

extern const char bt_cache_kinds[]; /* "prices|disks|...": those that can be named */

typedef struct bt_cache_kind {
    const char *name, *what;
    bool clearable; /* made again when it is missed */
    uint32_t n_files;
    uint64_t bytes;
    int64_t oldest_s, newest_s; /* last written, Unix time; 0: no file */
    uint32_t n_removed;
} bt_cache_kind;

typedef struct bt_cache {
    char folder[4096]; /* "": there is none yet */
    bt_cache_kind kinds[BT_CACHE_KINDS];
    bool cut;          /* there are more than BT_CACHE_FILES_MAX files */
    uint32_t n_failed; /* that were to be removed, and are still there */
    int sys;           /* why the first of them is */
} bt_cache;

/* Index of a kind that can be named; BT_CACHE_KINDS if there is none of that name. */
uint32_t bt_cache_kind_find(const char *name);
/* A kind without its files. */
bt_cache_kind bt_cache_kind_at(uint32_t i);
/* Look, and with clear remove: of the kinds whose bit (1 << index) is in kinds, what is clearable. What is counted was
 * there before. BT_E_IO, code "state_dir": the folder cannot be read, or is not ours alone; none yet is no error. */
BT_MUST_CHECK bt_status bt_cache_look(uint32_t kinds, bool clear, bt_cache *ret, bt_error *err);
