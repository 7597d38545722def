/* SPDX-License-Identifier: MIT
 * speed.h: how fast this machine reads a model and gets through its weights: what forecasts stand on. */
#pragma once

#include "burthen.h"

/* Measure, in a short-lived child, what machine does not know yet: how the model's own file is read fastest, which is
 * kept for the next runs, and bytes of weights a second for a product with one column in the model's most common type.
 * A second for the first, 50 ms for the other. What cannot be measured stays unknown: a plan without a forecast is a
 * plan. machine->disk has been looked for (probe/disk.h). */
void bt_speed_measure(const bt_facts *facts, uint32_t n_threads, bt_machine *machine);
