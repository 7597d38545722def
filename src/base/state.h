/* SPDX-License-Identifier: MIT
 * state.h: the folder of what is kept between runs, and files in it that are whole or not there. */
#pragma once

#include "base/text.h"

#define BT_STATE_PATH_MAX 4096u /* PATH_MAX of Linux (linux/limits.h) */
/* Longest wait for another process's turn. A turn takes about a millisecond; one that takes this long is stopped. */
#define BT_STATE_LOCK_MS 10000u

/* Open the folder (docs/interfaces.md "Files we keep"). create: make it where it is missing, mode 0700.
 * returns BT_OK and a descriptor to close; BT_E_IO, code "state_dir", when there is no folder that can be written and
 *         that is ours alone; the text says why the first one is not */
BT_MUST_CHECK bt_status bt_state_open(bool create, int *ret_dir, bt_error *err);
/* The same folder, for who only looks; where none can be written, the first that is ours alone and can be read. Errors
 * as those of bt_state_open without create. */
BT_MUST_CHECK bt_status bt_state_look(int *ret_dir, bt_error *err);
/* A file of it, appended to text, whose maximum is the bound. BT_E_IO with sys ENOENT: there is none. */
BT_MUST_CHECK bt_status bt_state_read(int dir, const char *name, bt_text *text, bt_error *err);
/* Replace a file as a whole: readers see the old one or the new one. Mode 0600. */
BT_MUST_CHECK bt_status bt_state_write(int dir, const char *name, const char *data, size_t bytes, bt_error *err);
/* Silent: what cannot be removed stays. */
void bt_state_remove(int dir, const char *name);
/* Keep at most n_max files whose names start with prefix: the oldest go. Silent: what cannot be removed stays. */
void bt_state_trim(int dir, const char *prefix, uint32_t n_max);
/* The same, of one file: the folder is opened and closed again. recall fails as bt_state_open and bt_state_read do. */
BT_MUST_CHECK bt_status bt_state_recall(const char *name, bt_text *text, bt_error *err);
/* Write it, and trim those whose names start with prefix to n_max. The folder is made where it is missing. */
BT_MUST_CHECK bt_status bt_state_keep(const char *name, const char *data, size_t bytes, const char *prefix,
                                      uint32_t n_max, bt_error *err);
/* One process at a time, until the descriptor is closed or the process ends. BT_E_IO, code "state_busy", after
 * BT_STATE_LOCK_MS. */
BT_MUST_CHECK bt_status bt_state_lock(int dir, const char *name, int *ret_lock, bt_error *err);

/* The folders that come into question, best first; for tests. false: no i-th. environ_get: NULL is getenv. */
bool bt_state_candidate(uint32_t i, const char *(*environ_get)(const char *), char ret_path[BT_STATE_PATH_MAX]);
