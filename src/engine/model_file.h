/* SPDX-License-Identifier: MIT
 * model_file.h: the virtual model file: what libllama loads from, without reading the weights that we place. */
#pragma once

#include "burthen.h"
#include "store/file.h"

#include <stdio.h>

typedef struct bt_model_file bt_model_file;

/* A read-only stream that holds one GGUF file: the header (of all shards, merged), the bytes of the small tensors, and
 * a tag at the start of every other tensor, whose bytes are left as they were in the caller's memory. Tensors that
 * stand on other devices have their bytes, but for a dry run. facts and store outlive it. Close the stream with fclose,
 * then the file. */
BT_MUST_CHECK bt_status bt_model_file_open(const bt_facts *facts, const bt_store *store, bool measuring,
                                           bt_model_file **ret_file, FILE **ret_stream, bt_error *err);
/* The failure behind a read that libllama reported as such; false if there was none. */
bool bt_model_file_take_error(bt_model_file *file, bt_error *err);
void bt_model_file_close(bt_model_file *file); /* NULL is fine */
