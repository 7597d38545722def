/* SPDX-License-Identifier: MIT
 * speculate.h: when drafts are worth a pass, from what passes and drafts have cost and brought so far. */
#pragma once

#include "burthen.h"

/* Tokens of one draft. With the token before them they are 7: up to there results are those of single steps to the bit
 * (device.h, BT_TOKEN_BY_TOKEN_MAX). */
#define BT_DRAFT_MAX 6u

#define BT_LATELY_PASSES 3u
#define BT_LATELY_FIRST  2u /* passes that make it known */

/* What a pass takes lately. Of one among others that stood still, for the disk or for another process, nothing stays.
 */
typedef struct bt_lately {
    uint64_t ns; /* of one pass alone it is that pass's, whatever it was */
    uint64_t last_ns[BT_LATELY_PASSES];
    uint32_t n_passes; /* ever */
} bt_lately;

/* Of the drafts of one kind. */
typedef struct bt_speculation {
    bt_lately step;                    /* a pass of one token */
    bt_lately draft;                   /* a pass with a draft, and making it */
    uint32_t accepted_256;             /* tokens of a draft that were right, lately, times 256 */
    uint32_t n_passes_since;           /* without a draft of this kind since the last one */
    uint32_t n_drafts, n_drafts_since; /* ever, and since the last pass of one token */
    uint64_t drafted, accepted;        /* tokens */
} bt_speculation;

/* A draft is at hand, or can be made: is it worth it? */
bool bt_speculation_pays(const bt_speculation *s);
/* Both pay, and a draft of this kind is at hand: should it be this one? */
bool bt_speculation_beats(const bt_speculation *s, const bt_speculation *other);
/* Nothing of what is known says that steps of off_ns each, without drafts of this kind, bring more tokens for a time.
 */
bool bt_speculation_holds(const bt_speculation *s, uint64_t off_ns);
void bt_speculation_note_step(bt_speculation *s, uint64_t ns);
void bt_speculation_note_draft(bt_speculation *s, uint32_t n_drafted, uint32_t n_accepted, uint64_t ns);
void bt_speculation_note_other(bt_speculation *s); /* a pass had a draft of another kind */
