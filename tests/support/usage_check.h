/* SPDX-License-Identifier: MIT
 * usage_check.h: a text through the reader of usage, whole or in pieces, and what must hold of whatever comes out. */
#pragma once

#include "router/usage.h"

#include <math.h>
#include <string.h>

/* The text in pieces of n_piece bytes; 0: at once. */
static inline bt_usage usage_of(bool stream, const char *text, size_t n, size_t n_piece) {
    bt_usage usage;
    bt_usage_reader *reader = bt_usage_open(stream);
    if (n_piece == 0) n_piece = n;
    for (size_t at = 0; at < n; at += n_piece)
        bt_usage_add(reader, text + at, n - at < n_piece ? n - at : n_piece);
    bt_usage_finish(reader, &usage);
    return usage;
}

static inline bool usage_same_known(bt_known a, bt_known b) {
    return a.known == b.known && a.value == b.value;
}

static inline bool usage_same(const bt_usage *a, const bt_usage *b) {
    return usage_same_known(a->prompt_tokens, b->prompt_tokens) &&
           usage_same_known(a->cached_tokens, b->cached_tokens) &&
           usage_same_known(a->output_tokens, b->output_tokens) && usage_same_known(a->draft_tokens, b->draft_tokens) &&
           usage_same_known(a->accepted_tokens, b->accepted_tokens) && a->prompt_per_s == b->prompt_per_s &&
           a->output_per_s == b->output_per_s;
}

/* Counts of at most n_objects objects, rates that are numbers. */
static inline bool usage_in_range(const bt_usage *u, size_t n_objects) {
    uint64_t most = 3 * (uint64_t)INT32_MAX * (n_objects + 1); /* a prompt is a sum of three */
    const bt_known *counts[] = {&u->prompt_tokens, &u->cached_tokens, &u->output_tokens, &u->draft_tokens,
                                &u->accepted_tokens};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i]->known ? counts[i]->value > most : counts[i]->value != 0) return false;
    }
    return isfinite(u->prompt_per_s) && u->prompt_per_s >= 0 && u->prompt_per_s <= 1e9 && isfinite(u->output_per_s) &&
           u->output_per_s >= 0 && u->output_per_s <= 1e9;
}
