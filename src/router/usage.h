/* SPDX-License-Identifier: MIT
 * usage.h: how many tokens an answer took, read from the answer as it passes, a piece at a time. */
#pragma once

#include "burthen.h"

typedef struct bt_usage {
    bt_known prompt_tokens; /* all of the prompt, with what was cached */
    bt_known cached_tokens; /* of the prompt, not computed again */
    bt_known output_tokens, draft_tokens, accepted_tokens;
    double prompt_per_s, output_per_s; /* 0: not said */
} bt_usage;

/* Reads `usage` (OpenAI, Anthropic: input_tokens, output_tokens; prompt_tokens_details.cached_tokens) and `timings`
 * (llama.cpp: cache_n, prompt_n, prompt_per_second, predicted_n, predicted_per_second, draft_n, draft_n_accepted) from
 * a JSON body or from the data lines of an event stream. One block of under BT_USAGE_READER_BYTES, however long the
 * answer is; of its text never more than one key or number of members.h. */
#define BT_USAGE_READER_BYTES 1024u
typedef struct bt_usage_reader bt_usage_reader;
/* event_stream: text/event-stream; else JSON. NULL when memory is refused: usage is then not known. */
bt_usage_reader *bt_usage_open(bool event_stream);
void bt_usage_add(bt_usage_reader *reader, const char *data, size_t n_bytes); /* NULL reader is fine */
/* Of an event stream: events with data so far, about one for each token that was written; else, and of NULL, 0. */
uint64_t bt_usage_pieces(const bt_usage_reader *reader);
void bt_usage_finish(bt_usage_reader *reader, bt_usage *ret); /* closes it */
