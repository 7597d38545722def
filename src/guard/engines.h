/* SPDX-License-Identifier: MIT
 * engines.h: programs beside llama.cpp's whose command lines have one thing that can be said about memory. */
#pragma once

#include "guard/rewrite.h"

typedef struct bt_engine_ask {
    const bt_argv *argv;
    bt_known free_bytes; /* of all devices */
    bool sam_on_cpu;     /* segment-anything models (.ggml) are kept off devices */
} bt_engine_ask;

typedef struct bt_engine_decision {
    bool known;   /* one of these programs: there is nothing else to decide about it */
    bool changed; /* the rewrite has an edit */
    char reason[160];
} bt_engine_decision;

/* Before everything else, telemetry included. rewrite is open. E_ARG as bt_rewrite_set. */
BT_MUST_CHECK bt_status bt_guard_engine(const bt_engine_ask *ask, bt_rewrite *rewrite, bt_engine_decision *ret,
                                        bt_error *err);
