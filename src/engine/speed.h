/* SPDX-License-Identifier: MIT
 * speed.h: how fast this machine reads a model and gets through its weights: what forecasts stand on. */
#pragma once

#include "burthen.h"

/* Measure, in a short-lived child, what machine does not know yet: read bandwidth of the model's own file, and bytes of
 * weights a second for a product with one column in the model's most common type. Some 100 ms. What cannot be measured
 * stays unknown: a plan without a forecast is a plan. */
void bt_speed_measure(const bt_facts *facts, uint32_t n_threads, bt_machine *machine);
