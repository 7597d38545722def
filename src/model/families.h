/* SPDX-License-Identifier: MIT
 * families.h: what an architecture keeps between tokens: windows, latent rows, recurrent state, or nothing. */
#pragma once

#include <stdint.h>

/* Which blocks keep only the last tokens. */
typedef enum bt_window_rule {
    BT_WINDOW_NONE,     /* none, whatever the file says */
    BT_WINDOW_ALWAYS,   /* the file's window, or the row's if that is not 0; else the key is missing */
    BT_WINDOW_IF_SET,   /* windows if the file gives one above 0; of the row's size if that is not 0 */
    BT_WINDOW_UNLESS_0, /* windows of the row's size unless the file says 0 */
} bt_window_rule;

/* Which blocks keep a state. */
typedef enum bt_recurrent_where {
    BT_RECURRENT_NOWHERE,
    BT_RECURRENT_ALL,         /* every block, and no KV */
    BT_RECURRENT_BESIDE,      /* every block, beside its KV */
    BT_RECURRENT_NO_KV,       /* blocks without KV heads */
    BT_RECURRENT_NO_KV_NO_FF, /* blocks with neither KV heads nor a feed-forward width */
    BT_RECURRENT_INTERVAL,    /* attention.recurrent_layers, or all but each full_attention_interval'th (4) */
} bt_recurrent_where;

/* What the state is made of (llama_hparams::n_embd_r and n_embd_s). */
typedef enum bt_state_kind {
    BT_STATE_NONE,
    BT_STATE_SSM,        /* Mamba, Mamba 2, gated delta net: ssm.* */
    BT_STATE_SHORT_CONV, /* shortconv.l_cache */
    BT_STATE_WKV,        /* RWKV: wkv.head_size, token_shift_count */
    BT_STATE_KDA,        /* Kimi delta attention: kda.head_dim */
} bt_state_kind;

#define BT_DENSE_FIRST   1u   /* the first block of a period is full, not the last */
#define BT_NEEDS_PATTERN 2u   /* the array must be in the file */
#define BT_ONLY_64       4u   /* exaone4: only the model of 64 blocks has windows */
#define BT_SHARES_20     8u   /* gemma3n: blocks from 20 on use the KV of earlier ones */
#define BT_SHARES_KEY    16u  /* gemma4: attention.shared_kv_layers of them */
#define BT_LATENT        32u  /* one row for all heads, when key_length_mla and value_length_mla are set */
#define BT_ENCODER       64u  /* no cache, no output head */
#define BT_INDEXED       128u /* beside each latent row, a key by which queries choose cells (a cache of its own) */

typedef struct bt_family {
    const char *name; /* general.architecture */
    bt_window_rule rule;
    uint32_t window, period;
    bt_recurrent_where where;
    bt_state_kind state;
    uint32_t flags;
} bt_family;

/* NULL: not known. */
const bt_family *bt_family_find(const char *arch);
