/* SPDX-License-Identifier: MIT
 * running.h: from options to a loaded model with a context: what `run`, `bench` and `perplexity` share. */
#pragma once

#include "cli/commands.h"
#include "cli/planning.h"
#include "engine/generate.h"
#include "engine/session.h"
#include "report/report.h"

typedef struct bt_running {
    const bt_cli_options *options;
    bt_cli_options host_options; /* the same without devices, where those failed */
    bt_machine machine;
    bt_plan plan;
    bt_facts *whole; /* of the file */
    bt_placed placed;
    const bt_facts *facts; /* what is planned for, and loaded on, the host: the whole, or the split's */
    bt_arena *arena;
    bt_engine *engine;
    bt_session *session;
    bt_facts *draft_facts; /* of the draft model; NULL: there is none */
    bt_draft *draft;       /* NULL: there is none, or it could not be opened */
    bt_terminal terminal;  /* stderr: progress */
    uint64_t base_bytes;   /* held before the model was opened */
    uint64_t loaded_heap_bytes;
    uint64_t loaded_own_bytes; /* of that, through base/heap.h, with the session */
    bool lock_warned;          /* that --mlock could not lock all */
} bt_running;

/* Plan by dry run and print the plan on stderr (with options->json: on stdout, when refused); then, unless it is
 * refused, load and make a context. Returns 0 when running, else the exit code, with everything said and closed.
 * outputs: rows of logits the command needs. */
int bt_running_open(const bt_cli_options *options, const char *model, bt_outputs_fn outputs, bt_running *running);
/* The same, with a question that is asked as soon as there is a vocabulary: before weights are read, and so before a
 * prompt that cannot fit has cost anything. Its failure ends the opening. */
typedef bt_status (*bt_running_check)(bt_engine *engine, const bt_plan *plan, const void *user, bt_error *err);
int bt_running_open_checked(const bt_cli_options *options, const char *model, bt_outputs_fn outputs,
                            bt_running_check check, const void *user, bt_running *running);
/* What a command asks on the way, and when; each may be NULL. */
typedef struct bt_running_asks {
    /* When the header was read, before the plan: the caller's options may still be changed. */
    bt_status (*on_facts)(const bt_facts *facts, void *user, bt_error *err);
    void *facts_user;
    bt_running_check check;
    const void *check_user;
} bt_running_asks;
int bt_running_open_asking(const bt_cli_options *options, const char *model, bt_outputs_fn outputs,
                           const bt_running_asks *asks, bt_running *running);
void bt_running_close(bt_running *running);

/* Sampling and length as the options say; on_token and user are the caller's to set. grammar: GBNF text, or NULL. */
bt_generate_params bt_running_generate_params(const bt_running *running, const char *grammar);

/* Lines, peaks and device counters now; what the command counted itself is left as it is. */
void bt_running_measure(bt_running *running, bt_measured *measured);
/* planned | reserved | committed | peak on stderr, unless quiet. */
void bt_running_print_lines(const bt_running *running, const bt_measured *measured);

/* Log what a user should do something about: memory that could not be locked, unless that was said already, and many
 * major faults. At the end of the run. */
void bt_running_warn(bt_running *running, const bt_measured *measured);

/* Keep what was measured for `burthen report`. */
void bt_running_keep(const bt_running *running, const bt_measured *measured);

/* SIGINT and SIGTERM stop the graph that runs; the signal that came, or 0. A second one kills. */
int bt_running_signal(void);
/* That signal has been dealt with: go on, and catch the next one. */
void bt_running_signal_clear(void);
/* The file of --stats: plan, text and tokens, and what was measured. */
BT_MUST_CHECK bt_status bt_running_write_stats(const bt_running *running, const bt_measured *measured,
                                               const bt_text *text, const int32_t *tokens, uint32_t n_tokens,
                                               bt_error *err);
/* One line on stderr, unless quiet: tokens, speeds, what was read. */
void bt_running_print_summary(const bt_running *running, const bt_measured *measured);
/* Exit code of an error, or of the signal that stopped the work (130, 143). */
int bt_running_fail(const bt_error *err);
