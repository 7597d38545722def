/* SPDX-License-Identifier: MIT
 * judge.h: a command line judged: what it is, which files it names, and what is to be done with it on a machine as it
 * is now. What `burthen exec` and the router share; neither prints nor waits here.
 *
 *     bt_judge_open     the command, where its program starts, its options, variables and config files
 *     bt_judge_read     the headers of its model, draft and projector (once; the others do it where it must be)
 *     bt_judge_recall   what was seen of it before
 *     bt_judge_decide   a decision for a machine, as often as it is looked at
 *     bt_judge_apply    the last decision, in the rewrite
 */
#pragma once

#include "base/text.h"
#include "guard/footprint.h"
#include "guard/place.h"

#define BT_JUDGE_FILES_MAX 8u         /* config files of llama.cpp's that one command reads */
#define BT_JUDGE_FILE_MAX  (1u << 20) /* bytes of one, which is a page long */
#define BT_JUDGE_NOTES_MAX 2u

/* What is asked beside the command. Pointers are borrowed as long as the judge is open. */
typedef struct bt_judge_settings {
    const bt_device_wish *devices; /* targets by name; one with a size that the machine does not show is added */
    uint32_t n_devices;
    bt_known target_bytes; /* of all devices together */
    bt_known host_bytes;   /* what it is held to of the host: no more than that, whatever there is */
    double min_gpu_fraction;
    bool degrade;
    bt_known vision_overhead_bytes;
} bt_judge_settings;

/* A whole file, appended to text, whose maximum is the bound. */
typedef bt_config_state bt_judge_file_read(void *context, const char *path, bt_text *text);
bt_judge_file_read bt_judge_read_file; /* from this system; context is not used */

typedef struct bt_judge_input {
    char *const *argv; /* NULL at the end; borrowed */
    bt_judge_settings settings;
    bt_env_get env; /* NULL: an empty environment */
    void *env_context;
    bt_judge_file_read *read; /* NULL: bt_judge_read_file */
    void *read_context;
} bt_judge_input;

/* Zero-initialised and large: on the heap. Read it; only settings may be written, between decisions. */
typedef struct bt_judge {
    bt_judge_input input;
    bt_judge_settings settings;
    bt_command command; /* program NONE: nothing of it is read, and its reason says why */
    const bt_argv *parsed;
    bt_effective effective; /* of a llama.cpp program */
    bt_rewrite rewrite;     /* what would be started; before an apply, as it was typed */
    bt_text files[BT_JUDGE_FILES_MAX];
    uint32_t n_files;
    bool has_read; /* what follows is set */
    bt_facts *facts, *draft;
    bt_projector *projector;
    char facts_reason[200];              /* why the model cannot be read; empty: it can */
    bt_error facts_error;                /* where it is a file that is named, and cannot be read; else BT_OK */
    char notes[BT_JUDGE_NOTES_MAX][480]; /* on files that were left to the program */
    uint32_t n_notes;
    char footprint_name[BT_FOOTPRINT_NAME_BYTES]; /* where what is seen of it is kept; empty: before bt_judge_recall */
    bt_footprint seen;                            /* in former runs */
    /* Of the machine that was looked at last. */
    bt_guard_device devices[BT_POOL_MAX];
    uint32_t n_devices;
    uint32_t n_seen; /* of these, those that the machine shows: their memory is read and can change */
    bt_known host_free_bytes, host_total_bytes;
    bt_arena *arena, *last; /* of the command; of the last decision */
} bt_judge;

/* BT_E_ARG, code "arguments": more arguments than are read; BT_E_NOMEM. On failure it is closed. */
BT_MUST_CHECK bt_status bt_judge_open(bt_judge *judge, const bt_judge_input *input, bt_error *err);
void bt_judge_close(bt_judge *judge);
/* model: instead of the one the options name (of a program whose options are not of the table); NULL: that one. What
 * cannot be read is no failure: facts is NULL, and facts_reason says why. */
void bt_judge_read(bt_judge *judge, const char *model);
/* What was seen of this very command in former runs, from the state folder: what it takes is then no less. After
 * bt_judge_read, since its model is part of its name. */
void bt_judge_recall(bt_judge *judge);
/* The machine's devices, and those of the settings, into the judge. bt_judge_decide does it. */
void bt_judge_look(bt_judge *judge, const bt_machine *machine);
/* Raw, of all devices; unknown where one does not say, or there is none. */
bt_known bt_judge_free_bytes(const bt_judge *judge);
/* LoRA and control vectors. */
uint64_t bt_judge_adapter_bytes(const bt_judge *judge);
/* What the guard is asked: of the devices and the host as they were looked at last; arena: of the prices. */
bt_guard_ask bt_judge_ask(const bt_judge *judge, bt_arena *arena);
/* Refusing is a decision, and so is passing on what cannot be decided. The decision is good until the next one (its
 * notes are the judge's). machine is not looked at where the command has no program. */
BT_MUST_CHECK bt_status bt_judge_decide(bt_judge *judge, const bt_machine *machine, bt_guard_decision *ret,
                                        bt_error *err);
/* Into the rewrite, once for each decision. BT_E_ARG as bt_rewrite_set. */
BT_MUST_CHECK bt_status bt_judge_apply(bt_judge *judge, const bt_guard_decision *decision, bt_error *err);
