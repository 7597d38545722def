/* SPDX-License-Identifier: MIT
 * learned.h: what a program takes beside the lines of its plan, as it was seen in former runs. */
#pragma once

#include "burthen.h"

#define BT_LEARNED_NAME_BYTES 80u /* "learned-", a SHA-256 as text, and its end */

/* The name of the file that holds what is learned of a program with a model. Its path is not in it, nor can anything
 * be read from it.
 * program        a file by its size and the time it was last written; libraries and version, where they count, and all
 *                that changes what is taken (batch, KV types, devices): in settings
 * header_sha256  of the model, as bt_facts has it
 * returns false, and an empty name, where the program's file cannot be looked at: then nothing is learned of it */
bool bt_learned_name(const char *program, const char *header_sha256, uint32_t n_slots, const char *settings,
                     char ret_name[BT_LEARNED_NAME_BYTES]);

/* The most that was seen; unknown: never run, or nothing can be read. */
void bt_learned_read(const char *name, bt_known *ret_base_bytes);
/* Remember a run that took base_bytes; more than that, when seen before, stands. Silent but for the log: what is not
 * kept is learned again. 0 bytes, and what is no name of ours, are not kept. */
void bt_learned_keep(const char *name, uint64_t base_bytes);
