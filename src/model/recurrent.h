/* SPDX-License-Identifier: MIT
 * recurrent.h: which blocks keep a state of each sequence, and how large it is. */
#pragma once

#include "model/families.h"
#include "model/gguf.h"

/* Fills conv_width and ssm_width of facts->kv, and no_kv[n_block]: blocks that have none, whatever their heads.
 * BT_E_FORMAT when a key is missing that libllama needs. */
BT_MUST_CHECK bt_status bt_recurrent_fill(const bt_gguf *gguf, const bt_family *family, bt_facts *facts,
                                          bool no_kv[BT_BLOCK_MAX], bt_error *err);
