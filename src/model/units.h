/* SPDX-License-Identifier: MIT
 * units.h: the placed things of a model, and where in its files they lie. */
#pragma once

#include "base/arena.h"
#include "burthen.h"

#define BT_EXTENT_GAP_BYTES                                                                                            \
    65536                  /* two ranges nearer than this are read as one: a request's cost is about 64 KiB's          \
                            */
#define BT_PANEL_MAX 65536 /* panels of a head; of 1 MiB each it is a head of 64 GiB */
/* A panel is not cut smaller than one request of the reader (store/reader.h): below it the disk's rate falls. */
#define BT_PANEL_MIN_BYTES (1u << 20)

/* Fills units, unit_tensors and extents of facts (allocated from the arena; scratch is for the way) and tensors[].unit.
 * Roles, blocks, shards are set. name: the file's, for sentences. BT_E_LIMIT when there are too many. */
BT_MUST_CHECK bt_status bt_units_fill(bt_facts *facts, bt_arena *arena, bt_arena *scratch, const char *name,
                                      bt_error *err);
