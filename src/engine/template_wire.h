/* SPDX-License-Identifier: MIT
 * template_wire.h: what template.c and the template worker (template.cpp) say to each other through two pipes.
 *
 * Numbers are u32 (peak: u64) in the machine's own order: both ends are one build. A string is a count and its bytes.
 *
 *   request  magic, flags, template, bos, eos, n messages, n x (role, content)
 *   reply    magic, state, peak heap bytes of the worker (u64), then
 *            state OK: n parts, n x (1 when it is text of a message, bytes); n stops, n x stop
 *            else: the reason, one line */
#pragma once

#define BT_TEMPLATE_REQUEST 0x31515442u /* "BTQ1" */
#define BT_TEMPLATE_REPLY   0x31525442u /* "BTR1" */

#define BT_TEMPLATE_ADD_GENERATION 1u /* end with what opens the model's answer */
#define BT_TEMPLATE_ADD_BOS        2u /* the tokenizer puts it in front: cut it from the text */
#define BT_TEMPLATE_ADD_EOS        4u

#define BT_TEMPLATE_OK     0u
#define BT_TEMPLATE_BAD    1u /* the template cannot be parsed, or refuses this conversation */
#define BT_TEMPLATE_MEMORY 2u /* more memory than the limit */

/* Resident code of the worker, with the C library: measured 2.3 MiB, depending on what the page cache maps around. */
#define BT_TEMPLATE_CODE_BYTES (3u << 20)
/* A template's text: the largest of llama.cpp's collection has 25 KiB. */
#define BT_TEMPLATE_TEXT_MAX (1u << 20)
/* Of one request or reply: a context of 2^20 tokens has about 4 MiB of text. */
#define BT_TEMPLATE_WIRE_MAX (64u << 20)
